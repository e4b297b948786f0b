"""Modbus RTU: requests, answers and register maps; pure.

Source: MODBUS application protocol, version 1.1b3 (here A), and MODBUS over
serial line, version 1.02 (here S).
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from edged.bus import SerialSettings
from edged.units import UNITS

Kind = Literal["holding", "input", "coil", "discrete"]

# A, sections 6.1 to 6.6 and 6.12.
READ: dict[Kind, int] = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
WRITE_COIL, WRITE_REGISTER, WRITE_REGISTERS = 5, 6, 16
FAILED = 0x80

BITS_MAX, WORDS_MAX = 2000, 125
"""What one request may read (A 6.1, 6.3)."""

_TYPES = {
    "u16": struct.Struct(">H"),
    "i16": struct.Struct(">h"),
    "u32": struct.Struct(">I"),
    "i32": struct.Struct(">i"),
    "f32": struct.Struct(">f"),
}
_RANGES = {
    "u16": (0.0, 65_535.0),
    "i16": (-32_768.0, 32_767.0),
    "u32": (0.0, 4_294_967_295.0),
    "i32": (-2_147_483_648.0, 2_147_483_647.0),
    "f32": (-3.4028235e38, 3.4028235e38),
}

EXCEPTIONS = {
    1: "it does not know this function (illegal function): is the kind right?",
    2: "it has no such register (illegal data address): many maps count from 1, here it is from 0",
    3: "it refuses the value or the number of registers (illegal data value)",
    4: "it failed while doing it (server device failure)",
    5: "it needs more time (acknowledge)",
    6: "it is busy (server device busy)",
    8: "its memory is damaged (memory parity error)",
    10: "the gateway is set up wrongly (gateway path unavailable)",
    11: "the device behind the gateway does not answer",
}
"""A, section 7."""
LATER = frozenset({5, 6})

SHORTEST = 5
"""Bytes of an exception on the wire, the shortest answer."""


class RegisterConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One register, or two that make up a value of 32 bits.

    Attributes:
        address: as it goes over the line, from 0; `40001` of many maps is holding 0.
        kind: which of the four tables.
        type: of a word or two; bits have none.
        order: `big` when the high word comes first; bytes of a word always do.
        scale: factor from the raw value to `unit`.
        offset: added after that.
        unit: a SenML unit.
        writable: the command `write` may set it, from `min` to `max`.
        min: in `unit`.
        max: in `unit`.
        safe: what it is set to at start, at stop and when its deadline passes.
    """

    address: Annotated[int, Meta(ge=0, le=0xFFFF)]
    kind: Kind = "holding"
    type: Literal["u16", "i16", "u32", "i32", "f32"] = "u16"
    order: Literal["big", "little"] = "big"
    scale: float = 1.0
    offset: float = 0.0
    unit: str = "/"
    writable: bool = False
    min: float | None = None
    max: float | None = None
    safe: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is not one of {', '.join(UNITS)}")
        if self.scale == 0:
            raise ValueError("scale: must not be 0")
        if self.writable:
            self._check_writable()
        elif self.safe is not None:
            raise ValueError("safe: only a writable register has one")

    def _check_writable(self) -> None:
        if self.kind not in {"holding", "coil"}:
            raise ValueError(f"writable: {self.kind} registers can only be read")
        if self.kind == "holding" and (self.min is None or self.max is None):
            raise ValueError("min and max: a writable register needs both")
        low, high = self.limits()
        if low >= high:
            raise ValueError("min: must be less than max")
        lowest, highest = self.range()
        if low < lowest or high > highest:
            raise ValueError(f"min and max: {self.type} holds from {lowest:g} to {highest:g}")
        if self.safe is not None and not low <= self.safe <= high:
            raise ValueError("safe: must be from min to max")

    @property
    def is_bit(self) -> bool:
        """Whether it is one bit."""
        return self.kind in {"coil", "discrete"}

    @property
    def size(self) -> int:
        """Addresses that it takes."""
        return 1 if self.is_bit else _TYPES[self.type].size // 2

    def limits(self) -> tuple[float, float]:
        """What may be written, in `unit`."""
        return (0.0 if self.min is None else self.min, 1.0 if self.max is None else self.max)

    def range(self) -> tuple[float, float]:
        """What its type can hold, in `unit`."""
        raw = (0.0, 1.0) if self.is_bit else _RANGES[self.type]
        low, high = sorted(end * self.scale + self.offset for end in raw)
        return low, high


