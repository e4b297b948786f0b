"""`edged mcp`, for help and faults: `edged.__main__` takes the short road otherwise."""

from __future__ import annotations

from typing import Any

from edged import paths
from edged.cli.parser import Parser
from edged.transports.stdio import bridge

EXAMPLE = '{"mcpServers": {"edged": {"command": "edged", "args": ["mcp"]}}}'


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--socket", metavar="PATH", help="the daemon's socket (EDGED_SOCKET)")


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    return bridge(args.socket or paths.client_socket())
