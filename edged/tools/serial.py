"""`serial`: the serial ports themselves; a caller may keep some open from call to call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.bus import Parity, PortInfo, SerialPort, SerialSettings
from edged.clock import Clock
from edged.errors import BusyError, DeniedError, Fault, InvalidArgumentsError, NoDeviceError
from edged.identity import Caller
from edged.results import Result
from edged.tool import Context, Hints, tool
from edged.tools._confirm import confirmed
from edged.tools._forms import INPUTS_MAX, Data, data_bytes, shown

OPEN_MAX = 8
"""Ports that all callers together may keep open."""

IDLE_S = 600.0
"""A port that is kept open and not used for so long is closed."""

READ_MAX = 4_096
"""Bytes at which a read without a length ends."""


class _Kept:
    """A port that a caller keeps open."""

    def __init__(self, owner: str, holder: str, port: SerialPort, stack: AsyncExitStack) -> None:
        self.owner, self.holder, self.port, self.stack = owner, holder, port, stack
        self.used = 0.0
        self.timer: asyncio.Task[None] | None = None


class SerialSessions:
    """The ports that callers keep open; loop thread only.

    A port belongs to the session that opened it (contract, section 4). It is
    closed when it was not used for `IDLE_S`, when its device goes away, and at the
    end of all.

    Args:
        clock: for the time without use.
        sleep: how to wait.
    """

    def __init__(
        self, clock: Clock, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._kept: dict[str, _Kept] = {}
        self._opening: dict[str, str] = {}

    def has(self, owner: str, name: str) -> bool:
        """Whether an owner keeps a port open."""
        kept = self._kept.get(name)
        return kept is not None and kept.owner == owner

    async def open(
        self, owner: str, holder: str, board: Board, info: PortInfo, settings: SerialSettings
    ) -> SerialSettings:
        """Opens a port for its owner to keep; what it is open with, perhaps from before.

        Args:
            owner: identity and session.
            holder: who, for the others' error messages.
            board: has the port, and the claims on it.
            info: which.
            settings: how.

        Raises:
            BusyError: someone has it, or too many are open.
        """
        name = info.name
        await self.forget_gone(name)
        if self.has(owner, name):
            return self._kept[name].port.settings
        holders = {name: kept.holder for name, kept in self._kept.items()} | self._opening
        if name in holders:
            raise BusyError(f"{name} is in use by {holders[name]}")
        if len(holders) >= OPEN_MAX:
            names = ", ".join(holders)
            raise BusyError(f"{OPEN_MAX} serial ports are kept open ({names}): close one first")
        self._opening[name] = holder
        try:
            async with AsyncExitStack() as stack:
                port = await stack.enter_async_context(_opened(board, info, settings, holder))
                kept = _Kept(owner, holder, port, stack.pop_all())
        finally:
            del self._opening[name]
        kept.used = self._clock.monotonic()
        kept.timer = asyncio.create_task(self._expire(name, kept), name=f"serial {name}")
        self._kept[name] = kept
        return settings

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[SerialPort]:
        """An open port for one call; one whose device went away is not kept any longer."""
        kept = self._kept[name]
        kept.used = self._clock.monotonic()
        try:
            yield kept.port
        except NoDeviceError:
            await self._end(name, kept)
            raise
        finally:
            kept.used = self._clock.monotonic()

    async def forget_gone(self, name: str) -> None:
        """Closes an open port if its device went away and nobody noticed."""
        kept = self._kept.get(name)
        if kept is None:
            return
        try:
            await kept.port.read(0, 0.0)
        except NoDeviceError:
            await self._end(name, kept)

    async def close_port(self, owner: str, name: str) -> bool:
        """Closes a port that its owner keeps open; whether there was one."""
        if not self.has(owner, name):
            return False
        await self._end(name, self._kept[name])
        return True

    async def close(self) -> None:
        """Closes all of them."""
        for name, kept in tuple(self._kept.items()):
            await self._end(name, kept)

    async def _expire(self, name: str, kept: _Kept) -> None:
        while (left := kept.used + IDLE_S - self._clock.monotonic()) > 0:
            await self._sleep(left)
        kept.timer = None
        await self._end(name, kept)

    async def _end(self, name: str, kept: _Kept) -> None:
        if self._kept.get(name) is kept:
            del self._kept[name]
        if kept.timer is not None:
            kept.timer.cancel()
        await kept.stack.aclose()


@asynccontextmanager
async def _opened(
    board: Board, info: PortInfo, settings: SerialSettings, holder: str
) -> AsyncIterator[SerialPort]:
    await board.check_port(info)
    async with board.claim(info.name, holder):
        port = await board.buses.serial.open(info.path, settings, holder)
        try:
            yield port
        finally:
            await port.close()


class Serial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `serial`."""

    action: Annotated[
        Literal["list", "open", "read", "read_until", "write", "close"] | None,
        Meta(
            description="list the ports; open keeps one open for your session until close or 10 "
            "minutes without use (read and write open it for the call alone); write when data is "
            "given, else read."
        ),
    ] = None
    port: Annotated[
        str | None,
        Meta(
            description="ttyUSB0, /dev/ttyUSB0, a name from /dev/serial/by-id or by-path, or "
            "usb:VID:PID[:SERIAL]."
        ),
    ] = None
    baudrate: (
        Annotated[int, Meta(ge=1, le=20_000_000, description="Bits a second; 9600 if not given.")]
        | None
    ) = None
    bytesize: Annotated[int, Meta(ge=5, le=8, description="Data bits, 8.")] | None = None
    parity: Literal["none", "even", "odd", "N", "E", "O"] | None = None
    stopbits: Annotated[int, Meta(ge=1, le=2)] | None = None
    dtr: Annotated[
        bool | None,
        Meta(description="DTR while open. Opening raises it, which resets many boards."),
    ] = None
    rts: bool | None = None
    rtscts: Annotated[bool | None, Meta(description="Hardware flow control.")] = None
    xonxoff: Annotated[bool | None, Meta(description="Software flow control.")] = None
    rs485: Annotated[bool | None, Meta(description="RTS switches the transceiver.")] = None
    data: Data | None = None
    length: (
        Annotated[
            int, Meta(ge=1, le=65_536, description="Bytes to read; up to 4096 if not given.")
        ]
        | None
    ) = None
    until: Annotated[Data | None, Meta(description="What read_until ends with: a line end.")] = (
        None
    )
    timeout: Annotated[float, Meta(ge=0, le=50, description="Seconds to wait for bytes.")] = 1.0
    confirm: Annotated[bool, Meta(description="true: a person agreed to this write.")] = False


