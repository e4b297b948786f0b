"""GPIO lines that are used by their own name, without a configuration. Loop thread only."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from edged.board.line import GpioLine
from edged.board.sensor import Publish
from edged.bus import Direction, Edge, EdgeDetection, Gpio, LineSettings
from edged.bus.settings import GpioConfig
from edged.clock import Clock
from edged.errors import Fault, InvalidArgumentsError, NoDeviceError


class LooseLines:
    """An output is kept until the board stops; an input while it is read or watched.

    Args:
        configured: lines that are used by their configured names.
        gpio: the bus.
        clock: time of edges.
        publish: who is told of events.
    """

    def __init__(
        self,
        configured: Mapping[str, GpioLine],
        gpio: Callable[[], Gpio],
        clock: Clock,
        publish: Publish,
    ) -> None:
        self._configured, self._gpio = configured, gpio
        self._clock, self._publish = clock, publish
        self._held: dict[str, GpioLine] = {}
        """By chip and offset: a line has several names."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Of those that are taken, shared or given back."""

    @property
    def held(self) -> Sequence[GpioLine]:
        """Those that are to be stopped at the end."""
        return tuple(self._held.values())

    async def read(self, name: str) -> bool:
        """The value of a line, whatever it is used for; a free one is given back at once."""
        place = await self.place(name)
        async with self._locks[place]:
            held = self._held.get(place)
            if held is not None:
                return await held.get()
            # As it is: an output that others left behind must not become an input by a look.
            line = await self._gpio().request(name, LineSettings("as-is"), f"edged {name}")
            try:
                return await line.get()
            finally:
                await line.release()

    async def watch(self, name: str, count: int, timeout_s: float) -> Sequence[Edge]:
        """The next edges of a line; all who watch it share it, the last one gives it back.

        Raises:
            InvalidArgumentsError: it is an output now.
        """
        place = await self.place(name)
        async with self._locks[place]:
            line = self._held.get(place) or await self._take(name, place, "input", "both")
            if line.config.direction == "output":
                reason = f"{name} is an output now: that has no edges to watch"
                raise InvalidArgumentsError([Fault("line", reason)])
        try:
            return await line.watch(count, timeout_s)
        finally:
            async with self._locks[place]:
                # It may have become an output meanwhile, which is another line.
                if self._held.get(place) is line and not line.is_watched:
                    await self._give_back(place, line)

    async def output(self, name: str) -> GpioLine:
        """A line to be driven; who watches it sees no more edges."""
        place = await self.place(name)
        async with self._locks[place]:
            held = self._held.get(place)
            if held is not None and held.config.direction == "output":
                return held
            if held is not None:
                await self._give_back(place, held)
            return await self._take(name, place, "output")

    async def place(self, name: str) -> str:
        """Chip and offset of a line that is not configured.

        Raises:
            InvalidArgumentsError: it is configured under another name.
            NoDeviceError: no such line.
        """
        for one in self._configured.values():
            if one.config.line == name:
                raise InvalidArgumentsError(
                    [Fault("line", f"{name} is configured as {one.name}: use that name")]
                )
        for place, line in self._held.items():
            if line.name == name:
                return place
        try:
            return await self._gpio().canonical(name)
        except NoDeviceError:
            if "/" in name or name.upper() == name:
                raise
            known = ", ".join(sorted(self._configured)) or "none is configured"
            raise NoDeviceError(
                f"no gpio line {name!r}: there is {known}, and those of the chips, such as GPIO17"
            ) from None

    async def _take(
        self, name: str, place: str, direction: Direction, edge: EdgeDetection = "none"
    ) -> GpioLine:
        config = GpioConfig(line=name, direction=direction, edge=edge)
        line = self._held[place] = GpioLine(name, config, self._gpio, self._clock, self._publish)
        try:
            await line.get()
        except BaseException:
            await self._give_back(place, line)
            raise
        return line

    async def _give_back(self, place: str, line: GpioLine) -> None:
        del self._held[place]
        await line.stop()
