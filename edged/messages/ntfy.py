"""Notifications by ntfy: https://ntfy.sh or a server of one's own.

Text goes as JSON, a file as the body of a PUT. The sequence id is the message's: from
ntfy 2.16 on, a message that a crash made come twice replaces itself on the phone.

Source: ntfy documentation, "Publishing": "Publish as JSON", "Attach local file",
"Updating + deleting notifications", "Access tokens".
"""

from __future__ import annotations

import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged.config import Size
from edged.errors import Fault, InvalidArgumentsError
from edged.messages import Chats, DeliveryError, Message, Surroundings, chosen
from edged.messages._http import Http, HttpSettings, check_url
from edged.units import size_bytes

_TOPIC_MAX = 64
"""Characters of a topic: `^[-_A-Za-z0-9]{1,64}$`."""


class Config(HttpSettings, frozen=True, kw_only=True):
    """Settings of ntfy."""

    topic: str
    url: Annotated[str, Meta(description="of the server")] = "https://ntfy.sh"
    token: Annotated[str, Meta(description="access token; !secret NAME")] = ""
    username: str = ""
    password: Annotated[str, Meta(description="!secret NAME")] = ""
    priority: Annotated[int, Meta(ge=1, le=5, description="of messages that name none")] = 3
    tags: list[str] = []
    chats: Chats = []
    max_file: Annotated[Size, Meta(description="of one file; ntfy.sh takes 15M")] = "15M"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_url("url", self.url)
        if not is_topic(self.topic):
            raise ValueError("topic: has A-Z, a-z, 0-9, - and _ only, at most 64 of them")
        if self.token and self.username:
            raise ValueError("token: goes without username")
        if not all(t.isascii() and t.isprintable() for t in (self.token, *self.tags)):
            raise ValueError("token: has characters that no header may have")


def is_topic(text: str) -> bool:
    """Whether ntfy takes it for a topic."""
    plain = text.replace("-", "").replace("_", "")
    return 0 < len(text) <= _TOPIC_MAX and text.isascii() and (not plain or plain.isalnum())


class Ntfy:
    """One topic, and those that may be named beside it."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        self._config = config
        self._http = Http(config, around.clock)
        self._url = config.url.rstrip("/")
        self.file_max = size_bytes(config.max_file)
        self.secrets = (config.token, config.password)
        self._headers: dict[str, str] = {}
        if config.token:
            self._headers["Authorization"] = f"Bearer {config.token}"
        elif config.username:
            pair = f"{config.username}:{config.password}".encode()
            encoded = binascii.b2a_base64(pair, newline=False).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def chat(self, asked: str, *, free: bool) -> str:
        """A topic."""
        topic = chosen(asked, self._config.topic, self._config.chats, free=free, what="topic")
        if not is_topic(topic):
            reason = f"{topic[:64]!r} is no topic of ntfy: A-Z, a-z, 0-9, - and _"
            raise InvalidArgumentsError([Fault("chat_id", reason)])
        return topic

    def steps(self, message: Message) -> int:  # noqa: ARG002  the protocol's
        """One request."""
        return 1

    async def send(self, message: Message, step: int, path: str) -> None:  # noqa: ARG002  likewise
        """Publish the message."""
        priority = message.priority or self._config.priority
        if message.file is None:
            body = {
                "topic": message.chat_id,
                "message": message.text,
                "title": message.title,
                "priority": priority,
                "tags": self._config.tags,
                "sequence_id": message.id,
            }
            body = {key: value for key, value in body.items() if value}
            data = msgspec.json.encode(body)
            await self._publish("POST", self._url, data=data, headers=self._headers)
            return
        headers = {
            **self._headers,
            "Filename": _header(message.file.name),
            "Priority": str(priority),
            "X-Sequence-ID": message.id,
            "Content-Type": message.file.mime_type,
            "Content-Length": str(message.file.size),
        }
        for name, value in (
            ("Title", message.title),
            ("Message", message.text),
            ("Tags", ",".join(self._config.tags)),
        ):
            if value:
                headers[name] = _header(value)
        with open(path, "rb") as file:  # noqa: ASYNC230  read by aiohttp on a thread
            url = f"{self._url}/{message.chat_id}"
            await self._publish("PUT", url, data=file, headers=headers)

    async def _publish(self, method: str, url: str, **options: Any) -> None:
        _, body = await self._http.send(method, url, **options)
        if b'"event"' not in body:
            raise DeliveryError("what answers is not ntfy: a portal of the network?")

    async def close(self) -> None:
        """Close its connections."""
        await self._http.close()


def _header(text: str) -> str:
    r"""A value for a header: line breaks as ntfy's `\n`, other characters by RFC 2047."""
    text = text.replace("\r\n", "\n").replace("\n", "\\n")
    if text.isascii() and text.isprintable():
        return text
    from email.header import Header  # noqa: PLC0415  where there is need of it

    return Header(text, "utf-8", maxlinelen=100_000).encode(linesep="")


def open_channel(config: Config, around: Surroundings) -> Ntfy:
    """A topic of these settings."""
    return Ntfy(config, around)
