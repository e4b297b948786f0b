"""Words for people: what msgspec refuses, and what strangers wrote, made harmless. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from edged.errors import Fault

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


def safe(text: str) -> str:
    """Text of several lines without control characters."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """Text as one line without control characters."""
    return safe(" ".join(text.split()))


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


def faulted(error: msgspec.ValidationError, kind: Any) -> Fault:
    """Likewise with the place: a field that is missing or not known is the place itself.

    Args:
        error: of decoding a `kind`.
        kind: a type of msgspec's.
    """
    reason, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    named = re.fullmatch(r"Object (missing required|contains unknown) field `([^`]+)`", reason)
    if named is not None:
        told = "is required" if named[1].startswith("missing") else "is not known"
        return Fault(f"{path}.{named[2]}".removeprefix("."), told)
    told = worded(reason)
    words = choices(kind, path) if reason.startswith("Invalid enum value") else []
    if words:
        value = reason.removeprefix("Invalid enum value ")
        told = f"{value} is none of {', '.join(words)}"
    return Fault(path.removeprefix("."), told)


def choices(kind: Any, path: str = "") -> list[str]:
    """The words that a type takes at a place in it; none where no words are fixed.

    Args:
        kind: a type of msgspec's.
        path: as msgspec writes it, without `$`: `.agents[0].status`.
    """
    # With a refusal, not with the start.
    from msgspec import inspect  # noqa: PLC0415

    there = list(_flat(inspect.type_info(kind)))
    for name in re.findall(r"\.([^.\[\]]+)|\[", path):
        there = [deeper for node in there for part in _parts(node, name) for deeper in _flat(part)]
    found: list[str] = []
    for node in there:
        if isinstance(node, inspect.LiteralType):
            found += map(str, node.values)
        elif isinstance(node, inspect.EnumType):
            found += [str(one.value) for one in node.cls]
    return found


def _flat(node: Any) -> Iterator[Any]:
    """The members of a union, or the one type itself, without what is noted about it."""
    if hasattr(node, "types"):
        for one in node.types:
            yield from _flat(one)
    elif type(node).__name__ == "Metadata":
        yield from _flat(node.type)
    else:
        yield node


def _parts(node: Any, name: str) -> Iterator[Any]:
    """What is in a type: its field of that name, or its items where there is no name."""
    for field in getattr(node, "fields", ()) if name else ():
        if field.encode_name == name:
            yield field.type
    if not name:
        for inner in ("item_type", "value_type"):
            if hasattr(node, inner):
                yield getattr(node, inner)
        yield from getattr(node, "item_types", ())


def _kind(names: str) -> str:
    return " or ".join(_KINDS.get(name, name) for name in names.split(" | "))


def _length(kind: str, sign: str, count: str) -> str:
    if (sign, count) == (">=", "1"):
        return "must not be empty"
    things = _COUNTED.get(kind, "bytes")
    return f"must have {_BOUNDS[sign]} {count} {things if count != '1' else things.rstrip('s')}"
