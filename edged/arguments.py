"""A call's raw arguments to a tool's Struct: a fast decode, then a second look.

The second look happens only after the fast decode failed. It accepts aliases,
the specification's injected names, null for an optional input and unambiguous
strings, and else reports every fault at once with its path (contract, section 8).
Values never show in a reason: an input may be sensitive.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from edged.errors import Fault, InvalidArgumentsError
from edged.tool import Tool

INJECTED = frozenset({"workspace", "channel", "chat_id"})
"""Names that hosts inject; accepted everywhere, never widening a right."""

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_MISSING = object()


def decode(tool: Tool, raw: bytes) -> msgspec.Struct:
    """Decode and validate.

    Args:
        tool: whose inputs they are.
        raw: JSON of one object; empty for no arguments.

    Raises:
        InvalidArgumentsError: with every fault.
    """
    try:
        return tool.decode(raw or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _second_look(tool, raw)


def _second_look(tool: Tool, raw: bytes) -> msgspec.Struct:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = Fault("", f"arguments are not JSON: {error}")
        raise InvalidArgumentsError([fault], tool.name) from None
    if value is None:
        value = {}
    if not isinstance(value, dict):
        reason = f"arguments must be an object of names and values, not {_kind(value)}"
        raise InvalidArgumentsError([Fault("", reason)], tool.name)
    fields = tool.fields
    given, faults = _renamed(tool, value, fields)
    clean: dict[str, Any] = {}
    for name, field in fields.items():
        item = given.get(name, _MISSING)
        if item is _MISSING or (item is None and not field.required):
            if field.required:
                faults.append(Fault(name, f"is required ({_expected(tool, name)})"))
            continue
        checked = _checked(item, field.type)
        if isinstance(checked, _Refused):
            faults.append(Fault(name + checked.path, _reason(tool, name, item, checked)))
        else:
            clean[name] = checked.value
    if faults:
        raise InvalidArgumentsError(faults, tool.name)
    try:
        return msgspec.convert(clean, tool.type)
    except msgspec.ValidationError as error:
        # A rule over several fields (`__post_init__`).
        raise InvalidArgumentsError([Fault("", str(error))], tool.name) from None


def _renamed(
    tool: Tool, value: dict[str, Any], fields: dict[str, Any]
) -> tuple[dict[str, Any], list[Fault]]:
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, item in value.items():
        name = key if key in fields else tool.aliases.get(key, key)
        if name not in fields:
            if key not in INJECTED:
                known = ", ".join(fields) or "none"
                faults.append(Fault(key, f"is not an input of this tool; it takes: {known}"))
        elif name in given or (name != key and name in value):
            faults.append(Fault(key, f"is given twice: {key!r} is another word for {name!r}"))
        else:
            given[name] = item
    return given, faults


class _Accepted(msgspec.Struct):
    value: Any


class _Refused(msgspec.Struct):
    path: str
    reason: str


def _checked(item: Any, kind: Any) -> _Accepted | _Refused:
    try:
        msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        plain = _from_text(item)
        if plain is not _MISSING:
            try:
                msgspec.convert(plain, kind)
            except msgspec.ValidationError:
                pass
            else:
                return _Accepted(plain)
        reason, _, path = str(error).partition(" - at `$")
        return _Refused(path.rstrip("`"), reason)
    return _Accepted(item)


def _from_text(item: Any) -> Any:
    """The number or boolean that a text unambiguously spells."""
    if isinstance(item, str):
        if item in ("true", "false"):
            return item == "true"
        if _NUMBER.fullmatch(item):
            return msgspec.json.decode(item.encode())
    return _MISSING


def _reason(tool: Tool, name: str, item: Any, refused: _Refused) -> str:
    if refused.path or "Expected" not in refused.reason and "enum" not in refused.reason:
        return refused.reason[:1].lower() + refused.reason[1:]
    if refused.reason.startswith("Expected") and isinstance(item, int | float | str | list):
        limit = refused.reason.partition(", got ")[0].removeprefix("Expected ")
        if any(mark in limit for mark in (">", "<", "length", "matching", "multiple")):
            return f"must be {limit}"
    return f"must be {_expected(tool, name)}, not {_kind(item)}"


def _expected(tool: Tool, name: str) -> str:
    spec = tool.schema["properties"].get(name, {})
    if "enum" in spec:
        return "one of " + ", ".join(str(v) for v in spec["enum"])
    options = spec.get("anyOf", [spec])
    return " or ".join(str(o.get("type", "any value")) for o in options)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "this text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def without_sensitive(tool: Tool, raw: bytes) -> Any:
    """The arguments for the audit trail: known inputs only, sensitive ones absent."""
    try:
        value = msgspec.json.decode(raw or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    known = tool.fields
    return {
        key: item
        for key, item in value.items()
        if (name := tool.aliases.get(key, key)) in known and name not in tool.sensitive
    }


def secret_values(tool: Tool, params: msgspec.Struct) -> tuple[str, ...]:
    """Values of sensitive inputs, to be masked in what comes out of the call."""
    if not tool.sensitive:
        return ()
    value = msgspec.to_builtins(params)
    return tuple(v for n in tool.sensitive if isinstance(v := value.get(n), str) and v)
