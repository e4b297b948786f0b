"""The kernel's timer. That it rings when the clock is set needs a machine whose clock may be."""

import asyncio
import contextlib
import os
import time

import pytest

from edged.cron.alarm import Alarm

BOUND_S = 10.0


async def test_it_rings_at_its_time_and_not_before():
    """timerfd_create(2)."""
    rang = asyncio.Event()
    alarm = Alarm(rang.set)
    when = time.time() + 0.05
    alarm.set(when)
    async with asyncio.timeout(BOUND_S):
        await rang.wait()
    assert time.time() >= when
    alarm.close()


@pytest.mark.parametrize("when", [0.0, -5.0, 1.0])
async def test_time_that_is_past_rings_at_once(when):
    """A timer that is set to 0 would be switched off (timerfd_create(2))."""
    rang = asyncio.Event()
    alarm = Alarm(rang.set)
    alarm.set(when)
    async with asyncio.timeout(BOUND_S):
        await rang.wait()
    alarm.close()


def timers():
    """What the kernel says of this process's timers, proc(5)."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[timerfd]":
                with open(f"/proc/self/fdinfo/{fd}") as file:
                    found.append(file.read())
    return found


async def test_it_is_one_timer_of_the_wall_clock_and_gives_it_back():
    """proc(5): settime flags 03 are TFD_TIMER_ABSTIME and TFD_TIMER_CANCEL_ON_SET."""
    assert timers() == []
    alarm = Alarm(lambda: None)
    alarm.set(None)
    (facts,) = timers()
    assert "clockid: 0" in facts
    assert "settime flags: 03" in facts
    alarm.close()
    assert timers() == []


async def test_clock_of_a_test_rings_after_the_same_time():
    """A daemon with a clock that stands still must not ring without end."""
    rang = asyncio.Event()
    alarm = Alarm(rang.set, now=lambda: 1_000.0)
    alarm.set(1_000.05)
    async with asyncio.timeout(BOUND_S):
        await rang.wait()
    alarm.close()
