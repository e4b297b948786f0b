"""The quick way of a tools/call at `/mcp`, beside aiohttp's: the same answer to everything.

The first request of a connection always goes through aiohttp, which gives the connection its
place; a plain one after it does not. How many went through aiohttp says which way was taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edged import results
from edged.mcp import server
from edged.results import Result
from edged.tool import Context, tool
from edged.transports._limits import Timing
from tests.integration.test_http import BOUND_S, Door, opened, standing

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
EVENTS = "Accept: application/json, text/event-stream"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Nothing(msgspec.Struct, frozen=True):
    """No inputs."""


class Say(msgspec.Struct, frozen=True):
    text: str


@tool("say")
async def say(params: Say, ctx: Context) -> Result:
    """Repeat."""
    return results.text(params.text)


@tool("logs")
def logs(params: Nothing, ctx: Context) -> Result:
    """Say something first, before it has its result."""
    assert ctx.client is not None
    ctx.client.log("info", "first of all")
    return results.text("logged")


def body_of(name: str, number: Any = 1, **more: Any) -> bytes:
    meta = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
    meta |= more.pop("meta", {})
    params = {"name": name, "_meta": meta} | more
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(call).encode()


def lines_of(door: Door, name: str, *more: str) -> list[str]:
    return [
        f"Host: 127.0.0.1:{door.port}",
        f"Authorization: Bearer {door.agent}",
        "Content-Type: application/json",
        f"MCP-Protocol-Version: {MODERN}",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {name}",
        *more,
    ]


def written(lines: list[str], body: bytes, first: str = "POST /mcp HTTP/1.1") -> bytes:
    rows = [first, *lines]
    if not any(line.lower().startswith("content-length") for line in lines):
        rows.append(f"Content-Length: {len(body)}")
    return "\r\n".join(rows).encode("latin-1") + b"\r\n\r\n" + body


def call(door: Door, name: str = "hello", *more: str, number: Any = 1, **params: Any) -> bytes:
    if name == "hello":
        params.setdefault("arguments", {"name": "Ada"})
    return written(lines_of(door, name, *more), body_of(name, number, **params))


def through_aiohttp(door: Door) -> int:
    """How many requests aiohttp has had."""
    count: int = door.listener._api._server.requests_count
    return count


async def turns(count: int = 5) -> None:
    """Let both ends have what was sent: a loopback connection is as quick as the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


class Link:
    """One raw connection."""

    def __init__(self, door: Door, reader: Any, writer: Any) -> None:
        self.door, self.reader, self.writer = door, reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await turns()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with a length, or the head of an event stream."""
        async with asyncio.timeout(BOUND_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *rows = head[:-4].split("\r\n")
            headers = dict(row.lower().split(": ", 1) for row in rows)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def text(self) -> str:
        """The text of one good answer."""
        status, _, body = await self.answer()
        assert status == 200, body
        text: str = json.loads(body)["result"]["content"][0]["text"]
        return text

    async def event(self) -> Any:
        """The next message of an event stream."""
        async with asyncio.timeout(BOUND_S):
            while not (line := await self.reader.readline()).startswith(b"data: "):
                assert line, "the stream is over"
        return json.loads(line[6:])

    async def rest(self) -> bytes:
        async with asyncio.timeout(BOUND_S):
            rest: bytes = await self.reader.read()
        return rest


@contextlib.asynccontextmanager
async def connected(door: Door, *, seated: bool = True) -> AsyncIterator[Link]:
    """A connection whose next plain call goes the quick way, or a new one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    link = Link(door, reader, writer)
    if seated:
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        await turns()
    try:
        yield link
    finally:
        writer.close()


@pytest.fixture
async def door(tmp_path: Any) -> AsyncIterator[Door]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture(scope="module", name="standing")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Door]]:
    with standing(tmp_path_factory.mktemp("door"), Timing(linger_s=0.01)) as (runner, door):
        door.registry.register(say)
        door.registry.register(logs)
        yield runner, door


# The same answer --------------------------------------------------------------------------

_VARY = re.compile(rb'"edged/call_id":"[^"]+"|"edged/duration_ms":[0-9.e-]+')
_OF_HEAD = re.compile(rb"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT|Content-Length: \d+")

Answers = list[tuple[bytes, bytes]]


