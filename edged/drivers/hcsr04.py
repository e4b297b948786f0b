"""HC-SR04: distance by ultrasound, timed by the kernel's edge time stamps.

Source: Elecfreaks HC-SR04 User Guide, version 2.0. The echo line gives 5 V: a
divider belongs between it and a board of 3.3 V.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Annotated

import msgspec

from edged.bus import Edge, Gpio, Line, LineSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import NoDeviceError

INFO = Info(
    title="HC-SR04 ultrasonic distance",
    compatible=(),
    bus="gpio",
    channels=(Channel("distance", "m", 0.02, 4.0),),
    datasheet="Elecfreaks HC-SR04 User Guide, version 2.0",
    interval_s=0.06,
)

TRIGGER_S = 10e-6
ECHO_MAX_S = 0.025
"""The longest echo that is one; without any the line falls after 38 ms, or 200 ms on copies."""
WAIT_S = 0.045
"""Until every echo is over."""

_CONSUMER = "edged hcsr04"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one sensor.

    Attributes:
        trigger: line at Trig.
        echo: line at Echo.
        temperature: of the air in Cel, which the speed of sound follows.
    """

    trigger: str
    echo: str
    temperature: Annotated[float, msgspec.Meta(ge=-55, le=100)] = 20.0


def sound_m_s(temperature_cel: float) -> float:
    """The speed of sound in air, in m/s: 343.4 at 20 Cel."""
    return 331.3 + 0.606 * temperature_cel


def decode(edges: Sequence[Edge], temperature_cel: float) -> Sample:
    """The distance of one measurement.

    Args:
        edges: of the echo line, from the trigger on.
        temperature_cel: of the air.

    Raises:
        NoDeviceError: no echo pulse began: no sensor.
    """
    (channel,) = INFO.channels
    if sum(edge.lost for edge in edges):
        return Sample(channel.name, None, "suspect", "edges of the echo were lost")
    if not edges:
        raise NoDeviceError("the HC-SR04 does not answer: check its 5 V, Trig and Echo")
    levels = [edge.value for edge in edges]
    width = edges[-1].monotonic - edges[0].monotonic
    if levels == [True] or (levels == [True, False] and width > ECHO_MAX_S):
        return Sample(channel.name, None, "error", "nothing within its range")
    if levels != [True, False]:
        return Sample(channel.name, None, "suspect", f"{len(edges)} edges in one echo: noise")
    distance = width * sound_m_s(temperature_cel) / 2
    limit = min(max(distance, channel.low), channel.high)
    if limit != distance:
        return Sample(channel.name, limit, "clipped", "beyond its range of 0.02 to 4 m")
    return Sample(channel.name, round(distance, 4))


class HcSr04:
    """A sensor at its two lines; call from the event loop's thread."""

    def __init__(self, config: Config, sleep: Sleep) -> None:
        self.identity = f"HC-SR04 at {config.trigger} and {config.echo}"
        self._config, self._sleep = config, sleep
        self._lines: list[Line] = []
        # Of a line that makes noise while nobody reads, the last ones are noise enough.
        self._edges: deque[Edge] = deque(maxlen=64)

    async def open(self, gpio: Gpio) -> None:
        """Takes both lines, or none."""
        config = self._config
        # Without a sensor the line is low, and not what it picks up.
        echo = LineSettings("input", bias="pull-down", edge="both")
        self._lines.append(await gpio.request(config.echo, echo, _CONSUMER, self._edges.extend))
        try:
            trigger = await gpio.request(config.trigger, LineSettings("output"), _CONSUMER)
        except BaseException:
            await self.close()
            raise
        self._lines.append(trigger)

    async def read(self) -> tuple[Sample, ...]:
        """One measurement."""
        echo, trigger = self._lines
        if await echo.get():
            note = "the echo line stays high: it still waits for its last echo, or is shorted"
            return (Sample("distance", None, "error", note),)
        self._edges.clear()
        await trigger.pulse(TRIGGER_S)
        await self._sleep(WAIT_S)
        # The edges up to here are known then.
        await echo.get()
        return (decode(tuple(self._edges), self._config.temperature),)

    async def close(self) -> None:
        """Gives the lines back."""
        while self._lines:
            await self._lines.pop().release()


async def probe(config: Config, bus: Gpio, sleep: Sleep) -> HcSr04:
    """Takes the lines; whether a sensor is there shows at the first measurement."""
    device = HcSr04(config, sleep)
    await device.open(bus)
    return device


SIM_CONFIG = {"trigger": "GPIO23", "echo": "GPIO24"}


class Sim:
    """Model of an HC-SR04 with something in front of it.

    Args:
        clock: not used: what is driven and asked comes with its time.
        distance_m: of the next thing; None is nothing in sight.
        temperature_cel: of the air.
    """

    DELAY_S = 0.0005
    """From the trigger's end to the echo's begin: eight periods of 40 kHz, and a little."""
    NOTHING_S = 0.038

    def __init__(
        self,
        clock: Clock,  # noqa: ARG002  every model is handed one
        *,
        distance_m: float | None = 1.0,
        temperature_cel: float = 20.0,
    ) -> None:
        self.distance_m = distance_m
        self.temperature_cel = temperature_cel
        self.is_plugged = True
        self._echo = _Echo()
        self.lines = {
            SIM_CONFIG["trigger"]: _Trigger(self._triggered),
            SIM_CONFIG["echo"]: self._echo,
        }

    def _triggered(self, at: float) -> None:
        if not self.is_plugged:
            return
        width = self.NOTHING_S
        if self.distance_m is not None:
            width = 2 * self.distance_m / sound_m_s(self.temperature_cel)
        self._echo.pulse(at + self.DELAY_S, width)


class _Trigger:
    """Tells of each pulse that is long enough, at its end."""

    def __init__(self, triggered: Callable[[float], None]) -> None:
        self._triggered = triggered
        self._high_since = inf

    def levels(self, at: float) -> Sequence[tuple[float, bool | None]]:  # noqa: ARG002  it only listens
        return [(-inf, None)]

    def driven(self, value: bool, at: float) -> None:
        # Half a microsecond is lost where seconds count from 1970.
        if not value and at - self._high_since > TRIGGER_S - 1e-6:
            self._triggered(at)
        self._high_since = at if value else inf


class _Echo:
    """The line that is high as long as the sound travels."""

    def __init__(self) -> None:
        self._start, self._end = -inf, -inf
        self._changed: list[Callable[[], None]] = []

    def pulse(self, start: float, width: float) -> None:
        self._start, self._end = start, start + width
        for changed in self._changed:
            changed()

    def levels(self, at: float) -> Sequence[tuple[float, bool | None]]:
        moves = ((-inf, False), (self._start, True), (self._end, False))
        return [(moment, level) for moment, level in moves if moment <= at]

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def next_change(self, at: float) -> float:
        return min((moment for moment in (self._start, self._end) if moment > at), default=inf)
