"""What there is beside tools: resources, prompts, completion, tasks, log messages."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from types import SimpleNamespace

import jsonschema
import msgspec
import pytest

from edged import results
from edged.errors import BusyError
from edged.identity import Caller
from edged.mcp import server
from edged.mcp.server import Connection
from edged.results import Result
from edged.testing import running
from edged.tool import Context, tool

BOUND_S = 20.0
PREFIX = "io.modelcontextprotocol/"
TASKS = {PREFIX + "tasks": {}}
CONFIG = "board: {sensors: {host: {driver: host, every: 1h}}}"


class Nothing(msgspec.Struct, frozen=True):
    """No inputs."""


class Gate:
    def __init__(self):
        self.go, self.cancelled = asyncio.Event(), asyncio.Event()

        @tool("gate", body="# Gate\n\nIt waits.\n", label="The gate")
        async def gate(params: Nothing, ctx: Context) -> Result:
            """Wait."""
            ctx.client.log("debug", "begins")
            ctx.client.log("warning", {"almost": "there"}, "gate")
            await asyncio.sleep(0)
            ctx.client.defer()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return results.text("through")

        @tool("plain")
        async def plain(params: Nothing, ctx: Context) -> Result:
            """Wait, and say nothing before."""
            await self.go.wait()
            return results.text("through")

        self.tool, self.plain = gate, plain


class Client:
    def __init__(self, daemon, role="owner", peer="uid 0"):
        self.sent, self._came = [], asyncio.Event()
        caller = Caller("local", role, "", "unix", peer)
        self.connection = Connection(daemon.control, caller, self._take)
        self._number = 0

    def _take(self, line, about=b"", ends=None):
        self.sent.append(json.loads(line))
        self._came.set()

    async def wait(self, wanted):
        async with asyncio.timeout(BOUND_S):
            while not (found := [m for m in self.sent if wanted(m)]):
                self._came.clear()
                await self._came.wait()
        self.sent.remove(found[0])
        return found[0]

    async def ask(self, method, params=None, **meta):
        self._number += 1
        number, body = self._number, {**(params or {})}
        if meta:
            body["_meta"] = meta
        line = {"jsonrpc": "2.0", "id": number, "method": method, "params": body}
        self.connection.receive(msgspec.json.encode(line))
        return await self.wait(lambda m: m.get("id") == number and "method" not in m)

    async def modern(self, method, params=None, *, extensions=TASKS, **meta):
        base = {
            PREFIX + "protocolVersion": "2026-07-28",
            PREFIX + "clientCapabilities": {"extensions": extensions},
        }
        return await self.ask(method, params, **base, **meta)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
async def daemon(gate):
    with tempfile.TemporaryDirectory(prefix="edged-offer-", dir="/var/tmp") as data:
        os.chmod(data, 0o755)
        async with running(
            data=data, http=False, config=CONFIG, tools=[gate.tool, gate.plain]
        ) as it:
            yield it.daemon


@pytest.fixture
async def wired():
    """A client of the simulated board, which has lines."""
    with tempfile.TemporaryDirectory(prefix="edged-offer-", dir="/var/tmp") as data:
        os.chmod(data, 0o755)
        async with running(data=data, http=False) as it:
            one = Client(it.daemon)
            yield it.daemon.services.board, one
            one.connection.close()


@pytest.fixture
async def client(daemon):
    one = Client(daemon)
    yield one
    one.connection.close()


async def test_each_resource_of_the_list_can_be_read(daemon, client):
    """MCP, resources; contract, section 13: bodies on demand."""
    media = daemon.services.media.put("local", b"long text", "text/plain", "out.txt")
    rows = (await client.ask("resources/list"))["result"]["resources"]
    uris = [row["uri"] for row in rows]
    assert uris == sorted(uris)
    assert {"edged://tools/gate", media} <= {*uris}
    for uri in uris:
        (found,) = (await client.ask("resources/read", {"uri": uri}))["result"]["contents"]
        assert found["uri"] == uri
        assert found["text"]
        if uri.startswith("edged://sensors/"):
            assert json.loads(found["text"])["name"] == uri.removeprefix("edged://sensors/")
    text = (await client.ask("resources/read", {"uri": "edged://tools/gate"}))["result"]
    assert text["contents"][0]["text"].startswith("# Gate")


async def test_a_medium_is_its_callers_or_the_owners(daemon, client):
    """Contract, section 6."""
    media = daemon.services.media.put("bob@example.org", b"\xff\xfe", "image/png", "x.png")
    assert "blob" in (await client.ask("resources/read", {"uri": media}))["result"]["contents"][0]
    other = Client(daemon, "agent", "uid 7")
    error = (await other.ask("resources/read", {"uri": media}))["error"]
    assert (error["code"], error["data"]["uri"]) == (-32002, media)
    error = (await other.modern("resources/read", {"uri": media}))["error"]
    assert (error["code"], error["data"]["uri"]) == (-32602, media)
    other.connection.close()


async def test_a_large_medium_is_an_owners_to_read_whole_and_an_agents_in_parts(daemon, client):
    """Each of an agent's many connections holds its answer until it is taken."""
    uri = daemon.services.media.put("local", b"x" * ((1 << 20) + 1), "text/plain", "log")
    agent = Client(daemon, "agent", "uid 1000")
    error = (await agent.ask("resources/read", {"uri": uri}))["error"]
    assert f"{uri} is over 1 MiB: read_file takes {uri} in parts" in error["message"]
    (row,) = (await client.ask("resources/read", {"uri": uri}))["result"]["contents"]
    assert len(row["text"]) == (1 << 20) + 1
    agent.connection.close()


