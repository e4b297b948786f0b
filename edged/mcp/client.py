"""The client's side of one MCP session: requests out, answers in, sans I/O.

Speaks the stateless revision and the ones with `initialize`; which of them a server
speaks is found out once (MCP 2026-07-28, basic/versioning). Knows no sockets: a link
takes messages and hands over what comes. Whatever a peer sends costs at most its own
request: what is no message is skipped and counted. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from edged import __version__, jsonrpc
from edged.errors import BusyError, RemoteProtocolError, TooLargeError, UpstreamError
from edged.held import Share
from edged.mcp.types import INSTANCE, LEGACY, META, MODERN, UNSUPPORTED_VERSION, VIA
from edged.mcp.upstream.framing import ENDS, shown_id
from edged.mcp.upstream.headers import Mirrored, mirrored, parameters

CLIENT = {"name": "edged", "title": "edged", "version": __version__}

PROBE_S = 3.0
"""After which a server that says nothing to `server/discover` is greeted as an older one."""

PAGES_MAX = 200
TOOLS_MAX = 2_000
"""Tools of one server."""

TOOL_MAX = 256 << 10
"""Bytes of one tool as its server lists it."""

LIST_MAX = 8 << 20
"""Bytes of all of them."""

RESULT_FREE = 64 << 10
"""Bytes of a result that are not counted."""

DESCRIPTION_MAX = 8_000
"""Characters of a description: strangers write them, and models read them."""

PROBLEMS_MAX = 200
"""Tools left out of one list that are told."""

VIA_MAX = 16
"""Daemons one behind another, through which a tool is taken."""

NAME_MAX = 64
"""Characters by which a daemon is named."""

ROUNDS_MAX = 8
"""How often one call may be answered with a request for more."""

ERROR_MAX = 2_000
"""Characters of a peer's error that are repeated."""

STRANGE_MAX = 4_096
"""Bytes that are handed on of a line that is no message."""

PENDING_MAX = 256
"""Requests to one server that wait for an answer."""

Era: TypeAlias = Literal["modern", "legacy"]
Respond: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""`respond(method, params)` answers what a server asks of its client."""


class Outgoing(msgspec.Struct, gc=False):
    """One message for a link.

    Attributes:
        body: JSON, without LF.
        id: of a request; 0 of what gets no answer.
        method: of a request or notification; empty of an answer.
        name: of what the request is about, for `Mcp-Name`.
        headers: that repeat inputs.
    """

    body: bytes
    id: int = 0
    method: str = ""
    name: str = ""
    headers: dict[str, str] = {}


class Link(Protocol):
    """What carries messages; a stream of lines, or a request each."""

    @property
    def is_stream(self) -> bool:
        """Whether all messages share one stream: then a cancellation is a message."""

    def send(self, message: Outgoing) -> None:
        """Take one message; what comes back goes to `Client.receive` and `Client.failed`.

        Raises:
            UpstreamError: it cannot be sent.
        """

    def abandon(self, request_id: int) -> None:
        """Nobody waits for the answer of that request any more."""


class RemoteError(UpstreamError):
    """The peer answered a request with an error; `number` is JSON-RPC's."""

    def __init__(self, number: int, message: str, data: Any = None) -> None:
        self.number, self.data = number, data
        super().__init__(f"{message[:ERROR_MAX]} ({number})")


class ExpiredError(UpstreamError):
    """The peer no longer knows the session; it did nothing of what was asked."""


class InputWantedError(UpstreamError):
    """The peer asks for something that only a person or a model could give."""


class RemoteTool(msgspec.Struct, frozen=True):
    """A tool as its server lists it; schemas as they came.

    Attributes:
        via: instances of edged that it comes through, the nearest first.
    """

    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Any = msgspec.field(name="inputSchema", default=None)
    output_schema: Any = msgspec.field(name="outputSchema", default=None)
    annotations: Any = None
    execution: Any = None
    via: tuple[str, ...] = msgspec.field(name=VIA, default=())


class Listing(NamedTuple):
    """The tools of a server, and why others were left out."""

    tools: list[RemoteTool]
    problems: list[str]


