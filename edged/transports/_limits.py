"""Bounds of the doors: how long a client may take, how often it may ask, who gets a place.

Knows no sockets and no HTTP library.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec

from edged.errors import RateLimitedError

KEYS = 1_024
"""Callers whose rate is remembered; the one longest silent is forgotten."""


class Timing(msgspec.Struct, frozen=True):
    """How long a client may take; all in seconds.

    Attributes:
        header_s: from the connection, or the last answer, to the end of the next headers.
        body_s: for a body; every `body_rate` bytes that came add a second.
        body_rate: bytes.
        comment_s: between the comments that keep a silent event stream open.
        linger_s: how long an unwanted body is read and thrown away, so that the
            answer to it arrives; also what a stop waits for answers.
        stalled_s: a peer on TCP that takes no data for so long is gone.
        session_s: an MCP session in which nothing happened for so long is over.
    """

    header_s: float = 30.0
    body_s: float = 20.0
    body_rate: int = 32 << 10
    comment_s: float = 15.0
    linger_s: float = 2.0
    stalled_s: float = 60.0
    session_s: float = 1_800.0


class Rates:
    """A token bucket for each caller. Loop thread only."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float]) -> None:
        """Full buckets.

        Args:
            rate: requests a second, in the long run.
            burst: requests at once.
            monotonic: the clock.
        """
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> None:
        """Count one request.

        Raises:
            RateLimitedError: the bucket is empty; says when it is not.
        """
        now = self._monotonic()
        left, since = self._buckets.pop(key, (float(self._burst), now))
        left = min(float(self._burst), left + (now - since) * self._rate)
        allowed = left >= 1.0
        if len(self._buckets) >= KEYS:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = (left - 1.0 if allowed else left, now)
        if not allowed:
            raise RateLimitedError(
                f"over {self._rate:g} requests a second (http.rate)", (1.0 - left) / self._rate
            )


OWNERS_PLACES = 16
"""Places that only owners get."""


class Places:
    """Who holds how many of a listener's places: nobody can take them all. Loop thread only.

    Args:
        limit: all places; small limits keep a quarter of them for owners.
        most: places of one who is no owner.
    """

    def __init__(self, limit: int, most: int) -> None:
        self._limit = limit
        self._most = max(1, most)
        self._kept = min(OWNERS_PLACES, limit // 4)
        self._held: dict[Hashable, int] = {}
        self._owners = 0

    def take(self, who: Hashable, *, owner: bool) -> bool:
        """Take a place, where there is one for them: a uid, a token."""
        held = self._held.get(who, 0)
        total = sum(self._held.values()) + self._owners
        if owner:
            if total >= self._limit:
                return False
            self._owners += 1
            return True
        if held >= self._most or total >= self._limit - max(self._kept - self._owners, 0):
            return False
        self._held[who] = held + 1
        return True

    def leave(self, who: Hashable, *, owner: bool) -> None:
        """Give a place back."""
        if owner:
            self._owners -= 1
        elif self._held[who] == 1:
            del self._held[who]
        else:
            self._held[who] -= 1
