"""`edged grant`: what agents ask for beside their own directories, and the owner's answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edged.cli import UsageError, show
from edged.cli.parser import Parser, add_connection, add_json, connect

if TYPE_CHECKING:
    from edged.client import Client

EXAMPLE = (
    "edged grant\n"
    "edged grant 3f9a1c77e2 once\n"
    "edged grant /srv/data session --user ada@example.org --write\n"
    "edged grant --forget 3f9a1c77e2"
)
ANSWERS = ("once", "session", "deny")
SESSION = "until its session ends, was idle for 8 hours, or the daemon ends"


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("request", metavar="ID|PATH", nargs="?", help="of a request, or a path")
    parser.add_argument(
        "answer", choices=ANSWERS, nargs="?", help="for one use, its session, or never"
    )
    parser.add_argument("--user", metavar="U", help="with a path: whose agents (local)")
    parser.add_argument("--write", action="store_true", help="with a path: to write there too")
    parser.add_argument(
        "--forget", metavar="ID", help="take a grant back, lift a denial, drop a request"
    )
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    _check(args)
    client = connect(args)
    if not args.request and not args.forget:
        found = client.request("edged/grant")
        if args.json:
            show.json({name: found[name] for name in ("requests", "denied", "grants")})
        else:
            _listed(found)
        return 0
    params, told = _asked(args, client)
    answer = client.request("edged/grant", params)
    if args.json:
        show.json({"status": answer["status"]})
    else:
        for line in show.fitted(show.one_line(told), show.width()):
            show.out(line)
    return 0


def _check(args: Any) -> None:
    if args.forget and args.request:
        raise UsageError("--forget goes alone: see edged grant --help")
    if args.request and not args.answer:
        raise UsageError(f"answer {args.request} by once, session or deny")
    by_path = _is_path(args.request)
    if args.request and "/" in args.request and not by_path:
        raise UsageError(f"{args.request}: name the whole path, from /")
    if (args.user or args.write) and not by_path:
        raise UsageError("--user and --write go with a path: a request says them itself")


def _is_path(given: str | None) -> bool:
    return given is not None and given.startswith("/")


def _asked(args: Any, client: Client) -> tuple[dict[str, Any], str]:
    """What the daemon is asked to do, and what that means in words."""
    if args.forget:
        return {"forget": args.forget}, f"{args.forget}: forgotten"
    given, answer = args.request, args.answer
    if _is_path(given):
        user = args.user or "local"
        params = {"path": given, "user": user, "write": args.write, "duration": answer}
        return params, _told(given, answer, user, write=args.write)
    told = f"{given}: {answer}"
    found = client.request("edged/grant")
    for one in (*found["requests"], *found["denied"]):
        if one["request_id"] == given:
            told = _told(one["path"], answer, one["user"], write=one["write"])
    return {"request_id": given, "duration": answer}, told


def _told(path: str, answer: str, user: str, *, write: bool) -> str:
    """What an answer means: for whom, of what, and until when."""
    may = "read and write" if write else "read"
    if answer == "deny":
        deed = "write" if write else "read or write"
        return f"{user} may not {deed} {path}, until you forget or answer it again"
    until = {"once": "for one use", "session": SESSION}[answer]
    below = "" if os.path.isfile(path) else " and what is below it"
    return f"{user} may {may} {path}{below}, {until}"


def _listed(found: dict[str, Any]) -> None:
    rows = [
        *(("waits", one) for one in found["requests"]),
        *((one["duration"], one) for one in found["grants"]),
        *(("denied", one) for one in found["denied"]),
    ]
    if not rows:
        show.out("nobody asks for anything, and nothing is granted")
        return
    header = ("ID", "STATE", "USER", "MAY", "PATH")
    columns = show.Columns(header, [_row(state, one) for state, one in rows])
    show.out(columns.header())
    for state, one in rows:
        for line in columns.lines(_row(state, one), ("", _COLOURS.get(state, "green"))):
            show.out(line)
        show.below(": ".join(filter(None, (one.get("command"), one.get("reason")))))
    if found["requests"]:
        show.out("answer with: edged grant ID once|session|deny")


_COLOURS = {"waits": "yellow", "denied": "red"}


def _row(state: str, one: dict[str, Any]) -> tuple[str, ...]:
    may = "write" if one["write"] else "read"
    return one.get("request_id") or one["id"], state, one["user"], may, one["path"]
