"""`edged describe`: one tool, whole."""

from __future__ import annotations

from typing import Any

import msgspec

from edged import wording
from edged.cli import FAILED, complain, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.cli.show import cells
from edged.cli.tools import lacking
from edged.errors import UnknownToolError

EXAMPLE = "edged describe hello"

KIND_MAX = 20
"""Characters of a type that stand in a column of their own."""


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="TOOL", help="a tool")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    client = connect(args)
    try:
        found = client.request("edged/describe", {"name": args.name})
    except UnknownToolError as error:
        why = lacking(client, args.name)
        return complain(f"{error}: {why}" if why else error, FAILED)
    if args.json:
        show.json(found)
        return 0
    label = f" ({found['label']})" if found["label"] != found["name"] else ""
    show.out(show.paint(wording.one_line(found["name"] + label), "bold"))
    # What follows in it is the body's beginning, which is printed below.
    for line in wording.safe(found["description"].partition("\n\n")[0]).split("\n"):
        for part in show.fitted(line, show.width()):
            show.out(part)
    show.out("")
    show.facts(_facts(found))
    _inputs(found["schema"], found["sensitive"])
    if found["body"].strip():
        show.out("")
        show.out(wording.safe(found["body"].strip("\n")))
    return 0


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    status = found["status"]
    if found["reason_code"]:
        status += f" ({found['reason_code']})"
    rows = [
        ("status", status),
        ("problem", found["problem"]),
        ("category", found["category"]),
        ("source", found["source"]),
        ("version", str(found["version"]) if found["version"] else ""),
        ("warnings", "\n".join(found["warnings"])),
        ("sandbox", found["sandbox"]),
    ]
    permissions = found["permissions"]
    return rows + (_permissions(permissions) if permissions else [])


def _permissions(given: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("network", "yes" if given["network"] else "no"),
        ("time", f"{given['timeout_s']:g} s"),
        ("memory", show.size(given["memory_max"]) if given["memory_max"] else ""),
    ]
    for name in ("devices", "calls", "env", "resources"):
        value = given[name]
        rows.append((name, value if isinstance(value, str) else ", ".join(value)))
    return rows


def _inputs(schema: dict[str, Any], sensitive: list[str]) -> None:
    properties = schema.get("properties", {})
    if not properties:
        return
    required = schema.get("required", [])
    rows = []
    for name, one in properties.items():
        need = "required" if name in required else "optional"
        if one.get("default") is not None:
            need = f"default {written(one['default'])}"
        if name in sensitive:
            need += ", sensitive"
        rows.append(row(name, kind(one), need, one.get("description", "")))
    show.out("")
    # Descriptions are not cut here: this is the place to read them.
    show.table(("INPUT", "TYPE", "", "DESCRIPTION"), rows, whole=True)


def row(name: str, what: str, need: str, about: str) -> tuple[str, str, str, str]:
    """A row of an input; a long type stands with the description, which nothing is cut off."""
    if cells(what) > KIND_MAX and "|" in what:
        what, about = "one of", f"{what.replace('|', ', ')}. {about}".rstrip()
    return name, what, need, about


def written(value: Any) -> str:
    """A value as it is written on the command line and in YAML."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def kind(schema: dict[str, Any]) -> str:
    """The type of an input as people write it."""
    if "enum" in schema:
        return "|".join(map(str, schema["enum"]))
    named = schema.get("type", "")
    if isinstance(named, list):
        return "|".join(map(str, named))
    if not named:
        return "|".join(kind(one) for one in schema.get("anyOf", ())) or "any"
    return str(named)
