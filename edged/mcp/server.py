"""The server's side of one connection: JSON-RPC lines in, lines out, sans I/O.

Speaks MCP's `initialize`-based revisions and the stateless one at once, and bare
requests (contract, section 5). Knows no sockets: a transport hands it lines and a way to
send. Here are the tools; what else there is lies in modules of its own, imported when
first asked for (`_LATER`). Nothing is sent for a cancelled id.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from edged import __version__, jsonrpc, log
from edged.audit import Record
from edged.control import Control
from edged.dispatch import Call
from edged.errors import (
    WIRE,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    RemoteProtocolError,
)
from edged.events import Event
from edged.icons import icons
from edged.identity import Caller
from edged.mcp.types import (
    BESIDE_MAX,
    INSTANCE,
    LEGACY,
    LEVELS,
    META,
    MISSING_CAPABILITY,
    MODERN,
    NO_META,
    TASKS,
    UNSUPPORTED_VERSION,
    InputRequired,
    Meta,
    MissingCapabilityError,
    MissingMetaError,
    Request,
    RpcError,
    Send,
    UnsupportedVersionError,
    known,
)
from edged.registry import Session
from edged.results import Block, Result, Text, complete, failure, joined
from edged.wording import worded

if TYPE_CHECKING:
    from edged.mcp.asking import Asker

SERVER = {"name": "edged", "title": "edged", "version": __version__}
CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
LEGACY_CAPABILITIES = {**CAPABILITIES, "logging": {}}
MODERN_CAPABILITIES = {**LEGACY_CAPABILITIES, "extensions": {TASKS: {}}}
INSTRUCTIONS = (
    "Tools of this board. tool_describe gives a tool's full documentation; "
    "the tool_search tools find what is not listed; "
    "results name long outputs by media:// URLs."
)
LIST_TTL_MS = 1_000
"""How long a client may go by a list; a change is told at once to who listens."""

TASK_S = 5.0
"""After so long a call becomes a task, where its client takes such."""

CACHED = frozenset(
    {"prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""Answers that say how long they hold, beside the tools' list and `server/discover`."""


class _Any(msgspec.Struct, gc=False):
    """The part of params that every request shares."""

    meta: Meta = msgspec.field(name="_meta", default=NO_META)


