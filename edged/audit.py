"""The trail of every call: who, what, how long, how it ended.

JSON lines in segments of one directory: a bounded number of bytes, written in
slices and flushed to the disk in batches to spare the SD card. Sensitive inputs
never get here. A torn last line (power loss) is skipped by readers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from edged import log
from edged.clock import Clock
from edged.store import make_directory, write_all

SEGMENTS = 4
SEGMENT_MIN = 4_096
KEPT = 1_000
"""Records kept in memory for readers; on disk there are more."""

AT_ONCE = 4
"""Records made at an idle moment."""

SLICE = 512
"""Records that wait at most; then they are handed to the kernel, so that a burst
neither fills the memory nor loses any."""

WHOLE_BURST, WHOLE_RATE = 2_000, 5.0
"""Records of one user that are kept one by one: so many at once, so many a second in the long
run. Of more, those of one tool with one outcome become one record with their count, so that
nobody's flood of calls drives everyone's records out of a bounded trail."""

FOLD_S = 1.0
"""Time that one such record stands for, at least."""

ARGUMENTS_MAX = 1_024
"""Bytes of one record's arguments."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call.

    Attributes:
        time: RFC 3339, UTC, when it ended.
        outcome: `ok`, `error` (the tool's), or a code of `edged.errors`.
        duration_ms: from acceptance to result.
        arguments: without sensitive inputs; cut at 1 KB.
        count: calls that this record stands for; of more than one, the time is that of
            the last, the duration their mean, the rest that of the first.
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
    count: int = 1


_Fold = tuple[str, str, str, str, str]
"""User, role, door, tool and outcome."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode


class Trail:
    """Collects records and writes them in slices. Loop thread only, but for `sync`."""

    def __init__(self, directory: str, clock: Clock, max_bytes: int) -> None:
        self._directory = directory
        self._clock = clock
        self._segment_max = max(max_bytes // SEGMENTS, SEGMENT_MIN)
        self._waiting: deque[Callable[[], Record]] = deque()
        self._lines: list[bytes] = []
        """Records that are made and not written yet."""
        self._recent: deque[bytes] = deque(maxlen=KEPT)
        """As lines, which take a third of the memory of records."""
        self._listeners: dict[int, Callable[[Record], None]] = {}
        self._next = 0
        self._failing = False
        self._whole: dict[str, tuple[float, float]] = {}
        """Of each user: records that may still be kept whole, and when that was so."""
        self._folded: dict[_Fold, Record] = {}
        self._folded_since = clock.monotonic()
        self._unsynced: set[str] = set()
        self._loaded = False
        self.lost = 0
        self.on_first: Callable[[], None] | None = None

    def add(self, make: Callable[[], Record]) -> None:
        """Note a call; the record is made when it is written, off the call's path."""
        if self.on_first is not None and not (self._waiting or self._lines):
            self.on_first()
        self._waiting.append(make)
        if self._listeners:
            record = make()
            self._waiting[-1] = lambda: record
            for listener in tuple(self._listeners.values()):
                listener(record)
        if len(self._waiting) + len(self._lines) >= SLICE:
            self.write()

    def settle(self) -> None:
        """Make a few of the waiting records: for a moment when nobody waits for an answer."""
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._make()

    def follow(self, listener: Callable[[Record], None]) -> Callable[[], None]:
        """Call `listener` for each record from here on; returns the way to stop it."""
        key = self._next
        self._next += 1
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def recent(self, limit: int, user: str | None) -> list[Record]:
        """The newest records, oldest first, those of earlier runs too.

        Args:
            limit: at most so many.
            user: whose; None is everyone's.
        """
        self.write()
        if not self._loaded:
            self._load()
        records = (_decode(line) for line in self._recent)
        rows = [r for r in records if user is None or r.user == user]
        return rows[-limit:] if limit > 0 else []

    def _load(self) -> None:
        """Put what the disk has before what is in memory; only a reader pays for it."""
        self._loaded = True
        here = {_decode(line).call_id for line in self._recent}
        earlier: deque[Record] = deque(maxlen=KEPT)
        for path in segments(self._directory):
            earlier.extend(r for r in read_segment(path) if r.call_id not in here)
        room = KEPT - len(self._recent)
        self._recent.extendleft(_encode(r) for r in list(reversed(earlier))[:room])

    def flush(self) -> None:
        """Bring what is waiting down to the disk; blocks for as long as the disk takes."""
        self._folded_since = -FOLD_S
        self.write()
        self.sync()

    def write(self) -> None:
        """Hand what is waiting to the kernel; then it survives the end of this process.

        A failure is logged once, and the records stay in memory.
        """
        while self._waiting:
            self._make()
        now = self._clock.monotonic()
        if self._folded and now - self._folded_since >= FOLD_S:
            folded, self._folded = self._folded, {}
            self._folded_since = now
            for record in folded.values():
                self._keep(_encode(record) + b"\n")
        lines, self._lines = self._lines, []
        if not lines:
            return
        try:
            self._append(lines)
        except OSError as error:
            self._failed(error)
        else:
            if self._failing:
                log.info(f"audit trail {self._directory} is written again")
            self._failing = False

    def sync(self) -> None:
        """Make what was written survive a power cut; any thread."""
        paths = tuple(self._unsynced)
        self._unsynced.difference_update(paths)
        for path in paths:
            try:
                _sync(path)
            except OSError as error:
                self._failed(error)

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            reason = error.strerror or error
            log.error(f"audit trail {self._directory}: {reason}: records are not kept")
        self._failing = True

    def _make(self) -> None:
        """Make the oldest waiting record; one that cannot be written is left out alone."""
        try:
            record = self._waiting.popleft()()
            line = _encode(record) + b"\n"
        except (ValueError, TypeError, RecursionError) as error:
            self.lost += 1
            log.error(f"audit trail: a record cannot be written: {error}")
            return
        if self._is_whole(record.user):
            self._keep(line)
        else:
            self._fold(record)

    def _keep(self, line: bytes) -> None:
        self._recent.append(line)
        self._lines.append(line)

    def _is_whole(self, user: str) -> bool:
        """Whether one more record of a user is kept by itself (a token bucket)."""
        now = self._clock.monotonic()
        left, since = self._whole.get(user, (float(WHOLE_BURST), now))
        left = min(float(WHOLE_BURST), left + (now - since) * WHOLE_RATE)
        whole = left >= 1.0
        self._whole[user] = (left - 1.0 if whole else left, now)
        return whole

    def _fold(self, record: Record) -> None:
        key = (record.user, record.role, record.door, record.tool, record.outcome)
        before = self._folded.get(key)
        if before is not None:
            count = before.count + 1
            mean = before.duration_ms + (record.duration_ms - before.duration_ms) / count
            record = msgspec.structs.replace(
                before, time=record.time, duration_ms=round(mean, 3), count=count
            )
        self._folded[key] = record

    def _append(self, lines: list[bytes]) -> None:
        """Write lines, each segment's share at once, and drop the oldest segments.

        Raises:
            OSError: the disk does not take them; `lost` counts those that are not there.
        """
        self.lost += len(lines)
        make_directory(self._directory)
        start = 0
        while start < len(lines):
            path, room = self._open_segment(len(lines[start]))
            end = start + 1
            room -= len(lines[start])
            while end < len(lines) and len(lines[end]) <= room:
                room -= len(lines[end])
                end += 1
            if _append_to(path, b"".join(lines[start:end])):
                self._unsynced.add(self._directory)
            self._unsynced.add(path)
            self.lost -= end - start
            start = end
            # Here, so that a large batch never has more than one segment over the bound.
            for old in self._segments()[:-SEGMENTS]:
                os.unlink(old)

    def _open_segment(self, size: int) -> tuple[str, int]:
        """The segment that takes the next `size` bytes, and the room in it."""
        there = self._segments()
        number = 1
        if there:
            room = self._segment_max - os.path.getsize(there[-1])
            # One byte for the newline that a torn line may need.
            if size < room:
                return there[-1], room - 1
            number = _number(there[-1]) + 1
        return os.path.join(self._directory, f"{number:08d}.jsonl"), self._segment_max

    def _segments(self) -> list[str]:
        return segments(self._directory)


def segments(directory: str) -> list[str]:
    """Paths of a trail's segments, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = [os.path.join(directory, n) for n in names if _number(n)]
    return sorted(found, key=_number)


def read_segment(path: str) -> list[Record]:
    """The whole records of one segment; a torn or broken line is skipped."""
    records: list[Record] = []
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError:
        return records
    for line in lines:
        try:
            records.append(_decode(line))
        except (msgspec.DecodeError, RecursionError):
            continue
    return records


def _append_to(path: str, data: bytes) -> bool:
    """Append whole lines to a segment, and whether it is a new one.

    What was begun and failed is taken back.
    """
    fresh = not os.path.exists(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        try:
            write_all(fd, b"\n" + data if torn else data)
        except OSError:
            os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)
    return fresh


def _sync(path: str) -> None:
    """Flush a segment, or the names in a directory; one that was dropped meanwhile is no loss."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def _number(path: str) -> int:
    """The number of a segment; 0 for any other file."""
    stem, ending = os.path.splitext(os.path.basename(path))
    return int(stem) if ending == ".jsonl" and stem.isdecimal() else 0


def bounded(arguments: Any) -> Any:
    """Arguments as the trail keeps them: whole when small, else their beginning as text."""
    if arguments is None:
        return None
    data = msgspec.json.encode(arguments)
    if len(data) <= ARGUMENTS_MAX:
        return arguments
    return data[:ARGUMENTS_MAX].decode("utf-8", "ignore") + " …"
