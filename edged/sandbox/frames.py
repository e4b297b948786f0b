"""What comes out of a sandbox on descriptor 1: messages of the host, and stray output.

Sans-I/O. A host (`edged/toolmd/hosts`) writes frames; everything between them is
output of the tool's own processes. A frame is a single write of at most PIPE_BUF
bytes, so no other writer's bytes fall inside it (pipe(7)).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from edged.held import Share

FRAME_MAX = 4096
NONCE_SIZE = 16
MESSAGE_MAX = 16 << 20
"""Bytes of one message, of all its frames; the hosts have the same limit."""

_MARK = b"\x1e"
HEADER = len(_MARK) + NONCE_SIZE + 6
"""Bytes of a frame before its data."""

_RESULT = b"r"
"""Kind of the message that is kept until the call is over."""

_FRAME = re.compile(rb"[RSutrf][+.][0-9a-f]{4}")
"""What follows the nonce: a kind that hosts send, and nothing else that `int` would read."""

FREE = 32 << 10
"""Bytes that each may hold without a share: of unfinished messages, of a stream's beginning,
and of its end."""

STRAY = ""
"""Kind of what is no message: output of the tool's own processes."""


class Message(NamedTuple):
    """One message of the host, or a piece of stray output.

    Attributes:
        kind: `S` started, `R` ready, `u` update and `r` result (JSON), `f` failure (text), `t`, an
            update as escaped text from a shell, or `STRAY`.
        data: its payload.
    """

    kind: str
    data: bytes


class Frames:
    """Takes bytes as they come and tells messages from stray output, in their order.

    What only imitates a frame is output.

    Attributes:
        overfull: whether more has been sent of unfinished messages than one may have;
            they are forgotten.
        crowded: whether there was no room for a message beside those of others; likewise.
        share: what messages are counted by; None: by nothing.

    **Shape**: 0x1e, nonce (16 bytes), kind (1), `+` more follows or `.` last (1),
    length of the data (4 hexadecimal digits), data.
    """

    def __init__(self, nonce: bytes) -> None:
        self._mark = _MARK + nonce
        self._rest = b""
        self._parts: dict[bytes, bytearray] = {}
        self.overfull = self.crowded = False
        self.share: Share | None = None
        self._held = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take what was read; returns what is whole."""
        data = self._rest + data
        found: list[Message] = []
        at = 0
        while (start := data.find(self._mark, at)) >= 0:
            end = self._end(data, start)
            if end < 0:
                break
            if end == start:  # a tool that imitates frames
                end += len(self._mark)
                self._stray(data[at:end], found)
            else:
                self._stray(data[at:start], found)
                self._collect(data[start:end], found)
            at = end
        # What a frame ended with is no beginning of the next one.
        cut = start if start >= 0 else max(at, len(data) - self._partial(data))
        self._stray(data[at:cut], found)
        self._rest = data[cut:]
        return found

    def finish(self) -> list[Message]:
        """At the end: what was kept back as the possible start of a frame is output."""
        found: list[Message] = []
        self._stray(self._rest, found)
        self._rest = b""
        return found

    def _partial(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a mark."""
        at = data.rfind(_MARK, -len(self._mark))
        return len(data) - at if at >= 0 and self._mark.startswith(data[at:]) else 0

    def _end(self, data: bytes, start: int) -> int:
        """Where the frame at `start` ends, -1 while bytes are missing, `start` for none."""
        header = data[start : start + HEADER]
        if len(header) < HEADER:
            return -1
        if not _FRAME.match(header, len(self._mark)):
            return start
        end = start + HEADER + int(header[-4:], 16)
        if end - start > FRAME_MAX:
            return start
        return end if len(data) >= end else -1

    def _stray(self, data: bytes, found: list[Message]) -> None:
        if data:
            found.append(Message(STRAY, data))

    def _collect(self, frame: bytes, found: list[Message]) -> None:
        if self.overfull or self.crowded:
            return
        kind, more = frame[HEADER - 6 : HEADER - 5], frame[HEADER - 5 : HEADER - 4]
        parts = self._parts.setdefault(kind, bytearray())
        parts += frame[HEADER:]
        size = sum(map(len, self._parts.values()))
        self.overfull = size > MESSAGE_MAX
        self.crowded = not self.overfull and not self._holds(size)
        if self.overfull or self.crowded:
            self._parts.clear()
        elif more == b".":
            found.append(Message(kind.decode(), bytes(self._parts.pop(kind))))
            if kind != _RESULT and self.share is not None:
                self.share.give(self._held)
                self._held = 0

    def _holds(self, size: int) -> bool:
        """Whether there is room for so much of messages."""
        if self.share is not None and size > FREE + self._held:
            # Ahead of what comes, so that not each frame asks.
            self._held += self.share.take(size)
            return size <= FREE + self._held
        return True


