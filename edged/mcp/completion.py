"""Completion: names of sensors, lines and tools, of media and skills, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edged.mcp.resources import LINES, SENSORS, TOOLS
from edged.mcp.server import Connection
from edged.mcp.types import Request
from edged.media import SCHEME

VALUES_MAX = 100
"""Values of one answer (MCP, completion)."""


class _Prompt(msgspec.Struct, tag="ref/prompt", tag_field="type", gc=False):
    name: str


class _Resource(msgspec.Struct, tag="ref/resource", tag_field="type", gc=False):
    uri: str


class _Argument(msgspec.Struct, gc=False):
    name: str
    value: str


class _Params(msgspec.Struct, gc=False):
    ref: _Prompt | _Resource
    argument: _Argument


def _complete(connection: Connection, request: Request) -> None:
    params = msgspec.json.decode(request.params or b"{}", type=_Params)
    connection.when_fresh(request.id, lambda: _answer(connection, request, params))


def _answer(connection: Connection, request: Request, params: _Params) -> None:
    names = _names(connection, params.ref.uri) if isinstance(params.ref, _Resource) else []
    typed = params.argument.value.lower()
    # What begins so comes before what holds it.
    found = sorted(
        (name for name in names if typed in name.lower()),
        key=lambda name: (not name.lower().startswith(typed), name),
    )
    value: dict[str, Any] = {
        "values": found[:VALUES_MAX],
        "total": len(found),
        "hasMore": len(found) > VALUES_MAX,
    }
    connection.answer(request, {"completion": value})


def _names(connection: Connection, template: str) -> list[str]:
    """What may stand in the place of a template's variable."""
    control, user = connection.control, connection.caller.user
    board = control.services.board
    if template.startswith(SENSORS):
        return [info.name for info in board.sensors]
    if template.startswith(LINES):
        return [info.name for info in board.lines]
    if template.startswith(TOOLS):
        return [tool.name for tool in control.registry.listed(user, frozenset())]
    if template.startswith(SCHEME):
        return [medium.id for medium in control.services.media.rows(user)]
    return []


METHODS: dict[str, Callable[[Connection, Request], None]] = {"completion/complete": _complete}
