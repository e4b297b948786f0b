"""A hobby servo on a PWM channel.

Source: Hitec, general specification of HS servos: a pulse of 0.9 to 2.1 ms every
20 ms sets the angle, 1.5 ms is the middle. The kernel's PWM counts in ns, so
that steps are as fine as the hardware has them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged.bus import Pwm, PwmChannel, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.errors import Fault, InvalidArgumentsError

Degrees = Annotated[float, Meta(ge=-360, le=360)]
Microseconds = Annotated[float, Meta(ge=100, le=5000)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one servo.

    Attributes:
        channel: chip and channel, `pwmchip0/1`.
        min_angle: angle at `min_pulse_us`, in degrees.
        max_angle: angle at `max_pulse_us`.
        min_pulse_us: shortest pulse that it takes.
        max_pulse_us: longest.
        low: no angle below is set, where the mechanics end earlier; None is `min_angle`.
        high: likewise above.
        frequency_hz: of the pulses; digital servos take more than 50.
        safe: angle at start, at stop and when its deadline passes; `off` ends the
            pulses, so that it moves freely; `hold` leaves it as it is.
    """

    channel: str
    min_angle: Degrees = -90.0
    max_angle: Degrees = 90.0
    min_pulse_us: Microseconds = 1000.0
    max_pulse_us: Microseconds = 2000.0
    low: float | None = None
    high: float | None = None
    frequency_hz: Annotated[float, Meta(ge=20, le=400)] = 50.0
    safe: float | Literal["off", "hold"] = "off"

    def __post_init__(self) -> None:
        if self.min_angle >= self.max_angle:
            raise ValueError("min_angle: must be less than max_angle")
        if self.min_pulse_us >= self.max_pulse_us:
            raise ValueError("min_pulse_us: must be less than max_pulse_us")
        if self.max_pulse_us * self.frequency_hz > 1e6:
            raise ValueError("max_pulse_us: is longer than the time between two pulses")
        low, high = self.limits()
        if not self.min_angle <= low < high <= self.max_angle:
            raise ValueError("low and high: must rise, from min_angle to max_angle")
        if not isinstance(self.safe, str) and not low <= self.safe <= high:
            raise ValueError("safe: must be from low to high")

    def limits(self) -> tuple[float, float]:
        """Lowest and highest angle that may be set."""
        return (
            self.min_angle if self.low is None else self.low,
            self.max_angle if self.high is None else self.high,
        )


class Angle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns to an angle."""

    degrees: Annotated[float, Meta(description="angle in degrees")]


class Pulse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets the pulse itself, to find a servo's ends."""

    us: Annotated[float, Meta(description="length of the pulse in microseconds")]


class Off(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ends the pulses."""


INFO = Info(
    title="Hobby servo on PWM",
    compatible=(),
    bus="pwm",
    channels=(Channel("angle", "deg", -360.0, 360.0),),
    commands=(
        Command("angle", "turns to an angle in degrees", Angle),
        Command("pulse", "sets the length of the pulse in microseconds", Pulse),
        Command("off", "ends the pulses: it holds no angle", Off),
    ),
    datasheet="Hitec, general specification of HS servos (2002)",
)


def angle_to_us(config: Config, degrees: float) -> float:
    """The pulse of an angle; linear between both ends."""
    part = (degrees - config.min_angle) / (config.max_angle - config.min_angle)
    return config.min_pulse_us + part * (config.max_pulse_us - config.min_pulse_us)


def us_to_angle(config: Config, us: float) -> float:
    """The inverse of `angle_to_us`."""
    part = (us - config.min_pulse_us) / (config.max_pulse_us - config.min_pulse_us)
    return config.min_angle + part * (config.max_angle - config.min_angle)


class Servo:
    """A servo whose channel is held; call from the event loop's thread."""

    def __init__(self, config: Config, channel: PwmChannel) -> None:
        self.identity = f"servo on {config.channel}"
        self._config, self._channel = config, channel
        self._told: float | None = None

    async def read(self) -> tuple[Sample, ...]:
        """The angle that it was told last; () while there are no pulses."""
        return () if self._told is None else (Sample("angle", round(self._told, 3)),)

    async def act(self, command: str, params: Angle | Pulse | Off) -> str:  # noqa: ARG002  by type
        """Turns, or lets go."""
        if isinstance(params, Off):
            await self._off()
            return "no pulses: it moves freely"
        field, angle = self._wanted(params)
        low, high = self._config.limits()
        if not low <= angle <= high:
            low_us, high_us = (angle_to_us(self._config, end) for end in (low, high))
            reason = f"must be from {low:g} to {high:g} degrees, {low_us:g} to {high_us:g} us"
            raise InvalidArgumentsError([Fault(field, reason)])
        us = await self._turn(angle)
        return f"angle is {angle:g} degrees ({us:g} us)"

    async def safe(self) -> None:
        """To its safe angle, or without pulses."""
        safe = self._config.safe
        if safe == "off":
            await self._off()
        elif not isinstance(safe, str):
            await self._turn(safe)

    async def close(self) -> None:
        """Gives the channel back, which ends the pulses."""
        await self._channel.release()

    def _wanted(self, params: Angle | Pulse) -> tuple[str, float]:
        if isinstance(params, Angle):
            return "degrees", params.degrees
        return "us", us_to_angle(self._config, params.us)

    async def _turn(self, angle: float) -> float:
        us = angle_to_us(self._config, angle)
        await self._channel.set(self._period_ns, round(us * 1000))
        self._told = angle
        return us

    async def _off(self) -> None:
        await self._channel.set(self._period_ns, 0)
        self._told = None

    @property
    def _period_ns(self) -> int:
        return round(1e9 / self._config.frequency_hz)


async def probe(config: Config, bus: Pwm, sleep: Sleep) -> Servo:  # noqa: ARG001  Driver
    """Takes the channel; see `Driver.probe`."""
    return Servo(config, await bus.request(config.channel, "edged servo"))


SIM_CONFIG = {"channel": "pwmchip0/0"}
"""Settings that fit the model."""


class Sim:
    """A servo on a channel: `edged.bus.sim.SimPwm.output` says how long its pulses are.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.channels = ("pwmchip0/0",)
