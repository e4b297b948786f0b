"""Whether a value is of a type as the SDKs write their requests: whole, and nothing beside.

pydantic looks at iterables only when they are read, and lets unknown keys of a
`TypedDict` pass; a server refuses both.
"""

from __future__ import annotations

import collections.abc
import types
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
_DICTS = (dict, collections.abc.Mapping)
_UNIONS = (Union, types.UnionType)


def faults(value: Any, kind: Any, at: str = "") -> list[str]:
    """What is wrong with a value, each with its place; empty where nothing is."""
    origin, args = get_origin(kind), get_args(kind)
    if hasattr(kind, "__value__"):
        return faults(value, kind.__value__, at)
    if origin in (Annotated, Required, NotRequired):
        return faults(value, args[0], at)
    if kind in (Any, object):
        return []
    if origin in _UNIONS:
        return min((faults(value, one, at) for one in args), key=lambda f: _weight(f, at))
    if origin is Literal:
        return [] if value in args else [f"{at}: {value!r} is not one of {args}"]
    if is_typeddict(kind):
        return _of_dict(value, kind, at)
    if origin in _LISTS:
        if not isinstance(value, list):
            return [f"{at}: is no list"]
        return [f for i, one in enumerate(value) for f in faults(one, args[0], f"{at}[{i}]")]
    if origin in _DICTS or kind in _DICTS:
        if not isinstance(value, dict):
            return [f"{at}: is no object"]
        inner = args[1] if args else object
        return [f for name, one in value.items() for f in faults(one, inner, f"{at}.{name}")]
    if kind is None or kind is types.NoneType:
        return [] if value is None else [f"{at}: is not null"]
    wanted = {float: (int, float)}.get(kind, kind)
    is_right = isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
    return [] if is_right else [f"{at}: is no {kind.__name__}"]


def _weight(found: list[str], at: str) -> tuple[bool, bool, int]:
    """Of several types the one that was meant: its kind fits, and its `type` or `role`."""
    places = [one.partition(":")[0] for one in found]
    return at in places, any(p in (f"{at}.type", f"{at}.role") for p in places), len(found)


def _of_dict(value: Any, kind: Any, at: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{at}: is no object"]
    hints, required = _keys(kind)
    found = [f"{at}.{name}: is not known" for name in value.keys() - hints.keys()]
    found += [f"{at}.{name}: is missing" for name in required - value.keys()]
    for name in value.keys() & hints.keys():
        found += faults(value[name], hints[name], f"{at}.{name}")
    return found


@cache
def _keys(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Types by key, and the keys that must be there."""
    hints = get_type_hints(kind, include_extras=True)
    bases = [_keys(one) for one in getattr(kind, "__orig_bases__", ()) if is_typeddict(one)]
    inherited = {name for base, _ in bases for name in base}
    required = {name for _, names in bases for name in names}
    for name, one in hints.items():
        is_own = name not in inherited and kind.__total__ and get_origin(one) is not NotRequired
        if is_own or get_origin(one) is Required:
            required.add(name)
    return hints, frozenset(required)
