"""Spares: what they give, when they are made, and when they go."""

from __future__ import annotations

import asyncio
import os
import select
import signal

import pytest

from edged.errors import BusyError, StoppingError
from edged.sandbox import proc
from edged.sandbox.profile import MIB, Limits
from edged.sandbox.run import Instance

SAY = {
    "python": "STATE = []\ndef execute(c, p):\n  STATE.append(1)\n  return f'{p[\"x\"]} {len(STATE)}'",
    "typescript": "let state = 0;\nexport const execute = (id: string, p: any) => `${p.x} ${++state}`;",
    "bash": 'state=$((state + 1)); echo "$INPUT_X $state"',
}
HELLO = "def execute(c, p): return 'hello'"


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


class FakeClock:
    """A clock that goes when told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def timed(make_workshop, clock):
    """A workshop whose clock goes when told."""
    async with make_workshop(warm_memory=512 * MIB, clock=clock) as made:
        yield made


@pytest.mark.parametrize("language", SAY)
async def test_the_next_call_is_warm_and_sees_nothing_of_the_one_before(
    warm_workshop, language: str
) -> None:
    """Issue 2, part 4: serves exactly one call, is thrown away."""
    job = warm_workshop.job(language, SAY[language])
    outcomes = []
    for number in range(3):
        outcomes.append(await warm_workshop.pool.call(job, "1", {"x": number}))
        await warm_workshop.warm(job)
    assert [outcome.warm for outcome in outcomes] == [False, True, True]
    assert [text(outcome) for outcome in outcomes] == ["0 1", "1 1", "2 1"]
    assert len(warm_workshop.spares()) == 1


async def test_no_spare_is_made_of_a_tool_that_forbids_it(warm_workshop) -> None:
    """Contract 10: `warm: false` = never."""
    cold, warm = (warm_workshop.job("bash", "echo x", warm=flag) for flag in (False, True))
    for job in (cold, warm):
        await warm_workshop.pool.call(job, "1", {})
    await warm_workshop.warm(warm)
    assert [spare.name for spare in warm_workshop.spares()] == [warm.name]


async def test_a_burst_is_served_whole_and_in_parallel(warm_workshop) -> None:
    job = warm_workshop.job("python", SAY["python"])
    pool = warm_workshop.pool
    await pool.call(job, "1", {"x": 0})
    await warm_workshop.warm(job)
    most = 0

    async def one(number: int) -> str:
        nonlocal most
        outcome = await pool.call(job, "1", {"x": number})
        most = max(most, pool.stats().running)
        return text(outcome)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(one(number)) for number in range(40)]
    assert [call.result() for call in calls] == [f"{number} 1" for number in range(40)]
    assert 1 < most <= 8 * (os.cpu_count() or 1)
    stats = pool.stats()
    assert (stats.warm_calls, stats.cold_calls, stats.waiting) == (1, 40, 0)


async def test_calls_that_wait_are_served_in_order(make_workshop) -> None:
    async with make_workshop(warm_memory=0, parallel=1) as made:
        job = made.job("bash", "echo x")
        order: list[int] = []

        async def one(number: int) -> None:
            await made.pool.call(job, "1", {})
            order.append(number)

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(one(number))
        assert order == [0, 1, 2, 3, 4, 5]


async def test_too_long_a_queue_refuses(make_workshop) -> None:
    """Every queue is bounded and says what happens when it is full."""
    async with make_workshop(warm_memory=0, parallel=1, queue_max=1) as made:
        job = made.job("bash", "sleep 60")
        running, waiting = (asyncio.create_task(made.pool.call(job, "1", {})) for _ in range(2))
        await made.until(lambda: made.pool.stats().waiting == 1)
        with pytest.raises(BusyError, match="1 calls wait for a sandbox"):
            await made.pool.call(job, "1", {})
        waiting.cancel()
        running.cancel()
        await asyncio.wait([running, waiting])
        assert made.pool.stats().waiting == 0
        assert text(await made.pool.call(made.job("bash", "echo free"), "1", {})) == "free"


async def test_a_change_of_the_tool_drops_its_spares(warm_workshop) -> None:
    jobs = [warm_workshop.job("bash", f"echo {n}") for n in range(3)]
    for job in jobs:
        await warm_workshop.pool.call(job, "1", {})
    for job in jobs:
        await warm_workshop.warm(job)
    warm_workshop.pool.drop(lambda key: key[1] == jobs[0].name)
    assert {spare.name for spare in warm_workshop.spares()} == {job.name for job in jobs[1:]}
    warm_workshop.pool.drop(lambda key: key[1] == jobs[1].name)
    assert [spare.name for spare in warm_workshop.spares()] == [jobs[2].name]


async def test_an_idle_spare_is_dropped(timed, clock) -> None:
    job = timed.job("bash", "echo x")
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    clock.time += 599
    timed.pool.look()
    assert len(timed.spares()) == 1
    clock.time += 1
    timed.pool.look()
    assert timed.spares() == ()


async def test_no_timer_runs_when_there_is_nothing_to_do(timed, clock) -> None:
    """Idle is free: no wake-ups."""
    loop = asyncio.get_running_loop()
    job = timed.job("bash", "echo x")
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    clock.time += 1000
    timed.pool.look()
    await timed.until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    left = [timer for timer in loop._scheduled if not timer.cancelled() and "edged" in repr(timer)]
    assert left == []


@pytest.mark.parametrize(
    "source",
    [
        "raise ValueError('cannot load')",
        "import os\nos._exit(1)",
        "import signal, threading\nthreading.Timer(0.1, lambda: signal.raise_signal(9)).start()\n"
        + HELLO,
    ],
)
async def test_a_spare_that_dies_is_not_made_again(warm_workshop, source: str) -> None:
    """... and that key marked not-warm until its digest changes."""
    job = warm_workshop.job("python", source)
    pool = warm_workshop.pool
    first = await pool.call(job, "1", {})
    use = pool._uses[job.key]
    await warm_workshop.until(lambda: use.spoiled)
    again = await pool.call(job, "1", {})
    assert (again.warm, text(again)) == (False, text(first))
    other = warm_workshop.job("bash", "echo x")
    await pool.call(other, "1", {})
    await warm_workshop.warm(other)
    assert [spare.name for spare in warm_workshop.spares()] == [other.name]


async def test_a_spare_that_dies_just_before_its_call_is_replaced_by_a_cold_one(
    warm_workshop,
) -> None:
    job = warm_workshop.job("python", HELLO)
    await warm_workshop.pool.call(job, "1", {})
    await warm_workshop.warm(job)
    spare = warm_workshop.pool._uses[job.key].spare
    spare.kill()
    spare._finish()  # as the loop does, just before the pool is told
    outcome = await warm_workshop.pool.call(job, "1", {})
    assert (text(outcome), outcome.warm) == ("hello", False)


async def test_a_spare_that_burns_cpu_is_dropped(timed, clock) -> None:
    source = (
        "import threading\ndef burn():\n  while True: pass\nthreading.Thread(target=burn, daemon=True).start()\n"
        + HELLO
    )
    job = timed.job("python", source)
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    use = timed.pool._uses[job.key]
    pids = use.spare.processes()
    timed.pool.look()
    before = proc.cpu_s(pids)
    await timed.until(lambda: proc.cpu_s(pids) > before + 0.6)
    timed.pool.look()
    assert use.spoiled
    assert timed.spares() == ()


BURNERS = ("waited for", "not waited for")


@pytest.mark.parametrize("end", BURNERS)
async def test_a_spare_whose_children_burn_cpu_is_dropped(timed, end: str) -> None:
    """Each lives for a moment only; one that nobody waits for leaves no account (wait(2))."""
    source = f"""
