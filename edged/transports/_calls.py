"""Asynchronous calls over HTTP: running ones, and results that wait to be fetched.

Bounded in number, bytes and age, and one user takes half of it at most: the oldest
result goes first, a running call is never dropped. Loop thread only.
"""

from __future__ import annotations

import msgspec

from edged.clock import Clock
from edged.dispatch import Call
from edged.errors import BusyError, NotFoundError
from edged.events import Events
from edged.identity import Caller
from edged.results import Result, complete, failure

KEPT = 256
AGE_MAX_S = 3_600.0
BYTES_MAX = 8 << 20
"""Bytes of all kept results together."""

EVENT_MAX = 8 << 10
"""Bytes up to which a result is part of its event."""


def location(call_id: str) -> str:
    """Where the result of a call is fetched."""
    return f"/api/calls/{call_id}"


def outcome(call: Call) -> Result:
    """The result of an ended call; a failure that says so for a cancelled one."""
    if call.result is not None:
        return call.result
    result = complete(failure("the call was cancelled"))
    result.call_id = call.id
    return result


class _Kept:
    __slots__ = ("call", "data", "ended")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.data = b""
        self.ended = 0.0

    @property
    def user(self) -> str:
        return self.call.caller.user


class Calls:
    """The table."""

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._table: dict[str, _Kept] = {}
        self._bytes = 0

    def make_room(self, user: str) -> None:
        """Make sure that one more call of a user fits.

        Raises:
            BusyError: so many are running.
        """
        self._expire()
        while sum(k.user == user for k in self._table.values()) >= KEPT // 2:
            if not self._drop_oldest(user):
                most = f"{KEPT // 2} asynchronous calls of {user}"
                raise BusyError(f"{most} are running: wait for one to end")
        while len(self._table) >= KEPT:
            if not self._drop_oldest():
                raise BusyError(f"{KEPT} asynchronous calls are running: wait for one to end")

    def add(self, call: Call) -> None:
        """Keep a call, and its result once it ends."""
        kept = self._table[call.id] = _Kept(call)
        call.when_done(lambda _: self._ended(kept))

    def get(self, caller: Caller, call_id: str) -> bytes:
        """The encoded result; empty while the call runs.

        Raises:
            NotFoundError: none, or another caller's.
        """
        return self._find(caller, call_id).data

    def end(self, caller: Caller, call_id: str) -> None:
        """Cancel a running call; forget the result of an ended one.

        Raises:
            NotFoundError: none, or another caller's.
        """
        kept = self._find(caller, call_id)
        if kept.data:
            self._forget(call_id)
        else:
            kept.call.cancel()

    def _find(self, caller: Caller, call_id: str) -> _Kept:
        self._expire()
        kept = self._table.get(call_id)
        if kept is None or not (caller.is_owner or kept.call.caller.user == caller.user):
            raise NotFoundError(f"no call {call_id[:80]!r}: results are kept for an hour")
        return kept

    def _ended(self, kept: _Kept) -> None:
        call = kept.call
        kept.data = msgspec.json.encode(outcome(call))
        kept.ended = self._clock.monotonic()
        # Re-entered at the end: the table is in the order of what ended longest ago.
        self._table[call.id] = self._table.pop(call.id)
        self._bytes += len(kept.data)
        while self._bytes_of(kept.user) > BYTES_MAX // 2 and self._drop_oldest(
            kept.user, but=kept
        ):
            continue
        while self._bytes > BYTES_MAX and self._drop_oldest(but=kept):
            continue
        small = len(kept.data) <= EVENT_MAX
        self._events.publish(
            "call.result",
            call.caller.user,
            {
                "call_id": call.id,
                "tool": call.name,
                "location": location(call.id),
                "result": msgspec.json.decode(kept.data) if small else None,
            },
        )

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - AGE_MAX_S
        for call_id, kept in tuple(self._table.items()):
            if kept.data and kept.ended < oldest:
                self._forget(call_id)

    def _bytes_of(self, user: str) -> int:
        return sum(len(k.data) for k in self._table.values() if k.user == user)

    def _drop_oldest(self, user: str | None = None, but: _Kept | None = None) -> bool:
        for call_id, kept in self._table.items():
            if kept.data and kept is not but and user in (None, kept.user):
                self._forget(call_id)
                return True
        return False

    def _forget(self, call_id: str) -> None:
        self._bytes -= len(self._table.pop(call_id).data)
