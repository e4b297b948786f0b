"""Runs umockdev_i2c.py, the tests against emulated ioctls, in the process that they need."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]
PYTHON = "/usr/bin/python3"
BOUND_S = 100.0


@pytest.fixture(scope="module")
def env():
    """Debian's Python, for its `gi`, with the packages of this environment."""
    there = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
    }
    needs = "import gi; gi.require_version('UMockdev', '1.0'); import msgspec, smbus2"
    tried = subprocess.run([PYTHON, "-c", needs], env=there, capture_output=True, text=True)
    missing = "" if shutil.which("umockdev-wrapper") else "no umockdev-wrapper"
    missing = missing or tried.stderr
    assert not missing, f"run .ci/setup test: {PYTHON} lacks what umockdev needs: {missing}"
    return there


def test_the_kernels_interface_is_used_as_it_is_documented(env):
    # gi's importer is from before Python 3.12.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore:DynamicImporter:ImportWarning"]
    ran = subprocess.run(
        ["umockdev-wrapper", PYTHON, "-m", "pytest", *options, str(HERE / "umockdev_i2c.py")],
        cwd=PROJECT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
    )
    assert ran.returncode == 0, ran.stdout
