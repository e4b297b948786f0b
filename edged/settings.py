"""Reads `edged.yaml` and the secrets it names into a `Config`.

Secrets come from systemd credentials, then from `secrets.yaml` beside the
configuration, which others may not read. Nothing is ever written here.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any

import msgspec

from edged.config import Config, Defaults, ToolSettings
from edged.errors import ConfigError

LATER = frozenset({"exec", "files", "web", "skills", "subagent", "cron", "mcp"})
"""Sections of `tools:` that belong to parts with a configuration of their own."""

_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9.-]{1,190}")


class Loaded(msgspec.Struct, frozen=True):
    """A configuration and where it came from.

    Attributes:
        file: path, or empty when the daemon runs on defaults.
        document: the YAML document with its lines; None without a file.
        secrets: every secret's value, to be masked wherever it shows.
        defaults: `tools.defaults`.
        tools: settings of single tools by name.
    """

    config: Config
    file: str
    document: Any
    secrets: tuple[str, ...]
    defaults: Defaults
    tools: dict[str, ToolSettings]


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
            data = file.read(1 << 20)
    except FileNotFoundError:
        if explicit:
            raise ConfigError("there is no such file: check --config", file=path) from None
        return Loaded(Config(), "", None, (), Defaults(), {})
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path) from None
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
    secrets = _Secrets(path)
    value = secrets.resolve(document.value, document.lines, ())
    document = yamlio.Document(value, document.lines)
    config = yamlio.convert(document, Config, path)
    for uid, entry in config.users.items():
        user = entry if isinstance(entry, str) else entry.user
        if not is_user(user):
            raise ConfigError(
                f"{user!r} is not an e-mail identity such as ada@example.org",
                file=path,
                line=document.line_of(("users", uid)),
                key=f"users.{uid}",
            )

    def section(name: str, kind: type[Any]) -> Any:
        lines = {("tools", *p[2:]): n for p, n in document.lines.items() if p[:2] == ("tools", name)}
        inner = {p[1:]: n for p, n in lines.items()}
        part = yamlio.Document(config.tools[name], inner)
        try:
            return yamlio.convert(part, kind, path)
        except ConfigError as error:
            if error.faults:
                raise
            key = ".".join(filter(None, ("tools", name, error.key)))
            raise ConfigError(error.reason, file=path, line=error.line, key=key) from None

    defaults = section("defaults", Defaults) if "defaults" in config.tools else Defaults()
    tools = {
        name: section(name, ToolSettings)
        for name in config.tools
        if name != "defaults" and name not in LATER
    }
    return Loaded(config, path, document, tuple(secrets.values), defaults, tools)


def is_user(name: str) -> bool:
    """Whether a name may be a user: its directory lies beside the daemon's own."""
    return name == "local" or _USER.fullmatch(name) is not None


class _Secrets:
    """Looks up `!secret NAME`."""

    def __init__(self, config_path: str) -> None:
        self._path = os.path.join(os.path.dirname(os.path.abspath(config_path)), "secrets.yaml")
        self._config_path = config_path
        self._file: dict[str, Any] | None = None
        self.values: list[str] = []

    def resolve(self, node: Any, lines: Any, path: tuple[str | int, ...]) -> Any:
        """The value with each `Secret` replaced."""
        from edged.yamlio import Secret  # noqa: PLC0415  loaded already when this runs

        if isinstance(node, dict):
            return {k: self.resolve(v, lines, (*path, k)) for k, v in node.items()}
        if isinstance(node, list):
            return [self.resolve(v, lines, (*path, i)) for i, v in enumerate(node)]
        if isinstance(node, Secret):
            return self._value(node.name, lines.get(path, 0))
        return node

    def _value(self, name: str, line: int) -> str:
        value = self._credential(name)
        if value is None:
            value = self._from_file().get(name)
        if value is None:
            reason = f"no secret named {name!r}: put it into {self._path} (mode 0600)"
            raise ConfigError(reason, file=self._config_path, line=line)
        text = str(value)
        self.values.append(text)
        return text

    @staticmethod
    def _credential(name: str) -> str | None:
        directory = os.environ.get("CREDENTIALS_DIRECTORY")
        if not directory or "/" in name:
            return None
        try:
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                return file.read().rstrip("\n")
        except OSError:
            return None

    def _from_file(self) -> dict[str, Any]:
        if self._file is None:
            self._file = self._read_file()
        return self._file

    def _read_file(self) -> dict[str, Any]:
        from edged import yamlio  # noqa: PLC0415  loaded already when this runs

        try:
            with open(self._path, encoding="utf-8") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o007:
                    raise ConfigError("can be read by others: chmod o= it", file=self._path)
                value = yamlio.load(file.read(), self._path).value
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read: {error}", file=self._path) from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise ConfigError("must be lines of `name: value`", file=self._path)
        return value


