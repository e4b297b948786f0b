"""`i2c`: the buses themselves, for chips that no sensor is configured for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.board.scan import BusScan, scan_i2c
from edged.bus import I2c as Bus
from edged.errors import Fault, InvalidArgumentsError, NoDeviceError
from edged.results import Result
from edged.tool import Context, Hints, tool
from edged.tools._confirm import confirmed
from edged.tools._forms import BYTES_MAX, INPUTS_MAX, Data, data_bytes, number, shown
from edged.tools._turns import turn

TAKES_DATA = frozenset((*range(0x20, 0x28), *range(0x38, 0x40), 0x5C, *range(0x70, 0x76)))
"""Where chips without registers usually are: expanders (PCF8574), displays, light sensors,
multiplexers. A read of a register would write its number to their outputs."""

ADDRESS_LOW, ADDRESS_HIGH = 0x03, 0x77
"""7-bit addresses outside are reserved (UM10204, section 3.1.12)."""


class I2c(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `i2c`."""

    action: Annotated[
        Literal["detect", "scan", "read", "write", "transfer"] | None,
        Meta(
            description="detect lists the buses, scan the addresses of one; write when data is "
            "given, else read; transfer writes and reads in one transaction."
        ),
    ] = None
    bus: Annotated[
        str | int | None, Meta(description="/dev/i2c-1, i2c-1 or 1; not needed where one is.")
    ] = None
    address: Annotated[int | str | None, Meta(description='7-bit address: 72 or "0x48".')] = None
    register: Annotated[int | str | None, Meta(description="Register to read or write.")] = None
    register_size: Annotated[
        int, Meta(ge=1, le=2, description="Bytes of the register's number: 1 or 2.")
    ] = 1
    length: Annotated[int, Meta(ge=1, le=BYTES_MAX, description="Bytes to read.")] = 1
    data: Data | None = None
    stop_between: Annotated[
        bool, Meta(description="A stop in place of a repeated start before the read.")
    ] = False
    confirm: Annotated[bool, Meta(description="true: a person agreed to this write.")] = False


@tool(
    "i2c",
    label="I2C",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=Hints(read_only=False, destructive=True, idempotent=False, open_world=False),
    aliases={"count": "length", "device": "bus", "reg": "register"},
)
async def i2c(params: I2c, ctx: Context) -> Result:
    """Read and write I2C devices, list the buses, scan one for addresses."""
    return await confirmed(params, ctx, _run)


async def _run(params: I2c, ctx: Context) -> Result:
    board: Board = ctx.services.board
    action = params.action or _action(params)
    if action == "detect":
        return _buses(board)
    bus = _bus(board, params.bus)
    _check_channel(board, bus, params)
    if action == "scan":
        async with turn(board, bus.name, ctx.caller.who):
            return _scanned(await scan_i2c(bus, ctx.services.clock, holder=board.holder))
    if params.address is None:
        raise InvalidArgumentsError([Fault("address", "is required: 72 or 0x48")], "i2c")
    address = number(params.address, "address", ADDRESS_LOW, ADDRESS_HIGH)
    async with turn(board, bus.name, ctx.caller.who):
        if action == "write":
            return await _write(board, bus, address, params)
        owner = ctx.caller.is_owner
        return await _read(board, bus, address, params, action, owner=owner)


def _action(params: I2c) -> str:
    if params.bus is None and params.address is None:
        return "detect"
    return "read" if params.data is None else "write"


def _check_channel(board: Board, bus: Bus, params: I2c) -> None:
    """To switch a multiplexer is a write to it, but for channels that the owner named."""
    before, _, _channel = bus.name.rpartition("/")
    if before and not board.names_bus(bus.name):
        root, _, mux = before.rpartition("/")
        board.check_write(f"{root}/{mux}", params.confirm)


