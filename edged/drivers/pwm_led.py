"""An LED, or anything dimmed, on a PWM channel.

Source: Documentation/driver-api/pwm.rst of the kernel (period and duty in ns);
CIE 1931: the eye takes about a fifth of the light for half of the brightness,
which a gamma of 2.2 makes good.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged.bus import Pwm, PwmChannel, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample

NS = 1_000_000_000

Fraction = Annotated[float, Meta(ge=0, le=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one LED.

    Attributes:
        channel: chip and channel, `pwmchip0/1`.
        frequency_hz: of the pulses; below 100 it flickers.
        gamma: 2.2 is even for the eye; 1 is the duty itself, for fans and heaters.
        active_low: it is lit while the output is low.
        safe: brightness at start, at stop and when its deadline passes; or `hold`,
            which leaves it as it is.
    """

    channel: str
    frequency_hz: Annotated[float, Meta(ge=1, le=1_000_000)] = 1000.0
    gamma: Annotated[float, Meta(ge=0.2, le=5)] = 2.2
    active_low: bool = False
    safe: Fraction | Literal["hold"] = 0.0


class Brightness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets the brightness."""

    value: Annotated[float, Meta(ge=0, le=1, description="0 is off, 1 is full")]


INFO = Info(
    title="LED or dimmer on PWM",
    compatible=(),
    bus="pwm",
    channels=(Channel("brightness", "/", 0.0, 1.0),),
    commands=(Command("brightness", "sets the brightness, from 0 to 1", Brightness),),
    datasheet="Documentation/driver-api/pwm.rst",
)


def pulse_ns(config: Config, brightness: float) -> tuple[int, int]:
    """Period and duty of a brightness from 0 to 1."""
    period = round(NS / config.frequency_hz)
    lit = round(period * brightness**config.gamma)
    return period, period - lit if config.active_low else lit


class PwmLed:
    """An LED whose channel is held; call from the event loop's thread."""

    def __init__(self, config: Config, channel: PwmChannel) -> None:
        self.identity = f"LED on {config.channel}"
        self._config, self._channel = config, channel
        self._told: float | None = None

    async def read(self) -> tuple[Sample, ...]:
        """The brightness that it was told last."""
        return () if self._told is None else (Sample("brightness", self._told),)

    async def act(self, command: str, params: Brightness) -> str:  # noqa: ARG002  there is only one
        """Sets the brightness."""
        await self._set(params.value)
        return f"brightness is {params.value:g}"

    async def safe(self) -> None:
        """To its safe brightness."""
        if self._config.safe != "hold":
            await self._set(self._config.safe)

    async def close(self) -> None:
        """Gives the channel back, which ends its output."""
        await self._channel.release()

    async def _set(self, brightness: float) -> None:
        await self._channel.set(*pulse_ns(self._config, brightness))
        self._told = brightness


async def probe(config: Config, bus: Pwm, sleep: Sleep) -> PwmLed:  # noqa: ARG001  Driver
    """Takes the channel; see `Driver.probe`."""
    return PwmLed(config, await bus.request(config.channel, "edged pwm_led"))


SIM_CONFIG = {"channel": "pwmchip0/0"}
"""Settings that fit the model."""


class Sim:
    """An LED on a channel: `edged.bus.sim.SimPwm.output` says how it is lit.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.channels = ("pwmchip0/0",)
