"""`edged token`: who may come in by HTTP."""

from __future__ import annotations

import os
import sys
from typing import Any

from edged.cli import UsageError, show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.client import Client
from edged.tokens import FIRST, FIRST_FILE, MAKE_OWNER

EXAMPLE = "edged token add kitchen --user ada@example.org\nedged token revoke kitchen"


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "action", choices=("add", "list", "revoke"), nargs="?", default="list", help="(list)"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the token's name")
    parser.add_argument("--user", metavar="U", help="whose calls they are: an e-mail or local")
    parser.add_argument("--role", choices=("owner", "agent"), help="what it may do (agent)")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if (args.action == "list") == bool(args.name):
        needs = "takes no name" if args.name else "needs a name"
        raise UsageError(f"token {args.action} {needs}: see edged token --help")
    if args.action != "add" and (args.user or args.role):
        raise UsageError("--user and --role go with edged token add")
    params = {"action": args.action, "name": args.name or ""}
    if args.action == "add":
        params |= {"user": args.user or "local", "role": args.role or "agent"}
    client = connect(args)
    file = _first_file(client) if (args.action, args.name) == ("revoke", FIRST) else ""
    answer = client.request("edged/token", params)
    if args.json:
        show.json(answer["tokens"] if args.action == "list" else answer)
    elif args.action == "list":
        rows = [(t["name"], t["user"], t["role"], t["created"]) for t in answer["tokens"]]
        show.table(("NAME", "USER", "ROLE", "CREATED"), rows)
    elif args.action == "add":
        sys.stderr.write("edged: this token is shown once: keep it\n")
        show.out(answer["token"])
    else:
        show.out(f"{args.name}: revoked")
        if file:
            sys.stderr.write(f"edged: {file} went with it: for another, {MAKE_OWNER}\n")
    return 0


def _first_file(client: Client) -> str:
    """The file of the owner's first token, which goes with the token; empty without one."""
    path = os.path.join(client.request("edged/status")["data"], FIRST_FILE)
    return path if os.path.exists(path) else ""
