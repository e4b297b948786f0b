"""A stepper motor: four coils behind a ULN2003, or a STEP/DIR driver (A4988, TMC2209).

Source: Kiatronics 28BYJ-48 datasheet (switching sequence, 4096 half steps a
turn); Allegro A4988 datasheet, revision 8 (a step at each rising edge of STEP,
at least 1 us high; DIR is read at that edge; ENABLE is active low).
Where the motor stands after power-on is not known: it counts from 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from edged.bus import Gpio, Line, LineSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.errors import BusyError, Fault, InvalidArgumentsError

HALF_STEPS = (0b1000, 0b1100, 0b0100, 0b0110, 0b0010, 0b0011, 0b0001, 0b1001)
"""Coils that are on, IN1 first."""

PULSE_S = 20e-6
"""Optocouplers before large drivers need 10 us."""

SETTLE_S = 0.02
"""The rotor takes this long to come to rest at its last step; without current it would not."""

_FURTHEST = 1_000_000_000


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one motor: either `coils`, or `step` and `direction`.

    Attributes:
        coils: lines of IN1 to IN4.
        half_steps: twice as fine, of coils; else two coils are always on.
        step: line of STEP.
        direction: line of DIR.
        enable: line of ENABLE; empty where there is none.
        enable_active_low: as all usual drivers have it.
        max_steps_s: fastest speed, in steps a second.
        min_position: the end that it never goes below; None is no end.
        max_position: likewise above.
        hold: it keeps its torque, and its current, when it stands.
        safe: at start, at stop and when its deadline passes it stands still, and
            keeps its torque with `hold`.
    """

    coils: tuple[str, str, str, str] | None = None
    half_steps: bool = True
    step: str = ""
    direction: str = ""
    enable: str = ""
    enable_active_low: bool = True
    max_steps_s: Annotated[float, Meta(gt=0, le=5000)] = 500.0
    min_position: int | None = None
    max_position: int | None = None
    hold: bool = False
    safe: Literal["off", "hold"] = "off"

    def __post_init__(self) -> None:
        if self.coils is not None:
            wrong = self.step or self.direction or self.enable
            if wrong or len(set(self.coils)) < 4:
                raise ValueError("coils: four different lines, and no step, direction or enable")
        elif not (self.step and self.direction):
            raise ValueError("coils, or step and direction: one of both is needed")
        low, high = self.ends()
        if not low <= 0 <= high or low == high:
            raise ValueError("min_position and max_position: 0, where it counts from, is between")

    def ends(self) -> tuple[float, float]:
        """Lowest and highest position."""
        return (
            -inf if self.min_position is None else self.min_position,
            inf if self.max_position is None else self.max_position,
        )


Speed = Annotated[
    float | None, Meta(description="steps a second; the configured fastest by default")
]


