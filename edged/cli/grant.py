"""`edged grant`: what agents ask for beside their own directories, and the owner's answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edged import wording
from edged.cli import UsageError, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.errors import NotFoundError

if TYPE_CHECKING:
    from edged.client import Client

EXAMPLE = (
    "edged grant\n"
    "edged grant 3f9a1c77e2 once\n"
    "edged grant /srv/data session --user ada@example.org --write\n"
    "edged grant --forget /srv/data"
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
        "--forget", metavar="ID|PATH", help="take a grant back, lift a denial, drop a request"
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
    told = _forget(args, client) if args.forget else _answer(args, client)
    if args.json:
        show.json({"status": "ok"})
    else:
        for text in told:
            for line in show.fitted(wording.one_line(text), show.width()):
                show.out(line)
    return 0


def _check(args: Any) -> None:
    if args.forget and args.request:
        raise UsageError("--forget goes alone: see edged grant --help")
    if args.request and not args.answer:
        raise UsageError(f"answer {args.request} by once, session or deny")
    given = args.forget or args.request
    by_path = _is_path(given)
    if given and "/" in given and not by_path:
        raise UsageError(f"{given}: name the whole path, from /")
    if (args.user or args.write) and not by_path:
        raise UsageError("--user and --write go with a path: a request says them itself")
    if args.forget and args.write:
        raise UsageError("--forget takes back all of a path, --write or not")


def _is_path(given: str | None) -> bool:
    return given is not None and given.startswith("/")


def _forget(args: Any, client: Client) -> list[str]:
    """Forget what has an id, or all that there is of a path; what that was, in words."""
    given, user = args.forget, args.user or "local"
    ids = [given]
    if _is_path(given):
        found = client.request("edged/grant")
        rows = [*found["requests"], *found["denied"], *found["grants"]]
        ids = [one.get("request_id") or one["id"] for one in rows if _is_of(one, user, given)]
        if not ids:
            raise NotFoundError(f"no permission of {user} for {given}: edged grant lists them")
    for one in ids:
        client.request("edged/grant", {"forget": one})
    return [f"{given}: forgotten"]


def _answer(args: Any, client: Client) -> list[str]:
    """Answer a request or for a path; what that means, in words."""
    given, answer, user = args.request, args.answer, args.user or "local"
    if not _is_path(given):
        found = client.request("edged/grant")
        client.request("edged/grant", {"request_id": given, "duration": answer})
        rows = [*found["requests"], *found["denied"], *found["grants"]]
        for one in rows:
            if given in (one.get("request_id"), one.get("id")):
                return [_told(one["path"], answer, one["user"], write=one["write"])]
        return [f"{given}: {answer}"]
    params = {"path": given, "user": user, "write": args.write, "duration": answer}
    client.request("edged/grant", params)
    told = [_told(given, answer, user, write=args.write)]
    waiting = client.request("edged/grant")["requests"]
    for one in (one for one in waiting if _is_of(one, user, given)):
        act = "write" if one["write"] else "read"
        told.append(
            f"a request to {act} there still waits: edged grant {one['request_id']} "
            "once|session|deny"
        )
    return told


def _is_of(one: dict[str, Any], user: str, path: str) -> bool:
    """Whether it is about a user's path; links in it are followed as the daemon does here."""
    return one["user"] == user and one["path"] in (os.path.normpath(path), os.path.realpath(path))


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
