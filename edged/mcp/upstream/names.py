"""What the tools of other MCP servers are called here: `mcp_SERVER_TOOL`, safe and unique.

Pure. A name follows from the configuration's servers and the tool's own name alone, so
that it is the same tomorrow; what is lossy or too long ends with a part of a hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

NAME_MAX = 40
"""Clients put a prefix of their own before it, and refuse names over 64 characters."""

_DIGITS = 6
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def published(server: str, tool: str, servers: Collection[str]) -> str:
    """The name of a server's tool.

    Args:
        server: its name in the configuration, `[A-Za-z0-9_-]`.
        tool: as the server names it; any text.
        servers: names of all servers: `a_b` with `c` must not be `a` with `b_c`.
    """
    name = f"mcp_{server}_{tool}"
    ambiguous = any(
        name.startswith(f"mcp_{other}_") and len(other) > len(server)
        for other in servers
        if other != server
    )
    if len(name) <= NAME_MAX and _UNSAFE.search(name) is None and tool and not ambiguous:
        return name
    mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()
    safe = _UNSAFE.sub("_", name)[: NAME_MAX - _DIGITS - 1].rstrip("_")
    return f"{safe}_{mark[:_DIGITS]}"
