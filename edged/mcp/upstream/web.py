"""The links over HTTP: Streamable HTTP of both eras, and the HTTP+SSE before it.

Imports aiohttp, so nothing but an upstream with a URL imports this. Redirects are not
followed, so that headers with secrets go where the owner said and nowhere else. Loop
thread only.

Source: MCP 2026-07-28 and 2025-11-25, basic/transports; 2024-11-05, HTTP with SSE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from edged import __version__
from edged.errors import EdgedError, TooLargeError, UpstreamError
from edged.jsonrpc import MAX_LINE
from edged.mcp.client import PENDING_MAX, Client, ExpiredError, Outgoing
from edged.mcp.upstream.headers import encoded
from edged.mcp.upstream.sse import EventStream

CONNECT_S = 15.0
RETRY_S = 1.0
"""Before a stream that ended is asked for again, where the server says nothing."""

RETRY_MAX_S = 300.0
RESUMES_MAX = 20
"""How often the stream of one request is asked for again."""

CLOSE_S = 2.0
"""For a server to hear that its session is over."""

UNASKED_RATE = 1 << 20
"""Bytes a second that a server may announce; it is read no faster."""

REPLIES_MAX = 4
"""Answers to what a server asks that are under way to it; it gets no further ones before."""

REPLY_S = 10.0
"""For a server to take an answer or a notification."""

CONNECTIONS_MAX = PENDING_MAX + 2 * REPLIES_MAX
"""To one server: each request may hold one."""

_JSON, _EVENTS = "application/json", "text/event-stream"
_ERROR_SHOWN = 300


class _Error(msgspec.Struct):
    error: dict[str, Any] | None = None


def session(headers: dict[str, str]) -> aiohttp.ClientSession:
    """Connections to one server; the environment's proxies are not used."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    return aiohttp.ClientSession(
        timeout=timeout,
        connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"edged/{__version__}", **headers},
        max_line_size=32 << 10,
        max_field_size=32 << 10,
    )


