"""`edged mcp` for help, faults and `--client`; `edged.__main__` goes by a shorter road."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import Any

from edged import paths
from edged.cli import show
from edged.cli.parser import Parser
from edged.errors import ConfigError
from edged.transports.stdio import bridge

EXAMPLE = (
    "claude mcp add edged -- edged mcp\n"
    "edged mcp --client codex >> ~/.codex/config.toml\n"
    "edged mcp --client pi > ~/.pi/agent/extensions/edged.ts"
)

CLIENTS = ("claude-code", "claude-desktop", "codex", "cursor", "pi", "vscode")


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--socket", metavar="PATH", help="the daemon's socket (EDGED_SOCKET)")
    parser.add_argument(
        "--client",
        metavar="NAME",
        choices=CLIENTS,
        help=f"print what connects a client: {', '.join(CLIENTS)}",
    )


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.client:
        # The client may run elsewhere, and without this shell's variables.
        socket = args.socket or os.environ.get("EDGED_SOCKET")
        words = [_program(), "mcp"]
        if socket:
            words += ["--socket", os.path.abspath(socket)]
        show.out(configuration(args.client, words))
        return 0
    return bridge(args.socket or paths.client_socket())


def configuration(client: str, words: list[str]) -> str:
    """What connects a client: a file of its own, or a command for a shell.

    Source: the clients' documentation, "Connect to MCP servers" of each.

    Args:
        client: one of `CLIENTS`.
        words: the command that starts the server.
    """
    import json

    program, *rest = words
    server = {"command": program, "args": rest}
    if client == "pi":
        return _extension(words)
    if client == "claude-code":
        return f"claude mcp add edged -- {shlex.join(words)}"
    if client == "codex":
        # A JSON text and a list of them are TOML too.
        lines = [f"{name} = {json.dumps(value)}" for name, value in server.items()]
        return "\n".join(["[mcp_servers.edged]", *lines])
    if client == "vscode":
        return json.dumps({"servers": {"edged": {"type": "stdio", **server}}}, indent=2)
    return json.dumps({"mcpServers": {"edged": server}}, indent=2)


def _program() -> str:
    """This command as another program finds it, whose PATH may be another."""
    own = os.path.abspath(sys.argv[0])
    return own if os.access(own, os.X_OK) else shutil.which("edged") or "edged"


_OWN = 'const OWN = ["edged", "mcp"];'
"""The line of the extension that says what it starts."""


def _extension(words: list[str]) -> str:
    import json

    from edged.catalogue import seed_directory

    path = os.path.join(os.path.dirname(seed_directory()), "clients", "pi", "edged.ts")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read().removesuffix("\n")
    except OSError as error:
        reason = f"cannot be read: {error.strerror}: install edged again"
        raise ConfigError(reason, file=path) from None
    # A JSON text and a list of them are TypeScript too.
    return text.replace(_OWN, f"const OWN = {json.dumps(words)};")
