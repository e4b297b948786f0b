"""All other servers together: what of their lists is published, kept and shown."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from aiohttp import web

from edged.clock import SystemClock
from edged.mcp.upstream import names
from edged.mcp.upstream.server import Timing
from edged.mcp.upstream.servers import Servers, Surroundings
from edged.registry import Registry
from edged.results import Text
from edged.sections import Mcp, McpServer
from edged.store import Store
from edged.tool import Context

BOUND_S = 10.0
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


class Asked(dict):
    """Settings of tools; notes the threads that look for them."""

    def __init__(self):
        self.threads = set()

    def get(self, name, default=None):
        self.threads.add(threading.current_thread())
        return super().get(name, default)


class World:
    """Servers of one configuration; `registry` has what they publish."""

    def __init__(self, folder, url, **settings):
        self.registry, self.data, self.settings = Registry(), folder, Asked()
        self.moved, self.tasks = asyncio.Event(), set()
        section = Mcp(servers={"s": McpServer(url=url, lazy=False, **settings)})
        around = Surroundings(
            str(folder), str(folder), Store(str(folder)), self.registry, SystemClock(),
            lambda: None, self.spawn, lambda *_: self.moved.set(), self.settings,
        )  # fmt: skip
        self.servers = Servers(section, around, Timing(retry_first=3_600.0))

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def ready(self):
        """The server, with its list published and kept."""
        await self.servers.begin()
        async with asyncio.timeout(BOUND_S):
            while self.servers.row("s").health.state != "ready":
                self.moved.clear()
                await self.moved.wait()
        async with asyncio.timeout(BOUND_S):
            while not self.cache.exists():
                await asyncio.sleep(0)
        return self.servers.row("s").health

    @property
    def cache(self):
        return Path(self.data, "cache", "mcp", "s.json")

    def tools(self):
        view = self.registry.view("u")
        return view.tools | view.hidden


@pytest.fixture
async def world(site, tmp_path):
    site.answers["server/discover"] = DISCOVERED
    made = World(tmp_path, site.url)
    yield made
    await made.servers.close()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_of_two_tools_that_would_have_one_name_the_first_is_taken(site, world):
    """The second is told, and a changed list still replaces the whole."""
    double = names.published("s", "b c", ("s",)).removeprefix("mcp_s_")
    site.answers["tools/list"] = {"tools": [{"name": "b c"}, {"name": double}, {"name": "d"}]}
    health = await world.ready()
    assert set(world.tools()) == {f"mcp_s_{double}", "mcp_s_d"}
    assert world.tools()[f"mcp_s_{double}"].remote == "b c"
    assert health.left_out == (f"tool {double!r}: it would have the name of 'b c'",)
    world.registry.replace_group("mcp s", [])
    assert world.tools() == {}


async def test_what_is_kept_of_a_list_is_read_where_it_is_not_too_large(site, tmp_path, world):
    """At the next start its tools are there before it answers; a huge file is none."""
    site.answers["tools/list"] = {"tools": [{"name": "t"}]}
    await world.ready()
    known = await again(site, tmp_path)
    assert set(known.tools()) == {"mcp_s_t"}
    with world.cache.open("a") as file:
        file.write(" " * (16 << 20))
    unknown = await again(site, tmp_path)
    assert unknown.tools() == {}


async def test_schemas_of_strangers_are_looked_at_off_the_loop(site, world):
    """A list may hold eight megabytes of them."""
    site.answers["tools/list"] = {"tools": [{"name": "t"}]}
    await world.ready()
    assert world.settings.threads - {threading.main_thread()}


async def test_a_secret_that_a_server_repeats_is_shown_nowhere(site, tmp_path, capfd):
    """It knows its own, and may write it anywhere by mistake."""
    secret = "tok-1234567"
    schema = {"properties": {"a": {"description": f"as {secret}", "default": secret}}}
    broken = {"name": "b", "inputSchema": {"type": secret}}
    site.answers |= {
        "server/discover": {**DISCOVERED, "serverInfo": {"name": f"I am {secret}"}},
        "tools/list": {
            "tools": [
                {"name": "t", "title": secret, "description": secret, "inputSchema": schema},
                {"name": secret},
                broken,
            ]
        },
        "tools/call": progressing(f"with {secret}"),
    }
    world = World(tmp_path, site.url, headers={"Authorization": f"Bearer {secret}"})
    health = await world.ready()
    tool = world.tools()["mcp_s_t"]
    assert [*world.tools()] == ["mcp_s_t"]
    assert (tool.label, tool.description) == ("[***]", "[***]")
    assert tool.schema["properties"] == {"a": {"description": "as [***]", "default": "[***]"}}
    assert health.server == {"name": "I am [***]"}
    assert len(health.left_out) == 2
    shown = []
    ctx = Context(None, None, "", BOUND_S, shown.append, None, None, None, is_watched=True)
    await tool.run(tool.decode(b"{}"), ctx)
    assert shown == [[Text("with [***]")]]
    said = [str(health), world.cache.read_text(), *capfd.readouterr()]
    assert not any(secret in text for text in said)
    assert "left out: tool 'b'" in said[-1]
    await world.servers.close()


def progressing(text):
    """Answers a call after a line of progress."""

    async def answer(_request, body):
        token = body["params"]["_meta"]["progressToken"]
        told = {"progressToken": token, "progress": 1, "message": text}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": told}
        done = {"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}}
        lines = "".join(f"data: {json.dumps(one)}\n\n" for one in (note, done))
        return web.Response(text=lines, content_type="text/event-stream")

    return answer


async def again(site, tmp_path):
    """The servers of another life, as they are before one is asked."""
    life = World(tmp_path, site.url)
    await life.servers.begin()
    await life.servers.close()
    return life
