"""The quick way of a tools/call over HTTP: neither parser, task nor response of aiohttp.

What is plain and answered by one message of status 200 is written by the hand that ended it.
Whatever else happens meanwhile, the request goes to aiohttp as it came, and its handler goes
on with what was begun here: nothing is begun, or counted, twice. Loop thread only.
"""

from __future__ import annotations

import asyncio

from aiohttp.helpers import rfc822_formatted_time
from aiohttp.web_response import StreamResponse

from edged.errors import RemoteProtocolError
from edged.mcp.server import bare_call
from edged.transports._api import COMMON, Link, Request, Sender
from edged.transports._mcp import STATUS, check_call, respond, stateless
from edged.transports._openapi import JSON
from edged.transports._plain import Plain

LARGE = 32 << 10
"""Bytes of an answer from which aiohttp writes it: it waits for a slow reader."""

_HEAD = (
    "HTTP/1.1 200 OK\r\n"
    + "".join(f"{name}: {value}\r\n" for name, value in COMMON.items())
    + f"Content-Type: {JSON}\r\n"
).encode()


class Quick:
    """One tools/call of the stateless revision, from its bytes to its answer."""

    __slots__ = (
        "_connection",
        "_ends",
        "_flow",
        "_id",
        "_link",
        "_params",
        "_timer",
        "data",
        "sender",
    )

    def __init__(self, link: Link, sender: Sender, request: Plain) -> None:
        """A call that can be begun.

        Args:
            link: the connection that it came by.
            sender: who sent it, and its headers.
            request: all of it.

        Raises:
            EdgedError: it is none, or it is refused; what aiohttp's way says of it is not
                said here.
        """
        call = bare_call(request.body)
        if call is None:
            raise RemoteProtocolError("no plain tools/call")
        self._id, self._params = call
        check_call(sender, *call)
        self._link = link
        self.sender = sender
        self.data = request.data
        self._timer: asyncio.TimerHandle | None = None
        self._ends = 0.0

    def begin(self) -> None:
        """Start the call, and answer it when it has its result."""
        self._connection, self._flow = stateless(self.sender)
        self._connection.call(self._id, self._params)
        if self._is_answer:
            self._answer()
            self._connection.close()
            return
        self._link.under_way = self
        if self._flow.waiting:
            self._link.hand_over()
            return
        self._flow.told = self._told
        loop, patience_s = asyncio.get_running_loop(), self.sender.api.timing.comment_s
        self._ends = loop.time() + patience_s
        self._timer = loop.call_at(self._ends, self._link.hand_over)

    @property
    def _is_answer(self) -> bool:
        """Whether what waits is the whole answer, and plain."""
        flow = self._flow
        return (
            flow.code is not None
            and len(flow.waiting) == 1
            and flow.size < LARGE
            and flow.code not in STATUS
        )

    def _answer(self) -> None:
        body = self._flow.take()[1]
        date = rfc822_formatted_time().encode()
        self._link.answer(
            b"%bContent-Length: %d\r\nDate: %b\r\n\r\n%b" % (_HEAD, len(body), date, body)
        )

    def _told(self) -> None:
        # The flow has something: the answer, or what comes before it.
        if self._is_answer:
            self.leave()
            self._answer()
            # Later: who answers is not done with the connection.
            asyncio.get_running_loop().call_soon(self._connection.close)
        else:
            self._link.hand_over()

    def leave(self) -> None:
        """It goes on without the quick way."""
        self._flow.told = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Its connection is lost: cancel the call."""
        self.leave()
        self._connection.close()

    async def go_on(self, request: Request) -> StreamResponse:
        """Answer it as aiohttp's handler."""
        try:
            left_s = max(0.0, self._ends - asyncio.get_running_loop().time())
            return await respond(request, self._connection, self._flow, left_s)
        finally:
            self._connection.close()
