"""The life of one server: started when it is wanted, started again, never a burden to others."""

import asyncio

import msgspec
import pytest

from edged.errors import CallTimeoutError, UpstreamError
from edged.held import Room, Share
from edged.mcp.client import ExpiredError, RemoteTool
from edged.mcp.upstream.server import Known, Server, Timing
from edged.mcp.upstream.tool import Given
from edged.sections import McpServer
from edged.tool import Context

BOUND_S = 10.0
FAST = Timing(
    retry_first=0.001, retry_max=0.001, retry_asked=0.0, check=0.01, changes=0.001, restless=0.0
)
INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}


class Link:
    """A server in this process: answers as `answers` say, until it is ended."""

    is_stream, is_local, errors, pid = True, False, "", 0

    def __init__(self, client, answers):
        self.client, self.answers, self.sent = client, answers, []
        self.lost = asyncio.get_running_loop().create_future()
        self.closed = False

    def send(self, message):
        body = msgspec.json.decode(message.body)
        self.sent.append(body)
        answer = self.answers.get(body.get("method"))
        if isinstance(answer, Exception):
            self.client.failed(message.id, answer)
        elif answer is not None:
            self.client.receive(msgspec.json.encode({"id": message.id, "result": answer}))

    def abandon(self, _):
        pass

    def watch(self):
        pass

    def kill(self, cause):
        if not self.lost.done():
            self.lost.set_result(cause)

    async def close(self):
        self.closed = True


class World:
    """One server with its links; `fails` is what its next starts end with."""

    def __init__(self):
        self.links, self.states, self.lists, self.fails = [], [], [], []
        self.tasks = set()
        self.answers = {
            "initialize": INFO,
            "tools/list": {"tools": [{"name": "t"}]},
            "tools/call": {"content": [{"type": "text", "text": "ok"}]},
            "ping": {},
        }
        self.moved = asyncio.Event()

    def server(self, known=None, timing=FAST, **settings):
        one = McpServer(command="x", **settings)
        self.one = Server(
            "demo", one, self.open, spawn=self.spawn, learnt=self.learnt,
            changed=self.changed, known=known or Known("", "legacy", [RemoteTool("t")]),
            timing=timing, jitter=lambda: 0.5,
        )  # fmt: skip
        self.one.begin()
        return self.one

    async def open(self, client):
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        link = Link(client, self.answers)
        self.links.append(link)
        return link

    async def learnt(self, _, listing):
        self.lists.append([tool.name for tool in listing.tools])
        self.moved.set()
        return ()

    def changed(self, server):
        self.states.append(server.state)
        self.moved.set()

    def spawn(self, work):
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def until(self, what):
        async with asyncio.timeout(BOUND_S):
            while not what():
                self.moved.clear()
                if not what():
                    await self.moved.wait()

    async def call(self, timeout_s=BOUND_S):
        ctx = Context(
            None, None, "", timeout_s, lambda _: None, None, None, None, is_watched=False
        )
        result = await self.one.call("t", Given(b"{}"), ctx)
        return result.content[0].text


@pytest.fixture
async def world():
    made = World()
    yield made
    await made.one.close()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    assert all(link.closed for link in made.links)


async def test_a_long_result_needs_room_beside_those_of_others(world):
    """16 MiB of each of an agent's 512 calls, while they wait for the disk."""
    world.server()
    room = Room(4 << 20)

    async def call(size):
        share = Share(room)
        ctx = Context(
            None,
            None,
            "",
            BOUND_S,
            lambda _: None,
            None,
            None,
            None,
            is_watched=False,
            share=share,
        )
        world.answers["tools/call"] = {"content": [{"type": "text", "text": "x" * size}]}
        return await world.one.call("t", Given(b"{}"), ctx), share

    _, share = await call(1 << 20)
    assert 1 << 20 < share.size == room.used < 2 << 20
    assert (await call(50_000))[1].size == 0
    with pytest.raises(UpstreamError, match="its result of 2048 KiB finds no room beside those"):
        await call(2 << 20)
    share.release()
    assert (await call(1 << 20))[1].size > 1 << 20


