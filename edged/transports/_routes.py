"""The endpoints of the HTTP API, each declared once in `ROUTES`."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from typing import Annotated, Any, Literal

import msgspec
from aiohttp.web_fileresponse import FileResponse
from aiohttp.web_response import StreamResponse
from msgspec import Meta

from edged import __version__
from edged.audit import Record
from edged.config import Config
from edged.control import Control, Description, Switched
from edged.dispatch import Call
from edged.errors import NotFoundError
from edged.identity import Role
from edged.media import Medium
from edged.registry import FORMATS, State
from edged.results import Block, Result
from edged.transports import _agents, _board, _jobs, _mcp, _mcp_servers, _permission, _web
from edged.transports._api import Api, Request
from edged.transports._calls import location, outcome
from edged.transports._limits import Timing
from edged.transports._openapi import EVENTS, TEXT, Answer, Parameter, Route, document
from edged.transports._quick import Quick
from edged.transports._streams import Feed, Stream

LOG_MAX = 1_000
LAST_ID_MAX = 2**63 - 1

UPDATES = 64
"""Updates of one call that may wait for a reader; each replaces the one before anyway."""

_MIME = re.compile(r"[\w.+-]+/[\w.+-]+(?:\s*;\s*[\w-]+=[\w.-]+)*", re.ASCII)


class Ok(msgspec.Struct, frozen=True):
    """It is done."""

    status: Literal["ok"] = "ok"


class Tools(msgspec.Struct, frozen=True):
    """Tools with their states, sorted by name."""

    tools: list[State]


class Definitions(msgspec.Struct, frozen=True):
    """Definitions of the usable tools as a provider wants them."""

    tools: list[dict[str, Any]]


class StateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The wanted state of a tool."""

    enabled: bool


class CallBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call: `timeout` in seconds, never above the tool's own."""

    arguments: Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})] = msgspec.field(
        default_factory=msgspec.Raw
    )
    timeout: Annotated[float, Meta(gt=0)] | None = None
    async_: bool = msgspec.field(name="async", default=False)


class Accepted(msgspec.Struct, frozen=True):
    """An asynchronous call."""

    call_id: str
    status: Literal["running", "done"]
    async_: bool = msgspec.field(name="async", default=True)


class Records(msgspec.Struct, frozen=True):
    """Audit records, oldest first."""

    records: list[Record]


class BoardHealth(msgspec.Struct, frozen=True):
    """Its parts by name: `ok`, a state, or what is wrong; and channels out of their bounds."""

    sensors: dict[str, str]
    lines: dict[str, str]
    actuators: dict[str, str]
    alarms: dict[str, str]


class JobsHealth(msgspec.Struct, frozen=True):
    """How many jobs there are and how many run; `problem` where they cannot be written."""

    count: int
    running: int
    problem: str | msgspec.UnsetType = msgspec.UNSET


class SubagentsHealth(msgspec.Struct, frozen=True):
    """How many subagents run, and how many wait for a place."""

    running: int
    waiting: int


class Status(msgspec.Struct, frozen=True):
    """The health of every part."""

    version: str
    uptime_s: float
    user: str
    role: Role
    data: str
    listen: list[str]
    calls_running: int
    tools: dict[str, int]
    audit_lost: int
    board: BoardHealth
    problems: list[str]
    sandbox: dict[str, Any]
    warm: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    jobs: JobsHealth | msgspec.UnsetType = msgspec.UNSET
    subagents: SubagentsHealth | msgspec.UnsetType = msgspec.UNSET
    mcp: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Start(msgspec.Struct, frozen=True):
    """A streamed call was accepted."""

    call_id: str
    tool: str


class UpdateBody(msgspec.Struct, frozen=True):
    """Progress of a streamed call; replaces what came before."""

    content: list[Block]


def api(control: Control, config: Config, timing: Timing) -> Api:
    """The HTTP API of a daemon."""
    return Api(control, config, timing, ROUTES, Quick)


async def healthz(request: Request) -> StreamResponse:
    """Say that the daemon lives."""
    return request.reply(Ok())


async def list_tools(request: Request) -> StreamResponse:
    """List tools with their states, or their definitions for a provider."""
    form = request.query("format")
    await request.fresh()
    control, caller = request.api.control, request.caller
    if form is not None:
        body = control.definitions(caller, request.session, form)
        return request.reply(b'{"tools":%b}' % body)
    return request.reply(Tools(control.states(caller, request.session)))


