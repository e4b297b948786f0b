"""Prompts: the skills of a caller, each as a prompt that a person picks.

A `Source` adds further ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from edged.errors import Fault, InvalidArgumentsError, NotFoundError
from edged.identity import Caller
from edged.mcp.asking import Asker
from edged.mcp.server import Connection, page_of
from edged.mcp.types import Request
from edged.tool import Client

PAGE = 200
"""Prompts on one page of the list."""

TASK = {
    "name": "task",
    "title": "Task",
    "description": "What to do by these instructions.",
    "required": False,
}


class Source(Protocol):
    """Further prompts, in MCP's shapes."""

    def rows(self, caller: Caller) -> list[dict[str, Any]]:
        """The prompts of its list."""

    async def get(
        self, caller: Caller, name: str, arguments: dict[str, str], client: Client
    ) -> dict[str, Any] | None:
        """The description and messages of one; None where it has none of that name."""


class _ListParams(msgspec.Struct, gc=False):
    cursor: str | None = None


class _GetParams(msgspec.Struct, gc=False):
    name: str
    arguments: dict[str, str] = {}
    input_responses: msgspec.Raw = msgspec.field(name="inputResponses", default=msgspec.Raw())
    request_state: msgspec.Raw = msgspec.field(name="requestState", default=msgspec.Raw())


def _list(connection: Connection, request: Request) -> None:
    page = page_of(msgspec.json.decode(request.params or b"{}", type=_ListParams).cursor)

    async def rows() -> dict[str, Any]:
        found = await rows_of(connection)
        shown = found[page * PAGE : (page + 1) * PAGE]
        if page and not shown:
            raise InvalidArgumentsError([Fault("cursor", "there is no such page")])
        value: dict[str, Any] = {"prompts": shown}
        if len(found) > (page + 1) * PAGE:
            value["nextCursor"] = f"p{page + 1}"
        return value

    connection.work(request, rows(), stop=True)


async def rows_of(connection: Connection) -> list[dict[str, Any]]:
    """All prompts that a peer may pick, by name."""
    control, caller = connection.control, connection.caller
    found: list[dict[str, Any]] = []
    if _has_skills(connection):
        found = [
            {
                "name": row.name,
                "title": row.name,
                "description": row.description,
                "arguments": [TASK],
            }
            for row in await control.services.skills().rows(caller)
            if not row.problem
        ]
    for source in control.prompts:
        found += source.rows(caller)
    return sorted(found, key=lambda row: str(row["name"]))


def _has_skills(connection: Connection) -> bool:
    """Whether the owner lets agents have skills at all: as the tool of that name."""
    control = connection.control
    tool = control.registry.view(connection.caller.user).tools.get("skill")
    on = tool is not None and control.registry.status(tool)[0] == "enabled"
    return on and control.services.skills is not None


def _get(connection: Connection, request: Request) -> None:
    params = msgspec.json.decode(request.params or b"{}", type=_GetParams)
    subject = request.method, params.name, msgspec.json.encode(params.arguments)
    client = Asker(connection, request.id, request.meta, subject, modern=request.modern)
    if request.modern and (params.input_responses or params.request_state):
        client.answered(bytes(params.input_responses), bytes(params.request_state))
    caller = connection.identity if request.modern else connection.caller

    async def get() -> dict[str, Any]:
        try:
            return await _prompt(connection, caller, params, client)
        finally:
            client.end()

    connection.work(request, get(), stop=True)


async def _prompt(
    connection: Connection, caller: Caller, params: _GetParams, client: Asker
) -> dict[str, Any]:
    control = connection.control
    for source in control.prompts:
        found: dict[str, Any] | None = await source.get(
            caller, params.name, params.arguments, client
        )
        if found is not None:
            return found
    if not _has_skills(connection):
        raise NotFoundError(f"no prompt named {params.name[:100]!r}: prompts/list has them")
    unknown = params.arguments.keys() - {"task"}
    if unknown:
        reason = "is no argument of this prompt; it takes: task"
        raise InvalidArgumentsError([Fault(name[:64], reason) for name in sorted(unknown)])
    shown = await control.services.skills().show(caller, params.name)
    text = f"Follow these instructions of the skill {params.name}.\n\n{shown.body}"
    if params.arguments.get("task"):
        text += f"\n\nThe task: {params.arguments['task']}"
    return {
        "description": shown.row.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "prompts/list": _list,
    "prompts/get": _get,
}
