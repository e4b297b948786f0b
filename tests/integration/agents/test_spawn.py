"""Subagents on the simulated board, driven by a scripted model that speaks the SDKs' types."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from edged.agents.store import Change
from edged.errors import NotFoundError, ToolUnavailableError
from edged.identity import Caller
from tests.integration.agents.conftest import AGENT, BOUND_S, KEY, OWNER
from tests.integration.agents.modelserver import (
    IN,
    OUT,
    Broken,
    Call,
    Fault,
    Hang,
    Raw,
    Refuse,
    Say,
)

ROOT = Path(__file__).parents[3]
SPECIFICATION = (ROOT / "tests/data/tools-api.md").read_text()

READ = Call((("sensor", {"sensor": "greenhouse"}),), "Let me look.")
SWITCH = Call(
    (
        (
            "actuator",
            {"actuator": "relays", "command": "set", "arguments": {"output": "lamp", "on": True}},
        ),
    )
)


def outcomes(asked):
    """What the model was told that its calls came to, by the API."""
    if "input" in asked:
        rows = [i for i in asked["input"] if i.get("type") == "function_call_output"]
        return [row["output"] for row in rows]
    if asked["messages"][0]["role"] == "system":
        return [m["content"] for m in asked["messages"] if m["role"] == "tool"]
    parts = [m["content"] for m in asked["messages"] if isinstance(m["content"], list)]
    return [p["content"] for rows in parts for p in rows if p["type"] == "tool_result"]


def names(asked):
    """Tools that the model was told of."""
    return {t.get("function", t)["name"] for t in asked["tools"]}


async def test_an_agent_reads_decides_switches_and_reports(start, model, kind):
    """Issue 5: reads a simulated sensor, decides, switches a simulated relay, reports."""
    async with start(kind) as board:
        lines = (await board.call("actuator", actuator="relays", action="read")).structured
        model.script = [READ, SWITCH, Say("It was warm; the lamp is on.")]
        result = await board.call("spawn", task="Cool the greenhouse where it is warm.")
        after = (await board.call("actuator", actuator="relays", action="read")).structured
    assert (result.is_error, result.for_llm) == (False, "It was warm; the lamp is on.")
    facts = result.structured
    assert (facts["status"], facts["turns"], facts["calls"]) == ("completed", 3, 2)
    assert facts["tokens"] == 3 * (IN + OUT)
    read, switched = outcomes(model.asked[2])
    assert re.search(r"temperature \d+\.\d+ °C", read)
    assert lines["values"] != after["values"], switched
    assert "sensor" in names(model.asked[0])
    # Everything that a thinking model said goes back to it as it was.
    assert json.dumps(model.asked[2]).count('"encrypted_content": "abc"') == (
        2 if kind == "openai-responses" else 0
    )
    assert json.dumps(model.asked[2]).count('"signature": "sig"') == (
        2 if kind == "anthropic" else 0
    )


async def test_every_input_of_the_specification_is_taken(start, model):
    """The document's example, word for word; the task then has an id that can be asked for."""
    example = re.search(
        r"Spawn Tool Expected Arguments\*\*:\n```json\n(.*?)```", SPECIFICATION, re.DOTALL
    )
    given = json.loads(re.sub(r"//.*", "", example[1]))
    model.script = [Say("Three papers.")]
    async with start() as board:
        result = await board.call("spawn", **given)
        assert result.async_
        task_id = result.structured["task_id"]
        assert task_id in result.for_llm
        ended = await board.ended(task_id)
        assert ended["status"] == "completed"
        status = await board.call("spawn_status", task_id=task_id)
        assert "Three papers." in status.for_llm
        assert status.structured["tasks"][0]["status"] == "completed"
        listed = await board.call("spawn_status")
        assert listed.for_llm.startswith("1 completed")
    asked = model.asked[0]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("gpt-4", 2000, 0.7)
    assert asked["messages"][-1] == {"role": "user", "content": given["task"]}