class Output:
    """The beginning and the end of a stream; what lies between is only counted.

    Attributes:
        seen: bytes in all.
        share: what is kept is counted by, which may be less for it; None: by nothing.
    """

    def __init__(self, head: int, tail: int) -> None:
        self._head_max, self._tail_max = head, tail
        self._head, self._tail = bytearray(), bytearray()
        self._head_room, self._tail_room = min(FREE, head), min(2 * FREE, 2 * tail)
        self.seen = 0
        self.share: Share | None = None

    def add(self, data: bytes) -> None:
        """Take what was read."""
        self.seen += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            room = self._grow_head(min(room, len(data)))
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > self._tail_room:
            self._tail_room += self._take(2 * self._tail_max - self._tail_room, len(self._tail))
        if len(self._tail) > self._tail_room:  # not at every byte: that would copy each time
            del self._tail[: len(self._tail) - self._tail_room // 2]

    def _grow_head(self, count: int) -> int:
        """How many more bytes the beginning may have; once there is no room it is complete."""
        if len(self._head) + count > self._head_room:
            self._head_room += self._take(
                self._head_max - self._head_room, len(self._head) + count
            )
        granted = min(count, self._head_room - len(self._head))
        if granted < count:
            self._head_max = len(self._head) + granted
        return granted

    def _take(self, most: int, size: int) -> int:
        """Room for as much again as there is, so that not each piece asks."""
        wanted = min(most, size)
        return wanted if self.share is None else self.share.take(wanted)

    def text(self) -> str:
        """What was kept, with a line on what was not; control characters made harmless."""
        head, left_out, tail = self.parts()
        if not left_out:
            return readable(head)
        return f"{readable(head)}\n[... {left_out} bytes left out ...]\n{readable(tail)}"

    def parts(self) -> tuple[bytes, int, bytes]:
        """What was kept of its beginning and its end, and how many bytes lie between."""
        left_out = self.seen - len(self._head) - min(len(self._tail), self._tail_max)
        if left_out <= 0:
            return bytes(self._head + self._tail), 0, b""
        return bytes(self._head), left_out, bytes(self._tail[-self._tail_max :])

    def whole(self) -> bytes:
        """All of it; nothing when it was too much to keep."""
        kept = bytes(self._head + self._tail)
        return kept if len(kept) == self.seen else b""

    def last(self, count: int) -> str:
        """The text of its last `count` bytes at most."""
        kept = (self._tail if len(self._tail) >= count else self._head + self._tail)[-count:]
        return readable(bytes(kept))


def readable(data: bytes) -> str:
    """Text of any bytes: what is not UTF-8 and control characters become U+FFFD."""
    return harmless(data.decode("utf-8", "replace"))


def harmless(text: str) -> str:
    """The same text without what a terminal obeys or what hides other text."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # In pieces: other threads have their turn only between two of them.
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return "".join(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", piece) for piece in pieces)


_PIECE = 1 << 16
_CONTROL = re.compile(
    # C0 but tab and newline, C1, bidirectional embeddings, overrides and isolates
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def unescape(data: bytes) -> str:
    r"""The text behind a shell's update: `\\` is a backslash, `\n` a newline."""
    parts = readable(data).split("\\\\")
    return "\\".join(part.replace("\\n", "\n") for part in parts)
