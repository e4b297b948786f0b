"""MCP's Streamable HTTP at `/mcp`, in both eras at once.

A stateless request (2026-07-28) is a connection of its own that ends with its response; who
closes the response cancels. `initialize` begins a session, whose requests go on when a
response is cut, and whose events can be asked for again. What is answered by one message is
answered as JSON; events begin when something else comes first, or nothing for a while.
Source: MCP 2026-07-28 and 2025-11-25, transports.
"""

from __future__ import annotations

import asyncio
import binascii
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from aiohttp.web_response import StreamResponse

from edged import jsonrpc
from edged.errors import WIRE, BusyError, Fault, InvalidArgumentsError, RemoteProtocolError
from edged.identity import Caller
from edged.mcp.notices import Notices
from edged.mcp.server import CallParams, Connection, is_modern
from edged.mcp.types import (
    BESIDE_MAX,
    HEADER_MISMATCH,
    LEGACY,
    META,
    MISSING_CAPABILITY,
    MODERN,
    NO_META,
    UNSUPPORTED_VERSION,
    Meta,
    UnsupportedVersionError,
)
from edged.transports._api import Api, Refusal, Request, Sender
from edged.transports._limits import OWNERS_PLACES, Places
from edged.transports._openapi import (
    EVENTS,
    PROBLEM,
    TEXT,
    Answer,
    Parameter,
    Problem,
    Route,
)
from edged.transports._streams import Stream

VERSION, SESSION, LAST_EVENT = "MCP-Protocol-Version", "Mcp-Session-Id", "Last-Event-ID"
METHOD, NAME, PARAM = "Mcp-Method", "Mcp-Name", "Mcp-Param-"

LISTEN = "subscriptions/listen"

SESSIONS = 64
"""Sessions of all callers; who is no owner has a quarter of them at most."""

QUEUED = 256
"""Messages that wait for one stream; beyond half of them what may be lost is lost."""

QUEUED_BYTES = 2 << 20
"""Likewise bytes."""

KEPT = 256
"""Events of a session that can be asked for again."""

KEPT_BYTES = 1 << 20

CUT_OFF = 16
"""Requests of a session whose stream was cut and whose answers wait to be asked for."""

CUT_BYTES = 1 << 20
"""Bytes that wait so in all sessions; beyond, who has most loses their largest."""

RETRY_MS = 1_000
"""When a client comes back to a stream that ended."""

PATIENCE_S = 1.0
"""How long a session's request waits for its one answer before events begin: only what has
begun can be asked for again."""

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)
"""What `Mcp-Name` repeats."""

STATUS = {
    jsonrpc.METHOD_NOT_FOUND: 404,
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}
"""HTTP status of an error that answers a stateless request; others are 200."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of JSON-RPC 2.0, as MCP has it."""

    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: str = ""
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Head(msgspec.Struct, gc=False):
    """The part of params that headers repeat."""

    name: Any = None
    uri: Any = None
    taskId: Any = None  # noqa: N815  MCP's word
    arguments: msgspec.Raw = msgspec.Raw()
    meta: Meta = msgspec.field(name="_meta", default=NO_META)


_head = msgspec.json.Decoder(_Head).decode


class _MismatchError(RemoteProtocolError):
    """A header is not there, or is not what the body says."""


# Streams ----------------------------------------------------------------------------------


