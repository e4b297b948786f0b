"""edged's own methods, beside MCP's (contract, section 5): a table of name and handler.

Each handler is given the connection and one request, and answers it now or later; what
it raises is answered too. Imported when the first of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from edged.audit import Record
from edged.control import Decision
from edged.cron.spec import Spec
from edged.errors import Fault, InvalidArgumentsError
from edged.events import Event
from edged.identity import Role
from edged.mcp.server import Connection
from edged.mcp.types import Request
from edged.mcp.upstream.view import Addition
from edged.policy import Answer
from edged.sections import McpServer
from edged.wording import faulted

_T = TypeVar("_T")

BACKLOG_MAX = 1 << 20
"""Bytes of records or of earlier events that one request brings; the oldest are left out."""

_encode = msgspec.json.Encoder().encode


class _Name(msgspec.Struct):
    name: str


class _Key(msgspec.Struct):
    key: str


class _StateParams(msgspec.Struct):
    name: str | None = None
    enabled: bool | None = None


class _Definitions(msgspec.Struct):
    format: str = "mcp"


class _LogParams(msgspec.Struct):
    limit: int = 50
    follow: bool = False


class _MediaParams(msgspec.Struct):
    id: str
    offset: int = 0


class _EventParams(msgspec.Struct):
    since: int | None = None


class _ScanParams(msgspec.Struct):
    bus: str = ""


class _SyncParams(msgspec.Struct):
    dry_run: bool = False


class _GrantParams(msgspec.Struct):
    """Nothing lists, a duration answers, `forget` takes back by an id."""

    request_id: str = ""
    path: str = ""
    duration: Answer | None = None
    user: str = "local"
    write: bool | None = None
    forget: str = ""


class _JobsParams(msgspec.Struct):
    action: Literal["list", "show", "add", "update", "remove", "enable", "disable", "run"] = "list"
    id: str = ""
    job: Spec | None = None
    limit: int = 100
    offset: int = 0


class _McpParams(msgspec.Struct):
    action: Literal["list", "show", "add", "test", "remove"] = "list"
    name: str = ""
    server: McpServer | None = None
    replace: bool = False
    purge: bool = False


class _AgentsParams(msgspec.Struct):
    action: Literal[
        "list",
        "show",
        "create",
        "update",
        "import",
        "enable",
        "disable",
        "remove",
        "tasks",
        "task",
        "stop",
    ] = "list"
    slug: str = ""
    task_id: str = ""
    content: str = ""
    agent: msgspec.Raw = msgspec.Raw(b"{}")


class _TokenParams(msgspec.Struct):
    action: Literal["add", "list", "revoke"] = "list"
    name: str = ""
    user: str = "local"
    role: Role = "agent"


def _newest(rows: Sequence[Event | Record]) -> tuple[list[msgspec.Raw], int]:
    """The newest rows within `BACKLOG_MAX`, encoded, oldest first; and how many are left out."""
    kept: list[msgspec.Raw] = []
    room = BACKLOG_MAX
    for row in reversed(rows):
        data = _encode(row)
        room -= len(data) + 1
        if room < 0:
            break
        kept.append(msgspec.Raw(data))
    kept.reverse()
    return kept, len(rows) - len(kept)


def _status(connection: Connection, request: Request) -> None:
    # The caller's own tools are counted too, also where nobody listed them yet.
    connection.when_fresh(
        request.id,
        lambda: connection.answer(request, connection.control.status(connection.caller)),
    )


def _turn(connection: Connection, request: Request) -> None:
    connection.scope(request).turn()
    connection.answer(request, {})


def _describe(connection: Connection, request: Request) -> None:
    name = _given(request, _Name).name

    def answer() -> None:
        found = connection.control.describe(connection.caller, name, connection.scope(request))
        connection.answer(request, msgspec.to_builtins(found))

    connection.when_fresh(request.id, answer)


def _tools_state(connection: Connection, request: Request) -> None:
    params = _given(request, _StateParams)
    if params.name is None:
        connection.when_fresh(
            request.id,
            lambda: connection.answer(
                request,
                {"tools": connection.control.states(connection.caller, connection.scope(request))},
            ),
        )
        return
    if params.enabled is None:
        raise InvalidArgumentsError([Fault("enabled", "is required: true or false")])
    done = connection.control.switch(connection.caller, params.name, params.enabled)
    connection.answer(request, msgspec.to_builtins(done))


def _config_reset(connection: Connection, request: Request) -> None:
    key = _given(request, _Key).key
    connection.answer(request, {"dropped": connection.control.reset(connection.caller, key)})


def _definitions(connection: Connection, request: Request) -> None:
    form = _given(request, _Definitions).format

    def answer() -> None:
        scope = connection.scope(request)
        body = connection.control.definitions(connection.caller, scope, form)
        connection.answer(request, {"tools": msgspec.Raw(body)})

    connection.when_fresh(request.id, answer)


def _log(connection: Connection, request: Request) -> None:
    params = _given(request, _LogParams)
    rows = connection.control.log(connection.caller, min(max(params.limit, 0), 1_000))
    connection.answer(request, {"records": _newest(rows)[0]})
    if params.follow:
        trail = connection.control.services.trail
        connection.watch("log", lambda: trail.follow(lambda one: _audited(connection, one)))


def _audited(connection: Connection, record: Record) -> None:
    if connection.caller.is_owner or record.user == connection.caller.user:
        connection.offer("edged/log", record)


def _events(connection: Connection, request: Request) -> None:
    params = _given(request, _EventParams)
    events = connection.control.services.events
    connection.answer(request, {"last_id": events.last_id})
    if params.since is not None:
        _send_earlier(connection, events.since(params.since))
    connection.watch("events", lambda: events.subscribe(lambda one: _event(connection, one)))


def _event(connection: Connection, event: Event) -> None:
    if connection.control.may_see(connection.caller, event):
        connection.offer("edged/event", event)


def _send_earlier(connection: Connection, earlier: list[Event]) -> None:
    caller = connection.caller
    rows = [e for e in earlier if connection.control.may_see(caller, e)]
    kept, lost = _newest(rows)
    connection.lose(lost)
    for event in kept:
        connection.offer("edged/event", event)


def _media(connection: Connection, request: Request) -> None:
    params = _given(request, _MediaParams)
    connection.answer(
        request, connection.control.media(connection.caller, params.id, params.offset)
    )


def _sync(connection: Connection, request: Request) -> None:
    connection.control.require_owner(connection.caller, "sync tools")
    dry_run = _given(request, _SyncParams).dry_run
    connection.work(request, connection.control.catalogue.sync(dry_run))


def _sensors(connection: Connection, request: Request) -> None:
    connection.answer(request, {"sensors": connection.control.sensors(connection.caller)})


def _scan(connection: Connection, request: Request) -> None:
    bus = _given(request, _ScanParams).bus
    connection.work(request, connection.control.scan(bus))


def _jobs(connection: Connection, request: Request) -> None:
    params = _given(request, _JobsParams)
    action = "get" if params.action == "show" else params.action

    async def act() -> dict[str, Any]:
        found = await connection.control.services.cron().act(
            connection.caller, action, params.id, params.job, params.limit, params.offset
        )
        return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # a Struct becomes a dict

    connection.work(request, act())


def _mcp_servers(connection: Connection, request: Request) -> None:
    control, caller = connection.control, connection.caller
    control.require_owner(caller, "see and change MCP servers")
    params = _given(request, _McpParams)
    addition = None
    if params.action == "add":
        if params.server is None:
            raise InvalidArgumentsError([Fault("server", "is required")])
        addition = Addition(params.name, params.server, params.replace)

    async def act() -> dict[str, Any]:
        found = await control.mcp_server(
            caller, params.action, params.name, addition, purge=params.purge
        )
        value = msgspec.to_builtins(found)
        if params.action == "list":
            return {"servers": value}
        return value  # type: ignore[no-any-return]  # a Struct becomes a dict

    connection.work(request, act())


def _agents(connection: Connection, request: Request) -> None:
    params = _given(request, _AgentsParams)
    service = connection.control.services.agents()
    connection.work(request, service.act(connection.caller, **msgspec.structs.asdict(params)))


def _token(connection: Connection, request: Request) -> None:
    connection.control.require_owner(connection.caller, "manage tokens")
    params = _given(request, _TokenParams)
    tokens = connection.control.tokens
    if params.action == "add":
        secret = tokens.add(params.name, params.user, params.role)
        connection.answer(request, {"token": secret})
    elif params.action == "revoke":
        tokens.revoke(params.name)
        connection.answer(request, {"status": "ok"})
    else:
        rows = [
            {"name": t.name, "user": t.user, "role": t.role, "created": t.created}
            for t in tokens.rows()
        ]
        connection.answer(request, {"tokens": rows})


def _web_search(connection: Connection, request: Request) -> None:
    params = request.params or b"{}"
    if params.strip() == b"{}":
        connection.answer(request, connection.control.web_search(connection.caller))
        return
    from edged.web.settings import WebSearchBody  # noqa: PLC0415  rare: an owner's act

    body = msgspec.json.decode(params, type=WebSearchBody)
    connection.answer(request, connection.control.web_search(connection.caller, body))


def _grant(connection: Connection, request: Request) -> None:
    params = _given(request, _GrantParams)
    caller = connection.caller
    if params.forget:
        connection.control.forget_permission(caller, params.forget)
    elif params.duration is not None:
        decision = Decision(
            params.duration, params.request_id, params.path, params.user, params.write
        )
        connection.control.permit(caller, decision)
    elif params.request_id or params.path:
        reason = "is required: once, session or deny"
        raise InvalidArgumentsError([Fault("duration", reason)])
    else:
        connection.answer(request, connection.control.permissions(caller))
        return
    connection.answer(request, {"status": "ok"})


def _given(request: Request, kind: type[_T]) -> _T:
    """A request's parameters.

    Raises:
        InvalidArgumentsError: they do not fit.
    """
    try:
        return msgspec.json.decode(request.params or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentsError([faulted(error, kind)], "params") from None


METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "edged/status": _status,
    "edged/turn": _turn,
    "edged/describe": _describe,
    "edged/tools/state": _tools_state,
    "edged/config/reset": _config_reset,
    "edged/definitions": _definitions,
    "edged/log": _log,
    "edged/events": _events,
    "edged/media": _media,
    "edged/sync": _sync,
    "edged/token": _token,
    "edged/grant": _grant,
    "edged/sensors": _sensors,
    "edged/scan": _scan,
    "edged/web-search": _web_search,
    "edged/jobs": _jobs,
    "edged/mcp-servers": _mcp_servers,
    "edged/agents": _agents,
}
