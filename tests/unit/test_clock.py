"""Time: the real clocks, the text of a moment, and the clock of tests."""

import time

import pytest

from edged.clock import Clock, SystemClock, iso
from edged.testing.clock import START, FakeClock


def test_the_system_clock_is_the_machines():
    clock: Clock = SystemClock()
    before = time.monotonic(), time.time()
    assert clock.monotonic() >= before[0]
    assert clock.now() >= before[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (1_700_000_000.1239, "2023-11-14T22:13:20.123Z")],
)
def test_a_moment_is_rfc_3339_in_utc_with_milliseconds(seconds, text):
    """RFC 3339, section 5.6."""
    assert iso(seconds) == text


def test_time_of_a_fake_clock_passes_when_told():
    clock: Clock = FakeClock(monotonic=5.0)
    assert (clock.now(), clock.monotonic()) == (START, 5.0)
    clock.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (START + 2.5, 7.5)


def test_a_jump_moves_the_wall_clock_alone():
    """Architecture, laws, time: the wall clock may jump at boot."""
    clock = FakeClock()
    clock.jump(-3600)
    assert (clock.now(), clock.monotonic()) == (START - 3600, 0.0)


def test_a_monotonic_clock_never_goes_back():
    with pytest.raises(ValueError, match="use jump"):
        FakeClock().advance(-1)


def test_time_of_a_suspended_board_passes_but_for_its_monotonic_clock():
    """clock_gettime(2): CLOCK_BOOTTIME includes the time that the system is suspended."""
    clock: Clock = FakeClock()
    clock.advance(10)
    clock.suspend(3600)
    assert (clock.now(), clock.monotonic(), clock.boottime()) == (START + 3610, 10.0, 3610.0)
    assert SystemClock().boottime() >= time.monotonic() - 1
