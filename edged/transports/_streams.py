"""Server-sent events: one response that goes on, and the queue before it.

Source: HTML Standard, section 9.2 (server-sent events).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from edged.events import Event

QUEUED = 256
"""Events that may wait for a reader; beyond, the oldest are lost."""

_encode = msgspec.json.Encoder().encode


class Stream:
    """One event stream. Loop thread only; one task sends.

    Attributes:
        ending: the daemon stops; the stream ends after what it has.
    """

    def __init__(self, request: BaseRequest, headers: Mapping[str, str], comment_s: float) -> None:
        self.response = StreamResponse(headers=headers)
        self.response.content_type = "text/event-stream"
        # Proxies would hold events back to fill their buffers.
        self.response.headers["X-Accel-Buffering"] = "no"
        self.ending = False
        self._request = request
        self._comment_s = comment_s
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Send the headers, and a comment so that proxies pass them on."""
        await self.response.prepare(self._request)
        await self.response.write(b": edged\n\n")

    async def send(self, event: str, value: Any, event_id: int | None = None) -> None:
        """Send one event; waits for a slow reader."""
        head = f"event: {event}\n" if event_id is None else f"id: {event_id}\nevent: {event}\n"
        # JSON has no raw line breaks, so that one data line holds it.
        await self.response.write(b"%bdata: %b\n\n" % (head.encode(), _encode(value)))

    def poke(self) -> None:
        """There is something to send."""
        self._wake.set()

    def end(self) -> None:
        """Let the stream come to its end."""
        self.ending = True
        self._wake.set()

    async def wait(self) -> None:
        """Wait for `poke` or `end`, keeping the connection open with comments."""
        while not self._wake.is_set():
            try:
                async with asyncio.timeout(self._comment_s):
                    await self._wake.wait()
            except TimeoutError:
                await self.response.write(b": keep-alive\n\n")
        self._wake.clear()


class Feed:
    """Events that wait for one reader; bounded."""

    def __init__(self, poke: Callable[[], None]) -> None:
        self._poke = poke
        self._queue: deque[Event] = deque()
        self._lost = False

    def offer(self, event: Event) -> None:
        """Queue an event; a full queue loses its oldest."""
        if len(self._queue) >= QUEUED:
            self._queue.popleft()
            self._lost = True
        self._queue.append(event)
        self._poke()

    def take(self) -> tuple[list[Event], bool]:
        """What waits, and whether something before it was lost."""
        taken, lost = list(self._queue), self._lost
        self._queue.clear()
        self._lost = False
        return taken, lost
