"""The one call path: decode, authorise, validate, run, normalise, redact, audit.

Each door hands `start` a caller, a name and raw arguments; nothing else runs a
tool. A plain function finishes before `start` returns; everything else becomes
one task, and its deadline is set here. Loop thread only.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from edged import arguments, log, results
from edged.audit import ARGUMENTS_MAX, Record, bounded
from edged.clock import iso
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    StoppingError,
    ToolUnavailableError,
    UnknownToolError,
)
from edged.held import Room, Share, return_freed
from edged.identity import Caller
from edged.registry import NAME_MAX, Registry, Session
from edged.results import Block, Late, Result, Text
from edged.services import Services
from edged.tool import Client, Context, Interrupted, Tool

if TYPE_CHECKING:
    from concurrent.futures import Executor

MAX_DEPTH = 4
"""How deep tools may call tools."""

IN_FLIGHT_MAX = 512
"""Calls that one uid, token or user may have in flight, over all its connections; owners
may have any number, and so always get to switch off."""

DETAIL_MAX = 200
"""Characters of a failure's text in the trail."""

STORE_S = 5.0
"""What there always is to store a long result in, also where a tool used all its time."""

WRITERS = 2
"""Threads that cut and store long results."""

HELD_MAX = 32 << 20
"""Bytes of output and results of running tools that are held at once; beyond, less is kept."""

STORING_MAX = 16
"""Long results that wait for the disk in memory; of further ones only a part is kept."""

GIVEN_MAX = 32 << 20
"""Bytes of arguments of all agents' calls in flight; of further calls only short ones may."""

GIVEN_FREE = 8 << 10
"""Bytes of each call's that are not counted."""

Update = Callable[[list[Block]], None]
_encode = msgspec.json.Encoder().encode

StartTask = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Call:
    """One accepted call: its result, or the task that makes it."""

    __slots__ = (
        "_on_done",
        "caller",
        "cancelled",
        "client",
        "given",
        "id",
        "interrupted",
        "masked",
        "name",
        "on_update",
        "outcome",
        "raw",
        "result",
        "session",
        "share",
        "started",
        "task",
        "tool",
    )

    def __init__(self, call_id: str, caller: Caller, session: Session | None, name: str) -> None:
        self.id = call_id
        self.caller = caller
        self.session = session
        self.name = name
        self.raw = b""
        self.tool: Tool | None = None
        self.started = 0.0
        self.outcome: tuple[Result, str] | None = None
        self.result: Result | None = None
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.on_update: Update | None = None
        self.masked: tuple[str, ...] = ()
        self.client: Client | None = None
        self.interrupted: Interrupted | None = None
        self.share: Share | None = None
        self.given: Share | None = None
        self._on_done: Callable[[Call], None] | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended: with `result`, or `cancelled`."""
        return self.result is not None or self.cancelled

    def when_done(self, callback: Callable[[Call], None] | None) -> None:
        """Call back once at the end; at once when it has ended."""
        if callback is not None and self.done:
            callback(self)
        else:
            self._on_done = callback

    def cancel(self) -> None:
        """End it: its process tree dies, no update comes any more."""
        self.on_update = None
        if self.task is not None and not self.done:
            self.task.cancel()

    async def wait(self) -> Result:
        """The result.

        Raises:
            asyncio.CancelledError: the call, or the waiter, was cancelled; a
                cancelled waiter cancels the call.
        """
        if not self.done and self.task is not None:
            try:
                await asyncio.wait([self.task])
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self.result is None:
            raise asyncio.CancelledError
        return self.result

    def finish(self) -> None:
        """Tell who waits; the dispatcher's."""
        callback, self._on_done = self._on_done, None
        if callback is not None:
            callback(self)