import _thread, os, signal
if {end!r} == 'not waited for': signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def burn():
    while True:
        pid = os.posix_spawn('/usr/bin/timeout', ['timeout', '0.1', 'sh', '-c', 'while :; do :; done'], {{}})
        try: os.waitpid(pid, 0)
        except ChildProcessError: pass
_thread.start_new_thread(burn, ())
{HELLO}
"""
    job = timed.job("python", source)
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    use = timed.pool._uses[job.key]
    spare = use.spare
    await timed.until(lambda: len(spare.processes()) > 1)
    timed.pool.look()
    assert not use.spoiled
    before = set(spare.processes())
    if end == "waited for":
        used = proc.cpu_s(before)
        await timed.until(lambda: proc.cpu_s(before) > used + 0.6)
    else:
        await timed.until(lambda: not set(spare.processes()) <= before)
    timed.pool.look()
    assert use.spoiled


async def test_a_spare_that_grows_is_dropped_and_not_the_lesser_ones(make_workshop, clock) -> None:
    """Measured anew at each look: what it had when it was ready says nothing."""
    async with make_workshop(warm_memory=64 * MIB, clock=clock) as made:
        source = f"""
import _thread, os
def grow():
    while not os.path.exists('/officer/data/grow'): pass
    keep.append(bytearray(b'x' * (80 << 20)))
