"""The links over HTTP, against scripted servers on loopback."""

import asyncio
import json

import pytest
from aiohttp import web

from edged.errors import TooLargeError, UpstreamError
from edged.jsonrpc import MAX_LINE
from edged.mcp.client import Client, ExpiredError, RemoteError
from edged.mcp.upstream import web as links
from edged.mcp.upstream.web import HttpLink, SseLink

BOUND_S = 10.0
INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
DISCOVERED = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {"listChanged": True}},
}
SECRET = {"Authorization": "Bearer secret"}


async def opened(site, kind=HttpLink, **answers):
    site.answers |= {key.replace("__", "/"): value for key, value in answers.items()}
    client = Client()
    client.link = kind(site.url, SECRET, client)
    await client.open("legacy" if "server/discover" not in site.answers else None)
    return client


def stream(*parts, wait=None):
    """An event stream of these parts."""

    async def answer(request, body):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            text = part if isinstance(part, str) else f"data: {json.dumps(part)}\n\n"
            await response.write(text.replace("$ID", str((body or {}).get("id"))).encode())
        if wait is not None:
            try:
                await wait.wait()
            except asyncio.CancelledError:
                wait.gone = True
                raise
        return response

    return answer


def status(code, text="", **headers):
    async def answer(_request, _body):
        return web.Response(status=code, text=text, headers=headers)

    return answer


async def ask(client):
    async with asyncio.timeout(BOUND_S):
        return await client.request("tools/call", {"name": "t", "arguments": {}}, name="t")


async def test_requests_of_the_stateless_revision_have_its_headers_and_no_session(site):
    """MCP 2026-07-28, Streamable HTTP; the owner's headers are on each."""
    client = await opened(site, server__discover=DISCOVERED, tools__call={"content": []})
    await ask(client)
    _, headers, body = site.seen[-1]
    assert headers["MCP-Protocol-Version"] == "2026-07-28"
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "t")
    assert headers["Authorization"] == "Bearer secret"
    assert set(headers["Accept"].split(", ")) == {"application/json", "text/event-stream"}
    assert "Mcp-Session-Id" not in headers
    assert body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    await client.link.close()
    assert "DELETE" not in site.methods()


async def test_a_session_is_named_on_each_request_and_ended(site):
    """MCP 2025-11-25, session management."""

    async def initialize(_request, body):
        result = {"jsonrpc": "2.0", "id": body["id"], "result": INFO}
        return web.json_response(result, headers={"Mcp-Session-Id": "s-1"})

    client = await opened(site, initialize=initialize, tools__call={"content": []})
    await ask(client)
    await client.link.close()
    assert site.methods()[-1] == "DELETE"
    for key, headers, _ in site.seen[1:]:
        assert headers["Mcp-Session-Id"] == "s-1", key
        assert headers["MCP-Protocol-Version"] == "2025-11-25"
    assert "Mcp-Session-Id" not in site.seen[0][1]


@pytest.mark.parametrize(
    ("code", "text"), [(404, ""), (404, "{}"), (400, "Bad Request: No valid session ID provided")]
)
async def test_a_session_that_the_server_forgot_has_expired(site, code, text):
    """facts/mcp.md, fault 15; some servers say 400 after a restart."""

    async def initialize(_request, body):
        result = {"jsonrpc": "2.0", "id": body["id"], "result": INFO}
        return web.json_response(result, headers={"Mcp-Session-Id": "s-1"})

    client = await opened(site, initialize=initialize, tools__call=status(code, text))
    with pytest.raises(ExpiredError):
        await ask(client)
    await client.link.close()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (status(401, "no"), UpstreamError, "HTTP 401 Unauthorized: no: check its `headers`"),
        (
            status(302, Location="http://127.0.0.1:9/"),
            UpstreamError,
            "it moved: set its new `url`",
        ),
        (status(502, "<html>Bad gateway</html>"), UpstreamError, r"^HTTP 502 Bad Gateway$"),
        (status(200, "hello"), UpstreamError, "its answer is no JSON"),
        (status(202), UpstreamError, "HTTP 202"),
        (stream("data: {}\n\n"), UpstreamError, "its stream ended before the answer"),
        (stream("data: banner\n\n", {"id": 999, "result": {}}), UpstreamError, "its stream ended"),
        (stream("data: " + "x" * (MAX_LINE + 9)), TooLargeError, "16 MiB"),
    ],
)
async def test_what_is_no_answer_costs_its_request_and_says_why(site, answer, error, text):
    """facts/mcp.md, faults 16 and 36: the true cause, and the next request goes on."""
    client = await opened(site, tools__call=answer)
    with pytest.raises(error, match=text) as told:
        await ask(client)
    assert "secret" not in str(told.value)
    site.answers["tools/call"] = {"content": []}
    await ask(client)
    await client.link.close()


async def test_an_error_of_the_server_is_told_by_its_number(site):
    async def refuse(_request, body):
        error = {"code": -32602, "message": "no such tool"}
        return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)

    client = await opened(site, tools__call=refuse)
    with pytest.raises(RemoteError, match=r"no such tool \(-32602\)"):
        await ask(client)
    await client.link.close()


async def test_redirects_are_not_followed_with_the_owners_headers(site, another):
    async with another as other:
        client = await opened(site, tools__call=status(307, Location=other.url))
        with pytest.raises(UpstreamError, match="HTTP 307"):
            await ask(client)
        assert other.seen == []
        await client.link.close()


