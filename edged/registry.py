"""Which tools there are, for whom, and how each provider is told of them.

Core tools are always there, hidden ones only while promoted in a session; a
user's tools override global ones of the same name, built-in names are reserved.
Every change raises `version`; encoded lists are cached as bytes by version, so
that a list costs no more than writing it. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from edged.clock import Clock
from edged.errors import NotFoundError, UnknownToolError
from edged.icons import icons
from edged.tool import Status, Tool

Format = Literal["mcp", "openai", "openai-responses", "anthropic"]
FORMATS: tuple[Format, ...] = ("mcp", "openai", "openai-responses", "anthropic")

PAGE = 1_000
"""Tools on one page of `tools/list`."""

NAME_MAX = 128
"""Characters of an unknown name that an error repeats."""

LISTS_MAX = 16
"""Encoded lists of one user that are kept; the one longest unused is dropped."""

FAMILIES = {
    "skills": "requires_skills",
    "subagent": "requires_subagent",
    "mcp": "requires_mcp_discovery",
    "mcp.discovery": "requires_mcp_discovery",
}
"""Parts that tools are of no use without, with the reason code of a tool that lacks one."""

TURN_S = 600.0
"""Length of a turn where the session is the identity (contract, section 9)."""


class State(msgspec.Struct, frozen=True):
    """One row of the management list (`GET /api/tools`)."""

    name: str
    description: str
    category: str
    config_key: str
    status: Status
    reason_code: str
    label: str
    source: str
    hidden: bool
    problem: str
    sandbox: str


class Change(msgspec.Struct, frozen=True):
    """What switching a tool or a family does.

    Attributes:
        switches: all switches from then on.
        switched: families that are switched on along.
        blocked: tools that lack the family from then on.
    """

    switches: dict[str, bool]
    switched: tuple[str, ...]
    blocked: tuple[str, ...]


class Session:
    """What one session has promoted, and where its turns stand.

    A promotion to N lasts for the N turns after the one that promoted it. Until
    the client says for the first time that a turn is over, rounds of calls stand
    in for turns; from then on they count for nothing.
    """

    __slots__ = (
        "_active",
        "_by_clock",
        "_clock",
        "_rounds",
        "_said",
        "_turned",
        "_turns",
        "changed",
        "id",
    )

    def __init__(self, session_id: str, clock: Clock, *, by_clock: bool) -> None:
        """A session without promotions.

        Args:
            session_id: scope key.
            clock: for turns of identity sessions.
            by_clock: the session is the identity: said turns count, or ten minutes each.
        """
        self.id = session_id
        self.changed: Callable[[], None] | None = None
        self._clock = clock
        self._by_clock = by_clock
        # Turns and rounds that each promoted name has left, the present one included.
        self._turns: dict[str, int] = {}
        self._rounds: dict[str, int] = {}
        self._active = 0
        self._said = False
        self._turned = clock.monotonic()

    def promote(self, names: Iterable[str], turns: int) -> None:
        """Make hidden tools callable for `turns` turns after this one; sets, not adds."""
        before = self.promoted()
        if not self._turns:
            self._turned = self._clock.monotonic()
        for name in names:
            self._turns[name] = self._rounds[name] = turns + 1
        self._tell(before)

    def promoted(self) -> frozenset[str]:
        """Names that are promoted right now."""
        if not self._turns:
            return frozenset()
        if self._by_clock:
            self._catch_up()
        return frozenset(self._turns if self._said or self._by_clock else self._rounds)

    def turn(self) -> None:
        """The client says that a turn is over."""
        before = self.promoted()
        self._said = True
        self._turned = self._clock.monotonic()
        self._turns = _after(self._turns, 1)
        self._tell(before)

    def call_started(self) -> None:
        """A tool call of this session begins."""
        self._active += 1

    def call_ended(self) -> None:
        """One ends; the last of an overlapping round ends the turn of a silent session."""
        self._active -= 1
        if self._rounds and not self._active:
            before = self.promoted()
            self._rounds = _after(self._rounds, 1)
            self._tell(before)

    def _catch_up(self) -> None:
        passed = int((self._clock.monotonic() - self._turned) // TURN_S)
        if passed:
            self._turned += passed * TURN_S
            self._turns = _after(self._turns, passed)

    def _tell(self, before: frozenset[str]) -> None:
        if self.changed is not None and self.promoted() != before:
            self.changed()


def _after(left: dict[str, int], ended: int) -> dict[str, int]:
    return {name: count - ended for name, count in left.items() if count > ended}


class View:
    """The tools of one user at one version."""

    __slots__ = ("hidden", "lists", "shadowed", "tools")

    def __init__(self, tools: dict[str, Tool], hidden: dict[str, Tool], rows: list[Tool]) -> None:
        self.tools = tools
        self.hidden = hidden
        self.shadowed = rows
        self.lists: dict[tuple[Any, ...], list[bytes]] = {}


class Registry:
    """All tools of the daemon."""

    def __init__(
        self, switched: dict[str, bool] | None = None, families: dict[str, bool] | None = None
    ) -> None:
        """A registry without tools.

        Args:
            switched: what owners switched, by `config_key` or family.
            families: what the configuration says of the families; on where it is silent.
        """
        self.version = 1
        self.on_change: list[Callable[[], None]] = []
        self._core: dict[str, Tool] = {}
        self._groups: dict[str, tuple[str, ...]] = {}
        self._sets: dict[str, list[Tool]] = {}
        self._switched = switched if switched is not None else {}
        self._families = dict.fromkeys(FAMILIES, True) | (families or {})
        self._views: dict[str, View] = {}

    def register(self, tool: Tool) -> None:
        """Add a core tool, or a hidden one (`tool.hidden`); replaces one of the same name."""
        self._core[tool.name] = tool
        self.touch()

    def unregister(self, name: str) -> None:
        """Take a registered tool away."""
        if self._core.pop(name, None):
            self.touch()

    def replace_group(self, group: str, tools: list[Tool]) -> None:
        """Set all core and hidden tools of one source; those that it had before are gone.

        Args:
            group: the source's name.
            tools: each with a name of its own, which no other source has.
        """
        for name in self._groups.get(group, ()):
            self._core.pop(name, None)
        taken = {tool.name: tool for tool in tools if tool.name not in self._core}
        self._groups[group] = tuple(taken)
        self._core.update(taken)
        self.touch()

    def replace_set(self, user: str, tools: list[Tool]) -> None:
        """Set all TOOL.md tools that `user` sees; the empty user is for everyone.

        Args:
            user: whose directory they come from.
            tools: usable, disabled, blocked and broken ones; the last of a name wins.
        """
        self._sets[user] = tools
        self.touch()

    def touch(self) -> None:
        """Something changed: new version, caches dropped, listeners told."""
        self.version += 1
        self._views.clear()
        for listener in self.on_change:
            listener()

    def reserved(self) -> frozenset[str]:
        """Names that TOOL.md tools may not take."""
        return frozenset(self._core)

    def switch(self, name: str, enabled: bool, user: str) -> Change:
        """What it takes to switch a tool or a family on or off for everyone.

        A tool that is switched on gets the families that it requires.

        Raises:
            NotFoundError: no such tool.
        """
        view = self.view(user)
        rows = (*view.tools.values(), *view.hidden.values(), *view.shadowed)
        tool = next((t for t in rows if t.name == name), None)
        if tool is None and name not in FAMILIES:
            raise NotFoundError(f"no tool named {name[:NAME_MAX]!r}")
        # `mcp.discovery` is a part of `mcp`.
        needs = tool.requires if tool is not None else (name.rpartition(".")[0],)
        along = tuple(f for f in needs if enabled and f and not self.is_on(f))
        key = tool.config_key if tool is not None else name
        lost = self._dependants(rows, key) if tool is None and not enabled else ()
        return Change({**self._switched, **dict.fromkeys((key, *along), enabled)}, along, lost)

    def _dependants(self, rows: Iterable[Tool], family: str) -> tuple[str, ...]:
        """Tools that can be used now, and not without that family."""
        return tuple(
            sorted(t.name for t in rows if family in t.requires and self.status(t)[0] == "enabled")
        )

    def is_on(self, family: str) -> bool:
        """Whether a family is switched on: by an owner, else by the configuration."""
        return self._switched.get(family, self._families[family])

    def set_switches(self, switches: dict[str, bool]) -> None:
        """Use stored switches from here on."""
        self._switched.clear()
        self._switched.update(switches)
        self.touch()

    def view(self, user: str) -> View:
        """The tools of one user, merged; cached until the next change."""
        view = self._views.get(user)
        if view is None:
            view = self._views[user] = self._merge(user)
        return view

    def has(self, user: str, name: str) -> bool:
        """Whether a name is known for good: no look for changes may give it to another tool.

        Until a user's own directory was looked at, a global tool may be overridden there.
        """
        if name in self._core:
            return True
        if user not in self._sets or "" not in self._sets:
            return False
        view = self.view(user)
        return name in view.tools or name in view.hidden

    def _merge(self, user: str) -> View:
        tools: dict[str, Tool] = {}
        rows: list[Tool] = []
        for owner in dict.fromkeys(("", user)):
            for tool in self._sets.get(owner, ()):
                before = tools.get(tool.name)
                if before is not None and tool.reason_code == "invalid" != before.reason_code:
                    # A broken directory hides nothing.
                    rows.append(tool)
                    continue
                if before is not None:
                    rows.append(before)
                tools[tool.name] = tool
        hidden = {name: tools.pop(name) for name in [*tools] if tools[name].hidden}
        for name, tool in self._core.items():
            if name in hidden:
                rows.append(hidden.pop(name))
            if name in tools:
                rows.append(tools.pop(name))
            (hidden if tool.hidden else tools)[name] = tool
        return View(dict(sorted(tools.items())), dict(sorted(hidden.items())), rows)

    def find(
        self, user: str, name: str, session: Session | None, *, is_named: bool = False
    ) -> Tool:
        """The tool that a call by `name` reaches.

        Args:
            user: who calls.
            name: the tool's.
            session: where hidden tools are promoted.
            is_named: a hidden tool is reached unpromoted.

        Raises:
            UnknownToolError: none, or a hidden one that is not promoted.
        """
        view = self.view(user)
        tool = view.tools.get(name)
        if tool is None:
            tool = view.hidden.get(name)
            is_reached = is_named or (session is not None and name in session.promoted())
            if tool is None or not is_reached:
                from edged.yamlio import nearest  # noqa: PLC0415  only for an error message

                raise UnknownToolError(name[:NAME_MAX], nearest(name, view.tools))
        return tool

    def status(self, tool: Tool) -> tuple[Status, str]:
        """Status and reason code, with the owner's switches applied."""
        if tool.status == "blocked":
            return "blocked", tool.reason_code
        if not self._switched.get(tool.config_key, tool.status == "enabled"):
            return "disabled", ""
        if tool.reason_code:
            # What the configuration switched off may be blocked as well.
            return "blocked", tool.reason_code
        for family in tool.requires:
            if not self.is_on(family):
                return "blocked", FAMILIES[family]
        return "enabled", ""

    def problem(self, tool: Tool) -> str:
        """Why a blocked tool is blocked, and what to do; empty for others."""
        if tool.problem or not tool.requires or self.status(tool)[0] != "blocked":
            return tool.problem
        lacking = next(family for family in tool.requires if not self.is_on(family))
        return f"{lacking} is switched off: edged tools --enable {tool.name}"

    def states(self, user: str) -> list[State]:
        """Every tool with its state, shadowed and broken ones too, sorted by name."""
        view = self.view(user)
        rows = [self._state(t) for t in (*view.tools.values(), *view.hidden.values())]
        for tool in view.shadowed:
            row = self._state(tool)
            winner = view.tools.get(tool.name) or view.hidden.get(tool.name)
            if winner is not None and tool.reason_code not in _OUT_OF_PLAY:
                reason = f"overridden by the tool of the same name in {winner.source}"
                row = msgspec.structs.replace(
                    row, status="blocked", reason_code="shadowed", problem=reason
                )
            rows.append(row)
        return sorted(rows, key=lambda row: (row.name, row.source))

    def _state(self, tool: Tool) -> State:
        status, reason = self.status(tool)
        return State(
            tool.name,
            tool.description,
            tool.category,
            tool.config_key,
            status,
            reason,
            tool.label,
            tool.source,
            tool.hidden,
            self.problem(tool),
            tool.sandbox,
        )

    def listed(self, user: str, promoted: frozenset[str]) -> list[Tool]:
        """What an agent sees: enabled tools and promoted hidden ones, sorted by name."""
        view = self.view(user)
        tools = [t for t in view.tools.values() if self.status(t)[0] == "enabled"]
        shown = [view.hidden[n] for n in promoted if n in view.hidden]
        if not shown:
            return tools
        shown = [t for t in shown if self.status(t)[0] == "enabled"]
        return sorted((*tools, *shown), key=lambda t: t.name)

    def pages(self, user: str, form: Format, promoted: frozenset[str]) -> list[bytes]:
        """The encoded definitions in pages of `PAGE`: each a JSON array, cached."""
        view = self.view(user)
        key = (form, promoted)
        pages = view.lists.pop(key, None)
        if pages is None:
            if len(view.lists) >= LISTS_MAX:
                del view.lists[next(iter(view.lists))]
            definition = _DEFINITIONS[form]
            encode = msgspec.json.Encoder().encode
            tools = self.listed(user, promoted)
            rows = [encode(definition(t)) for t in tools]
            pages = [
                b"[" + b",".join(rows[i : i + PAGE]) + b"]"
                for i in range(0, max(len(rows), 1), PAGE)
            ]
        view.lists[key] = pages
        return pages


_OUT_OF_PLAY = frozenset({"invalid", "reserved_name"})
"""Reasons of tools that no other one overrides: they could not be called anyway."""


def _mcp(tool: Tool) -> dict[str, Any]:
    hints = tool.hints
    output = {} if tool.output_schema is None else {"outputSchema": tool.output_schema}
    return {
        "name": tool.name,
        "title": tool.label,
        "description": tool.description,
        "inputSchema": tool.schema,
        **output,
        "icons": icons(tool.category),
        "annotations": {
            "title": tool.label,
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
        **({"_meta": {"edged/via": tool.via}} if tool.via else {}),
    }


def _openai(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.schema,
        },
    }


def _openai_responses(tool: Tool) -> dict[str, Any]:
    # `strict` is on by default there and would demand that every input is required.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema,
        "strict": False,
    }


def _anthropic(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.schema,
    }


_DEFINITIONS: dict[Format, Callable[[Tool], dict[str, Any]]] = {
    "mcp": _mcp,
    "openai": _openai,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
}
