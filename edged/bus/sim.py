"""Simulated buses: the same Protocols as the real ones, over models handed in.

I2C targets are register models (a driver's `Sim`), GPIO lines carry parts with
physics. Time is injected and nothing here waits for it, so that a test decides
what time it is. Knows no driver.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf
from typing import Literal, Protocol

from edged.bus import I2cTransfers, LineSettings, i2c_error
from edged.errors import BusError, BusyError, NoDeviceError

FaultKind = Literal["nack", "timeout", "all_ones"]


class Target(Protocol):
    """A register model: one chip on an I2C bus, byte by byte."""

    def write(self, data: bytes) -> None:
        """Takes the bytes of one write."""

    def read(self, length: int) -> bytes:
        """Gives the bytes of one read."""


class SimI2c:
    """A simulated I2C bus; call from the event loop's thread.

    Args:
        name: `i2c-1`.
        targets: register models by 7-bit address; may change while in use, as
            devices come and go.
    """

    def __init__(self, name: str, targets: dict[int, Target]) -> None:
        self.name = name
        self.targets = targets
        self._faults: dict[int, tuple[FaultKind, float]] = {}
        self._lock = asyncio.Lock()
        self._held = _HeldI2c(self._run)

    def fail(self, address: int, kind: FaultKind, times: float = inf) -> None:
        """Orders a fault for the next transfers to an address.

        Args:
            address: of the target.
            kind: `nack`: nothing acknowledges; `timeout`: the bus is stuck;
                `all_ones`: reads are 0xFF (data line not connected).
            times: how many transfers; for good by default. 0 ends the fault.
        """
        self._faults[address] = (kind, times)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[I2cTransfers]:
        """Holds the bus for several transfers; waiters are served in order."""
        async with self._lock:
            yield self._held

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        """One transaction on its own."""
        async with self._lock:
            return await self._held.transfer(address, write, read_len)

    def _run(self, address: int, write: bytes, read_len: int) -> bytes:
        fault = self._next_fault(address)
        if fault == "timeout":
            raise i2c_error(errno.ETIMEDOUT, self.name, address)
        target = self.targets.get(address)
        if fault == "nack" or target is None:
            raise i2c_error(errno.EREMOTEIO, self.name, address)
        if write:
            target.write(write)
        data = target.read(read_len) if read_len else b""
        return b"\xff" * read_len if fault == "all_ones" else data

    def _next_fault(self, address: int) -> FaultKind | None:
        kind, times = self._faults.get(address, (None, 0))
        if kind is None or times <= 0:
            return None
        self._faults[address] = (kind, times - 1)
        return kind


class _HeldI2c:
    """The transfers of whoever holds the bus."""

    def __init__(self, run: Callable[[int, bytes, int], bytes]) -> None:
        self._run = run

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        # A real transfer takes time, in which other tasks run: so does this.
        await asyncio.sleep(0)
        return self._run(address, write, read_len)


Level = tuple[float, bool | None]
"""From this second on, this physical level; None is not driven (the bias decides)."""


class Part(Protocol):
    """What is wired to a line."""

    def levels(self, at: float) -> Sequence[Level]:
        """What the part drives: its recent levels up to that second, oldest first."""


BOUNCE_S = (0.0003, 0.0008, 0.0013, 0.0025)
"""After a press or a release the contact changes again at these times, then rests."""

_BEFORE = -inf


def _contact(moves: Sequence[tuple[float, bool]], at: float) -> list[Level]:
    """Levels of a contact to ground that was moved at these times, with its bounces.

    Args:
        moves: (second, pressed), alternating, oldest first.
        at: nothing after this second.
    """
    levels: list[Level] = [(_BEFORE, None)]
    if moves and not moves[0][1]:
        levels[0] = (_BEFORE, False)
    for (start, pressed), (end, _) in pairwise([*moves, (inf, False)]):
        closed = pressed
        for moment in (start, *(start + bounce for bounce in BOUNCE_S)):
            level = False if closed else None
            if moment <= at and moment < end and levels[-1][1] is not level:
                levels.append((moment, level))
            closed = not closed
    return levels


class Button:
    """A push button to ground that is pressed by hand: `press` and `release`.

    Args:
        now: seconds, the same time as the bus's.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._moves: deque[tuple[float, bool]] = deque(maxlen=8)

    def press(self) -> None:
        """Closes the contact, which bounces; nothing when it is pressed already."""
        self._move(pressed=True)

    def release(self) -> None:
        """Opens the contact, which bounces; nothing when it is not pressed."""
        self._move(pressed=False)

    def levels(self, at: float) -> Sequence[Level]:
        """Low while the contact is closed, else not driven."""
        return _contact(list(self._moves), at)

    def _move(self, *, pressed: bool) -> None:
        was_pressed = bool(self._moves) and self._moves[-1][1]
        if pressed != was_pressed:
            self._moves.append((self._now(), pressed))


