"""`subscriptions/listen`: one request that stays open, and tells of what its client asked for.

Every message of it names it in `_meta`. Source: MCP 2026-07-28, subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edged import jsonrpc
from edged.errors import BusyError, Fault, InvalidArgumentsError
from edged.mcp.server import Connection
from edged.mcp.types import META, TASKS, MissingCapabilityError, Request

LISTENS_MAX = 16
"""Open ones of one connection."""

RESOURCES_MAX = 256
"""Resources, and tasks, that one of them may name."""


class _Filter(msgspec.Struct, gc=False, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


class _Params(msgspec.Struct, gc=False):
    notifications: _Filter


def _listen(connection: Connection, request: Request) -> None:
    wanted = msgspec.json.decode(request.params or b"{}", type=_Params).notifications
    if len(connection.listens) >= LISTENS_MAX:
        raise BusyError(f"{LISTENS_MAX} subscriptions are open: cancel one")
    _check(wanted, request)
    meta = {META + "subscriptionId": msgspec.Raw(request.id)}
    stops: list[Callable[[], None]] = []

    def say(method: str, params: dict[str, Any]) -> None:
        body = {"_meta": meta, **params}
        connection.send(jsonrpc.notification(method, body), request.id)

    kinds = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
    }

    def changed(kind: str) -> None:
        if kinds[kind] and not connection.is_behind(request.id):
            say(f"notifications/{kind}/list_changed", {})

    honoured: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds if kinds[kind]}
    if wanted.resource_subscriptions:
        honoured["resourceSubscriptions"] = _watch_resources(
            connection, request.id, wanted, say, stops
        )
    if wanted.task_ids:
        honoured["taskIds"] = _watch_tasks(connection, wanted, say, stops)
    connection.listen(request.id, changed, lambda: [stop() for stop in stops])
    say("notifications/subscriptions/acknowledged", {"notifications": honoured})


def _check(wanted: _Filter, request: Request) -> None:
    """Refuse what is too much, or needs what the client does not declare."""
    for name in ("resource_subscriptions", "task_ids"):
        if len(getattr(wanted, name)) > RESOURCES_MAX:
            reason = f"names more than {RESOURCES_MAX}"
            raise InvalidArgumentsError([Fault(f"notifications.{name}", reason)])
    if wanted.task_ids and not request.meta.takes_tasks:
        raise MissingCapabilityError({"extensions": {TASKS: {}}})


Say = Callable[[str, dict[str, Any]], None]


def _watch_resources(
    connection: Connection,
    raw_id: bytes,
    wanted: _Filter,
    say: Say,
    stops: list[Callable[[], None]],
) -> list[str]:
    from edged.mcp.resources import watch  # noqa: PLC0415  only for who watches one

    found = []
    for uri in dict.fromkeys(wanted.resource_subscriptions):

        def tell(uri: str = uri) -> None:
            if not connection.is_behind(raw_id):
                say("notifications/resources/updated", {"uri": uri})

        stop = watch(connection, uri, tell)
        if stop is not None:
            stops.append(stop)
            found.append(uri)
    return found


def _watch_tasks(
    connection: Connection, wanted: _Filter, say: Say, stops: list[Callable[[], None]]
) -> list[str]:
    from edged.mcp.tasks import watch  # noqa: PLC0415  only for who watches one

    found = []
    for name in dict.fromkeys(wanted.task_ids):
        stop = watch(connection, name, lambda facts: say("notifications/tasks", facts))
        if stop is not None:
            stops.append(stop)
            found.append(name)
    return found


METHODS: dict[str, Callable[[Connection, Request], None]] = {"subscriptions/listen": _listen}
