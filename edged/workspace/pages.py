"""Parts of a file as text: never half a character, whatever the length of its lines.

Pure but for the `read` that is handed in. Offsets and lengths are in bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Read = Callable[[int, int], bytes | bytearray]
"""`read(offset, count)`: at most so many bytes, fewer only at the end of the file."""

LINE_CHUNK = 256 << 10
"""Bytes that are looked through for line ends at a time."""

SNIFF = 8 << 10
"""Bytes of a part that are looked through for control characters."""

_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"

_MAGIC = (
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"PK\x03\x04", "a ZIP archive or office document"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"RIFF", "a RIFF sound, film or picture"),
    (b"OggS", "an Ogg sound or film"),
    (b"\xff\xfe", "text in UTF-16: convert it (iconv -f UTF-16)"),
    (b"\xfe\xff", "text in UTF-16: convert it (iconv -f UTF-16)"),
)
"""How files begin, and what those are (the magic(5) of file(1))."""

_SIGNS = tuple(sign for sign, _ in _MAGIC)

HEAD = 16
"""Bytes of a file's beginning that `kind` looks at."""


class Page(NamedTuple):
    """A part of a file.

    Attributes:
        data: its bytes.
        offset: where it begins.
        next: where the next one begins; None at the end of the file.
    """

    data: bytes | bytearray
    offset: int
    next: int | None


class Lines(NamedTuple):
    """Lines of a file.

    Attributes:
        lines: without their ends.
        first: number of the first, from 1.
        offset: where it begins.
        next: where reading goes on; None at the end of the file.
        is_cut: the last line is not whole: `next` is inside of it.
    """

    lines: list[bytes]
    first: int
    offset: int
    next: int | None
    is_cut: bool


def page(read: Read, offset: int, length: int) -> Page:
    """The bytes from `offset` on, begun and ended between characters of UTF-8.

    A page begins earlier or ends earlier by up to three bytes for that; it is longer
    than `length` only where one character is.
    """
    before = max(0, offset - 3)
    # Bytes beyond its end tell whether there are more, and what character it ends in.
    raw = read(before, offset - before + length + 4)
    start = _character(raw, offset - before)
    end = start + length
    if end >= len(raw):
        return Page(raw[start:] if start else raw, before + start, None)
    whole = _character(raw, end)
    if whole <= start:
        whole = start + _length(raw[start])
    return Page(raw[start:whole], before + start, before + whole if whole < len(raw) else None)


def _character(raw: bytes | bytearray, at: int) -> int:
    """The beginning of the character that the byte at `at` is inside of, or `at`."""
    if at < len(raw) and raw[at] & 0xC0 == 0x80:
        for lead in range(at - 1, max(at - 4, -1), -1):
            if raw[lead] & 0xC0 != 0x80:
                return lead if lead + _length(raw[lead]) > at else at
    return at


def _length(lead: int) -> int:
    """Bytes of a character by its first one (RFC 3629); 1 for what begins none."""
    if lead < 0xC2 or lead > 0xF4:
        return 1
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def lines(
    read: Read, first: int, count: int | None, room: int, stopped: Callable[[], bool]
) -> Lines | None:
    """Lines from number `first` on, as many as fit into `room` bytes.

    Args:
        read: the file.
        first: from 1.
        count: at most so many; None for as many as fit.
        room: bytes.
        stopped: asked between the parts of a long file.

    Returns:
        None where the file has fewer lines, or it was stopped.
    """
    offset = _line_start(read, first, stopped)
    if offset is None:
        return None
    found = page(read, offset, room)
    data, more = found.data, found.next
    if not data and first > 1:
        return None
    rows = bytes(data).split(b"\n")
    last = rows.pop()
    is_cut = False
    if count is not None and len(rows) >= count:
        rows = rows[:count]
        end = offset + sum(map(len, rows)) + len(rows)
        more = end if end < offset + len(data) or more is not None else None
    elif more is None:
        if last:
            rows.append(last)
    elif rows:
        # What is left of the page is told anew as a whole line.
        more = offset + len(data) - len(last)
    else:
        rows, is_cut = [last], True
    return Lines(rows, first, offset, more, is_cut)


def _line_start(read: Read, number: int, stopped: Callable[[], bool]) -> int | None:
    wanted, offset = number - 1, 0
    while wanted > 0:
        chunk = read(offset, LINE_CHUNK)
        if not chunk or stopped():
            return None
        here = chunk.count(b"\n")
        if here < wanted:
            wanted -= here
            offset += len(chunk)
            continue
        at = -1
        for _ in range(wanted):
            at = chunk.index(b"\n", at + 1)
        return offset + at + 1
    return offset


def kind(head: bytes | bytearray, data: bytes | bytearray) -> str:
    """What a file is where it is no text; empty for text.

    Args:
        head: its first `HEAD` bytes.
        data: the part that is going to be shown.
    """
    if head.startswith(_SIGNS):
        return next(name for sign, name in _MAGIC if head.startswith(sign))
    sample = data[:SNIFF]
    if b"\0" in data:
        return "binary data"
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return "binary data" if controls * 10 > len(sample) else ""