class Flow:
    """What goes out for one request, or for a session at large.

    Attributes:
        code: how it ended: 0 with a result, else an error's code; None while it goes on.
        waiting: events that were not written yet, with their numbers.
        size: bytes of them.
        is_lost: nobody can ask for it any more.
        told: called when it has something, or is lost.
    """

    __slots__ = ("_wake", "code", "is_lost", "number", "reader", "size", "told", "waiting")

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.code: int | None = None
        self.waiting: deque[tuple[int, bytes]] = deque()
        self.size = 0
        self.is_lost = False
        self.reader: Stream | None = None
        self.told: Callable[[], None] | None = None
        self._wake: asyncio.Event | None = None

    def put(self, line: bytes, ends: int | None, event: int = 0) -> None:
        """One message more; the last one where `ends` says how."""
        if self.is_lost:
            return
        while self.waiting and (len(self.waiting) >= QUEUED or self.size > QUEUED_BYTES):
            self.take()
        self.waiting.append((event, line))
        self.size += len(line)
        if ends is not None:
            self.code = ends
        self._tell()

    def lose(self) -> None:
        """Nobody can ask for it any more: forget what it has, and take no more."""
        self.is_lost = True
        self.waiting.clear()
        self.size = 0
        self._tell()

    def _tell(self) -> None:
        if self._wake is not None:
            self._wake.set()
        if self.reader is not None:
            self.reader.poke()
        if self.told is not None:
            self.told()

    def take(self) -> tuple[int, bytes]:
        """The event that waits longest."""
        event, line = self.waiting.popleft()
        self.size -= len(line)
        return event, line

    @property
    def congested(self) -> bool:
        """Whether its reader is far behind."""
        return len(self.waiting) > QUEUED // 2 or self.size > QUEUED_BYTES // 2

    async def first(self, patience_s: float) -> bool:
        """Wait until something is there; whether it is the one answer."""
        if not (self.waiting or self.is_lost):
            wake = self._wake = asyncio.Event()
            try:
                async with asyncio.timeout(patience_s):
                    await wake.wait()
            except TimeoutError:
                return False
            finally:
                self._wake = None
        return self.code is not None and len(self.waiting) == 1


class _Events:
    """An event stream that writes what a flow has, until that ends."""

    def __init__(
        self,
        request: Request,
        flow: Flow,
        connection: Connection,
        session: _Session | None = None,
    ) -> None:
        self._request = request
        self._flow = flow
        self._connection = connection
        self._session = session
        self.stream = request.stream()

    async def run(
        self, headers: Mapping[str, str], missed: list[tuple[int, bytes]] | None = None
    ) -> StreamResponse:
        """Open it, write what was missed, then what comes."""
        flow, stream, streams = self._flow, self.stream, self._request.api.streams
        if flow.reader is not None:
            flow.reader.end()
        flow.reader = stream
        stream.response.headers.update(headers)
        streams.add(stream)
        try:
            await stream.open()
            if self._session is not None:
                await self._prime()
            for event, line in missed or ():
                await self._write(event, line)
            while flow.reader is stream:
                await self._write_waiting()
                if flow.code is not None or flow.is_lost:
                    break
                if stream.ending:
                    # What listens is answered in the end; whatever else goes on is cut.
                    self._connection.end()
                    if not flow.waiting:
                        break
                else:
                    await stream.wait()
        finally:
            streams.discard(stream)
            if flow.reader is stream:
                flow.reader = None
        return stream.response

    async def _write_waiting(self) -> None:
        waiting = self._flow.waiting
        # Who takes the flow over has what was kept by then.
        while waiting and self._flow.reader is self.stream:
            event, line = self._flow.take()
            if self._session is not None:
                self._session.keep(self._flow, event, line)
            await self._write(event, line)

    async def _prime(self) -> None:
        """An event to come back to, and when; older clients take no empty data."""
        assert self._session is not None  # noqa: S101  only sessions have events to ask for
        waiting = self._flow.waiting
        last = waiting[0][0] - 1 if waiting else self._session.events
        start = f"{self._flow.number}-{last}"
        text = f"retry: {RETRY_MS}\n"
        if self._session.connection.version == LEGACY[0]:
            text += f"id: {start}\ndata: \n"
        await self.stream.response.write(f"{text}\n".encode())

    async def _write(self, event: int, line: bytes) -> None:
        mark = b"id: %d-%d\n" % (self._flow.number, event) if event else b""
        await self.stream.response.write(b"%bdata: %b\n\n" % (mark, line.rstrip(b"\n")))


# Sessions ---------------------------------------------------------------------------------


