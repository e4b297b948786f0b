"""Agents and subagents over HTTP: the specification's endpoints, and those for tasks."""

from __future__ import annotations

import msgspec
from aiohttp.web_response import StreamResponse

from edged.agents.service import Service, View
from edged.agents.store import SLUG, Agent, Change, Creation, Listing
from edged.errors import Fault, InvalidArgumentsError
from edged.transports._api import Request
from edged.transports._openapi import TEXT, Answer, Parameter, Route


class Import(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Markdown file's text: a prompt under YAML front matter."""

    content: str


class Removed(msgspec.Struct, frozen=True):
    """It is gone."""

    status: str = "ok"


class Tasks(msgspec.Struct, frozen=True):
    """Subagents, oldest first."""

    tasks: list[View]


def _service(request: Request) -> Service:
    found: Service = request.api.control.services.agents()
    return found


def _required(slug: str | None) -> str:
    if not slug:
        raise InvalidArgumentsError([Fault("slug", "is required: ?slug=NAME")])
    return slug


async def list_agents(request: Request) -> StreamResponse:
    """List the caller's agents."""
    return request.reply(await _service(request).listing(request.caller))


async def get_agent(request: Request) -> StreamResponse:
    """Tell one agent."""
    return request.reply(
        await _service(request).get(request.caller, _required(request.query("slug")))
    )


async def create_agent(request: Request) -> StreamResponse:
    """Make an agent; owners only."""
    request.api.control.require_owner(request.caller, "change agents")
    asked = await request.body(Creation)
    return request.reply(await _service(request).create(request.caller, asked), 201)


async def update_agent(request: Request) -> StreamResponse:
    """Change an agent, what is absent stays; owners only."""
    request.api.control.require_owner(request.caller, "change agents")
    change = await request.body(Change)
    return request.reply(
        await _service(request).update(request.caller, _required(request.query("slug")), change)
    )


async def delete_agent(request: Request) -> StreamResponse:
    """Remove an agent; owners only."""
    request.api.control.require_owner(request.caller, "change agents")
    await _service(request).delete(request.caller, _required(request.query("slug")))
    return request.reply(Removed())


async def import_agent(request: Request) -> StreamResponse:
    """Make an agent of a Markdown file's text; owners only."""
    request.api.control.require_owner(request.caller, "change agents")
    body = await request.body(Import)
    return request.reply(await _service(request).take(request.caller, body.content), 201)


async def list_subagents(request: Request) -> StreamResponse:
    """List the caller's subagents, those of earlier lives of the daemon too."""
    return request.reply(Tasks(await _service(request).tasks(request.caller)))


async def get_subagent(request: Request) -> StreamResponse:
    """Tell how far a subagent is, or what it reported."""
    return request.reply(await _service(request).status(request.caller, request.params["id"]))


async def stop_subagent(request: Request) -> StreamResponse:
    """Cancel a subagent; answers when it has ended."""
    return request.reply(await _service(request).stop(request.caller, request.params["id"]))


_SLUG = (Parameter("slug", "of the agent", {"type": "string", "pattern": f"^{SLUG}$"}),)
_ID = (Parameter("id", "of the subagent's task", TEXT),)
_MADE = (Answer(201, "it is made", Agent),)

ROUTES = (
    Route(
        "GET", "/api/agents", list_agents, (Answer(200, "the agents", Listing),), problems=(507,)
    ),
    Route(
        "GET",
        "/api/agent",
        get_agent,
        (Answer(200, "the agent", Agent),),
        query=_SLUG,
        problems=(404, 507),
    ),
    Route("POST", "/api/agent/create", create_agent, _MADE, Creation, problems=(409, 507)),
    Route(
        "PUT",
        "/api/agent/update",
        update_agent,
        (Answer(200, "it is changed", Agent),),
        Change,
        query=_SLUG,
        problems=(404, 507),
    ),
    Route(
        "DELETE",
        "/api/agent/delete",
        delete_agent,
        (Answer(200, "it is removed", Removed),),
        query=_SLUG,
        problems=(404, 507),
    ),
    Route("POST", "/api/agent/import", import_agent, _MADE, Import, problems=(409, 507)),
    Route("GET", "/api/subagents", list_subagents, (Answer(200, "the tasks", Tasks),)),
    Route(
        "GET", "/api/subagents/{id}", get_subagent, (Answer(200, "the task", View),), params=_ID
    ),
    Route(
        "POST",
        "/api/subagents/{id}/stop",
        stop_subagent,
        (Answer(200, "it ended", View),),
        params=_ID,
    ),
)
