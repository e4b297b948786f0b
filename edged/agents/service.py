"""Agents and subagents as the tools and doors use them.

Laws: a subagent has no right that its caller lacks, and of those only what its agent's
`tool_permissions` name; what one does is in its transcript; each task ends in a status
and is told of once. Loop thread only; files are touched in threads.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from edged import log
from edged.agents.loop import Budget, Model, Progress, Tools, work
from edged.agents.providers import NAME_MAX, Question, Said, Told, Turn
from edged.agents.store import Agent, Agents, Change, Creation, Listing, Status, doubts
from edged.agents.transcript import (
    INTERRUPTED,
    End,
    Head,
    State,
    Transcript,
    finish,
    forget,
    remembered,
)
from edged.clock import Clock, iso
from edged.config import seconds, size
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoppingError,
    StoreError,
)
from edged.identity import Caller
from edged.results import mask
from edged.sections import ModelProvider, Subagent
from edged.wording import faulted
from edged.yamlio import nearest

_T = TypeVar("_T")

LABEL_MAX = 60
NAMED_MAX = 50
"""Agents that a refusal names."""

SHOWN_MAX = 8_000
"""Characters of a task that its views repeat; its transcript has all."""

REPORT_MAX = 32_000
"""Characters of a report; a model that says more is cut."""

PROMPT = (
    "You are a subagent on a small board. Work on the task with the tools that you have, then "
    "report in plain words what you found and did. Nobody answers questions meanwhile."
)
"""What a task without an agent begins with."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a subagent is to do."""

    task: str
    label: str = ""
    agent: str = ""
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    in_background: bool = False
    """Nobody waits for it."""
    found: frozenset[str] = frozenset()
    """Hidden tools that the caller's session has found."""


class View(msgspec.Struct, frozen=True):
    """One task as people and models see it."""

    task_id: str
    user: str
    label: str
    task: str
    agent: str
    model: str
    status: State
    started_at: str
    ended_at: str
    turns: int
    calls: int
    tokens: int
    text: str
    reason: str


class Line(Model, Protocol):
    """A line to a model's server."""

    async def close(self) -> None:
        """Close its connections."""


class _Masked:
    """A model without secrets in its words and names: its server may repeat the key it is sent."""

    def __init__(self, model: Model, secrets: tuple[str, ...]) -> None:
        self.form = model.form
        self._model, self._secrets = model, secrets

    async def ask(self, question: Question) -> Said:
        """One answer.

        Raises:
            ModelError: there is none.
        """
        said = await self._model.ask(question)
        calls = tuple(
            msgspec.structs.replace(call, name=mask(call.name, self._secrets))
            for call in said.calls
        )
        return msgspec.structs.replace(said, text=mask(said.text, self._secrets), calls=calls)


class Desk(Protocol):
    """How the parts above are reached: tools, messages, events."""

    def tools(
        self, caller: Caller, patterns: tuple[str, ...] | None, found: frozenset[str], turns: int
    ) -> Opened:
        """The tools of one subagent; `found` are hidden ones that it has for so many turns."""

    async def names(self, user: str) -> frozenset[str]:
        """All tools of a user, whether or not they can be called now."""

    async def deliver(self, caller: Caller, text: str) -> None:
        """Send a message to the caller's channel.

        Raises:
            EdgedError: it was refused.
        """


class Opened(Tools, Protocol):
    """Tools that are given back at the end."""

    def shown(self, name: str, raw: str) -> Any:
        """Arguments without the sensitive ones, as a transcript may have them."""

    def close(self) -> None:
        """End the session, and what is the session's."""


