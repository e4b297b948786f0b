"""The one YAML loader: plain values with the line of each key, and the way into Structs.

Laws: scalars follow the YAML 1.2 core schema, so that `on`, `no`, `12:30` and `2024-01-01`
stay text. A number with a leading zero (`010`, `007.5`) stays text too: YAML 1.1, 1.2 and
people read it as three different things. Anything that makes a file mean more than it shows
(duplicate keys, anchors, merge keys, tags, several documents) is an error with its line.
Size and depth are bounded, so that no input ends the process. Reads no files.
"""

from __future__ import annotations

import enum
import itertools
import re
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from edged.errors import ConfigError, Fault

T = TypeVar("T")

# Patterns stay text until their first use, here and in toolmd: compiling them is the larger part
# of an import, and a start with a warm cache parses nothing.
Path = tuple[str | int, ...]

SIZE_MAX = 1 << 20
DEPTH_MAX = 64

UNKNOWN_KEY = "unknown key"
"""How every word on such a key begins."""

WORD_MAX, KNOWN_MAX = 100, 2_000
"""Characters and words that `nearest` looks at."""

_UNREADABLE = "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""YAML 1.2.2, production 1 (c-printable), negated."""

_SURROGATE_PAIR = r"(?i)(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})"
_LONE_SURROGATE = "[\ud800-\udfff]"

_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(
        (sign + dot for sign in ("", "+") for dot in (".inf", ".Inf", ".INF")), float("inf")
    ),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INT = r"[-+]?(?:0|[1-9][0-9]*)"
_BASED = r"0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT = r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1


class Secret(msgspec.Struct, frozen=True):
    """A value written `!secret NAME`, to be looked up by whoever owns the secrets."""

    name: str


class Document(msgspec.Struct, frozen=True):
    """One loaded document.

    Attributes:
        value: dict (with text keys), list, text, int, float, bool, None or `Secret`.
        lines: 1-based line of each key path; a list's items are named by index.
    """

    value: Any
    lines: dict[Path, int]

    def line_of(self, path: Path) -> int:
        """The line of a key path, or of the nearest parent that is there."""
        while path not in self.lines:
            if not path:
                return 0
            path = path[:-1]
        return self.lines[path]


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or the empty string.

    Words may be anyone's: no more is compared than takes a moment.
    """
    import difflib  # noqa: PLC0415 - only a mistake needs it

    by_fold = {name.casefold(): name for name in itertools.islice(known, KNOWN_MAX)}
    close = difflib.get_close_matches(word[:WORD_MAX].casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else ""


def unknown_key(word: str, known: Iterable[str]) -> str:
    """What to say of a key that nobody knows: the nearest one, else all that there are."""
    names = sorted(known)
    guess = nearest(word, names)
    if guess:
        return f"{UNKNOWN_KEY}; did you mean {guess!r}?"
    return f"{UNKNOWN_KEY}; known here: {', '.join(names) or 'none'}"


def joined(faults: list[ConfigError], file: str) -> ConfigError:
    """One error that stands for all `faults` (at least one), each on a line of its own."""
    if len(faults) == 1:
        return faults[0]
    text = "\n".join(f"  {fault}" for fault in faults)
    return ConfigError(f"{len(faults)} faults:\n{text}", file=file, faults=tuple(faults))


def load(text: str, file: str, *, first_line: int = 1, secrets: bool = False) -> Document:
    """Reads one YAML (or JSON) document.

    Args:
        text: at most 1 MiB.
        file: as the user knows it; for messages.
        first_line: line of the file on which `text` begins.
        secrets: whether `!secret NAME` is allowed.

    Raises:
        ConfigError: with file and line.
    """
    if len(text) > SIZE_MAX:
        raise ConfigError(f"larger than {SIZE_MAX >> 10} KiB: split it", file=file)
    text = text.removeprefix("\ufeff")
    if bad := re.search(_UNREADABLE, text):
        line = first_line + text.count("\n", 0, bad.start())
        raise ConfigError(
            f"character U+{ord(bad[0]):04X} is not allowed: remove it", file=file, line=line
        )
    if text.lstrip().startswith(("{", "[")):
        # JSON writes characters beyond U+FFFF as two escapes, which YAML does not know.
        text = re.sub(_SURROGATE_PAIR, _joined_pair, text)
    import yaml  # noqa: PLC0415 - costs memory, and only stale files are parsed

    builder = _Builder(file, first_line, secrets=secrets)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file, first_line) from None
    return Document(builder.value, builder.lines)


def _joined_pair(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return match[1] + chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))


def _syntax_error(error: Any, text: str, file: str, first_line: int) -> ConfigError:
    """A `yaml.MarkedYAMLError` in a user's words."""
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines() or [""]
    row = min(mark.line, len(lines) - 1)
    char = lines[row][mark.column : mark.column + 1]
    problem = str(error.problem)
    if "mapping values are not allowed" in problem:
        reason = (
            "a ':' that does not belong here: put the value in quotes, or mend the indentation"
        )
    elif "cannot start any token" in problem and char == "\t":
        reason = "a tab: indent with spaces"
    elif "cannot start any token" in problem:
        reason = f"a value cannot begin with {char!r}: put it in quotes"
    else:
        context = f"{error.context}: " if error.context else ""
        reason = f"not YAML: {context}{problem}: check quotes, brackets and indentation"
    return ConfigError(reason, file=file, line=first_line + row)


