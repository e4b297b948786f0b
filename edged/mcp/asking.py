"""What a running call tells and asks the client that made it: progress, log messages, questions.

In the revisions with `initialize` a question is a request to the client, and the call waits
for the answer. In the stateless one the request ends with the questions, the client sends it
again with the answers, and the tool is run again from its beginning (multi round-trip
requests). A call that became a task waits again. Nothing is sent after the call's end.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from edged import jsonrpc
from edged.errors import BusyError, DeniedError, Fault, InvalidArgumentsError
from edged.mcp.seal import STATE_S, State, digest, seal, unseal
from edged.mcp.types import (
    CAPABILITIES,
    LEVELS,
    NO_META,
    TASKS,
    InputRequired,
    Meta,
    MissingCapabilityError,
    known,
)
from edged.results import Block, joined
from edged.tool import Ask

if TYPE_CHECKING:
    from edged.mcp.server import Connection
    from edged.mcp.tasks import Task

MESSAGE_MAX = 2_000
"""Characters of one message of progress."""

PROGRESS_S = 0.05
"""Between two messages of progress in the long run; of those between only the last is sent."""

BURST = 16
"""Messages of progress at once, before they are thinned out."""

ANSWERS_MAX = 64 << 10
"""Bytes of all answers to one request's questions."""

TOKEN_MAX = 256
"""Bytes of a progress token as JSON: every message of progress repeats it."""

_numbers = itertools.count(1)
_encode = msgspec.json.Encoder().encode