class Dispatcher:
    """Runs tools for callers."""

    def __init__(
        self,
        registry: Registry,
        services: Services,
        start_task: StartTask,
        secrets: tuple[str, ...] = (),
        channels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """A dispatcher.

        Args:
            registry: which tools there are.
            services: what tools are handed.
            start_task: the daemon's task group.
            secrets: values that are masked in everything that comes out.
            channels: tools that only callers of some channels may call: a channel, or
                CHANNEL:CHAT. One that names no channel is not held to it.
        """
        self.registry = registry
        self.services = services
        self._start_task = start_task
        self._secrets = tuple(secret for secret in secrets if secret)
        self._channels = channels
        self._prefix = os.urandom(4).hex()
        self._count = 0
        self._running: set[Call] = set()
        self._in_flight: dict[str, int] = {}
        """Running calls of each who has any."""
        self._room = Room(HELD_MAX)
        self._given = Room(GIVEN_MAX)
        self._writers: Executor | None = None
        self._storing = 0
        self._draining = False
        self._grace: asyncio.Timeout | None = None

    @property
    def running(self) -> int:
        """Calls in flight."""
        return len(self._running)

    def start(
        self,
        caller: Caller,
        session: Session | None,
        name: str,
        raw: bytes,
        *,
        timeout_s: float | None = None,
        on_update: Update | None = None,
        masked: tuple[str, ...] = (),
        client: Client | None = None,
        is_named: bool = False,
        on_done: Callable[[Call], None] | None = None,
    ) -> Call:
        """Accept one call.

        Args:
            caller: who calls.
            session: scope of promotions; None has none.
            name: the tool's.
            raw: JSON of the arguments; empty for none.
            timeout_s: above 0, and never longer than the tool's own.
            on_update: gets each update until the end.
            masked: what else is masked: secrets of the call that makes this one.
            client: what else than a result the calling program takes.
            is_named: somebody wrote the name down (`calls:`, a job): a hidden tool need not
                be found first.
            on_done: see `Call.when_done`; of a plain function before this returns.

        Raises:
            UnknownToolError, DeniedError, ToolUnavailableError, BusyError,
            InvalidArgumentsError: it was refused, and audited as such.
        """
        self._count += 1
        call = Call(f"{self._prefix}-{self._count}", caller, session, name)
        call.raw = raw
        call.started = self.services.clock.monotonic()
        call.masked = masked or self._secrets
        call.client = client
        try:
            params = self._accept(call, timeout_s, is_named)
        except EdgedError as error:
            if call.given is not None:
                call.given.release()
            self._audit(call, error.code, _reason(error))
            raise
        tool = call.tool
        assert tool is not None  # noqa: S101  _accept sets it
        call.on_update = on_update
        call.when_done(on_done)
        if tool.sensitive:
            call.masked = (*call.masked, *arguments.secret_values(tool, params))
        limit = tool.timeout_s if timeout_s is None else min(timeout_s, tool.timeout_s)
        if session is not None:
            session.call_started()
        self._run(call, tool, params, limit)
        return call

    def _accept(self, call: Call, timeout_s: float | None, is_named: bool) -> msgspec.Struct:
        caller, name = call.caller, call.name
        if self._draining and not caller.depth:
            raise StoppingError
        if self._in_flight and not caller.is_owner:
            self._check_flights(caller.who)
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidArgumentsError([Fault("timeout", "must be above 0 seconds")])
        call.tool = tool = self._find(caller, call.session, name, is_named)
        self._require_enabled(tool)
        if len(call.raw) > GIVEN_FREE and not caller.is_owner:
            self._hold(call)
        return arguments.decode(tool, call.raw)

    def _hold(self, call: Call) -> None:
        """Count long arguments until the end of the call, which may wait for its turn."""
        call.given = Share(self._given)
        if call.given.take(len(call.raw)) < len(call.raw):
            raise BusyError(
                "the arguments of other calls take too much memory: try again later, or pass the "
                "path of a file"
            )

    def check(self, caller: Caller, name: str, raw: bytes) -> msgspec.Struct:
        """Refuse what `start` would refuse for the caller's rights or for the arguments.

        Nothing is run, and nothing audited: it is asked before something is set up that
        will call by that name.

        Returns:
            The arguments, decoded.

        Raises:
            UnknownToolError, DeniedError, ToolUnavailableError, InvalidArgumentsError: as
                `start`.
        """
        tool = self._find(caller, None, name, True)
        self._require_enabled(tool)
        return arguments.decode(tool, raw)

    def _find(self, caller: Caller, session: Session | None, name: str, is_named: bool) -> Tool:
        if caller.allowed is not None and name not in caller.allowed:
            raise DeniedError(
                f"this tool may not call {name[:NAME_MAX]!r}: add it to `calls:` in its TOOL.md"
            )
        if caller.channel and name in self._channels:
            self._require_channel(caller, name)
        if caller.depth > MAX_DEPTH:
            deep = f"tools called tools {MAX_DEPTH} deep"
            raise DeniedError(f"{deep}: {name[:NAME_MAX]!r} is not called")
        find = self.registry.find
        try:
            tool = find(caller.user, name, session, is_named=is_named)
            if tool.renew is not None and tool.renew(caller.user):
                tool = find(caller.user, name, session, is_named=is_named)
        except UnknownToolError:
            # To an agent it is as if there were none; who owns the board sees it in listings.
            if caller.is_owner and name in self.registry.view(caller.user).hidden:
                raise UnknownToolError(name, is_hidden=True) from None
            raise
        return tool

    def _require_channel(self, caller: Caller, name: str) -> None:
        allowed, here = self._channels[name], caller.channel
        if here in allowed or f"{here}:{caller.chat_id}" in allowed:
            return
        chat = f", chat {caller.chat_id[:NAME_MAX]!r}" if caller.chat_id else ""
        raise DeniedError(
            f"{name} may not be called from channel {here[:NAME_MAX]!r}{chat}: the owner can add "
            f"it to tools.{name}.channels in edged.yaml"
        )

    def _require_enabled(self, tool: Tool) -> None:
        status, reason = self.registry.status(tool)
        if status != "enabled":
            remedy = f"the owner can switch it on: edged tools --enable {tool.name}"
            if status == "blocked":
                remedy = self.registry.problem(tool)
            raise ToolUnavailableError(tool.name, status, reason, remedy)

    def _check_flights(self, who: str) -> None:
        if self._in_flight.get(who, 0) >= IN_FLIGHT_MAX:
            raise BusyError(f"{IN_FLIGHT_MAX} calls of {who} are in flight: wait for one to end")

    def _run(self, call: Call, tool: Tool, params: msgspec.Struct, limit: float) -> None:
        share = call.share = Share(self._room)
        context = Context(
            call.caller,
            call.session,
            call.id,
            limit,
            lambda content: self._update(call, content),
            self.services,
            lambda name, raw: self._inner(call, name, raw),
            lambda names, turns: self._promote(call, names, turns),
            call.masked,
            is_watched=call.on_update is not None,
            client=call.client,
            share=share,
        )
        try:
            outcome = tool.run(params, context)
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            self._end(call, *_failed(call, tool, error), is_told=False)
            return
        if type(outcome) is Result and (not tool.cut or results.is_small(outcome)):
            self._end(call, outcome, "error" if outcome.is_error else "ok", is_told=False)
            return
        self._tell_start(call)
        self._running.add(call)
        who = call.caller.who
        self._in_flight[who] = self._in_flight.get(who, 0) + 1
        call.task = self._start_task(self._await(call, tool, outcome, limit))
        call.task.add_done_callback(lambda _: self._ended(call, outcome))

    async def _await(
        self, call: Call, tool: Tool, outcome: Result | Awaitable[Result | Late], limit: float
    ) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        scope = asyncio.timeout(None if tool.own_deadline else limit)
        try:
            async with scope:
                result = outcome if isinstance(outcome, Result) else await outcome
                if isinstance(result, Late) or (tool.cut and not results.is_small(result)):
                    if not scope.expired():
                        scope.reschedule(max(begun + limit, clock() + STORE_S))
                    result = await self._store(call, tool, result)
            call.outcome = result, "error" if result.is_error else "ok"
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            if scope.expired() and isinstance(error, TimeoutError):
                call.outcome = results.failure(f"timed out after {limit:g} s"), "timeout"
            else:
                call.outcome = _failed(call, tool, error)
        # Here, for a task's callbacks come one turn of the loop later.
        try:
            self._ended(call, outcome)
        except Exception as error:  # noqa: BLE001  a door's fault, which is not the task group's
            said = {"message": f"the end of call {call.id}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)

    def _ended(self, call: Call, outcome: Result | Awaitable[Result | Late]) -> None:
        """The task is over; of one that was cancelled before it began, nothing ran at all."""
        if call.task is None:
            return
        # A cancelled task's exception holds its frame, and that the call: no cycle is left.
        call.task = None
        assert call.share is not None  # noqa: S101  from its start
        call.share.release()
        who = call.caller.who
        left = self._in_flight.pop(who) - 1
        if left:
            self._in_flight[who] = left
        if call.outcome is None:
            call.cancelled = True
            if isinstance(outcome, Coroutine):
                outcome.close()
            self._end(call, None, "cancelled")
        else:
            self._end(call, *call.outcome)

    async def _store(self, call: Call, tool: Tool, result: Result | Late) -> Result:
        """Mask, cut and store a long result off the loop; given up with the call."""
        # Here, not at the top: most daemons' results are short.
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        if self._writers is None:
            # Of its own: what else needs a thread never waits behind a tool's output.
            self._writers = ThreadPoolExecutor(WRITERS, "edged-results")
            return_freed()
        media, user = self.services.media, call.caller.user
        waits = True
        # What is still to be made is counted by its share, and takes its turn.
        behind = self._storing >= STORING_MAX and type(result) is not Late
        if behind:
            log.warning(f"{STORING_MAX} results wait for the disk: {tool.name}'s is only cut")

        def keep(data: bytes, mime: str, name: str) -> str:
            if not waits:
                raise asyncio.CancelledError
            return "" if behind else media.keep(user, data, mime, name)

        # Of a call that was cancelled nothing waits for a thread.
        given = [result]

        def work() -> Result:
            if not given:
                raise asyncio.CancelledError
            late = given.pop()
            made = late.make() if isinstance(late, Late) else late
            results.mask_result(made, call.masked)
            return results.normalise(made, keep, keep_end=tool.keep_end)

        loop = asyncio.get_running_loop()
        self._storing += 1
        try:
            return await loop.run_in_executor(None if behind else self._writers, work)
        finally:
            waits = False
            given.clear()
            self._storing -= 1

    def _tell_start(self, call: Call) -> None:
        caller = call.caller
        self.services.events.publish(
            "call.start", caller.user, {"call_id": call.id, "tool": call.name, "door": caller.door}
        )

    def _end(self, call: Call, result: Result | None, code: str, *, is_told: bool = True) -> None:
        """Hand on the result, and then keep the books: who waits for it does not for them.

        Args:
            call: the one.
            result: of it; None where it was cancelled.
            code: its outcome.
            is_told: whether its start is an event already.
        """
        self._running.discard(call)
        if call.given is not None:
            call.given.release()
        ended = self.services.clock.monotonic()
        duration = round((ended - call.started) * 1000, 3)
        if result is not None:
            if call.masked:
                results.mask_result(result, call.masked)
            result = _sendable(results.complete(result))
            result.call_id = call.id
            result.duration_ms = duration
            call.result = result
        if call.session is not None:
            call.session.call_ended()
        try:
            call.finish()
        finally:
            self._note(call, result, code, duration, is_told=is_told)

    def _note(
        self, call: Call, result: Result | None, code: str, duration: float, *, is_told: bool
    ) -> None:
        detail = ""
        if result is not None and result.is_error:
            detail = result.for_llm
        if not is_told:
            self._tell_start(call)
        self._audit(call, code, detail, duration)
        self.services.events.publish(
            "call.end",
            call.caller.user,
            {"call_id": call.id, "tool": call.name, "outcome": code, "duration_ms": duration},
        )

    def _update(self, call: Call, content: list[Block]) -> None:
        if call.done or call.on_update is None:
            return
        if call.masked:
            content = results.mask_result(Result(content), call.masked).content
            content = [
                Text(results.absent(b.text, call.masked)) if type(b) is Text else b
                for b in content
            ]
        call.on_update(_mended(content))

    async def _inner(self, outer: Call, name: str, raw: bytes) -> Result:
        """A tool runs another tool: the same path again, one deeper."""
        caller = msgspec.structs.replace(outer.caller, depth=outer.caller.depth + 1)
        shown = None
        if outer.on_update is not None:
            # A call by name is watched as if it were made without the tool around it.
            def shown(content: list[Block]) -> None:
                self._update(outer, content)

        relays = outer.tool is not None and outer.tool.relays
        call = self.start(
            caller,
            outer.session,
            name,
            raw,
            on_update=shown,
            masked=outer.masked,
            client=outer.client if relays else None,
        )
        result = await call.wait()
        if call.interrupted is not None:
            raise call.interrupted
        return result

    def _promote(self, call: Call, names: list[str], turns: int) -> None:
        if call.session is not None:
            known = self.registry.view(call.caller.user).hidden
            call.session.promote([n for n in names if n in known], turns)

    def _audit(self, call: Call, code: str, detail: str, duration: float | None = None) -> None:
        services = self.services
        # The record is made later: what it needs is taken here, so that neither the
        # result nor long arguments stay in memory until then.
        caller, tool, secrets = call.caller, call.tool, call.masked
        call_id, name = call.id, call.name[:NAME_MAX]
        now = services.clock.now()
        if duration is None:
            duration = round((services.clock.monotonic() - call.started) * 1000, 3)
        if detail:
            detail = results.absent(detail, call.masked)
            if len(detail) > DETAIL_MAX:
                detail = f"{detail[: DETAIL_MAX - 1]}…"
        raw: bytes | None = call.raw
        kept: Any = None
        if tool is None or code == InvalidArgumentsError.code:
            raw = None
        elif len(call.raw) > ARGUMENTS_MAX:
            raw, kept = None, _kept(tool, call.raw, secrets)

        def make() -> Record:
            return Record(
                iso(now),
                call_id,
                caller.user,
                caller.role,
                caller.door,
                name,
                code,
                duration,
                caller.peer,
                caller.session,
                tool.source if tool is not None else "",
                detail,
                _kept(tool, raw, secrets) if tool is not None and raw is not None else kept,
            )

        services.trail.add(make)

    def end_calls(self, peer: str) -> None:
        """End the calls that a token made, or a tool for it: `token kitchen`; not its jobs'."""
        for call in tuple(self._running):
            if call.caller.peer == peer:
                call.cancel()

    def hurry(self) -> None:
        """Leave running calls no more time; of use while `drain` waits for them."""
        if self._grace is not None:
            self._grace.reschedule(0)
            self._grace = None

    async def drain(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end within `grace_s`, then cancel the rest."""
        self._draining = True
        tasks = [c.task for c in self._running if c.task is not None]
        if tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s) as self._grace:
                    await asyncio.wait(tasks)
            self._grace = None
        for call in tuple(self._running):
            call.cancel()
        tasks = [c.task for c in self._running if c.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        if self._writers is not None:
            self._writers.shutdown(wait=False)
            self._writers = None


def _kept(tool: Tool, raw: bytes, secrets: tuple[str, ...]) -> Any:
    """The arguments as the trail has them."""
    if raw and len(raw) <= ARGUMENTS_MAX and not (tool.sensitive or secrets or b"\n" in raw):
        # Nothing to take out, and whole on its line: as they came.
        return msgspec.Raw(raw)
    value = arguments.without_sensitive(tool, raw)
    value = results.absent(value, secrets)
    return value if len(raw) <= ARGUMENTS_MAX else bounded(value)


def _reason(error: EdgedError) -> str:
    """Why a call was refused, for the trail: names that the tool does not know may be secrets."""
    if not isinstance(error, InvalidArgumentsError):
        return str(error)
    faults = [
        Fault("", "unknown input") if f.reason.startswith(arguments.UNKNOWN) else f
        for f in error.faults
    ]
    return str(InvalidArgumentsError(faults))


def _sendable(result: Result) -> Result:
    """The completed result, or a failure: doors never meet what is no JSON."""
    content = result.content
    if len(content) == 1 and type(content[0]) is Text and result.for_user is None:
        # The usual one; `complete` made sure of it.
        return result
    try:
        _encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        return results.complete(results.failure(f"the tool's result is not JSON: {error}"))
    return result


def _mended(content: list[Block]) -> list[Block]:
    """An update as it is, or where it does not encode as a result would have it."""
    try:
        _encode(content)
    except UnicodeEncodeError:
        return results.complete(Result(content)).content
    return content


def _failed(call: Call, tool: Tool, error: Exception) -> tuple[Result, str]:
    if isinstance(error, Interrupted):
        call.interrupted = error
        return results.failure(str(error)), "interrupted"
    if isinstance(error, EdgedError):
        return results.failure(str(error)), error.code
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {place[0].filename}:{place[0].lineno}" if place else ""
    text = f"{type(error).__name__}: {error}"
    log.error(f"tool {tool.name} raised {results.absent(text, call.masked)}{where}")
    return results.failure(text), "internal"
