"""`edged sync`: seed tools to the data directory, by version."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec

from edged import paths
from edged.catalogue import seed_directory
from edged.cli import FAILED, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.errors import NoDaemonError
from edged.toolmd import discover, sync

EXAMPLE = "edged sync --dry-run"

_COLOURS = {"add": "green", "update": "green", "refused": "red", "differs": "yellow"}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument(
        "--data", metavar="DIR", help="without a daemon: the data directory (DATA_PATH)"
    )
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    report = _report(args)
    if args.json:
        show.json(report)
    else:
        _print(report)
    refused = any(a["kind"] == "refused" for a in report["actions"])
    return FAILED if report["failed"] or refused else 0


def _report(args: Any) -> dict[str, Any]:
    """The daemon's own sync where one runs, so that it looks at its tools again."""
    try:
        # Naming a directory means that directory.
        client = None if args.data else connect(args)
    except NoDaemonError:
        if args.socket or args.url:
            raise
        client = None
    if client is not None:
        answer: dict[str, Any] = client.request("edged/sync", {"dry_run": args.dry_run})
        return answer
    target = os.path.join(args.data or paths.data_directory(), "tools")
    cache = discover.Cache()
    now = time.time()
    if args.dry_run:
        report = sync.Report(tuple(sync.plan(seed_directory(), target, cache, now)))
    else:
        report = sync.apply(seed_directory(), target, cache, now)
    built: dict[str, Any] = msgspec.to_builtins(report)
    return built


def _print(report: dict[str, Any]) -> None:
    rows = [_row(action) for action in report["actions"]]
    columns = show.Columns(("TOOL", "DOES", "SEED", "HERE", "ABOUT"), rows)
    show.out(columns.header())
    for row in rows:
        for line in columns.lines(row, ("", _COLOURS.get(row[1], ""))):
            show.out(line)
    for failure in report["failed"]:
        show.out(f"{failure['name']}: {show.paint('failed', 'red')}: {failure['reason']}")


def _row(action: dict[str, Any]) -> tuple[str, ...]:
    return (
        action["name"],
        action["kind"],
        _version(action["seed_version"]),
        _version(action["target_version"]),
        action.get("reason") or "",
    )


def _version(version: int | None) -> str:
    return "-" if version is None else str(version)