async def test_calls_of_one_answer_run_at_once_and_keep_their_order(start, model, kind):
    model.script = [
        Call((("sensor", {"sensor": "greenhouse"}), ("gpio", {}), ("sensor", {}))),
        Say("Done."),
    ]
    async with start(kind) as board:
        result = await board.call("spawn", task="Look at everything.")
    assert result.structured["calls"] == 3
    first, second, third = outcomes(model.asked[1])
    assert "greenhouse" in first or "temperature" in first
    assert "door" in second
    assert "water" in third


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("no_such_tool", {}), "no tool named 'no_such_tool'"),
        (("sensor", '{"sensor": '), "the arguments are not one JSON object"),
        (("sensor", "[1]"), "the arguments are not one JSON object (it is no object)"),
        (("sensor", {"sensr": "greenhouse"}), "sensr: is not an input"),
        (("sensor", {"sensor": "nowhere"}), "nowhere"),
    ],
)
async def test_a_call_that_makes_no_sense_is_told_to_the_model(start, model, kind, call, words):
    """Hallucinated tools and broken JSON: the model may mend them, and nothing is called."""
    model.script = [Call((call,)), Say("I give up.")]
    async with start(kind) as board:
        result = await board.call("spawn", task="x")
    assert result.for_llm == "I give up."
    assert words in outcomes(model.asked[1])[0]


async def test_a_model_that_goes_round_in_circles_is_ended(start, model, kind):
    model.endless = READ
    async with start(kind) as board:
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert "it went round in circles: sensor with the same arguments 4 times" in result.for_llm
    assert result.structured["status"] == "failed"


async def test_budgets_end_what_has_no_end(start, model):
    for number in range(5):
        model.script.append(Call((("sensor", {"sensor": f"s{number}"}),)))
    async with start(turns=3) as board:
        result = await board.call("spawn", task="x")
        assert "no report within 3 turns" in result.for_llm
    model.script = [READ]
    async with start(tokens=1000) as board:
        for number in range(9):
            model.script.append(Call((("sensor", {"sensor": f"s{number}"}),)))
        result = await board.call("spawn", task="x")
        assert "it used 1080 tokens of 1000" in result.for_llm


async def test_an_answer_that_was_cut_off_is_no_report(start, model, kind):
    model.script = [Say("As I was say", cut=True)]
    async with start(kind) as board:
        result = await board.call("spawn", task="x", max_tokens=64)
    assert result.is_error
    assert "cut off at 64 tokens" in result.for_llm
    assert result.structured["text"] == "As I was say"


async def test_a_server_that_hangs_is_given_up(start, model, kind):
    """The provider's own `timeout`: who was silent for so long is not asked again."""
    model.endless = Hang()
    provider = {"kind": kind, "base_url": f"{model.url}/v1", "model": "m", "timeout": 1}
    async with start(providers={"slow": provider}) as board:
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert f"model provider slow: nothing came from {model.url}/v1 for 1 s" in result.for_llm


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Raw(b"data: not json\n\n"), "sent what is no JSON object: 'not json'"),
        (Raw(b"data: [1]\n\n"), "sent what is no JSON object"),
        (Raw(b"\xff\xfe garbage without an end"), "the model's answer ended in the middle"),
        (Broken(READ), "the model's answer ended in the middle"),
        (Fault("overloaded"), "the model's server says: overloaded"),
        (Refuse(503, "try later"), "HTTP 503: try later"),
    ],
)
async def test_an_answer_that_is_none_is_asked_for_again_then_told(
    start, model, kind, step, words
):
    async with start(kind) as board:
        _at_once(board)
        model.script = [step, step, Say("At last.")]
        assert (await board.call("spawn", task="x")).for_llm == "At last."
        assert len(model.asked) == 3
        model.endless = step
        result = await board.call("spawn", task="x")
    assert result.is_error
    assert words in result.for_llm
    assert len(model.asked) == 3 + 4


