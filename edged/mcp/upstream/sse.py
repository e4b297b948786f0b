"""Server-sent events, sans I/O: bytes in, events out; bounded.

Source: HTML Living Standard, section 9.2.6.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from edged.errors import TooLargeError
from edged.jsonrpc import MAX_LINE

RETRY_MAX_MS = 300_000
_END = re.compile(rb"\r\n|\n|\r")


class SseEvent(NamedTuple):
    """One event; `id` is the last one that the stream named."""

    name: str
    data: bytes
    id: str


class EventStream:
    """Reads one stream.

    Attributes:
        last_id: of the last event that named one; empty: none did.
        retry_ms: what the server asked to wait before the next stream; None: nothing.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        # Of the line that has no end yet: what came of it is not looked at again.
        self._rest = bytearray()
        self._return = b""
        self._lines: list[bytes] = []
        self._size = 0
        self._name = ""
        self._begun = False
        self._id = ""
        self.last_id = ""
        self.retry_ms: int | None = None

    def begin_again(self, last_id: str, retry_ms: int | None) -> None:
        """Read the next stream of the same source, which goes on after `last_id`."""
        self._rest, self._return = bytearray(), b""
        self._lines, self._size, self._name = [], 0, ""
        self._begun = False
        self._id = self.last_id = last_id
        self.retry_ms = retry_ms

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that end in `data`.

        Raises:
            TooLargeError: an event is over the limit; the stream is of no use then.
        """
        if not self._begun and data:
            self._begun = True
            data = data.removeprefix(b"\xef\xbb\xbf")
        data, self._return = self._return + data, b""
        if data.endswith(b"\r"):
            # Perhaps the first half of a line's end.
            data, self._return = data[:-1], b"\r"
        found: list[SseEvent] = []
        at = 0
        for match in _END.finditer(data):
            self._rest += data[at : match.start()]
            self._line(bytes(self._rest), found)
            self._rest.clear()
            at = match.end()
        self._rest += data[at:]
        if len(self._rest) + self._size > self._limit:
            raise TooLargeError(f"an event is over {self._limit >> 20} MiB")
        return found

    def _line(self, line: bytes, found: list[SseEvent]) -> None:
        if not line:
            self._dispatch(found)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            self._lines.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id":
            if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_ms = min(int(value), RETRY_MAX_MS)

    def _dispatch(self, found: list[SseEvent]) -> None:
        self.last_id = self._id
        name, lines = self._name, self._lines
        self._name, self._lines, self._size = "", [], 0
        data = b"\n".join(lines)
        if data:
            found.append(SseEvent(name or "message", data, self.last_id))
