"""One MCP connection, sans I/O (contract, section 5; MCP 2024-11-05 to 2026-07-28)."""

import asyncio
import gc
import weakref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import __version__, results
from edged.audit import Trail
from edged.config import Config
from edged.control import Catalogue, Control
from edged.dispatch import Dispatcher
from edged.errors import StoreError
from edged.events import Events
from edged.identity import Caller
from edged.mcp.methods import BACKLOG_MAX
from edged.mcp.server import Connection, mcp_result
from edged.mcp.types import LEGACY, MODERN
from edged.registry import PAGE, Registry
from edged.results import ResourceLink, Result, Text, Truncated
from edged.services import Services
from edged.testing.clock import FakeClock
from edged.tool import READS, Context, Tool, tool

META = "io.modelcontextprotocol/"
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
STATELESS = {f"{META}protocolVersion": MODERN, f"{META}clientCapabilities": {}}
OWN = {f"{META}serverInfo": {"name": "edged", "title": "edged", "version": __version__}}


class Say(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


@tool("say", hints=READS)
def say(params: Say, _ctx: Context) -> Result:
    """Says it."""
    return results.text(params.text)


@tool("say_later")
async def say_later(params: Say, _ctx: Context) -> Result:
    """Says it after a moment."""
    await asyncio.sleep(0)
    return results.text(params.text)


@tool("whoami")
def whoami(_params: Nothing, ctx: Context) -> Result:
    """Tells who calls."""
    return results.text("", structured=msgspec.to_builtins(ctx.caller))


@tool("search")
def search(_params: Nothing, ctx: Context) -> Result:
    """Promotes the hidden tool for one turn."""
    ctx.promote(["deep"], 1)
    return results.text("found")


@tool("deep", hidden=True)
def deep(_params: Nothing, _ctx: Context) -> Result:
    """Is found by searching."""
    return results.text("deep")


class Gate:
    """A tool that waits until the test says so."""

    def __init__(self):
        self.contexts, self.go, self.ended = [], asyncio.Event(), asyncio.Event()
        self.started = asyncio.Event()

        @tool("gate")
        async def gate(params: Say, ctx: Context) -> Result:
            """Waits."""
            self.contexts.append(ctx)
            self.started.set()
            try:
                await self.go.wait()
            finally:
                self.ended.set()
            return results.text(params.text)

        self.tool = gate


@pytest.fixture
def gate(core):
    made = Gate()
    core.add(made.tool, say, say_later, whoami, search, deep)
    return made


def call(name, meta=None, **arguments):
    params = {"name": name, "arguments": arguments}
    return params if meta is None else {**params, "_meta": meta}


async def settle():
    """Everything that can happen now has happened: the loop came round a few times."""
    for _ in range(10):
        await asyncio.sleep(0)


# Beginning --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_answers_with_the_version_that_was_asked_for(peer, version):
    """MCP, lifecycle: some clients treat another as fatal, so all four are echoed."""
    asked = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c"}}
    answer = await peer.ask("initialize", asked)
    result = answer["result"]
    assert result["protocolVersion"] == version
    assert result["capabilities"] == CAPABILITIES
    assert result["serverInfo"]["name"] == "edged"
    assert result["serverInfo"]["version"] == __version__
    assert "tool_describe" in result["instructions"]
    assert not {"resultType", "_meta", "ttlMs"} & set(result)
    peer.say("notifications/initialized")
    assert len(peer.sent) == 1


@pytest.mark.parametrize(
    "params", [{"protocolVersion": "1999-01-01"}, {"protocolVersion": MODERN}, {}, None]
)
async def test_initialize_with_a_version_that_it_does_not_have_gets_the_newest(peer, params):
    """MCP, lifecycle: another version that the server supports, the latest one."""
    answer = await peer.ask("initialize", params)
    assert answer["result"]["protocolVersion"] == "2025-11-25"


async def test_bare_requests_are_served(peer, gate):
    """Contract, section 5: without `initialize` or `_meta`, in the older shape."""
    answer = await peer.ask("tools/call", call("say", text="hi"))
    assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]
    assert answer["result"]["isError"] is False
    assert "resultType" not in answer["result"]
    listed = await peer.ask("tools/list")
    assert set(listed["result"]) == {"tools"}


async def test_discover_tells_what_is_spoken_before_anything_else(peer):
    """MCP 2026-07-28: must work first, and clients that probe may still initialize."""
    for meta in ({}, {"_meta": STATELESS}):
        answer = await peer.ask("server/discover", meta)
        result = answer["result"]
        assert result["supportedVersions"] == [MODERN, *LEGACY]
        assert result["resultType"] == "complete"
        assert result["capabilities"] == {
            **CAPABILITIES,
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] == "private"
        assert result["_meta"] == OWN
    assert (await peer.ask("initialize"))["result"]["protocolVersion"] == "2025-11-25"


