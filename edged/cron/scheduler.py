"""Begins what is due: a heap of times, one alarm, and runs as tasks.

Laws: no task, timer or thread is there while there are no jobs; a run begins only
after it is on disk as running; what is due and cannot be written down is not begun,
and waits. Loop thread only; the database has its own.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple

from edged import log
from edged.clock import Clock, iso
from edged.cron.job import Job, Run, Status
from edged.cron.jobs import Claim, End, Jobs, Wake
from edged.cron.settle import SET_SINCE
from edged.errors import EdgedError, StoreError

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

RUNS_MAX = 32
"""Runs at once; more that are due wait for one to end."""

RUNS_OF_USER = 16
"""Of them, of one user: slow jobs of one delay nobody else's."""

JUMP_S = 1.0
"""A change of the wall clock beside the time that passed: it was set."""

WRITE_S = 1.0
"""How long the end of a run may wait for others, to be written with them."""

AGAIN_S = 30.0
"""After a failure to write, the next attempt."""

STOPPED = "edged stopped while it ran; it is not run again"


class Outcome(NamedTuple):
    """What a run came to."""

    is_error: bool
    text: str
    call_id: str = ""


Fire = Callable[[Job], Awaitable[Outcome]]
"""Does what a job is there for; raises `EdgedError` where it may not."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Publish = Callable[[str, str, dict[str, Any]], None]


class Bell(Protocol):
    """See `edged.cron.alarm.Alarm`."""

    def set(self, when: float | None) -> None:
        """Ring at a time of the wall clock."""

    def close(self) -> None:
        """Ring no more."""


class Thread(Protocol):
    """Where the database is asked."""

    async def run(self, function: Callable[[*_Args], _T], *args: *_Args) -> _T:
        """What the function returns."""


class _Entry:
    __slots__ = ("at", "id", "is_length", "user")

    def __init__(self, wake: Wake) -> None:
        self.id, self.user, self.is_length = wake.id, wake.user, wake.is_length
        self.at: float | None = None


class Scheduler:
    """The times of all jobs.

    Args:
        jobs: the database.
        thread: where it is asked.
        clock: its time.
        fire: does what a job is there for.
        spawn: starts a task of the daemon's group.
        publish: tells an event: kind, user, facts.
        alarm: makes the one that rings.
        is_on: whether anything is to be begun now.
    """

    def __init__(
        self,
        jobs: Jobs,
        thread: Thread,
        clock: Clock,
        *,
        fire: Fire,
        spawn: Spawn,
        publish: Publish,
        alarm: Callable[[Callable[[], None]], Bell],
        is_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self._jobs, self._thread, self._clock = jobs, thread, clock
        self._fire, self._spawn, self._publish, self._is_on = fire, spawn, publish, is_on
        self._make_alarm = alarm
        self._alarm: Bell | None = None
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry]] = []
        self._order = count()
        self._going: dict[str, int] = {}
        self._of_user: dict[str, int] = {}
        self._held: dict[str, list[_Entry]] = {}
        self._waits: dict[str, float] = {}
        self._runs: dict[int, asyncio.Task[None]] = {}
        self._ends: list[End] = []
        self._offset = clock.now() - clock.boottime()
        self._driver: asyncio.Task[None] | None = None
        self._stirred = self._write = self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self.problem = ""

    @property
    def going(self) -> int:
        """Runs that are going."""
        return len(self._runs)

    def runs_of(self, job_id: str) -> int:
        """Runs of a job that are going."""
        return self._going.get(job_id, 0)

    # From the owner of the database ------------------------------------------------------

    def load(self, wakes: list[Wake]) -> None:
        """Know these times and no others."""
        self._entries.clear()
        self._heap.clear()
        self._held.clear()
        for wake in wakes:
            self._put(wake)
        self.stir()

    def wake(self, wake: Wake) -> None:
        """A job is due at another time."""
        self._waits.pop(wake.id, None)
        self._put(wake)
        self.stir()

    def forget(self, job_id: str) -> None:
        """A job is no more; a run of it that is going goes on."""
        self._entries.pop(job_id, None)
        self._waits.pop(job_id, None)
        self.stir()

    def begin(self, job: Job, run: Run) -> asyncio.Task[None]:
        """Begin a run that is on disk as running; returns its task."""
        self._going[job.id] = self._going.get(job.id, 0) + 1
        self._of_user[job.user] = self._of_user.get(job.user, 0) + 1
        task = self._spawn(self._run(job, run))
        self._runs[run.id] = task
        # One that is cancelled before its first step never gets to its end.
        task.add_done_callback(lambda _: self._over(job, run, "interrupted", STOPPED, ""))
        return task

    def stir(self) -> None:
        """Look at what is due."""
        self._stirred = True
        if self._driver is None and not self._stopped:
            self._driver = self._spawn(self._drive())

    async def write(self) -> None:
        """Bring the ends of runs to the disk, as far as it takes them."""
        if self._ends and not self._stopped and not self.problem:
            self._write = True
            self.stir()
            if self._driver is not None:
                await asyncio.wait([self._driver])

    async def stop(self) -> None:
        """Begin nothing more."""
        self._stopped = True
        if self._driver is not None:
            await asyncio.wait([self._driver])
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """Wait for the runs, which end or are cancelled by others, and write their ends down."""
        await self.stop()
        if self._runs:
            await asyncio.wait(tuple(self._runs.values()))
            # Their callbacks come one turn of the loop later.
            await asyncio.sleep(0)
        if self._ends:
            try:
                await self._thread.run(self._jobs.settle, self._ends, {}, self._clock.now())
            except StoreError as error:
                log.error(f"{error}: the last runs will be told as interrupted")
        self._ends = []

    # The heap -----------------------------------------------------------------------------

    def _put(self, wake: Wake) -> None:
        entry = self._entries.get(wake.id)
        if wake.at is None:
            self._entries.pop(wake.id, None)
            return
        if entry is None or entry.is_length != wake.is_length:
            entry = self._entries[wake.id] = _Entry(wake)
        entry.at = wake.at
        heapq.heappush(self._heap, (wake.at, next(self._order), entry))
        if len(self._heap) > 64 + 2 * len(self._entries):
            self._heap = [row for row in self._heap if self._is_true(row)]
            heapq.heapify(self._heap)

    def _is_true(self, row: tuple[float, int, _Entry]) -> bool:
        at, _, entry = row
        return entry.at == at and self._entries.get(entry.id) is entry

    def _next(self) -> tuple[float, int, _Entry] | None:
        while self._heap and not self._is_true(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _take(self, now: float) -> list[_Entry]:
        """Those that are due and may begin; at most as many as there are places."""
        taken: list[_Entry] = []
        of_user = dict(self._of_user)
        room = RUNS_MAX - len(self._runs)
        unset: list[_Entry] = []
        while len(taken) < room and (row := self._next()) is not None and row[0] <= now:
            heapq.heappop(self._heap)
            entry = row[2]
            if now < SET_SINCE and not entry.is_length:
                # The clock was not set since the board was switched on: it is not that time.
                unset.append(entry)
            elif of_user.get(entry.user, 0) >= RUNS_OF_USER:
                self._held.setdefault(entry.user, []).append(entry)
            else:
                of_user[entry.user] = of_user.get(entry.user, 0) + 1
                taken.append(entry)
        for entry in unset:
            # `moved` brings a new time once the clock is set.
            entry.at = None
        return taken

    # The driver ---------------------------------------------------------------------------

    async def _drive(self) -> None:
        try:
            while self._stirred and not self._stopped:
                self._stirred = False
                await self._once()
            self._arm()
        except Exception as error:  # noqa: BLE001  a fault of one moment stops no job for good
            self._failed(error)
        finally:
            # No turn of the loop is between the last look and this.
            self._driver = None

    async def _once(self) -> None:
        await self._look_at_clock()
        now = self._clock.now()
        due = self._take(now) if self._is_on() else []
        write, self._write = self._write, False
        if not due and not (write and self._ends):
            return
        ends, self._ends = self._ends, []
        going = {entry.id: self._going.get(entry.id, 0) for entry in due}
        try:
            wakes, claims = await self._thread.run(self._jobs.settle, ends, going, now)
        except Exception:
            self._ends = ends + self._ends
            for entry in due:
                self._push(entry)
            raise
        self._worked()
        for wake in wakes:
            self._put(wake)
        for claim in claims:
            self._claimed(claim)
        self._stirred = True

    def _push(self, entry: _Entry) -> None:
        if entry.at is not None and self._entries.get(entry.id) is entry:
            heapq.heappush(self._heap, (entry.at, next(self._order), entry))

    def _claimed(self, claim: Claim) -> None:
        job = claim.job
        if claim.waits and self._going.get(job.id) and claim.wake.at is not None:
            self._waits[job.id] = claim.wake.at
            return
        self._put(claim.wake)
        for run in claim.noted:
            facts = {"from": iso(run.due), "to": iso(run.until)}
            self._tell(f"job.{run.status}", job, run, facts)
        if claim.run is not None:
            _ = self.begin(job, claim.run)

    async def _look_at_clock(self) -> None:
        """Follow the wall clock where it was set."""
        offset = self._clock.now() - self._clock.boottime()
        delta = offset - self._offset
        if abs(delta) < JUMP_S:
            return
        wakes = await self._thread.run(self._jobs.moved, delta, self._clock.now())
        self._offset = offset
        log.info(f"the clock was set {'on' if delta > 0 else 'back'} by {abs(delta):.0f} s")
        self._entries.clear()
        self._heap.clear()
        self._held.clear()
        for wake in wakes:
            if wake.id in self._waits and wake.at is not None:
                self._waits[wake.id] = wake.at
            else:
                self._put(wake)

    def _arm(self) -> None:
        """Ring when the next one is due; where all places are taken, an end stirs."""
        row = self._next() if not self._stopped else None
        if row is None and not self._entries:
            if self._alarm is not None:
                self._alarm.close()
                self._alarm = None
            return
        if self._stopped:
            return
        if self._alarm is None:
            self._alarm = self._make_alarm(self.stir)
        free = len(self._runs) < RUNS_MAX and self._is_on()
        self._alarm.set(row[0] if row is not None and free else None)

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, EdgedError) else f"{type(error).__name__}: {error}"
        if not self.problem:
            log.error(f"{text}: jobs that are due wait until it works again")
        self.problem = text
        self._later(AGAIN_S)

    def _worked(self) -> None:
        if self.problem:
            log.info("jobs are written again")
        self.problem = ""

    def _later(self, delay_s: float) -> None:
        if self._timer is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay_s, self._write_now)

    def _write_now(self) -> None:
        self._timer = None
        self._write = True
        self.stir()

    # Runs ---------------------------------------------------------------------------------

    async def _run(self, job: Job, run: Run) -> None:
        self._tell("job.start", job, run, {"trigger": run.trigger, "attempt": run.attempt})
        status: Status = "error"
        text = call_id = ""
        try:
            outcome = await self._fire(job)
            status = "error" if outcome.is_error else "ok"
            text, call_id = outcome.text, outcome.call_id
        except asyncio.CancelledError:
            status, text = "interrupted", STOPPED
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was cancelled, not this task: the daemon stops.
        except EdgedError as error:
            text = str(error)
        except Exception as error:  # noqa: BLE001  a fault of one run ends no other
            text = f"{type(error).__name__}: {error}"
            log.error(f"job {job.id}: {text}")
        finally:
            self._over(job, run, status, text, call_id)

    def _over(self, job: Job, run: Run, status: Status, text: str, call_id: str) -> None:
        """A run has ended, however; the first word counts."""
        if self._runs.pop(run.id, None) is None:
            return
        for counts, key in ((self._going, job.id), (self._of_user, job.user)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
        ended = self._clock.now()
        self._ends.append(End(run, status, ended, text, call_id))
        facts = {"status": status, "attempt": run.attempt, "trigger": run.trigger}
        self._tell("job.end", job, run, facts)
        at = self._waits.pop(job.id, None)
        if at is not None:
            self._write = True
            self._put(Wake(job.id, job.user, at, job.schedule.is_length))
        for entry in self._held.pop(job.user, ()):
            self._push(entry)
        self._later(WRITE_S)
        row = self._next()
        if row is not None and row[0] <= self._clock.now():
            self.stir()

    def _tell(self, kind: str, job: Job, run: Run, facts: dict[str, Any]) -> None:
        known = {"job": job.id, "name": job.name, "run": run.id, "due": iso(run.due)}
        self._publish(kind, job.user, {**known, **facts})
