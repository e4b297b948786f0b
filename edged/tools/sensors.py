"""`sensor`: the readings of the configured board."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged import results
from edged.board import Board, SensorInfo
from edged.clock import Clock, iso
from edged.errors import (
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    ToolUnavailableError,
)
from edged.history import Series
from edged.results import Result
from edged.tool import ACTS, Context, tool
from edged.tools._confirm import confirmed
from edged.tools._forms import INPUTS_MAX, check_inputs
from edged.tools._turns import turn
from edged.units import UNITS, Reading, duration_s, row
from edged.units import text as reading_text

SHOWN_ROWS = 48
"""Rows of a history in its text; the structured result has all."""


def calibrations(*, sim: bool) -> str:
    """Name under which the offsets are stored, by sensor and channel: of chips that are there."""
    return "calibration-sim" if sim else "calibration"


OF = {
    "max_age": ("read",),
    "raw": ("read",),
    "since": ("history",),
    "step": ("history",),
    "value": ("calibrate",),
    "reset": ("calibrate",),
}
"""Inputs that only some actions have a use for."""


class Sensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `sensor`."""

    action: Annotated[
        Literal["list", "read", "history", "describe", "identify", "calibrate"] | None,
        Meta(
            description="list the sensors, or read them (read when a sensor is named); history of "
            "a channel; describe one; identify its chip anew; calibrate a channel."
        ),
    ] = None
    sensor: Annotated[str | None, Meta(description="A configured sensor; all when absent.")] = None
    channel: Annotated[str | None, Meta(description="Only this channel, such as temperature.")] = (
        None
    )
    max_age: Annotated[
        float, Meta(ge=0, le=86_400, description="A reading this many seconds old will do.")
    ] = 0.0
    raw: Annotated[bool, Meta(description="With the bytes that a value came from.")] = False
    since: Annotated[
        str, Meta(description="Of history: how far back (1h, 7d), or a time (RFC 3339).")
    ] = "1h"
    step: Annotated[
        str | float, Meta(description="Of history: mean over this time, such as 10m.")
    ] = 0
    value: Annotated[
        float | None, Meta(description="Of calibrate: what the channel should say now.")
    ] = None
    reset: Annotated[bool, Meta(description="Of calibrate: drop the offset again.")] = False
    confirm: Annotated[bool, Meta(description="true: a person agreed to calibrate.")] = False


@tool(
    "sensor",
    label="Sensors",
    category="hardware",
    arguments_max=INPUTS_MAX,
    hints=ACTS,
    aliases={"name": "sensor"},
)
async def sensor(params: Sensor, ctx: Context) -> Result:
    """List the board's sensors, or read them: values with units and age; and their history."""
    return await confirmed(params, ctx, _run)


async def _run(params: Sensor, ctx: Context) -> Result:
    board: Board = ctx.services.board
    action = params.action or ("read" if params.sensor or params.channel else "list")
    check_inputs(params, action, OF, "sensor")
    if action == "list":
        return _listing(board.sensors)
    if params.sensor is None:
        if params.channel or action != "read":
            raise InvalidArgumentsError([Fault("sensor", "is required")], "sensor")
        if not board.sensors:
            return _listing(board.sensors)
        return await _read_all(board, params, ctx.services.clock)
    if action == "read":
        readings = await board.read(params.sensor, params.channel, max_age_s=params.max_age)
        return _read(readings, {}, ctx.services.clock.monotonic(), raw=params.raw)
    if action == "history":
        return await _history(params.sensor, params, ctx)
    if action == "calibrate":
        return await _calibrate(params.sensor, params, ctx)
    if action == "identify":
        info = await board.identify(params.sensor)
        return results.text(f"{info.name}: {info.identity}", structured=msgspec.to_builtins(info))
    return _described(board, params.sensor, ctx.services.clock)


async def _read_all(board: Board, params: Sensor, clock: Clock) -> Result:
    readings: list[Reading] = []
    errors: dict[str, str] = {}
    for info in board.sensors:
        try:
            readings += await board.read(info.name, max_age_s=params.max_age)
        except EdgedError as error:
            # One sensor that does not answer hides no other.
            errors[info.name] = str(error)
    return _read(readings, errors, clock.monotonic(), raw=params.raw)


def _read(readings: Sequence[Reading], errors: dict[str, str], now: float, *, raw: bool) -> Result:
    lines = [f"{r.sensor}: {reading_text(r, r.age_s(now))}" for r in readings]
    lines += [f"{name}: {error}" for name, error in errors.items()]
    value: dict[str, Any] = {"readings": [row(r, now, raw=raw) for r in readings]}
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
        where = f" on {info.bus}" if info.bus else ""
        lines.append(f"{info.name}: {info.driver}{where}, {info.state}{problem}")
        lines.append(_indented(channels))
    return results.text("\n".join(lines), structured={"sensors": msgspec.to_builtins(sensors)})


