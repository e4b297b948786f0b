"""A bus's thread does what it is handed in order, and nobody who gives up stays in it."""

import asyncio
import contextlib
import gc
import os
import threading
import weakref

import pytest

from edged.bus._worker import Worker
from edged.errors import NoDeviceError

BOUND_S = 10.0


@pytest.fixture
def worker():
    made = Worker("i2c-test")
    yield made
    made.close()


def threads():
    return [thread.name for thread in threading.enumerate()]


async def test_jobs_run_in_order_on_one_thread_of_the_workers_name(worker):
    ran = []

    def job(number):
        ran.append((number, threading.current_thread().name))
        return number * 2

    assert "i2c-test" not in threads()
    answers = await asyncio.gather(*[worker.run(job, i) for i in range(50)])
    assert answers == [2 * i for i in range(50)]
    assert ran == [(i, "i2c-test") for i in range(50)]


async def test_what_a_job_raises_is_raised_to_its_caller_alone(worker):
    def job(number):
        if number % 2:
            raise OSError(number, "odd")
        return number

    answers = await asyncio.gather(*[worker.run(job, i) for i in range(6)], return_exceptions=True)
    assert answers[::2] == [0, 2, 4]
    assert [error.errno for error in answers[1::2]] == [1, 3, 5]


async def test_the_loop_goes_on_while_a_job_blocks(worker):
    go_on = threading.Event()
    blocked = asyncio.create_task(worker.run(go_on.wait, BOUND_S))
    for _ in range(10):
        await asyncio.sleep(0)
    go_on.set()
    assert await blocked


async def test_a_cancelled_caller_leaves_no_job_behind(worker):
    """Fault 16: a job that has not begun is left out, one that runs ends unseen."""
    begun, go_on, ran, faults = threading.Event(), threading.Event(), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))

    def first():
        begun.set()
        go_on.wait(BOUND_S)
        ran.append("first")

    waiting = [
        asyncio.create_task(worker.run(first)),
        asyncio.create_task(worker.run(ran.append, "second")),
    ]
    await asyncio.to_thread(begun.wait, BOUND_S)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    third = asyncio.create_task(worker.run(ran.append, "third"))
    await asyncio.sleep(0)
    go_on.set()
    await third
    assert ran == ["first", "third"]
    assert faults == []


async def test_what_a_failed_job_used_goes_with_its_error(worker):
    """At once: cycles would wait for the collector, and boards have little memory."""

    class Buffer:
        def use(self):
            raise OSError(121, "nothing answered")

    async def fail():
        buffer = Buffer()
        with contextlib.suppress(OSError):
            await worker.run(buffer.use)
        return weakref.ref(buffer)

    gc.disable()
    try:
        seen = await fail()
        # The thread may still be handing the error over.
        await worker.run(int)
        assert seen() is None
    finally:
        gc.enable()


async def test_closing_ends_the_thread_after_what_was_handed_in(worker):
    ran, opened = [], os.listdir("/proc/self/fd")
    last = asyncio.create_task(worker.run(ran.append, "safe level"))
    await asyncio.sleep(0)
    worker.close()
    assert ran == ["safe level"]
    assert "i2c-test" not in threads()
    assert os.listdir("/proc/self/fd") == opened
    await last
    with pytest.raises(NoDeviceError, match="i2c-test is closed"):
        await worker.run(ran.append, "more")


def test_a_worker_that_was_never_used_has_no_thread_to_end():
    worker = Worker("i2c-test")
    worker.close()
    assert "i2c-test" not in threads()


def test_a_job_whose_loop_has_ended_disturbs_nobody(worker):
    begun, go_on = threading.Event(), threading.Event()

    def job():
        begun.set()
        go_on.wait(BOUND_S)

    async def give_up():
        task = asyncio.create_task(worker.run(job))
        await asyncio.to_thread(begun.wait, BOUND_S)
        task.cancel()

    asyncio.run(give_up())
    go_on.set()
    assert asyncio.run(worker.run(int, "7")) == 7


async def test_the_thread_may_see_the_end_before_its_bell_rings(monkeypatch):
    """A descriptor that it gave back then would be another file's when the bell is rung."""
    worker, go, begun = Worker("test"), threading.Event(), asyncio.Event()
    loop, ring = asyncio.get_running_loop(), os.eventfd_write

    def block():
        loop.call_soon_threadsafe(begun.set)
        go.wait(10)

    job = asyncio.ensure_future(worker.run(block))
    await asyncio.wait_for(begun.wait(), 10)
    (thread,) = (one for one in threading.enumerate() if one.name == "test")

    def late(descriptor, count):
        go.set()
        thread.join(10)
        ring(descriptor, count)

    monkeypatch.setattr(os, "eventfd_write", late)
    worker.close()
    await job