@tool(
    "serial",
    label="Serial ports",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=Hints(read_only=False, destructive=True, idempotent=False, open_world=False),
    aliases={
        "device": "port",
        "path": "port",
        "baud": "baudrate",
        "baud_rate": "baudrate",
        "data_bits": "bytesize",
        "stop_bits": "stopbits",
        "count": "length",
        "end": "until",
        "delimiter": "until",
    },
)
async def serial(params: Serial, ctx: Context) -> Result:
    """Read and write serial ports, list them, keep one open from call to call."""
    return await confirmed(params, ctx, _run)


async def _run(params: Serial, ctx: Context) -> Result:
    board: Board = ctx.services.board
    action = params.action or _action(params)
    if action == "list":
        return await _listing(board, ctx)
    info = await _info(board, params)
    if action == "open":
        return await _open(board, info, params, ctx)
    if action == "close":
        closed = await ctx.services.serial.close_port(_owner(ctx.caller), info.name)
        text = f"{info.name} {'is closed' if closed else 'was not open in this session'}"
        return results.text(text, structured={"port": info.name, "closed": closed})
    if action == "write":
        return await _write(board, info, params, ctx)
    if params.data is not None:
        raise InvalidArgumentsError([Fault("data", "belongs to action write")], "serial")
    async with _port(board, info, params, ctx) as port, port.hold():
        return await _read(port, params, to_end=action == "read_until")


def _action(params: Serial) -> str:
    if params.data is not None:
        return "write"
    if params.port is None:
        return "list"
    return "read" if params.until is None else "read_until"


async def _info(board: Board, params: Serial) -> PortInfo:
    """The port that is meant, if tools may use it."""
    if params.port is None:
        names = ", ".join(info.name for info in await board.buses.serial.list()) or "none"
        raise InvalidArgumentsError([Fault("port", f"is required: there is {names}")], "serial")
    info = await board.buses.serial.find(params.port)
    if info.name.startswith("/") and not board.allows(info.name):
        # Somebody's terminal, perhaps.
        raise DeniedError(
            f"{info.name} has no hardware behind it: to let tools use it, write "
            f"allow: [{info.name}] under board: in edged.yaml"
        )
    return info


def _owner(caller: Caller) -> str:
    return f"{caller.user} {caller.session}"


def _given(params: Serial) -> dict[str, Any]:
    """The settings of the line that the caller gave."""
    given = {
        name: value
        for name in SerialSettings.__struct_fields__
        if (value := getattr(params, name)) is not None
    }
    words: dict[str, Parity] = {"N": "none", "E": "even", "O": "odd"}
    if "parity" in given:
        given["parity"] = words.get(given["parity"], given["parity"])
    return given


@asynccontextmanager
async def _port(
    board: Board, info: PortInfo, params: Serial, ctx: Context
) -> AsyncIterator[SerialPort]:
    """The port that the session keeps open, or else one for this call."""
    sessions: SerialSessions = ctx.services.serial
    given = _given(params)
    if sessions.has(_owner(ctx.caller), info.name):
        async with sessions.use(info.name) as port:
            _check_same(info.name, port.settings, given)
            yield port
        return
    await sessions.forget_gone(info.name)
    holder = f"a call of {ctx.caller.user}"
    async with _opened(board, info, SerialSettings(**given), holder) as port:
        yield port


