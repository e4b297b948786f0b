"""Shapes and names that the parts of MCP share.

Source: Model Context Protocol, revisions 2026-07-28 and 2025-11-25.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from edged.errors import InvalidArgumentsError, RemoteProtocolError
from edged.tool import Interrupted

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions that begin with `initialize`, the newest first."""

MODERN = "2026-07-28"
"""The stateless one."""

META = "io.modelcontextprotocol/"
"""Prefix of the keys in `_meta` that are the specification's."""

INSTANCE = "edged/instance"
"""In `_meta` of what a daemon says of itself: which one it is."""

VIA = "edged/via"
"""In `_meta` of a tool of another server: the daemons that it comes through."""

TASKS = META + "tasks"
"""The extension for calls that go on after their answer (SEP-2663)."""

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

RESOURCE_NOT_FOUND = -32002
"""What the revisions before the stateless one have in place of invalid params."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Severities of log messages, the lowest first (RFC 5424)."""


class Meta(msgspec.Struct, frozen=True, gc=False):
    """`_meta` of a request: the specification's keys and edged's own."""

    progress_token: msgspec.Raw = msgspec.field(name="progressToken", default=msgspec.Raw())
    version: str | None = msgspec.field(name=META + "protocolVersion", default=None)
    capabilities: dict[str, Any] | None = msgspec.field(
        name=META + "clientCapabilities", default=None
    )
    log_level: str | None = msgspec.field(name=META + "logLevel", default=None)
    channel: str = msgspec.field(name="edged/channel", default="")
    chat_id: str = msgspec.field(name="edged/chat_id", default="")
    timeout_s: float | None = msgspec.field(name="edged/timeout", default=None)

    @property
    def takes_tasks(self) -> bool:
        """Whether its client declares that it goes on with a task in place of a result."""
        extensions = (self.capabilities or {}).get("extensions")
        return isinstance(extensions, dict) and TASKS in extensions


NO_META = Meta()

BESIDE_MAX = 64 << 10
"""Bytes of an agent's request beside the arguments of a call, which alone are counted."""

CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""The capability that a client needs for each question."""

_CAPABILITY_MAX = 1 << 10


def known(capabilities: dict[str, Any] | None) -> dict[str, Any]:
    """The capabilities of a client that are of use; they are kept as long as it is there."""
    return {
        name: value
        for name, value in (capabilities or {}).items()
        if name in CAPABILITIES.values() and len(msgspec.json.encode(value)) <= _CAPABILITY_MAX
    }


class Request(msgspec.Struct, gc=False):
    """One request: its id and params as they came, and whether it is a stateless one."""

    id: bytes
    method: str
    params: bytes
    modern: bool
    meta: Meta = NO_META


class Send(Protocol):
    """Takes whole lines for a peer.

    Args:
        line: the message.
        about: id of the request that it answers or belongs to; empty for none.
        ends: None while that request stays open; 0 with its result, else the error's code.
    """

    def __call__(self, line: bytes, about: bytes = b"", ends: int | None = None, /) -> None:
        """Take one line."""


class RpcError(Exception):
    """An error of JSON-RPC as it goes out."""

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        self.code, self.data = code, data
        super().__init__(text)


class UnsupportedVersionError(RemoteProtocolError):
    """A revision that is not spoken here."""

    def __init__(self, version: str) -> None:
        self.version = version
        spoken = ", ".join((MODERN, *LEGACY))
        super().__init__(
            f"protocol version {version[:40]!r} is not supported: this server speaks {spoken}"
        )


class MissingMetaError(InvalidArgumentsError):
    """What every stateless request carries in `_meta` is not there."""


class InputRequired(Interrupted):
    """The client is to answer questions, and to send the request again with what it said."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value
        super().__init__("it needs an answer of the client first")


class MissingCapabilityError(Interrupted):
    """The request needs what its client did not declare."""

    def __init__(self, required: dict[str, Any]) -> None:
        self.required = required
        super().__init__(f"the client does not declare {', '.join(required)}")