class _Frame:
    """One open collection while events arrive."""

    __slots__ = ("items", "key", "keyed", "path")

    def __init__(self, items: dict[str, Any] | list[Any], path: Path) -> None:
        self.items, self.path = items, path
        self.key = ""
        self.keyed = False
        """Whether `key` waits for its value."""


class _Builder:
    """Turns parser events into a value; iterative, so that depth costs no stack."""

    def __init__(self, file: str, first_line: int, *, secrets: bool) -> None:
        self.file, self.first_line, self.secrets = file, first_line, secrets
        self.value: Any = None
        self.lines: dict[Path, int] = {}
        self._stack: list[_Frame] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        """Takes the next `yaml.Event`."""
        name = type(event).__name__
        line = self.first_line + event.start_mark.line
        if name == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._error("a second document: keep one in a file", line)
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            self._stack.pop()
        elif name == "AliasEvent":
            raise self._error(f"alias '*{event.anchor}': write the value out", line)
        elif name in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent"):
            self._node(event, name, line)

    def _node(self, event: Any, name: str, line: int) -> None:
        if event.anchor is not None:
            raise self._error(
                f"anchor '&{event.anchor}': write the value out where it is used", line
            )
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.items, dict) and not frame.keyed:
            self._key(frame, event, name, line)
            return
        path = self._place(frame)
        self.lines.setdefault(path, line)
        if name == "ScalarEvent":
            self._put(frame, self._scalar(event, line))
            return
        self._tag(event, line)
        items: dict[str, Any] | list[Any] = {} if name == "MappingStartEvent" else []
        self._put(frame, items)
        self._stack.append(_Frame(items, path))
        if len(self._stack) > DEPTH_MAX:
            raise self._error(f"nested deeper than {DEPTH_MAX} levels: flatten it", line)

    def _key(self, frame: _Frame, event: Any, name: str, line: int) -> None:
        """The next key of a mapping: text, or a whole number kept as text."""
        if name != "ScalarEvent":
            raise self._error("a key must be text: put it in quotes", line)
        self._tag(event, line)
        plain = event.implicit[0]
        if plain and event.value == "<<":
            raise self._error("merge key '<<': write the keys out", line)
        key = _plain(event.value) if plain else event.value
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise self._error(f"key {event.value!r} is not text: put it in quotes", line)
        key = str(key)
        self._text(key, line)
        path = (*frame.path, key)
        if path in self.lines:
            first = self.lines[path]
            # As when the lines of a second scan are pasted below those of the first.
            is_section = any(path == one[: len(path)] != one for one in self.lines)
            remedy = "move what is below it there" if is_section else "keep one"
            raise self._error(f"key {key!r} is there already, on line {first}: {remedy}", line)
        self.lines[path] = line
        frame.key, frame.keyed = key, True

    @staticmethod
    def _place(frame: _Frame | None) -> Path:
        if frame is None:
            return ()
        return (*frame.path, frame.key if isinstance(frame.items, dict) else len(frame.items))

    def _put(self, frame: _Frame | None, value: Any) -> None:
        if frame is None:
            self.value = value
        elif isinstance(frame.items, dict):
            frame.items[frame.key] = value
            frame.keyed = False
        else:
            frame.items.append(value)

    def _scalar(self, event: Any, line: int) -> Any:
        if event.tag == "!secret" and self.secrets:
            if not event.value:
                raise self._error("!secret wants a name: write `!secret NAME`", line)
            return Secret(event.value)
        self._tag(event, line)
        if not event.implicit[0]:
            return self._text(event.value, line)
        try:
            return _plain(event.value)
        except ValueError as error:
            raise self._error(str(error), line) from None

    def _tag(self, event: Any, line: int) -> None:
        if event.tag is not None:
            hint = " (here `!secret NAME` is the only one)" if self.secrets else ""
            raise self._error(f"tag {event.tag!r} is not known: remove it{hint}", line)

    def _text(self, text: str, line: int) -> str:
        if re.search(_LONE_SURROGATE, text):
            raise self._error("half a character (\\ud800 to \\udfff alone): remove it", line)
        return text

    def _error(self, reason: str, line: int) -> ConfigError:
        return ConfigError(reason, file=self.file, line=line)