keep = []
_thread.start_new_thread(grow, ())
{HELLO}
"""
        small, big = made.job("bash", "echo x"), made.job("python", source)
        for job in (small, big, big):
            await made.pool.call(job, "1", {})
            await made.warm(job)
        use = made.pool._uses[big.key]
        open(made.data + "/grow", "w").close()
        pids = use.spare.processes()
        await made.until(lambda: proc.pss(pids) > 70 * MIB)
        made.pool.look()
        assert [spare.name for spare in made.spares()] == [small.name]


async def test_a_spare_above_the_memory_of_its_tool_is_not_made_again(timed) -> None:
    """No group or watch need have ended it yet."""
    job = timed.job("bash", "echo x")
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    use = timed.pool._uses[job.key]
    import msgspec

    limits = msgspec.structs.replace(job.profile.limits, memory_max=100_000)
    profile = msgspec.structs.replace(job.profile, limits=limits)
    use.job = msgspec.structs.replace(job, profile=profile)
    timed.pool.look()
    assert use.spoiled
    assert timed.spares() == ()


async def test_a_spare_that_fills_the_disk_is_dropped(timed) -> None:
    """The limit of one call holds while it waits for it, too."""
    source = f"""
import _thread, os
def fill():
    while not os.path.exists('/officer/data/go'): pass
    with open('/officer/data/big', 'wb') as file: file.write(bytes(64 << 20))
    open('/officer/data/done', 'w').close()
