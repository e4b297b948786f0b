"""`edged agents`: the prompts that subagents work by, and the tasks that they work on."""

from __future__ import annotations

import re
import sys
from typing import Any

from edged import wording
from edged.cli import FAILED, UsageError, complain, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.client import Client
from edged.errors import ConfigError, InvalidArgumentsError
from edged.results import joined

EXAMPLE = (
    "edged agents\n"
    "edged agents import researcher.md\n"
    "edged agents run board-watcher 'Is all well in the greenhouse?'\n"
    "edged agents tasks"
)

ACTIONS = (
    *("list", "show", "import", "enable", "disable", "remove"),
    *("run", "tasks", "task", "stop"),
)
STATUS_COLOURS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "interrupted": "yellow",
}


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        metavar="ACTION",
        nargs="?",
        default="list",
        help=f"{', '.join(ACTIONS)} (list)",
    )
    parser.add_argument(
        "words", metavar="WORD", nargs="*", help="slug of an agent; FILE, TASK or id of a task"
    )
    parser.add_argument("--model", metavar="M", help="with run: in place of the agent's")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    action, words = args.action, args.words
    if args.model and action != "run":
        raise UsageError("--model goes with edged agents run")
    if action in ("list", "tasks"):
        if words:
            one = "show" if action == "list" else "task"
            raise UsageError(f"agents {action} takes no word: edged agents {one} {words[0]}")
        return _list(args) if action == "list" else _tasks(args)
    if action == "run":
        return _run(args)
    if len(words) != 1:
        what = {"import": "one FILE, or - for standard input", "task": "one id", "stop": "one id"}
        raise UsageError(f"agents {action} needs {what.get(action, 'one slug')}")
    return _act(args, words[0])


def _act(args: Any, word: str) -> int:
    action = args.action
    asked: dict[str, Any] = {"action": action, "slug": word}
    if action == "import":
        asked = {"action": action, "content": _content(word)}
    elif action in ("task", "stop"):
        asked = {"action": action, "task_id": word}
    client = connect(args)
    try:
        found = client.request("edged/agents", asked)
    except InvalidArgumentsError as error:
        # The daemon was sent a text, and knows of no file.
        name = "standard input" if word == "-" else word
        text = re.sub("(?m)^( *)content:", lambda at: f"{at[1]}{name}:", str(error))
        raise (InvalidArgumentsError.told(text) if action == "import" else error) from None
    if args.json:
        show.json(found)
        return 0
    _warn(found)
    if action == "show":
        _show(found)
    elif action in ("task", "stop"):
        _show_task(found)
    elif action == "remove":
        show.out(f"{word}: removed")
    elif action == "import":
        show.out(f"{found['slug']}: imported; edged agents run {found['slug']} TASK has it work")
    else:
        show.out(f"{found['slug']}: {found['status']}")
    return 0


def _content(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except UnicodeDecodeError:
        raise ConfigError("is no UTF-8 text: give a Markdown file", file=file) from None
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=file) from None


def _list(args: Any) -> int:
    found = connect(args).request("edged/agents", {"action": "list"})
    if args.json:
        show.json(found)
        return 0
    rows = [(a["slug"], a["status"], a["model"] or "-", a["description"]) for a in found["agents"]]
    if rows:
        show.table(("SLUG", "STATUS", "MODEL", "DESCRIPTION"), rows)
    else:
        show.out("no agents: edged agents import FILE makes one of a Markdown file")
    for agent in found["agents"]:
        _warn(agent)
    for problem in found["problems"]:
        complain(f"{problem['file']}: {problem['reason']}", 0)
    return 0


def _warn(agent: dict[str, Any]) -> None:
    for warning in agent.get("warnings", ()):
        complain(f"agent {agent['slug']}: {warning}", 0)


def _show(agent: dict[str, Any]) -> None:
    show.facts(
        [
            ("slug", agent["slug"]),
            ("name", agent["name"]),
            ("about", agent["description"]),
            ("status", agent["status"]),
            ("model", agent["model"] or "that of the configuration"),
            ("tools", ", ".join(agent["tool_permissions"]) or "none: set tool_permissions"),
            ("created", agent["created_at"]),
            ("updated", agent["updated_at"]),
        ]
    )
    show.out("")
    show.prose(agent["system_prompt"])


def _tasks(args: Any) -> int:
    tasks = connect(args).request("edged/agents", {"action": "tasks"})["tasks"]
    if args.json:
        show.json(tasks)
        return 0
    if not tasks:
        show.out("no tasks: edged agents run SLUG TASK begins one")
        return 0
    rows = [
        (t["task_id"], t["status"], _second(t["started_at"]), t["agent"] or "-", t["label"])
        for t in tasks
    ]
    columns = show.Columns(("ID", "STATUS", "STARTED", "AGENT", "TASK"), rows)
    show.out(columns.header())
    for row in rows:
        show.out(columns.line(row, ("", STATUS_COLOURS.get(row[1], ""), "", "", "")))
    return 0


def _second(time: str) -> str:
    """A time of RFC 3339 as people read it, in whole seconds; UTC."""
    return f"{time[:10]} {time[11:19]}Z"


def _show_task(task: dict[str, Any]) -> None:
    used = f"{task['turns']} turns, {task['calls']} calls, {task['tokens']} tokens"
    show.facts(
        [
            ("id", task["task_id"]),
            ("task", task["task"]),
            ("agent", task["agent"] or "-"),
            ("model", task["model"]),
            ("status", task["status"]),
            ("why", task["reason"]),
            ("started", task["started_at"]),
            ("ended", task["ended_at"] or "-"),
            ("used", used),
        ]
    )
    if task["text"]:
        show.out("")
        show.prose(task["text"])


def _run(args: Any) -> int:
    if len(args.words) < 2:
        raise UsageError("agents run needs a slug and a task: edged agents run SLUG TASK")
    client: Client = connect(args)
    given = {"agent": args.words[0], "task": " ".join(args.words[1:])}
    if args.model:
        given["model"] = args.model
    result = client.call("spawn", given)
    if args.json:
        show.json(result.structured)
    elif result.is_error:
        complain(joined(result.content), 0)
    else:
        show.out(wording.safe(joined(result.content)).removesuffix("\n"))
    return FAILED if result.is_error else 0
