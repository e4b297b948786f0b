"""The HTTP door on real sockets (contract, sections 4, 6, 7, 8 and 9)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any

import aiohttp
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edged.audit import Trail
from edged.board import Board
from edged.bus.settings import BoardConfig
from edged.bus.sim import SimBuses
from edged.clock import SystemClock
from edged.config import Config, Http, UserEntry
from edged.control import Catalogue, Control
from edged.dispatch import Dispatcher
from edged.errors import ConfigError
from edged.events import KEPT, Events
from edged.media import Media
from edged.registry import Registry
from edged.results import MASK, Image, Result, Text, text
from edged.services import Services
from edged.store import Store
from edged.tokens import Tokens
from edged.tool import Context, tool
from edged.transports import _api
from edged.transports._limits import Timing
from edged.transports._streams import QUEUED
from edged.transports.http import HttpListener

BOUND_S = 10.0
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4).decode()


class Hello(msgspec.Struct, frozen=True):
    name: str
    times: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Nothing(msgspec.Struct, frozen=True):
    pass


class Login(msgspec.Struct, frozen=True):
    password: str


@tool("hello")
def hello(params: Hello, ctx: Context) -> Result:
    """Greets.

    More of it.
    """
    return text(f"Hello, {params.name}!" * params.times)


@tool("whoami")
def whoami(params: Nothing, ctx: Context) -> Result:
    """Tells who calls."""
    caller = ctx.caller
    return text("", structured=msgspec.to_builtins(caller))


@tool("fails")
async def fails(params: Nothing, ctx: Context) -> Result:
    """Raises."""
    raise ValueError("the valve is stuck")


@tool("login", sensitive=frozenset({"password"}))
def login(params: Login, ctx: Context) -> Result:
    """Repeats a secret."""
    return text(f"logged in with {params.password}")


@tool("search", hidden=True)
def search(params: Nothing, ctx: Context) -> Result:
    """Is found by searching."""
    return text("found")


@tool("promote")
def promote(params: Nothing, ctx: Context) -> Result:
    """Promotes the hidden tool for one turn."""
    ctx.promote(["search"], 1)
    return text("promoted")


@tool("picture")
async def picture(params: Nothing, ctx: Context) -> Result:
    """Makes media of several kinds."""
    page = base64.b64encode(b"<script>alert(1)</script>" * 64).decode()
    return Result(
        [Image(PNG, "image/png"), Image(page, "text/html"), Image(page, "text/x\r\nEvil: 1")]
    )


TOOLS = (hello, whoami, fails, login, search, promote, picture)


class Slow:
    """A tool that runs until the test lets it, and what happened to its calls."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

        @tool("slow", timeout_s=600.0)
        async def slow(params: Nothing, ctx: Context) -> Result:
            """Waits."""
            ctx.update([Text("first")])
            ctx.update([Text("second")])
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return text("done")

        self.tool = slow


class Door:
    """A daemon's core with an HTTP listener, in this process."""

    def __init__(self, data: str, config: Config, timing: Timing | None) -> None:
        self.config = config
        self.clock = SystemClock()
        self.tasks = asyncio.TaskGroup()
        self.waits: asyncio.Future[None] | None = None
        self.refreshed: list[str] = []
        self.store = Store(os.path.join(data, "state"))
        self.events = Events(self.clock)
        self.trail = Trail(os.path.join(data, "audit"), self.clock, 1 << 20)
        self.board = Board(BoardConfig(), SimBuses(), self.clock)
        self.media = Media(data, self.clock)
        services = Services(
            config,
            self.clock,
            data,
            self.store,
            self.events,
            self.media,
            self.trail,
            self.board,
            lambda caller, name: self.control.describe(caller, name),
        )
        self.registry = Registry()
        self.slow = Slow()
        for one in (*TOOLS, self.slow.tool):
            self.registry.register(one)
        self.dispatcher = Dispatcher(self.registry, services, self.tasks.create_task)
        tokens = Tokens(self.store, data, self.clock)
        self.owner = tokens.add("kitchen", "local", "owner")
        self.agent = tokens.add("ada", "ada@example.org", "agent")
        self.control = Control(
            self.dispatcher,
            Catalogue(self._fresh, self._sync, dict),
            tokens,
            spawn=self.tasks.create_task,
            listeners=lambda: self.listener.addresses(),
        )
        self.listener = HttpListener(self.control, config, timing)

    def _fresh(self, user: str) -> asyncio.Future[None] | None:
        if user == "broken@example.org":
            raise RuntimeError("secret detail of the inside")
        self.refreshed.append(user)
        return self.waits

    async def _sync(self, dry_run: bool) -> dict[str, Any]:
        return {}

    @property
    def url(self) -> str:
        return self.listener.addresses()[0]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @asynccontextmanager
    async def client(self, token: str | None = "", **headers: str) -> AsyncIterator[Any]:
        """A client with the owner's token, another, or none."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.owner}"
        timeout = aiohttp.ClientTimeout(BOUND_S)
        async with aiohttp.ClientSession(self.url, headers=headers, timeout=timeout) as session:
            yield session

    async def raw(self, data: bytes) -> bytes:
        """What comes back for some bytes, until the daemon closes."""
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(data)
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
        return answer


@asynccontextmanager
async def opened(
    data: Any, timing: Timing | None = None, users: dict[str, Any] | None = None, **http: Any
) -> AsyncIterator[Door]:
    """A door that listens; nothing of it is left at the end."""
    http.setdefault("listen", ["127.0.0.1:0"])
    before = asyncio.all_tasks()
    door = Door(str(data), Config(http=Http(**http), users=users or {}), timing)
    async with door.board, door.tasks:
        await door.listener.start()
        try:
            yield door
        finally:
            door.listener.close()
            await door.dispatcher.drain(0.1)
            await door.listener.close_connections()
    async with asyncio.timeout(BOUND_S):
        while asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.sleep(0)
    assert not door.events._listeners


@pytest.fixture
async def door(tmp_path: Any) -> AsyncIterator[Door]:
    async with opened(tmp_path) as made:
        yield made


@contextmanager
def standing(folder: Any, timing: Timing) -> Iterator[tuple[asyncio.Runner, Door]]:
    """A door in a loop of its own, for tests that are no coroutines."""
    with asyncio.Runner() as runner:
        made = opened(folder, timing, rate=1e6, burst=1_000_000)
        door = runner.run(made.__aenter__())
        yield runner, door
        runner.run(made.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Door]]:
    timing = Timing(header_s=1.0, linger_s=0.01)
    with standing(tmp_path_factory.mktemp("door"), timing) as made:
        yield made


async def problem(response: Any) -> dict[str, Any]:
    """The problem document of a response, checked against RFC 9457."""
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = await response.json(content_type=None)
    assert body["status"] == response.status
    assert body["type"] == f"urn:edged:error:{body['code']}"
    assert body["title"]
    assert body["detail"]
    return body


def parsed(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one raw answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


class Sse:
    """Reads events from a response."""

    def __init__(self, response: Any) -> None:
        self._lines = response.content

    async def next(self) -> dict[str, str]:
        """The next event; comments are left out."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(BOUND_S):
            while line := (await self._lines.readline()).decode():
                if line == "\n":
                    if fields:
                        return fields
                elif not line.startswith(":"):
                    name, _, value = line.rstrip("\n").partition(": ")
                    fields[name] = value
        raise EOFError

    async def ended(self) -> bool:
        """Whether nothing follows."""
        try:
            await self.next()
        except EOFError:
            return True
        return False


# Who may come in ------------------------------------------------------------------------


