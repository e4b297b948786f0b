"""The client's side of a session, against a scripted peer in this process."""

import asyncio
import json

import msgspec
import pytest

from edged.errors import TooLargeError, UpstreamError
from edged.jsonrpc import VALUES_MAX
from edged.mcp.client import (
    PENDING_MAX,
    Client,
    ExpiredError,
    InputWantedError,
    RemoteError,
)
from edged.mcp.types import MODERN

BOUND_S = 10.0
VERSION = "io.modelcontextprotocol/protocolVersion"
LEGACY_INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "old", "version": "1"},
}
MODERN_INFO = {
    "resultType": "complete",
    "supportedVersions": [MODERN],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}},
}
NOT_FOUND = {"code": -32601, "message": "no such method"}


OWN = "0123456789abcdef"


class Peer:
    """A link whose other end answers by `answers[method]`: a result, an error, a callable."""

    is_stream = True

    def __init__(self, **answers):
        self.answers = {name.replace("__", "/"): value for name, value in answers.items()}
        self.sent, self.abandoned = [], []
        self.client = Client(probe_s=0.01)
        self.client.link = self
        self.arrived = asyncio.Event()

    def send(self, message):
        body = json.loads(message.body)
        self.sent.append(body)
        self.arrived.set()
        answer = self.answers.get(body.get("method"), None)
        if answer is not None and message.id:
            self.reply(message.id, answer(body["params"]) if callable(answer) else answer)

    def reply(self, number, answer):
        is_error = isinstance(answer, dict) and answer.keys() == {"code", "message"}
        self.say({"id": number, "error" if is_error else "result": answer})

    def say(self, message):
        self.client.receive(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def abandon(self, request_id):
        self.abandoned.append(request_id)

    def methods(self):
        return [body.get("method") for body in self.sent]

    async def until(self, method):
        async with asyncio.timeout(BOUND_S):
            while not (found := [b for b in self.sent if b.get("method") == method]):
                self.arrived.clear()
                await self.arrived.wait()
        return found[-1]


async def opened(**answers):
    peer = Peer(initialize=LEGACY_INFO, server__discover=NOT_FOUND, **answers)
    await peer.client.open()
    peer.sent.clear()
    return peer


async def test_a_stateless_server_is_asked_once_and_never_greeted():
    """MCP 2026-07-28, versioning: `_meta` on every request, no `initialize`."""
    peer = Peer(server__discover=MODERN_INFO, tools__list={"tools": []})
    assert await peer.client.open() == "modern"
    await peer.client.tools()
    assert peer.methods() == ["server/discover", "tools/list"]
    for body in peer.sent:
        meta = body["params"]["_meta"]
        assert meta[VERSION] == MODERN
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "edged"
    assert peer.client.server == {"name": "new", "version": "2"}


@pytest.mark.parametrize(
    "refusal",
    [
        NOT_FOUND,
        {"code": -32602, "message": "Invalid request parameters"},
        {"code": -32000, "message": "Server not initialized"},
        {"supportedVersions": ["2025-11-25"]},
        [],
        None,
    ],
)
async def test_an_older_server_is_greeted_whatever_it_says_to_the_probe(refusal):
    """facts/mcp.md, 1.10: any other answer, and silence, means `initialize`."""
    peer = Peer(initialize=LEGACY_INFO, server__discover=refusal)
    assert await peer.client.open() == "legacy"
    greeting = await peer.until("initialize")
    assert "_meta" not in greeting["params"]
    assert peer.methods().count("notifications/initialized") == 1
    assert (peer.client.version, peer.client.server["name"]) == ("2025-06-18", "old")


async def test_a_known_era_is_not_asked_for_again():
    peer = Peer(initialize=LEGACY_INFO)
    await peer.client.open("legacy")
    assert peer.methods() == ["initialize", "notifications/initialized"]
    newer = Peer(initialize=NOT_FOUND, server__discover=MODERN_INFO)
    assert await newer.client.open("legacy") == "modern"


async def test_a_version_that_was_refused_and_is_supported_is_asked_again():
    """SEP-2575: data.supported of -32022 names it."""
    answers = []

    def discover(_):
        answers.append(1)
        return MODERN_INFO

    peer = Peer(server__discover=discover)
    opening = asyncio.ensure_future(peer.client.open())
    peer.answers["server/discover"] = None
    first = await peer.until("server/discover")
    peer.answers["server/discover"] = discover
    error = {"code": -32022, "message": "no", "data": {"supported": [MODERN]}}
    peer.say({"id": first["id"], "error": error})
    assert await opening == "modern"
    assert answers == [1]


async def test_a_revision_that_is_not_spoken_is_told():
    peer = Peer(server__discover=NOT_FOUND, initialize={**LEGACY_INFO, "protocolVersion": "1.0"})
    with pytest.raises(UpstreamError, match=r"it speaks MCP 1\.0, which edged does not"):
        await peer.client.open()


@pytest.mark.parametrize(
    "line",
    [
        b"Server running on stdio",
        b"{",
        b"[]",
        b"null",
        b'"id"',
        b'{"jsonrpc":"2.0"}',
        b'{"id":99,"result":{}}',
        b'{"id":"1","result":{}}',
        b'{"id":1.5,"result":{}}',
        b'{"id":null,"error":{"code":-32700,"message":"x"}}',
        b"\xff\xfe\x00",
        b'{"method":3}',
        b'{"method":"notifications/progress","params":[]}',
        b'{"method":"notifications/progress","params":{"progressToken":"x"}}',
        b'{"method":"unknown/notice"}',
        b"[" * 5_000,
    ],
)
async def test_whatever_a_peer_says_costs_at_most_its_own_request(line):
    """facts/mcp.md, faults 3 and 36: skipped and counted, the session goes on."""
    peer = await opened(tools__call={"content": [{"type": "text", "text": "ok"}]})
    peer.client.receive(line)
    called = await peer.client.call("t", b"{}")
    assert called.content == [{"type": "text", "text": "ok"}]
    if b'"method":"' not in line:
        assert peer.client.skipped == 1


async def test_an_answer_of_too_many_values_fails_its_own_call():
    """16 MiB of brackets would be several hundred MiB of objects."""
    peer = await opened()
    call = asyncio.ensure_future(peer.client.request("tools/call"))
    number = (await peer.until("tools/call"))["id"]
    peer.client.receive(b'{"id":%d,"result":[%b1]}' % (number, b"1," * (VALUES_MAX + 9)))
    with pytest.raises(TooLargeError, match="holds more than"):
        await call


async def test_a_line_too_long_fails_its_own_call():
    peer = await opened()
    call = asyncio.ensure_future(peer.client.request("tools/call"))
    other = asyncio.ensure_future(peer.client.request("other"))
    number = (await peer.until("tools/call"))["id"]
    await peer.until("other")
    peer.client.oversized(number, 17 << 20)
    with pytest.raises(TooLargeError, match="more than 16 MiB"):
        await call
    assert not other.done()
    peer.client.oversized(-1, 17 << 20)  # the only one left
    with pytest.raises(TooLargeError):
        await other


async def test_a_lost_peer_fails_all_that_waits_at_once_and_what_comes_later():
    """facts/mcp.md, fault 7."""
    peer = await opened()
    calls = [asyncio.ensure_future(peer.client.call("t", b"{}")) for _ in range(3)]
    await peer.until("tools/call")
    peer.client.lost(UpstreamError("it ended with exit status 3"))
    for call in calls:
        with pytest.raises(UpstreamError, match="exit status 3"):
            await call
    with pytest.raises(UpstreamError, match="exit status 3"):
        await peer.client.call("t", b"{}")
    assert peer.client.pending == 0


async def test_a_cancelled_call_is_told_to_the_peer_and_heard_of_no_more():
    """Cancellation: exactly one of result or silence (faults 9 and 10)."""
    peer = await opened()
    call = asyncio.ensure_future(peer.client.call("t", b"{}"))
    number = (await peer.until("tools/call"))["id"]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    told = await peer.until("notifications/cancelled")
    assert told["params"] == {"requestId": number}
    assert peer.abandoned == [number]
    peer.reply(number, {"content": []})
    assert peer.client.skipped == 1
    peer.answers["tools/call"] = {"content": []}
    await peer.client.call("t", b"{}")


async def test_progress_comes_by_its_token():
    seen = []
    peer = await opened()
    call = asyncio.ensure_future(peer.client.call("t", b"{}", on_progress=seen.append))
    body = await peer.until("tools/call")
    token = body["params"]["_meta"]["progressToken"]
    for more in ({"progress": 1, "total": 4}, {"progress": 2.5}, {"progress": 3, "message": "so"}):
        params = {"progressToken": token, **more}
        peer.say({"method": "notifications/progress", "params": params})
    peer.reply(body["id"], {"content": []})
    await call
    peer.say({"method": "notifications/progress", "params": {"progressToken": token}})
    assert seen == ["1 of 4", "2.5", "so"]


async def test_what_a_server_asks_is_refused_cleanly_and_a_ping_answered():
    peer = await opened()
    for number, method in enumerate(
        ("sampling/createMessage", "elicitation/create", "roots/list")
    ):
        peer.say({"id": f"s{number}", "method": method, "params": {}})
        assert peer.sent[-1]["id"] == f"s{number}"
        assert peer.sent[-1]["error"]["code"] == -32601
    peer.say({"id": 7, "method": "ping"})
    assert peer.sent[-1] == {"jsonrpc": "2.0", "id": 7, "result": {}}


async def test_a_wish_for_input_ends_the_call_with_what_was_wished_for():
    wished = {"confirm": {"method": "elicitation/create", "params": {}}}
    peer = await opened(tools__call={"resultType": "input_required", "inputRequests": wished})
    with pytest.raises(InputWantedError, match="elicitation/create, which edged passes on to"):
        await peer.client.call("t", b"{}")


async def test_an_opaque_state_alone_is_sent_back_as_it_came():
    """MCP 2026-07-28, MRTR: the same params, a new id, requestState to the letter."""
    state = '{"a": "b" }'

    def answer(params):
        if params.get("requestState") == state:
            return {"content": [{"type": "text", "text": "done"}]}
        return {"resultType": "input_required", "requestState": state}

    peer = await opened(tools__call=answer)
    assert (await peer.client.call("t", b'{"x":1}')).content[0]["text"] == "done"
    first, second = peer.sent
    assert first["id"] != second["id"]
    assert second["params"] == {"name": "t", "arguments": {"x": 1}, "requestState": state}
    endless = await opened(tools__call={"resultType": "input_required", "requestState": "s"})
    with pytest.raises(InputWantedError, match="8 times"):
        await endless.client.call("t", b"{}")


async def test_a_list_is_had_page_by_page_and_a_bad_tool_left_out_alone():
    """facts/mcp.md, fault 28; `nextCursor` absent is the end, and "" a cursor."""
    pages = {
        None: {"tools": [{"name": "a", "inputSchema": {"type": "object"}}, 3], "nextCursor": ""},
        "": {"tools": [{"name": 4}, {"name": "b", "extra": {}}, {"name": "a"}], "nextCursor": "x"},
        "x": {"tools": [{"name": "c"}], "nextCursor": "x"},
    }
    peer = await opened(tools__list=lambda params: pages[params.get("cursor")])
    found = await peer.client.tools()
    assert [tool.name for tool in found.tools] == ["a", "b", "c"]
    assert len(found.problems) == 4
    assert any("twice" in problem for problem in found.problems)
    assert any("same page" in problem for problem in found.problems)


async def test_a_tool_and_a_list_are_bounded_in_bytes_and_so_is_what_is_told():
    """A server cannot fill the memory, the disk or the log with what it lists."""
    kib = "x" * 1024
    large = {"name": "large", "description": kib * 257}
    peer = await opened(tools__list={"tools": [large, {"name": "t", "description": kib * 200}]})
    listing = await peer.client.tools()
    assert [(one.name, len(one.description)) for one in listing.tools] == [("t", 8_000)]
    assert listing.problems == ["tool 'large': it has 257 KiB, more than 256"]

    def page(params):
        number = int(params.get("cursor", 0))
        row = {"name": f"t{number}", "inputSchema": {"description": kib * 250}}
        return {"tools": [row], "nextCursor": str(number + 1)}

    peer = await opened(tools__list=page)
    listing = await peer.client.tools()
    assert len(listing.tools) == 8 * 1024 // 251
    assert listing.problems == ["only the first 8 MiB of its list are taken"]

    peer = await opened(tools__list={"tools": [{"name": "t"}] * 5_000})
    listing = await peer.client.tools()
    assert [one.name for one in listing.tools] == ["t"]
    assert set(listing.problems) == {"tool 't': it is listed twice"}
    assert len(listing.problems) == 200


async def test_no_list_is_a_failure_and_never_an_empty_one():
    """facts/mcp.md, fault 18."""
    peer = await opened(tools__list={"tools": "none"})
    with pytest.raises(UpstreamError, match="its list of tools is none"):
        await peer.client.tools()
    refused = await opened(tools__list={"code": -32603, "message": "down"})
    with pytest.raises(RemoteError, match=r"down \(-32603\)"):
        await refused.client.tools()


async def test_schemas_are_kept_as_they_came():
    """SEP-1613 and SEP-2106: no keyword is lost on the way."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"a": {"$anchor": "x"}},
              "allOf": [{"anyOf": [{}]}], "if": {}, "then": {}, "x": [1, None]}  # fmt: skip
    peer = await opened(tools__list={"tools": [{"name": "t", "inputSchema": schema}]})
    (tool,) = (await peer.client.tools()).tools
    assert tool.input_schema == schema


async def test_headers_are_made_where_requests_go_alone():
    """Streamable HTTP: invalid marks cost the tool, valid ones become headers."""
    schema = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}}
    bad = {"type": "object", "properties": {"r": {"type": "object", "x-mcp-header": "R"}}}
    listed = {
        "tools": [{"name": "good", "inputSchema": schema}, {"name": "bad", "inputSchema": bad}]
    }
    peer = Peer(server__discover=MODERN_INFO, tools__list=listed, tools__call={"content": []})
    peer.is_stream = False
    headers = []
    send = peer.send
    peer.send = lambda message: (headers.append((message.name, message.headers)), send(message))
    await peer.client.open()
    found = await peer.client.tools()
    assert [tool.name for tool in found.tools] == ["good"]
    assert "bad" in found.problems[0]
    await peer.client.call("good", b'{"r":"x"}')
    assert headers[-1] == ("good", {"Mcp-Param-R": "x"})


async def test_requests_to_one_server_are_bounded():
    peer = await opened()
    calls = [asyncio.ensure_future(peer.client.request("slow")) for _ in range(PENDING_MAX)]
    await peer.until("slow")
    await asyncio.sleep(0)
    with pytest.raises(UpstreamError, match="wait for its answers"):
        await peer.client.request("one more")
    peer.client.lost(ExpiredError("gone"))
    await asyncio.gather(*calls, return_exceptions=True)


async def test_arguments_are_sent_to_the_letter():
    """Big numbers and the order of names survive."""
    peer = await opened(tools__call={"content": []})
    bodies = []
    send = peer.send
    peer.send = lambda message: (bodies.append(message.body), send(message))
    await peer.client.call("t", b'{"b":1e2,"a":12345678901234567890}')
    assert b'"arguments":{"b":1e2,"a":12345678901234567890}' in bodies[0]
    assert msgspec.json.decode(bodies[0])["params"]["name"] == "t"


def reached(info, tools=()):
    """A peer whose client is the daemon `OWN`, without waiting for anything."""
    peer = Peer(initialize=info, tools__list={"tools": list(tools)})
    peer.client = Client(instance=OWN)
    peer.client.link = peer
    return peer


async def test_a_daemon_that_reaches_itself_refuses_itself():
    """Its tools would be listed again under longer names, again and again."""
    same = reached({**LEGACY_INFO, "_meta": {"edged/instance": OWN}})
    with pytest.raises(UpstreamError, match="it is this board itself"):
        await same.client.open("legacy")
    modern = Peer(server__discover={**MODERN_INFO, "_meta": {"edged/instance": OWN}})
    modern.client = Client(instance=OWN)
    modern.client.link = modern
    with pytest.raises(UpstreamError, match="it is this board itself"):
        await modern.client.open()


async def test_own_tools_that_come_back_over_another_board_are_left_out_with_a_word():
    other = "fedcba9876543210"
    tools = [
        {"name": "exec"},
        {"name": "mcp_a_exec", "_meta": {"edged/via": [OWN]}},
        {"name": "mcp_c_exec", "_meta": {"edged/via": ["c", OWN]}},
        {"name": "mcp_dice_roll", "_meta": {"edged/via": ["c"]}},
        {"name": "far", "_meta": {"edged/via": ["x"] * 16}},
    ]
    peer = reached({**LEGACY_INFO, "_meta": {"edged/instance": other}}, tools)
    await peer.client.open("legacy")
    found = await peer.client.tools()
    assert {tool.name: tool.via for tool in found.tools} == {
        "exec": (other,),
        "mcp_dice_roll": (other, "c"),
    }
    assert found.problems == [
        "tool 'far': it comes through over 16 boards",
        "2 of this board's own tools, which come back over it",
    ]


async def test_a_server_that_is_not_edged_is_in_no_path():
    peer = reached({**LEGACY_INFO, "_meta": {"edged/instance": 7}}, [{"name": "t", "_meta": 1}])
    await peer.client.open("legacy")
    assert [tool.via for tool in (await peer.client.tools()).tools] == [()]