def _bus(board: Board, given: str | int | None) -> Bus:
    if given is None:
        names = board.buses.names("i2c")
        if len(names) != 1:
            there = ", ".join(names) or "none; `edged doctor` says how to switch one on"
            raise InvalidArgumentsError([Fault("bus", f"is required: there is {there}")], "i2c")
        return board.buses.i2c(names[0])
    name = str(given).removeprefix("/dev/")
    return board.buses.i2c(f"i2c-{name}" if name.isdecimal() else name)


def _buses(board: Board) -> Result:
    names = list(board.buses.names("i2c"))
    if not names:
        text = "This board has no I2C bus; `edged doctor` says how to switch one on."
        return results.text(text, structured={"buses": []})
    return results.text("\n".join(names), structured={"buses": names})


def _scanned(scan: BusScan) -> Result:
    lines, rows = [], []
    for one in scan.found:
        guess = one.title or " or ".join(one.drivers)
        what = f"in use by {one.used_by}" if one.used_by else guess
        lines.append(": ".join(filter(None, (f"{one.address:#04x}", what, one.note))))
        rows.append({**msgspec.to_builtins(one), "address": f"{one.address:#04x}"})
    if not rows and not scan.problem:
        lines.append(f"Nothing answers on {scan.name}: check power, SDA, SCL and pull-ups.")
    if scan.problem:
        lines.append(scan.problem)
    value = {"bus": scan.name, "found": rows, "asked": scan.asked, "problem": scan.problem}
    return results.text("\n".join(lines), structured=value)


async def _read(
    board: Board, bus: Bus, address: int, params: I2c, action: str, *, owner: bool
) -> Result:
    place = f"{bus.name}/{address:#04x}"
    write = _register(params)
    if action == "transfer":
        write += data_bytes(params.data)
    elif params.data is not None:
        raise InvalidArgumentsError([Fault("data", "belongs to action write or transfer")], "i2c")
    # What selects a register is data to a chip that has none.
    writes = params.data is not None or len(write) > 1 or (write and address in TAKES_DATA)
    # A read may do harm too: fetching a value clears it. A person who looks for a fault may.
    board.check_free(bus.name if owner and not writes else place)
    if writes:
        board.check_confirmed(place, params.confirm)
    if len(write) > 1 or (write and params.register is None):
        board.check_limits(place, write)
    if params.stop_between and write:
        async with bus.hold() as held:
            await held.transfer(address, write)
            data = await held.transfer(address, b"", params.length)
    else:
        data = await bus.transfer(address, write, params.length)
    if len(data) != params.length:
        raise NoDeviceError(f"{place} gave {len(data)} of {params.length} bytes")
    return _said(bus, address, params, "read", data)


async def _write(board: Board, bus: Bus, address: int, params: I2c) -> Result:
    if params.data is None:
        raise InvalidArgumentsError([Fault("data", "is required for a write")], "i2c")
    data = data_bytes(params.data)
    write = _register(params) + data
    place = f"{bus.name}/{address:#04x}"
    board.check_write(place, params.confirm)
    board.check_limits(place, write)
    await bus.transfer(address, write)
    return _said(bus, address, params, "written", data)


def _register(params: I2c) -> bytes:
    if params.register is None:
        return b""
    size = params.register_size
    return number(params.register, "register", 0, (1 << 8 * size) - 1).to_bytes(size, "big")


def _said(bus: Bus, address: int, params: I2c, what: str, data: bytes) -> Result:
    value: dict[str, Any] = {
        "bus": bus.name,
        "address": f"{address:#04x}",
        "data": list(data),
        "hex": data.hex(),
    }
    where = f"{bus.name} {address:#04x}"
    if params.register is not None:
        register = int.from_bytes(_register(params), "big")
        value["register"] = register
        where += f" register {register:#04x}"
    if what == "written":
        value["written"] = len(data)
    return results.text(f"{where}: {what} {shown(data)}", structured=value)


TOOLS = (i2c,)
