"""The x86 guest: Debian's own kernel, with a USB bridge of ours and hardware to plug in.

QEMU without virtualisation boots Debian's kernel; its root file system is this
machine's, read-only, so that edged and the tests are those of the working tree. It
boots once, runs the suites of `inside/` and ends; the tests here report on them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("EDGED_HIL_CACHE") or Path.home() / ".cache/edged-hil")
SUITES = ("bus", "chips", "hotplug", "pins", "serial")
CONFORMANCE = "tests/conformance"
BOUND_S = 900
"""An emulated CPU on a machine with other work; alone it takes a quarter."""


class Report:
    """What the suites in the guest came to.

    Args:
        outcomes: by suite and test, what was wrong with it; empty when it passed.
    """

    def __init__(self, outcomes: dict[str, dict[str, str]]) -> None:
        self._outcomes = outcomes

    def check(self, suite: str) -> None:
        """Fails as a file of `inside/` did.

        Args:
            suite: its name, `chips`, or `CONFORMANCE`.
        """
        outcomes = self._outcomes.get(suite, {"it": "it did not run in the guest"})
        failed = [f"{name}\n{why}" for name, why in outcomes.items() if why]
        if failed:
            pytest.fail("\n\n".join(failed), pytrace=False)


def _boot(built: Path, run: Path) -> str:
    """Runs the guest to its end, in the directory `run`; what it wrote to its console."""
    share = run / "share"
    share.mkdir()
    suites = [f"hil/x86/inside/{suite}.py" for suite in SUITES]
    variables = {
        "project": ROOT,
        "python": sys.executable,
        "suites": ",".join([*suites, CONFORMANCE]),
        "EDGED_RIGS": "hil.x86.inside.rig",
    }
    words = ["console=ttyS0", "rdinit=/init", "panic=-1", "loglevel=4", "cryptomgr.notests"]
    words += [f"{name}={value}" for name, value in variables.items()]
    command = [
        "qemu-system-x86_64",
        *("-machine", "pc", "-accel", "tcg", "-cpu", "Nehalem", "-m", "768M"),
        # Its time is that of its own work: on a busy machine all waits for answers hold still.
        *("-icount", "shift=1"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-kernel", built / "vmlinuz", "-initrd", built / "initrd", "-append", " ".join(words)),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
        *(
            "-virtfs",
            "local,path=/,mount_tag=host,readonly=on,multidevs=remap,security_model=none",
        ),
        *("-virtfs", f"local,path={built}/layer,mount_tag=layer,readonly=on,security_model=none"),
        *("-virtfs", "local,path=share,mount_tag=share,security_model=none"),
        *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci", "-device", "qemu-xhci"),
        # The guest has hold of its own hardware: its QEMU's monitor, and the far end of the
        # USB serial adapter that it plugs in by that, are ports of its own.
        *("-chardev", "socket,id=monitor,path=monitor,server=on,wait=off"),
        *("-mon", "chardev=monitor,mode=control"),
        *("-chardev", "socket,id=hands,path=monitor"),
        *("-device", "virtserialport,chardev=hands,name=monitor"),
        *("-chardev", "socket,id=usbserial,path=usbserial,server=on,wait=off"),
        *("-chardev", "socket,id=far,path=usbserial"),
        *("-device", "virtserialport,chardev=far,name=far"),
    ]
    guest = subprocess.Popen(
        command,
        cwd=run,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        return guest.communicate(timeout=BOUND_S)[0]
    finally:
        guest.kill()
        guest.wait()


def _outcomes(report: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for case in ET.parse(report).iter("testcase"):
        path, _, suite = case.attrib["classname"].rpartition(".")
        suite = CONFORMANCE if path.endswith("conformance") else suite
        wrong = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        why = "\n".join(child.text or child.attrib["message"] for child in wrong)
        found.setdefault(suite, {})[case.attrib["name"]] = why
    return found


@pytest.fixture(scope="session")
def guest() -> Report:
    """The report of one boot."""
    built = CACHE / "x86"
    subprocess.run([str(HERE / "build.sh"), str(built)], check=True)
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="hil-") as run:
        console = _boot(built, Path(run))
        log, report = Path(run, "share/log"), Path(run, "share/report.xml")
        print(console, log.read_text() if log.exists() else "")
        if not report.exists():
            pytest.fail("the suites in the guest did not end", pytrace=False)
        return Report(_outcomes(report))