async def test_a_stateless_request_is_answered_in_its_own_shape(peer, gate):
    """MCP 2026-07-28: `resultType`, `ttlMs`, `cacheScope`, the server under `_meta`."""
    answer = await peer.ask("tools/call", call("say", STATELESS, text="hi"))
    result = answer["result"]
    assert result["resultType"] == "complete"
    assert result["_meta"].items() >= OWN.items()
    assert "ttlMs" not in result
    later = await peer.ask("tools/call", call("say_later", STATELESS, text="hi"))
    assert later["result"]["resultType"] == "complete"
    listed = (await peer.ask("tools/list", {"_meta": STATELESS}))["result"]
    assert (listed["resultType"], listed["cacheScope"]) == ("complete", "private")
    assert listed["ttlMs"] >= 0
    assert listed["_meta"] == OWN


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover", "nothing"])
async def test_a_revision_that_is_not_spoken_is_refused_with_those_that_are(peer, gate, method):
    """MCP 2026-07-28: -32022 with `supported` and `requested`."""
    meta = {**STATELESS, f"{META}protocolVersion": "2099-01-01"}
    error = (await peer.ask(method, call("say", meta)))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": [MODERN, *LEGACY], "requested": "2099-01-01"}


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_stateless_meta_without_what_it_must_have_is_refused(peer, gate, method):
    """MCP 2026-07-28: missing `clientCapabilities` is -32602."""
    meta = {f"{META}protocolVersion": MODERN}
    error = (await peer.ask(method, call("say", meta)))["error"]
    assert error["code"] == -32602
    assert f"{META}clientCapabilities" in error["message"]


async def test_an_older_revision_in_meta_is_served_in_the_older_shape(peer, gate):
    """Facts, fault 35: clients mix eras; nobody is refused for it."""
    meta = {f"{META}protocolVersion": "2025-11-25"}
    assert "resultType" not in (await peer.ask("tools/list", {"_meta": meta}))["result"]
    assert "resultType" not in (await peer.ask("tools/call", call("say", meta)))["result"]


@pytest.mark.parametrize("method", ["initialize", "ping"])
async def test_methods_of_older_revisions_are_unknown_to_the_stateless_one(peer, method):
    """MCP 2026-07-28: -32601."""
    error = (await peer.ask(method, {"_meta": STATELESS}))["error"]
    assert error["code"] == -32601


async def test_ping_is_answered_at_once(peer):
    """MCP: an empty result, before and after `initialize`."""
    assert (await peer.ask("ping"))["result"] == {}
    await peer.ask("initialize")
    assert (await peer.ask("ping"))["result"] == {}


# Lists ------------------------------------------------------------------------------------


def many(count):
    return [Tool(f"t{i:05}", say.run, description="", make_type=lambda: Say) for i in range(count)]


async def test_a_long_list_is_read_page_by_page(core, peer):
    """MCP, pagination: `nextCursor` is opaque, absent at the end."""
    core.registry.replace_set("", many(2 * PAGE + 1))
    found, params = [], {}
    for number in range(3):
        result = (await peer.ask("tools/list", params))["result"]
        found += [t["name"] for t in result["tools"]]
        assert ("nextCursor" in result) is (number < 2)
        params = {"cursor": result.get("nextCursor", "")}
    assert found == [f"t{i:05}" for i in range(2 * PAGE + 1)]
    first = (await peer.ask("tools/list", params))["result"]["tools"]
    assert first[0]["name"] == "t00000", "an empty cursor is the beginning"


@pytest.mark.parametrize(
    "cursor", ["x", "p", "q1", "p-1", "p٣", "p1 ", "p9999999", "p7", 1, ["p1"]]
)
async def test_a_cursor_that_it_never_gave_is_refused(peer, cursor):
    """MCP, pagination: -32602."""
    error = (await peer.ask("tools/list", {"cursor": cursor}))["error"]
    assert error["code"] == -32602


async def test_a_promotion_shows_in_the_sessions_list_and_is_told(core, peer, gate):
    """Contract, section 9: promotion and expiry send `list_changed` to the session."""

    async def listed(method="tools/list", **params):
        result = (await peer.ask(method, params))["result"]
        return [t["name"] for t in result["tools"]]

    await peer.ask("initialize")
    changed = "notifications/tools/list_changed"
    assert "deep" not in await listed()
    await peer.ask("tools/call", call("search"))
    assert peer.notes(changed) == [{}]
    assert "deep" in await listed()
    assert "deep" in await listed("edged/definitions")
    peer.say("edged/turn")
    assert (await peer.ask("tools/call", call("deep")))["result"]["isError"] is False
    peer.say("edged/turn")
    assert len(peer.notes(changed)) == 2
    assert "deep" not in await listed()
    error = (await peer.ask("tools/call", call("deep")))["error"]
    assert error["code"] == -32602


async def test_what_an_owner_set_is_dropped_by_its_key(core, peer, gate):
    """Contract, section 3; `edged config --reset` asks the daemon that runs."""
    core.control.switch(core.owner, "say", False)
    answer = await peer.ask("edged/config/reset", {"key": "tools.say"})
    assert answer["result"] == {"dropped": {"tools.say.enabled": False}}
    assert (await peer.ask("edged/config/reset", {}))["error"]["code"] == -32602


async def test_the_stateless_list_never_varies_by_promotion(core, peer, gate):
    """Contract, section 9; facts 0.3. The tool is reached, since the identity has it."""
    await peer.ask("initialize")
    await peer.ask("tools/call", call("search"))
    before = (await peer.ask("tools/list", {"_meta": STATELESS}))["result"]["tools"]
    assert "deep" not in [t["name"] for t in before]
    error = (await peer.ask("tools/call", call("deep", STATELESS)))["error"]
    assert error["code"] == -32602, "the connection's session is not the identity's"
    await peer.ask("tools/call", call("search", STATELESS))
    after = (await peer.ask("tools/list", {"_meta": STATELESS}))["result"]["tools"]
    assert after == before
    assert (await peer.ask("tools/call", call("deep", STATELESS)))["result"]["isError"] is False


