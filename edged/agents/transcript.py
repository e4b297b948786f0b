"""Transcripts of subagents: what each was told, said and did, one JSON object a line.

The first line says whose task it is, the last how it ended; one without such a last line
was broken off. Blocking. A transcript is bounded: what does not fit is only counted.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec

from edged.identity import Caller, Role
from edged.store import failed, make_directory, unlink, write_all

State = Literal["waiting", "running", "completed", "failed", "cancelled", "interrupted"]

SIZE_MAX = 4 << 20
"""Bytes of one transcript, beside its last line."""

TAIL = 256 << 10
"""Bytes that the last line may have."""


class Head(msgspec.Struct, frozen=True):
    """A task as it was given; times are RFC 3339."""

    task_id: str
    user: str
    role: Role
    who: str
    channel: str
    chat_id: str
    task: str
    label: str
    agent: str
    provider: str
    model: str
    parent: str
    started_at: str
    in_background: bool = False

    @property
    def caller(self) -> Caller:
        """Who gave it, for what is told of it later."""
        who, channel, chat = self.who, self.channel, self.chat_id
        return Caller(self.user, self.role, "", "internal", who, channel, chat)


class End(msgspec.Struct, frozen=True):
    """How a task ended.

    Attributes:
        status: of the end.
        text: what the model reported; may be there in part where it failed.
        reason: why it did not complete; empty where it did.
        ended_at: RFC 3339; empty where nobody knows.
        turns: answers of the model.
        calls: tools that were called.
        tokens: read and written.
        is_told: whether who gave it can have heard of it; else the next life tells.
    """

    status: State
    text: str = ""
    reason: str = ""
    ended_at: str = ""
    turns: int = 0
    calls: int = 0
    tokens: int = 0
    is_told: bool = True


class _Last(msgspec.Struct):
    end: End


INTERRUPTED = End(
    "interrupted", reason="edged stopped, or the board lost power, while it ran", is_told=False
)


class Transcript:
    """One open transcript; whoever has it calls from one thread at a time.

    Raises:
        StoreError: it cannot be begun.
    """

    def __init__(self, directory: str, head: Head) -> None:
        make_directory(directory)
        self.path = os.path.join(directory, f"{head.task_id}.jsonl")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise failed("write", self.path, error) from error
        self._size = self._left_out = 0
        self.add({"head": head})

    def add(self, row: Any) -> None:
        """Add a line; on a full disk, or where there is too much, it is left out."""
        line = msgspec.json.encode(row) + b"\n"
        if self._size + len(line) > SIZE_MAX:
            self._left_out += 1
            return
        self._size += len(line)
        try:
            write_all(self._fd, line)
        except OSError:
            self._left_out += 1

    def close(self, end: End) -> None:
        """Write how it ended; on return that survives a power cut.

        Raises:
            StoreError: it could not be written.
        """
        row = {"end": end, "lines_left_out": self._left_out}
        try:
            # After a line that a full disk cut, this one begins anew.
            write_all(self._fd, b"\n" * bool(self._left_out) + msgspec.json.encode(row) + b"\n")
            os.fsync(self._fd)
        except OSError as error:
            raise failed("write", self.path, error) from error
        finally:
            os.close(self._fd)
            # The number will be another file's.
            self._fd = -1


def remembered(directory: str) -> list[tuple[Head, End]]:
    """The tasks of earlier lives, oldest first; files that are no transcripts are left out."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = [_told(os.path.join(directory, n)) for n in names if n.endswith(".jsonl")]
    return sorted((one for one in found if one), key=lambda one: one[0].started_at)


def _told(path: str) -> tuple[Head, End] | None:
    try:
        with open(path, "rb") as file:
            first = file.readline(TAIL)
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
        head = msgspec.json.decode(first, type=dict[str, Head])["head"]
    except (OSError, msgspec.DecodeError, KeyError):
        return None
    try:
        return head, msgspec.json.decode(last, type=_Last).end
    except msgspec.DecodeError:
        return head, INTERRUPTED


def finish(directory: str, task_id: str, end: End) -> None:
    """Write how a task of an earlier life ended, below whatever its transcript has.

    Raises:
        StoreError: it could not be written.
    """
    path = os.path.join(directory, f"{task_id}.jsonl")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            write_all(fd, b"\n" + msgspec.json.encode({"end": end}) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise failed("write", path, error) from error


def forget(directory: str, task_id: str) -> None:
    """Remove a transcript."""
    unlink(os.path.join(directory, f"{task_id}.jsonl"))
