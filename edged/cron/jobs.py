"""Jobs and their runs on disk: SQLite (WAL), one owner, durable before it is answered.

Every method is one transaction, on one thread. A run is on disk as `running` before
it begins, and never begins twice: one whose end is not there was interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from edged import log
from edged.cron.job import PARALLEL_MAX, Job, Run, State, Status, Trigger, backoff_s
from edged.cron.schedule import wrong
from edged.cron.settle import SET_BACK_S, SET_SINCE, replanned, settle
from edged.cron.zones import kept_zone
from edged.database import Database
from edged.errors import BusyError, NotFoundError

if TYPE_CHECKING:
    import sqlite3

VERSION = 1

RUNS_KEPT = 20
"""Runs of one job that are kept."""

SIZE_MAX = 64 << 20
"""Bytes of the database above which the oldest runs of all jobs go."""

ENDED_KEPT_S = 7 * 86_400.0
"""A one-time job that is over is kept for so long."""

OUTPUT_MAX = 4_096
"""Characters of a run's output that are kept: its end, where exit codes stand."""

TIDY_EVERY = 256
"""Transactions between two looks at the size."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id TEXT PRIMARY KEY, user TEXT NOT NULL, name TEXT NOT NULL, length REAL NOT NULL,
  enabled INTEGER NOT NULL, due REAL, dealt REAL NOT NULL, retry REAL, attempt INTEGER NOT NULL,
  retried REAL NOT NULL, ended REAL, life INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS jobs_user ON jobs (user, name);
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;
CREATE TABLE IF NOT EXISTS runs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, status TEXT NOT NULL,
  trigger TEXT NOT NULL, due REAL NOT NULL, until REAL NOT NULL, started REAL NOT NULL,
  ended REAL, attempt INTEGER NOT NULL, output TEXT NOT NULL, call_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS runs_job ON runs (job, id);
CREATE INDEX IF NOT EXISTS runs_running ON runs (job) WHERE status = 'running';
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_MAY_MOVE = """
SELECT id FROM jobs WHERE due IS NOT NULL AND (:all OR (length > 0 AND due > :now + length)
  OR (:now >= :set AND (due < :set OR (length = 0 AND dealt > :now + :back AND due > dealt))))
