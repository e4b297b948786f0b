"""Patterns of paths: `/var/log/*`, `**/.git`, `*.key`.

`*` and `?` stay within one component, `**` is any number of them, and what a pattern
matches is covered with all below it. One without a leading slash holds at any depth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_WILD = re.compile(r"[*?\[]")


class Patterns:
    """A set of patterns; immutable."""

    def __init__(self, patterns: Iterable[str]) -> None:
        found = [form for pattern in patterns for form in _forms(pattern)]
        self._match = re.compile("|".join(f"(?:{form})" for form in found), re.DOTALL).fullmatch
        self._any = bool(found)

    def __bool__(self) -> bool:
        return self._any

    def covers(self, path: str) -> bool:
        """Whether an absolute path is one that a pattern matches, or lies below one."""
        return self._any and self._match(path) is not None


def _forms(pattern: str) -> Iterable[str]:
    """The regular expressions of a pattern: as it is written, and with its links followed."""
    full = os.path.expanduser(pattern)
    parts = [part for part in full.split("/") if part]
    if not full.startswith("/"):
        parts.insert(0, "**")
    while parts and parts[-1] in ("*", "**") and len(parts) > 1:
        # What is in a directory, and then the directory, so that it can be listed.
        parts.pop()
    plain = 0
    while plain < len(parts) and not _WILD.search(parts[plain]):
        plain += 1
    real = os.path.realpath("/" + "/".join(parts[:plain]))
    followed = [part for part in real.split("/") if part] + parts[plain:]
    return dict.fromkeys(map(_expression, (parts, followed)))


_SIGNS = re.compile(r"\*+|\?|\[!?\]?[^\]]+\]")


def _expression(parts: list[str]) -> str:
    body = "".join("(?:/[^/]+)*" if part == "**" else f"/{_component(part)}" for part in parts)
    return f"{body}(?:/.*)?" if body else "/.*"


def _component(part: str) -> str:
    made, end = "", 0
    for sign in _SIGNS.finditer(part):
        made += re.escape(part[end : sign.start()]) + _sign(sign.group())
        end = sign.end()
    return made + re.escape(part[end:])


def _sign(sign: str) -> str:
    if sign[0] == "*":
        return "[^/]*"
    if sign == "?":
        return "[^/]"
    inside = sign[1:-1]
    negated = inside.startswith("!")
    text = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside.removeprefix("!"))
    made = f"(?!/)[{'^' if negated else ''}{text}]"
    try:
        re.compile(made)
    except re.error:
        # A range from z to a: then it is the name of something.
        return re.escape(sign)
    return made
