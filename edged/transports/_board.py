"""The board over HTTP: readings and their history."""

from __future__ import annotations

import msgspec
from aiohttp.web_response import StreamResponse

from edged.board.sensor import SensorInfo
from edged.errors import DeniedError, NotFoundError
from edged.history import Series
from edged.tools.sensors import history_of
from edged.transports._api import Request
from edged.transports._openapi import TEXT, Answer, Parameter, Route
from edged.units import Quality


class ReadingRow(msgspec.Struct, frozen=True):
    """The last reading of one channel: `value` in `unit` (SenML's), or null, and its `quality`."""

    sensor: str
    channel: str
    value: float | None
    unit: str
    time: str
    age_s: float
    quality: Quality
    identity: str
    note: str | msgspec.UnsetType = msgspec.UNSET


class SensorRow(SensorInfo, frozen=True):
    """One configured sensor: its state, channels, alarms and last readings."""

    alarms: dict[str, str]
    readings: list[ReadingRow]


class Sensors(msgspec.Struct, frozen=True):
    """The configured sensors; nothing is measured to list them."""

    sensors: list[SensorRow]


class History(msgspec.Struct, frozen=True):
    """Samples of one sensor, channel by channel."""

    sensor: str
    series: tuple[Series, ...]


async def list_sensors(request: Request) -> StreamResponse:
    """List the sensors with their last readings; nothing is measured for it."""
    return request.reply({"sensors": request.api.control.sensors(request.caller)})


async def sensor_history(request: Request) -> StreamResponse:
    """Tell the history of a sensor, in steps of mean, minimum and maximum."""
    services, name = request.api.control.services, request.params["name"]
    if not any(info.name == name for info in services.board.sensors):
        raise NotFoundError(f"no sensor named {name[:64]!r}")
    if not request.api.control.is_shown(request.caller, "sensor"):
        raise DeniedError("the tool sensor is switched off: its owner alone sees the samples")
    series = await history_of(
        services,
        name,
        request.query("channel"),
        request.query("since") or "1h",
        request.query("step") or 0,
        who=request.caller.who,
    )
    return request.reply(History(name, series))


ROUTES = (
    Route("GET", "/api/sensors", list_sensors, (Answer(200, "the sensors", Sensors),)),
    Route(
        "GET",
        "/api/sensors/{name}/history",
        sensor_history,
        (Answer(200, "the samples", History),),
        query=(
            Parameter("channel", "only this channel", TEXT),
            Parameter(
                "since",
                "RFC 3339, or how far back, such as -1h",
                {"type": "string", "default": "1h"},
            ),
            Parameter("step", "mean over this duration, such as 10m", TEXT),
        ),
        params=(Parameter("name", "the sensor's name", TEXT),),
    ),
)
