"""`sensor`: the readings of the configured board."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board, SensorInfo
from edged.clock import Clock, iso
from edged.errors import EdgedError, Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import READS, Context, tool
from edged.units import Reading
from edged.units import text as reading_text


class Sensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `sensor`."""

    action: Annotated[
        Literal["list", "read"] | None,
        Meta(description="list the sensors, or read them; read when a sensor is named."),
    ] = None
    sensor: Annotated[str | None, Meta(description="A configured sensor; all when absent.")] = None
    channel: Annotated[str | None, Meta(description="Only this channel, such as temperature.")] = (
        None
    )
    max_age: Annotated[
        float, Meta(ge=0, le=86_400, description="A reading this many seconds old will do.")
    ] = 0.0


@tool("sensor", label="Sensors", category="hardware", hints=READS, aliases={"name": "sensor"})
async def sensor(params: Sensor, ctx: Context) -> Result:
    """List the board's sensors, or read them: values with units and age."""
    board: Board = ctx.services.board
    action = params.action or ("read" if params.sensor or params.channel else "list")
    if action == "list":
        return _listing(board.sensors)
    if params.channel and not params.sensor:
        raise InvalidArgumentsError([Fault("sensor", "is required with channel")], "sensor")
    if params.sensor:
        readings = await board.read(params.sensor, params.channel, max_age_s=params.max_age)
        return _read(readings, {}, ctx.services.clock.monotonic())
    if not board.sensors:
        return _listing(board.sensors)
    return await _read_all(board, params.max_age, ctx.services.clock)


async def _read_all(board: Board, max_age_s: float, clock: Clock) -> Result:
    readings: list[Reading] = []
    errors: dict[str, str] = {}
    for info in board.sensors:
        try:
            readings += await board.read(info.name, max_age_s=max_age_s)
        except EdgedError as error:
            # One sensor that does not answer hides no other.
            errors[info.name] = str(error)
    return _read(readings, errors, clock.monotonic())


def _read(readings: Sequence[Reading], errors: dict[str, str], now: float) -> Result:
    lines = [f"{r.sensor}: {reading_text(r, r.age_s(now))}" for r in readings]
    lines += [f"{name}: {error}" for name, error in errors.items()]
    value: dict[str, Any] = {"readings": [_row(r, now) for r in readings]}
    if errors:
        value["errors"] = errors
    result = results.text("\n".join(lines), structured=value)
    result.is_error = not readings
    return result


def _listing(sensors: tuple[SensorInfo, ...]) -> Result:
    if not sensors:
        text = "No sensors are configured: add them under `board: sensors:` in edged.yaml."
        return results.text(text, structured={"sensors": []})
    lines = []
    for info in sensors:
        channels = ", ".join(f"{c.name} ({c.unit})" for c in info.channels)
        problem = f": {info.error}" if info.error else ""
        lines.append(
            f"{info.name}: {info.driver} on {info.bus}, {info.state}{problem}; {channels}"
        )
    return results.text("\n".join(lines), structured={"sensors": msgspec.to_builtins(sensors)})


def _row(reading: Reading, now: float) -> dict[str, Any]:
    return {
        "sensor": reading.sensor,
        "channel": reading.channel,
        "value": reading.value,
        "unit": reading.unit,
        "time": iso(reading.time),
        "age_s": round(reading.age_s(now), 3),
        "quality": reading.quality,
        "identity": reading.identity,
        **({"note": reading.note} if reading.note else {}),
    }


TOOLS = (sensor,)
