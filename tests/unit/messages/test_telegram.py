"""Telegram, against a server that behaves as its Bot API says (issue 4, part 6)."""

import json

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import DeniedError, InvalidArgumentsError
from edged.messages import DeliveryError
from edged.messages.telegram import TEXT_MAX, split, units

TOKEN = "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"
CHATS = {"42", "@garden"}


def no(code, description, **parameters):
    body = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    return web.json_response(body, status=code)


@pytest.fixture
async def telegram(site):
    site.sent, site.flood = [], 0

    async def call(request):
        if request.match_info["token"] != f"bot{TOKEN}":
            return no(401, "Unauthorized")
        if site.flood:
            return no(429, f"Too Many Requests: retry after {site.flood}", retry_after=site.flood)
        method = request.match_info["method"]
        if request.content_type == "application/json":
            fields = json.loads(await request.read())
        else:
            fields = dict(await request.post())
        if fields["chat_id"] == "blocked":
            return no(403, "Forbidden: bot was blocked by the user")
        if fields["chat_id"] not in CHATS:
            return no(400, "Bad Request: chat not found")
        text = fields.get("text", fields.get("caption", ""))
        limit = 4096 if method == "sendMessage" else 1024
        if len(text.encode("utf-16-le")) // 2 > limit:
            return no(400, "Bad Request: message is too long")
        if method == "sendMessage" and not text.strip():
            return no(400, "Bad Request: message text is empty")
        for name in ("photo", "document"):
            if name in fields:
                part = fields[name]
                fields[name] = (part.filename, part.content_type, part.file.read())
        site.sent.append((method, fields))
        message = {"message_id": 7, "date": 1, "text": text}
        return web.json_response({"ok": True, "result": message})

    site.app.router.add_post("/{token}/{method}", call)
    await site.start()
    return site


@pytest.fixture
def bot(telegram, channel):
    def make(**settings):
        return channel(kind="telegram", url=telegram.url, token=TOKEN, chat_id=42, **settings)

    return make


async def sent(one, message, path=""):
    for step in range(one.steps(message)):
        await one.send(message, step, path)


async def test_text_goes_to_its_chat(telegram, bot, note):
    await sent(bot(), note(chat_id="42", title="Frost", reply_to="9", priority=1))
    assert telegram.sent == [
        (
            "sendMessage",
            {
                "chat_id": "42",
                "text": "Frost\n\nhello",
                "disable_notification": True,
                "reply_parameters": {"message_id": 9, "allow_sending_without_reply": True},
            },
        )
    ]


async def test_long_text_comes_in_parts_of_4096(telegram, bot, note):
    lines = [f"line {number} ☃🙂" for number in range(1_000)]
    await sent(bot(), note(chat_id="@garden", text="\n".join(lines)))
    texts = [fields["text"] for _, fields in telegram.sent]
    assert len(texts) > 3
    assert "\n".join(texts).split("\n") == lines


@given(st.text(st.sampled_from("ab \n🙂é"), max_size=400), st.integers(4, 60))
def test_parts_fit_and_nothing_but_space_is_lost(text, limit):
    """Bot API: 1 to 4096 characters, in UTF-16 code units as entities count them."""
    parts = split(text, limit)
    assert all(0 < len(p.encode("utf-16-le")) // 2 <= limit and p.strip() for p in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(units(p) == len(p.encode("utf-16-le")) // 2 for p in parts)


async def test_a_picture_goes_as_photo_all_else_as_document(telegram, bot, note, picture):
    path, file = picture(b"\x89PNG")
    await sent(bot(), note(chat_id="42", text="look", file=file), path)
    path, file = picture(b"%PDF-1.7", "Bericht ä.pdf", "application/pdf")
    await sent(bot(), note(chat_id="42", text="", file=file), path)
    assert telegram.sent == [
        ("sendPhoto", {"chat_id": "42", "caption": "look", "photo": ("picture.png", "image/png", b"\x89PNG")}),
        ("sendDocument", {"chat_id": "42", "document": ("Bericht ä.pdf", "application/pdf", b"%PDF-1.7")}),
    ]  # fmt: skip


async def test_a_caption_that_is_too_long_goes_before_its_file(telegram, bot, note, picture):
    path, file = picture(b"x")
    message = note(chat_id="42", text="w" * (TEXT_MAX + 1), file=file)
    assert bot().steps(message) == 3
    await sent(bot(), message, path)
    assert [method for method, _ in telegram.sent] == ["sendMessage", "sendMessage", "sendPhoto"]
    assert "caption" not in telegram.sent[2][1]


async def test_a_flood_says_how_long_to_wait(telegram, bot, note):
    """Bot API, ResponseParameters."""
    telegram.flood = 35
    with pytest.raises(DeliveryError, match="Too Many Requests") as caught:
        await sent(bot(), note(chat_id="42"))
    assert (caught.value.retry_after_s, caught.value.is_final) == (35.0, False)


@pytest.mark.parametrize("chat", ["nobody", "blocked"])
async def test_a_chat_that_is_not_there_is_final(telegram, bot, note, chat):
    with pytest.raises(DeliveryError, match="Telegram: (Bad Request|Forbidden)") as caught:
        await sent(bot(), note(chat_id=chat))
    assert caught.value.is_final


async def test_a_wrong_token_waits_to_be_mended_and_is_not_told(telegram, channel, note):
    one = channel(kind="telegram", url=telegram.url, token="1:wrong", chat_id=42)
    with pytest.raises(DeliveryError, match="Unauthorized") as caught:
        await sent(one, note(chat_id="42"))
    assert not caught.value.is_final
    assert "wrong" not in str(caught.value)
    assert one.secrets == ("1:wrong",)


@pytest.mark.parametrize(
    ("status", "words"), [(200, "is not Telegram"), (502, "HTTP 502: <html>Welcome!")]
)
async def test_what_is_not_telegram_has_taken_nothing(site, channel, note, status, words):
    """A hotel's network answers 200 to everything; a proxy answers for a server that is down."""
    site.always("POST", "/{rest:.*}", status=status, text="<html>Welcome!")
    await site.start()
    one = channel(kind="telegram", url=site.url, token=TOKEN, chat_id=42)
    with pytest.raises(DeliveryError, match=words) as caught:
        await one.send(note(chat_id="42"), 0, "")
    assert not caught.value.is_final


async def test_an_answer_longer_than_what_is_read_of_it_is_one(telegram, bot, note):
    """A sent text of 4096 characters comes back in the answer."""
    await sent(bot(), note(chat_id="42", text="w" * TEXT_MAX))
    assert len(telegram.sent) == 1


def test_agents_name_chats_of_the_configuration_only(bot, channel):
    one = bot(chats=[43, "@garden"])
    assert [one.chat(c, free=False) for c in ("", "42", "43", "@garden")] == [
        "42",
        "42",
        "43",
        "@garden",
    ]
    with pytest.raises(DeniedError):
        one.chat("44", free=False)
    assert one.chat("44", free=True) == "44"
    bare = channel(kind="telegram", token=TOKEN)
    with pytest.raises(InvalidArgumentsError, match="chat_id: is required"):
        bare.chat("", free=False)