async def test_bare_requests_share_the_session_of_their_identity(core, peer, agent, gate):
    """Contract, section 4: for all else, the identity."""
    await peer.ask("tools/call", call("search"))
    other = type(peer)(core)
    assert "result" in await other.ask("tools/call", call("deep"))
    assert "error" in await agent.ask("tools/call", call("deep"))
    assert (await other.ask("edged/turn"))["result"] == {}
    assert (await peer.ask("edged/turn", {"_meta": STATELESS}))["result"]["resultType"]
    assert "error" in await peer.ask("tools/call", call("deep"))


async def test_a_session_has_a_name_of_its_own_and_its_caller_carries_it(core, peer, gate):
    """Contract, section 4: what belongs to a session is kept under an unguessable name."""
    await peer.ask("initialize")
    await peer.ask("initialize")
    other = type(peer)(core)
    await other.ask("initialize")

    async def session(one, meta=None):
        answer = await one.ask("tools/call", call("whoami", meta))
        return answer["result"]["structuredContent"]["session"]

    mine = await session(peer)
    assert len(mine) == 16
    assert await session(peer) == mine
    assert await session(other) != mine
    assert await session(peer, STATELESS) == ""
    assert core.audited()[0].session == mine


async def test_a_change_is_told_once_until_the_list_is_read_again(core, peer):
    """Facts, fault 31: debounced; clients that never read are not flooded."""
    peer.connection.tools_changed()
    assert not peer.sent, "only sessions with `initialize` are told"
    await peer.ask("initialize")
    for _ in range(3):
        peer.connection.tools_changed()
    await peer.ask("tools/list")
    peer.connection.tools_changed()
    assert len(peer.notes("notifications/tools/list_changed")) == 2


# Calls ------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_a_protocol_error(peer, gate):
    """MCP, tools: -32602, not `isError`."""
    error = (await peer.ask("tools/call", call("sya")))["error"]
    assert error["code"] == -32602
    assert error["data"] == {"code": "unknown_tool", "retryable": False}
    assert "did you mean 'say'" in error["message"]


async def test_arguments_that_do_not_fit_are_the_models_to_mend(peer, gate):
    """MCP since 2025-11-25: `isError`, since the model can fix it."""
    for meta in (None, STATELESS):
        result = (await peer.ask("tools/call", call("say", meta, txt="hi")))["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"].startswith("say: txt: is not an input")
        assert "edged/for_llm" not in result["_meta"]
        assert ("resultType" in result) is (meta is not None)


async def test_a_tool_that_is_off_is_refused_with_a_code_of_our_own(core, peer, gate):
    """Codes outside -32768..-32000 are free for applications."""
    core.registry.set_switches({"say": False})
    error = (await peer.ask("tools/call", call("say")))["error"]
    assert (error["code"], error["data"]["code"]) == (-31009, "unavailable")


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"name": 1},
        {"name": "say", "_meta": []},
        {"name": "say", "_meta": {"edged/timeout": "1"}},
    ],
)
async def test_malformed_params_are_refused(peer, gate, params):
    """JSON-RPC: -32602."""
    error = (await peer.ask("tools/call", params))["error"]
    assert error["code"] == -32602


async def test_a_tool_that_was_added_a_moment_ago_is_found(core, peer):
    """Contract, section 4: directories are checked again on a list and on a miss."""
    core.waits = asyncio.get_running_loop().create_future()
    for number, (method, params) in enumerate(
        [
            ("tools/call", call("say", text="hi")),
            ("tools/list", None),
            ("edged/describe", {"name": "say"}),
            ("edged/tools/state", None),
            ("edged/definitions", None),
        ]
    ):
        peer.say(method, params, id=f"w{number}")
    peer.say("edged/describe", {"name": "nothing"}, id="missing")
    peer.say("edged/definitions", {"format": "xml"}, id="format")
    assert (peer.connection.pending, peer.sent) == (7, [])
    core.add(say)
    core.waits.set_result(None)
    await settle()
    assert (await peer.reply("w0"))["result"]["content"][0]["text"] == "hi"
    assert [t["name"] for t in (await peer.reply("w1"))["result"]["tools"]] == ["say"]
    assert (await peer.reply("w2"))["result"]["name"] == "say"
    assert [t["name"] for t in (await peer.reply("w3"))["result"]["tools"]] == ["say"]
    assert [t["name"] for t in (await peer.reply("w4"))["result"]["tools"]] == ["say"]
    assert (await peer.reply("missing"))["error"]["code"] == -32602
    assert (await peer.reply("format"))["error"]["code"] == -32602
    assert (peer.connection.pending, peer.answered) == (0, 7)


async def test_a_tool_that_is_still_not_there_is_unknown(core, peer):
    """After the second look."""
    core.waits = asyncio.get_running_loop().create_future()
    peer.say("tools/call", call("say"), id=1)
    core.waits.set_result(None)
    assert (await peer.reply(1))["error"]["code"] == -32602


