"""What someone says of a job: the inputs of the tool and of the doors.

Models fill in every field that they see: zero and the empty text are as good as absent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job, or what is to be changed of one; None is unsaid."""

    schedule: Annotated[
        str | None,
        Meta(
            description='When: "0 9 * * *" (minute hour day month weekday), "every 1h", "in 5m", '
            'or a time such as "2027-01-31T09:00".'
        ),
    ] = None
    cron_expr: Annotated[str | None, Meta(description="Another way: a cron expression.")] = None
    every_seconds: Annotated[
        float | None, Meta(description="Another way: run every so many seconds.")
    ] = None
    at_seconds: Annotated[
        float | None, Meta(description="Another way: run once, in so many seconds.")
    ] = None
    command: Annotated[
        str | None, Meta(description="Shell command to run, as the tool exec does.")
    ] = None
    message: Annotated[
        str | None,
        Meta(
            description="Text to send, as the tool message does; beside a command or a tool it "
            "is sent after each run, with the output."
        ),
    ] = None
    channel: (
        Annotated[
            str,
            Meta(
                description="Where the message goes: a configured channel; by default the "
                "caller's own.",
                max_length=64,
            ),
        ]
        | None
    ) = None
    chat_id: (
        Annotated[str, Meta(description="Chat, topic or address there.", max_length=256)] | None
    ) = None
    tool: Annotated[str | None, Meta(description="Tool to call, in place of a command.")] = None
    arguments: Annotated[dict[str, Any] | None, Meta(description="Inputs of that tool.")] = None
    task: Annotated[
        str | None,
        Meta(
            description="What a subagent is to do, as with the tool spawn, in place of a command; "
            "its report goes to the channel."
        ),
    ] = None
    agent: Annotated[
        str | None, Meta(description="Slug of the agent that does it; a plain one by default.")
    ] = None
    tz: Annotated[
        str | None, Meta(description="Time zone, such as Europe/Berlin; the board's by default.")
    ] = None
    name: Annotated[str | None, Meta(description="For people; made up by default.")] = None
    overlap: Annotated[
        Literal["skip", "queue", "parallel"] | None,
        Meta(
            description="When it is due while it runs: leave it out (default), run it after, both."
        ),
    ] = None
    misfire: Annotated[
        Literal["once", "skip"] | None,
        Meta(description="When it could not run in time: once, late (default), or not at all."),
    ] = None
    retries: (
        Annotated[int, Meta(ge=0, le=10, description="How often a failed run is tried again.")]
        | None
    ) = None
