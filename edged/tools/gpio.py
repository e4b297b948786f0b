"""`gpio`: the lines that the configuration names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board
from edged.errors import EdgedError, Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import ACTS, Context, tool


class Gpio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `gpio`."""

    action: Annotated[
        Literal["list", "read", "write"] | None,
        Meta(description="read when a line is named, write when a value is given too."),
    ] = None
    line: Annotated[
        str | None, Meta(description="A configured line by its name, such as led.")
    ] = None
    value: Annotated[
        Literal["on", "off"] | bool | Annotated[int, Meta(ge=0, le=1)] | None,
        Meta(description="Logical level for write: on or off."),
    ] = None


@tool(
    "gpio",
    label="GPIO lines",
    category="hardware",
    hints=ACTS,
    aliases={"name": "line", "state": "value", "level": "value"},
)
async def gpio(params: Gpio, ctx: Context) -> Result:
    """List, read or drive the board's named GPIO lines (a value is the logical level)."""
    board: Board = ctx.services.board
    action = params.action
    if action is None:
        action = "list" if params.line is None else "read" if params.value is None else "write"
    if action == "list":
        return await _listing(board)
    if params.line is None:
        known = ", ".join(info.name for info in board.lines) or "none is configured"
        raise InvalidArgumentsError([Fault("line", f"is required; lines: {known}")], "gpio")
    if action == "write":
        if params.value is None:
            raise InvalidArgumentsError([Fault("value", "is required: on or off")], "gpio")
        await board.write_line(params.line, params.value in ("on", True))
    elif params.value is not None:
        raise InvalidArgumentsError([Fault("value", "belongs to action write")], "gpio")
    on = await board.read_line(params.line)
    text = f"{params.line} is {'on' if on else 'off'}"
    return results.text(text, structured={"line": params.line, "value": on})


async def _listing(board: Board) -> Result:
    if not board.lines:
        text = "No lines are configured: add them under `board: gpio:` in edged.yaml."
        return results.text(text, structured={"lines": []})
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
    return results.text("\n".join(lines), structured={"lines": rows})


TOOLS = (gpio,)
