"""A peer in this process that speaks lines to a `Connection`."""

from __future__ import annotations

import asyncio
import itertools
import json

import msgspec
import pytest

from edged.mcp.server import Connection


class McpPeer:
    """A client in this process: speaks lines to a `Connection` and keeps what came back."""

    def __init__(self, core, caller=None):
        self.sent, self.congested, self.answered = [], False, 0
        self._ids, self._arrived = itertools.count(1_000), asyncio.Event()
        self._bound_s = core.bound_s
        self.connection = Connection(
            core.control, caller or core.owner, self._take,
            congested=lambda _: self.congested, on_answered=self._count,
        )  # fmt: skip

    def _count(self):
        self.answered += 1

    def _take(self, line, about=b"", ends=None):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.sent.append(json.loads(line))
        self._arrived.set()

    def line(self, data):
        self.connection.receive(data)

    def say(self, method, params=None, **more):
        """Send one message; `id=` makes it a request."""
        body = {"jsonrpc": "2.0", "method": method, **more}
        self.line(msgspec.json.encode(body if params is None else {**body, "params": params}))

    async def ask(self, method, params=None):
        """One request and its whole answer."""
        number = next(self._ids)
        self.say(method, params, id=number)
        return await self.reply(number)

    async def reply(self, number):
        return await self.wait(lambda m: "method" not in m and m["id"] == number)

    async def wait(self, wanted):
        """The first message that fits, among those that came and those to come."""
        async with asyncio.timeout(self._bound_s):
            while not (found := [m for m in self.sent if wanted(m)]):
                self._arrived.clear()
                await self._arrived.wait()
        return found[0]

    def notes(self, method):
        return [m["params"] for m in self.sent if m.get("method") == method]


@pytest.fixture
def peer(core):
    return McpPeer(core)


@pytest.fixture
def agent(core):
    return McpPeer(core, core.agent)
