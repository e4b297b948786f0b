"""A chip's registers as named bit fields: pure encode and decode, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec


def signed(value: int, bits: int) -> int:
    """The two's complement reading of the lowest `bits` of a value."""
    sign = 1 << (bits - 1)
    return (value & (sign - 1)) - (value & sign)


class Field(msgspec.Struct, frozen=True, gc=False):
    """Some bits of a register.

    Attributes:
        name: the datasheet's, in lower case.
        offset: position of the lowest bit; bit 0 is the register's lowest.
        width: number of bits.
        signed: two's complement when true.
    """

    name: str
    offset: int
    width: int = 1
    signed: bool = False

    def range(self) -> tuple[int, int]:
        """Lowest and highest value that fits."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return 0, (1 << self.width) - 1


class Register(msgspec.Struct, frozen=True):
    """One register: address, size in bytes, byte order and fields."""

    address: int
    fields: tuple[Field, ...]
    size: int = 1
    order: Literal["big", "little"] = "big"

    def decode(self, data: bytes) -> dict[str, int]:
        """The value of each field.

        Shape:
            data: `size` bytes in the register's order.

        Raises:
            ValueError: another number of bytes.
        """
        if len(data) != self.size:
            raise ValueError(
                f"register {self.address:#04x} has {self.size} bytes, not {len(data)}"
            )
        word = int.from_bytes(data, self.order)
        values = {}
        for field in self.fields:
            bits = (word >> field.offset) & ((1 << field.width) - 1)
            values[field.name] = signed(bits, field.width) if field.signed else bits
        return values

    def encode(self, values: Mapping[str, int], keep: bytes = b"") -> bytes:
        """The register's bytes with these fields set.

        Args:
            values: by field name; the others keep their bits.
            keep: present content; zeros when empty.

        Raises:
            ValueError: an unknown field, or a value that does not fit.
        """
        word = int.from_bytes(keep, self.order)
        fields = {field.name: field for field in self.fields}
        for name, value in values.items():
            field = fields.get(name)
            if field is None:
                raise ValueError(f"register {self.address:#04x} has no field {name!r}")
            low, high = field.range()
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, which is not within {low} to {high}")
            mask = (1 << field.width) - 1
            word = word & ~(mask << field.offset) | (value & mask) << field.offset
        return word.to_bytes(self.size, self.order)