class _Session:
    """One session of the revisions with `initialize`. Loop thread only."""

    def __init__(self, sessions: Sessions, caller: Caller) -> None:
        self._sessions = sessions
        self.id = secrets.token_hex(16)
        self.caller = caller
        self.events = 0
        self.posts = 0
        """Requests that are being answered."""
        self.used = 0.0
        self.general = Flow()
        self.flows: dict[bytes, Flow] = {}
        self._numbers = 0
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._kept_bytes = 0
        self._undelivered: dict[int, Flow] = {}
        """By number; those whose stream was cut are in `_cut_off` too."""
        self._cut_off: dict[int, Flow] = {}
        self.connection = Connection(
            sessions.control, caller, self._send, congested=self._is_behind
        )

    def _is_behind(self, about: bytes) -> bool:
        """Whether the reader of a request's stream is far behind, or else that of the session's.

        What nobody reads yet makes room by itself.
        """
        flow = self.flows.get(about)
        if flow is not None:
            return flow.congested
        return self.general.reader is not None and self.general.congested

    @property
    def is_busy(self) -> bool:
        """Whether something of it goes on: then it does not grow old."""
        return bool(self.posts or self.connection.pending or self.general.reader)

    def belongs_to(self, caller: Caller) -> bool:
        """Whether it is this caller's, and no other token's."""
        own = self.caller
        return (own.user, own.role, own.peer) == (caller.user, caller.role, caller.peer)

    def flow(self, raw_id: bytes) -> Flow:
        """Where what belongs to a request goes."""
        self._numbers += 1
        flow = self.flows[raw_id] = self._undelivered[self._numbers] = Flow(self._numbers)
        return flow

    def _send(self, line: bytes, about: bytes = b"", ends: int | None = None, /) -> None:
        self.events += 1
        flow = self.flows.get(about, self.general)
        flow.put(line, ends if flow is not self.general else None, self.events)
        if ends is not None:
            self.flows.pop(about, None)
        if flow.number in self._cut_off:
            self._sessions.bound()

    def keep(self, flow: Flow, event: int, line: bytes) -> None:
        """It goes out now, and may have to go out again."""
        self._kept.append((flow.number, event, line))
        self._kept_bytes += len(line)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[2])

    def left(self, flow: Flow) -> None:
        """Its stream is over; what it still has to say waits to be asked for."""
        if flow.number == 0 or flow.reader is not None:
            return
        if flow.code is not None and not flow.waiting:
            self._undelivered.pop(flow.number, None)
            self._cut_off.pop(flow.number, None)
        elif not flow.is_lost:
            self._cut_off[flow.number] = flow
            while len(self._cut_off) > CUT_OFF:
                self.lose(next(iter(self._cut_off.values())))
            self._sessions.bound()

    @property
    def cut_off(self) -> Iterable[Flow]:
        """What waits to be asked for."""
        return self._cut_off.values()

    def lose(self, flow: Flow) -> None:
        """It cannot be asked for any more."""
        self._cut_off.pop(flow.number, None)
        self._undelivered.pop(flow.number, None)
        flow.lose()

    def resume(self, mark: str) -> tuple[Flow, list[tuple[int, bytes]]] | None:
        """The flow of an event, and what of it came after that event."""
        number, _, event = mark.partition("-")
        if not (number.isascii() and number.isdigit() and event.isascii() and event.isdigit()):
            return None
        if len(mark) > 40 or int(number) > self._numbers:
            return None
        flow = self.general
        if int(number):
            ended = Flow(int(number))
            ended.code = 0
            flow = self._undelivered.get(int(number), ended)
            self._cut_off.pop(flow.number, None)
        missed = [
            (seen, line)
            for of, seen, line in self._kept
            if of == int(number) and seen > int(event)
        ]
        return flow, missed

    def close(self) -> None:
        """It is over: its calls are cancelled, its streams end, it keeps nothing."""
        self.connection.close()
        for flow in (self.general, *self._undelivered.values()):
            flow.lose()
            if flow.reader is not None:
                flow.reader.end()
        for kept in (self.flows, self._undelivered, self._cut_off, self._kept):
            kept.clear()
        self._kept_bytes = 0


