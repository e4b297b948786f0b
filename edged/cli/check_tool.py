"""`edged check-tool`: what is wrong with a tool directory, before anything runs."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from edged import plugins, wording
from edged.cli import FAILED, show
from edged.cli.parser import Parser, add_json
from edged.settings import FAMILIES
from edged.toolmd.check import Finding, check

EXAMPLE = "edged check-tool ./my_tool"

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a directory with a TOOL.md")
    add_json(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    names = built_in()
    found = {directory: check(directory, names) for directory in args.directories}
    findings = [one for some in found.values() for one in some]
    if args.json:
        show.json([msgspec.to_builtins(one) for one in findings])
    else:
        for directory, some in found.items():
            for one in some:
                show.out(_line(one, directory))
            if not some:
                show.out(f"{directory}: nothing to mend")
    return FAILED if any(one.severity == "error" for one in findings) else 0


def built_in() -> frozenset[str]:
    """Names of the daemon's own tools and families: `echo` too, which is off unless wanted."""
    package = "edged.tools"
    modules = (plugins.load(package, name) for name in plugins.names(package))
    return FAMILIES.union(tool.name for module in modules for tool in module.TOOLS)


def _line(one: Finding, directory: str) -> str:
    # By the path that was given, as the user knows it.
    inside = os.path.relpath(one.file, os.path.abspath(directory))
    file = os.path.normpath(os.path.join(directory, inside))
    place = f"{file}:{one.line}" if one.line else file
    remedy = f": {one.remedy}" if one.remedy else ""
    severity = show.paint(one.severity, _COLOURS[one.severity])
    return f"{place}: {severity}: {wording.safe(one.reason + remedy)}"