class Called(msgspec.Struct, gc=False):
    """The result of a call, its content not looked at yet."""

    content: list[Any] = []
    structured_content: Any = msgspec.field(name="structuredContent", default=None)
    is_error: bool = msgspec.field(name="isError", default=False)
    result_type: str = msgspec.field(name="resultType", default="complete")
    input_requests: dict[str, Any] | None = msgspec.field(name="inputRequests", default=None)
    request_state: str | None = msgspec.field(name="requestState", default=None)


class _Error(msgspec.Struct, gc=False):
    code: int = 0
    message: str = ""
    data: Any = None


class _Incoming(msgspec.Struct, gc=False):
    id: int | str | None = None
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: _Error | None = None


class _Discovered(msgspec.Struct):
    supported: list[str] = msgspec.field(name="supportedVersions", default_factory=list)
    capabilities: dict[str, Any] = {}
    server: Any = msgspec.field(name="serverInfo", default=None)
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class _Initialized(msgspec.Struct):
    version: str = msgspec.field(name="protocolVersion", default=LEGACY[-1])
    capabilities: dict[str, Any] = {}
    server: Any = msgspec.field(name="serverInfo", default=None)
    meta: Any = msgspec.field(name="_meta", default=None)


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw] = []
    cursor: str | None = msgspec.field(name="nextCursor", default=None)


class _Origin(msgspec.Struct):
    via: list[str] = msgspec.field(name=VIA, default_factory=list)


class _Marked(msgspec.Struct):
    meta: _Origin = msgspec.field(name="_meta", default_factory=_Origin)


class _Named(msgspec.Struct):
    name: Any = None


class _Progress(msgspec.Struct, gc=False):
    token: int | str | None = msgspec.field(name="progressToken", default=None)
    progress: float = 0.0
    total: float | None = None
    message: str | None = None


class _Unsupported(msgspec.Struct):
    supported: list[str] = []


OnProgress = Callable[[str], None]
_decode = msgspec.json.Decoder(_Incoming).decode
_called = msgspec.json.Decoder(Called).decode
_decode_origin = msgspec.json.Decoder(_Marked).decode
_encode = msgspec.json.Encoder().encode
_MODERN_META = {
    META + "protocolVersion": MODERN,
    META + "clientInfo": CLIENT,
    META + "clientCapabilities": {},
}


class _Pending(msgspec.Struct, gc=False):
    future: asyncio.Future[bytes]
    on_progress: OnProgress | None = None