class Asker:
    """The client's side of one request: an `edged.tool.Client`. Loop thread only."""

    # Most calls tell and ask nothing: what they do not need is not set for each of them.
    token = b""
    """What its progress is named by; empty where nobody wants any."""
    takes_tasks = False
    """Whether the client goes on with a task in place of a result."""
    task: Task | None = None
    """What the call became, if it goes on after its answer."""
    _count = 0.0
    _last = 0.0
    _credit = float(BURST)
    _held: dict[str, Any] | None = None
    _timer: asyncio.TimerHandle | None = None
    _later: asyncio.TimerHandle | None = None
    _is_over = False
    _log_level = ""
    _capabilities: Mapping[str, Any] = MappingProxyType({})
    _state: State | None = None
    _answers: Mapping[str, Any] = MappingProxyType({})
    _found: Mapping[str, tuple[str, Any]] = MappingProxyType({})
    """Answers of this round and those before, with the digests of their questions."""

    def __init__(
        self,
        connection: Connection,
        raw_id: bytes,
        meta: Meta,
        subject: tuple[str, str, bytes],
        *,
        modern: bool,
    ) -> None:
        """Nothing said and nothing asked.

        Args:
            connection: whose request it is.
            raw_id: of the request.
            meta: of the request.
            subject: its method, what it names, and its arguments as JSON.
            modern: whether it is a stateless one.

        Raises:
            InvalidArgumentsError: the progress token is too long.
        """
        self._connection = connection
        self._about = raw_id
        self._modern = modern
        self._subject = subject
        if meta is not NO_META:
            # Not `_meta` itself: what a client puts there would stay as long as its call.
            self._log_level = meta.log_level or ""
            self.takes_tasks = modern and meta.takes_tasks
            if modern:
                self._capabilities = known(meta.capabilities)
            token = bytes(meta.progress_token)
            if len(token) > TOKEN_MAX:
                fault = Fault("_meta.progressToken", f"must be at most {TOKEN_MAX} bytes")
                raise InvalidArgumentsError([fault])
            if token and token[0] in b'"-0123456789':
                self.token = token

    def flush(self) -> None:
        """The answer comes next: what was held back goes before it."""
        if self._held is not None and not self._is_over:
            self._send_progress()

    def end(self) -> None:
        """The request is answered or cancelled: nothing more goes out for it."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._later is not None:
            self._later.cancel()

    # Telling ------------------------------------------------------------------------------

    def log(self, level: str, data: Any, logger: str = "") -> None:
        """See `edged.tool.Client`."""
        connection = self._connection
        lowest = self._log_level if self._modern else connection.version and connection.level
        if self._is_over or not lowest or connection.is_behind(self._about):
            return
        if LEVELS.index(level) < LEVELS.index(lowest):
            return
        params = {"level": level, "data": data} | ({"logger": logger} if logger else {})
        connection.send(jsonrpc.notification("notifications/message", params), self._about)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """See `edged.tool.Client`."""
        facts: dict[str, Any] = {"progress": done}
        if total is not None:
            facts["total"] = total
        if message:
            facts["message"] = message[:MESSAGE_MAX]
        self._advance(done, facts)

    def update(self, content: list[Block]) -> None:
        """One update of a call as progress, which is to increase: they are counted."""
        if self.task is not None:
            self.task.say(joined(content))
            return
        count = int(self._count) + 1
        facts: dict[str, Any] = {
            "progress": count,
            "message": joined(content)[:MESSAGE_MAX],
            "_meta": {"edged/update": {"content": content}},
        }
        self._advance(count, facts)

    def _advance(self, done: float, facts: dict[str, Any]) -> None:
        if self._is_over or not self.token or (self._count and done <= self._count):
            return
        self._count = done
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._credit = min(float(BURST), self._credit + (now - self._last) / PROGRESS_S)
        self._last = now
        self._held = facts
        if self._credit >= 1:
            self._send_progress()
        elif self._timer is None:
            wait_s = (1 - self._credit) * PROGRESS_S
            self._timer = loop.call_later(wait_s, self._send_later)

    def _send_later(self) -> None:
        self._timer = None
        # It may have been cancelled meanwhile.
        if self._connection.is_open(self._about):
            self._send_progress()

    def _send_progress(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._credit -= 1
        facts, self._held = self._held, None
        if facts is None or self._connection.is_behind(self._about):
            return
        params = {"progressToken": msgspec.Raw(self.token), **facts}
        line = jsonrpc.notification("notifications/progress", params)
        self._connection.send(line, self._about)

    def defer(self, *, required: bool = False) -> None:
        """See `edged.tool.Client`."""
        if self.task is None and self.takes_tasks:
            self._defer(required=required)
        elif self.task is None and required and self._modern:
            raise MissingCapabilityError({"extensions": {TASKS: {}}})

    def defer_after(self, delay_s: float) -> None:
        """Have it become a task when it takes so long."""
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(delay_s, self._defer)

    def _defer(self, *, required: bool = False) -> None:
        try:
            self._connection.defer(self._about, self)
        except BusyError:
            # There are too many tasks: where it may, it stays a call, answered by its result.
            if required:
                raise

    # Asking -------------------------------------------------------------------------------

    def can(self, method: str) -> bool:
        """See `edged.tool.Client`."""
        return self._offers(Ask(method, {}))

    def _offers(self, ask: Ask) -> bool:
        capabilities = self._capabilities if self._modern else self._connection.capabilities
        found = capabilities.get(CAPABILITIES[ask.method])
        if not isinstance(found, dict):
            return False
        if ask.method != "elicitation/create" or not found:
            # An empty elicitation stands for forms.
            return ask.params.get("mode") != "url"
        return ask.params.get("mode", "form") in found

    def answered(self, responses: bytes, state: bytes) -> None:
        """Take what the client sends along with the request it repeats.

        Raises:
            InvalidArgumentsError: it is none of an earlier round.
        """
        try:
            given = msgspec.json.decode(responses or b"{}", type=dict[str, Any] | None)
            text = msgspec.json.decode(state or b"null", type=str | None)
        except msgspec.ValidationError as error:
            fault = Fault("inputResponses or requestState", str(error))
            raise InvalidArgumentsError([fault]) from None
        if len(responses) > ANSWERS_MAX:
            fault = Fault("inputResponses", f"must be at most {ANSWERS_MAX >> 10} KiB")
            raise InvalidArgumentsError([fault])
        self._answers = given or {}
        if text is not None:
            control = self._connection.control
            now = control.services.clock.monotonic()
            caller = self._connection.identity
            self._state = unseal(
                control.seal_key, text, control.open_states, caller, self._digest(), now
            )

    def _digest(self) -> str:
        method, name, arguments = self._subject
        return digest(method, name, msgspec.json.decode(arguments) if arguments else {})

    async def ask(self, asks: Mapping[str, Ask], *, strict: bool = False) -> dict[str, Any]:
        """See `edged.tool.Client`."""
        lacking = [ask for ask in asks.values() if not self._offers(ask)]
        if lacking and self._modern and self.task is None:
            names = dict.fromkeys(CAPABILITIES[ask.method] for ask in lacking)
            raise MissingCapabilityError({name: {} for name in names})
        if lacking:
            raise DeniedError(f"the client takes no {lacking[0].method}")
        if self.task is not None:
            return await self.task.ask(asks)
        if self._modern:
            return self._again(asks, strict=strict)
        return await self._requested(asks)

    def _again(self, asks: Mapping[str, Ask], *, strict: bool) -> dict[str, Any]:
        """The answers that came along, or the end of this round."""
        questions = {key: digest(*ask) for key, ask in asks.items()}
        known, found = self._state, dict(self._found)
        for key, ask in asks.items():
            if known is not None and known.answered.get(key) == questions[key]:
                found[key] = questions[key], known.answers[key]
            elif key in self._answers and fits(ask, self._answers[key]):
                asked = known is not None and known.asked.get(key) == questions[key]
                if asked or not strict:
                    found[key] = questions[key], self._answers[key]
        self._found = found
        missing = [key for key in asks if found.get(key, ("",))[0] != questions[key]]
        if not missing:
            return {key: found[key][1] for key in asks}
        requests = {
            key: {"method": asks[key].method, "params": asks[key].params} for key in missing
        }
        state = self._sealed({key: questions[key] for key in missing})
        raise InputRequired(
            {"resultType": "input_required", "inputRequests": requests, "requestState": state}
        )

    def _sealed(self, open_: dict[str, str]) -> str:
        control, caller = self._connection.control, self._connection.identity
        answers = {key: answer for key, (_, answer) in self._found.items()}
        if len(_encode(answers)) > ANSWERS_MAX:
            fault = Fault("inputResponses", f"all together are over {ANSWERS_MAX >> 10} KiB")
            raise InvalidArgumentsError([fault])
        state = State(
            caller.user,
            caller.role,
            caller.peer,
            control.services.clock.monotonic() + STATE_S,
            self._digest(),
            open_,
            answers,
            {key: question for key, (question, _) in self._found.items()},
        )
        return seal(control.seal_key, state, control.open_states)

    async def _requested(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Ask by requests of our own, and wait for all answers."""
        loop = asyncio.get_running_loop()
        waits: dict[str, asyncio.Future[Any]] = {}
        withdraws = []
        for key, ask in asks.items():
            future = waits[key] = loop.create_future()
            raw_id = b'"edged-%d"' % next(_numbers)
            withdraws.append(
                self._connection.request(
                    raw_id, ask.method, ask.params, _settle(future, ask), self._about
                )
            )
        try:
            return dict(zip(waits, await asyncio.gather(*waits.values()), strict=True))
        finally:
            for withdraw in withdraws:
                withdraw()