async def test_calls_run_at_once_and_are_answered_in_the_order_of_their_end(peer, gate):
    """Contract, section 5."""
    peer.say("tools/call", call("gate", text="slow"), id="slow")
    peer.say("tools/call", call("say_later", text="quick"), id="quick")
    await peer.reply("quick")
    assert peer.connection.pending == 1
    gate.go.set()
    await peer.reply("slow")
    assert [m["id"] for m in peer.sent] == ["quick", "slow"]


async def test_channel_and_chat_come_with_the_request(peer, gate):
    """Contract, section 4: `_meta` keys `edged/channel`, `edged/chat_id`."""
    meta = {"edged/channel": "telegram", "edged/chat_id": "7", "unknown/key": 1}
    caller = (await peer.ask("tools/call", call("whoami", meta)))["result"]["structuredContent"]
    assert (caller["channel"], caller["chat_id"]) == ("telegram", "7")
    caller = (await peer.ask("tools/call", call("whoami")))["result"]["structuredContent"]
    assert (caller["channel"], caller["chat_id"]) == ("", "")


async def test_a_time_limit_comes_with_the_request(peer, gate):
    """Contract, section 2: `--timeout`; a per-request limit (facts, fault 8)."""
    meta = {"edged/timeout": 0.001}
    result = (await peer.ask("tools/call", call("gate", meta)))["result"]
    assert result["isError"] is True
    assert result["content"][0]["text"] == "timed out after 0.001 s"
    refused = (await peer.ask("tools/call", call("say", {"edged/timeout": -1})))["result"]
    assert refused["content"][0]["text"] == "timeout: must be above 0 seconds"


def test_a_result_goes_out_with_the_rest_under_meta():
    """Contract, section 7: `content`, `isError`, `structuredContent`, the rest `edged/…`."""
    result = Result(
        [Text("a"), ResourceLink("media://1", "data")],
        for_llm="shown",
        for_user="seen",
        silent=True,
        media=["media://1"],
        async_=True,
        response_handled=True,
        structured={"a": 1},
        call_id="c1",
        duration_ms=1.5,
        truncated=Truncated(10, 2, "end", "media://1"),
        sandbox="none",
    )
    assert msgspec.json.decode(mcp_result(result, modern=False)) == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "resource_link", "uri": "media://1", "name": "data"},
        ],
        "isError": False,
        "structuredContent": {"a": 1},
        "_meta": {
            "edged/call_id": "c1",
            "edged/duration_ms": 1.5,
            "edged/for_llm": "shown",
            "edged/for_user": "seen",
            "edged/silent": True,
            "edged/media": ["media://1"],
            "edged/async": True,
            "edged/response_handled": True,
            "edged/truncated": {"bytes": 10, "lines": 2, "kept": "end", "media": "media://1"},
            "edged/sandbox": "none",
        },
    }


def test_structured_content_fits_the_era_and_is_not_there_with_an_error():
    """MCP before 2026-07-28 wants an object; facts, fault 27: none when `isError`."""
    rows = Result([Text("x")], structured=[1, 2], for_llm="x")
    old = msgspec.json.decode(mcp_result(rows, modern=False))
    assert old["structuredContent"] == {"result": [1, 2]}
    new = msgspec.json.decode(mcp_result(rows, modern=True))
    assert new["structuredContent"] == [1, 2]
    rows.is_error = True
    assert "structuredContent" not in msgspec.json.decode(mcp_result(rows, modern=False))


# Progress and cancelling ------------------------------------------------------------------


@pytest.mark.parametrize("token", ["t1", 7, 1.5])
async def test_progress_goes_to_its_token_rises_and_stops_at_the_end(peer, gate, token):
    """MCP, progress."""
    peer.say("tools/call", call("gate", {"progressToken": token}), id=1)
    await gate.started.wait()
    for text in ("one", "one two"):
        gate.contexts[0].update([Text(text)])
    gate.go.set()
    await peer.reply(1)
    gate.contexts[0].update([Text("after")])
    notes = peer.notes("notifications/progress")
    assert [n["progressToken"] for n in notes] == [token, token]
    assert [n["progress"] for n in notes] == [1, 2]
    assert [n["message"] for n in notes] == ["one", "one two"]
    content = [{"type": "text", "text": "one two"}]
    assert notes[1]["_meta"] == {"edged/update": {"content": content}}
    assert "method" not in peer.sent[-1]


@pytest.mark.parametrize("meta", [None, {}, {"progressToken": None}, {"progressToken": {}}])
async def test_without_a_token_there_is_no_progress(peer, gate, meta):
    """MCP, progress: only if a token was given."""
    peer.say("tools/call", call("gate", meta), id=1)
    await gate.started.wait()
    gate.contexts[0].update([Text("one")])
    gate.go.set()
    await peer.reply(1)
    assert len(peer.sent) == 1


async def test_a_peer_that_does_not_read_misses_updates_but_no_result(peer, gate):
    """Facts, fault 12: progress dropped, results never."""
    peer.say("tools/call", call("gate", {"progressToken": 1}), id=1)
    await gate.started.wait()
    peer.congested = True
    gate.contexts[0].update([Text("lost")])
    peer.congested = False
    gate.contexts[0].update([Text("seen")])
    gate.go.set()
    await peer.reply(1)
    assert [n["progress"] for n in peer.notes("notifications/progress")] == [2]


