"""A board on which jobs run: its clocks, its power and its disk are the test's.

The database is a real one. Time passes from one ring of the alarm to the next; power
goes before or after a transaction, or while jobs run. What a transaction has said is
noted here, as it is on the disk.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from types import SimpleNamespace

from edged.cron.service import Cron, Limits
from edged.errors import EdgedError
from edged.identity import Caller
from edged.testing import FakeClock

OWNER = Caller("local", "owner", "", "unix", "uid 0")
AGENT = Caller("ada@example.org", "agent", "", "unix", "uid 1000")
HOUR = 3_600.0
DAY = 24 * HOUR


class PowerLoss(BaseException):
    """The power goes: nothing after this happens."""


class Bell:
    """What the board's timer does, with the test's clock."""

    def __init__(self, ring):
        self.ring, self.when, self.closed = ring, None, False

    def set(self, when):
        self.when = when

    def close(self):
        self.closed = True


class Errands:
    """The tools of this world: `exec`, `message` and `work`, which may take its time or fail."""

    def __init__(self, world):
        self.world = world
        self.calls = []
        self.known = {"exec", "message", "spawn", "work"}
        self.channels = {"", "telegram"}
        self.outcomes = {}

    async def check(self, caller, name, raw, by=None):
        if name not in self.known:
            raise EdgedError(f"no tool named {name!r}")
        channel = json.loads(raw).get("channel", "")
        if channel not in self.channels:
            raise EdgedError(f"no channel {channel!r}")
        return ()

    def may_begin(self, by, name):
        """No caller of this world is a subagent."""

    async def call(self, caller, name, raw):
        self.calls.append((self.world.clock.now(), caller, name, raw))
        length, is_error, text = self.outcomes.get(name, (0.0, False, "done"))
        if length:
            await self.world.sleep(length)
        return SimpleNamespace(is_error=is_error, for_llm=text, structured=None, call_id="c-1")

    def shown(self, user, name, given):
        return given


class World:
    def __init__(self, folder, now, *, local="UTC", grace=HOUR, floor=60.0, jobs=20_000):
        self.path = f"{folder}/cron/jobs.db"
        self.local, self.limits = local, Limits(floor, grace, jobs, ("*",))
        self.clock = FakeClock(now)
        self.errands = Errands(self)
        self.cron = None
        self.bells, self.tasks, self.sleepers = [], set(), []
        self.events, self.is_on = [], True
        self.lose_power = lambda name: None
        self.turns = 0
        self.began = defaultdict(list)
        self.spans = defaultdict(list)
        self.interrupted = []

    # Parts that are handed in -------------------------------------------------------------

    async def run(self, function, *args):
        """The database's thread. Power goes before a transaction, or after it."""
        name = function.__name__
        if self.lose_power(name) == "before":
            raise PowerLoss
        found = function(*args)
        for _ in range(self.turns):
            # What is done is done, also where nobody waits for it any more.
            await asyncio.sleep(0)
        if name == "settle":
            for claim in found[1]:
                if claim.run is not None:
                    self.began[claim.job.id].append(claim.run)
                for note in claim.noted:
                    self.spans[claim.job.id].append(note)
        elif name == "open":
            self.interrupted += [run for _, run in found.interrupted]
        if self.lose_power(name) == "after":
            raise PowerLoss
        return found

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        return task

    def bell(self, ring):
        made = Bell(ring)
        self.bells.append(made)
        return made

    async def sleep(self, seconds):
        """A run takes so long; meanwhile the world goes on."""
        done = asyncio.get_running_loop().create_future()
        row = (self.clock.boottime() + seconds, done, asyncio.current_task())
        self.sleepers.append(row)
        try:
            await done
        finally:
            self.sleepers.remove(row)

    # Power --------------------------------------------------------------------------------

    async def start(self):
        self.bells.clear()
        self.cron = Cron(
            self.path, self.limits, self.clock, self.errands,
            spawn=self.spawn, publish=lambda *event: self.events.append(event),
            local=self.local, is_on=lambda: self.is_on, thread=self, alarm=self.bell,
        )  # fmt: skip
        await self.cron.open()
        await self.idle()

    async def stop(self):
        """As the daemon ends: runs are cancelled, and their ends written down."""
        await self.cron.stop()
        for task in tuple(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()
        await self.cron.close()
        self.cron = None

    async def power_off(self):
        """As the plug is pulled: nothing is written any more."""
        cron, self.cron = self.cron, None
        self.lose_power = lambda name: "before"
        while self.tasks:
            # What ends may stir what then ends by the power loss.
            over, self.tasks = self.tasks, set()
            for task in over:
                task.cancel()
            await asyncio.gather(*over, return_exceptions=True)
        self.sleepers.clear()
        await cron.scheduler.stop()
        self.lose_power = lambda name: None
        cron._jobs.close()

    # Time ---------------------------------------------------------------------------------

    async def idle(self):
        """Let everything happen that happens now; raises the power loss that came of it."""
        await asyncio.sleep(0)
        while True:
            asleep = {task for _, _, task in self.sleepers}
            busy = [task for task in self.tasks if not task.done() and task not in asleep]
            over = {task for task in self.tasks if task.done()}
            self.tasks -= over
            failed = [t.exception() for t in over if not t.cancelled() and t.exception()]
            if failed:
                raise failed[0]
            if not busy:
                return
            await asyncio.sleep(0)

    def next(self):
        """Seconds until something happens by itself; None is never."""
        times = [due - self.clock.boottime() for due, _, _ in self.sleepers]
        times += [
            bell.when - self.clock.now()
            for bell in self.bells
            if not bell.closed and bell.when is not None
        ]
        return max(min(times), 0.0) if times else None

    async def happen(self):
        """What is due now happens."""
        for due, done, _ in tuple(self.sleepers):
            if due <= self.clock.boottime() and not done.done():
                done.set_result(None)
        for bell in tuple(self.bells):
            if not bell.closed and bell.when is not None and bell.when <= self.clock.now():
                bell.when = None
                bell.ring()
        await self.idle()

    async def pass_time(self, seconds):
        """Time passes, and everything happens in its order."""
        await self.idle()
        until = self.clock.boottime() + seconds
        while (left := until - self.clock.boottime()) > 0:
            ahead = self.next()
            self.clock.advance(left if ahead is None else min(ahead, left))
            await self.happen()

    async def set_clock(self, delta):
        """The wall clock is set while the daemon runs: the kernel rings."""
        self.clock.jump(delta)
        for bell in tuple(self.bells):
            if not bell.closed:
                bell.ring()
        await self.idle()

    # What came of it ----------------------------------------------------------------------

    def runs(self, job_id):
        return [run.due for run in self.began[job_id]]

    def kinds(self, kind):
        return [facts for name, _, facts in self.events if name == kind]

    async def add(self, caller=OWNER, **said):
        from edged.cron.spec import Spec

        said = (
            {"tool": "work", **said} if not {"command", "message", "task"} & said.keys() else said
        )
        made = (await self.cron.add(caller, Spec(**said))).job
        await self.idle()
        return made

    async def get(self, job_id, caller=OWNER):
        found = await self.cron.get(caller, job_id)
        await self.idle()
        return found
