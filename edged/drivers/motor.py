"""A DC motor on an H-bridge (L298N, TB6612FNG, L293D): two lines, and PWM for its speed.

Source: STMicroelectronics L298 datasheet (January 2000), and Toshiba TB6612FNG
datasheet (2014), function tables: one input high turns it, both low let it coast
(L298: stop with the enable low), both high brake it.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged.bus import Buses, Line, LineSettings, PwmChannel, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.errors import Fault, InvalidArgumentsError

Halt = Literal["coast", "brake"]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one motor.

    Attributes:
        forward: line of the input that turns it forward, `GPIO5`.
        backward: line of the other input.
        pwm: channel on the enable or PWM input, `pwmchip0/1`; empty where that is
            tied high: then it only turns at full speed.
        enable: line of a standby or enable input; empty where there is none.
        frequency_hz: of the pulses; above 18000 it is not heard, which slow
            bridges such as the L298 do not follow.
        max_speed: highest fraction of the supply that the motor bears.
        safe: how it is halted at start, at stop and when its deadline passes.
    """

    forward: str
    backward: str
    pwm: str = ""
    enable: str = ""
    frequency_hz: Annotated[float, Meta(ge=10, le=100_000)] = 1000.0
    max_speed: Annotated[float, Meta(gt=0, le=1)] = 1.0
    safe: Halt = "coast"

    def __post_init__(self) -> None:
        if not self.pwm and self.max_speed < 1:
            raise ValueError("max_speed: without pwm there is only full speed")


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns the motor."""

    speed: Annotated[float, Meta(ge=-1, le=1, description="-1 is full backward, 1 full forward")]


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Halts the motor."""

    how: Annotated[Halt, Meta(description="coast: it runs out; brake: shorted")] = "coast"


INFO = Info(
    title="DC motor on an H-bridge",
    compatible=("st,l298n", "toshiba,tb6612fng", "ti,l293d"),
    bus="board",
    channels=(Channel("speed", "/", -1.0, 1.0),),
    commands=(
        Command("run", "turns it at a speed from -1 to 1", Run),
        Command("stop", "halts it", Stop, interrupts=True),
    ),
    datasheet="STMicroelectronics L298 datasheet",
)


class Motor:
    """A motor whose lines are held; call from the event loop's thread.

    Args:
        config: its settings.
        forward: input of the bridge.
        backward: the other one.
        enable: standby input, if there is one.
        pwm: speed, if there is one.
        held: gives all of them back.
    """

    def __init__(
        self,
        config: Config,
        forward: Line,
        backward: Line,
        enable: Line | None,
        pwm: PwmChannel | None,
        held: AsyncExitStack,
    ) -> None:
        self.identity = f"motor on {config.forward} and {config.backward}"
        self._config = config
        self._forward, self._backward, self._enable, self._pwm = forward, backward, enable, pwm
        self._held = held
        self._told: float | None = None

    async def read(self) -> tuple[Sample, ...]:
        """The speed that it was told last."""
        return () if self._told is None else (Sample("speed", self._told),)

    async def act(self, command: str, params: Run | Stop) -> str:  # noqa: ARG002  told by type
        """Turns or halts it."""
        if isinstance(params, Stop):
            await self._halt(params.how)
            return "braked" if params.how == "brake" else "coasting"
        self._check(params.speed)
        await self._run(params.speed)
        return f"speed is {params.speed:g}"

    async def safe(self) -> None:
        """Halts it."""
        await self._halt(self._config.safe)

    async def close(self) -> None:
        """Gives its lines back."""
        await self._held.aclose()

    def _check(self, speed: float) -> None:
        highest = self._config.max_speed
        if not -highest <= speed <= highest:
            raise InvalidArgumentsError(
                [Fault("speed", f"must be from -{highest:g} to {highest:g}")]
            )
        if self._pwm is None and speed not in {-1, 0, 1}:
            raise InvalidArgumentsError([Fault("speed", "without pwm it is -1, 0 or 1")])

    async def _run(self, speed: float) -> None:
        self._told = None
        on, off = self._forward, self._backward
        if speed < 0:
            on, off = off, on
        # Never from one direction into the other, nor through the brake.
        await off.set(False)
        await self._strength(abs(speed))
        await on.set(speed != 0)
        await self._enabled(speed != 0)
        self._told = speed

    async def _halt(self, how: Halt) -> None:
        self._told = None
        brakes = how == "brake"
        if not brakes:
            await self._enabled(False)
        await self._forward.set(brakes)
        await self._backward.set(brakes)
        await self._strength(float(brakes))
        if brakes:
            await self._enabled(True)
        self._told = 0.0

    async def _strength(self, part: float) -> None:
        if self._pwm is not None:
            period = round(1e9 / self._config.frequency_hz)
            await self._pwm.set(period, round(period * part))

    async def _enabled(self, value: bool) -> None:
        if self._enable is not None:
            await self._enable.set(value)


async def probe(config: Config, bus: Buses, sleep: Sleep) -> Motor:  # noqa: ARG001  Driver
    """Takes the lines, all low; see `Driver.probe`."""
    async with AsyncExitStack() as held:

        async def line(name: str) -> Line:
            found = await bus.gpio.request(name, LineSettings("output"), "edged motor")
            held.push_async_callback(found.release)
            return found

        forward, backward = await line(config.forward), await line(config.backward)
        enable = await line(config.enable) if config.enable else None
        pwm = None
        if config.pwm:
            pwm = await bus.pwm.request(config.pwm, "edged motor")
            held.push_async_callback(pwm.release)
        return Motor(config, forward, backward, enable, pwm, held.pop_all())


SIM_CONFIG = {
    "forward": "GPIO5",
    "backward": "GPIO6",
    "enable": "GPIO16",
    "pwm": "pwmchip0/0",
}
"""Settings that fit the model."""


class Sim:
    """A bridge: the simulated lines and channel say what it does.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.lines = {"GPIO5": None, "GPIO6": None, "GPIO16": None}
        self.channels = ("pwmchip0/0",)
