"""`edged mcp-server`: other MCP servers, whose tools the board offers."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from edged import wording
from edged.cli import UsageError, show
from edged.cli.faults import cannot
from edged.cli.parser import Parser, add_connection, add_json, connect

EXAMPLE = (
    "edged mcp-server add memory -- npx -y @modelcontextprotocol/server-memory\n"
    "edged mcp-server add wiki https://wiki.example.org/mcp --header X-Key=@key\n"
    "edged mcp-server test wiki"
)

ACTIONS = ("list", "add", "test", "remove")


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.verbatim = "target"
    parser.add_argument("action", choices=ACTIONS, nargs="?", default="list", help="(list)")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the server's name")
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="*",
        help="the URL of a server over HTTP, or after -- the command of a stdio server; keys go "
        "to --header and --env, or with !secret to edged.yaml",
    )
    parser.add_argument("--sse", action="store_true", help="the URL is of the older HTTP+SSE")
    _pairs(parser, "--header", "a header of each request; @FILE has its value")
    _pairs(parser, "--env", "a variable of a stdio server; @FILE has its value")
    parser.add_argument(
        "--network",
        action=argparse.BooleanOptionalAction,
        help="a stdio server's; npx and uvx have it",
    )
    for option, what in (
        ("--read", "a path that a stdio server may read"),
        ("--write", "a path that it may write"),
        ("--device", "a device node that it may open"),
        ("--allow", "take only these of its tools (read_*)"),
        ("--deny", "leave these of its tools out"),
    ):
        parser.add_argument(option, metavar="X", action="append", default=[], help=what)
    parser.add_argument("--core", action="store_true", help="list its tools, not hidden")
    parser.add_argument("--keep", action="store_true", help="start it with the daemon and keep it")
    parser.add_argument("--timeout", metavar="S", type=_timeout, help="for a call: 20, 2m (60)")
    parser.add_argument("--replace", action="store_true", help="change one that is there")
    parser.add_argument("--purge", action="store_true", help="remove: erase what it kept too")
    add_json(parser)
    add_connection(parser)


def _pairs(parser: Parser, option: str, what: str) -> None:
    parser.add_argument(option, metavar="N=V", action="append", default=[], help=what)


def _timeout(text: str) -> float:
    """The type of a duration, as the configuration has it."""
    from edged.config import check_duration, seconds

    value: str | float = text
    try:
        with contextlib.suppress(ValueError):
            value = float(text)
        check_duration("timeout", value, 0.1, 3_600)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None
    return seconds(value)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    action, params = args.action, _params(args)
    client = connect(args)
    # A server may have to be fetched before it answers.
    answer = client.request("edged/mcp-servers", params, patient=action == "test")
    if args.json:
        show.json(answer["servers"] if action == "list" else answer)
    elif action == "list":
        _list(answer["servers"])
    elif action == "remove":
        _tell_removed(args.name, answer)
    elif action == "add":
        show.out(f"{args.name}: added: edged mcp-server test {args.name} tries it")
    else:
        _tell(answer)
    return 0


def _params(args: Any) -> dict[str, Any]:
    """What the daemon is asked.

    Raises:
        UsageError: the words do not go together.
    """
    action = args.action
    if (action == "list") == bool(args.name):
        needs = "takes no name" if args.name else "needs the name of a server"
        raise UsageError(f"mcp-server {action} {needs}: see edged mcp-server --help")
    if args.target and action != "add":
        raise UsageError("a command or a URL goes with edged mcp-server add")
    if args.purge and action != "remove":
        raise UsageError("--purge goes with edged mcp-server remove")
    params: dict[str, Any] = {"action": action}
    if args.name:
        params["name"] = args.name
    if action == "add":
        params |= {"server": _server(args), "replace": args.replace}
    elif action == "remove":
        params["purge"] = args.purge
    return params


def _tell_removed(name: str, answer: dict[str, Any]) -> None:
    show.out(f"{name}: removed")
    if home := answer.get("home"):
        show.out(f"what it kept stays in {wording.safe(home)}:")
        show.out(f"edged mcp-server remove {name} --purge erases that")


def _server(args: Any) -> dict[str, Any]:
    """The settings, as the configuration has them."""
    if not args.target:
        raise UsageError(
            "mcp-server add needs a URL or a command: edged mcp-server add NAME URL, or "
            "NAME -- COMMAND"
        )
    first, *rest = args.target
    found: dict[str, Any] = {}
    if _is_url(first):
        if rest:
            raise UsageError(f"mcp-server add: what is {rest[0]!r} behind a URL?")
        _refuse(args, "is of a stdio server", ("env", "read", "write", "device", "network"))
        found = {"url": first, "headers": _values(args.header, "--header")}
    else:
        _refuse(args, "is of a server over HTTP", ("header", "sse"))
        found = {"command": first, "args": rest, "env": _values(args.env, "--env")}
    if args.sse:
        found["type"] = "sse"
    if args.network is not None:
        found["network"] = args.network
    for name in ("read", "write", "allow", "deny"):
        found[name] = getattr(args, name)
    found["devices"] = args.device
    if args.core:
        found["deferred"] = False
    if args.keep:
        found["lazy"] = False
    if args.timeout is not None:
        found["timeout"] = args.timeout
    return {name: value for name, value in found.items() if value not in ([], {})}


def _is_url(target: str) -> bool:
    """Whether it is a URL and no program.

    Raises:
        UsageError: it is one of another kind.
    """
    scheme, mark, _ = target.partition("://")
    if not mark or not scheme.isalnum():
        return False
    if scheme not in ("http", "https"):
        raise UsageError(f"mcp-server add: {target}: a URL is of http:// or https://")
    return True


def _refuse(args: Any, why: str, options: tuple[str, ...]) -> None:
    """Refuse options that would say nothing."""
    for name in options:
        if getattr(args, name) not in ([], None, False):
            raise UsageError(f"--{name} {why}: see edged mcp-server --help")


def _values(pairs: list[str], option: str) -> dict[str, str]:
    """Names and values; a file's value does not show in `ps`."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {pair.partition('=')[0]}: write NAME=VALUE or NAME=@FILE")
        if name in found:
            raise UsageError(f"{option} {name} is given twice")
        if value.startswith("@@"):
            value = value[1:]
        elif value.startswith("@"):
            value = _from_file(option, value[1:])
        found[name] = value
    return found