async def test_a_subscribed_sensor_tells_of_its_readings(daemon, client):
    """MCP, resources: subscriptions, in both eras."""
    name = daemon.services.board.sensors[0].name
    uri = f"edged://sensors/{name}"
    await client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    wanted = {"resourceSubscriptions": [uri, "edged://sensors/none"]}
    line = {"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen"}
    meta = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
    client.connection.receive(
        msgspec.json.encode({**line, "params": {"notifications": wanted, "_meta": meta}})
    )
    ack = await client.wait(lambda m: m.get("method", "").endswith("acknowledged"))
    assert ack["params"]["notifications"] == {"resourceSubscriptions": [uri]}
    client.sent.clear()
    daemon.services.events.publish("sensor.reading", "", {"sensor": name, "values": {}})
    notes = [m for m in client.sent if m["method"] == "notifications/resources/updated"]
    assert [n["params"]["uri"] for n in notes] == [uri, uri]
    assert [n["params"].get("_meta") for n in notes] == [None, {PREFIX + "subscriptionId": "s"}]
    await client.ask("resources/unsubscribe", {"uri": uri})
    client.connection.receive(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}'
    )
    client.sent.clear()
    daemon.services.events.publish("sensor.reading", "", {"sensor": name, "values": {}})
    assert not client.sent


async def test_a_subscribed_output_tells_of_its_level_and_has_it(wired):
    """MCP, resources: what can be subscribed to says when it changes."""
    (board, client), uri = wired, "edged://lines/led"
    await client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    assert (await client.ask("resources/subscribe", {"uri": uri}))["result"] == {}
    for value in (True, False):
        await board.write_line("led", value)
        note = await client.wait(lambda m: m.get("method") == "notifications/resources/updated")
        assert note["params"] == {"uri": uri}
        (text,) = (await client.ask("resources/read", {"uri": uri}))["result"]["contents"]
        facts = json.loads(text["text"])
        assert (facts["name"], facts["direction"], facts["value"]) == ("led", "output", value)


async def test_a_level_is_nobodys_where_the_tool_that_reads_it_is_off(wired):
    _, client = wired
    client.connection.control.registry.set_switches({"gpio": False})
    (text,) = (await client.ask("resources/read", {"uri": "edged://lines/led"}))["result"][
        "contents"
    ]
    assert "value" not in json.loads(text["text"])


async def test_an_agent_hears_nothing_of_what_is_off(wired):
    """An edge was told at its moment, their count was read, and an alarm has the reading."""
    board, owner = wired
    control = owner.connection.control
    agent = Client(SimpleNamespace(control=control), "agent", "uid 1000")
    told = {"uri": "edged://lines/button"}
    for one in (owner, agent):
        await one.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert (await one.ask("resources/subscribe", told))["result"] == {}
        one.sent.clear()

    async def seen(one):
        control.services.events.publish("gpio.edge", "", {"line": "button", "edges": 3})
        (text,) = (await one.ask("resources/read", told))["result"]["contents"]
        status = (await one.ask("edged/status"))["result"]
        heard = [m["params"] for m in one.sent if m.get("method", "").endswith("updated")]
        one.sent.clear()
        return heard, json.loads(text["text"])["edges"], bool(status["board"]["alarms"])

    counted = msgspec.structs.replace(board.line_info("button"), edges=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board, "line_info", {"button": counted}.get)
        patch.setattr(type(control), "_alarms", lambda _: {"greenhouse": "above: 33.1"})
        assert await seen(agent) == ([told], 7, True)
        control.registry.set_switches({"gpio": False, "sensor": False})
        owner.sent.clear()
        assert await seen(owner) == ([told], 7, True)
        agent.sent.clear()
        assert await seen(agent) == ([], 0, False)
    agent.connection.close()