def answers_of(data: bytes) -> Answers:
    """Heads and bodies, without what differs from call to call and the length that has."""
    found: Answers = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        size = int(length[1]) if length else 0
        assert len(data) >= size
        found.append((_OF_HEAD.sub(b"~", head), _VARY.sub(b"~", data[:size])))
        data = data[size:]
    return found


async def heard(door: Door, chunks: tuple[bytes, ...], *, seated: bool) -> tuple[Answers, int]:
    """All that comes back for some chunks, and how many requests aiohttp had of them."""
    async with connected(door, seated=seated) as link:
        before = through_aiohttp(door)
        for chunk in chunks:
            await link.send(chunk)
        await turns(20)
        parsed = through_aiohttp(door) - before
        await link.send(HEALTH)
        await turns(20)
        with contextlib.suppress(OSError):
            # It may be closed by now.
            link.writer.write_eof()
        return answers_of(await link.rest()), parsed


async def same(door: Door, *chunks: bytes) -> tuple[Answers, int]:
    """What comes back, which is the same on both ways."""
    quick, parsed = await heard(door, chunks, seated=True)
    slow, _ = await heard(door, chunks, seated=False)
    assert quick == slow
    return quick, parsed


GOOD: dict[str, Any] = {
    "as it is": lambda d: call(d),
    "no arguments": lambda d: call(d, "whoami"),
    "asynchronous": lambda d: call(d, "say", arguments={"text": "Grüße, 世界"}),
    "fails": lambda d: call(d, "fails"),
    "wrong arguments": lambda d: call(d, arguments={"name": "x", "times": 99}),
    "no UTF-8 in an argument": lambda d: call(d).replace(b"Ada", b"A\xff!"),
    "id of many digits": lambda d: call(d, number=2**70),
    "wrapped name": lambda d: call(d, "hello").replace(
        b"Mcp-Name: hello", b"Mcp-Name: =?base64?aGVsbG8=?="
    ),
    "lower case": lambda d: call(d).replace(b"Mcp-Method:", b"mcp-method:"),
    "upper case": lambda d: call(d).replace(b"Content-Type:", b"CONTENT-TYPE:"),
    "kept on purpose": lambda d: call(d, "hello", "Connection: keep-alive"),
    "session and chat": lambda d: call(d, "whoami", "Edged-Session: s", "Edged-Chat: 7"),
    "timeout": lambda d: call(d, meta={"edged/timeout": -1}),
    "progress wanted and none": lambda d: call(d, meta={"progressToken": "p"}),
    "unknown tool": lambda d: call(d, "nonesuch"),
    "hidden tool": lambda d: call(d, "search"),
    "answers of nobody": lambda d: call(d, "hello", inputResponses={"a": {"action": "accept"}}),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_plain_call_gets_the_very_bytes_that_aiohttp_would_send(
    standing: Any, case: str
) -> None:
    """MCP 2026-07-28, Streamable HTTP: how a call is read does not show."""
    runner, door = standing
    answers, parsed = runner.run(same(door, GOOD[case](door)))
    assert answers[0][0].startswith(b"HTTP/1.1 200 OK\r\nServer: edged\r\n")
    assert (parsed, len(answers)) == (0, 2)


def changed(old: bytes, new: bytes) -> Any:
    def change(door: Door) -> tuple[bytes, ...]:
        data = call(door)
        assert old in data
        return (data.replace(old, new, 1),)

    return change


def line(text: str) -> Any:
    return lambda door: (call(door, "hello", text),)


def raw(body: bytes) -> Any:
    return lambda door: (written(lines_of(door, "hello"), body),)


ODD: dict[str, Any] = {
    "length and chunks": lambda d: (
        written(
            lines_of(d, "hello", "Transfer-Encoding: chunked", "Content-Length: 4"),
            b"5c\r\n" + call(d) + b"\r\n0\r\n\r\n",
        ),
    ),
    "chunks": lambda d: (
        written(
            lines_of(d, "hello", "Transfer-Encoding: chunked"),
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(body_of("hello")), body_of("hello")),
        ).replace(b"Content-Length", b"X-Length"),
    ),
    "two lengths": line("Content-Length: 1\r\nContent-Length: 2"),
    "length with a sign": lambda d: (
        written(lines_of(d, "hello", f"Content-Length: +{len(body_of('x'))}"), body_of("x")),
    ),
    "length with a space": lambda d: (
        written(lines_of(d, "hello", f"Content-Length: {len(body_of('x'))} "), body_of("x")),
    ),
    "short length": lambda d: (written(lines_of(d, "hello", "Content-Length: 3"), body_of("x")),),
    "long length": lambda d: (written(lines_of(d, "hello", "Content-Length: 999"), body_of("x")),),
    "huge length": lambda d: (
        written(lines_of(d, "hello", "Content-Length: 99999999999999999999"), body_of("x")),
    ),
    "folded line": line("X-A: 1\r\n folded"),
    "bare LF": changed(b"\r\nMcp-Method", b"\nMcp-Method"),
    "bare CR": changed(b"\r\nMcp-Method", b"\rMcp-Method"),
    "NUL": line("X-A: a\x00b"),
    "space before the colon": line("X-A : 1"),
    "no space after it": changed(b"Mcp-Name: ", b"Mcp-Name:"),
    "space after the value": changed(b"Mcp-Name: hello", b"Mcp-Name: hello \t"),
    "other bytes": line("X-A: \xe4"),
    "absolute target": changed(b"POST /mcp ", b"POST http://127.0.0.1/mcp "),
    "query": changed(b"POST /mcp ", b"POST /mcp?a=1 "),
    "other path": changed(b"POST /mcp ", b"POST /mcpx "),
    "other method": changed(b"POST ", b"PUT "),
    "lower method": changed(b"POST ", b"post "),
    "HTTP/1.0": changed(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/2.0": changed(b"HTTP/1.1", b"HTTP/2.0"),
    "close": line("Connection: close"),
    "upgrade": line("Connection: Upgrade\r\nUpgrade: websocket"),
    "expects": line("Expect: 100-continue"),
    "packed": line("Content-Encoding: gzip"),
    "no type": changed(b"Content-Type: application/json\r\n", b""),
    "other type": changed(b"application/json", b"text/plain"),
    "type with a charset": changed(b"application/json", b"application/json; charset=utf-8"),
    "no host": changed(b"Host: ", b"X-Host: "),
    "two hosts": line("Host: localhost"),
    "foreign host": changed(b"Host: 127.0.0.1", b"Host: evil.example"),
    "foreign origin": line("Origin: http://evil.example"),
    "own origin": lambda d: (call(d, "hello", f"Origin: http://127.0.0.1:{d.port}"),),
    "no token": changed(b"Authorization: ", b"X-Authorization: "),
    "wrong token": changed(b"Bearer edged_", b"Bearer edgedX"),
    "other scheme": changed(b"Bearer ", b"Basic "),
    "long session": line("Edged-Session: " + "s" * 129),
    "other version": changed(b"Version: 2026-07-28", b"Version: 2025-11-25"),
    "no version": changed(b"MCP-Protocol-Version: ", b"X-Version: "),
    "other name": changed(b"Mcp-Name: hello", b"Mcp-Name: whoami"),
    "no name": changed(b"Mcp-Name: ", b"X-Name: "),
    "other method of MCP": changed(b"Mcp-Method: tools/call", b"Mcp-Method: tools/list"),
    "bad base64": changed(b"Mcp-Name: hello", b"Mcp-Name: =?base64?!?="),
    "no body": raw(b""),
    "no JSON": raw(b"{"),
    "an array": raw(b"[]"),
    "deep": raw(b"[" * 9_000),
    "nothing called": raw(b"{}"),
    "other JSON-RPC": lambda d: (call(d).replace(b'"2.0"', b'"1.0"'),),
    "other key": lambda d: (call(d).replace(b'"jsonrpc"', b'"x": "\\ud800", "jsonrpc"'),),
    "broken uri": lambda d: (call(d, uri="\ud800"),),
    "no id": lambda d: (call(d).replace(b'"id"', b'"di"'),),
    "notification": lambda d: (call(d).replace(b'"id": 1, ', b""),),
    "text as id": lambda d: (call(d, number="a"),),
    "negative id": lambda d: (call(d, number=-1),),
    "broken id": lambda d: (call(d, number=1.5),),
    "no capabilities": lambda d: (call(d, meta={PREFIX + "clientCapabilities": None}),),
    "no revision": lambda d: (call(d, meta={PREFIX + "protocolVersion": None}),),
    "name of a number": lambda d: (call(d).replace(b'"name": "hello"', b'"name": 5'),),
    "too many values": lambda d: (call(d, arguments={"x": [0] * 250_000}),),
    "large": lambda d: (call(d, arguments={"name": "x" * 100_000}),),
    "list": lambda d: (
        written(
            lines_of(d, "hello"), body_of("hello").replace(b"tools/call", b"tools/list")
        ).replace(b"Mcp-Method: tools/call", b"Mcp-Method: tools/list"),
    ),
    "empty line first": lambda d: (b"\r\n" + call(d),),
    "something after it": lambda d: (call(d) + b"x",),
    "a pair": lambda d: (call(d) + call(d, number=2),),
    "a request within the body": lambda d: (
        written(lines_of(d, "hello", "Content-Length: 0"), call(d)),
    ),
    "no HTTP": lambda d: (b"\x16\x03\x01\x02\x00",),
}


@pytest.mark.parametrize("case", ODD)
def test_anything_else_is_answered_by_aiohttp_as_on_a_new_connection(
    standing: Any, case: str
) -> None:
    """RFC 9112, section 11: no two readers of one request, and no request in another."""
    runner, door = standing
    answers, parsed = runner.run(same(door, *ODD[case](door)))
    # What is no whole request waits for more, and is not answered.
    assert parsed or len(answers) < 2


def test_a_call_in_two_pieces_is_one_wherever_it_is_cut(standing: Any) -> None:
    runner, door = standing
    data = call(door)

    async def cut() -> None:
        whole, _ = await heard(door, (data,), seated=True)
        for end in range(1, len(data)):
            found, parsed = await heard(door, (data[:end], data[end:]), seated=True)
            assert (found, parsed) == (whole, 1), end

    runner.run(cut())


def test_a_connection_that_was_shown_a_piece_is_aiohttps_for_good(standing: Any) -> None:
    """Two readers never share a connection's state."""
    runner, door = standing
    data = call(door)
    answers, parsed = runner.run(same(door, data[:9], data[9:], data, data))
    assert parsed == 3
    assert [b"Hello, Ada!" in body for _, body in answers] == [True] * 3 + [False]


def test_requests_of_another_kind_in_between_are_in_order(standing: Any) -> None:
    """A client lists tools and calls them by one connection."""
    runner, door = standing
    listed = ODD["list"](door)[0]
    answers, parsed = runner.run(same(door, call(door), listed, call(door), listed, call(door)))
    assert parsed == 2
    found = [b"Hello, Ada!" in body for _, body in answers]
    assert found == [True, False, True, False, True, False]


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 700),
            st.integers(0, 4),
            st.sampled_from(
                [b"", b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"\x00", b"0", b"-", b"{", b'"']
            )
            | st.binary(max_size=2),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_call_with_any_flaw_is_answered_alike(standing: Any, flaws: Any) -> None:
    runner, door = standing
    data = call(door)
    for at, length, put in flaws:
        data = data[:at] + put + data[at + length :]
    runner.run(same(door, data))