async def test_a_stream_that_ends_early_goes_on_where_it_was(site, monkeypatch):
    """MCP 2025-11-25, resumability: GET with Last-Event-ID after `retry`."""
    late = {"jsonrpc": "2.0", "id": "$ID", "result": {"content": []}}
    client = await opened(site, tools__call=stream("id: e-1\nretry: 1\ndata:\n\n"))
    ids = [body["id"] for key, _, body in site.seen if body and "id" in body]
    late["id"] = max(ids) + 1
    site.answers["GET"] = stream(late)
    await ask(client)
    key, headers, _ = site.seen[-1]
    assert (key, headers["Last-Event-ID"]) == ("GET", "e-1")
    await client.link.close()


async def test_a_cancelled_request_closes_its_stream(site):
    """MCP 2026-07-28: that is the cancellation."""
    never = asyncio.Event()
    never.gone = False
    answer = stream(": begun\n\n", wait=never)
    client = await opened(site, server__discover=DISCOVERED, tools__call=answer)
    task = asyncio.ensure_future(ask(client))
    async with asyncio.timeout(BOUND_S):
        while site.methods()[-1] != "tools/call":
            await asyncio.sleep(0)
        task.cancel()
        while not never.gone:
            await asyncio.sleep(0)
    assert "notifications/cancelled" not in site.methods()
    await client.link.close()


async def test_announcements_of_an_older_server_come_on_a_stream_that_need_not_be(
    site, monkeypatch
):
    """facts/mcp.md, fault 34: 405 is no failure, and one that ends at once is asked for slower."""
    monkeypatch.setattr(links, "RETRY_S", 0.001)
    client = await opened(site)
    client.link.watch()
    async with asyncio.timeout(BOUND_S):
        while "GET" not in site.methods():
            await asyncio.sleep(0)
    assert not client.link.lost.done()
    told = asyncio.Event()
    client.on_tools_changed = told.set
    site.answers["GET"] = stream({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    client.link.watch()
    async with asyncio.timeout(BOUND_S):
        await told.wait()
    await client.link.close()


async def test_a_server_of_the_oldest_transport_is_used(site):
    """MCP 2024-11-05, HTTP with SSE: an endpoint, then all answers on one stream."""
    lines = asyncio.Queue()

    async def listen(request, _body):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\ndata: /messages?id=1\n\n")
        while (line := await lines.get()) is not None:
            await response.write(b"event: message\ndata: %b\n\n" % line)
        return response

    def later(result):
        async def answer(request, body):
            assert request.path_qs == "/messages?id=1"
            assert request.headers["Authorization"] == "Bearer secret"
            if "id" in body:
                row = {"jsonrpc": "2.0", "id": body["id"], "result": result}
                lines.put_nowait(json.dumps(row).encode())
            return web.Response(status=202)

        return answer

    site.answers |= {
        "GET": listen,
        "initialize": later(INFO),
        "notifications/initialized": later(None),
        "tools/call": later({"content": []}),
    }
    client = Client()
    client.link = SseLink(site.url, SECRET, client)
    await client.link.open()
    await client.open("legacy")
    await ask(client)
    lines.put_nowait(None)
    async with asyncio.timeout(BOUND_S):
        assert await client.link.lost == "it closed its stream"
    with pytest.raises(UpstreamError, match="it closed its stream"):
        await ask(client)
    await client.link.close()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("http://127.0.0.1:9/steal", "to another server"),
        # A call waited its 60 s for these, and the log had Python's words.
        ("http://[bad/x", "to what is no URL"),
        ("http://a\uff0fb/x", "to what is no URL"),
    ],
)
async def test_messages_go_to_no_other_origin(site, place, words):
    """They carry the owner's headers."""
    site.answers["GET"] = stream(f"event: endpoint\ndata: {place}\n\n")
    client = Client()
    link = SseLink(site.url, SECRET, client)
    with pytest.raises(UpstreamError, match=words):
        await link.open()
    await link.close()


async def test_nobody_at_the_address_is_told_in_words(site):
    client = Client()
    client.link = HttpLink("http://127.0.0.1:9/mcp", SECRET, client)
    with pytest.raises(UpstreamError, match="no connection: Connection refused"):
        await ask(client)
    await client.link.close()


async def test_answers_that_a_server_does_not_take_are_few_and_end(site, monkeypatch):
    """Thousands of pings must not use up the descriptors of the daemon."""
    monkeypatch.setattr(links, "REPLY_S", 0.2)
    taken, held = asyncio.Event(), asyncio.Event()
    replies = []

    async def keep(_request, body):
        replies.append(body["id"])
        if body["id"] == "last":
            taken.set()
        await held.wait()
        return web.Response(status=202)

    def pinged(*ids):
        pings = [{"jsonrpc": "2.0", "id": one, "method": "ping"} for one in ids]
        done = 'data: {"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}\n\n'
        return stream(*pings, done)

    site.answers["POST"] = keep
    client = await opened(site, tools__call=pinged(*range(200)))
    await ask(client)
    site.answers["tools/call"] = pinged("last")
    async with asyncio.timeout(BOUND_S):
        while not taken.is_set():
            await ask(client)
    assert [one for one in replies if one != "last"] == [0, 1, 2, 3]
    held.set()
    await client.link.close()
