"""A clock that stands still until a test moves it."""

from __future__ import annotations

START = 1_700_000_000.0
"""Seconds since 1970-01-01 UTC at which a `FakeClock` begins: 2023-11-14T22:13:20Z."""


class FakeClock:
    """An `edged.clock.Clock`; any thread may read, one may move it."""

    def __init__(self, now: float = START, monotonic: float = 0.0) -> None:
        self._now = now
        self._monotonic = monotonic
        self._suspended = 0.0

    def monotonic(self) -> float:
        """Seconds since the clock was made, plus its start."""
        return self._monotonic

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self._now

    def boottime(self) -> float:
        """As `monotonic`, with the time that the board was suspended."""
        return self._monotonic + self._suspended

    def advance(self, seconds: float) -> None:
        """Let time pass; both clocks go on.

        Raises:
            ValueError: the time is negative: a monotonic clock never goes back.
        """
        if seconds < 0:
            raise ValueError("time does not go back: use jump to set the wall clock")
        self._now += seconds
        self._monotonic += seconds

    async def sleep(self, seconds: float) -> None:
        """Let time pass, for what waits: it is over at once."""
        self.advance(max(0.0, seconds))

    def jump(self, wall_seconds: float) -> None:
        """Set the wall clock on or back by so much, as NTP does on a board without an RTC."""
        self._now += wall_seconds

    def suspend(self, seconds: float) -> None:
        """Let the board sleep: time passes, and the monotonic clock stands."""
        self._now += seconds
        self._suspended += seconds