"""
"""Jobs that `replanned` may plan anew: few, or a start would take as long as there are jobs."""

NAMED_MAX = 10
"""Ids that are told of jobs that have one name."""

_STATE = "enabled, due, dealt, retry, attempt, retried, ended"
_RUN = "id, job, status, trigger, due, until, started, ended, attempt, output, call_id"
_ADD_RUN = f"INSERT INTO runs ({_RUN}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608

INTERRUPTED = "the daemon ended while it ran; it is not run again"


class Row(NamedTuple):
    """A job, where it stands, and its last run."""

    job: Job
    state: State
    last: Run | None


class Wake(NamedTuple):
    """When there is something to do for a job."""

    id: str
    user: str
    at: float | None
    is_length: bool


class Opened(NamedTuple):
    """What a database says when it is opened.

    Attributes:
        wakes: of all jobs that are due at some time.
        counts: jobs of each user.
        interrupted: runs whose end is not there.
    """

    wakes: list[Wake]
    counts: dict[str, int]
    interrupted: list[tuple[Job, Run]]


class Claim(NamedTuple):
    """What came of a job that was due.

    Attributes:
        wake: when it is due next.
        job: what it is.
        run: to be begun; it is on disk as running.
        noted: missed and skipped times.
        waits: it is due, and waits for its run to end.
    """

    wake: Wake
    job: Job
    run: Run | None
    noted: tuple[Run, ...]
    waits: bool = False


class End(NamedTuple):
    """The end of a run."""

    run: Run
    status: Status
    ended: float
    output: str
    call_id: str


class Jobs:
    """The database; any thread, one at a time.

    Args:
        path: of its file.
        grace_s: a run that was missed by no more is made up for.
        local: the name of the machine's time zone.
    """

    def __init__(self, path: str, grace_s: float, local: str) -> None:
        self._grace_s, self._local = grace_s, local
        self._database = Database(path, "jobs", _SCHEMA, version=VERSION)
        self._since_tidied = 0
        self._life = int.from_bytes(os.urandom(6))

    def zone(self, tz: str) -> tzinfo:
        """The zone of a job that is kept, by its name; empty is the machine's."""
        return kept_zone(tz or self._local)

    # Life ---------------------------------------------------------------------------------

    def open(self, now: float) -> Opened:
        """Open or make it; runs that were going when the daemon ended were interrupted.

        Raises:
            StoreError: it cannot be read or written.
        """
        with self._database.changing() as db:
            interrupted = []
            for run in self._runs(db, "status = 'running' ORDER BY id", ()):
                ended = msgspec.structs.replace(
                    run, status="interrupted", ended=now, output=INTERRUPTED
                )
                self._set_ended(db, ended)
                if (kept := self._kept(db, run.job)) is None:
                    continue
                job, state = kept
                if job.schedule.is_once and state.due is None and run.trigger != "manual":
                    state.retry, state.ended = None, now
                    self._save_state(db, run.job, state)
                interrupted.append((job, ended))
            self._purge(db, now)
            self._replan(db, now)
            counts = dict(db.execute("SELECT user, COUNT(*) FROM jobs GROUP BY user"))
            return Opened(self._wakes(db), counts, interrupted)

    def close(self) -> None:
        """Close it; the next use opens it again."""
        self._database.close()

    @property
    def broken(self) -> str:
        """Why the file was begun anew; empty where it was not."""
        return self._database.broken

    def moved(self, delta_s: float, now: float) -> list[Wake]:
        """The wall clock was set by so much: lengths go on as they were, the rest is replanned.

        What was planned by an earlier life of the daemon stays: of the time between the
        two, only the wall clock knows how long it was, once it is right.
        """
        with self._database.changing() as db:
            db.execute(
                "UPDATE jobs SET due = due + :d, dealt = dealt + :d WHERE length > 0"
                " AND (life = :life OR due < :set)",
                {"d": delta_s, "life": self._life, "set": SET_SINCE},
            )
            db.execute("UPDATE jobs SET retry = retry + ? WHERE retry IS NOT NULL", (delta_s,))
            self._replan(db, now)
            return self._wakes(db)

    def _replan(self, db: sqlite3.Connection, now: float) -> None:
        """Plan anew what a set clock, or another time zone of the machine, changes."""
        known = db.execute("SELECT value FROM facts WHERE name = 'zone'").fetchone()
        other = known is not None and known[0] != self._local
        if known is None or other:
            db.execute("INSERT OR REPLACE INTO facts VALUES ('zone', ?)", (self._local,))
        rows = db.execute(
            _MAY_MOVE, {"now": now, "set": SET_SINCE, "back": SET_BACK_S, "all": other}
        )
        for job_id, *_ in rows.fetchall():
            if (kept := self._kept(db, job_id)) is None:
                continue
            job, state = kept
            before = state.due
            if other and job.schedule.kind == "cron" and not job.schedule.tz:
                state.due = job.schedule.next(0.0, state.dealt, self.zone(""))
            state.due = replanned(job, state, now, self.zone(job.schedule.tz))
            if state.due != before:
                self._save_state(db, job_id, state)

    # Jobs ---------------------------------------------------------------------------------

    def add(self, job: Job, state: State) -> tuple[Wake, list[str]]:
        """Add a job; it is on disk when this returns.

        Returns:
            When it is due, and the users of one-time jobs that are forgotten for it.
        """
        with self._database.changing() as db:
            dropped = self._purge(db, job.created)
            db.execute(
                "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    job.id,
                    job.user,
                    job.name,
                    job.schedule.length_s,
                    *_columns(state),
                    self._life,
                    msgspec.json.encode(job),
                ),
            )
        return self._wake(job, state), dropped

    def save(self, job: Job, state: State | None) -> tuple[Wake, State]:
        """Store a changed job.

        Args:
            job: as it is now.
            state: where it stands by another schedule; None leaves that as it is, for it
                may have run since someone looked.

        Raises:
            NotFoundError: it was removed meanwhile.
        """
        with self._database.changing() as db:
            _, now = self._find(db, job.id)
            db.execute(
                "UPDATE jobs SET name = ?, length = ?, body = ? WHERE id = ?",
                (job.name, job.schedule.length_s, msgspec.json.encode(job), job.id),
            )
            if state is not None:
                state.enabled, now = now.enabled, state
                self._save_state(db, job.id, state)
        return self._wake(job, now), now

    def switch(self, job_id: str, enabled: bool, now: float) -> tuple[Wake, State]:
        """Switch a job on or off; what was due while it was off is not made up for.

        Raises:
            NotFoundError: it was removed meanwhile.
            InvalidArgumentsError: its only time is past, or it is done.
        """
        with self._database.changing() as db:
            job, state = self._find(db, job_id)
            if enabled and state.ended is not None:
                raise wrong(
                    f"{job.name!r} was due once, and is done: give it another time (update with "
                    "a schedule), or run it now (run)",
                    "id",
                )
            if state.enabled == enabled:
                return self._wake(job, state), state
            if enabled and state.due is not None and state.due <= now:
                state.due = job.schedule.next(state.due, now, self.zone(job.schedule.tz))
                state.dealt = max(state.dealt, now)
            if enabled and state.due is None:
                raise wrong(
                    f"the time of {job.name!r} is past: give it another (update with a schedule), "
                    "or run it now (run)",
                    "id",
                )
            state.enabled, state.retry, state.attempt = enabled, None, 0
            self._save_state(db, job_id, state)
        return self._wake(job, state), state

    def remove(self, job_id: str) -> None:
        """Remove a job and its runs.

        Raises:
            NotFoundError: it was removed meanwhile.
        """
        with self._database.changing() as db:
            if not db.execute("DELETE FROM jobs WHERE id = ?", (job_id,)).rowcount:
                raise _gone(job_id)
            db.execute("DELETE FROM runs WHERE job = ?", (job_id,))

    def drop_ended(self, user: str) -> int:
        """Make room: remove a user's one-time jobs that are over; returns how many."""
        with self._database.changing() as db:
            rows = db.execute(
                "SELECT id FROM jobs WHERE user = ? AND ended IS NOT NULL", (user,)
            ).fetchall()
            self._drop(db, rows)
        return len(rows)

    def get(self, job_id: str) -> Row:
        """One job.

        Raises:
            NotFoundError: there is none.
        """
        with self._database.reading() as db:
            return self._row(db, job_id)

    def named(self, user: str | None, name: str) -> list[str]:
        """Ids of a user's jobs of that name, or of everyone's (None); some of them."""
        where, values = "name = ?", [name]
        if user is not None:
            where, values = "user = ? AND name = ?", [user, name]
        with self._database.reading() as db:
            rows = db.execute(
                f"SELECT id FROM jobs WHERE {where} ORDER BY id LIMIT ?",  # noqa: S608
                (*values, NAMED_MAX),
            )
            return [row[0] for row in rows]

    def page(self, user: str | None, limit: int, offset: int) -> tuple[list[Row], int]:
        """Jobs of a user or of everyone (None), those due next first; and how many there are."""
        where, values = ("1", []) if user is None else ("user = ?", [user])
        with self._database.reading() as db:
            (total,) = db.execute(f"SELECT COUNT(*) FROM jobs WHERE {where}", values).fetchone()  # noqa: S608
            rows = db.execute(
                f"SELECT id FROM jobs WHERE {where} ORDER BY enabled = 0, due IS NULL, due, id"  # noqa: S608
                " LIMIT ? OFFSET ?",
                (*values, limit, offset),
            ).fetchall()
            found = [self._row(db, row[0]) for row in rows if self._kept(db, row[0])]
            return found, total

    def runs(self, job_id: str, limit: int) -> list[Run]:
        """The newest runs of a job, the newest first."""
        with self._database.reading() as db:
            return list(self._runs(db, "job = ? ORDER BY id DESC LIMIT ?", (job_id, limit)))

    # Runs ---------------------------------------------------------------------------------

    def settle(
        self, ends: Iterable[End], due: Mapping[str, int], now: float
    ) -> tuple[list[Wake], list[Claim]]:
        """Write the ends of runs down, and claim those that are due.

        Args:
            ends: of runs.
            due: jobs that are, each with the number of its runs that are going.
            now: by the wall clock.

        Returns:
            When jobs of ended runs wake next, and what came of those that are due.
        """
        with self._database.changing() as db:
            wakes = [wake for end in ends if (wake := self._end(db, end)) is not None]
            claims = [
                claim
                for job_id, going in due.items()
                if (claim := self._claimed(db, job_id, going, now)) is not None
            ]
            self._tidy(db)
        return wakes, claims

    def begin(self, job_id: str, going: int, now: float) -> tuple[Job, Run]:
        """Claim a run that someone asked for; when the job is due does not change.

        Raises:
            NotFoundError: no such job.
            BusyError: it runs.
        """
        with self._database.changing() as db:
            job, _ = self._find(db, job_id)
            if going and (job.overlap != "parallel" or going >= PARALLEL_MAX):
                raise BusyError(f"job {job.name!r} is running: try again when it has ended")
            return job, self._add_run(db, job, "running", "manual", now, now, now)

    def _claimed(
        self, db: sqlite3.Connection, job_id: str, going: int, now: float
    ) -> Claim | None:
        """A claim; a job that cannot even be looked at is switched off, and stops no other."""
        try:
            return self._claim(db, job_id, going, now)
        except self._database.error:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is that job's alone
            log.error(f"job {job_id} fails and is switched off: {type(error).__name__}: {error}")
            db.execute("UPDATE jobs SET enabled = 0 WHERE id = ?", (job_id,))
            return None

    def _claim(self, db: sqlite3.Connection, job_id: str, going: int, now: float) -> Claim | None:
        if (kept := self._kept(db, job_id)) is None:
            return None
        job, state = kept
        noted: list[Run] = []
        run = None
        if state.enabled and state.due is not None and state.due <= now:
            if going and job.overlap == "queue":
                return Claim(self._wake(job, state), job, None, (), waits=True)
            busy = going >= (PARALLEL_MAX if job.overlap == "parallel" else 1)
            step = settle(
                job, state, now, self.zone(job.schedule.tz), grace_s=self._grace_s, busy=busy
            )
            if step.missed is not None:
                was_going = job.overlap == "queue" and self._was_going(db, job.id, step.missed)
                status: Literal["missed", "skipped"] = "skipped" if was_going else "missed"
                noted.append(self._note(db, job, status, step.missed, now))
            if step.skipped is not None:
                noted.append(self._note(db, job, "skipped", (step.skipped,) * 2, now))
            if step.run is not None:
                run = self._add_run(db, job, "running", "schedule", step.run, step.run, now)
            state.due, state.dealt, state.retry, state.attempt = step.due, step.dealt, None, 0
            if job.schedule.is_once and run is None:
                state.ended = now
        elif state.enabled and state.retry is not None and state.retry <= now:
            state.retry, state.attempt = None, state.attempt + 1
            due = state.retried
            run = self._add_run(db, job, "running", "retry", due, due, now, state.attempt)
        else:
            return Claim(self._wake(job, state), job, None, ())
        self._save_state(db, job_id, state)
        return Claim(self._wake(job, state), job, run, tuple(noted))

    def _end(self, db: sqlite3.Connection, end: End) -> Wake | None:
        run = msgspec.structs.replace(
            end.run,
            status=end.status,
            ended=end.ended,
            output=end.output[-OUTPUT_MAX:],
            call_id=end.call_id,
        )
        self._set_ended(db, run)
        if (kept := self._kept(db, run.job)) is None:
            return None
        job, state = kept
        if run.trigger == "manual":
            return None
        again = end.status == "error" and run.attempt < job.retries
        retry = end.ended + backoff_s(run.attempt + 1) if again else None
        if retry is not None and (state.due is None or retry < state.due):
            state.retry, state.attempt, state.retried = retry, run.attempt, run.due
        elif job.schedule.is_once and state.due is None:
            state.ended = end.ended
        self._save_state(db, job.id, state)
        return self._wake(job, state)

    @staticmethod
    def _was_going(db: sqlite3.Connection, job_id: str, span: tuple[float, float]) -> bool:
        """Whether the last run was going all the while."""
        row = db.execute(
            "SELECT started, ended FROM runs WHERE job = ? AND status IN ('ok', 'error')"
            " ORDER BY id DESC LIMIT 1",
            (job_id,),
        ).fetchone()
        return row is not None and row[0] <= span[0] and row[1] is not None and span[1] <= row[1]

    def _note(
        self,
        db: sqlite3.Connection,
        job: Job,
        status: Literal["missed", "skipped"],
        span: tuple[float, float],
        now: float,
    ) -> Run:
        why = "the run before was still going"
        if status == "missed":
            why = "it could not run in time: the daemon or the board was off, or the clock was set"
        return self._add_run(db, job, status, "schedule", *span, now, output=why)

    @staticmethod
    def _add_run(
        db: sqlite3.Connection,
        job: Job,
        status: Status,
        trigger: Trigger,
        due: float,
        until: float,
        now: float,
        attempt: int = 0,
        output: str = "",
    ) -> Run:
        ended = None if status == "running" else now
        values = (job.id, status, trigger, due, until, now, ended, attempt, output, "")
        done = db.execute(_ADD_RUN, values)
        db.execute(
            "DELETE FROM runs WHERE job = ? AND status != 'running' AND id <= (SELECT id FROM runs"
            " WHERE job = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (job.id, job.id, RUNS_KEPT),
        )
        return Run(done.lastrowid or 0, *values)

    @staticmethod
    def _set_ended(db: sqlite3.Connection, run: Run) -> None:
        db.execute(
            "UPDATE runs SET status = ?, ended = ?, output = ?, call_id = ? WHERE id = ?",
            (run.status, run.ended, run.output, run.call_id, run.id),
        )

    # Rows ---------------------------------------------------------------------------------

    @staticmethod
    def _wake(job: Job, state: State) -> Wake:
        return Wake(job.id, job.user, state.wakes, job.schedule.is_length)

    @staticmethod
    def _wakes(db: sqlite3.Connection) -> list[Wake]:
        rows = db.execute(
            "SELECT id, user, CASE WHEN due IS NULL THEN retry WHEN retry IS NULL THEN due"
            " ELSE MIN(due, retry) END, length FROM jobs WHERE enabled = 1"
            " AND (due IS NOT NULL OR retry IS NOT NULL)"
        )
        return [Wake(job_id, user, at, bool(length)) for job_id, user, at, length in rows]

    @staticmethod
    def _find(db: sqlite3.Connection, job_id: str) -> tuple[Job, State]:
        row = db.execute(f"SELECT body, {_STATE} FROM jobs WHERE id = ?", (job_id,)).fetchone()  # noqa: S608
        if row is None:
            raise _gone(job_id)
        return _decode(row[0]), State(bool(row[1]), *row[2:])

    def _kept(self, db: sqlite3.Connection, job_id: str) -> tuple[Job, State] | None:
        """A job, or None: it was removed, or cannot be read, which stops no other."""
        try:
            return self._find(db, job_id)
        except NotFoundError:
            return None
        except msgspec.DecodeError as error:
            if db.in_transaction:
                log.error(f"job {job_id} cannot be read and is switched off: {error}")
                db.execute("UPDATE jobs SET enabled = 0 WHERE id = ?", (job_id,))
            return None

    def _row(self, db: sqlite3.Connection, job_id: str) -> Row:
        job, state = self._find(db, job_id)
        last = next(self._runs(db, "job = ? ORDER BY id DESC LIMIT 1", (job_id,)), None)
        return Row(job, state, last)

    @staticmethod
    def _runs(db: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> Iterator[Run]:
        for row in db.execute(f"SELECT {_RUN} FROM runs WHERE {where}", values).fetchall():  # noqa: S608
            yield Run(*row)

    def _save_state(self, db: sqlite3.Connection, job_id: str, state: State) -> None:
        names = ", ".join(f"{name.strip()} = ?" for name in _STATE.split(","))
        db.execute(
            f"UPDATE jobs SET {names}, life = ? WHERE id = ?",  # noqa: S608
            (*_columns(state), self._life, job_id),
        )

    # Room ---------------------------------------------------------------------------------

    def _purge(self, db: sqlite3.Connection, now: float) -> list[str]:
        """Forget one-time jobs that were over long ago; returns whose they were."""
        rows = db.execute(
            "SELECT id, user FROM jobs WHERE ended < ?", (now - ENDED_KEPT_S,)
        ).fetchall()
        self._drop(db, [row[:1] for row in rows])
        return [user for _, user in rows]

    @staticmethod
    def _drop(db: sqlite3.Connection, rows: list[tuple[str]]) -> None:
        db.executemany("DELETE FROM runs WHERE job = ?", rows)
        db.executemany("DELETE FROM jobs WHERE id = ?", rows)

    def _tidy(self, db: sqlite3.Connection) -> None:
        self._since_tidied += 1
        if self._since_tidied < TIDY_EVERY:
            return
        self._since_tidied = 0
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > SIZE_MAX:
            # A quarter at once, by their age; the pages are used again.
            low, high = db.execute("SELECT MIN(id), MAX(id) FROM runs").fetchone()
            db.execute(
                "DELETE FROM runs WHERE id < ? AND status != 'running'",
                (low + (high - low) // 4,),
            )


def _decode(body: bytes) -> Job:
    return msgspec.json.decode(body, type=Job)


def _columns(state: State) -> tuple[Any, ...]:
    return (
        state.enabled,
        state.due,
        state.dealt,
        state.retry,
        state.attempt,
        state.retried,
        state.ended,
    )


def _gone(job_id: str) -> NotFoundError:
    return NotFoundError(f"no job {job_id[:64]!r}: cron and edged jobs list them")
