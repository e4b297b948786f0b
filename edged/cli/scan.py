"""`edged scan`: what is wired to the board, and the lines of `board:` for it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from edged import wording
from edged.board.scan import BusScan, Found, Scan, scan_board, yaml_lines
from edged.bus.faults import remedy
from edged.bus.kernel import KernelBuses
from edged.cli import show
from edged.cli.parser import Parser, add_connection, add_json, connect
from edged.clock import SystemClock
from edged.errors import NoDaemonError

EXAMPLE = "edged scan --bus 1"

_SIMULATED = "that is the simulated board: end `edged serve --sim` to see what is wired"


def options(parser: Parser) -> None:
    """Add the verb's options."""
    parser.add_argument("--bus", metavar="N", default="", help="only this I2C bus: 1 or i2c-1")
    add_json(parser)
    add_connection(parser)


def run(args: Any) -> int:
    """Run the verb; returns the exit code."""
    bus = f"i2c-{args.bus}" if args.bus.isdecimal() else args.bus.removeprefix("/dev/")
    found = _scan(args, bus)
    if args.json:
        show.json(found)
        return 0
    for line in _lines(found):
        show.out(wording.safe(line))
    if found.simulated:
        sys.stdout.flush()
        sys.stderr.write(f"edged: {_SIMULATED}\n")
    return 0


def _scan(args: Any, bus: str) -> Scan:
    """By the daemon, which owns the buses; by this process where none runs."""
    try:
        answer = connect(args).request("edged/scan", {"bus": bus})
    except NoDaemonError:
        return asyncio.run(_by_oneself(bus))
    return msgspec.convert(answer, Scan)


async def _by_oneself(bus: str) -> Scan:
    clock = SystemClock()
    buses = KernelBuses(clock)
    try:
        return await scan_board(buses, clock, only=bus)
    finally:
        await buses.close()


def _lines(found: Scan) -> list[str]:
    lines = [line for bus in found.i2c for line in _bus_lines(bus)]
    ports = [
        " ".join(filter(None, (port.by_id or port.path, port.description, port.vid_pid)))
        for port in found.serial
    ]
    for title, names in (("SPI", found.spi), ("1-wire", found.w1), ("serial", ports)):
        if names:
            lines += [show.paint(title, "bold"), *(f"  {name}" for name in names)]
    for kind, problem in found.problems.items():
        lines += [show.paint(kind, "bold"), *_wrapped(problem)]
    if not lines:
        return ["no buses here: `edged doctor` says how to switch them on"]
    if not found.i2c:
        lines = [show.paint("I2C", "bold"), *_wrapped(f"no bus: {remedy('i2c')}"), *lines]
    paste = yaml_lines(found)
    return [*lines, "", "# lines for edged.yaml", *paste] if paste else lines


def _bus_lines(bus: BusScan) -> list[str]:
    lines = [show.paint(bus.name, "bold"), *(_found_line(one) for one in bus.found)]
    if bus.problem:
        lines += _wrapped(bus.problem)
    elif not bus.found:
        lines.append("  nothing answers: check power, SDA, SCL and pull-ups")
    return lines


def _found_line(one: Found) -> str:
    if one.used_by:
        return f"  {one.address:#04x}  in use by {one.used_by}"
    guess = one.title or ("perhaps " + " or ".join(one.drivers) if one.drivers else "?")
    note = f" ({one.note})" if one.note else ""
    return f"  {one.address:#04x}  {guess}{note}"


def _wrapped(text: str) -> list[str]:
    return ["  " + line for line in show.wrapped(wording.one_line(text), show.width() - 2)]