# What is checked anew for each ------------------------------------------------------------


async def test_a_token_that_ended_is_none_in_the_next_request(door: Door) -> None:
    """Contract, section 4."""
    async with connected(door) as link:
        door.control.tokens.add("eve", "eve@example.org", "agent")
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        door.control.tokens.revoke("ada")
        await link.send(call(door))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await link.answer()


async def test_another_token_on_the_same_connection_is_another_caller(door: Door) -> None:
    async with connected(door) as link:
        for token, user in ((door.owner, "local"), (door.agent, "ada@example.org")) * 2:
            await link.send(call(door, "whoami").replace(door.agent.encode(), token.encode()))
            _, _, body = await link.answer()
            assert json.loads(body)["result"]["structuredContent"]["user"] == user
        await link.send(call(door).replace(door.agent.encode(), b"edged_none"))
        status, headers, _ = await link.answer()
        assert (status, headers["www-authenticate"]) == (401, "bearer")


async def test_each_call_is_counted_once_and_those_over_the_rate_are_refused(
    tmp_path: Any,
) -> None:
    """Contract, section 6: 429 with Retry-After."""
    async with opened(tmp_path, rate=0.001, burst=4) as door, connected(door) as link:
        await link.send(call(door))
        await link.text()
        # This one goes on with aiohttp.
        await link.send(call(door, "slow"))
        await link.send(call(door))
        door.slow.go.set()
        assert await link.text() == "done"
        assert await link.text() == "Hello, Ada!"
        for _ in range(2):
            await link.send(call(door))
            status, headers, _ = await link.answer()
            assert status == 429
            assert int(headers["retry-after"]) > 900