async def test_healthz_needs_no_token_and_no_known_host(door: Door) -> None:
    """Contract, section 6: liveness."""
    async with door.client(None, Host="anything.example") as http:
        async with http.get("/healthz") as response:
            assert response.status == 200
            assert await response.json() == {"status": "ok"}
            assert response.headers["Server"] == "edged"
        async with http.head("/healthz") as response:
            assert response.status == 200
            assert await response.read() == b""


@pytest.mark.parametrize("path", ["/api/tools", "/openapi.json", "/nowhere", "/api/status"])
@pytest.mark.parametrize("value", [None, "Bearer wrong", "Basic {owner}", "Bearer", "{owner}"])
async def test_everything_else_needs_a_token(door: Door, path: str, value: str | None) -> None:
    """Contract, section 4; RFC 6750, section 3: the challenge names the scheme."""
    headers = {"Authorization": value.format(owner=door.owner)} if value else {}
    async with door.client(None, **headers) as http, http.get(path) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert (await problem(response))["code"] == "unauthenticated"


async def test_a_revoked_token_is_no_token(door: Door) -> None:
    """Contract, section 2: `edged token revoke`."""
    door.control.tokens.revoke("ada")
    async with door.client(door.agent) as http, http.get("/api/tools") as response:
        assert response.status == 401


async def test_what_goes_on_by_a_token_ends_when_it_is_revoked(door: Door) -> None:
    """Contract, section 2: else whoever has a stolen one would go on hearing and acting."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}}
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    async with AsyncExitStack() as stack:
        agent, owner = [
            await stack.enter_async_context(door.client(token, **accept))
            for token in (door.agent, door.owner)
        ]
        streams = []
        for http in (agent, owner):
            async with http.post("/mcp", json=initialize) as response:
                session = {"Mcp-Session-Id": response.headers["Mcp-Session-Id"]}
            for path in ("/api/events", "/mcp"):
                get = http.get(path, headers=session)
                streams.append(await stack.enter_async_context(get))
            if http is agent:
                theirs = session
        async with agent.post("/api/tools/slow/call", json={"async": True}) as response:
            assert response.status == 202
        async with asyncio.timeout(BOUND_S):
            await door.slow.started.wait()
            door.control.tokens.revoke("ada")
            await door.slow.cancelled.wait()
            for stream in streams[:2]:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await stream.read()
        door.events.publish("reading", "", {})
        events = Sse(streams[2])
        while (await events.next())["event"] != "reading":
            continue
        async with owner.post("/mcp", json=ping, headers=session) as response:
            assert response.status == 200
        # Another of the same name is not the one that was revoked.
        again = door.control.tokens.add("ada", "ada@example.org", "agent")
        async with door.client(again, **accept) as http:
            async with http.post("/mcp", json=ping, headers=theirs) as response:
                assert response.status == 404


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:{port}", "127.0.0.1:{port}", "[::1]:9", "board.lan", "b.lan:81"],
)
async def test_hosts_of_this_listener_are_served(tmp_path: Any, host: str) -> None:
    """Contract, section 4; a forwarded port may differ."""
    async with opened(tmp_path, hosts=["Board.lan", "b.lan:81"]) as door:
        async with door.client(Host=host.format(port=door.port)) as http:
            async with http.get("/api/tools") as response:
                assert response.status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "b.lan:82", "a:b:c", ""]
)
async def test_other_hosts_are_refused(tmp_path: Any, host: str) -> None:
    """DNS rebinding: the page's own name arrives as Host."""
    async with opened(tmp_path, hosts=["b.lan:81"]) as door:
        async with door.client(Host=host) as http, http.get("/api/tools") as response:
            assert response.status == 403
            assert "http.hosts" in (await problem(response))["detail"]


async def test_the_address_that_was_reached_is_a_good_host(tmp_path: Any) -> None:
    """Contract, section 4: the listening address, also behind 0.0.0.0."""
    async with opened(tmp_path, listen=["0.0.0.0:0"]) as door:
        head = f"GET /api/turn HTTP/1.1\r\nHost: 127.0.0.2:{door.port}\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {door.owner}\r\n\r\n"
        assert parsed(await door.raw(head.encode()))[0] == 403
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_connection("127.0.0.2", door.port)
            writer.write(head.encode())
            assert parsed(await reader.read())[0] == 405
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1"])
async def test_pages_of_other_origins_are_refused(door: Door, origin: str) -> None:
    """Contract, section 4: a web page cannot reach the daemon, whatever else it knows."""
    async with door.client(Origin=origin) as http, http.get("/api/tools") as response:
        assert response.status == 403
        assert "http.origins" in (await problem(response))["detail"]
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_pages_of_the_listener_itself_are_served_without_cors(door: Door) -> None:
    """Contract, section 6: the dashboard is of the same origin."""
    async with door.client(Origin=door.url) as http, http.get("/api/tools") as response:
        assert response.status == 200
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_a_configured_origin_gets_cors(tmp_path: Any) -> None:
    """Fetch Standard, CORS protocol: the preflight carries no token."""
    origin = "https://panel.example"
    async with opened(tmp_path, origins=[origin]) as door:
        async with door.client(None, Origin=origin) as http:
            asks = {"Access-Control-Request-Method": "POST"}
            async with http.options("/api/tools/hello/call", headers=asks) as response:
                assert response.status == 204
                assert response.headers["Access-Control-Allow-Origin"] == origin
                assert "POST" in response.headers["Access-Control-Allow-Methods"]
                assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
            async with http.get("/api/tools") as response:
                assert response.status == 401
                assert response.headers["Access-Control-Allow-Origin"] == origin
        async with door.client(Origin=origin) as http, http.get("/api/events") as response:
            assert response.status == 200
            assert response.headers["Access-Control-Allow-Origin"] == origin
            assert response.headers["Vary"] == "Origin"


async def test_headers_name_the_session_channel_and_chat(door: Door) -> None:
    """Contract, section 4."""
    named = {"Edged-Session": "s-1", "Edged-Channel": "telegram", "Edged-Chat": "42"}
    async with door.client(door.agent, **named) as http:
        async with http.post("/api/tools/whoami/call") as response:
            caller = (await response.json())["structured"]
    assert caller == {
        "user": "ada@example.org",
        "role": "agent",
        "session": "s-1",
        "door": "http",
        "peer": "token ada",
        "channel": "telegram",
        "chat_id": "42",
        "allowed": None,
        "depth": 0,
    }


@pytest.mark.parametrize("value", ["x" * 129, "a\tb", "\udcff"])
async def test_a_session_name_is_short_and_printable(door: Door, value: str) -> None:
    """Contract, section 4: it becomes a key and is shown to people."""
    head = f"GET /api/tools HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nEdged-Session: {value}"
    head += f"\r\nAuthorization: Bearer {door.owner}\r\n\r\n"
    status, _, body = parsed(await door.raw(head.encode("utf-8", "surrogateescape")))
    assert status == 400
    assert json.loads(body)["faults"][0]["path"] == "Edged-Session"


# Paths and methods ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/tools/", "/api/tools//call", "/api/tools/a/b/c"]
)
async def test_an_unknown_path_is_a_problem_and_never_a_redirect(door: Door, path: str) -> None:
    """Contract, section 6."""
    async with door.client() as http, http.get(path, allow_redirects=False) as response:
        assert response.status == 404
        assert (await problem(response))["code"] == "not_found"


async def test_a_wrong_method_is_told_the_right_ones(door: Door) -> None:
    """RFC 9110, section 15.5.6: 405 carries Allow."""
    async with door.client() as http:
        async with http.delete("/api/tools") as response:
            assert response.status == 405
            assert response.headers["Allow"] == "GET, HEAD, OPTIONS"
            assert (await problem(response))["code"] == "method_not_allowed"
        async with http.options("/api/turn") as response:
            assert response.status == 204
            assert response.headers["Allow"] == "POST, OPTIONS"
        async with http.head("/api/tools") as response:
            assert response.status == 200
            assert int(response.headers["Content-Length"]) > 0
            assert await response.read() == b""