class Sessions:
    """All sessions of the HTTP door, and the stateless streams that hear of changes."""

    def __init__(self, api: Api) -> None:
        self.control = api.control
        self.notices = Notices(api.control)
        self._idle_s = api.timing.session_s
        self._monotonic = api.control.services.clock.monotonic
        self._sessions: dict[str, _Session] = {}
        self._places = Places(SESSIONS, SESSIONS // 4)
        self._sweep: asyncio.TimerHandle | None = None

    def begin(self, caller: Caller) -> _Session:
        """A new session.

        Raises:
            BusyError: there are too many, and something goes on in each.
        """
        self.drop_idle()
        while not self._places.take(caller.who, owner=caller.is_owner):
            self._make_room(caller)
        session = _Session(self, caller)
        session.used = self._monotonic()
        self._sessions[session.id] = session
        self.notices.join(session.connection)
        self.notices.watch()
        if self._sweep is None:
            self._sweep_later()
        return session

    def find(self, name: str, caller: Caller) -> _Session | None:
        """A caller's session; the way to it keeps it young."""
        session = self._sessions.get(name)
        if session is None or not session.belongs_to(caller):
            return None
        session.used = self._monotonic()
        return session

    def end(self, session: _Session) -> None:
        """A session is over."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._places.leave(session.caller.who, owner=session.caller.is_owner)
        self.notices.leave(session.connection)
        session.close()

    def end_of(self, peer: str) -> None:
        """End those of one token, which is none any more."""
        for session in tuple(self._sessions.values()):
            if session.caller.peer == peer:
                self.end(session)

    def bound(self) -> None:
        """Lose answers of cut streams until all together are few enough bytes."""
        cut = [
            (one.caller.who, one, flow) for one in self._sessions.values() for flow in one.cut_off
        ]
        while sum(flow.size for _, _, flow in cut) > CUT_BYTES:
            held: Counter[str] = Counter()
            for who, _, flow in cut:
                held[who] += flow.size
            _, session, flow = max(cut, key=lambda one: (held[one[0]], one[2].size))
            session.lose(flow)

    def close(self) -> None:
        """The door closes."""
        self.notices.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for session in tuple(self._sessions.values()):
            self.end(session)

    def drop_idle(self) -> None:
        """End those that nobody used for a while; what goes on keeps one."""
        now = self._monotonic()
        for session in tuple(self._sessions.values()):
            if session.is_busy:
                session.used = now
            elif now - session.used >= self._idle_s:
                self.end(session)

    def _make_room(self, caller: Caller) -> None:
        """End the session longest idle of who has most, for an owner a busy one of an agent's.

        Raises:
            BusyError: something goes on in each that may be ended for this caller.
        """
        sessions = self._sessions.values()
        held = Counter(one.caller.who for one in sessions)
        owners = sum(one.caller.is_owner for one in sessions)

        def may_end(one: _Session) -> bool:
            if caller.is_owner:
                return not (one.is_busy and one.caller.is_owner)
            if one.is_busy:
                return False
            if held[caller.who] >= SESSIONS // 4:
                return one.caller.who == caller.who
            return not one.caller.is_owner or owners > OWNERS_PLACES

        found = [one for one in sessions if may_end(one)]
        if not found:
            text = (
                f"{SESSIONS} MCP sessions are the limit, and who is no owner gets a quarter of "
                "them: end one (DELETE /mcp)"
            )
            raise BusyError(text)
        self.end(max(found, key=lambda one: (not one.is_busy, held[one.caller.who], -one.used)))

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(min(self._idle_s, 60.0), self._swept)

    def _swept(self) -> None:
        self._sweep = None
        self.drop_idle()
        if self._sessions:
            self._sweep_later()


def _sessions(request: Request) -> Sessions:
    api = request.api
    if api.sessions is None:
        api.sessions = Sessions(api)
    found: Sessions = api.sessions
    return found


# POST -------------------------------------------------------------------------------------


async def post_message(request: Request) -> StreamResponse:
    """Send one message of MCP."""
    data = await request.data()
    if jsonrpc.crowded(data):
        return _fault(request, b"", jsonrpc.INVALID_REQUEST, f"the body: {jsonrpc.CROWDED}")
    try:
        message = jsonrpc.parse(data)
    except RemoteProtocolError as error:
        text, code, raw_id = error.args
        return _fault(request, raw_id, code, text)
    if len(data) - len(message.params) > BESIDE_MAX and not request.caller.is_owner:
        text = f"the body has more than {BESIDE_MAX >> 10} KiB beside its params"
        return _fault(request, message.id, jsonrpc.INVALID_REQUEST, text)
    try:
        head = _head(message.params) if message.params else _Head()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _fault(request, message.id, jsonrpc.INVALID_PARAMS, f"params: {error}")
    version = request.header(VERSION)
    if head.meta.version is None and (not version or version in LEGACY):
        return await _in_session(request, message, data)
    return await _stateless(request, message, head, version)


async def _stateless(
    request: Request, message: jsonrpc.Message, head: _Head, version: str
) -> StreamResponse:
    try:
        _check_head(request, message, head, version)
    except UnsupportedVersionError as error:
        known = {"supported": [MODERN, *LEGACY], "requested": error.version}
        return _fault(request, message.id, UNSUPPORTED_VERSION, str(error), known)
    except InvalidArgumentsError as error:
        return _fault(request, message.id, jsonrpc.INVALID_PARAMS, str(error))
    except _MismatchError as error:
        return _fault(request, message.id, HEADER_MISMATCH, str(error))
    if not message.id:
        # The stateless revision has no notification that would change anything.
        return request.empty(202)
    connection, flow = stateless(request)
    notices = _sessions(request).notices if message.method == LISTEN else None
    if notices is not None:
        notices.join(connection)
    try:
        connection.handle(message)
        if notices is not None:
            notices.watch()
        return await respond(request, connection, flow, request.api.timing.comment_s)
    finally:
        if notices is not None:
            notices.leave(connection)
        # A response that was cut cancels.
        connection.close()


def stateless(sender: Sender) -> tuple[Connection, Flow]:
    """A connection for one request, and what goes out for it; the connection is to be closed."""
    flow = Flow()
    # What a session is to others is the identity here (contract, section 4).
    caller = sender.caller
    if caller.session:
        caller = msgspec.structs.replace(caller, session="")
    connection = Connection(
        sender.api.control,
        caller,
        lambda line, _about=b"", ends=None: flow.put(line, ends),
        congested=lambda _about: flow.congested,
    )
    return connection, flow


async def respond(
    request: Request, connection: Connection, flow: Flow, patience_s: float
) -> StreamResponse:
    """The response to a stateless request that was begun.

    Args:
        request: the one.
        connection: its own.
        flow: what goes out for it.
        patience_s: how long its one answer is waited for before events begin.
    """
    while not await flow.first(patience_s):
        if _takes_events(request):
            return await _Events(request, flow, connection).run({})
        # Who takes no events gets the answer alone.
        while flow.waiting and (flow.code is None or len(flow.waiting) > 1):
            flow.take()
        patience_s = request.api.timing.comment_s
    return _answered(request, flow, STATUS.get(flow.code or 0, 200))


def check_call(sender: Sender, raw_id: bytes, params: CallParams) -> None:
    """Refuse a tools/call of the stateless revision whose headers do not say the same.

    Raises:
        EdgedError: as `_check_head`.
    """
    message = jsonrpc.Message(raw_id, "tools/call", b"")
    head = _Head(params.name, arguments=params.arguments, meta=params.meta)
    _check_head(sender, message, head, sender.header(VERSION))


def _answered(
    request: Request, flow: Flow, status: int, headers: Mapping[str, str] | None = None
) -> StreamResponse:
    return request.reply(flow.take()[1], status, headers)


def _check_head(sender: Sender, message: jsonrpc.Message, head: _Head, version: str) -> None:
    """Refuse a request whose headers and body do not say the same.

    Raises:
        InvalidArgumentsError: what `_meta` must have is not there.
        UnsupportedVersionError: a revision that is not spoken.
        _MismatchError: a header is missing, broken or another.
    """
    meta = head.meta
    if not message.method:
        raise _MismatchError("the stateless revision takes requests and notifications alone")
    if not message.id:
        # What headers those have is not said (MCP 2026-07-28).
        if version != MODERN:
            raise UnsupportedVersionError(version)
        return
    _check_version(version, meta)
    _check_header(sender, METHOD, message.method, encoded=False)
    key = _NAMED.get(message.method)
    if key is not None:
        _check_header(sender, NAME, getattr(head, key))
    if message.method == "tools/call" and isinstance(head.name, str):
        _check_params(sender, head)


def _check_version(version: str, meta: Meta) -> None:
    """Refuse a version of the header that is not the body's, or is not spoken."""
    if not version:
        raise _MismatchError(f"the header {VERSION} is missing")
    if meta.version is None:
        if version != MODERN:
            raise UnsupportedVersionError(version)
        raise InvalidArgumentsError([Fault(f"params._meta.{META}protocolVersion", "is required")])
    if version != meta.version:
        raise _MismatchError(f"{VERSION} is {version[:40]!r} and the body {meta.version[:40]!r}")
    if not is_modern(meta):
        raise UnsupportedVersionError(version)


def _check_header(sender: Sender, name: str, value: Any, *, encoded: bool = True) -> None:
    given = sender.header(name).strip(" \t")
    if not given:
        raise _MismatchError(f"the header {name} is missing")
    shown = decoded(name, given) if encoded else given
    if shown != value:
        raise _MismatchError(f"{name} is {shown[:80]!r} and the body says {str(value)[:80]!r}")


def _check_params(sender: Sender, head: _Head) -> None:
    """Inputs that the tool's schema has repeated in headers (`x-mcp-header`)."""
    registry, user = sender.api.control.registry, sender.caller.user
    tool = registry.view(user).tools.get(head.name)
    if tool is None or not tool.mirrored:
        return
    try:
        values = msgspec.json.decode(bytes(head.arguments) or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for path, header in tool.mirrored:
        name = PARAM + header
        value: Any = values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            continue
        given = sender.header(name).strip(" \t")
        if not given:
            raise _MismatchError(f"the header {name} is missing: {'.'.join(path)} is in the body")
        if not _same(decoded(name, given), value):
            raise _MismatchError(f"{name} is not what {'.'.join(path)} is in the body")


def _same(text: str, value: Any) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return bool(float(text) == value)
        except ValueError:
            return False
    return bool(text == value)


def decoded(name: str, text: str) -> str:
    """The value of a header, which may be wrapped for what no header can hold.

    Raises:
        _MismatchError: it is broken.
    """
    if not text.isascii() or not text.isprintable():
        raise _MismatchError(f"{name} has characters that no header may have")
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return binascii.a2b_base64(text[9:-2], strict_mode=True).decode()
    except ValueError:
        raise _MismatchError(f"{name} is not base64 of UTF-8") from None


# Sessions: POST, GET, DELETE --------------------------------------------------------------


async def _in_session(request: Request, message: jsonrpc.Message, data: bytes) -> StreamResponse:
    name = request.header(SESSION)
    headers: dict[str, str] = {}
    if name:
        session = _session(request)
    elif message.method == "initialize" and message.id:
        session = _sessions(request).begin(msgspec.structs.replace(request.caller, session=""))
        headers = {SESSION: session.id}
    else:
        detail = (
            f"send {SESSION} of the answer to initialize, or {VERSION}: {MODERN} with _meta "
            "for a request without a session"
        )
        return _fault(request, message.id, jsonrpc.INVALID_REQUEST, detail)
    connection = session.connection
    if not message.id or not message.method:
        connection.receive(data)
        return request.empty(202)
    if connection.is_open(message.id):
        return _fault(request, message.id, jsonrpc.INVALID_REQUEST, "this id is in use")
    most = request.api.max_calls
    if connection.pending >= most:
        text = f"{most} requests of this session are open (socket.max_calls): wait for one to end"
        raise BusyError(text)
    return await _answer_in_session(request, session, message, headers)


async def _answer_in_session(
    request: Request, session: _Session, message: jsonrpc.Message, headers: dict[str, str]
) -> StreamResponse:
    connection, flow = session.connection, session.flow(message.id)
    session.posts += 1
    try:
        connection.handle(message)
        patience = PATIENCE_S if connection.version == LEGACY[0] else request.api.timing.comment_s
        while not await flow.first(patience):
            if flow.is_lost:
                raise _no_session()
            if _takes_events(request):
                return await _Events(request, flow, connection, session).run(headers)
            while flow.waiting and (flow.code is None or len(flow.waiting) > 1):
                flow.take()
        return _answered(request, flow, 200, headers)
    finally:
        session.posts -= 1
        session.left(flow)
        if headers and not connection.version:
            # What was to begin it was refused.
            _sessions(request).end(session)


def _session(request: Request) -> _Session:
    version = request.header(VERSION)
    if version and version not in LEGACY:
        detail = f"{VERSION} {version[:40]!r} is none of {', '.join(LEGACY)}"
        raise Refusal(400, "protocol_remote", WIRE["protocol_remote"].title, detail)
    session = _sessions(request).find(request.header(SESSION), request.caller)
    if session is None:
        raise _no_session()
    named = request.caller.channel, request.caller.chat_id
    if any(named) and named != (session.caller.channel, session.caller.chat_id):
        detail = (
            "Edged-Channel and Edged-Chat are of a whole session: send them with initialize, and "
            "begin a session for each chat"
        )
        raise Refusal(400, "protocol_remote", WIRE["protocol_remote"].title, detail)
    return session


def _no_session() -> Refusal:
    detail = "there is no such session (any more): begin one with initialize"
    return Refusal(404, "not_found", WIRE["not_found"].title, detail)


async def get_messages(request: Request) -> StreamResponse:
    """Hear what a session has to say beside its answers; Last-Event-ID resumes."""
    _require_session(request)
    session = _session(request)
    if not _takes_events(request):
        detail = f"this is {EVENTS}: send Accept: {EVENTS}"
        raise Refusal(406, "not_acceptable", "Not acceptable", detail)
    mark = request.header(LAST_EVENT)
    flow, missed = session.general, list[tuple[int, bytes]]()
    if mark:
        found = session.resume(mark)
        if found is None:
            detail = f"{LAST_EVENT} {mark[:40]!r} is none of this session's"
            raise Refusal(400, "protocol_remote", WIRE["protocol_remote"].title, detail)
        flow, missed = found
    try:
        if request.is_head:
            return request.stream().response
        return await _Events(request, flow, session.connection, session).run({}, missed)
    finally:
        session.left(flow)


async def end_mcp_session(request: Request) -> StreamResponse:
    """End a session; its calls are cancelled."""
    _require_session(request)
    _sessions(request).end(_session(request))
    return request.empty(204)


def _require_session(request: Request) -> None:
    """Refuse what only sessions have, as the stateless revision would have it."""
    if not request.header(SESSION) or request.header(VERSION) == MODERN:
        detail = f"without {SESSION} /mcp takes POST alone"
        title = "Method not allowed"
        raise Refusal(405, "method_not_allowed", title, detail, {"Allow": "POST"})


def _takes_events(request: Request) -> bool:
    accept = request.header("Accept").lower()
    return EVENTS in accept or "text/*" in accept or "*/*" in accept or not accept


def _fault(
    request: Request, raw_id: bytes, code: int, text: str, data: Any = None
) -> StreamResponse:
    """A request that is not even begun."""
    return request.reply(jsonrpc.error(raw_id, code, text, data), STATUS.get(code, 400))


_EVENT = {"type": "string", "pattern": "^[0-9]+-[0-9]+$"}
_HEADERS = (
    Parameter(VERSION, "the revision that is spoken", {"enum": [MODERN, *LEGACY]}),
    Parameter(SESSION, "the session that `initialize` began, before 2026-07-28", TEXT),
    Parameter(METHOD, "the method of the body, from 2026-07-28", TEXT),
    Parameter(NAME, "what the body names, from 2026-07-28", TEXT),
)
_OF_SESSIONS = _HEADERS[:2]

_WRONG = "it cannot be taken; the error says why"

ROUTES = (
    Route(
        "POST",
        "/mcp",
        post_message,
        (
            Answer(200, "the response, also one that says what went wrong", Message),
            Answer(200, "messages that come before the response, and the response", media=EVENTS),
            Answer(202, "a notification or a response was taken", media=""),
            Answer(400, _WRONG, Message),
            Answer(400, _WRONG, Problem, media=PROBLEM),
            Answer(404, "there is no such method", Message),
            Answer(404, "there is no such session", Problem, media=PROBLEM),
        ),
        Message,
        headers=_HEADERS,
    ),
    Route(
        "GET",
        "/mcp",
        get_messages,
        (Answer(200, "messages", media=EVENTS),),
        headers=(*_OF_SESSIONS, Parameter(LAST_EVENT, "resume after that event", _EVENT)),
        problems=(404, 405, 406),
    ),
    Route(
        "DELETE",
        "/mcp",
        end_mcp_session,
        (Answer(204, "the session is over", media=""),),
        headers=_OF_SESSIONS,
        problems=(404, 405),
    ),
)
