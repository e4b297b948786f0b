"""Who is told that a list changed: the peers of one door. Loop thread only.

A scan changes many tools at once: one notice for all. While a peer is there that wants to
be told, its user's directory is looked at now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edged.control import Control
from edged.events import Event
from edged.mcp.server import Connection

WATCH_S = 2.0
"""Between two looks for tools that were added."""

NOTICE_S = 0.05
"""From the first change to the notice."""

_KINDS = {"skills.changed": ("prompts",), "hardware.changed": ("resources",)}
"""Which lists an event changes."""


class Notices:
    """The peers of one door, as far as they hear of changes."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._peers: set[Connection] = set()
        self._changed: dict[str, None] = {}
        self._notice: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._stop: Callable[[], None] | None = None
        self._is_closed = False
        control.registry.on_change.append(self._tools)

    def join(self, connection: Connection) -> None:
        """Tell this peer of changes from here on, if it ever wants to hear of them."""
        self._peers.add(connection)

    def leave(self, connection: Connection) -> None:
        """It is gone."""
        self._peers.discard(connection)

    def watch(self) -> None:
        """A peer may want to be told from now on."""
        if self._watch is None and not self._is_closed:
            self._watch = asyncio.get_running_loop().call_later(WATCH_S, self._look)
        if self._stop is None and not self._is_closed:
            self._stop = self._control.services.events.subscribe(self._happened, tuple(_KINDS))

    def close(self) -> None:
        """Tell nobody any more."""
        self._is_closed = True
        for timer in (self._notice, self._watch):
            if timer is not None:
                timer.cancel()
        self._notice = self._watch = None
        self._listen_no_more()

    def _listen_no_more(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def _look(self) -> None:
        self._watch = None
        users = {user for peer in self._peers if (user := peer.user_told) is not None}
        for user in users:
            self._control.catalogue.look(user)
        if users:
            self.watch()
        else:
            self._listen_no_more()

    def _tools(self) -> None:
        self._change("tools", "resources")

    def _happened(self, event: Event) -> None:
        self._change(*_KINDS[event.kind])

    def _change(self, *kinds: str) -> None:
        if self._is_closed or not self._peers:
            return
        self._changed.update(dict.fromkeys(kinds))
        if self._notice is None:
            self._notice = asyncio.get_running_loop().call_later(NOTICE_S, self._tell)

    def _tell(self) -> None:
        self._notice = None
        kinds, self._changed = self._changed, {}
        for peer in tuple(self._peers):
            for kind in kinds:
                peer.changed(kind)
