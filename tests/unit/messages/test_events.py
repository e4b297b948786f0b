"""The event stream as a channel (issue 4, part 6)."""

import base64

import pytest

from edged.messages import DeliveryError


@pytest.fixture
def heard(core):
    events = []
    core.events.subscribe(events.append)
    return events


async def test_a_message_is_an_event_of_its_user(channel, note, heard):
    """Contract, section 6: `GET /api/events` has messages."""
    one = channel(kind="events")
    await one.send(note(chat_id=one.chat("kitchen", free=False)), 0, "")
    [event] = heard
    assert (event.kind, event.user) == ("message", "ada@example.org")
    assert (event.data["id"], event.data["text"], event.data["chat_id"]) == (
        "0123456789abcdef", "hello", "kitchen",
    )  # fmt: skip


async def test_a_file_is_a_medium_of_its_user(core, channel, note, heard, picture):
    path, file = picture(b"\x89PNG")
    await channel(kind="events").send(note(file=file), 0, path)
    uri = heard[0].data["file"]["media"]
    found = core.control.media(core.agent, uri, 0)
    assert base64.b64decode(found["data"]) == b"\x89PNG"
    assert (found["mime_type"], found["name"]) == ("image/png", "picture.png")


async def test_a_file_over_the_media_s_bound_is_final(channel, note, picture):
    path, file = picture(bytes((32 << 20) + 1))
    with pytest.raises(DeliveryError, match="over the limit") as caught:
        await channel(kind="events").send(note(file=file), 0, path)
    assert caught.value.is_final
