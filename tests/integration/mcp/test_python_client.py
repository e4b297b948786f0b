"""An independent MCP client, the official Python SDK, over `edged mcp`, the socket and HTTP."""

import asyncio
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from tests.integration.mcp.sample import SOURCES, files, lay

BOUND_S = 30.0


@asynccontextmanager
async def socket_client(path):
    """MCP's transport for byte streams, a message a line, over a Unix socket."""
    received, read = anyio.create_memory_object_stream(0)
    write, sent = anyio.create_memory_object_stream(0)

    async def receive(link):
        rest = b""
        async with received:
            async for data in link:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    await received.send(SessionMessage(message))

    async def send(link):
        async for one in sent:
            line = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            await link.send(f"{line}\n".encode())

    async with await anyio.connect_unix(path) as link, read, write, sent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(receive, link)
            tasks.start_soon(send, link)
            yield read, write
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def http_client(url, token):
    """The SDK's own, with the token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=BOUND_S) as client:
        async with streamable_http_client(url, http_client=client) as streams:
            yield streams


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay) as running:
        yield running


@pytest.fixture(params=["stdio", "socket", "http"])
def door(request):
    return request.param


@pytest.fixture
def connect(door, daemon, tmp_path):
    """Opens a session; `edged mcp` may say nothing beside the protocol."""
    errors = (tmp_path / "stderr").open("w+")

    @asynccontextmanager
    async def session(mode, **options):
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "edged", "mcp", "--socket", daemon.socket]
        )
        transports = {
            "stdio": lambda: stdio_client(server, errlog=errors),
            "socket": lambda: socket_client(daemon.socket),
            "http": lambda: http_client(f"{daemon.url}/mcp", daemon.token),
        }
        async with mcp.Client(
            transports[door](), mode=mode, read_timeout_seconds=BOUND_S, **options
        ) as it:
            yield it

    yield session
    errors.seek(0)
    assert errors.read() == ""
    errors.close()


ERAS = pytest.mark.parametrize(
    ("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")]
)


@ERAS
async def test_client_lists_the_tools(connect, mode, version):
    """MCP, tools/list, by initialize and by the stateless revision; contract, section 5."""
    async with connect(mode) as client:
        assert client.protocol_version == version
        assert client.server_info.name == "edged"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(SOURCES) < set(tools)
    assert list(tools) == sorted(tools)
    says = tools["says"]
    assert says.title == "The says tool"
    assert says.description == "A tool.\n\nWhat it is about."
    assert says.input_schema["properties"]["text"]["type"] == "string"


@ERAS
async def test_client_calls_a_tool(connect, mode, version):
    """MCP, tools/call."""
    async with connect(mode) as client:
        result = await client.call_tool("says", {"text": "héllo"})
    assert not result.is_error
    assert [block.text for block in result.content] == ["it says héllo"]
    assert result.meta["edged/call_id"]


@ERAS
async def test_client_sees_an_update_before_the_result(daemon, door, connect, mode, version):
    """Contract, section 7: start, updates while it runs, then exactly one end."""
    seen = []
    go = daemon.data / "local" / "data" / f"go-{door}-{mode}"

    async def progress(count, total, message):
        seen.append((count, message))
        # Without this file the tool never ends: the update came while it ran.
        go.touch()

    async with connect(mode) as client:
        result = await client.call_tool("steps", {"text": go.name}, progress_callback=progress)
    assert result.content[0].text == "done"
    assert seen == [(1, "phase 1: downloading"), (2, "phase 2: processing")]


@ERAS
async def test_client_cancels_a_call_and_its_processes_end(daemon, connect, until, mode, version):
    """MCP, cancellation; contract, section 10: the whole tree ends, grandchildren included."""
    started = asyncio.Event()

    async def progress(count, total, message):
        started.set()

    async with connect(mode) as client:
        call = asyncio.create_task(client.call_tool("hangs", progress_callback=progress))
        async with asyncio.timeout(BOUND_S):
            await started.wait()
        until("the grandchild runs", lambda: "sleep" in daemon.processes())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # The session goes on.
        assert not (await client.call_tool("says", {"text": "on"})).is_error
        async with asyncio.timeout(BOUND_S):
            await asyncio.to_thread(until, "all is dead", lambda: daemon.processes() == [])
    record = next(r for r in daemon.ask("edged/log", limit=9)["records"] if r["tool"] == "hangs")
    assert record["outcome"] == "cancelled"


async def test_client_that_leaves_ends_its_calls(daemon, connect, until):
    """Contract, section 5: a connection closed both ways cancels its calls."""
    started = asyncio.Event()

    async def progress(count, total, message):
        started.set()

    async with connect("legacy") as client:
        call = asyncio.create_task(client.call_tool("hangs", progress_callback=progress))
        async with asyncio.timeout(BOUND_S):
            await started.wait()
    assert (await asyncio.gather(call, return_exceptions=True))[0].args
    until("all is dead", lambda: daemon.processes() == [])


@ERAS
async def test_failures_of_a_tool_are_results(connect, mode, version):
    """MCP, tools, "Error Handling": the model sees what to do; so too with wrong arguments."""
    async with connect(mode) as client:
        returned = await client.call_tool("fails")
        raised = await client.call_tool("raises")
        refused = await client.call_tool("says", {"text": "a", "volume": 11})
    assert (returned.is_error, returned.content[0].text) == (True, "no key: set API_KEY")
    assert raised.is_error
    assert raised.content[0].text.startswith("ValueError: the valve is stuck\n  at /officer/")
    assert refused.is_error
    assert "volume" in refused.content[0].text


@ERAS
async def test_unknown_tool_is_a_protocol_error(connect, mode, version):
    """MCP, tools, "Error Handling": -32602 and the nearest name."""
    async with connect(mode) as client:
        with pytest.raises(mcp.MCPError) as caught:
            await client.call_tool("say")
    assert caught.value.error.code == -32602
    assert str(caught.value) == "no tool named 'say'; did you mean 'says'?"


async def test_client_is_told_of_a_new_tool(daemon, door, connect):
    """MCP, notifications/tools/list_changed; contract, section 4: seen on a miss."""
    told = asyncio.Event()

    async def notified(message):
        if isinstance(message, mcp.types.ToolListChangedNotification):
            told.set()

    async with connect("legacy", message_handler=notified) as client:
        assert client.server_capabilities.tools.list_changed
        before = {tool.name for tool in (await client.list_tools()).tools}
        name = f"newest_{door}"
        daemon.lay(name, files(name, SOURCES["says"]))
        result = await client.call_tool(name, {"text": "hello"})
        assert result.content[0].text == "it says hello"
        async with asyncio.timeout(BOUND_S):
            await told.wait()
        after = {tool.name for tool in (await client.list_tools()).tools}
    assert after == before | {name}


async def test_client_is_told_of_a_tool_that_nobody_asked_for(daemon, door, connect):
    """MCP: a server that says `listChanged` tells when the list changes."""
    told = asyncio.Event()

    async def notified(message):
        if isinstance(message, mcp.types.ToolListChangedNotification):
            told.set()

    async with connect("legacy", message_handler=notified) as client:
        await client.list_tools()
        name = f"unasked_{door}"
        daemon.lay(name, files(name, SOURCES["says"]))
        async with asyncio.timeout(BOUND_S):
            await told.wait()
        assert name in {tool.name for tool in (await client.list_tools()).tools}


async def test_subscriber_is_told_of_a_new_tool(daemon, door, connect):
    """MCP 2026-07-28, subscriptions/listen: acknowledged, then each change of the list."""
    name = f"listened_{door}"
    async with connect("auto") as client:
        async with client.listen(tools_list_changed=True) as changes:
            daemon.lay(name, files(name, SOURCES["says"]))
            async with asyncio.timeout(BOUND_S):
                await anext(aiter(changes))
            assert name in {tool.name for tool in (await client.list_tools()).tools}
        # The stream ended, the client did not.
        assert not (await client.call_tool("says", {"text": "on"})).is_error


async def test_many_calls_of_one_session_run_at_once(daemon, door, connect):
    """Contract, section 5: replies come in the order of completion."""
    gates = [daemon.data / "local" / "data" / f"gate-{door}-{number}" for number in range(4)]
    order = []
    steps = [asyncio.Event() for _ in gates]

    async with connect("legacy") as client:

        async def call(number):
            async def progress(count, total, message):
                steps[number].set()

            await client.call_tool(
                "steps", {"text": gates[number].name}, progress_callback=progress
            )
            order.append(number)

        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(call(number)) for number in range(len(gates))]
            for step in steps:
                await step.wait()
            for number in (2, 0, 3, 1):
                gates[number].touch()
                await running[number]
    assert order == [2, 0, 3, 1]
