"""`edged serve`: the daemon in the foreground."""

from __future__ import annotations

from typing import Any

from edged.cli import check_http
from edged.cli.parser import Parser
from edged.daemon import Options, serve

EXAMPLE = "edged serve --sim\nedged serve --config ./edged.yaml --data ./data --http off"


def options(parser: Parser) -> None:
    """Add the verb's options; `edged.__main__` reads the plain ones itself."""
    parser.add_argument("--config", metavar="FILE", help="configuration (EDGED_CONFIG)")
    parser.add_argument("--data", metavar="DIR", help="data directory (DATA_PATH)")
    parser.add_argument("--socket", metavar="PATH", help="where to listen (EDGED_SOCKET)")
    parser.add_argument("--http", metavar="ADDR", help="address of the HTTP listener, or off")
    parser.add_argument("--sim", action="store_true", help="simulate the board")


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    check_http(args.http)
    return serve(Options(args.config, args.data, args.socket, args.http, args.sim))