class _Tasks:
    """Tasks by the request that each belongs to, and others."""

    def __init__(self) -> None:
        self._by_id: dict[int, asyncio.Task[None]] = {}
        self._replies: set[asyncio.Task[None]] = set()
        self._all: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._all.add(task)
        task.add_done_callback(self._all.discard)
        return task

    def send(
        self, message: Outgoing, post: Callable[[Outgoing], Coroutine[Any, Any, None]]
    ) -> None:
        """Have a message sent; an answer only while few of them are under way."""
        number = message.id
        if number:
            self._by_id[number] = task = self.start(post(message))
            task.add_done_callback(lambda _: self._by_id.pop(number, None))
        elif message.method:
            _ = self.start(post(message))
        elif len(self._replies) < REPLIES_MAX:
            task = self.start(post(message))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)

    def cancel(self, request_id: int) -> None:
        task = self._by_id.get(request_id)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        tasks = tuple(self._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HttpLink:
    """One server over Streamable HTTP: a request each.

    Attributes:
        lost: done when it is of no use any more, with the cause.
    """

    is_stream = False
    is_local = False
    errors = ""
    pid = 0

    def __init__(self, url: str, headers: dict[str, str], client: Client) -> None:
        """A link; nothing is sent yet."""
        self._url = url
        self._client = client
        self._http = session(headers)
        self._session_id = ""
        self._tasks = _Tasks()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # Out

    def send(self, message: Outgoing) -> None:
        """Send one message by a request of its own; see `Link.send`."""
        if self.lost.done():
            raise UpstreamError(self.lost.result())
        self._tasks.send(message, self._exchange)

    def abandon(self, request_id: int) -> None:
        """Close the stream of a request, which cancels it (the stateless revision)."""
        self._tasks.cancel(request_id)

    async def _exchange(self, message: Outgoing) -> None:
        try:
            async with asyncio.timeout(None if message.id else REPLY_S):
                await self._post(message)
        except EdgedError as error:
            self._client.failed(message.id, error)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._client.failed(message.id, UpstreamError(why(error)))

    async def _post(self, message: Outgoing) -> None:
        headers = {
            "Content-Type": _JSON,
            "Accept": f"{_JSON}, {_EVENTS}",
            **self._headers(message),
        }
        async with self._http.post(
            self._url, data=message.body, headers=headers, allow_redirects=False
        ) as answer:
            if message.method == "initialize" and answer.status == 200:
                self._session_id = answer.headers.get("Mcp-Session-Id", "")
            await self._answered(answer, message)

    def _headers(self, message: Outgoing) -> dict[str, str]:
        client = self._client
        found: dict[str, str] = {}
        if message.method == "initialize":
            return found
        if client.era == "legacy":
            found["MCP-Protocol-Version"] = client.version
            if self._session_id:
                found["Mcp-Session-Id"] = self._session_id
            return found
        found["MCP-Protocol-Version"] = client.version
        if message.method:
            found["Mcp-Method"] = message.method
        if message.name:
            found["Mcp-Name"] = encoded(message.name)
        return found | message.headers

    # In

    async def _answered(self, answer: aiohttp.ClientResponse, message: Outgoing) -> None:
        if answer.status != 200:
            await self._refused(answer, message)
            return
        if not message.id:
            return
        if answer.content_type == _EVENTS:
            await self._streamed(answer, message)
            return
        body = await _body(answer)
        if not self._receive(body):
            raise UpstreamError(f"its answer is no JSON ({answer.content_type[:60]})")
        if self._waits_for(message.id):
            raise UpstreamError("its answer is of another request")

    def _receive(self, body: bytes) -> bool:
        """Take one message, or a batch of MCP 2025-03-26; whether it was one."""
        if body[:1] == b"[":
            try:
                parts = msgspec.json.decode(body, type=list[msgspec.Raw])
            except (msgspec.DecodeError, RecursionError):
                return False
            for part in parts:
                self._client.receive(bytes(part))
            return True
        before = self._client.skipped
        self._client.receive(body)
        return self._client.skipped == before

    def _waits_for(self, request_id: int) -> bool:
        return self._client.waits_for(request_id)

    async def _refused(self, answer: aiohttp.ClientResponse, message: Outgoing) -> None:
        """What a status other than 200 means."""
        status = answer.status
        if status in (202, 204) and not message.id:
            return
        body = await _body(answer)
        if self._session_id and self._client.era == "legacy" and _is_expired(status, body):
            self._session_id = ""
            raise ExpiredError("its session has expired")
        if not message.id:
            return
        if _is_error(body):
            number = msgspec.json.encode(message.id)
            self._client.receive(_with_id(body, number))
            if not self._waits_for(message.id):
                return
        raise UpstreamError(status_text(status, answer.reason or "", body))

    async def _streamed(self, answer: aiohttp.ClientResponse, message: Outgoing) -> None:
        """Read the stream of one request; one that ends early is asked for again."""
        events = EventStream()
        await self._read(answer, events)
        for _ in range(RESUMES_MAX):
            if not self._waits_for(message.id):
                return
            if self._client.era != "legacy" or not events.last_id:
                break
            await asyncio.sleep(RETRY_S if events.retry_ms is None else events.retry_ms / 1000)
            await self._get(events)
        if self._waits_for(message.id):
            raise UpstreamError("its stream ended before the answer")

    async def _get(self, events: EventStream) -> bool:
        """Go on with a stream where it ended; whether there is one."""
        last_id, retry_ms = events.last_id, events.retry_ms
        headers = {"Accept": _EVENTS, **self._headers(Outgoing(b""))}
        if last_id:
            headers["Last-Event-ID"] = encoded(last_id)
        async with self._http.get(self._url, headers=headers, allow_redirects=False) as answer:
            if answer.status == 404 and self._session_id:
                self._session_id = ""
                raise ExpiredError("its session has expired")
            if answer.status != 200 or answer.content_type != _EVENTS:
                return False
            events.begin_again(last_id, retry_ms)
            await self._read(answer, events)
            return True

    async def _read(self, answer: aiohttp.ClientResponse, events: EventStream) -> None:
        pace = _Pace(self._client)
        async for chunk in answer.content.iter_any():
            for event in events.feed(chunk):
                if event.name == "message":
                    self._client.receive(event.data)
            await pace.wait(len(chunk))

    # What it announces

    def watch(self) -> None:
        """Hear what an older server announces, on a stream of its own."""
        if self._client.era == "legacy":
            _ = self._tasks.start(self._watch())

    async def _watch(self) -> None:
        events = EventStream()
        pause = RETRY_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if not await self._get(events):
                    # It has no such stream, and need not have.
                    return
            except ExpiredError as error:
                self._end(str(error))
                return
            except (aiohttp.ClientError, TimeoutError, OSError, TooLargeError):
                events = EventStream()
            # One that ends at once is not asked for without rest.
            pause = RETRY_S if loop.time() - began > RETRY_MAX_S else min(2 * pause, RETRY_MAX_S)
            asked = 0 if events.retry_ms is None else events.retry_ms / 1000
            await asyncio.sleep(max(pause, asked))

    # End

    def _end(self, cause: str) -> None:
        if not self.lost.done():
            self.lost.set_result(cause)

    async def look(self) -> str:
        """Nothing of it is on this board."""
        return ""

    def kill(self, cause: str) -> None:
        """Give it up, for a cause that `lost` tells."""
        self._end("it no longer answered" if cause == "hung" else cause)

    async def close(self) -> None:
        """End the session, and all that waits for an answer."""
        await self._tasks.close()
        if self._session_id:
            headers = self._headers(Outgoing(b""))
            try:
                async with (
                    asyncio.timeout(CLOSE_S),
                    self._http.delete(self._url, headers=headers, allow_redirects=False),
                ):
                    pass
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
        await self._http.close()


class SseLink:
    """One server over HTTP+SSE (2024-11-05): one stream for all that comes.

    Attributes:
        lost: as of `HttpLink`.
    """

    is_stream = True
    is_local = False
    errors = ""
    pid = 0

    def __init__(self, url: str, headers: dict[str, str], client: Client) -> None:
        """A link; `open` it."""
        self._url, self._client = url, client
        self._http = session(headers)
        self._tasks = _Tasks()
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Open the stream, and learn where messages go.

        Raises:
            UpstreamError: there is none.
        """
        _ = self._tasks.start(self._listen())
        await asyncio.wait([self._endpoint, self.lost], return_when=asyncio.FIRST_COMPLETED)
        if not self._endpoint.done():
            raise UpstreamError(self.lost.result())

    def send(self, message: Outgoing) -> None:
        """Send one message; see `Link.send`."""
        if self.lost.done():
            raise UpstreamError(self.lost.result())
        self._tasks.send(message, self._post)

    def abandon(self, request_id: int) -> None:
        """The answers share a stream: nothing belongs to one request alone."""

    def watch(self) -> None:
        """What it announces comes on the same stream."""

    async def _post(self, message: Outgoing) -> None:
        try:
            async with (
                asyncio.timeout(None if message.id else REPLY_S),
                self._http.post(
                    self._endpoint.result(),
                    data=message.body,
                    headers={"Content-Type": _JSON},
                    allow_redirects=False,
                ) as answer,
            ):
                if not 200 <= answer.status < 300:
                    text = status_text(answer.status, answer.reason or "", await _body(answer))
                    self._client.failed(message.id, UpstreamError(text))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._client.failed(message.id, UpstreamError(why(error)))
        except EdgedError as error:
            self._client.failed(message.id, error)

    async def _listen(self) -> None:
        try:
            headers = {"Accept": _EVENTS, "Cache-Control": "no-store"}
            async with self._http.get(self._url, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200 or answer.content_type != _EVENTS:
                    body = await _body(answer)
                    self._end(status_text(answer.status, answer.reason or "", body))
                    return
                await self._read(answer)
            self._end("it closed its stream")
        except EdgedError as error:
            self._end(str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._end(why(error))

    async def _read(self, answer: aiohttp.ClientResponse) -> None:
        events, pace = EventStream(), _Pace(self._client)
        async for chunk in answer.content.iter_any():
            for event in events.feed(chunk):
                if event.name == "endpoint" and not self._endpoint.done():
                    self._endpoint.set_result(self._place(event.data))
                elif event.name == "message":
                    self._client.receive(event.data)
            await pace.wait(len(chunk))

    def _place(self, data: bytes) -> str:
        """Where messages go: at the same origin, for they carry the owner's headers."""
        try:
            found = urljoin(self._url, data.decode("utf-8", "replace").strip())
            is_same = urlsplit(found)[:2] == urlsplit(self._url)[:2]
        except ValueError:
            raise UpstreamError("it wants messages to be sent to what is no URL") from None
        if not is_same:
            raise UpstreamError("it wants messages to be sent to another server")
        return found

    def _end(self, cause: str) -> None:
        if not self.lost.done():
            self.lost.set_result(cause)

    async def look(self) -> str:
        """Nothing of it is on this board."""
        return ""

    def kill(self, cause: str) -> None:
        """Give it up, for a cause that `lost` tells."""
        self._end("it no longer answered" if cause == "hung" else cause)

    async def close(self) -> None:
        """End all."""
        self._end("it was stopped")
        await self._tasks.close()
        await self._http.close()


class _Pace:
    """Reads what nobody asked for no faster than `UNASKED_RATE`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._useful = client.useful
        self._junk = 0

    async def wait(self, size: int) -> None:
        useful, self._useful = self._client.useful - self._useful, self._client.useful
        self._junk = max(0, self._junk + size - useful)
        if self._junk > MAX_LINE + UNASKED_RATE:
            # More than the largest message that may be under way.
            await asyncio.sleep(size / UNASKED_RATE)
            self._junk = MAX_LINE


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """The body, whole.

    Raises:
        TooLargeError: it is over the limit of a message.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > MAX_LINE:
            raise TooLargeError(f"its answer is over {MAX_LINE >> 20} MiB")
        parts.append(chunk)
    return b"".join(parts)


def _is_error(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Error).error is not None
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_expired(status: int, body: bytes) -> bool:
    """Whether a session is known no more: 404, and 400 of servers that forgot it in a restart."""
    return status == 404 or (status == 400 and b"session" in body[:1_000].lower())


def _with_id(body: bytes, number: bytes) -> bytes:
    """An error as the answer of a request: its peer may not have read the id."""
    found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**found, "id": msgspec.Raw(number)})


def status_text(status: int, reason: str, body: bytes) -> str:
    """What a refusal says, in a line, with what to do."""
    words = " ".join(body[:_ERROR_SHOWN].decode("utf-8", "replace").split())
    if words.startswith("<"):
        # A page for people.
        words = ""
    text = f"HTTP {status}{' ' if reason else ''}{reason[:60]}{': ' if words else ''}{words}"
    if status in (401, 403):
        return f"{text}: check its `headers`"
    if 300 <= status < 400:
        return f"{text}: it moved: set its new `url`"
    if status in (404, 405):
        return f"{text}: check its `url`; of the older HTTP+SSE it needs `type: sse`"
    return text


def why(error: BaseException) -> str:
    """What kept a request from its answer."""
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_S:g} s"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known here"
    if isinstance(error, aiohttp.ClientConnectorError):
        import os  # noqa: PLC0415  only for words

        number = error.os_error.errno or 0
        return f"no connection: {os.strerror(number) if number > 0 else 'no server answers'}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return f"{type(error).__name__}: {str(error)[:_ERROR_SHOWN] or 'no answer'}"
