"""Reads `edged.yaml` and the secrets it names into a `Config`.

Secrets come from systemd credentials, then from `secrets.yaml` beside the
configuration, which others may not read. Nothing is ever written here.
"""

from __future__ import annotations

import os
import stat
from typing import Any, TypeVar, cast

import msgspec

from edged.config import Config, Defaults, Section, ToolSettings
from edged.errors import ConfigError
from edged.sections import SECTIONS

FAMILIES = frozenset(where[1] for where in SECTIONS if where[0] == "tools")
"""Names under `tools:` that are no tool's, but a family's."""

SIZE_MAX = 1 << 20
"""Bytes of a configuration."""

T = TypeVar("T")
S = TypeVar("S", bound=Section)
_Path = tuple[str | int, ...]


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and where it came from.

    Attributes:
        file: path, or empty when the daemon runs on defaults.
        document: the YAML document with its lines; None without a file.
        secrets: every secret's value, to be masked wherever it shows.
        defaults: `tools.defaults`.
        tools: settings of single tools by name.
        sections: settings of families of tools that the file has (`edged.sections`).
    """

    config: Config
    file: str
    document: Any
    secrets: tuple[str, ...]
    defaults: Defaults
    tools: dict[str, ToolSettings]
    sections: dict[type[Section], Section] = {}

    def section(self, kind: type[S]) -> S:
        """A family's settings, or its defaults."""
        return cast("S", self.sections.get(kind) or kind())

    @property
    def channels(self) -> dict[str, tuple[str, ...]]:
        """Tools that callers of some channels alone may call, and those channels."""
        named: dict[str, Any] = dict(self.tools)
        for where, kind in SECTIONS.items():
            if where[0] == "tools" and "channels" in kind.__struct_fields__:
                named[where[1]] = self.section(kind)
        return {n: tuple(one.channels) for n, one in named.items() if "*" not in one.channels}

    def is_on(self, key: str) -> bool:
        """What the file, or the default, says of a switch.

        Args:
            key: a tool's `config_key` or a family's name, such as `read_file`,
                `skills`, `mcp.discovery`, `mcp.discovery.use_regex`.
        """
        head, *rest = key.split(".")
        kind = SECTIONS.get(("tools", head))
        if kind is None:
            value = self.config.tools.get(head)
        else:
            value = msgspec.to_builtins(self.section(kind))
        for name in (*rest, "enabled"):
            if not isinstance(value, dict):
                break
            value = value.get(name, True)
        return value is not False

    def located(self, fault: ConfigError) -> ConfigError:
        """A fault that was found by a part of the daemon, with its file and line.

        Args:
            fault: with its key; the line is that of the key, or of what it is in.
        """
        if self.document is None:
            return fault
        from edged.yamlio import dotted  # noqa: PLC0415  loaded already when there is a document

        key = fault.key
        lines = {dotted(path): line for path, line in self.document.lines.items()}
        while key and key not in lines:
            key = key.rpartition(".")[0]
        return ConfigError(fault.reason, file=self.file, line=lines.get(key, 0), key=fault.key)


def switch_path(key: str) -> str:
    """Where the configuration has a switch, dotted: `tools.read_file.enabled`.

    Args:
        key: as `Loaded.is_on` takes it.
    """
    head, *rest = key.split(".")
    kind = SECTIONS.get(("tools", head))
    value: Any = msgspec.to_builtins(kind()) if kind is not None else {}
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return f"tools.{key}" if isinstance(value, bool) else f"tools.{key}.enabled"


