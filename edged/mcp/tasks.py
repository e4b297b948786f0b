"""The tasks extension: a call that goes on after its answer, for clients that take that.

A call becomes a task when its tool says that it will be long, or after a while. It is its
caller's, survives the connection and the client, and ends with the daemon: what was not
fetched by then is gone. Loop thread only. Source: SEP-2663 (io.modelcontextprotocol/tasks).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edged import jsonrpc
from edged.clock import iso
from edged.control import Control
from edged.dispatch import Call
from edged.errors import BusyError, Fault, InvalidArgumentsError
from edged.identity import Caller
from edged.mcp.asking import fits
from edged.mcp.server import Connection, error_of, mcp_result
from edged.mcp.types import TASKS, MissingCapabilityError, Request
from edged.tool import Ask

TASKS_MAX = 64
"""Tasks of one caller, a uid or a token; of the ended ones the oldest makes room."""

KEPT_S = 3_600.0
"""How long a result waits, from the time when the call must be over."""

POLL_MS = 1_000
"""How often to ask."""

STATUS_MAX = 500
"""Characters of the message that goes with a status."""


class Task:
    """One call that became a task."""

    def __init__(self, tasks: Tasks, caller: Caller, call: Call) -> None:
        self.id = os.urandom(16).hex()
        self.caller = caller
        self.watchers: dict[object, Callable[[dict[str, Any]], None]] = {}
        self._tasks = tasks
        self._call: Call | None = call
        self._clock = tasks.control.services.clock
        limit = call.tool.timeout_s if call.tool is not None else 0.0
        self._ttl_ms = int((limit + KEPT_S) * 1_000)
        self._born = self._clock.monotonic()
        self._created = self._changed = iso(self._clock.now())
        self._message = ""
        self._end: dict[str, Any] = {}
        self._asks: dict[str, Ask] = {}
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._named: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        """Whether its call has ended."""
        return bool(self._end)

    @property
    def is_old(self) -> bool:
        """Whether nobody fetched it in time."""
        return (self._clock.monotonic() - self._born) * 1_000 > self._ttl_ms

    def facts(self) -> dict[str, Any]:
        """The task as `tasks/get` and its notifications show it."""
        status: dict[str, Any] = {"status": "working"}
        if self._end:
            status = self._end
        elif self._asks:
            requests = {
                key: {"method": ask.method, "params": ask.params}
                for key, ask in self._asks.items()
            }
            status = {"status": "input_required", "inputRequests": requests}
        return {**self.seed(), **status}

    def seed(self) -> dict[str, Any]:
        """The part that its first answer has."""
        return {
            "taskId": self.id,
            "status": "working",
            **({"statusMessage": self._message} if self._message else {}),
            "createdAt": self._created,
            "lastUpdatedAt": self._changed,
            "ttlMs": self._ttl_ms,
            "pollIntervalMs": POLL_MS,
        }

    def say(self, message: str) -> None:
        """Progress of the call."""
        self._message = message[:STATUS_MAX]
        self._touch()

    async def ask(self, asks: Mapping[str, Ask]) -> dict[str, Any]:
        """Have the client answer through `tasks/update`."""
        names = {key: self._name(key) for key in asks}
        loop = asyncio.get_running_loop()
        futures = {key: loop.create_future() for key in asks}
        for key, ask in asks.items():
            self._asks[names[key]] = ask
            self._answers[names[key]] = futures[key]
        self._touch()
        try:
            return dict(zip(asks, await asyncio.gather(*futures.values()), strict=True))
        finally:
            for name in names.values():
                self._asks.pop(name, None)
                self._answers.pop(name, None)

    def _name(self, key: str) -> str:
        """A key is never used twice in a task's life."""
        self._named[key] = count = self._named.get(key, 0) + 1
        return key if count == 1 else f"{key}-{count}"

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Take what fits the open questions; whatever else is ignored."""
        for name, response in responses.items():
            ask = self._asks.get(name)
            if ask is not None and fits(ask, response):
                del self._asks[name]
                self._answers.pop(name).set_result(response)
        self._touch()

    def cancel(self) -> None:
        """Ask its call to end."""
        if self._call is not None:
            self._call.cancel()

    def ended(self) -> None:
        """Its call is over."""
        call, self._call = self._call, None
        if call is None:
            return
        if call.interrupted is not None:
            code, text, data = error_of(call.interrupted)
            error = {"code": code, "message": text} | ({} if data is None else {"data": data})
            self._end = {"status": "failed", "error": error}
        elif call.result is not None:
            result = msgspec.Raw(mcp_result(call.result, modern=True))
            self._end = {"status": "completed", "result": result}
        else:
            self._end = {"status": "cancelled"}
        self._touch()
        self.watchers.clear()

    def _touch(self) -> None:
        self._changed = iso(self._clock.now())
        for tell in tuple(self.watchers.values()):
            tell(self.facts())


class Tasks:
    """All tasks of the daemon."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self._tasks: dict[str, Task] = {}

    def add(self, caller: Caller, call: Call) -> Task:
        """Make a call a task.

        Raises:
            BusyError: as many of its caller's go on as may.
        """
        own = [task for task in self._tasks.values() if task.caller.who == caller.who]
        for task in own:
            if task.is_over and task.is_old:
                del self._tasks[task.id]
        own = [task for task in own if task.id in self._tasks]
        if len(own) >= TASKS_MAX:
            oldest = next((task for task in own if task.is_over), None)
            if oldest is None:
                raise BusyError(f"{TASKS_MAX} tasks of {caller.who} go on")
            del self._tasks[oldest.id]
        task = Task(self, caller, call)
        self._tasks[task.id] = task
        return task

    def find(self, caller: Caller, name: str) -> Task | None:
        """A caller's task."""
        task = self._tasks.get(name)
        if task is None or (task.is_over and task.is_old):
            return None
        own = task.caller
        same = (own.user, own.role, own.peer) == (caller.user, caller.role, caller.peer)
        return task if same else None