def _at_once(board, waits=None):
    """Tries again without waiting; `waits` gets how long it would have waited."""
    service = board.it.daemon.services.agents()
    line = service.line("local")

    async def sleep(seconds):
        if waits is not None:
            waits.append(seconds)

    line.sleep = sleep


async def test_what_the_server_refuses_for_good_is_not_tried_again(start, model, kind):
    model.script = [Refuse(400, f"bad model; key {KEY}")]
    async with start(kind) as board:
        result = await board.call("spawn", task="x")
    assert "HTTP 400: bad model; key " in result.for_llm
    assert len(model.asked) == 1
    # No key in what models and people see.
    assert KEY not in result.for_llm


async def test_retry_after_is_waited_for_and_another_key_is_tried(start, model):
    """RFC 9110, section 10.2.3; a 429 is of the key that asked."""
    waits = []
    model.script = [Refuse(503, "x", (("Retry-After", "7"),)), Say("ok")]
    async with start() as board:
        _at_once(board, waits)
        assert (await board.call("spawn", task="x")).for_llm == "ok"
    assert waits == [7.0]
    provider = {"base_url": f"{model.url}/v1", "model": "m", "api_keys": ["one", "two"]}
    model.script = [Refuse(429, "x"), Say("ok")]
    async with start(providers={"local": provider}) as board:
        _at_once(board, waits)
        assert (await board.call("spawn", task="x")).for_llm == "ok"
    assert [h["Authorization"] for h in model.headers[-2:]] == ["Bearer one", "Bearer two"]


async def test_no_server_is_told_with_its_address(start):
    provider = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
    async with start(providers={"local": provider}) as board:
        _at_once(board)
        result = await board.call("spawn", task="x")
    assert "no server answers at http://127.0.0.1:9/v1: start it" in result.for_llm


