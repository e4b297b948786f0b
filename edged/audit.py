"""The trail of every call: who, what, how long, how it ended.

JSON lines in segments of one directory: a bounded number of bytes, written in
batches to spare the SD card. Sensitive inputs never get here. A torn last line
(power loss) is skipped by readers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from edged import log
from edged.clock import Clock
from edged.store import make_directory

SEGMENTS = 4
KEPT = 1_000
"""Records kept in memory for readers; on disk there are more."""

QUEUED = 20_000
"""Records that may wait for the disk; beyond, the oldest are counted as lost."""

ARGUMENTS_MAX = 1_024
"""Bytes of one record's arguments."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call.

    Attributes:
        time: RFC 3339, UTC, when it ended.
        outcome: `ok`, `error` (the tool's), or a code of `edged.errors`.
        duration_ms: from acceptance to result.
        arguments: without sensitive inputs; cut at 1 KB.
    """

    time: str
    call_id: str
    user: str
    role: str
    door: str
    tool: str
    outcome: str
    duration_ms: float
    peer: str = ""
    session: str = ""
    source: str = ""
    detail: str = ""
    arguments: Any = None


class Trail:
    """Collects records and writes them in batches. Loop thread only, but for `write_out`."""

    def __init__(self, directory: str, clock: Clock, max_bytes: int) -> None:
        self._directory = directory
        self._clock = clock
        self._segment_max = max(max_bytes // SEGMENTS, 4_096)
        self._waiting: deque[Callable[[], Record]] = deque()
        self._recent: deque[Record] = deque(maxlen=KEPT)
        self._listeners: dict[int, Callable[[Record], None]] = {}
        self._next = 0
        self._failing = False
        self.lost = 0
        self.on_first: Callable[[], None] | None = None

    def add(self, make: Callable[[], Record]) -> None:
        """Note a call; the record is made when it is written, off the call's path."""
        if not self._waiting and self.on_first is not None:
            self.on_first()
        if len(self._waiting) >= QUEUED:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(make)
        if self._listeners:
            record = make()
            self._waiting[-1] = lambda: record
            for listener in tuple(self._listeners.values()):
                listener(record)

    def follow(self, listener: Callable[[Record], None]) -> Callable[[], None]:
        """Call `listener` for each record from here on; returns the way to stop it."""
        key = self._next
        self._next += 1
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def recent(self, limit: int, user: str | None) -> list[Record]:
        """The newest records, oldest first; `user` None is everyone's."""
        self.flush()
        rows = [r for r in self._recent if user is None or r.user == user]
        return rows[-limit:] if limit else []

    def load(self) -> None:
        """Read the newest records of an earlier run."""
        for path in self._segments()[-2:]:
            self._recent.extend(read_segment(path))

    def flush(self) -> None:
        """Write what is waiting; a failure is logged once and the records stay in memory."""
        if not self._waiting:
            return
        records = [make() for make in self._waiting]
        self._waiting.clear()
        self._recent.extend(records)
        data = msgspec.json.Encoder().encode_lines(records)
        try:
            self._append(data)
        except OSError as error:
            if not self._failing:
                log.error(f"audit trail {self._directory}: {error.strerror}: records are not kept")
            self._failing = True
            self.lost += len(records)
        else:
            if self._failing:
                log.info(f"audit trail {self._directory} is written again")
            self._failing = False

    def _append(self, data: bytes) -> None:
        make_directory(self._directory)
        segments = self._segments()
        number = _number(segments[-1]) if segments else 1
        if segments and os.path.getsize(segments[-1]) + len(data) > self._segment_max:
            number += 1
        path = os.path.join(self._directory, f"{number:08d}.jsonl")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            if _torn(path):
                data = b"\n" + data
            os.write(fd, data)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        for old in self._segments()[:-SEGMENTS]:
            os.unlink(old)

    def _segments(self) -> list[str]:
        return segments(self._directory)


def segments(directory: str) -> list[str]:
    """Paths of a trail's segments, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [os.path.join(directory, n) for n in sorted(names) if n.endswith(".jsonl")]


def read_segment(path: str) -> list[Record]:
    """The whole records of one segment; a torn or broken line is skipped."""
    records: list[Record] = []
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return records
    decoder = msgspec.json.Decoder(Record)
    for line in lines:
        try:
            records.append(decoder.decode(line))
        except msgspec.DecodeError:
            continue
    return records


def _torn(path: str) -> bool:
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        if not end:
            return False
        file.seek(end - 1)
        return file.read(1) != b"\n"


def _number(path: str) -> int:
    stem = os.path.basename(path).removesuffix(".jsonl")
    return int(stem) if stem.isdigit() else 1


def bounded(arguments: Any) -> Any:
    """Arguments as the trail keeps them: whole when small, else their beginning as text."""
    if arguments is None:
        return None
    data = msgspec.json.encode(arguments)
    if len(data) <= ARGUMENTS_MAX:
        return arguments
    return data[:ARGUMENTS_MAX].decode("utf-8", "ignore") + " …"
