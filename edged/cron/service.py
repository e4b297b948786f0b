"""Jobs as their users see them: who may add what, and how it is told.

An agent sees and manages its user's jobs, but not those that run with an owner's
rights; owners see and manage all. A job keeps the rights it was added with until it is
removed; whether they reach is checked then, at each change, and again at each run. Loop
thread only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import tzinfo
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, TypeVarTuple

import msgspec

from edged import log
from edged.bus._worker import Worker
from edged.clock import Clock, iso
from edged.cron.alarm import Alarm
from edged.cron.job import Job, Run, State
from edged.cron.jobs import Jobs, Row, Wake
from edged.cron.schedule import HELP, Schedule, every, once_in, parse, shortest_s, wrong
from edged.cron.scheduler import Bell, Outcome, Publish, Scheduler, Spawn, Thread
from edged.cron.settle import SET_SINCE
from edged.cron.spec import Spec
from edged.cron.view import Answer, Listing, RunView, View, local
from edged.cron.zones import zone as named_zone
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoppingError,
    UnknownToolError,
)
from edged.identity import Caller

NEXT_RUNS = 3
PAGE_MAX = 1_000
RUNS_SHOWN = 20

BODY_MAX = 16 << 10
"""Bytes of a job: its command, message and arguments."""

NAME_MAX = 100
NAME_MADE = 30

ANSWER_S = 10.0
"""How long `run` waits for the end of the run that it began."""

SENT_MAX = 2_000
"""Characters of a run's output that are sent with a job's message."""

REPORT_MAX = 16_000
"""Characters of a subagent's report, likewise."""

Action = Literal["list", "add", "get", "update", "remove", "enable", "disable", "run"]

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Result(Protocol):
    """What a call came to; see `edged.results.Result`."""

    is_error: bool
    for_llm: str
    structured: Any
    call_id: str


