"""`edged doctor`: the report of `edged.doctor` for people and programs."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from edged import doctor, paths, wording
from edged.catalogue import seed_directory
from edged.cli import FAILED, show
from edged.cli.parser import Parser, add_json
from edged.doctor.finding import Finding

EXAMPLE = "edged doctor"

_TEXT_AT = 24
"""The column in which texts begin."""

_COLOURS = {"ok": "green", "note": "dim", "warning": "yellow", "fault": "red"}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--config", metavar="FILE", help="configuration (EDGED_CONFIG)")
    parser.add_argument("--data", metavar="DIR", help="data directory (DATA_PATH)")
    parser.add_argument("--socket", metavar="PATH", help="the daemon's socket (EDGED_SOCKET)")
    add_json(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code: 1 when there is a fault."""
    places = doctor.Places(
        config=args.config or paths.config_file(),
        explicit=args.config is not None or "EDGED_CONFIG" in os.environ,
        data=os.path.abspath(args.data or paths.data_directory()),
        socket=args.socket or paths.client_socket(),
        seed=seed_directory(),
    )
    findings = []
    for one in doctor.examine(places):
        findings.append(one)
        if not args.json:
            _print(one)
    if args.json:
        show.json(msgspec.to_builtins(findings))
    return FAILED if any(one.level == "fault" for one in findings) else 0


def _print(one: Finding) -> None:
    # Not cut: each word may be the one that helps.
    level = show.paint(f"{one.level:8}", _COLOURS[one.level])
    room = show.width() - _TEXT_AT
    first, *rest = show.fitted(wording.one_line(one.text), room)
    show.out(f"{level} {one.check:14} {first}")
    remedy = show.fitted(wording.one_line(one.remedy), room) if one.remedy else []
    for line in (*rest, *remedy):
        show.out(f"{'':{_TEXT_AT}}{line}")
