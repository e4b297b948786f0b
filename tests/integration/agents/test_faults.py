"""What users of the best-known implementation reported of its subagents (picoclaw.md, 13, 16)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from pathlib import Path

import msgspec
import pytest

from edged import results
from edged.registry import Session
from edged.tool import tool
from tests.integration.agents.conftest import AGENT, BOUND_S, KEY, OWNER, config
from tests.integration.agents.modelserver import IN, OUT, Call, Hang, Raw, Refuse, Say
from tests.integration.agents.test_spawn import READ, names, outcomes

HERE = msgspec.structs.replace(AGENT, channel="feed", chat_id="7")


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str = ""
    password: str = ""


@tool("login", sensitive=frozenset({"password"}))
def login(params: Login, _ctx) -> results.Result:
    """Log in somewhere."""
    return results.text(f"{params.user} is in, by {params.password}")


class Length(msgspec.Struct):
    length: int


@tool("lorem")
def lorem(params: Length, _ctx) -> results.Result:
    """Say something long."""
    return results.text("begin " + "lorem ipsum " * (params.length // 12) + " end")


def with_more(model, **sections):
    """A configuration with further sections beside the model."""
    found = msgspec.json.decode(config(model))
    for name, section in sections.items():
        if name == "messages":
            found[name] = section
        else:
            found["tools"][name] = section
    return msgspec.json.encode(found).decode()


def transcript(folder, task_id):
    text = Path(folder, "subagents", f"{task_id}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def test_subagent_finds_and_calls_hidden_tools(start, model):
    """Faults 1713 and 1711: a subagent without tools. A search promotes for its own session."""
    model.script = [
        Call((("tool_search_tool_bm25", {"query": "GPIO lines"}),)),
        Call((("gpio", {"action": "list"}),)),
        Say("Found."),
    ]
    async with start(text=with_more(model, gpio={"hidden": True})) as board:
        assert (await board.call("spawn", task="Find the lines")).for_llm == "Found."
    assert "gpio" not in names(model.asked[0])
    assert "gpio" in names(model.asked[1])
    assert "door" in outcomes(model.asked[2])[1]


async def test_subagent_keeps_what_its_caller_had_found(start, model):
    """Section 13: the registry is cloned, so that children keep promoted tools."""
    model.script = [Call((("gpio", {"action": "list"}),)), Say("ok")]
    async with start(text=with_more(model, gpio={"hidden": True})) as board:
        daemon = board.it.daemon
        session = Session("s", daemon.services.clock, by_clock=False)
        session.promote(["gpio", "gone"], 1)
        raw = b'{"task": "x"}'
        async with asyncio.timeout(BOUND_S):
            await daemon.dispatcher.start(AGENT, session, "spawn", raw).wait()
    assert "gpio" in names(model.asked[0])
    assert "door" in outcomes(model.asked[1])[0]


async def test_report_of_one_in_the_background_comes_to_the_callers_chat_once(start, model):
    """Section 13: delivered to the parent's queue, or lost; fault 1868: dropped, or sent twice."""
    model.endless = Say("All is well.")
    feed = {"channels": {"feed": {"kind": "events"}}}
    async with start(text=with_more(model, messages=feed)) as board:
        made = await board.call("spawn", HERE, task="Look", label="look", **{"async": True})
        await board.ended(made.structured["task_id"])
        waited = await board.call("spawn", HERE, task="Look again")
        assert waited.for_llm == "All is well."
        other = await board.call("spawn", task="Elsewhere", **{"async": True})
        await board.ended(other.structured["task_id"])
        message = await board.told("message")
    assert [e.kind for e in board.events].count("message") == 1
    assert (message["channel"], message["chat_id"]) == ("feed", "7")
    assert message["text"] == "look\n\nAll is well."


