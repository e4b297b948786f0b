"""The daemon's end of the descriptor by which a tool calls other tools.

One JSON object a line: `{"id": 1, "name": "sensor", "arguments": {}}` is answered by
`{"id": 1, "result": {}}` or `{"id": 1, "error": {"code": "", "message": ""}}`. With
`"plain": true`, for shells, the answer is `ID ok|error LENGTH` on a line of its own,
so many bytes of text, and the end of their line: who comes after a reader that was
killed finds the next answer at the start of a line. Empty lines are passed over. An id
is a number, or printable ASCII without blanks. Loop thread only.

A tool that writes calls and reads no answers is not read on, and waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any

import msgspec

from edged import jsonrpc
from edged.errors import EdgedError, RemoteProtocolError

CallsHandler = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Calls a tool by name and arguments for the caller of the outer call; returns its
result (contract, section 7). It may raise EdgedError, which the tool is told."""

LINE_MAX = 16 << 20
AT_ONCE = 4
"""Calls of one tool at the same time; the next wait in the descriptor."""
UNREAD_MAX = 16 << 20
"""Bytes of answers that a tool has not read, above which no further call is taken: of
tools that write many calls before they read, as promises do."""
ANSWER_MAX = 16 << 20
"""Bytes of one answer."""

_ANSWER_COST = 4096
"""Bytes that an answer under way takes, however short."""


# Echoed as it is: with a line break, a plain answer would not end where it says.
_Id = int | Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,64}\Z")]


class _Request(msgspec.Struct):
    id: _Id
    name: str
    arguments: dict[str, Any] = {}
    plain: bool = False


class _Error(msgspec.Struct):
    code: str
    message: str


class _Reply(msgspec.Struct, omit_defaults=True):
    id: int | str | None
    result: dict[str, Any] | None = None
    error: _Error | None = None


async def serve(end: socket.socket, handler: CallsHandler) -> None:
    """Answer the calls that come by `end` until the tool closes it; cancel to stop."""
    loop = asyncio.get_running_loop()
    free = asyncio.Semaphore(AT_ONCE)
    turn = asyncio.Lock()
    sent = asyncio.Condition()
    unread = 0

    async def answer(line: bytes) -> None:
        nonlocal unread
        try:
            data = await _answer(line, handler)
            cost = len(data) + _ANSWER_COST
            unread += cost
        finally:
            free.release()
        with contextlib.suppress(ConnectionError):  # the tool has ended and reads no answers
            async with turn:
                await loop.sock_sendall(end, data)
        unread -= cost
        async with sent:
            sent.notify_all()

    async with asyncio.TaskGroup() as tasks:
        async for line in _lines(loop, end):
            await free.acquire()
            async with sent:
                await sent.wait_for(lambda: unread <= UNREAD_MAX)
            tasks.create_task(answer(line))


async def _lines(loop: asyncio.AbstractEventLoop, end: socket.socket) -> AsyncIterator[bytes]:
    buffer = bytearray()
    while data := await _received(loop, end):
        at = len(buffer)
        buffer += data
        while (stop := buffer.find(b"\n", at)) >= 0:
            if stop:
                yield bytes(buffer[:stop])
            del buffer[: stop + 1]
            at = 0
        if len(buffer) > LINE_MAX:
            return


async def _received(loop: asyncio.AbstractEventLoop, end: socket.socket) -> bytes:
    """What came; nothing when the tool closed its end, or was killed with answers unread."""
    try:
        return await loop.sock_recv(end, 1 << 16)
    except ConnectionError:
        return b""


async def _answer(line: bytes, handler: CallsHandler) -> bytes:
    if jsonrpc.crowded(line):
        message = f"the line: {jsonrpc.CROWDED}"
        return _encode(_Reply(None, error=_Error(RemoteProtocolError.code, message)))
    try:
        request = msgspec.json.decode(line, type=_Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _encode(_Reply(None, error=_Error(RemoteProtocolError.code, str(error))))
    reply = _Reply(request.id)
    try:
        reply.result = await handler(request.name, request.arguments)
        data = _plain(reply) if request.plain else _encode(reply)
        if len(data) <= ANSWER_MAX:
            return data
        size = f"{len(data) >> 20} MiB, more than the limit of {ANSWER_MAX >> 20} MiB"
        reply = _Reply(request.id, error=_Error("failed", f"the answer has {size}"))
    except EdgedError as error:
        reply.error = _Error(error.code, str(error))
    except RecursionError as error:  # arguments or a result nested too deeply
        reply = _Reply(request.id, error=_Error(RemoteProtocolError.code, str(error)))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        reply.error = _Error("cancelled", f"the call of {request.name} was cancelled")
    return _plain(reply) if request.plain else _encode(reply)


def _encode(reply: _Reply) -> bytes:
    return msgspec.json.encode(reply) + b"\n"


def _plain(reply: _Reply) -> bytes:
    if reply.error is not None:
        status, text = "error", reply.error.message
    else:
        result = reply.result or {}
        failed = result.get("is_error") or result.get("isError")
        status, text = "error" if failed else "ok", plain_text(result)
    data = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return f"{reply.id} {status} {len(data)}\n".encode() + data + b"\n"


def plain_text(result: dict[str, Any]) -> str:
    """The text blocks of a result; other blocks by their type."""
    return "\n".join(
        block["text"] if block.get("type") == "text" else f"[{block.get('type')}]"
        for block in result.get("content", ())
    )
