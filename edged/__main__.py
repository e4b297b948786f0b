"""The entry of the console script: what starts often or stays goes by a short road.

`edged mcp` and `edged serve` with plain options never import the option parser,
which would stay in memory beside them; help and faults still come from it.
"""

from __future__ import annotations

import os
import sys

_SERVE = ("config", "data", "socket", "http")


def main() -> int:
    """Run the command line of this process; returns its exit code."""
    _open_streams()
    verb, words = sys.argv[1:2], sys.argv[2:]
    if verb == ["mcp"]:
        given = plain(words, ("socket",))
        if given is not None:
            from edged import paths
            from edged.transports.stdio import bridge

            return bridge(given.get("socket") or paths.client_socket())
    if verb == ["serve"]:
        sim = "--sim" in words
        given = plain([word for word in words if word != "--sim"], _SERVE)
        if given is not None:
            from edged.cli import WRONG_FILE, guarded

            return guarded(lambda: _serve(given, sim=sim), WRONG_FILE)
    from edged.cli import run

    return run(sys.argv[1:])


def _open_streams() -> None:
    """Let the null device stand in for standard streams that are closed (`>&-`).

    Else the next file or socket that is opened would get the number of one.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def plain(words: list[str], names: tuple[str, ...]) -> dict[str, str] | None:
    """Options `--name value` and `--name=value`; None leaves anything else to the parser."""
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        value = value if equals else next(rest, "")
        odd = value[:1] in ("", "-") or not value.isprintable()
        if name[:2] != "--" or name[2:] not in names or odd:
            return None
        found[name[2:]] = value
    return found


def _serve(given: dict[str, str], *, sim: bool) -> int:
    from edged.cli import check_http
    from edged.daemon import Options, serve

    check_http(given.get("http"))
    return serve(Options(**given, sim=sim))


if __name__ == "__main__":
    sys.exit(main())