async def describe_tool(request: Request) -> StreamResponse:
    """Describe one tool: schema, source, status, sandbox permissions, documentation."""
    await request.fresh()
    name = request.params["name"]
    return request.reply(request.api.control.describe(request.caller, name, request.session))


async def switch_tool(request: Request) -> StreamResponse:
    """Switch a tool on or off, for everyone; owners only."""
    body = await request.body(StateBody)
    await request.fresh()
    control = request.api.control
    return request.reply(control.switch(request.caller, request.params["name"], body.enabled))


async def call_tool(request: Request) -> StreamResponse:
    """Call a tool: plain, streamed (Accept: text/event-stream) or asynchronous."""
    body = await request.body(CallBody)
    control, caller, name = request.api.control, request.caller, request.params["name"]
    if not control.registry.has(caller.user, name):
        # Perhaps it is new: look again before it is unknown.
        await request.fresh()
    if body.async_:
        request.api.calls.make_room(caller.user)
        call = _start(request, body)
        request.api.calls.add(call)
        accepted = Accepted(call.id, "done" if call.done else "running")
        return request.reply(accepted, 202, {"Location": location(call.id)})
    if EVENTS in request.header("Accept").lower():
        return await _streamed(request, body)
    call = _start(request, body)
    try:
        return request.reply(await call.wait())
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if call.cancelled and task is not None and not task.cancelling():
            # The daemon ended the call, not the client.
            return request.reply(outcome(call))
        raise


def _start(request: Request, body: CallBody, updates: _Updates | None = None) -> Call:
    return request.api.control.dispatcher.start(
        request.caller,
        request.session,
        request.params["name"],
        bytes(body.arguments),
        timeout_s=body.timeout,
        on_update=updates.add if updates is not None else None,
    )


class _Updates:
    """Updates of one call on their way to its stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.waiting: deque[list[Block]] = deque(maxlen=UPDATES)

    def add(self, content: list[Block]) -> None:
        self.waiting.append(content)
        self._stream.poke()


async def _streamed(request: Request, body: CallBody) -> StreamResponse:
    """Start, updates while it runs, then exactly one result and nothing after."""
    stream = request.stream()
    updates = _Updates(stream)
    call = _start(request, body, updates)
    try:
        call.when_done(lambda _: stream.poke())
        await stream.open()
        await stream.send("start", Start(call.id, call.name))
        while True:
            while updates.waiting:
                await stream.send("update", UpdateBody(updates.waiting.popleft()))
            if call.done:
                break
            await stream.wait()
        await stream.send("result", outcome(call))
    finally:
        call.cancel()
    return stream.response


async def get_call(request: Request) -> StreamResponse:
    """Fetch the result of an asynchronous call."""
    call_id = request.params["id"]
    data = request.api.calls.get(request.caller, call_id)
    if not data:
        return request.reply(Accepted(call_id, "running"), 202, {"Retry-After": "1"})
    return request.reply(data)


async def end_call(request: Request) -> StreamResponse:
    """Cancel a running asynchronous call, or forget the result of an ended one."""
    request.api.calls.end(request.caller, request.params["id"])
    return request.reply(Ok())


async def get_media(request: Request) -> StreamResponse:
    """Fetch the file behind a media:// URL."""
    medium, path = _medium(request)
    # What a tool made is never run as a page of this origin.
    mime = medium.mime_type if _MIME.fullmatch(medium.mime_type) else "application/octet-stream"
    shown = "inline" if mime.startswith("image/") else "attachment"
    name = re.sub(r"[^\w.-]+", "_", medium.name, flags=re.ASCII)[:100] or "medium"
    headers = {
        "Content-Type": mime,
        "Content-Disposition": f'{shown}; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        "Cache-Control": "private, max-age=3600",
    }
    return FileResponse(path, headers=request.headers(headers))


def _medium(request: Request) -> tuple[Medium, str]:
    media, caller = request.api.control.services.media, request.caller
    medium = media.get(caller.user, request.params["id"], owner=caller.is_owner)
    path = media.path(medium)
    if not os.path.isfile(path):
        raise NotFoundError(f"no medium {medium.id!r}: its file is gone")
    return medium, path


