"""Resources: sensors, lines, documentation of tools, media; and their subscriptions.

    edged://sensors/NAME   the last readings of a sensor, with units (JSON)
    edged://lines/NAME     a GPIO line of the configuration and its level (JSON)
    edged://tools/NAME     the documentation of a tool (Markdown)
    media://ID             what a result was too long for

Nobody reads here what no other door shows them. A `Source` adds further ones.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from edged import jsonrpc
from edged.board import Board, LineInfo
from edged.errors import EdgedError, Fault, InvalidArgumentsError, NotFoundError, TooLargeError
from edged.events import Event
from edged.identity import Caller
from edged.mcp.asking import Asker
from edged.mcp.server import Connection, page_of
from edged.mcp.types import NO_META, RESOURCE_NOT_FOUND, Meta, Request, RpcError
from edged.media import SCHEME
from edged.registry import Session
from edged.tool import Client

PAGE = 200
"""Resources on one page of a list."""

READ_MAX, AGENT_READ_MAX = 8 << 20, 1 << 20
"""Bytes of a medium that is read in one piece: a third more as base64, and a line holds 16 MiB."""

WATCHED_MAX = 256
"""Subscriptions of one peer."""

_CHANGES = {
    "sensor": ("sensor.reading", "sensor.state", "sensor.alarm"),
    "line": ("gpio.edge", "gpio.level"),
}
"""Events that say that one of these changed."""

MUTE = ("input", "none")
"""Direction and edges of a line that nothing is told of."""

SENSORS, LINES, TOOLS = "edged://sensors/", "edged://lines/", "edged://tools/"

TEMPLATES = (
    {
        "uriTemplate": SENSORS + "{name}",
        "name": "sensor",
        "title": "Sensor",
        "description": "The last readings of a sensor, with units.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": LINES + "{name}",
        "name": "line",
        "title": "GPIO line",
        "description": "A GPIO line of the board's configuration, with its level.",
        "mimeType": "application/json",
    },
    {
        "uriTemplate": TOOLS + "{name}",
        "name": "tool",
        "title": "Documentation of a tool",
        "description": "The whole documentation of a tool.",
        "mimeType": "text/markdown",
    },
    {
        "uriTemplate": SCHEME + "{id}",
        "name": "medium",
        "title": "Medium",
        "description": "A file that a result names.",
    },
)


class Source(Protocol):
    """Further resources, in MCP's shapes."""

    def rows(self, caller: Caller) -> list[dict[str, Any]]:
        """The resources of its list."""

    def templates(self) -> list[dict[str, Any]]:
        """Its templates."""

    async def read(self, caller: Caller, uri: str, client: Client) -> list[dict[str, Any]] | None:
        """The contents of one; None where it has none of that URI."""

    def watch(self, uri: str, tell: Callable[[], None]) -> Callable[[], None] | None:
        """Have `tell` called when one changes; returns how to stop. None: not its own."""


class _ListParams(msgspec.Struct, gc=False):
    cursor: str | None = None


class _ReadParams(msgspec.Struct, gc=False):
    uri: str
    meta: Meta = msgspec.field(name="_meta", default=NO_META)
    input_responses: msgspec.Raw = msgspec.field(name="inputResponses", default=msgspec.Raw())
    request_state: msgspec.Raw = msgspec.field(name="requestState", default=msgspec.Raw())


class _UriParams(msgspec.Struct, gc=False):
    uri: str


def _list(connection: Connection, request: Request) -> None:
    page = page_of(msgspec.json.decode(request.params or b"{}", type=_ListParams).cursor)
    connection.when_fresh(
        request.id, lambda: _send_page(connection, request, "resources", _rows(connection), page)
    )


def _templates(connection: Connection, request: Request) -> None:
    page = page_of(msgspec.json.decode(request.params or b"{}", type=_ListParams).cursor)
    rows = [*TEMPLATES]
    for source in connection.control.resources:
        rows += source.templates()
    _send_page(connection, request, "resourceTemplates", rows, page)