async def test_a_body_over_the_limit_is_refused(tmp_path: Any) -> None:
    async with opened(tmp_path, max_body="1K") as door, connected(door) as link:
        await link.send(call(door, arguments={"name": "x" * 1_000}))
        assert (await link.answer())[0] == 413


async def test_calls_over_a_unix_listener_are_its_peers(tmp_path: Any) -> None:
    """Contract, section 4: with peers as on the socket."""
    path = f"{tmp_path}/http.sock"
    async with opened(tmp_path, listen=["127.0.0.1:0", f"unix:{path}"]) as door:
        link = Link(door, *await asyncio.open_unix_connection(path))
        data = call(door, "whoami").replace(b"Authorization", b"X-None")
        for _ in range(2):
            await link.send(data)
            _, _, body = await link.answer()
            assert json.loads(body)["result"]["structuredContent"]["role"] == "owner"
            await turns()
        assert through_aiohttp(door) == 1
        link.writer.close()


# Calls that take their time ---------------------------------------------------------------


async def started(door: Door) -> None:
    async with asyncio.timeout(BOUND_S):
        await door.slow.started.wait()


async def handed_over(door: Door) -> None:
    """Wait until aiohttp has had the second request of a connection too."""
    async with asyncio.timeout(BOUND_S):
        while through_aiohttp(door) < 2:
            await asyncio.sleep(0)


