"""Jobs: what adding and firing cost as they grow in number."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from types import SimpleNamespace
from typing import Any

from edged.clock import SystemClock
from edged.cron.service import Cron, Limits
from edged.cron.spec import Spec
from edged.identity import Caller
from tests.bench.table import Table

OWNER = Caller("local", "owner", "", "unix", "uid 0")
FEW, MANY = 100, 10_000
SAMPLES = 200
AHEAD_S = 1.0


class _Errands:
    """A tool that does nothing: what is measured is the scheduler's own."""

    async def check(self, *_: Any) -> tuple[str, ...]:
        return ()

    def may_begin(self, *_: Any) -> None:
        return

    async def call(self, *_: Any) -> Any:
        return SimpleNamespace(is_error=False, for_llm="done", structured=None, call_id="")

    def shown(self, _user: str, _name: str, given: dict[str, Any]) -> dict[str, Any]:
        return given


class _Jobs:
    """Jobs of one directory, over a real disk and clock."""

    def __init__(self, path: str) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.ended: list[float] = []
        self.waits = asyncio.Event()
        self.wanted = 0
        limits = Limits(1.0, 3_600.0, 50_000, ("*",))
        self.cron = Cron(
            path, limits, SystemClock(), _Errands(),
            spawn=self._spawn, publish=self._told, local="UTC",
        )  # fmt: skip

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _told(self, kind: str, _user: str, _facts: dict[str, Any]) -> None:
        if kind == "job.end":
            self.ended.append(time.monotonic())
            if len(self.ended) == self.wanted:
                self.waits.set()

    async def grow(self, count: int) -> None:
        for _ in range(count):
            await self.cron.add(OWNER, Spec(schedule="0 9 1 1 *", tool="work"))

    async def add_s(self) -> float:
        """Median time of one `add`."""
        spans = []
        for _ in range(SAMPLES):
            begun = time.perf_counter()
            await self.cron.add(OWNER, Spec(schedule="0 9 1 1 *", tool="work"))
            spans.append(time.perf_counter() - begun)
        return statistics.median(spans)

    async def fire_s(self) -> float:
        """CPU time of one run, of many that are due at once."""
        at = time.time() + AHEAD_S * 3
        for _ in range(SAMPLES):
            spec = Spec(at_seconds=max(at - time.time(), 1.0), tool="work")
            await self.cron.add(OWNER, spec)
        self.ended.clear()
        self.waits.clear()
        self.wanted = SAMPLES
        begun = time.process_time()
        await self.waits.wait()
        return (time.process_time() - begun) / SAMPLES


async def _measure(path: str) -> dict[int, tuple[float, float]]:
    found = {}
    jobs = _Jobs(path)
    await jobs.cron.open()
    have = 0
    for count in (FEW, MANY):
        await jobs.grow(count - have)
        have = count
        found[count] = await jobs.add_s(), await jobs.fire_s()
    await jobs.cron.close()
    return found


def measure(table: Table, directory: str) -> None:
    # In memory where there is such a place: a slow disk would hide what grows.
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else directory
    path = os.path.join(place, f"edged-bench-{os.getpid()}", "jobs.db")
    try:
        found = asyncio.run(_measure(path))
    finally:
        import shutil

        shutil.rmtree(os.path.dirname(path), ignore_errors=True)
    (few_add, few_fire), (many_add, many_fire) = found[FEW], found[MANY]
    table.note(f"add: {few_add * 1e3:.2f} ms of {FEW} jobs, {many_add * 1e3:.2f} ms of {MANY}")
    table.note(f"run: {few_fire * 1e3:.2f} ms of {FEW} jobs, {many_fire * 1e3:.2f} ms of {MANY}")
    table.row(f"adding a job, {MANY} jobs against {FEW}", many_add / few_add, at_most=2.0)
    table.row(f"running a job, {MANY} jobs against {FEW}", many_fire / few_fire, at_most=2.0)