async def test_a_server_that_does_not_stream_is_understood(start, model):
    """Some servers of local models answer with one JSON object."""
    from aiohttp import web

    answer = {
        "choices": [
            {"message": {"role": "assistant", "content": "plain"}, "finish_reason": "stop"}
        ]
    }

    async def serve(_request):
        return web.json_response(answer)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider = {"base_url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "model": "m"}
    try:
        async with start(providers={"local": provider}) as board:
            assert (await board.call("spawn", task="x")).for_llm == "plain"
    finally:
        await runner.cleanup()


class TestAgents:
    async def make(self, board, **facts):
        from edged.agents.store import Creation

        base = {"name": "Watcher", "system_prompt": "You watch.", "model": "small"}
        return await board.it.daemon.services.agents().create(OWNER, Creation(**base | facts))

    async def test_an_agent_has_its_prompt_model_and_permitted_tools(self, start, model, kind):
        model.script = [
            Call((("gpio", {}), ("sensor", {"sensor": "greenhouse"}))),
            Say("Warm."),
        ]
        async with start(kind) as board:
            await self.make(board, tool_permissions=["sensor", "tool_*"], model="tiny")
            result = await board.call("spawn", task="Look", agent="watcher")
        assert result.for_llm == "Warm."
        asked = model.asked[0]
        assert asked["model"] == "tiny"
        assert "You watch." in json.dumps(asked)
        assert {"sensor", "tool_describe"} <= names(asked)
        assert not names(asked) & {"gpio", "exec", "spawn"}
        refused, read = outcomes(model.asked[1])
        assert "this agent may not call 'gpio': its tool_permissions lack it" in refused
        assert "temperature" in read

    async def test_what_a_tool_calls_in_turn_is_held_to_the_same_names(self, start, model):
        model.script = [
            Call((("tool_call", {"name": "gpio", "arguments": {}}),)),
            Say("ok"),
        ]
        async with start() as board:
            await self.make(board, tool_permissions=["tool_call"])
            await board.call("spawn", task="Look", agent="watcher")
        assert "gpio" in outcomes(model.asked[1])[0]
        assert "may not call" in outcomes(model.asked[1])[0]

    async def test_an_agent_without_permissions_has_no_tools(self, start, model):
        model.script = [Say("I have none.")]
        async with start() as board:
            await self.make(board)
            await board.call("spawn", task="Look", agent="watcher")
        assert "tools" not in model.asked[0]

    async def test_one_that_is_switched_off_or_missing_is_refused(self, start):
        async with start() as board:
            await self.make(board, status="disabled")
            for slug, words in (
                ("watcher", "edged agents enable watcher"),
                ("nobody", "no agent 'nobody'; there are: board-watcher, watcher"),
            ):
                result = await board.call("spawn", task="x", agent=slug)
                assert result.is_error
                assert words in result.for_llm


async def test_a_model_is_asked_at_the_provider_that_has_it(start, model):
    providers = {
        "local": {"base_url": f"{model.url}/v1", "model": "small", "models": {"gpt-4": "big"}},
        "other": {"kind": "anthropic", "base_url": f"{model.url}/v1", "model": "claude"},
    }
    model.endless = Say("ok")
    async with start(providers=providers, default="local") as board:
        for wanted in ("", "gpt-4", "claude", "other/haiku", "unknown"):
            await board.call("spawn", task="x", model=wanted)
    assert [asked["model"] for asked in model.asked] == [
        "small",
        "big",
        "claude",
        "haiku",
        "unknown",
    ]
    assert ["system" in asked for asked in model.asked] == [False, False, True, True, False]


async def test_a_model_of_a_provider_that_is_not_there_is_told_of(start, model):
    """Else a wrong server is asked, and perhaps paid, without a word."""
    providers = {
        "local": {"base_url": f"{model.url}/v1", "model": "a/b", "models": {"x/y": "c/d"}},
        "cloud": {"kind": "anthropic", "base_url": f"{model.url}/v1", "model": "claude"},
    }
    model.endless = Say("ok")
    async with start(providers=providers, default="local") as board:
        typo = await board.call("spawn", task="x", model="clod/haiku")
        assert typo.is_error
        words = "there is no provider 'clod'; did you mean 'cloud'? There are: local, cloud"
        assert words in typo.for_llm
        assert model.asked == []
        other = await board.call("spawn", task="x", model="qwen/qwen3")
        assert other.for_llm == (
            "ok\n\n(There is no provider 'qwen': 'qwen/qwen3' was asked of 'local', which is not "
            "known to have it.)"
        )
        for known in ("a/b", "x/y", "local/some", "cloud/e/f", "plain"):
            assert (await board.call("spawn", task="x", model=known)).for_llm == "ok"
    assert [one["model"] for one in model.asked] == [
        "qwen/qwen3", "a/b", "c/d", "some", "e/f", "plain"
    ]  # fmt: skip


async def test_a_cancelled_caller_cancels_what_it_waits_for(start, model):
    model.endless = Hang()
    async with start() as board:
        call = board.begin("spawn", task="x")
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
        call.cancel()
        (task,) = (await board.call("spawn_status")).structured["tasks"]
        ended = await board.ended(task["task_id"])
        assert ended["status"] == "cancelled"


async def test_one_in_the_background_outlives_its_caller(start, model):
    """picoclaw.md, section 13: a child survives the parent's turn, and can be asked for."""
    model.script = [Hang()]
    async with start() as board:
        result = await board.call("spawn", task="x", **{"async": True})
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
        task_id = result.structured["task_id"]
        status = await board.call("spawn_status", task_id=task_id)
        assert status.structured["tasks"][0]["status"] == "running"
        view = await board.it.daemon.services.agents().stop(AGENT, task_id)
        assert view.status == "cancelled"
        assert (await board.ended(task_id))["status"] == "cancelled"


async def test_those_of_a_token_end_with_it(start, model):
    """They went on at the owner's cost; a job's are its job's, which goes on."""
    model.endless = Hang()
    ada = Caller("local", "agent", "", "http", "token ada")
    tool = msgspec.structs.replace(ada, door="internal", depth=1)
    job = Caller("local", "agent", "job 1", "internal", "jobs of local")
    async with start() as board:
        tokens = board.it.daemon.control.tokens
        tokens.add("ada", "local", "agent")
        named = [
            (await board.call("spawn", caller, task="x", **{"async": True})).structured["task_id"]
            for caller in (AGENT, job, ada, tool)
        ]
        tokens.revoke("ada")
        for ended in named[2:]:
            assert (await board.ended(ended))["status"] == "cancelled"
        tasks = (await board.call("spawn_status", OWNER)).structured["tasks"]
        states = sorted(one["status"] for one in tasks)
        assert states == ["cancelled", "cancelled", "running", "running"]


async def test_subagents_of_others_are_not_told_of(start, model):
    model.endless = Say("secret")
    other = Caller("local", "agent", "", "unix", "uid 1001")
    async with start() as board:
        task_id = (await board.call("spawn", task="x")).structured["task_id"]
        assert "No subagents" in (await board.call("spawn_status", other)).for_llm
        result = await board.call("spawn_status", other, task_id=task_id)
        assert result.is_error
        assert "no subagent" in result.for_llm
        with pytest.raises(NotFoundError):
            await board.it.daemon.services.agents().stop(other, task_id)
        assert "secret" in (await board.call("spawn_status", OWNER, task_id=task_id)).for_llm


async def test_places_are_bounded_and_the_rest_waits(start, model):
    model.endless = Hang()
    async with start(running=1, waiting=2) as board:
        owner = [await board.call("spawn", OWNER, task="x", **{"async": True}) for _ in range(3)]
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
        tasks = (await board.call("spawn_status", OWNER)).structured["tasks"]
        assert sorted(t["status"] for t in tasks) == ["running", "waiting", "waiting"]
        result = await board.call("spawn", OWNER, task="x")
        assert "3 subagents of yours run or wait, 3 in all" in result.for_llm
        for one in owner:
            await board.it.daemon.services.agents().stop(OWNER, one.structured["task_id"])


async def test_subagents_have_subagents_to_a_depth(start, model):
    """A child that is waited for runs in its parent's place: there is no deadlock."""
    spawn = Call((("spawn", {"task": "deeper"}),))
    model.script = [spawn, spawn, Say("third refused"), Say("second done"), Say("done")]
    async with start(running=1, depth=2) as board:
        result = await board.call("spawn", task="x")
        views = (await board.call("spawn_status", OWNER)).structured["tasks"]
    assert result.for_llm == "second done"
    assert "subagents are 2 deep at most" in outcomes(model.asked[2])[0]
    assert {v["status"] for v in views} == {"completed"}


async def test_a_subagent_begins_no_tasks_by_way_of_jobs(start, model):
    """Such a task would be nobody's child: with tokens, a depth and a life of its own."""
    later = {"schedule": "in 1h"}
    async with start() as board:
        made = await board.call("cron", **later, task="Look")
        job = made.structured["job"]["id"]
        asked = (
            {**later, "task": "Look"},
            {**later, "tool": "spawn", "arguments": {"task": "Look"}},
            {**later, "tool": "cron", "arguments": {**later, "task": "Look"}},
            {"action": "run", "id": job},
            {"action": "enable", "id": job},
            {"action": "update", "id": job, "task": "Look again"},
            {**later, "command": "true"},
            {"action": "remove", "id": job},
        )
        model.script = [Call(tuple(("cron", given) for given in asked)), Say("ok")]
        await board.call("spawn", task="x")
        left = (await board.call("cron")).structured["jobs"]
    told = outcomes(model.asked[1])
    refused = ["a subagent may not have a job that calls" in outcome for outcome in told]
    assert refused == [True] * 6 + [False] * 2, told
    assert [one["command"] for one in left] == ["true"]


async def test_what_a_model_does_is_an_agents_doing(start, model):
    """Whoever gives the task: an owner's subagent may not do what owners alone may."""
    model.script = [
        Call((("install_skill", {"name": "x", "scope": "everyone"}),)),
        Say("ok"),
    ]
    async with start() as board:
        await board.call("spawn", OWNER, task="x")
    assert "owner" in outcomes(model.asked[1])[0]


async def test_a_restart_is_told(start, model, folder):
    model.endless = Hang()
    async with start() as board:
        running = await board.call("spawn", task="x", **{"async": True})
        async with asyncio.timeout(BOUND_S):
            await model.arrived.wait()
        model.endless = Say("report")
        done = await board.call("spawn", task="y")
    async with start() as board:
        tasks = (await board.call("spawn_status")).structured["tasks"]
    found = {t["task_id"]: (t["status"], t["text"], t["reason"]) for t in tasks}
    assert found[done.structured["task_id"]] == ("completed", "report", "")
    status, _, reason = found[running.structured["task_id"]]
    assert status == "interrupted"
    assert "edged stopped" in reason


async def test_a_transcript_has_all_and_no_key(start, model, folder):
    model.script = [READ, Say(f"The key is {KEY}.")]
    async with start() as board:
        result = await board.call("spawn", task=f"Say {KEY}")
    path = os.path.join(folder, "subagents", f"{result.structured['task_id']}.jsonl")
    assert os.stat(path).st_mode & 0o777 == 0o600
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert KEY not in text + result.for_llm
    kinds = [row.get("type", next(iter(row))) for row in map(json.loads, text.splitlines())]
    assert kinds == ["head", "user", "assistant", "tools", "assistant", "end"]


async def test_old_tasks_are_forgotten(start, model, folder):
    model.endless = Say("ok")
    async with start(kept=2) as board:
        for _ in range(4):
            await board.call("spawn", task="x")
    assert len(os.listdir(os.path.join(folder, "subagents"))) <= 3


async def test_without_a_provider_the_tools_are_blocked(start):
    async with start(text="{}") as board:
        for name in ("spawn", "spawn_status"):
            with pytest.raises(ToolUnavailableError, match="requires_subagent.*no model provider"):
                board.begin(name, task="x") if name == "spawn" else board.begin(name)


async def test_a_switched_off_family_blocks_them_too(start, model):
    async with start(enabled=False) as board:
        with pytest.raises(ToolUnavailableError, match=r"requires_subagent.*edged tools --enable"):
            board.begin("spawn", task="x")


async def test_a_job_may_run_an_agent(start, model):
    """Issue 5: cron jobs may run an agent; what it may is looked at again at each run."""
    model.script = [READ, Say("All is well.")]
    async with start() as board:
        agents = board.it.daemon.services.agents()
        given = {"schedule": "every 1h", "task": "Look", "agent": "board-watcher"}
        added = await board.call("cron", **given)
        job = added.structured["job"]["id"]
        shown = (await board.call("cron", id=job)).for_llm
        assert "task: Look\nagent: board-watcher" in shown
        ran = await board.call("cron", action="run", id=job)
        assert "All is well." in json.dumps(ran.structured)
        assert not names(model.asked[0]) & {"actuator", "exec"}
        await agents.update(OWNER, "board-watcher", Change(status="disabled"))
        ran = await board.call("cron", action="run", id=job)
        assert ran.structured["run"]["status"] == "error"
        assert "'board-watcher' is switched off" in ran.structured["run"]["output"]
        refused = await board.call("cron", **given)
        assert "'board-watcher' is switched off" in refused.for_llm
        refused = await board.call("cron", **{**given, "agent": "nobody"})
        assert "agent: no agent 'nobody'" in refused.for_llm
        refused = await board.call("cron", **{**given, "agent": "../x"})
        assert "slug" in refused.for_llm
        assert (await board.call("cron")).structured["total"] == 1


async def test_a_job_with_a_task_needs_subagents(start):
    async with start(text="{}") as board:
        refused = await board.call("cron", schedule="in 1h", task="Look")
    assert "requires_subagent" in refused.for_llm


async def test_an_empty_task_is_refused(start):
    async with start() as board:
        result = await board.call("spawn", task="  ")
        assert "task: is empty" in result.for_llm