async def test_the_api_describes_every_endpoint_that_answers(door: Door) -> None:
    """Contract, section 6: /openapi.json; one table makes both."""
    async with door.client() as http:
        async with http.get("/openapi.json") as response:
            document = await response.json()
        assert document["openapi"].startswith("3.1")
        for path, operations in document["paths"].items():
            for method in operations:
                filled = path.replace("{name}", "nothing").replace("{id}", "nothing")
                named = {"Mcp-Session-Id": "nothing"} if path == "/mcp" else {}
                async with http.request(method, filled, headers=named) as response:
                    assert response.status != 405, (method, path)
                    if response.status == 404:
                        detail = (await problem(response))["detail"]
                        assert "nothing" in detail or named


# Tools ------------------------------------------------------------------------------------


async def test_the_owner_lists_every_tool_with_its_state(door: Door) -> None:
    """The specification's shape (tools-api, List All Tools), and edged's own fields."""
    async with door.client() as http, http.get("/api/tools") as response:
        assert response.status == 200
        assert response.headers["Cache-Control"] == "no-store"
        rows = (await response.json())["tools"]
    assert [row["name"] for row in rows] == sorted(t.name for t in (*TOOLS, door.slow.tool))
    assert rows[1] == {
        "name": "hello",
        "description": "Greets.",
        "category": "system",
        "config_key": "hello",
        "status": "enabled",
        "reason_code": "",
        "label": "hello",
        "source": "built-in",
        "hidden": False,
        "problem": "",
        "sandbox": "",
    }
    assert door.refreshed == ["local"]


async def test_an_agent_lists_a_hidden_tool_only_while_it_is_promoted(door: Door) -> None:
    """Contract, section 9; the session is the header's, turns are said."""
    async with door.client(door.agent, **{"Edged-Session": "s"}) as http:

        async def names() -> list[str]:
            async with http.get("/api/tools") as response:
                return [row["name"] for row in (await response.json())["tools"]]

        assert "search" not in await names()
        async with http.post("/api/tools/search/call") as response:
            assert response.status == 404
        async with http.post("/api/turn") as response:
            assert await response.json() == {"status": "ok"}
        async with http.post("/api/tools/promote/call") as response:
            assert response.status == 200
        assert "search" in await names()
        async with http.post("/api/turn") as response:
            assert response.status == 200
        async with http.post("/api/tools/search/call") as response:
            assert (await response.json())["for_llm"] == "found"
        async with http.get("/api/tools", headers={"Edged-Session": "other"}) as response:
            assert "search" not in await response.text()
        async with http.post("/api/turn") as response:
            assert response.status == 200
        async with http.post("/api/tools/search/call") as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("form", "key"),
    [
        ("mcp", "inputSchema"),
        ("anthropic", "input_schema"),
        ("openai-responses", "parameters"),
        ("openai", "function"),
    ],
)
async def test_definitions_are_given_for_each_provider(door: Door, form: str, key: str) -> None:
    """Contract, section 6: `GET /api/tools?format=`."""
    async with door.client() as http, http.get("/api/tools", params={"format": form}) as response:
        assert all(key in row for row in (await response.json())["tools"])
    async with door.client() as http, http.get("/api/tools", params={"format": "x"}) as response:
        assert response.status == 400
        assert "openai" in (await problem(response))["faults"][0]["reason"]


async def test_one_tool_is_described_whole(door: Door) -> None:
    """Contract, section 6: schema, source, status, permissions, body."""
    async with door.client() as http:
        async with http.get("/api/tools/hello") as response:
            found = await response.json()
        assert found["schema"]["required"] == ["name"]
        assert found["status"] == "enabled"
        async with http.get("/api/tools/hallo") as response:
            assert response.status == 404
            assert "'hello'" in (await problem(response))["detail"]


async def test_the_owner_switches_a_tool_and_a_call_is_then_refused(door: Door) -> None:
    """The specification's PUT; contract, section 6: a disabled tool is 409."""
    async with door.client() as http:
        async with http.put("/api/tools/hello/state", json={"enabled": False}) as response:
            assert response.status == 200
            assert await response.json() == {"status": "ok"}
        assert door.store.load("tool-switches", dict[str, bool], {}) == {"hello": False}
        async with http.post("/api/tools/hello/call") as response:
            assert response.status == 409
            assert "edged tools" in (await problem(response))["detail"]
        async with http.put("/api/tools/nobody/state", json={"enabled": True}) as response:
            assert response.status == 404
        async with http.put("/api/tools/hello/state", json={}) as response:
            assert response.status == 400
            assert "enabled" in (await problem(response))["detail"]
    async with door.client(door.agent) as http:
        async with http.put("/api/tools/hello/state", json={"enabled": True}) as response:
            assert response.status == 403
            assert (await problem(response))["code"] == "denied"


# Calls ------------------------------------------------------------------------------------


async def test_a_call_answers_with_a_result(door: Door) -> None:
    """Contract, section 7, with exactly these names."""
    body = {"arguments": {"name": "Ada"}, "timeout": 5}
    async with door.client() as http, http.post("/api/tools/hello/call", json=body) as response:
        assert response.status == 200
        assert response.content_type == "application/json"
        result = await response.json()
    assert result.pop("call_id")
    assert result.pop("duration_ms") >= 0
    assert result == {
        "content": [{"type": "text", "text": "Hello, Ada!"}],
        "is_error": False,
        "for_llm": "Hello, Ada!",
        "for_user": None,
        "silent": False,
        "media": [],
        "async": False,
        "response_handled": False,
        "structured": None,
        "truncated": None,
    }
    assert door.refreshed == []


async def test_all_faults_of_arguments_are_told_at_once(door: Door) -> None:
    """Contract, sections 6 and 8."""
    body = {"arguments": {"times": "many", "who": 1}}
    async with door.client() as http, http.post("/api/tools/hello/call", json=body) as response:
        assert response.status == 400
        document = await problem(response)
    assert document["code"] == "invalid_arguments"
    assert {fault["path"] for fault in document["faults"]} == {"name", "times", "who"}


async def test_a_tool_that_fails_or_takes_too_long_is_an_answer(door: Door) -> None:
    """Contract, section 6: 200 with `is_error`."""
    async with door.client() as http:
        async with http.post("/api/tools/fails/call") as response:
            assert response.status == 200
            result = await response.json()
            assert result["is_error"]
            assert "the valve is stuck" in result["for_llm"]
        async with http.post("/api/tools/slow/call", json={"timeout": 0.01}) as response:
            assert response.status == 200
            result = await response.json()
            assert result["is_error"]
            assert "timed out" in result["for_llm"]


async def test_a_secret_argument_is_in_no_answer_event_or_record(door: Door) -> None:
    """Contract, section 7: redacted once, at the boundary."""
    secret = "correct-horse"
    body = {"arguments": {"password": secret}}
    async with door.client() as http:
        async with http.post("/api/tools/login/call", json=body) as response:
            assert MASK in await response.text()
        async with http.get("/api/log") as response:
            log = await response.text()
            assert '"login"' in log
            assert secret not in log
    assert secret not in str(door.events.since(0))


