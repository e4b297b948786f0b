"""Where work on files waits for the disk, and the order of changes to one file.

A few threads, so that a slow disk holds up file calls alone; what is cancelled learns of
it and ends soon. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from edged.errors import BusyError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

THREADS = 4
"""Twice what one caller takes: a slow file of one leaves room for the others."""


class Stop:
    """Whether the caller has gone; called from the thread, asked for on the loop."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        """Whether to end."""
        return self.asked


class Threads:
    """The threads of all file work; none until the first needs one."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._stops: set[Stop] = set()

    async def run(self, work: Callable[[Stop], T]) -> T:
        """Work on a thread; on a cancel it is told to stop, and not waited for.

        Args:
            work: closes what it opens, and asks now and then whether to stop.
        """
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  at the first work

            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="files")
        stop = Stop()
        self._stops.add(stop)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, stop)
        except asyncio.CancelledError:
            stop.asked = True
            raise
        finally:
            self._stops.discard(stop)

    async def close(self) -> None:
        """End all work and the threads."""
        for stop in self._stops:
            stop.asked = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)


HELD_MAX = 32 << 20
"""Bytes of content that wait to be written, of all calls; one call always may."""


class Changes:
    """Lets those who change one file do so one after the other, and not too many wait."""

    def __init__(self) -> None:
        self._held = 0
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Count what a call has in memory until it is written.

        Raises:
            BusyError: too much waits already.
        """
        if self._held and self._held + size > HELD_MAX:
            raise BusyError(
                f"{self._held >> 20} MiB wait to be written: try again when a call has ended"
            )
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    @asynccontextmanager
    async def of(self, path: str) -> AsyncIterator[None]:
        """Wait until nobody changes a file; its name on the host says which."""
        lock = self._locks.setdefault(path, asyncio.Lock())
        self._users[path] = self._users.get(path, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[path] -= 1
            if not self._users[path]:
                del self._users[path], self._locks[path]
