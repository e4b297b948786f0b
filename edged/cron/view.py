"""Jobs and their runs as every door shows them."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any, Literal

import msgspec


class RunView(msgspec.Struct, frozen=True):
    """One run, or what took its place: `missed` and `skipped` from `due` to `until`.

    Times are those of its job's zone.
    """

    id: int
    status: str
    trigger: str
    due: str
    until: str
    started: str
    ended: str | None
    attempt: int
    output: str
    call_id: str


class View(msgspec.Struct, frozen=True):
    """A job as every door shows it; all times are those of the zone of its schedule, `tz`.

    `next_runs` are the next three, in a listing the next alone. `channel` and `chat_id` are
    where its message goes; empty is the default channel, and the channel's own chat.
    """

    id: str
    name: str
    user: str
    role: str
    enabled: bool
    state: str
    schedule: str
    tz: str
    next_run: str | None
    next_runs: tuple[str, ...]
    command: str
    tool: str
    arguments: dict[str, Any]
    message: str
    task: str
    agent: str
    channel: str
    chat_id: str
    overlap: str
    misfire: str
    retries: int
    created: str
    updated: str
    last: RunView | None
    runs: tuple[RunView, ...] = ()


class Listing(msgspec.Struct, frozen=True):
    """A page of jobs, those that are due next first; `total` is of all pages.

    `is_on` is false while the tool `cron` is switched off: no job runs by itself then.
    """

    jobs: tuple[View, ...]
    total: int
    is_on: bool = True


class Answer(msgspec.Struct, frozen=True):
    """What became of an action; `run` where one was begun.

    `warnings` are what may keep an added or changed job from doing its work later.
    """

    job: View
    status: Literal["ok", "removed"] = "ok"
    run: RunView | None = None
    warnings: tuple[str, ...] = ()


def local(seconds: float, zone: tzinfo) -> str:
    """A time as it is in a zone: RFC 3339 with milliseconds and the offset from UTC.

    Args:
        seconds: since 1970-01-01 UTC.
        zone: the job's, so that 09:00 of its schedule reads as 09:00.
    """
    return datetime.fromtimestamp(seconds, zone).isoformat(timespec="milliseconds")


def readable(time: str) -> str:
    """A time as people read it, whole seconds: 2027-01-31 09:00:00-05:00.

    Args:
        time: of `local`.
    """
    return datetime.fromisoformat(time).isoformat(" ", "seconds")
