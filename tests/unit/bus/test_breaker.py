"""A stuck bus is diagnosed once and asked ever more rarely (facts of I2C on Linux: fault 20)."""

import errno

import pytest

from edged.bus._breaker import Breaker
from edged.errors import BusError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def breaker(clock):
    return Breaker("i2c-1", clock)


def is_open(breaker):
    try:
        breaker.check()
    except BusError:
        return True
    return False


def test_two_timeouts_are_not_yet_a_stuck_bus(breaker, capsys):
    for _ in range(5):
        breaker.timed_out()
        breaker.timed_out()
        assert not is_open(breaker)
        breaker.moved()
    assert capsys.readouterr().err == ""


def test_an_open_breaker_says_since_when_and_until_when(breaker, clock):
    for _ in range(3):
        breaker.timed_out()
        clock.advance(1.0)
    with pytest.raises(BusError) as caught:
        breaker.check()
    assert caught.value.errno == errno.ETIMEDOUT
    assert "i2c-1 has been stuck for 3 s and is tried again in 4 s: check for SDA" in str(
        caught.value
    )


def test_the_pause_doubles_up_to_a_minute(breaker, clock):
    breaker.timed_out()
    breaker.timed_out()
    pauses = []
    for _ in range(6):
        breaker.timed_out()
        began = clock.monotonic()
        while is_open(breaker):
            clock.advance(1.0)
        pauses.append(clock.monotonic() - began)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_one_success_makes_it_as_new_and_each_change_is_logged_once(breaker, clock, capsys):
    for _ in range(2):
        for _ in range(5):
            breaker.timed_out()
            clock.advance(60.0)
        breaker.moved()
        breaker.moved()
        assert not is_open(breaker)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("i2c-1 ")[2].split(":")[0] for line in lines] == [
        "is stuck",
        "works again after 300 s",
    ] * 2
