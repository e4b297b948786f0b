"""A subagent's work with a model and tools of the test's: whatever they do, it ends in words."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from edged import results
from edged.agents.loop import GONE, LAST, SAME_MAX, Budget, GaveUpError, Progress, work
from edged.agents.providers import Outcomes, Question, Said, Told, ToolCall, Usage
from edged.errors import DeniedError, ModelError

QUESTION = Question("small", "Look.", (Told("Work"),), (), 0)
BUDGET = Budget(5, 10_000, 100)
USED = Usage(10, 5)


class World:
    """The model says what is next in its script; the tools answer by their name."""

    form = "openai"

    def __init__(self, *script):
        self.script, self.asked, self.notes, self.turns = list(script), [], [], 0
        self.progress = Progress()
        self.running = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, question):
        self.asked.append(question)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def definitions(self, form):
        assert form == "openai"
        return [{"name": f"turn_{self.turns}"}]

    async def call(self, name, raw):
        self.running += 1
        self.most = max(self.most, self.running)
        await self.gate.wait()
        self.running -= 1
        if name == "denied":
            raise DeniedError("not you")
        return results.complete(
            results.failure("broken")
            if name == "broken"
            else results.text(f"{name} {raw.decode()}")
        )

    def turn(self):
        self.turns += 1

    async def note(self, turn):
        self.notes.append(turn)

    async def work(self, budget=BUDGET):
        return await work(self, self, QUESTION, budget, self.progress, self.note)


def wants(*calls, text="", stop="tool_calls", usage=USED):
    rows = tuple(ToolCall(f"c{i}", name, raw) for i, (name, raw) in enumerate(calls))
    return Said(text, rows, usage, stop)


def ends(text="Done.", stop="stop", usage=USED):
    return Said(text, (), usage, stop)


async def test_a_model_is_asked_with_all_that_was_said_until_it_reports():
    world = World(wants(("a", '{"x": 1}'), ("broken", ""), ("denied", "{}"), text="Hm."), ends())
    assert await world.work() == "Done."
    first, second = world.asked
    assert (first.turns, first.max_tokens, first.system) == (QUESTION.turns, 100, "Look.")
    assert first.tools == ({"name": "turn_0"},)
    assert second.tools == ({"name": "turn_1"},), "what was found meanwhile is told"
    assert second.turns[1].text == "Hm."
    told = [(row.id, row.text, row.is_error) for row in second.turns[2].rows]
    assert told == [("c0", 'a {"x": 1}', False), ("c1", "broken", True), ("c2", "not you", True)]
    assert world.notes == [*second.turns[1:], ends()]
    assert world.progress == Progress(2, 3, 30, "Done.")


@pytest.mark.parametrize(
    "raw", ["{", "[1]", "3", '"x"', "null", "{} {}", "\ud800", "[" * 100_000], ids=lambda r: r[:5]
)
async def test_arguments_that_are_no_object_call_nothing(raw):
    world = World(wants(("a", raw)), ends())
    assert await world.work() == "Done."
    (row,) = world.asked[1].turns[2].rows
    assert row.is_error
    assert row.text.startswith("the arguments are not one JSON object")
    assert world.most == 0


@pytest.mark.parametrize(
    ("script", "budget", "reason"),
    [
        ([ends("As I", "length")], {}, "cut off at 100 tokens"),
        ([wants(("a", "{"), stop="max_tokens")], {}, "cut off at 100 tokens"),
        ([ends("No.", "refusal")], {}, r"the model refused the task \(refusal\)"),
        ([ends(" \n")], {}, "ended without a word"),
        ([wants(("a", "{}"))] * SAME_MAX, {}, "round in circles: a with the same arguments 4 times"),
        ([wants(("a", "1")), wants(("a", "2"))], {"turns": 2}, "no report within 2 turns"),
        ([wants(("a", "1"))], {"turns": 1}, "no report within 1 turns"),
        ([wants(("a", "1"), usage=Usage(90, 10))], {"tokens": 100}, "used 100 tokens of 100"),
        ([wants(("a", "1"), usage=Usage())], {"tokens": 20}, r"used \d+ tokens of 20"),
    ],
)  # fmt: skip
async def test_what_never_ends_is_given_up_with_a_reason(script, budget, reason):
    world = World(*script)
    with pytest.raises(GaveUpError, match=reason):
        await world.work(msgspec.structs.replace(BUDGET, **budget))
    assert world.script == []
    assert world.progress.turns == len(script)


async def test_tokens_that_no_server_counts_are_estimated():
    """A budget holds also where a server of a local model says nothing of it."""
    world = World(ends("x" * 4_000, usage=Usage()))
    await world.work()
    assert 1_000 <= world.progress.tokens < 1_200


@pytest.mark.parametrize("is_twice", [False, True], ids=["words", "in its own shape too"])
async def test_a_server_that_counts_too_few_tokens_is_not_believed(is_twice):
    """A token has a few letters: megabytes of them are no two tokens."""
    said = wants(("a", "1"), text="x" * 160_000, usage=Usage(1, 1))
    items = ({"type": "text", "text": said.text},) if is_twice else ()
    world = World(msgspec.structs.replace(said, items=items))
    with pytest.raises(GaveUpError, match=r"used \d+ tokens of 10000"):
        await world.work()
    assert 10_000 <= world.progress.tokens < 10_100


async def test_the_last_question_asks_for_a_report():
    world = World(wants(("a", "1")), ends())
    await world.work(msgspec.structs.replace(BUDGET, turns=2))
    assert LAST not in world.asked[0].turns
    assert world.asked[1].turns[-1] == LAST
    world = World(ends())
    await world.work(msgspec.structs.replace(BUDGET, turns=1))
    assert world.asked[0].turns == QUESTION.turns, "a task of one answer is one anyway"


async def test_other_arguments_in_between_are_no_circle():
    calls = ["1", "1", "1", "2", "1", "1", "1"]
    world = World(*(wants(("a", raw)) for raw in calls), ends())
    assert await world.work(msgspec.structs.replace(BUDGET, turns=20)) == "Done."


async def test_so_many_calls_run_at_once_and_no_more():
    world = World(wants(*((f"t{i}", "{}") for i in range(20))), ends())
    world.gate.clear()
    working = asyncio.create_task(world.work())
    while world.running < 8:
        await asyncio.sleep(0)
    world.gate.set()
    assert await working == "Done."
    assert world.most == 8
    done = world.asked[1].turns[2]
    assert isinstance(done, Outcomes)
    assert [row.name for row in done.rows] == [f"t{i}" for i in range(20)]


async def test_a_server_that_does_not_answer_ends_the_work():
    world = World(wants(("a", "{}")), ModelError("gone"))
    with pytest.raises(ModelError, match="gone"):
        await world.work()
    assert world.progress.turns == 1


async def test_a_long_answer_of_a_tool_is_cut_in_its_middle():
    raw = '{"x": "' + "y" * 1_000 + '"}'
    world = World(wants(("a", raw)), ends())
    await world.work(msgspec.structs.replace(BUDGET, result=300))
    (row,) = world.asked[1].turns[2].rows
    begin, word, end = row.text.split("\n")
    assert (len(begin), len(end)) == (200, 100)
    assert word == f"[{len(raw) + 2 - 300} characters are left out here: ask for less]"
    assert row.text.startswith('a {"x"')
    assert row.text.endswith('y"}')


async def test_old_answers_of_tools_make_room_for_new_ones():
    """A small model's context; what was said last is always there."""
    raw = '{"x": "' + "y" * 2_000 + '"}'
    script = [wants(("a", raw.replace("y", str(i), 1)), ("b", "{}")) for i in range(4)]
    world = World(*script, ends())
    budget = msgspec.structs.replace(BUDGET, context=2_100, tokens=10**6)
    assert await world.work(budget) == "Done."
    last = world.asked[-1].turns
    told = [row.text for turn in last if isinstance(turn, Outcomes) for row in turn.rows]
    assert told[0] == told[2] == GONE
    assert told[1] == told[3] == "b {}", "what is short stays"
    assert told[-2].startswith("a {")
    assert GONE not in [row.text for row in world.asked[1].turns[2].rows]
    world = World(*script, ends())
    await world.work()
    assert GONE not in str(world.asked[-1].turns), "where nobody says how much, all is there"


async def test_work_that_is_cancelled_ends_its_calls():
    world = World(wants(("a", "{}")))
    world.gate.clear()
    working = asyncio.create_task(world.work())
    while not world.running:
        await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert len(world.notes) == 1
