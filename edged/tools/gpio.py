"""`gpio`: the lines that the configuration names, those of the chips, and PWM channels."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.bus.faults import remedy
from edged.errors import EdgedError, Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import ACTS, Context, tool
from edged.tools._confirm import confirmed
from edged.tools._forms import INPUTS_MAX, check_inputs

OF = {
    "duration": ("pulse",),
    "count": ("watch",),
    "timeout": ("watch",),
    "frequency": ("pwm",),
    "duty": ("pwm",),
    "pulse_us": ("servo",),
    "all": ("list",),
}
"""Inputs that only some actions have a use for: a line that stays on was not pulsed."""

SERVO_PERIOD_NS = 20_000_000
"""Hobby servos expect a pulse every 20 ms."""


class Gpio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `gpio`."""

    action: Annotated[
        Literal["list", "read", "write", "watch", "pulse", "pwm", "servo"] | None,
        Meta(
            description="list the lines; read when a line is named, write when a value is given "
            "too; watch for edges; pulse an output; pwm or servo on a PWM channel."
        ),
    ] = None
    line: Annotated[
        str | None,
        Meta(
            description="A configured line by its name, such as led, or a chip's, such as GPIO17; "
            "of pwm and servo a channel, such as pwmchip0/0."
        ),
    ] = None
    value: Annotated[
        Literal["on", "off"] | bool | Annotated[int, Meta(ge=0, le=1)] | None,
        Meta(description="Logical level for write: on or off."),
    ] = None
    duration: Annotated[
        float, Meta(ge=0.000_001, le=60, description="Seconds that a pulse lasts.")
    ] = 0.1
    count: Annotated[int, Meta(ge=1, le=256, description="Edges to watch for.")] = 1
    timeout: Annotated[float, Meta(gt=0, le=300, description="Seconds to watch at most.")] = 10.0
    frequency: Annotated[float, Meta(ge=0.1, le=10_000_000, description="Of pwm, in Hz.")] = 1000.0
    duty: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None, Meta(description="Of pwm: 0 is off, 1 is on.")
    ] = None
    pulse_us: Annotated[
        Annotated[float, Meta(ge=0, le=3000)] | None,
        Meta(description="Of servo: 1000 to 2000 on most; 0 lets it go."),
    ] = None
    all: Annotated[bool, Meta(description="Of list: the lines of all chips too.")] = False
    confirm: Annotated[
        bool, Meta(description="true: a person agreed to drive a line that is not configured.")
    ] = False


STATE = {
    "type": "object",
    "description": "A line: its value, its edges, or what a channel gives; else all lines.",
    "properties": {
        "line": {"type": "string"},
        "value": {"type": "boolean"},
        "edges": {"type": "array", "items": {"type": "object"}},
        "timed_out": {"type": "boolean"},
        "channel": {"type": "string"},
        "period_ns": {"type": "integer"},
        "duty_ns": {"type": "integer"},
    },
}


@tool(
    "gpio",
    label="GPIO lines",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=ACTS,
    aliases={"name": "line", "state": "value", "level": "value", "pin": "line"},
    timeout_s=310.0,
    output_schema=STATE,
)
async def gpio(params: Gpio, ctx: Context) -> Result:
    """List, read, drive or watch the board's GPIO lines (a value is the logical level)."""
    return await confirmed(params, ctx, _run)


async def _run(params: Gpio, ctx: Context) -> Result:
    board: Board = ctx.services.board
    action = params.action or _action(params)
    check_inputs(params, action, OF, "gpio")
    if action == "list":
        return await _listing(board, params)
    if params.line is None:
        known = ", ".join(info.name for info in board.lines) or "none is configured"
        raise InvalidArgumentsError([Fault("line", f"is required; lines: {known}")], "gpio")
    if params.value is not None and action != "write":
        raise InvalidArgumentsError([Fault("value", "belongs to action write")], "gpio")
    if action == "watch":
        return await _watch(board, params.line, params)
    if action in {"pwm", "servo"}:
        return await _pwm(board, params.line, params, action)
    if action in {"write", "pulse"}:
        await _drive(board, params.line, params, action)
        if action == "pulse":
            text = f"{params.line} was on for {params.duration:g} s"
            return results.text(text, structured={"line": params.line, "value": False})
    on = await board.read_line(params.line)
    text = f"{params.line} is {'on' if on else 'off'}"
    return results.text(text, structured={"line": params.line, "value": on})


