"""A scripted server over HTTP on loopback."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}


class Site:
    """A server: `answer(request, body)` gives each response; what came is kept."""

    def __init__(self):
        self.seen, self.answers, self.closed = [], {}, asyncio.Event()

    async def __aenter__(self):
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/mcp"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _handle(self, request):
        body = await request.json() if request.can_read_body else None
        key = body["method"] if body and "method" in body else request.method
        self.seen.append((key, request.headers, body))
        answer = self.answers.get(key)
        if callable(answer):
            return await answer(request, body)
        if answer is None:
            return web.Response(status=202 if body and "id" not in body else 405)
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": answer})

    def methods(self):
        return [key for key, _, _ in self.seen]


@pytest.fixture
async def site():
    async with Site() as made:
        made.answers["initialize"] = INFO
        yield made


@pytest.fixture
def another():
    return Site()
