"""What drivers on one GPIO input have in common: its settings, and counting its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from edged.bus import Bias, Edge, LineSettings
from edged.drivers import Sample
from edged.units import duration_s

Duration: TypeAlias = Annotated[
    str | int | float, msgspec.Meta(description="seconds, or text such as 20ms")
]


class LineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one input; the usual ones are those of a contact to ground.

    Attributes:
        line: its name, `GPIO27`, or chip and offset.
        active_low: true is the low level.
        bias: pull resistors of the chip.
        debounce: how long a level must hold to count, `20ms`.
    """

    line: str
    active_low: bool = True
    bias: Bias = "pull-up"
    debounce: Duration = 0

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> LineSettings:
        """How the line is requested: with an edge each time that it becomes true."""
        return LineSettings(
            "input",
            active_low=self.active_low,
            bias=self.bias,
            edge="rising",
            debounce_s=duration_s(self.debounce),
        )


class Mark(NamedTuple):
    """How many edges there had been at the time of one of them."""

    edges: int
    monotonic: float


class Tally:
    """Counts a line's edges as they come, with those that the kernel had to drop.

    What it dropped it tells by a gap in its numbers: the count stays exact.

    Attributes:
        count: edges since the line was requested.
        last: the last edge.
        since: the edge from which on a frequency is told, at first the first one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: Mark | None = None
        self.since: Mark | None = None
        self._lost = 0

    def __call__(self, edges: Sequence[Edge]) -> None:
        """Takes further edges."""
        for edge in edges:
            self.count += 1 + edge.lost
            self._lost += edge.lost
            self.last = Mark(self.count, edge.monotonic)
            self.since = self.since or self.last

    def sample(self, channel: str) -> Sample:
        """The count; suspect when edges were dropped since it was asked last."""
        lost, self._lost = self._lost, 0
        if not lost:
            return Sample(channel, float(self.count))
        note = f"the kernel dropped {lost} edges, which are counted by their numbers"
        return Sample(channel, float(self.count), "suspect", note)
