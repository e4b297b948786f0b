"""Calls that no door makes: those of jobs and subagents. The same call path and rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from os.path import normpath
from typing import Any, cast

import msgspec

from edged import arguments
from edged.dispatch import Dispatcher
from edged.errors import DeniedError, EdgedError
from edged.identity import Caller
from edged.policy import covers
from edged.registry import NAME_MAX, Format, Session
from edged.results import Result

BEGINS = frozenset({"spawn", "cron"})
"""What begins tasks; by a job, with tokens, a depth and a life of their own."""


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
        name: str,
        raw: bytes,
        by: Caller | None = None,
    ) -> tuple[str, ...]:
        """Refuse what would be refused when the job runs.

        Args:
            caller: whose rights it will have.
            name: the tool's; a hidden one need not be found first, here and in `call`.
            raw: JSON of the arguments.
            by: who sets it up, where that is another.

        Returns:
            What may be otherwise by then, for people.

        Raises:
            EdgedError: as `Dispatcher.check`; the command is refused, or the message's target,
                or there is no such agent.
        """
        self.may_begin(by or caller, name)
        await self._look(caller.user, name)
        params: Any = self._dispatcher.check(caller, name, raw)
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
        if name == "spawn":
            await services.agents().check(caller, params.agent, params.model)
        return self._passing(by or caller, paths)

    def may_begin(self, by: Caller, name: str) -> None:
        """Refuse a subagent a job by which its budget would not hold.

        Raises:
            DeniedError: it is one, and the job calls such a tool.
        """
        if name not in BEGINS or by.door != "internal":
            return
        if self._dispatcher.services.agents().is_working(by.session):
            raise DeniedError(
                f"a subagent may not have a job that calls {name}: begin tasks of your own with "
                "spawn, and report which job is wanted"
            )

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

        Raises:
            EdgedError: the call was refused.
        """
        await self._look(caller.user, name)
        session = Session(caller.session, self._dispatcher.services.clock, by_clock=False)
        return await self._dispatcher.start(caller, session, name, raw, is_named=True).wait()

    def shown(self, user: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
        """Arguments for people: without the sensitive ones, and none of a tool that is gone."""
        view = self._registry.view(user)
        tool = view.tools.get(name) or view.hidden.get(name)
        if tool is None:
            return {}
        found = arguments.without_sensitive(tool, msgspec.json.encode(given))
        return found if isinstance(found, dict) else {}

    def tools(
        self,
        caller: Caller,
        patterns: tuple[str, ...] | None,
        found: frozenset[str] = frozenset(),
        turns: int = 1,
    ) -> Toolbox:
        """The tools of one subagent.

        Args:
            caller: whose rights it has, in a session of its own.
            patterns: names, or beginnings of names with `*` last, of those that it may
                call; None is all that the caller may. A hidden tool whose whole name is
                among them need not be found.
            found: hidden tools that it need not find again.
            turns: for how many.
        """
        made = Toolbox(self._dispatcher, self._look, self._wait_fresh, caller, patterns)
        made.give(found | {*(patterns or ())}, turns)
        return made

    async def names(self, user: str) -> frozenset[str]:
        """All tools of a user, whether or not they can be called now."""
        await self._wait_fresh(user)
        return frozenset(state.name for state in self._registry.states(user))

    async def deliver(self, caller: Caller, text: str) -> None:
        """Send a message to the channel that the caller's context names.

        Raises:
            EdgedError: it was refused, or could not be kept.
        """
        raw = msgspec.json.encode({"text": text})
        result = await self.call(msgspec.structs.replace(caller, allowed=None), "message", raw)
        if result.is_error:
            raise EdgedError(result.for_llm)

    async def _look(self, user: str, name: str) -> None:
        """Make sure that a user's own tools are known; perhaps nobody asked for them yet."""
        if not self._registry.has(user, name):
            await self._wait_fresh(user)

    async def _wait_fresh(self, user: str) -> None:
        """Look for changes of a user's tools, where it is time to."""
        waits = self._fresh(user)
        if waits is not None:
            # Others wait for the same future: who is cancelled must not cancel it.
            await asyncio.wait([waits])


class Toolbox:
    """The tools of one subagent, in a session of its own; see `Errands.tools`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        look: Callable[[str, str], Awaitable[None]],
        fresh: Callable[[str], Awaitable[None]],
        caller: Caller,
        patterns: tuple[str, ...] | None,
    ) -> None:
        self._dispatcher, self._look, self._fresh = dispatcher, look, fresh
        self._caller, self._patterns = caller, patterns
        self._session = Session(caller.session, dispatcher.services.clock, by_clock=False)

    def give(self, names: frozenset[str], turns: int) -> None:
        """Make hidden tools callable, those too that come later."""
        self._session.promote(names, turns)

    async def definitions(self, form: str) -> list[dict[str, Any]]:
        """Those that it is told of now: enabled ones, and hidden ones that it found."""
        user = self._caller.user
        await self._fresh(user)
        promoted = self._session.promoted()
        pages = self._dispatcher.registry.pages(user, cast("Format", form), promoted)
        rows = [row for page in pages for row in msgspec.json.decode(page)]
        return [row for row in rows if self._is_allowed(row.get("function", row)["name"])]

    async def call(self, name: str, raw: bytes) -> Result:
        """Call one, and wait for its end.

        Raises:
            EdgedError: it was refused.
        """
        await self._look(self._caller.user, name)
        if not self._is_allowed(name):
            raise DeniedError(
                f"this agent may not call {name[:NAME_MAX]!r}: its tool_permissions lack it"
            )
        # What a tool calls in turn is held to the same names.
        caller = msgspec.structs.replace(self._caller, allowed=self._allowed())
        return await self._dispatcher.start(caller, self._session, name, raw).wait()

    def shown(self, name: str, raw: str) -> Any:
        """Arguments as a transcript may have them: known inputs, without the sensitive ones."""
        view = self._dispatcher.registry.view(self._caller.user)
        tool = view.tools.get(name) or view.hidden.get(name)
        return None if tool is None else arguments.without_sensitive(tool, raw.encode())

    def turn(self) -> None:
        """A turn is over."""
        self._session.turn()

    def close(self) -> None:
        """Its session is over, and what was the session's."""
        services = self._dispatcher.services
        for part in (services.policy, services.shell):
            if part is not None:
                part.end(self._caller.user, self._caller.session)

    def _allowed(self) -> frozenset[str] | None:
        if self._patterns is None:
            return self._caller.allowed
        view = self._dispatcher.registry.view(self._caller.user)
        return frozenset(n for n in (*view.tools, *view.hidden) if self._is_allowed(n))

    def _is_allowed(self, name: str) -> bool:
        allowed = self._caller.allowed
        if allowed is not None and name not in allowed:
            return False
        return self._patterns is None or any(_fits(name, one) for one in self._patterns)


def _fits(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern
