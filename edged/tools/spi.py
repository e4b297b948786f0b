"""`spi`: the chip selects themselves, for chips that no device is configured for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.bus import Spi as Bus
from edged.bus import SpiSettings
from edged.errors import Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import Context, Hints, tool
from edged.tools._confirm import confirmed
from edged.tools._forms import BYTES_MAX, INPUTS_MAX, Data, data_bytes, shown
from edged.tools._turns import turn


class Spi(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `spi`."""

    action: Annotated[
        Literal["list", "read", "transfer"] | None,
        Meta(
            description="list the chip selects; transfer sends data and receives as much "
            "meanwhile; read sends fill bytes."
        ),
    ] = None
    device: Annotated[
        str | None,
        Meta(description="/dev/spidev0.0, spi0.0 or 0.0; not needed where one is."),
    ] = None
    data: Data | None = None
    length: Annotated[int, Meta(ge=1, le=BYTES_MAX, description="Bytes to read.")] | None = None
    fill: Annotated[
        Literal[0, 255], Meta(description="What read sends, over and over: 0 or 255.")
    ] = 0
    mode: Annotated[int, Meta(ge=0, le=3, description="Clock polarity and phase, 0 to 3.")] = 0
    max_speed_hz: Annotated[int, Meta(ge=1, le=125_000_000, description="Clock in Hz.")] = 500_000
    bits_per_word: Annotated[int, Meta(ge=1, le=32)] = 8
    lsb_first: bool = False
    cs_high: Annotated[bool, Meta(description="The chip select is active high.")] = False
    confirm: Annotated[bool, Meta(description="true: a person agreed to this transfer.")] = False


@tool(
    "spi",
    label="SPI",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=Hints(read_only=False, destructive=True, idempotent=False, open_world=False),
    aliases={
        "bus": "device",
        "target": "device",
        "count": "length",
        "speed": "max_speed_hz",
        "speed_hz": "max_speed_hz",
        "bits": "bits_per_word",
    },
)
async def spi(params: Spi, ctx: Context) -> Result:
    """Send and receive on SPI, read from it, list its chip selects."""
    return await confirmed(params, ctx, _run)


async def _run(params: Spi, ctx: Context) -> Result:
    board: Board = ctx.services.board
    action = params.action or _action(params)
    if action == "list":
        return _listing(board)
    bus = _bus(board, params.device)
    if action == "read":
        if params.data is not None:
            raise InvalidArgumentsError([Fault("data", "belongs to action transfer")], "spi")
        if params.length is None:
            raise InvalidArgumentsError([Fault("length", "is required: bytes to read")], "spi")
        board.check_free(bus.name)
        write = bytes([params.fill]) * params.length
    else:
        if params.length is not None:
            reason = "belongs to action read: a transfer receives as many bytes as it sends"
            raise InvalidArgumentsError([Fault("length", reason)], "spi")
        write = data_bytes(params.data)
        if not write:
            raise InvalidArgumentsError([Fault("data", "is required: bytes to send")], "spi")
        board.check_write(bus.name, params.confirm)
    async with turn(board, bus.name, ctx.caller.who):
        received = await bus.transfer(write, _settings(params))
    return _said(bus.name, action, write, received)


def _action(params: Spi) -> str:
    if params.data is not None:
        return "transfer"
    return "list" if params.length is None else "read"


def _listing(board: Board) -> Result:
    names = board.buses.names("spi")
    rows = [{"device": name, "path": _path(name)} for name in names]
    text = "\n".join(f"{row['device']}: {row['path']}" for row in rows)
    if not rows:
        text = "This board has no SPI chip select; `edged doctor` says how to switch one on."
    return results.text(text, structured={"devices": rows})


def _bus(board: Board, given: str | None) -> Bus:
    names = board.buses.names("spi")
    if given is None:
        if len(names) != 1:
            there = ", ".join(names) or "none; `edged doctor` says how to switch one on"
            raise InvalidArgumentsError([Fault("device", f"is required: there is {there}")], "spi")
        return board.buses.spi(names[0])
    number = given.removeprefix("/dev/").removeprefix("spidev").removeprefix("spi")
    return board.buses.spi(f"spi{number}")


def _path(name: str) -> str:
    return f"/dev/spidev{name.removeprefix('spi')}"


def _settings(params: Spi) -> SpiSettings:
    return SpiSettings(
        mode=params.mode,
        max_speed_hz=params.max_speed_hz,
        bits_per_word=params.bits_per_word,
        lsb_first=params.lsb_first,
        cs_high=params.cs_high,
    )


def _said(name: str, action: str, write: bytes, received: bytes) -> Result:
    value: dict[str, Any] = {
        "device": name,
        "sent": len(write),
        "received": len(received),
        "data": list(received),
        "hex": received.hex(),
    }
    note = _doubt(received)
    if note:
        value["note"] = note
    sent = f"sent {shown(write)}, received" if action == "transfer" else "read"
    text = f"{name}: {sent} {shown(received)}"
    return results.text(f"{text} ({note})" if note else text, structured=value)


def _doubt(received: bytes) -> str:
    """What makes bytes look as if no chip had sent them."""
    for byte, word in ((0x00, "zeros"), (0xFF, "ones")):
        if len(received) > 1 and received.count(byte) == len(received):
            return f"all {word}: so reads a line that no chip drives, check MISO and the wiring"
    return ""


TOOLS = (spi,)
