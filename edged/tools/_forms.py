"""Forms of arguments that the hardware tools share: buses, numbers, bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from edged.errors import Fault, InvalidArgumentsError

INPUTS_MAX = 256 << 10
"""Bytes of one call's inputs: ten times the longest transfer written as numbers."""

BYTES_MAX = 8_192
_HEX_MAX = 8 * BYTES_MAX
"""Characters of hex: `0xff, ` a byte at the longest, and some room."""

Byte = Annotated[int, Meta(ge=0, le=255)]


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that say what they are written as: text that begins with 0x is not taken for hex."""

    hex: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        if (self.hex is None) == (self.text is None):
            raise ValueError("give one of hex and text")


Data = Annotated[
    Annotated[list[Byte], Meta(max_length=BYTES_MAX)] | str | Written,
    Meta(
        description='Bytes: [1, 255], hex such as "0x01ff", or text; or said outright: '
        '{"hex": "01ff"} or {"text": "0x"}.'
    ),
]


def check_inputs(
    params: msgspec.Struct, action: str, of: Mapping[str, tuple[str, ...]], tool: str
) -> None:
    """Refuse inputs that an action has no use for: what was meant by them would be lost.

    Models fill in every field that they see: zero and the empty text are as good as absent.

    Args:
        params: of the call.
        action: what is done, said or implied.
        of: by an input's name, the actions that it is of.
        tool: for the message.

    Raises:
        InvalidArgumentsError: some were given.
    """
    faults = [
        Fault(field.encode_name, f"belongs to action {' or '.join(of[field.name])}")
        for field in msgspec.structs.fields(params)
        if action not in of.get(field.name, (action,))
        and getattr(params, field.name) not in (field.default, 0, "", None)
    ]
    if faults:
        raise InvalidArgumentsError(faults, tool)


def data_bytes(data: list[int] | str | Written | None, field: str = "data") -> bytes:
    """The bytes of a `data` argument: a list, hex that begins with 0x, or text as UTF-8.

    Raises:
        InvalidArgumentsError: hex that is none, or too many.
    """
    if data is None:
        return b""
    if isinstance(data, Written):
        found = _hex(data.hex, field) if data.hex is not None else (data.text or "").encode()
    elif isinstance(data, str):
        found = _hex(data, field) if data[:2].lower() == "0x" else data.encode()
    else:
        found = bytes(data)
    if len(found) > BYTES_MAX:
        raise InvalidArgumentsError([Fault(field, f"is over {BYTES_MAX} bytes")])
    return found


def _hex(text: str, field: str) -> bytes:
    if len(text) > _HEX_MAX:
        raise InvalidArgumentsError([Fault(field, f"is over {BYTES_MAX} bytes")])
    parts = [part.lower().removeprefix("0x") for part in re.split(r"[\s,:]+", text.strip())]
    if not all(re.fullmatch("([0-9a-f]{2})+", part) for part in parts):
        reason = (
            f"{text[:40]!r} is not hex: write two digits for each byte, such as 0x01ff; to send "
            "it as text, write an object with text"
        )
        raise InvalidArgumentsError([Fault(field, reason)])
    return bytes.fromhex("".join(parts))


def number(value: int | str, field: str, low: int, high: int) -> int:
    """A number that may be written as `72`, `"72"` or `"0x48"`.

    Raises:
        InvalidArgumentsError: it is none, or not from `low` to `high`.
    """
    try:
        found = value if isinstance(value, int) else int(value, 0)
    except ValueError:
        reason = f"{str(value)[:40]!r} is not a number: write 72 or 0x48"
        raise InvalidArgumentsError([Fault(field, reason)]) from None
    if not low <= found <= high:
        hint = ""
        if field == "address" and high < found <= 0xFF:
            # Many labels print the 8-bit form, which has the read/write bit at its end.
            hint = f": an 8-bit label? then {found >> 1:#04x}"
        reason = f"{found:#04x} is not from {low:#04x} to {high:#04x}{hint}"
        raise InvalidArgumentsError([Fault(field, reason)])
    return found


def shown(data: bytes) -> str:
    """Bytes for people: `0b 80`."""
    return data.hex(" ") or "(none)"
