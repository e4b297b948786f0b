"""Places for calls: in order for each user, in turn among users, never all for one agent.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque

from edged.errors import BusyError


class Gate:
    """So many places, and a bounded queue before them."""

    def __init__(self, places: int, queue_max: int, what: str = "a sandbox") -> None:
        self._places = places
        self._what = what
        self._queue_max = queue_max
        self._held: dict[str, int] = {}
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Of users who wait, the one whose turn is next first."""
        self._owners: set[str] = set()

    @property
    def waiting(self) -> int:
        """Calls without a place."""
        return sum(len(queue) for queue in self._queues.values())

    async def enter(self, user: str, *, owner: bool = True) -> None:
        """Take a place, in turn.

        Args:
            user: who; an agent has at most three quarters of the places and of the queue.
            owner: whether all of them may be theirs.

        Raises:
            BusyError: too many calls wait.
        """
        if owner:
            self._owners.add(user)
        if not self._queues and self._is_free(user):
            self._take(user)
            return
        queue = self._queues.get(user)
        mine = len(queue) if queue else 0
        if self.waiting >= self._queue_max or mine >= self._share(user, self._queue_max):
            raise BusyError(
                f"{self.waiting} calls wait for {self._what}, the most that may: try again later"
            )
        if queue is None:
            queue = self._queues[user] = deque()
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(user)
            else:
                self._forget(user, turn)
            raise

    def leave(self, user: str) -> None:
        """Give a place back."""
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
            if user not in self._queues:
                self._owners.discard(user)
        self._admit()

    def _admit(self) -> None:
        """Give free places to those whose turn it is."""
        passed = 0
        while passed < len(self._queues):
            user = next(iter(self._queues))
            queue = self._queues.pop(user)
            if not self._is_free(user):
                self._queues[user] = queue
                passed += 1
                continue
            passed = 0
            self._take(user)
            queue.popleft().set_result(None)
            if queue:
                self._queues[user] = queue

    def _is_free(self, user: str) -> bool:
        if sum(self._held.values()) >= self._places:
            return False
        return self._held.get(user, 0) < self._share(user, self._places)

    def _share(self, user: str, whole: int) -> int:
        """How much of it one user may have."""
        return whole if user in self._owners else max(1, whole * 3 // 4)

    def _take(self, user: str) -> None:
        self._held[user] = self._held.get(user, 0) + 1

    def _forget(self, user: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(user)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[user]
