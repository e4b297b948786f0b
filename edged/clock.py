"""Time, injected: nothing else in edged reads a clock.

Intervals come from `monotonic`, wall time is aware UTC. The wall clock may jump
(boards have no RTC battery); the monotonic one may not.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """What a part that needs time is handed."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC; may jump."""

    def boottime(self) -> float:
        """As `monotonic`, and goes on while the board is suspended."""


class SystemClock:
    """The machine's clocks; any thread."""

    monotonic = staticmethod(time.monotonic)
    now = staticmethod(time.time)

    @staticmethod
    def boottime() -> float:
        """Seconds since the board was switched on, suspended or not.

        Source: clock_gettime(2), CLOCK_BOOTTIME.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def iso(seconds: float) -> str:
    """RFC 3339 text in UTC with milliseconds.

    Args:
        seconds: since 1970-01-01 UTC.
    """
    second, microsecond = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_to_second(second)}.{microsecond // 1000:03d}Z"


@lru_cache(maxsize=8)
def _to_second(second: int) -> str:
    """Text up to the full second; thousands of calls share one."""
    return datetime.fromtimestamp(second, UTC).isoformat()[: -len("+00:00")]


def patience(retry_after: str, now: float) -> float:
    """Seconds that a `Retry-After` header asks for: a number of them, or a date.

    Source: RFC 9110, section 10.2.3. What is neither asks for nothing.

    Args:
        retry_after: the header's value, or empty.
        now: seconds since 1970-01-01 UTC.
    """
    value = retry_after.strip()
    if value.isascii() and value.isdecimal():
        return float(value)
    if not value:
        return 0.0
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  for a date

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0
