"""What every HTTP request passes before its handler: the door's checks, in order.

Host, origin, identity, rate, route, size. Every refusal is one problem document
(RFC 9457). Imports aiohttp, so nothing that starts with the daemon imports this.
Loop thread only.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from aiohttp.http import HttpVersion11
from aiohttp.web_protocol import RequestHandler
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from edged import jsonrpc, log
from edged.config import Config, size
from edged.control import Control
from edged.errors import (
    WIRE,
    BusyError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    RateLimitedError,
    RemoteProtocolError,
    TooLargeError,
    ToolUnavailableError,
    UnauthenticatedError,
)
from edged.held import Room, Share
from edged.identity import Caller
from edged.loop import Loop
from edged.mcp.types import BESIDE_MAX
from edged.registry import Session
from edged.tokens import Token, peer_of
from edged.transports._calls import Calls
from edged.transports._limits import Places, Rates, Timing
from edged.transports._openapi import (
    HEADERS,
    JSON,
    PROBLEM,
    Paths,
    Problem,
    ProblemFault,
    Route,
)
from edged.transports._plain import Plain, plain
from edged.transports._streams import Stream
from edged.transports.unix import caller_of, nothing, peer_uid
from edged.wording import faulted

if TYPE_CHECKING:
    from edged.transports._quick import Quick

T = TypeVar("T")

HEADER_MAX = 128
"""Characters of a header that names a session, channel or chat."""

UNFINISHED_MAX = 32 << 20
"""Bytes of unfinished bodies of all agents together, and of all owners; more where one body
may have more than half of it."""

UNFINISHED_FREE = 64 << 10
"""Bytes of each that are not counted: small requests come through whatever others send."""

RETRY_S = 1.0
"""When to come back where the error does not say."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^:\[\]]+)(?::\d{1,5})?")


class Refusal(Exception):  # noqa: N818  an answer, not a fault of edged's hierarchy
    """An answer that only HTTP has."""

    def __init__(
        self, status: int, code: str, title: str, detail: str, headers: Mapping[str, str] = {}
    ) -> None:
        self.status, self.code, self.title, self.headers = status, code, title, headers
        super().__init__(detail)


def _check_beside(value: Any, size: int) -> None:
    """Refuse blanks and the like, which are kept while a call goes on and are not counted.

    Raises:
        TooLargeError: there is too much beside the arguments of a call.
    """
    arguments = getattr(value, "arguments", None)
    given = memoryview(arguments).nbytes if isinstance(arguments, msgspec.Raw) else 0
    if size - given > BESIDE_MAX:
        raise TooLargeError(f"the body has over {BESIDE_MAX >> 10} KiB beside `arguments`")


def problem(error: Refusal | EdgedError, common: Mapping[str, str]) -> Response:
    """The response that says what went wrong.

    Args:
        error: what to say.
        common: headers that every response has.
    """
    headers = dict(common)
    faults: tuple[ProblemFault, ...] = ()
    retry_after = None
    if isinstance(error, Refusal):
        status, title = error.status, error.title
        headers.update(error.headers)
    else:
        status, _, title = WIRE[error.code]
    if isinstance(error, InvalidArgumentsError):
        faults = tuple(ProblemFault(f.path, f.reason) for f in error.faults)
    elif isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    if status in (429, 503):
        retry_after = error.retry_after_s if isinstance(error, RateLimitedError) else RETRY_S
        headers["Retry-After"] = str(math.ceil(retry_after))
    body = Problem(
        f"urn:edged:error:{error.code}",
        title,
        status,
        str(error),
        error.code,
        faults,
        retry_after,
        error.reason_code if isinstance(error, ToolUnavailableError) else "",
    )
    response = Response(
        status=status, body=msgspec.json.encode(body), content_type=PROBLEM, headers=headers
    )
    if status == 408:
        # The rest of the body may never come.
        response.force_close()
    return response


def internal(error: Exception, where: str) -> Refusal:
    """The answer to a fault of edged: logged whole, told without a detail."""
    place = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" at {place[0].filename}:{place[0].lineno}" if place else ""
    log.error(f"http: {where}: {type(error).__name__}: {error}{at}")
    title = WIRE["internal"].title
    return Refusal(500, "internal", title, "a fault inside edged; its log says what happened")


