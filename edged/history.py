"""Samples of the sensors on disk: batches, tiers, a bound, safe against power cuts.

SQLite (WAL) on a thread of its own. A sample is written within the batch interval
and kept whole for `raw`; then its minute's mean, minimum and maximum, later its
hour's. One transaction a batch: a power cut loses what was not written yet, and
never what was. Times are of the wall clock; what waits for its batch follows a
jump of that clock, as boards without a battery make at boot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edged import log
from edged.bus._worker import Worker
from edged.bus.settings import HistoryConfig
from edged.clock import Clock
from edged.database import Database
from edged.errors import BusyError, StoreError
from edged.units import Reading, duration_s, size_bytes

if TYPE_CHECKING:
    import sqlite3

VERSION = 1

MINUTE_S, HOUR_S = 60, 3_600
ROWS_MAX = 2_000
"""Rows of one answer: a longer time is told in longer steps."""

QUERIES_MAX = 16
"""Answers that may be waited for at a time: each may look at all there is."""

WAITING_MAX = 20_000
"""Samples that wait for a batch at most; of more, the oldest are dropped and counted."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
  id INTEGER PRIMARY KEY, sensor TEXT NOT NULL, channel TEXT NOT NULL, unit TEXT NOT NULL,
  UNIQUE (sensor, channel, unit));
