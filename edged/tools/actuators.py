"""`actuator`: the devices that act, by their configured names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import ActuatorInfo, Board
from edged.errors import Fault, InvalidArgumentsError, NoDeviceError
from edged.results import Result
from edged.tool import ACTS, Context, tool


class Actuator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `actuator`."""

    action: Annotated[
        Literal["list", "describe", "act", "read"] | None,
        Meta(description="act when a command is given, describe when an actuator is, else list."),
    ] = None
    actuator: Annotated[str | None, Meta(description="A configured actuator.")] = None
    command: Annotated[str | None, Meta(description="What it is told; describe lists them.")] = (
        None
    )
    arguments: Annotated[dict[str, Any], Meta(description="Of the command.")] = {}


@tool(
    "actuator",
    label="Actuators",
    category="hardware",
    # A picture for a display is the largest.
    arguments_max=2 << 20,
    hints=ACTS,
    aliases={"name": "actuator", "params": "arguments"},
)
async def actuator(params: Actuator, ctx: Context) -> Result:
    """List the board's actuators (servos, motors, displays, expanders), or tell one to act."""
    board: Board = ctx.services.board
    action = params.action or _action(params)
    if action == "list":
        return _listing(board.actuators)
    if params.actuator is None:
        names = ", ".join(info.name for info in board.actuators)
        there = f"there is {names}" if names else "none is configured"
        raise InvalidArgumentsError([Fault("actuator", f"is required; {there}")], "actuator")
    if action == "describe":
        return _described(board, params.actuator)
    if action == "read":
        samples = await board.told(params.actuator)
        lines = [
            f"{s.channel} {'no value' if s.value is None else f'{s.value:g}'}" for s in samples
        ]
        values = {"values": {s.channel: s.value for s in samples}}
        return results.text("\n".join(lines) or "It tells nothing of itself.", structured=values)
    if params.command is None:
        raise InvalidArgumentsError([Fault("command", "is required")], "actuator")
    said = await board.act(params.actuator, params.command, params.arguments)
    value = {"actuator": params.actuator, "command": params.command}
    return results.text(f"{params.actuator}: {said}", structured=value)


def _action(params: Actuator) -> str:
    if params.command:
        return "act"
    return "describe" if params.actuator else "list"


def _listing(infos: tuple[ActuatorInfo, ...]) -> Result:
    if not infos:
        text = "No actuators are configured: add them under `board: actuators:` in edged.yaml."
        return results.text(text, structured={"actuators": []})
    lines = []
    for info in infos:
        problem = f": {info.error}" if info.error else ""
        commands = ", ".join(command["name"] for command in info.commands)
        where = f" on {info.bus}" if info.bus else ""
        lines.append(f"{info.name}: {info.driver}{where}{problem}; {commands}")
    return results.text("\n".join(lines), structured={"actuators": msgspec.to_builtins(infos)})


def _described(board: Board, name: str) -> Result:
    known = {info.name: info for info in board.actuators}
    info = known.get(name)
    if info is None:
        there = f"there is {', '.join(known)}" if known else "none is configured"
        raise NoDeviceError(f"no actuator {name!r}: {there}")
    lines = [f"{info.name}: {info.driver}"]
    for command in info.commands:
        fields = command["arguments"].get("properties", {})
        takes = ", ".join(
            f"{field}: {facts.get('description', facts.get('type', ''))}".rstrip(": ")
            for field, facts in fields.items()
        )
        lines.append(
            f"  {command['name']}: {command['description']}" + (f" ({takes})" if takes else "")
        )
    return results.text("\n".join(lines), structured=msgspec.to_builtins(info))


TOOLS = (actuator,)
