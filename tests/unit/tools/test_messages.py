"""`message` and `send_file` (issue 4, part 6; spec, "Communication Tools")."""

import asyncio
import json
import re
from pathlib import Path

import msgspec
import pytest

from edged.errors import InvalidArgumentsError
from edged.identity import Caller
from edged.messages import Surroundings
from edged.messages._channels import open_channels
from edged.messages._outbox import Limits, Outbox
from edged.policy import Policy
from edged.sections import Files
from edged.tools import messages
from edged.workspace import Workspace
from edged.workspace.homes import Homes

SPECIFICATION = (Path(__file__).parents[2] / "data" / "tools-api.md").read_text()
SECTION = SPECIFICATION.split("### Communication Tools")[1].split("\n### ")[0]


def example(title):
    """The arguments of the document's example, its comments left out."""
    block = (
        SECTION.split(f"**{title} Expected Arguments**:")[1].split("```json")[1].split("```")[0]
    )
    return json.loads(re.sub(r"//[^\n]*", "", block))


class Desk:
    """Both tools over channels that are events."""

    def __init__(self, core):
        self.core = core
        homes = Homes(core.data, {})
        policy = Policy(core.store, core.clock, core.events)
        self.workspace = Workspace(core.data, homes, policy, Files(), media=core.media.file)
        homes.ready(core.agent.user)
        self.folder = Path(core.data) / core.agent.user / "workspace"
        self.events = []
        core.events.subscribe(self.events.append)
        around = Surroundings(core.clock, core.events.publish, core.media.put)
        channels = open_channels(
            {
                "stream": {"kind": "events", "max_file": "1K"},
                "telegram": {"kind": "events"},
                "phone": {"kind": "ntfy", "topic": "shed", "url": "http://127.0.0.1:9"},
            },
            around,
        )
        self.outbox = Outbox(
            f"{core.data}/outbox", channels, "stream", Limits(), core.clock, core.events,
            spawn=core.spawn,
        )  # fmt: skip
        core.dispatcher.services = msgspec.structs.replace(
            core.dispatcher.services, messages=lambda: self.outbox, workspace=self.workspace
        )
        core.add(*messages.TOOLS)

    async def call(self, name, caller=None, **arguments):
        raw = msgspec.json.encode(arguments)
        result = await self.core.call(name, raw, caller or self.core.agent)
        async with asyncio.timeout(self.core.bound_s):
            while self.outbox.health()["channels"]["stream"] != "ok":
                await asyncio.sleep(0)
            while self.outbox.health()["channels"]["telegram"] != "ok":
                await asyncio.sleep(0)
        return result

    async def refusal(self, name, caller=None, **arguments):
        """What a call is told that fails, or is not even begun."""
        try:
            result = await self.call(name, caller, **arguments)
        except InvalidArgumentsError as error:
            return str(error)
        assert result.is_error
        return result.for_llm

    @property
    def told(self):
        return [e.data for e in self.events if e.kind == "message"]


@pytest.fixture
async def desk(core):
    made = Desk(core)
    yield made
    await made.outbox.close(0.0)
    await made.workspace.close()


async def test_the_document_s_message_is_sent(desk):
    """Spec, "Message Tool Expected Arguments"."""
    given = example("Message Tool")
    assert given == {
        "text": "Hello from the agent!", "channel": "telegram", "chat_id": "123456",
    }  # fmt: skip
    result = await desk.call("message", **given)
    assert not result.is_error
    assert result.structured == {
        "id": desk.told[0]["id"], "channel": "telegram", "chat_id": "123456", "status": "queued",
    }  # fmt: skip
    assert desk.told[0]["text"] == "Hello from the agent!"
    assert desk.told[0]["id"] in result.for_llm


async def test_the_document_s_file_is_sent(desk):
    """Spec, "Send File Expected Arguments"."""
    (desk.folder / "report.pdf").write_bytes(b"%PDF-1.7")
    result = await desk.call("send_file", **example("Send File"))
    assert result.for_llm.startswith("report.pdf (8 bytes) accepted for stream")
    [told] = desk.told
    assert told["text"] == "Here's your file"
    file = told["file"]
    assert (file["name"], file["mime_type"], file["size"]) == ("report.pdf", "application/pdf", 8)


