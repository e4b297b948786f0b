"""What chips with input and output lines have in common: named lines, and `set`. Pure.

Values are logical: `active_low` is applied here, not in the chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from edged.drivers import Channel, Command
from edged.errors import Fault, InvalidArgumentsError


class SetOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `set` takes."""

    output: Annotated[str, Meta(description="configured name of an output")]
    on: Annotated[bool, Meta(description="its logical value")]


SET = Command("set", "switches an output on or off", SetOutput)


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that is read.

    Attributes:
        line: the chip's name for it.
        active_low: logical true is the low level.
    """

    line: str
    active_low: bool = False


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that is driven.

    Attributes:
        line: the chip's name for it.
        active_low: logical true (`on`) is the low level, as on most relay boards.
        safe: its logical level at start, at stop, and when its deadline passes.
    """

    line: str
    active_low: bool = False
    safe: Literal["off", "on"] = "off"

    @property
    def safe_level(self) -> bool:
        """The level of the line in the safe state: true is high."""
        return (self.safe == "on") != self.active_low


class Line(Protocol):
    """What inputs and outputs have in common."""

    @property
    def line(self) -> str:
        """The chip's name for it."""

    @property
    def active_low(self) -> bool:
        """Whether logical true is the low level."""


def check_lines(
    inputs: Mapping[str, Line], outputs: Mapping[str, Line], lines: Sequence[str]
) -> None:
    """Refuses lines that the chip lacks, and names or lines that are there twice.

    Raises:
        ValueError: the message names the setting.
    """
    taken: dict[str, str] = {}
    for kind, parts in (("inputs", inputs), ("outputs", outputs)):
        for name, part in parts.items():
            place = f"{kind}.{name}"
            if part.line not in lines:
                raise ValueError(f"{place}.line: there is {lines[0]} to {lines[-1]}")
            if part.line in taken:
                raise ValueError(f"{place}.line: {part.line} is {taken[part.line]} already")
            if kind == "outputs" and name in inputs:
                raise ValueError(f"{place}: is the name of an input too: rename one")
            taken[part.line] = place


def channels(read_lines: Mapping[str, Line]) -> tuple[Channel, ...]:
    """The lines by name: 1 is logical true."""
    return tuple(Channel(name, "/", 0.0, 1.0) for name in read_lines)


def known_output(outputs: Mapping[str, Output], name: str) -> Output:
    """The output of that name.

    Raises:
        InvalidArgumentsError: there is none; the message lists those there are.
    """
    if name in outputs:
        return outputs[name]
    known = ", ".join(outputs) or "none"
    raise InvalidArgumentsError([Fault("output", f"no output {name!r}: there is {known}")])
