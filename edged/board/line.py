"""One GPIO line of the board: requested once, watched, put on its safe level at the end.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import msgspec

from edged import log
from edged.board.deadline import Deadline
from edged.bus import Direction, Edge, EdgeDetection, Gpio, Line
from edged.bus.settings import GpioConfig
from edged.clock import Clock
from edged.errors import BusyError, EdgedError, Fault, InvalidArgumentsError, NoDeviceError
from edged.units import duration_s

EVENT_S = 0.05
"""Between two events of one line: a bouncing contact or an encoder must not drown others."""

KEPT = 256
"""Edges of one line that are kept for those who ask."""


class LineInfo(msgspec.Struct, frozen=True):
    """What is known of a configured GPIO line.

    Attributes:
        name: configured name.
        line: the chip's name for it, `GPIO17`.
        direction: input or output.
        active_low: logical true is the low level.
        safe: level at start and after stop; None of an input.
        error: why it cannot be used; empty when it can.
        edges: seen since the start, those that the kernel dropped included.
        lost: dropped ones among them.
        edge: which of them are reported; none of an output.
    """

    name: str
    line: str
    direction: Direction
    active_low: bool
    safe: Literal["off", "on"] | None
    error: str
    edges: int = 0
    lost: int = 0
    edge: EdgeDetection = "none"


class GpioLine:
    """One line by its configuration."""

    def __init__(
        self,
        name: str,
        config: GpioConfig,
        gpio: Callable[[], Gpio],
        clock: Clock,
        publish: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.name, self.config = name, config
        self._gpio, self._clock, self._publish = gpio, clock, publish
        self._deadline = Deadline(
            f"gpio {name}",
            duration_s(config.deadline),
            self._to_safe,
            lambda: publish("gpio.deadline", {"line": name}),
        )
        self._line: Line | None = None
        self._error = ""
        self._lock = asyncio.Lock()
        """Held for one transfer, never while a pulse lasts: others may switch it off."""
        self._pulse: asyncio.Event | None = None
        """Of the pulse that the level belongs to; set, it ends that."""
        self._stopped = False
        self._edges = self._lost = 0
        self._kept: deque[Edge] = deque(maxlen=KEPT)
        self._untold: list[Edge] = []
        self._level: bool | None = None
        """What an output was driven to last."""
        self._telling: asyncio.TimerHandle | None = None
        self._told_at = float("-inf")
        self._watchers: set[asyncio.Event] = set()
        self._looking: asyncio.Task[None] | None = None

    def info(self) -> LineInfo:
        """What is known of it."""
        config = self.config
        return LineInfo(
            name=self.name,
            line=config.line,
            direction=config.direction,
            active_low=config.active_low,
            safe=(config.safe or "off") if config.direction == "output" else None,
            error=self._error,
            edges=self._edges,
            lost=self._lost,
            edge=config.edge,
        )

    async def start(self) -> None:
        """Takes the line; one that cannot be had is logged and tried again: see `wake`."""
        try:
            async with self._lock:
                await self._taken()
        except EdgedError as error:
            log.warning(f"gpio {self.name}: {error}")

    async def stop(self) -> None:
        """An output to its safe level, after every write; then the line is given back."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._deadline.stop()
        self._end_pulse()
        async with self._lock:
            self._stopped, self._pulse = True, None
            if self._telling is not None:
                self._telling.cancel()
            line, self._line = self._line, None
            if line is None:
                return
            try:
                if self.config.direction == "output":
                    await line.set(self.config.safe == "on")
            finally:
                await line.release()

    def wake(self) -> None:
        """Something was plugged in or out: have the line, if its chip is there now."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name=f"gpio {self.name}")

    async def get(self) -> bool:
        """The logical value."""
        async with self._use() as line:
            return await line.get()

    async def set(self, value: bool) -> None:
        """Drives it, and ends a pulse; where it has a deadline, that begins anew."""
        with self._deadline.holding():
            await self._drive(value)

    async def pulse(self, duration_s: float) -> None:
        """Drives it to true for a time, then to false.

        A cancelled pulse ends at once, and ends with false too.

        Raises:
            InvalidArgumentsError: it would go to its safe level before.
            BusyError: another pulse is under way, or a write ended this one.
        """
        longest = self._deadline.seconds
        if 0 < longest <= duration_s:
            reason = f"must be shorter than the deadline of {self.name}, {longest:g} s"
            raise InvalidArgumentsError([Fault("duration", reason)])
        if self._pulse is not None:
            raise BusyError(f"{self.name} gives a pulse already: wait, or end it by a write")
        pulse = self._pulse = asyncio.Event()
        # On its own: nothing that befalls the caller keeps it from its end.
        giving = asyncio.create_task(self._give(pulse, duration_s))
        # The caller may be gone by then.
        giving.add_done_callback(lambda given: given.cancelled() or given.exception())
        try:
            await asyncio.wait([giving])
            giving.result()
        except asyncio.CancelledError:
            pulse.set()
            await asyncio.wait([giving])
            raise
        finally:
            # Its error's traceback has this frame: both would keep each other.
            del giving
        if pulse.is_set():
            raise BusyError(f"the pulse of {self.name} was ended by a write")

    async def watch(self, count: int, timeout_s: float) -> Sequence[Edge]:
        """The next edges: `count` of them, or fewer when the time is over.

        Raises:
            InvalidArgumentsError: the line reports no edges.
        """
        if self.config.edge == "none":
            reason = f"{self.name} reports no edges: add edge: both to its configuration"
            raise InvalidArgumentsError([Fault("line", reason)])
        first = self._edges
        arrived = asyncio.Event()
        self._watchers.add(arrived)
        try:
            async with self._lock:
                await self._taken()
            async with asyncio.timeout(timeout_s):
                while self._edges - first < count:
                    arrived.clear()
                    await arrived.wait()
        except TimeoutError:
            pass
        finally:
            self._watchers.discard(arrived)
        came = [edge for edge in self._kept if edge.sequence > first]
        return came[:count]

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits for its edges."""
        return bool(self._watchers)

    # Edges --------------------------------------------------------------------------------

    def _on_edges(self, edges: Sequence[Edge]) -> None:
        for edge in edges:
            self._lost += edge.lost
            self._edges += 1 + edge.lost
            self._kept.append(edge._replace(sequence=self._edges))
        for arrived in self._watchers:
            arrived.set()
        self._untold += edges
        self._tell_soon()

    def _driven(self, value: bool) -> None:
        """An output has a level now; it is told of where that is another than before."""
        if value is not self._level:
            self._level = value
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._telling is None and not self._stopped:
            wait = max(0.0, self._told_at + EVENT_S - self._clock.monotonic())
            self._telling = asyncio.get_running_loop().call_later(wait, self._tell)

    def _tell(self) -> None:
        """One event for all edges, or changes of the level, since the last one."""
        self._telling = None
        self._told_at = self._clock.monotonic()
        if self.config.direction == "output":
            self._publish("gpio.level", {"line": self.name, "value": self._level})
            return
        edges, self._untold = self._untold, []
        last = edges[-1]
        now, monotonic = self._clock.now(), self._clock.monotonic()
        facts: dict[str, Any] = {
            "line": self.name,
            "value": last.value,
            "time": now - (monotonic - last.monotonic),
            "monotonic": last.monotonic,
            "edges": len(edges),
            "sequence": self._edges,
        }
        lost = sum(edge.lost for edge in edges)
        if lost:
            facts["lost"] = lost
        self._publish("gpio.edge", facts)

    # Levels -------------------------------------------------------------------------------

    async def _to_safe(self) -> None:
        await self._drive(self.config.safe == "on")

    async def _drive(self, value: bool) -> None:
        self._end_pulse()
        async with self._use() as line:
            await line.set(value)
            self._driven(value)
            # Until here the pulse would still have left it off.
            self._pulse = None

    def _end_pulse(self) -> None:
        if self._pulse is not None:
            self._pulse.set()

    async def _give(self, pulse: asyncio.Event, duration_s: float) -> None:
        try:
            with self._deadline.holding():
                if duration_s <= PULSE_MAX_S:
                    async with self._use() as line:
                        if not pulse.is_set():
                            await line.pulse(duration_s)
                            self._driven(False)
                else:
                    await self._give_long(pulse, duration_s)
        finally:
            if self._pulse is pulse:
                self._pulse = None

    async def _give_long(self, pulse: asyncio.Event, duration_s: float) -> None:
        begun = False
        try:
            async with self._use() as line:
                # It may have been ended while it waited.
                begun = not pulse.is_set()
                if begun:
                    await line.set(True)
                    self._driven(True)
            with suppress(TimeoutError):
                async with asyncio.timeout(duration_s):
                    await pulse.wait()
        finally:
            if begun and self._pulse is pulse:
                await self._fall(pulse)

    async def _fall(self, pulse: asyncio.Event) -> None:
        try:
            async with self._use() as line:
                # A write that came first has decided.
                if self._pulse is pulse:
                    await line.set(False)
                    self._driven(False)
        except EdgedError as error:
            log.error(f"gpio {self.name} may still be on: {error}")
            raise

    # The line -----------------------------------------------------------------------------

    async def _look(self) -> None:
        # The first time ends a line whose chip went away, the next takes that of a new one.
        for _ in range(2):
            with suppress(EdgedError):
                await self.get()
                return

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[Line]:
        """The line for one caller alone; one whose chip went away is taken anew the next time."""
        async with self._lock:
            line = await self._taken()
            try:
                yield line
            except NoDeviceError as error:
                self._line, self._error = None, str(error)
                raise

    async def _taken(self) -> Line:
        if self._stopped:
            raise NoDeviceError(f"gpio {self.name} was given back")
        if self._line is None:
            self._line = await self._request()
        return self._line

    async def _request(self) -> Line:
        config = self.config
        try:
            line = await self._gpio().request(
                config.line,
                config.settings(),
                f"edged {self.name}",
                self._on_edges if config.edge != "none" else None,
            )
        except EdgedError as error:
            self._error = str(error)
            raise
        self._error = ""
        return line


PULSE_MAX_S = 0.001
"""Up to here a pulse is timed by the bus's thread itself."""
