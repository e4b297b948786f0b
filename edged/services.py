"""The daemon's long-lived parts, as one frozen record that tools are handed."""

from __future__ import annotations

from typing import Any

import msgspec

from edged.audit import Trail
from edged.board import Board
from edged.clock import Clock
from edged.config import Config
from edged.events import Events
from edged.history import History
from edged.media import Media
from edged.store import Store


class Services(msgspec.Struct, frozen=True):
    """What a built-in tool may reach through `Context.services`."""

    config: Config
    clock: Clock
    data: str
    store: Store
    events: Events
    media: Media
    trail: Trail
    board: Board
    describe: Any
    """`describe(caller, name, session)`: a tool's schema, source, permissions and body."""
    history: History | None = None
    """Samples on disk; None where the board keeps none."""
    serial: Any = None
    """`edged.tools.serial.SerialSessions`: ports that callers keep open."""
    finder: Any = None
    """`edged.finder.Finder`: searches for hidden tools."""
    policy: Any = None
    """What callers may reach beside their own, and what the owner was asked."""
    workspace: Any = None
    """The callers' files."""
    shell: Any = None
    """Commands and their sessions."""
    cron: Any = None
    """`cron()`: jobs on schedules, `edged.cron.service.Cron`; made when first asked for."""
    web: Any = None
    """`web()`: search and fetch (`edged.web.service.Web`), made when first asked for."""
    messages: Any = None
    """`messages()`: the outbox (`edged.messages._outbox.Outbox`); None without channels."""
    skills: Any = None
    """`skills()`: `edged.skills.service.Skills`, made when first asked for."""
    mcp_servers: Any = None
    """`mcp_servers()`: `edged.mcp.upstream.servers.Servers`, made when first asked for."""
    agents: Any = None
    """`agents()`: `edged.agents.service.Service`, made when first asked for."""
    instance: str = ""
    """By which this daemon knows its own tools on another board (`edged.instance`)."""
