"""Simulated chips that a test plugs in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hil.uml.inside.simchip import SimChip, Turn


class Rack:
    """Makes chips; takes all away at the end of a test."""

    def __init__(self) -> None:
        self.chips: list[SimChip] = []

    def chip(self, label: str, names: list[str], hogs: dict[int, str] | None = None) -> SimChip:
        """A chip that is plugged in; see `SimChip`."""
        self.chips.append(SimChip(label, names, hogs))
        return self.chips[-1]


@pytest.fixture
def rack() -> Iterator[Rack]:
    made = Rack()
    yield made
    for chip in made.chips:
        chip.remove()


@pytest.fixture
def chip(rack: Rack) -> SimChip:
    """A small chip with names as on a Raspberry Pi."""
    return rack.chip("sim", ["GPIO0", "GPIO1", "GPIO2", "", "ACT"], {4: "spi0 CS0"})


@pytest.fixture
def turn(chip: SimChip) -> Iterator[Turn]:
    """Pulls a line of `chip` and waits until the kernel took notice."""
    made = Turn(chip, pace=3)
    yield made
    made.close()