class Running:
    """One task of this life.

    Attributes:
        session: of its calls; nobody else knows it.
        depth: 1 where no subagent gave it.
        parent: the task of the subagent that gave it, or of the next above that still runs.
        note: what its giver should know of it, or empty.
    """

    def __init__(
        self,
        head: Head,
        budget: Budget,
        parent: Running | None,
        watch: Callable[[str], None] | None = None,
        note: str = "",
    ) -> None:
        self.head = head
        self.note = note
        self.budget = budget
        self.parent = parent
        self.watch = watch
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.session = f"subagent-{head.task_id}-{secrets.token_hex(8)}"
        self.progress = Progress()
        self.state: State = "waiting"
        self.end: End | None = None
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.has_begun = self.is_unwanted = False

    def cancel(self) -> None:
        """End it soon."""
        self.is_unwanted = True
        if self.has_begun and self.task is not None:
            # Before its first step nothing of it would run, not even its end.
            self.task.cancel()

    def take_back(self, child: Running) -> None:
        """Count what a child used as its own; the rest of what it was lent may be lent again."""
        self.progress.lent -= child.budget.tokens
        self.progress.tokens += child.progress.tokens

    @property
    def left(self) -> int:
        """Tokens that are neither used nor lent."""
        return self.budget.tokens - self.progress.tokens - self.progress.lent

    def view(self) -> View:
        """As it is now."""
        if self.end is not None:
            return shown(self.head, self.end)
        far = self.progress
        now = End(self.state, cut(far.text, REPORT_MAX), "", "", far.turns, far.calls, far.tokens)
        return shown(self.head, now)


def shown(head: Head, end: End) -> View:
    """A task and its end."""
    return View(
        head.task_id,
        head.user,
        head.label,
        head.task,
        head.agent,
        head.model,
        end.status,
        head.started_at,
        end.ended_at,
        end.turns,
        end.calls,
        end.tokens,
        end.text,
        end.reason,
    )


