"""How other MCP servers are shown, on every door. Light: the doors import it at their start."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from edged.sections import McpServer

State: TypeAlias = Literal["asleep", "starting", "ready", "failed", "stopped"]


class Health(msgspec.Struct, frozen=True):
    """How one server is.

    Attributes:
        error: why it is not ready, or why it was ended the last time.
        left_out: its tools that are not taken, with the reason.
        stderr: the end of what it wrote there.
        skipped: lines that were no messages.
        starts: how often it was started.
    """

    state: State
    link: str
    tools: int
    error: str = ""
    left_out: tuple[str, ...] = ()
    stderr: str = ""
    server: dict[str, Any] = {}
    version: str = ""
    pid: int = 0
    calls: int = 0
    skipped: int = 0
    starts: int = 0


class Row(msgspec.Struct, frozen=True):
    """One server for people and programs; of variables and headers only the names.

    Attributes:
        origin: `configuration`, or `added` by an owner at run time.
    """

    name: str
    origin: str
    enabled: bool
    link: str
    target: str
    health: Health
    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


class Rows(msgspec.Struct, frozen=True):
    """All of them, by name."""

    servers: list[Row]


class Removed(msgspec.Struct, frozen=True):
    """It is gone; `home` has what it kept, where anything of that is left on the disk."""

    status: Literal["ok"] = "ok"
    home: str | msgspec.UnsetType = msgspec.UNSET


class Addition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server to add; `replace` changes one that is there."""

    name: Annotated[str, Meta(max_length=40)]
    server: McpServer
    replace: bool = False
