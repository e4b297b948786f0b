"""A subagent's work: a model is asked, its calls are made, it is asked again, until it is done.

Laws: whatever a model does ends in a status with a reason; budgets are looked at before
each question; nothing is cut silently. Knows no wire and no registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from edged.agents.providers import Outcome, Outcomes, Question, Said, Told, ToolCall, Turn
from edged.errors import EdgedError
from edged.results import Result

AT_ONCE = 8
"""Calls of one answer that run at once."""

SAME_MAX = 4
"""Answers in a row that want the very same calls: a model that goes round in circles."""

CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"})
"""Why an answer ended that is not whole, in the words of the providers."""

REFUSED = frozenset({"content_filter", "refusal"})

LAST = Told("This is your last answer: report now what you have, without calling tools.")

CHARACTERS = 4
"""Of a token, where the server does not count them."""

LONGEST = 16
"""Characters of a token on average at most: a server that counts fewer tokens is not believed."""

GONE = "[this answer is left out: there was no room for it; call again if you need it]"


class Model(Protocol):
    """Who is asked."""

    form: str

    async def ask(self, question: Question) -> Said:
        """One answer.

        Raises:
            ModelError: there is none.
        """


class Tools(Protocol):
    """What a subagent may call."""

    async def definitions(self, form: str) -> list[dict[str, Any]]:
        """Those that it is told of now, in a provider's form."""

    async def call(self, name: str, raw: bytes) -> Result:
        """Call one.

        Raises:
            EdgedError: it was refused.
        """

    def turn(self) -> None:
        """A turn is over: what was found may be forgotten."""


class Budget(msgspec.Struct, frozen=True):
    """What one task may use.

    Attributes:
        turns: answers.
        tokens: read and written, as the server counts them where that can be.
        answer_tokens: of one answer.
        temperature: None leaves it to the server.
        result: characters of a tool's answer that the model is shown.
        context: tokens of a question and its answer; 0 is no bound.
    """

    turns: int
    tokens: int
    answer_tokens: int
    temperature: float | None = None
    result: int = 16_384
    context: int = 0


class Progress(msgspec.Struct):
    """How far it is."""

    turns: int = 0
    calls: int = 0
    tokens: int = 0
    text: str = ""
    """The model's last words."""
    lent: int = 0
    """Tokens of tasks that it gave, and that still run."""


class GaveUpError(EdgedError, RuntimeError):
    """The work ended without a report; the message says why."""

    code = "model"


async def work(
    model: Model,
    tools: Tools,
    question: Question,
    budget: Budget,
    progress: Progress,
    note: Callable[[Turn], Awaitable[None]],
) -> str:
    """Work on a task until the model reports.

    Args:
        model: asked.
        tools: called.
        question: the first, with the task.
        budget: what may be used.
        progress: kept up to date.
        note: told of each turn of the conversation, in order.

    Returns:
        The report.

    Raises:
        GaveUpError: there is none, and never will be.
        ModelError: the server does not answer.
    """
    turns = list(question.turns)
    before: list[tuple[str, str]] = []
    same = 0
    for left in reversed(range(budget.turns)):
        if turns[1:] and not left:
            turns.append(LAST)
        defined = tuple(await tools.definitions(model.form))
        if budget.context:
            _make_room(turns, _length((question.system, defined)), budget)
        asked = msgspec.structs.replace(
            question,
            turns=tuple(turns),
            tools=defined,
            max_tokens=budget.answer_tokens,
            temperature=budget.temperature,
        )
        said = await model.ask(asked)
        progress.turns += 1
        progress.tokens += _used(turns, said)
        progress.text = said.text or progress.text
        turns.append(said)
        await note(said)
        if not said.calls:
            return _report(said, budget)
        if said.stop in CUT:
            # The last call's arguments may be half of what was meant.
            raise GaveUpError(_cut(budget))
        if progress.tokens + progress.lent >= budget.tokens:
            raise GaveUpError(
                f"it used {progress.tokens} tokens of {budget.tokens}: give smaller tasks, or "
                "raise tools.subagent.tokens"
            )
        wanted = [(call.name, call.arguments) for call in said.calls]
        same = same + 1 if wanted == before else 1
        before = wanted
        if same >= SAME_MAX:
            raise GaveUpError(
                f"it went round in circles: {said.calls[0].name[:64]} with the same arguments "
                f"{same} times in a row"
            )
        progress.calls += len(said.calls)
        done = Outcomes(tuple(await _all(tools, said.calls, budget.result)))
        turns.append(done)
        await note(done)
        tools.turn()
    raise GaveUpError(
        f"no report within {budget.turns} turns: give smaller tasks, or raise tools.subagent.turns"
    )