async def get_events(request: Request) -> StreamResponse:
    """Follow what happens; Last-Event-ID resumes after that event."""
    caller, control = request.caller, request.api.control
    bus = control.services.events
    last_id = request.header_number("Last-Event-ID", bus.last_id, LAST_ID_MAX)
    stream = request.stream()
    if request.is_head:
        return stream.response
    feed = Feed(stream.poke)
    kept = [e for e in bus.since(last_id) if control.may_see(caller, e)]
    stop = bus.subscribe(lambda e: feed.offer(e) if control.may_see(caller, e) else None)
    request.api.streams.add(stream)
    try:
        await stream.open()
        while True:
            for event in kept:
                await stream.send(event.kind, event, event.id)
                last_id = event.id
            kept, lost = feed.take()
            if lost:
                kept.insert(0, bus.gap(last_id, kept[0].id))
            elif not kept:
                if stream.ending:
                    return stream.response
                await stream.wait()
    finally:
        stop()
        request.api.streams.discard(stream)


async def end_turn(request: Request) -> StreamResponse:
    """Say that one turn of the agent is over, in the session of Edged-Session."""
    request.session.turn()
    return request.reply(Ok())


async def get_log(request: Request) -> StreamResponse:
    """Read the newest audit records: all for an owner, its own for an agent."""
    limit = request.number("limit", 50, LOG_MAX)
    return request.reply(Records(request.api.control.log(request.caller, limit)))


async def get_status(request: Request) -> StreamResponse:
    """Tell the health of every part."""
    await request.fresh()
    return request.reply(request.api.control.status(request.caller))


async def get_openapi(request: Request) -> StreamResponse:
    """Describe this API (OpenAPI 3.1)."""
    return request.reply(document(request.api.routes, __version__))


_OK = Answer(200, "done", Ok)
_TOOL = (Parameter("name", "the tool's name", TEXT),)
_CALL = (Parameter("id", "the `call_id` of the call", TEXT),)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", healthz, (_OK,), is_open=True),
    Route("GET", "/openapi.json", get_openapi, (Answer(200, "the document"),)),
    Route(
        "GET",
        "/api/tools",
        list_tools,
        (Answer(200, "the tools", Tools), Answer(200, "with format", Definitions)),
        query=(Parameter("format", "definitions for that provider", {"enum": list(FORMATS)}),),
    ),
    Route(
        "GET",
        "/api/tools/{name}",
        describe_tool,
        (Answer(200, "the tool", Description),),
        params=_TOOL,
    ),
    Route(
        "PUT",
        "/api/tools/{name}/state",
        switch_tool,
        (Answer(200, "done", Switched),),
        StateBody,
        params=_TOOL,
        problems=(507,),
    ),
    *_web.ROUTES,
    Route(
        "POST",
        "/api/tools/{name}/call",
        call_tool,
        (
            Answer(200, "the result, also of a tool that failed", Result),
            Answer(200, "events start, update and one result", media=EVENTS),
            Answer(
                202,
                "an asynchronous call was accepted",
                Accepted,
                headers=(("Location", "where its result will be"),),
            ),
        ),
        CallBody,
        params=_TOOL,
        problems=(409,),
    ),
    Route(
        "GET",
        "/api/calls/{id}",
        get_call,
        (
            Answer(200, "the result", Result),
            Answer(202, "it runs", Accepted, headers=(("Retry-After", "seconds"),)),
        ),
        params=_CALL,
    ),
    Route("DELETE", "/api/calls/{id}", end_call, (_OK,), params=_CALL),
    Route(
        "GET",
        "/api/media/{id}",
        get_media,
        (Answer(200, "the file", media="*/*"),),
        params=(Parameter("id", "the id of its media:// URL", TEXT),),
    ),
    Route(
        "GET",
        "/api/events",
        get_events,
        (Answer(200, "events", media=EVENTS),),
        headers=(
            Parameter(
                "Last-Event-ID",
                "resume after that event",
                {"type": "integer", "minimum": 0, "maximum": LAST_ID_MAX},
            ),
        ),
    ),
    Route("POST", "/api/turn", end_turn, (_OK,)),
    Route(
        "GET",
        "/api/log",
        get_log,
        (Answer(200, "the records", Records),),
        query=(
            Parameter(
                "limit",
                "how many",
                {"type": "integer", "minimum": 0, "maximum": LOG_MAX, "default": 50},
            ),
        ),
    ),
    Route("GET", "/api/status", get_status, (Answer(200, "the health", Status),)),
    *_board.ROUTES,
    *_permission.ROUTES,
    *_jobs.ROUTES,
    *_mcp_servers.ROUTES,
    *_agents.ROUTES,
    *_mcp.ROUTES,
)
