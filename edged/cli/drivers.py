"""What a driver takes, measures and does: `edged config --driver NAME`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from edged import plugins
from edged.cli import show
from edged.cli.describe import kind, row, written
from edged.drivers import Command, Driver
from edged.tool import schema_of

_BUSES = {
    "i2c": "bus: i2c-1, address",
    "spi": "bus: spi0.0",
    "serial": "bus: ttyUSB0",
    "w1": "address of the 1-wire device",
}
"""Where entries of each kind of bus say that they are; others need not say."""

_BESIDE = {"i2c": "address", "w1": "id"}

_ADDRESSES_MAX = 16

Row = tuple[str, str, str, str]


def find(name: str) -> Driver:
    """One driver.

    Raises:
        ConfigError: none of that name; the message says which one may be meant.
    """
    # A module is checked against the Protocol by the project's tests.
    return cast("Driver", plugins.load("edged.drivers", name))


def listed() -> list[tuple[str, str, str]]:
    """All drivers: name, kind of bus, title."""
    infos = ((name, find(name).INFO) for name in plugins.names("edged.drivers"))
    return [(name, info.bus, info.title) for name, info in infos]


def told(name: str) -> dict[str, Any]:
    """All facts of one driver, for programs.

    Raises:
        ConfigError: as `find`.
    """
    driver = find(name)
    info = driver.INFO
    options = schema_of(driver.Config)
    # It stands beside the driver's name.
    options["properties"].pop(_BESIDE.get(info.bus, ""), None)
    return {
        "driver": name,
        "title": info.title,
        "bus": info.bus,
        "addresses": list(info.addresses),
        "datasheet": info.datasheet,
        "options": options,
        "channels": msgspec.to_builtins(info.channels),
        "commands": [
            {"name": c.name, "description": c.description, "arguments": schema_of(c.params)}
            for c in info.commands
        ],
    }


def print_one(name: str) -> None:
    """Print one driver for people.

    Raises:
        ConfigError: as `find`.
    """
    facts, driver = told(name), find(name)
    info = driver.INFO
    show.out(show.paint(f"{name}: {info.title}", "bold"))
    show.facts(
        [
            ("is found by", _BUSES.get(info.bus, "its options")),
            ("addresses", _addresses(info.addresses)),
            ("datasheet", info.datasheet),
        ]
    )
    _table("OPTION", _rows(facts["options"], "", notes(driver.Config)))
    if hasattr(driver, "channels"):
        show.out("\nIts options decide what it measures.")
    elif info.channels:
        show.out("")
        rows = [(c.name, c.unit, f"{c.low:g} to {c.high:g}") for c in info.channels]
        show.table(("CHANNEL", "UNIT", "RANGE"), rows)
    for command in info.commands:
        _print_command(command)


def _print_command(command: Command) -> None:
    show.out(f"\n{show.paint(command.name, 'bold')}: {command.description}")
    schema = schema_of(command.params)
    _table("ARGUMENT", _rows(schema, "", notes(command.params)))


def _table(name: str, rows: Iterator[Row]) -> None:
    found = list(rows)
    if found:
        show.out("")
        show.table((name, "TYPE", "", "DESCRIPTION"), found, whole=True)


def _addresses(addresses: tuple[int, ...]) -> str:
    if len(addresses) > _ADDRESSES_MAX:
        return f"{len(addresses)} from {min(addresses):#04x} to {max(addresses):#04x}"
    return ", ".join(f"{one:#04x}" for one in addresses)


def _rows(schema: dict[str, Any], prefix: str, said: dict[str, str]) -> Iterator[Row]:
    required = schema.get("required", ())
    for name, one in schema["properties"].items():
        need = "required" if name in required else ""
        if one.get("default") not in (None, [], {}, ""):
            need = f"default {written(one['default'])}"
        text = said.get(name) or one.get("description", "")
        what = kind(one) + _range(one)
        yield row(f"{prefix}{name}", what, need, text.partition("\n")[0])
        # Entries that are settings themselves, by name or in a list.
        inner = one.get("additionalProperties") or one.get("items")
        if isinstance(inner, dict) and "properties" in inner:
            yield from _rows(inner, f"{prefix}{name}.*.", _notes(inner.get("description", "")))


def _range(schema: dict[str, Any]) -> str:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is None and high is None:
        return ""
    if high is None:
        return f" from {low:g}" if "minimum" in schema else f" over {low:g}"
    return f" to {high:g}" if low is None else f" {low:g} to {high:g}"


def notes(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What docstrings say of a Struct's fields, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct and base.__doc__:
            found |= _notes(inspect.cleandoc(base.__doc__))
    return found


def _notes(doc: str) -> dict[str, str]:
    """The attributes of a docstring, each as one line."""
    _, _, section = doc.partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if match := re.match(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name and line.startswith("     "):
            found[name] += f" {line.strip()}"
        elif line.strip():
            break
    return found
