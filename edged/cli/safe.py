"""`edged safe`: bring all outputs and actuators to their safe state, without a daemon."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from edged import paths, settings
from edged.board import Board
from edged.bus.kernel import KernelBuses
from edged.cli import show
from edged.cli.parser import Parser, add_json
from edged.clock import SystemClock
from edged.settings import Loaded

EXAMPLE = "edged safe --config /etc/edged/edged.yaml"

RELEASE_S = 3.0
"""A killed daemon's lines are given back by the kernel within this time."""

_RETRY_S = 0.1


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--config", metavar="FILE", help="the configuration")
    add_json(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    explicit = args.config is not None or "EDGED_CONFIG" in os.environ
    loaded = settings.load(args.config or paths.config_file(), explicit=explicit)
    ended = time.monotonic() + RELEASE_S
    while True:
        states = asyncio.run(_make_safe(loaded))
        failed = {name: state for name, state in states.items() if state != "safe"}
        if not any("used by" in state for state in failed.values()) or time.monotonic() > ended:
            break
        time.sleep(_RETRY_S)
    if args.json:
        show.json({"outputs": states})
    elif not states:
        show.out("no outputs are configured")
    else:
        show.facts(states.items())
    return 1 if failed else 0


async def _make_safe(loaded: Loaded) -> dict[str, str]:
    """The state of each output: `safe`, or why it may not be."""
    clock = SystemClock()
    board = Board(loaded.config.board, KernelBuses(clock, take_over=True), clock)
    states: dict[str, str] = {}
    try:
        async with board:
            for line in board.lines:
                if line.direction == "output":
                    states[line.name] = line.error or "safe"
            for actuator in board.actuators:
                if actuator.name not in board.config.actuators:
                    continue  # a sensor with commands: it has no state to leave
                states[actuator.name] = actuator.error or "safe"
    except ExceptionGroup as group:
        states.update({f"({n})": str(error) for n, error in enumerate(group.exceptions)})
    return states