CREATE TABLE IF NOT EXISTS raw (
  series INTEGER NOT NULL, time REAL NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (series, time)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS minutes (
  series INTEGER NOT NULL, time INTEGER NOT NULL, count INTEGER NOT NULL,
  total REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
  PRIMARY KEY (series, time)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hours (
  series INTEGER NOT NULL, time INTEGER NOT NULL, count INTEGER NOT NULL,
  total REAL NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
  PRIMARY KEY (series, time)) WITHOUT ROWID;
"""
_IN_MEMORY = """
PRAGMA temp_store = MEMORY;
CREATE TEMP TABLE waiting (series INTEGER NOT NULL, time REAL NOT NULL, value REAL NOT NULL);
CREATE TEMP VIEW samples AS
  SELECT series, time, 1 AS count, value AS total, value AS low, value AS high FROM raw
  UNION ALL SELECT * FROM minutes UNION ALL SELECT * FROM hours
  UNION ALL SELECT series, time, 1, value, value, value FROM waiting;
"""
"""What one answer is made of: the disk's samples and those that wait for their batch."""

_STEPS = """
SELECT CAST(time / :step AS INTEGER) * :step AS at, SUM(count), SUM(total), MIN(low), MAX(high)
FROM samples WHERE series = :series AND time >= :since GROUP BY at ORDER BY at
"""
_TO_MINUTES = """
INSERT INTO minutes SELECT series, CAST(time / 60 AS INTEGER) * 60 AS at, COUNT(*), SUM(value),
  MIN(value), MAX(value) FROM raw WHERE time < ? GROUP BY series, at
ON CONFLICT (series, time) DO UPDATE SET count = count + excluded.count,
  total = total + excluded.total, low = MIN(low, excluded.low), high = MAX(high, excluded.high)
"""
_TO_HOURS = """
INSERT INTO hours SELECT series, time / 3600 * 3600 AS at, SUM(count), SUM(total), MIN(low),
  MAX(high) FROM minutes WHERE time < ? GROUP BY series, at
ON CONFLICT (series, time) DO UPDATE SET count = count + excluded.count,
  total = total + excluded.total, low = MIN(low, excluded.low), high = MAX(high, excluded.high)
"""
_TIERS = (
    ("SELECT MIN(time), MAX(time) FROM raw", "DELETE FROM raw WHERE time <= ?"),
    ("SELECT MIN(time), MAX(time) FROM minutes", "DELETE FROM minutes WHERE time <= ?"),
    ("SELECT MIN(time), MAX(time) FROM hours", "DELETE FROM hours WHERE time <= ?"),
)
"""Span and removal of each tier, the finest first."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One step of one channel.

    Attributes:
        time: its beginning, seconds since 1970-01-01 UTC.
        mean, low, high: of the samples in it, in the channel's unit.
        count: how many there were.
    """

    time: float
    mean: float
    low: float
    high: float
    count: int


class Series(msgspec.Struct, frozen=True):
    """One channel over a time; `step_s` is the length of a row's step, 0 for single samples."""

    sensor: str
    channel: str
    unit: str
    step_s: float
    rows: tuple[Row, ...]


Sampled = tuple[str, str, str, float, float]
"""Sensor, channel, unit, seconds since 1970-01-01 UTC, value."""


class _Sample(NamedTuple):
    sensor: str
    channel: str
    unit: str
    monotonic: float
    value: float


class History:
    """The samples of one data directory; loop thread only.

    Args:
        path: of the database.
        config: `board.history`.
        clock: its time.
    """

    def __init__(self, path: str, config: HistoryConfig, clock: Clock) -> None:
        self._clock = clock
        self._interval_s = duration_s(config.interval)
        self._file = _File(path, config)
        self._worker = Worker("history")
        self._waiting: list[_Sample] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failing = False
        self._queries = 0
        self.lost = 0

    def add(self, readings: Sequence[Reading]) -> None:
        """Note readings that have a value; they are on disk within the batch interval."""
        self._waiting += [
            _Sample(r.sensor, r.channel, r.unit, r.monotonic, r.value)
            for r in readings
            if r.value is not None and r.quality != "suspect"
        ]
        over = len(self._waiting) - WAITING_MAX
        if over > 0:
            del self._waiting[:over]
            self.lost += over
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval_s, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._writing is None:
            self._writing = asyncio.create_task(self._flush(), name="history")
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and task.exception() is not None:
            log.error(f"history: {task.exception()}")

    async def _flush(self) -> None:
        """Bring what waits to the disk; what it does not take waits on."""
        if not self._waiting:
            return
        samples, self._waiting = self._waiting, []
        try:
            await self._worker.run(self._file.write, self._timed(samples), self._clock.now())
        except StoreError as error:
            self._waiting = samples + self._waiting
            if not self._failing:
                log.error(f"{error}: samples are kept in memory")
            self._failing = True
            self.add(())
            return
        if self._failing:
            log.info("history is written again")
        self._failing = False

    def _timed(self, samples: Iterable[_Sample]) -> list[Sampled]:
        """With the times that the wall clock of now gives them."""
        offset = self._clock.now() - self._clock.monotonic()
        return [(s.sensor, s.channel, s.unit, s.monotonic + offset, s.value) for s in samples]

    async def read(
        self, sensor: str, channel: str | None, since: float, step_s: float = 0.0
    ) -> tuple[Series, ...]:
        """The samples of a sensor from a time on, in steps; writes none that wait.

        Args:
            sensor: configured name.
            channel: only this one.
            since: seconds since 1970-01-01 UTC.
            step_s: length of a step; 0 is single samples. Longer where there would be more
                than `ROWS_MAX` rows, or where only minutes or hours are kept.

        Raises:
            StoreError: the database cannot be read.
            BusyError: `QUERIES_MAX` others are being answered.
        """
        if self._queries >= QUERIES_MAX:
            raise BusyError(
                f"{QUERIES_MAX} queries of the history are being answered: try again, or ask for "
                "less time"
            )
        self._queries += 1
        try:
            # A batch on its way is neither in memory nor on disk.
            while self._writing is not None:
                await asyncio.wait([self._writing])
            waiting = self._timed(s for s in self._waiting if s.sensor == sensor)
            return await self._worker.run(
                self._file.read, sensor, channel, since, step_s, self._clock.now(), waiting
            )
        finally:
            self._queries -= 1

    async def close(self) -> None:
        """Write what waits, and close the database."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._flush()
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._worker.run(self._file.close)
        finally:
            self._worker.close()


class _File:
    """The database; only the history's thread calls."""

    def __init__(self, path: str, config: HistoryConfig) -> None:
        self._database = Database(path, "history", _SCHEMA, version=VERSION, session=_IN_MEMORY)
        self._size = size_bytes(config.size)
        self._raw_s = duration_s(config.raw)
        self._minutes_s = duration_s(config.minutes)
        self._ids: dict[tuple[str, str, str], int] = {}
        self._tidied = 0.0

    def write(self, rows: Iterable[Sampled], now: float) -> None:
        """Add samples in one transaction, and make room."""
        try:
            with self._database.changing() as db:
                for sensor, channel, unit, time, value in rows:
                    series = self._series(db, (sensor, channel, unit))
                    db.execute(
                        "INSERT OR REPLACE INTO raw VALUES (?, ?, ?)", (series, time, value)
                    )
            if not self._tidied <= now < self._tidied + HOUR_S:
                self._tidied = now
                with self._database.changing() as db:
                    self._fold(db, now)
            self._shrink()
        except StoreError:
            self._ids.clear()
            raise

    def read(
        self,
        sensor: str,
        channel: str | None,
        since: float,
        step_s: float,
        now: float,
        waiting: Iterable[Sampled],
    ) -> tuple[Series, ...]:
        """See `History.read`; `waiting` are the sensor's samples that are not on disk yet."""
        with self._database.reading() as db:
            return self._found(db, sensor, channel, waiting, (since, step_s, now))

    @staticmethod
    def _found(
        db: sqlite3.Connection,
        sensor: str,
        channel: str | None,
        waiting: Iterable[Sampled],
        span: tuple[float, float, float],
    ) -> tuple[Series, ...]:
        known = {
            (name, unit): series
            for series, name, unit in db.execute(
                "SELECT id, channel, unit FROM series WHERE sensor = ? ORDER BY id", (sensor,)
            )
        }
        rows = [
            # Channels that the disk does not know get numbers that no series has there.
            (known.setdefault((name, unit), -1 - len(known)), time, value)
            for _, name, unit, time, value in waiting
        ]
        db.execute("BEGIN")
        try:
            db.executemany("INSERT INTO temp.waiting VALUES (?, ?, ?)", rows)
            return tuple(
                Series(sensor, name, unit, *_rows(db, series, *span))
                for (name, unit), series in known.items()
                if channel in {None, name}
            )
        finally:
            # Nothing on disk was touched: what waits is forgotten here, and written later.
            db.rollback()

    def close(self) -> None:
        """Close it; the next use opens it again."""
        self._database.close()

    def _series(self, db: sqlite3.Connection, key: tuple[str, str, str]) -> int:
        found = self._ids.get(key)
        if found is None:
            db.execute(
                "INSERT OR IGNORE INTO series (sensor, channel, unit) VALUES (?, ?, ?)", key
            )
            (found,) = db.execute(
                "SELECT id FROM series WHERE sensor = ? AND channel = ? AND unit = ?", key
            ).fetchone()
            self._ids[key] = found
        return int(found)

    def _fold(self, db: sqlite3.Connection, now: float) -> None:
        """What is old enough becomes its minute's, then its hour's mean."""
        until = (now - self._raw_s) // MINUTE_S * MINUTE_S
        db.execute(_TO_MINUTES, (until,))
        db.execute("DELETE FROM raw WHERE time < ?", (until,))
        until = (now - self._minutes_s) // HOUR_S * HOUR_S
        db.execute(_TO_HOURS, (until,))
        db.execute("DELETE FROM minutes WHERE time < ?", (until,))

    def _shrink(self) -> None:
        """Drop the oldest of the finest tier that has any, until the file's pages suffice."""
        dropped = True
        while dropped:
            with self._database.changing() as db:
                dropped = self._used(db) > self._size and self._drop(db)

    @staticmethod
    def _drop(db: sqlite3.Connection) -> bool:
        for span, remove in _TIERS:
            first, last = db.execute(span).fetchone()
            if first is not None:
                # An eighth of the time at once; the pages are used again.
                db.execute(remove, (first + max((last - first) / 8, 1),))
                return True
        return False

    @staticmethod
    def _used(db: sqlite3.Connection) -> int:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
        return int((pages - free) * size)


def _rows(
    db: sqlite3.Connection, series: int, since: float, step_s: float, now: float
) -> tuple[float, tuple[Row, ...]]:
    """Length of the steps, and the rows of one channel."""
    where = {"series": series, "since": since}
    count, first = db.execute(
        "SELECT COUNT(*), MIN(time) FROM samples WHERE series = :series AND time >= :since", where
    ).fetchone()
    if not count:
        return step_s, ()
    if step_s <= 0 and count <= ROWS_MAX:
        found = db.execute(
            "SELECT time, count, total, low, high FROM samples"
            " WHERE series = :series AND time >= :since ORDER BY time",
            where,
        )
        return 0.0, _means(found)
    step = max(step_s, (now - first) / ROWS_MAX, 0.001)
    return step, _means(db.execute(_STEPS, {**where, "step": step}))


def _means(found: Iterable[tuple[float, int, float, float, float]]) -> tuple[Row, ...]:
    return tuple(Row(at, total / count, low, high, count) for at, count, total, low, high in found)