class StoryButton:
    """A push button to ground that someone presses from second 50 to 52 of each minute."""

    PRESS_S, RELEASE_S, PERIOD_S = 50.0, 52.0, 60.0

    def levels(self, at: float) -> Sequence[Level]:
        """Low while the contact is closed, else not driven."""
        minute = at // self.PERIOD_S * self.PERIOD_S
        moves = [
            (start + offset, pressed)
            for start in (minute - self.PERIOD_S, minute)
            for offset, pressed in ((self.PRESS_S, True), (self.RELEASE_S, False))
        ]
        return _contact(moves, at)


def debounced(levels: Sequence[Level], at: float, debounce_s: float) -> bool | None:
    """The last level that held for the debounce time, as the kernel debounces.

    Source: drivers/gpio/gpiolib-cdev.c, `debounce_work_func`.
    """
    value = levels[0][1]
    for (start, level), (end, _) in pairwise([*levels, (inf, None)]):
        if min(end, at) - start >= debounce_s:
            value = level
    return value


class SimGpio:
    """Simulated GPIO lines on one chip; call from the event loop's thread.

    Args:
        lines: what is wired to each line, by name and in the order of their
            offsets; None is nothing, or something that only listens (an LED):
            `level` tells what it sees.
        now: seconds, the same time as the parts'.
        chip: the chip's label.
    """

    def __init__(
        self, lines: Mapping[str, Part | None], now: Callable[[], float], chip: str = "gpio-sim"
    ) -> None:
        self._lines = {name: SimLine(name, part, now) for name, part in lines.items()}
        self._offsets = {f"{chip}/{offset}": name for offset, name in enumerate(lines)}

    async def request(self, line: str, settings: LineSettings, consumer: str) -> SimLine:
        """Takes a line for its consumer alone."""
        found = self._lines.get(self._offsets.get(line, line))
        if found is None:
            raise NoDeviceError(f"no line {line!r}: the lines are {', '.join(self._lines)}")
        found.take(settings, consumer)
        return found

    def level(self, line: str) -> bool:
        """The physical level of a line, as a meter on its pin shows it."""
        return self._lines[line].level()


class SimLine:
    """One simulated line. What an output drove stays after its release, as on most boards."""

    def __init__(self, name: str, part: Part | None, now: Callable[[], float]) -> None:
        self._name = name
        self._part = part
        self._now = now
        self._settings = LineSettings("input")
        self._driven: bool | None = None
        self._consumer = ""

    def take(self, settings: LineSettings, consumer: str) -> None:
        """Requests the line; see `SimGpio.request`."""
        if self._consumer:
            raise BusyError(f"line {self._name} is used by {self._consumer!r}")
        self._settings, self._consumer = settings, consumer
        self._driven = None
        if settings.direction == "output":
            self._drive(settings.output_value)

    async def get(self) -> bool:
        """The present value."""
        await asyncio.sleep(0)
        return self.level(self._settings.debounce_s) != self._settings.active_low

    async def set(self, value: bool) -> None:
        """Drives an output."""
        await asyncio.sleep(0)
        if self._settings.direction != "output":
            raise BusError(errno.EPERM, f"line {self._name} is an input")
        self._drive(value)

    async def release(self) -> None:
        """Gives the line back."""
        self._consumer = ""

    def level(self, debounce_s: float = 0.0) -> bool:
        """The physical level: what is driven, else what the bias pulls to, else low."""
        level = self._driven
        if level is None and self._part is not None:
            at = self._now()
            level = debounced(self._part.levels(at), at, debounce_s)
        return self._settings.bias == "pull-up" if level is None else level

    def _drive(self, value: bool) -> None:
        level = value != self._settings.active_low
        floats = self._settings.drive == ("open-drain" if level else "open-source")
        self._driven = None if floats else level