async def test_nothing_more_comes_for_a_cancelled_request(core, peer, gate):
    """MCP, cancellation; facts, fault 10."""
    peer.say("tools/call", call("gate", {"progressToken": 1}), id="c")
    await gate.started.wait()
    peer.say("notifications/cancelled", {"requestId": "c", "reason": "enough"})
    gate.contexts[0].update([Text("too late")])
    assert (peer.connection.pending, peer.answered) == (0, 1)
    await gate.ended.wait()
    await settle()
    assert not peer.sent
    assert core.dispatcher.running == 0
    assert (await peer.ask("ping"))["result"] == {}


async def test_a_call_and_its_cancellation_may_come_together(core, peer, gate):
    """In one packet; what was never begun is not run."""
    peer.say("tools/call", call("gate"), id=1)
    peer.say("notifications/cancelled", {"requestId": 1})
    await settle()
    assert not peer.sent
    assert not gate.contexts
    assert core.dispatcher.running == 0


async def test_a_request_that_waits_for_a_look_can_be_cancelled(core, peer, gate):
    """And its id used again, before the look is over."""
    core.waits = asyncio.get_running_loop().create_future()
    peer.say("tools/call", call("new"), id=1)
    peer.say("notifications/cancelled", {"requestId": 1})
    assert (peer.connection.pending, peer.answered) == (0, 1)
    peer.say("tools/list", id=1)
    core.waits.set_result(None)
    await settle()
    (only,) = peer.sent
    assert "tools" in only["result"]


async def test_cancelling_what_is_over_or_never_was_changes_nothing(peer, gate):
    """MCP, cancellation: unknown or finished ids are ignored (facts, fault 9)."""
    peer.say("tools/call", call("gate", text="done"), id=1)
    await gate.started.wait()
    gate.go.set()
    await peer.reply(1)
    for params in ({"requestId": 1}, {"requestId": "never"}, {}, {"requestId": None}, None):
        peer.say("notifications/cancelled", params)
    peer.line(
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\xff"}}'
    )
    assert len(peer.sent) == 1
    assert peer.answered == 1


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancel_racing_with_completion_gives_one_answer_or_none(peer, gate, turns):
    """Facts, fault 9: exactly one of result or silence; later requests are unaffected."""
    peer.say("tools/call", call("gate"), id=1)
    await gate.started.wait()
    gate.go.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    peer.say("notifications/cancelled", {"requestId": 1})
    await settle()
    assert len(peer.sent) <= 1
    assert peer.connection.pending == 0
    assert (await peer.ask("tools/call", call("say", text="on")))["result"]["isError"] is False


async def test_a_call_that_the_daemon_ends_is_told(core, peer, gate):
    """Facts, fault 7: nobody waits for ever."""
    peer.say("tools/call", call("gate"), id=1)
    await gate.started.wait()
    await core.dispatcher.drain(0.001)
    error = (await peer.reply(1))["error"]
    assert (error["code"], error["message"]) == (-32603, "the call was cancelled")


async def test_a_connection_that_is_gone_takes_its_calls_along(core, peer, gate):
    """Contract, section 5: a connection closed both ways cancels its calls."""
    await peer.ask("initialize")
    peer.say("tools/call", call("gate", {"progressToken": 1}), id="g")
    await gate.started.wait()
    core.waits = asyncio.get_running_loop().create_future()
    peer.say("tools/list", id="l")
    await peer.ask("edged/events")
    await peer.ask("edged/log", {"follow": True})
    sent = len(peer.sent)
    peer.connection.close()
    core.waits.set_result(None)
    await gate.ended.wait()
    await settle()
    assert len(peer.sent) == sent
    assert peer.connection.pending == 0


async def test_a_closed_connection_holds_nothing_of_its_door(core, gate):
    """Answers of megabytes may hang on it: nothing is left for the collector to find."""

    class Door:
        def __init__(self):
            self.connection = Connection(
                core.control,
                core.owner,
                self.take,
                congested=lambda _: self.behind,
                on_answered=self.take,
            )

        behind = False

        def take(self, *_):
            pass

    gc.disable()
    try:
        door = Door()
        door.connection.receive(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        door.connection.close()
        kept, door = weakref.ref(door), None
        assert kept() is None
    finally:
        gc.enable()


async def test_a_connection_that_did_nothing_can_be_closed(peer):
    """And twice."""
    peer.connection.close()
    peer.connection.close()
    assert not peer.sent


# What is malformed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"hello", -32700, None),
        (b"{", -32700, None),
        (b"[" * 100_000, -32600, None),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b'{"id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"nothing"}', -32601, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 10_000 + b'"}', -32601, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"\xff"}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xff"}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":3}}', -32602, 1),
    ],
)
async def test_malformed_traffic_costs_its_own_request_alone(peer, gate, line, code, number):
    """JSON-RPC 2.0, section 5.1; facts, fault 36."""
    peer.say("tools/call", call("gate"), id="open")
    await gate.started.wait()
    peer.line(line)
    (error,) = peer.sent
    assert (error["error"]["code"], error["id"]) == (code, number)
    assert len(error["error"]["message"]) < 300
    gate.go.set()
    assert "result" in await peer.reply("open")
    assert (await peer.ask("ping"))["result"] == {}


async def test_a_line_that_is_too_long_is_answered(peer):
    """Contract, section 5: at most 16 MiB a line, one error reply."""
    peer.line(None)
    (error,) = peer.sent
    assert (error["id"], error["error"]["code"]) == (None, -32600)
    assert "16 MiB" in error["error"]["message"]