class Client:
    """One session.

    Attributes:
        era: of the server; None until it is open.
        version: the revision that is spoken.
        capabilities: the server's.
        server: what it says of itself.
        instance: which daemon it is; empty of one that is not edged.
        skipped: lines that were no messages, answers that nobody waited for, and the like.
        useful: bytes of answers that were waited for.
        on_tools_changed: called when the server says that its list changed.
        on_strange: called with the first line that is no message.
    """

    def __init__(
        self, *, respond: Respond | None = None, probe_s: float = PROBE_S, instance: str = ""
    ) -> None:
        """A session without a link; give `link` before the first request.

        Args:
            respond: answers what the server asks; None refuses.
            probe_s: see `PROBE_S`.
            instance: of the daemon whose client this is; it takes no tool of its own.
        """
        self.link: Link
        self.era: Era | None = None
        self.version = MODERN
        self.capabilities: dict[str, Any] = {}
        self.server: dict[str, Any] = {}
        self.instance = ""
        self.skipped = 0
        self.useful = 0
        self.on_tools_changed: Callable[[], None] = lambda: None
        self.on_strange: Callable[[str], None] | None = None
        self._respond = respond
        self._probe_s = probe_s
        self._own = instance
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._lost: UpstreamError | None = None
        self._mirrored: dict[str, Mirrored] = {}
        self._as_tasks: frozenset[str] = frozenset()
        self._answers: set[asyncio.Task[None]] = set()
        self._listening = 0

    @property
    def pending(self) -> int:
        """Requests that wait for an answer."""
        return len(self._pending) - bool(self._listening)

    def waits_for(self, request_id: int) -> bool:
        """Whether that request has no answer yet."""
        return request_id in self._pending

    @property
    def is_lost(self) -> bool:
        """Whether its link is gone."""
        return self._lost is not None

    # What comes -----------------------------------------------------------------------------

    def receive(self, line: bytes) -> None:
        """Take one message of the peer."""
        if jsonrpc.crowded(line):
            self._overlong(line)
            return
        try:
            message = _decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            # A banner, a log line, half a message: never the end of a session.
            self.skipped += 1
            text = line[:STRANGE_MAX].decode("utf-8", "replace").strip()
            if self.on_strange is not None and text:
                tell, self.on_strange = self.on_strange, None
                tell(text)
            return
        if message.method is not None:
            self._asked(message)
            return
        pending = self._pending.pop(message.id, None) if type(message.id) is int else None
        if pending is None:
            self.skipped += 1
        elif not pending.future.done():
            self.useful += len(line) + 1
            error = message.error
            if error is not None:
                failed = RemoteError(error.code, error.message, error.data)
                pending.future.set_exception(failed)
            else:
                pending.future.set_result(bytes(message.result))

    def oversized(self, request_id: int, size: int) -> None:
        """A message of so many bytes was too long; `request_id` is -1 where that is unknown."""
        self.skipped += 1
        limit = jsonrpc.MAX_LINE >> 20
        reason = f"its answer has {size} bytes, more than {limit} MiB"
        if request_id < 0 and len(self._pending) == 1:
            request_id = next(iter(self._pending))
        self.failed(request_id, TooLargeError(reason))

    def _overlong(self, line: bytes) -> None:
        self.skipped += 1
        self.failed(shown_id(line[:ENDS], line[-ENDS:]), TooLargeError(jsonrpc.CROWDED))

    def failed(self, request_id: int, error: Exception) -> None:
        """A request will get no answer."""
        pending = self._pending.pop(request_id, None)
        if pending is not None and not pending.future.done():
            pending.future.set_exception(error)

    def lost(self, error: UpstreamError) -> None:
        """The link is gone: nothing is answered any more."""
        if self._lost is None:
            self._lost = error
        waiting, self._pending = self._pending, {}
        for pending in waiting.values():
            if not pending.future.done():
                pending.future.set_exception(error)
        for task in self._answers:
            task.cancel()

    def _asked(self, message: _Incoming) -> None:
        """A request or a notification of the peer."""
        method = message.method
        if message.id is not None:
            self._answer(message.id, str(method), bytes(message.params))
        elif method == "notifications/progress":
            self._progressed(bytes(message.params))
        elif method == "notifications/tools/list_changed":
            self.on_tools_changed()
        elif method == "notifications/cancelled" and self._listening:
            # On a stream a server ends a subscription so.
            self._listening = 0

    def _progressed(self, params: bytes) -> None:
        try:
            found = msgspec.json.decode(params, type=_Progress)
        except (msgspec.DecodeError, RecursionError):
            self.skipped += 1
            return
        pending = self._pending.get(found.token) if type(found.token) is int else None
        if pending is None or pending.on_progress is None:
            return
        if found.message is not None:
            pending.on_progress(found.message[:ERROR_MAX])
        else:
            of = f" of {found.total:g}" if found.total is not None else ""
            pending.on_progress(f"{found.progress:g}{of}")

    def _answer(self, request_id: int | str, method: str, params: bytes) -> None:
        if method == "ping":
            self._reply(request_id, {"result": {}})
        elif self._respond is None:
            text = f"edged passes {method[:60]} on to nobody"
            self._reply(request_id, {"error": {"code": -32601, "message": text}})
        elif len(self._answers) < ROUNDS_MAX:
            task = asyncio.ensure_future(self._responded(request_id, method, params))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _responded(self, request_id: int | str, method: str, params: bytes) -> None:
        assert self._respond is not None  # noqa: S101  looked at before
        result = await self._respond(method, msgspec.json.decode(params or b"{}"))
        self._reply(request_id, {"result": result})

    def _reply(self, request_id: int | str, answer: dict[str, Any]) -> None:
        body = _encode({"jsonrpc": "2.0", "id": request_id, **answer})
        try:
            self.link.send(Outgoing(body))
        except UpstreamError:
            # The link is gone, and says so itself.
            return

    # Requests -------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        name: str = "",
        headers: dict[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> bytes:
        """Ask; the result as JSON.

        Args:
            method: MCP's.
            params: without `_meta`.
            name: of what it is about: a tool, a resource, a prompt.
            headers: that repeat inputs.
            on_progress: gets a line of text for each progress.

        Raises:
            RemoteError: the peer refused.
            UpstreamError: it is gone, or not to be reached.
            asyncio.CancelledError: the peer was told, and is waited for no more.
        """
        if self._lost is not None:
            raise self._lost
        if len(self._pending) >= PENDING_MAX:
            raise UpstreamError(f"{PENDING_MAX} requests wait for its answers: try again later")
        self._last_id = number = self._last_id + 1
        sent: dict[str, Any] = dict(params or {})
        meta: dict[str, Any] = dict(_MODERN_META) if self.era != "legacy" else {}
        if on_progress is not None:
            meta["progressToken"] = number
        if meta and method != "initialize":
            sent["_meta"] = meta
        body = _encode({"jsonrpc": "2.0", "id": number, "method": method, "params": sent})
        future = asyncio.get_running_loop().create_future()
        self._pending[number] = _Pending(future, on_progress)
        try:
            self.link.send(Outgoing(body, number, method, name, headers or {}))
            result: bytes = await future
            return result
        except asyncio.CancelledError:
            self._cancel(number, method)
            raise
        finally:
            self._pending.pop(number, None)

    def _cancel(self, number: int, method: str) -> None:
        """Tell the peer that nobody waits any more; what it still says of it is skipped."""
        if self._pending.pop(number, None) is None:
            return
        self.link.abandon(number)
        streams = self.link.is_stream or self.era == "legacy"
        if streams and method != "initialize" and self._lost is None:
            self._notify("notifications/cancelled", {"requestId": number})

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        body = _encode({"jsonrpc": "2.0", "method": method, "params": params})
        try:
            self.link.send(Outgoing(body, 0, method))
        except UpstreamError:
            return

    # The session ----------------------------------------------------------------------------

    async def open(self, known: Era | None = None) -> Era:
        """Find out which revision the server speaks, and greet it.

        Args:
            known: what it spoke the last time.

        Raises:
            UpstreamError: it speaks none, is gone, or is this very daemon.
        """
        if known == "legacy":
            try:
                await self._initialize()
            except RemoteError:
                # Perhaps it is a newer one by now.
                await self._discover()
        elif not await self._probe():
            await self._initialize()
        assert self.era is not None  # noqa: S101  both ways set it
        if self._own and self.instance == self._own:
            raise UpstreamError("it is this board itself, whose tools are here already: remove it")
        return self.era

    async def _probe(self) -> bool:
        """Whether it is a server of the stateless revision."""
        if not self.link.is_stream:
            return await self._is_modern(self._discover())
        # Silence says the same as a refusal; yet a server that is slow to start is heard.
        asked = asyncio.ensure_future(self._is_modern(self._discover()))
        try:
            await asyncio.wait([asked], timeout=self._probe_s)
            if asked.done():
                return asked.result()
            greeted = asyncio.ensure_future(self._initialize())
            try:
                await asyncio.wait([asked, greeted], return_when=asyncio.FIRST_COMPLETED)
                if asked.done() and asked.result():
                    return True
                await greeted
            finally:
                greeted.cancel()
                await asyncio.gather(greeted, return_exceptions=True)
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        return True

    async def _is_modern(self, discovering: Awaitable[None]) -> bool:
        try:
            await discovering
        except (RemoteError, RemoteProtocolError):
            return False
        return True

    async def _discover(self) -> None:
        """Ask a server of the stateless revision what it is.

        Raises:
            RemoteError, RemoteProtocolError: it is none.
        """
        try:
            raw = await self.request("server/discover")
        except RemoteError as error:
            if error.number != UNSUPPORTED_VERSION or not _supports(error.data):
                raise
            # It says that it knows the version which it was asked in.
            raw = await self.request("server/discover")
        try:
            found = msgspec.json.decode(raw, type=_Discovered)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"server/discover: {error}") from None
        if MODERN not in found.supported:
            raise RemoteProtocolError(f"it does not speak {MODERN}")
        self.era, self.version = "modern", MODERN
        self.capabilities = found.capabilities
        self.server = _info(found.meta.get(META + "serverInfo") or found.server)
        self.instance = _instance(found.meta)

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": LEGACY[0],
            "capabilities": {} if self._respond is None else {"elicitation": {}},
            "clientInfo": CLIENT,
        }
        raw = await self.request("initialize", params)
        try:
            found = msgspec.json.decode(raw, type=_Initialized)
        except msgspec.DecodeError as error:
            raise UpstreamError(f"its answer to initialize is none: {error}") from None
        if found.version not in LEGACY:
            known = ", ".join((MODERN, *LEGACY))
            text = f"it speaks MCP {found.version[:40]}, which edged does not: {known}"
            raise UpstreamError(text)
        self.era, self.version = "legacy", found.version
        self.capabilities, self.server = found.capabilities, _info(found.server)
        self.instance = _instance(found.meta)
        self._notify("notifications/initialized", {})

    @property
    def tells_of_changes(self) -> bool:
        """Whether the server says when its tools change."""
        tools = self.capabilities.get("tools")
        return isinstance(tools, dict) and tools.get("listChanged") is True

    async def listen(self) -> None:
        """Hear of changed tools until the server ends it (the stateless revision's way).

        Raises:
            UpstreamError: it does not do so.
        """
        self._listening = 1
        wanted = {"notifications": {"toolsListChanged": True}}
        try:
            await self.request("subscriptions/listen", wanted)
        finally:
            self._listening = 0

    async def check(self) -> None:
        """Ask for a sign of life.

        Raises:
            UpstreamError: it gives none that can be read.
        """
        try:
            await self.request("ping" if self.era == "legacy" else "server/discover")
        except RemoteError:
            # An answer all the same.
            return

    # Tools ----------------------------------------------------------------------------------

    async def tools(self) -> Listing:
        """All tools, page by page; one that cannot be read is left out alone.

        Raises:
            UpstreamError: there is no list.
        """
        if self.era == "legacy" and "tools" not in self.capabilities:
            return Listing([], [])
        found: dict[str, RemoteTool] = {}
        problems: list[str] = []
        marks: dict[str, Mirrored] = {}
        cursor: str | None = None
        seen: set[str] = set()
        size = 0
        for _ in range(PAGES_MAX):
            page = await self._page(cursor)
            size = self._take_page(page, size, found, problems, marks)
            cursor = page.cursor
            if cursor is None or size > LIST_MAX:
                break
            if cursor in seen:
                problems.append("its list of tools comes to the same page again")
                break
            seen.add(cursor)
            if len(found) >= TOOLS_MAX:
                problems.append(f"only its first {TOOLS_MAX} tools are taken")
                break
        own = [name for name, tool in found.items() if self._own and self._own in tool.via]
        if own:
            problems.append(f"{len(own)} of this board's own tools, which come back over it")
        for name in own:
            del found[name]
        if size > LIST_MAX:
            problems.append(f"only the first {LIST_MAX >> 20} MiB of its list are taken")
        self._mirrored = marks
        self._as_tasks = frozenset(n for n, tool in found.items() if _needs_task(tool.execution))
        return Listing(list(found.values()), problems)

    async def _page(self, cursor: str | None) -> _Page:
        raw = await self.request("tools/list", {} if cursor is None else {"cursor": cursor})
        try:
            return msgspec.json.decode(raw, type=_Page)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"its list of tools is none: {error}") from None

    def _take_page(
        self,
        page: _Page,
        size: int,
        found: dict[str, RemoteTool],
        problems: list[str],
        marks: dict[str, Mirrored],
    ) -> int:
        """Take what fits in `LIST_MAX` after `size` bytes; how many there are then."""
        for raw in map(bytes, page.tools):
            size += len(raw)
            if size <= LIST_MAX:
                self._take(raw, found, problems, marks)
        return size

    def _take(
        self,
        raw: bytes,
        found: dict[str, RemoteTool],
        problems: list[str],
        marks: dict[str, Mirrored],
    ) -> None:
        try:
            if len(raw) > TOOL_MAX:
                raise ValueError(f"it has {len(raw) >> 10} KiB, more than {TOOL_MAX >> 10}")
            tool = msgspec.json.decode(raw, type=RemoteTool)
            via = _decode_origin(raw).meta.via if b'"edged/via"' in raw else []
            if self.instance or via:
                nearest = (self.instance,) if self.instance else ()
                tool = msgspec.structs.replace(tool, via=(*nearest, *via))
            if len(tool.via) > VIA_MAX or any(len(one) > NAME_MAX for one in tool.via):
                raise ValueError(f"it comes through over {VIA_MAX} boards")
            fields = mirrored(tool.input_schema) if not self.link.is_stream else {}
            if tool.name in found:
                raise ValueError("it is listed twice")
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            if len(problems) < PROBLEMS_MAX:
                problems.append(f"tool {_name_of(raw)}: {error}")
            return
        if len(found) < TOOLS_MAX:
            description = (tool.description or "").strip()[:DESCRIPTION_MAX]
            found[tool.name] = msgspec.structs.replace(tool, description=description or None)
            if fields:
                marks[tool.name] = fields

    async def call(
        self,
        tool: str,
        arguments: bytes,
        *,
        on_progress: OnProgress | None = None,
        share: Share | None = None,
    ) -> Called:
        """Call a tool.

        Args:
            tool: as the server names it.
            arguments: JSON of one object.
            on_progress: as `request`.
            share: what a long result is counted by, until the call is over.

        Raises:
            InputWantedError: it wants to know more than it was told.
            BusyError: there is no room for so long a result.
            as `request`.
        """
        headers = self._headers(tool, arguments)
        given = msgspec.Raw(arguments or b"{}")
        more: dict[str, Any] = {}
        for _ in range(ROUNDS_MAX):
            params = {"name": tool, "arguments": given, **more}
            if tool in self._as_tasks and self.era == "legacy":
                raw = await self._task(params, on_progress)
            else:
                raw = await self.request(
                    "tools/call", params, name=tool, headers=headers, on_progress=on_progress
                )
            if share is not None and len(raw) > RESULT_FREE and share.take(len(raw)) < len(raw):
                raise BusyError(
                    f"its result of {len(raw) >> 10} KiB finds no room beside those of other "
                    "calls: try again later, or ask for less"
                )
            try:
                called = _called(raw)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UpstreamError(f"its result is none: {error}") from None
            if called.result_type != "input_required":
                return called
            more = await self._more(called)
        raise InputWantedError(f"it asked for more {ROUNDS_MAX} times")

    async def _task(self, params: dict[str, Any], on_progress: OnProgress | None) -> bytes:
        from edged.mcp.upstream import tasks  # noqa: PLC0415  few servers have such tools

        return await tasks.call(self.request, params, on_progress or (lambda _: None))

    def _headers(self, tool: str, arguments: bytes) -> dict[str, str]:
        fields = self._mirrored.get(tool)
        if fields is None or self.era != "modern":
            return {}
        try:
            return parameters(fields, msgspec.json.decode(arguments or b"{}"))
        except ValueError as error:
            raise UpstreamError(str(error)) from None

    async def _more(self, called: Called) -> dict[str, Any]:
        """What an unfinished call is tried again with."""
        more: dict[str, Any] = {}
        answers = {}
        for key, asked in (called.input_requests or {}).items():
            method = str(asked.get("method")) if isinstance(asked, dict) else ""
            if self._respond is None:
                text = f"it asks for {method or 'input'}, which edged passes on to nobody"
                raise InputWantedError(text)
            params = asked.get("params")
            answers[key] = await self._respond(method, params if isinstance(params, dict) else {})
        if answers:
            more["inputResponses"] = answers
        if called.request_state is not None:
            more["requestState"] = called.request_state
        if not more:
            raise InputWantedError("it asks for more and does not say what for")
        return more


def _needs_task(execution: Any) -> bool:
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def _supports(data: Any) -> bool:
    try:
        return MODERN in msgspec.convert(data, _Unsupported).supported
    except msgspec.ValidationError:
        return False


def _info(value: Any) -> dict[str, Any]:
    """What a server says of itself, in a few words."""
    if not isinstance(value, dict):
        return {}
    return {key: str(value[key])[:100] for key in ("name", "title", "version") if key in value}


def _instance(meta: Any) -> str:
    """Which daemon a server says that it is; empty of one that is not edged."""
    found = meta.get(INSTANCE) if isinstance(meta, dict) else None
    return found[:NAME_MAX] if isinstance(found, str) else ""


def _name_of(raw: bytes) -> str:
    try:
        return repr(str(msgspec.json.decode(raw, type=_Named).name)[:60])
    except (msgspec.DecodeError, RecursionError):
        return "without a name"
