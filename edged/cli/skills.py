"""`edged skills`: find, install, update, remove, list and read skills."""

from __future__ import annotations

import os
import re
from typing import Any

from edged import wording
from edged.cli import FAILED, UsageError, complain, show
from edged.cli.parser import Parser, add_connection, add_json, connect, count
from edged.results import Result, joined

EXAMPLE = (
    "edged skills\n"
    "edged skills find pdf\n"
    "edged skills install pdf-tools --source clawhub\n"
    "edged skills check ./my-skill"
)

ACTIONS = ("list", "show", "find", "install", "update", "remove", "check")
ONE = frozenset({"show", "install", "remove"})


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("action", choices=ACTIONS, nargs="?", default="list", help="(list)")
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="name of a skill, words to find it by, directories",
    )
    parser.add_argument(
        "--source", metavar="REGISTRY", help="the registry to find or install from"
    )
    parser.add_argument("--version", metavar="V", help="the version to install, and to stay at")
    parser.add_argument("--limit", metavar="N", type=count, help="how many to find (10)")
    parser.add_argument("--file", metavar="PATH", help="show this file of the skill")
    parser.add_argument("--force", action="store_true", help="also in place of what was changed")
    parser.add_argument("--everyone", action="store_true", help="for all users (owners)")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.action == "check":
        return _check(args)
    name, arguments = _asked(args)
    result = connect(args).call(name, arguments)
    if args.json and not result.is_error:
        show.json(_whole(args, result))
        return 0
    if result.is_error:
        # The tool's input of that name is an option here.
        text = re.sub(r"\bforce (?=replaces|removes)", "--force ", joined(result.content))
        return complain(wording.safe(text), FAILED)
    if args.action == "list":
        _list(result)
    elif args.action == "show" and not args.file:
        _show(result)
    else:
        show.out(wording.safe(joined(result.content)).removesuffix("\n"))
    return 0


def _whole(args: Any, result: Result) -> Any:
    """The structured answer, with the text itself where one was asked for."""
    if args.action != "show":
        return result.structured
    text = joined(result.content)
    if not args.file:
        text = _body(text)
    return {**(result.structured or {}), "text" if args.file else "body": text}


def _body(text: str) -> str:
    """The instructions alone: what stands above them is in the structured answer."""
    return text.partition("\n\n")[2]


def _show(result: Result) -> None:
    """The facts within the width, the instructions as they were written."""
    head, gap, body = wording.safe(joined(result.content)).partition("\n\n")
    for line in head.split("\n"):
        for part in show.fitted(line, show.width()):
            show.out(part)
    if gap:
        show.out("")
        show.out(body.removesuffix("\n"))


def _asked(args: Any) -> tuple[str, dict[str, Any]]:
    """The tool and its inputs."""
    action, words = args.action, args.words
    if action in ONE and len(words) != 1:
        where = (
            "edged skills find WORD finds some"
            if action == "install"
            else ("edged skills lists them")
        )
        raise UsageError(f"skills {action} needs one name: {where}")
    if action == "list" and words:
        raise UsageError(f"skills list takes no name: edged skills show {words[0]}")
    if action == "update" and len(words) > 1:
        raise UsageError("skills update takes one name, or none for all")
    if action == "find":
        if not words:
            raise UsageError("skills find needs words: edged skills find pdf")
        given = {"query": " ".join(words), "limit": args.limit, "source": args.source}
        return "find_skills", _said(given)
    if action in ("list", "show"):
        return "skill", _said({"name": words[0] if words else "", "file": args.file})
    given = {
        "action": action,
        "name": words[0] if words else "",
        "source": args.source,
        "version": args.version,
        "force": args.force,
        "scope": "everyone" if args.everyone else None,
    }
    return "install_skill", _said(given)


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value}


def _list(result: Result) -> None:
    rows = (result.structured or {}).get("skills", [])
    if not rows:
        show.out("no skills: edged skills find WORD finds some")
        return
    header = ("NAME", "VERSION", "FOR", "SOURCE", "DESCRIPTION")
    columns = show.Columns(header, [_row(row) for row in rows])
    show.out(columns.header())
    for row in rows:
        show.out(columns.line(_row(row)))
        for text in (row["problem"], *row["warnings"]):
            show.below(text)


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    about = row["description"] or "(cannot be used)"
    return row["name"], row["version"][:12], row["scope"], row["source"], about


def _check(args: Any) -> int:
    """What is wrong with skills that lie here; needs no daemon."""
    from edged.skills.shelf import read_skill

    if not args.words:
        raise UsageError("skills check needs a directory: edged skills check ./my-skill")
    found = []
    for directory in args.words:
        path = os.path.abspath(directory)
        facts, problem = read_skill(path, os.path.basename(path))
        warnings = facts.warnings if facts is not None else ()
        found.append({"path": directory, "problem": problem, "warnings": list(warnings)})
    if args.json:
        show.json(found)
    else:
        for one in found:
            for kind, texts in (("error", [one["problem"]]), ("warning", one["warnings"])):
                for text in filter(None, texts):
                    show.out(f"{one['path']}: {kind}: {wording.safe(str(text))}")
            if not one["problem"] and not one["warnings"]:
                show.out(f"{one['path']}: nothing to mend")
    return FAILED if any(one["problem"] for one in found) else 0
