"""Names of skills and of the files in them. Pure.

Laws: a name that passes is one component of a path and the same on every file system:
no two that pass differ by case or by Unicode form alone.

Source: Agent Skills specification, `name`.
"""

from __future__ import annotations

import unicodedata

from edged.errors import Fault, InvalidArgumentsError, RemoteProtocolError

NAME_MAX = 64
"""Characters of a name by the specification."""

SLUG_MAX = 96
"""Characters of a name in a registry."""

COMPONENT_MAX = 255
"""Bytes of one name on Linux's file systems."""

DEPTH_MAX = 8
PATH_MAX = 1_024


def faults(name: str) -> str:
    """What is wrong with a skill's name by the specification; empty where nothing is."""
    found = unicodedata.normalize("NFKC", name)
    if not found or len(found) > NAME_MAX:
        return f"must have 1 to {NAME_MAX} characters"
    return _spelling(found)


def _spelling(name: str) -> str:
    if not all(c == "-" or c.isalnum() for c in name) or name != name.casefold():
        return "must be of lowercase letters, digits and hyphens"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        return "must not begin or end with a hyphen, nor have two in a row"
    return ""


def directory_name(name: str) -> str:
    """A name as that of a directory.

    Raises:
        InvalidArgumentsError: it cannot be one.
    """
    found = unicodedata.normalize("NFKC", name)
    fault = _spelling(found)
    if not found or len(found) > SLUG_MAX or len(found.encode()) > COMPONENT_MAX - 32:
        fault = f"must have 1 to {SLUG_MAX} characters"
    if fault:
        raise InvalidArgumentsError([Fault("name", f"{name[:SLUG_MAX]!r} {fault}")])
    return found


def member(path: str) -> tuple[str, ...]:
    """The components of a file's path in an archive.

    Raises:
        RemoteProtocolError: it leads out, or is no path that one may have.
    """
    parts = tuple(path.removesuffix("/").split("/"))
    for part in parts:
        fault = _component_fault(part)
        if fault:
            raise RemoteProtocolError(f"the archive is refused: {path[:200]!r} {fault}")
    if len(parts) > DEPTH_MAX + 1 or len(path) > PATH_MAX:
        raise RemoteProtocolError(
            f"the archive is refused: {path[:200]!r} is over {DEPTH_MAX} directories deep "
            f"or {PATH_MAX} characters long"
        )
    return parts


def _component_fault(part: str) -> str:
    if part in ("", ".", ".."):
        return "is absolute or leads out of it"
    if "\\" in part or not part.isprintable():
        return "has a backslash or a character that cannot be seen"
    if len(part.encode("utf-8", "surrogatepass")) > COMPONENT_MAX:
        return "has a name over 255 bytes"
    return ""


def key(path: str) -> str:
    """The same for two paths that some file system takes for one."""
    return unicodedata.normalize("NFKC", path).casefold()


def line(text: object, limit: int) -> str:
    """A stranger's words as one line that shows what it is.

    Args:
        text: anything but text counts for nothing.
        limit: characters.
    """
    if not isinstance(text, str):
        return ""
    one = " ".join(text[: limit * 8].split())
    one = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in one)
    return one if len(one) <= limit else f"{one[: limit - 1]}…"