def calls(door: Door, name: str = "slow") -> int:
    """How many calls of a tool the trail has."""
    return sum(record.tool == name for record in door.trail.recent(100, None))


async def test_a_slow_tool_is_answered_without_aiohttp(door: Door) -> None:
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        door.slow.go.set()
        assert await link.text() == "done"
        await link.send(call(door, number=2))
        assert await link.text() == "Hello, Ada!"
    assert through_aiohttp(door) == 1


async def test_who_hangs_up_cancels_the_call(door: Door) -> None:
    """MCP 2026-07-28, cancellation."""
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
    async with asyncio.timeout(BOUND_S):
        await door.slow.cancelled.wait()


async def test_a_call_that_was_handed_over_is_cancelled_as_well(door: Door) -> None:
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        await link.send(b"P")
    async with asyncio.timeout(BOUND_S):
        await door.slow.cancelled.wait()


async def test_a_token_that_ends_ends_the_call(door: Door) -> None:
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        door.control.tokens.revoke("ada")
        async with asyncio.timeout(BOUND_S):
            await door.slow.cancelled.wait()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await link.answer()


async def test_what_comes_before_the_answer_begins_events(door: Door) -> None:
    """MCP 2026-07-28, Streamable HTTP: and the call is not begun again."""
    async with connected(door) as link:
        await link.send(call(door, "slow", EVENTS, meta={"progressToken": "p"}))
        _, headers, _ = await link.answer()
        assert headers["content-type"] == "text/event-stream"
        assert (await link.event())["params"]["message"] == "first"
        door.slow.go.set()
        while "result" not in (found := await link.event()):
            continue
        assert found["result"]["content"][0]["text"] == "done"
        assert await link.reader.readuntil(b"0\r\n\r\n")
        await turns()
        before = through_aiohttp(door)
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        assert through_aiohttp(door) == before
    assert calls(door) == 1


async def test_what_a_tool_says_at_once_comes_first(door: Door) -> None:
    door.registry.register(logs)
    async with connected(door) as link:
        await link.send(call(door, "logs", EVENTS, meta={PREFIX + "logLevel": "info"}))
        _, headers, _ = await link.answer()
        assert headers["content-type"] == "text/event-stream"
        assert (await link.event())["params"]["data"] == "first of all"
        assert (await link.event())["result"]["content"][0]["text"] == "logged"
    assert calls(door, "logs") == 1


