"""A rotary encoder with two contacts or channels, A and B, a quarter period apart.

Source: linux/gpio.h, GPIO v2 line events; Bourns PEC11R, quadrature output
table. The kernel's time stamps put the edges of both lines into their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, NamedTuple

import msgspec

from edged.bus import Bias, Edge, Gpio, Line, LineSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._line import Duration
from edged.units import duration_s

INFO = Info(
    title="Rotary encoder (quadrature)",
    compatible=(),
    bus="gpio",
    channels=(
        Channel("position", "count", -1e15, 1e15),
        Channel("invalid", "count", 0.0, 1e15),
    ),
    datasheet="linux/gpio.h, GPIO v2 line events; Bourns PEC11R (2014)",
)

KEPT, ORDER_S = 1024, 0.05
"""So many edges wait to be put into their order until they are asked for; of more, those
that are older than this against the newest wait no longer."""

_PLACES = {(False, False): 0, (True, False): 1, (True, True): 2, (False, True): 3}
"""Levels of A and B over one period, turning so that A leads."""

_CONSUMER = "edged encoder"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one encoder, by default with contacts to ground.

    Attributes:
        a: line of channel A, which leads when the position rises.
        b: line of channel B.
        steps: edges that count as one: 4 of most knobs from one click to the next.
        active_low: true is the low level.
        bias: pull resistors of the chip.
        debounce: how long a level must hold to count; short, or fast turns are lost.
    """

    a: str
    b: str
    steps: Literal[1, 2, 4] = 4
    active_low: bool = True
    bias: Bias = "pull-up"
    debounce: Duration = "1ms"

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> LineSettings:
        """How both lines are requested."""
        return LineSettings(
            "input",
            active_low=self.active_low,
            bias=self.bias,
            edge="both",
            debounce_s=duration_s(self.debounce),
        )


class Quadrature:
    """Decodes edges in their order. Pure.

    Attributes:
        position: edges with A leading less those with B leading.
        invalid: edges that cannot be: one before them was missed.
    """

    def __init__(self, a: bool, b: bool) -> None:
        self.position = self.invalid = 0
        self._levels = (a, b)

    def turn(self, is_b: bool, value: bool) -> None:
        """One edge.

        Args:
            is_b: it is of channel B.
            value: the level after it.
        """
        a, b = self._levels
        levels = (a, value) if is_b else (value, b)
        step = (_PLACES[levels] - _PLACES[self._levels]) % 4
        self._levels = levels
        if step == 0:
            self.invalid += 1
        else:
            self.position += 1 if step == 1 else -1


class _Turn(NamedTuple):
    """An edge as it is sorted: by its time."""

    monotonic: float
    is_b: bool
    value: bool
    lost: int


class Encoder:
    """An encoder whose lines were taken; call from the event loop's thread."""

    def __init__(self, config: Config) -> None:
        self.identity = f"encoder at {config.a} and {config.b}"
        self._config = config
        self._lines: list[Line] = []
        self._coming: list[_Turn] = []
        self._turns = Quadrature(a=False, b=False)
        self._told_invalid = 0

    async def open(self, gpio: Gpio) -> None:
        """Takes both lines, or none, and begins at their present levels."""
        settings = self._config.settings()
        try:
            for name, seen in ((self._config.a, self._seen_a), (self._config.b, self._seen_b)):
                self._lines.append(await gpio.request(name, settings, _CONSUMER, seen))
            levels = [await line.get() for line in self._lines]
        except BaseException:
            await self.close()
            raise
        self._coming.clear()
        self._turns = Quadrature(*levels)

    async def read(self) -> tuple[Sample, ...]:
        """The position since it was set up, and how many edges could not be."""
        for line in self._lines:
            # The edges up to here are known then, and a chip that is gone tells it.
            await line.get()
        self._decode(inf)
        turns = self._turns
        new, self._told_invalid = turns.invalid - self._told_invalid, turns.invalid
        position = Sample("position", turns.position / self._config.steps)
        if new:
            note = f"{new} edges were missed or bounced: the position may be off"
            position = position._replace(quality="suspect", note=note)
        return (position, Sample("invalid", float(turns.invalid)))

    async def close(self) -> None:
        """Gives the lines back."""
        while self._lines:
            await self._lines.pop().release()

    def _seen_a(self, edges: Sequence[Edge]) -> None:
        self._seen(edges, is_b=False)

    def _seen_b(self, edges: Sequence[Edge]) -> None:
        self._seen(edges, is_b=True)

    def _seen(self, edges: Sequence[Edge], *, is_b: bool) -> None:
        self._coming += [_Turn(e.monotonic, is_b, e.value, e.lost) for e in edges]
        if len(self._coming) > KEPT:
            self._decode(edges[-1].monotonic - ORDER_S)

    def _decode(self, until: float) -> None:
        """Decodes what happened up to that moment."""
        self._coming.sort()
        ready = [turn for turn in self._coming if turn.monotonic <= until]
        del self._coming[: len(ready)]
        for turn in ready:
            self._turns.invalid += turn.lost
            self._turns.turn(turn.is_b, turn.value)


async def probe(config: Config, bus: Gpio, sleep: Sleep) -> Encoder:  # noqa: ARG001  nothing is waited for
    """Takes the lines; see `Driver.probe`."""
    encoder = Encoder(config)
    await encoder.open(bus)
    return encoder


SIM_CONFIG = {"a": "GPIO5", "b": "GPIO6"}


class Sim:
    """Model of an encoder with contacts to ground, open at rest; `turn` it.

    Args:
        clock: when it is turned.
    """

    STEP_S = 0.002
    """From edge to edge while it is turned."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contacts = (_Contact(), _Contact())
        self._place = 0
        self._at = -inf
        self.lines = dict(zip(SIM_CONFIG.values(), self._contacts, strict=True))

    def turn(self, steps: int) -> None:
        """Turns it by so many edges, from now on; backwards when negative."""
        places = {place: levels for levels, place in _PLACES.items()}
        self._at = max(self._at, self._clock.now())
        for _ in range(abs(steps)):
            self._place = (self._place + (1 if steps > 0 else -1)) % 4
            self._at += self.STEP_S
            for contact, is_closed in zip(self._contacts, places[self._place], strict=True):
                contact.move(self._at, is_closed)
        for contact in self._contacts:
            contact.tell()


class _Contact:
    """One contact to ground; a `Part` of `edged.bus.sim`."""

    def __init__(self) -> None:
        self._levels: deque[tuple[float, bool | None]] = deque([(-inf, None)], maxlen=1024)
        self._changed: list[Callable[[], None]] = []

    def move(self, at: float, is_closed: bool) -> None:
        level = False if is_closed else None
        if self._levels[-1][1] is not level:
            self._levels.append((at, level))

    def tell(self) -> None:
        for changed in self._changed:
            changed()

    def levels(self, at: float) -> Sequence[tuple[float, bool | None]]:
        return [level for level in self._levels if level[0] <= at]

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def next_change(self, at: float) -> float:
        return min((moment for moment, _ in self._levels if moment > at), default=inf)
