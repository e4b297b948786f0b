"""`message` and `send_file`: what people and other programs are told.

Both hand over to the outbox: what it took survives a power cut, and goes out when the
channel takes it, whatever becomes of the caller.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from edged import results
from edged.errors import Fault, InvalidArgumentsError
from edged.results import Result
from edged.tool import Context, Hints, tool

if TYPE_CHECKING:
    from edged.messages import Message

MEDIA = "media://"

TELLS = Hints(read_only=False, destructive=False, idempotent=False, open_world=True)

TEXT_MAX = 64 << 10
"""Characters of one message."""

Channel = Annotated[
    str,
    Meta(description="A configured channel; by default the caller's own.", max_length=64),
]
Chat = Annotated[
    str,
    Meta(
        description="Chat, topic or address in the channel; by default the channel's own.",
        max_length=256,
    ),
]


class Send(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `message`."""

    text: Annotated[str, Meta(description="What to say.", min_length=1, max_length=TEXT_MAX)]
    channel: Channel = ""
    chat_id: Chat = ""
    title: Annotated[str, Meta(description="Title or subject.", max_length=250)] = ""
    priority: Annotated[int, Meta(description="1 low, 3 usual, 5 urgent.", ge=1, le=5)] | None = (
        None
    )
    reply_to: Annotated[
        str, Meta(description="The channel's id of the message that this answers.", max_length=250)
    ] = ""


@tool(
    "message",
    label="Send a message",
    category="communication",
    hints=TELLS,
    aliases={"content": "text", "reply_to_message_id": "reply_to"},
)
async def message(params: Send, ctx: Context) -> Result:
    """Send a message to the user or to a configured channel; it arrives also when you are gone."""
    from edged.messages._outbox import Draft  # noqa: PLC0415  with the first message

    if not params.text.strip():
        raise InvalidArgumentsError([Fault("text", "is blank: say something")])
    draft = Draft(
        params.text,
        params.channel,
        params.chat_id,
        params.title,
        params.priority or 0,
        params.reply_to,
    )
    sent = await ctx.services.messages().put(ctx.caller, draft)
    return _accepted(sent, "message")


class SendFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Inputs of `send_file`."""

    path: Annotated[
        str,
        Meta(
            description="Relative to the workspace, or /workspace/…, or media://….", min_length=1
        ),
    ]
    caption: Annotated[str, Meta(description="Text beside it.", max_length=TEXT_MAX)] = ""
    filename: Annotated[
        str, Meta(description="Its name for the reader; by default its own.", max_length=250)
    ] = ""
    channel: Channel = ""
    chat_id: Chat = ""


@tool(
    "send_file",
    label="Send a file",
    category="communication",
    hints=TELLS,
    aliases={"text": "caption", "content": "caption", "file": "path", "file_path": "path"},
)
async def send_file(params: SendFile, ctx: Context) -> Result:
    """Send a file to the user or to a configured channel, as it is now."""
    import mimetypes  # noqa: PLC0415  with the first file

    from edged.messages import Attachment  # noqa: PLC0415  likewise
    from edged.messages._outbox import Draft  # noqa: PLC0415  likewise

    services, caller = ctx.services, ctx.caller
    outbox = services.messages()
    # Before a grant is used up for a file that goes nowhere.
    outbox.target(caller, params.channel, params.chat_id)
    name, kind = os.path.basename(params.path.rstrip("/")), ""
    if params.path.startswith(MEDIA):
        medium = services.media.get(caller.user, params.path, owner=caller.is_owner)
        name, kind = medium.name, medium.mime_type
    name = _plain(params.filename or name)
    kind = kind or mimetypes.guess_type(name)[0] or "application/octet-stream"
    fd = services.workspace.open(caller, caller.session, params.path, os.O_RDONLY)
    there = os.fstat(fd)
    if stat.S_ISDIR(there.st_mode):
        os.close(fd)
        raise InvalidArgumentsError([Fault("path", "is a directory: pack it into a file first")])
    draft = Draft(params.caption, params.channel, params.chat_id)
    sent = await outbox.put(caller, draft, Attachment(name, kind, there.st_size), fd)
    return _accepted(sent, f"{sent.file.name} ({sent.file.size} bytes)")


def _plain(name: str) -> str:
    """A name that is a name everywhere: no path, no control characters."""
    found = "".join(c for c in os.path.basename(name) if c.isprintable()).strip(". ")
    return found[:200] or "file"


def _accepted(sent: Message, what: str) -> Result:
    where = f"{sent.channel} ({sent.chat_id})" if sent.chat_id else sent.channel
    facts = {"id": sent.id, "channel": sent.channel, "chat_id": sent.chat_id, "status": "queued"}
    return results.text(f"{what} accepted for {where}: {sent.id}", structured=facts)


TOOLS = (message, send_file)