def _settle(future: asyncio.Future[Any], ask: Ask) -> Any:
    def answered(result: msgspec.Raw, error: msgspec.Raw) -> None:
        if future.done():
            return
        raw = bytes(result)
        value = msgspec.json.decode(raw) if raw else None
        if raw and fits(ask, value):
            future.set_result(value)
        else:
            said = bytes(error).decode("utf-8", "replace")[:300] or "an answer of another shape"
            future.set_exception(DeniedError(f"{ask.method}: the client gave {said}"))

    return answered


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def fits(ask: Ask, answer: Any) -> bool:
    """Whether an answer has the shape that its question asks for."""
    if not isinstance(answer, dict):
        return False
    if ask.method == "roots/list":
        return isinstance(answer.get("roots"), list)
    if ask.method == "sampling/createMessage":
        return isinstance(answer.get("content"), dict | list)
    if answer.get("action") in ("decline", "cancel"):
        return True
    content = answer.get("content", {})
    if answer.get("action") != "accept" or not isinstance(content, dict):
        return False
    schema = ask.params.get("requestedSchema", {})
    properties = schema.get("properties", {})
    for name, value in content.items():
        if name in properties and not _is_of(properties[name], value):
            return False
    return all(name in content for name in schema.get("required", ()))


def _is_of(schema: dict[str, Any], value: Any) -> bool:
    kinds = _TYPES.get(schema.get("type", ""))
    if kinds is not None and not isinstance(value, kinds):
        return False
    if isinstance(value, bool) and kinds is not None and bool not in kinds:
        return False
    return "enum" not in schema or value in schema["enum"]
