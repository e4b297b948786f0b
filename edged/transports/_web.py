"""The settings of web search over HTTP; owners only, keys are never told."""

from __future__ import annotations

from aiohttp.web_response import StreamResponse

from edged.transports._api import Request
from edged.transports._openapi import Answer, Route
from edged.web.settings import WebSearchBody, WebSearchConfig


async def get_web_search(request: Request) -> StreamResponse:
    """Tell the settings of web search, without keys; owners only."""
    return request.reply(request.api.control.web_search(request.caller))


async def put_web_search(request: Request) -> StreamResponse:
    """Change the settings of web search; what is absent keeps its value; owners only."""
    control, caller = request.api.control, request.caller
    # Who may not change them is not told what is wrong with a change.
    control.web_search(caller)
    return request.reply(control.web_search(caller, await request.body(WebSearchBody)))


_CONFIG = Answer(200, "the settings", WebSearchConfig)

ROUTES = (
    Route("GET", "/api/tools/web-search-config", get_web_search, (_CONFIG,)),
    Route("PUT", "/api/tools/web-search-config", put_web_search, (_CONFIG,), WebSearchBody),
)