async def test_what_an_agent_sends_beside_arguments_is_little_and_not_kept(daemon):
    """Capabilities and `_meta` of 15 MB were kept for each session and each task: 877 MB."""
    agent, owner = Client(daemon, "agent", "uid 1000"), Client(daemon)
    much = {"x": "y" * 70_000, "elicitation": {}}
    begin = {"protocolVersion": "2025-11-25", "capabilities": much}
    error = (await agent.ask("initialize", begin))["error"]
    assert (error["code"], error["message"]) == (
        -32602, "the params of a request must be at most 64 KiB",
    )  # fmt: skip
    call = {"name": "hello", "arguments": {"text": "x" * 100_000}}
    meta = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": much}
    error = (await agent.ask("tools/call", call, **meta))["error"]
    assert "what comes with the arguments must be at most 64 KiB" in error["message"]
    # Arguments may be long, answers to questions too, and an owner's request what it likes.
    assert "error" not in await agent.modern("tools/call", call)
    said = {"x": {"action": "accept", "content": {"text": "y" * 60_000}}}
    assert "error" not in await agent.modern(
        "tools/call", {**call, "inputResponses": {**said, "y": {}}, "_": "z" * 60_000}
    )
    assert "error" not in await owner.ask("tools/call", call, **meta)
    assert "error" not in await owner.ask("initialize", begin)
    assert owner.connection.capabilities == {"elicitation": {}}
    for one in (agent, owner):
        one.connection.close()


async def test_an_input_that_reports_no_edges_cannot_be_subscribed_to(wired, monkeypatch):
    board, client = wired
    mute = msgspec.structs.replace(board.line_info("button"), edge="none")
    monkeypatch.setattr(board, "line_info", {"button": mute}.get)
    answer = await client.ask("resources/subscribe", {"uri": "edged://lines/button"})
    assert "no resource 'edged://lines/button' that changes" in answer["error"]["message"]


async def test_a_line_that_cannot_be_read_says_so_in_its_resource(wired, monkeypatch):
    board, client = wired

    async def read_line(_board, name):
        raise BusyError(f"{name} is used by 'fan'")

    monkeypatch.setattr(type(board), "read_line", read_line)
    answer = await client.ask("resources/read", {"uri": "edged://lines/led"})
    (text,) = answer["result"]["contents"]
    assert json.loads(text["text"])["error"] == "led is used by 'fan'"


async def test_skills_are_prompts(daemon, client):
    """Issue 5: prompts (skills)."""
    place = os.path.join(daemon.data, "local", "skills", "watering")
    os.makedirs(place)
    with open(os.path.join(place, "SKILL.md"), "w") as file:
        file.write("---\nname: watering\ndescription: When to water.\n---\nLook at the soil.\n")
    rows = (await client.ask("prompts/list"))["result"]["prompts"]
    assert [(row["name"], row["description"]) for row in rows] == [("watering", "When to water.")]
    params = {"name": "watering", "arguments": {"task": "the tomatoes"}}
    (message,) = (await client.ask("prompts/get", params))["result"]["messages"]
    assert "Look at the soil." in message["content"]["text"]
    assert message["content"]["text"].endswith("The task: the tomatoes")
    wrong = await client.ask("prompts/get", {"name": "no-such"})
    assert wrong["error"]["code"] == -32602


async def test_names_are_completed_what_begins_so_first(daemon, client):
    """MCP, completion: tool names, sensors, lines."""
    params = {
        "ref": {"type": "ref/resource", "uri": "edged://tools/{name}"},
        "argument": {"name": "name", "value": "tool"},
    }
    found = (await client.ask("completion/complete", params))["result"]["completion"]
    assert found["values"][0].startswith("tool_")
    assert "request_permission" not in found["values"]
    params["ref"]["uri"] = "edged://sensors/{name}"
    params["argument"]["value"] = ""
    found = (await client.ask("completion/complete", params))["result"]["completion"]
    assert found["values"] == sorted(info.name for info in daemon.services.board.sensors)


