"""What owners set at run time, of every part that lets them: a part that does adds itself here."""

from __future__ import annotations

from collections.abc import Callable

from edged.acts import Acts, McpServers, Switches
from edged.store import Store
from edged.web.acts import WebSearch


def overrides(
    store: Store,
    *,
    switches: Callable[[dict[str, bool]], None] = lambda _: None,
    web: Callable[[], None] = lambda: None,
    mcp_servers: Callable[[list[str]], None] = lambda _: None,
) -> list[Acts]:
    """The settings of every part.

    Args:
        store: has them.
        switches: uses the switches that are left when some are dropped; without a daemon
            nobody does.
        web: reads what is left of web search, likewise.
        mcp_servers: ends the MCP servers of these names, likewise.
    """
    return [
        Switches(store, switches),
        WebSearch(store, web),
        McpServers(store, mcp_servers),
    ]
