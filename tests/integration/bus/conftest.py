"""Runs tests against emulated ioctls in the process that they need."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
PYTHON = "/usr/bin/python3"
BOUND_S = 100.0


def _environment(package):
    """Debian's Python, for its `gi`, with the packages of this environment.

    Args:
        package: that the tests need beside msgspec.
    """
    there = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
    }
    needs = f"import gi; gi.require_version('UMockdev', '1.0'); import msgspec, {package}"
    tried = subprocess.run([PYTHON, "-c", needs], env=there, capture_output=True, text=True)
    missing = "" if shutil.which("umockdev-wrapper") else "no umockdev-wrapper"
    missing = missing or tried.stderr
    assert not missing, f"run .ci/setup test: {PYTHON} lacks what umockdev needs: {missing}"
    return there


@pytest.fixture
def run_under_umockdev():
    """`run(tests, package, *options)`: every test must pass there.

    A rig of the conformance suite is a module beside this one.
    """

    def run(tests, package, *options, rig=""):
        pytest_words = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        ran = subprocess.run(
            ["umockdev-wrapper", *pytest_words, str(PROJECT / tests)],
            cwd=PROJECT,
            env={**_environment(package), "EDGED_RIGS": f"tests.integration.bus.{rig}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BOUND_S,
        )
        assert ran.returncode == 0, ran.stdout

    return run
