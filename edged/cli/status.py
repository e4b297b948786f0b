"""`edged status`: how the daemon and its parts are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from edged.cli import UsageError, show
from edged.cli.parser import Parser, add_connection, add_json, connect, positive
from edged.cli.tools import blocked
from edged.client import Client
from edged.errors import NoDaemonError

EXAMPLE = "edged status --wait-ready --timeout 30"

WAIT_S = 60.0
"""How long a daemon that starts may take, where nothing else is said."""

_RETRY_S = 0.1
_MIB = 1 << 20
_LOST = "the audit trail has gaps: edged doctor says why"
_WELL = frozenset({"ok", "unknown", "warming", "ready"})
"""States of sensors, lines and actuators that are no problem."""

_STATES = ("enabled", "disabled", "blocked", "overridden")


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--wait-ready", action="store_true", help="wait until the daemon serves all its tools"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        help="seconds to wait for that at most (60)",
    )
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.timeout is not None and not args.wait_ready:
        raise UsageError("--timeout says how long to wait: give --wait-ready too")
    client = _ready(args) if args.wait_ready else connect(args)
    found = client.request("edged/status")
    if args.json:
        show.json(found)
        return 0
    note = ""
    if found["tools"].get("blocked"):
        states = client.request("edged/tools/state")["tools"]
        note = blocked(states)
        found["tools"] = _without_overridden(found["tools"], states)
    show.facts(rows(found, note))
    return 0


def _without_overridden(counts: dict[str, int], states: list[dict[str, Any]]) -> dict[str, int]:
    """The counts with tools that another one overrides apart: those are no fault."""
    overridden = sum(row["reason_code"] == "shadowed" for row in states)
    return {**counts, "blocked": counts["blocked"] - overridden, "overridden": overridden}


def _ready(args: Any) -> Client:
    """Connect once a daemon answers, and wait for its first look at the tools."""
    deadline = time.monotonic() + (args.timeout or WAIT_S)
    while True:
        try:
            client = connect(args)
        except NoDaemonError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            # It is answered when the tools of this caller are known.
            client.request("edged/tools/state")
            return client


def rows(found: dict[str, Any], note: str) -> Iterator[tuple[str, str]]:
    """The facts for people, in the daemon's order.

    Args:
        found: the answer of `edged/status`; parts that are not known here are shown too.
        note: what is to be said of blocked tools; empty for nothing.
    """
    shown = {**found, "user": f"{found['user']}, {found['role']}"}
    del shown["role"]
    lost = [_LOST] if found["audit_lost"] else []
    shown["board"], board = _board(found["board"])
    mute: list[str] = []
    if "messages" in found:
        shown["messages"], mute = _messages(found["messages"])
    servers = found.get("mcp", {})
    mute += [f"MCP server {n}: {_failure(one)}" for n, one in servers.items() if one["error"]]
    shown["problems"] = [*found["problems"], *board, *mute, *lost, *([note] if note else [])]
    for key, value in shown.items():
        yield from _ROWS[key](value) if key in _ROWS else [(key.replace("_", " "), _text(value))]


def _board(found: dict[str, dict[str, str]]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """The parts of the board, and the problems among them, which are told once."""
    problems = []
    parts: dict[str, dict[str, str]] = {}
    for part, states in found.items():
        if part == "alarms":
            problems += [f"alarm: {channel} is {state}" for channel, state in states.items()]
            continue
        troubled = {name: state for name, state in states.items() if state not in _WELL}
        problems += [f"{part.removesuffix('s')} {name}: {troubled[name]}" for name in troubled]
        parts[part] = {**states, **dict.fromkeys(troubled, "see problems")}
    return parts, problems


def _messages(found: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The outbox, and what is wrong with its channels, which is told once."""
    channels, troubled = found["channels"], found["troubled"]
    shown = {**found, "channels": {**channels, **dict.fromkeys(troubled, "see problems")}}
    del shown["troubled"]
    return shown, [f"channel {name}: {channels[name]}" for name in troubled]


def _failure(server: dict[str, Any]) -> str:
    """How a server failed, with the last line that it wrote to standard error."""
    last = server["stderr"].strip().rpartition("\n")[2]
    error: str = server["error"]
    return f"{server['state']}: {error}" + (f" ({last})" if last and last not in error else "")


def _servers(found: dict[str, Any]) -> str:
    """Each server's state and how many tools it has; problems are told apart."""
    return "\n".join(
        f"{name} {one['state']}, {one['tools']} tools"
        + (f", {len(one['left_out'])} left out" if one["left_out"] else "")
        for name, one in found.items()
    )


def _lost(count: int) -> str:
    if not count:
        return "nothing lost"
    return f"{count} record{'s' if count > 1 else ''} lost"


def _tools(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[one]} {one}" for one in _STATES if counts.get(one)) or "none"


def _sandbox(found: dict[str, Any]) -> Iterator[str]:
    """What holds tools, and each thing to know of it; a line may come twice."""
    if "ok" not in found:
        # Not tried yet, or switched off.
        yield found.get("warning") or found["level"]
        return
    name = f"bubblewrap {'.'.join(map(str, found['version']))}".strip()
    if found["ok"]:
        yield f"{found['level']}, {name}"
        yield from filter(None, [found.get("limits", "")])
    else:
        yield f"{name} does not work: {found['error']}"
        yield from filter(None, [found["remedy"]])
    yield from found["warnings"]


def _warm(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"calls: {found['warm_calls']} warm, {found['cold_calls']} cold; "
        f"now {found['running']} running, {found['waiting']} waiting"
    )
    memory, budget = (f"{found[key] / _MIB:.0f} MiB" for key in ("memory", "budget"))
    spares = found["spares"]
    yield f"spares: {len(spares)}, {memory} of {budget}"
    if spares:
        table = [("TOOL", "LANGUAGE", "MIB", "AGE"), *map(_spare, spares)]
        columns = show.Columns(table[0], table[1:])
        yield from (f"  {columns.line(row)}" for row in table)


def _spare(one: dict[str, Any]) -> tuple[str, ...]:
    age = show.duration(one["age_s"])
    return (
        one["name"],
        one["language"],
        f"{one['memory'] / _MIB:.1f}",
        age if one["ready"] else f"{age}, starting",
    )


def _text(value: Any) -> str:
    return "\n".join(map(_flat, value)) or "none" if isinstance(value, list) else _flat(value)


def _flat(value: Any) -> str:
    """A value of any shape on one line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k.replace('_', ' ')} {_flat(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_flat, value)) or "none"
    return str(value)


_ROWS: dict[str, Callable[[Any], Iterable[tuple[str, str]]]] = {
    "uptime_s": lambda value: [("up", show.duration(value))],
    "user": lambda value: [("you are", value)],
    "tools": lambda value: [("tools", _tools(value))],
    "audit_lost": lambda value: [("audit", _lost(value))],
    "board": lambda value: [(name, _flat(part)) for name, part in value.items() if part],
    "mcp": lambda value: [("MCP servers", _servers(value))] if value else [],
    "sandbox": lambda value: [("sandbox", "\n".join(dict.fromkeys(_sandbox(value))))],
    "warm": lambda value: [("warm", "\n".join(_warm(value)))],
}
"""What needs words of its own; all else is shown as it is."""