class CallParams(msgspec.Struct, gc=False):
    """The params of a tools/call."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    meta: Meta = msgspec.field(name="_meta", default=NO_META)
    input_responses: msgspec.Raw = msgspec.field(name="inputResponses", default=msgspec.Raw())
    request_state: msgspec.Raw = msgspec.field(name="requestState", default=msgspec.Raw())


class _CallLine(msgspec.Struct, gc=False):
    """A whole tools/call, for the one decode of the hot path."""

    params: CallParams
    id: msgspec.Raw
    jsonrpc: str = ""
    method: str = ""

    @property
    def usual_id(self) -> bytes:
        """Its id, where that is the usual one: a number from 0; else nothing."""
        raw_id = bytes(self.id)
        usual = (
            raw_id.isdigit()
            and len(raw_id) <= jsonrpc.ID_MAX
            and self.jsonrpc == "2.0"
            and self.method == "tools/call"
        )
        return raw_id if usual else b""


class _BareParams(CallParams, gc=False, forbid_unknown_fields=True):
    pass


class _BareLine(_CallLine, gc=False, forbid_unknown_fields=True):
    params: _BareParams


class _UsualMeta(msgspec.Struct, gc=False):
    call_id: str = msgspec.field(name="edged/call_id")
    duration_ms: float = msgspec.field(name="edged/duration_ms")


class _UsualResult(msgspec.Struct, gc=False):
    """A result of text alone, as MCP has it."""

    content: list[Block]
    is_error: bool = msgspec.field(name="isError")
    meta: _UsualMeta = msgspec.field(name="_meta")


class _ListParams(msgspec.Struct, gc=False):
    cursor: str | None = None
    meta: Meta = msgspec.field(name="_meta", default=NO_META)


class _Initialize(msgspec.Struct, gc=False):
    protocol_version: str = msgspec.field(name="protocolVersion", default=LEGACY[0])
    capabilities: dict[str, Any] = {}


class _Reply(msgspec.Struct, gc=False):
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Level(msgspec.Struct, gc=False):
    level: str


class _Cancelled(msgspec.Struct, gc=False):
    request_id: msgspec.Raw = msgspec.field(name="requestId", default=msgspec.Raw())


@cache
def _asker() -> type[Asker]:
    """Imported for the first client that can be told or asked something."""
    from edged.mcp.asking import Asker  # noqa: PLC0415

    return Asker


_any = msgspec.json.Decoder(_Any).decode
_call_line = msgspec.json.Decoder(_CallLine).decode
_bare_line = msgspec.json.Decoder(_BareLine).decode
_call_params = msgspec.json.Decoder(CallParams).decode
_encode = msgspec.json.Encoder().encode
_CALL = b'"tools/call"'


class Connection:
    """One peer. Loop thread only."""

    def __init__(
        self,
        control: Control,
        caller: Caller,
        send: Send,
        *,
        congested: Callable[[bytes], bool] = lambda _about: False,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """A connection.

        Args:
            control: the daemon.
            caller: who is at the other end.
            send: takes whole lines, and what each of them is about.
            congested: whether the peer does not read what belongs to a request, by its id,
                or to none; then updates and events are dropped.
            on_answered: called when a pending request was answered or cancelled.
        """
        self.control = control
        # A bare request and one of the stateless revision belong to the identity.
        self.identity = caller
        self.caller = caller
        self.send = send
        self._congested = congested
        self._on_answered = on_answered
        self.version = ""
        """The revision of the session that `initialize` began; empty without one."""
        self.capabilities: dict[str, Any] = {}
        """What that session's client can do."""
        self.level = "info"
        """Log messages below it are not sent to that session."""
        self._session: Session | None = None
        self._calls: dict[bytes, Call] = {}
        self._waiting: dict[bytes, object] = {}
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._asked: dict[bytes, Callable[[msgspec.Raw, msgspec.Raw], None]] = {}
        self._stops: dict[str, Callable[[], Any]] = {}
        self._lost_events = 0
        self._told = True
        self.listens: dict[bytes, Callable[[str], None]] = {}
        """What tells each open `subscriptions/listen` that a list changed."""

    @property
    def user_told(self) -> str | None:
        """Whose list of tools this peer wants to hear changes of; None of nobody's."""
        return self.identity.user if self.version or self.listens else None

    @property
    def congested(self) -> bool:
        """Whether the peer does not read: then what may be lost is not sent."""
        return self._congested(b"")

    def is_behind(self, raw_id: bytes) -> bool:
        """Likewise what belongs to one request."""
        return self._congested(raw_id)

    @property
    def pending(self) -> int:
        """Requests not answered yet."""
        return len(self._calls) + len(self._waiting)

    def receive(self, line: bytes | None) -> None:
        """Handle one line; None is one that was too long."""
        if line is None:
            limit = jsonrpc.MAX_LINE >> 20
            self.fail(b"", jsonrpc.INVALID_REQUEST, f"a line is over {limit} MiB")
            return
        if jsonrpc.crowded(line):
            self.fail(b"", jsonrpc.INVALID_REQUEST, f"a line: {jsonrpc.CROWDED}")
            return
        if _CALL in line and self._called(line):
            return
        try:
            message = jsonrpc.parse(line)
        except RemoteProtocolError as error:
            text, code, raw_id = error.args
            if raw_id or code != jsonrpc.INVALID_PARAMS:
                # A notification is never answered, a malformed one neither.
                self.fail(raw_id, code, text)
            return
        if message.method:
            self.handle(message)
        elif message.id in self._asked:
            self._replied(message.id, line)

    def handle(self, message: jsonrpc.Message) -> None:
        """Handle one request or notification."""
        if message.method == "tools/call" and message.id:
            self._attempt_call(message.id, message.params)
        else:
            self._handle(message)

    def _called(self, line: bytes) -> bool:
        """Take a plain tools/call by one decode; false leaves whatever else to `parse`."""
        try:
            request = _call_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        raw_id = request.usual_id
        if raw_id:
            self.call(raw_id, request.params, len(line))
        return bool(raw_id)

    def close(self) -> None:
        """The connection is gone: cancel its calls, and let go of who made it."""
        self.send = _unheard
        self._congested = lambda _about: False
        self._on_answered = lambda: None
        if self._session is not None:
            self._session.changed = None
            self.control.session_ended(self.caller)
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        self._waiting.clear()
        self.listens.clear()
        self._asked.clear()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        for call in tuple(self._calls.values()):
            call.cancel()
        self._calls.clear()

    def end(self) -> None:
        """The daemon stops: what goes on until either side ends it comes to its end."""
        for raw_id in tuple(self.listens):
            self._unlisten(raw_id)
            meta = {META + "subscriptionId": msgspec.Raw(raw_id)}
            line = jsonrpc.result(raw_id, {"resultType": "complete", "_meta": meta})
            self.send(line, raw_id, 0)

    def tools_changed(self) -> None:
        """Tell the peer that its list may differ; at most one notice until it lists again."""
        if self.version and self._told:
            self._told = False
            self.send(jsonrpc.notification("notifications/tools/list_changed", {}))

    def changed(self, kind: str) -> None:
        """Tell the peer that the list of `tools`, `prompts` or `resources` may differ."""
        if kind == "tools":
            self.tools_changed()
        elif self.version and not self.congested:
            self.send(jsonrpc.notification(f"notifications/{kind}/list_changed", {}))
        for tell in tuple(self.listens.values()):
            tell(kind)

    # Requests -----------------------------------------------------------------------------

    def _handle(self, message: jsonrpc.Message) -> None:
        method, raw_id = message.method, message.id
        if not raw_id:
            self._notified(method, message.params)
        elif self.is_open(raw_id):
            self._refuse(raw_id, _InUseError(raw_id))
        elif len(message.params) > BESIDE_MAX and not self.identity.is_owner:
            self.fail(raw_id, jsonrpc.INVALID_PARAMS, _beside("the params of a request"))
        else:
            self._attempt(raw_id, lambda: self._request(method, raw_id, message.params))

    def _request(self, method: str, raw_id: bytes, params: bytes) -> None:
        meta = _any(params).meta if b'"_meta"' in params else NO_META
        modern = is_modern(meta)
        handler = _METHODS.get(method)
        if handler is None:
            subject = method.partition("/")[0]
            if subject in _LATER:
                handler = importlib.import_module(_LATER[subject]).METHODS.get(method)
        wrong = _LEGACY_ONLY if modern else _MODERN_ONLY
        if handler is None or method in wrong:
            self.fail(raw_id, jsonrpc.METHOD_NOT_FOUND, f"no method {method[:100]!r}")
            return
        modern = modern or method == "server/discover"
        handler(self, Request(raw_id, method, params, modern, meta))

    def is_open(self, raw_id: bytes) -> bool:
        """Whether a request is not answered yet."""
        return raw_id in self._calls or raw_id in self._waiting or raw_id in self.listens

    def _attempt(self, raw_id: bytes, act: Callable[[], None]) -> None:
        """Do what answers a request; what goes wrong costs that request alone."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  a fault of edged ends no connection
            self._refuse(raw_id, error)

    def _refuse(self, raw_id: bytes, error: Exception) -> None:
        if isinstance(error, InputRequired):
            value = {**error.value, "_meta": {META + "serverInfo": SERVER}}
            self.send(jsonrpc.result(raw_id, value), raw_id, 0)
        else:
            self.fail(raw_id, *error_of(error))

    def fail(self, raw_id: bytes, code: int, text: str, data: Any = None) -> None:
        """Answer a request with an error."""
        self.send(jsonrpc.error(raw_id, code, text, data), raw_id, code)

    def answer(self, request: Request, value: dict[str, Any], *, listing: bool = False) -> None:
        """Answer a request in the shape of its revision; `listing`: it may be cached."""
        if request.modern:
            value = {"resultType": "complete", **value}
            if listing:
                value |= {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}
            value["_meta"] = {**value.get("_meta", {}), META + "serverInfo": SERVER}
        self.send(jsonrpc.result(request.id, value), request.id, 0)

    def _notified(self, method: str, params: bytes) -> None:
        if method == "notifications/cancelled":
            self._cancelled(params)
        elif method == "edged/turn":
            self._scope().turn()

    def _cancelled(self, params: bytes) -> None:
        try:
            raw_id = bytes(msgspec.json.decode(params, type=_Cancelled).request_id)
        except msgspec.DecodeError:
            # A notification cannot be answered; a malformed one changes nothing.
            return
        if not self.is_open(raw_id):
            return
        self._unlisten(raw_id)
        self._waiting.pop(raw_id, None)
        task = self._tasks.pop(raw_id, None)
        if task is not None:
            task.cancel()
        call = self._calls.pop(raw_id, None)
        if call is not None:
            call.cancel()
        self._on_answered()

    def listen(self, raw_id: bytes, tell: Callable[[str], None], stop: Callable[[], Any]) -> None:
        """Keep a `subscriptions/listen` open; `stop` lets go of what it hears of."""
        self.listens[raw_id] = tell
        self._stops[f"listen {raw_id!r}"] = stop

    def _unlisten(self, raw_id: bytes) -> None:
        if self.listens.pop(raw_id, None) is not None:
            self.unwatch(f"listen {raw_id!r}")

    def request(
        self,
        raw_id: bytes,
        method: str,
        params: dict[str, Any],
        answered: Callable[[msgspec.Raw, msgspec.Raw], None],
        about: bytes,
    ) -> Callable[[], None]:
        """Ask the client; the revisions before the stateless one alone know that.

        Args:
            raw_id: of the question.
            method: what to ask.
            params: likewise.
            answered: called with the result or the error, whichever is not empty.
            about: id of the client's request that it is for.

        Returns:
            How to take the question back.
        """
        self._asked[raw_id] = answered
        body = {"jsonrpc": "2.0", "id": msgspec.Raw(raw_id), "method": method, "params": params}
        self.send(_encode(body) + b"\n", about)

        def withdraw() -> None:
            if self._asked.pop(raw_id, None) is not None:
                params = {"requestId": msgspec.Raw(raw_id)}
                self.send(jsonrpc.notification("notifications/cancelled", params), about)

        return withdraw

    def _replied(self, raw_id: bytes, line: bytes) -> None:
        reply = msgspec.json.decode(line, type=_Reply)
        self._asked.pop(raw_id)(reply.result, reply.error)

    def scope(self, request: Request) -> Session:
        """The session that a request belongs to (contract, section 4)."""
        return self._scope(modern=request.modern)

    def _scope(self, *, modern: bool = False) -> Session:
        if self._session is None or modern:
            return self.control.session(self.identity)
        return self._session

    # MCP ----------------------------------------------------------------------------------

    def _initialize(self, request: Request) -> None:
        params = msgspec.json.decode(request.params or b"{}", type=_Initialize)
        asked = params.protocol_version
        if self._session is None:
            # Unguessable: other parts keep what belongs to a session under its name.
            name = os.urandom(8).hex()
            self._session = Session(name, self.control.services.clock, by_clock=False)
            self._session.changed = self.tools_changed
            self.caller = msgspec.structs.replace(self.identity, session=name)
        self.version = asked if asked in LEGACY else LEGACY[0]
        self.capabilities = known(params.capabilities)
        self.answer(
            request,
            {
                "protocolVersion": self.version,
                "capabilities": LEGACY_CAPABILITIES,
                "serverInfo": {**SERVER, "icons": icons("hardware")},
                "instructions": INSTRUCTIONS,
                **self._identified(),
            },
        )

    def _discover(self, request: Request) -> None:
        self.answer(
            request,
            {
                "supportedVersions": [MODERN, *LEGACY],
                "capabilities": MODERN_CAPABILITIES,
                "instructions": INSTRUCTIONS,
                **self._identified(),
            },
            listing=True,
        )

    def _identified(self) -> dict[str, Any]:
        """Which daemon this is: one that reaches itself must find out."""
        instance = self.control.services.instance
        return {"_meta": {INSTANCE: instance}} if instance else {}

    def _set_level(self, request: Request) -> None:
        level = msgspec.json.decode(request.params or b"{}", type=_Level).level
        if level not in LEVELS:
            reason = f"must be one of {', '.join(LEVELS)}"
            raise InvalidArgumentsError([Fault("level", reason)])
        self.level = level
        self.answer(request, {})

    def _ping(self, request: Request) -> None:
        self.answer(request, {})

    def _tools_list(self, request: Request) -> None:
        params = msgspec.json.decode(request.params or b"{}", type=_ListParams)
        index = page_of(params.cursor)
        self.when_fresh(request.id, lambda: self._send_page(request, index))

    def _send_page(self, request: Request, index: int) -> None:
        self._told = True
        # The stateless revision's list never varies by what a session did.
        promoted = frozenset[str]()
        if self._session is not None and not request.modern:
            promoted = self._session.promoted()
        pages = self.control.registry.pages(self.caller.user, "mcp", promoted)
        if index >= len(pages):
            self.fail(request.id, jsonrpc.INVALID_PARAMS, "cursor: there is no such page")
            return
        value: dict[str, Any] = {"tools": msgspec.Raw(pages[index])}
        if index + 1 < len(pages):
            value["nextCursor"] = f"p{index + 1}"
        self.answer(request, value, listing=True)

    def _attempt_call(self, raw_id: bytes, raw: bytes) -> None:
        try:
            params = _call_params(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(raw_id, _InUseError(raw_id) if self.is_open(raw_id) else error)
        else:
            self.call(raw_id, params, len(raw))

    def call(self, raw_id: bytes, params: CallParams, size: int = 0) -> None:
        """Begin a tools/call, of which `size` bytes came with its arguments."""
        # The hot path: as `_handle` and `_attempt`, without their closures.
        try:
            if self.is_open(raw_id):
                raise _InUseError(raw_id)
            if size > BESIDE_MAX and not self.identity.is_owner:
                _check_beside(params, size)
            modern = is_modern(params.meta)
            if self.control.registry.has(self.caller.user, params.name):
                self._start(raw_id, params, modern)
            else:
                # Perhaps the tool is new: look again before it is unknown.
                self.when_fresh(raw_id, lambda: self._start(raw_id, params, modern))
        except Exception as error:  # noqa: BLE001  a fault of edged ends no connection
            self._refuse(raw_id, error)

    def _start(self, raw_id: bytes, params: CallParams, modern: bool) -> None:
        meta = params.meta
        caller = self.identity if modern else self.caller
        if meta.channel or meta.chat_id:
            named = caller.channel, caller.chat_id
            if any(named) and named != (meta.channel, meta.chat_id):
                # Headers are of the program between the chat and the agent, `_meta` may be the
                # agent's: it does not speak past them.
                raise DeniedError("_meta names another channel or chat than the headers do")
            caller = msgspec.structs.replace(caller, channel=meta.channel, chat_id=meta.chat_id)
        client, on_update, arguments = None, None, bytes(params.arguments)
        if meta is not NO_META or self.version:
            client = self._client(raw_id, params, arguments, modern)
            if client.token or client.takes_tasks:
                on_update = client.update
        try:
            call = self.control.dispatcher.start(
                caller,
                self._scope(modern=modern),
                params.name,
                arguments,
                timeout_s=meta.timeout_s,
                on_update=on_update,
                client=client,
                on_done=lambda done: self._finish(raw_id, done, client, modern),
            )
        except InvalidArgumentsError as error:
            self._send_result(raw_id, complete(failure(str(error))), modern)
            return
        if call.done:
            return
        self._calls[raw_id] = call
        if client is not None and client.takes_tasks:
            client.defer_after(TASK_S)
        call.when_done(lambda done: self._ended(raw_id, done, client, modern))

    def _client(self, raw_id: bytes, params: CallParams, arguments: bytes, modern: bool) -> Asker:
        """What a call may tell and ask beside its result."""
        subject = "tools/call", params.name, arguments
        client = _asker()(self, raw_id, params.meta, subject, modern=modern)
        if modern and (params.input_responses or params.request_state):
            client.answered(bytes(params.input_responses), bytes(params.request_state))
        return client

    def _ended(self, raw_id: bytes, call: Call, client: Asker | None, modern: bool) -> None:
        if self._calls.get(raw_id) is not call:
            # Cancelled, or a task by now.
            if client is not None:
                client.end()
                if client.task is not None:
                    client.task.ended()
        else:
            del self._calls[raw_id]
            self._finish(raw_id, call, client, modern)
            self._on_answered()

    def _finish(self, raw_id: bytes, call: Call, client: Asker | None, modern: bool) -> None:
        if client is not None:
            client.flush()
            client.end()
        if call.interrupted is not None:
            self._refuse(raw_id, call.interrupted)
        elif call.result is not None:
            self._send_result(raw_id, call.result, modern)
        else:
            # Cancelled by the daemon (it stops), not by the peer.
            self.fail(raw_id, jsonrpc.INTERNAL_ERROR, "the call was cancelled")

    def defer(self, raw_id: bytes, client: Asker) -> None:
        """Answer a call with a task; it goes on without this connection.

        Raises:
            BusyError: there are too many.
        """
        from edged.mcp.tasks import begin  # noqa: PLC0415  only for who takes tasks

        call = self._calls.get(raw_id)
        if call is not None:
            client.task = begin(self, raw_id, call)
            del self._calls[raw_id]
            self._on_answered()

    def _send_result(self, raw_id: bytes, result: Result, modern: bool) -> None:
        line = b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (raw_id, mcp_result(result, modern))
        self.send(line, raw_id, 0)

    def when_fresh(self, raw_id: bytes, then: Callable[[], None]) -> None:
        """Act once the caller's tools are known to be up to date."""
        waits = self.control.catalogue.fresh(self.caller.user)
        if waits is None:
            then()
            return
        finish = self._wait(raw_id)
        waits.add_done_callback(lambda _: finish(then))

    def _wait(self, raw_id: bytes) -> Callable[[Callable[[], None]], None]:
        """Leave a request open; returns how to answer it, which does nothing once cancelled."""
        mark = self._waiting[raw_id] = object()

        def finish(act: Callable[[], None]) -> None:
            if self._waiting.get(raw_id) is mark:
                del self._waiting[raw_id]
                self._attempt(raw_id, act)
                self._on_answered()

        return finish

    def work(self, request: Request, work: Awaitable[Any], *, stop: bool = False) -> None:
        """Answer a request with what some work gives, once it does.

        Args:
            request: the one.
            work: gives the result's value.
            stop: whether the work ends with the request, when that is cancelled.
        """
        raw_id = request.id
        finish = self._wait(raw_id)

        async def wait() -> None:
            try:
                found = await work
            except Exception as error:  # noqa: BLE001  told to who asked
                failed = error

                def act() -> None:
                    raise failed
            else:

                def act() -> None:
                    self.answer(request, found, listing=request.method in CACHED)

            self._tasks.pop(raw_id, None)
            finish(act)

        task = self.control.spawn(wait())
        if stop and not task.done():
            self._tasks[raw_id] = task

    def watch(self, name: str, begin: Callable[[], Callable[[], None]]) -> None:
        """Let this peer hear of something until it is gone; `begin` returns how to stop it."""
        if name not in self._stops:
            self._stops[name] = begin()

    @property
    def watched(self) -> Iterable[str]:
        """What it hears of."""
        return self._stops.keys()

    def unwatch(self, name: str) -> None:
        """Let it hear no more of that."""
        stop = self._stops.pop(name, None)
        if stop is not None:
            stop()

    def lose(self, count: int) -> None:
        """So many events were left out; the peer is told before the next one."""
        self._lost_events += count

    def offer(self, method: str, item: Event | Record | msgspec.Raw) -> None:
        """Send what may be lost: a peer that does not read gets a gap instead."""
        if self.congested:
            self._lost_events += 1
            return
        if self._lost_events:
            self.send(jsonrpc.notification("edged/gap", {"lost": self._lost_events}))
            self._lost_events = 0
        self.send(jsonrpc.notification(method, item))


