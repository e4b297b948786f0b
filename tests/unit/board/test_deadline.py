"""The dead man's handle on its own."""

import asyncio

import pytest

from edged.board import deadline
from edged.board.deadline import Deadline
from edged.errors import NoDeviceError


class Rig:
    def __init__(self, seconds=0.005, error=None):
        self.tried = self.safe = 0
        self.error = error
        self.deadline = Deadline("gpio pump", seconds, self.expire, self.expired)

    async def expire(self):
        self.tried += 1
        if self.error is not None:
            raise self.error

    def expired(self):
        self.safe += 1

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(deadline, "RETRY_MIN_S", 0.002)
    monkeypatch.setattr(deadline, "RETRY_MAX_S", 0.004)


@pytest.mark.parametrize("error", [NoDeviceError("it is gone"), ZeroDivisionError("a driver's")])
async def test_it_is_tried_until_it_is_safe_and_told_once(error, capsys):
    """Whatever went wrong, the output may still be on."""
    rig = Rig(error=error)
    with rig.deadline.holding():
        pass
    await rig.until(lambda: rig.tried >= 4)
    assert rig.safe == 0
    rig.error = None
    await rig.until(lambda: rig.safe)
    said = capsys.readouterr().err
    assert said.count("gpio pump may not be in its safe state, trying again: ") == 1
    assert said.count("safe state\n") == 1
    await rig.deadline.stop()
    assert rig.safe == 1


async def test_who_holds_it_again_ends_the_tries():
    rig = Rig(error=NoDeviceError("it is gone"))
    with rig.deadline.holding():
        pass
    await rig.until(lambda: rig.tried >= 2)
    rig.deadline.seconds = 60.0
    with rig.deadline.holding():
        tried = rig.tried
        assert rig.deadline._timer.when() - asyncio.get_running_loop().time() > 50
    assert rig.tried == tried
    await rig.deadline.stop()


async def test_a_try_that_fails_after_it_was_held_again_leaves_the_new_deadline():
    rig, held = Rig(error=NoDeviceError("it is gone")), asyncio.Event()
    expire = rig.expire

    async def slow():
        await held.wait()
        await expire()

    rig.deadline = Deadline("gpio pump", 60.0, slow, rig.expired)
    rig.deadline._end()
    await asyncio.sleep(0)
    with rig.deadline.holding():
        pass
    held.set()
    await rig.until(lambda: rig.tried)
    await asyncio.sleep(0)
    assert rig.deadline._timer.when() - asyncio.get_running_loop().time() > 50
    await rig.deadline.stop()


async def test_one_try_is_made_at_a_time():
    rig, go = Rig(), asyncio.Event()

    async def slow():
        rig.tried += 1
        await go.wait()

    rig.deadline = Deadline("gpio pump", 0.002, slow, rig.expired)
    for _ in range(2):
        with rig.deadline.holding():
            pass
        await rig.until(lambda: rig.deadline._timer is None)
    await asyncio.sleep(0)
    assert rig.tried == 1
    go.set()
    await rig.deadline.stop()


async def test_one_that_stopped_begins_no_more():
    """A write or a try that ends later would drive a line of a closed board."""
    rig = Rig(error=NoDeviceError("it is gone"))
    with rig.deadline.holding():
        await rig.until(lambda: rig.tried)
        await rig.deadline.stop()
    assert rig.deadline._timer is None


async def test_without_a_time_it_never_begins():
    rig = Rig(seconds=0.0)
    with rig.deadline.holding():
        assert rig.deadline._timer is None
