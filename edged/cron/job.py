"""A job, where it stands, and one run of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edged.cron.schedule import Schedule
from edged.identity import Caller, Role

Overlap = Literal["skip", "queue", "parallel"]
Misfire = Literal["once", "skip"]
Trigger = Literal["schedule", "retry", "manual"]
Status = Literal["running", "ok", "error", "interrupted", "missed", "skipped"]

PARALLEL_MAX = 4
"""Runs of one job at once, with `overlap: parallel`."""

RETRY_S = 30.0
RETRY_MAX_S = 3_600.0


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job is; where it stands is a `State`.

    Attributes:
        id: for good.
        user: whose it is.
        role: with whose rights it runs.
        name: for people.
        created, updated: seconds since 1970-01-01 UTC.
        tool: what it calls; empty for a command or a message alone.
        arguments: of the tool.
        command: of the shell.
        task: of a subagent.
        agent: whose prompt and tools the subagent has; empty: a plain one.
        message: what is sent, alone or after each run together with its output.
        channel, chat_id: where the caller was who added it.
        to_channel, to_chat: where the message goes; empty: to the caller's, else the default.
        allowed: names that the caller was limited to.
        overlap: what happens when it is due while it runs.
        misfire: what happens when it could not run in time.
        retries: how often a failed run is tried again.
    """

    id: str
    user: str
    role: Role
    name: str
    schedule: Schedule
    created: float
    updated: float
    tool: str = ""
    arguments: dict[str, Any] = {}
    command: str = ""
    message: str = ""
    channel: str = ""
    chat_id: str = ""
    to_channel: str = ""
    to_chat: str = ""
    allowed: tuple[str, ...] | None = None
    overlap: Overlap = "skip"
    misfire: Misfire = "once"
    retries: int = 0
    task: str = ""
    agent: str = ""

    @property
    def caller(self) -> Caller:
        """Who the job calls as: its user, in a session of its own."""
        return Caller(
            self.user,
            self.role,
            f"job {self.id}",
            "internal",
            f"jobs of {self.user}",
            self.channel,
            self.chat_id,
            None if self.allowed is None else frozenset(self.allowed),
        )

    @property
    def target(self) -> tuple[str, str]:
        """Channel and chat of its message; empty is the default one."""
        channel = self.to_channel or self.channel
        # The chat of the context is one of the context's channel.
        context = self.chat_id if self.channel in ("", channel) else ""
        return channel, self.to_chat or context

    @property
    def calls(self) -> tuple[str, ...]:
        """The tools that it needs."""
        act = "exec" if self.command else "spawn" if self.task else self.tool
        return tuple(name for name in (act, "message" if self.is_told else "") if name)

    @property
    def is_told(self) -> bool:
        """Whether its channel hears of each run: of a subagent's report also without words."""
        return bool(self.message or (self.task and (self.to_channel or self.channel)))


class State(msgspec.Struct):
    """Where a job stands. All times are seconds since 1970-01-01 UTC.

    Attributes:
        enabled: whether it runs by itself.
        due: when it runs next; None is never again.
        dealt: the last time that was due and was run, missed or skipped.
        retry: when a failed run is tried again.
        attempt: how many times the last run was tried again.
        retried: when the run that is tried again was due.
        ended: when a one-time job was over.
    """

    enabled: bool = True
    due: float | None = None
    dealt: float = 0.0
    retry: float | None = None
    attempt: int = 0
    retried: float = 0.0
    ended: float | None = None

    @property
    def wakes(self) -> float | None:
        """When there is something to do for it; None is never."""
        if not self.enabled:
            return None
        times = [time for time in (self.due, self.retry) if time is not None]
        return min(times) if times else None


class Run(msgspec.Struct, frozen=True):
    """One run, or what took its place. All times are seconds since 1970-01-01 UTC.

    Attributes:
        id: rises.
        job: its id.
        status: `interrupted`: it was begun, and its end is not known; it is not run again.
            `missed` and `skipped`: not begun.
        trigger: why it was begun.
        due: when it was due; of `missed` and `skipped` the first time.
        until: of `missed` and `skipped` the last time; else as `due`.
        started: or when it was noted.
        ended: None while it runs.
        attempt: 0, or which of its retries.
        output: the end of its text, or why it was not begun.
        call_id: of the trail.
    """

    id: int
    job: str
    status: Status
    trigger: Trigger
    due: float
    until: float
    started: float
    ended: float | None = None
    attempt: int = 0
    output: str = ""
    call_id: str = ""


def backoff_s(attempt: int) -> float:
    """How long after a failure a run is tried again: twice as long each time."""
    return float(min(RETRY_S * 2 ** (attempt - 1), RETRY_MAX_S))