async def test_status_is_told_of_the_callers_own_chat_alone(start, model):
    """Section 13: scoped to the caller's channel and chat, and it never told of any."""
    model.endless = Say("secret of seven")
    async with start() as board:
        task_id = (await board.call("spawn", HERE, task="x")).structured["task_id"]
        assert "secret" in (await board.call("spawn_status", HERE, task_id=task_id)).for_llm
        for other in (
            msgspec.structs.replace(HERE, chat_id="8"),
            msgspec.structs.replace(HERE, channel="mail"),
            AGENT,
            msgspec.structs.replace(HERE, role="owner", chat_id="8"),
        ):
            assert "No subagents" in (await board.call("spawn_status", other)).for_llm
            told = await board.call("spawn_status", other, task_id=task_id)
            assert f"no subagent '{task_id}'" in told.for_llm
        assert "secret" in (await board.call("spawn_status", OWNER)).for_llm


async def test_status_counts_and_previews(start, model):
    """Section 13: counts at the head, the newest first, at most 300 characters of each."""
    model.script = [Say("long " * 200), Refuse(400, "bad model")]
    async with start() as board:
        for task in ("first", "second"):
            await board.call("spawn", task=task)
        told = (await board.call("spawn_status")).for_llm
        newest = (await board.call("spawn_status", limit=1)).for_llm
    assert told.startswith("1 completed, 1 failed\n")
    assert told.index("second") < told.index("first")
    assert max(map(len, told.splitlines())) <= 302
    assert newest.endswith("\n1 older: ask with limit.")


async def test_a_providers_proxy_is_used(start, model):
    """Fault 1322: the target's own model and proxy were ignored."""
    lines = []

    async def proxy(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines.append(head.split(b"\r\n")[0].decode())
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        await reader.readexactly(length)
        body = b'{"choices": [{"message": {"content": "by proxy"}, "finish_reason": "stop"}]}'
        kind = b"Content-Type: application/json\r\nConnection: close\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (kind, len(body)) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = {
            "base_url": "http://models.example/v1",
            "model": "m",
            "proxy": f"http://127.0.0.1:{port}",
        }
        async with start(providers={"far": provider}) as board:
            assert (await board.call("spawn", task="x")).for_llm == "by proxy"
    assert lines == ["POST http://models.example/v1/chat/completions HTTP/1.1"]


async def test_whoever_waits_is_told_how_far_it_is(start, model):
    """Fault 1539: no way to see what a subagent does."""
    model.script = [READ, Call((("gpio", {}), ("sensor", {}))), Say("ok")]
    told = []
    async with start() as board:
        dispatcher = board.it.daemon.dispatcher
        raw = b'{"task": "Look", "label": "look"}'
        call = dispatcher.start(
            AGENT, None, "spawn", raw, on_update=lambda content: told.append(content[0].text)
        )
        async with asyncio.timeout(BOUND_S):
            await call.wait()
    assert told[0].startswith("subagent ")
    assert told[1:] == ["look: turn 1 of 30: sensor", "look: turn 2 of 30: gpio, sensor"]


async def test_calls_of_a_subagent_are_in_the_trail(start, model):
    """Contract, section 1: whoever calls, by the same code."""
    model.script = [READ, Call((("actuator", {"command": "set"}),)), Say("ok")]
    async with start() as board:
        task_id = (await board.call("spawn", task="x")).structured["task_id"]
        rows = board.it.daemon.services.trail.recent(10, None)
    inner = [(r.tool, r.role, r.door, r.user) for r in rows if task_id in r.session]
    assert inner == [
        ("sensor", "agent", "internal", "local"),
        ("actuator", "agent", "internal", "local"),
    ]
    assert rows[-1].tool == "spawn"


