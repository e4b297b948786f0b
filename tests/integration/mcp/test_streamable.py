"""`/mcp` over real HTTP, where the official suite does not look."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest

from edged import results
from edged.identity import Caller
from edged.results import Result
from edged.testing import FakeClock, running
from edged.tool import Ask, Context, tool
from edged.transports._mcp import SESSIONS

BOUND_S = 20.0
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Nothing(msgspec.Struct, frozen=True):
    """No inputs."""


class Gate:
    """A tool that waits to be let through, and says how it ended."""

    def __init__(self):
        self.started, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.contexts = []

        @tool("gate")
        async def gate(params: Nothing, ctx: Context) -> Result:
            """Wait."""
            self.contexts.append(ctx)
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return results.text("through")

        self.tool = gate


@tool("asks")
async def asks(params: Nothing, ctx: Context) -> Result:
    """Ask."""
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    ask = Ask("elicitation/create", {"message": "Well?", "requestedSchema": schema})
    return results.text(json.dumps(await ctx.client.ask({"well": ask}, strict=True)))


class Door:
    def __init__(self, it, http, gate, clock):
        self.url, self.http, self.gate, self.clock, self.daemon = (
            f"{it.url}/mcp",
            http,
            gate,
            clock,
            it.daemon,
        )

    def post(self, body, **headers):
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return self.http.post(self.url, json=body, headers=ACCEPT | named)

    async def initialize(self, who="ada", version="2025-11-25", **capabilities):
        params = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"},
        }
        async with self.post(request(0, "initialize", params), X_Who=who) as response:
            assert response.status == 200, await response.text()
            return response.headers["Mcp-Session-Id"]

    async def busy(self, who):
        """A session in which a call goes on, whose response was cut."""
        session = await self.initialize(who)
        await self.begin(session, 1, who)
        return session

    async def begin(self, session, number, who="ada"):
        """Begin a call that waits, and hang up."""
        running = len(self.gate.contexts)
        body = request(number, "tools/call", {"name": "gate"})
        sent = asyncio.ensure_future(
            self.post(body, Mcp_Session_Id=session, X_Who=who).__aenter__()
        )
        async with asyncio.timeout(BOUND_S):
            while len(self.gate.contexts) == running:
                await asyncio.sleep(0)
        sent.cancel()

    async def asked(self, body, who="ada", session=""):
        """The status of one request."""
        named = {"Mcp_Session_Id": session} if session else {}
        async with self.post(body, X_Who=who, **named) as response:
            return response.status


def request(number, method, params=None):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def modern(number, method, params=None, **meta):
    base = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
    return request(number, method, {**(params or {}), "_meta": base | meta})


def headers_of(body):
    named = body["params"].get("name")
    return {"MCP_Protocol_Version": MODERN, "Mcp_Method": body["method"]} | (
        {"Mcp_Name": named} if named else {}
    )


async def event(response):
    """The next event that carries something: its id and its message."""
    mark, data = "", b""
    async with asyncio.timeout(BOUND_S):
        async for line in response.content:
            text = line.rstrip(b"\n")
            if text.startswith(b"id: "):
                mark = text[4:].decode()
            elif text.startswith(b"data: ") and len(text) > 6:
                data = text[6:]
            elif not text and data:
                return mark, json.loads(data)
            elif not text:
                if mark:
                    return mark, None
    raise AssertionError("the stream is over")


def identified(headers):
    who = headers.get("X-Who", "ada")
    return Caller("local", "owner" if who == "owner" else "agent", "", "http", f"token {who}")


@asynccontextmanager
async def opened(more=""):
    gate, clock = Gate(), FakeClock()
    with tempfile.TemporaryDirectory(prefix="edged-mcp-", dir="/var/tmp") as data:
        os.chmod(data, 0o755)
        async with (
            running(
                data=data,
                config="stop_grace: 100ms\nhttp: {rate: 10000, burst: 10000}\n" + more,
                tools=[gate.tool, asks],
                authenticate=identified,
                clock=clock,
                sim=False,
            ) as it,
            aiohttp.ClientSession() as http,
        ):
            yield Door(it, http, gate, clock)


@pytest.fixture
async def door():
    async with opened() as it:
        yield it


# The stateless revision -------------------------------------------------------------------


async def test_who_closes_a_stateless_response_cancels_its_call(door):
    """Fault 11: the tool must not go on; MCP 2026-07-28, cancellation."""
    body = modern(1, "tools/call", {"name": "gate"})
    sent = asyncio.ensure_future(door.post(body, **headers_of(body)).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
        sent.cancel()
        await door.gate.cancelled.wait()


async def test_progress_comes_as_events_before_the_answer(door):
    """MCP 2026-07-28, Streamable HTTP: JSON where the answer is all, else events."""
    body = modern(1, "tools/call", {"name": "gate"}, progressToken="p")
    sent = asyncio.ensure_future(door.post(body, **headers_of(body)).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    door.gate.contexts[0].client.progress(1, 2, "half")
    response = await sent
    assert response.content_type == "text/event-stream"
    assert response.headers["X-Accel-Buffering"] == "no"
    _, note = await event(response)
    assert note["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
    door.gate.go.set()
    _, answer = await event(response)
    assert answer["result"]["content"][0]["text"] == "through"
    door.gate.contexts[0].client.progress(2, 2, "after the end")
    assert await response.content.read() == b""
    response.close()


async def test_an_answer_alone_is_plain_json(door):
    """Facts, section 3: events cost twice the processor."""
    door.gate.go.set()
    body = modern(1, "tools/call", {"name": "gate"}, progressToken="p")
    async with door.post(body, **headers_of(body)) as response:
        assert response.content_type == "application/json"
        assert (await response.json())["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"MCP_Protocol_Version": "2025-11-25"}, -32020),
        ({"Mcp_Method": "tools/list"}, -32020),
        ({"Mcp_Name": "other"}, -32020),
        ({"Mcp_Name": "=?base64?Z2F0ZQ?="}, -32020),
    ],
)
async def test_headers_that_do_not_say_what_the_body_says_are_refused(door, changed, code):
    """MCP 2026-07-28, server validation: 400 and HeaderMismatch."""
    body = modern(1, "tools/call", {"name": "gate"})
    async with door.post(body, **(headers_of(body) | changed)) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == code
    assert not door.gate.contexts


async def test_a_version_that_nobody_speaks_is_refused_with_those_that_are_spoken(door):
    """MCP 2026-07-28, versioning: UnsupportedProtocolVersion; in a session and without one."""
    session = await door.initialize()
    old = {"MCP_Protocol_Version": "1999-01-01"}
    body = modern(1, "tools/call", {"name": "gate"})
    body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1999-01-01"
    for asked, headers in (
        (request(2, "tools/list"), {"Mcp_Session_Id": session} | old),
        (request(2, "tools/list"), old),
        (body, headers_of(body) | old),
    ):
        async with door.post(asked, **headers) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert error["code"] == -32022
        assert error["data"]["supported"][:2] == ["2026-07-28", "2025-11-25"]
        assert error["message"] == (
            "protocol version '1999-01-01' is not supported: this server speaks 2026-07-28, "
            "2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05"
        )


async def test_a_body_without_the_version_of_its_header_is_told_what_it_lacks(door):
    async with door.post(request(1, "tools/list"), MCP_Protocol_Version="2026-07-28") as response:
        error = (await response.json())["error"]
    assert error["message"] == (
        "params._meta.io.modelcontextprotocol/protocolVersion: is required"
    )


async def test_a_wrapped_name_is_read(door):
    """MCP 2026-07-28, value encoding."""
    door.gate.go.set()
    body = modern(1, "tools/call", {"name": "gate"})
    named = headers_of(body) | {"Mcp_Name": "=?base64?Z2F0ZQ==?="}
    async with door.post(body, **named) as response:
        assert (await response.json())["result"]["isError"] is False


async def test_a_bare_request_is_refused(door):
    """Contract, section 5: `/mcp` refuses it."""
    async with door.post(request(1, "tools/list")) as response:
        assert response.status == 400
        assert "initialize" in (await response.json())["error"]["message"]


async def test_state_of_another_caller_or_request_is_refused(door):
    """MCP 2026-07-28, multi round-trip requests: hostile until proven ours."""
    can = {PREFIX + "clientCapabilities": {"elicitation": {}}}
    body = modern(1, "tools/call", {"name": "asks"}, **can)
    async with door.post(body, **headers_of(body)) as response:
        result = (await response.json())["result"]
    assert result["resultType"] == "input_required"
    said = {"well": {"action": "accept", "content": {"ok": True}}}
    again = {"inputResponses": said, "requestState": result["requestState"]}

    async def answered(params, who="ada"):
        body = modern(2, "tools/call", {"name": "asks", **params}, **can)
        async with door.post(body, X_Who=who, **headers_of(body)) as response:
            return await response.json()

    assert "another caller" in (await answered(again, "eve"))["error"]["message"]
    other = {**again, "arguments": {"x": 1}}
    assert "another request" in (await answered(other))["error"]["message"]
    # Without the state nothing shows that it was asked.
    unasked = await answered({"inputResponses": said})
    assert unasked["result"]["resultType"] == "input_required"
    assert (await answered(again))["result"]["resultType"] == "complete"
    door.clock.advance(601)
    assert "too old" in (await answered(again))["error"]["message"]


async def test_a_subscription_ends_with_an_answer_when_the_daemon_stops(tmp_path):
    """MCP 2026-07-28, subscriptions: graceful closure."""
    async with opened() as door:
        body = modern(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        response = await door.post(body, **headers_of(body)).__aenter__()
        _, first = await event(response)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        stopping = asyncio.ensure_future(door.daemon._http.close_connections())
        _, last = await event(response)
        assert last["result"] == {
            "resultType": "complete",
            "_meta": {PREFIX + "subscriptionId": 7},
        }
        await stopping
        response.close()


@pytest.mark.parametrize("stateless", [True, False])
async def test_what_may_be_lost_of_a_call_is_lost_beyond_a_mebibyte_that_waits(door, stateless):
    """Fault 12: messages of a call wait for the reader of its own response."""
    if stateless:
        body = modern(1, "tools/call", {"name": "gate"}, **{PREFIX + "logLevel": "debug"})
        named = headers_of(body)
    else:
        body = request(1, "tools/call", {"name": "gate"})
        named = {"Mcp_Session_Id": await door.initialize()}
    sent = asyncio.ensure_future(door.post(body, **named).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    for _ in range(64):
        door.gate.contexts[0].client.log("info", "x" * (64 << 10))
    response, lengths = await sent, []
    while "result" not in (message := (await event(response))[1] or {}):
        if message:
            lengths.append(len(message["params"]["data"]))
            door.gate.go.set()
    assert lengths == [64 << 10] * 16
    response.close()


# Sessions ---------------------------------------------------------------------------------


async def test_a_cut_response_cancels_nothing_in_a_session_and_is_resumed(door):
    """MCP 2025-11-25, resumability: a message goes out once, and again when asked for."""
    session = await door.initialize()
    body = request(1, "tools/call", {"name": "gate", "_meta": {"progressToken": 1}})
    sent = asyncio.ensure_future(door.post(body, Mcp_Session_Id=session).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    door.gate.contexts[0].client.progress(1)
    response = await sent
    primed, nothing = await event(response)
    assert nothing is None
    mark, note = await event(response)
    assert note["params"]["progress"] == 1
    response.close()
    door.gate.go.set()
    for last, wanted in ((mark, [None]), (primed, [1, None])):
        named = {"Mcp-Session-Id": session, "Last-Event-ID": last, **ACCEPT}
        async with door.http.get(door.url, headers=named) as again:
            assert again.status == 200
            got = []
            while len(got) < len(wanted):
                _, message = await event(again)
                if message is not None:
                    got.append(message.get("params", {}).get("progress"))
            assert got == wanted
            assert message["result"]["content"][0]["text"] == "through"
    assert not door.gate.cancelled.is_set()


async def test_answers_that_wait_to_be_asked_for_are_bounded_over_all_sessions(door):
    """A mebibyte of the board's memory; who has most loses their largest."""
    sessions = [(await door.initialize(who), who) for who in ("ada", "ada", "eve")]
    named = [{"Mcp-Session-Id": name, "X-Who": who, **ACCEPT} for name, who in sessions]
    marks = []
    for number, (name, who) in enumerate(sessions):
        body = request(1, "tools/call", {"name": "gate", "_meta": {"progressToken": 1}})
        sent = door.post(body, Mcp_Session_Id=name, X_Who=who).__aenter__()
        response = asyncio.ensure_future(sent)
        async with asyncio.timeout(BOUND_S):
            while len(door.gate.contexts) == number:
                await asyncio.sleep(0)
        door.gate.contexts[number].client.progress(1)
        marks.append((await event(await response))[0])
        (await response).close()
    for ctx, size in zip(door.gate.contexts, (700, 600, 300), strict=True):
        ctx.client.log("info", "x" * (size << 10))
    # A whole exchange of each: the door has seen by then that the streams were cut.
    for headers in named:
        async with door.http.post(door.url, json=request(2, "ping"), headers=headers) as pong:
            assert await pong.json()
    door.gate.go.set()
    got = []
    for headers, mark in zip(named, marks, strict=True):
        headers["Last-Event-ID"] = mark
        async with door.http.head(door.url, headers=headers) as head:
            assert head.status == 200
        async with door.http.get(door.url, headers=headers) as again:
            async with asyncio.timeout(BOUND_S):
                got.append(len(await again.read()) >> 10)
    assert got == [0, 600, 300]


