"""The board over HTTP: readings and their history."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp.web_response import StreamResponse

from edged.errors import NotFoundError
from edged.history import Series
from edged.tools.sensors import history_of
from edged.transports._api import Request
from edged.transports._openapi import Answer, Query, Route


class Sensors(msgspec.Struct, frozen=True):
    """The configured sensors: state, channels, alarms, last readings with their age."""

    sensors: list[dict[str, Any]]


class History(msgspec.Struct, frozen=True):
    """Samples of one sensor, channel by channel."""

    sensor: str
    series: tuple[Series, ...]


async def list_sensors(request: Request) -> StreamResponse:
    """List the sensors with their last readings; nothing is measured for it."""
    return request.reply(Sensors(request.api.control.sensors()))


async def sensor_history(request: Request) -> StreamResponse:
    """Tell the history of a sensor, in steps of mean, minimum and maximum."""
    services, name = request.api.control.services, request.params["name"]
    if not any(info.name == name for info in services.board.sensors):
        raise NotFoundError(f"no sensor named {name[:64]!r}")
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
            Query("channel", "only this channel", {"type": "string"}),
            Query(
                "since",
                "RFC 3339, or how far back, such as -1h",
                {"type": "string", "default": "1h"},
            ),
            Query("step", "mean over this duration, such as 10m", {"type": "string"}),
        ),
    ),
)
