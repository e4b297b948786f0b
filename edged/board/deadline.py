"""A dead man's handle: what nobody holds goes to its safe state. Loop thread only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from edged import log
from edged.errors import EdgedError


class Deadline:
    """Runs `expire` so long after it was held last.

    Args:
        name: of what is held, for the log: `gpio pump`.
        seconds: 0 is never.
        expire: brings it to its safe state; may raise `EdgedError`.
        expired: is told once it is safe.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        expire: Callable[[], Awaitable[None]],
        expired: Callable[[], None],
    ) -> None:
        self._name, self._seconds = name, seconds
        self._expire, self._expired = expire, expired
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None

    def hold(self) -> None:
        """Begin anew."""
        self._cancel()
        if self._seconds > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._end)

    async def stop(self) -> None:
        """No more; what is under way is waited for."""
        self._cancel()
        if self._expiring is not None:
            await asyncio.wait([self._expiring])

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self._expiring = asyncio.create_task(self._to_safe(), name=f"deadline {self._name}")

    async def _to_safe(self) -> None:
        try:
            await self._expire()
        except EdgedError as error:
            log.error(f"{self._name} may not be in its safe state: {error}")
            return
        log.warning(f"{self._name}: nobody held it for {self._seconds:g} s: safe state")
        self._expired()
