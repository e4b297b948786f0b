"""Calibration, filters and alarms are what their words say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.board.values import Change, Conversion, interpolated
from edged.bus.settings import AlarmConfig, ChannelConfig


def test_offset_comes_after_scale():
    """`edged.bus.settings.ChannelConfig`: points, scale, offset, in this order."""
    assert Conversion(ChannelConfig(scale=2.0, offset=1.0)).convert(10.0) == 21.0


def test_points_are_met_and_interpolated_between_and_beyond():
    """A two-point calibration of a soil probe: dry 870 is 0 %, wet 430 is 100 %."""
    points = [(430.0, 100.0), (870.0, 0.0)]
    assert interpolated(points, 430.0) == 100.0
    assert interpolated(points, 870.0) == 0.0
    assert interpolated(points, 650.0) == 50.0
    assert interpolated(points, 958.0) == pytest.approx(-20.0)
    assert interpolated(points, 342.0) == pytest.approx(120.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9, unique=True).map(sorted), st.data())
def test_each_point_is_met(said, data):
    if min(b - a for a, b in zip(said, said[1:], strict=False)) < 1e-3:
        return
    points = [(x, data.draw(st.floats(-1e6, 1e6))) for x in said]
    for x, true in points:
        assert interpolated(points, x) == pytest.approx(true, abs=1e-6, rel=1e-9)


def test_points_come_before_scale():
    config = ChannelConfig(points=[(0, 0), (1, 10)], scale=0.5, offset=1.0)
    assert Conversion(config).convert(0.5) == 3.5


def test_a_median_takes_a_spike_away():
    """HX711, HC-SR04 and others have spikes."""
    conversion = Conversion(ChannelConfig(median=3))
    assert [conversion.convert(v) for v in (1.0, 900.0, 2.0, 3.0)] == [1.0, 450.5, 2.0, 3.0]


def test_a_change_faster_than_it_can_be_is_a_jump():
    """Fault 32: brown-out values lie within the range."""
    conversion = Conversion(ChannelConfig(max_rate=0.5))
    told = [conversion.is_jump(v, t) for v, t in ((20, 0), (21, 2), (85, 12), (85, 22), (84, 24))]
    assert told == [False, False, True, False, False]
    assert not Conversion(ChannelConfig()).is_jump(1e9, 0.0)


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([29, 31, 30.6, 29.4], [None, ("above", 30), None, ("ok", 30)]),
        ([31, 31], [("above", 30), None]),
        ([4, 5.4, 5.6], [("below", 5), None, ("ok", 5)]),
        ([31, 4, 20], [("above", 30), ("below", 5), ("ok", 5)]),
    ],
)
def test_an_alarm_begins_beyond_its_bound_and_ends_well_inside(values, changes):
    """Issue 3, part 5: alarms; hysteresis keeps a value on the bound from ringing."""
    alarm = AlarmConfig(above=30, below=5, hysteresis=0.5)
    conversion = Conversion(ChannelConfig(alarm=alarm))
    told = [conversion.check(value, float(n)) for n, value in enumerate(values)]
    assert told == [change and Change(*change) for change in changes]


def test_an_alarm_waits_for_its_hold():
    alarm = AlarmConfig(above=30, hold="10s")
    conversion = Conversion(ChannelConfig(alarm=alarm))
    assert conversion.check(31, 0.0) is None
    assert conversion.check(29, 5.0) is None
    assert conversion.check(31, 6.0) is None
    assert conversion.check(31, 15.9) is None
    assert conversion.check(31, 16.0) == Change("above", 30)
    assert conversion.alarm == "above"


def test_without_an_alarm_nothing_is_told():
    conversion = Conversion(ChannelConfig())
    assert conversion.check(1e9, 0.0) is None
    assert conversion.alarm == "ok"


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        (ChannelConfig, {"points": [(1, 2)]}, "one pair alone"),
        (ChannelConfig, {"points": [(1, 2), (1, 3)]}, "must rise"),
        (AlarmConfig, {}, "above or below is missing"),
        (AlarmConfig, {"above": 1, "below": 1}, "below must be less"),
        (AlarmConfig, {"above": 1, "hold": "soon"}, "hold: 'soon' is not a duration"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(kind, config, reason):
    with pytest.raises(ValueError, match=reason):
        kind(**config)