def _send_page(
    connection: Connection, request: Request, key: str, rows: list[Any], page: int
) -> None:
    shown = rows[page * PAGE : (page + 1) * PAGE]
    if page and not shown:
        raise InvalidArgumentsError([Fault("cursor", "there is no such page")])
    value: dict[str, Any] = {key: shown}
    if len(rows) > (page + 1) * PAGE:
        value["nextCursor"] = f"p{page + 1}"
    connection.answer(request, value, listing=True)


def _rows(connection: Connection) -> list[dict[str, Any]]:
    control, caller = connection.control, connection.caller
    board = control.services.board
    rows: list[dict[str, Any]] = [
        {
            "uri": SENSORS + info.name,
            "name": info.name,
            "title": f"Sensor {info.name}",
            "description": f"The last readings of {info.name} ({info.driver}).",
            "mimeType": "application/json",
        }
        for info in board.sensors
    ]
    rows += [
        {
            "uri": LINES + info.name,
            "name": info.name,
            "title": f"GPIO line {info.name}",
            "description": f"The {info.direction} {info.name} on {info.line}.",
            "mimeType": "application/json",
        }
        for info in board.lines
    ]
    rows += [
        {
            "uri": TOOLS + tool.name,
            "name": tool.name,
            "title": tool.label,
            "description": f"The documentation of {tool.name}.",
            "mimeType": "text/markdown",
        }
        for tool in control.registry.listed(caller.user, frozenset())
        if tool.body
    ]
    rows += [
        {
            "uri": SCHEME + medium.id,
            "name": medium.name,
            "mimeType": medium.mime_type,
            "size": medium.size,
        }
        for medium in control.services.media.rows(caller.user)
    ]
    for source in control.resources:
        rows += source.rows(caller)
    return sorted(rows, key=lambda row: str(row["uri"]))


def _read(connection: Connection, request: Request) -> None:
    params = msgspec.json.decode(request.params or b"{}", type=_ReadParams)
    subject = request.method, params.uri, b""
    client = Asker(connection, request.id, request.meta, subject, modern=request.modern)
    if request.modern and (params.input_responses or params.request_state):
        client.answered(bytes(params.input_responses), bytes(params.request_state))

    async def read() -> dict[str, Any]:
        try:
            return {"contents": await _contents(connection, request, params.uri, client)}
        except LookupError as error:
            code = jsonrpc.INVALID_PARAMS if request.modern else RESOURCE_NOT_FOUND
            raise RpcError(code, str(error), {"uri": params.uri}) from None
        finally:
            client.end()

    connection.work(request, read(), stop=True)


async def _contents(
    connection: Connection, request: Request, uri: str, client: Asker
) -> list[dict[str, Any]]:
    control = connection.control
    caller = connection.identity if request.modern else connection.caller
    if uri.startswith(SCHEME):
        # Whoever asks for many at once holds few of them.
        async with control.reads:
            return [await asyncio.to_thread(_medium, connection, uri)]
    if uri.startswith(TOOLS):
        waits = control.catalogue.fresh(caller.user)
        if waits is not None:
            await asyncio.wait([waits])
        return [_document(connection, connection.scope(request), uri)]
    facts = _facts(connection, caller, uri)
    # The level is what the tool would read: where that is off, it is nobody's.
    if isinstance(facts, LineInfo) and not control.is_shown(caller, "gpio"):
        facts = msgspec.structs.replace(facts, edges=0, lost=0)
    if isinstance(facts, LineInfo) and control.is_on(caller, "gpio"):
        facts = await _with_level(control.services.board, facts)
    if facts is not None:
        text = msgspec.json.encode(facts).decode()
        return [{"uri": uri, "mimeType": "application/json", "text": text}]
    for source in control.resources:
        found: list[dict[str, Any]] | None = await source.read(caller, uri, client)
        if found is not None:
            return found
    raise NotFoundError(f"no resource {uri[:200]!r}: resources/list has those there are")


