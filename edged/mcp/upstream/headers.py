"""Headers of a request over Streamable HTTP that repeat parts of its body.

Pure. Source: MCP 2026-07-28, basic/transports/streamable-http, "Request Metadata".
"""

from __future__ import annotations

import binascii
import re
from typing import Any

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN = re.compile(r"(?:[!-~](?:[ !-~]*[!-~])?)?")
_BEGIN, _END = "=?base64?", "?="
_SAFE_INTEGER = 2**53 - 1
_PRIMITIVE = frozenset({"string", "integer", "boolean"})

Mirrored = dict[tuple[str, ...], str]
"""Path of an input, to the header that repeats it."""


def encoded(value: str) -> str:
    """A header's value that any text comes through."""
    sentinel = value.startswith(_BEGIN) and value.endswith(_END)
    if _PLAIN.fullmatch(value) and not sentinel:
        return value
    data = value.encode("utf-8", "replace")
    return f"{_BEGIN}{binascii.b2a_base64(data, newline=False).decode()}{_END}"


def mirrored(schema: Any) -> Mirrored:
    """Which inputs a tool wants to have repeated (`x-mcp-header`).

    Raises:
        ValueError: a mark breaks the rules; such a tool must be left out.
    """
    found: Mirrored = {}
    _collect(schema, (), found)
    if _count(schema) != len(found):
        raise ValueError("x-mcp-header stands where no input is reached by properties alone")
    names = [name.lower() for name in found.values()]
    if len(set(names)) != len(names):
        raise ValueError("x-mcp-header: two inputs have the same name")
    return {path: f"Mcp-Param-{name}" for path, name in found.items()}


def _collect(schema: Any, path: tuple[str, ...], found: Mirrored) -> None:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return
    for key, one in properties.items():
        if not isinstance(one, dict):
            continue
        where = (*path, key)
        if "x-mcp-header" in one:
            name = one["x-mcp-header"]
            if not isinstance(name, str) or _TOKEN.fullmatch(name) is None:
                raise ValueError(f"x-mcp-header of {key[:40]!r} is no name of a header")
            if one.get("type") not in _PRIMITIVE:
                raise ValueError(f"x-mcp-header of {key[:40]!r}: its type is not a primitive one")
            found[where] = name
        _collect(one, where, found)


def _count(node: Any) -> int:
    """How many marks there are, wherever they stand; names of inputs are none."""
    if isinstance(node, list):
        return sum(map(_count, node))
    if not isinstance(node, dict):
        return 0
    total = int("x-mcp-header" in node)
    for key, value in node.items():
        if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
            total += sum(map(_count, value.values())) if isinstance(value, dict) else 0
        elif key not in ("x-mcp-header", "default", "const", "enum", "examples"):
            total += _count(value)
    return total


def parameters(fields: Mirrored, arguments: dict[str, Any]) -> dict[str, str]:
    """The headers of one call; what is null or absent has none.

    Raises:
        ValueError: an integer that not every peer can read.
    """
    found = {}
    for path, header in fields.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or isinstance(value, dict | list):
            continue
        if isinstance(value, bool):
            found[header] = "true" if value else "false"
        elif isinstance(value, int | float):
            if abs(value) > _SAFE_INTEGER:
                raise ValueError(f"{'.'.join(path)}: must be from -(2**53 - 1) to 2**53 - 1")
            found[header] = str(int(value)) if float(value).is_integer() else str(value)
        else:
            found[header] = encoded(value)
    return found
