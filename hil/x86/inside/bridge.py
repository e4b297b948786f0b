"""A CP2112 that is plugged in and pulled out, with what is wired to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent
BOUND_S = 30.0
"""The longest that anything is waited for, on an emulated CPU that has to share."""

_T = TypeVar("_T")


def until(what: str, attempt: Callable[[], _T]) -> _T:
    """What `attempt` returns once that is true."""
    ended = time.monotonic() + BOUND_S
    while not (found := attempt()):
        assert time.monotonic() < ended, f"{what}: not within {BOUND_S:g} s"
        time.sleep(0.05)
    return found


class Bridge:
    """A CP2112 (`cp2112.py`), in a process of its own.

    Args:
        chips: addresses and drivers of what is on its bus when it is plugged in.
    """

    def __init__(self, chips: dict[int, str] | None = None) -> None:
        commands = [["plug", address, driver, {}] for address, driver in (chips or {}).items()]
        self._process = subprocess.Popen(
            [sys.executable, HERE.parent / "cp2112.py", json.dumps(commands)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.adapter = until("the kernel has its bus", _adapter)
        """Its directory in sysfs."""
        self.name = self.adapter.name
        """Of its bus, `i2c-0`."""
        self.number = int(self.name.removeprefix("i2c-"))
        until("its lines have a node", lambda: list(Path("/dev").glob("gpiochip*")))

    def ask(self, verb: str, *words: Any) -> Any:
        """Has it do a command; its answer."""
        self._process.stdin.write(f"{json.dumps([verb, *words])}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def plug(self, address: int, driver: str, **arguments: Any) -> None:
        """Puts the model of edged's driver at an address."""
        self.ask("plug", address, driver, arguments)

    def kill(self) -> None:
        """Pulls it out of its socket."""
        self._process.kill()
        # It ends when the kernel has let go of the bus: it waits for who has it open.
        self._process.wait(BOUND_S)
        self._process.stdin.close()
        self._process.stdout.close()


def _adapter() -> Path | None:
    for name in Path("/sys/bus/i2c/devices").glob("i2c-*/name"):
        if name.read_text().startswith("CP2112") and os.path.exists(f"/dev/{name.parent.name}"):
            return name.parent
    return None
