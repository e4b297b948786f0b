"""What a TOOL.md says: its front matter as a `Manifest`, its inputs as a schema and a Struct.

Pure. Laws: a file's faults are found all at once, each with its line; what the specification's
platform tolerates (an unknown key, an unknown input type, no version) is a warning here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from edged.errors import ConfigError
from edged.toolmd.frontmatter import split
from edged.units import size_bytes
from edged.yamlio import Document, Path, dotted, joined, load, nearest, unknown_key

InputType = Literal["string", "number", "boolean", "enum"]
Language = Literal["typescript", "python", "bash"]
Default = str | int | float | bool | None

MIB = 1 << 20
MEMORY_MIN = 16 * MIB

_NAME = r"[a-z][a-z0-9_]{0,39}"
_TOLERATED_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_INPUT_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
_DEVICE = r"[A-Za-z0-9_-][A-Za-z0-9_.:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.:-]*)*"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


class Input(msgspec.Struct, frozen=True, gc=False):
    """One declared input.

    Attributes:
        values: the allowed texts of an enum, else empty.
        default: None when there is none.
    """

    name: str
    type: InputType = "string"
    description: str = ""
    optional: bool = False
    sensitive: bool = False
    values: tuple[str, ...] = ()
    default: Default = None


class Manifest(msgspec.Struct, frozen=True, gc=False):
    """One readable TOOL.md.

    Attributes:
        version: 0 when the file gives none.
        inputs: in the file's order.
        timeout_s: wall time of a call, seconds.
        memory_max: bytes, for the whole process tree.
        devices: node names below `/dev`.
        resources: names of configured resources, or `all`.
        warnings: `line 4: key: what and what to do`.
        set: keys of the optional fields (as the file spells them, `timeout` and so on) that the
            file gives itself; the configuration's defaults fill the others.
    """

    name: str
    label: str
    description: str
    version: int = 0
    language: Language = "typescript"
    inputs: tuple[Input, ...] = ()
    body: str = ""
    timeout_s: float = 60.0
    memory_max: int = 256 * MIB
    network: bool = False
    devices: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    resources: tuple[str, ...] | Literal["all"] = ()
    warm: bool = True
    warnings: tuple[str, ...] = ()
    set: frozenset[str] = frozenset()


class Review(msgspec.Struct, frozen=True):
    """All that there is to say of one file; `manifest` is None when there are faults."""

    manifest: Manifest | None
    faults: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()


def parse(data: bytes, file: str) -> Manifest:
    """The manifest of one TOOL.md.

    Raises:
        ConfigError: names every fault, each with its line.
    """
    found = review(data, file)
    if found.manifest is None:
        raise joined(list(found.faults), file)
    return found.manifest


def review(data: bytes, file: str) -> Review:
    """Like `parse`, with the faults and warnings one by one; never raises for any bytes."""
    try:
        front = split(data, file)
        document = load(front.yaml_text, file, first_line=front.yaml_first_line)
    except ConfigError as error:
        return Review(None, (error,))
    reading = _Reading(document, file)
    fields = reading.fields(front.body)
    warnings = tuple(reading.warnings)
    if reading.faults:
        return Review(None, tuple(reading.faults), warnings)
    texts = tuple(f"line {w.line}: {w.key}: {w.reason}" for w in warnings)
    return Review(Manifest(**fields, warnings=texts), (), warnings)


class _Reading:
    """Goes through one front matter, gathering faults and warnings on the way."""

    def __init__(self, document: Document, file: str) -> None:
        self.document, self.file = document, file
        self.faults: list[ConfigError] = []
        self.warnings: list[ConfigError] = []

    def fields(self, body: str) -> dict[str, Any]:
        """The fields of a `Manifest`; of use only when no fault was found."""
        values = self.document.value
        if not isinstance(values, dict):
            self._fault(
                (), "the front matter must be `key: value` lines, with name and description"
            )
            return {}
        self._unknown_keys(values, (), _KNOWN)
        name = self._name(values)
        return {
            "name": name,
            "label": self._text(values, "label") or name,
            "description": self._text(values, "description", required=True),
            "version": self._version(values),
            "language": self._language(values),
            "inputs": self._inputs(values),
            "body": body,
            **self._limits(values),
        }

    def _fault(self, path: Path, reason: str) -> None:
        self.faults.append(self._at(path, reason))

    def _warn(self, path: Path, reason: str) -> None:
        self.warnings.append(self._at(path, reason))

    def _at(self, path: Path, reason: str) -> ConfigError:
        line = self.document.line_of(path)
        return ConfigError(reason, file=self.file, line=line, key=dotted(path))

    def _unknown_keys(self, values: dict[str, Any], path: Path, known: tuple[str, ...]) -> None:
        for key in values:
            if key not in known:
                self._warn((*path, key), f"{unknown_key(key, known)} (ignored)")

    def _text(
        self, values: dict[str, Any], key: str, path: Path = (), *, required: bool = False
    ) -> str:
        value = values.get(key)
        if value is None:
            value = ""
        if not isinstance(value, str):
            self._fault((*path, key), "must be text: put it in quotes")
            return ""
        if required and not value.strip():
            self._fault((*path, key), f"is missing: write `{key}: …`")
        return value.strip()

    def _flag(self, values: dict[str, Any], key: str, path: Path) -> bool:
        value = values.get(key)
        if value is not None and not isinstance(value, bool):
            self._fault((*path, key), "write true or false")
        return value is True

    def _name(self, values: dict[str, Any]) -> str:
        before = len(self.faults)
        name = self._text(values, "name", required=True)
        if len(self.faults) > before or re.fullmatch(_NAME, name):
            return name
        if re.fullmatch(_TOLERATED_NAME, name):
            self._warn(("name",), "write a name in lower case: letters, digits, `_`, at most 40")
        else:
            self._fault(
                ("name",), "write a letter, then letters, digits or `_`, at most 40, in lower case"
            )
        return name

    def _version(self, values: dict[str, Any]) -> int:
        value = values.get("version")
        if value is None:
            self._warn(("version",), "is missing and counts as 0: write `version: 1`")
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._fault(("version",), "must be a whole number, without quotes: write `version: 1`")
            return 0
        return value

    def _language(self, values: dict[str, Any]) -> str:
        value = values.get("language")
        known = get_args(Language)
        if value is None:
            return "typescript"
        if value not in known:
            guess = nearest(str(value), known)
            hint = f"; did you mean {guess!r}?" if guess else ""
            self._fault(("language",), f"must be one of {', '.join(known)}{hint}")
        return str(value)

    def _limits(self, values: dict[str, Any]) -> dict[str, Any]:
        """Those fields that the specification does not have."""
        given: dict[str, Any] = {}
        keys: list[str] = []
        for key, (field, read) in _LIMITS.items():
            if values.get(key) is None:
                continue
            keys.append(key)
            try:
                given[field] = read(values[key])
            except ValueError as error:
                self._fault((key,), str(error))
        return {**given, "set": frozenset(keys)}

    def _inputs(self, values: dict[str, Any]) -> tuple[Input, ...]:
        inputs = values.get("inputs")
        if inputs is None:
            return ()
        if not isinstance(inputs, dict):
            self._fault(
                ("inputs",), "must be a mapping: write `name:` and below it `type: string`"
            )
            return ()
        return tuple(self._input(name, value) for name, value in inputs.items())

    def _input(self, name: str, value: Any) -> Input:
        path: Path = ("inputs", name)
        if not re.fullmatch(_INPUT_NAME, name):
            self._fault(path, "write a letter or `_`, then letters, digits or `_`, at most 64")
        if not isinstance(value, dict):
            self._fault(path, "must be a mapping: write `type: string` and `description: …` below")
            return Input(name)
        self._unknown_keys(value, path, _INPUT_KNOWN)
        description = self._text(value, "description", path)
        if not description:
            self._warn((*path, "description"), "is missing: say what the input is for")
        type_ = self._input_type(value, path)
        choices = self._choices(value, type_, path)
        default = self._default(value, type_, choices, path)
        return Input(
            name,
            type_,
            description,
            self._flag(value, "optional", path) or default is not None,
            self._flag(value, "sensitive", path),
            choices,
            default,
        )

    def _input_type(self, value: dict[str, Any], path: Path) -> InputType:
        given = value.get("type")
        for known in get_args(InputType):
            if given == known:
                return known  # type: ignore[no-any-return]  # a member of InputType
        place = (*path, "type")
        if given is None:
            self._warn(place, "is missing and counts as string: write `type: string`")
        elif given in ("object", "array"):
            self._warn(place, f"{given} counts as string: accept a JSON string and parse it")
        else:
            guess = nearest(str(given), get_args(InputType))
            hint = f"; did you mean {guess!r}?" if guess else ""
            known_types = ", ".join(get_args(InputType))
            self._warn(place, f"{given!r} counts as string; known: {known_types}{hint}")
        return "string"

    def _choices(self, value: dict[str, Any], type_: str, path: Path) -> tuple[str, ...]:
        """The allowed texts of an enum, from `a, b` or a list."""
        given = value.get("values")
        place = (*path, "values")
        if type_ != "enum":
            if given is not None:
                self._warn(place, "is ignored: only `type: enum` has values")
            return ()
        items = given if isinstance(given, list) else [given]
        if isinstance(given, str) or given is None:
            items = (given or "").split(",")
        choices: list[str] = []
        for item in items:
            if not isinstance(item, str | int):
                self._fault(place, f"{item!r} is not text: put it in quotes")
                continue
            text = str(item).lower() if isinstance(item, bool) else str(item).strip()
            if text in choices:
                self._fault(place, f"{text!r} is there twice: keep one")
            elif text:
                choices.append(text)
        if not choices:
            self._fault(place, "an enum needs its values: write `values: a, b`")
        return tuple(choices)

    def _default(
        self, one: dict[str, Any], type_: InputType, choices: tuple[str, ...], path: Path
    ) -> Default:
        value, given = one.get("default"), one.get("type")
        if value is None or _fits(value, type_, choices):
            return value
        if given not in (None, "object", "array", *get_args(InputType)):
            # The type is the mistake: quotes around the default would make it worse.
            place = (*path, "type")
            known = get_args(InputType)
            guess = nearest(str(given), known)
            hint = f"; did you mean {guess!r}?" if guess else ""
            self._fault(place, f"{given!r} is unknown: write one of {', '.join(known)}{hint}")
            # Not both: that it counts as string, and that it cannot.
            self.warnings = [w for w in self.warnings if w.key != dotted(place)]
            return None
        wanted = {
            "string": "text: put it in quotes",
            "number": "a number, without quotes",
            "boolean": "true or false",
            "enum": f"one of {', '.join(choices)}",
        }[type_]
        self._fault((*path, "default"), f"must be {wanted}")
        return None


def _fits(value: Any, type_: InputType, choices: tuple[str, ...]) -> bool:
    if type_ == "enum":
        return value in choices
    if type_ == "number":
        return _is_number(value)
    return isinstance(value, bool if type_ == "boolean" else str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _timeout(value: Any) -> float:
    if not _is_number(value) or not 1 <= value <= 3600:
        raise ValueError("must be seconds, 1 to 3600: write `timeout: 60`")
    return float(value)


def _memory(value: Any) -> int:
    try:
        size = size_bytes(value) if isinstance(value, str | int) else 0
    except ValueError:
        size = 0
    if size < MEMORY_MIN:
        raise ValueError("must be a size of at least 16M: write `memory: 256M`")
    return size


def _network(value: Any) -> bool:
    if isinstance(value, list):
        raise ValueError("a list of hosts is not enforceable: write true or false")  # noqa: TRY004 - a fault of the file
    return _yes_or_no(value)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("write true or false")  # noqa: TRY004 - a fault of the file
    return value


def _names(pattern: str, example: str) -> Callable[[Any], tuple[str, ...]]:
    """A reader of lists whose items match `pattern`."""

    def read(value: Any) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise ValueError(f"must be a list: write {example}")  # noqa: TRY004 - a fault of the file
        for item in value:
            if not isinstance(item, str) or not re.fullmatch(pattern, item):
                raise ValueError(f"{item!r} is not a name: write {example}")
        return tuple(dict.fromkeys(value))

    return read


def _devices(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        value = [item.removeprefix("/dev/") if isinstance(item, str) else item for item in value]
    return _names(_DEVICE, "`[i2c-1]`, names below /dev")(value)


def _resources(value: Any) -> tuple[str, ...] | Literal["all"]:
    if value == "all":
        return "all"
    return _names(r"\S+", "`[searxng]` or `all`")(value)


_LIMITS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timeout": ("timeout_s", _timeout),
    "memory": ("memory_max", _memory),
    "network": ("network", _network),
    "devices": ("devices", _devices),
    "calls": ("calls", _names(_TOLERATED_NAME, "`[sensor, gpio]`")),
    "env": ("env", _names(_VARIABLE, "`[MY_DB_PATH]`")),
    "resources": ("resources", _resources),
    "warm": ("warm", _yes_or_no),
}
"""Key in the file: field of the Manifest, and what reads it (ValueError with the remedy)."""

_KNOWN = ("name", "label", "description", "version", "language", "inputs", *_LIMITS)
_INPUT_KNOWN = ("type", "description", "optional", "sensitive", "values", "default")

_SCHEMA_TYPES = {"string": "string", "number": "number", "boolean": "boolean", "enum": "string"}


def schema(manifest: Manifest) -> dict[str, Any]:
    """The inputs as a JSON Schema object."""
    properties = {one.name: _property(one) for one in manifest.inputs}
    required = [one.name for one in manifest.inputs if not one.optional]
    result: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        result["required"] = required
    result["additionalProperties"] = False
    return result


def _property(one: Input) -> dict[str, Any]:
    result: dict[str, Any] = {"type": _SCHEMA_TYPES[one.type]}
    if one.description:
        result["description"] = one.description
    if one.values:
        result["enum"] = list(one.values)
    if one.default is not None:
        result["default"] = one.default
    return result


def struct(manifest: Manifest) -> type[msgspec.Struct]:
    """The inputs as a Struct that decodes and checks a call's arguments.

    Fields are called `input_0` and so on, and renamed on the wire: an input may have any name,
    `from` and `class` too. `arguments` turns an instance back into what the tool is given.
    """
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for index, one in enumerate(manifest.inputs):
        field = f"input_{index}"
        names[field] = one.name
        kind = _field_type(one)
        if not one.optional:
            fields.append((field, kind))
        elif one.default is None:
            fields.append((field, kind | None | msgspec.UnsetType, msgspec.UNSET))
        else:
            fields.append((field, kind | None, one.default))
    return msgspec.defstruct(
        "Inputs", fields, kw_only=True, forbid_unknown_fields=True, frozen=True, rename=names
    )


def _field_type(one: Input) -> Any:
    if one.type == "enum":
        return Literal[one.values]
    return {"string": str, "number": int | float, "boolean": bool}[one.type]


def arguments(manifest: Manifest, decoded: msgspec.Struct) -> dict[str, Any]:
    """What the tool is given: defaults filled in, absent (or null) optional inputs left out."""
    given: dict[str, Any] = {}
    for index, one in enumerate(manifest.inputs):
        value = getattr(decoded, f"input_{index}")
        if value is None or value is msgspec.UNSET:
            value = one.default
        if value is not None:
            given[one.name] = value
    return given