async def test_a_new_tool_is_looked_for_before_it_is_unknown(door: Door) -> None:
    """Contract, section 4: a user's directory is checked again on a miss."""
    door.waits = asyncio.get_running_loop().create_future()
    async with door.client(door.agent) as http:
        call = asyncio.create_task(http.post("/api/tools/fresh/call"))
        async with asyncio.timeout(BOUND_S):
            while not door.refreshed:
                await asyncio.sleep(0)
        door.registry.register(tool("fresh", description="New.")(hello_nobody))
        door.waits.set_result(None)
        async with await call as response:
            assert (await response.json())["for_llm"] == "new"


def hello_nobody(params: Nothing, ctx: Context) -> Result:
    return text("new")


async def test_a_client_that_gives_up_a_list_does_not_cancel_the_scan(door: Door) -> None:
    """Others wait for the same scan."""
    door.waits = asyncio.get_running_loop().create_future()
    async with door.client() as http:
        gone = asyncio.create_task(http.get("/api/tools"))
        async with asyncio.timeout(BOUND_S):
            while not door.refreshed:
                await asyncio.sleep(0)
            gone.cancel()
            await asyncio.wait([gone])
            await http.close()
            while door.listener._api.open:
                await asyncio.sleep(0)
    assert not door.waits.done()
    door.waits.set_result(None)


async def test_a_client_that_goes_away_cancels_its_call(door: Door) -> None:
    """Issue: cancel, timeout and disconnect end the call."""
    async with door.client() as http:
        call = asyncio.create_task(http.post("/api/tools/slow/call"))
        async with asyncio.timeout(BOUND_S):
            await door.slow.started.wait()
            call.cancel()
            await asyncio.wait([call])
            await door.slow.cancelled.wait()


async def test_a_call_that_the_daemon_ends_is_answered(door: Door) -> None:
    """Architecture, laws: stop drains; the client learns what became of its call."""
    async with door.client() as http:
        call = asyncio.create_task(http.post("/api/tools/slow/call"))
        async with asyncio.timeout(BOUND_S):
            await door.slow.started.wait()
            await door.dispatcher.drain(0)
        async with await call as response:
            assert response.status == 200
            result = await response.json()
            assert result["is_error"]
            assert "cancelled" in result["for_llm"]
            assert result["call_id"]


async def test_a_stream_is_start_updates_and_one_result(door: Door) -> None:
    """Contract, section 7: start, 0..n updates, then exactly one end."""
    async with door.client(Accept="text/event-stream") as http:
        async with http.post("/api/tools/slow/call") as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            assert response.headers["X-Accel-Buffering"] == "no"
            events = Sse(response)
            start = await events.next()
            assert start["event"] == "start"
            assert json.loads(start["data"])["tool"] == "slow"
            for body in ("first", "second"):
                update = await events.next()
                assert update["event"] == "update"
                assert json.loads(update["data"]) == {"content": [{"type": "text", "text": body}]}
            door.slow.go.set()
            end = await events.next()
            assert end["event"] == "result"
            assert json.loads(end["data"])["for_llm"] == "done"
            assert await events.ended()


async def test_a_stream_of_a_refused_call_is_a_plain_problem(door: Door) -> None:
    """Nothing started, so nothing is streamed."""
    async with door.client(Accept="text/event-stream") as http:
        async with http.post("/api/tools/hello/call", json={}) as response:
            assert response.status == 400
            assert (await problem(response))["code"] == "invalid_arguments"


async def test_a_reader_that_leaves_a_stream_cancels_its_call(door: Door) -> None:
    """Issue: disconnect ends the call."""
    async with door.client(Accept="text/event-stream") as http:
        async with http.post("/api/tools/slow/call") as response:
            assert (await Sse(response).next())["event"] == "start"
            response.close()
        async with asyncio.timeout(BOUND_S):
            await door.slow.cancelled.wait()


async def test_a_fault_in_the_middle_of_a_stream_cuts_it(door: Door, capsys: Any) -> None:
    """A stream that ends without its end is known to have failed."""
    async with door.client() as http, http.get("/api/events") as response:
        door.events.publish("odd", "", {"not": object()})
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert "GET /api/events: TypeError" in capsys.readouterr().err


async def test_an_asynchronous_call_is_fetched_later(door: Door) -> None:
    """Contract, section 6: 202 and a `call_id`, then the result, also as an event."""
    async with door.client(door.agent) as http:
        async with http.post("/api/tools/slow/call", json={"async": True}) as response:
            assert response.status == 202
            accepted = await response.json()
            where = response.headers["Location"]
        assert accepted == {"call_id": accepted["call_id"], "status": "running", "async": True}
        assert where == f"/api/calls/{accepted['call_id']}"
    # The connection that asked is gone; the call is not.
    async with door.client(door.agent) as http:
        async with http.get(where) as response:
            assert response.status == 202
            assert (await response.json())["status"] == "running"
        door.slow.go.set()
        async with http.get("/api/events", headers={"Last-Event-ID": "0"}) as response:
            events = Sse(response)
            while (event := await events.next())["event"] != "call.result":
                continue
            data = json.loads(event["data"])["data"]
            assert data["location"] == where
            assert data["result"]["for_llm"] == "done"
        async with http.get(where) as response:
            assert response.status == 200
            assert (await response.json())["call_id"] == accepted["call_id"]


async def test_a_result_is_its_callers_or_the_owners(door: Door) -> None:
    """Contract, section 6; another user's is not even there."""
    async with door.client() as owner, door.client(door.agent) as agent:
        found = {}
        for client in (owner, agent):
            body = {"async": True, "arguments": {"name": "x"}}
            async with client.post("/api/tools/hello/call", json=body) as response:
                assert (await response.json())["status"] == "done"
                found[client] = response.headers["Location"]
        async with agent.get(found[owner]) as response:
            assert response.status == 404
        async with agent.delete(found[owner]) as response:
            assert response.status == 404
        async with owner.get(found[agent]) as response:
            assert response.status == 200
        async with owner.delete(found[agent]) as response:
            assert await response.json() == {"status": "ok"}
        async with owner.get(found[agent]) as response:
            assert response.status == 404


async def test_an_asynchronous_call_can_be_cancelled(door: Door) -> None:
    """Contract, section 6: DELETE ends its process tree."""
    async with door.client() as http:
        async with http.post("/api/tools/slow/call", json={"async": True}) as response:
            where = response.headers["Location"]
        async with asyncio.timeout(BOUND_S):
            await door.slow.started.wait()
            async with http.delete(where) as response:
                assert response.status == 200
            await door.slow.cancelled.wait()
        async with http.get(where) as response:
            assert (await response.json())["is_error"]


# Media, events, log -----------------------------------------------------------------------


async def test_media_are_served_so_that_no_page_of_them_runs(door: Door) -> None:
    """Contract, section 6; what a tool made is never trusted as a page."""
    async with door.client(door.agent) as http:
        async with http.post("/api/tools/picture/call") as response:
            image, page, odd = (
                u.removeprefix("media://") for u in (await response.json())["media"]
            )
        async with http.get(f"/api/media/{image}") as response:
            assert response.status == 200
            assert response.content_type == "image/png"
            assert await response.read() == base64.b64decode(PNG)
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "sandbox" in response.headers["Content-Security-Policy"]
            assert response.headers["Content-Disposition"].startswith("inline")
            assert response.headers["Server"] == "edged"
        async with http.get(f"/api/media/{image}", headers={"Range": "bytes=1-3"}) as response:
            assert response.status == 206
            assert await response.read() == b"PNG"
        async with http.head(f"/api/media/{image}") as response:
            assert int(response.headers["Content-Length"]) == len(base64.b64decode(PNG))
        async with http.get(f"/api/media/{page}") as response:
            assert response.headers["Content-Disposition"].startswith("attachment")
        async with http.get(f"/api/media/{odd}") as response:
            assert response.content_type == "application/octet-stream"


