"""The daemon's core from its real parts, in a temporary directory."""

from __future__ import annotations

import asyncio
import signal

import pytest
from hypothesis import settings

from edged.audit import Trail
from edged.board.sim import sim_board
from edged.config import Config
from edged.control import Catalogue, Control
from edged.dispatch import Dispatcher
from edged.events import Events
from edged.finder import Finder
from edged.identity import Caller
from edged.loop import Loop
from edged.media import Media
from edged.policy import Policy
from edged.registry import Registry
from edged.sections import Discovery, Files
from edged.services import Services
from edged.store import Store
from edged.testing.clock import FakeClock
from edged.tokens import Tokens
from edged.workspace import Workspace
from edged.workspace.homes import Homes

# Ignored in what a shell starts in the background, and so in all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
settings.register_profile("edged", deadline=None)
settings.load_profile("edged")

BY_BOTH_LOOPS = frozenset({"test_unix.py", "test_http.py", "test_quick.py"})
"""Doors, which read directly under the daemon's loop, and as asyncio has it under another."""


def pytest_asyncio_loop_factories(config, item):
    if item.path.name in BY_BOTH_LOOPS:
        return {"direct": Loop, "asyncio": asyncio.SelectorEventLoop}
    return {"direct": Loop}


BOUND_S = 10.0
SECRET = "configured-secret"
OWNER = Caller("local", "owner", "", "unix", "uid 0")
AGENT = Caller("ada@example.org", "agent", "", "unix", "uid 1000")


class Core:
    """Registry, dispatcher and control over real services; time moves by hand."""

    owner, agent, secret, bound_s = OWNER, AGENT, SECRET, BOUND_S

    def __init__(self, data):
        self.data, self.clock = str(data), FakeClock()
        self.tasks, self.waits, self.synced = set(), None, []
        self.registry, self.events = Registry(), Events(self.clock)
        self.store = Store(f"{data}/state")
        self.trail = Trail(f"{data}/audit", self.clock, 1 << 20)
        self.board = sim_board(
            self.clock, sleep=self.sleep,
            publish=lambda kind, facts: self.events.publish(kind, "", facts),
        )  # fmt: skip
        self.media = Media(self.data, self.clock)
        self.finder = Finder(self.registry, Discovery())
        private = (self.data,)
        self.policy = Policy(self.store, self.clock, self.events, private=private)
        self.workspace = Workspace(
            self.data, Homes(self.data, {}), self.policy, Files(), media=self.media.file,
            private=private,
        )  # fmt: skip
        services = Services(
            Config(), self.clock, self.data, self.store, self.events, self.media, self.trail,
            self.board, lambda *call: self.control.describe(*call), finder=self.finder,
            policy=self.policy, workspace=self.workspace,
        )  # fmt: skip
        self.dispatcher = Dispatcher(self.registry, services, self.spawn, (SECRET,))
        catalogue = Catalogue(lambda _: self.waits, self.sync, lambda: {"problems": []})
        tokens = Tokens(self.store, self.data, self.clock)
        self.control = Control(
            self.dispatcher, catalogue, tokens, spawn=self.spawn, listeners=lambda: ["unix:/x"]
        )

    async def sleep(self, seconds):
        self.clock.advance(seconds)

    async def sync(self, dry_run):
        self.synced.append(dry_run)
        return {"copied": []}

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def add(self, *tools):
        for tool in tools:
            self.registry.register(tool)

    async def call(self, name, arguments=b"", caller=OWNER, session=None, **options):
        """One call, to its end."""
        async with asyncio.timeout(BOUND_S):
            return await self.dispatcher.start(caller, session, name, arguments, **options).wait()

    def audited(self):
        return self.trail.recent(1_000, None)


@pytest.fixture
async def core(tmp_path):
    made = Core(tmp_path)
    async with made.board:
        yield made
        await made.dispatcher.drain(1.0)
        made.finder.close()
        await made.workspace.close()
    assert not made.tasks, "a task outlived its test"
    assert not made.dispatcher.running