async def test_nesting_without_end_is_malformed(peer):
    """It ends neither the connection nor the daemon."""
    deep = b"[" * 100_000 + b"]" * 100_000
    peer.line(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":%b}' % deep)
    assert "error" in peer.sent[0]
    assert (await peer.ask("ping"))["result"] == {}


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"say"}}',
        b'{"jsonrpc":"2.0","method":"tools/call"}',
        b'{"jsonrpc":"2.0","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"nothing"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}',
        b'{"jsonrpc":"2.0","id":9,"result":{}}',
        b'{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"no"}}',
    ],
)
async def test_notifications_and_answers_are_never_answered(core, peer, gate, line):
    """JSON-RPC 2.0, section 4.1: not even with an error; and they run nothing."""
    peer.line(line)
    await settle()
    assert not peer.sent
    assert not core.audited()


async def test_a_connection_has_sixteen_open_subscriptions(peer):
    """Each is kept until it is cancelled, and hears of every change."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": STATELESS}
    for number in range(17):
        peer.say("subscriptions/listen", params, id=number)
    assert len(peer.notes("notifications/subscriptions/acknowledged")) == 16
    refused = peer.sent[-1]
    assert (refused["id"], refused["error"]["data"]["code"]) == (16, "busy")
    assert refused["error"]["message"] == "16 subscriptions are open: cancel one"
    peer.say("notifications/cancelled", {"requestId": 3})
    peer.say("subscriptions/listen", params, id=17)
    assert peer.sent[-1]["method"] == "notifications/subscriptions/acknowledged"
    peer.connection.close()


async def test_an_id_in_use_is_refused_and_the_first_goes_on(peer, gate):
    """MCP: unique among the sender's open ones."""
    peer.say("tools/call", call("gate", text="first"), id=1)
    await gate.started.wait()
    for method in ("tools/call", "ping"):
        peer.say(method, call("say"), id=1)
    assert [m["error"]["code"] for m in peer.sent] == [-32600, -32600]
    assert {m["error"]["message"] for m in peer.sent} == {"id 1 is in use"}
    gate.go.set()
    answer = await peer.wait(lambda m: "result" in m)
    assert answer["result"]["content"][0]["text"] == "first"
    peer.sent.clear()
    peer.say("tools/call", call("say", text="again"), id=1)
    assert "result" in await peer.reply(1)


async def test_ids_are_echoed_to_the_letter(peer, gate):
    """Numbers and texts are different ids (facts, fault 25)."""
    for raw in (b'"1"', b"1", b"-5", b"12345678901234567890", b'"\\u00e9"', b'"\xc3\xa9"'):
        peer.line(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % raw)
    assert [m["id"] for m in peer.sent] == ["1", 1, -5, 12345678901234567890, "é", "é"]


@pytest.mark.parametrize("method", ["ping", "tools/call"])
@pytest.mark.parametrize("mark", ["9", '"'])
async def test_an_id_is_kept_and_repeated_up_to_256_bytes_of_json(peer, gate, method, mark):
    """Every open request keeps its own: megabytes of them would fill a board's memory."""
    body = msgspec.json.encode({"method": method, "params": call("say"), "jsonrpc": "2.0"})
    for size in (256, 257):
        raw = f"{mark}{'9' * (size - 2)}{mark}".encode()
        peer.line(body[:-1] + b',"id":%b}' % raw)
    fits, long = peer.sent
    assert "result" in fits
    assert (long["id"], long["error"]["code"]) == (None, -32600)
    assert long["error"]["message"] == "id must be a string or an integer of at most 256 bytes"


@pytest.mark.parametrize("meta", [{}, STATELESS])
async def test_a_progress_token_of_more_than_256_bytes_is_refused(peer, gate, meta):
    """Every message of progress repeats it."""
    gate.go.set()
    for method in ("tools/call", "resources/read"):
        params = {**call("gate"), "uri": "edged://no/such"}
        fits = {**params, "_meta": {**meta, "progressToken": "t" * 254}}
        assert "progressToken" not in str(await peer.ask(method, fits))
        long = {**params, "_meta": {**meta, "progressToken": "t" * 255}}
        error = (await peer.ask(method, long))["error"]
        assert error["code"] == -32602
        assert "_meta.progressToken: must be at most 256 bytes" in error["message"]
    assert len(gate.contexts) == 1


async def test_a_fault_of_edged_costs_one_request(core, peer, gate, capsys):
    """-32603 with a sanitised message; the log says what it was."""

    def broken(_user):
        raise RuntimeError("inside")

    core.control.catalogue = msgspec.structs.replace(core.control.catalogue, fresh=broken)
    error = (await peer.ask("tools/list"))["error"]
    assert (error["code"], "inside" in error["message"]) == (-32603, False)
    assert "RuntimeError: inside" in capsys.readouterr().err
    assert "result" in await peer.ask("tools/call", call("say"))


