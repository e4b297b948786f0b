"""What happened, for those who watch: a ring of the last events and its subscribers.

Bounded on both sides: the ring keeps 1,000 events, a subscriber that does not
read loses the oldest and is told so by a `gap` event. Loop thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from edged import log
from edged.clock import Clock, iso

KEPT = 1000

MESSAGE = "message"
"""The kind of event whose text may be long."""

TEXT_MAX = 4 << 20
"""Characters of all texts of messages in the ring."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event.

    Attributes:
        id: rises by one. A daemon starts with the microseconds since 1970, so that an id
            of an earlier run (or one from before a jump of the clock) is known as such.
        kind: `call.start`, `call.update`, `call.end`, `tools.changed`, `gap`, …
        time: RFC 3339, UTC.
        user: whose it is; owners see all. Empty: everyone's.
        data: facts of the event, without sensitive values.
    """

    id: int
    kind: str
    time: str
    user: str
    data: dict[str, Any]


class Events:
    """The daemon's event bus."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: deque[tuple[int, float, str, str, dict[str, Any]]] = deque(maxlen=KEPT)
        self._texts: deque[tuple[int, int]] = deque()
        """Messages in the ring, and how long the text of each is."""
        self._listeners: dict[int, Callable[[Event], None]] = {}
        self._of_kind: dict[str, dict[int, Callable[[Event], None]]] = {}
        self._failing: set[int] = set()
        self._next_listener = 0
        self.last_id = int(clock.now() * 1_000_000)

    def publish(self, kind: str, user: str, data: dict[str, Any]) -> None:
        """Record an event and hand it to every subscriber; one that fails harms nobody else."""
        self.last_id += 1
        row = (self.last_id, self._clock.now(), kind, user, data)
        self._ring.append(row)
        if kind == MESSAGE:
            self._hold(self.last_id, len(str(data.get("text", ""))))
        of_kind = self._of_kind.get(kind)
        if self._listeners or of_kind:
            event = _event(row)
            for key, listener in (*self._listeners.items(), *(of_kind or {}).items()):
                try:
                    listener(event)
                except Exception as error:  # noqa: BLE001  the publisher's work goes on
                    self._failed(key, error)

    def _hold(self, number: int, size: int) -> None:
        """Let the oldest events go where messages are too long to keep so many."""
        texts, ring = self._texts, self._ring
        texts.append((number, size))
        while texts and texts[0][0] < ring[0][0]:
            texts.popleft()
        while sum(size for _, size in texts) > TEXT_MAX and len(texts) > 1:
            oldest, _ = texts.popleft()
            while ring[0][0] <= oldest:
                ring.popleft()

    def _failed(self, key: int, error: Exception) -> None:
        if key not in self._failing:
            self._failing.add(key)
            log.error(f"a listener of events failed: {type(error).__name__}: {error}")

    def subscribe(
        self, listener: Callable[[Event], None], kinds: tuple[str, ...] = ()
    ) -> Callable[[], None]:
        """Call `listener` for each event from here on; returns the way to stop it.

        Args:
            listener: is told.
            kinds: those that it is told of; empty for all. Others cost nothing then.
        """
        key = self._next_listener
        self._next_listener += 1
        tables = [self._of_kind.setdefault(kind, {}) for kind in kinds] or [self._listeners]
        for table in tables:
            table[key] = listener

        def stop() -> None:
            for table in tables:
                table.pop(key, None)
            self._failing.discard(key)

        return stop

    def since(self, last_id: int) -> list[Event]:
        """The kept events after `last_id`, led by a `gap` event when some are gone.

        Args:
            last_id: the last one that the asker has; 0 is none.
        """
        oldest = self._ring[0][0] if self._ring else self.last_id + 1
        known = oldest - 1 <= last_id <= self.last_id
        events = [_event(row) for row in self._ring if not known or row[0] > last_id]
        if last_id and not known:
            events.insert(0, self.gap(last_id, oldest))
        return events

    def gap(self, last_id: int, oldest: int) -> Event:
        """The event that says that those between `last_id` and `oldest` are gone."""
        data = {"after": last_id, "next": oldest}
        return Event(oldest - 1, "gap", iso(self._clock.now()), "", data)


def _event(row: tuple[int, float, str, str, dict[str, Any]]) -> Event:
    number, time, kind, user, data = row
    return Event(number, kind, iso(time), user, data)


def visible(event: Event, user: str, *, owner: bool) -> bool:
    """Whether a caller may see an event: its own, everyone's, or any for an owner."""
    return owner or not event.user or event.user == user