class Service:
    """All agents and subagents of a data directory.

    Args:
        data: the data directory.
        section: `tools.subagent`.
        clock: its time.
        desk: tools and messages.
        spawn: starts a task of the daemon's group.
        publish: events: `publish(kind, user, facts)`.
        open_line: makes the line to a provider, by its name and settings.
        seeds: directory of agents that came with the daemon.
        masked: secrets, which no transcript has, beside the providers' keys.
    """

    def __init__(
        self,
        data: str,
        section: Subagent,
        clock: Clock,
        desk: Desk,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        publish: Callable[[str, str, dict[str, Any]], None],
        open_line: Callable[[str, ModelProvider], Line],
        seeds: str = "",
        masked: tuple[str, ...] = (),
    ) -> None:
        self._agents = Agents(data, clock, seeds)
        self._section = section
        self._clock = clock
        self._desk = desk
        self._spawn = spawn
        self._publish = publish
        self._open_line = open_line
        keys = [key for one in section.providers.values() for key in one.secrets]
        self._masked = (*masked, *keys)
        self._directory = os.path.join(data, "subagents")
        self._lines: dict[str, Line] = {}
        self._changing = asyncio.Lock()
        self._closing = False
        self._places = asyncio.Semaphore(section.running)
        self._running: dict[str, Running] = {}
        self._by_session: dict[str, Running] = {}
        self._ended: dict[str, tuple[Head, End]] | None = None
        """Oldest first; None until somebody asks."""

    def health(self) -> dict[str, int]:
        """Facts for `status`."""
        states = [one.state for one in self._running.values()]
        return {"running": states.count("running"), "waiting": states.count("waiting")}

    def is_working(self, session: str) -> bool:
        """Whether a session is a subagent's."""
        return session in self._by_session

    def end_of(self, who: str) -> None:
        """Nobody is this caller any more: its subagents end, whoever gave them for it.

        Those of jobs are its jobs' (`Job.caller`).
        """
        for one in tuple(self._running.values()):
            if one.head.who == who:
                one.cancel()

    def wind_down(self) -> None:
        """Begin nothing more; what is cancelled from now on was interrupted."""
        self._closing = True

    async def close(self) -> None:
        """End every subagent, and close the lines."""
        self.wind_down()
        for one in tuple(self._running.values()):
            one.cancel()
        for one in tuple(self._running.values()):
            await one.over.wait()
        for line in self._lines.values():
            await line.close()

    # Agents -------------------------------------------------------------------------------

    async def listing(self, caller: Caller) -> Listing:
        """The caller's agents."""
        found = await self._in_turn(self._agents.listing, caller.user)
        names = await self._desk.names(caller.user)
        agents = tuple(_doubted(one, names) for one in found.agents)
        return msgspec.structs.replace(found, agents=agents)

    async def get(self, caller: Caller, slug: str) -> Agent:
        """One of them.

        Raises:
            NotFoundError, InvalidArgumentsError, ConfigError: as `Agents.get`.
        """
        agent = await self._in_turn(self._agents.get, caller.user, slug)
        return _doubted(agent, await self._desk.names(caller.user))

    async def create(self, caller: Caller, asked: Creation) -> Agent:
        """Make one.

        Raises:
            DeniedError: not an owner.
            ExistsError, InvalidArgumentsError: as `Agents.create`.
        """
        _require_owner(caller)
        agent = await self._in_turn(self._agents.create, caller.user, asked)
        return await self._changed(caller, agent)

    async def update(self, caller: Caller, slug: str, change: Change) -> Agent:
        """Change one; likewise."""
        _require_owner(caller)
        agent = await self._in_turn(self._agents.update, caller.user, slug, change)
        return await self._changed(caller, agent)

    async def take(self, caller: Caller, content: str) -> Agent:
        """Make one of a Markdown file's text; likewise."""
        _require_owner(caller)
        agent = await self._in_turn(self._agents.take, caller.user, content)
        return await self._changed(caller, agent)

    async def delete(self, caller: Caller, slug: str) -> None:
        """Remove one; likewise."""
        _require_owner(caller)
        await self._in_turn(self._agents.delete, caller.user, slug)
        self._publish("agents.changed", caller.user, {"slug": slug})

    async def act(
        self, caller: Caller, *, action: str, slug: str, task_id: str, content: str, agent: bytes
    ) -> dict[str, Any]:
        """What `edged/agents` asks for, answered as JSON has it.

        Raises:
            EdgedError: as the method of that name.
        """
        found: Any
        if action == "list":
            found = await self.listing(caller)
        elif action == "show":
            found = await self.get(caller, slug)
        elif action == "create":
            found = await self.create(caller, _decoded(agent, Creation))
        elif action == "update":
            found = await self.update(caller, slug, _decoded(agent, Change))
        elif action in ("enable", "disable"):
            status: Status = "enabled" if action == "enable" else "disabled"
            found = await self.update(caller, slug, Change(status=status))
        elif action == "import":
            found = await self.take(caller, content)
        elif action == "remove":
            await self.delete(caller, slug)
            found = {"status": "ok"}
        elif action == "tasks":
            found = {"tasks": await self.tasks(caller)}
        elif action == "task":
            found = await self.status(caller, task_id)
        else:
            found = await self.stop(caller, task_id)
        return msgspec.to_builtins(found)  # type: ignore[no-any-return]  # a Struct becomes a dict

    async def _in_turn(self, act: Callable[..., _T], *args: Any) -> _T:
        async with self._changing:
            # To its end, also where its caller is gone: two never write at once.
            return await _whole(act, *args)

    async def _changed(self, caller: Caller, agent: Agent) -> Agent:
        self._publish("agents.changed", caller.user, {"slug": agent.slug})
        return _doubted(agent, await self._desk.names(caller.user))

    # Subagents ----------------------------------------------------------------------------

    async def check(self, caller: Caller, slug: str, model: str) -> tuple[Agent | None, str, str]:
        """The agent of a task, the provider that is asked, and the model's name there.

        Args:
            caller: whose agents are looked at.
            slug: the agent's, or empty.
            model: in place of the agent's, or empty.

        Raises:
            NotFoundError: no such agent.
            DeniedError: it is switched off.
            InvalidArgumentsError: there is no model that could be asked.
        """
        agent = await self._named(caller, slug) if slug else None
        if agent is not None and agent.status == "disabled":
            raise DeniedError(
                f"agent {agent.slug!r} is switched off: edged agents enable {agent.slug}"
            )
        return agent, *self._chosen(model or (agent.model if agent is not None else ""))

    def _doubt(self, model: str, provider: str) -> str:
        """What is said of a model whose name begins like a provider's, of which there is none."""
        head, slash, _ = model.partition("/")
        one = self._section.providers[provider]
        if not slash or model == one.model or model in one.models.values():
            return ""
        return (
            f"There is no provider {head[:NAME_MAX]!r}: {model[:LABEL_MAX]!r} was asked of "
            f"{provider!r}, which is not known to have it."
        )

    async def _named(self, caller: Caller, slug: str) -> Agent:
        """One of the caller's agents; a model that guessed learns which there are."""
        try:
            return await self._in_turn(self._agents.get, caller.user, slug)
        except NotFoundError:
            found = await self._in_turn(self._agents.listing, caller.user)
            there = [one.slug for one in found.agents[:NAMED_MAX]]
            known = ", ".join(there) or "none"
            raise NotFoundError(f"no agent {slug!r}; there are: {known}") from None

    async def start(
        self, caller: Caller, asked: Task, watch: Callable[[str], None] | None = None
    ) -> Running:
        """Begin a task; it goes on whether or not somebody waits for it.

        Args:
            caller: who gives it.
            asked: what is to be done.
            watch: told in words what the model wants next, while it works.

        Raises:
            NotFoundError: no such agent.
            InvalidArgumentsError: nothing is to be done, or no provider has that model.
            DeniedError: the agent is switched off, or subagents are too deep.
            BusyError: too many run or wait.
            StoreError: its transcript cannot be begun.
        """
        if not asked.task.strip():
            raise InvalidArgumentsError([Fault("task", "is empty: say what is to be done")])
        agent, name, model = await self.check(caller, asked.agent, asked.model)
        parent = self._by_session.get(caller.session)
        if parent is not None and parent.depth >= self._section.depth:
            raise DeniedError(
                f"subagents are {self._section.depth} deep at most: do it yourself, or raise "
                "tools.subagent.depth"
            )
        await self._remember()
        # From here on nothing is waited for: whoever comes next counts this one.
        if self._closing:
            raise StoppingError
        self._check_places(caller)
        budget = self._budget(asked, parent, name)
        task = mask(asked.task, self._masked)
        head = Head(
            secrets.token_hex(4),
            caller.user,
            caller.role,
            caller.who,
            caller.channel,
            caller.chat_id,
            cut(task, SHOWN_MAX),
            mask(asked.label or " ".join(asked.task.split()), self._masked)[:LABEL_MAX],
            agent.slug if agent is not None else "",
            name,
            model,
            parent.head.task_id if parent is not None else "",
            iso(self._clock.now()),
            asked.in_background,
        )
        wanted = asked.model or (agent.model if agent is not None else "")
        note = self._doubt(wanted, name) if wanted == model else ""
        one = Running(head, budget, parent, watch, note)
        if parent is not None:
            parent.progress.lent += budget.tokens
        self._running[head.task_id] = self._by_session[one.session] = one
        self._publish("subagent.start", caller.user, {"task_id": head.task_id})
        one.task = self._spawn(self._run(one, caller, asked, agent))
        try:
            # Its first step is made before this goes on: who cancels it cancels what has begun.
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not asked.in_background:
                one.cancel()
            raise
        return one

    def _check_places(self, caller: Caller) -> None:
        places = self._section.running + self._section.waiting
        alive = [one.head.who for one in self._running.values()]
        mine = alive.count(caller.who)
        if len(alive) >= places or (not caller.is_owner and mine >= max(1, places // 2)):
            raise BusyError(
                f"{mine} subagents of yours run or wait, {len(alive)} in all: spawn_status tells "
                "when one is done"
            )

    def _chosen(self, wanted: str) -> tuple[str, str]:
        """The provider that has a model, and the model's name there.

        `NAME/MODEL` names the provider; a model that no provider is known to have goes to
        the default one as it is.

        Raises:
            InvalidArgumentsError: there is no provider, or `NAME` is nearly one's.
        """
        providers = self._section.providers
        default = self._section.default or next(iter(providers), "")
        if not default:
            raise InvalidArgumentsError(
                [Fault("model", "no model provider is configured: see tools.subagent.providers")]
            )
        head, slash, rest = wanted.partition("/")
        if slash and head in providers:
            return head, providers[head].models.get(rest, rest)
        ordered = [default, *(name for name in providers if name != default)]
        for name in ordered:
            one = providers[name]
            if wanted in one.models or (wanted and wanted == one.model):
                return name, one.models.get(wanted, wanted)
        guess = nearest(head, providers) if slash else ""
        if guess:
            reason = (
                f"there is no provider {head[:NAME_MAX]!r}; did you mean {guess!r}? "
                f"There are: {', '.join(providers)}"
            )
            raise InvalidArgumentsError([Fault("model", reason)])
        settings = providers[default]
        return default, wanted or settings.model or next(iter(settings.models.values()))

    def line(self, name: str) -> Line:
        """The line to a provider, made when it is first needed."""
        if name not in self._lines:
            self._lines[name] = self._open_line(name, self._section.providers[name])
        return self._lines[name]

    async def _run(self, one: Running, caller: Caller, asked: Task, agent: Agent | None) -> None:
        """The life of one task."""
        one.has_begun = True
        end, transcript = INTERRUPTED, None
        try:
            transcript, is_cancelled = await _done(Transcript, self._directory, one.head)
            if not (is_cancelled or one.is_unwanted):
                end = await self._worked(one, caller, asked, agent, transcript)
        except StoreError as error:
            end = End("failed", reason=str(error))
        except Exception:  # noqa: BLE001  a fault of ours ends in a status too
            log.error(f"subagent {one.head.task_id}: {traceback.format_exc()}")
            end = self._gave_up(one, "a fault inside edged; its log says what happened")
        finally:
            if end is INTERRUPTED and not self._closing:
                end = End("cancelled", reason="it was cancelled")
            far = one.progress
            one.end = end = msgspec.structs.replace(
                end,
                ended_at=iso(self._clock.now()),
                turns=far.turns,
                calls=far.calls,
                tokens=far.tokens,
            )
            one.state = end.status
            if transcript is not None:
                await self._write_end(one, transcript, end)
            self._forget_running(one, end)

    async def _worked(
        self,
        one: Running,
        caller: Caller,
        asked: Task,
        agent: Agent | None,
        transcript: Transcript,
    ) -> End:
        # Whoever waits for a child needs no place meanwhile: the child has it.
        is_lent = one.parent is not None and not asked.in_background
        gate = _Open() if is_lent else self._places
        inside = msgspec.structs.replace(
            caller,
            # Whoever gives the task: what a model does is an agent's doing.
            role="agent",
            session=one.session,
            door="internal",
            depth=caller.depth + 1,
        )
        patterns = agent.tool_permissions if agent is not None else None
        tools = self._desk.tools(inside, patterns, asked.found, one.budget.turns)
        question = Question(
            one.head.model,
            agent.system_prompt if agent is not None else PROMPT,
            (Told(asked.task),),
            (),
            0,
        )
        scope, limit = asyncio.timeout(None), seconds(self._section.time)
        try:
            async with gate:
                one.state = "running"
                async with scope:
                    scope.reschedule(asyncio.get_running_loop().time() + limit)
                    await self._noted(one, transcript, tools, question.turns[0])
                    text = await work(
                        _Masked(self.line(one.head.provider), self._masked),
                        tools,
                        question,
                        one.budget,
                        one.progress,
                        lambda turn: self._noted(one, transcript, tools, turn),
                    )
            return End("completed", self._clean(text))
        except (TimeoutError, EdgedError) as error:
            if scope.expired():
                reason = f"no report within {limit:g} s: raise tools.subagent.time"
                return self._gave_up(one, reason)
            return self._gave_up(one, str(error))
        finally:
            tools.close()

    def _gave_up(self, one: Running, reason: str) -> End:
        return End("failed", self._clean(one.progress.text), mask(reason, self._masked))

    def _clean(self, text: str) -> str:
        """A report without secrets, of a length that can be kept."""
        return cut(mask(text, self._masked), REPORT_MAX)

    def _budget(self, asked: Task, parent: Running | None, provider: str) -> Budget:
        """What a task may use; a child is lent half of what its parent has left.

        Raises:
            DeniedError: that is less than one answer may have.
        """
        section = self._section
        tokens = section.tokens
        if parent is not None:
            tokens = parent.left // 2
            if tokens < (asked.max_tokens or section.answer_tokens):
                raise DeniedError(
                    "your tokens are used up, or lent to subagents that still run: wait for "
                    "those, or report what you have"
                )
        return Budget(
            section.turns,
            tokens,
            asked.max_tokens or section.answer_tokens,
            asked.temperature,
            size(section.result),
            section.providers[provider].context,
        )

    async def _noted(
        self, one: Running, transcript: Transcript, tools: Opened, turn: Turn
    ) -> None:
        if one.watch is not None and isinstance(turn, Said) and turn.calls:
            wanted = ", ".join(call.name[:NAME_MAX] for call in turn.calls)
            one.watch(
                f"{one.head.label}: turn {one.progress.turns} of {one.budget.turns}: {wanted}"
            )
        row = msgspec.to_builtins(turn)
        row.pop("items", None)
        for call in row.get("calls", ()):
            call["arguments"] = tools.shown(call["name"], call["arguments"])
        line = {"time": iso(self._clock.now()), **mask(row, self._masked)}
        # To its end, so that the last line is the last one also where this is cancelled.
        await _whole(transcript.add, line)

    async def _write_end(self, one: Running, transcript: Transcript, end: End) -> None:
        """Make the end last; a cancelled task's too, for this line tells of it later."""
        try:
            await _done(transcript.close, end)
        except StoreError as error:
            log.warning(f"the transcript of subagent {one.head.task_id}: {error}")

    def _forget_running(self, one: Running, end: End) -> None:
        head = one.head
        del self._running[head.task_id], self._by_session[one.session]
        if one.parent is not None:
            one.parent.take_back(one)
        for heir in self._running.values():
            if heir.parent is one:
                heir.parent = one.parent
                if one.parent is not None:
                    one.parent.progress.lent += heir.budget.tokens
        if self._ended is not None:
            self._ended[head.task_id] = head, end
        self._tell_end(head, end)
        one.over.set()

    def _tell_end(self, head: Head, end: End) -> None:
        # All of the user's callers see it: words are for who may ask for the task's status.
        facts = {
            "task_id": head.task_id,
            "agent": head.agent,
            "status": end.status,
            "turns": end.turns,
            "calls": end.calls,
            "tokens": end.tokens,
        }
        self._publish("subagent.end", head.user, facts)

    def tell(self, caller: Caller, one: Running) -> None:
        """Send the report to the caller's channel, once there is one."""
        if caller.channel:
            _ = self._spawn(self._deliver(caller, one))

    async def _deliver(self, caller: Caller, one: Running) -> None:
        await one.over.wait()
        if not self._closing:
            # Else nothing is sent any more.
            await self._send(caller, one.head, one.end or INTERRUPTED)

    async def _send(self, caller: Caller, head: Head, end: End) -> None:
        text = end.text if end.status == "completed" else f"{end.status}: {end.reason}"
        try:
            await self._desk.deliver(caller, f"{head.label}\n\n{text}")
        except EdgedError as error:
            log.warning(f"the report of subagent {head.task_id} was not sent: {error}")

    async def resume(self) -> None:
        """Tell of the tasks that an earlier life left unfinished, once."""
        await self._remember()
        left = [(head, end) for head, end in (self._ended or {}).values() if not end.is_told]
        for head, end in left:
            ended = end.ended_at or iso(self._clock.now())
            told = msgspec.structs.replace(end, ended_at=ended, is_told=True)
            try:
                await _whole(finish, self._directory, head.task_id, told)
            except StoreError as error:
                # Else it would be told again in each life.
                log.warning(f"subagent {head.task_id} was interrupted: {error}")
                continue
            if self._ended is not None:
                self._ended[head.task_id] = head, told
            self._tell_end(head, told)
            if head.channel and head.in_background:
                await self._send(head.caller, head, told)

    async def wait(self, one: Running) -> View:
        """The end of a task; a waiter that is cancelled cancels the task."""
        try:
            await one.over.wait()
        except asyncio.CancelledError:
            one.cancel()
            raise
        return one.view()

    async def tasks(self, caller: Caller) -> list[View]:
        """The caller's own tasks, oldest first; everybody's for an owner.

        Who calls for a chat has that chat's alone.
        """
        await self._remember()
        ended = [
            shown(head, end) for head, end in (self._ended or {}).values() if _is_of(head, caller)
        ]
        return ended + [one.view() for one in self._running.values() if _is_of(one.head, caller)]

    async def status(self, caller: Caller, task_id: str) -> View:
        """One of them.

        Raises:
            NotFoundError: none of that id for the caller.
        """
        for view in await self.tasks(caller):
            if view.task_id == task_id:
                return view
        raise NotFoundError(
            f"no subagent {task_id[:40]!r}: edged agents tasks, or spawn_status, lists them"
        )

    async def stop(self, caller: Caller, task_id: str) -> View:
        """Cancel one, and wait for its end.

        Raises:
            NotFoundError: as `status`.
        """
        one = self._running.get(task_id)
        if one is None or not _is_of(one.head, caller):
            return await self.status(caller, task_id)
        one.cancel()
        await one.over.wait()
        return one.view()

    async def _remember(self) -> None:
        """Know the tasks of earlier lives, and forget the oldest."""
        if self._ended is None:
            found = await asyncio.to_thread(remembered, self._directory)
            if self._ended is None:
                self._ended = {
                    h.task_id: (h, e) for h, e in found if h.task_id not in self._running
                }
        while len(self._ended) > self._section.kept:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            await asyncio.to_thread(forget, self._directory, oldest)


class _Open:
    """A gate that lets everyone through."""

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *_error: object) -> None:
        return


def _doubted(agent: Agent, names: frozenset[str]) -> Agent:
    return msgspec.structs.replace(agent, warnings=doubts(agent, names))


def _is_of(head: Head, caller: Caller) -> bool:
    if caller.is_owner and not caller.channel:
        return True
    here = (caller.user, caller.who, caller.channel, caller.chat_id)
    return here == (head.user, head.who, head.channel, head.chat_id)


def cut(text: str, longest: int) -> str:
    """A text of at most so many characters, and a word on what is left out."""
    left = len(text) - longest
    return text if left <= 0 else f"{text[:longest]}\n[{left} more characters are left out]"


async def _whole(act: Callable[..., _T], *args: Any) -> _T:
    """Do it in a thread, to its end; who is cancelled meanwhile is cancelled then."""
    found, is_cancelled = await _done(act, *args)
    if is_cancelled:
        raise asyncio.CancelledError
    return found


async def _done(act: Callable[..., _T], *args: Any) -> tuple[_T, bool]:
    """Likewise; and whether this task was cancelled, which is left to the caller."""
    doing = asyncio.ensure_future(asyncio.to_thread(act, *args))
    is_cancelled = False
    while not doing.done():
        try:
            await asyncio.shield(doing)
        except asyncio.CancelledError:
            is_cancelled = True
    return doing.result(), is_cancelled


def _decoded(data: bytes, kind: type[_T]) -> _T:
    """An agent's fields.

    Raises:
        InvalidArgumentsError: they do not fit.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidArgumentsError([faulted(error, kind)], "agent") from None


def _require_owner(caller: Caller) -> None:
    if not caller.is_owner:
        raise DeniedError(f"only an owner may change agents; {caller.peer or caller.user} is none")
