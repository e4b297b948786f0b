"""What a command wrote and nobody has read yet: bounded, and as text for a model.

Pure: knows no processes. Terminal control sequences are left out of text (ECMA-48), as
are characters that a terminal obeys.
"""

from __future__ import annotations

import re

from edged.held import Share
from edged.sandbox.frames import FREE, readable

SIZE = 1 << 20
"""Bytes that are kept; older ones give way, and are counted."""

_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,256}\x1b?|[ -/]*)\Z")
_CURSOR_MODE = re.compile(rb"\x1b\[\?1([hl])")
_OVERLAP = 4
"""Bytes of a cursor mode sequence that may stand at the end of the piece before."""


def plain(data: bytes) -> str:
    """Text of any output: no control sequences, lines as lines."""
    if b"\x1b" in data:
        data = _SEQUENCE.sub(b"", data)
    if b"\r" in data:
        # What goes to the beginning of a line where it is, goes nowhere.
        # A run is looked at from its beginning alone: else each of its places would be.
        data = re.sub(rb"(?<!\r)\r+\n\r*", b"\n", data)
    return readable(data)


class Unread:
    """Output between two reads.

    Attributes:
        seen: bytes in all.
        application: whether the program asked for application cursor keys.
    """

    def __init__(self, share: Share, size: int = SIZE) -> None:
        """Output of a session.

        Args:
            share: what is kept is counted by, which may be less for it.
            size: bytes that are kept at most.
        """
        self._share = share
        self._size = size
        self._least = self._room = 2 * min(FREE, size)
        self._data = bytearray()
        self._dropped = 0
        self._last = b""
        self.seen = 0
        self.application = False

    def add(self, data: bytes) -> None:
        """Take what came."""
        self.seen += len(data)
        self._data += data
        if len(self._data) > self._room:
            self._room += self._share.take(min(2 * self._size - self._room, len(self._data)))
        if len(self._data) > self._room:  # not at every byte: that would copy each time
            self._trim(self._room // 2)
        if b"\x1b[?1" in self._last + data:
            for match in _CURSOR_MODE.finditer(self._last + data):
                self.application = match.group(1) == b"h"
        self._last = (self._last + data)[-_OVERLAP:]

    def _trim(self, size: int) -> None:
        over = len(self._data) - size
        if over > 0:
            self._dropped += over
            del self._data[:over]

    def __len__(self) -> int:
        return min(len(self._data), self._size)

    def take(self, *, last: bool) -> tuple[bytes, int]:
        """All of it, and how many bytes before it were dropped; it is read then.

        Args:
            last: no more comes; else a character or sequence that has only begun is kept
                for the next time.
        """
        self._trim(self._size)
        data, dropped = bytes(self._data), self._dropped
        kept = 0 if last else _begun(data)
        self._data = bytearray(data[len(data) - kept :])
        self._dropped = 0
        self._room = self._least
        self._share.release()
        return data[: len(data) - kept], dropped

    def forget(self) -> None:
        """Nobody will read it, and nothing more is kept."""
        self._data.clear()
        self._size = self._least = self._room = 0
        self._share.release()


def _begun(data: bytes) -> int:
    """How many bytes at the end are the beginning of something."""
    match = _BEGUN.search(data, max(0, len(data) - 300))
    if match is not None:
        return len(data) - match.start()
    for count in range(1, min(4, len(data) + 1)):
        byte = data[-count]
        if byte >= 0xC0:  # leads a character of 2, 3 or 4 bytes (RFC 3629)
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if size > count else 0
        if byte < 0x80:
            break
    return 0
