"""Searches for hidden tools (contract, section 9).

What is searched is indexed when somebody first searches, and again only when other
tools are there. Loop thread only; what takes long is done on a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from edged.errors import BusyError
from edged.identity import Caller
from edged.matcher import Matcher
from edged.registry import Registry
from edged.search import Ranking, Whole, literals
from edged.sections import Discovery
from edged.tool import Tool

USERS_MAX = 8
"""Users whose hidden tools are kept indexed; the one longest unused is dropped."""

WAITING_MAX = 4
"""Searches of one caller that wait or run."""


class Found(msgspec.Struct, frozen=True):
    """Tools that match, best first.

    Attributes:
        tools: at most `max_search_results`.
        total: how many match.
        turns: for which each can be called, once it is promoted.
    """

    tools: tuple[Tool, ...]
    total: int
    turns: int


class _Shelf:
    """The hidden tools of one user, and what was made of them."""

    def __init__(self, tools: list[Tool]) -> None:
        self.tools = tools
        self.texts = [f"{tool.name}\n{_about(tool)}" for tool in tools]
        self._whole: Whole | None = None
        self._ranking: Ranking | None = None
        self._making = asyncio.Lock()

    def containing(self, parts: list[str], count: int) -> tuple[list[int], int]:
        """As `Whole.containing`; on a thread, where two may make the same one."""
        whole = self._whole = self._whole or Whole(self.texts)
        return whole.containing(parts, count)

    async def ranking(self) -> Ranking:
        async with self._making:
            if self._ranking is None:
                pairs = [(tool.name, _about(tool)) for tool in self.tools]
                self._ranking = await asyncio.to_thread(Ranking, pairs)
        return self._ranking


class Finder:
    """Finds hidden tools by words or by a pattern; `close` ends its process."""

    def __init__(
        self, registry: Registry, settings: Discovery, matcher: Matcher | None = None
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._matcher = matcher or Matcher()
        self._shelves: dict[str, tuple[int, _Shelf]] = {}
        self._waiting: dict[str, int] = {}

    def close(self) -> None:
        """End what runs beside the daemon."""
        self._matcher.close()

    async def by_words(self, caller: Caller, query: str) -> Found:
        """Hidden tools by the words of their names and descriptions (BM25)."""

        async def search(shelf: _Shelf, count: int) -> tuple[list[int], int]:
            ranking = await shelf.ranking()
            return await asyncio.to_thread(ranking.best, query, count)

        return await self._find(caller, search)

    async def by_pattern(self, caller: Caller, pattern: str) -> Found:
        """Hidden tools whose name or description matches a regular expression.

        Raises:
            InvalidArgumentsError: it is none, or takes too long.
            BusyError: too many searches of this caller wait.
        """

        async def search(shelf: _Shelf, count: int) -> tuple[list[int], int]:
            parts = literals(pattern)
            if parts:
                return await asyncio.to_thread(shelf.containing, parts, count)
            # Where nothing is hidden too: a wrong pattern is told of all the same.
            return await self._matcher.find(shelf.texts, pattern, count)

        return await self._find(caller, search)

    async def _find(
        self,
        caller: Caller,
        search: Callable[[_Shelf, int], Awaitable[tuple[list[int], int]]],
    ) -> Found:
        shelf = self._shelf(caller.user)
        who = caller.who
        waiting = self._waiting.get(who, 0)
        if waiting >= WAITING_MAX:
            raise BusyError(f"{WAITING_MAX} searches of {who} wait: wait for one to end")
        self._waiting[who] = waiting + 1
        try:
            numbers, total = await search(shelf, self._settings.max_search_results)
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]
        return Found(tuple(shelf.tools[n] for n in numbers), total, self._settings.ttl)

    def _shelf(self, user: str) -> _Shelf:
        version, shelf = self._shelves.pop(user, (0, None))
        if shelf is None or version != self._registry.version:
            hidden = self._registry.view(user).hidden.values()
            tools = [t for t in hidden if self._registry.status(t)[0] == "enabled"]
            known = [shelf] if shelf is not None else []
            known += [other for _, other in self._shelves.values()]
            shelf = next((one for one in known if _same(one.tools, tools)), None) or _Shelf(tools)
            if len(self._shelves) >= USERS_MAX:
                del self._shelves[next(iter(self._shelves))]
        self._shelves[user] = self._registry.version, shelf
        return shelf


def _about(tool: Tool) -> str:
    return tool.description if tool.label == tool.name else f"{tool.label}\n{tool.description}"


def _same(one: list[Tool], other: list[Tool]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
