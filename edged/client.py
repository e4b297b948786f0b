"""A blocking client of the daemon: requests, calls with updates, what it announces.

Over its socket here; over HTTP by `edged.webclient`. Errors of the daemon come
back as the classes of `edged.errors` by their code. One thread a client.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, NoReturn, Protocol, TypeVar

import msgspec

from edged import paths
from edged.errors import CallTimeoutError, EdgedError, NoDaemonError, RemoteProtocolError
from edged.jsonrpc import Lines, notification
from edged.results import Block, Result, Truncated, joined

LINE_MAX = 256 << 20
"""Bytes of one answer: the definitions of tens of thousands of tools."""

ANSWER_S = 30.0
"""How long the daemon may take to answer anything but a call."""

Update = Callable[[list[Block]], None]
T = TypeVar("T")


class Medium(msgspec.Struct, frozen=True):
    """A file behind a `media://` URL."""

    data: bytes
    mime_type: str
    name: str


class Client(Protocol):
    """A connection to a daemon, whichever door it goes through."""

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, patient: bool = False
    ) -> Any:
        """Ask; returns the decoded result.

        Args:
            method: edged's or MCP's.
            params: of the method.
            patient: the daemon itself bounds how long it takes; wait for it.

        Raises:
            EdgedError: the daemon refused, by its code.
            NoDaemonError: it is gone.
            CallTimeoutError: it does not answer.
        """

    def call(
        self,
        name: str,
        arguments: Any,
        *,
        on_update: Update | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Call a tool and wait for its end; an interrupt cancels it there.

        Args:
            name: the tool's.
            arguments: anything that encodes to a JSON object, or `msgspec.Raw`.
            on_update: gets each update; each replaces the one before.
            timeout_s: shortens the tool's own.

        Raises:
            EdgedError: as `request`; a tool's own failure is a result.
        """

    def follow(self, method: str, params: dict[str, Any]) -> tuple[Any, Iterator[tuple[str, Any]]]:
        """Ask, then hear what is announced: the result, and (method, params) without end.

        Raises:
            EdgedError: as `request`, from the iterator too.
        """

    def medium(self, reference: str) -> Medium:
        """Fetch the file behind a `media://` URL.

        Raises:
            NotFoundError: it expired or is another user's.
        """

    def close(self) -> None:
        """End the connection; calls in flight are cancelled."""


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Message(msgspec.Struct):
    id: int | str | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: _Error | None = None


class _CallMeta(msgspec.Struct, rename=lambda name: f"edged/{name}"):
    call_id: str = ""
    duration_ms: float = 0.0
    for_llm: str | None = None
    for_user: str | None = None
    silent: bool = False
    media: list[str] = []
    response_handled: bool = False
    truncated: Truncated | None = None
    sandbox: Literal["none"] | msgspec.UnsetType = msgspec.UNSET


class _CallResult(msgspec.Struct, rename="camel"):
    content: list[Block] = []
    is_error: bool = False
    structured_content: Any = None
    meta: _CallMeta = msgspec.field(name="_meta", default_factory=_CallMeta)


class _Content(msgspec.Struct):
    content: list[Block] = []


class _ProgressMeta(msgspec.Struct):
    update: _Content | None = msgspec.field(name="edged/update", default=None)


class _Progress(msgspec.Struct):
    meta: _ProgressMeta = msgspec.field(name="_meta", default_factory=_ProgressMeta)


class _Chunk(msgspec.Struct):
    data: bytes
    mime_type: str = ""
    name: str = ""
    next: int | None = None


