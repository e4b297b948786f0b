"""The services that are made when first needed: web, skills, jobs, agents, MCP servers.

Each is imported by the function that makes it: a board that uses none of them pays
for none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from edged import sections
from edged.acts import McpServers
from edged.catalogue import seed_directory
from edged.config import seconds, size
from edged.errands import Errands
from edged.errors import ConfigError
from edged.registry import Registry
from edged.results import mask
from edged.services import Services
from edged.settings import Loaded

if TYPE_CHECKING:
    from edged.agents.line import Line
    from edged.agents.service import Service as AgentsService
    from edged.cron.scheduler import Spawn
    from edged.cron.service import Cron
    from edged.mcp.upstream.programs import Sandboxes
    from edged.mcp.upstream.servers import Servers
    from edged.messages._outbox import Outbox
    from edged.skills.service import Skills
    from edged.web.service import Isolate, Web


def web(loaded: Loaded, services: Services, isolate: Isolate) -> Web:
    """Search and fetch."""
    from edged.web.service import Web

    section = loaded.section(sections.Web)
    return Web(section, services.store, services.media, services.clock, isolate)


def skills(loaded: Loaded, services: Services) -> Skills:
    """The skills of all users."""
    from edged.sandbox.account import tool_account
    from edged.skills.service import Skills

    return Skills(
        services.data,
        loaded.section(sections.Skills),
        web=loaded.section(sections.Web),
        clock=services.clock,
        account=tool_account,
        seed=os.path.join(os.path.dirname(seed_directory()), "skills"),
        changed=lambda user, facts: services.events.publish("skills.changed", user, facts),
    )


def jobs_file(data: str) -> str:
    """Where the jobs lie: the file is there once there was one."""
    return os.path.join(data, "cron", "jobs.db")


def cron(
    loaded: Loaded,
    services: Services,
    errands: Errands,
    *,
    spawn: Spawn,
    is_on: Callable[[], bool],
) -> Cron:
    """The jobs, not opened yet."""
    from edged.cron.service import Cron, Limits
    from edged.cron.zones import system_zone

    section = loaded.section(sections.Cron)
    return Cron(
        jobs_file(services.data),
        Limits(
            seconds(section.min_interval),
            seconds(section.misfire_grace),
            section.max_jobs,
            tuple(section.command_channels),
        ),
        services.clock,
        errands,
        spawn=spawn,
        publish=services.events.publish,
        local=system_zone(),
        is_on=is_on,
    )


def outbox(loaded: Loaded, services: Services, spawn: Spawn) -> Outbox | None:
    """The outbox and its channels, not opened yet; None where no channel is configured.

    Raises:
        ConfigError: a channel cannot be made of what is configured.
    """
    section = loaded.section(sections.Messages)
    if not section.channels:
        return None
    from edged.messages import Surroundings
    from edged.messages._channels import open_channels
    from edged.messages._outbox import Limits, Outbox

    around = Surroundings(services.clock, services.events.publish, services.media.put)
    try:
        channels = open_channels(section.channels, around)
    except ConfigError as error:
        raise loaded.located(error) from None
    return Outbox(
        os.path.join(services.data, "outbox"),
        channels,
        section.default or next(iter(channels)),
        Limits(section.count, size(section.size), seconds(section.give_up)),
        services.clock,
        services.events,
        spawn=spawn,
        mask=lambda text: mask(text, loaded.secrets),
    )


def has_mcp_servers(loaded: Loaded, services: Services) -> bool:
    """Whether there is another MCP server, configured or added by an owner."""
    added = os.path.exists(services.store.path(McpServers.FILE))
    return bool(loaded.section(sections.Mcp).servers) or added


def mcp_servers(
    loaded: Loaded,
    services: Services,
    registry: Registry,
    *,
    sandboxes: Callable[[], Sandboxes],
    spawn: Spawn,
) -> Servers:
    """Other MCP servers, not started yet.

    Raises:
        StoreError: those that owners added cannot be read.
    """
    from edged.mcp.upstream.servers import Servers, Surroundings

    base = os.path.dirname(os.path.abspath(loaded.file)) if loaded.file else ""
    around = Surroundings(
        services.data,
        base,
        services.store,
        registry,
        services.clock,
        sandboxes,
        spawn,
        services.events.publish,
        loaded.tools,
        loaded.secrets,
        services.instance,
        lambda: services.policy.sockets,
    )
    return Servers(loaded.section(sections.Mcp), around)


def has_subagents(data: str) -> bool:
    """Whether a task was given to a subagent, in this life or an earlier one."""
    return os.path.isdir(os.path.join(data, "subagents"))


def agents(loaded: Loaded, services: Services, errands: Errands, *, spawn: Spawn) -> AgentsService:
    """Agents and subagents."""
    from edged.agents.service import Service

    section = loaded.section(sections.Subagent)

    def open_line(name: str, settings: sections.ModelProvider) -> Line:
        from edged.agents.line import Line

        return Line(name, settings, now=services.clock.now)

    return Service(
        services.data,
        section,
        services.clock,
        errands,
        spawn=spawn,
        publish=services.events.publish,
        open_line=open_line,
        seeds=os.path.join(os.path.dirname(seed_directory()), "agents"),
        masked=loaded.secrets,
    )