async def test_nothing_secret_is_in_what_is_kept_and_told(start, model, folder, capfd):
    """Contract, section 7: sensitive inputs; and the keys of providers."""
    model.script = [
        Call(
            (("login", {"user": "ada", "password": "hunter-22"}), ("nothing", {"x": "unknown-77"}))
        ),
        Raw(f"data: {{{KEY}\n\n".encode()),
        Say("In."),
    ]
    async with start() as board:
        board.it.daemon.registry.register(login)
        line = board.it.daemon.services.agents().line("local")
        line.sleep = lambda _: asyncio.sleep(0)
        result = await board.call("spawn", task="Log in")
        model.endless = Refuse(401, f"wrong key {KEY}")
        refused = await board.call("spawn", task="x")
        events = msgspec.json.encode([event.data for event in board.events]).decode()
        trail = board.it.daemon.services.trail.recent(50, None)
    kept = "".join(map(str, transcript(folder, result.structured["task_id"])))
    assert result.for_llm == "In."
    assert "wrong key" in refused.for_llm
    assert "'user': 'ada'" in kept
    told = events + refused.for_llm + str(trail) + capfd.readouterr().err
    for secret in ("hunter-22", "unknown-77", KEY):
        assert secret not in kept + told


async def test_a_secret_that_is_a_number_is_masked_as_one(start, model, folder):
    """A mask in the midst of a number is no JSON: the task failed."""
    model.script = [Call((("lorem", {"length": 123456}),)), Say("ok: 123456")]
    settings = {"base_url": f"{model.url}/v1", "model": "small", "api_key": "123456"}
    async with start(providers={"local": settings}) as board:
        board.it.daemon.registry.register(lorem)
        result = await board.call("spawn", task="x")
    assert (result.is_error, result.for_llm) == (False, "ok: [***]")
    called = transcript(folder, result.structured["task_id"])[2]
    assert called["calls"][0]["arguments"] == {"length": "[***]"}


async def test_a_key_that_a_server_repeats_is_told_to_nobody(start, model):
    """As words, or as the name of a tool; where a name is cut, a piece of it may be left."""
    model.script = [Call(((KEY, {}), (f"{'x' * 56}{KEY}", {})), f"You said {KEY}. {'x' * 40_000}")]
    model.endless = Hang()
    updates = []
    async with start(**_patient(model)) as board:
        raw = msgspec.json.encode({"task": "x"})
        call = board.it.daemon.dispatcher.start(
            AGENT, None, "spawn", raw, on_update=lambda content: updates.append(str(content))
        )
        await _asked(model, 2)
        running = await board.call("spawn_status", OWNER)
        trail = str(board.it.daemon.services.trail.recent(50, None))
        call.cancel()
    (view,) = running.structured["tasks"]
    assert (view["status"], view["text"][:16]) == ("running", "You said [***]. ")
    assert view["text"].endswith("more characters are left out]")
    assert any("turn 1 of" in update for update in updates)
    assert "no tool named '[***]'" in str(outcomes(model.asked[1]))
    assert KEY[:6] not in str(view) + str(updates) + trail + str(outcomes(model.asked[1]))


async def test_a_long_answer_of_a_tool_is_cut_for_the_model(start, model):
    """The beginning and the end, and a word on what is between."""
    model.script = [Call((("lorem", {"length": 30_000}),)), Say("ok")]
    async with start(result=1024) as board:
        board.it.daemon.registry.register(lorem)
        await board.call("spawn", task="x")
    (told,) = outcomes(model.asked[1])
    assert len(told) < 1_200
    assert told.startswith("begin lorem")
    assert told.endswith(" end")
    assert re.search(r"\n\[\d+ characters are left out here: ask for less\]\n", told)


async def test_a_report_that_is_too_long_is_cut_and_kept(start, model, folder):
    """Its line in the transcript can be read again, whatever a model says."""
    model.script = [Say('"\\\0é' * 20_000)]
    async with start() as board:
        task_id = (await board.call("spawn", task='"\0' * 10_000)).structured["task_id"]
        told = await board.ended(task_id)
    assert len(told["text"]) < 4_100
    async with start() as board:
        view = (await board.call("spawn_status", task_id=task_id)).structured["tasks"][0]
    assert view["status"] == "completed"
    assert view["text"].endswith("[48000 more characters are left out]")
    assert view["task"].endswith("[12000 more characters are left out]")
    assert transcript(folder, task_id)[1]["text"] == '"\0' * 10_000


async def test_time_is_a_budget_too(start, model):
    model.endless = Hang()
    async with start(time=1) as board:
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert "failed: no report within 1 s: raise tools.subagent.time" in result.for_llm