def _facts(connection: Connection, caller: Caller, uri: str) -> Any:
    """What JSON says of a sensor or a line; None where the URI names neither."""
    name = uri.rpartition("/")[2]
    if uri == SENSORS + name:
        return connection.control.sensor(caller, name)
    if uri == LINES + name:
        return connection.control.services.board.line_info(name)
    return None


async def _with_level(board: Board, info: LineInfo) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(info)
    try:
        facts["value"] = await board.read_line(info.name)
    except EdgedError as error:
        facts["error"] = str(error)
    return facts


def _document(connection: Connection, session: Session, uri: str) -> dict[str, Any]:
    found = connection.control.describe(connection.caller, uri.removeprefix(TOOLS), session)
    text = found.body or f"# {found.label}\n\n{found.description}\n"
    return {"uri": uri, "mimeType": "text/markdown", "text": text}


def _medium(connection: Connection, uri: str) -> dict[str, Any]:
    """Runs in a thread: it may be large."""
    media, caller = connection.control.services.media, connection.caller
    medium = media.get(caller.user, uri, owner=caller.is_owner)
    most = READ_MAX if caller.is_owner else AGENT_READ_MAX
    if medium.size > most:
        limit = most >> 20
        raise TooLargeError(f"{uri} is over {limit} MiB: read_file takes {uri} in parts")
    data = media.read(medium, 0, most)
    row = {"uri": uri, "mimeType": medium.mime_type}
    if medium.mime_type.startswith("text/") or medium.mime_type == "application/json":
        try:
            return {**row, "text": data.decode()}
        except UnicodeDecodeError:
            pass  # It is not what it says; as it is, then.
    return {**row, "blob": binascii.b2a_base64(data, newline=False).decode()}


# Subscriptions ----------------------------------------------------------------------------


def watch(connection: Connection, uri: str, tell: Callable[[], None]) -> Callable[[], None] | None:
    """Have `tell` called whenever a resource changes.

    Returns:
        How to stop; None where there is no such resource, or it never changes.
    """
    control = connection.control
    name = uri.rpartition("/")[2]
    kinds = {SENSORS: "sensor", LINES: "line"}
    key = kinds.get(uri.removesuffix(name))
    if key is not None:
        board, caller = control.services.board, connection.caller
        info = board.line_info(name) if key == "line" else board.sensor_info(name)
        is_mute = isinstance(info, LineInfo) and (info.direction, info.edge) == MUTE
        if info is None or is_mute:
            return None

        def heard(event: Event) -> None:
            if event.data.get(key) == name and control.may_see(caller, event):
                tell()

        return control.services.events.subscribe(heard, _CHANGES[key])
    for source in control.resources:
        stop: Callable[[], None] | None = source.watch(uri, tell)
        if stop is not None:
            return stop
    return None


def _subscribe(connection: Connection, request: Request) -> None:
    uri = msgspec.json.decode(request.params or b"{}", type=_UriParams).uri
    watched = sum(name.startswith("uri ") for name in connection.watched)
    if watched >= WATCHED_MAX:
        reason = f"{WATCHED_MAX} resources are watched already: unsubscribe from some"
        raise InvalidArgumentsError([Fault("uri", reason)])

    def tell() -> None:
        if not connection.congested:
            notice = jsonrpc.notification("notifications/resources/updated", {"uri": uri})
            connection.send(notice)

    def begin() -> Callable[[], None]:
        stop = watch(connection, uri, tell)
        if stop is None:
            text = f"no resource {uri[:200]!r} that changes"
            raise RpcError(RESOURCE_NOT_FOUND, text, {"uri": uri})
        return stop

    connection.watch(f"uri {uri}", begin)
    connection.answer(request, {})


def _unsubscribe(connection: Connection, request: Request) -> None:
    uri = msgspec.json.decode(request.params or b"{}", type=_UriParams).uri
    connection.unwatch(f"uri {uri}")
    connection.answer(request, {})


METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "resources/list": _list,
    "resources/templates/list": _templates,
    "resources/read": _read,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
