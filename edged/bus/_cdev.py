"""The kernel's GPIO character device, uAPI v2: its structs and ioctls, one line a request.

Synchronous; any thread. Errors are the kernel's `OSError`. Knows no event loop
and nothing of how lines are called.

Source: linux/gpio.h, and Documentation/userspace-api/gpio of the kernel.
"""

from __future__ import annotations

import os
from fcntl import ioctl
from struct import Struct

import msgspec

from edged.bus import Edge, LineSettings, LineState

CHIP_INFO = Struct("=32s32sI")
"""`struct gpiochip_info`: name, label, number of lines."""
LINE_INFO = Struct("=32s32sIIQ160s16x")
"""`struct gpio_v2_line_info`: name, consumer, offset, number of attributes, flags, attributes."""
OUTPUT_VALUES = Struct("=I4xQQ")
"""`struct gpio_v2_line_config_attribute` of output values: id, values, mask."""
DEBOUNCE = Struct("=I4xI4xQ")
"""The same of a debounce: id, microseconds, mask."""
CONFIG = Struct("=QI20x240s")
"""`struct gpio_v2_line_config`: flags, number of attributes, attributes."""
REQUEST = Struct("=I252x32s272sII20xi")
"""`struct gpio_v2_line_request` of one line: offset, consumer, config, 1, event buffer, fd."""
VALUES = Struct("=QQ")
"""`struct gpio_v2_line_values`: bits, mask."""
EVENT = Struct("=QIIII24x")
"""`struct gpio_v2_line_event`: time stamp in ns, id, offset, sequence of all, of the line."""

_READ, _READ_WRITE = 2 << 30, 3 << 30


def _number(direction: int, number: int, size: int) -> int:
    """An ioctl's number, as on ARM, x86 and RISC-V (asm-generic/ioctl.h)."""
    return direction | size << 16 | 0xB4 << 8 | number


GET_CHIPINFO = _number(_READ, 0x01, CHIP_INFO.size)
GET_LINEINFO = _number(_READ_WRITE, 0x05, LINE_INFO.size)
GET_LINE = _number(_READ_WRITE, 0x07, REQUEST.size)
SET_CONFIG = _number(_READ_WRITE, 0x0D, CONFIG.size)
GET_VALUES = _number(_READ_WRITE, 0x0E, VALUES.size)
SET_VALUES = _number(_READ_WRITE, 0x0F, VALUES.size)

USED, ACTIVE_LOW, INPUT, OUTPUT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_EDGES = {"none": 0, "rising": 1 << 4, "falling": 1 << 5, "both": 1 << 4 | 1 << 5}
_DRIVES = {"push-pull": 0, "open-drain": 1 << 6, "open-source": 1 << 7}
# Without either, the line stays what it is: gpio-v2-get-line-ioctl.rst.
_DIRECTIONS = {"as-is": 0, "input": INPUT, "output": OUTPUT}
_BIASES = {"as-is": 0, "pull-up": 1 << 8, "pull-down": 1 << 9, "disabled": 1 << 10}
_ATTRIBUTE_VALUES, _ATTRIBUTE_DEBOUNCE = 2, 3
_RISING_EDGE = 1

EVENT_BUFFER = 1024
"""Edges that the kernel keeps for a line until they are read: the most it gives."""
_EVENTS_A_READ = 128
_NAME_MAX = 31


class Chip(msgspec.Struct, frozen=True):
    """A GPIO chip and its lines as they are now.

    Attributes:
        name: the kernel's, `gpiochip0`; may change from boot to boot.
        label: of the hardware, `pinctrl-bcm2711`.
        path: of the device node.
        lines: by offset.
    """

    name: str
    label: str
    path: str
    lines: tuple[LineState, ...]


def read_chip(path: str) -> Chip:
    """The chip behind a device node."""
    chip = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        answer = ioctl(chip, GET_CHIPINFO, bytes(CHIP_INFO.size))
        name, label, count = CHIP_INFO.unpack(answer)
        name, label = _text(name), _text(label)
        lines = tuple(read_line(chip, label, offset) for offset in range(count))
    finally:
        os.close(chip)
    return Chip(name, label, path, lines)


