"""Questions to the person at the client: confirmations and permissions (contract, 4 and 8)."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile

import msgspec
import pytest

from edged.identity import Caller
from edged.mcp.seal import OPEN_MAX
from edged.mcp.server import Connection
from edged.testing import running

BOUND_S = 10.0
PREFIX = "io.modelcontextprotocol/"
OTHER = {"path": "/var/tmp/edged-other"}
WRITE = {"name": "gpio", "arguments": {"line": "GPIO5", "value": "on"}}


class Client:
    """Speaks to a `Connection` in this process."""

    def __init__(self, daemon, role="owner"):
        self.sent, self._came = [], asyncio.Event()
        caller = Caller("local", role, "", "unix", "uid 0" if role == "owner" else "uid 7")
        self.connection = Connection(daemon.control, caller, self._take)

    def _take(self, line, about=b"", ends=None):
        self.sent.append(json.loads(line))
        self._came.set()

    def say(self, **message):
        self.connection.receive(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    def begin(self, **capabilities):
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        self.say(id=0, method="initialize", params=params)

    async def wait(self, wanted):
        async with asyncio.timeout(BOUND_S):
            while not (found := [m for m in self.sent if wanted(m)]):
                self._came.clear()
                await self._came.wait()
        self.sent.remove(found[0])
        return found[0]

    async def question(self):
        return await self.wait(lambda m: m.get("method") == "elicitation/create")

    async def reply(self, number):
        return await self.wait(lambda m: m.get("id") == number and "method" not in m)

    async def modern(self, number, params):
        meta = {
            PREFIX + "protocolVersion": "2026-07-28",
            PREFIX + "clientCapabilities": {"elicitation": {}},
        }
        self.say(id=number, method="tools/call", params={**params, "_meta": meta})
        return await self.reply(number)


@pytest.fixture
async def daemon():
    with tempfile.TemporaryDirectory(prefix="edged-ask-", dir="/var/tmp") as data:
        os.chmod(data, 0o755)
        async with running(data=data, http=False) as it:
            yield it.daemon


def text(answer):
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"action": "accept", "content": {"confirm": True}}, "GPIO5 is on"),
        ({"action": "accept", "content": {"confirm": False}}, "refused to let you write to GPIO5"),
        ({"action": "decline"}, "refused to let you write to GPIO5: do not do it"),
        ({"action": "cancel"}, "and did not answer: do not do it until they agree"),
    ],
)
async def test_a_write_goes_on_when_the_person_agrees_and_only_then(daemon, said, words):
    """Contract, section 8: an answered confirmation; MCP 2025-11-25, elicitation."""
    client = Client(daemon, "agent")
    client.begin(elicitation={})
    client.say(id=1, method="tools/call", params=WRITE)
    question = await client.question()
    assert "write to GPIO5" in question["params"]["message"]
    assert '"value":"on"' in question["params"]["message"]
    client.say(id=question["id"], result=said)
    answer = await client.reply(1)
    assert answer["result"]["isError"] is (words != "GPIO5 is on"), answer
    assert words in text(answer)
    # How to do it all the same is told to nobody who was refused.
    assert "confirm: true" not in text(answer)
    client.connection.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"line": "lde", "value": "on"}, "no gpio line 'lde': there is"),
        ({"line": "GPIO22", "value": "on"}, "GPIO22 is configured as door: use that name"),
        ({"line": "lde", "action": "pulse"}, "no gpio line 'lde': there is"),
        ({"line": "nope/0", "action": "pwm", "duty": 0.5}, "no PWM channel nope/0: there is"),
    ],
)
async def test_nobody_is_asked_about_what_is_not_there(daemon, arguments, words):
    client = Client(daemon, "agent")
    client.begin(elicitation={})
    client.say(id=1, method="tools/call", params={"name": "gpio", "arguments": arguments})
    assert words in text(await client.reply(1))
    client.connection.close()


async def test_a_calibration_of_a_channel_that_is_not_there_is_not_asked_about(daemon):
    client = Client(daemon, "agent")
    client.begin(elicitation={})
    given = {"action": "calibrate", "sensor": "greenhouse", "channel": "nope", "value": 20}
    client.say(id=1, method="tools/call", params={"name": "sensor", "arguments": given})
    assert "has no channel 'nope'" in text(await client.reply(1))
    client.connection.close()


async def test_a_client_that_cannot_ask_is_told_how_to_confirm(daemon):
    """Contract, section 8."""
    client = Client(daemon)
    client.begin()
    client.say(id=1, method="tools/call", params=WRITE)
    assert "needs confirm: true" in text(await client.reply(1))
    client.connection.close()


async def test_in_the_stateless_revision_the_call_comes_again_with_the_answer(daemon):
    """MCP 2026-07-28, multi round-trip requests."""
    client = Client(daemon)
    first = (await client.modern(1, WRITE))["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["confirm"]["method"] == "elicitation/create"
    said = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    again = {**WRITE, "inputResponses": said, "requestState": first["requestState"]}
    done = (await client.modern(2, again))["result"]
    assert (done["resultType"], done["isError"]) == ("complete", False)
    # What the person saw is what is done.
    other = {"name": "gpio", "arguments": {**WRITE["arguments"], "value": "off"}}
    stolen = await client.modern(
        3, {**other, "inputResponses": said, "requestState": first["requestState"]}
    )
    assert "another request" in stolen["error"]["message"]
    client.connection.close()


async def test_what_a_person_agreed_to_is_done_once(daemon):
    """For ten minutes an answer could be sent again, and the write was done again."""
    client, other = Client(daemon), Client(daemon)
    first = (await client.modern(1, WRITE))["result"]
    said = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    again = {**WRITE, "inputResponses": said, "requestState": first["requestState"]}
    both = [client.modern(2, again), other.modern(3, again)]
    done, refused = sorted(await asyncio.gather(*both), key=lambda answer: "error" in answer)
    assert done["result"]["isError"] is False
    assert "requestState: was used already" in refused["error"]["message"]
    # Another question of the same is another one.
    second = (await client.modern(4, WRITE))["result"]
    done = await client.modern(5, {**again, "requestState": second["requestState"]})
    assert done["result"]["isError"] is False
    assert daemon.control.open_states == {}
    for one in (client, other):
        one.connection.close()


async def test_questions_that_nobody_answers_give_way_to_later_ones(daemon):
    client = Client(daemon)
    first = (await client.modern(0, WRITE))["result"]["requestState"]
    for number in range(1, OPEN_MAX + 1):
        last = (await client.modern(number, WRITE))["result"]["requestState"]
    assert [len(states) for states in daemon.control.open_states.values()] == [OPEN_MAX]
    said = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    for state, failed in ((first, True), (last, False)):
        number += 1
        given = {**WRITE, "inputResponses": said, "requestState": state}
        assert ("error" in await client.modern(number, given)) is failed
    client.connection.close()


async def test_an_agents_words_are_one_line_of_the_question(daemon):
    """Forty line breaks and a second question at the end were shown as the agent wrote them."""
    client = Client(daemon)
    client.begin(elicitation={})
    words = "x" + "\n" * 40 + "An agent of local wants to read /etc/hosts.\u202e"
    ask = {"path": "/var/tmp/edged-none", "reason": words, "command": "cat\r\n\x1b[2J"}
    client.say(id=1, method="tools/call", params={"name": "request_permission", "arguments": ask})
    message = (await client.question())["params"]["message"]
    assert message.startswith("An agent of local wants to read /var/tmp/edged-none (")
    assert message.isprintable()
    assert "Reason: x An agent of local" in message
    client.connection.close()


async def test_who_is_cancelled_while_asked_withdraws_the_question(daemon):
    """MCP 2025-11-25, cancellation: nothing more comes, and the question is taken back."""
    client = Client(daemon)
    client.begin(elicitation={})
    client.say(id=1, method="tools/call", params=WRITE)
    question = await client.question()
    client.say(method="notifications/cancelled", params={"requestId": 1})
    note = await client.wait(lambda m: m.get("method") == "notifications/cancelled")
    assert note["params"]["requestId"] == question["id"]
    client.say(id=question["id"], result={"action": "accept", "content": {"confirm": True}})
    client.say(id=2, method="ping")
    await client.reply(2)
    assert not [m for m in client.sent if m.get("id") == 1]
    client.connection.close()


async def test_at_an_owners_client_the_person_grants_and_at_an_agents_the_owner(daemon, tmp_path):
    """Contract, section 4: agents cannot grant permissions."""
    ask = {
        "name": "request_permission",
        "arguments": {"path": "/var/tmp/edged-none", "reason": "R"},
    }
    owner, agent = Client(daemon), Client(daemon, "agent")
    for client in (owner, agent):
        client.begin(elicitation={})
        client.say(id=1, method="tools/call", params=ask)
    pending = await agent.reply(1)
    assert pending["result"]["structuredContent"]["status"] == "pending"
    question = await owner.question()
    assert question["params"]["message"].endswith("Reason: R")
    owner.say(id=question["id"], result={"action": "accept", "content": {"duration": "session"}})
    granted = await owner.reply(1)
    assert granted["result"]["structuredContent"]["status"] == "granted"
    assert not [m for m in agent.sent if m.get("method") == "elicitation/create"]
    # To decline is an answer too, to turn away from the question is none.
    for number, action, status in ((2, "cancel", "pending"), (3, "decline", "denied")):
        owner.say(id=number, method="tools/call", params={**ask, "arguments": OTHER})
        question = await owner.question()
        owner.say(id=question["id"], result={"action": action})
        answer = await owner.reply(number)
        assert answer["result"]["structuredContent"]["status"] == status
    assert "the owner refused" in text(answer)
    for client in (owner, agent):
        client.connection.close()
