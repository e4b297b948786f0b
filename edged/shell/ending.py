"""How a command ended and what it wrote, in words for the model that asked for it. Pure."""

from __future__ import annotations

import signal

from edged.sandbox import outcome
from edged.sandbox.frames import Output
from edged.sandbox.outcome import Outcome, size
from edged.sandbox.profile import MIB, Profile
from edged.shell.unread import plain

STDERR = "STDERR:"
_SETTING = "in edged.yaml allows more"


def line(ended: Outcome, profile: Profile, wall_s: float, *, always: bool = False) -> str:
    """The last line of a command's result; empty after exit code 0.

    Args:
        ended: how.
        profile: that it ran with.
        wall_s: the time that it had.
        always: exit code 0 too.
    """
    text = _said(ended, profile, wall_s)
    return f"[{text}]" if text and (always or ended.reason != "exit" or ended.exit_code) else ""


def _said(ended: Outcome, profile: Profile, wall_s: float) -> str:
    limits = profile.limits
    match ended.reason:
        case "exit":
            return f"Command exited with code {ended.exit_code}"
        case "crashed":
            name = _signal_name(ended.signal)
            return f"Command exited with code {ended.exit_code}: killed by {name}"
        case "timeout":
            return f"Command timed out after {wall_s:g} s"
        case "memory":
            more = limits.memory_max * 2 // MIB
            had = f"its limit is {size(limits.memory_max)}"
            return f"Command ran out of memory: {had}; tools: {{exec: {{memory: {more}M}}}} " + (
                _SETTING
            )
        case "cpu":
            return "Command was stopped at its limit of CPU time"
        case "output":
            return (
                f"Command was stopped after {size(limits.output_max)} of output: write large "
                "output to a file"
            )
        case "disk":
            added = size(limits.disk_max)
            return f"Command was stopped: it added more than {added} to its directories"
        case "files":
            return (
                f"Command was stopped: it added more than {limits.files_max:,} files to its "
                "directories"
            )
        case "cancelled":
            return "Command was killed"
        case _:
            return ended.message or "Command failed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def output(stream: Output) -> str:
    """What a stream carried, as text."""
    head, left_out, tail = stream.parts()
    if not left_out:
        return plain(head)
    return f"{plain(head)}\n[... {left_out} bytes left out ...]\n{plain(tail)}"


def text(stdout: str, stderr: str, *last: str) -> str:
    """A result: what it wrote, then what it complained about, then how it ended."""
    parts = [stdout.rstrip("\n")]
    if stderr.strip():
        parts.append(f"{STDERR}\n" + stderr.rstrip("\n"))
    return "\n".join(part for part in (*parts, *last) if part)


def hint(written: str, profile: Profile) -> str:
    """The setting to change when a failure reads as if it stemmed from a limit; else empty."""
    limits = profile.limits
    match outcome.cause(written, network=profile.network):
        case "network":
            return (
                "commands have no network; tools: {exec: {network: true}} in edged.yaml gives them"
                " one; web_fetch and web_search have their own"
            )
        case "memory":
            more = limits.memory_max * 2 // MIB
            had = size(limits.memory_max)
            return f"a command may use {had}; tools: {{exec: {{memory: {more}M}}}} {_SETTING}"
        case "tasks":
            return f"a command may have {limits.tasks_max} processes and threads at once"
        case "full":
            return f"/tmp and /dev/shm hold {size(limits.tmp_size)} each: write to /workspace"  # noqa: S108  inside
        case "file-size":
            return f"one file may have {size(limits.file_size_max)}"
        case "read-only":
            return (
                "commands can write /workspace, the home directory, /tmp, and what was granted for"
                " writing (request_permission with write: true)"
            )
        case None:
            return ""
