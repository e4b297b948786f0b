"""Messages as events `message`, for programs that listen at the daemon's own doors.

The event carries the message's id; a file becomes a medium of its user.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from edged.config import Size
from edged.errors import StoreError, TooLargeError
from edged.messages import DeliveryError, Message, Settings, Surroundings, facts
from edged.units import size_bytes


class Config(Settings, frozen=True, kw_only=True):
    """Settings of the event stream."""

    max_file: Annotated[Size, Meta(description="of one file; see also `media`")] = "32M"


class Stream:
    """The daemon's events."""

    secrets = ()

    def __init__(self, config: Config, around: Surroundings) -> None:
        self._around = around
        self.file_max = size_bytes(config.max_file)

    def chat(self, asked: str, *, free: bool) -> str:  # noqa: ARG002  a word for listeners
        """Whatever was asked: it is told to those who listen."""
        return asked

    def steps(self, message: Message) -> int:  # noqa: ARG002  the protocol's
        """One event."""
        return 1

    async def send(self, message: Message, step: int, path: str) -> None:  # noqa: ARG002  likewise
        """Publish the message."""
        found = facts(message)
        if message.file is not None:
            file = msgspec.to_builtins(message.file)
            try:
                uri = await asyncio.to_thread(self._keep, message, path)
            except TooLargeError as error:
                raise DeliveryError(str(error), is_final=True) from error
            except StoreError as error:
                raise DeliveryError(str(error)) from error
            found["file"] = {**file, "media": uri}
        self._around.publish("message", message.user, found)

    def _keep(self, message: Message, path: str) -> str:
        assert message.file is not None  # noqa: S101  the caller looked
        with open(path, "rb") as file:
            data = file.read()
        return self._around.keep(message.user, data, message.file.mime_type, message.file.name)

    async def close(self) -> None:
        """Nothing is open."""


def open_channel(config: Config, around: Surroundings) -> Stream:
    """The stream."""
    return Stream(config, around)