_thread.start_new_thread(fill, ())
{HELLO}
"""
    job = timed.job("python", source, limits=Limits(disk_max=8 * MIB, data_reserve=0))
    await timed.pool.call(job, "1", {})
    await timed.warm(job)
    timed.pool.look()
    await timed.until(lambda: timed.pool._uses[job.key].check is None)
    assert len(timed.spares()) == 1
    open(timed.data + "/go", "w").close()
    await timed.until(lambda: os.path.exists(timed.data + "/done"))
    timed.pool.look()
    await timed.until(lambda: timed.spares() == ())


async def test_a_tool_that_calls_itself_runs_a_bounded_number_of_times(make_workshop) -> None:
    """Each depth has its own places, and all of them together have a bound."""
    async with make_workshop(warm_memory=0, parallel=1) as made:
        source = "from edged_tool import ToolError, call, text\ndef execute(c, p):\n  try: return '+' + text(call('self'))\n  except ToolError as e: return f'{e.code}: {e}'"
        job = made.job("python", source, calls=True)

        async def run(depth: int) -> dict[str, object]:
            async def handler(name: str, arguments: dict[str, object]) -> dict[str, object]:
                return await run(depth + 1)

            outcome = await made.pool.call(job, "1", {}, calls_handler=handler, depth=depth)
            return outcome.result

        async with asyncio.timeout(60):
            result = await run(0)
        assert result["content"][0]["text"].startswith("+++busy: 4 sandboxes run already")


async def test_a_spare_that_does_not_get_ready_is_dropped(timed, clock) -> None:
    job = timed.job(
        "python",
        "import os, signal\nif os.path.exists('/officer/data/hang'): signal.pause()\n" + HELLO,
    )
    await timed.pool.call(job, "1", {})
    open(timed.data + "/hang", "w").close()
    await timed.until(lambda: len(timed.spares()) == 1)
    timed.pool.look()
    assert len(timed.spares()) == 1
    clock.time += 11
    timed.pool.look()
    assert timed.spares() == ()


async def test_the_budget_keeps_the_busier_tools(make_workshop, clock) -> None:
    """Least used first; two tools that take turns do not drive each other out."""
    async with make_workshop(warm_memory=5 * MIB, clock=clock) as made:
        one, two, three = (made.job("bash", f"echo {n}") for n in range(3))
        for job in (one, two):
            made.pool._note(job).cost = 2 * MIB
            await made.pool.call(job, "1", {})
            await made.warm(job)
        made.pool._note(three).cost = 2 * MIB
        await made.pool.call(three, "1", {})
        await made.pool.call(one, "1", {})
        await made.warm(one)
        await made.until(lambda: made.pool._refill is None)
        assert {spare.name for spare in made.spares()} == {one.name, two.name}
        for _ in range(3):
            await made.pool.call(three, "1", {})
        await made.warm(three)
        assert {spare.name for spare in made.spares()} == {one.name, three.name}


async def test_pressure_drops_the_least_used_first(make_workshop, clock) -> None:
    """A quarter of what is available above the floor; at most 256 MiB."""
    free = [4096 * MIB]
    async with make_workshop(clock=clock, available=lambda: free[0]) as made:
        assert made.pool.stats().budget == 256 * MIB
        free[0] = 240 * MIB  # a board of 512 MB
        assert made.pool.stats().budget == 44 * MIB
        rare, busy = (made.job("python", HELLO) for _ in range(2))
        for job in (rare, busy, busy):
            await made.pool.call(job, "1", {})
            await made.warm(job)
        memory = max(spare.memory for spare in made.spares())
        assert 4 * MIB < memory < 16 * MIB
        free[0] = 64 * MIB + 4 * memory  # leaves room for one and a half
        made.pool.look()
        assert [spare.name for spare in made.spares()] == [busy.name]
        free[0] = 10 * MIB
        made.pool.look()
        assert made.spares() == ()


async def test_a_cancelled_call_leaves_the_pool_as_it_was(warm_workshop) -> None:
    job = warm_workshop.job(
        "python", "import signal\ndef execute(c, p):\n  while True: signal.pause()"
    )
    task = asyncio.create_task(warm_workshop.pool.call(job, "1", {}))
    await warm_workshop.until(lambda: warm_workshop.pool.stats().running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert warm_workshop.pool.stats().running == 0
    assert (
        text(await warm_workshop.pool.call(warm_workshop.job("bash", "echo on"), "1", {})) == "on"
    )


async def test_closing_kills_what_still_runs(make_workshop) -> None:
    async with make_workshop(warm_memory=64 * MIB, parallel=1) as made:
        job = made.job("bash", "sleep 600")
        running = asyncio.create_task(made.pool.call(job, "1", {}))
        await made.until(lambda: made.pool.stats().running == 1)
        waiting = asyncio.create_task(made.pool.call(job, "1", {}))
    assert (await running).result["isError"]
    with pytest.raises(StoppingError):
        await waiting


async def test_many_keys_are_forgotten_in_the_end(timed) -> None:
    job = timed.job("bash", "echo x")
    import msgspec

    for number in range(300):
        timed.pool._note(msgspec.structs.replace(job, key=number))
    assert len(timed.pool._uses) == 256


async def test_a_sandbox_that_dies_before_it_is_let_go_just_ends(workshop) -> None:
    """Cut while it starts: what it was to be told has no reader any more."""
    instance = Instance(workshop.job("bash", "echo never"), workshop.pool._machine)
    instance.start()
    os.set_blocking(instance._fds["info"], True)
    while not instance._info.rstrip().endswith(b"}"):
        instance._info += os.read(instance._fds["info"], 4096)
    os.killpg(instance._process.pid, signal.SIGKILL)
    unread = select.poll()
    unread.register(instance._fds["block"], 0)
    assert unread.poll(20_000) == [(instance._fds["block"], select.POLLERR)]
    # As the loop would, if it saw this before the end.
    instance._on_info()
    assert "block" not in instance._fds
    await instance.close()
    assert instance.over.done()


async def test_a_sandbox_that_dies_while_it_says_its_number_is_not_asked_again(workshop) -> None:
    """Half a word and the end: without a writer its pipe is readable for ever."""
    instance = Instance(workshop.job("bash", "echo never"), workshop.pool._machine)
    instance.start()
    os.killpg(instance._process.pid, signal.SIGKILL)
    instance._info = b'{"child'
    os.set_blocking(instance._fds["info"], True)
    while os.read(instance._fds["info"], 4096):
        continue
    instance._on_info()
    assert "info" not in instance._fds
    await instance.close()
