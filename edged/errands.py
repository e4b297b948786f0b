"""Calls that no door makes: those of jobs. The same call path, with their user's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from os.path import normpath
from typing import Any

import msgspec

from edged import arguments
from edged.dispatch import Dispatcher
from edged.identity import Caller
from edged.policy import covers
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

    async def check(
        self,
        caller: Caller,
        session: Session | None,
        name: str,
        raw: bytes,
        by: Caller | None = None,
    ) -> tuple[str, ...]:
        """Refuse what would be refused when the job runs.

        Args:
            caller: whose rights it will have.
            session: where a hidden tool was promoted.
            name: the tool's.
            raw: JSON of the arguments.
            by: who sets it up, where that is another.

        Returns:
            What may be otherwise by then, for people.

        Raises:
            EdgedError: as `Dispatcher.check`; the command is refused, or the message's target.
        """
        await self._look(caller.user, name)
        params: Any = self._dispatcher.check(caller, session, name, raw)
        services = self._dispatcher.services
        given = msgspec.to_builtins(params)
        paths = [text for text in given.values() if isinstance(text, str) and text[:1] == "/"]
        if name == "exec" and params.action in (None, "run") and params.command:
            from edged.shell import commands  # noqa: PLC0415  with the first command

            script = await services.shell.check(params.command, params.workdir)
            paths += commands.paths(script)
        # Without channels edged's own tools for messages are blocked, and refused by that.
        if name in ("message", "send_file") and (outbox := services.messages()) is not None:
            outbox.target(caller, params.channel, params.chat_id)
        return self._passing(by or caller, paths)

    def _passing(self, caller: Caller, paths: list[str]) -> tuple[str, ...]:
        """What is said of paths that are reached by a grant, which ends before a job does."""
        if not paths:
            return ()
        grants = self._dispatcher.services.policy.granted(caller, caller.session)
        found = {path for path in paths for one in grants if covers(one.path, normpath(path))}
        return tuple(
            f"{path} is reached by a permission that is good for one use or for a session: "
            "the job may run without it: put what it needs into the workspace"
            for path in sorted(found)
        )

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