def load(path: str | None, *, explicit: bool) -> Loaded:
    """Read the configuration.

    Args:
        path: the file, or None for none.
        explicit: the user named it, so it must be there.

    Raises:
        ConfigError: with file, line, key and the nearest known key.
    """
    if path is None:
        return Loaded(Config(), "", None, (), Defaults(), {})
    try:
        with open(path, "rb") as file:
            data = file.read(SIZE_MAX + 1)
    except FileNotFoundError:
        if explicit:
            raise ConfigError(
                "there is no such file: check --config or EDGED_CONFIG", file=path
            ) from None
        return Loaded(Config(), "", None, (), Defaults(), {})
    except OSError as error:
        remedy = "check its permissions, or choose another with --config"
        raise ConfigError(f"cannot be read: {error.strerror}: {remedy}", file=path) from None
    if len(data) > SIZE_MAX:
        raise ConfigError(f"is larger than {SIZE_MAX >> 10} KiB", file=path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8", file=path, line=line) from None
    return parse(text, path)


def parse(text: str, path: str) -> Loaded:
    """Read a configuration from its text; `path` says where its secrets lie.

    Raises:
        ConfigError: as `load`.
    """
    from edged import yamlio  # noqa: PLC0415  YAML costs an import: only where there is a file

    document = yamlio.load(text, path, secrets=True)
    secrets = _Secrets(path, document)
    document = yamlio.Document(secrets.resolve(document.value, ()), document.lines)
    faults: list[ConfigError] = []

    def part(where: _Path, kind: type[T]) -> T:
        value = document.value
        for key in where:
            value = value[key]
        depth = len(where)
        lines = {p[depth:]: n for p, n in document.lines.items() if p[:depth] == where}
        try:
            return yamlio.convert(yamlio.Document(value, lines), kind, path)
        except ConfigError as error:
            faults.extend(_placed(f, where, document) for f in error.faults or (error,))
            # Of no use but to go on looking for faults.
            return kind()

    config = part((), Config)
    given = document.value.get("tools") if isinstance(document.value, dict) else None
    names = list(given) if isinstance(given, dict) else []
    defaults = part(("tools", "defaults"), Defaults) if "defaults" in names else Defaults()
    tools = {
        name: part(("tools", name), ToolSettings)
        for name in names
        if name != "defaults" and name not in FAMILIES
    }
    sections = {
        kind: part(where, kind) for where, kind in SECTIONS.items() if _has(document.value, where)
    }
    if faults:
        raise yamlio.joined(faults, path)
    return Loaded(config, path, document, tuple(secrets.values), defaults, tools, sections)


def _has(value: Any, where: tuple[str, ...]) -> bool:
    for key in where:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _placed(fault: ConfigError, where: _Path, document: Any) -> ConfigError:
    """The fault of a part, with its key in the whole file.

    A rule of a Struct (`__post_init__`) names the field that it is about, and a colon.
    """
    from edged.yamlio import dotted  # noqa: PLC0415  loaded already when this runs

    key = ".".join(filter(None, (dotted(where), fault.key)))
    head, _, reason = fault.reason.partition(": ")
    named = f"{key}.{head}" if key else head
    for path, line in document.lines.items():
        if path and dotted(path) == named:
            return ConfigError(reason, file=fault.file, line=line, key=named)
    return ConfigError(fault.reason, file=fault.file, line=fault.line, key=key)


class _Secrets:
    """Looks up `!secret NAME`: each is text, and never empty."""

    def __init__(self, config_path: str, document: Any) -> None:
        self._path = os.path.join(os.path.dirname(os.path.abspath(config_path)), "secrets.yaml")
        self._config_path = config_path
        self._document = document
        self._file: dict[str, Any] | None = None
        self.values: list[str] = []

    def resolve(self, node: Any, path: _Path) -> Any:
        """The value with each `Secret` replaced.

        Raises:
            ConfigError: one is not there, or cannot be one.
        """
        from edged.yamlio import Secret  # noqa: PLC0415  loaded already when this runs

        if isinstance(node, dict):
            return {k: self.resolve(v, (*path, k)) for k, v in node.items()}
        if isinstance(node, list):
            return [self.resolve(v, (*path, i)) for i, v in enumerate(node)]
        if isinstance(node, Secret):
            return self._value(node.name, path)
        return node

    def _value(self, name: str, path: _Path) -> str:
        value = self._credential(name)
        if value is None:
            known = self._from_file()
            if name not in known:
                raise self._unknown(name, path)
            value = known[name]
        if value in (None, ""):
            raise ConfigError(f"secret {name!r} is empty", file=self._path)
        if not isinstance(value, str):
            # A number would lose its zeros, a word its spelling: 0x1F, 1.10, True.
            raise ConfigError(f"secret {name!r} must be text: put it in quotes", file=self._path)
        self.values.append(value)
        return value

    def _unknown(self, name: str, path: _Path) -> ConfigError:
        from edged.yamlio import dotted, nearest  # noqa: PLC0415  loaded already when this runs

        guess = nearest(name, self._from_file())
        hint = f"; did you mean {guess!r}?" if guess else ""
        reason = f"no secret named {name!r}{hint}: put it into {self._path} (mode 0600)"
        line = self._document.line_of(path)
        return ConfigError(reason, file=self._config_path, line=line, key=dotted(path))

    def _credential(self, name: str) -> str | None:
        """What systemd hands over under that name; None where it does not.

        Source: systemd.exec(5), LoadCredential=.
        """
        directory = os.environ.get("CREDENTIALS_DIRECTORY")
        if not directory or "/" in name or name in (".", ".."):
            return None
        path = os.path.join(directory, name)
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot be read: {_reason(error)}", file=path) from None

    def _from_file(self) -> dict[str, Any]:
        if self._file is None:
            self._file = self._read_file()
        return self._file

    def _read_file(self) -> dict[str, Any]:
        from edged import yamlio  # noqa: PLC0415  loaded already when this runs

        try:
            with open(self._path, encoding="utf-8") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                    reason = f"can be read by others: chmod o= {self._path}"
                    raise ConfigError(reason, file=self._path)
                value = yamlio.load(file.read(), self._path).value
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {_reason(error)}", file=self._path) from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigError("must be lines of `name: value`", file=self._path)
        return value


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or "error" if isinstance(error, OSError) else "is not UTF-8 text"
