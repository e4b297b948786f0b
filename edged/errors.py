"""The error hierarchy: stable codes, and the one table that maps them to wires.

Knows nothing of any other module. Every leaf is also the builtin that a Python
user would catch. Messages say what went wrong, where, and what to do.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Self


class EdgedError(Exception):
    """Any fault that edged reports; `code` is stable on every wire."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    @classmethod
    def told(cls, text: str) -> Self:
        """The error that another process told of: its text; all else is as the class has it."""
        error = cls.__new__(cls, text)
        error.args = (text,)
        return error


class ConfigError(EdgedError, ValueError):
    """A configuration, TOOL.md or data file that cannot be used.

    Attributes:
        file: path as the user knows it; empty when there is none.
        line: 1-based line, or 0 when unknown.
        key: dotted key path, or empty.
        reason: what is wrong and what to write instead.
        faults: each fault on its own, when this error stands for several.
    """

    code = "config"
    reason: str = ""
    file: str = ""
    line: int = 0
    key: str = ""
    faults: tuple[ConfigError, ...] = ()

    def __init__(
        self,
        reason: str,
        *,
        file: str = "",
        line: int = 0,
        key: str = "",
        faults: tuple[ConfigError, ...] = (),
    ) -> None:
        self.reason, self.file, self.line, self.key = reason, file, line, key
        self.faults = faults
        place = f"{file}:{line}" if file and line else file
        super().__init__(": ".join(part for part in (place, key, reason) if part))


class UnknownToolError(EdgedError, LookupError):
    """No tool of that name for this caller."""

    code = "unknown_tool"
    name: str = ""

    def __init__(self, name: str, nearest: str = "", *, is_hidden: bool = False) -> None:
        self.name = name
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        if is_hidden:
            search = "tool_search_tool_bm25 or tool_search_tool_regex"
            hint = f" is unlocked: it is hidden, and is called once {search} found it"
        super().__init__(f"no tool named {name!r}{hint}")


class NotFoundError(EdgedError, LookupError):
    """A medium, call, token or other named thing that is not there."""

    code = "not_found"


class ExistsError(EdgedError, FileExistsError):
    """Something of that name is there, and is not replaced unasked."""

    code = "exists"


class Fault(NamedTuple):
    """One fault of a call's arguments: where, and what to do."""

    path: str
    reason: str


class InvalidArgumentsError(EdgedError, ValueError):
    """Arguments that do not fit a tool's inputs; carries every fault."""

    code = "invalid_arguments"
    faults: tuple[Fault, ...] = ()

    def __init__(self, faults: tuple[Fault, ...] | list[Fault], where: str = "") -> None:
        self.faults = tuple(faults)
        text = "; ".join(f"{f.path}: {f.reason}" if f.path else f.reason for f in self.faults)
        # An input may be named as its tool is.
        told = text.startswith(f"{where}: ") or not where
        super().__init__(text if told else f"{where}: {text}")


class UnauthenticatedError(EdgedError, PermissionError):
    """No valid token came with the request."""

    code = "unauthenticated"


class DeniedError(EdgedError, PermissionError):
    """The caller is known but may not do this.

    Attributes:
        unconfirmed: what a person could still agree to, as in "wants to …"; else empty.
    """

    code = "denied"
    unconfirmed: str = ""

    def __init__(self, reason: str, *, unconfirmed: str = "") -> None:
        self.unconfirmed = unconfirmed
        super().__init__(reason)


class ToolUnavailableError(EdgedError, RuntimeError):
    """The tool exists but is disabled or blocked; `reason_code` says why."""

    code = "unavailable"
    name: str = ""
    status: str = ""
    reason_code: str = ""
    remedy: str = ""

    def __init__(self, name: str, status: str, reason_code: str, remedy: str) -> None:
        self.name, self.status, self.reason_code, self.remedy = name, status, reason_code, remedy
        detail = f" ({reason_code})" if reason_code else ""
        super().__init__(f"tool {name!r} is {status}{detail}: {remedy}")


class BusyError(EdgedError, RuntimeError):
    """A resource is taken; the message names its holder."""

    code = "busy"
    retryable = True


class StoppingError(EdgedError, RuntimeError):
    """The daemon is on its way down; another one may come up."""

    code = "stopping"
    retryable = True

    def __init__(self) -> None:
        super().__init__("edged is stopping and takes no new calls")


