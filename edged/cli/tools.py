"""`edged tools`: what can be called, and why the rest cannot."""

from __future__ import annotations

import os
import sys
from typing import Any

from edged.cli import UsageError, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.client import Client
from edged.errors import EdgedError
from edged.registry import FAMILIES

EXAMPLE = "edged tools --all\nedged tools --format anthropic > tools.json"
FORMATS = ("text", "mcp", "openai", "openai-responses", "anthropic")
SOURCE_MAX = 32
STATUS_COLOURS = {"enabled": "green", "disabled": "yellow", "blocked": "red"}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.stray = "edged describe {}"
    parser.add_argument(
        "--all", action="store_true", help="also hidden, disabled, blocked and shadowed ones"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help="definitions for a provider, as JSON"
    )
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", metavar="TOOL", help="switch a tool or a family on (owners)")
    switch.add_argument("--disable", metavar="TOOL", help="switch a tool or a family off (owners)")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.format != "text" and args.all:
        raise UsageError("--all and --format: providers are told of the usable tools only")
    client = connect(args)
    name = args.enable or args.disable
    if name:
        _switch(client, name, enabled=bool(args.enable), as_json=args.json)
        return 0
    if args.format != "text":
        show.json(client.request("edged/definitions", {"format": args.format})["tools"])
        return 0
    rows = client.request("edged/tools/state")["tools"]
    usable = [r for r in rows if r["status"] == "enabled" and not r.get("hidden")]
    if args.json:
        show.json(rows if args.all else usable)
    elif args.all:
        _with_reasons(rows)
    else:
        _usable(usable)
        note = blocked(rows)
        if note:
            # After the list, wherever each of the two goes.
            sys.stdout.flush()
            sys.stderr.write(f"edged: {note}\n")
    return 0


def _switch(client: Client, name: str, *, enabled: bool, as_json: bool) -> None:
    done = client.request("edged/tools/state", {"name": name, "enabled": enabled})
    along = {key: done[key] for key in ("switched", "blocked") if key in done}
    if name in FAMILIES:
        found = {"status": "enabled" if enabled else "disabled"}
    else:
        # As the daemon sees it: what is blocked stays so when it is switched on.
        found = client.request("edged/describe", {"name": name})
    if as_json:
        show.json({"name": name, "status": found["status"], **along})
        return
    show.out(f"{name}: {found['status']}")
    for family in along.get("switched", ()):
        show.out(f"{family}: enabled, as {name} requires it")
    for one in along.get("blocked", ()):
        show.out(f"{one}: blocked, as it requires {name}")
    if enabled and found["status"] != "enabled":
        sys.stdout.flush()
        sys.stderr.write(
            f"edged: {name} is switched on, and {found['status']}: {found['problem']}\n"
        )


def lacking(client: Client, name: str) -> str:
    """Why nobody knows a tool of that name, as far as the directories tell it; or nothing."""
    try:
        rows = client.request("edged/tools/state")["tools"]
    except EdgedError:
        return ""
    for row in rows:
        if os.path.basename(row.get("source", "")) == name != row["name"]:
            return f"the tool in {row['source']} is named {row['name']!r}"
    # A directory of tools that cannot be read stands there by its path.
    return "; ".join(row["problem"] for row in rows if row["name"] == row.get("source"))


def blocked(rows: list[dict[str, Any]]) -> str:
    """How many tools cannot be called and why not; empty where all is well."""
    # To override a tool with one's own is no fault, nor that a board has no such bus, nor a
    # family that an owner switched off, nor that there is no channel for messages.
    usual = {"shadowed", "requires_device", *FAMILIES.values()}
    count = sum(
        r["status"] == "blocked"
        and r["reason_code"] not in usual
        and (r["reason_code"], r.get("category")) != ("requires_config", "communication")
        for r in rows
    )
    if not count:
        return ""
    what = "1 tool is" if count == 1 else f"{count} tools are"
    return f"{what} blocked: edged tools --all says why"


def _usable(rows: list[dict[str, Any]]) -> None:
    weak = any(_is_weak(r) for r in rows)
    header = ("NAME", "SANDBOX", "DESCRIPTION") if weak else ("NAME", "DESCRIPTION")
    show.table(header, [_usable_row(r, weak=weak) for r in rows])


def _usable_row(row: dict[str, Any], *, weak: bool) -> tuple[str, ...]:
    level = (row["sandbox"] if _is_weak(row) else "",) if weak else ()
    # Its first paragraph: the rest is there for agents and for `describe`.
    return (row["name"], *level, row["description"].partition("\n\n")[0])


def _is_weak(row: dict[str, Any]) -> bool:
    # Built-in tools run in the daemon and have no level.
    return row.get("sandbox") not in ("", None, "full")


def _with_reasons(rows: list[dict[str, Any]]) -> None:
    columns = show.Columns(
        ("NAME", "STATUS", "SOURCE", "ABOUT"), [_reason_row(row) for row in rows]
    )
    show.out(columns.header())
    for row in rows:
        show.out(columns.line(_reason_row(row), ("", STATUS_COLOURS.get(row["status"], ""))))
        # Never cut: it says what to do.
        show.below(row.get("problem", ""))


def _reason_row(row: dict[str, Any]) -> tuple[str, ...]:
    about = []
    if row.get("hidden"):
        about.append("hidden")
    if row.get("reason_code"):
        about.append(row["reason_code"])
    if _is_weak(row):
        about.append(f"sandbox: {row['sandbox']}")
    return row["name"], row["status"], _end(row.get("source", "")), ", ".join(about)


def _end(path: str) -> str:
    """The end of a long path: its beginning is the same for all."""
    return path if len(path) <= SOURCE_MAX else f"…{path[1 - SOURCE_MAX :]}"
