"""A call's raw arguments to a tool's Struct: a fast decode, then a second look.

The second look happens only after the fast decode failed. It accepts aliases,
the specification's injected names, null for an optional input and unambiguous
strings, and else reports every fault at once with its path (contract, section 8).
The value of a sensitive input never shows in a reason, nor does that of an unknown one.
"""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from edged.errors import Fault, InvalidArgumentsError
from edged.tool import Tool
from edged.wording import worded

INJECTED = frozenset({"workspace", "channel", "chat_id"})
"""Names that hosts inject; accepted everywhere, never widening a right."""

UNKNOWN = "is not an input of this tool"
"""How the reason begins where a name is unknown: then even the name may be a secret."""

FAULTS_MAX = 20
"""Faults that one answer reports; a line of a million wrong names must not become gigabytes."""

SHOWN_MAX = 40
"""Characters of a wrong value that is shown."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,999})(\.[0-9]{1,999})?([eE][+-]?[0-9]{1,9})?")
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
    except (msgspec.DecodeError, RecursionError):
        return _second_look(tool, raw or b"{}")


def _second_look(tool: Tool, raw: bytes) -> msgspec.Struct:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
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
        if name in given:
            checked, found = _checked(tool, name, given[name], field.type)
            clean[name] = checked
            faults += found
        elif field.required:
            faults.append(Fault(name, f"is required ({_expected(tool, name)})"))
    if faults:
        raise InvalidArgumentsError(_bounded(faults), tool.name)
    try:
        return msgspec.convert(clean, tool.type)
    except msgspec.ValidationError as error:
        # A rule over several fields (`__post_init__`).
        raise InvalidArgumentsError([Fault("", str(error))], tool.name) from None


def _bounded(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= FAULTS_MAX:
        return faults
    return [*faults[:FAULTS_MAX], Fault("", f"and {len(faults) - FAULTS_MAX} more faults")]


def _renamed(
    tool: Tool, value: dict[str, Any], fields: dict[str, Any]
) -> tuple[dict[str, Any], list[Fault]]:
    """The given inputs by their own names; null for an optional one is absent."""
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, item in value.items():
        name = key if key in fields else tool.aliases.get(key, key)
        if name not in fields:
            if key not in INJECTED:
                known = ", ".join(fields) or "none"
                reason = f"{UNKNOWN}; it takes: {known}"
                faults.append(Fault(key[:64], reason))
        elif item is None and not fields[name].required:
            continue
        elif name in given or (name != key and value.get(name) is not None):
            faults.append(Fault(key, f"is given twice: {key!r} is another word for {name!r}"))
        else:
            given[name] = item
    return given, faults


def _checked(tool: Tool, name: str, item: Any, kind: Any) -> tuple[Any, list[Fault]]:
    """The value as its type has it, and what is wrong with it."""
    plain = _plain(item, kind)
    of_items = _item_type(kind)
    if isinstance(item, list) and of_items is not None:
        plain = [_plain(one, of_items) for one in item]
        faults = [
            Fault(f"{name}[{index}]{wrong.path}", worded(wrong.reason))
            for index, one in enumerate(plain)
            if (wrong := _refusal(one, of_items)) is not None
        ]
        if faults:
            return item, faults
    wrong = _refusal(plain, kind)
    if wrong is None:
        return plain, []
    return item, [Fault(name + wrong.path, _reason(tool, name, plain, wrong))]


def _item_type(kind: Any) -> Any:
    """What a list's items are, where the input is a list (perhaps optional); else None."""
    if get_origin(kind) is list:
        return get_args(kind)[0]
    options = get_args(kind) if get_origin(kind) in (Annotated, Union, UnionType) else ()
    return next((found for one in options if (found := _item_type(one)) is not None), None)


def _refusal(item: Any, kind: Any) -> Fault | None:
    """Why a value does not fit, in msgspec's words but without the value, and where in it."""
    try:
        msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        if reason.startswith("Invalid enum value"):
            reason = "Invalid enum value"
        return Fault(path.rstrip("`"), reason)
    return None


def _plain(item: Any, kind: Any) -> Any:
    """A value that does not fit as the number or boolean that it spells, where that fits.

    A number beyond the range is one too: else its giver would be told that it is none.
    """
    if _refusal(item, kind) is None:
        return item
    spelled = _MISSING
    if isinstance(item, float) and item.is_integer():
        # JSON Schema's integers include 5.0.
        spelled = int(item)
    elif item in ("true", "false"):
        spelled = item == "true"
    elif isinstance(item, str) and _NUMBER.fullmatch(item):
        spelled = _number(item)
    if spelled is _MISSING:
        return item
    wrong = _refusal(spelled, kind)
    return spelled if wrong is None or _is_range(wrong.reason) else item


def _is_range(reason: str) -> bool:
    """Whether a refusal is of a number that is too small or too large."""
    return re.fullmatch(r"Expected `(int|float)` [<>]=? .*", reason) is not None


def _number(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        # Beyond every range, such as 1e999.
        return _MISSING


def _reason(tool: Tool, name: str, item: Any, wrong: Fault) -> str:
    reason = wrong.reason
    if wrong.path or ("Expected" not in reason and "enum" not in reason):
        return worded(reason)
    ranged = _is_range(reason)
    if reason.startswith("Expected") and not ranged:
        limit = reason.partition(", got ")[0].removeprefix("Expected ")
        if "length" in limit:
            return worded(reason)
        if any(mark in limit for mark in (">", "<", "matching", "multiple")):
            return f"must be {limit}"
    shown = _kind(item) if name in tool.sensitive else _shown(item)
    return f"must be {_expected(tool, name, ranged=ranged)}, not {shown}"


def _shown(value: Any) -> str:
    """A wrong value as its giver knows it again; a long one by its kind."""
    if isinstance(value, str) and len(value) <= SHOWN_MAX and value.isprintable():
        return repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and len(str(value)) <= SHOWN_MAX:
        return f"the number {value}"
    return _kind(value)


_TYPES = {
    "string": "a text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "a boolean",
    "array": "a list",
    "object": "an object",
}


def _expected(tool: Tool, name: str, *, ranged: bool = False) -> str:
    spec = tool.schema["properties"][name]
    words = []
    for option in spec.get("anyOf", [spec]):
        if "enum" in option:
            words.append("one of " + ", ".join(str(v) for v in option["enum"]))
        else:
            word = _TYPES.get(option.get("type"), "any value")
            words.append(word + _range(option) if ranged else word)
    return "true or false" if words == ["a boolean"] else " or ".join(words)


def _range(spec: dict[str, Any]) -> str:
    """The bounds of a number: ` from 1 to 10`; empty where it has none."""
    words = (
        ("minimum", "from"),
        ("exclusiveMinimum", "above"),
        ("maximum", "to"),
        ("exclusiveMaximum", "below"),
    )
    return "".join(f" {word} {spec[key]:.12g}" for key, word in words if key in spec)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if value is None:
        return "null"
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"


def without_sensitive(tool: Tool, raw: bytes) -> Any:
    """The arguments for the audit trail: known inputs only, sensitive ones absent."""
    try:
        value = msgspec.json.decode(raw or b"{}")
    except (msgspec.DecodeError, RecursionError):
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
    """Values of sensitive inputs as text, to be masked in what comes out of the call."""
    if not tool.sensitive:
        return ()
    value = msgspec.to_builtins(params)
    found = (value.get(name) for name in tool.sensitive)
    return tuple(_spelling(v) for v in found if v and type(v) in (str, int, float))


def _spelling(value: str | float) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