class RateLimitedError(EdgedError, RuntimeError):
    """Too many requests from one caller."""

    code = "rate_limited"
    retryable = True
    retry_after_s: float = 0.0

    def __init__(self, message: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class TooLargeError(EdgedError, ValueError):
    """A message, body or file over its limit; the message names the limit."""

    code = "too_large"


class CallTimeoutError(EdgedError, TimeoutError):
    """A call's time is over."""

    code = "timeout"
    retryable = True


class NoDeviceError(EdgedError, ConnectionError):
    """Nothing answers at that bus and address, or no such line."""

    code = "no_device"
    retryable = True


class BusError(EdgedError, OSError):
    """A transfer failed; `errno` is the kernel's."""

    code = "bus"
    retryable = True

    def __str__(self) -> str:
        """The message, without the number that `OSError` puts before it."""
        return str(self.strerror or super().__str__())


class DataError(EdgedError, ValueError):
    """A device answered with data that cannot be right (CRC, identity, range)."""

    code = "bad_data"
    retryable = True


class SandboxSetupError(EdgedError, RuntimeError):
    """The sandbox could not be set up; the message carries the remedy."""

    code = "sandbox_setup"


class SandboxLimitError(EdgedError, RuntimeError):
    """A call hit a limit of its sandbox; `limit` names it."""

    code = "sandbox_limit"
    limit: str = ""

    def __init__(self, limit: str, message: str) -> None:
        self.limit = limit
        super().__init__(message)


class StoreError(EdgedError, OSError):
    """State could not be written or read; nothing was lost."""

    code = "store"


class LocalProtocolError(EdgedError, RuntimeError):
    """This side broke a protocol: a fault of edged."""

    code = "protocol_local"


class RemoteProtocolError(EdgedError, ValueError):
    """The peer broke a protocol."""

    code = "protocol_remote"


class UpstreamError(EdgedError, ConnectionError):
    """Another MCP server does not answer as it should; the message names it and the cause."""

    code = "upstream"
    retryable = True


class ModelError(EdgedError, ConnectionError):
    """A model's server gives no answer; the message names the provider and the cause."""

    code = "model"
    retryable = True


class NoDaemonError(EdgedError, ConnectionError):
    """No daemon answers where the client looked."""

    code = "no_daemon"


class Wire(NamedTuple):
    """How one error code shows on the two wires."""

    http: int
    jsonrpc: int
    title: str


WIRE: dict[str, Wire] = {
    "internal": Wire(500, -32603, "Internal error"),
    "config": Wire(400, -32602, "Configuration error"),
    "unknown_tool": Wire(404, -32602, "Unknown tool"),
    "not_found": Wire(404, -32602, "Not found"),
    "exists": Wire(409, -31009, "It is there"),
    "invalid_arguments": Wire(400, -32602, "Invalid arguments"),
    "unauthenticated": Wire(401, -31001, "Token required"),
    "denied": Wire(403, -31003, "Not allowed"),
    "unavailable": Wire(409, -31009, "Tool not available"),
    "busy": Wire(429, -31029, "Busy"),
    "stopping": Wire(503, -31030, "Stopping"),
    "rate_limited": Wire(429, -31029, "Too many requests"),
    "too_large": Wire(413, -31013, "Too large"),
    "timeout": Wire(504, -31004, "Timed out"),
    "no_device": Wire(502, -31002, "No device"),
    "bus": Wire(502, -31002, "Bus error"),
    "bad_data": Wire(502, -31002, "Bad data"),
    "sandbox_setup": Wire(503, -31005, "Sandbox not available"),
    "sandbox_limit": Wire(500, -31006, "Sandbox limit"),
    "store": Wire(507, -31007, "State not stored"),
    "protocol_local": Wire(500, -32603, "Internal error"),
    "protocol_remote": Wire(400, -32600, "Invalid request"),
    "upstream": Wire(502, -31010, "MCP server failed"),
    "model": Wire(502, -31011, "No answer of the model"),
    "no_daemon": Wire(503, -31008, "No daemon"),
}
"""Every `code` above to HTTP status, JSON-RPC code and title.

JSON-RPC codes of our own lie outside -32768..-32000 (MCP 2026-07-28, errors).
"""
