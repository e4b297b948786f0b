"""Messages by a Telegram bot: text in parts of 4,096 characters, photos, documents.

Telegram takes no word for having sent a message already: where a crash hides the end of
a delivery, that part comes twice.

Source: Telegram Bot API, "Making requests", sendMessage, sendDocument, sendPhoto,
ResponseParameters.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged.clock import Clock
from edged.config import Size
from edged.errors import Fault, InvalidArgumentsError
from edged.messages import Chats, DeliveryError, Message, Surroundings, chosen
from edged.messages._http import Http, HttpSettings, check_url, refusal
from edged.units import size_bytes

TEXT_MAX, CAPTION_MAX = 4_096, 1_024
"""UTF-16 code units of a message and of a caption."""

PHOTO_MAX = 10 << 20
"""Bytes of a photo; a larger picture goes as a document."""


_OK = re.compile(rb'\s*\{\s*"ok"\s*:\s*true\b')


class Config(HttpSettings, frozen=True, kw_only=True):
    """Settings of a bot."""

    token: Annotated[str, Meta(description="of the bot, from @BotFather; !secret NAME")]
    chat_id: Annotated[str | int, Meta(description="where messages go that name no chat")] = ""
    chats: Chats = []
    url: Annotated[str, Meta(description="of a Bot API server of your own")] = (
        "https://api.telegram.org"
    )
    silent: Annotated[bool, Meta(description="no sound for priorities below 3")] = True
    max_file: Annotated[Size, Meta(description="of one file; Telegram takes 50M")] = "50M"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_url("url", self.url)
        number, _, rest = self.token.partition(":")
        if not number.isdecimal() or not rest.isascii() or not rest or "/" in rest:
            raise ValueError("token: is none of a bot, which is a number, a colon and letters")


class _Parameters(msgspec.Struct):
    retry_after: float = 0.0
    migrate_to_chat_id: int | None = None


class _Answer(msgspec.Struct):
    ok: bool = False
    description: str = ""
    error_code: int = 0
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class Telegram:
    """One bot."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        self._config = config
        self._clock: Clock = around.clock
        self._http = Http(config, around.clock)
        self._url = f"{config.url.rstrip('/')}/bot{config.token}"
        self.file_max = size_bytes(config.max_file)
        self.secrets = (config.token,)

    def chat(self, asked: str, *, free: bool) -> str:
        """A chat: its number, or @name of a channel."""
        own = str(self._config.chat_id)
        chat = chosen(asked, own, self._config.chats, free=free, what="chat")
        if not chat:
            reason = "is required: the channel has no chat_id of its own in edged.yaml"
            raise InvalidArgumentsError([Fault("chat_id", reason)])
        return chat

    def steps(self, message: Message) -> int:
        """The parts of its text, and the file."""
        return len(_parts(message)) + (message.file is not None)

    async def send(self, message: Message, step: int, path: str) -> None:
        """Send one part, or the file."""
        parts = _parts(message)
        fields: dict[str, Any] = {"chat_id": message.chat_id}
        if self._config.silent and 0 < message.priority < 3:
            fields["disable_notification"] = True
        if message.reply_to.isdecimal() and step == 0:
            fields["reply_parameters"] = {
                "message_id": int(message.reply_to),
                "allow_sending_without_reply": True,
            }
        if step < len(parts):
            fields["text"] = parts[step]
            data = msgspec.json.encode(fields)
            await self._call(
                "sendMessage", data=data, headers={"Content-Type": "application/json"}
            )
            return
        import aiohttp  # noqa: PLC0415  with the first file

        assert message.file is not None  # noqa: S101  `steps` counted it
        caption = _headed(message) if not parts else ""
        is_photo = message.file.is_photo and message.file.size <= PHOTO_MAX
        form = aiohttp.FormData(quote_fields=False)
        for name, value in fields.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            form.add_field(name, text)
        if caption:
            form.add_field("caption", caption)
        with open(path, "rb") as file:  # noqa: ASYNC230  read by aiohttp on a thread
            form.add_field(
                "photo" if is_photo else "document",
                file,
                filename=message.file.name,
                content_type=message.file.mime_type,
            )
            await self._call("sendPhoto" if is_photo else "sendDocument", data=form)

    async def _call(self, method: str, **options: Any) -> None:
        status, body, headers = await self._http.ask("POST", f"{self._url}/{method}", **options)
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.DecodeError:
            if _OK.match(body):
                # The answer is longer than what is read of it.
                return
            if 200 <= status < 300:
                raise DeliveryError(
                    "what answers is not Telegram: a portal of the network?"
                ) from None
            retry_after = headers.get("Retry-After", "")
            raise refusal(status, body, retry_after, self._clock.now()) from None
        if answer.ok:
            return
        moved = answer.parameters.migrate_to_chat_id
        hint = f" (the chat is {moved} now: set it in edged.yaml)" if moved else ""
        code = answer.error_code or status
        raise DeliveryError(
            f"Telegram: {answer.description or code}{hint}",
            # A token may be mended (401, 404); a chat that is not there, or blocks the bot, not.
            is_final=code in (400, 403, 413),
            retry_after_s=answer.parameters.retry_after,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.close()


def _headed(message: Message) -> str:
    return f"{message.title}\n\n{message.text}".strip() if message.title else message.text


def _parts(message: Message) -> list[str]:
    """Texts that are sent by themselves: all of it, but for a caption that fits its file."""
    text = _headed(message)
    if message.file is not None and units(text) <= CAPTION_MAX:
        return []
    return split(text, TEXT_MAX)


def units(text: str) -> int:
    """Length as Telegram counts: in UTF-16 code units."""
    return len(text) + sum(c > "\uffff" for c in text)


def split(text: str, limit: int) -> list[str]:
    """A text in parts of at most `limit` UTF-16 code units, cut at a line or a space.

    A part that Telegram would take for empty is left out.
    """
    parts = []
    while units(text) > limit:
        end = _fitting(text, limit)
        cut = max(text.rfind("\n", 0, end + 1), 0) or max(text.rfind(" ", 0, end + 1), 0)
        if cut < end // 2:
            # One word longer than half a part: cut in it.
            cut = end
        parts.append(text[:cut])
        text = (
            text[cut:].removeprefix("\n")
            if text[cut : cut + 1] == "\n"
            else text[cut:].lstrip(" ")
        )
    parts.append(text)
    return [part for part in parts if part.strip()]


def _fitting(text: str, limit: int) -> int:
    """How many characters of a text fit in so many UTF-16 code units."""
    used = 0
    for index, character in enumerate(text):
        used += 2 if character > "\uffff" else 1
        if used > limit:
            return index
    return len(text)


def open_channel(config: Config, around: Surroundings) -> Telegram:
    """A bot of these settings."""
    return Telegram(config, around)