async def test_tools_that_nobody_asked_for_yet_are_told_of(start, model, folder):
    """A job's subagent is perhaps the first who calls for its user."""
    place = Path(folder, "local", "tools", "greet")
    place.mkdir(parents=True)
    head = "---\nname: greet\ndescription: Greets.\nversion: 1\nlanguage: bash\n---\n"
    (place / "TOOL.md").write_text(head)
    (place / "index.sh").write_text("echo hello\n")
    model.script = [Call((("greet", {}),)), Say("ok")]
    async with start() as board:
        await board.call("spawn", task="x")
    assert "greet" in names(model.asked[0])
    assert outcomes(model.asked[1])[0].strip() == "hello"


async def test_who_goes_away_ends_what_is_waited_for_and_nothing_else(start, model):
    """Section 13: a child survives its parent; over the socket, where connections break."""

    async def begin(board, background):
        reader, writer = await asyncio.open_unix_connection(board.it.socket)
        given = {"task": "x", "async": background}
        params = {"name": "spawn", "arguments": given}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        writer.write(msgspec.json.encode(call) + b"\n")
        return reader, writer

    model.endless = Hang()
    async with start() as board, asyncio.timeout(BOUND_S):
        reader, writer = await begin(board, background=True)
        answer = json.loads(await reader.readline())["result"]
        kept = answer["structuredContent"]["task_id"]
        await model.arrived.wait()
        writer.transport.abort()
        model.arrived.clear()
        _, writer = await begin(board, background=False)
        await model.arrived.wait()
        status = board.it.daemon.control.status(OWNER)
        assert status["subagents"] == {"running": 2, "waiting": 0}
        writer.transport.abort()
        ended = await board.told("subagent.end")
        assert (ended["status"], ended["task_id"] == kept) == ("cancelled", False)
        views = (await board.call("spawn_status", OWNER)).structured["tasks"]
        assert {v["status"] for v in views if v["task_id"] == kept} == {"running"}


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_ends_what_and_when_no_place_is_lost(start, model, folder, seed):
    """Callers that go away, tasks that are stopped, servers that fail, all at once."""
    chance = random.Random(seed)
    steps = [Say("ok"), READ, Refuse(400, "no"), Call((("spawn", {"task": "deeper"}),)), Hang()]
    async with start(running=2, waiting=60, turns=3) as board:
        service = board.it.daemon.services.agents()
        model.next = lambda: chance.choice(steps)
        calls = []
        for number in range(40):
            background = chance.random() < 0.4
            call = board.begin("spawn", OWNER, task=f"task {number}", **{"async": background})
            calls.append(call)
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            if chance.random() < 0.4:
                chance.choice(calls).cancel()
            if chance.random() < 0.3:
                tasks = await service.tasks(OWNER)
                alive = [t.task_id for t in tasks if t.status in ("running", "waiting")]
                if alive:
                    await service.stop(OWNER, chance.choice(alive))
        model.next = lambda: Say("ok")
        async with asyncio.timeout(BOUND_S):
            for call in calls:
                call.cancel()
            while alive := [
                t.task_id for t in await service.tasks(OWNER) if t.status in ("running", "waiting")
            ]:
                await service.stop(OWNER, alive[0])
        assert service.health() == {"running": 0, "waiting": 0}
        # Both places are there.
        model.next, before = Hang, len(model.asked)
        pair = [await board.call("spawn", OWNER, task="x", **{"async": True}) for _ in range(2)]
        async with asyncio.timeout(BOUND_S):
            while len(model.asked) < before + 2:
                model.arrived.clear()
                await model.arrived.wait()
        assert service.health() == {"running": 2, "waiting": 0}
        for one in pair:
            await service.stop(OWNER, one.structured["task_id"])
        tasks = await service.tasks(OWNER)
    assert {t.status for t in tasks} <= {"completed", "failed", "cancelled"}
    for task in tasks:
        assert "end" in transcript(folder, task.task_id)[-1]
    assert len(os.listdir(f"{folder}/subagents")) == len(tasks)


