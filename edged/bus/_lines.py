"""Which GPIO line is meant: its name, its header pin, or its chip and offset. Pure.

Numbers of chips are no names: they change from boot to boot and between kernels
(the header of a Raspberry Pi 5 was gpiochip4, then gpiochip0).

Source: gpio-line-names of the kernel's device trees; the 40-pin header as
Raspberry Pi Ltd documents it (the first, 26-pin Model B had pins 3, 5 and 13 else).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from edged.bus._cdev import Chip
from edged.errors import NoDeviceError

HEADER_LABELS = ("pinctrl-rp1", "pinctrl-bcm2711", "pinctrl-bcm2835")
"""Chips behind the 40-pin header of a Raspberry Pi; a line's offset is its BCM number."""

HEADER: dict[int, int | str] = {
    1: "3V3", 2: "5V", 3: 2, 4: "5V", 5: 3, 6: "GND", 7: 4, 8: 14, 9: "GND", 10: 15,
    11: 17, 12: 18, 13: 27, 14: "GND", 15: 22, 16: 23, 17: "3V3", 18: 24, 19: 10, 20: "GND",
    21: 9, 22: 25, 23: 11, 24: 8, 25: "GND", 26: 7, 27: 0, 28: 1, 29: 5, 30: "GND",
    31: 6, 32: 12, 33: 13, 34: "GND", 35: 19, 36: 16, 37: 26, 38: 20, 39: "GND", 40: 21,
}  # fmt: skip
"""Header pin to the BCM number of its line, or to what else it carries."""

_PIN_OF = {bcm: pin for pin, bcm in HEADER.items() if isinstance(bcm, int)}
_PIN = re.compile(r"(?:pin|board)\s*([0-9]{1,3})", re.IGNORECASE)
_BCM = re.compile(r"GPIO([0-9]{1,2})")
_OFFSET = re.compile(r"[0-9]+")
_LONGEST = 64
"""Characters of a line, or of chip and offset: the kernel keeps 31 of any name."""


class Found(NamedTuple):
    """A line that exists.

    Attributes:
        chip: it is on this one.
        offset: there.
        title: what messages call it, `GPIO17 (pin 11)`, `gpiochip2/5`.
    """

    chip: Chip
    offset: int
    title: str


def find(line: str, chips: Sequence[Chip]) -> Found:
    """The line of that name.

    Args:
        line: `GPIO17`, `pin 11` or `BOARD11` of a Raspberry Pi's header, or chip
            (label or name) and offset, `pinctrl-rp1/17`.
        chips: those that there are.

    Raises:
        NoDeviceError: none, or several of that name; the message names them all.
    """
    if len(line) > _LONGEST:
        # To look for what is near it would take memory by the length of it.
        raise NoDeviceError(f"no GPIO line {line[:_LONGEST]!r}…: {_there(chips)}")
    if found := _by_name(line, chips):
        return found
    if pin := _PIN.fullmatch(line):
        return _by_pin(int(pin[1]), chips)
    header = _header(chips)
    if header and (bcm := _BCM.fullmatch(line)) and int(bcm[1]) in _PIN_OF:
        # Device trees of other kernels call it by its function: SDA1, TXD1.
        return _found(header, int(bcm[1]), line)
    chip, slash, offset = line.rpartition("/")
    if slash and _OFFSET.fullmatch(offset):
        return _by_offset(chip, int(offset), chips)
    raise NoDeviceError(f"no GPIO line {line!r}: {_hint(line, chips)}")


def _by_name(name: str, chips: Sequence[Chip]) -> Found | None:
    found = [
        _found(chip, line.offset, name)
        for chip in chips
        for line in chip.lines
        if line.name == name and name
    ]
    header = [entry for entry in found if entry.chip.label in HEADER_LABELS]
    if len(header) == 1 or len(found) == 1:
        return (header or found)[0]
    if found:
        places = " and ".join(f"{chip.label}/{offset} ({chip.name})" for chip, offset, _ in found)
        raise NoDeviceError(f"{len(found)} GPIO lines are called {name!r}, {places}: write which")
    return None


def _by_pin(pin: int, chips: Sequence[Chip]) -> Found:
    carries = HEADER.get(pin)
    header = _header(chips)
    if carries is None:
        raise NoDeviceError(f"no pin {pin}: the header of a Raspberry Pi has pins 1 to 40")
    if isinstance(carries, str):
        raise NoDeviceError(
            f"pin {pin} of the header is {carries}, not a GPIO line"
            + (f": GPIO{pin} would be pin {_PIN_OF[pin]}" if pin in _PIN_OF else "")
        )
    if header is None:
        raise NoDeviceError(
            f"pin {pin} (GPIO{carries}): this board has no header of a Raspberry Pi: "
            "write the line's name, or chip and offset"
        )
    return _found(header, carries, f"GPIO{carries}")


def _by_offset(wanted: str, offset: int, chips: Sequence[Chip]) -> Found:
    found = [chip for chip in chips if wanted in {chip.name, chip.label}]
    if not found:
        there = ", ".join(f"{chip.label} ({chip.name})" for chip in chips) or "none"
        raise NoDeviceError(f"no GPIO chip {wanted!r}: there is {there}")
    if len(found) > 1:
        names = " and ".join(chip.name for chip in found)
        raise NoDeviceError(f"{len(found)} GPIO chips are called {wanted!r}, {names}: write which")
    (chip,) = found
    if offset >= len(chip.lines):
        raise NoDeviceError(
            f"no line {offset} on {chip.label} ({chip.name}): it has 0 to {len(chip.lines) - 1}"
        )
    name = chip.lines[offset].name
    return Found(chip, offset, f"{wanted}/{offset} ({name})" if name else f"{wanted}/{offset}")


def _found(chip: Chip, offset: int, name: str) -> Found:
    pin = _PIN_OF.get(offset) if chip.label in HEADER_LABELS else None
    return Found(chip, offset, f"{name} (pin {pin})" if pin else name)


def _header(chips: Sequence[Chip]) -> Chip | None:
    return next((chip for chip in chips if chip.label in HEADER_LABELS), None)


def _hint(line: str, chips: Sequence[Chip]) -> str:
    if not chips:
        return "this machine shows no GPIO chip"
    if _OFFSET.fullmatch(line) and _header(chips):
        return _numbers(int(line))
    names = sorted({entry.name for chip in chips for entry in chip.lines if entry.name})
    if near := get_close_matches(line.upper(), names, 3, 0.5):
        return f"did you mean {' or '.join(near)}?"
    return _there(chips)


def _there(chips: Sequence[Chip]) -> str:
    there = ", ".join(f"{chip.label} ({chip.name}, {len(chip.lines)} lines)" for chip in chips)
    return f"write its name, or chip and offset; there is {there}"


def _numbers(number: int) -> str:
    """Both things that a bare number may mean to a maker."""
    meanings = []
    if number in _PIN_OF:
        meanings.append(f"GPIO{number} (pin {_PIN_OF[number]} of the header)")
    carries = HEADER.get(number)
    if carries is not None:
        what = f"GPIO{carries}" if isinstance(carries, int) else carries
        meanings.append(f"pin {number} ({what})")
    return f"write {' or '.join(meanings)}" if meanings else "write GPIO and its BCM number"
