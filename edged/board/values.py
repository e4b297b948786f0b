"""From what a device says to what is true: calibration, filters, alarms. Pure.

One `Conversion` belongs to one channel of one sensor and keeps its last values.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from statistics import median
from typing import Literal, NamedTuple

from edged.bus.settings import AlarmConfig, ChannelConfig
from edged.units import duration_s

AlarmState = Literal["ok", "above", "below"]


class Change(NamedTuple):
    """An alarm began or ended; `limit` is the bound that it is about."""

    state: AlarmState
    limit: float


class Conversion:
    """The way of one channel's values."""

    def __init__(self, config: ChannelConfig) -> None:
        self._config = config
        self._last: deque[float] = deque(maxlen=config.median)
        self._alarm = _Alarm(config.alarm) if config.alarm is not None else None
        self._before: tuple[float, float] | None = None

    @property
    def alarm(self) -> AlarmState:
        """Whether the channel is out of its bounds."""
        return self._alarm.state if self._alarm is not None else "ok"

    def convert(self, value: float) -> float:
        """What is true when the device says `value`: points, scale, offset, median."""
        config = self._config
        if config.points:
            value = interpolated(config.points, value)
        value = value * config.scale + config.offset
        if config.median == 1:
            return value
        self._last.append(value)
        return median(self._last)

    def is_jump(self, value: float, monotonic: float) -> bool:
        """Whether a value changed faster than it can since the one before.

        One that stays is no jump any more: then it was the one before it that was wrong.
        """
        before, self._before = self._before, (value, monotonic)
        if before is None or self._config.max_rate is None:
            return False
        passed = max(monotonic - before[1], 1e-3)
        return abs(value - before[0]) > self._config.max_rate * passed

    def check(self, value: float, monotonic: float) -> Change | None:
        """Whether an alarm begins or ends with this value at that moment."""
        return self._alarm.check(value, monotonic) if self._alarm is not None else None


def interpolated(points: list[tuple[float, float]], value: float) -> float:
    """The value between the two points around it; beyond the last ones their line goes on."""
    index = bisect_right([said for said, _ in points], value)
    right = min(max(index, 1), len(points) - 1)
    (low, low_true), (high, high_true) = points[right - 1], points[right]
    return low_true + (value - low) * (high_true - low_true) / (high - low)


class _Alarm:
    """Bounds with hysteresis: it begins after `hold` out of bounds, and ends well inside."""

    def __init__(self, config: AlarmConfig) -> None:
        self._config = config
        self._hold_s = duration_s(config.hold)
        self.state: AlarmState = "ok"
        self._out: AlarmState = "ok"
        self._since = 0.0

    def check(self, value: float, monotonic: float) -> Change | None:
        beyond = self._beyond(value, 0.0)
        if self.state != "ok":
            if self._beyond(value, self._config.hysteresis) == self.state:
                return None
            ended = Change("ok", self._limit(self.state))
            self.state = self._out = "ok"
            if beyond == "ok":
                return ended
        if beyond != self._out:
            self._out, self._since = beyond, monotonic
        if beyond == "ok" or monotonic - self._since < self._hold_s:
            return None
        self.state = beyond
        return Change(beyond, self._limit(beyond))

    def _beyond(self, value: float, margin: float) -> AlarmState:
        """Which bound is passed, each drawn in by `margin`."""
        above, below = self._config.above, self._config.below
        if above is not None and value > above - margin:
            return "above"
        if below is not None and value < below + margin:
            return "below"
        return "ok"

    def _limit(self, state: AlarmState) -> float:
        limit = self._config.above if state == "above" else self._config.below
        return 0.0 if limit is None else limit