def bare_call(line: bytes) -> tuple[bytes, CallParams] | None:
    """The id and params of a tools/call with the usual id and nothing else; by one decode."""
    try:
        request = _bare_line(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    raw_id = request.usual_id
    return (raw_id, request.params) if raw_id else None


def _unheard(line: bytes, about: bytes = b"", ends: int | None = None, /) -> None:
    """What a closed connection still says goes nowhere."""


def error_of(error: Exception) -> tuple[int, str, Any]:
    """What JSON-RPC says of an error: its code, text and data."""
    if isinstance(error, RpcError):
        return error.code, str(error), error.data
    if isinstance(error, UnsupportedVersionError):
        known = {"supported": [MODERN, *LEGACY], "requested": error.version}
        return UNSUPPORTED_VERSION, str(error), known
    if isinstance(error, MissingCapabilityError):
        return MISSING_CAPABILITY, str(error), {"requiredCapabilities": error.required}
    if isinstance(error, EdgedError):
        data = {"code": error.code, "retryable": error.retryable}
        return WIRE[error.code].jsonrpc, str(error), data
    if isinstance(error, msgspec.DecodeError):
        reason, _, path = str(error).partition(" - at `$")
        where = f"params{path.rstrip('`')}"
        return jsonrpc.INVALID_PARAMS, f"{where}: {worded(reason)}", None
    log.error(f"request failed: {type(error).__name__}: {error}")
    return jsonrpc.INTERNAL_ERROR, "internal error: see edged's log", None


class _InUseError(RemoteProtocolError):
    def __init__(self, raw_id: bytes) -> None:
        super().__init__(f"id {raw_id[:100].decode('utf-8', 'replace')} is in use")


_METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "initialize": Connection._initialize,  # noqa: SLF001  the table is the class's own
    "ping": Connection._ping,  # noqa: SLF001
    "logging/setLevel": Connection._set_level,  # noqa: SLF001
    "server/discover": Connection._discover,  # noqa: SLF001
    "tools/list": Connection._tools_list,  # noqa: SLF001
}
_LATER = {
    "edged": "edged.mcp.methods",
    "resources": "edged.mcp.resources",
    "prompts": "edged.mcp.prompts",
    "completion": "edged.mcp.completion",
    "subscriptions": "edged.mcp.subscriptions",
    "tasks": "edged.mcp.tasks",
}
"""Where the methods of each subject are: modules with a table `METHODS`."""

