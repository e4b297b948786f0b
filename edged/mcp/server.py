"""The server's side of one connection: JSON-RPC lines in, lines out, sans I/O.

Speaks MCP's `initialize`-based revisions and the stateless one at once, and bare
requests; edged's own methods are in `edged.mcp.methods` (contract, section 5). Knows no
sockets: a transport hands it lines and a way to send. Nothing is sent for a cancelled id.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edged import __version__, jsonrpc, log
from edged.audit import Record
from edged.control import Control
from edged.dispatch import Call
from edged.errors import (
    WIRE,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    RemoteProtocolError,
)
from edged.events import Event
from edged.identity import Caller
from edged.mcp.types import LEGACY, META, MODERN, NO_META, UNSUPPORTED_VERSION, Meta, Request
from edged.registry import Session
from edged.results import Block, Result, Text, complete, failure, joined
from edged.wording import worded

SERVER = {"name": "edged", "title": "edged", "version": __version__}
CAPABILITIES = {"tools": {"listChanged": True}}
INSTRUCTIONS = (
    "Tools of this board. tool_describe gives a tool's full documentation; "
    "the tool_search tools find what is not listed; "
    "results name long outputs by media:// URLs."
)
LIST_TTL_MS = 1_000


class _Any(msgspec.Struct, gc=False):
    """The part of params that every request shares."""

    meta: Meta = msgspec.field(name="_meta", default=NO_META)


class _CallParams(msgspec.Struct, gc=False):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    meta: Meta = msgspec.field(name="_meta", default=NO_META)


class _CallLine(msgspec.Struct, gc=False):
    """A whole tools/call, for the one decode of the hot path."""

    params: _CallParams
    id: msgspec.Raw
    jsonrpc: str = ""
    method: str = ""


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


class _Cancelled(msgspec.Struct, gc=False):
    request_id: msgspec.Raw = msgspec.field(name="requestId", default=msgspec.Raw())


_any = msgspec.json.Decoder(_Any).decode
_call_line = msgspec.json.Decoder(_CallLine).decode
_call_params = msgspec.json.Decoder(_CallParams).decode
_encode = msgspec.json.Encoder().encode
_CALL = b'"tools/call"'


class Connection:
    """One peer. Loop thread only."""

    def __init__(
        self,
        control: Control,
        caller: Caller,
        send: Callable[[bytes], None],
        *,
        congested: Callable[[], bool] = lambda: False,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """A connection.

        Args:
            control: the daemon.
            caller: who is at the other end.
            send: takes whole lines.
            congested: whether the peer does not read; then updates and events are dropped.
            on_answered: called when a pending request was answered or cancelled.
        """
        self.control = control
        # A bare request and one of the stateless revision belong to the identity.
        self.identity = caller
        self.caller = caller
        self._send = send
        self._congested = congested
        self._on_answered = on_answered
        self._session: Session | None = None
        self._initialized = False
        self._calls: dict[bytes, Call] = {}
        self._waiting: dict[bytes, object] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self._lost_events = 0
        self._told = True

    @property
    def user_told(self) -> str | None:
        """Whose list of tools this peer wants to hear changes of; None of nobody's."""
        return self.identity.user if self._initialized else None

    @property
    def pending(self) -> int:
        """Requests not answered yet."""
        return len(self._calls) + len(self._waiting)

    def receive(self, line: bytes | None) -> None:
        """Handle one line; None is one that was too long."""
        if line is None:
            limit = jsonrpc.MAX_LINE >> 20
            self._send(jsonrpc.error(b"", jsonrpc.INVALID_REQUEST, f"a line is over {limit} MiB"))
            return
        if jsonrpc.crowded(line):
            self._send(jsonrpc.error(b"", jsonrpc.INVALID_REQUEST, f"a line: {jsonrpc.CROWDED}"))
            return
        if _CALL in line and self._called(line):
            return
        try:
            message = jsonrpc.parse(line)
        except RemoteProtocolError as error:
            text, code, raw_id = error.args
            if raw_id or code != jsonrpc.INVALID_PARAMS:
                # A notification is never answered, a malformed one neither.
                self._send(jsonrpc.error(raw_id, code, text))
            return
        if message.method == "tools/call" and message.id:
            self._attempt_call(message.id, message.params)
        elif message.method:
            self._handle(message)

    def _called(self, line: bytes) -> bool:
        """Take a plain tools/call by one decode; false leaves whatever else to `parse`."""
        try:
            request = _call_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        raw_id = bytes(request.id)
        plain = raw_id.isdigit() and request.jsonrpc == "2.0" and request.method == "tools/call"
        if plain:
            self._tools_call(raw_id, request.params)
        return plain

    def close(self) -> None:
        """The connection is gone: cancel its calls."""
        if self._session is not None:
            self._session.changed = None
            self.control.session_ended(self.caller)
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        self._waiting.clear()
        for call in tuple(self._calls.values()):
            call.cancel()
        self._calls.clear()

    def tools_changed(self) -> None:
        """Tell the peer that its list may differ; at most one notice until it lists again."""
        if self._initialized and self._told:
            self._told = False
            self._send(jsonrpc.notification("notifications/tools/list_changed", {}))

    # Requests -----------------------------------------------------------------------------

    def _handle(self, message: jsonrpc.Message) -> None:
        method, raw_id = message.method, message.id
        if not raw_id:
            self._notified(method, message.params)
        elif self._is_open(raw_id):
            self._refuse(raw_id, _InUseError(raw_id))
        else:
            self._attempt(raw_id, lambda: self._request(method, raw_id, message.params))

    def _request(self, method: str, raw_id: bytes, params: bytes) -> None:
        modern = _is_modern(_any(params).meta) if b'"_meta"' in params else False
        handler = _METHODS.get(method)
        if handler is None and method.startswith("edged/"):
            from edged.mcp.methods import METHODS  # noqa: PLC0415  agents speak MCP alone

            handler = METHODS.get(method)
        if handler is None or (modern and method in _LEGACY_ONLY):
            self._fail(raw_id, jsonrpc.METHOD_NOT_FOUND, f"no method {method[:100]!r}")
            return
        handler(self, Request(raw_id, params, modern or method == "server/discover"))

    def _is_open(self, raw_id: bytes) -> bool:
        return raw_id in self._calls or raw_id in self._waiting

    def _attempt(self, raw_id: bytes, act: Callable[[], None]) -> None:
        """Do what answers a request; what goes wrong costs that request alone."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  a fault of edged ends no connection
            self._refuse(raw_id, error)

    def _refuse(self, raw_id: bytes, error: Exception) -> None:
        if isinstance(error, _UnsupportedVersionError):
            versions = [MODERN, *LEGACY]
            data: dict[str, Any] = {"supported": versions, "requested": error.version}
            self._fail(raw_id, UNSUPPORTED_VERSION, str(error), data)
        elif isinstance(error, EdgedError):
            data = {"code": error.code, "retryable": error.retryable}
            self._fail(raw_id, WIRE[error.code].jsonrpc, str(error), data)
        elif isinstance(error, msgspec.DecodeError):
            reason, _, path = str(error).partition(" - at `$")
            where = f"params{path.rstrip('`')}"
            self._fail(raw_id, jsonrpc.INVALID_PARAMS, f"{where}: {worded(reason)}")
        else:
            log.error(f"request failed: {type(error).__name__}: {error}")
            self._fail(raw_id, jsonrpc.INTERNAL_ERROR, "internal error: see edged's log")

    def _fail(self, raw_id: bytes, code: int, text: str, data: Any = None) -> None:
        self._send(jsonrpc.error(raw_id, code, text, data))

    def answer(self, request: Request, value: dict[str, Any], *, listing: bool = False) -> None:
        """Answer a request in the shape of its revision; `listing`: it may be cached."""
        if request.modern:
            value = {"resultType": "complete", **value}
            if listing:
                value |= {"ttlMs": LIST_TTL_MS, "cacheScope": "private"}
            value["_meta"] = {META + "serverInfo": SERVER}
        self._send(jsonrpc.result(request.id, value))

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
        if not self._is_open(raw_id):
            return
        self._waiting.pop(raw_id, None)
        call = self._calls.pop(raw_id, None)
        if call is not None:
            call.cancel()
        self._on_answered()

    def scope(self, request: Request) -> Session:
        """The session that a request belongs to (contract, section 4)."""
        return self._scope(modern=request.modern)

    def _scope(self, *, modern: bool = False) -> Session:
        if self._session is None or modern:
            return self.control.session(self.identity)
        return self._session

    # MCP ----------------------------------------------------------------------------------

    def _initialize(self, request: Request) -> None:
        asked = msgspec.json.decode(request.params or b"{}", type=_Initialize).protocol_version
        if self._session is None:
            # Unguessable: other parts keep what belongs to a session under its name.
            name = os.urandom(8).hex()
            self._session = Session(name, self.control.services.clock, by_clock=False)
            self._session.changed = self.tools_changed
            self.caller = msgspec.structs.replace(self.identity, session=name)
        version = asked if asked in LEGACY else LEGACY[0]
        self._initialized = True
        self.answer(
            request,
            {
                "protocolVersion": version,
                "capabilities": CAPABILITIES,
                "serverInfo": SERVER,
                "instructions": INSTRUCTIONS,
            },
        )

    def _discover(self, request: Request) -> None:
        self.answer(
            request,
            {
                "supportedVersions": [MODERN, *LEGACY],
                "capabilities": CAPABILITIES,
                "serverInfo": SERVER,
                "instructions": INSTRUCTIONS,
            },
            listing=True,
        )

    def _ping(self, request: Request) -> None:
        self.answer(request, {})

    def _tools_list(self, request: Request) -> None:
        params = msgspec.json.decode(request.params or b"{}", type=_ListParams)
        index = _page(params.cursor)
        self.when_fresh(request.id, lambda: self._send_page(request, index))

    def _send_page(self, request: Request, index: int) -> None:
        self._told = True
        # The stateless revision's list never varies by what a session did.
        promoted = frozenset[str]()
        if self._session is not None and not request.modern:
            promoted = self._session.promoted()
        pages = self.control.registry.pages(self.caller.user, "mcp", promoted)
        if index >= len(pages):
            self._fail(request.id, jsonrpc.INVALID_PARAMS, "cursor: there is no such page")
            return
        value: dict[str, Any] = {"tools": msgspec.Raw(pages[index])}
        if index + 1 < len(pages):
            value["nextCursor"] = f"p{index + 1}"
        self.answer(request, value, listing=True)

    def _attempt_call(self, raw_id: bytes, raw: bytes) -> None:
        try:
            params = _call_params(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(raw_id, _InUseError(raw_id) if self._is_open(raw_id) else error)
        else:
            self._tools_call(raw_id, params)

    def _tools_call(self, raw_id: bytes, params: _CallParams) -> None:
        # The hot path: as `_handle` and `_attempt`, without their closures.
        try:
            if self._is_open(raw_id):
                raise _InUseError(raw_id)
            modern = _is_modern(params.meta)
            if self.control.registry.has(self.caller.user, params.name):
                self._start(raw_id, params, modern)
            else:
                # Perhaps the tool is new: look again before it is unknown.
                self.when_fresh(raw_id, lambda: self._start(raw_id, params, modern))
        except Exception as error:  # noqa: BLE001  a fault of edged ends no connection
            self._refuse(raw_id, error)

    def _start(self, raw_id: bytes, params: _CallParams, modern: bool) -> None:
        meta = params.meta
        caller = self.identity if modern else self.caller
        if meta.channel or meta.chat_id:
            caller = msgspec.structs.replace(caller, channel=meta.channel, chat_id=meta.chat_id)
        token = bytes(meta.progress_token) if meta is not NO_META else b""
        on_update = None
        if token and token[0] in b'"-0123456789':
            on_update = _Progress(self, token).send
        try:
            call = self.control.dispatcher.start(
                caller,
                self._scope(modern=modern),
                params.name,
                bytes(params.arguments),
                timeout_s=meta.timeout_s,
                on_update=on_update,
            )
        except InvalidArgumentsError as error:
            self._send_result(raw_id, complete(failure(str(error))), modern)
            return
        if call.result is not None:
            self._send_result(raw_id, call.result, modern)
            return
        self._calls[raw_id] = call
        call.when_done(lambda done: self._ended(raw_id, done, modern))

    def _ended(self, raw_id: bytes, call: Call, modern: bool) -> None:
        if self._calls.get(raw_id) is call:
            del self._calls[raw_id]
            if call.result is not None:
                self._send_result(raw_id, call.result, modern)
            else:
                # Cancelled by the daemon (it stops), not by the peer.
                self._fail(raw_id, jsonrpc.INTERNAL_ERROR, "the call was cancelled")
            self._on_answered()

    def _send_result(self, raw_id: bytes, result: Result, modern: bool) -> None:
        self._send(
            b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (raw_id, mcp_result(result, modern))
        )

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

    def work(self, request: Request, work: Awaitable[Any]) -> None:
        """Answer a request with what some work gives, once it does."""
        finish = self._wait(request.id)

        async def wait() -> None:
            try:
                found = await work
            except Exception as error:  # noqa: BLE001  told to who asked
                failed = error

                def act() -> None:
                    raise failed
            else:

                def act() -> None:
                    self.answer(request, found)

            finish(act)

        self.control.spawn(wait())

    def watch(self, name: str, begin: Callable[[], Callable[[], None]]) -> None:
        """Let this peer hear of something until it is gone; `begin` returns how to stop it."""
        if name not in self._stops:
            self._stops[name] = begin()

    def lose(self, count: int) -> None:
        """So many events were left out; the peer is told before the next one."""
        self._lost_events += count

    def offer(self, method: str, item: Event | Record | msgspec.Raw) -> None:
        """Send what may be lost: a peer that does not read gets a gap instead."""
        if self._congested():
            self._lost_events += 1
            return
        if self._lost_events:
            self._send(jsonrpc.notification("edged/gap", {"lost": self._lost_events}))
            self._lost_events = 0
        self._send(jsonrpc.notification(method, item))

    def progress(self, token: bytes, count: int, content: list[Block]) -> None:
        """Send one update as MCP progress; dropped when the peer does not read."""
        if self._congested():
            return
        params = {
            "progressToken": msgspec.Raw(token),
            "progress": count,
            "message": joined(content)[:2_000],
            "_meta": {"edged/update": {"content": content}},
        }
        self._send(jsonrpc.notification("notifications/progress", params))


class _Progress:
    """Counts the updates of one call: MCP's progress must increase."""

    __slots__ = ("_connection", "_count", "_token")

    def __init__(self, connection: Connection, token: bytes) -> None:
        self._connection = connection
        self._token = token
        self._count = 0

    def send(self, content: list[Block]) -> None:
        self._count += 1
        self._connection.progress(self._token, self._count, content)


