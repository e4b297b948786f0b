"""`edged safe`: bring all outputs and actuators to their safe state, without a daemon.

A fault elsewhere in the configuration is told, and leaves no output on.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import time
from typing import Any

import msgspec

from edged import paths, settings
from edged.board import Board
from edged.bus.kernel import KernelBuses
from edged.bus.settings import BoardConfig
from edged.cli import complain, show
from edged.cli.parser import Parser, add_json
from edged.clock import SystemClock
from edged.errors import ConfigError

EXAMPLE = "edged safe --config /etc/edged/edged.yaml"

RELEASE_S = 3.0
"""A killed daemon's lines are given back by the kernel within this time."""

WRONG = "cannot be made safe: its configuration is wrong"

_RETRY_S = 0.1


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--config", metavar="FILE", help="the configuration")
    add_json(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    explicit = args.config is not None or "EDGED_CONFIG" in os.environ
    board, wrong, faults = outputs(args.config or paths.config_file(), explicit=explicit)
    for fault in faults:
        complain(fault, 0)
    ended = time.monotonic() + RELEASE_S
    while True:
        # What the board logs is told below, as the state of its output.
        with contextlib.redirect_stderr(io.StringIO()):
            states = asyncio.run(_make_safe(board))
        if not any("used by" in state for state in states.values()) or time.monotonic() > ended:
            break
        time.sleep(_RETRY_S)
    states |= dict.fromkeys(wrong, WRONG)
    if args.json:
        show.json({"outputs": states})
    elif not states:
        show.out("no outputs are configured")
    else:
        show.facts(states.items())
    return 1 if any(state != "safe" for state in states.values()) else 0


def outputs(
    path: str | None, *, explicit: bool
) -> tuple[BoardConfig, list[str], list[ConfigError]]:
    """What the configuration says of outputs and actuators.

    Args:
        path: the file, or None for none.
        explicit: the user named it, so it must be there.

    Returns:
        Those that can be used; names of the others; all faults of the file.

    Raises:
        ConfigError: it cannot be read, or is not YAML.
    """
    try:
        loaded = settings.load(path, explicit=explicit)
    except ConfigError as error:
        salvaged, wrong = _salvaged(path or "", error)
        board, found = _usable(salvaged)
        return board, [*wrong, *map(_name, found)], [error, *found]
    whole = _fault(loaded.config.board)
    board, found = _usable(_outputs(loaded.config.board))
    faults = found
    if whole is not None and whole.key not in {fault.key for fault in found}:
        faults = [whole, *found]
    return board, list(map(_name, found)), [loaded.located(fault) for fault in faults]


def _usable(board: BoardConfig) -> tuple[BoardConfig, list[ConfigError]]:
    """A board without its wrong entries, and what is wrong with each."""
    faults = []
    while (fault := _fault(board)) is not None:
        section = fault.key.split(".")[1]
        left = {key: one for key, one in getattr(board, section).items() if key != _name(fault)}
        board = msgspec.structs.replace(board, **{section: left})
        faults.append(fault)
    return board, faults


def _name(fault: ConfigError) -> str:
    """Of the entry that a fault is in: `board.gpio.pump.line`."""
    return fault.key.split(".")[2]


def _fault(config: BoardConfig) -> ConfigError | None:
    """What keeps a board from being used, one at a time."""
    try:
        _board(config)
    except ConfigError as error:
        return error
    return None


def _board(config: BoardConfig) -> Board:
    clock = SystemClock()
    return Board(config, KernelBuses(clock, take_over=True), clock)


def _outputs(config: BoardConfig) -> BoardConfig:
    gpio = {name: one for name, one in config.gpio.items() if one.direction == "output"}
    return msgspec.structs.replace(config, sensors={}, gpio=gpio)


def _salvaged(path: str, error: ConfigError) -> tuple[BoardConfig, list[str]]:
    """The entries of `actuators` and `gpio` that are right in a file that is not, and the others.

    Raises:
        ConfigError: `error`, where the file has no such entries to be found.
    """
    from edged import yamlio

    try:
        with open(path, encoding="utf-8-sig") as file:
            value = yamlio.load(file.read(settings.SIZE_MAX), path, secrets=True).value
    except (OSError, ValueError):
        raise error from None
    board = _mapping(_mapping(value).get("board"))
    found: dict[str, dict[str, Any]] = {"actuators": {}, "gpio": {}}
    wrong = []
    for section, entries in found.items():
        for name, one in _mapping(board.get(section)).items():
            entries[name] = one
            try:
                yamlio.convert(yamlio.Document(found, {}), BoardConfig, path)
            except ConfigError:
                del entries[name]
                wrong.append(name)
    return _outputs(yamlio.convert(yamlio.Document(found, {}), BoardConfig, path)), wrong


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


async def _make_safe(config: BoardConfig) -> dict[str, str]:
    """The state of each output: `safe`, or why it may not be."""
    states: dict[str, str] = {}
    try:
        async with _board(config) as board:
            states.update({one.name: one.error or "safe" for one in board.lines})
            states.update({one.name: one.error or "safe" for one in board.actuators})
    except ExceptionGroup as group:
        states.update({f"({n})": str(error) for n, error in enumerate(group.exceptions)})
    return states