async def test_a_medium_is_its_callers_or_the_owners(door: Door) -> None:
    """Contract, section 6."""
    mine = door.media.put("ada@example.org", b"a", "text/plain", "a/b\r\n.txt").removeprefix(
        "media://"
    )
    others = door.media.put("bob@example.org", b"b", "text/plain", "b").removeprefix("media://")
    async with door.client() as owner, door.client(door.agent) as agent:
        async with agent.get(f"/api/media/{mine}") as response:
            assert 'filename="a_b_.txt"' in response.headers["Content-Disposition"]
        async with agent.get(f"/api/media/{others}") as response:
            assert response.status == 404
        async with owner.get(f"/api/media/{others}") as response:
            assert await response.read() == b"b"
        os.unlink(door.media.path(door.media.get("bob@example.org", others)))
        async with owner.get(f"/api/media/{others}") as response:
            assert response.status == 404
            assert "gone" in (await problem(response))["detail"]


async def test_events_come_as_they_happen_and_only_ones_own(door: Door) -> None:
    """Contract, section 6; the daemon's stop ends the stream."""
    base = door.events.last_id
    async with door.client(door.agent) as http, http.get("/api/events") as response:
        assert response.content_type == "text/event-stream"
        events = Sse(response)
        door.events.publish("job.run", "bob@example.org", {})
        door.events.publish("tools.changed", "", {"version": 2})
        door.events.publish("call.start", "ada@example.org", {"tool": "hello"})
        first, second = await events.next(), await events.next()
        assert (first["event"], first["id"]) == ("tools.changed", str(base + 2))
        assert (second["event"], second["id"]) == ("call.start", str(base + 3))
        assert json.loads(second["data"])["data"] == {"tool": "hello"}
        door.listener.close()
        await door.listener.close_connections()
        assert await events.ended()


async def test_last_event_id_resumes_and_tells_of_a_gap(door: Door) -> None:
    """Contract, section 6: the last 1,000; a gap is itself an event."""
    base = door.events.last_id
    for number in range(KEPT + 5):
        door.events.publish("reading", "", {"n": number})
    async with door.client() as http:
        after = {"Last-Event-ID": str(base + KEPT + 3)}
        async with http.get("/api/events", headers=after) as response:
            events = Sse(response)
            ids = [(await events.next())["id"] for _ in range(2)]
            assert ids == [str(base + KEPT + 4), str(base + KEPT + 5)]
        after = {"Last-Event-ID": str(base + 2)}
        async with http.get("/api/events", headers=after) as response:
            events = Sse(response)
            gap = await events.next()
            assert gap["event"] == "gap"
            assert json.loads(gap["data"])["data"] == {"after": base + 2, "next": base + 6}
            assert (await events.next())["id"] == str(base + 6)
        for wrong in ("x", "-1", "9" * 30):
            async with http.get("/api/events", headers={"Last-Event-ID": wrong}) as response:
                assert response.status == 400
        async with http.head("/api/events") as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"


async def test_an_agent_resumes_with_its_own_events_only(door: Door) -> None:
    """Contract, section 4: what is another user's stays so afterwards."""
    door.events.publish("job.run", "bob@example.org", {})
    door.events.publish("job.run", "ada@example.org", {})
    async with door.client(door.agent, **{"Last-Event-ID": "0"}) as http:
        async with http.get("/api/events") as response:
            assert json.loads((await Sse(response).next())["data"])["user"] == "ada@example.org"


async def test_a_slow_reader_of_events_gets_a_gap(door: Door) -> None:
    """Architecture, laws: every queue is bounded and says what happens when it is full."""
    base = door.events.last_id
    async with door.client() as http, http.get("/api/events") as response:
        events = Sse(response)
        door.events.publish("reading", "", {})
        assert (await events.next())["id"] == str(base + 1)
        for _ in range(QUEUED + 44):
            door.events.publish("reading", "", {})
        gap = await events.next()
        assert gap["event"] == "gap"
        assert json.loads(gap["data"])["data"] == {"after": base + 1, "next": base + 46}
        assert (await events.next())["id"] == str(base + 46)


async def test_a_silent_stream_is_kept_open_by_comments(tmp_path: Any) -> None:
    """HTML Standard, section 9.2.7: proxies cut silent connections."""
    async with opened(tmp_path, Timing(comment_s=0.01)) as door:
        async with door.client() as http, http.get("/api/events") as response:
            async with asyncio.timeout(BOUND_S):
                lines = [await response.content.readline() for _ in range(5)]
    assert lines == [b": edged\n", b"\n", b": keep-alive\n", b"\n", b": keep-alive\n"]


async def test_the_log_is_everyones_for_the_owner_and_ones_own_for_an_agent(door: Door) -> None:
    """Contract, section 4."""
    async with door.client() as owner, door.client(door.agent) as agent:
        for client in (owner, agent):
            async with client.post("/api/tools/whoami/call") as response:
                assert response.status == 200
        async with owner.get("/api/log") as response:
            users = [row["user"] for row in (await response.json())["records"]]
            assert users == ["local", "ada@example.org"]
        async with agent.get("/api/log", params={"limit": "1"}) as response:
            (row,) = (await response.json())["records"]
            assert (row["user"], row["door"], row["peer"]) == (
                "ada@example.org",
                "http",
                "token ada",
            )
        async with owner.get("/api/log", params={"limit": "1001"}) as response:
            assert response.status == 400
            assert (await problem(response))["faults"][0]["path"] == "limit"


async def test_status_tells_the_health_of_the_parts(door: Door) -> None:
    """Contract, section 6."""
    async with door.client(door.agent) as http, http.get("/api/status") as response:
        assert response.status == 200
        status = await response.json()
    assert status["user"] == "ada@example.org"
    assert status["listen"] == [door.url]


# Limits -----------------------------------------------------------------------------------


def request(door: Door, path: str, headers: str, body: bytes = b"", method: str = "POST") -> bytes:
    """Bytes of one request of the owner."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.owner}\r\n"
        f"Connection: close\r\n{headers}\r\n"
    ).encode() + body


def known(door: Door) -> bytes:
    """A request whose answer leaves its connection open, and known as the owner's."""
    head = request(door, "/api/status", "", method="GET")
    return head.replace(b"Connection: close\r\n", b"")


def asking(path: str, token: str) -> bytes:
    """A request whose answer leaves its connection open."""
    lines = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "", "")
    return "\r\n".join(lines).encode()


JSON = "Content-Type: application/json\r\n"

_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_JSON = st.dictionaries(
    st.sampled_from(["arguments", "timeout", "async", "name"]),
    _VALUE | st.dictionaries(st.sampled_from(["name", "times"]), _VALUE),
).map(lambda value: json.dumps(value).encode())


async def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Any) -> None:
    """Contract, section 6: 413; the announced body never comes."""
    async with opened(tmp_path, Timing(linger_s=0.01), max_body=1024) as door:
        head = request(door, "/api/tools/hello/call", f"{JSON}Content-Length: 1025\r\n")
        status, headers, body = parsed(await door.raw(head))
        assert status == 413
        assert headers["content-type"] == "application/problem+json"
        assert "http.max_body" in json.loads(body)["detail"]


async def test_a_body_of_too_many_values_is_refused_before_it_is_decoded(door: Door) -> None:
    """Contract, section 6: 413; 16 MiB of brackets would become 400 MiB of objects."""
    body = b'{"arguments": {"x": [' + b"[]," * 300_000 + b"0]}}"
    headers = {"Content-Type": "application/json"}
    async with (
        door.client() as http,
        http.post("/api/tools/hello/call", data=body, headers=headers) as response,
    ):
        assert response.status == 413
        assert "more than 200,000 values" in (await problem(response))["detail"]