async def test_a_lazy_server_is_started_by_its_first_call_and_once_for_many(world):
    """facts/mcp.md, fault 21: single flight."""
    world.server()
    await asyncio.sleep(0)
    assert (world.one.state, world.links) == ("asleep", [])
    assert await asyncio.gather(*(world.call() for _ in range(50))) == ["ok"] * 50
    assert len(world.links) == 1


async def test_an_unknown_or_kept_server_is_started_at_once(world):
    world.server(known=None, lazy=False)
    await world.until(lambda: world.one.state == "ready")
    assert world.lists == [["t"]]


async def test_a_failure_is_tried_again_for_ever_and_is_no_empty_list(world):
    """Fault 18."""
    world.fails = [UpstreamError(f"down {n}") for n in range(20)]
    world.server(lazy=False)
    await world.until(lambda: world.one.state == "ready")
    assert world.lists == [["t"]]
    assert world.one.health().starts == 21
    assert world.states.count("failed") == 20


async def test_a_call_is_told_the_cause_and_the_next_one_tries_again(world):
    """Faults 16 and 18: the true cause, and no waiting for the next try."""
    world.server(timing=msgspec.structs.replace(FAST, retry_first=3_600.0, retry_max=3_600.0))
    world.fails = [UpstreamError("no key")]
    with pytest.raises(UpstreamError, match=r"^MCP server demo: no key$"):
        await world.call()
    assert await world.call() == "ok"


async def test_calls_soon_after_a_failure_do_not_start_it_each(world):
    """A server that fails at once is not started by every call of a loop."""
    world.server(timing=msgspec.structs.replace(FAST, retry_asked=60.0, retry_first=3_600.0))
    world.fails = [UpstreamError("no key")] * 9
    for _ in range(5):
        with pytest.raises(UpstreamError, match="MCP server demo: no key"):
            await world.call()
    assert world.one.health().starts == 2


async def test_a_server_that_ends_fails_what_waits_and_is_started_again(world):
    """Fault 7."""
    world.answers["tools/call"] = None
    world.server()
    calls = [asyncio.ensure_future(world.call()) for _ in range(3)]
    await world.until(lambda: world.one.state == "ready")
    async with asyncio.timeout(BOUND_S):
        while len(world.links[0].sent) < 3:
            await asyncio.sleep(0)
    world.links[0].kill("it ended with exit status 9")
    for call in calls:
        with pytest.raises(UpstreamError, match="demo: it ended with exit status 9"):
            await call
    world.answers["tools/call"] = {"content": [{"type": "text", "text": "again"}]}
    await world.until(lambda: len(world.links) == 2 and world.one.state == "ready")
    assert await world.call() == "again"


async def test_a_server_that_gives_no_sign_of_life_is_ended(world):
    """A call without an answer is not enough: it may be slow, and answer a ping."""
    world.answers["tools/call"] = None
    world.server()
    for ping, starts in (({}, 1), (None, 2)):
        world.answers["ping"] = ping
        with pytest.raises(CallTimeoutError, match="MCP server demo: no answer within"):
            await world.call(0.01)
        async with asyncio.timeout(BOUND_S):
            while world.one._checking is not None or len(world.links) != starts:
                await asyncio.sleep(0)
    assert world.links[0].lost.result() == "hung"


async def test_an_expired_session_is_opened_again_and_the_call_made_once_more(world):
    """Fault 15: 404 means that nothing was done of it."""
    world.server()
    assert await world.call() == "ok"
    first = world.links[0]
    first.answers = {**world.answers, "tools/call": ExpiredError("its session has expired")}
    assert await asyncio.gather(*(world.call() for _ in range(5))) == ["ok"] * 5
    assert len(world.links) == 2
    assert "failed" not in world.states


