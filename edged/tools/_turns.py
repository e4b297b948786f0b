"""Turns at a bus or the history: one caller's many do not make others wait for all of them.

Both serve whoever waits in order. Of each caller few wait there at a time, the others
here; so the owner, and a sensor's next sample, wait for few of everyone. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

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


@asynccontextmanager
async def turn(board: Board, place: str, who: str) -> AsyncIterator[None]:
    """Wait until few enough of the caller's are at a place.

    Args:
        board: whose buses they are.
        place: `i2c-1`, `i2c-1/0x70/3`, `spi0.1`, `history`; channels and chip selects are of
            one bus.
        who: the caller's `Caller.who`.
    """
    root = place.partition("/")[0].partition(".")[0]
    key = (id(board), root, who)
    queue = _queues.get(key)
    if queue is None:
        queue = _queues[key] = _Queue()
    queue.users += 1
    try:
        async with queue.places:
            yield
    finally:
        queue.users -= 1
        if not queue.users:
            del _queues[key]