async def test_a_body_without_length_is_cut_at_the_limit(tmp_path: Any) -> None:
    """Likewise for chunks (RFC 9112, section 7.1)."""
    async with opened(tmp_path, Timing(linger_s=0.01), max_body=1024) as door:
        chunks = b"400\r\n%b\r\n1\r\n \r\n" % (b" " * 1024)
        head = request(
            door, "/api/tools/hello/call", f"{JSON}Transfer-Encoding: chunked\r\n", chunks
        )
        assert parsed(await door.raw(head))[0] == 413


async def test_unfinished_bodies_are_bounded_all_together(tmp_path: Any, monkeypatch: Any) -> None:
    """16 of one agent held 240 MiB; small requests and the owner's come through."""
    monkeypatch.setattr(_api, "UNFINISHED_MAX", 1 << 20)
    async with opened(tmp_path, Timing(linger_s=0.01), max_body="400K") as door:

        def asks(count: int, token: str) -> bytes:
            body = b'{"arguments":{"name":"%b"}}' % (b"x" * count)
            head = request(door, "/api/tools/hello/call", f"{JSON}Content-Length: {len(body)}\r\n")
            return head.replace(door.owner.encode(), token.encode()) + body

        async def held() -> Any:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(asks(390_000, door.agent)[:-9])
            return asyncio.ensure_future(reader.read()), writer

        waiting = [await held() for _ in range(12)]
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait([one for one, _ in waiting], return_when=asyncio.FIRST_COMPLETED)
        [answer] = [parsed(one.result()) for one, _ in waiting if one.done()][:1]
        assert (answer[0], json.loads(answer[2])["code"]) == (429, "busy")
        room = door.listener._api._unfinished[False]
        assert 390_000 < room.used < 1 << 20
        assert parsed(await door.raw(asks(50_000, door.agent)))[0] == 200
        assert parsed(await door.raw(asks(390_000, door.owner)))[0] == 200
        for one, writer in waiting:
            one.cancel()
            writer.close()
        async with asyncio.timeout(BOUND_S):
            while room.used:
                await asyncio.sleep(0)
        assert parsed(await door.raw(asks(390_000, door.agent)))[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/api/tools/hello/call", b'{"arguments":{"name":"x"}%b}', "beside `arguments`"),
        (
            "/mcp",
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}%b}',
            "the body has more than 64 KiB beside its params",
        ),
    ],
)
async def test_blanks_of_an_agent_are_not_kept_while_a_call_goes_on(
    door: Door, path: str, body: bytes, told: str
) -> None:
    """They were counted by nothing, and a request is there until it is answered."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for token, count, refused in (
        (door.agent, 70_000, True),
        (door.agent, 60_000, False),
        (door.owner, 70_000, False),
    ):
        data = body % (b" " * count)
        async with (
            door.client(token, **headers) as http,
            http.post(path, data=data) as response,
        ):
            assert (told in await response.text()) is refused


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ("Content-Type: text/plain\r\n", b"{}", 415, "unsupported_media_type"),
        ("", b"{}", 415, "unsupported_media_type"),
        (f"{JSON}Content-Encoding: gzip\r\n", b"{}", 415, "unsupported_media_type"),
        (JSON, b"{", 400, "protocol_remote"),
        (JSON, b'{"arguments": {"name": "\xff"}}', 400, "invalid_arguments"),
        (JSON, b"[" * 5000, 400, "invalid_arguments"),
        (JSON, b"[1]", 400, "invalid_arguments"),
        (JSON, b'{"args": {}}', 400, "invalid_arguments"),
        (JSON, b'{"timeout": 0}', 400, "invalid_arguments"),
        (JSON, b'{"timeout": NaN}', 400, "protocol_remote"),
        (JSON, b'{"arguments": 5}', 400, "invalid_arguments"),
        (f"{JSON}Expect: teä\r\n", b"{}", 417, "expectation_failed"),
    ],
)
async def test_a_body_that_is_no_json_object_is_refused(
    door: Door, headers: str, body: bytes, status: int, code: str
) -> None:
    """Contract, section 6: a bad body is 400; a form of a web page cannot be JSON."""
    head = request(
        door, "/api/tools/hello/call", f"{headers}Content-Length: {len(body)}\r\n", body
    )
    found, _, answer = parsed(await door.raw(head))
    assert (found, json.loads(answer)["code"]) == (status, code)


async def test_a_fault_of_the_body_names_its_place(door: Door) -> None:
    """Contract, section 8: the path of each fault."""
    async with door.client() as http:
        async with http.post("/api/tools/hello/call", json={"timeout": "soon"}) as response:
            assert (await problem(response))["faults"][0]["path"] == "timeout"


async def test_broken_chunks_are_a_bad_request(door: Door) -> None:
    """RFC 9112, section 7.1."""
    headers = f"{JSON}Transfer-Encoding: chunked\r\n"
    head = request(door, "/api/tools/hello/call", headers, b"xyz\r\n")
    status, _, body = parsed(await door.raw(head))
    assert status == 400
    assert json.loads(body)["code"] == "protocol_remote"


async def test_a_client_that_waits_before_its_body_is_told_to_go_on(door: Door) -> None:
    """RFC 9110, section 10.1.1; curl does so for large bodies."""
    body = b'{"arguments": {"name": "Ada"}}'
    headers = f"{JSON}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n"
    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(request(door, "/api/tools/hello/call", headers))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        status, _, answer = parsed(await reader.read())
        writer.close()
        await writer.wait_closed()
    assert status == 200
    assert json.loads(answer)["for_llm"] == "Hello, Ada!"


async def test_http_1_0_gets_its_answer(door: Door) -> None:
    """RFC 9112, section 2.3: no chunks and no 100 for it, the end is the close."""
    head = request(
        door,
        "/api/tools/hello/call",
        f"{JSON}Expect: 100-continue\r\nContent-Length: 2\r\n",
        b"{}",
    ).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert parsed(await door.raw(head))[0] == 400
    head = request(door, "/api/tools/hello/call", "Accept: text/event-stream\r\n")
    assert parsed(await door.raw(head.replace(b"HTTP/1.1", b"HTTP/1.0")))[0] == 400


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET\r\n\r\n", b"{}\n\n"]
)
async def test_what_is_no_http_gets_one_problem_and_the_end(door: Door, data: bytes) -> None:
    """Issue: no input ends the daemon or another connection."""
    status, headers, body = parsed(await door.raw(data))
    assert status == 400
    assert headers["server"] == "edged"
    assert json.loads(body)["code"] == "protocol_remote"


async def test_slow_headers_end_the_connection(tmp_path: Any) -> None:
    """Slow loris: the headers as a whole have a deadline."""
    async with opened(tmp_path, Timing(header_s=0.05)) as door:
        assert await door.raw(b"GET /healthz HTTP/1.1\r\nHost: ") == b""
        assert await door.raw(b"") == b""


async def test_an_idle_connection_is_closed(tmp_path: Any) -> None:
    """RFC 9112, section 9.5: the same time from the last answer on."""
    async with opened(tmp_path, Timing(header_s=0.5)) as door:
        answer = await door.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_slow_body_is_given_up(tmp_path: Any) -> None:
    """Slow loris with a body; RFC 9110, section 15.5.9."""
    async with opened(tmp_path, Timing(body_s=0.05, linger_s=0.01)) as door:
        head = request(door, "/api/tools/hello/call", f"{JSON}Content-Length: 100\r\n", b'{"arg')
        status, headers, body = parsed(await door.raw(head))
        assert status == 408
        assert headers["connection"] == "close"
        assert json.loads(body)["code"] == "request_timeout"


async def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Any) -> None:
    """tcp(7), TCP_USER_TIMEOUT: a stalled peer holds no connection for ever."""
    async with opened(tmp_path, Timing(stalled_s=0.3)) as door:
        uri = door.media.put("local", bytes(16 << 20), "text/plain", "big")
        head = request(door, f"/api/media/{uri.removeprefix('media://')}", "", method="GET")
        with socket.create_connection(("127.0.0.1", door.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(head)
            async with asyncio.timeout(BOUND_S):
                while door.listener._api is None or not door.listener._api.open:
                    await asyncio.sleep(0.01)
                while door.listener._api.open:
                    await asyncio.sleep(0.01)


async def test_connections_over_the_limit_are_told_to_come_back(tmp_path: Any) -> None:
    """Contract, section 6 and `http.max_connections`."""
    async with opened(tmp_path, Timing(linger_s=60), max_connections=2) as door:
        held = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(2)]
        for reader, writer in held:
            writer.write(known(door))
            assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        status, headers, body = parsed(await door.raw(b"GET /healthz HTTP/1.1\r\n"))
        assert status == 503
        assert headers["retry-after"] == "1"
        assert "http.max_connections" in json.loads(body)["detail"]
        # Ones that do not leave are cut at once when too many of them pile up.
        piled = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(8)]
        ends = await asyncio.gather(*(r.read() for r, _ in piled), return_exceptions=True)
        refused = [e for e in ends if isinstance(e, bytes) and e.startswith(b"HTTP/1.1 503")]
        assert 1 <= len(refused) <= 4
        for _, writer in (*held, *piled):
            writer.close()
        async with asyncio.timeout(BOUND_S):
            while door.listener._api.open:
                await asyncio.sleep(0)
        async with door.client() as http, http.get("/healthz") as response:
            assert response.status == 200


async def test_who_has_no_token_cannot_hold_the_door(tmp_path: Any) -> None:
    """The oldest connection without a name gives way; the owner is served."""
    async with opened(tmp_path, max_connections=2) as door:
        async with door.client() as http, http.get("/healthz") as response:
            assert response.status == 200
        silent = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(6)]
        async with door.client() as http, http.get("/api/tools") as response:
            assert response.status == 200
        for reader, writer in silent:
            writer.close()
            await asyncio.gather(reader.read(), return_exceptions=True)


@pytest.mark.parametrize("path", ["/api/events", "/api/tools"])
async def test_no_agent_holds_the_door(tmp_path: Any, path: str) -> None:
    """A quarter of the places for each token, however it fills them; owners get in."""
    async with opened(tmp_path, max_connections=8) as door:
        second = door.control.tokens.add("bob", "bob@example.org", "agent")
        held, seen = [], []
        for token in [door.agent] * 12 + [second] * 12:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(asking(path, token))
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head.split()[1])
            if head.split()[1] == b"503":
                assert b"Connection: close" in head
                assert b"too many connections of token" in await reader.read()
            held.append(writer)
        assert seen == ([b"200"] * 2 + [b"503"] * 10) * 2
        async with door.client() as http, http.get("/api/events") as stream:
            assert stream.status == 200
            async with http.get("/api/tools") as response:
                assert response.status == 200
        # Given back with the connection.
        for writer in held:
            writer.close()
        async with asyncio.timeout(BOUND_S):
            while door.listener._api.open:
                await asyncio.sleep(0)
        async with door.client(door.agent) as http, http.get("/api/tools") as response:
            assert response.status == 200


async def test_a_connection_that_changes_its_token_has_one_place(tmp_path: Any) -> None:
    """A proxy sends many people's requests over one."""
    async with opened(tmp_path, max_connections=4) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        for token in (door.agent, door.owner, door.agent, door.agent):
            writer.write(asking("/api/tools", token))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.split()[1] == b"200"
            length = int(parsed(head)[1]["content-length"])
            await reader.readexactly(length)
        async with door.client(door.agent) as http, http.get("/api/tools") as response:
            assert response.status == 503
        writer.close()
        async with asyncio.timeout(BOUND_S):
            while door.listener._api.open:
                await asyncio.sleep(0)
        async with door.client(door.agent) as http, http.get("/api/tools") as response:
            assert response.status == 200


