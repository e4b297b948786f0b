"""Talks HTTP to registries: bounded, patient with those that are busy. Loop thread only.

Laws: an answer's size, the time of it and the number of hops are bounded; what begins
with https stays so; a token goes to the host that it is for and to no other; where a
registry leads to, no address is dialled that the web tools may not dial; a rate limit is
waited for as its server asks, or told as such.

Source: RFC 9110, sections 10.2.3 (Retry-After) and 15.4 (redirects); the documents of
ClawHub and of GitHub on rate limits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import urljoin, urlsplit

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession
from yarl import URL

from edged.clock import Clock
from edged.errors import (
    CallTimeoutError,
    DeniedError,
    EdgedError,
    RateLimitedError,
    RemoteProtocolError,
    StoreError,
)
from edged.skills import names
from edged.store import failed
from edged.web import dial, unanswered
from edged.web.guard import Guard, is_near

T = TypeVar("T")

JSON_MAX = 8 << 20
DOWNLOAD_MAX = 50 << 20
ERROR_MAX = 300
"""Characters of a server's own words."""

ANSWER_S = 30.0
DOWNLOAD_S = 240.0
TRIES = 3
WAIT_MAX_S = 20.0
"""A registry that wants a longer wait is not waited for."""

HOPS_MAX = 5
_BATCH = 1 << 20
"""Bytes that are written at once, off the loop; less is in the kernel's memory at once."""

_BUSY = frozenset({429, 500, 502, 503, 504})
_MOVED = frozenset({301, 302, 303, 307, 308})

Sink = Callable[[bytes], None]


class Reply(msgspec.Struct, frozen=True):
    """One answer; of an error, the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The server's own words, as one line."""
        return names.line(self.body.decode("utf-8", "replace"), ERROR_MAX)

    @property
    def is_json(self) -> bool:
        """Whether it says that it is JSON."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().endswith("json")


class Server(NamedTuple):
    """A registry as it is talked to: its name, for messages, and the owner's address of it."""

    name: str
    base: str


class _Ask(NamedTuple):
    """One request, however often it is tried."""

    server: Server
    url: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    begin: Callable[[], Sink]
    limit: int
    total_s: float


class _BusyError(Exception):
    """The server, or the way to it, may do better in a moment."""

    def __init__(self, reason: str, wait_s: float | None, *, limited: bool) -> None:
        super().__init__(reason)
        self.wait_s, self.limited = wait_s, limited


