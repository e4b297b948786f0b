"""Chips of the kernel's gpio-sim, made and unmade by configfs.

Source: Documentation/admin-guide/gpio/gpio-sim.rst of the kernel.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edged.bus import LineSettings
from edged.bus import _cdev as cdev

CONFIGFS = Path("/sys/kernel/config/gpio-sim")


class SimChip:
    """A simulated chip that is plugged in.

    Args:
        label: of the chip.
        names: of its lines, by offset.
        hogs: consumer of lines that the kernel itself holds, by offset.
    """

    made = 0

    def __init__(self, label: str, names: list[str], hogs: dict[int, str] | None = None) -> None:
        SimChip.made += 1
        self._device = CONFIGFS / f"test{SimChip.made}"
        self._bank = self._device / "bank"
        self._bank.mkdir(parents=True)
        (self._bank / "label").write_text(label)
        (self._bank / "num_lines").write_text(str(len(names)))
        for offset, name in enumerate(names):
            if name or offset in (hogs or {}):
                (self._bank / f"line{offset}").mkdir()
            if name:
                (self._bank / f"line{offset}" / "name").write_text(name)
        for offset, consumer in (hogs or {}).items():
            hog = self._bank / f"line{offset}" / "hog"
            hog.mkdir()
            (hog / "name").write_text(consumer)
            (hog / "direction").write_text("output-high")
        self.plug()

    def plug(self) -> None:
        """Has the kernel see it."""
        (self._device / "live").write_text("1")
        device = (self._device / "dev_name").read_text().strip()
        self.name = (self._bank / "chip_name").read_text().strip()
        self._lines = Path("/sys/devices/platform") / device / self.name

    def unplug(self) -> None:
        """Takes it away, whoever uses it."""
        with suppress(OSError):
            (self._device / "live").write_text("0")

    def pull(self, offset: int, high: bool) -> None:
        """What is wired to a line pulls it up or down."""
        pull = self._lines / f"sim_gpio{offset}" / "pull"
        pull.write_text("pull-up" if high else "pull-down")

    def level(self, offset: int) -> bool:
        """The level of a line, as a meter shows it."""
        return (self._lines / f"sim_gpio{offset}" / "value").read_text().strip() == "1"

    def remove(self) -> None:
        """Takes it away and forgets it."""
        self.unplug()
        for directory, _, _ in os.walk(self._device, topdown=False):
            os.rmdir(directory)


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
def turn(chip: SimChip) -> Iterator[Callable[[int, bool], None]]:
    """Pulls a line of `chip` and waits until the kernel took notice.

    The guest handles simulated interrupts at its clock's ticks, all lines at once:
    an edge of another line, which it handles last, says when.
    """
    pace = cdev.request(f"/dev/{chip.name}", 3, LineSettings("input", edge="both"), "pace")
    level = False

    def turned(line: int, high: bool) -> None:
        nonlocal level
        level = not level
        chip.pull(line, high)
        chip.pull(3, level)
        assert select.select([pace], [], [], 20)[0]
        os.read(pace, cdev.EVENT.size)

    yield turned
    os.close(pace)
