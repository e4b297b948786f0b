"""Permission requests over HTTP: what agents ask for beside their own, and the answers."""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp.web_response import StreamResponse

from edged.control import Decision
from edged.transports._api import Request
from edged.transports._openapi import Answer, Parameter, Route


class Asked(msgspec.Struct, frozen=True):
    """One request: what for, by whom, since when."""

    request_id: str
    user: str
    path: str
    write: bool
    command: str
    reason: str
    time: str
    asked_by: str


class Granted(msgspec.Struct, frozen=True):
    """One grant that holds now."""

    id: str
    user: str
    path: str
    write: bool
    duration: Literal["once", "session"]
    session: str
    asked_by: str
    time: str


class Permissions(msgspec.Struct, frozen=True):
    """Requests that wait, what was refused and is remembered, what is granted."""

    requests: list[Asked]
    denied: list[Asked]
    grants: list[Granted]


class Done(msgspec.Struct, frozen=True):
    """It holds from now on."""

    status: Literal["ok"] = "ok"


async def list_permissions(request: Request) -> StreamResponse:
    """List permission requests, denials and grants; owners only."""
    return request.reply(request.api.control.permissions(request.caller))


async def grant_permission(request: Request) -> StreamResponse:
    """Answer a permission request, by its id or by its path and user; owners only."""
    control, caller = request.api.control, request.caller
    # Who may not answer is not told what is wrong with an answer.
    control.require_owner(caller, "answer permission requests")
    control.permit(caller, await request.body(Decision))
    return request.reply(Done())


async def forget_permission(request: Request) -> StreamResponse:
    """Take a grant back, lift a denial or drop a request; owners only."""
    request.api.control.forget_permission(request.caller, request.params["id"])
    return request.reply(Done())


_DONE = Answer(200, "done", Done)

ROUTES = (
    Route("GET", "/api/permission", list_permissions, (Answer(200, "all", Permissions),)),
    Route(
        "POST",
        "/api/permission/grant",
        grant_permission,
        (_DONE,),
        Decision,
        problems=(404, 507),
    ),
    Route(
        "DELETE",
        "/api/permission/{id}",
        forget_permission,
        (_DONE,),
        params=(Parameter("id", "of a request, a grant or a denial", {"type": "string"}),),
        problems=(507,),
    ),
)
