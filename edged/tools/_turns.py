"""Turns at a bus or the history: one caller's many do not make others wait for all of them.

Both serve whoever waits in order. Of each caller few wait there at a time, the others
here; so the owner, and a sensor's next sample, wait for few of everyone. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from edged.board import Board

AT_ONCE = 2
"""Of one caller at one place: while one ends, the next is there already."""


class _Queue:
    __slots__ = ("places", "users")

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(AT_ONCE)
        self.users = 0


_queues: dict[Hashable, _Queue] = {}
"""Those that somebody waits in or came through, by board, place and caller."""


class turn:  # noqa: N801  used as a function
    """Waits until few enough of the caller's are at a place.

    Args:
        board: whose buses they are.
        place: `i2c-1`, `i2c-1/0x70/3`, `spi0.1`, `history`; channels and chip selects are of
            one bus.
        who: the caller's `Caller.who`.
    """

    __slots__ = ("_key",)

    def __init__(self, board: Board, place: str, who: str) -> None:
        root = place.partition("/")[0].partition(".")[0]
        self._key = (id(board), root, who)

    async def __aenter__(self) -> None:
        queue = _queues.get(self._key)
        if queue is None:
            queue = _queues[self._key] = _Queue()
        queue.users += 1
        try:
            await queue.places.acquire()
        except BaseException:
            self._leave(queue)
            raise

    async def __aexit__(self, *_error: object) -> None:
        queue = _queues[self._key]
        try:
            queue.places.release()
        finally:
            self._leave(queue)

    def _leave(self, queue: _Queue) -> None:
        queue.users -= 1
        if not queue.users:
            del _queues[self._key]
