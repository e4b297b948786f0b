"""Calls that no door makes: those of jobs. The same call path, with their user's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from edged import arguments
from edged.dispatch import Dispatcher
from edged.identity import Caller
from edged.registry import Session
from edged.results import Result


class Errands:
    """What jobs are handed in place of the dispatcher, which lies above them.

    Args:
        dispatcher: runs tools.
        fresh: looks for changes of a user's tools; what to wait for, or None.
    """

    def __init__(
        self, dispatcher: Dispatcher, fresh: Callable[[str], asyncio.Future[None] | None]
    ) -> None:
        self._dispatcher, self._registry = dispatcher, dispatcher.registry
        self._fresh = fresh

    async def check(self, caller: Caller, session: Session | None, name: str, raw: bytes) -> None:
        """Refuse what would be refused when the job runs.

        Args:
            caller: whose rights it will have.
            session: where a hidden tool was promoted.
            name: the tool's.
            raw: JSON of the arguments.

        Raises:
            EdgedError: as `Dispatcher.check`.
        """
        await self._look(caller.user, name)
        self._dispatcher.check(caller, session, name, raw)

    def check_target(self, caller: Caller, channel: str, chat_id: str) -> None:
        """Refuse a channel or chat that the tool `message` would refuse.

        Raises:
            EdgedError: as `Outbox.target`.
        """
        outbox = self._dispatcher.services.messages()
        # Without channels edged's own `message` is blocked, and refused by that.
        if outbox is not None:
            outbox.target(caller, channel, chat_id)

    async def call(self, caller: Caller, name: str, raw: bytes) -> Result:
        """Call a tool and wait for its end.

        A hidden tool is reached for this one call: whoever set it up had promoted it.

        Raises:
            EdgedError: the call was refused.
        """
        await self._look(caller.user, name)
        session = Session(caller.session, self._dispatcher.services.clock, by_clock=False)
        if name in self._registry.view(caller.user).hidden:
            session.promote([name], 1)
        return await self._dispatcher.start(caller, session, name, raw).wait()

    def shown(self, user: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments for people: without the sensitive ones, and none of a tool that is gone."""
        view = self._registry.view(user)
        tool = view.tools.get(name) or view.hidden.get(name)
        if tool is None:
            return {}
        found = arguments.without_sensitive(tool, msgspec.json.encode(given))
        return found if isinstance(found, dict) else {}

    async def _look(self, user: str, name: str) -> None:
        """Make sure that a user's own tools are known; perhaps nobody asked for them yet."""
        if not self._registry.has(user, name):
            waits = self._fresh(user)
            if waits is not None:
                await asyncio.wait([waits])
