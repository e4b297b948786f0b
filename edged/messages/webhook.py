"""Messages as JSON to an address; signed where there is a secret.

The body is edged's, or the owner's own by `body`, for services that want other names.
`webhook-id` and `Idempotency-Key` are the same at each attempt, so that a receiver that
looks at one of them takes a message once.

Source: Standard Webhooks 1.0 (headers `webhook-*`, secrets `whsec_…`).
"""

from __future__ import annotations

import asyncio
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from edged.config import Size
from edged.messages import Message, Surroundings, facts
from edged.messages._http import Http, HttpSettings, check_url
from edged.units import size_bytes

_PREFIX = "whsec_"


class Config(HttpSettings, frozen=True, kw_only=True):
    """Settings of a webhook."""

    url: str
    secret: Annotated[str, Meta(description="signs requests: text, or whsec_ and base64")] = ""
    headers: Annotated[dict[str, str], Meta(description="sent along")] = {}
    body: Annotated[
        dict[str, Any], Meta(description="in place of edged's own: {content: '{text}'}")
    ] = {}
    max_file: Annotated[Size, Meta(description="of one file, which is base64 in the body")] = "4M"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_url("url", self.url)
        if any(c in text for pair in self.headers.items() for text in pair for c in "\r\n\0"):
            raise ValueError("headers: one has a line break")
        _key(self.secret)


def _key(secret: str) -> bytes:
    """The bytes of a secret.

    Raises:
        ValueError: it says base64 and is none.
    """
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return binascii.a2b_base64(secret.removeprefix(_PREFIX), strict_mode=True)
    except binascii.Error:
        raise ValueError("secret: is not base64 behind whsec_") from None


def signature(secret: str, name: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature` of a body.

    Source: Standard Webhooks 1.0, "Signature scheme".
    """
    import hashlib  # noqa: PLC0415  only where there is a secret
    import hmac  # noqa: PLC0415  likewise

    signed = f"{name}.{timestamp}.".encode() + body
    found = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{binascii.b2a_base64(found, newline=False).decode()}"


class Webhook:
    """One address."""

    def __init__(self, config: Config, around: Surroundings) -> None:
        self._config, self._clock = config, around.clock
        self._http = Http(config, around.clock)
        self.file_max = 0 if config.body else size_bytes(config.max_file)
        self.secrets = (config.secret, config.url, *config.headers.values())

    def chat(self, asked: str, *, free: bool) -> str:  # noqa: ARG002  a word for the receiver
        """Whatever was asked: it is told to the receiver, and leads nowhere else."""
        return asked

    def steps(self, message: Message) -> int:  # noqa: ARG002  the protocol's
        """One request."""
        return 1

    async def send(self, message: Message, step: int, path: str) -> None:  # noqa: ARG002  likewise
        """POST the message."""
        body = await asyncio.to_thread(self._body, message, path)
        now = int(self._clock.now())
        headers = {
            **self._config.headers,
            "Content-Type": "application/json",
            "Idempotency-Key": message.id,
            "webhook-id": message.id,
            "webhook-timestamp": str(now),
        }
        if self._config.secret:
            signed = signature(self._config.secret, message.id, now, body)
            headers["webhook-signature"] = signed
        await self._http.send("POST", self._config.url, data=body, headers=headers)

    def _body(self, message: Message, path: str) -> bytes:
        found = facts(message)
        if self._config.body:
            return msgspec.json.encode(_filled(self._config.body, found))
        if message.file is not None:
            with open(path, "rb") as file:
                data = binascii.b2a_base64(file.read(), newline=False).decode()
            found["file"] = {**msgspec.to_builtins(message.file), "data": data}
        return msgspec.json.encode(found)

    async def close(self) -> None:
        """Close its connections."""
        await self._http.close()


def _filled(node: Any, found: dict[str, Any]) -> Any:
    """The owner's body with `{text}` and the like replaced, once and in texts only."""
    if isinstance(node, dict):
        return {key: _filled(value, found) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled(value, found) for value in node]
    if not isinstance(node, str):
        return node
    import re  # noqa: PLC0415  only where there is such a body

    known = {"title": "", "chat_id": "", "priority": "", "reply_to": "", **found}
    return re.sub(r"\{([a-z_]+)\}", lambda m: str(known[m[1]]) if m[1] in known else m[0], node)


def open_channel(config: Config, around: Surroundings) -> Webhook:
    """A webhook of these settings."""
    return Webhook(config, around)