def _from_file(option: str, file: str) -> str:
    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
    except OSError as error:
        raise UsageError(f"{option}: {cannot('read', file, error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{option}: {file} is not UTF-8 text") from None
    return text.strip()


def _list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        show.out("no MCP servers: edged mcp-server add --help shows how to add one")
        return
    table = []
    for row in rows:
        health = row["health"]
        state = health["state"] if row["enabled"] else "disabled"
        origin = "edged.yaml" if row["origin"] == "configuration" else row["origin"]
        table.append((row["name"], state, str(health["tools"]), origin, row["target"]))
    show.table(("NAME", "STATE", "TOOLS", "FROM", "RUNS"), table)
    for row in rows:
        health = row["health"]
        left_out = [f"left out: {problem}" for problem in health["left_out"]]
        for problem in filter(None, (health["error"], *left_out)):
            line = wording.one_line(f"edged: {row['name']}: {problem}")
            # A terminal alone would break it inside of words.
            parts = show.fitted(line, show.width()) if sys.stderr.isatty() else [line]
            sys.stderr.write("\n".join(parts) + "\n")


def _tell(row: dict[str, Any]) -> None:
    health = row["health"]
    server = health["server"]
    about = " ".join(
        filter(None, (server.get("title") or server.get("name"), server.get("version")))
    )
    count = health["tools"]
    tools = f"{count} tool{'s' * (count != 1)}"
    show.out(wording.safe(f"{row['name']}: {health['state']}, {tools}"))
    if about:
        show.out(wording.safe(f"{about}, MCP {health['version']}"))
    for problem in health["left_out"]:
        show.out(wording.safe(f"left out: {problem}"))