async def test_a_request_of_a_session_that_ends_is_told(door):
    """MCP 2025-11-25: 404 is how a client learns that its session is over."""
    session = await door.initialize()
    body = request(1, "tools/call", {"name": "gate"})
    sent = asyncio.ensure_future(door.post(body, Mcp_Session_Id=session).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
        async with door.http.delete(door.url, headers={"Mcp-Session-Id": session}) as ended:
            assert ended.status == 204
        response = await sent
    assert response.status == 404
    response.close()


async def test_a_session_is_of_one_chat(door):
    """README: the agent cannot speak past the headers, in a session neither."""
    session = await door.initialize()
    body = request(1, "tools/list")
    for named in ({"Edged_Channel": "stream"}, {"Edged_Channel": "stream", "Edged_Chat": "9"}):
        async with door.post(body, Mcp_Session_Id=session, X_Who="ada", **named) as response:
            assert response.status == 400
            assert "are of a whole session" in (await response.json())["detail"]
    assert await door.asked(body, session=session) == 200


@pytest.mark.parametrize(
    ("meta", "refused"),
    [
        ({}, False),
        ({"edged/channel": "stream", "edged/chat_id": "1"}, False),
        ({"edged/chat_id": "5"}, True),
        ({"edged/channel": "telegram", "edged/chat_id": "1"}, True),
    ],
)
async def test_what_headers_name_is_not_replaced_by_the_body(door, meta, refused):
    body = modern(
        1, "tools/call", {"name": "tool_search_tool_bm25", "arguments": {"query": "x"}}, **meta
    )
    named = {"Edged_Channel": "stream", "Edged_Chat": "1", "X_Who": "ada"}
    async with door.post(body, **headers_of(body), **named) as response:
        answer = await response.json()
    assert ("names another channel or chat" in str(answer)) is refused
    assert ("error" in answer) is refused, answer


async def test_a_session_is_its_tokens_and_over_when_it_is_ended(door):
    """MCP 2025-11-25, session management; fault 14: DELETE frees."""
    session = await door.initialize()
    ping = request(1, "ping")
    async with door.post(ping, Mcp_Session_Id=session, X_Who="eve") as response:
        assert response.status == 404
    async with door.post(request(2, "tools/call", {"name": "gate"})) as response:
        assert response.status == 400
    sent = asyncio.ensure_future(
        door.post(request(3, "tools/call", {"name": "gate"}), Mcp_Session_Id=session).__aenter__()
    )
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    async with door.http.delete(door.url, headers={"Mcp-Session-Id": session}) as response:
        assert response.status == 204
    async with asyncio.timeout(BOUND_S):
        await door.gate.cancelled.wait()
    sent.cancel()
    async with door.post(ping, Mcp_Session_Id=session) as response:
        assert response.status == 404


async def test_a_session_grows_old_but_not_while_a_call_runs(door):
    """Fault 14: an idle timer must not end active calls."""
    session = await door.initialize()
    body = request(1, "tools/call", {"name": "gate"})
    sent = asyncio.ensure_future(door.post(body, Mcp_Session_Id=session).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    door.clock.advance(4_000)
    await door.initialize()
    door.gate.go.set()
    response = await sent
    async with asyncio.timeout(BOUND_S):
        assert b"through" in await response.content.readline() + await response.content.read()
    response.close()
    door.clock.advance(4_000)
    await door.initialize()
    async with door.post(request(2, "ping"), Mcp_Session_Id=session) as response:
        assert response.status == 404


async def test_sessions_are_bounded_and_the_idle_make_room(door):
    """Fault 14: a cap; who has most gives one back."""
    first = await door.initialize("eve")
    for _ in range(SESSIONS + 3):
        await door.initialize("ada")
    async with door.post(request(2, "ping"), Mcp_Session_Id=first, X_Who="eve") as response:
        assert response.status == 200


async def test_no_agent_takes_all_sessions_and_owners_always_get_one(door):
    """A quarter for each token, whatever goes on in them; for an owner a busy one ends."""
    initialize = request(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    for who in ("ada", "bob", "eve"):
        for _ in range(SESSIONS // 4):
            await door.busy(who)
        assert await door.asked(initialize, who) == 429
    assert await door.asked(initialize, "dan") == 429
    assert not door.gate.cancelled.is_set()
    mine = [await door.busy("owner") for _ in range(SESSIONS // 4)]
    assert not door.gate.cancelled.is_set()
    mine.append(await door.busy("owner"))
    async with asyncio.timeout(BOUND_S):
        await door.gate.cancelled.wait()
    for session in mine:
        assert await door.asked(request(2, "ping"), "owner", session) == 200


async def test_agents_make_room_only_of_what_owners_have_beyond_their_places(door):
    """Clients that never end a session cost others none: the idle of who has most go."""
    mine = [await door.initialize("owner") for _ in range(SESSIONS)]
    theirs = [await door.initialize("ada") for _ in range(SESSIONS // 4 + 1)]
    ping = request(1, "ping")
    found = [await door.asked(ping, "owner", session) for session in mine]
    assert found == [404] * (SESSIONS // 4) + [200] * (SESSIONS * 3 // 4)
    found = [await door.asked(ping, "ada", session) for session in theirs]
    assert found == [404] + [200] * (SESSIONS // 4)


async def test_a_session_has_as_many_calls_in_flight_as_a_connection():
    """`socket.max_calls`: a cut response ends no call, so that its place does not count them."""
    async with opened("socket: {max_calls: 2}") as door:
        session = await door.initialize()
        for number in (1, 2):
            await door.begin(session, number)
        ping = request(3, "ping")
        async with door.post(ping, Mcp_Session_Id=session) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "1")
            assert "socket.max_calls" in (await response.json(content_type=None))["detail"]
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        assert await door.asked({**cancel, "params": {"requestId": 1}}, session=session) == 202
        assert await door.asked(ping, session=session) == 200


async def test_what_only_sessions_have_is_not_allowed_without_one(door):
    """Fault 34: 405 with Allow, not a stream that ends at once."""
    for method in ("GET", "DELETE"):
        async with door.http.request(method, door.url, headers=ACCEPT) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")


async def test_a_list_that_changes_is_told_on_the_streams_that_wait(door):
    """Faults 31 and 34: a real stream, and every subscriber hears once."""
    session = await door.initialize()
    named = {"Mcp-Session-Id": session, **ACCEPT}
    async with door.http.get(door.url, headers=named) as stream:
        body = modern(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        async with door.post(body, **headers_of(body)) as listen:
            assert (await event(listen))[1]["method"].endswith("acknowledged")
            for _ in range(5):
                door.daemon.registry.touch()
            _, note = await event(listen)
            assert note["method"] == "notifications/tools/list_changed"
            assert note["params"]["_meta"] == {PREFIX + "subscriptionId": 1}
            message = None
            while message is None:
                _, message = await event(stream)
            assert message["method"] == "notifications/tools/list_changed"


async def test_questions_in_a_session_go_where_the_call_is(door):
    """MCP 2025-11-25: a message goes to exactly one stream; elicitation."""
    session = await door.initialize(elicitation={})
    body = request(1, "tools/call", {"name": "asks"})
    async with door.post(body, Mcp_Session_Id=session) as response:
        question = None
        while question is None:
            _, question = await event(response)
        assert question["method"] == "elicitation/create"
        reply = {"jsonrpc": "2.0", "id": question["id"]}
        reply["result"] = {"action": "accept", "content": {"ok": True}}
        async with door.post(reply, Mcp_Session_Id=session) as taken:
            assert (taken.status, await taken.read()) == (202, b"")
        _, answer = await event(response)
        assert json.loads(answer["result"]["content"][0]["text"])["well"]["action"] == "accept"


async def test_equal_ids_of_two_clients_reach_each_its_own(door):
    """Fault 25 (CVE-2026-25536): answers are kept apart by session and id."""
    one, two = await door.initialize(), await door.initialize("eve")
    body = request(1, "tools/call", {"name": "gate"})
    sent = [
        asyncio.ensure_future(door.post(body, Mcp_Session_Id=name, X_Who=who).__aenter__())
        for name, who in ((one, "ada"), (two, "eve"))
    ]
    async with asyncio.timeout(BOUND_S):
        while len(door.gate.contexts) < 2:
            await asyncio.sleep(0)
    door.gate.go.set()
    for response in await asyncio.gather(*sent):
        assert b"through" in await response.read()
        response.close()
    assert [ctx.caller.peer for ctx in door.gate.contexts] == ["token ada", "token eve"]


async def test_malformed_traffic_costs_only_its_own_request(door):
    """Fault 36."""
    session = await door.initialize()
    for raw in (b"", b"[]", b"{", b"null", b'{"jsonrpc":"2.0"}', b"\xff", b"[" * 100_000):
        named = {"Mcp-Session-Id": session, "Content-Type": "application/json", **ACCEPT}
        async with door.http.post(door.url, data=raw, headers=named) as response:
            assert response.status == 400, raw[:20]
            assert (await response.json())["error"]["code"] in (-32700, -32600, -32602)
    async with door.post(request(2, "ping"), Mcp_Session_Id=session) as response:
        assert (await response.json())["result"] == {}


async def test_an_initialize_that_is_refused_leaves_no_session(door):
    """Fault 14: reject before anything is kept."""
    body = request(0, "initialize", {"protocolVersion": 7})
    async with door.post(body) as response:
        name = response.headers["Mcp-Session-Id"]
        assert (await response.json())["error"]["code"] == -32602
    async with door.post(request(1, "ping"), Mcp_Session_Id=name) as response:
        assert response.status == 404


async def test_notices_that_nobody_reads_hold_up_no_progress(door):
    """Fault 12: what waits on one stream is no matter of another."""
    session = await door.initialize()
    connection = door.daemon._http._api.sessions._sessions[session].connection
    for _ in range(300):
        connection.changed("prompts")
    body = request(1, "tools/call", {"name": "gate", "_meta": {"progressToken": 1}})
    sent = asyncio.ensure_future(door.post(body, Mcp_Session_Id=session).__aenter__())
    async with asyncio.timeout(BOUND_S):
        await door.gate.started.wait()
    door.gate.contexts[0].client.progress(1)
    response = await sent
    note = None
    while note is None:
        _, note = await event(response)
    assert note["method"] == "notifications/progress"
    response.close()
