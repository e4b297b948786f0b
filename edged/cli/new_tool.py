"""`edged new-tool`: a tool directory to start from, and where it belongs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import Any

from edged import paths
from edged.catalogue import seed_directory
from edged.cli import UsageError, show
from edged.cli.check_tool import built_in
from edged.cli.faults import cannot, unwritable
from edged.cli.parser import Parser, add_connection, connect
from edged.errors import ConfigError, EdgedError, StoreError
from edged.identity import LOCAL_USER
from edged.toolmd.check import RESERVED
from edged.toolmd.templates import TEMPLATES

EXAMPLE = "edged new-tool my_tool --language bash"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_ELSEWHERE = "choose another place with --directory"


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="NAME", help="a letter, then letters, digits or _")
    parser.add_argument(
        "--language", choices=tuple(TEMPLATES), default="python", help="of its code (python)"
    )
    parser.add_argument("--directory", metavar="DIR", default=".", help="where to write it (here)")
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if not _NAME.fullmatch(args.name):
        raise UsageError(
            f"{args.name!r} is no tool name: a lower-case letter, then letters, digits or _,"
            " 40 at most"
        )
    if args.name in built_in():
        raise UsageError(f"{args.name} {RESERVED}")
    if not args.directory:
        raise UsageError("--directory is empty: name one, or leave it out")
    path = write(args.name, args.language, args.directory)
    shown = shlex.quote(os.path.relpath(path))
    home, note = _tools_directory(args)
    target = shlex.quote(home)
    show.out(f"wrote {shown}/ ({', '.join(sorted(os.listdir(path)))})\n")
    show.out("next:")
    show.out(f"  edged check-tool {shown}")
    sudo = "" if _is_writable(home) else "sudo "
    show.out(f"  {sudo}mkdir -p {target} && {sudo}cp -r {shown} {target}/")
    show.out(f"  edged call {args.name} text=hello times=2")
    if note:
        show.out(f"\n{note}")
    if os.path.isdir(os.path.join(seed_directory(), args.name)):
        show.out(f"\nA tool {args.name} came with edged: once copied, yours is used in its place.")
    return 0


def write(name: str, language: str, directory: str) -> str:
    """Write `directory/name`; returns its path.

    Raises:
        ConfigError: something of that name is there.
        StoreError: it cannot be written; nothing of it is left.
    """
    path = os.path.join(directory, name)
    if os.path.lexists(path):
        raise ConfigError("is there already: choose another name", file=path)
    wrong = unwritable(directory)
    if wrong:
        raise StoreError(cannot("write", path, wrong, _ELSEWHERE))
    made = False
    try:
        os.makedirs(path)
        made = True
        for file, text in TEMPLATES[language].items():
            with open(os.path.join(path, file), "x", encoding="utf-8") as opened:
                opened.write(text.replace("TOOL_NAME", name).replace("TOOL_LABEL", _label(name)))
    except OSError as error:
        if made:
            shutil.rmtree(path, ignore_errors=True)
        raise StoreError(cannot("write", path, error, _ELSEWHERE)) from None
    return path


def _is_writable(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def _label(name: str) -> str:
    return name.replace("_", " ").strip().capitalize()


def _tools_directory(args: Any) -> tuple[str, str]:
    """The caller's own tools directory, as the daemon says where one runs; and a word on it."""
    try:
        status = connect(args).request("edged/status")
    except (EdgedError, UsageError):
        home = os.path.join(paths.data_directory(), LOCAL_USER, "tools")
        return home, "No daemon answers: this is the place that `edged serve` uses by default."
    return os.path.join(status["data"], status["user"], "tools"), ""
