"""ntfy, against a server that behaves as its documentation says (issue 4, part 6)."""

import json
import re
from email.header import decode_header, make_header

import pytest
from aiohttp import web

from edged.errors import DeniedError, InvalidArgumentsError
from edged.messages import DeliveryError


def refused(status, code, error):
    return web.json_response({"code": code, "http": status, "error": error}, status=status)


@pytest.fixture
async def ntfy(site):
    """Publishing of ntfy 2.16: JSON to the root, a file to the topic; a phone's notifications."""
    site.published, site.phone, site.limited = [], {}, False

    def publish(request, row):
        if site.limited:
            return refused(429, 42901, "limit reached: too many requests")
        if request.headers.get("Authorization") not in (None, "Bearer tk_abc", "Basic YWRhOnB3"):
            return refused(401, 40101, "unauthorized")
        if not re.fullmatch(r"[-_A-Za-z0-9]{1,64}", row["topic"]):
            return refused(400, 40009, "invalid request: topic invalid")
        site.published.append(row)
        site.phone[row["topic"], row["sequence_id"]] = row
        return web.json_response({"id": "x", "event": "message", "topic": row["topic"]})

    async def as_json(request):
        row = json.loads(await request.read())
        return publish(request, {"priority": 3, "title": "", "tags": [], **row})

    async def as_file(request):
        def text(name):
            return str(make_header(decode_header(request.headers.get(name, ""))))

        row = {
            "topic": request.match_info["topic"],
            "message": text("Message").replace("\\n", "\n"),
            "title": text("Title"),
            "priority": int(request.headers["Priority"]),
            "tags": request.headers.get("Tags", "").split(","),
            "sequence_id": request.headers["X-Sequence-ID"],
            "file": (text("Filename"), await request.read()),
        }
        return publish(request, row)

    site.app.router.add_post("/", as_json)
    site.app.router.add_put("/{topic}", as_file)
    await site.start()
    return site


async def test_text_is_published_with_title_and_priority(ntfy, channel, note):
    one = channel(kind="ntfy", url=ntfy.url, topic="shed", token="tk_abc", tags=["seedling"])
    await one.send(note(chat_id="shed", title="Frost ☃", priority=5, text="grüß\ndich"), 0, "")
    assert ntfy.published == [
        {
            "topic": "shed",
            "message": "grüß\ndich",
            "title": "Frost ☃",
            "priority": 5,
            "tags": ["seedling"],
            "sequence_id": "0123456789abcdef",
        }
    ]


async def test_a_file_is_put_with_its_words_in_headers(ntfy, channel, note, picture):
    """The server takes RFC 2047 in headers."""
    path, file = picture(b"\x89PNG" * 1000, "Beet größer.png")
    one = channel(kind="ntfy", url=f"{ntfy.url}/", topic="shed", username="ada", password="pw")
    await one.send(note(chat_id="shed", text="zwei\nZeilen ü", title="a", file=file), 0, path)
    [row] = ntfy.published
    assert row["file"] == ("Beet größer.png", b"\x89PNG" * 1000)
    assert (row["message"], row["title"], row["priority"]) == ("zwei\nZeilen ü", "a", 3)


async def test_what_comes_twice_shows_once_on_the_phone(ntfy, channel, note, picture):
    """Part 6: made once where the channel allows it (ntfy: "Updating notifications")."""
    one = channel(kind="ntfy", url=ntfy.url, topic="shed")
    path, file = picture(b"x")
    for _ in range(2):
        await one.send(note(chat_id="shed"), 0, "")
        await one.send(note(chat_id="shed", id="f" * 16, file=file), 0, path)
    assert len(ntfy.published) == 4
    assert len(ntfy.phone) == 2


async def test_a_wrong_token_may_be_mended_a_limit_passes(ntfy, channel, note):
    one = channel(kind="ntfy", url=ntfy.url, topic="shed", token="tk_wrong")
    with pytest.raises(DeliveryError, match="HTTP 401: .*unauthorized") as caught:
        await one.send(note(chat_id="shed"), 0, "")
    assert not caught.value.is_final
    ntfy.limited = True
    with pytest.raises(DeliveryError, match="42901") as caught:
        await one.send(note(chat_id="shed"), 0, "")
    assert not caught.value.is_final


async def test_a_portal_in_between_is_not_ntfy(site, channel, note):
    """A hotel's network answers 200 to everything."""
    site.always("POST", "/", text="<html>Welcome!")
    await site.start()
    one = channel(kind="ntfy", url=site.url, topic="shed")
    with pytest.raises(DeliveryError, match="not ntfy"):
        await one.send(note(chat_id="shed"), 0, "")


def test_agents_name_topics_of_the_configuration_only(channel):
    one = channel(kind="ntfy", topic="shed", chats=["house"])
    assert one.chat("", free=False) == one.chat("shed", free=False) == "shed"
    assert one.chat("house", free=False) == "house"
    with pytest.raises(DeniedError, match="'street' is not one that agents may send to"):
        one.chat("street", free=False)
    assert one.chat("street", free=True) == "street"
    with pytest.raises(InvalidArgumentsError, match="is no topic"):
        one.chat("../admin", free=True)
    assert channel(kind="ntfy", topic="shed", chats="any").chat("street", free=False) == "street"
