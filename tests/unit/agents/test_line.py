"""The line to a model's server, with servers that answer in every way but the right one."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from edged.agents import line as lines
from edged.agents.line import Line
from edged.agents.providers import Question, Told, Usage
from edged.errors import ModelError
from edged.sections import ModelProvider

QUESTION = Question("m", "", (Told("Hi"),), (), 9)
KEY = "sk-secret-key"
BOUND_S = 10.0
CHUNK = b'{"choices": [{"delta": {"content": "Hel"}}]}'
LAST = b'{"choices": [{"delta": {"content": "lo"}, "finish_reason": "stop"}]}'
USAGE = b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
STREAM = b"data: %s\n\ndata: %s\n\ndata: %s\n\ndata: [DONE]\n\n" % (CHUNK, LAST, USAGE)


@asynccontextmanager
async def serving(*answers, **settings):
    """A line to a server that answers so, one after the other; then as the last."""
    asked, waits = [], []
    left = list(answers)

    async def serve(request):
        asked.append((request.headers.get("Authorization", ""), await request.read()))
        answer = left.pop(0) if len(left) > 1 else left[0]
        return await answer(request)

    async def sleep(seconds):
        waits.append(seconds)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", serve)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/"
    facts = {"base_url": base, "model": "m", "api_key": KEY} | settings
    line = Line(
        "far", ModelProvider(**facts), now=lambda: 1_000.0, sleep=sleep, jitter=lambda: 0.0
    )
    line.asked, line.waits = asked, waits
    try:
        yield line
    finally:
        await line.close()
        await line.close()
        await runner.cleanup()


def streams(*pieces, kind="text/event-stream"):
    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return answer


def refuses(status, body="", **headers):
    async def answer(_request):
        return web.Response(status=status, text=body, headers=headers)

    return answer


async def breaks_off(request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: %s\n\n" % CHUNK)
    request.transport.abort()
    return response


@pytest.mark.parametrize(
    "body",
    [
        STREAM,
        STREAM.replace(b"\n", b"\r\n"),
        b": ping\n\nevent: x\nid: 1\nretry: 5\n" + STREAM,
        STREAM.replace(b"data: ", b"data:"),
        STREAM.replace(b'{"choices": [{', b'{"choices":\ndata: [{'),
        STREAM.removesuffix(b"data: [DONE]\n\n"),
        STREAM.removesuffix(b"\ndata: [DONE]\n\n"),
    ],
    ids=["plain", "crlf", "comments", "no blank", "lines", "no end", "no last blank line"],
)  # fmt: skip
async def test_an_event_stream_is_understood_however_it_is_written_and_cut(body):
    """HTML Standard, section 9.2."""
    whole = streams(body)
    bytewise = streams(*(body[i : i + 1] for i in range(len(body))))
    async with serving(whole, bytewise) as line:
        for _ in range(2):
            said = await line.ask(QUESTION)
            assert (said.text, said.usage, said.stop) == ("Hello", Usage(3, 4), "stop")
    assert line.waits == []
    assert {key for key, _ in line.asked} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            b"<html>Login</html>",
            "text/html",
            "http://127.*/v1/chat/completions answers with text/html, but .*: see base_url",
        ),
        (b'{"status": "ok"}', "application/json", "with application/json, but .*: see base_url"),
        (b"data: <html>\n\n", "text/event-stream", "sent what is no JSON object: '<html>'"),
        (b'"no"', "application/json", "sent what is no JSON object"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "text/event-stream", "no JSON object"),
        (b"data: \xff\xfe\n\n", "text/event-stream", "no JSON object"),
        (b"", "text/event-stream", "ended in the middle"),
    ],
)
async def test_an_answer_that_is_none_is_asked_for_again_and_then_told(body, kind, words):
    async with serving(streams(body, kind=kind)) as line:
        with pytest.raises(ModelError, match=f"model provider far: .*{words}"):
            await line.ask(QUESTION)
    assert len(line.asked) == lines.TRIES
    assert line.waits == [1.0, 2.0, 4.0]


async def test_a_server_that_never_ends_is_not_listened_to_for_ever(monkeypatch):
    monkeypatch.setattr(lines, "ANSWER_MAX", 1 << 16)
    monkeypatch.setattr(lines, "EVENT_MAX", 1 << 14)
    filler = b": %s\n\n" % (b"x" * 1_000)
    for body, kind in (
        ((filler,) * 80, "text/event-stream"),
        ((b"data: " + b"x" * 20_000,), "text/event-stream"),
        ((b"[" + b"1," * 40_000,), "application/json"),
    ):
        async with serving(streams(*body, kind=kind)) as line:
            with pytest.raises(ModelError, match="the model's answer is larger than"):
                await line.ask(QUESTION)


@pytest.mark.parametrize(("tokens", "words"), [(9, "1024 KiB"), (2_000, "2000 KiB")])
async def test_an_answer_is_no_larger_than_its_tokens_can_be(tokens, words):
    """A server that sends megabytes for a few tokens fills the memory of a small board."""
    event = b"data: %s\n\n" % CHUNK.replace(b"Hel", b"x" * 100_000)
    question = msgspec.structs.replace(QUESTION, max_tokens=tokens)
    async with serving(streams(*(event,) * 22, STREAM)) as line:
        with pytest.raises(ModelError, match=f"the model's answer is larger than {words}"):
            await line.ask(question)
        enough = msgspec.structs.replace(QUESTION, max_tokens=3_000)
        assert (await line.ask(enough)).text == "x" * 2_200_000 + "Hello"


async def test_a_connection_that_breaks_off_is_tried_again():
    async with serving(breaks_off, streams(STREAM)) as line:
        assert (await line.ask(QUESTION)).text == "Hello"
    assert line.waits == [1.0]
    async with serving(breaks_off) as line:
        with pytest.raises(ModelError, match=r"model provider far: http://127.* broke off: "):
            await line.ask(QUESTION)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "no such\\nmodel"}}', "HTTP 404: no such model"),
        ('{"error": "no such model"}', "HTTP 404: no such model"),
        ('{"message": "no such model"}', "HTTP 404: no such model"),
        ('{"error": {"code": 3}}', r'HTTP 404: \{"error": \{"code": 3\}\}'),
        ("[1]", r"HTTP 404: \[1\]"),
        ("<html>", "HTTP 404: <html>"),
        ("", r"HTTP 404 \(http://127.*/v1/chat/completions: see base_url and the model's name\)$"),
        ("x" * 10_000, r"HTTP 404: x{300} \(http"),
        (f"no key {KEY} here", r"HTTP 404: no key (?!sk-).* here"),
        (f"{'x' * 295}{KEY}", r"HTTP 404: x{295}\[\*\*\*\] \(http"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words_without_a_key(body, words):
    async with serving(refuses(404, body)) as line:
        with pytest.raises(ModelError, match=words) as caught:
            await line.ask(QUESTION)
    assert len(line.asked) == 1
    assert KEY not in str(caught.value)


async def test_a_fault_is_told_in_the_servers_words_without_a_part_of_a_key():
    fault = msgspec.json.encode({"error": {"message": f"{'x' * 295}{KEY}"}})
    async with serving(streams(b"data: %b\n\n" % fault)) as line:
        with pytest.raises(
            ModelError, match=r"model provider far: the .* says: x{295}\[\*\*\*\]$"
        ):
            await line.ask(QUESTION)


@pytest.mark.parametrize("status", sorted(lines.AGAIN))
async def test_a_busy_server_is_asked_again(status):
    async with serving(refuses(status), streams(STREAM)) as line:
        assert (await line.ask(QUESTION)).text == "Hello"


@pytest.mark.parametrize(
    ("value", "waits"),
    [
        ("7", [7.0]),
        ("Thu, 01 Jan 1970 00:17:10 GMT", [30.0]),
        ("Thu, 01 Jan 1970 00:00:00 GMT", [1.0]),
        ("soon", [1.0]),
    ],
)
async def test_retry_after_is_a_number_or_a_date(value, waits):
    """RFC 9110, section 10.2.3; it is second 1,000 here."""
    busy = refuses(429, **{"Retry-After": value})
    async with serving(busy, streams(STREAM)) as line:
        assert (await line.ask(QUESTION)).text == "Hello"
    assert line.waits == waits


async def test_nobody_waits_longer_than_a_task_has():
    busy = refuses(429, "slow down", **{"Retry-After": "3600"})
    async with serving(busy) as line:
        with pytest.raises(ModelError, match="slow down; it asks for 3600 s of patience"):
            await line.ask(QUESTION)
    assert line.waits == []


async def test_keys_take_turns_where_one_is_refused():
    async with serving(refuses(401), streams(STREAM), api_keys=["second"]) as line:
        assert (await line.ask(QUESTION)).text == "Hello"
        assert (await line.ask(QUESTION)).text == "Hello"
    assert [key for key, _ in line.asked] == [f"Bearer {KEY}", "Bearer second", "Bearer second"]
    async with serving(refuses(401, "wrong key")) as line:
        with pytest.raises(ModelError, match=r"HTTP 401: wrong key \(check `api_key` of"):
            await line.ask(QUESTION)
    assert len(line.asked) == 1, "the only one is not tried again"


async def test_a_redirect_gets_no_key():
    """It may lead anywhere."""
    async with serving(refuses(307, Location="http://127.0.0.1:9/v1/chat/completions")) as line:
        with pytest.raises(ModelError, match="HTTP 307"):
            await line.ask(QUESTION)
    assert len(line.asked) == 1


async def test_headers_of_the_owner_go_along():
    async with serving(streams(STREAM), headers={"Authorization": "Basic abc"}) as line:
        await line.ask(QUESTION)
    ((key, body),) = line.asked
    assert key == "Basic abc"
    assert msgspec.json.decode(body)["messages"] == [{"role": "user", "content": "Hi"}]


async def test_a_question_that_nobody_waits_for_is_dropped():
    arrived = asyncio.Event()
    gone = asyncio.Event()

    async def hangs(request):
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with serving(hangs) as line:
        asking = asyncio.create_task(line.ask(QUESTION))
        await arrived.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(BOUND_S):
            await gone.wait()


def test_keys_and_headers_that_are_one_by_their_names_are_secrets():
    headers = {"X-Title": "a board", "Authorization": "Bearer abcdef", "x-goog-api-key": "ghi"}
    settings = ModelProvider(kind="openai", api_key=KEY, api_keys=["other"], headers=headers)
    assert settings.secrets == (KEY, "other", "abcdef", "ghi")
    assert ModelProvider(kind="openai").secrets == ()