@pytest.mark.parametrize(
    "arguments", [{"content": "hello"}, {"text": "hello", "reply_to_message_id": "7"}]
)
async def test_other_words_for_message_are_understood(desk, arguments):
    """Contract, section 8: `text`/`content`."""
    assert not (await desk.call("message", **arguments)).is_error
    assert desk.told[0]["text"] == "hello"
    assert desk.told[0].get("reply_to", "") == arguments.get("reply_to_message_id", "")


@pytest.mark.parametrize("word", ["text", "content", "caption"])
async def test_other_words_for_send_file_are_understood(desk, word):
    (desk.folder / "a.txt").write_bytes(b"x")
    await desk.call("send_file", file_path="a.txt", filename="../b\n.txt", **{word: "see"})
    assert (desk.told[0]["text"], desk.told[0]["file"]["name"]) == ("see", "b.txt")


async def test_the_caller_s_context_is_where_it_goes(desk):
    """Contract, section 4: `channel` and `chat_id` of the caller's context."""
    here = Caller("ada@example.org", "agent", "", "http", "t", "telegram", "99")
    result = await desk.call("message", here, text="hello")
    assert (result.structured["channel"], result.structured["chat_id"]) == ("telegram", "99")
    # Names in the arguments go before the context's.
    result = await desk.call("message", here, text="hello", chat_id="100")
    assert (result.structured["channel"], result.structured["chat_id"]) == ("telegram", "100")
    result = await desk.call("message", here, text="hello", channel="stream")
    assert (result.structured["channel"], result.structured["chat_id"]) == ("stream", "")


async def test_a_name_widens_no_right(desk):
    """Contract, section 8, and issue 4: an agent names configured channels only."""
    told = await desk.refusal("message", text="x", channel="mail")
    assert "channel: no channel 'mail' is configured; there are: phone, stream, telegram" in told
    told = await desk.refusal("message", text="x", channel="phone", chat_id="street")
    assert "topic 'street' is not one that agents may send to" in told
    injected = Caller("ada@example.org", "agent", "", "http", "t", "phone", "street")
    assert "'street' is not one" in await desk.refusal("message", injected, text="x")
    assert desk.outbox.health()["waiting"] == 0


@pytest.mark.parametrize(
    "arguments", [{}, {"text": ""}, {"text": " \n"}, {"text": "x", "priority": 6}]
)
async def test_a_message_without_words_is_refused(desk, arguments):
    told = await desk.refusal("message", **arguments)
    assert ("priority" if "priority" in arguments else "text") in told
    assert desk.outbox.health()["sent"] == 0


async def test_what_is_sent_is_the_file_of_that_moment(desk):
    """Part 6: later changes do not matter."""
    path = desk.folder / "log.txt"
    path.write_bytes(b"before")
    await desk.call("send_file", path="log.txt")
    path.write_bytes(b"after, and more")
    uri = desk.told[0]["file"]["media"]
    medium = desk.core.media.get("ada@example.org", uri)
    assert desk.core.media.read(medium, 0, 100) == b"before"


async def test_a_medium_keeps_its_name_and_type(desk):
    """`media://`, as every file tool takes it."""
    uri = desk.core.media.put("ada@example.org", b"\x89PNG", "image/png", "chart.png")
    await desk.call("send_file", path=uri)
    file = desk.told[0]["file"]
    assert (file["name"], file["mime_type"]) == ("chart.png", "image/png")
    other = desk.core.media.put("bob@example.org", b"x", "image/png", "his.png")
    assert "no medium" in await desk.refusal("send_file", path=other)


async def test_a_file_over_the_channel_s_bound_is_refused(desk):
    (desk.folder / "big").write_bytes(bytes(1_025))
    told = await desk.refusal("send_file", path="big")
    assert "big has 1025 bytes, over the 1024 that channel 'stream' takes" in told
    (desk.folder / "sub").mkdir()
    told = await desk.refusal("send_file", path="sub")
    assert "path: is a directory: pack it into a file first" in told
    told = await desk.refusal("send_file", path="/etc/hosts")
    assert "/etc/hosts is outside of your directories" in told
    assert "/workspace/missing: No such file" in await desk.refusal("send_file", path="missing")
