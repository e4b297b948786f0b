"""Other MCP servers over HTTP; owners only, secrets are never told."""

from __future__ import annotations

from aiohttp.web_response import StreamResponse

from edged.errors import Fault, InvalidArgumentsError
from edged.mcp.upstream.view import Addition, Removed, Row, Rows
from edged.transports._api import Request
from edged.transports._openapi import TEXT, Answer, Parameter, Route


async def list_servers(request: Request) -> StreamResponse:
    """List the other MCP servers with their states; owners only."""
    return request.reply(Rows(await request.api.control.mcp_server(request.caller, "list", "")))


async def add_server(request: Request) -> StreamResponse:
    """Add an MCP server; it is stored when this is answered, and started; owners only."""
    control, caller = request.api.control, request.caller
    # Who may not add one is not told what is wrong with one.
    control.require_owner(caller, "see and change MCP servers")
    body = await request.body(Addition)
    row = await control.mcp_server(caller, "add", body.name, body)
    return request.reply(row, 201, {"Location": f"/api/mcp-servers/{body.name}"})


async def get_server(request: Request) -> StreamResponse:
    """Tell how one MCP server is; owners only."""
    name = request.params["name"]
    return request.reply(await request.api.control.mcp_server(request.caller, "show", name))


async def remove_server(request: Request) -> StreamResponse:
    """Remove an MCP server that was added; what it kept stays or goes too; owners only."""
    purge = request.query("purge")
    if purge not in (None, "true", "false"):
        raise InvalidArgumentsError([Fault("purge", "must be true or false")])
    removed = await request.api.control.mcp_server(
        request.caller, "remove", request.params["name"], purge=purge == "true"
    )
    return request.reply(removed)


async def test_server(request: Request) -> StreamResponse:
    """Start an MCP server where it is not, and ask it for its tools; owners only."""
    name = request.params["name"]
    return request.reply(await request.api.control.mcp_server(request.caller, "test", name))


_NAME = (Parameter("name", "the server's, in the configuration", TEXT),)
_ONE = Answer(200, "the server", Row)

ROUTES = (
    Route("GET", "/api/mcp-servers", list_servers, (Answer(200, "all", Rows),)),
    Route(
        "POST",
        "/api/mcp-servers",
        add_server,
        (Answer(201, "the server", Row, headers=(("Location", "of the server"),)),),
        Addition,
        problems=(409, 507),
    ),
    Route("GET", "/api/mcp-servers/{name}", get_server, (_ONE,), params=_NAME),
    Route(
        "DELETE",
        "/api/mcp-servers/{name}",
        remove_server,
        (Answer(200, "it is removed", Removed),),
        params=_NAME,
        query=(
            Parameter(
                "purge", "erase its home too", {"type": "string", "enum": ["true", "false"]}
            ),
        ),
        problems=(507,),
    ),
    Route(
        "POST",
        "/api/mcp-servers/{name}/test",
        test_server,
        (_ONE,),
        params=_NAME,
        problems=(502,),
    ),
)