_LEGACY_ONLY = frozenset(
    {
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    }
)
_MODERN_ONLY = frozenset({"subscriptions/listen", "tasks/get", "tasks/update", "tasks/cancel"})


def _check_beside(params: CallParams, size: int) -> None:
    """Refuse what is large and not counted: a call may wait, and a task outlives its client.

    Raises:
        InvalidArgumentsError: there is too much of it.
    """
    # Answers and the state that comes with them have bounds of their own (`asking`, `seal`).
    counted = params.arguments, params.input_responses, params.request_state
    if size - sum(memoryview(one).nbytes for one in counted) > BESIDE_MAX:
        raise InvalidArgumentsError([Fault("", _beside("what comes with the arguments"))])


def _beside(what: str) -> str:
    return f"{what} must be at most {BESIDE_MAX >> 10} KiB"


def is_modern(meta: Meta) -> bool:
    """Whether it is `_meta` of the stateless revision; bare requests are older.

    Raises:
        UnsupportedVersionError: a revision that is not spoken.
        MissingMetaError: what the revision demands is not there.
    """
    if meta.version is None or meta.version in LEGACY:
        return False
    if meta.version != MODERN:
        raise UnsupportedVersionError(meta.version)
    if meta.capabilities is None:
        raise MissingMetaError([Fault(f"_meta.{META}clientCapabilities", "is required")])
    return True


