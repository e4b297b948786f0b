"""Calls other tools of the daemon from inside a Python tool.

For tools that declare `calls: [...]`:

    from edged_tool import call
    reading = call("sensor", action="read", name="greenhouse")
    print(reading["content"][0]["text"])

Tools find it without a path. Programs that a tool starts find it in /edged/lib.
One JSON line per request and reply on the inherited descriptor EDGED_CALLS_FD;
processes and threads of a tool take turns by a lock file.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

LOCK = os.environ.get("EDGED_CALLS_LOCK", "")


class ToolError(Exception):
    """The called tool failed or may not be called; `code` is stable."""

    def __init__(self, message: str, code: str = "failed", result: dict | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.result = result


def call(tool: str, /, **arguments: object) -> dict:
    """Calls `tool` and returns its result, a dict with `content`.

    Raises ToolError when the tool failed, is not among the `calls:` of this
    tool's TOOL.md, or its arguments do not fit.
    """
    descriptor = int(os.environ.get("EDGED_CALLS_FD", "-1"))
    if descriptor < 0:
        raise ToolError(
            f"this tool may not call others: add `calls: [{tool}]` to TOOL.md", "denied"
        )
    request = {"id": time.monotonic_ns(), "name": tool, "arguments": arguments}
    data = json.dumps(request, allow_nan=False).encode() + b"\n"
    _acquire()
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        reply = _reply(descriptor, request["id"])
    finally:
        _remove(LOCK)
    if "error" in reply:
        raise ToolError(reply["error"]["message"], reply["error"]["code"])
    result = reply["result"]
    if result.get("is_error") or result.get("isError"):
        raise ToolError(text(result), result=result)
    return result


async def acall(tool: str, /, **arguments: object) -> dict:
    """`call` for async tools: the event loop runs on meanwhile."""
    import asyncio

    return await asyncio.to_thread(call, tool, **arguments)


def text(result: dict) -> str:
    """The text blocks of a result, joined by newlines."""
    return "\n".join(b["text"] for b in result.get("content", ()) if b.get("type") == "text")


def _acquire() -> None:
    """Takes the lock: a link whose target is the holder, so that a dead one is noticed."""
    while True:
        try:
            os.symlink(f"/proc/{os.getpid()}", LOCK)
            return
        except FileExistsError:
            if os.path.islink(LOCK) and not os.path.exists(LOCK):
                _remove(LOCK)
            else:
                time.sleep(0.002)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _reply(descriptor: int, wanted: int) -> dict:
    data = bytearray()
    while True:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            raise ToolError("the daemon closed the connection", "closed")
        data += chunk
        while b"\n" in data:
            line, _, data = data.partition(b"\n")
            reply = json.loads(line)
            if reply["id"] == wanted:
                return reply