def tasks_of(control: Control) -> Tasks:
    """The daemon's, made for the first."""
    if control.tasks is None:
        control.tasks = Tasks(control)
    found: Tasks = control.tasks
    return found


def begin(connection: Connection, raw_id: bytes, call: Call) -> Task:
    """Answer a call with a task, which goes on."""
    task = tasks_of(connection.control).add(connection.identity, call)
    value = {"resultType": "task", **task.seed()}
    connection.send(jsonrpc.result(raw_id, value), raw_id, 0)
    return task


def watch(
    connection: Connection, name: str, tell: Callable[[dict[str, Any]], None]
) -> Callable[[], None] | None:
    """Have `tell` called whenever a task changes; None where there is none of that id."""
    task = tasks_of(connection.control).find(connection.identity, name)
    if task is None:
        return None
    key = object()
    task.watchers[key] = tell

    def stop() -> None:
        task.watchers.pop(key, None)

    return stop


class _Params(msgspec.Struct, gc=False):
    task_id: str = msgspec.field(name="taskId")
    input_responses: dict[str, Any] = msgspec.field(name="inputResponses", default_factory=dict)


def _asked(connection: Connection, request: Request) -> tuple[Task, _Params]:
    if not request.meta.takes_tasks:
        raise MissingCapabilityError({"extensions": {TASKS: {}}})
    params = msgspec.json.decode(request.params or b"{}", type=_Params)
    task = tasks_of(connection.control).find(connection.identity, params.task_id)
    if task is None:
        reason = "there is no such task (any more): they end with the daemon"
        raise InvalidArgumentsError([Fault("taskId", reason)])
    return task, params


def _get(connection: Connection, request: Request) -> None:
    connection.answer(request, _asked(connection, request)[0].facts())


def _update(connection: Connection, request: Request) -> None:
    task, params = _asked(connection, request)
    task.answer(params.input_responses)
    connection.answer(request, {})


def _cancel(connection: Connection, request: Request) -> None:
    _asked(connection, request)[0].cancel()
    connection.answer(request, {})


METHODS: dict[str, Callable[[Connection, Request], None]] = {
    "tasks/get": _get,
    "tasks/update": _update,
    "tasks/cancel": _cancel,
}
