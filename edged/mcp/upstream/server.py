"""One other MCP server: started when it is wanted, watched, started again, its tools.

One task owns its link: it opens and closes it; calls only use it. A failure is told as it
is, never kept as an empty list, and tried again for ever. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import msgspec

from edged import log
from edged.config import seconds
from edged.errors import CallTimeoutError, EdgedError, UpstreamError
from edged.held import Share
from edged.mcp.client import (
    Called,
    Client,
    Era,
    ExpiredError,
    Link,
    Listing,
    OnProgress,
    RemoteError,
    RemoteTool,
)
from edged.mcp.upstream import content
from edged.mcp.upstream.tool import Given
from edged.mcp.upstream.view import Health, State
from edged.results import Result, Text
from edged.sections import McpServer
from edged.tool import Context

HEADER_MISMATCH = -32020
STRANGE_SHOWN = 80
"""Characters of a line that is no message."""

ERRORS_SHOWN = 2_000
"""Characters of standard error in the status."""


class Timing(msgspec.Struct, frozen=True):
    """Seconds that tests shorten."""

    retry_first: float = 1.0
    retry_max: float = 300.0
    retry_asked: float = 1.0
    """After a failure, before a call may have it tried again at once."""
    settled: float = 60.0
    """A server that was up for so long begins its retries anew."""
    check: float = 10.0
    """For a sign of life after a call had no answer."""
    changes: float = 0.2
    """Changes of the list within are one."""
    restless: float = 5.0
    """A list that changed less than so long ago is not asked for again before that."""
    strange: float = 5.0
    """After which a test no longer waits for one that begins with what is no message."""
    update: float = 0.05
    """Between two updates of one call."""
    flood: float = 10.0
    look: float = 30.0
    """Between two looks at what it adds to the disk."""


class Opened(Link, Protocol):
    """A link that is open."""

    lost: asyncio.Future[str]

    @property
    def errors(self) -> str:
        """The end of what the server wrote to standard error."""

    @property
    def pid(self) -> int:
        """Of its first process, or 0."""

    @property
    def is_local(self) -> bool:
        """Whether it is a program of this board, which `look` looks at."""

    async def look(self) -> str:
        """What it adds more of to the disk than it may; empty while it does not."""

    def watch(self) -> None:
        """Hear what it announces, where that needs a stream of its own."""

    def kill(self, cause: str) -> None:
        """End it at once."""

    async def close(self) -> None:
        """End it as it should be ended."""


Open: TypeAlias = Callable[[Client], Awaitable[Opened]]
"""Opens a link for a client; raises EdgedError."""


class Known(msgspec.Struct, frozen=True):
    """What is kept of a server between two lives of the daemon.

    Attributes:
        mark: of the configuration that it was learnt with.
    """

    mark: str
    era: Era | None
    tools: list[RemoteTool]


class Server:
    """One server of the configuration."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        open_link: Open,
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        learnt: Callable[[Server, Listing], Awaitable[tuple[str, ...]]],
        changed: Callable[[Server], None],
        known: Known | None = None,
        plain: Callable[[str], str] = str,
        timing: Timing = Timing(),  # noqa: B008  a frozen value
        jitter: Callable[[], float] = random.random,
        instance: str = "",
    ) -> None:
        """A server that was not started.

        Args:
            name: in the configuration.
            settings: there.
            open_link: starts it.
            spawn: the daemon's task group.
            learnt: publishes its tools; says which ones it could not.
            changed: told of each new state.
            known: of an earlier life.
            plain: a text without secrets.
            timing: see there.
            jitter: a number from 0 to 1.
            instance: of this daemon, as of `Client`.
        """
        self.name, self.settings = name, settings
        self.state: State = "asleep"
        self.error = ""
        self.doubt = ""
        """Why the start under way may come to nothing."""
        self.era = known.era if known is not None else None
        self.left_out: tuple[str, ...] = ()
        self.count = 0
        self._open_link = open_link
        self._spawn, self._learnt, self._changed = spawn, learnt, changed
        self._timing, self._jitter, self._plain = timing, jitter, plain
        self._instance = instance
        self._has_tools = known is not None
        self._client: Client | None = None
        self._link: Opened | None = None
        self._next: asyncio.Future[Client | UpstreamError] | None = None
        self._wanted = asyncio.Event()
        self._stir = asyncio.Event()
        self._list_due: float | None = None
        self._renewing = False
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._errors = ""
        self._logged = ""
        self._active = 0
        self._used = 0.0
        self._failed_at = 0.0
        self._listed_at = float("-inf")
        self._failures = 0
        self._starts = 0

    # Life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start its task; the server itself where it is to be there, or to be asked once."""
        if not self.settings.lazy or not self._has_tools:
            self._wanted.set()
        self._task = self._spawn(self._live())

    async def close(self) -> None:
        """End the server and its task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._set("stopped", self.error)
        self._settle_next(UpstreamError(f"MCP server {self.name}: it was stopped"))

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            began = loop.time()
            try:
                cause = await self._session()
            except (EdgedError, OSError) as error:
                cause = str(error) or type(error).__name__
            except Exception as error:  # noqa: BLE001  a fault of ours ends no server for good
                cause = f"{type(error).__name__}: {error}"
                log.error(f"MCP server {self.name}: {traceback.format_exc()}")
            if cause is None:
                # Nobody needs it now, or it is to be opened anew at once.
                if self._renewing:
                    self._renewing = False
                    self._wanted.set()
                else:
                    self._set("asleep", "")
                self._failures = 0
                continue
            if loop.time() - began > self._timing.settled:
                self._failures = 0
            self._failed(cause)
            await self._rest()

    def _failed(self, cause: str) -> None:
        cause = self._plain(cause)
        self._failures += 1
        self._failed_at = asyncio.get_running_loop().time()
        if cause != self._logged:
            # Once for a cause, however often it is tried.
            log.warning(f"MCP server {self.name}: {cause}")
        self._logged = cause
        self._set("failed", cause)
        self._settle_next(UpstreamError(f"MCP server {self.name}: {cause}"))

    async def _rest(self) -> None:
        """Wait before the next try; a call may ask for it sooner."""
        timing = self._timing
        pause = min(timing.retry_max, timing.retry_first * 2 ** min(self._failures - 1, 20))
        pause *= 0.75 + 0.5 * self._jitter()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wanted.wait()
        if self.settings.lazy and self._has_tools and self._is_idle():
            # Nobody asks for it: it sleeps until somebody does.
            if not self._wanted.is_set():
                self._set("asleep", self.error)
            return
        self._wanted.set()

    def _is_idle(self) -> bool:
        idle = seconds(self.settings.idle)
        unused = asyncio.get_running_loop().time() - self._used
        return not self._active and unused >= idle

    async def _session(self) -> str | None:
        """Start it and serve until it ends; why it did, None where that is no fault.

        Raises:
            EdgedError: it did not start.
        """
        self._set("starting", self.error)
        self._starts += 1
        self._list_due = None
        client = Client(instance=self._instance)
        self.doubt = ""
        if self.settings.link == "stdio":
            client.on_strange = self._on_strange
        link: Opened | None = None
        limit = seconds(self.settings.connect)
        listener: asyncio.Task[None] | None = None
        try:
            try:
                async with asyncio.timeout(limit):
                    link = client.link = await self._open_link(client)
                    self._link = link
                    link.lost.add_done_callback(lambda lost: self._on_lost(client, lost))
                    self.era = await client.open(self.era)
                    listing = await client.tools()
            except TimeoutError:
                text = f"it did not answer within {limit:g} s of its start"
                text += f"; {self.doubt}" if self.doubt else ""
                raise UpstreamError(text + self._offline()) from None
            except UpstreamError:
                # That it is gone says more than that it does not answer.
                if link is not None and link.lost.done():
                    raise UpstreamError(link.lost.result() + self._offline()) from None
                raise
            await self._take(client, listing)
            if client.tells_of_changes:
                link.watch()
                if client.era == "modern":
                    listener = asyncio.ensure_future(self._listen(client))
            return await self._serve(client, link)
        finally:
            self._client = None
            if listener is not None:
                listener.cancel()
                await asyncio.gather(listener, return_exceptions=True)
            client.lost(UpstreamError("it was stopped"))
            if link is not None:
                await link.close()
                self._errors = link.errors
                self._link = None

    def _offline(self) -> str:
        """What may have kept it from its start, to be added to how that failed."""
        settings = self.settings
        if not settings.fetches or settings.has_network:
            return ""
        return f"; its network is off: {settings.command} can fetch nothing"

    def _on_lost(self, client: Client, lost: asyncio.Future[str]) -> None:
        if not lost.cancelled():
            client.lost(UpstreamError(lost.result()))
        self._stir.set()

    async def _take(self, client: Client, listing: Listing) -> None:
        """It is ready; its tools are published."""
        self._has_tools = True
        refused = await self._learnt(self, listing)
        self.left_out = tuple(map(self._plain, (*listing.problems, *refused)))
        for problem in self.left_out:
            log.warning(f"MCP server {self.name}: left out: {problem}")
        self._client = client
        client.on_strange = None
        client.on_tools_changed = self._on_changes
        self._used = asyncio.get_running_loop().time()
        self._logged = ""
        self._set("ready", "")
        self._settle_next(client)

    def _on_strange(self, line: str) -> None:
        """It wrote what is no message; told before its time is over, for it may never answer."""
        # Masked before it is cut: a part of a secret is none that is found.
        text = self._plain(line)
        shown = text if len(text) <= STRANGE_SHOWN else f"{text[:STRANGE_SHOWN]}…"
        self.doubt = (
            f"it wrote {shown!r} to its standard output, which is for MCP's messages alone"
        )
        self._set("starting", self.doubt)

    def _on_changes(self) -> None:
        """Its list changed; many changes soon after another are one."""
        if self._list_due is None:
            timing, now = self._timing, asyncio.get_running_loop().time()
            self._list_due = max(now + timing.changes, self._listed_at + timing.restless)
            self._stir.set()

    async def _serve(self, client: Client, link: Opened) -> str | None:
        """Wait for what there is to do; see `_session`."""
        self._stir.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_s(link)):
                    await self._stir.wait()
            self._stir.clear()
            if link.lost.done():
                return link.lost.result()
            if self._renewing:
                return None
            if self._list_due is not None and self._list_due <= asyncio.get_running_loop().time():
                await self._relist(client)
            if self.settings.lazy and self._is_idle() and not client.pending:
                return None
            if link.is_local and (found := await link.look()):
                link.kill(found)

    def _look_s(self, link: Opened) -> float | None:
        """For how long nothing needs to be looked at; None: until something happens."""
        now = asyncio.get_running_loop().time()
        waits = [max(0.0, self._list_due - now)] if self._list_due is not None else []
        waits += [self._timing.look] if link.is_local else []
        if self.settings.lazy:
            idle = seconds(self.settings.idle)
            left = idle - (now - self._used)
            waits.append(max(left, 0.05) if not self._active else idle)
        return min(waits, default=None)

    async def _relist(self, client: Client) -> None:
        """Ask for its tools again."""
        self._list_due = None
        self._listed_at = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds(self.settings.connect)):
                listing = await client.tools()
        except (TimeoutError, UpstreamError) as error:
            # What was listed before is still there to be called.
            cause = self._plain(str(error)) or "it does not answer"
            text = f"its changed list cannot be had: {cause}"
            log.warning(f"MCP server {self.name}: {text}")
            self.error = text
            return
        used = self._used
        await self._take(client, listing)
        self._used = used

    async def _listen(self, client: Client) -> None:
        """Hear of changes as the stateless revision has it, again when that ends."""
        pause = self._timing.retry_first
        while not client.is_lost:
            with contextlib.suppress(EdgedError):
                await client.listen()
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._timing.retry_max)
            # What changed meanwhile nobody told.
            self._on_changes()

    def _set(self, state: State, error: str) -> None:
        differs = (state, error) != (self.state, self.error)
        self.state, self.error = state, error
        if differs:
            self._changed(self)

    def _settle_next(self, outcome: Client | UpstreamError) -> None:
        waiting, self._next = self._next, None
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    # Calls ----------------------------------------------------------------------------------

    async def ready(self) -> Client:
        """The session, once there is one: the server is started where it is not.

        Raises:
            UpstreamError: it does not start; with its name and the cause.
        """
        client = self._client
        if client is not None and not client.is_lost:
            return client
        now = asyncio.get_running_loop().time()
        # One that failed once is started at once; one that goes on failing, not by every call.
        recent = self._failures > 1 and now - self._failed_at < self._timing.retry_asked
        if self.state == "stopped" or (self.state == "failed" and recent):
            raise UpstreamError(f"MCP server {self.name}: {self.error}")
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        self._wanted.set()
        outcome = await asyncio.shield(self._next)
        if isinstance(outcome, Client):
            return outcome
        raise outcome

    async def tried(self) -> Client:
        """The session, as `ready`; given up early where the start begins with no message.

        Raises:
            UpstreamError: it does not start, or not soon.
        """
        ready = asyncio.ensure_future(self.ready())
        try:
            await asyncio.wait([ready], timeout=self._timing.strange)
            if not ready.done() and self.doubt:
                raise UpstreamError(
                    f"MCP server {self.name}: {self.doubt}, and did not answer so far; it is "
                    f"waited for, {seconds(self.settings.connect):g} s in all"
                )
            return await ready
        finally:
            ready.cancel()

    def renew(self) -> None:
        """Open the link anew, at once."""
        if self._client is not None:
            self._client = None
            self._renewing = True
            self._stir.set()

    async def call(self, tool: str, params: Given, ctx: Context) -> Result:
        """Call one of its tools.

        Raises:
            UpstreamError: it cannot be called, or refused.
            CallTimeoutError: it did not answer in time.
        """
        updates = _Updates(ctx, self._timing.update, self._plain) if ctx.is_watched else None
        on_progress = updates.take if updates is not None else None
        self._active += 1
        try:
            async with asyncio.timeout(ctx.timeout_s):
                called = await self._called(tool, params.raw, on_progress, ctx.share)
        except TimeoutError:
            self._suspect()
            text = f"MCP server {self.name}: no answer within {ctx.timeout_s:g} s"
            raise CallTimeoutError(text) from None
        finally:
            self._active -= 1
            self._used = asyncio.get_running_loop().time()
            if updates is not None:
                updates.close()
        return content.result(called)

    async def _called(
        self, tool: str, raw: bytes, on_progress: OnProgress | None, share: Share | None
    ) -> Called:
        client = self._client
        if client is None or client.is_lost:
            client = await self.ready()
        try:
            try:
                return await client.call(tool, raw, on_progress=on_progress, share=share)
            except ExpiredError:
                # It did nothing of it: a new session, and once more.
                if self._client is client:
                    self.renew()
                client = await self.ready()
                return await client.call(tool, raw, on_progress=on_progress, share=share)
            except RemoteError as error:
                if error.number != HEADER_MISMATCH:
                    raise
                await self._relist(client)
                return await client.call(tool, raw, on_progress=on_progress, share=share)
        except UpstreamError as error:
            if str(error).startswith(f"MCP server {self.name}: "):
                raise
            raise UpstreamError(f"MCP server {self.name}: {self._plain(str(error))}") from None
        except EdgedError as error:
            raise UpstreamError(f"MCP server {self.name}: {self._plain(str(error))}") from None

    def _suspect(self) -> None:
        """Ask for a sign of life after a call had none; what gives none is ended."""
        client, link = self._client, self._link
        if client is not None and link is not None and self._checking is None:
            self._checking = self._spawn(self._check(client, link))
            self._checking.add_done_callback(lambda _: setattr(self, "_checking", None))

    async def _check(self, client: Client, link: Opened) -> None:
        """End it where it stays silent: at once when no other call may keep it busy."""
        loop = asyncio.get_running_loop()
        settings = self.settings
        longest = max(map(seconds, (settings.timeout, *settings.timeouts.values())))
        began = loop.time()
        asked = asyncio.ensure_future(client.check())
        try:
            while True:
                await asyncio.wait([asked], timeout=self._timing.check)
                if asked.done():
                    return
                if not self._active or loop.time() - began > longest:
                    link.kill("hung")
                    return
        finally:
            asked.cancel()
            # That it is lost it says itself.
            await asyncio.gather(asked, return_exceptions=True)

    # Status ---------------------------------------------------------------------------------

    def health(self) -> Health:
        """How it is."""
        client, link = self._client, self._link
        errors = link.errors if link is not None else self._errors
        # One that fails again and again is not shown as if all were well with it.
        is_failing = self.state == "starting" and self._failures
        return Health(
            "failed" if is_failing else self.state,
            self.settings.link,
            self.count,
            self.error,
            self.left_out,
            errors[-ERRORS_SHOWN:],
            client.server if client is not None else {},
            client.version if client is not None else "",
            link.pid if link is not None else 0,
            self._active,
            client.skipped if client is not None else 0,
            self._starts,
        )


class _Updates:
    """Passes the progress of one call on, not more often than it is of use."""

    def __init__(self, ctx: Context, pause_s: float, plain: Callable[[str], str]) -> None:
        self._ctx, self._pause_s, self._plain = ctx, pause_s, plain
        self._held: str | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, text: str) -> None:
        """Show it now, or as the last one when the pause is over."""
        if self._timer is not None:
            self._held = text
            return
        self._show(text)

    def _show(self, text: str) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause_s, self._rested)
        self._ctx.update([Text(self._plain(text))])

    def _rested(self) -> None:
        self._timer = None
        held, self._held = self._held, None
        if held is not None:
            self._show(held)

    def close(self) -> None:
        """The call is over."""
        if self._timer is not None:
            self._timer.cancel()
