"""Input schemas of other servers, as every model provider takes them; nothing is lost.

Pure. Providers want a flat object at the root and resolve no references (a tool with
anything else costs some clients all of the server's tools): local references are put in
place, alternatives at the root become optional inputs and a sentence. The server goes on
judging by its own schema. Remote references are never followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

DEPTH_MAX = 64
NODES_MAX = 20_000
"""Parts of one schema once its references are in place."""

SIZE_MAX = 256 << 10
"""Bytes of a schema, as it comes and as it is published."""

INPUTS_MAX = 500
"""Inputs of one tool."""

REFERENCE_MAX = 500
"""Characters of a reference; what a longer one names is not looked for."""

ALTERNATIVES_MAX = 100
"""Schemas of one input that are told apart."""

_ANY = {"description": "It has too many forms to be listed."}
"""An input with more of them: its server judges."""

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What providers take as the name of an input."""

_TOO_LARGE = f"its input schema has more than {SIZE_MAX >> 10} KiB"

_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords whose members are named by the schema's author."""

_VALUES = frozenset({"default", "const", "enum", "examples", "required"})
"""Keywords with values, not schemas."""

_DROPPED = frozenset(
    {"$defs", "definitions", "$schema", "$id", "$anchor", "$comment", "x-mcp-header"}
)
_ALTERNATIVES = ("anyOf", "oneOf")
_CONDITIONS = ("then", "else")
_ROOT_ONLY = frozenset(
    {*_ALTERNATIVES, *_CONDITIONS, "allOf", "if", "not", "enum", "const", "dependentSchemas"}
    | {"dependentRequired", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}
)


class Adapted(msgspec.Struct, frozen=True):
    """A schema to publish.

    Attributes:
        schema: `type: object` at its root, no references.
        note: what the root said beside its inputs, for the description; may be empty.
        renamed: published names of inputs that providers would refuse, to their own.
    """

    schema: dict[str, Any]
    note: str = ""
    renamed: dict[str, str] = {}


def adapted(schema: Any) -> Adapted:
    """Make an input schema that every provider takes.

    Raises:
        ValueError: it is none of an object's, or beyond all bounds; says why.
    """
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        raise ValueError("its input schema is no object")  # noqa: TRY004  a server's data
    whole = _Inliner(schema).inline(schema, (), 0)
    kind = whole.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ValueError(f"its inputs are of type {str(kind)[:40]!r}, not an object")
    properties, required, notes = _flattened(whole)
    if len(properties) > INPUTS_MAX:
        raise ValueError(f"it has {len(properties)} inputs, more than {INPUTS_MAX}")
    flat = {key: value for key, value in whole.items() if key not in _ROOT_ONLY}
    renamed = _renamed(properties)
    names = {own: shown for shown, own in renamed.items()}
    flat |= {
        "type": "object",
        "properties": {names.get(key, key): value for key, value in properties.items()},
    }
    flat.pop("required", None)
    needed = [names.get(key, key) for key in properties if key in required]
    if needed:
        flat["required"] = needed
    if len(msgspec.json.encode(flat)) > SIZE_MAX:
        raise ValueError(_TOO_LARGE)
    return Adapted(flat, " ".join(notes), renamed)