class Move(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Goes some steps."""

    steps: Annotated[int, Meta(description="steps; negative is backward")]
    steps_s: Speed = None


class Goto(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Goes to a position."""

    position: Annotated[int, Meta(description="in steps from where it counts")]
    steps_s: Speed = None


class Stop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ends a move under way."""


class Zero(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts from here."""


INFO = Info(
    title="Stepper motor: ULN2003 or STEP/DIR",
    compatible=("kiatronics,28byj-48", "allegro,a4988", "ti,drv8825", "trinamic,tmc2209"),
    bus="gpio",
    channels=(Channel("position", "count", -_FURTHEST, _FURTHEST),),
    commands=(
        Command("move", "goes some steps, and returns when it is there", Move),
        Command("goto", "goes to a position, in steps, and returns when it is there", Goto),
        Command("stop", "ends a move under way", Stop, interrupts=True),
        Command("zero", "where it stands is position 0 from now on", Zero),
    ),
    datasheet="Kiatronics 28BYJ-48 datasheet",
)


class Drive(Protocol):
    """What moves the motor by one step."""

    async def step(self, way: int) -> None:
        """One step; `way` is 1 or -1."""

    async def off(self) -> None:
        """No current in the motor."""


class Coils:
    """Four coils that are switched in turn."""

    def __init__(self, lines: Sequence[Line], half_steps: bool) -> None:
        self._lines = lines
        self._stride = 1 if half_steps else 2
        # Full steps use the patterns with two coils: they have more torque.
        self._phase = 0 if half_steps else 1

    async def step(self, way: int) -> None:
        """The next pattern, from the one that was last."""
        phase = (self._phase + way * self._stride) % len(HALF_STEPS)
        await self._switch(HALF_STEPS[phase])
        self._phase = phase

    async def off(self) -> None:
        """All coils off."""
        await self._switch(0)

    async def _switch(self, pattern: int) -> None:
        # Off before on, so that no more coils draw current than the pattern has.
        values = [(line, bool(pattern & 0b1000 >> at)) for at, line in enumerate(self._lines)]
        for line, value in sorted(values, key=lambda one: one[1]):
            await line.set(value)


class StepDir:
    """A driver chip that counts pulses."""

    def __init__(self, step: Line, direction: Line, enable: Line | None) -> None:
        self._step, self._direction, self._enable = step, direction, enable

    async def step(self, way: int) -> None:
        """One pulse, with the direction and the enable set before."""
        if self._enable is not None:
            await self._enable.set(True)
        await self._direction.set(way > 0)
        await self._step.pulse(PULSE_S)

    async def off(self) -> None:
        """Disabled, where it can be."""
        if self._enable is not None:
            await self._enable.set(False)


class Stepper:
    """A motor whose lines are held; call from the event loop's thread."""

    def __init__(self, config: Config, drive: Drive, held: AsyncExitStack, sleep: Sleep) -> None:
        self.identity = "stepper on four coils" if config.coils else "stepper with STEP and DIR"
        self._config, self._drive, self._held, self._sleep = config, drive, held, sleep
        self._position = 0
        self._moving = asyncio.Lock()
        self._stopped = False

    async def read(self) -> tuple[Sample, ...]:
        """The position, in steps; while it moves too."""
        return (Sample("position", float(self._position)),)

    async def act(self, command: str, params: Move | Goto | Stop | Zero) -> str:  # noqa: ARG002
        """Moves; a move that is cancelled or stopped ends at a whole step.

        Raises:
            BusyError: it is moving; `stop` ends that.
            InvalidArgumentsError: beyond its ends, or too fast.
        """
        if isinstance(params, Stop):
            self._stopped = True
            async with self._moving:
                return f"position is {self._position}"
        if self._moving.locked():
            raise BusyError("the motor is moving: wait, or stop it")
        async with self._moving:
            self._stopped = False
            if isinstance(params, Zero):
                self._position = 0
            elif isinstance(params, Goto):
                await self._go("position", params.position, params.steps_s)
            else:
                await self._go("steps", self._position + params.steps, params.steps_s)
        return f"position is {self._position}" + (" (stopped)" if self._stopped else "")

    async def safe(self) -> None:
        """Ends a move under way; then no current, or the torque is held."""
        self._stopped = True
        async with self._moving:
            if self._config.safe == "off":
                await self._drive.off()

    async def close(self) -> None:
        """Gives its lines back."""
        await self._held.aclose()

    async def _go(self, field: str, target: int, steps_s: float | None) -> None:
        low, high = self._config.ends()
        fastest = self._config.max_steps_s
        speed = fastest if steps_s is None else steps_s
        if not low <= target <= high or abs(target) > _FURTHEST:
            reason = f"position {target} is not within its ends, {low:g} to {high:g}"
            raise InvalidArgumentsError([Fault(field, reason)])
        if not 0 < speed <= fastest:
            raise InvalidArgumentsError([Fault("steps_s", f"must be up to {fastest:g}")])
        way = 1 if target > self._position else -1
        try:
            while self._position != target and not self._stopped:
                await self._step(way)
                await self._sleep(1 / speed)
        finally:
            await self._rest()

    async def _rest(self) -> None:
        """No current, unless the torque is to be held."""
        if self._config.hold:
            return
        try:
            await self._sleep(SETTLE_S)
        finally:
            await self._drive.off()

    async def _step(self, way: int) -> None:
        """One step, whole and counted even when the move is cancelled meanwhile."""
        step = asyncio.ensure_future(self._drive.step(way))
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            await asyncio.wait([step])
            self._position += 0 if step.exception() else way
            raise
        self._position += way


async def probe(config: Config, bus: Gpio, sleep: Sleep) -> Stepper:
    """Takes the lines, without current; see `Driver.probe`."""
    async with AsyncExitStack() as held:

        async def line(name: str, *, active_low: bool = False) -> Line:
            settings = LineSettings("output", active_low=active_low)
            found = await bus.request(name, settings, "edged stepper")
            held.push_async_callback(found.release)
            return found

        drive: Drive
        if config.coils is not None:
            drive = Coils([await line(name) for name in config.coils], config.half_steps)
        else:
            enable = None
            if config.enable:
                enable = await line(config.enable, active_low=config.enable_active_low)
            drive = StepDir(await line(config.step), await line(config.direction), enable)
        return Stepper(config, drive, held.pop_all(), sleep)


SIM_CONFIG = {"coils": ("GPIO5", "GPIO6", "GPIO13", "GPIO19")}
"""Settings that fit the model."""


class Sim:
    """Model of a motor with coils, and of one on a driver chip; both turn with their inputs.

    Args:
        clock: a pattern that lasts no time moves no rotor.
    """

    def __init__(self, clock: Clock) -> None:
        self.pulses = 0
        """Where the shaft of the one on a driver chip stands."""
        self.pattern = 0
        """Coils that are on."""
        self.enabled = False
        self._clock, self._since = clock, clock.monotonic()
        self._half_steps, self._phase = 0, 0
        self._way = -1
        self.lines: dict[str, Wire] = {
            name: Wire(partial(self._coil, 0b1000 >> at))
            for at, name in enumerate(SIM_CONFIG["coils"])
        }
        self.lines |= {
            "GPIO20": Wire(self._pulse),
            "GPIO21": Wire(self._turn),
            "GPIO16": Wire(self._enable),
        }

    @property
    def half_steps(self) -> int:
        """Where the shaft of the one with coils stands."""
        if self.pattern in HALF_STEPS and self._clock.monotonic() > self._since:
            phase = HALF_STEPS.index(self.pattern)
            # The rotor goes the shorter way to where it is drawn.
            self._half_steps += (phase - self._phase + 4) % 8 - 4
            self._phase = phase
        return self._half_steps

    def _coil(self, bit: int, level: bool) -> None:
        self._half_steps = self.half_steps
        self.pattern = self.pattern | bit if level else self.pattern & ~bit
        self._since = self._clock.monotonic()

    def _pulse(self, level: bool) -> None:
        if level and self.enabled:
            self.pulses += self._way

    def _turn(self, level: bool) -> None:
        self._way = 1 if level else -1

    def _enable(self, level: bool) -> None:
        self.enabled = not level


class Wire:
    """An input of the model: tells what it is driven to.

    Args:
        driven_to: called with each level.
    """

    def __init__(self, driven_to: Callable[[bool], None]) -> None:
        self._driven_to = driven_to

    def levels(self, at: float) -> Sequence[tuple[float, bool | None]]:  # noqa: ARG002  never
        """It drives nothing itself."""
        return [(-inf, None)]

    def driven(self, value: bool, at: float) -> None:  # noqa: ARG002  at once
        """What the line is driven to."""
        self._driven_to(value)