async def test_log_messages_come_from_the_level_that_was_set(client, gate):
    """MCP, logging: stateless only where the request asks, a session from its level on."""
    gate.go.set()

    def levels():
        found = [m["params"] for m in client.sent if m.get("method") == "notifications/message"]
        client.sent.clear()
        return [one["level"] for one in found]

    call = {"name": "gate"}
    await client.modern("tools/call", call, extensions={})
    assert levels() == []
    await client.modern("tools/call", call, extensions={}, **{PREFIX + "logLevel": "debug"})
    assert levels() == ["debug", "warning"]
    await client.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    await client.ask("tools/call", call)
    assert levels() == ["warning"]
    await client.ask("logging/setLevel", {"level": "error"})
    await client.ask("tools/call", call)
    assert levels() == []
    assert (await client.ask("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602


async def test_a_task_outlives_its_connection_and_is_its_callers(daemon, client, gate):
    """SEP-2663: a handle, authorised on each call."""
    task = (await client.modern("tools/call", {"name": "gate"}))["result"]
    assert (task["resultType"], task["status"]) == ("task", "working")
    client.connection.close()
    named = {"taskId": task["taskId"]}
    other, again = Client(daemon, "agent", "uid 7"), Client(daemon)
    assert (await other.modern("tasks/get", named))["error"]["code"] == -32602
    assert (await again.modern("tasks/get", named))["result"]["status"] == "working"
    missing = await again.modern("tasks/get", named, extensions={})
    assert missing["error"]["code"] == -32021
    gate.go.set()
    while (found := (await again.modern("tasks/get", named))["result"])["status"] == "working":
        await asyncio.sleep(0)
    assert found["status"] == "completed"
    assert found["result"]["content"][0]["text"] == "through"
    for one in (other, again):
        one.connection.close()


@pytest.mark.parametrize("extensions", [5, None, [PREFIX + "tasks"], PREFIX + "tasks"])
async def test_extensions_of_another_shape_are_none(client, gate, capsys, extensions):
    """SEP-2663: an object declares them; what is none is the client's fault, not edged's."""
    gate.go.set()
    called = await client.modern("tools/call", {"name": "gate"}, extensions=extensions)
    assert called["result"]["resultType"] == "complete"
    wanted = {"notifications": {"taskIds": ["t"]}}
    for method, params in (("tasks/get", {"taskId": "t"}), ("subscriptions/listen", wanted)):
        error = (await client.modern(method, params, extensions=extensions))["error"]
        assert error["code"] == -32021  # MCP 2026-07-28: missing required client capability
    assert "Error" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["gate", "plain"])
async def test_a_caller_has_64_tasks_and_the_next_call_stays_one(
    daemon, client, gate, monkeypatch, name
):
    """One agent's many cost another none, and are no fault of edged's."""
    monkeypatch.setattr(server, "TASK_S", 0.0)
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    for _ in range(64):
        assert (await client.modern("tools/call", {"name": name}))["result"]["status"] == "working"
    call = asyncio.ensure_future(client.modern("tools/call", {"name": name}))
    other = Client(daemon, "agent", "uid 7")
    task = await other.modern("tools/call", {"name": name})
    assert task["result"]["status"] == "working"
    assert not call.done()
    gate.go.set()
    result = (await call)["result"]
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "through")
    assert not faults
    other.connection.close()


async def test_a_cancelled_task_ends_its_call_and_its_watchers_hear(client, gate):
    """SEP-2663: cancellation, status notifications."""
    task = (await client.modern("tools/call", {"name": "gate"}))["result"]
    named = {"taskId": task["taskId"]}
    meta = {
        PREFIX + "protocolVersion": "2026-07-28",
        PREFIX + "clientCapabilities": {"extensions": TASKS},
    }
    params = {"notifications": {"taskIds": [task["taskId"], "none"]}, "_meta": meta}
    line = {"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params}
    client.connection.receive(msgspec.json.encode(line))
    ack = await client.wait(lambda m: m.get("method", "").endswith("acknowledged"))
    assert ack["params"]["notifications"] == {"taskIds": [task["taskId"]]}
    ended = (await client.modern("tasks/cancel", named))["result"]
    assert ended["resultType"] == "complete"
    assert "taskId" not in ended
    note = await client.wait(lambda m: m.get("method") == "notifications/tasks")
    assert note["params"]["status"] == "cancelled"
    assert gate.cancelled.is_set()


async def test_what_a_tool_declares_of_its_result_is_so(client):
    """Fault 27: a schema declared, then a valid structured result; none of a failure."""
    tools = (await client.ask("tools/list"))["result"]["tools"]
    declared = {one["name"]: one["outputSchema"] for one in tools if "outputSchema" in one}
    for name, arguments in (
        ("gpio", {}),
        ("gpio", {"line": "GPIO5"}),
        ("gpio", {"line": "GPIO5", "value": "on", "confirm": True}),
        ("tool_search_tool_regex", {"pattern": "x"}),
        ("tool_search_tool_bm25", {"query": "pump"}),
        ("request_permission", {"path": "/var/tmp/edged-none"}),
        ("request_permission", {"path": "/workspace/x"}),
    ):
        params = {"name": name, "arguments": arguments}
        result = (await client.ask("tools/call", params))["result"]
        assert result["isError"] is False, result
        jsonschema.validate(result["structuredContent"], declared[name])
    failed = (await client.ask("tools/call", {"name": "gpio", "arguments": {"line": "no"}}))[
        "result"
    ]
    assert failed["isError"] is True
    assert "structuredContent" not in failed
    for one in tools:
        assert one["title"]
        assert one["icons"][0]["src"].startswith("data:image/svg+xml,")
        assert one["annotations"].keys() >= {"readOnlyHint", "destructiveHint", "idempotentHint"}
