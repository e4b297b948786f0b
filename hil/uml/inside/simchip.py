"""Chips of the kernel's gpio-sim, made and unmade by configfs.

Source: Documentation/admin-guide/gpio/gpio-sim.rst of the kernel.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

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


class Turn:
    """Pulls lines of a chip, and waits until the kernel took notice.

    The guest handles simulated interrupts at its clock's ticks, all lines at once:
    an edge of another line, which it handles last, says when.

    Args:
        chip: whose lines.
        pace: that other line; the last one that is turned.
    """

    def __init__(self, chip: SimChip, pace: int) -> None:
        self._chip, self._pace, self._level = chip, pace, False
        settings = LineSettings("input", edge="both")
        self._edges = cdev.request(f"/dev/{chip.name}", pace, settings, "pace")

    def __call__(self, line: int, high: bool) -> None:
        self._level = not self._level
        self._chip.pull(line, high)
        self._chip.pull(self._pace, self._level)
        assert select.select([self._edges], [], [], 20)[0]
        os.read(self._edges, cdev.EVENT.size)

    def close(self) -> None:
        os.close(self._edges)