def _check_same(name: str, now: SerialSettings, given: dict[str, Any]) -> None:
    """Refuses settings that an open port does not have: setting it anew would reset its board."""
    if msgspec.structs.replace(now, **given) != now:
        reason = f"{name} is open at {_line(now)}: close it first to open it in another way"
        raise InvalidArgumentsError([Fault("port", reason)], "serial")


async def _open(board: Board, info: PortInfo, params: Serial, ctx: Context) -> Result:
    sessions: SerialSessions = ctx.services.serial
    given, holder = _given(params), f"a serial session of {ctx.caller.user}"
    wanted = SerialSettings(**given)
    settings = await sessions.open(_owner(ctx.caller), holder, board, info, wanted)
    _check_same(info.name, settings, given)
    value = {
        "port": info.name,
        "path": info.path,
        "settings": msgspec.to_builtins(settings),
        "idle_s": IDLE_S,
    }
    text = f"{info.name} is open at {_line(settings)}, until close or 10 minutes without use"
    return results.text(text, structured=value)


async def _write(board: Board, info: PortInfo, params: Serial, ctx: Context) -> Result:
    data = data_bytes(params.data)
    if not data:
        raise InvalidArgumentsError([Fault("data", "is required for a write")], "serial")
    board.check_confirmed(info.name, params.confirm)
    async with _port(board, info, params, ctx) as port:
        await port.write(data)
    value = {"port": info.name, "written": len(data), "hex": data.hex()}
    return results.text(f"{info.name}: wrote {_count(len(data))}", structured=value)


async def _read(port: SerialPort, params: Serial, *, to_end: bool) -> Result:
    wanted = params.length or READ_MAX
    end = b"\n" if params.until is None else data_bytes(params.until, "until")
    if to_end and not end:
        raise InvalidArgumentsError([Fault("until", "must not be empty")], "serial")
    if to_end:
        data = await port.read_until(end, wanted, params.timeout)
    else:
        data = await port.read(wanted, params.timeout)
    found = to_end and data.endswith(end)
    text, decoded = _text(data)
    value: dict[str, Any] = {
        "port": port.name,
        "requested": params.length,
        "received": len(data),
        "timed_out": not found and len(data) < wanted,
        "text": text,
        "hex": data.hex(),
        "decoded": decoded,
    }
    if to_end:
        value["found"] = found
    notes = await _notes(port, decoded=decoded)
    value |= {"notes": notes} if notes else {}
    said = _said(port, params, data, found=found if to_end else None)
    shape = msgspec.json.encode(text).decode() if decoded else shown(data)
    body = f"{port.name}: {said}" + (f": {shape}" if data else "")
    return results.text("; ".join([body, *notes]), structured=value)


def _said(port: SerialPort, params: Serial, data: bytes, *, found: bool | None) -> str:
    """How much came, against what was asked for."""
    count, time = len(data), f"{params.timeout:g} s"
    why = f"{time} were over" if count < (params.length or READ_MAX) else "the length was reached"
    if not count:
        return (
            f"nothing came in {time} at {_line(port.settings)}: check the speed, RX and TX "
            "swapped, and the ground"
        )
    if found is not None:
        return _count(count) + ("" if found else f" without the end, then {why}")
    if params.length is None or count == params.length:
        return _count(count)
    return f"{count} of {_count(params.length)}, then {why}"


async def _notes(port: SerialPort, *, decoded: bool) -> list[str]:
    """What makes bytes look doubtful."""
    notes = [] if decoded else ["not UTF-8: binary data, or another speed"]
    if port.lost:
        notes.append(f"{_count(port.lost)} lost since it was opened, for nobody read them")
    with suppress(NoDeviceError):
        errors = await port.line_errors() or {}
        told = ", ".join(f"{count} {kind}" for kind, count in errors.items() if count)
        if told:
            notes.append(f"errors of the line since it was opened: {told}: check the speed")
    return notes


async def _listing(board: Board, ctx: Context) -> Result:
    sessions: SerialSessions = ctx.services.serial
    lines, rows = [], []
    for info in await board.buses.serial.list():
        kept = sessions.has(_owner(ctx.caller), info.name)
        facts = [info.description, info.vid_pid, info.serial_number, info.by_id]
        facts += ["open in this session"] if kept else []
        lines.append(f"{info.name}: {', '.join(filter(None, facts)) or info.path}")
        rows.append({**msgspec.to_builtins(info), "open": kept})
    text = "\n".join(lines) or "This board has no serial port: plug one in, or see `edged doctor`."
    return results.text(text, structured={"ports": rows})


def _line(settings: SerialSettings) -> str:
    """The settings as people write them: `9600 8N1`."""
    parity = settings.parity[0].upper()
    return f"{settings.baudrate} {settings.bytesize}{parity}{settings.stopbits}"


def _count(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"


def _text(data: bytes) -> tuple[str, bool]:
    """The text of bytes, and whether they were one."""
    try:
        return data.decode(), True
    except UnicodeDecodeError:
        return data.decode(errors="replace"), False


TOOLS = (serial,)
