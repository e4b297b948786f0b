"""The link to a program in a sandbox: a message a line on its standard input and output.

What it writes beside messages is skipped, and a program that writes without end is read
slowly, then ended: nobody else waits for it. Loop thread only.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque

from edged.errors import UpstreamError
from edged.mcp.client import Client, Outgoing
from edged.mcp.upstream.framing import Framing, Long
from edged.sandbox.service import Service

UNSENT_MAX = 32 << 20
"""Bytes that wait for a program that does not read."""

SLICE = 500
"""Lines that are looked at before others have their turn."""

WINDOW_S = 0.1
UNASKED_MAX = 128 << 10
"""Bytes of one window that nobody asked for; for the rest of it nothing is read."""

FLOOD_S = 10.0
"""For so long a program may write more than that."""

LAST_LINES, LAST_MAX = 30, 300
"""Lines that are looked at for the last words, and characters of these."""

NPM_LINES = 4
"""Its first are a code, and what that means."""

_NPM = re.compile(r"npm (?:error|ERR!)\s*(?:code\s+)?(?:\d{3}(?:\s+|$))?(.*)")
_TELLING = re.compile(r"error\b|exception|cannot|not found|failed|denied|refused", re.IGNORECASE)


class StdioLink:
    """One program.

    Attributes:
        lost: done when it is gone, with the cause.
    """

    is_stream = True
    is_local = True

    def __init__(self, service: Service, client: Client, *, flood_s: float = FLOOD_S) -> None:
        """Listen to a program that was started."""
        self._service, self._client = service, client
        self._loop = asyncio.get_running_loop()
        self._framing = Framing()
        self._lines: deque[bytes | Long] = deque()
        self._read = 0
        self._window_began = 0.0
        self._junk_before = 0
        self._flood_s = flood_s
        self._flooding = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._disk = service.disk_watch()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        service.on_bytes = self._on_bytes
        service.over.add_done_callback(self._on_over)

    # Out

    def send(self, message: Outgoing) -> None:
        """Write one line; see `Link.send`."""
        service = self._service
        if service.over.done() or not service.takes_input:
            raise UpstreamError("it takes no input any more")
        if service.unsent + len(message.body) > UNSENT_MAX:
            raise UpstreamError(f"it does not read its input: {service.unsent} bytes wait")
        service.send(message.body + b"\n")

    def abandon(self, request_id: int) -> None:
        """Nothing belongs to one request alone."""

    def watch(self) -> None:
        """What it announces comes on the same stream."""

    # In

    def _on_bytes(self, data: bytes) -> None:
        self._read += len(data)
        lines = self._framing.feed(data)
        if len(lines) > SLICE or self._lines:
            self._lines += lines
            self._service.hold("stdout")
            self._loop.call_soon(self._work)
        else:
            for line in lines:
                self._take(line)
        self._judge()

    def _work(self) -> None:
        for _ in range(min(SLICE, len(self._lines))):
            self._take(self._lines.popleft())
        if self._lines and not self.lost.done():
            self._loop.call_soon(self._work)
        elif self._timer is None:
            self._service.resume()

    def _take(self, line: bytes | Long) -> None:
        if isinstance(line, Long):
            self._client.oversized(line.id, line.size)
        else:
            self._client.receive(line)

    def _judge(self) -> None:
        """Read no more for a while where it writes what nobody asked for."""
        junk = self._read - self._client.useful - min(self._framing.size, self._framing.limit)
        if junk - self._junk_before <= UNASKED_MAX or self._timer is not None:
            return
        now = self._loop.time()
        if now - self._window_began > WINDOW_S:
            # The window was over long ago: this begins another.
            if now - self._window_began > 2 * WINDOW_S:
                self._flooding = 0.0
            self._window_began, self._junk_before = now, junk
            return
        self._service.hold("stdout")
        self._timer = self._loop.call_at(self._window_began + WINDOW_S, self._next_window)

    def _next_window(self) -> None:
        self._timer = None
        self._flooding += WINDOW_S
        if self._flooding >= self._flood_s:
            self._service.stop_for("flood")
            return
        self._window_began = self._loop.time()
        self._junk_before = self._read - self._client.useful
        if not self._lines:
            self._service.resume()

    # End

    def _on_over(self, _: object) -> None:
        if not self.lost.done():
            # What it wrote last may be the answer to what ended it.
            for line in self._lines:
                self._take(line)
            self._lines.clear()
            cause, words = self._service.why(), last_words(self.errors)
            self.lost.set_result(self._explained(f"{cause}: {words}" if words else cause))

    def _explained(self, cause: str) -> str:
        """Why it ended, with what to do where that is known."""
        return cause

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error."""
        return self._service.errors

    @property
    def pid(self) -> int:
        """Of its first process; 0 before there is one."""
        return self._service.pid

    def kill(self, cause: str) -> None:
        """End it at once, for a cause that `lost` tells."""
        self._service.stop_for(cause)

    async def look(self) -> str:
        """What it adds more of to the disk than it may; empty while it does not."""
        return "" if self._service.over.done() else await self._disk.exceeded()

    async def close(self) -> None:
        """End it as it should be ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._service.resume()
        await self._service.stop()


def last_words(errors: str) -> str:
    """What of standard error says most of an end: the last line that tells of an error.

    Of npm it is the first ones: it ends with where its log is.
    """
    lines = [line.strip() for line in errors.strip().splitlines()]
    said = [found.group(1) for line in lines if (found := _NPM.fullmatch(line))]
    if said := [*dict.fromkeys(filter(None, said))]:
        return f"npm: {'; '.join(said[:NPM_LINES])}"[:LAST_MAX]
    lines = lines[-LAST_LINES:]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[-1][:LAST_MAX]
