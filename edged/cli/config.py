"""`edged config`: what holds, and where each value comes from. Secrets are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from edged import disguise, paths, settings, wording
from edged.cli import show
from edged.cli.parser import Parser, add_json
from edged.errors import ConfigError
from edged.overrides import overrides
from edged.results import MASK, mask
from edged.sections import SECTIONS, Messages
from edged.settings import Loaded
from edged.store import Store
from edged.yamlio import dotted

EXAMPLE = """\
edged config --explain
edged config --driver bme280
edged config --reset tools.hello.enabled"""

_PLAIN = re.compile(r"[A-Za-z/][\w./@+-]*|[0-9]+(?:ms|[smhdKMG])", re.ASCII)
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})

Path = tuple[str, ...]


class Value(NamedTuple):
    """One value of the effective configuration and its origin."""

    path: Path
    value: Any
    origin: str


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--explain", action="store_true", help="say where each value comes from")
    parser.add_argument("--config", metavar="FILE", help="configuration (EDGED_CONFIG)")
    parser.add_argument("--data", metavar="DIR", help="data directory (DATA_PATH)")
    parser.add_argument(
        "--driver",
        metavar="NAME",
        nargs="?",
        const="",
        help="what a driver takes; without NAME all of them",
    )
    parser.add_argument(
        "--reset", metavar="KEY", help="drop what an owner set for KEY, or below it, at run time"
    )
    add_json(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    if args.driver is not None:
        _print_driver(args.driver, as_json=args.json)
        return 0
    data = args.data or paths.data_directory()
    if args.reset is not None:
        from edged.cli.reset import reset

        dropped = reset(data, args.reset)
        if args.json:
            show.json({"dropped": dropped})
        for key, value in () if args.json else dropped.items():
            show.out(f"{key}: {_text(value)} dropped")
        return 0
    from edged.doctor.board import check as check_board

    explicit = args.config is not None or "EDGED_CONFIG" in os.environ
    loaded = settings.load(args.config or paths.config_file(), explicit=explicit)
    _check_addresses(loaded)
    check_board(loaded)
    _check_channels(loaded)
    values = list(explained(loaded, Store(os.path.join(data, "state"))))
    if args.json:
        show.json(_listed(values) if args.explain else tree(values))
        return 0
    file = loaded.file or f"none ({paths.config_file()} is not there): defaults"
    show.out(f"# configuration: {file}\n# data: {data}\n# socket: {paths.socket_path()}")
    for line in rendered(values, explain=args.explain):
        show.out(line)
    return 0


def _check_channels(loaded: Loaded) -> None:
    """Refuse channels of messages that the daemon would refuse."""
    section = loaded.section(Messages)
    if section.channels:
        from edged.messages._channels import configured

        try:
            list(configured(section.channels))
        except ConfigError as error:
            raise loaded.located(error) from None


def _check_addresses(loaded: Loaded) -> None:
    """Refuse what `edged serve` would refuse when it begins to listen.

    Raises:
        ConfigError: one is no address; with its line.
    """
    from edged.transports.http import parse

    for address in loaded.config.http.listen:
        try:
            parse(address)
        except ConfigError as error:
            raise loaded.located(error) from None


def _print_driver(name: str, *, as_json: bool) -> None:
    """One driver, or the list of all.

    Raises:
        ConfigError: none of that name.
    """
    from edged.cli import drivers

    try:
        _print_drivers(drivers, name, as_json=as_json)
    except ConfigError as error:
        raise ConfigError(f"{error.reason} (edged config --driver lists them)") from None


def _print_drivers(drivers: Any, name: str, *, as_json: bool) -> None:
    if name and as_json:
        show.json(drivers.told(name))
    elif name:
        drivers.print_one(name)
    elif as_json:
        rows = [
            dict(zip(("driver", "bus", "title"), row, strict=True)) for row in drivers.listed()
        ]
        show.json({"drivers": rows})
    else:
        show.table(("DRIVER", "BUS", "TITLE"), drivers.listed())


def explained(loaded: Loaded, store: Store) -> Iterator[Value]:
    """Every value in the order of the configuration's Structs.

    Args:
        loaded: the configuration.
        store: what owners set at run time is there; need not exist.
    """
    value = msgspec.to_builtins(loaded.config)
    value["tools"] = {"defaults": msgspec.to_builtins(loaded.defaults), **value["tools"]}
    value["tools"]["defaults"] = msgspec.to_builtins(loaded.defaults)
    for where, kind in SECTIONS.items():
        branch = value
        for key in where[:-1]:
            branch = branch[key]
        branch[where[-1]] = msgspec.to_builtins(loaded.section(kind))
    acts = {key: held for part in overrides(store) for key, held in part.held().items()}
    for key in acts:
        branch = value
        *above, last = key.split(".")
        for name in above:
            branch = branch.setdefault(name, {})
        branch.setdefault(last, None)
    for path, one in _leaves(value, ()):
        named = _line(loaded, path)
        origin = f"{loaded.file}:{named}" if named else "default"
        if ".".join(path) in acts:
            before = f"; {origin} says {_text(one)}" if named else ""
            one, file = acts[".".join(path)]  # noqa: PLW2901
            origin = f"owner's act in {file}{before}"
        yield Value(path, _masked(_disguised(path, one), loaded.secrets), origin)


def tree(values: list[Value]) -> dict[str, Any]:
    """The values nested by their keys."""
    root: dict[str, Any] = {}
    for path, value, _ in values:
        branch = root
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
        branch[path[-1]] = value
    return root


def rendered(values: list[Value], *, explain: bool) -> Iterator[str]:
    """The values as lines of YAML, with their origins as comments."""
    before: Path = ()
    rows: list[tuple[str, str]] = []
    for path, value, origin in values:
        # The keys above, where they are not those of the value before.
        rows += [
            (f"{'  ' * depth}{_text(path[depth])}:", "")
            for depth in range(len(path) - 1)
            if before[: depth + 1] != path[: depth + 1]
        ]
        rows.append((f"{'  ' * (len(path) - 1)}{_text(path[-1])}: {_text(value)}", origin))
        before = path
    column = min(max((len(line) for line, origin in rows if origin), default=0), 40)
    for line, origin in rows:
        if not explain or not origin:
            yield line
            continue
        comment = f"# {wording.one_line(origin)}"
        whole = f"{line:{column}}  {comment}"
        if show.is_terminal() and show.cells(whole) > show.width():
            # Above the line that it is about, where both do not fit.
            indent = " " * (len(line) - len(line.lstrip()))
            yield from (f"{indent}{comment}", line)
        else:
            yield whole


def _listed(values: list[Value]) -> list[dict[str, Any]]:
    return [{"key": dotted(path), "value": value, "origin": o} for path, value, o in values]


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _leaves(one, (*path, str(key)))
    else:
        yield path, value


def _line(loaded: Loaded, path: Path) -> int:
    """The line that sets a value, or 0 when it is a default."""
    if loaded.document is None:
        return 0
    lines: dict[tuple[str | int, ...], int] = loaded.document.lines
    return lines.get(path, 0)


def _disguised(path: Path, value: Any) -> Any:
    """A value without what is a secret by its name, also where it is no !secret."""
    is_secret = path[-1] in ("api_key", "api_keys", "token") or (
        path[0] == "messages" and path[-1] in ("password", "secret")
    )
    is_secret |= path[0] == "tools" and path[-2:-1] == ("headers",)
    if is_secret and value:
        return MASK
    if path[:3] == ("tools", "mcp", "servers") and value:
        if path[-1] == "args":
            return disguise.words(map(str, value))
        if path[-1] == "url":
            return disguise.url(value)
    return value


def _masked(value: Any, secrets: tuple[str, ...]) -> Any:
    # A secret is a whole value; a long one is looked for inside of others too.
    if isinstance(value, list):
        return [_masked(one, secrets) for one in value]
    if isinstance(value, dict):
        return {key: _masked(one, secrets) for key, one in value.items()}
    if value in secrets:
        return MASK
    return mask(value, tuple(s for s in secrets if len(s) >= 6))


def _text(value: Any) -> str:
    """One value as YAML that reads back as the same value."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return msgspec.json.encode(value).decode()
