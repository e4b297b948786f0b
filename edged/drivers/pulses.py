"""A pulse counter: rain gauge, flow or energy meter, anemometer, tachometer.

Source: linux/gpio.h, GPIO v2 line events: each edge has a number and the time
at which it happened, so that the count is exact however seldom it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec

from edged.bus import Gpio, Line, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._line import LineConfig, Tally
from edged.units import UNITS

INFO = Info(
    title="Pulse counter: rain, flow, energy, speed",
    compatible=(),
    bus="gpio",
    datasheet="linux/gpio.h, GPIO v2 line events",
)

_COUNTED = (
    Channel("count", "count", 0.0, 1e15),
    Channel("frequency", "Hz", 0.0, 1e6),
)


class Config(LineConfig, frozen=True):
    """Settings of one counter, by default of a contact to ground or an open collector.

    Attributes:
        per_pulse: what one pulse stands for, in `unit`: 0.0002794 (m) of a rain
            gauge, 0.001 (kWh) of a meter with 1000 pulses per kWh.
        unit: SenML unit of the channel `amount`; without it there is none.
    """

    per_pulse: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    unit: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.unit and self.unit not in UNITS:
            raise ValueError(f"unit: {self.unit!r} is none of {', '.join(UNITS)}")


def channels(config: Config) -> tuple[Channel, ...]:
    """Count and frequency, and the amount where the settings name its unit."""
    if not config.unit:
        return _COUNTED
    return (*_COUNTED, Channel("amount", config.unit, 0.0, 1e15))


class Pulses:
    """A counter whose line was taken; call from the event loop's thread."""

    def __init__(self, config: Config, line: Line, pulses: Tally) -> None:
        self.identity = f"pulses at {config.line}"
        self._config, self._line, self._pulses = config, line, pulses

    async def read(self) -> tuple[Sample, ...]:
        """The count since it was set up, and the frequency since the last reading."""
        # The pulses up to here are known then, and a chip that is gone tells it.
        await self._line.get()
        count = self._pulses.sample("count")
        samples = [count, Sample("frequency", self._frequency_hz())]
        if self._config.unit:
            amount = round(self._pulses.count * self._config.per_pulse, 9)
            samples.append(Sample("amount", amount, count.quality, count.note))
        return tuple(samples)

    def _frequency_hz(self) -> float:
        """Of the pulses from the last one before the last reading to the last one; 0 of none."""
        since, last = self._pulses.since, self._pulses.last
        self._pulses.since = last
        if since is None or last is None or last.monotonic <= since.monotonic:
            return 0.0
        return round((last.edges - since.edges) / (last.monotonic - since.monotonic), 4)

    async def close(self) -> None:
        """Gives the line back."""
        await self._line.release()


async def probe(config: Config, bus: Gpio, sleep: Sleep) -> Pulses:  # noqa: ARG001  nothing is waited for
    """Takes the line; see `Driver.probe`."""
    pulses = Tally()
    line = await bus.request(config.line, config.settings(), "edged pulses", pulses)
    return Pulses(config, line, pulses)


SIM_CONFIG = {"line": "GPIO22"}


class Sim:
    """Model of a meter that turns evenly; it is a `Part` of `edged.bus.sim`.

    Args:
        clock: not used: what is asked comes with its time.
        frequency_hz: pulses in a second, each half on and half off.
    """

    WINDOW_S = 60.0
    """So much of the past is told: lines look at every change anyway."""

    def __init__(self, clock: Clock, *, frequency_hz: float = 2.0) -> None:  # noqa: ARG002
        self.frequency_hz = frequency_hz
        self.lines = {SIM_CONFIG["line"]: self}

    def levels(self, at: float) -> Sequence[tuple[float, bool | None]]:
        """Low for the first half of each period, else not driven."""
        first = self._half(at - self.WINDOW_S)
        return [
            (self._time(half), None if half % 2 else False)
            for half in range(first, self._half(at) + 1)
        ]

    def next_change(self, at: float) -> float:
        """The next half period."""
        following = self._half(at) + 1
        while self._time(following) <= at:
            following += 1
        return self._time(following)

    def _half(self, at: float) -> int:
        return math.floor(at * self.frequency_hz * 2)

    def _time(self, half: int) -> float:
        return half / (self.frequency_hz * 2)