async def test_a_refused_client_that_stays_is_cut(tmp_path: Any) -> None:
    """It may not hold what it was refused."""
    async with opened(tmp_path, Timing(linger_s=0.05), max_connections=1) as door:
        answer, held = await asyncio.open_connection("127.0.0.1", door.port)
        held.write(known(door))
        assert (await answer.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(BOUND_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            await reader.read()
            while door.listener._gates:
                await asyncio.sleep(0.01)
        held.close()
        writer.close()


async def test_too_many_requests_of_one_token_wait(tmp_path: Any) -> None:
    """Contract, section 6: 429 with Retry-After; another token is not held up."""
    async with opened(tmp_path, rate=0.001, burst=2) as door:
        async with door.client() as http:
            for expected in (200, 200, 429):
                async with http.get("/api/tools") as response:
                    assert response.status == expected
                    if expected == 429:
                        assert int(response.headers["Retry-After"]) > 900
                        assert (await problem(response))["retry_after"] > 900
        async with door.client(door.agent) as http, http.get("/api/tools") as response:
            assert response.status == 200


async def test_no_call_is_taken_while_the_daemon_stops(door: Door) -> None:
    """RFC 9110, section 15.6.4: 503 says when to come back."""
    await door.dispatcher.drain(0)
    async with door.client() as http, http.post("/api/tools/whoami/call") as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "1"


async def test_a_fault_inside_is_logged_and_not_told(door: Door, capsys: Any) -> None:
    """Contract, section 7: the underlying error is never serialised."""
    token = door.control.tokens.add("broken", "broken@example.org", "agent")
    async with door.client(token) as http, http.get("/api/tools") as response:
        assert response.status == 500
        assert "secret detail" not in await response.text()
        assert (await problem(response))["code"] == "internal"
        # An interim answer is no answer yet (RFC 9110, section 15.2).
        body = b'{"enabled": true}'
        headers = f"{JSON}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n"
        head = request(door, "/api/tools/hello/state", headers, body, "PUT")
        answer = await door.raw(head.replace(door.owner.encode(), token.encode()))
        interim, _, final = answer.partition(b"\r\n\r\n")
        assert b" 100 " in interim
        assert parsed(final)[0] == 500
    assert "secret detail of the inside" in capsys.readouterr().err


# Listening --------------------------------------------------------------------------------


async def test_peers_of_a_unix_path_need_no_token(tmp_path: Any) -> None:
    """Contract, section 4: peers as on the socket, by uid."""
    path = str(tmp_path / "http.sock")
    users = {str(os.getuid()): UserEntry(user="ada@example.org")}
    async with opened(tmp_path, users=users, listen=[f"unix:{path}"]) as door:
        assert door.listener.addresses() == [f"unix:{path}"]
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        connector = aiohttp.UnixConnector(path)
        async with aiohttp.ClientSession(connector=connector) as http:
            url = "http://localhost/api/tools/whoami/call"
            async with http.post(url, headers={"Edged-Session": "s"}) as response:
                caller = (await response.json())["structured"]
            async with http.get("http://evil.example/api/tools") as response:
                assert response.status == 403
    assert (caller["user"], caller["role"]) == ("ada@example.org", "owner")
    assert (caller["door"], caller["peer"], caller["session"]) == (
        "http",
        f"uid {os.getuid()}",
        "s",
    )
    assert not os.path.exists(path)


async def test_ipv6_is_listened_on_where_configured(tmp_path: Any) -> None:
    """Contract, section 4."""
    async with opened(tmp_path, listen=["[::1]:0"]) as door:
        assert door.url.startswith("http://[::1]:")
        async with door.client() as http, http.get("/api/tools") as response:
            assert response.status == 200


async def test_a_taken_port_is_named_with_what_to_do(tmp_path: Any) -> None:
    """Architecture, errors: what, where, and what to do; nothing is left listening."""
    path = tmp_path / "http.sock"
    async with opened(tmp_path / "first") as first:
        http = Http(listen=[f"unix:{path}", f"127.0.0.1:{first.port}"])
        second = Door(str(tmp_path / "second"), Config(http=http), None)
        with pytest.raises(ConfigError, match=rf"port {first.port} is taken.*--http"):
            await second.listener.start()
        assert not path.exists()
        assert second.listener.addresses() == []


@pytest.mark.parametrize(
    ("address", "message"), [("192.0.2.1:0", "no such address"), ("unix:/proc/x", "cannot listen")]
)
async def test_an_address_that_cannot_be_used_is_named(
    tmp_path: Any, address: str, message: str
) -> None:
    """192.0.2.0/24 is for documentation (RFC 5737): no machine has it."""
    door = Door(str(tmp_path), Config(http=Http(listen=[address])), None)
    with pytest.raises(ConfigError, match=message):
        await door.listener.start()


async def test_an_open_address_is_warned_of_once(tmp_path: Any, capsys: Any) -> None:
    """Contract, section 4: one warning that there is no TLS."""
    async with opened(tmp_path, listen=["0.0.0.0:0", "127.0.0.1:0", "[::]:0"]):
        pass
    log = capsys.readouterr().err
    assert log.count("not encrypted") == 1
    assert "0.0.0.0:" in log
    assert "127.0.0.1:" not in log


async def test_sockets_that_systemd_opened_are_served_and_not_bound_again(tmp_path: Any) -> None:
    """sd_listen_fds(3); the configured address may be the very same."""
    inherited = socket.create_server(("127.0.0.1", 0))
    inherited.setblocking(False)
    port = inherited.getsockname()[1]
    door = Door(str(tmp_path), Config(http=Http(listen=[f"127.0.0.1:{port}"])), None)
    async with door.board, door.tasks:
        await door.listener.start([inherited])
        assert door.listener.addresses() == [f"http://127.0.0.1:{port}"]
        async with door.client() as http, http.get("/healthz") as response:
            assert response.status == 200
        door.listener.close()
        await door.listener.close_connections()


async def test_a_closed_listener_takes_no_connection_and_serves_the_open_ones(
    tmp_path: Any,
) -> None:
    """Architecture, laws: refuse new calls, then drain; an idle connection delays nothing."""
    async with opened(tmp_path, Timing(linger_s=60)) as door, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(ask)
        assert b"200" in await reader.readuntil(b"}")
        port = door.port
        door.listener.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.write(ask)
        assert b"200" in await reader.readuntil(b"}")
        await door.listener.close_connections()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_stop_while_the_first_connection_waits_cuts_it(tmp_path: Any) -> None:
    """Nothing hangs on a library that is still being imported."""
    async with opened(tmp_path) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        async with asyncio.timeout(BOUND_S):
            while not door.listener._gates:
                await asyncio.sleep(0)
            door.listener.close()
            await door.listener.close_connections()
            assert await reader.read() == b""
        writer.close()


def test_aiohttp_is_imported_by_the_first_connection_only() -> None:
    """Architecture, idea 5: an idle daemon does not pay for HTTP."""
    program = """
import asyncio, sys, tempfile
sys.path.insert(0, sys.argv[1])
from edged.audit import Trail
from edged.board import Board
from edged.bus.settings import BoardConfig
from edged.bus.sim import SimBuses
from edged.clock import SystemClock
from edged.config import Config, Http
from edged.control import Catalogue, Control
from edged.dispatch import Dispatcher
from edged.events import Events
from edged.media import Media
from edged.registry import Registry
from edged.services import Services
from edged.store import Store
from edged.tokens import Tokens
from edged.transports.http import HttpListener

async def main(data):
    clock, store = SystemClock(), Store(data)
    config = Config(http=Http(listen=["127.0.0.1:0"]))
    services = Services(
        config, clock, data, store, Events(clock), Media(data, clock),
        Trail(data, clock, 1 << 20), Board(BoardConfig(), SimBuses(), clock), None,
    )
    async with asyncio.TaskGroup() as tasks:
        control = Control(
            Dispatcher(Registry(), services, tasks.create_task),
            Catalogue(lambda user: None, None, dict),
            Tokens(store, data, clock), spawn=tasks.create_task, listeners=list,
        )
        listener = HttpListener(control, config)
        await listener.start()
        assert "aiohttp" not in sys.modules
        port = int(listener.addresses()[0].rpartition(":")[2])
        answers = await asyncio.gather(*(ask(port) for _ in range(3)))
        assert all(a.startswith(b"HTTP/1.1 200") for a in answers), answers
        assert "aiohttp" in sys.modules
        listener.close()
        await listener.close_connections()

async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
    answer = await reader.read()
    writer.close()
    return answer

with tempfile.TemporaryDirectory() as data:
    asyncio.run(main(data))
"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, root],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


async def test_a_stop_without_a_drain_ends_what_runs(tmp_path: Any) -> None:
    """Architecture, laws: no task outlives its door."""
    async with opened(tmp_path, Timing(linger_s=0.05)) as door, door.client() as http:
        call = asyncio.create_task(http.post("/api/tools/slow/call"))
        async with asyncio.timeout(BOUND_S):
            await door.slow.started.wait()
            await door.listener.close_connections()
            await door.slow.cancelled.wait()
        with pytest.raises(aiohttp.ClientError):
            await call


async def test_first_connections_wait_for_one_import_together(door: Door) -> None:
    """Architecture, idea 5: none is refused, and nothing is imported twice."""
    asks = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = await asyncio.gather(*(door.raw(asks) for _ in range(5)))
    assert [parsed(answer)[0] for answer in answers] == [200] * 5


async def test_without_its_library_http_says_so_and_the_daemon_goes_on(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A broken installation costs HTTP and nothing else."""
    monkeypatch.setitem(sys.modules, "edged.transports._routes", None)
    async with opened(tmp_path) as door:
        for _ in range(2):
            answer = await door.raw(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 503")
    assert "HTTP cannot be served" in capsys.readouterr().err


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.binary(max_size=200) | _JSON, chunked=st.booleans())
def test_any_body_gets_an_answer_and_the_next_request_is_served(
    running: tuple[asyncio.Runner, Door], body: bytes, chunked: bool
) -> None:
    """Issue: fuzzing never ends the daemon or another connection."""
    runner, door = running
    if chunked:
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        head = request(
            door, "/api/tools/hello/call", f"{JSON}Transfer-Encoding: chunked\r\n", framed
        )
    else:
        length = f"{JSON}Content-Length: {len(body)}\r\n"
        head = request(door, "/api/tools/hello/call", length, body)
    status, _, answer = parsed(runner.run(door.raw(head)))
    assert status in (200, 202, 400)
    json.loads(answer)
    asks = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert parsed(runner.run(door.raw(asks)))[0] == 200


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(min_size=1, max_size=300))
def test_any_bytes_get_a_refusal_or_the_end(
    running: tuple[asyncio.Runner, Door], data: bytes
) -> None:
    """Likewise below HTTP."""
    runner, door = running
    answer = runner.run(door.raw(data + b"\r\n\r\n"))
    assert not answer or parsed(answer)[0] in (400, 401, 403)
