"""The systemd guest: Debian with edged installed as the README says, on a kernel of its own.

User Mode Linux, the kernel of `hil/uml` with its make-believe chips, is an ordinary
process: no hypervisor, no emulation. What is built is kept in EDGED_HIL_CACHE (by
default ~/.cache/edged-hil); the disk there is never changed, what a run writes goes
beside it. The guest has no network; a terminal carries commands in and answers out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from hil.rig import Agent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("EDGED_HIL_CACHE") or Path.home() / ".cache/edged-hil")
SUITE = os.environ.get("EDGED_SYSTEM_SUITE") or "trixie"
BOOT_S = 180
BOUND_S = 60
OFF_S = 60
_POLL_S = 0.1

CONFIG = """\
board:
  gpio:
    lamp: {line: LAMP, direction: output, active_low: true, safe: off}
  actuators:
    relays:
      driver: mcp23017
      bus: i2c-0
      address: 0x20
      options: {model: mcp23008, outputs: {pump: {line: gp0, active_low: true, safe: off}}}
"""


class Guest:
    """One boot; `with` starts it and cuts its power.

    Args:
        built: directory of the disk.
        kernel: directory of the kernel and its modules.
        place: directory for what it writes; a second boot there goes on from the first.
    """

    def __init__(self, built: Path, kernel: Path, place: Path) -> None:
        self._built, self._kernel, self._place = built, kernel, place
        self.share = place / "share"
        """Seen inside as /run/share."""

    def __enter__(self) -> Self:
        self.share.mkdir(exist_ok=True)
        shutil.copy(self._kernel / "i2c-stub.ko", self.share)
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            with theirs:
                self._start(stack, theirs.fileno())
            ours.settimeout(BOOT_S)
            self._await_agent(ours)
            self._agent = stack.enter_context(contextlib.closing(Agent(ours)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, command: str, timeout: float = BOUND_S) -> str:
        """What a shell command prints; one that fails is an error."""
        return self._agent.run(command, timeout=timeout)

    def power_off(self) -> None:
        """Shuts it down as a person would, and waits until its power is off."""
        self.run("systemctl --no-block poweroff")
        # User Mode Linux may hang at the very end, its file systems long unmounted.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(OFF_S)

    def until(self, command: str, wanted: str, bound: float = BOUND_S) -> None:
        """Waits until a command prints what is wanted."""
        end = time.monotonic() + bound
        while (seen := self.run(command).strip()) != wanted:
            if time.monotonic() > end:
                raise AssertionError(f"{command}: {seen!r}, not {wanted!r}, after {bound} s")
            time.sleep(_POLL_S)

    def _start(self, stack: contextlib.ExitStack, terminal: int) -> None:
        command = [
            self._kernel / "linux", f"ubd0={self._place}/disk,{self._built}/disk",
            "root=/dev/ubda", "rw", "mem=384M", "quiet", "con=null", "con0=null,fd:1",
            f"con1=fd:{terminal}", f"hostfs={self.share}", "systemd.show_status=0",
        ]  # fmt: skip
        console = stack.enter_context((self._place / "console.log").open("a"))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            pass_fds=[terminal],
            start_new_session=True,
        )
        stack.callback(self._cut_power)

    def _await_agent(self, sock: socket.socket) -> None:
        said = b""
        while not said.endswith(b"listens\n"):
            try:
                byte = sock.recv(1)
            except TimeoutError:
                byte = b""
            if not byte:
                console = (self._place / "console.log").read_text(errors="replace")
                raise RuntimeError(f"the guest's agent does not listen:\n{console[-4000:]}")
            said += byte

    def _cut_power(self) -> None:
        # It is several processes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Unit:
    """edged.service in the guest, and what a meter shows of the relays that it drives."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.run = guest.run

    def show(self, fact: str) -> str:
        """A property of the unit, by systemd's name for it."""
        return self.run(f"systemctl show --value --property {fact} edged").strip()

    def until(self, fact: str, wanted: str, bound: float = BOUND_S) -> None:
        """Waits until a property has a value."""
        self.guest.until(f"systemctl show --value --property {fact} edged", wanted, bound)

    def errors(self) -> list[str]:
        """What its last start left in the journal as errors."""
        of_start = f"_SYSTEMD_INVOCATION_ID={self.show('InvocationID')}"
        return self.run(f"journalctl --output cat --priority err {of_start}").splitlines()

    def switch_on(self) -> None:
        """Has the daemon switch both relays on."""
        self.run("edged call gpio line=lamp value=on")
        self.run("edged call actuator actuator=relays command=set "
                 """'arguments={"output": "pump", "on": true}'""")  # fmt: skip
        assert self.relays() == {"lamp": "on", "pump": "on"}

    def relays(self) -> dict[str, str]:
        """The state of each, by the level at its pin: low is on."""
        lamp = self.run("cat /run/lamp/value").strip() == "1"
        # Register OLAT (DS21919E, MCP23008, section 1.6).
        olat = self.run(
            "/opt/edged/bin/python -c 'from smbus2 import SMBus; "
            "print(SMBus(0).read_byte_data(0x20, 0x0A, force=True))'"
        )
        pump = bool(int(olat) & 1)
        return {name: "off" if level else "on" for name, level in (("lamp", lamp), ("pump", pump))}

    def pull_lamp(self, way: str) -> None:
        """What is wired to the lamp's relay: what holds when nothing drives the line."""
        self.run(f"echo pull-{way} >/run/lamp/pull")


def _readme() -> list[str]:
    """What the README says to type, for a root who needs no sudo."""
    text = (ROOT / "README.md").read_text()
    section = text[text.index("### As a service") :].partition("\n## ")[0]
    return [line.removeprefix("    sudo ").replace("&& sudo", "&&")
            for line in re.findall(r"^    .*", section, re.MULTILINE)]  # fmt: skip


def _install(guest: Guest) -> None:
    """As the README says, but that the guest has no registry: its environment is begun."""
    wheels = guest.share / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", wheels, ROOT]
    subprocess.run(build, check=True)
    shutil.copytree(ROOT / "systemd", guest.share / "systemd")
    guest.run(f"mkdir /etc/edged && cat >/etc/edged/edged.yaml <<'EOF'\n{CONFIG}EOF")
    for command in _readme():
        if command == "/opt/edged/bin/pip install .":
            command = "/opt/edged/bin/pip install -qq --no-index --no-deps wheels/*"
        if "-m venv" not in command:
            guest.run(f"cd /run/share && {command}")


@pytest.fixture(scope="session")
def boot(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Guest]:
    """Starts the guest on which edged was installed and enabled."""
    kernel, built = CACHE / "uml", CACHE / f"system-{SUITE}"
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / "hil/uml/build-kernel.sh", kernel], check=True)
    subprocess.run([HERE / "build-disk.sh", built, SUITE], check=True, env=environment)
    run = tmp_path_factory.mktemp("guest")
    with Guest(built, kernel, run) as guest:
        _install(guest)
        guest.power_off()
    return lambda: Guest(built, kernel, run)


@pytest.fixture(scope="session")
def unit(boot: Callable[[], Guest]) -> Iterator[Unit]:
    """The second boot, at which systemd started edged."""
    with boot() as guest:
        yield Unit(guest)