class Client:
    """Requests of one act; `async with` holds its connections.

    Args:
        clock: tells the date that some servers count by.
        guard: what may be dialled beside the registries themselves.
        proxy: of the web tools, or empty.
        sleep: how to wait.
        jitter: from 0 to 1, so that boards do not come back all at once.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        guard: Guard | None = None,
        proxy: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._guard = guard or Guard()
        self._proxy = proxy
        self._sleep = sleep
        self._jitter = jitter
        self._sessions: dict[tuple[bool, str], ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions.values():
            await session.close()

    def _session(self, server: Server, url: str) -> ClientSession:
        """Connections to where a URL is.

        Raises:
            DeniedError: a registry leads to an address that is not reached.
            ConfigError: the proxy needs a library that is not there.
        """
        host = URL(url).raw_host or ""
        own = host == URL(server.base).raw_host
        proxy = "" if own and is_near(host) else self._proxy
        if not own:
            self._guard.check_literal(host)
        if (own, proxy) not in self._sessions:
            self._sessions[own, proxy] = (
                dial.trusted(proxy, DOWNLOAD_S)
                if own
                else dial.guarded(self._guard, proxy, DOWNLOAD_S)
            )
        return self._sessions[own, proxy]

    async def get(
        self,
        server: Server,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        limit: int = JSON_MAX,
    ) -> Reply:
        """Ask for something small; an HTTP error is an answer, but for those that are busy.

        Args:
            server: the registry.
            url: http or https.
            params: of the query.
            headers: of the request; `Authorization` goes to that host alone.
            limit: bytes.

        Raises:
            RateLimitedError: it wants a longer wait than one is ready for.
            RemoteProtocolError: it does not answer as a server should.
            CallTimeoutError: it takes too long.
        """
        body = bytearray()

        def begin() -> Sink:
            body.clear()
            return body.extend

        ask = _Ask(server, url, params or {}, headers or {}, begin, limit, ANSWER_S)
        reply = await self._patiently(ask)
        return reply if reply.status >= 400 else Reply(reply.status, reply.headers, bytes(body))

    async def download(
        self,
        server: Server,
        url: str,
        begin: Callable[[], Sink],
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        limit: int = DOWNLOAD_MAX,
    ) -> Reply:
        """Ask for something large; as `get`.

        Args:
            server: likewise.
            url: likewise.
            begin: called before each try; what it returns takes the pieces, off the loop.
            params: likewise.
            headers: likewise.
            limit: likewise.

        Raises:
            StoreError: the disk does not take it; else as `get`.
        """
        ask = _Ask(server, url, params or {}, headers or {}, begin, limit, DOWNLOAD_S)
        return await self._patiently(ask)

    async def _patiently(self, ask: _Ask) -> Reply:
        registry = ask.server.name
        for tried in range(TRIES):
            try:
                return await self._once(ask, ask.begin())
            except _BusyError as busy:
                wait_s = busy.wait_s
                if wait_s is None:
                    wait_s = min(5.0, 0.3 * 2**tried)
                if tried == TRIES - 1 or wait_s > WAIT_MAX_S:
                    if busy.limited:
                        again = f": try again in {wait_s:.0f} s" if busy.wait_s else ""
                        reason = f"{registry}: rate limited{again} ({busy})"
                        raise RateLimitedError(reason, wait_s) from None
                    raise RemoteProtocolError(f"{registry}: {busy}") from None
            await self._sleep(wait_s + self._jitter() * min(1.0, 0.3 + wait_s / 10))
        raise AssertionError  # the last try returns or raises

    async def _once(self, ask: _Ask, sink: Sink) -> Reply:
        registry, url, params = ask.server.name, ask.url, dict(ask.params)
        host, given = urlsplit(url).netloc, {**ask.headers, "Accept-Encoding": "identity"}
        try:
            async with asyncio.timeout(ask.total_s):
                for hop in range(HOPS_MAX + 1):
                    # A signed address holds as it is written, and no other way.
                    target = URL(url, encoded=hop > 0 and url.isascii())
                    if urlsplit(url).netloc != host:
                        given.pop("Authorization", None)
                    async with self._session(ask.server, url).get(
                        target, params=params, headers=given, allow_redirects=False
                    ) as response:
                        if response.status not in _MOVED:
                            return await self._read(ask, response, sink)
                        url, params = _next(registry, url, response), {}
        except (StoreError, DeniedError):
            raise
        except TimeoutError:
            reason = f"{registry}: no whole answer within {ask.total_s:g} s"
            raise CallTimeoutError(reason) from None
        except (ClientError, OSError) as error:
            inner = getattr(error, "os_error", None)
            if isinstance(inner, EdgedError):
                # The guard's own words.
                raise inner from None
            reason = unanswered.why(error)
            where = urlsplit(url).hostname or "its server"
            told = f"{where} cannot be reached: {reason}"
            raise _BusyError(told, None, limited=False) from None
        raise RemoteProtocolError(f"{registry}: more than {HOPS_MAX} redirects")

    async def _read(self, ask: _Ask, response: ClientResponse, sink: Sink) -> Reply:
        headers, status = response.headers, response.status
        coding = headers.get("Content-Encoding", "identity").lower()
        if coding not in ("identity", ""):
            raise RemoteProtocolError(f"{ask.server.name}: packs its answers unasked")
        if status >= 400:
            reply = Reply(status, headers, await response.content.read(ERROR_MAX * 8))
            limited = _is_limited(reply)
            if limited or status in _BUSY:
                words = f": {reply.text}" if reply.text else ""
                wait_s = self._wait_of(headers)
                raise _BusyError(f"HTTP {status}{words}", wait_s, limited=limited)
            return reply
        size, batch = 0, bytearray()
        async for piece in response.content.iter_chunked(64 << 10):
            size += len(piece)
            if size > ask.limit:
                limit = ask.limit >> 20
                raise RemoteProtocolError(f"{ask.server.name}: an answer is over {limit} MiB")
            batch += piece
            if len(batch) >= _BATCH:
                await asyncio.to_thread(_store, sink, bytes(batch))
                batch.clear()
        if size > len(batch):
            await asyncio.to_thread(_store, sink, bytes(batch))
        else:
            _store(sink, bytes(batch))
        return Reply(status, headers, b"")

    def _wait_of(self, headers: Mapping[str, str]) -> float | None:
        """Seconds that the server asks to wait; None where it does not say."""
        after = headers.get("Retry-After", "").strip()
        if after.isascii() and after.isdecimal():
            return float(after[:9])
        if after:
            try:
                return max(0.0, parsedate_to_datetime(after).timestamp() - self._clock.now())
            except (ValueError, OverflowError):
                pass
        reset = headers.get("RateLimit-Reset", "")
        if reset.isascii() and reset.isdecimal():
            return float(reset[:9])
        epoch = headers.get("X-RateLimit-Reset", "")
        if epoch.isascii() and epoch.isdecimal():
            return max(0.0, float(epoch[:12]) - self._clock.now())
        return None


def _store(sink: Sink, data: bytes) -> None:
    try:
        sink(data)
    except OSError as error:
        raise failed("store", "the download", error) from error


def _is_limited(reply: Reply) -> bool:
    spent = reply.headers.get("X-RateLimit-Remaining") == "0"
    return reply.status == 429 or (reply.status == 403 and spent)


def _next(registry: str, url: str, response: ClientResponse) -> str:
    """Where a redirect leads.

    Raises:
        RemoteProtocolError: nowhere that one goes.
    """
    try:
        found = urljoin(url, response.headers.get("Location", ""))
        parts = urlsplit(found)
        fits = bool(parts.hostname) and parts.username is None
    except ValueError:
        fits, found, parts = False, "", urlsplit("")
    allowed = ("https",) if urlsplit(url).scheme == "https" else ("https", "http")
    if not fits or parts.scheme not in allowed:
        where = names.line(found, 200)
        raise RemoteProtocolError(f"{registry}: is led to {where!r}, which is not followed")
    return found


def decoded(registry: str, reply: Reply, kind: type[T]) -> T:
    """The body of an answer.

    Raises:
        RemoteProtocolError: it is no such JSON.
    """
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = names.line(str(error), 200)
        raise RemoteProtocolError(f"{registry}: answers with something else: {reason}") from None


def unexpected(registry: str, reply: Reply, about: str) -> RemoteProtocolError:
    """The error of an answer that means nothing good; with the server's own words."""
    words = f": {reply.text}" if reply.text else ""
    return RemoteProtocolError(f"{registry}: {about}: HTTP {reply.status}{words}")


def query(**values: Any) -> dict[str, str]:
    """Parameters of a query, without those that are empty."""
    return {key: str(value) for key, value in values.items() if value not in ("", None)}
