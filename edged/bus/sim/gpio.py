"""Simulated GPIO lines, with parts that have physics."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Protocol

import msgspec

from edged.bus import Direction, Edge, LineSettings, LineState, OnEdges
from edged.bus._limits import check_pulse
from edged.errors import BusError, BusyError, NoDeviceError
from edged.yamlio import nearest

Level = tuple[float, bool | None]
"""From this second on, this physical level; None is not driven (the bias decides)."""


class Part(Protocol):
    """What is wired to a line.

    A part that also has `next_change(at) -> float` (the second of its next
    change after `at`, `inf` for none) changes by itself, and one that has
    `watch(changed)` calls `changed` when it was moved by hand: lines with edge
    detection need one of the two. A part with `driven(value, at)` is told what
    an output drives.
    """

    def levels(self, at: float) -> Sequence[Level]:
        """What the part drives: its recent levels up to that second, oldest first."""


BOUNCE_S = (0.0003, 0.0008, 0.0013, 0.0025)
"""After a press or a release the contact changes again at these times, then rests."""

LISTED_MAX = 8
"""Lines that a message lists."""

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
        self._changed: list[Callable[[], None]] = []

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
            for changed in self._changed:
                changed()

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called at each press and release."""
        self._changed.append(changed)

    def next_change(self, at: float) -> float:
        """The next bounce."""
        moved = self._moves[-1][0] if self._moves else -inf
        return min((moved + b for b in BOUNCE_S if moved + b > at), default=inf)


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

    def next_change(self, at: float) -> float:
        """The next press, release or bounce."""
        minute = at // self.PERIOD_S * self.PERIOD_S
        moves = [
            minute + turn + offset + bounce
            for turn in (0.0, self.PERIOD_S)
            for offset in (self.PRESS_S, self.RELEASE_S)
            for bounce in (0.0, *BOUNCE_S)
        ]
        return min(move for move in moves if move > at)


def debounced(levels: Sequence[Level], at: float, debounce_s: float) -> bool | None:
    """The last level that held for the debounce time, as the kernel debounces.

    Source: drivers/gpio/gpiolib-cdev.c, `debounce_work_func`.
    """
    value = levels[0][1]
    for (start, level), (end, _) in pairwise([*levels, (inf, None)]):
        if min(end, at) - start >= debounce_s:
            value = level
    return value


def changes(
    levels: Sequence[Level], since: float, until: float, debounce_s: float
) -> list[tuple[float, bool | None]]:
    """Levels that begin to count after `since` and up to `until`, after debouncing."""
    found = []
    value = debounced(levels, since, debounce_s)
    for (start, level), (end, _) in pairwise([*levels, (inf, None)]):
        counts = start + debounce_s
        if since < counts <= until and end >= counts and level is not value:
            value = level
            found.append((counts, level))
    return found