def _plain(text: str) -> Any:
    """The value of an unquoted scalar.

    Raises:
        ValueError: a number that 64 bits do not hold.

    Source: YAML 1.2.2, section 10.3.2, save for leading zeros.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    based = re.fullmatch(_BASED, text)
    if based or re.fullmatch(_INT, text):
        # int() is asked about short texts only: its time grows with the square of the length.
        number = int(text, 0 if based else 10) if len(text) < 32 else _INT_MAX + 1
        if not _INT_MIN <= number <= _INT_MAX:
            raise ValueError("number too large for 64 bits: put it in quotes if it is text")
        return number
    if re.fullmatch(_FLOAT, text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError("number too large: write .inf if infinity is meant")
        return value
    return text


def convert(document: Document, kind: type[T], file: str) -> T:
    """The document as a `kind`, or an error that names every fault.

    An empty document is an empty mapping. Whether unknown keys are faults is the Structs' own
    `forbid_unknown_fields`.

    Raises:
        ConfigError: one fault with its line and key path, or several with `faults`.
    """
    value = {} if document.value is None else document.value
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError:
        # Said again below, with every fault and its line.
        pass
    found = [
        ConfigError(reason, file=file, line=document.line_of(path), key=dotted(path))
        for path, reason in _faults(value, kind, ())
    ]
    raise joined(found, file)


def faults(value: Any, kind: Any) -> list[Fault]:
    """What keeps a value from being a `kind`, each fault with its key path; none if it is one."""
    return [Fault(dotted(path), reason) for path, reason in _faults(value, kind, ())]


def dotted(path: Path) -> str:
    """`("a", "b", 0)` as `a.b[0]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


_Found = Iterator[tuple[Path, str]]


def _faults(value: Any, kind: Any, path: Path) -> list[tuple[Path, str]]:
    """Every fault of `value`, those of its parts first; its own only when they are well."""
    return list(_faults_inside(value, _chosen(kind, value), path)) or _own_faults(
        value, kind, path
    )


def _own_faults(value: Any, kind: Any, path: Path) -> list[tuple[Path, str]]:
    """What msgspec says of `value` as a whole: at most one fault."""
    try:
        msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        text = str(error).partition(" - at `$")[0]
        return [(path, _in_words(text, value, kind))]
    return []


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type itself, without `Annotated`."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(member for arg in get_args(kind) for member in _members(arg))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _chosen(kind: Any, value: Any) -> Any:
    """The member of `kind` whose inside can be looked at for `value`, or None."""
    members = _members(kind)
    if isinstance(value, list):
        return next((m for m in members if get_origin(m) in (list, tuple, set, frozenset)), None)
    if not isinstance(value, dict):
        return None
    tags: list[str] = []
    tag_field = ""
    for member in filter(_is_struct, members):
        config = member.__struct_config__
        if config.tag_field is None or value.get(config.tag_field) == config.tag:
            return member
        tags.append(str(config.tag))
        tag_field = config.tag_field
    if tags:
        return _Tags(tag_field, tags)
    return next((m for m in members if get_origin(m) is dict), None)


class _Tags:
    """Stands for the Structs of a union of which none has the tag that a mapping gives."""

    def __init__(self, field: str, tags: list[str]) -> None:
        self.field, self.tags = field, tags

    def fault(self, value: dict[str, Any]) -> str:
        """What is wrong with the tag."""
        if self.field not in value:
            return f"is missing: write one of {', '.join(self.tags)}"
        return _not_one_of(self.tags, value[self.field])