def page_of(cursor: str | None) -> int:
    """The page that a cursor names.

    Raises:
        InvalidArgumentsError: it is none that was given out.
    """
    if not cursor:
        return 0
    number = cursor[1:]
    if cursor[0] != "p" or not number.isascii() or not number.isdigit() or len(number) > 6:
        raise InvalidArgumentsError([Fault("cursor", "is not one that this server gave")])
    return int(number)


_RARE = (
    ("edged/for_user", "for_user"),
    ("edged/silent", "silent"),
    ("edged/media", "media"),
    ("edged/async", "async_"),
    ("edged/response_handled", "response_handled"),
    ("edged/truncated", "truncated"),
)
"""Keys of a result's `_meta` that are there only where they say something."""


def _is_usual(result: Result, only: Block) -> bool:
    """Whether text is all that a result has to say."""
    return (
        type(only) is Text
        and len(result.content) == 1
        and result.for_llm == only.text
        and result.structured is None
        and result.for_user is None
        and result.truncated is None
        and result.sandbox is msgspec.UNSET
        and not (result.silent or result.media or result.async_ or result.response_handled)
    )


def mcp_result(result: Result, modern: bool) -> bytes:
    """A result as MCP has it: the rest under `_meta` with the prefix `edged/`.

    `edged/for_llm` is left out where it is the text of `content`.
    """
    content = result.content
    only = content[0]
    if not modern and _is_usual(result, only):
        usual = _UsualMeta(result.call_id, result.duration_ms)
        return _encode(_UsualResult(content, result.is_error, usual))
    meta: dict[str, Any] = {
        "edged/call_id": result.call_id,
        "edged/duration_ms": result.duration_ms,
    }
    text = only.text if len(content) == 1 and type(only) is Text else joined(content)
    if result.for_llm != text:
        meta["edged/for_llm"] = result.for_llm
    for key, field in _RARE:
        if value := getattr(result, field):
            meta[key] = value
    if result.sandbox is not msgspec.UNSET:
        meta["edged/sandbox"] = result.sandbox
    body: dict[str, Any] = {"content": content, "isError": result.is_error}
    if result.structured is not None and not result.is_error:
        structured = result.structured
        body["structuredContent"] = (
            structured if modern or isinstance(structured, dict) else {"result": structured}
        )
    if modern:
        body["resultType"] = "complete"
        meta[META + "serverInfo"] = SERVER
    body["_meta"] = meta
    return _encode(body)
