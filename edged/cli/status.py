"""`edged status`: how the daemon and its parts are."""

from __future__ import annotations

import time
from typing import Any

from edged.cli import show
from edged.cli.parser import Parser, add_connection, add_json, connect, positive
from edged.client import Client
from edged.errors import NoDaemonError

EXAMPLE = "edged status --wait-ready --timeout 30"

_RETRY_S = 0.1


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--wait-ready", action="store_true", help="wait until the daemon serves all its tools"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=60.0,
        help="seconds to wait for that at most (60)",
    )
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    client = _ready(args) if args.wait_ready else connect(args)
    found = client.request("edged/status")
    if args.json:
        show.json(found)
    else:
        show.facts((name.replace("_", " "), _text(value)) for name, value in found.items())
    return 0


def _ready(args: Any) -> Client:
    """Connect once a daemon answers, and wait for its first look at the tools."""
    deadline = time.monotonic() + args.timeout
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


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{k.replace('_', ' ')}: {_flat(v)}" for k, v in value.items() if v != "")
    if isinstance(value, list):
        return "\n".join(map(_flat, value)) or "none"
    return _flat(value)


def _flat(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k.replace('_', ' ')} {_flat(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_flat, value)) or "none"
    return str(value)
