"""A year on a board: jobs of every kind, a clock that is set, a plug that is pulled."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from tests.unit.cron.oracle import occurrences
from tests.unit.cron.world import DAY, HOUR, PowerLoss, World

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
START = datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()


class Year:
    """Chance decides, by its seed; `check` says whether every due run is accounted for.

    The clock of this board is set on and back, by less than three hours back; its
    set-backs beyond are tested by themselves.

    Args:
        folder: for the database.
        seed: of chance.
        days: how many.
        jobs: how many, a few of them often, most of them rarely due.
        restarts: at random moments; a half of them pull the plug.
        jumps: of the clock.
        often: share of jobs that are due every week or sooner, in their usual number.
    """

    def __init__(self, folder, seed, *, days, jobs, restarts, jumps, often=1.0):
        self.random = random.Random(seed)
        self.world = World(folder, START)
        self.days, self.count = days, jobs
        self.restarts, self.jumps = restarts, jumps
        self.often = often
        self.jobs = {}
        self.losses = 0
        self.latest = START

    def _schedule(self):
        pick = self.random
        minute, hour = pick.randrange(60), pick.choice([1, 2, 3, pick.randrange(24)])
        day, weekday, month = pick.randint(1, 28), pick.randrange(7), pick.randint(1, 12)
        kind = pick.random()
        if kind < 0.02 * self.often:
            return pick.choice(["*/30 */6 * * *", f"{minute} */4 * * *", "0,30 1-3 * * 0"])
        if kind < 0.08 * self.often:
            return f"{minute} {hour} * * *"
        if kind < 0.4 * self.often:
            return f"{minute} {hour} * * {weekday}"
        if kind < 0.7:
            return f"{minute} {hour} {day} * *"
        if kind < 0.8:
            return f"{minute} {hour} {day} {month} *"
        moment = START + pick.random() * self.days * DAY
        if kind < 0.9:
            return datetime.fromtimestamp(int(moment), UTC).isoformat()
        return f"in {int(moment - START) + 60}s"

    async def run(self):
        world, pick = self.world, self.random
        await world.start()
        for _ in range(self.count):
            text, tz = self._schedule(), pick.choice(ZONES)
            job = await world.add(schedule=text, tz=tz)
            self.jobs[job.id] = (text, tz, world.clock.now())
        chaos = sorted(
            [(pick.random(), "restart") for _ in range(self.restarts)]
            + [(pick.random(), "jump") for _ in range(self.jumps)]
        )
        world.errands.outcomes["work"] = (20.0, False, "done")
        for share, what in chaos:
            until = share * self.days * DAY
            await self._pass(until - world.clock.boottime())
            try:
                await (self._restart() if what == "restart" else self._jump())
            except PowerLoss:
                await self._off_and_on(60.0)
            self.latest = max(self.latest, world.clock.now())
        await self._pass(self.days * DAY - world.clock.boottime())
        # Beyond the last jump back and the last run.
        await self._pass(2 * DAY)
        self.latest = max(self.latest, world.clock.now())
        world.lose_power = lambda name: None
        await world.stop()

    async def _pass(self, seconds):
        until = self.world.clock.boottime() + max(seconds, 0.0)
        while self.world.clock.boottime() < until:
            try:
                await self.world.pass_time(until - self.world.clock.boottime())
            except PowerLoss:
                await self._off_and_on(self.random.random() * 600)

    async def _restart(self):
        pick = self.random
        away = pick.choice(
            [1.0, 60.0, 30 * 60.0, pick.random() * 3 * HOUR, pick.random() * 2 * DAY]
        )
        if pick.random() < 0.5:
            await self.world.stop()
            self.world.clock.advance(away)
            await self._start()
        elif pick.random() < 0.5:
            await self._off_and_on(away)
        else:
            # In the midst of what comes next: before a transaction, or when it is done.
            when = pick.choice(["before", "after"])
            left = pick.randrange(2)

            def lose(name):
                nonlocal left
                if name != "settle":
                    return ""
                left -= when == "before" or left > 0
                if left >= 0 and not (when == "after" and left == 0):
                    return ""
                return when

            self.world.lose_power = lose

    async def _off_and_on(self, away):
        self.losses += 1
        await self.world.power_off()
        self.world.clock.advance(away)
        if self.random.random() < 0.2:
            # Without an RTC: it learns the time a minute later.
            right = self.world.clock.now()
            self.world.clock.jump(100.0 - right)
            await self._start()
            await self.world.pass_time(60.0)
            await self.world.set_clock(right - 100.0)
        else:
            await self._start()

    async def _start(self):
        await self.world.start()

    async def _jump(self):
        pick = self.random
        delta = pick.choice(
            [pick.random() * HOUR, pick.random() * 3 * DAY, -pick.random() * 2.9 * HOUR]
        )
        # A clock that was set back is not set back again before it is where it was.
        if delta < 0 and self.world.clock.now() < self.latest:
            return
        self.latest = max(self.latest, self.world.clock.now())
        await self.world.set_clock(delta)

    # ------------------------------------------------------------------------------------

    def check(self):
        """Faults, as text; none is right."""
        faults = []
        for job_id, (text, tz, since) in self.jobs.items():
            runs = self.world.runs(job_id)
            spans = [(s.due, s.until) for s in self.world.spans[job_id]]
            if len(set(runs)) != len(runs):
                faults.append(f"{text} {tz}: ran twice for one time")
            inside = [r for r in runs if any(a <= r <= b for a, b in spans)]
            if inside:
                faults.append(f"{text} {tz}: ran, and was told as not run: {inside[:3]}")
            if text.startswith("in "):
                # Its time moves with the clock: one run, or one word.
                if len(runs) + len(spans) != 1:
                    faults.append(f"{text}: {len(runs)} runs, {len(spans)} words")
                continue
            if text[:4].isdigit():
                due = [datetime.fromisoformat(text).timestamp()]
            else:
                due = occurrences(text, tz, since, self.latest)
            known = set(runs)
            lost = [d for d in due if d not in known and not any(a <= d <= b for a, b in spans)]
            lost = [d for d in lost if d <= self.latest]
            if lost:
                at = [datetime.fromtimestamp(d, ZoneInfo(tz)).isoformat() for d in lost[:3]]
                faults.append(f"{text} {tz}: neither run nor told: {at} of {len(due)}")
            made_up = known - set(due)
            if made_up:
                faults.append(f"{text} {tz}: made up: {sorted(made_up)[:3]}")
        began = [run.id for runs in self.world.began.values() for run in runs]
        fired = len(self.world.errands.calls)
        if fired > len(began):
            faults.append(f"{fired} runs of {len(began)} that are on the disk")
        return faults
