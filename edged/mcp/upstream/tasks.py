"""Calls that a server of MCP 2025-11-25 makes only as tasks: asked for, looked at, fetched.

Source: MCP 2025-11-25, basic/utilities/tasks; `execution.taskSupport: required` of a tool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from edged.errors import EdgedError, UpstreamError

TTL_MS = 3_600_000
"""For how long a server should keep a result that nobody fetched: the longest call."""

POLL_S, POLL_LEAST_S, POLL_MOST_S = 1.0, 0.05, 10.0
"""Between two looks, where the server asks for none, and what it may ask for."""

_CANCEL_S = 2.0
_UNDER_WAY = frozenset({"working", "input_required"})

Ask = Callable[[str, dict[str, Any]], Awaitable[bytes]]
"""`ask(method, params)` is one request; its result as JSON."""


class _Task(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")
    status: str = "working"
    message: str | None = msgspec.field(name="statusMessage", default=None)
    poll_ms: float | None = msgspec.field(name="pollInterval", default=None)


class _Created(msgspec.Struct):
    task: _Task


async def call(ask: Ask, params: dict[str, Any], on_status: Callable[[str], None]) -> bytes:
    """Call a tool as a task and wait for its result, as JSON.

    Args:
        ask: see `Ask`.
        params: of `tools/call`.
        on_status: gets what the server says of its state.

    Raises:
        UpstreamError: it makes no task, or the task is lost.
        asyncio.CancelledError: the task was cancelled there too.
    """
    raw = await ask("tools/call", {**params, "task": {"ttl": TTL_MS}})
    try:
        task = msgspec.json.decode(raw, type=_Created).task
    except (msgspec.DecodeError, RecursionError):
        # It answered at once.
        return raw
    try:
        said = None
        while task.status in _UNDER_WAY:
            if task.message and task.message != said:
                said = task.message
                on_status(said)
            wanted = POLL_S if task.poll_ms is None else task.poll_ms / 1000
            await asyncio.sleep(min(max(wanted, POLL_LEAST_S), POLL_MOST_S))
            if task.status == "input_required":
                # It is told with the result that nobody here can answer.
                break
            task = _task(await ask("tasks/get", {"taskId": task.task_id}))
        return await ask("tasks/result", {"taskId": task.task_id})
    except asyncio.CancelledError:
        await _cancel(ask, task.task_id)
        raise


def _task(raw: bytes) -> _Task:
    try:
        return msgspec.json.decode(raw, type=_Task)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UpstreamError(f"its task is none: {error}") from None


async def _cancel(ask: Ask, task_id: str) -> None:
    try:
        async with asyncio.timeout(_CANCEL_S):
            await ask("tasks/cancel", {"taskId": task_id})
    except (TimeoutError, EdgedError):
        # It may have ended meanwhile, or be gone.
        return