COMMON = {
    "Server": "edged",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response."""


class Sender:
    """Who sent a request that passed the door, and what its head says.

    Attributes:
        api: the door.
        caller: who calls.
    """

    __slots__ = ("_headers", "api", "caller")

    def __init__(self, api: Api, caller: Caller, headers: Mapping[str, str]) -> None:
        self.api = api
        self.caller = caller
        self._headers = headers

    def header(self, name: str) -> str:
        """A header, or an empty string."""
        return self._headers.get(name, "")


class Request(Sender):
    """One request that passed the door, for its handler.

    Attributes:
        params: segments of the path by name.
    """

    __slots__ = ("_common", "_raw", "params")

    def __init__(
        self,
        api: Api,
        raw: BaseRequest,
        caller: Caller,
        params: dict[str, str],
        common: dict[str, str],
    ) -> None:
        super().__init__(api, caller, raw.headers)
        self.params = params
        self._raw = raw
        self._common = common

    @property
    def session(self) -> Session:
        """The session that the headers name."""
        return self.api.control.session(self.caller)

    @property
    def is_head(self) -> bool:
        """Whether only the headers are asked for."""
        return self._raw.method == "HEAD"

    def query(self, name: str) -> str | None:
        """A query parameter."""
        return self._raw.rel_url.query.get(name)

    def number(self, name: str, default: int, highest: int) -> int:
        """A query parameter that is a number from 0.

        Raises:
            InvalidArgumentsError: it is none.
        """
        return self._number(name, self.query(name), default, highest)

    def header_number(self, name: str, default: int, highest: int) -> int:
        """Likewise a header."""
        return self._number(name, self._headers.get(name), default, highest)

    @staticmethod
    def _number(name: str, text: str | None, default: int, highest: int) -> int:
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > highest:
            raise InvalidArgumentsError([Fault(name, f"must be a number from 0 to {highest}")])
        return int(text)

    async def fresh(self) -> None:
        """Wait until the caller's tools are known to be up to date."""
        waits = self.api.control.catalogue.fresh(self.caller.user)
        if waits is not None:
            # Others wait for the same future: a cancelled request must not cancel it.
            await asyncio.wait([waits])

    async def data(self) -> bytes:
        """The body as it came.

        Raises:
            RemoteProtocolError: it is broken.
            TooLargeError: over `http.max_body`.
            BusyError: too much of other bodies is on its way.
            Refusal: another content type, or too slow.
        """
        return await self.api.read(self._raw, self.caller)

    async def body(self, kind: type[T]) -> T:
        """The decoded JSON body; none at all counts as an empty object.

        Raises:
            InvalidArgumentsError: it does not fit.
            RemoteProtocolError: it is not JSON.
            TooLargeError: over `http.max_body`.
            BusyError: too much of other bodies is on its way.
            Refusal: another content type, or too slow.
        """
        data = await self.api.read(self._raw, self.caller)
        if jsonrpc.crowded(data):
            raise TooLargeError(f"the body: {jsonrpc.CROWDED}")
        try:
            value = msgspec.json.decode(data or b"{}", type=kind)
            if len(data) > BESIDE_MAX and not self.caller.is_owner:
                _check_beside(value, len(data))
            return value
        except msgspec.ValidationError as error:
            fault = faulted(error, kind)
            if "unknown field" in str(error) and "." not in fault.path:
                fault = fault._replace(reason=f"{fault.reason}; the body takes: {_fields(kind)}")
            raise InvalidArgumentsError([fault]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            takes = f"send one object, which takes: {_fields(kind)}"
            raise RemoteProtocolError(f"the body is not JSON: {error}: {takes}") from None

    def reply(
        self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """A JSON response; `value` may be encoded already (`bytes`)."""
        body = value if isinstance(value, bytes) else msgspec.json.encode(value)
        return Response(
            status=status,
            body=body,
            content_type=JSON,
            headers={**self._common, **(headers or {})},
        )

    def empty(self, status: int) -> Response:
        """A response without a body."""
        return Response(status=status, headers=self._common)

    def stream(self) -> Stream:
        """An event stream as the response; ended when the daemon stops."""
        return Stream(self._raw, self._common, self.api.timing.comment_s)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """Headers of a response of another kind."""
        return {**self._common, **more}


class Api:
    """The HTTP side of the daemon."""

    def __init__(
        self,
        control: Control,
        config: Config,
        timing: Timing,
        routes: tuple[Route, ...],
        quick: type[Quick],
    ) -> None:
        self.control = control
        self.timing = timing
        self.routes = routes
        self._paths = Paths(routes)
        self.calls = Calls(control.services.clock, control.services.events)
        self.streams: set[Stream] = set()
        """Streams that have no end of their own."""
        self.sessions: Any = None
        """MCP's (`edged.transports._mcp.Sessions`); None until there is one."""
        self.max_calls = config.socket.max_calls
        """Calls in flight of one MCP session, as of one connection to the socket."""
        self._quick = quick
        self._config = config
        self._max_body = size(config.http.max_body)
        most = max(UNFINISHED_MAX, 2 * self._max_body)
        self._unfinished = {True: Room(most), False: Room(most)}
        self._hosts = frozenset(name.lower() for name in config.http.hosts)
        self._rates = Rates(config.http.rate, config.http.burst, control.services.clock.monotonic)
        self._server = Server(self._serve, handler_cancellation=True)
        limit = config.http.max_connections
        self._places = Places(limit, limit // 4)
        self._strangers: dict[Link, None] = {}
        """Connections on which nobody has said yet who they are, the oldest first."""
        control.tokens.on_revoke.append(self._revoked)

    @property
    def open(self) -> int:
        """Open connections."""
        return len(self._server.connections)

    def connection(self) -> asyncio.Protocol:
        """The protocol of one new connection."""
        connection = Link(
            self,
            self._strangers,
            self._places,
            self._server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=self.timing.header_s,
            lingering_time=self.timing.linger_s,
            auto_decompress=False,
            access_log=None,  # how aiohttp has none
        )
        self._strangers[connection] = None
        return connection

    def evict(self) -> bool:
        """End the connection that has been without a name longest; false when all have one.

        Whoever has no token could else hold every place.
        """
        for connection in self._strangers:
            del self._strangers[connection]
            if connection.transport is not None:
                connection.transport.abort()
                return True
        return False

    def _revoked(self, name: str) -> None:
        """A token has ended: so do its sessions, its calls, and its connections with them."""
        peer = peer_of(name)
        if self.sessions is not None:
            self.sessions.end_of(peer)
        self.control.dispatcher.end_calls(peer)
        for connection in tuple(cast("list[Link]", self._server.connections)):
            seat, transport = connection.seat, connection.transport
            if transport is not None and seat is not None and seat.key == peer:
                transport.abort()

    async def close(self) -> None:
        """End all connections; what is being answered may end within `linger_s`."""
        for stream in self.streams:
            stream.end()
        if self.sessions is not None:
            self.sessions.notices.close()
        self._server.pre_shutdown()
        await self._server.shutdown(self.timing.linger_s)
        if self.sessions is not None:
            self.sessions.close()

    async def read(self, raw: BaseRequest, caller: Caller) -> bytes:
        """The body of a request; its size and time are bounded, and all bodies together."""
        if not raw.body_exists:
            return b""
        if raw.content_type != JSON:
            detail = f"send the body as Content-Type: {JSON}"
            raise Refusal(415, "unsupported_media_type", "Unsupported media type", detail)
        if raw.headers.get("Content-Encoding", "identity").lower() != "identity":
            detail = "send the body without Content-Encoding"
            raise Refusal(415, "unsupported_media_type", "Unsupported media type", detail)
        await _go_ahead(raw)
        try:
            if raw.content.is_eof():
                # It came with the head, as most do: there is no wait to bound.
                whole = raw.content.read_nowait()
                if len(whole) > self._max_body:
                    raise self._too_large()
                return whole
            share = Share(self._unfinished[caller.is_owner])
            try:
                return await self._read_on(raw, share)
            finally:
                share.release()
        except TimeoutError:
            detail = "the body came too slowly"
            raise Refusal(408, "request_timeout", "Request timeout", detail) from None

    async def _read_on(self, raw: BaseRequest, share: Share) -> bytes:
        timing, loop = self.timing, asyncio.get_running_loop()
        body = bytearray()
        deadline = loop.time() + timing.body_s
        async with asyncio.timeout_at(deadline) as limit:
            while chunk := await raw.content.readany():
                body += chunk
                if len(body) > self._max_body:
                    raise self._too_large()
                over = len(body) - UNFINISHED_FREE - share.size
                if over > 0 and share.take(max(over, len(body))) < over:
                    raise BusyError("too much of other requests is on its way: try again later")
                limit.reschedule(deadline + len(body) / timing.body_rate)
        return bytes(body)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"the body is over {self._max_body} bytes (http.max_body)")

    async def _serve(self, raw: BaseRequest) -> StreamResponse:
        common = dict(COMMON)
        begun = cast("Link", raw.protocol).take_begun()
        try:
            if begun is not None:
                # The door was passed when it came.
                return await begun.go_on(Request(self, raw, begun.sender.caller, {}, common))
            return await self._answer(raw, common)
        except (Refusal, EdgedError) as error:
            return problem(error, common)
        except ConnectionError:
            raise
        except Exception as error:
            # The door's last resort.
            refusal = internal(error, f"{raw.method} {raw.path}")
            if raw.writer.output_size:
                # Half an answer is out: only a cut connection can say that it failed.
                raise ConnectionResetError from error
            return problem(refusal, common)

    async def _answer(self, raw: BaseRequest, common: dict[str, str]) -> StreamResponse:
        methods, params = self._paths.match(raw.rel_url.raw_path)
        method = "GET" if raw.method == "HEAD" else raw.method
        route = methods.get(method)
        if route is not None and route.is_open:
            nobody = Caller("", "agent", "", "http")
            return await _run(route, Request(self, raw, nobody, params, common))
        if raw.transport is None:
            raise ConnectionResetError
        connection = cast("Link", raw.protocol)
        self._check_host(raw.headers, connection)
        if self._check_origin(raw.headers, common) and method == "OPTIONS":
            return _preflight(methods, common)
        caller, key = self._identify(raw.headers, connection)
        self._admit(connection, caller, key)
        self._rates.take(key)
        if not methods:
            raise Refusal(
                404, "not_found", "Not found", f"there is no {raw.path!r}: see /openapi.json"
            )
        if route is None:
            allow = ", ".join(_allowed(methods))
            if method == "OPTIONS":
                return Response(status=204, headers={**common, "Allow": allow})
            detail = f"{raw.method[:20]} is not for {raw.path!r}; it takes {allow}"
            title = "Method not allowed"
            raise Refusal(405, "method_not_allowed", title, detail, {"Allow": allow})
        if (raw.content_length or 0) > self._max_body:
            raise self._too_large()
        _check_query(route, raw)
        return await _run(route, Request(self, raw, caller, params, common))

    def begin(self, connection: Link, request: Plain) -> bool:
        """Begin what a plain request asks for, the quick way.

        Returns:
            False where that cannot be, or is refused: nothing was begun, and nothing counted.
        """
        headers = request.headers
        if (
            headers.get("Mcp-Method") != "tools/call"
            or "Origin" in headers
            or len(request.body) > self._max_body
        ):
            return False
        try:
            self._check_host(headers, connection)
            caller, key = self._identify(headers, connection)
            if connection.seat != (key, caller.is_owner):
                return False
            quick = self._quick(connection, Sender(self, caller, headers), request)
            self._rates.take(key)
        except Exception:  # noqa: BLE001  whatever it is, aiohttp's way comes to it and tells it
            return False
        quick.begin()
        return True

    def _admit(self, connection: Link, caller: Caller, key: str) -> None:
        """Give the connection a place of its caller's, or end it.

        Raises:
            Refusal: the caller holds as many as one may.
        """
        who = _Seat(key, caller.is_owner)
        if connection.seat == who:
            return
        connection.stand_up()
        if not self._places.take(who.key, owner=who.is_owner):
            self._strangers[connection] = None
            connection.close()
            limit = self._config.http.max_connections
            detail = (
                f"too many connections of {key}: {limit} are the limit (http.max_connections), "
                "and who is no owner gets a quarter of them"
            )
            raise Refusal(503, "busy", WIRE["busy"].title, detail, {"Connection": "close"})
        connection.seat = who
        self._strangers.pop(connection, None)

    def _check_host(self, headers: Mapping[str, str], connection: Link) -> None:
        """Refuse other names for this address: a web page may have made them up.

        Source: DNS rebinding; the browser sends the name that the page was loaded by.
        """
        host = headers.get("Host", "").lower()
        match = _HOST.fullmatch(host)
        name = match[1] if match else ""
        if name in _LOOPBACK or name in self._hosts or host in self._hosts:
            return
        transport = connection.transport
        address = transport.get_extra_info("sockname") if transport else None
        if isinstance(address, tuple):
            own = str(address[0])
            if name and name.strip("[]") == own:
                return
        detail = f"the host {host[:80]!r} is not served here: add it to http.hosts"
        raise Refusal(403, "denied", WIRE["denied"].title, detail)

    def _check_origin(self, headers: Mapping[str, str], common: dict[str, str]) -> bool:
        """Refuse requests of foreign web pages; whether a configured one asks."""
        origin = headers.get("Origin")
        if origin is None:
            return False
        if origin in self._config.http.origins:
            common["Access-Control-Allow-Origin"] = origin
            common["Access-Control-Expose-Headers"] = "Location, Mcp-Session-Id, Retry-After"
            common["Vary"] = "Origin"
            return True
        # A page of this very listener: its host was found good.
        if origin.lower().partition("://")[2] == headers.get("Host", "").lower():
            return False
        detail = f"the origin {origin[:80]!r} may not use this API: add it to http.origins"
        raise Refusal(403, "denied", WIRE["denied"].title, detail)

    def _identify(self, headers: Mapping[str, str], connection: Link) -> tuple[Caller, str]:
        """Who calls, and the key of the rate that it has used."""
        session, channel, chat_id = [_short(headers, name) for name in HEADERS]
        if connection.local is not None:
            caller = caller_of(peer_uid(connection.local), self._config, "http")
            caller = msgspec.structs.replace(
                caller, session=session, channel=channel, chat_id=chat_id
            )
            return caller, caller.peer
        if self.control.authenticate is not None:
            found = self.control.authenticate(headers)
            if found is None:
                raise UnauthenticatedError("the program that runs edged does not know you")
            found = msgspec.structs.replace(
                found, session=session, channel=channel, chat_id=chat_id
            )
            return found, found.who
        given = headers.get("Authorization", "")
        tokens = self.control.tokens
        known = connection.known
        if known is not None and known[:2] == (given, tokens.version):
            # The same words on the same connection: no need to look again.
            token: Token | None = known[2]
        else:
            scheme, _, secret = given.partition(" ")
            token = tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
            if token is not None:
                connection.known = given, tokens.version, token
        if token is None:
            scheme, _, secret = given.partition(" ")
            advice = self.control.tokens.advice()
            is_token = scheme.lower() == "bearer" and secret.strip()
            wrong = "this token is not valid (revoked or mistyped)"
            told = wrong if is_token else "send Authorization: Bearer TOKEN"
            raise UnauthenticatedError(f"{told}; {advice}")
        peer = peer_of(token.name)
        return Caller(token.user, token.role, session, "http", peer, channel, chat_id), peer


class _Seat(NamedTuple):
    """Whose place a connection has."""

    key: str
    is_owner: bool


_IS_KNOWN = all(
    hasattr(RequestHandler, name)
    for name in (
        "_close",
        "_force_close",
        "_keepalive_timeout",
        "_messages",
        "_next_keepalive_close_time",
        "_paused",
        "_process_keepalive",
        "_waiter",
    )
)
"""Whether this aiohttp keeps its state as `Link` looks at it: else nothing goes the quick way."""


class Link(RequestHandler):
    """aiohttp's connection, with its place, the quick way, and edged's words for no HTTP.

    A chunk that is one plain request, on a connection where nothing goes on, is not shown to
    aiohttp as long as it can be answered without (`_quick`). Once it was shown anything else,
    aiohttp's parser may be in the middle of something: from then on it gets all.
    """

    __slots__ = (
        "_api",
        "_begun",
        "_is_between",
        "_places",
        "_read_no_more",
        "_strangers",
        "known",
        "local",
        "seat",
        "under_way",
    )

    def __init__(
        self,
        api: Api,
        strangers: dict[Link, None],
        places: Places,
        *args: Any,
        **kw: Any,
    ) -> None:
        super().__init__(*args, **kw)
        self._api = api
        self._strangers = strangers
        self._places = places
        self._read_no_more: Callable[[], None] = nothing
        self.known: tuple[str, int, Token] | None = None
        """The last `Authorization` that was good, with the tokens' version, and its token."""
        self.seat: _Seat | None = None
        """Whose place it has; None until someone said who they are."""
        self.local: socket.socket | None = None
        """The socket, where it is a Unix one."""
        self.under_way: Quick | None = None
        """A request that goes the quick way and is not answered yet."""
        self._begun: Quick | None = None
        """What aiohttp's handler is to go on with."""
        self._is_between = _IS_KNOWN
        """Whether aiohttp's parser has seen whole requests alone."""

    def stand_up(self) -> None:
        """Give its place back."""
        if self.seat is not None:
            self._places.leave(self.seat.key, owner=self.seat.is_owner)
            self.seat = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        self.local = sock if sock.family == socket.AF_UNIX else None
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        if isinstance(loop, Loop):
            self._read_no_more = loop.read_directly(transport, self.data_received)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._read_no_more()
        self._strangers.pop(self, None)
        self.stand_up()
        for quick in (self.under_way, self._begun):
            if quick is not None:
                quick.close()
        self.under_way = self._begun = None
        super().connection_lost(exc)

    # The quick way ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.under_way is not None:
            # More than one request at a time is aiohttp's to put in order.
            self._is_between = False
            self.hand_over()
        elif self._is_between and data:
            request = plain(data)
            if request is None or not self._is_idle:
                self._is_between = False
            elif self._api.begin(self, request):
                return
        super().data_received(data)

    @property
    def _is_idle(self) -> bool:
        """Whether aiohttp waits for a request, and the peer has taken all answers."""
        waiter = self._waiter
        return (
            waiter is not None
            and not waiter.done()
            and not (self._messages or self._paused or self._close or self._force_close)
        )

    def answer(self, data: bytes) -> None:
        """Write the answer of what is under way, and be ready for the next request."""
        self.under_way = None
        assert self.transport is not None  # noqa: S101  `connection_lost` ends what is under way
        self.transport.write(data)
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout

    def hand_over(self) -> None:
        """Give the request that is under way to aiohttp, whose handler goes on with it."""
        begun, self.under_way = self.under_way, None
        if begun is not None:
            begun.leave()
            self._begun = begun
            super().data_received(begun.data)

    def take_begun(self) -> Quick | None:
        """What was begun for the request that is handled now."""
        begun, self._begun = self._begun, None
        return begun

    def close(self) -> None:
        # aiohttp waits for what it has, and for nothing else.
        self.hand_over()
        super().close()

    def _process_keepalive(self) -> None:
        # A connection with a request is none that idles.
        self.hand_over()
        super()._process_keepalive()

    def handle_error(
        self,
        request: BaseRequest,  # noqa: ARG002  aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc
        detail = (message or "").strip().split("\n")[0][:200] or "not HTTP"
        title = WIRE["protocol_remote"].title
        refusal = Refusal(status, "protocol_remote", title, detail)
        response = problem(refusal, {"Server": "edged"})
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        log.error(f"http: {' '.join(str(a) for a in args)}: {kw.get('exc_info')!r}")


def _check_query(route: Route, raw: BaseRequest) -> None:
    """Refuse a parameter that would else be passed over in silence.

    Raises:
        InvalidArgumentsError: it is none of this endpoint's.
    """
    if raw.rel_url.raw_query_string:
        known = [one.name for one in route.query]
        takes = ", ".join(known) or "none"
        unknown = [name for name in raw.rel_url.query if name not in known]
        if unknown:
            raise InvalidArgumentsError(
                [Fault(name[:64], f"is no parameter; it takes: {takes}") for name in unknown[:8]]
            )


async def _run(route: Route, request: Request) -> StreamResponse:
    response: StreamResponse = await route.handler(request)
    return response


async def _go_ahead(raw: BaseRequest) -> None:
    """Tell a client that waits for it to send its body (RFC 9110, section 10.1.1)."""
    expect = raw.headers.get("Expect")
    if expect is None or raw.version < HttpVersion11:
        return
    if expect.lower() != "100-continue":
        detail = f"Expect: {expect[:40]!r} is not understood"
        raise Refusal(417, "expectation_failed", "Expectation failed", detail)
    await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # The answer itself has not begun.
    raw.writer.output_size = 0


def _fields(kind: Any) -> str:
    """The fields of a body, and where the inputs of a tool belong."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    hint = " (the tool's inputs go into `arguments`)" if "arguments" in names else ""
    return ", ".join(names) + hint


def _short(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if len(value) > HEADER_MAX or not value.isprintable():
        reason = f"must be at most {HEADER_MAX} printable characters"
        raise InvalidArgumentsError([Fault(name, reason)])
    return value


def _allowed(methods: dict[str, Route]) -> list[str]:
    heads = ["HEAD"] if "GET" in methods else []
    return [*methods, *heads, "OPTIONS"]


_FOR_PAGES = (
    "Authorization",
    "Content-Type",
    "Last-Event-ID",
    "MCP-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Session-Id",
)


def _preflight(methods: dict[str, Route], common: dict[str, str]) -> Response:
    """What a browser asks for a page of a configured origin (Fetch Standard, CORS)."""
    allowed = ", ".join([*_FOR_PAGES, *HEADERS])
    headers = {
        **common,
        "Access-Control-Allow-Methods": ", ".join(_allowed(methods)),
        "Access-Control-Allow-Headers": allowed,
        "Access-Control-Max-Age": "600",
    }
    return Response(status=204, headers=headers)
