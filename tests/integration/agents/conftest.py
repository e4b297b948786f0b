"""A daemon whose subagents ask a scripted model."""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import asynccontextmanager

import msgspec
import pytest

from edged.identity import Caller
from edged.testing import running
from tests.integration.agents.modelserver import model_server

BOUND_S = 30.0
OWNER = Caller("local", "owner", "", "unix", "uid 0")
AGENT = Caller("local", "agent", "", "unix", "uid 1000")
KEY = "sk-very-secret-1"


@pytest.fixture
def folder():
    """One that the tools' account may enter."""
    with tempfile.TemporaryDirectory(prefix="edged-agents-", dir="/var/tmp") as made:
        os.chmod(made, 0o755)
        yield made


@pytest.fixture
async def model():
    async with model_server() as server:
        yield server
        assert not server.wrong


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def kind(request):
    return request.param


def config(model, kind="openai", **section):
    provider = {
        "kind": kind,
        "base_url": f"{model.url}/v1",
        "model": "small",
        "api_key": KEY,
        "timeout": "2s",
    }
    section = {"providers": {"local": provider}, **section}
    return msgspec.json.encode({"tools": {"subagent": section}}).decode()


class Board:
    """A running daemon, and calls to it."""

    def __init__(self, it) -> None:
        self.it = it
        self.events = []
        self._happened = asyncio.Event()
        it.daemon.services.events.subscribe(self._take)

    def _take(self, event):
        self.events.append(event)
        self._happened.set()

    def begin(self, name, caller=AGENT, **arguments):
        raw = msgspec.json.encode(arguments)
        dispatcher = self.it.daemon.dispatcher
        return dispatcher.start(caller, None, name, raw)

    async def call(self, name, caller=AGENT, **arguments):
        async with asyncio.timeout(BOUND_S):
            return await self.begin(name, caller, **arguments).wait()

    async def ended(self, task_id):
        """What the event says of a task that ended."""
        return await self.told("subagent.end", task_id=task_id)

    async def told(self, kind, **like):
        """The first event of a kind with these facts, now or later."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for event in self.events:
                    if event.kind == kind and like.items() <= event.data.items():
                        return event.data
                self._happened.clear()
                await self._happened.wait()


@pytest.fixture
def start(folder, model):
    """Starts a daemon whose subagents ask the model."""

    @asynccontextmanager
    async def make(kind="openai", data=folder, **section):
        text = section.pop("text", None) or config(model, kind, **section)
        async with running(data=data, config=text, authenticate=lambda _: OWNER) as it:
            yield Board(it)

    return make