async def test_changes_of_the_list_are_published_together_and_a_failure_keeps_the_old(world):
    """Fault 31; fault 18."""
    world.server()
    await world.call()
    link = world.links[0]
    world.answers["tools/list"] = {"tools": [{"name": "t"}, {"name": "new"}]}
    for _ in range(50):
        link.client.receive(b'{"method":"notifications/tools/list_changed"}')
    await world.until(lambda: len(world.lists) == 2)
    assert world.lists == [["t"], ["t", "new"]]
    world.answers["tools/list"] = {"tools": "broken"}
    link.client.receive(b'{"method":"notifications/tools/list_changed"}')
    async with asyncio.timeout(BOUND_S):
        while "changed list" not in world.one.error:
            await asyncio.sleep(0)
    assert len(world.lists) == 2
    assert await world.call() == "ok"


async def test_a_lazy_server_sleeps_when_nobody_needs_it(world):
    world.server(idle="1s")
    await world.call()
    await world.until(lambda: world.states[-1] == "asleep")
    assert world.links[0].closed
    assert await world.call() == "ok"
    assert len(world.links) == 2


async def test_a_start_without_an_end_is_given_up(world):
    """Fault 8: finite limits for each step."""
    world.answers["initialize"] = None
    world.server(connect="100ms")
    with pytest.raises(UpstreamError, match=r"it did not answer within 0\.1 s of its start"):
        await world.call()
    assert world.links[0].closed


class Chatty(Link):
    """Prints to standard output, as a server must not."""

    def send(self, message):
        self.client.receive(b"hello \x1b[1m world\n")
        self.client.receive(b"again")
        super().send(message)


@pytest.fixture
def chatty(world, monkeypatch):
    monkeypatch.setitem(globals(), "Link", Chatty)
    return world


async def test_who_prints_and_does_not_answer_is_told_why(chatty):
    """The commonest fault of such a server: told at once, and by a test before its time is over."""
    chatty.answers["initialize"] = None
    chatty.server(connect="10m", timing=msgspec.structs.replace(FAST, strange=0.01))
    said = (
        "it wrote 'hello \\x1b[1m world' to its standard output, which is for MCP's messages alone"
    )
    with pytest.raises(UpstreamError, match="so far; it is waited for, 600 s in all") as caught:
        await chatty.one.tried()
    assert said in str(caught.value)
    found = chatty.one.health()
    assert (found.state, found.error) == ("starting", said)
    await chatty.one.close()


async def test_no_part_of_a_secret_is_shown_of_what_a_server_prints(chatty, monkeypatch):
    """It is masked before the line is cut."""
    chatty.answers["initialize"] = None
    monkeypatch.setattr(
        chatty.server(connect="10m"), "_plain", lambda text: text.replace("sk-secret", "[***]")
    )
    chatty.one._on_strange("x" * 76 + "sk-secret and more")
    assert f"'{'x' * 76}[***…'" in chatty.one.doubt
    await chatty.one.close()


async def test_who_prints_and_fails_is_shown_as_failed_while_it_is_tried_again(chatty):
    chatty.answers["initialize"] = None
    one = chatty.server(connect="100ms", timing=msgspec.structs.replace(FAST, retry_first=0.001))
    with pytest.raises(UpstreamError, match=r"within 0\.1 s of its start; it wrote 'hello "):
        await chatty.call()
    await chatty.until(lambda: chatty.states.count("starting") > 1 and one.state == "starting")
    assert one.health().state == "failed"
    await one.close()


async def test_who_prints_and_answers_is_as_good_as_any(chatty):
    one = chatty.server()
    assert await chatty.call() == "ok"
    found = one.health()
    assert (found.state, found.error, found.skipped) == ("ready", "", 8)
    assert await one.tried()


async def test_a_closed_server_refuses_what_waits(world):
    world.answers["tools/list"] = None
    world.server()
    call = asyncio.ensure_future(world.call())
    await world.until(lambda: world.one.state == "starting")
    await world.one.close()
    with pytest.raises(UpstreamError, match="it was stopped"):
        await call
