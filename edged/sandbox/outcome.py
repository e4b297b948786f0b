"""How a sandboxed call ended, in words that name the limit and the line to add.

Pure: takes what `run` saw and makes one `Outcome`. Knows no processes.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Literal

import msgspec

from edged import jsonrpc
from edged.sandbox.frames import Output, harmless
from edged.sandbox.profile import MIB, Limits, Profile

Reason = Literal[
    "ok",
    "failed",
    "exit",
    "timeout",
    "cancelled",
    "memory",
    "cpu",
    "output",
    "disk",
    "files",
    "crashed",
    "sandbox-failed",
]
"""`ok`: a result of the tool, which may itself be a failure. `failed`: its host
answered for it (it raised, or returned nonsense). The others end without a result."""

BLOCKS_MAX = 1000
"""Blocks of content of one result or update."""

STDERR_SHOWN = 4096
"""Bytes of stderr in the text of a failure that has a text of its own."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one call.

    Attributes:
        reason: why it ended.
        result: what goes to the caller: `content`, `isError` and what else the tool
            returned; for all reasons.
        message: one sentence on what went wrong; empty when nothing did.
        exit_code: of the tool's process; None when it was killed or answered.
        signal: that ended the tool's process, or 0.
        stdout: kept output that is not part of the result (Python, TypeScript).
        stderr: likewise; for the log.
        streams: of a command, what it wrote to both.
        bytes_seen: of output, kept or not.
        duration_s: from the call's start in its sandbox to its end.
        warm: whether a spare served it.
    """

    reason: Reason
    result: dict[str, Any]
    message: str = ""
    exit_code: int | None = None
    signal: int = 0
    stdout: str = ""
    stderr: str = ""
    streams: tuple[Output, Output] | None = None
    bytes_seen: int = 0
    duration_s: float = 0.0
    warm: bool = False


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text block."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


_SHAPE = {
    "python": '{"content": [{"type": "text", "text": "..."}]}',
    "typescript": "{ content: [{ type: 'text', text: '...' }] }",
    "bash": '{"content": [{"type": "text", "text": "..."}]}',
}

_JSON_NAMES = {
    type(None): "nothing",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
}


def result_of(value: Any, language: str) -> dict[str, Any]:
    """What `execute` returned as a result.

    Raises:
        ValueError: it is none; says what to return.
    """
    fault = _fault(value)
    if fault:
        raise ValueError(f"{fault}: return text or {_SHAPE[language]}")
    if isinstance(value, str):
        return text_result(harmless(value))
    blocks = [
        block | {"text": harmless(block["text"])} if block["type"] == "text" else block
        for block in value["content"]
    ]
    result: dict[str, Any] = {**value, "content": blocks}
    failed = result.pop("is_error", False)
    result["isError"] = bool(result.get("isError", failed))
    return result


def decoded(data: bytes, language: str) -> dict[str, Any]:
    """`result_of` of JSON text.

    Raises:
        ValueError, RecursionError: it is none, or too much of one.
    """
    if jsonrpc.crowded(data):
        raise ValueError(f"the tool's result is too large: {jsonrpc.CROWDED}")
    return result_of(msgspec.json.decode(data), language)


def _fault(value: Any) -> str:
    """Why a value is no result; empty when it is one."""
    if isinstance(value, str):
        return ""
    if not isinstance(value, dict):
        return f"`execute` returned {_JSON_NAMES[type(value)]}"
    content = value.get("content")
    if not isinstance(content, list):
        return "the returned value has no list `content`"
    if len(content) > BLOCKS_MAX:
        return f"`content` has {len(content)} blocks, more than the limit of {BLOCKS_MAX}"
    for place, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            return f"content[{place}] is not a block with a `type`"
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            return f"content[{place}] is a text block without `text`"
    return ""


def shell_result(text: str, raw: bytes) -> dict[str, Any]:
    """What a shell tool wrote: one JSON result, or text.

    Args:
        text: its output, made readable.
        raw: the same as bytes, empty when not all was kept.
    """
    if raw.lstrip()[:1] == b"{" and not jsonrpc.crowded(raw):
        try:
            value = msgspec.json.decode(raw)
            if "content" in value:
                return result_of(value, "bash")
        except (ValueError, RecursionError):
            pass  # text that begins with a brace
    return text_result(text.rstrip("\n"))


def sentence(reason: Reason, limits: Limits, exit_code: int | None, number: int) -> str:
    """What ended the call, with the line of TOOL.md that allows more.

    Args:
        reason: why it ended.
        limits: that it ran under.
        exit_code: of its process, or None.
        number: of the signal that ended it, or 0.
    """
    match reason:
        case "timeout":
            more = min(3600, int(limits.wall_s) * 2 or 2)
            return (
                f"stopped after {limits.wall_s:g} s, its time limit;"
                f" `timeout: {more}` in TOOL.md allows more"
            )
        case "memory":
            return f"out of memory: {_memory_line(limits)}"
        case "cpu":
            return (
                "stopped at its limit of CPU time;"
                f" `timeout: {min(3600, int(limits.wall_s) * 2)}` in TOOL.md allows more"
            )
        case "output":
            return (
                f"stopped after {size(limits.output_max)} of output: write large output to"
                " a file and return its path"
            )
        case "disk":
            return (
                f"stopped: it added more than {size(limits.disk_max)} to its directories,"
                " the limit of one call"
            )
        case "files":
            return (
                f"stopped: it added more than {limits.files_max:,} files to its directories,"
                " the limit of one call"
            )
        case "crashed":
            return f"crashed with signal {number} ({_signal_name(number)})"
        case "cancelled":
            return "cancelled"
        case "exit":
            return f"ended with exit status {exit_code}"
        case _:
            return ""


def _memory_line(limits: Limits) -> str:
    return (
        f"its limit is {size(limits.memory_max)}; `memory: {limits.memory_max * 2 // MIB}M`"
        " in TOOL.md allows more"
    )


def size(count: int) -> str:
    """Bytes for people."""
    return f"{count // MIB} MiB" if count >= MIB else f"{count // 1024} KiB"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


_NETWORK = (
    r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|Network is unreachable|Could not resolve host"
    r"|Name or service not known|Temporary failure in name resolution"
    r"|ECONNREFUSED|Connection refused"
)
_MODULE = r"No module named '([A-Za-z_][\w]*)"
_DEVICE = r"/dev/((?!null|shm|fd|std)[A-Za-z0-9][\w./-]*)"
_MEMORY = r"MemoryError|Cannot allocate memory|ENOMEM|heap out of memory|allocation failed"
_TASKS = r"can't start new thread|Resource temporarily unavailable|(?:spawn|fork).* EAGAIN"
_FULL = r"No space left on device|ENOSPC"
_READ_ONLY = r"Read-only file system|EROFS"
_FILE_SIZE = r"File too large|EFBIG|File size limit exceeded"


Cause = Literal["network", "memory", "tasks", "full", "file-size", "read-only"]
"""Limits of a sandbox that a failure may stem from."""


def cause(text: str, *, network: bool, tasks_exceeded: bool = False) -> Cause | None:
    """The limit that a failure reads as if it stemmed from.

    Args:
        text: of the failure, stderr included.
        network: whether it had one.
        tasks_exceeded: whether the kernel refused a process or thread.
    """
    if not network and re.search(_NETWORK, text):
        return "network"
    if re.search(_MEMORY, text):
        return "memory"
    if tasks_exceeded or re.search(_TASKS, text):
        return "tasks"
    if re.search(_FULL, text):
        return "full"
    if re.search(_FILE_SIZE, text):
        return "file-size"
    return "read-only" if re.search(_READ_ONLY, text) else None


def hint(text: str, profile: Profile, *, tasks_exceeded: bool = False) -> str:
    """The line to add when a failure reads as if it stemmed from a limit; else empty.

    Args:
        text: of the failure, stderr included.
        profile: that the call ran with.
        tasks_exceeded: whether the kernel refused a process or thread.
    """
    limits = profile.limits
    match cause(text, network=profile.network, tasks_exceeded=tasks_exceeded):
        case "network":
            return "this tool has no network; `network: true` in TOOL.md gives it one"
        case "memory":
            return f"this tool's memory: {_memory_line(limits)}"
        case "tasks":
            return f"this tool may have {limits.tasks_max} processes and threads at once"
        case "full":
            return f"/tmp and /dev/shm hold {size(limits.tmp_size)} each: write more elsewhere"  # noqa: S108 - inside
        case "file-size":
            return f"one file of this tool may have {size(limits.file_size_max)}"
        case "read-only":
            written = [bind.target for bind in profile.binds if bind.write]
            return "this tool can write only " + ", ".join([*written, "/tmp", "/dev/shm"])  # noqa: S108 - inside
    module = re.search(_MODULE, text)
    if module:
        return (
            f"tools see the packages of /usr/bin/python3: apt install python3-{module[1]},"
            f" or put {module[1]} beside index.py"
        )
    device = re.search(_DEVICE, text)
    if device and f"/dev/{device[1]}" in profile.devices:
        return f"the tool may use /dev/{device[1]}, but this board has no such device now"
    if device and f"/dev/{device[1]}" not in profile.devices:
        return f"`devices: [{device[1]}]` in TOOL.md gives this tool /dev/{device[1]}"
    return ""


def failure_text(message: str, stdout: str, stderr: str, *, last: bool) -> str:
    """The text of a failure: what happened, and what the tool wrote.

    Args:
        message: one sentence, or the exception with its place.
        stdout: kept.
        stderr: kept.
        last: the message goes last, after all output (shell); else first, with the
            end of the output.
    """
    if last:
        return "\n".join(part.rstrip("\n") for part in (stdout, stderr, message) if part)
    written = (stdout + stderr).rstrip("\n")
    if not written:
        return message
    if len(written) > STDERR_SHOWN:
        written = "[...] " + written[-STDERR_SHOWN:]
    return f"{message}\n\nIt wrote:\n{written}"