async def test_the_last_answer_is_asked_to_be_a_report(start, model):
    for number in range(2):
        model.script.append(Call((("sensor", {"sensor": f"s{number}"}),)))
    model.script.append(Say("So far."))
    async with start(turns=3) as board:
        assert (await board.call("spawn", task="x")).for_llm == "So far."
    told = ["last answer" in json.dumps(asked) for asked in model.asked]
    assert told == [False, False, True]


async def test_a_child_lives_on_its_parents_tokens(start, model):
    spawn = Call((("spawn", {"task": "deeper"}),))
    model.script = [spawn, Say("done"), Say("all done")]
    async with start() as board:
        result = await board.call("spawn", task="x")
        child, parent = sorted(
            (await board.call("spawn_status", OWNER)).structured["tasks"],
            key=lambda view: view["tokens"],
        )
    assert (child["tokens"], parent["tokens"]) == (IN + OUT, 3 * (IN + OUT))
    assert result.structured["tokens"] == parent["tokens"]
    model.script = [spawn, READ, READ, READ, Say("done"), spawn, Say("so be it")]
    async with start(tokens=1_000, answer_tokens=64) as board:
        for number in range(5):
            step = Call((("sensor", {"sensor": f"s{number}"}),))
            model.script.insert(1, step)
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert "tokens" in result.for_llm


def _spawns(count, **more):
    return Call(tuple(("spawn", {"task": f"deeper {i}", **more}) for i in range(count)))


async def _asked(model, count):
    """Wait until the model was asked so often."""
    async with asyncio.timeout(BOUND_S):
        while len(model.asked) < count:
            model.arrived.clear()
            await model.arrived.wait()


def _patient(model):
    """A provider that may be silent for as long as a test lasts."""
    settings = {"base_url": f"{model.url}/v1", "model": "small", "timeout": "60s", "api_key": KEY}
    return {"providers": {"local": settings}, "tokens": 10_000}


async def test_many_children_at_once_have_no_more_tokens_than_their_parent(start, model):
    """Each is lent half of what is left: 4940, 2470, 1235; 617 is less than an answer."""
    model.script = [_spawns(20, **{"async": True})]
    model.endless = Hang()
    async with start(**_patient(model), answer_tokens=1_000) as board:
        assert (await board.call("spawn", task="x", **{"async": True})).async_
        await _asked(model, 5)
        told = next(rows for asked in model.asked if (rows := outcomes(asked)))
        assert ["works on" in row for row in told] == [True] * 3 + [False] * 17
        assert all("lent to subagents" in row for row in told[3:])


async def test_what_a_child_did_not_use_is_lent_again(start, model):
    for number in range(6):
        spawn = Call((("spawn", {"task": f"deeper {number}"}),))
        model.script += [spawn, Say("done")]
    model.script.append(Say("all done"))
    async with start(tokens=10_000, answer_tokens=1_000) as board:
        result = await board.call("spawn", task="x")
    assert (result.for_llm, result.structured["tokens"]) == ("all done", 13 * (IN + OUT))


async def test_what_a_child_lent_stays_lent_when_it_is_over(start, model):
    """Else a task could have tasks without end by way of children that report at once."""
    in_background = {"async": True}
    child = Call((("spawn", {"task": "deeper", **in_background}),))

    def answer():
        # By who asks: the root again and again, its child twice, the grandchild for ever.
        asked = model.asked[-1]
        task = next(m["content"] for m in asked["messages"] if m["role"] == "user")
        if task == "deeper":
            return Hang()
        if task.startswith("child"):
            return Say("done") if outcomes(asked) else child
        told = outcomes(asked)
        if len(told) == 3:
            return Say("enough")
        return Call((("spawn", {"task": f"child {len(told)}"}),))

    model.next = answer
    async with start(**_patient(model), answer_tokens=1_300, depth=3) as board:
        result = await board.call("spawn", task="x")
    assert result.for_llm == "enough"
    # Children have half of 9880, of 7110 and of 5033, and theirs half of what those have left.
    told = [
        rows[0]
        for asked in model.asked
        if str(asked["messages"][1]["content"]).startswith("child") and (rows := outcomes(asked))
    ]
    begun = ["works on" in outcome for outcome in told]
    assert begun == [True, True, False], told
    assert "lent to subagents" in told[-1]