class SocketClient:
    """A client of the daemon's Unix socket."""

    def __init__(self, path: str, *, answer_s: float = ANSWER_S) -> None:
        """Connect.

        Args:
            path: the socket.
            answer_s: see `ANSWER_S`.

        Raises:
            NoDaemonError: nobody listens there, or not for this user.
        """
        self._path = path
        self._answer_s = answer_s
        self._lines = Lines(LINE_MAX)
        self._waiting: deque[bytes | None] = deque()
        self._last_id = 0
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.connect(path)
        except OSError as error:
            self._sock.close()
            raise NoDaemonError(paths.unreachable(path, error)) from None

    def close(self) -> None:
        """End the connection; calls in flight are cancelled."""
        self._sock.close()

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, patient: bool = False
    ) -> Any:
        """Ask; see `Client.request`."""
        answer_s = None if patient else self._answer_s
        return _value(self._request(method, params or {}, answer_s))

    def call(
        self,
        name: str,
        arguments: Any,
        *,
        on_update: Update | None = None,
        timeout_s: float | None = None,
    ) -> Result:
        """Call a tool; see `Client.call`."""
        meta: dict[str, Any] = {}
        if on_update is not None:
            meta["progressToken"] = 1
        if timeout_s is not None:
            meta["edged/timeout"] = timeout_s
        params = {"name": name, "arguments": arguments, "_meta": meta}

        def notified(method: str, raw: msgspec.Raw) -> None:
            if method == "notifications/progress" and on_update is not None:
                update = decoded(raw, _Progress).meta.update
                if update is not None:
                    on_update(update.content)

        try:
            raw = self._request("tools/call", params, None, notified)
        except KeyboardInterrupt:
            self._send(notification("notifications/cancelled", {"requestId": self._last_id}))
            raise
        return _result(decoded(raw, _CallResult))

    def follow(self, method: str, params: dict[str, Any]) -> tuple[Any, Iterator[tuple[str, Any]]]:
        """Ask, then hear what is announced; see `Client.follow`."""
        return self.request(method, params), self._announced()

    def medium(self, reference: str) -> Medium:
        """Fetch a file piece by piece; see `Client.medium`."""
        key = reference.removeprefix("media://")
        chunk = self._piece(key, 0)
        parts = [chunk.data]
        while chunk.next is not None:
            chunk = self._piece(key, chunk.next)
            parts.append(chunk.data)
        return Medium(b"".join(parts), chunk.mime_type, chunk.name)

    def _piece(self, key: str, offset: int) -> _Chunk:
        params = {"id": key, "offset": offset}
        return decoded(self._request("edged/media", params, self._answer_s), _Chunk)

    def _request(
        self,
        method: str,
        params: dict[str, Any],
        answer_s: float | None,
        notified: Callable[[str, msgspec.Raw], None] | None = None,
    ) -> msgspec.Raw:
        self._last_id += 1
        body = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._sock.settimeout(answer_s)
        self._send(msgspec.json.encode(body) + b"\n")
        while True:
            message = self._next()
            if message.method and message.id is None:
                if notified is not None:
                    notified(message.method, message.params)
            elif message.error is not None and message.id in (self._last_id, None):
                raise_remote(message.error.message, message.error.data)
            elif message.id == self._last_id:
                return message.result

    def _announced(self) -> Iterator[tuple[str, Any]]:
        self._sock.settimeout(None)
        while True:
            message = self._next()
            if message.method:
                yield message.method, _value(message.params)

    def _send(self, line: bytes) -> None:
        try:
            self._sock.sendall(line)
        except TimeoutError:
            raise self._silent() from None
        except OSError:
            # It closed; it may have said why before.
            return

    def _next(self) -> _Message:
        while not self._waiting:
            try:
                data = self._sock.recv(1 << 18)
            except TimeoutError:
                raise self._silent() from None
            except OSError:
                data = b""
            if not data:
                gone = f"the daemon at {self._path} closed the connection: see its log"
                raise NoDaemonError(gone)
            self._waiting.extend(self._lines.feed(data))
        line = self._waiting.popleft()
        if line is None:
            raise RemoteProtocolError(f"an answer is over {LINE_MAX >> 20} MiB")
        return decoded(line, _Message)

    def _silent(self) -> CallTimeoutError:
        return CallTimeoutError(
            f"the daemon at {self._path} gave no answer within {self._answer_s:g} s: see its log"
        )


def raise_remote(message: str, data: Any) -> NoReturn:
    """Raise what the daemon refused with, as the class of its code.

    Only the message came over the wire: the classes' own attributes say nothing.
    """
    code = data.get("code") if isinstance(data, dict) else None
    kind = _by_code(EdgedError).get(str(code), EdgedError)
    raise kind.told(message)


def _by_code(kind: type[EdgedError]) -> dict[str, type[EdgedError]]:
    found: dict[str, type[EdgedError]] = {}
    for child in kind.__subclasses__():
        found |= _by_code(child)
    # Last: other modules may have subclasses of their own with the same code.
    found[kind.code] = kind
    return found


def _result(raw: _CallResult) -> Result:
    meta = raw.meta
    return Result(
        raw.content,
        is_error=raw.is_error,
        # Left out where it is the text of the content.
        for_llm=joined(raw.content) if meta.for_llm is None else meta.for_llm,
        for_user=meta.for_user,
        silent=meta.silent,
        media=meta.media,
        response_handled=meta.response_handled,
        sandbox=meta.sandbox,
        structured=raw.structured_content,
        call_id=meta.call_id,
        duration_ms=meta.duration_ms,
        truncated=meta.truncated,
    )


def decoded(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """A part of the daemon's answer as what it should be.

    Raises:
        RemoteProtocolError: it is something else.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the daemon's answer is not understood: {error}") from None


def _value(data: msgspec.Raw) -> Any:
    # Checked JSON: it was a part of a decoded message.
    return msgspec.json.decode(data)