def _report(said: Said, budget: Budget) -> str:
    if said.stop in CUT:
        raise GaveUpError(_cut(budget))
    if said.stop in REFUSED:
        raise GaveUpError(f"the model refused the task ({said.stop})")
    if not said.text.strip():
        raise GaveUpError("the model ended without a word")
    return said.text


def _cut(budget: Budget) -> str:
    return (
        f"the model's answer was cut off at {budget.answer_tokens} tokens: give it more with "
        "max_tokens"
    )


def _used(turns: list[Turn], said: Said) -> int:
    """Tokens of a question and its answer; a budget holds also where nobody counts, or lies."""
    counted = said.usage.input + said.usage.output
    if not counted:
        return _length((turns, said)) // CHARACTERS
    return max(counted, sum(map(_written, (*turns, said))) // LONGEST)


def _written(turn: Turn) -> int:
    """Characters of a turn; what is kept in a provider's own shape is in it once."""
    if isinstance(turn, Told):
        return len(turn.text)
    if isinstance(turn, Outcomes):
        return sum(len(row.text) for row in turn.rows)
    if turn.items:
        return _length(turn.items)
    return len(turn.text) + sum(len(call.name) + len(call.arguments) for call in turn.calls)


def _length(value: Any) -> int:
    return len(msgspec.json.encode(value))


def _make_room(turns: list[Turn], fixed: int, budget: Budget) -> None:
    """Leave out the oldest answers of tools until the rest fits; never the last ones."""
    room = (budget.context - budget.answer_tokens) * CHARACTERS - fixed
    over = sum(map(_length, turns)) - room
    last = max((at for at, turn in enumerate(turns) if isinstance(turn, Outcomes)), default=0)
    for at, turn in enumerate(turns[:last]):
        if over <= 0:
            return
        if isinstance(turn, Outcomes):
            rows = [
                msgspec.structs.replace(row, text=min(row.text, GONE, key=len))
                for row in turn.rows
            ]
            turns[at] = Outcomes(tuple(rows))
            over -= _length(turn) - _length(turns[at])


def _fitted(text: str, longest: int) -> str:
    """A tool's answer as the model is shown it: its beginning and its end."""
    left = len(text) - longest
    if left <= 0:
        return text
    head, tail = text[: longest - longest // 3], text[-(longest // 3) :]
    return f"{head}\n[{left} characters are left out here: ask for less]\n{tail}"


async def _all(tools: Tools, calls: tuple[ToolCall, ...], longest: int) -> list[Outcome]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(call: ToolCall) -> Outcome:
        async with gate:
            return await _one(tools, call, longest)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    return [task.result() for task in tasks]


async def _one(tools: Tools, call: ToolCall, longest: int) -> Outcome:
    raw = call.arguments.strip().encode("utf-8", "replace") or b"{}"
    try:
        if not isinstance(msgspec.json.decode(raw), dict):
            raise msgspec.DecodeError("it is no object")
    except (msgspec.DecodeError, RecursionError) as error:
        text = f"the arguments are not one JSON object ({error}): nothing was called"
        return Outcome(call.id, call.name, text, is_error=True)
    try:
        result = await tools.call(call.name, raw)
    except EdgedError as error:
        return Outcome(call.id, call.name, _fitted(str(error), longest), is_error=True)
    return Outcome(call.id, call.name, _fitted(result.for_llm, longest), result.is_error)
