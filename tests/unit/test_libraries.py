"""What to install where a package is missing: where this interpreter would find it."""

import os
import subprocess
import sys

import pytest

from edged.libraries import install

DEBIAN = "/usr/lib/python3/dist-packages"


@pytest.mark.parametrize(
    ("prefix", "path", "asked", "told"),
    [
        # PEP 405: a virtual environment has a prefix of its own.
        ("/opt/edged", [], ("pyserial", "python3-serial"), "/opt/edged/bin/pip install pyserial"),
        ("/opt/edged", [], ("edged[spi]",), "/opt/edged/bin/pip install 'edged[spi]'"),
        # Made with --system-site-packages it sees Debian's.
        (
            "/opt/edged",
            [DEBIAN],
            ("edged[spi]", "python3-spidev"),
            "apt install python3-spidev, or /opt/edged/bin/pip install 'edged[spi]'",
        ),
        ("/usr", [DEBIAN], ("smbus2", "python3-smbus2"),
         "apt install python3-smbus2, or pip install smbus2"),
        ("/usr", [DEBIAN], ("edged[web]",), "pip install 'edged[web]'"),
        ("/usr", [], ("smbus2", "python3-smbus2"), "pip install smbus2"),
    ],
)  # fmt: skip
def test_the_command_is_of_use_here(prefix, path, asked, told, monkeypatch):
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "path", ["/somewhere", *path])
    assert install(*asked) == told


def test_the_tests_run_where_pip_is_the_environments_own():
    """The command that is told here exists."""
    program = install("pyserial", "python3-serial").split(" ", 1)[0]
    assert program == os.path.join(sys.prefix, "bin", "pip")
    assert subprocess.run([program, "--version"], capture_output=True).returncode == 0