@given(st.lists(st.binary(max_size=60) | st.sampled_from([
    b'{"jsonrpc":"2.0","id":1,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"p1"}}',
    b'{"jsonrpc":"2.0","id":2,"method":"edged/log","params":{"limit":-5}}',
    b'{"jsonrpc":"2.0","method":"edged/turn"}',
    b'{"jsonrpc":"2.0","id":3,"method":"server/discover"}',
]), max_size=8))  # fmt: skip
def test_no_order_of_lines_ends_a_connection(lines):
    """Facts, fault 36: malformed or out-of-order traffic."""
    sent = []
    clock = FakeClock()
    trail = Trail("/nonexistent", clock, 1 << 20)
    services = Services(Config(), clock, "", None, Events(clock), None, trail, None, None)
    control = Control(
        Dispatcher(Registry(), services, None),
        Catalogue(lambda _: None, None, dict),
        None,
        spawn=None,
        listeners=list,
    )
    connection = Connection(
        control, Caller("local", "owner", "", "unix"), lambda line, *_: sent.append(line)
    )
    for line in lines:
        connection.receive(line)
    connection.receive(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
    assert msgspec.json.decode(sent[-1])["id"] == "last"


# edged's own methods ----------------------------------------------------------------------


async def test_status_says_who_asks_and_how_things_are(core, peer, gate):
    """Contract, section 5."""
    core.clock.advance(12.0)
    result = (await peer.ask("edged/status"))["result"]
    assert result["version"] == __version__
    assert (result["user"], result["role"], result["uptime_s"]) == ("local", "owner", 12.0)
    assert result["tools"] == {"enabled": 6}


async def test_describe_shows_a_tool_whole(core, peer, gate):
    """Contract, section 2."""
    result = (await peer.ask("edged/describe", {"name": "say"}))["result"]
    assert result["schema"]["properties"] == {"text": {"type": "string", "default": ""}}
    assert (result["status"], result["source"]) == ("enabled", "built-in")
    assert (await peer.ask("edged/describe"))["error"]["code"] == -32602


async def test_an_owner_switches_tools_and_an_agent_is_refused(core, peer, agent, gate):
    """Contract, section 4: agents cannot switch tools."""
    off = {"name": "say", "enabled": False}
    refused = (await agent.ask("edged/tools/state", off))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-31003, "denied")
    assert (await peer.ask("edged/tools/state", off))["result"] == {"status": "ok"}
    rows = (await agent.ask("edged/tools/state"))["result"]["tools"]
    assert {r["name"]: r["status"] for r in rows}["say"] == "disabled"
    for params, code in (({"name": "say"}, -32602), ({"name": "x", "enabled": True}, -32602)):
        assert (await peer.ask("edged/tools/state", params))["error"]["code"] == code


async def test_definitions_come_in_each_providers_format(peer, gate):
    """Contract, section 5: openai, anthropic, mcp."""
    for form, key in (
        ("openai", "function"),
        ("anthropic", "input_schema"),
        ("mcp", "inputSchema"),
    ):
        tools = (await peer.ask("edged/definitions", {"format": form}))["result"]["tools"]
        assert all(key in one for one in tools)
    error = (await peer.ask("edged/definitions", {"format": "xml"}))["error"]
    assert error["code"] == -32602
    assert "must be one of mcp, openai" in error["message"]


async def test_media_come_in_parts_to_their_caller(core, peer, agent):
    """Contract, section 6: its caller's or the owner's."""
    uri = core.media.put(core.agent.user, b"\x00\x01", "image/png", "picture")
    for one in (peer, agent):
        result = (await one.ask("edged/media", {"id": uri}))["result"]
        assert (result["data"], result["mime_type"], result["next"]) == ("AAE=", "image/png", None)
    mine = core.media.put("local", b"x", "text/plain", "mine")
    assert (await agent.ask("edged/media", {"id": mine}))["error"]["data"]["code"] == "not_found"


async def test_events_reach_those_who_may_see_them(core, peer, agent, gate):
    """Contract, section 6: calls, …; an owner sees all, an agent its own."""
    begin = core.events.last_id
    await agent.ask("tools/call", call("say", text="private"))
    first = (await peer.ask("edged/events", {"since": begin}))["result"]
    assert first == {"last_id": begin + 2}
    assert [e["kind"] for e in peer.notes("edged/event")] == ["call.start", "call.end"]
    await agent.ask("edged/events")
    await agent.ask("edged/events")
    await peer.ask("tools/call", call("say"))
    core.events.publish("tools.changed", "", {})
    assert [e["kind"] for e in agent.notes("edged/event")] == ["tools.changed"]
    ids = [e["id"] for e in peer.notes("edged/event")]
    assert ids == [begin + 1 + n for n in range(5)]
    assert "private" not in str(peer.sent)


async def test_a_gap_of_the_ring_is_an_event(core, peer):
    """Contract, section 6: the last 1,000; a gap is itself an event."""
    begin = core.events.last_id
    for number in range(1_200):
        core.events.publish("n", "", {"n": number})
    await peer.ask("edged/events", {"since": begin + 5})
    notes = peer.notes("edged/event")
    assert (notes[0]["kind"], notes[1]["id"], len(notes)) == ("gap", begin + 201, 1_001)


async def test_a_peer_that_does_not_read_gets_a_gap(core, peer, gate):
    """What is lost is counted and told when it reads again."""
    await peer.ask("edged/events")
    await peer.ask("edged/log", {"follow": True})
    core.events.publish("seen", "", {})
    peer.congested = True
    for _ in range(3):
        core.events.publish("lost", "", {})
    peer.congested = False
    core.events.publish("seen", "", {})
    kinds = [m["params"].get("kind", m["params"]) for m in peer.sent if "method" in m]
    assert kinds == ["seen", {"lost": 3}, "seen"]
    core.events.publish("seen", "", {})
    assert len(peer.notes("edged/gap")) == 1


