"""Runs umockdev_spi.py, the tests against emulated ioctls, with what it needs."""

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
    """Debian's Python, for its `gi` and `spidev`, with the packages of this environment."""
    there = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{PROJECT}:{sysconfig.get_path('purelib')}",
    }
    needs = "import gi; gi.require_version('UMockdev', '1.0'); import msgspec, spidev"
    tried = subprocess.run([PYTHON, "-c", needs], env=there, capture_output=True, text=True)
    missing = "" if shutil.which("umockdev-wrapper") else "no umockdev-wrapper"
    missing = missing or tried.stderr
    assert not missing, f"run .ci/setup test: {PYTHON} lacks what umockdev needs: {missing}"
    return there


def test_the_kernels_interface_is_used_as_it_is_documented(env):
    """`Documentation/spi/spidev.rst` of the kernel; the package spidev in between."""
    options = ["-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        ["umockdev-wrapper", PYTHON, "-m", "pytest", *options, str(HERE / "umockdev_spi.py")],
        cwd=PROJECT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
    )
    assert ran.returncode == 0, ran.stdout