async def test_nobody_passes_for_a_subagent_by_its_session(start, model, folder):
    """A session's name is its caller's to choose; a child needs no place of its own."""
    model.endless = Hang()
    async with start() as board:
        first = await board.call("spawn", task="x", **{"async": True})
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
        task_id = first.structured["task_id"]
        for name in (task_id, f"subagent-{task_id}"):
            caller = msgspec.structs.replace(AGENT, session=name, door="internal")
            made = await board.call("spawn", caller, task="y", **{"async": True})
            own = made.structured["task_id"]
            await board.it.daemon.services.agents().stop(AGENT, own)
            assert transcript(folder, own)[0]["head"]["parent"] == ""


async def test_one_that_is_waited_for_when_the_daemon_stops_is_interrupted(start, model):
    """Nobody cancelled it, and spawn_status says so after the restart."""
    model.endless = Hang()
    async with start(text=f'{{"stop_grace": 0, {config(model)[1:]}') as board:
        board.begin("spawn", task="x")
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
    async with start() as board:
        (view,) = (await board.call("spawn_status")).structured["tasks"]
    assert (view["status"], view["turns"]) == ("interrupted", 0)
    assert "edged stopped" in view["reason"]


async def test_what_a_restart_ended_is_told_once_where_it_was_asked_for(start, model):
    """Whoever does not ask hears of it too; not again with every start."""
    model.endless = Hang()
    text = with_more(model, messages={"channels": {"feed": {"kind": "events"}}})
    async with start(text=text) as board:
        made = await board.call("spawn", HERE, task="Look", label="look", **{"async": True})
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
    task_id = made.structured["task_id"]
    async with start(text=text) as board:
        ended = await board.ended(task_id)
        assert (ended["status"], ended["label"]) == ("interrupted", "look")
        message = await board.told("message")
        assert (message["channel"], message["chat_id"]) == ("feed", "7")
        assert message["text"].startswith("look\n\ninterrupted: edged stopped")
    async with start(text=text) as board:
        (view,) = (await board.call("spawn_status", HERE)).structured["tasks"]
        assert (view["status"], bool(view["ended_at"])) == ("interrupted", True)
        assert not {e.kind for e in board.events} & {"subagent.end", "message"}


async def test_a_transcript_that_cannot_be_written_is_told(start, model, folder):
    """A full or broken disk: the task fails in words, and nothing hangs."""
    Path(folder, "subagents").write_text("in the way")
    async with start() as board:
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert re.search(r"failed: cannot make the directory .*/subagents: ", result.for_llm)
    assert model.asked == []


async def test_a_cut_transcript_is_that_of_an_interrupted_task(start, model, folder):
    """The power went in the middle of a line."""
    model.endless = Say("done")
    async with start() as board:
        task_id = (await board.call("spawn", task="x")).structured["task_id"]
    path = Path(folder, "subagents", f"{task_id}.jsonl")
    os.truncate(path, path.stat().st_size - 20)
    Path(folder, "subagents", "junk.jsonl").write_text("junk\n")
    async with start() as board:
        (view,) = (await board.call("spawn_status")).structured["tasks"]
    assert (view["task_id"], view["status"]) == (task_id, "interrupted")


@pytest.mark.parametrize("field", ["api_key", "headers"])
async def test_a_key_that_no_header_may_have_stops_the_start(start, model, field):
    from edged.errors import ConfigError

    value = "a\nb" if field == "api_key" else {"X-Key": "a\nb"}
    provider = {"base_url": f"{model.url}/v1", "model": "m", field: value}
    with pytest.raises(ConfigError, match="has characters that no header may have"):
        async with start(providers={"local": provider}):
            pass