def crc16(data: bytes) -> int:
    """CRC-16 of the polynomial 0x8005, lowest bit first, from 0xFFFF. Source: S, appendix B."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def frame(unit_id: int, pdu: bytes) -> bytes:
    """A request or an answer on the wire. Source: S 2.5.1."""
    body = bytes([unit_id]) + pdu
    return body + crc16(body).to_bytes(2, "little")


class Batch(NamedTuple):
    """Neighbours that are read by one request."""

    kind: Kind
    start: int
    size: int
    names: tuple[str, ...]

    @property
    def pdu(self) -> bytes:
        """The request."""
        return struct.pack(">BHH", READ[self.kind], self.start, self.size)

    @property
    def data_size(self) -> int:
        """Bytes of data in the answer."""
        return (self.size + 7) // 8 if self.kind in {"coil", "discrete"} else self.size * 2


def batches(registers: dict[str, RegisterConfig]) -> tuple[Batch, ...]:
    """The fewest requests that read all registers and nothing between them.

    Gaps are not read over: many devices refuse addresses that they do not have.
    """
    found: list[Batch] = []
    for name, one in sorted(registers.items(), key=lambda item: (item[1].kind, item[1].address)):
        end = one.address + one.size
        last = found[-1] if found else None
        longest = BITS_MAX if one.is_bit else WORDS_MAX
        if last is not None and last.kind == one.kind and one.address <= last.start + last.size:
            size = max(end - last.start, last.size)
            if size <= longest:
                found[-1] = last._replace(size=size, names=(*last.names, name))
                continue
        found.append(Batch(one.kind, one.address, one.size, (name,)))
    return tuple(found)


def decode(one: RegisterConfig, batch: Batch, data: bytes) -> float:
    """A register's value in its unit; may be no number.

    Shape:
        data: of the batch's answer: words, or bits from the lowest of each byte.

    Source: A 6.1 and 6.3.
    """
    at = one.address - batch.start
    if one.is_bit:
        raw: float = data[at // 8] >> at % 8 & 1
    else:
        words = data[at * 2 : (at + one.size) * 2]
        (raw,) = _TYPES[one.type].unpack(_ordered(one, words))
    value = raw * one.scale + one.offset
    # Finer digits are arithmetic: a float of 32 bits has 7.
    return float(f"{value:.7g}" if one.type == "f32" else f"{value:.12g}")


def encode(one: RegisterConfig, value: float) -> bytes:
    """The request that sets a register. Source: A 6.5, 6.6 and 6.12."""
    raw = (value - one.offset) / one.scale
    if one.is_bit:
        return struct.pack(">BHH", WRITE_COIL, one.address, 0xFF00 if raw else 0)
    layout = _TYPES[one.type]
    words = _ordered(one, layout.pack(raw if one.type == "f32" else round(raw)))
    if one.size == 1:
        return struct.pack(">BH", WRITE_REGISTER, one.address) + words
    return struct.pack(">BHHB", WRITE_REGISTERS, one.address, one.size, len(words)) + words


def _ordered(one: RegisterConfig, words: bytes) -> bytes:
    """Words from the line's order to high word first, and back."""
    return words[2:] + words[:2] if one.order == "little" else words


def quiet_s(settings: SerialSettings) -> float:
    """The silence between two frames: 3.5 characters, 1.75 ms at least. Source: S 2.5.1.1."""
    bits = 1 + settings.bytesize + (settings.parity != "none") + settings.stopbits
    return max(3.5 * bits / settings.baudrate, 0.00175)


def fault(request: bytes, answer: bytes, size: int) -> str:
    """Why an answer is not that of its request; empty when it is."""
    if len(answer) < SHORTEST or crc16(answer) != 0:
        return (
            f"the checksum is wrong after {len(answer)} bytes: noise, or another speed or parity"
        )
    if answer[0] != request[0] or answer[1] & ~FAILED != request[1]:
        return f"unit {answer[0]} answered, to function {answer[1] & ~FAILED}: a late answer"
    if answer[1] & FAILED:
        return ""
    if request[1] in READ.values():
        return "" if answer[2] == size - 2 else f"{answer[2]} bytes in place of {size - 2}"
    return "" if answer[2:6] == request[2:6] else "another register was confirmed: a late answer"


def words(code: int) -> str:
    """What an exception means."""
    return f"exception {code}: {EXCEPTIONS.get(code, 'one of its maker')}"
