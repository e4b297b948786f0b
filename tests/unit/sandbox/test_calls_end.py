"""The daemon's end of a tool's calls, when the tool is gone."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from edged.sandbox import calls


async def test_a_tool_killed_with_answers_unread_is_the_end_and_no_fault() -> None:
    """unix(7): closing with data unread resets the connection."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    answered = asyncio.Event()

    async def handler(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answered.set()
        return {"content": []}

    with ours:
        serving = asyncio.create_task(calls.serve(ours, handler))
        theirs.sendall(b'{"id":1,"name":"x","arguments":{}}\n')
        async with asyncio.timeout(10):
            await answered.wait()
            while not theirs.recv(1, socket.MSG_PEEK):
                await asyncio.sleep(0)
            theirs.close()
            await serving
