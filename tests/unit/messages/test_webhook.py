"""Webhooks, against a server on this machine (issue 4, part 6)."""

import asyncio
import base64
import json
import ssl

import pytest
from aiohttp import web

from edged.clock import iso, patience
from edged.messages import DeliveryError
from edged.messages.webhook import signature


@pytest.fixture
async def receiver(site):
    """Takes each message once, by its `webhook-id`; answers with what it is told."""
    site.asked, site.taken, site.answers = [], {}, []

    async def take(request):
        body = await request.read()
        site.asked.append((request.headers, body))
        if site.answers:
            return site.answers.pop(0)
        site.taken.setdefault(request.headers["webhook-id"], json.loads(body))
        return web.Response(status=204)

    site.app.router.add_post("/hook", take)
    site.always("GET", "/elsewhere", text="a page")
    await site.start()
    return site


async def test_a_message_is_json_with_its_id(receiver, channel, note, core):
    one = channel(kind="webhook", url=f"{receiver.url}/hook", headers={"X-Board": "shed"})
    await one.send(note(chat_id="42", title="Frost", priority=5), 0, "")
    [(headers, body)] = receiver.asked
    assert json.loads(body) == {
        "id": "0123456789abcdef",
        "time": iso(core.clock.now()),
        "user": "ada@example.org",
        "channel": "one",
        "chat_id": "42",
        "title": "Frost",
        "text": "hello",
        "priority": 5,
    }
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == headers["webhook-id"] == "0123456789abcdef"
    assert headers["X-Board"] == "shed"
    assert "webhook-signature" not in headers


def test_signature_is_the_one_of_the_standard():
    """Standard Webhooks: the example of its reference libraries."""
    body = b'{"event_type":"ping","data":{"success":true}}'
    secret = "whsec_plJ3nmyCDGBKInavdOK15jsl"
    found = signature(secret, "msg_loFOjxBNrRLzqYUf", 1731705121, body)
    assert found == "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="


async def test_what_is_sent_is_what_is_signed(receiver, channel, note):
    one = channel(kind="webhook", url=f"{receiver.url}/hook", secret="open sesame")
    await one.send(note(text="naïve ☃"), 0, "")
    [(headers, body)] = receiver.asked
    name, time = headers["webhook-id"], int(headers["webhook-timestamp"])
    assert headers["webhook-signature"] == signature("open sesame", name, time, body)


async def test_a_receiver_that_looks_at_the_id_takes_it_once(receiver, channel, note):
    """Part 6: at least once, made once where the channel allows it."""
    one = channel(kind="webhook", url=f"{receiver.url}/hook")
    await one.send(note(), 0, "")
    await one.send(note(), 0, "")
    assert len(receiver.asked) == 2
    assert [row["text"] for row in receiver.taken.values()] == ["hello"]


async def test_a_file_goes_along(receiver, channel, note, picture):
    path, file = picture(b"\x89PNG\0")
    one = channel(kind="webhook", url=f"{receiver.url}/hook")
    await one.send(note(file=file), 0, path)
    found = json.loads(receiver.asked[0][1])["file"]
    assert base64.b64decode(found.pop("data")) == b"\x89PNG\0"
    assert found == {"name": "picture.png", "mime_type": "image/png", "size": 5}


async def test_the_owner_s_body_speaks_the_service_s_words(receiver, channel, note):
    """Discord wants `content`; what a message says is no template."""
    body = {"content": "{title}: {text}", "embeds": [{"n": 1, "of": "{user}"}], "x": "{y} {"}
    one = channel(kind="webhook", url=f"{receiver.url}/hook", body=body)
    await one.send(note(text='{user} "quoted"', title="T"), 0, "")
    assert json.loads(receiver.asked[0][1]) == {
        "content": 'T: {user} "quoted"',
        "embeds": [{"n": 1, "of": "ada@example.org"}],
        "x": "{y} {",
    }
    assert one.file_max == 0


@pytest.mark.parametrize(
    ("status", "is_final"),
    [(400, True), (413, True), (422, True), (401, False), (403, False), (404, False),
     (408, False), (429, False), (500, False), (503, False), (302, False)],
)  # fmt: skip
async def test_refusals_say_whether_it_is_the_message(receiver, channel, note, status, is_final):
    """RFC 9110, section 15: what the owner or time may mend is tried again."""
    one = channel(kind="webhook", url=f"{receiver.url}/hook")
    headers = {"Location": f"{receiver.url}/elsewhere"} if status == 302 else {}
    receiver.answers = [web.Response(status=status, text="no\n  way", headers=headers)]
    with pytest.raises(DeliveryError, match=f"HTTP {status}") as caught:
        await one.send(note(), 0, "")
    assert caught.value.is_final is is_final
    assert len(receiver.asked) == 1
    assert ("no way" in str(caught.value)) is (status != 302)


async def test_retry_after_is_understood(receiver, channel, note):
    one = channel(kind="webhook", url=f"{receiver.url}/hook")
    receiver.answers = [web.Response(status=429, headers={"Retry-After": "120"})]
    with pytest.raises(DeliveryError) as caught:
        await one.send(note(), 0, "")
    assert caught.value.retry_after_s == 120.0


def test_retry_after_is_seconds_or_a_date():
    """RFC 9110, section 10.2.3, and the date of its section 5.6.7."""
    now = 784111777.0
    assert patience("120", now) == 120.0
    assert patience("Sun, 06 Nov 1994 08:49:47 GMT", now) == 10.0
    assert patience("Sun, 06 Nov 1994 08:49:27 GMT", now) == 0.0
    for text in ("", "soon", "-5", "١٢", "1e3", "Sun, 99 Nov 1994"):
        assert patience(text, now) == 0.0


async def test_no_reason_names_the_address(channel, note):
    """Addresses of webhooks are secrets (Slack, Discord)."""
    one = channel(kind="webhook", url="http://127.0.0.1:9/s3cret/path")
    with pytest.raises(DeliveryError) as caught:
        await one.send(note(), 0, "")
    assert str(caught.value) == "no connection: Connection refused"
    assert not caught.value.is_final


async def test_a_server_that_hangs_up_may_be_there_again(channel, note):
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        one = channel(kind="webhook", url=f"http://127.0.0.1:{port}/s3cret")
        with pytest.raises(DeliveryError) as caught:
            await one.send(note(), 0, "")
    assert str(caught.value) == "the server closed the connection"
    assert not caught.value.is_final


async def test_a_name_that_nobody_knows_may_be_known_later(channel, note):
    """RFC 6761, section 6.4: `.invalid` never resolves; so does a board without a network."""
    one = channel(kind="webhook", url="http://nowhere.invalid/s3cret")
    with pytest.raises(DeliveryError, match="the server's name is not known here") as caught:
        await one.send(note(), 0, "")
    assert not caught.value.is_final


async def test_certificates_are_checked_and_one_s_own_can_be_named(
    site, channel, note, certificate
):
    site.always("POST", "/hook")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    await site.start(context)
    url = f"{site.url}/hook"
    with pytest.raises(DeliveryError, match="certificate is not trusted"):
        await channel(kind="webhook", url=url).send(note(), 0, "")
    await channel(kind="webhook", url=url, ca_file=certificate[0]).send(note(), 0, "")