def read_line(chip: int, label: str, offset: int) -> LineState:
    """What the kernel tells of a line.

    Args:
        chip: descriptor of the chip's node.
        label: of the chip.
        offset: of the line.
    """
    asked = LINE_INFO.pack(b"", b"", offset, 0, 0, b"")
    return line_state(ioctl(chip, GET_LINEINFO, asked), label)


def line_state(info: bytes, label: str) -> LineState:
    """A `struct gpio_v2_line_info`, read."""
    name, consumer, offset, _, flags, _ = LINE_INFO.unpack(info)
    return LineState(
        _text(name),
        label,
        offset,
        "output" if flags & OUTPUT else "input",
        _text(consumer),
        bool(flags & USED),
    )


def config(settings: LineSettings) -> bytes:
    """The `struct gpio_v2_line_config` of one line."""
    flags = (
        _DIRECTIONS[settings.direction]
        | (ACTIVE_LOW if settings.active_low else 0)
        | _BIASES[settings.bias]
        | _DRIVES[settings.drive]
        | _EDGES[settings.edge]
    )
    attributes = []
    if settings.direction == "output":
        attributes.append(OUTPUT_VALUES.pack(_ATTRIBUTE_VALUES, settings.output_value, 1))
    if debounce_us := round(settings.debounce_s * 1e6):
        attributes.append(DEBOUNCE.pack(_ATTRIBUTE_DEBOUNCE, debounce_us, 1))
    return CONFIG.pack(flags, len(attributes), b"".join(attributes))


def line_request(
    offset: int, settings: LineSettings, consumer: str, event_buffer: int = EVENT_BUFFER
) -> bytes:
    """The `struct gpio_v2_line_request` for one line."""
    # Cut inside a character, the rest of that character is dropped too.
    name = consumer.encode()[:_NAME_MAX].decode(errors="ignore").encode()
    return REQUEST.pack(offset, name, config(settings), 1, event_buffer, -1)


def request(
    path: str,
    offset: int,
    settings: LineSettings,
    consumer: str,
    event_buffer: int = EVENT_BUFFER,
) -> int:
    """Takes a line; the descriptor that holds it, closed on exec, its reads do not block.

    Args:
        path: of the chip's node.
        offset: of the line.
        settings: how it is held.
        consumer: who holds it; the kernel keeps 31 bytes of the name.
        event_buffer: edges that the kernel keeps until they are read.
    """
    chip = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        asked = line_request(offset, settings, consumer, event_buffer)
        line: int = REQUEST.unpack(ioctl(chip, GET_LINE, asked))[-1]
    finally:
        os.close(chip)
    os.set_blocking(line, False)
    return line


def reconfigure(line: int, settings: LineSettings) -> None:
    """Changes how a line is held, without giving it back."""
    ioctl(line, SET_CONFIG, config(settings))


def read_value(line: int) -> bool:
    """The logical value of a line."""
    bits: int = VALUES.unpack(ioctl(line, GET_VALUES, VALUES.pack(0, 1)))[0]
    return bool(bits & 1)


def write_value(line: int, value: bool) -> None:
    """Drives an output."""
    ioctl(line, SET_VALUES, VALUES.pack(value, 1))


def read_edges(line: int, last: int) -> list[Edge]:
    """Edges that wait in the kernel, oldest first; an empty list at the descriptor's end.

    Args:
        line: descriptor of the line.
        last: sequence of the last edge that was read; 0 at first.

    Raises:
        BlockingIOError: none waits.
    """
    return edges(os.read(line, _EVENTS_A_READ * EVENT.size), last)


def edges(events: bytes, last: int) -> list[Edge]:
    """Several `struct gpio_v2_line_event`, read.

    Args:
        events: as the kernel gave them.
        last: sequence of the edge before them; 0 at first.
    """
    found = []
    for timestamp_ns, kind, _, _, sequence in EVENT.iter_unpack(events):
        # The kernel counts in 32 bits.
        lost = (sequence - last - 1) & 0xFFFFFFFF
        found.append(Edge(kind == _RISING_EDGE, timestamp_ns / 1e9, sequence, lost))
        last = sequence
    return found


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode(errors="replace")
