"""A dead man's handle: what nobody holds goes to its safe state. Loop thread only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from edged import log

RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
"""What could not be brought to its safe state is tried again so soon, then ever less often."""


class Deadline:
    """Runs `expire` so long after it was held last, until that succeeds.

    Args:
        name: of what is held, for the log: `gpio pump`.
        seconds: 0 is never.
        expire: brings it to its safe state.
        expired: is told once it is safe.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        expire: Callable[[], Awaitable[None]],
        expired: Callable[[], None],
    ) -> None:
        self._name, self.seconds = name, seconds
        self._expire, self._expired = expire, expired
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._retry_s = RETRY_MIN_S
        self._stopped = False

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Begin anew now and at the end: what fails or is cancelled halfway has an effect too."""
        self._hold()
        try:
            yield
        finally:
            self._hold()

    async def stop(self) -> None:
        """No more, for good; what is under way is waited for."""
        self._stopped = True
        self._cancel()
        if self._expiring is not None:
            await asyncio.wait([self._expiring])

    def _hold(self) -> None:
        self._cancel()
        self._retry_s = RETRY_MIN_S
        if self.seconds > 0:
            self._start(self.seconds)

    def _start(self, wait_s: float) -> None:
        if not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._end)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.create_task(self._to_safe(), name=f"deadline {self._name}")

    async def _to_safe(self) -> None:
        try:
            await self._expire()
        except Exception as error:  # noqa: BLE001  whatever it was, the output may still be on
            if self._timer is None:
                self._try_again(error)
            return
        log.warning(f"{self._name}: nobody held it for {self.seconds:g} s: safe state")
        self._expired()

    def _try_again(self, error: Exception) -> None:
        if self._retry_s == RETRY_MIN_S:
            log.error(f"{self._name} may not be in its safe state, trying again: {error}")
        self._start(self._retry_s)
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
