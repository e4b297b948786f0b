"""A call's arguments, as the server that they go to wants them.

Pure. What fits is passed on to the letter: the server validates. Null means absent, and
text that spells what the input declares is made that; nothing else is touched.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edged.arguments import INJECTED
from edged.errors import Fault, InvalidArgumentsError
from edged.mcp.upstream.schemas import Adapted

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?")
_top = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode

_SPELLED: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


class Inputs:
    """What one tool takes."""

    def __init__(self, adapted: Adapted) -> None:
        """Read a published schema."""
        properties: dict[str, Any] = adapted.schema["properties"]
        self.names = frozenset(properties)
        self._required = frozenset(adapted.schema.get("required", ()))
        self._renamed = adapted.renamed
        self._closed = adapted.schema.get("additionalProperties") is False
        self._kinds = {name: _kinds(one) for name, one in properties.items()}
        self.sensitive = frozenset(
            name
            for name, one in properties.items()
            if isinstance(one, dict) and (one.get("format") == "password" or one.get("writeOnly"))
        )

    def arguments(self, raw: bytes, tool: str = "") -> bytes:
        """JSON of the object to send.

        Raises:
            InvalidArgumentsError: it is no object.
        """
        try:
            given = _top(raw or b"{}")
        except (msgspec.DecodeError, RecursionError):
            given = _object(raw, tool)
        changed = False
        sent: dict[str, Any] = {}
        for name, value in given.items():
            kinds = self._kinds.get(name)
            first = bytes(memoryview(value)[:1])
            if kinds is None:
                if name in INJECTED and self._closed and name not in self.names:
                    changed = True
                    continue
            elif first == b"n" and name not in self._required and "null" not in kinds:
                changed = True
                continue
            elif first == b'"' and "string" not in kinds:
                spelled = _spelled(bytes(value), kinds)
                if spelled is not None:
                    value, changed = msgspec.Raw(spelled), True  # noqa: PLW2901  as it is sent
            if name in self._renamed:
                name, changed = self._renamed[name], True  # noqa: PLW2901  likewise
            sent[name] = value
        if not changed and raw and raw[:1] == b"{":
            return raw
        return _encode(sent)


def _object(raw: bytes, tool: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        fault = Fault("", f"arguments are not JSON: {error}")
        raise InvalidArgumentsError([fault], tool) from None
    if value is None:
        return {}
    reason = "arguments must be an object of names and values"
    raise InvalidArgumentsError([Fault("", reason)], tool)


def _kinds(schema: Any) -> frozenset[str] | None:
    """The types that an input declares; None where it leaves them open."""
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list) and all(isinstance(one, str) for one in kind):
        return frozenset(kind)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list) and options:
        found = [_kinds(one) for one in options]
        known = [one for one in found if one is not None]
        return frozenset().union(*known) if len(known) == len(found) else None
    return None


def _spelled(raw: bytes, kinds: frozenset[str]) -> bytes | None:
    """JSON of what a text spells, where that is the one declared thing; else None."""
    text = msgspec.json.decode(raw, type=str).strip()
    if not (text in ("true", "false") or text[:1] in ("{", "[") or _NUMBER.fullmatch(text)):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    for kind in kinds:
        expected = _SPELLED.get(kind)
        if expected is None or isinstance(value, bool) != (kind == "boolean"):
            continue
        if isinstance(value, expected):
            return text.encode()
    return None