async def test_the_log_is_read_and_followed(core, peer, agent, gate):
    """Issue 2, part 7: `edged log -f`; an agent sees its own."""
    await peer.ask("tools/call", call("say", text="one"))
    rows = (await peer.ask("edged/log", {"limit": 5, "follow": True}))["result"]["records"]
    assert [(r["tool"], r["arguments"]) for r in rows] == [("say", {"text": "one"})]
    await peer.ask("edged/log", {"follow": True})
    assert (await agent.ask("edged/log", {"follow": True}))["result"]["records"] == []
    await peer.ask("tools/call", call("say", text="two"))
    await agent.ask("tools/call", call("say", text="three"))
    assert [n["arguments"]["text"] for n in peer.notes("edged/log")] == ["two", "three"]
    assert [n["arguments"]["text"] for n in agent.notes("edged/log")] == ["three"]
    assert len((await peer.ask("edged/log", {"limit": -3}))["result"]["records"]) == 0
    assert len((await peer.ask("edged/log", {"limit": 10**9}))["result"]["records"]) == 3


async def test_one_answer_of_the_log_is_bounded_in_bytes(core, peer, gate):
    """A line of sixty bytes must not bring megabytes: the newest records are told."""
    for number in range(1_000):
        text = f"{number} " + "x" * 900
        core.dispatcher.start(core.owner, None, "say", msgspec.json.encode({"text": text}))
        if number % 100 == 0:
            await asyncio.sleep(0)
    rows = (await peer.ask("edged/log", {"limit": 1_000}))["result"]["records"]
    assert 500 < len(rows) < 1_000
    assert len(msgspec.json.encode(rows)) <= BACKLOG_MAX
    assert rows[-1]["arguments"]["text"].startswith("999 ")


async def test_earlier_events_are_bounded_in_bytes_and_the_rest_is_a_gap(core, peer):
    """What is lost is counted, as for a peer that does not read."""
    begin = core.events.last_id
    for number in range(900):
        core.events.publish("n", "", {"n": number, "text": "x" * 8_000})
    await peer.ask("edged/events", {"since": begin})
    notes = peer.notes("edged/event")
    assert notes[-1]["data"]["n"] == 899
    assert len(msgspec.json.encode(notes)) <= BACKLOG_MAX
    assert peer.notes("edged/gap") == [{"lost": 900 - len(notes)}]


async def test_an_owner_syncs_and_an_agent_is_refused(core, peer, agent):
    """Contract, section 2: `edged sync` asks the daemon where one runs."""
    assert (await peer.ask("edged/sync", {"dry_run": True}))["result"] == {"copied": []}
    assert (await peer.ask("edged/sync"))["result"] == {"copied": []}
    assert core.synced == [True, False]
    assert (await agent.ask("edged/sync"))["error"]["data"]["code"] == "denied"
    assert core.synced == [True, False]


@pytest.mark.parametrize(
    ("error", "code"), [(StoreError(28, "the disk is full"), -31007), (OSError("what"), -32603)]
)
async def test_a_sync_that_fails_says_so(core, peer, error, code, capsys):
    """It ends neither the connection nor the daemon."""

    async def sync(_dry_run):
        raise error

    core.control.catalogue = msgspec.structs.replace(core.control.catalogue, sync=sync)
    assert (await peer.ask("edged/sync"))["error"]["code"] == code
    assert peer.connection.pending == 0


async def test_a_cancelled_sync_is_not_answered(core, peer):
    """Nothing more for a cancelled id, whatever the method."""
    peer.say("edged/sync", id=1)
    peer.say("notifications/cancelled", {"requestId": 1})
    await settle()
    assert not peer.sent


async def test_an_owner_manages_tokens_and_an_agent_is_refused(core, peer, agent):
    """Contract, section 2: `edged token add|list|revoke`; owner only."""
    add = {"action": "add", "name": "kitchen", "user": "ada@example.org", "role": "agent"}
    refused = (await agent.ask("edged/token", add))["error"]
    assert refused["message"] == "only an owner may manage tokens; uid 1000 is an agent"
    secret = (await peer.ask("edged/token", add))["result"]["token"]
    assert core.control.tokens.find(secret).user == "ada@example.org"
    (row,) = (await peer.ask("edged/token"))["result"]["tokens"]
    assert row == {
        "name": "kitchen",
        "user": "ada@example.org",
        "role": "agent",
        "created": "2023-11-14T22:13:20.000Z",
    }
    revoke = {"action": "revoke", "name": "kitchen"}
    assert (await peer.ask("edged/token", revoke))["result"] == {"status": "ok"}
    assert core.control.tokens.find(secret) is None
    assert (await peer.ask("edged/token", revoke))["error"]["data"]["code"] == "not_found"
    for bad in ({**add, "user": "../etc"}, {**add, "role": "king"}, {"action": "drop"}):
        assert (await peer.ask("edged/token", bad))["error"]["code"] == -32602


def test_a_line_of_too_many_values_is_refused_before_it_is_decoded(peer):
    """16 MiB of brackets would become 400 MiB of objects, whatever asks for them."""
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"x":['
    )
    peer.connection.receive(line + b"[]," * 300_000 + b"0]}}}")
    (answer,) = peer.sent
    assert answer["error"]["code"] == -32600  # JSON-RPC: Invalid Request
    assert "more than 200,000 values" in answer["error"]["message"]