@pytest.mark.parametrize("accept", [EVENTS, "Accept: application/json"])
async def test_a_call_that_takes_longer_than_the_patience_keeps_its_stream_open(
    tmp_path: Any, accept: str
) -> None:
    async with opened(tmp_path, Timing(comment_s=0.02)) as door, connected(door) as link:
        await link.send(call(door, "slow", accept))
        await started(door)
        await handed_over(door)
        if accept == EVENTS:
            _, headers, _ = await link.answer()
            assert headers["content-type"] == "text/event-stream"
            door.slow.go.set()
            assert (await link.event())["result"]["content"][0]["text"] == "done"
        else:
            door.slow.go.set()
            assert await link.text() == "done"
        assert calls(door) == 1


async def test_what_comes_meanwhile_is_answered_after_it(door: Door) -> None:
    """RFC 9112, section 9.3.2: in order."""
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        await link.send(call(door, number=2))
        await link.send(call(door, number=3))
        door.slow.go.set()
        assert [json.loads((await link.answer())[2])["id"] for _ in range(3)] == [1, 2, 3]
    assert calls(door) == 1


async def test_a_daemon_that_stops_answers_what_it_has_begun(door: Door) -> None:
    async with connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        stopping = asyncio.ensure_future(door.listener.close_connections())
        await turns()
        assert not stopping.done()
        door.slow.go.set()
        assert await link.text() == "done"
        assert await link.rest() == b""
        await stopping


async def test_a_daemon_that_stops_gives_up_what_does_not_end(tmp_path: Any) -> None:
    async with opened(tmp_path, Timing(linger_s=0.02)) as door, connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        async with asyncio.timeout(BOUND_S):
            await door.listener.close_connections()
            await door.slow.cancelled.wait()
        assert await link.rest() == b""


async def test_a_call_that_became_a_task_goes_on_after_its_answer(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEP-2663: the answer is the task, and who has it may leave."""
    monkeypatch.setattr(server, "TASK_S", 0.0)
    can = {PREFIX + "clientCapabilities": {"extensions": {PREFIX + "tasks": {}}}}
    async with connected(door) as link:
        await link.send(call(door, "slow", meta=can))
        status, _, body = await link.answer()
        assert (status, json.loads(body)["result"]["resultType"]) == (200, "task")
    await started(door)
    await turns(50)
    assert not door.slow.cancelled.is_set()
    door.slow.go.set()
    async with asyncio.timeout(BOUND_S):
        while door.dispatcher.running:
            await asyncio.sleep(0)
    assert [record.outcome for record in door.trail.recent(9, None) if record.tool == "slow"] == [
        "ok"
    ]


# How long a connection lives --------------------------------------------------------------


async def test_a_connection_that_idles_after_a_quick_call_is_closed(tmp_path: Any) -> None:
    async with opened(tmp_path, Timing(header_s=0.1)) as door, connected(door) as link:
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        assert await link.rest() == b""
        assert through_aiohttp(door) == 1


async def test_slow_headers_after_a_quick_call_end_the_connection(tmp_path: Any) -> None:
    async with opened(tmp_path, Timing(header_s=0.1)) as door, connected(door) as link:
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        await link.send(b"POST /mcp HT")
        assert await link.rest() == b""


async def test_a_call_that_takes_longer_than_a_connection_may_idle_is_answered(
    tmp_path: Any,
) -> None:
    async with opened(tmp_path, Timing(header_s=0.1)) as door, connected(door) as link:
        await link.send(call(door, "slow"))
        await started(door)
        await handed_over(door)
        door.slow.go.set()
        assert await link.text() == "done"
        assert await link.rest() == b""


async def test_a_large_answer_is_left_to_who_waits_for_a_slow_reader(door: Door) -> None:
    door.registry.register(say)
    async with connected(door) as link:
        await link.send(call(door, "say", arguments={"text": "x" * 40_000}))
        assert len(await link.text()) == 40_000
        assert through_aiohttp(door) == 2
        await turns()
        await link.send(call(door))
        assert await link.text() == "Hello, Ada!"
        assert through_aiohttp(door) == 2
    assert calls(door, "say") == 1
