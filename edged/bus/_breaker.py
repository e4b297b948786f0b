"""Stops asking a bus that is stuck, so that nobody waits for what cannot come.

Each attempt on a stuck bus costs the kernel's whole timeout. Knows no bus and no I/O.
"""

from __future__ import annotations

import errno

from edged import log
from edged.clock import Clock
from edged.errors import BusError

TIMEOUTS = 3
"""So many in a row are a stuck bus; a single one may be one device that holds the clock."""

FIRST_S, LONGEST_S = 5.0, 60.0
"""How long nothing is tried: at first, and after doubling with each attempt that failed."""

_ADVICE = (
    "check for SDA or SCL low, a missing pull-up or a device without power, "
    "then switch the devices off and on"
)


class Breaker:
    """Open while its bus is stuck; one thread only.

    Args:
        name: of the bus.
        clock: its time.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name, self._clock = name, clock
        self._timeouts = 0
        self._since = self._until = 0.0
        self._pause_s = 0.0

    def check(self) -> None:
        """Lets an attempt through.

        Raises:
            BusError: the bus is stuck, and it is not yet time to try again.
        """
        now = self._clock.monotonic()
        if now < self._until:
            raise BusError(
                errno.ETIMEDOUT,
                f"{self._name} has been stuck for {now - self._since:.0f} s and is tried again "
                f"in {self._until - now:.0f} s: {_ADVICE}",
            )

    def timed_out(self) -> None:
        """An attempt timed out; the third in a row, and each after it, opens the breaker."""
        now = self._clock.monotonic()
        if not self._timeouts:
            self._since = now
        self._timeouts += 1
        if self._timeouts < TIMEOUTS:
            return
        self._pause_s = min(self._pause_s * 2, LONGEST_S) or FIRST_S
        self._until = now + self._pause_s
        if self._timeouts == TIMEOUTS:
            log.warning(
                f"{self._name} is stuck: {TIMEOUTS} transfers in a row timed out: {_ADVICE}; "
                f"it is tried again every {FIRST_S:.0f} to {LONGEST_S:.0f} s"
            )

    def moved(self) -> None:
        """An attempt showed that the bus moves: it is as new."""
        if self._timeouts >= TIMEOUTS:
            stuck_s = self._clock.monotonic() - self._since
            log.info(f"{self._name} works again after {stuck_s:.0f} s")
        self._timeouts = 0
        self._pause_s = self._until = 0.0