class Errands(Protocol):
    """How jobs reach tools; see `edged.errands.Errands`."""

    async def check(
        self, caller: Caller, name: str, raw: bytes, by: Caller | None = None
    ) -> tuple[str, ...]:
        """Raise what a call would be refused with; what may be otherwise when it is made."""

    def may_begin(self, by: Caller, name: str) -> None:
        """Raise what refuses the caller a job that calls so."""

    async def call(self, caller: Caller, name: str, raw: bytes) -> Result:
        """Call a tool."""

    def shown(self, user: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments without the sensitive ones."""


class Limits(msgspec.Struct, frozen=True):
    """What the configuration says (`tools.cron`).

    Attributes:
        floor_s: between two runs of a job.
        grace_s: a run that was missed by no more is made up for.
        jobs: of one user.
        channels: from which commands may be scheduled; `*` is any.
    """

    floor_s: float
    grace_s: float
    jobs: int
    channels: tuple[str, ...]


class Cron:
    """The jobs of a data directory.

    Args:
        path: of the database.
        limits: what the configuration says.
        clock: its time.
        errands: how jobs reach tools.
        spawn: starts a task of the daemon's group.
        publish: tells an event: kind, user, facts.
        local: the name of the machine's time zone.
        is_on: whether jobs are to be run now.
        thread: where the database is asked; a thread of its own by default.
        alarm: makes what rings when a job is due; the kernel's timer by default.
    """

    def __init__(
        self,
        path: str,
        limits: Limits,
        clock: Clock,
        errands: Errands,
        *,
        spawn: Spawn,
        publish: Publish,
        local: str,
        is_on: Callable[[], bool] = lambda: True,
        thread: Thread | None = None,
        alarm: Callable[[Callable[[], None]], Bell] | None = None,
    ) -> None:
        self._limits, self._clock, self._errands, self._publish = limits, clock, errands, publish
        self._local, self._is_on = local, is_on
        self._jobs = Jobs(path, limits.grace_s, local)
        self._worker = Worker("cron") if thread is None else None
        self._thread: Thread = thread or self._worker  # type: ignore[assignment]  # one of them is there
        self.scheduler = Scheduler(
            self._jobs,
            self._thread,
            clock,
            fire=self._fire,
            spawn=spawn,
            publish=publish,
            alarm=alarm or partial(Alarm, now=clock.now),
            is_on=is_on,
        )
        self._counts: dict[str, int] = {}
        self._opening: asyncio.Future[None] | None = None
        self._closed = False
        self._works: set[asyncio.Future[Any]] = set()

    # Life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what is there, and begin; told once to all who wait. Asked again after a failure.

        Raises:
            StoreError: the database cannot be used.
            StoppingError: the daemon stops.
        """
        if self._closed:
            raise StoppingError
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except EdgedError:
            if self._opening is opening:
                self._opening = None
            raise

    async def _open(self) -> None:
        opened = await self._thread.run(self._jobs.open, self._clock.now())
        self._counts = opened.counts
        for job, run in opened.interrupted:
            facts = {"job": job.id, "name": job.name, "run": run.id, "due": iso(run.due)}
            self._publish("job.interrupted", job.user, facts)
        if opened.interrupted:
            log.warning(f"runs of jobs that were interrupted: {len(opened.interrupted)}")
        self.scheduler.load(opened.wakes)

    async def stop(self) -> None:
        """Begin no more runs."""
        self._closed = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self.scheduler.stop()

    async def close(self) -> None:
        """Wait for the runs, and close the database."""
        await self.stop()
        if self._works:
            await asyncio.wait(tuple(self._works))
        await self.scheduler.close()
        await self._thread.run(self._jobs.close)
        if self._worker is not None:
            self._worker.close()

    def health(self) -> dict[str, Any]:
        """Facts for `status`."""
        problem = self.scheduler.problem or self._jobs.broken
        return {
            "count": sum(self._counts.values()),
            "running": self.scheduler.going,
            **({"problem": problem} if problem else {}),
        }

    # What can be asked --------------------------------------------------------------------

    async def page(self, caller: Caller, limit: int = 100, offset: int = 0) -> Listing:
        """A page of the jobs that the caller sees."""
        await self._fresh()
        user = None if caller.is_owner else caller.user
        limit = min(max(limit, 0), PAGE_MAX)
        rows, total = await self._thread.run(self._jobs.page, user, limit, max(offset, 0))
        # What is stored alone: to reckon further for each of so many would hold up the loop.
        views = tuple(self._view(row, ahead=1) for row in rows)
        return Listing(views, total, self._is_on())

    async def get(self, caller: Caller, ref: str, runs: int = RUNS_SHOWN) -> View:
        """A job with its newest runs.

        Args:
            caller: who asks.
            ref: its id, or its name where only one has it.
            runs: how many of them.

        Raises:
            NotFoundError: none that the caller sees.
        """
        await self._fresh()
        row = await self._find(caller, ref)
        found = await self._thread.run(self._jobs.runs, row.job.id, runs)
        return self._view(row, found)

    async def add(self, caller: Caller, spec: Spec) -> Answer:
        """Add a job; it is on disk when this returns.

        Raises:
            InvalidArgumentsError: it is none.
            EdgedError: the caller may not do what it is to do, or it cannot be stored.
        """
        await self.open()
        now = self._clock.now()
        tz = (spec.tz or "").strip()
        schedule = self._schedule(spec, now, tz)
        if schedule is None:
            raise wrong(f"is required: {HELP}")
        job = Job(
            os.urandom(4).hex(),
            caller.user,
            caller.role,
            "",
            schedule,
            now,
            now,
            channel=caller.channel,
            chat_id=caller.chat_id,
            allowed=None if caller.allowed is None else tuple(sorted(caller.allowed)),
        )
        job = _with(job, spec)
        warnings = await self._check(job, caller, caller)
        state = State(due=schedule.first(now, self._zone(schedule)), dealt=now)
        await self._whole(self._store(job, state))
        self._tell("job.added", job)
        return Answer(self._view(Row(job, state, None)), warnings=warnings)

    async def update(self, caller: Caller, ref: str, spec: Spec) -> Answer:
        """Change a job: what is unsaid stays, an empty command, message or tool goes.

        Raises:
            EdgedError: as `add`; `NotFoundError` where there is none.
        """
        await self._fresh()
        job, _, last = await self._find(caller, ref)
        self._require(caller, job, "change")
        now = self._clock.now()
        tz = job.schedule.tz if spec.tz is None else spec.tz.strip()
        schedule = self._schedule(spec, now, tz)
        if schedule is None and tz != job.schedule.tz:
            schedule = self._again(job.schedule, now, tz)
        changed = _with(msgspec.structs.replace(job, updated=now), spec)
        if caller.allowed is not None:
            limited = caller.allowed if job.allowed is None else caller.allowed & {*job.allowed}
            changed = msgspec.structs.replace(changed, allowed=tuple(sorted(limited)))
        planned = None
        if schedule is not None:
            changed = msgspec.structs.replace(changed, schedule=schedule)
            planned = State(due=schedule.first(now, self._zone(schedule)), dealt=now)
        # As the job will call.
        warnings = await self._check(changed, changed.caller, caller)
        state = await self._whole(self._change(self._jobs.save, changed, planned))
        self._tell("job.updated", changed)
        return Answer(self._view(Row(changed, state, last)), warnings=warnings)

    async def remove(self, caller: Caller, ref: str) -> Answer:
        """Remove a job and its runs; one that is going goes on to its end.

        Raises:
            NotFoundError: there is none.
        """
        await self._fresh()
        row = await self._find(caller, ref)
        self._require(caller, row.job, "remove")
        await self._whole(self._drop(row.job))
        self._tell("job.removed", row.job)
        return Answer(self._view(row), "removed")

    async def enable(self, caller: Caller, ref: str, enabled: bool) -> Answer:
        """Switch a job on or off; what is due while it is off is not made up for.

        Raises:
            InvalidArgumentsError: its only time is past.
        """
        await self._fresh()
        job, before, last = await self._find(caller, ref)
        self._require(caller, job, "switch")
        now = self._clock.now()
        state = await self._whole(self._change(self._jobs.switch, job.id, enabled, now))
        if before.enabled != enabled:
            self._tell("job.updated", job)
        return Answer(self._view(Row(job, state, last)))

    async def run(self, caller: Caller, ref: str, wait_s: float = ANSWER_S) -> Answer:
        """Run a job now, beside its schedule; it goes on when nobody waits any more.

        Args:
            caller: who asks.
            ref: as `get`.
            wait_s: for its end, at most.

        Raises:
            BusyError: it runs.
        """
        await self._fresh()
        row = await self._find(caller, ref)
        self._require(caller, row.job, "run")
        job, run, task = await self._whole(self._begin(row.job))
        if wait_s > 0:
            await asyncio.wait([task], timeout=wait_s)
        await self.scheduler.write()
        found = await self._thread.run(self._jobs.runs, job.id, RUNS_SHOWN)
        now = next((one for one in found if one.id == run.id), run)
        row = await self._thread.run(self._jobs.get, job.id)
        return Answer(self._view(row), run=_run_view(now, self._zone(job.schedule)))

    async def act(
        self,
        caller: Caller,
        action: Action,
        ref: str = "",
        spec: Spec | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Listing | View | Answer:
        """Any of the above, by its name.

        Raises:
            EdgedError: as they do.
        """
        if action == "list":
            return await self.page(caller, limit, offset)
        if action == "add":
            return await self.add(caller, spec or Spec())
        if not ref:
            raise wrong("is required: list shows the ids", "id")
        if action == "get":
            return await self.get(caller, ref)
        if action == "update":
            return await self.update(caller, ref, spec or Spec())
        if action == "remove":
            return await self.remove(caller, ref)
        if action == "run":
            return await self.run(caller, ref)
        return await self.enable(caller, ref, action == "enable")

    # What is done whole, also where its caller is gone meanwhile ----------------------------

    async def _whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it to its end: what is on disk and what the scheduler knows are the same."""
        task = asyncio.ensure_future(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return await asyncio.shield(task)

    async def _store(self, job: Job, state: State) -> None:
        await self._make_room(job.user)
        try:
            wake, dropped = await self._thread.run(self._jobs.add, job, state)
        except BaseException:
            self._counts[job.user] -= 1
            raise
        for user in dropped:
            self._counts[user] -= 1
        self.scheduler.wake(wake)

    async def _change(
        self, change: Callable[[*_Args], tuple[Wake, State]], *args: *_Args
    ) -> State:
        wake, state = await self._thread.run(change, *args)
        self.scheduler.wake(wake)
        return state

    async def _drop(self, job: Job) -> None:
        await self._thread.run(self._jobs.remove, job.id)
        self._counts[job.user] -= 1
        self.scheduler.forget(job.id)

    async def _begin(self, job: Job) -> tuple[Job, Run, asyncio.Task[None]]:
        going, now = self.scheduler.runs_of(job.id), self._clock.now()
        found, run = await self._thread.run(self._jobs.begin, job.id, going, now)
        return found, run, self.scheduler.begin(found, run)

    # Rights and rules ---------------------------------------------------------------------

    async def _fresh(self) -> None:
        """Ready, and every run that has ended is on disk."""
        await self.open()
        await self.scheduler.write()

    async def _find(self, caller: Caller, ref: str) -> Row:
        """A job that the caller sees.

        Raises:
            NotFoundError: none, another user's, or several of that name.
        """
        try:
            row = await self._thread.run(self._jobs.get, ref)
        except NotFoundError:
            user = None if caller.is_owner else caller.user
            ids = await self._thread.run(self._jobs.named, user, ref)
            if len(ids) > 1:
                raise NotFoundError(
                    f"several jobs are named {ref[:64]!r}: say which id: {', '.join(ids)}"
                ) from None
            if not ids:
                raise
            row = await self._thread.run(self._jobs.get, ids[0])
        if not caller.is_owner and row.job.user != caller.user:
            # As one that is not there.
            raise NotFoundError(f"no job {ref[:64]!r}: cron and edged jobs list them")
        return row

    def _require(self, caller: Caller, job: Job, act: str) -> None:
        by = job.caller
        if job.role == "owner" and not caller.is_owner:
            raise DeniedError(
                f"job {job.name!r} runs with an owner's rights: only an owner may {act} it"
            )
        here = (caller.channel, caller.chat_id)
        if caller.channel and not caller.is_owner and here != (by.channel, by.chat_id):
            # What may be called from there may be refused here (`tools.NAME.channels`).
            from_ = f"{by.channel} {by.chat_id}".strip() or "no channel"
            raise DeniedError(f"job {job.name!r} was added from {from_[:80]}: {act} it there")
        if caller.allowed is not None and not caller.allowed.issuperset(job.calls):
            names = ", ".join(job.calls)
            raise DeniedError(f"this tool may not {act} a job that calls {names}")
        if act != "remove":
            for name in job.calls:
                self._errands.may_begin(caller, name)

    async def _check(self, job: Job, caller: Caller, by: Caller) -> tuple[str, ...]:
        """Refuse a job that could not run; returns what may keep it from running later.

        Raises:
            InvalidArgumentsError: what it says does not fit.
            EdgedError: its caller may not call what it calls, or it is not there.
        """
        if faults := [*_faults(job), *self._too_often(job.schedule)]:
            raise InvalidArgumentsError(faults, "cron")
        channels = self._limits.channels
        if job.command and job.channel and not {"*", job.channel} & {*channels}:
            known = ", ".join(channels) or "no channel"
            raise DeniedError(
                f"commands may be scheduled from {known}, not from {job.channel[:64]!r}: the "
                "owner can add it to tools.cron.command_channels"
            )
        warnings: tuple[str, ...] = ()
        for name, arguments in _steps(job):
            raw = msgspec.json.encode(arguments)
            try:
                warnings += await self._errands.check(caller, name, raw, by)
            except UnknownToolError as error:
                field = {"exec": "command", job.tool: "tool", "spawn": "task"}.get(name, name)
                raise wrong(f"needs a tool that is not here: {error}", field) from None
            except NotFoundError as error:
                raise wrong(str(error), "agent") from None
            except InvalidArgumentsError as error:
                faults = [_of_job(fault, arguments is job.arguments) for fault in error.faults]
                raise InvalidArgumentsError(faults, "cron") from None
        return warnings

    def _too_often(self, schedule: Schedule) -> list[Fault]:
        floor = self._limits.floor_s
        shortest = shortest_s(schedule, floor)
        if shortest >= floor:
            return []
        reason = (
            f"{schedule.text!r} runs every {shortest:g} s at times; the shortest is {floor:g} s "
            "(tools.cron.min_interval)"
        )
        return [Fault("schedule", reason)]

    def _schedule(self, spec: Spec, now: float, tz: str) -> Schedule | None:
        """What was said of the time; None is nothing.

        Raises:
            InvalidArgumentsError: more than one thing, or no schedule.
        """
        zone = named_zone(tz or self._local)
        said = {
            name: value
            for name in ("schedule", "cron_expr", "every_seconds", "at_seconds")
            if (value := getattr(spec, name)) and (not isinstance(value, str) or value.strip())
        }
        if not said:
            return None
        if len(said) > 1:
            raise wrong(f"give one of {' and '.join(said)}", list(said)[1])
        ((name, value),) = said.items()
        try:
            if name == "every_seconds":
                return every(value, tz)
            if name == "at_seconds":
                return once_in(value, tz)
            return parse(value, now, zone, tz)
        except InvalidArgumentsError as error:
            # Told of the input that it came by.
            raise wrong(error.faults[0].reason, name) from None

    def _again(self, schedule: Schedule, now: float, tz: str) -> Schedule:
        """The same schedule in another zone."""
        zone = self._jobs.zone(tz)
        if schedule.is_length:
            return msgspec.structs.replace(schedule, tz=tz)
        return parse(schedule.text, now, zone, tz)

    async def _make_room(self, user: str) -> None:
        """Count one more job of a user in.

        Raises:
            BusyError: it has as many as one may.
        """
        if self._counts.get(user, 0) >= self._limits.jobs:
            dropped = await self._thread.run(self._jobs.drop_ended, user)
            self._counts[user] = self._counts.get(user, 0) - dropped
        if self._counts.get(user, 0) >= self._limits.jobs:
            raise BusyError(
                f"{user} has {self._limits.jobs} jobs (tools.cron.max_jobs): remove some first"
            )
        self._counts[user] = self._counts.get(user, 0) + 1

    # Runs ---------------------------------------------------------------------------------

    async def _fire(self, job: Job) -> Outcome:
        """One run: the command, the tool or the message; then the message about it."""
        outcome = Outcome(False, "")
        for name, given in _steps(job):
            arguments = given
            if name == "message" and len(job.calls) > 1:
                # A report says first what matters, an output last.
                part = outcome.text[:REPORT_MAX] if job.task else outcome.text[-SENT_MAX:]
                told = part.strip()
                verdict = "failed: " if outcome.is_error else ""
                arguments = {**given, "text": f"{job.message}\n\n{verdict}{told}".strip()}
            try:
                made = await self._errands.call(job.caller, name, msgspec.json.encode(arguments))
            except EdgedError as error:
                done = Outcome(True, str(error), outcome.call_id)
            else:
                done = Outcome(_has_failed(made), made.for_llm, made.call_id)
            if not outcome.call_id:
                outcome = done
            elif done.is_error:
                text = f"{outcome.text}\nthe message was not sent: {done.text}".strip()
                outcome = Outcome(True, text, outcome.call_id)
        return outcome

    # Views --------------------------------------------------------------------------------

    def _zone(self, schedule: Schedule) -> tzinfo:
        return self._jobs.zone(schedule.tz)

    def _view(self, row: Row, runs: Iterable[Run] = (), ahead: int = NEXT_RUNS) -> View:
        job, state, last = row
        schedule = job.schedule
        zone = self._zone(schedule)
        next_runs: tuple[float, ...] = ()
        if state.enabled and state.due is not None:
            next_runs = schedule.times(state.due, ahead, zone)
        wakes = state.wakes
        return View(
            job.id,
            job.name,
            job.user,
            job.role,
            state.enabled,
            self._state(job, state),
            schedule.text,
            schedule.tz or self._local,
            None if wakes is None else local(wakes, zone),
            tuple(local(time, zone) for time in next_runs),
            job.command,
            job.tool,
            self._errands.shown(job.user, job.tool, job.arguments) if job.arguments else {},
            job.message,
            job.task,
            job.agent,
            *job.target,
            job.overlap,
            job.misfire,
            job.retries,
            local(job.created, zone),
            local(job.updated, zone),
            None if last is None else _run_view(last, zone),
            tuple(_run_view(run, zone) for run in runs),
        )

    def _state(self, job: Job, state: State) -> str:
        if self.scheduler.runs_of(job.id):
            return "running"
        if state.ended is not None:
            return "done"
        if not state.enabled:
            return "disabled"
        if not job.schedule.is_length and self._clock.now() < SET_SINCE:
            return "waits for the clock"
        return "waiting" if state.retry is None else "retrying"

    def _tell(self, kind: str, job: Job) -> None:
        self._publish(kind, job.user, {"job": job.id, "name": job.name})


def _faults(job: Job) -> Iterator[Fault]:
    """What is wrong with a job by itself."""
    acts = [name for name in ("command", "tool", "task") if getattr(job, name)]
    if len(acts) > 1:
        yield Fault(acts[1], "a job has a command, a tool or a task, one of them")
    if job.agent and not job.task:
        yield Fault("task", "is required: say what the agent is to do")
    if not job.calls:
        yield Fault("command", "is required, or a tool, a task, or a message")
    if job.arguments and not job.tool:
        yield Fault("arguments", "are of a tool: name it")
    if len(msgspec.json.encode(job)) > BODY_MAX:
        yield Fault("", f"the job is over {BODY_MAX >> 10} KiB")
    if len(job.name) > NAME_MAX:
        yield Fault("name", f"is over {NAME_MAX} characters")


def _with(job: Job, spec: Spec) -> Job:
    """A job with what was said of it."""
    said: dict[str, Any] = {
        name: value.strip() if name != "message" else value
        for name in ("command", "message", "tool", "task", "agent")
        if (value := getattr(spec, name)) is not None
    }
    if spec.arguments is not None:
        said["arguments"] = spec.arguments
    elif said.get("tool") == "":
        said["arguments"] = {}
    for name, value in (("to_channel", spec.channel), ("to_chat", spec.chat_id)):
        if value is not None:
            said[name] = value.strip()
    for name in ("overlap", "misfire", "retries"):
        if (value := getattr(spec, name)) is not None:
            said[name] = value
    made = msgspec.structs.replace(job, **said)
    name = " ".join((spec.name or "").split()) or job.name
    if not name:
        text = " ".join((made.message or made.command or made.task or made.tool).split())
        name = text if len(text) <= NAME_MADE else f"{text[: NAME_MADE - 1].rstrip()}…"
    return msgspec.structs.replace(made, name=name)


def _of_job(fault: Fault, is_tools: bool) -> Fault:
    """A fault of a step's arguments, by the input of the job that it came from."""
    if is_tools:
        return Fault(f"arguments.{fault.path}".rstrip("."), fault.reason)
    return Fault("message" if fault.path == "text" else fault.path, fault.reason)


def _steps(job: Job) -> list[tuple[str, dict[str, Any]]]:
    """The calls of one run; of a message about another call its text comes with it."""
    steps: list[tuple[str, dict[str, Any]]] = []
    if job.command:
        steps.append(("exec", {"command": job.command}))
    elif job.task:
        given = {"task": job.task, "label": job.name}
        steps.append(("spawn", {**given, "agent": job.agent} if job.agent else given))
    elif job.tool:
        steps.append((job.tool, job.arguments))
    if job.is_told:
        named = {"channel": job.to_channel, "chat_id": job.to_chat}
        there = {name: value for name, value in named.items() if value}
        steps.append(("message", {"text": job.message or job.name, **there}))
    return steps


def _has_failed(result: Result) -> bool:
    """Whether a call failed: also a command whose exit status says so."""
    if result.is_error:
        return True
    found = result.structured
    return isinstance(found, dict) and found.get("exit_code") not in (None, 0)


def _run_view(run: Run, zone: tzinfo) -> RunView:
    return RunView(
        run.id,
        run.status,
        run.trigger,
        local(run.due, zone),
        local(run.until, zone),
        local(run.started, zone),
        None if run.ended is None else local(run.ended, zone),
        run.attempt,
        run.output,
        run.call_id,
    )
