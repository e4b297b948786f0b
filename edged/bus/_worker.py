"""A thread of its own for what blocks on a bus, one job after the other.

Jobs run in the order in which they were handed in, so that the order of a bus is
total; the loop never waits. Whoever hands jobs in decides who may (`edged.bus`
holds a bus by a lock on the loop).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, get_ident
from typing import NamedTuple, TypeVar, TypeVarTuple, cast

from edged.errors import NoDeviceError

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

CLOSE_S = 2.0
"""How long `close` waits for jobs: kernels give up on a stuck I2C bus within one second."""


class Worker:
    """Runs blocking functions on its thread, which starts with the first; loop thread only.

    Args:
        name: of the thread, as tools like `ps` and `py-spy` show it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[_Job | None] = deque()
        # The thread sleeps on it: the kernel wakes a reader sooner than a lock's waiter.
        self._bell = -1
        self._thread: Thread | None = None
        self._closed = False

    @property
    def is_current(self) -> bool:
        """Whether it is this thread that asks; any may."""
        return self._thread is not None and self._thread.ident == get_ident()

    async def run(self, function: Callable[[*_Args], _T], *args: *_Args) -> _T:
        """What the function returns or raises.

        Who is cancelled while waiting leaves nothing behind: a job that has not
        begun is left out; one that runs is not to be stopped, the next begins after it.

        Raises:
            NoDeviceError: the worker is closed.
        """
        if self._closed:
            raise NoDeviceError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        if self._thread is None:
            self._start()
        self._hand_in(_Job(lambda: function(*args), future, loop))
        try:
            return cast("_T", await future)
        finally:
            # An error's traceback holds this frame: without this, a cycle.
            del future

    def post(self, function: Callable[[*_Args], None], *args: *_Args) -> None:
        """Runs a function that raises nothing, at its turn; at once when there is no thread."""
        if self._closed or self._thread is None:
            function(*args)
        else:
            self._hand_in(_Job(lambda: function(*args), None, None))

    def close(self) -> None:
        """Ends the thread after the jobs that are waiting; waits `CLOSE_S` at most."""
        self._closed = True
        if self._thread is not None:
            self._hand_in(None)
            self._thread.join(CLOSE_S)
            # Here and not on the thread: it may see the end before the bell for it rings, and
            # a number that was given back may be another file's by then.
            if not self._thread.is_alive():
                os.close(self._bell)
            self._thread = None

    def _start(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC)
        # Not waited for by the interpreter: a job may hang in the kernel.
        self._thread = Thread(
            target=_work, args=(self._jobs, self._bell), name=self._name, daemon=True
        )
        self._thread.start()

    def _hand_in(self, job: _Job | None) -> None:
        self._jobs.append(job)
        os.eventfd_write(self._bell, 1)


class _Job(NamedTuple):
    call: Callable[[], object]
    future: asyncio.Future[object] | None
    loop: asyncio.AbstractEventLoop | None


def _work(jobs: deque[_Job | None], bell: int) -> None:
    while True:
        os.eventfd_read(bell)
        while jobs:
            job = jobs.popleft()
            if job is None:
                return
            _do(job)
            # Until the next job comes, this frame must not keep what the last one used.
            del job


def _do(job: _Job) -> None:
    if job.future is None or job.loop is None:
        job.call()
        return
    if job.future.cancelled():
        return
    result, error = None, None
    try:
        result = job.call()
    except BaseException as caught:  # noqa: BLE001  it belongs to whoever waits
        error = caught
    # A loop that ended has nobody who waits.
    with suppress(RuntimeError):
        job.loop.call_soon_threadsafe(_settle, job.future, result, error)
    # As in `Worker.run`.
    del job, error


def _settle(future: asyncio.Future[object], result: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
