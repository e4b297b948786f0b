"""Shapes and names that the parts of MCP share.

Source: Model Context Protocol, revisions 2026-07-28 and 2025-11-25.
"""

from __future__ import annotations

from typing import Any

import msgspec

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with `initialize`, the newest first."""

MODERN = "2026-07-28"
"""The stateless one."""

META = "io.modelcontextprotocol/"
"""Prefix of the keys in `_meta` that are the specification's."""

UNSUPPORTED_VERSION = -32022


class Meta(msgspec.Struct, frozen=True, gc=False):
    """`_meta` of a request: the specification's keys and edged's own."""

    progress_token: msgspec.Raw = msgspec.field(name="progressToken", default=msgspec.Raw())
    version: str | None = msgspec.field(name=META + "protocolVersion", default=None)
    capabilities: dict[str, Any] | None = msgspec.field(
        name=META + "clientCapabilities", default=None
    )
    channel: str = msgspec.field(name="edged/channel", default="")
    chat_id: str = msgspec.field(name="edged/chat_id", default="")
    timeout_s: float | None = msgspec.field(name="edged/timeout", default=None)


NO_META = Meta()


class Request(msgspec.Struct, gc=False):
    """One request: its id and params as they came, and whether it is a stateless one."""

    id: bytes
    params: bytes
    modern: bool
