"""What msgspec refuses, in words for people who speak JSON and not Python. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_COUNTED = {"str": "characters", "array": "items", "object": "fields"}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "above", "<": "below"}

_RULES: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"Expected `(\w+)` of length ([<>]=) (\d+)",
        lambda m: _length(m[1], m[2], m[3]),
    ),
    (
        r"Expected `(\w+)` ([<>]=?) ([^`\s]+)",
        lambda m: f"must be {_kind(m[1])}, {_BOUNDS[m[2]]} {m[3].removesuffix('.0')}",
    ),
    (
        r"Expected `([^`]+)`, got `([^`]+)`",
        lambda m: f"must be {_kind(m[1])}, not {_kind(m[2])}",
    ),
    (r"Object missing required field `([^`]+)`", lambda m: f"{m[1]} is required"),
    (r"Object contains unknown field `([^`]+)`", lambda m: f"{m[1]} is not known"),
    (r"Invalid enum value (.+)", lambda m: f"{m[1]} is none of its words"),
)


def worded(reason: str) -> str:
    """A refusal, as it is told; what has no other words stays as it is.

    Args:
        reason: the message of a `msgspec.ValidationError`, without its path.
    """
    for pattern, say in _RULES:
        # Compiled with the first refusal, not with the start.
        match = re.fullmatch(pattern, reason)
        if match is not None:
            return say(match)
    return reason[:1].lower() + reason[1:]


def _kind(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | "))


def _length(kind: str, sign: str, count: str) -> str:
    if (sign, count) == (">=", "1"):
        return "must not be empty"
    things = _COUNTED.get(kind, "bytes")
    return f"must have {_BOUNDS[sign]} {count} {things if count != '1' else things.rstrip('s')}"