def _action(params: Gpio) -> str:
    if params.line is None:
        return "list"
    return "read" if params.value is None else "write"


async def _drive(board: Board, line: str, params: Gpio, action: str) -> None:
    if action == "write" and params.value is None:
        raise InvalidArgumentsError([Fault("value", "is required: on or off")], "gpio")
    if not board.is_configured(line):
        # The owner named the configured ones: those are there to be driven.
        await board.check_line(line)
        board.check_write(line, params.confirm)
    if action == "pulse":
        await board.pulse_line(line, params.duration)
    else:
        await board.write_line(line, params.value in ("on", True))


async def _watch(board: Board, line: str, params: Gpio) -> Result:
    edges = await board.watch_line(line, params.count, params.timeout)
    rows = [
        {"value": edge.value, "monotonic": edge.monotonic, "sequence": edge.sequence}
        | ({"lost": edge.lost} if edge.lost else {})
        for edge in edges
    ]
    lines = []
    for edge in edges:
        lost = f", {edge.lost} edges before it were lost" if edge.lost else ""
        lines.append(f"{edge.monotonic:.6f} s: {'on' if edge.value else 'off'}{lost}")
    if len(edges) < params.count:
        lines.append(f"{len(edges)} of {params.count} edges in {params.timeout:g} s")
    value = {"line": line, "edges": rows, "timed_out": len(edges) < params.count}
    return results.text("\n".join(lines), structured=value)


async def _pwm(board: Board, channel: str, params: Gpio, action: str) -> Result:
    if action == "servo":
        if params.pulse_us is None:
            raise InvalidArgumentsError([Fault("pulse_us", "is required")], "gpio")
        period, duty = SERVO_PERIOD_NS, round(params.pulse_us * 1000)
        text = f"{channel} gives pulses of {params.pulse_us:g} us every 20 ms"
    else:
        if params.duty is None:
            raise InvalidArgumentsError([Fault("duty", "is required: 0 to 1")], "gpio")
        period = round(1e9 / params.frequency)
        duty = round(period * params.duty)
        text = f"{channel} is on for {params.duty:.1%} at {params.frequency:g} Hz"
    await board.check_pwm(channel)
    board.check_write(channel, params.confirm)
    await board.set_pwm(channel, period, duty)
    value = {"channel": channel, "period_ns": period, "duty_ns": duty}
    return results.text(text, structured=value)


async def _listing(board: Board, params: Gpio) -> Result:
    lines, rows = [], []
    for info in board.lines:
        row = msgspec.to_builtins(info)
        try:
            row["value"] = await board.read_line(info.name)
            state = "on" if row["value"] else "off"
        except EdgedError as error:
            # One line that cannot be had hides no other.
            row["error"] = state = str(error)
        low = ", active low" if info.active_low else ""
        lines.append(f"{info.name}: {info.direction} on {info.line}{low}: {state}")
        rows.append(row)
    value: dict[str, Any] = {"lines": rows}
    if params.all:
        await _add_chips(board, lines, value)
    if not lines:
        lines.append("No lines are configured: add them under `board: gpio:` in edged.yaml.")
    return results.text("\n".join(lines), structured=value)


async def _add_chips(board: Board, lines: list[str], value: dict[str, Any]) -> None:
    """The lines of all chips and the PWM channels, as the kernel tells of them."""
    states = await board.buses.gpio.lines()
    if not states:
        lines.append(f"No GPIO chip is here: {remedy('gpio')}.")
    for state in states:
        used = f", used by {state.consumer or 'the kernel'}" if state.used else ""
        name = state.name or f"{state.chip}/{state.offset}"
        lines.append(f"{name}: {state.chip}/{state.offset}, {state.direction}{used}")
    channels = list(await board.buses.pwm.channels())
    lines += [f"{channel}: PWM" for channel in channels]
    value["chips"] = msgspec.to_builtins(list(states))
    value["pwm"] = channels


TOOLS = (gpio,)
