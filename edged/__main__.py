"""The entry of the console script: `edged mcp` by the short road, all else by the table."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["mcp"]:
        path = _only_socket(arguments[1:])
        if path is not None:
            from edged.transports.stdio import bridge

            return bridge(path)
    from edged.cli import run

    return run(arguments)


def _only_socket(arguments: list[str]) -> str | None:
    """The socket, when the arguments say nothing else; None leaves them to the parser."""
    if not arguments:
        from edged.paths import client_socket

        return client_socket()
    name, _, value = arguments[0].partition("=")
    if name != "--socket":
        return None
    rest = [value, *arguments[1:]] if value else arguments[1:]
    return rest[0] if len(rest) == 1 and rest[0][:1] not in ("", "-") else None


if __name__ == "__main__":
    sys.exit(main())
