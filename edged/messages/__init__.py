"""Messages to people and programs: what is sent, and what a channel is.

A file of this package is a kind of channel and its file name is its key; names with a
leading underscore are the package's own parts. A kind exports `Config`, its settings,
and `open_channel`. Importing a kind imports no library: that is for the first delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from edged.clock import Clock, iso
from edged.config import Size, check_size
from edged.errors import DeniedError


class Attachment(msgspec.Struct, frozen=True):
    """A file that goes with a message; `size` in bytes."""

    name: str
    mime_type: str
    size: int

    @property
    def is_photo(self) -> bool:
        """Whether chats show it as a picture."""
        return self.mime_type in {"image/jpeg", "image/png", "image/webp"}


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, as it waits on disk.

    Attributes:
        id: unique for ever: whoever gets it twice knows it by this.
        user: whose agent or program sent it.
        channel: configured name.
        chat_id: where in the channel; what that is depends on the kind.
        text: of the message, or the caption of its file; may be empty beside a file.
        created: seconds since 1970-01-01 UTC.
        title: or empty.
        priority: 1 to 5; 3 is the usual one, 0 unsaid.
        reply_to: the channel's own id of the message that is answered, or empty.
        file: what goes with it, or None.
        done: steps of the delivery that are behind it.
    """

    id: str
    user: str
    channel: str
    chat_id: str
    text: str
    created: float
    title: str = ""
    priority: int = 0
    reply_to: str = ""
    file: Attachment | None = None
    done: int = 0


class DeliveryError(Exception):
    """A channel did not take a message.

    Attributes:
        is_final: it never will; else it may later.
        retry_after_s: how long the other side asked to be left alone.
    """

    def __init__(self, reason: str, *, is_final: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.is_final = is_final
        self.retry_after_s = retry_after_s


class Surroundings(msgspec.Struct, frozen=True):
    """What channels may use of the daemon.

    Attributes:
        clock: its time.
        publish: an event; `Events.publish`.
        keep: stores a file for a user and returns its URL; `Media.put`.
    """

    clock: Clock
    publish: Callable[[str, str, dict[str, Any]], None]
    keep: Callable[[str, bytes, str, str], str]


class Channel(Protocol):
    """A way out, opened; loop thread only."""

    file_max: int
    """Bytes of a file that it takes; 0: it takes none."""

    secrets: tuple[str, ...]
    """What no text of ours may show."""

    def chat(self, asked: str, *, free: bool) -> str:
        """Where a message goes that names `asked`, which may be empty.

        Args:
            asked: chat, topic or address.
            free: whether any may be named (an owner), or only what the configuration has.

        Raises:
            DeniedError: it may not be named.
            InvalidArgumentsError: there is no such thing, or none is set.
        """

    def steps(self, message: Message) -> int:
        """In how many steps it is sent; what is behind is never sent again."""

    async def send(self, message: Message, step: int, path: str) -> None:
        """Send one step, the file at `path` where there is one.

        Raises:
            DeliveryError: it was not taken.
        """

    async def close(self) -> None:
        """Let go of connections."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all kinds of channels have in common."""

    kind: str
    max_file: Annotated[Size, Meta(description="of one file; 0: none")] = "1M"

    def __post_init__(self) -> None:
        check_size("max_file", self.max_file, 0, 64 << 20)


Chats = Annotated[
    list[str | int] | Literal["any"],
    Meta(description="that agents may name beside the channel's own; any: whichever"),
]


def chosen(asked: str, own: str, chats: list[str | int] | str, *, free: bool, what: str) -> str:
    """The chat that a message goes to.

    Args:
        asked: by the caller; empty for the channel's own.
        own: the channel's own.
        chats: those that may be named beside it, or `any`.
        free: whether all may be named.
        what: the kind's word for a chat.

    Raises:
        DeniedError: it may not be named.
    """
    if asked in ("", own) or free or chats == "any":
        return asked or own
    if asked in map(str, chats):
        return asked
    raise DeniedError(
        f"{what} {asked[:64]!r} is not one that agents may send to: the owner can add it to "
        "`chats` of the channel in edged.yaml, or leave chat_id out"
    )


def facts(message: Message) -> dict[str, Any]:
    """A message as programs get it: JSON over HTTP and MQTT, and in events."""
    found: dict[str, Any] = {
        "id": message.id,
        "time": iso(message.created),
        "user": message.user,
        "channel": message.channel,
        "chat_id": message.chat_id,
        "title": message.title,
        "text": message.text,
        "priority": message.priority,
        "reply_to": message.reply_to,
    }
    return {key: value for key, value in found.items() if value or key in ("id", "time", "text")}