class SimGpio:
    """Simulated GPIO lines on one chip; call from the event loop's thread.

    Args:
        lines: what is wired to each line, by name and in the order of their
            offsets; None is nothing, or something that only listens (an LED):
            `level` tells what it sees.
        now: seconds, the same time as the parts'.
        chip: the chip's label.
        monotonic: time of edges, where it is not that of the parts.
    """

    def __init__(
        self,
        lines: Mapping[str, Part | None],
        now: Callable[[], float],
        chip: str = "gpio-sim",
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._chip = chip
        times = (now, monotonic or now)
        self._lines = {name: SimLine(name, part, *times) for name, part in lines.items()}
        self._names = {f"{chip}/{offset}": name for offset, name in enumerate(lines)}

    async def request(
        self,
        line: str,
        settings: LineSettings,
        consumer: str,
        on_edges: OnEdges | None = None,
    ) -> SimRequest:
        """Takes a line for its consumer alone."""
        found = self._lines[self._names[await self.canonical(line)]]
        found.take(settings, consumer, on_edges)
        return SimRequest(found)

    async def canonical(self, line: str) -> str:
        """The one name of a line: `gpio-sim/17`."""
        for place, name in self._names.items():
            if line in {place, name}:
                return place
        raise NoDeviceError(f"no line {line!r}: {_hint(line, self._lines)}")

    async def lines(self) -> Sequence[LineState]:
        """All lines of the chip."""
        return [
            LineState(
                name,
                self._chip,
                offset,
                line.direction,
                line.consumer,
                bool(line.consumer),
            )
            for offset, (name, line) in enumerate(self._lines.items())
        ]

    def level(self, line: str) -> bool:
        """The physical level of a line, as a meter on its pin shows it."""
        return self._lines[line].level()


class SimRequest:
    """A line that was taken, until it is released."""

    def __init__(self, line: SimLine) -> None:
        self._line: SimLine | None = line
        self._name = line.name

    async def get(self) -> bool:
        """The present value; edges up to now have been told then."""
        return await self._held().get()

    async def set(self, value: bool) -> None:
        """Drives an output."""
        await self._held().set(value)

    async def pulse(self, duration_s: float) -> None:
        """Drives true, then false; the part is told of the second at its time."""
        check_pulse(duration_s)
        await self._held().pulse(duration_s)

    async def release(self) -> None:
        """Gives the line back; once is enough."""
        line, self._line = self._line, None
        if line is not None:
            line.release()

    def _held(self) -> SimLine:
        if self._line is None:
            raise NoDeviceError(f"line {self._name} was released")
        return self._line


class SimLine:
    """One simulated line. What an output drove stays after its release, as on most boards."""

    def __init__(
        self,
        name: str,
        part: Part | None,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.name = name
        self._part = part
        self._now = now
        self._monotonic = monotonic
        self.settings = LineSettings("input")
        self.direction: Direction = "input"
        self.consumer = ""
        self._driven: bool | None = None
        self._on_edges: OnEdges | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._seen = 0.0
        self._sequence = 0
        if part is not None and hasattr(part, "watch"):
            part.watch(self._look)

    def take(self, settings: LineSettings, consumer: str, on_edges: OnEdges | None) -> None:
        """Requests the line; see `SimGpio.request`."""
        if self.consumer:
            raise BusyError(f"line {self.name} is used by {self.consumer!r}")
        self.consumer = consumer
        if settings.direction == "as-is":
            self.settings = msgspec.structs.replace(
                self.settings, active_low=settings.active_low, edge="none", debounce_s=0.0
            )
        else:
            self.settings, self.direction, self._driven = settings, settings.direction, None
        if settings.direction == "output":
            self._drive(settings.output_value)
        self._on_edges = on_edges if settings.edge != "none" else None
        self._seen, self._sequence = self._now(), 0
        self._look()

    async def get(self) -> bool:
        """The present value; edges up to now have been told then."""
        await asyncio.sleep(0)
        self._look()
        return self.level(self.settings.debounce_s) != self.settings.active_low

    async def set(self, value: bool) -> None:
        """Drives an output."""
        await asyncio.sleep(0)
        if self.settings.direction != "output":
            raise BusError(errno.EPERM, f"line {self.name} is an input")
        self._drive(value)

    async def pulse(self, duration_s: float) -> None:
        """Drives true, then false; the part is told of the second at its time."""
        await self.set(True)
        self._drive(False, self._now() + duration_s)

    def release(self) -> None:
        """Gives the line back."""
        self.consumer = ""
        self._on_edges = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def level(self, debounce_s: float = 0.0) -> bool:
        """The physical level: what is driven, else what the bias pulls to, else low."""
        level = self._driven
        if level is None and self._part is not None:
            at = self._now()
            level = debounced(self._part.levels(at), at, debounce_s)
        return self._pulled(level)

    def _pulled(self, level: bool | None) -> bool:
        return self.settings.bias == "pull-up" if level is None else level

    def _drive(self, value: bool, at: float | None = None) -> None:
        level = value != self.settings.active_low
        floats = self.settings.drive == ("open-drain" if level else "open-source")
        self._driven = None if floats else level
        if self._part is not None and hasattr(self._part, "driven"):
            self._part.driven(level, self._now() if at is None else at)

    def _look(self) -> None:
        """Tell of the edges since the last look, and look again at the next one."""
        if self._on_edges is None or self._part is None:
            return
        now = self._now()
        edges = []
        debounce_s = self.settings.debounce_s
        for at, level in changes(self._part.levels(now), self._seen, now, debounce_s):
            value = self._pulled(level) != self.settings.active_low
            if self.settings.edge in {"both", "rising" if value else "falling"}:
                self._sequence += 1
                edges.append(Edge(value, at - now + self._monotonic(), self._sequence))
        self._seen = now
        if edges:
            self._on_edges(edges)
        self._look_later(now)

    def _look_later(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._part is None or not hasattr(self._part, "next_change"):
            return
        following = self._part.next_change(now - self.settings.debounce_s)
        if following < inf:
            wait = max(0.0, following + self.settings.debounce_s - now)
            self._timer = asyncio.get_running_loop().call_later(wait, self._look)


def _hint(line: str, names: Iterable[str]) -> str:
    """Which line may be meant; all of them where they are few."""
    known = list(names)
    guess = nearest(f"GPIO{line}" if line.isdecimal() else line, known)
    if guess:
        return f"did you mean {guess}?"
    few = known if len(known) <= LISTED_MAX else [*known[:LISTED_MAX], "…"]
    return f"the lines are {', '.join(few)}"
