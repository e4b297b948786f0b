"""Lines of a program that may write anything: bounded, and in step after a line too long.

Sans-I/O. Of a line over the limit its two ends are kept, for they tell whose answer it
was: peers write `id` as the first or the last member.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from edged.jsonrpc import MAX_LINE

ENDS = 256
"""Bytes that are kept of each end of a line that is too long."""

_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*\}\s*$')
_BEFORE_VALUES = re.compile(rb'"(?:result|error|params)"\s*:')


class Long(NamedTuple):
    """A line that was over the limit; `id` is -1 where it shows none."""

    id: int
    size: int


class Framing:
    """Cuts a byte stream into lines without their LF; one owner.

    Attributes:
        size: bytes of the line that has no end yet.
        limit: bytes of one line.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._head = b""
        self._tail = b""
        self.size = 0

    def feed(self, data: bytes) -> list[bytes | Long]:
        """The lines that end in `data`; blank ones are left out."""
        if not self.size and data.endswith(b"\n") and data.count(b"\n") == 1:
            # The usual one: a whole message at once.
            line = data[:-1]
            if len(line) <= self.limit:
                return [line] if line.strip() else []
        found: list[bytes | Long] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._keep(piece)
            line_or_long = self._take()
            if line_or_long is not None:
                found.append(line_or_long)
        if rest:
            self._keep(rest)
        return found

    def _keep(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size <= self.limit:
            self._parts.append(piece)
            return
        if self._parts:
            whole = b"".join(self._parts)
            self._head, self._tail = whole[:ENDS], whole[-ENDS:]
            self._parts.clear()
        self._head = (self._head + piece[:ENDS])[:ENDS]
        self._tail = (self._tail + piece[-ENDS:])[-ENDS:]

    def _take(self) -> bytes | Long | None:
        size, self.size = self.size, 0
        if size > self.limit:
            number = shown_id(self._head, self._tail)
            self._head = self._tail = b""
            return Long(number, size)
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        return line if line.strip() else None


def shown_id(head: bytes, tail: bytes) -> int:
    """The id at one of the two ends of a message; -1 where there is none."""
    first = _BEFORE_VALUES.search(head)
    match = _ID.search(head, 0, first.start() if first else len(head))
    match = match or _ID_LAST.search(tail)
    return int(match.group(1)) if match else -1
