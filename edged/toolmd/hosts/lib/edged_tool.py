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
    # The line break before it ends the call of a caller that was killed while it wrote.
    data = b"\n" + json.dumps(request, allow_nan=False).encode() + b"\n"
    _acquire()
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        reply = _reply(descriptor, request["id"])
    finally:
        _moved(str(os.getpid()), "free")
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
    """Moves the token to a name of one's own; that of a dead holder is moved back first.

    A name is of one process, so whoever comes too late moves nothing.
    """
    directory, _, prefix = LOCK.rpartition("/")
    while not _moved("free", str(os.getpid())):
        for name in os.listdir(directory):
            start, _, holder = name.rpartition(".")
            if start == prefix and holder != "free" and not os.path.exists(f"/proc/{holder}"):
                _moved(holder, "free")
        time.sleep(0.002)


def _moved(source: str, target: str) -> bool:
    try:
        os.rename(f"{LOCK}.{source}", f"{LOCK}.{target}")
    except FileNotFoundError:
        return False
    return True


def _reply(descriptor: int, wanted: int) -> dict:
    data = bytearray()
    while True:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            raise ToolError("the daemon closed the connection", "closed")
        data += chunk
        while b"\n" in data:
            line, _, data = data.partition(b"\n")
            # Others are answers to callers that were killed, or the rest of one.
            with contextlib.suppress(ValueError, TypeError, LookupError):
                reply = json.loads(line)
                if reply["id"] == wanted:
                    return reply