def _faults_inside(value: Any, kind: Any, path: Path) -> _Found:
    if kind is None:
        return
    if isinstance(kind, _Tags):
        yield (*path, kind.field), kind.fault(value)
    elif _is_struct(kind):
        yield from _struct_faults(value, kind, path)
    elif get_origin(kind) is dict:
        key_kind, item_kind = get_args(kind)
        for key, item in value.items():
            for _, reason in _key_faults(key, key_kind):
                yield (*path, key), reason
            yield from _faults(item, item_kind, (*path, key))
    else:
        for index, (item, item_kind) in enumerate(
            zip(value, _item_kinds(kind, value), strict=False)
        ):
            yield from _faults(item, item_kind, (*path, index))


def _item_kinds(kind: Any, value: list[Any]) -> tuple[Any, ...]:
    """The type of each item of a list, or of each place of a fixed tuple."""
    args = get_args(kind)
    if get_origin(kind) is tuple and args[-1] is not Ellipsis:
        return args
    return (args[0],) * len(value)


def _key_faults(key: str, kind: Any) -> list[tuple[Path, str]]:
    if _members(kind) == (int,):
        # Keys are kept as text; msgspec reads them as numbers where the type asks for it.
        try:
            msgspec.convert({key: None}, dict[kind, Any], str_keys=True)
        except msgspec.ValidationError:
            return [((), "the key must be a whole number")]
        return []
    return _own_faults(key, kind, ())


def _struct_faults(value: dict[str, Any], kind: Any, path: Path) -> _Found:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    config = kind.__struct_config__
    known = [*fields, config.tag_field] if config.tag_field else list(fields)
    for key, item in value.items():
        if key in fields:
            yield from _faults(item, fields[key].type, (*path, key))
        elif config.forbid_unknown_fields and key != config.tag_field:
            yield (*path, key), unknown_key(key, known)
    for name, field in fields.items():
        if field.required and name not in value:
            yield (*path, name), "is missing: add it"


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
    "Secret": "a secret",
}


def _in_words(text: str, value: Any, kind: Any) -> str:
    """A message of msgspec's for people who know YAML and not Python."""
    choices = _choices(kind)
    if choices and text.startswith(("Invalid enum value", "Expected `str`, got")):
        is_mapping = any(_is_struct(m) or get_origin(m) is dict for m in _members(kind))
        return _not_one_of(choices, value, "a mapping" if is_mapping else "")
    text = re.sub("`([^`]+)`", lambda match: _type_words(match[1]), text)
    text = text[:1].lower() + text[1:]
    if bool in _members(kind) and isinstance(value, str):
        return f"{text}: write true or false"
    example = _example(kind)
    if example and text.startswith("expected text"):
        return f"expected text such as {example}; got {value!r}"
    if isinstance(value, int | float) and ", got " not in text:
        return f"{text}, got {value}"
    if text.startswith("expected a list, got") and isinstance(value, str | int | float):
        return f"{text}: put it in brackets, [{value}]"
    return text


def _example(kind: Any) -> str:
    """How a value is written, where a type's `Meta(examples=…)` tells."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        told = (str(n.examples[0]) for n in notes if isinstance(n, msgspec.Meta) and n.examples)
        return next(told, "") or _example(inner)
    if get_origin(kind) in (Union, types.UnionType):
        return next(filter(None, map(_example, get_args(kind))), "")
    return ""


def _not_one_of(choices: list[str], value: Any, other: str = "") -> str:
    """What to say of a value that is none of the choices, where it might be something else too."""
    # The empty one is what is meant where the key is left out.
    choices = list(filter(None, choices)) or choices
    guess = nearest(str(value), choices)
    hint = f"; did you mean {guess!r}?" if guess else ""
    wanted = f"one of {', '.join(choices)}" if len(choices) > 1 else repr(choices[0])
    if other:
        wanted += f" or {other}"
    return f"expected {wanted}; got {value!r}{hint}"


def _type_words(name: str) -> str:
    return " or ".join(_WORDS.get(part, part) for part in name.split(" | "))


def _choices(kind: Any) -> list[str]:
    """The values that a Literal or an enumeration in `kind` allows, `bool` beside it included."""
    found: list[str] = []
    for member in _members(kind):
        if get_origin(member) is Literal:
            found += [str(choice) for choice in get_args(member)]
        elif isinstance(member, type) and issubclass(member, enum.Enum):
            found += [str(choice.value) for choice in member]
    return [*found, "true", "false"] if found and bool in _members(kind) else found
