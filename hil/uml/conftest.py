"""The quick guest: a kernel of its own, with hardware that its own drivers make believe.

User Mode Linux, built from Debian's kernel source with gpio-sim and i2c-stub, is
an ordinary process: no hypervisor, no root file system but this machine's,
read-only. It boots in a second, runs one suite of `inside/` and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("EDGED_HIL_CACHE") or Path.home() / ".cache/edged-hil")
BOUND_S = 300


class Guest:
    """Boots once for each suite.

    Args:
        kernel: directory of the kernel and its modules.
        share: directory that guest and host share.
    """

    def __init__(self, kernel: Path, share: Path) -> None:
        self._kernel, self._share = kernel, share

    def run(self, suite: str) -> None:
        """Runs a suite and fails as it does.

        Args:
            suite: below the project, a file or a directory.
        """
        share = self._share / Path(suite).stem
        share.mkdir()
        variables = {
            "share": share,
            "project": ROOT,
            "python": sys.executable,
            "kernel": self._kernel,
            "suite": suite,
            "EDGED_RIGS": "hil.uml.inside.rig",
        }
        console = self._boot([f"{name}={value}" for name, value in variables.items()])
        log, status = share / "log", share / "status"
        report = log.read_text() if log.exists() else f"no suite began; the console:\n{console}"
        print(report)
        if not status.exists() or int(status.read_text()):
            pytest.fail(f"the suite in the guest failed:\n{report}", pytrace=False)

    def _boot(self, arguments: list[str]) -> str:
        """Runs the guest to its end; what it wrote to its console."""
        init = HERE / "guest.sh"
        kernel = [
            self._kernel / "linux", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            "mem=256M", "quiet", "con=null", "con0=null,fd:1", f"init={init}",
        ]  # fmt: skip
        guest = subprocess.Popen(
            [*kernel, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            return guest.communicate(timeout=BOUND_S)[0]
        finally:
            # It is several processes: what is left of them ends with it.
            try:
                os.killpg(guest.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            guest.wait()


@pytest.fixture(scope="session")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    kernel = CACHE / "uml"
    subprocess.run([str(HERE / "build-kernel.sh"), str(kernel)], check=True)
    return Guest(kernel, tmp_path_factory.mktemp("guest"))
