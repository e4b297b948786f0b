"""Warm calls: one spare sandbox of each tool in use, for its next call.

A spare has its runtime up and the tool's code loaded. It serves exactly one call and
is thrown away, so a call sees nothing of the one before it, and still pays no start.
Its successor is started after the answer, when no call waits. Which tools have a
spare follows from use, under a memory budget; what outruns the spares is served by
sandboxes started for it, so many at once, in order. Loop thread only; no timer runs
while there is no spare and nothing to prepare.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import msgspec

from edged.clock import Clock
from edged.errors import BusyError, DeniedError, SandboxSetupError, StoppingError
from edged.held import Share
from edged.sandbox import bwrap, calls, outcome, proc
from edged.sandbox.account import Account
from edged.sandbox.bwrap import Layout
from edged.sandbox.calls import CallsHandler
from edged.sandbox.disk import DiskWatch
from edged.sandbox.gate import Gate
from edged.sandbox.limits import Backend
from edged.sandbox.outcome import Outcome
from edged.sandbox.profile import MIB
from edged.sandbox.run import Instance, Job, Key, Machine, OnUpdate
from edged.sandbox.unconfined import Unconfined

if TYPE_CHECKING:
    from edged.sandbox.service import Service

BUDGET_MAX = 256 * MIB
FLOOR = 64 * MIB
"""Memory that stays available to others."""
REFILL_S = 0.02
"""After the last call, so that spares never compete with a burst."""
LOOK_S = 10.0
"""Between two looks at the spares."""
LOAD_S = 10.0
CPU_MAX = 0.05
"""Share of a core that a waiting spare may use."""
KEYS_MAX = 256
RUNNING_MAX = 4
"""Sandboxes that serve calls of all depths, in multiples of those of depth 0."""

_ESTIMATE = {"python": 8 * MIB, "bash": 2 * MIB, "typescript": 45 * MIB, "shell": MIB}
"""Until one was measured: proportional set size with a small tool loaded."""


def available_memory() -> int:
    """Bytes that can be used without swapping (proc_meminfo(5), MemAvailable)."""
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


class SpareInfo(msgspec.Struct, frozen=True):
    """One spare, for people; `memory` in bytes."""

    name: str
    language: str
    ready: bool
    memory: int
    age_s: float


class Stats(msgspec.Struct, frozen=True):
    """What the pool is doing; memory in bytes, the calls since the start."""

    running: int
    waiting: int
    spares: tuple[SpareInfo, ...]
    memory: int
    budget: int
    warm_calls: int
    cold_calls: int


class _Use:
    """One key: how much it is used, and its spare.

    `score` is a count of calls that halves with every half of the idle time.
    """

    __slots__ = (
        *("check", "cost", "cpu_s", "disk", "job", "pids"),
        *("score", "since", "spare", "spoiled", "used"),
    )

    def __init__(self, job: Job, now: float) -> None:
        self.job = job
        self.score = 0.0
        self.used = now
        self.cost = 0
        self.spare: Instance | None = None
        self.since = 0.0
        self.cpu_s = 0.0
        self.pids: set[int] = set()
        self.spoiled = False
        self.disk: DiskWatch | None = None
        self.check: asyncio.Task[None] | None = None

    @property
    def memory(self) -> int:
        """Bytes of a spare: measured, else estimated."""
        return self.cost or _ESTIMATE[self.job.language]


class Pool:
    """Runs jobs; use it as `async with`."""

    def __init__(
        self,
        backend: Backend,
        account: Account,
        layout: Layout,
        *,
        clock: Clock,
        warm_memory: int | None = None,
        parallel: int = 0,
        queue_max: int = 1024,
        idle_s: float = 600.0,
        available: Callable[[], int] = available_memory,
        confined: bool = True,
        title: str = bwrap.PROGRAM,
    ) -> None:
        """A pool.

        Args:
            backend: what holds the limits.
            account: whom tools run as.
            layout: of the host.
            clock: for use and age.
            warm_memory: bytes for spares; None: by the free memory; 0: no spares.
            parallel: sandboxes that serve calls at once; 0: four for each core.
            queue_max: calls that may wait for one of these.
            idle_s: after which an unused spare is dropped.
            available: bytes of memory that can be used without swapping.
            confined: false only for `sandbox: none`, typed by the operator.
            title: see `Machine`.
        """
        cores = len(os.sched_getaffinity(0))
        self._machine = Machine(backend, account, layout, clock, cores, title)
        self._instance = Instance if confined else Unconfined
        self._clock = clock
        self._warm_memory = warm_memory
        self._parallel = parallel or max(8, 4 * cores)
        self._queue_max = queue_max
        self._idle_s = idle_s
        self._available = available
        self._uses: dict[Key, _Use] = {}
        self._serving: set[Instance] = set()
        self._gates: dict[int, Gate] = {}
        self._warm_calls = 0
        self._cold_calls = 0
        self._closing = False
        self._refill: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill everything and wait until it is dead."""
        self._closing = True
        for timer in (self._refill, self._look):
            if timer is not None:
                timer.cancel()
        self.drop(lambda _: True)
        for instance in self._serving:
            instance.kill()
        while self._serving:
            await asyncio.wait([instance.over for instance in self._serving])
            await asyncio.sleep(0)  # their calls go on, to their end
        await self._tasks.__aexit__(None, None, None)

    async def call(
        self,
        job: Job,
        call_id: str,
        params: dict[str, Any],
        on_update: OnUpdate | None = None,
        *,
        calls_handler: CallsHandler | None = None,
        depth: int = 0,
        user: str = "",
        owner: bool = True,
        wall_s: float = 0.0,
        share: Share | None = None,
    ) -> Outcome:
        """Run one call to its end; its process tree is dead when this returns.

        Cancelling the task cancels the call: the tool is told, and killed half a
        second later.

        Args:
            job: what to run.
            call_id: handed to the tool.
            params: validated arguments.
            on_update: gets the content of each update.
            calls_handler: makes the calls of a job with `calls`.
            depth: 0, or one more than that of the call whose tool makes this one;
                each depth has its own places, so that none waits for its caller.
            user: who calls: places go round among users.
            owner: whether all places may be theirs; an agent leaves some free.
            wall_s: time of the call; 0: as the job's profile has it.
            share: what is kept of its output and its result is counted by.

        Raises:
            BusyError: too many calls wait already, or the pool is closing; or the tool
                that makes it is one of too many that make calls.
        """
        gate = self._gates.get(depth)
        if gate is None:
            gate = self._gates[depth] = Gate(self._parallel, self._queue_max)
        # An agent's share is its own, also where root's user is the same `local`.
        place = user if owner else f"agent {user}"
        await gate.enter(place, owner=owner)
        if self._closing:
            gate.leave(place)
            raise StoppingError
        if depth and len(self._serving) >= RUNNING_MAX * self._parallel:
            gate.leave(place)
            raise BusyError(
                f"{len(self._serving)} sandboxes run already, the most that may when tools"
                " call tools: try again later"
            )
        instance: Instance | None = None
        try:
            instance = self.take(job)
            run = partial(instance.call, call_id, params, on_update, wall_s=wall_s, share=share)
            return await _serve(instance, run, calls_handler)
        except SandboxSetupError as error:
            message = f"the sandbox could not be started: {error}"
            result = outcome.text_result(message, is_error=True)
            return Outcome(reason="sandbox-failed", result=result, message=message)
        finally:
            gate.leave(place)
            if instance is not None:
                self.give_back(instance)
            else:
                self._refill_later()

    def take(self, job: Job) -> Instance:
        """A started sandbox, outside of the places of calls: who takes it bounds their number.

        It is killed when the pool closes; hand it to `give_back` when its call is over.

        Raises:
            SandboxSetupError: it cannot be started.
            StoppingError: the pool is closing.
        """
        if self._closing:
            raise StoppingError
        instance = self._take(self._note(job))
        if instance is None:
            instance = self._instance(job, self._machine)
            try:
                instance.start()
            except BaseException:
                self.give_back(instance)
                raise
        else:
            # What a call may add to the disk is another amount than when the spare began.
            instance.job = job
        self._serving.add(instance)
        return instance

    def serve(self, job: Job) -> Service:
        """A started program that lives until it is handed to `give_back`, or the pool closes.

        Raises:
            SandboxSetupError: it cannot be started.
            StoppingError: the pool is closing.
        """
        from edged.sandbox.service import Loose, Service  # noqa: PLC0415  with the first one

        if self._closing:
            raise StoppingError
        kind = Service if self._instance is Instance else Loose
        service = kind(job, self._machine)
        try:
            service.start()
        except BaseException:
            self.give_back(service)
            raise
        self._serving.add(service)
        return service

    def give_back(self, instance: Instance) -> None:
        """End a sandbox that was taken."""
        self._serving.discard(instance)
        self._tasks.create_task(instance.close())
        self._refill_later()

    def drop(self, match: Callable[[Key], bool]) -> None:
        """Drop the spares of keys that match, and what was learnt about them."""
        for key in [key for key in self._uses if match(key)]:
            self._drop_spare(self._uses.pop(key))

    def stats(self) -> Stats:
        """What the pool is doing."""
        now = self._clock.monotonic()
        spares = tuple(
            SpareInfo(
                use.job.name,
                use.job.language,
                use.spare.ready.done(),
                use.memory,
                now - use.since,
            )
            for use in self._uses.values()
            if use.spare is not None
        )
        return Stats(
            running=len(self._serving),
            waiting=self._waiting(),
            spares=spares,
            memory=sum(spare.memory for spare in spares),
            budget=self._budget(),
            warm_calls=self._warm_calls,
            cold_calls=self._cold_calls,
        )

    # The call

    def _waiting(self) -> int:
        return sum(gate.waiting for gate in self._gates.values())

    def _note(self, job: Job) -> _Use:
        """Count a use; the least used of too many keys is forgotten."""
        now = self._clock.monotonic()
        use = self._uses.get(job.key)
        if use is None:
            if len(self._uses) >= KEYS_MAX:
                least = min(self._uses, key=lambda key: self._score(self._uses[key], now))
                self._drop_spare(self._uses.pop(least))
            use = self._uses[job.key] = _Use(job, now)
        use.score = self._score(use, now) + 1
        use.used = now
        return use

    def _score(self, use: _Use, now: float) -> float:
        halvings = (now - use.used) / (self._idle_s / 2)
        return use.score / math.exp2(halvings)

    def _take(self, use: _Use) -> Instance | None:
        if use.spare is not None and use.spare.over.done():
            self._drop_spare(use)  # it has died just now
        spare = self._let_go(use)
        warm = spare is not None and spare.ready.done()
        self._warm_calls += warm
        self._cold_calls += not warm
        return spare

    # Spares

    def _refill_later(self) -> None:
        if self._closing or self._warm_memory == 0:
            return
        if self._refill is not None:
            self._refill.cancel()
        self._refill = self._loop.call_later(REFILL_S, self._refill_now)

    def _refill_now(self) -> None:
        """Start the most wanted spare, unless calls need the machine."""
        self._refill = None
        starting = any(not instance.ready.done() for instance in self._serving)
        waiting = self._waiting()
        if waiting or starting or self._loading():
            if not waiting:
                self._refill_later()
            return
        now = self._clock.monotonic()
        wanted = [use for use in self._uses.values() if self._wants(use, now)]
        wanted.sort(key=lambda use: self._score(use, now), reverse=True)
        for use in wanted:
            if self._make_room(use, now):
                self._start_spare(use)
                return

    def _loading(self) -> bool:
        return any(use.spare and not use.spare.ready.done() for use in self._uses.values())

    def _wants(self, use: _Use, now: float) -> bool:
        return (
            use.job.warm
            and not use.spoiled
            and use.spare is None
            and now - use.used < self._idle_s
        )

    def _make_room(self, use: _Use, now: float) -> bool:
        """Whether the budget holds one more, if need be in place of less used ones.

        A spare gives way only to a tool with two calls more, so that tools that take
        turns do not drive each other out at every call.
        """
        others = [other for other in self._uses.values() if other.spare is not None]
        others.sort(key=lambda other: self._score(other, now))
        room = self._budget() - sum(other.memory for other in others) - use.memory
        losers: list[_Use] = []
        for other in others:
            if room >= 0 or self._score(other, now) + 2 > self._score(use, now):
                break
            losers.append(other)
            room += other.memory
        if room < 0:
            return False
        for other in losers:
            self._drop_spare(other)
        return True

    def _budget(self) -> int:
        """Bytes for all spares."""
        if self._warm_memory is not None:
            return self._warm_memory
        held = sum(use.memory for use in self._uses.values() if use.spare is not None)
        return min(BUDGET_MAX, max(0, self._available() + held - FLOOR) // 4)

    def _start_spare(self, use: _Use) -> None:
        try:
            spare = self._instance(use.job, self._machine)
            use.spare = spare
            spare.start()
        except SandboxSetupError:
            self._spoil(use)  # the next call says why
            return
        use.since = self._clock.monotonic()
        use.cpu_s = -1.0
        use.disk = spare.disk_watch()
        spare.ready.add_done_callback(lambda _: self._spare_ready(use, spare))
        spare.over.add_done_callback(lambda _: self._spare_over(use, spare))
        if self._look is None:
            self._look = self._loop.call_later(LOOK_S, self.look)

    def _spare_ready(self, use: _Use, spare: Instance) -> None:
        if use.spare is not spare:
            return
        if not use.cost:
            use.cost = self._measure(spare)
        self._refill_later()

    def _spare_over(self, use: _Use, spare: Instance) -> None:
        """It died before its use, such as by code that fails to load: no more of these."""
        if use.spare is spare:
            self._spoil(use)

    def _spoil(self, use: _Use) -> None:
        use.spoiled = True
        self._drop_spare(use)

    def _drop_spare(self, use: _Use) -> None:
        spare = self._let_go(use)
        if spare is not None:
            self._tasks.create_task(spare.close())

    def _let_go(self, use: _Use) -> Instance | None:
        """The spare, which is none from now on; its directories are looked at no more."""
        if use.check is not None:
            use.check.cancel()
        spare, use.spare, use.disk, use.check = use.spare, None, None, None
        return spare

    def look(self) -> None:
        """Drop spares that are idle, restless or too much; every ten seconds by a timer."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        now = self._clock.monotonic()
        for use in self._uses.values():
            if use.spare is None:
                continue
            if now - use.used >= self._idle_s:
                self._drop_spare(use)
            elif self._restless(use, use.spare, now) or self._grown(use, use.spare):
                self._spoil(use)
            elif use.memory > self._budget():
                self._drop_spare(use)  # alone, and not with the lesser ones that fit
            elif use.check is None:
                use.check = self._tasks.create_task(self._check_disk(use))
        left = [use for use in self._uses.values() if use.spare is not None]
        left.sort(key=lambda use: self._score(use, now), reverse=True)
        while left and sum(use.memory for use in left) > self._budget():
            self._drop_spare(left.pop())
        if left:
            self._look = self._loop.call_later(LOOK_S, self.look)

    def _restless(self, use: _Use, spare: Instance, now: float) -> bool:
        """Whether a spare works while it waits, or does not get ready.

        New processes are work too: a child that nobody waits for leaves no account.
        """
        if not spare.ready.done():
            return now - use.since > LOAD_S
        # With the first process, which takes over the children of those that have ended.
        pids = {spare.pid, *spare.processes()}
        known, use.pids = use.pids, pids
        before, use.cpu_s = use.cpu_s, spare.group.cpu_s() or proc.cpu_s(pids)
        return before >= 0 and (use.cpu_s - before > CPU_MAX * LOOK_S or not pids <= known)

    def _grown(self, use: _Use, spare: Instance) -> bool:
        """Measure a spare anew; whether it has more memory than a call of it may."""
        if not spare.ready.done():
            return False
        use.cost = self._measure(spare)
        return use.cost > use.job.profile.limits.memory_max

    def _measure(self, spare: Instance) -> int:
        """Bytes of a spare: as its group counts, else the pages of its processes by share."""
        grouped = self._machine.backend.level != "watch"
        return (spare.group.memory() if grouped else 0) or proc.pss(spare.processes())

    async def _check_disk(self, use: _Use) -> None:
        """Drop a spare while which waited too much was written to its directories.

        It may have been another tool of the same user, so it is not held against it.
        """
        with contextlib.suppress(OSError):  # a directory that cannot be read
            if use.disk is not None and await use.disk.exceeded():
                use.check = None  # which is this task
                self._drop_spare(use)
        use.check = None


async def _serve(
    instance: Instance, run: Callable[[], Awaitable[Outcome]], handler: CallsHandler | None
) -> Outcome:
    if instance.calls is None:
        return await run()
    async with asyncio.TaskGroup() as tasks:
        server = tasks.create_task(calls.serve(instance.calls, handler or _refuse))
        try:
            return await run()
        finally:
            server.cancel()


async def _refuse(name: str, _: dict[str, Any]) -> dict[str, Any]:
    raise DeniedError(f"{name} cannot be called from here")