def _indented(text: str) -> str:
    """The text in lines that fit a terminal."""
    return textwrap.fill(
        text, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _described(board: Board, name: str, clock: Clock) -> Result:
    readings = board.latest(name)
    (info,) = (one for one in board.sensors if one.name == name)
    alarms, offsets = dict(board.alarms(name)), dict(board.calibrations(name))
    now = clock.monotonic()
    lines = [f"{info.name}: {info.driver}, {info.state}"]
    if info.identity:
        lines.append(f"chip: {info.identity}")
    if info.error:
        lines.append(f"error: {info.error}")
    lines += [
        f"channel {c.name}: {c.unit}, {c.low:g} to {c.high:g}"
        + (f", alarm: {alarms[c.name]}" if c.name in alarms else "")
        + (f", calibrated by {offsets[c.name]:+g}" if c.name in offsets else "")
        for c in info.channels
    ]
    lines += [reading_text(r, r.age_s(now)) for r in readings]
    value = {
        **msgspec.to_builtins(info),
        "alarms": alarms,
        "offsets": offsets,
        "readings": [row(r, now) for r in readings],
    }
    return results.text("\n".join(lines), structured=value)


async def _history(name: str, params: Sensor, ctx: Context) -> Result:
    found = await history_of(
        ctx.services,
        name,
        params.channel,
        params.since,
        params.step,
        who=ctx.caller.who,
        by="sensor",
    )
    lines: list[str] = []
    for series in found:
        unit = UNITS[series.unit]
        lines.append(f"{series.channel} in {unit.symbol or series.unit}: {len(series.rows)} steps")
        rows = series.rows[-SHOWN_ROWS:]
        if len(rows) < len(series.rows):
            lines.append(f"… {len(series.rows) - len(rows)} earlier ones left out")
        lines += [f"{iso(r.time)} {r.mean * unit.factor:.{unit.digits}f}" for r in rows]
    text = "\n".join(lines) or f"{name} has no samples since then."
    return results.text(text, structured={"series": msgspec.to_builtins(found)})


async def history_of(
    services: Any,
    name: str,
    channel: str | None,
    since: str,
    step: str | float,
    *,
    who: str,
    by: str = "",
) -> tuple[Series, ...]:
    """The samples of a configured sensor.

    Args:
        services: the daemon's.
        name: of the sensor.
        channel: only this one.
        since: a duration back from now (`1h`, `-1h`), or a time (RFC 3339).
        step: a duration, or seconds; 0 is single samples.
        who: asks; of one caller's queries few are answered at a time.
        by: the tool that asks, for its error message.

    Raises:
        NoDeviceError: no such sensor.
        InvalidArgumentsError: no such channel, or no time.
        ToolUnavailableError: no history is kept.
        StoreError: it cannot be read.
        BusyError: too many others ask.
    """
    board: Board = services.board
    board.check_channel(name, channel)
    if services.history is None:
        raise ToolUnavailableError(
            "sensor history", "disabled", "requires_config", "set board.history.enabled: true"
        )
    key = "since"
    try:
        start = _since(since, services.clock.now())
        key = "step"
        step_s = _seconds(step)
    except ValueError as error:
        raise InvalidArgumentsError([Fault(key, str(error))], by) from None
    async with turn(board, "history", who):
        found: tuple[Series, ...] = await services.history.read(name, channel, start, step_s)
    return found


def _since(written: str, now: float) -> float:
    """Seconds since 1970 of a duration back from now, or of a time.

    Raises:
        ValueError: neither.
    """
    try:
        return now - _seconds(written.removeprefix("-"))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(written)
    except ValueError:
        raise ValueError(
            f"{written[:40]!r} is neither a duration (1h, 7d) nor a time (2026-05-01T12:00:00Z)"
        ) from None
    return time.timestamp()


def _seconds(written: str | float) -> float:
    """A duration; a bare number is seconds, as text too: that is all a URL or a shell can give.

    Raises:
        ValueError: none.
    """
    if isinstance(written, str) and re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", written):
        return float(written)
    return duration_s(written)


async def _calibrate(name: str, params: Sensor, ctx: Context) -> Result:
    if params.channel is None or (params.value is None and not params.reset):
        missing = "channel" if params.channel is None else "value"
        raise InvalidArgumentsError([Fault(missing, "is required to calibrate")], "sensor")
    board: Board = ctx.services.board
    board.check_channel(name, params.channel)
    if not (params.confirm or ctx.caller.is_owner):
        reason = "to calibrate needs confirm: true, said by a person"
        raise DeniedError(reason, unconfirmed=f"calibrate {name}")
    if params.value is None or params.reset:
        await board.uncalibrate(name, params.channel)
        text = f"{name} {params.channel}: no offset any more beside the configuration's"
    else:
        offset = await board.calibrate(name, params.channel, params.value)
        text = f"{name} {params.channel}: offset {offset:g} beside the configuration's"
    store, kept = ctx.services.store, calibrations(sim=board.simulated)
    stored = store.load(kept, dict[str, dict[str, float]], {})
    offsets = dict(board.calibrations(name))
    store.save(kept, {**stored, name: offsets})
    return results.text(text, structured={"sensor": name, "offsets": offsets})


TOOLS = (sensor,)