class _Inliner:
    """Puts what references name in their place."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = NODES_MAX
        # What is put in many places is as large as all of them.
        self._room = SIZE_MAX
        self._targets: dict[str, Any] = {}
        self._anchors = _anchors(root)

    def inline(self, node: Any, within: tuple[str, ...], depth: int) -> Any:
        """A part without references; `within` are those that led here."""
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX:
            raise ValueError("its input schema is too large or nested too deeply")
        if isinstance(node, list):
            return [self.inline(item, within, depth + 1) for item in node]
        if not isinstance(node, dict):
            if isinstance(node, str):
                self._take(len(node))
            return node
        self._take(sum(map(len, node)))
        reference = node.get("$ref")
        if isinstance(reference, str):
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return self._resolved(reference, rest, within, depth)
        found = {}
        for key, value in node.items():
            if key in _NAMED and isinstance(value, dict):
                self._take(sum(map(len, value)))
                found[key] = {
                    name: self.inline(one, within, depth + 1) for name, one in value.items()
                }
            elif key in _VALUES:
                self._take(len(msgspec.json.encode(value)))
                found[key] = value
            elif key not in _DROPPED:
                found[key] = self.inline(value, within, depth + 1)
        return found

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ValueError(_TOO_LARGE)

    def _resolved(
        self, reference: str, rest: dict[str, Any], within: tuple[str, ...], depth: int
    ) -> Any:
        beside = self.inline(rest, within, depth + 1)
        target = self._target(reference)
        if reference in within or not isinstance(target, dict):
            # A part of itself, or elsewhere: anything, and the server judges.
            known = target.get("type") if isinstance(target, dict) else None
            told = "" if isinstance(target, dict) else f"See {reference[:200]}"
            plain = {"type": known} if isinstance(known, str) else {}
            return {**plain, **({"description": told} if told else {}), **beside}
        return {**self.inline(target, (*within, reference), depth + 1), **beside}

    def _target(self, reference: str) -> Any:
        """What a local reference names; None where there is nothing, or it is not local."""
        if not reference.startswith("#") or len(reference) > REFERENCE_MAX:
            return None
        if not reference.startswith("#/"):
            return self._root if reference == "#" else self._anchors.get(reference[1:])
        if reference not in self._targets:
            self._targets[reference] = self._pointed(reference[2:])
        return self._targets[reference]

    def _pointed(self, pointer: str) -> Any:
        from urllib.parse import unquote  # noqa: PLC0415  only for schemas with references

        node: Any = self._root
        for part in pointer.split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                node = node.get(key) if isinstance(node, dict) else None
        return node


def _anchors(root: dict[str, Any]) -> dict[str, Any]:
    """Definitions by `$anchor`; the first of a name."""
    found: dict[str, Any] = {}
    for group in ("$defs", "definitions"):
        definitions = root.get(group)
        for one in definitions.values() if isinstance(definitions, dict) else ():
            if isinstance(one, dict) and isinstance(one.get("$anchor"), str):
                found.setdefault(one["$anchor"], one)
    return found


def _flattened(whole: dict[str, Any]) -> tuple[dict[str, Any], set[str], list[str]]:
    """All inputs that a root names at any of its alternatives, and those always required."""
    properties: dict[str, Any] = {}
    required = _words(whole.get("required"))
    notes: list[str] = []
    _merge(properties, whole)
    for part in _schemas(whole.get("allOf")):
        more, needed, said = _flattened(part)
        _merge(properties, {"properties": more})
        required |= needed
        notes += said
    for word in _ALTERNATIVES:
        parts = [_flattened(part) for part in _schemas(whole.get(word))]
        for more, _, _ in parts:
            _merge(properties, {"properties": more})
        sets = [needed for _, needed, _ in parts]
        if sets:
            required |= set.intersection(*sets)
            notes += _choice(sets, required, exactly=word == "oneOf")
    conditional = [whole[word] for word in _CONDITIONS if isinstance(whole.get(word), dict)]
    dependent = whole.get("dependentSchemas")
    conditional += _schemas(list(dependent.values())) if isinstance(dependent, dict) else []
    for part in conditional:
        more, needed, _ = _flattened(part)
        _merge(properties, {"properties": more})
        if needed - required:
            notes.append(f"Depending on other inputs also required: {_listed(needed)}.")
    needs = whole.get("dependentRequired")
    if isinstance(needs, dict):
        notes += [f"With {key}: {_listed(_words(value))}." for key, value in needs.items()]
    return properties, required, notes


def _choice(sets: list[set[str]], always: set[str], *, exactly: bool) -> list[str]:
    """The sentence that says which inputs go together."""
    rows = [_listed(needed - always) for needed in sets if needed - always]
    if not rows:
        return []
    one = "exactly one" if exactly else "at least one"
    rows = list(dict.fromkeys(rows))
    return [f"Give {one} of these sets of inputs: {'; '.join(rows)}."]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _words(value: Any) -> set[str]:
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else set()


def _schemas(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _merge(into: dict[str, Any], schema: dict[str, Any]) -> None:
    """Add inputs; one that is there with another schema may be either."""
    more = schema.get("properties")
    for key, given in more.items() if isinstance(more, dict) else ():
        one = given if isinstance(given, dict) else {}
        before = into.get(key)
        if not before:
            into[key] = one
        elif before is not _ANY and one not in (before, {}):
            listed = before.keys() == {"anyOf"} and isinstance(before["anyOf"], list)
            options = before["anyOf"] if listed else [before]
            if one not in options:
                full = len(options) >= ALTERNATIVES_MAX
                into[key] = _ANY if full else {"anyOf": [*options, one]}


def _renamed(properties: Iterable[str]) -> dict[str, str]:
    """Names to publish for those that providers refuse."""
    names = list(properties)
    taken = {name for name in names if _KEY.fullmatch(name)}
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for name in names:
        if name in taken:
            continue
        shown = base = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:60].strip("_") or "input"
        while shown in taken or shown in found:
            numbers[base] = number = numbers.get(base, 1) + 1
            shown = f"{base}_{number}"
        found[shown] = name
    return found