class _InUseError(RemoteProtocolError):
    def __init__(self, raw_id: bytes) -> None:
        super().__init__(f"id {raw_id[:100].decode('utf-8', 'replace')} is in use")


class _UnsupportedVersionError(RemoteProtocolError):
    def __init__(self, version: str) -> None:
        self.version = version
        super().__init__(f"protocol version {version[:40]!r} is not supported")


_METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "initialize": Connection._initialize,  # noqa: SLF001  the table is the class's own
    "ping": Connection._ping,  # noqa: SLF001
    "server/discover": Connection._discover,  # noqa: SLF001
    "tools/list": Connection._tools_list,  # noqa: SLF001
}
_LEGACY_ONLY = frozenset({"initialize", "ping"})


def _is_modern(meta: Meta) -> bool:
    """Whether it is `_meta` of the stateless revision; bare requests are older.

    Raises:
        RemoteProtocolError: a revision that is not spoken.
        InvalidArgumentsError: what the revision demands is not there.
    """
    if meta.version is None or meta.version in LEGACY:
        return False
    if meta.version != MODERN:
        raise _UnsupportedVersionError(meta.version)
    if meta.capabilities is None:
        raise InvalidArgumentsError([Fault(f"_meta.{META}clientCapabilities", "is required")])
    return True


def _page(cursor: str | None) -> int:
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
