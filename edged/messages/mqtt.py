"""Messages to an MQTT broker, at QoS 1: JSON with the message's id, or the bare text.

A broker takes no word for having had a message already: where a crash hides the end of a
delivery it comes twice, with the same `id`.

Source: MQTT 3.1.1, sections 4.3.2 (QoS 1) and 4.7 (topic names).
"""

from __future__ import annotations

import asyncio
import binascii
import importlib.util
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged.config import Size
from edged.errors import Fault, InvalidArgumentsError
from edged.libraries import install
from edged.messages import Chats, DeliveryError, Message, Settings, Surroundings, chosen, facts
from edged.messages._http import check_ca_file
from edged.units import size_bytes

ANSWER_S = 30.0
"""For a connection and for the broker's acknowledgement."""

TOPIC_MAX = 65_535
"""Bytes of a topic name."""

_BAD_LOGIN = frozenset({4, 5, 134, 135})
"""CONNACK: bad user name or password, not authorised (3.1.1: 3.2.2.3; 5.0: 3.2.2.2)."""


class Config(Settings, frozen=True, kw_only=True):
    """Settings of a broker."""

    host: str
    topic: str
    port: Annotated[int, Meta(ge=0, le=65_535, description="0: 8883 with tls, else 1883")] = 0
    tls: bool = False
    ca_file: Annotated[str, Meta(description="PEM file of who signed the broker")] = ""
    username: str = ""
    password: Annotated[str, Meta(description="!secret NAME")] = ""
    payload: Annotated[
        Literal["json", "text"], Meta(description="text: bare text, and bare bytes of a file")
    ] = "json"
    retain: bool = False
    chats: Chats = []
    max_file: Annotated[Size, Meta(description="of one file")] = "1M"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_topic(self.topic):
            raise ValueError("topic: is no topic to publish to: it has no + and no #")
        check_ca_file(self.ca_file)
        if importlib.util.find_spec("aiomqtt") is None:
            raise ValueError(f"kind: mqtt needs a library: {install('edged[mqtt]')}")


def is_topic(text: str) -> bool:
    """Whether a message can be published there (MQTT 3.1.1, sections 4.7.1 and 4.7.3)."""
    return 0 < len(text.encode()) <= TOPIC_MAX and not any(c in text for c in "+#\0")


class Broker:
    """One broker."""

    def __init__(self, config: Config, around: Surroundings) -> None:  # noqa: ARG002  none needed
        self._config = config
        self.file_max = size_bytes(config.max_file)
        self.secrets = (config.password,)

    def chat(self, asked: str, *, free: bool) -> str:
        """A topic."""
        topic = chosen(asked, self._config.topic, self._config.chats, free=free, what="topic")
        if not is_topic(topic):
            reason = f"{topic[:64]!r} is no topic to publish to: it has no + and no #"
            raise InvalidArgumentsError([Fault("chat_id", reason)])
        return topic

    def steps(self, message: Message) -> int:
        """One message; a bare text and a bare file are two."""
        if self._config.payload == "json" or message.file is None or not message.text:
            return 1
        return 2

    async def send(self, message: Message, step: int, path: str) -> None:
        """Publish one step and wait for the broker's acknowledgement."""
        import aiomqtt  # noqa: PLC0415  with the first delivery

        config = self._config
        payload = await asyncio.to_thread(self._payload, message, step, path)
        try:
            async with aiomqtt.Client(
                config.host,
                config.port or (8883 if config.tls else 1883),
                username=config.username or None,
                password=config.password or None,
                identifier=f"edged-{message.id}",
                tls_context=self._tls(),
                timeout=ANSWER_S,
            ) as client:
                await client.publish(
                    message.chat_id, payload, qos=1, retain=config.retain, timeout=ANSWER_S
                )
        except aiomqtt.MqttCodeError as error:
            code = getattr(error.rc, "value", error.rc)
            if code in _BAD_LOGIN:
                raise DeliveryError("the broker does not take the name and password") from error
            raise DeliveryError(f"MQTT: {error}") from error
        except (aiomqtt.MqttError, OSError) as error:
            raise DeliveryError(f"no broker: {error}") from error

    def _payload(self, message: Message, step: int, path: str) -> bytes:
        if self._config.payload == "text":
            if message.file is None or (step == 0 and message.text):
                return message.text.encode()
            with open(path, "rb") as file:
                return file.read()
        found: dict[str, Any] = facts(message)
        if message.file is not None:
            with open(path, "rb") as file:
                data = binascii.b2a_base64(file.read(), newline=False).decode()
            found["file"] = {**msgspec.to_builtins(message.file), "data": data}
        return msgspec.json.encode(found)

    def _tls(self) -> Any:
        if not self._config.tls:
            return None
        import ssl  # noqa: PLC0415  with the first delivery

        return ssl.create_default_context(cafile=self._config.ca_file or None)

    async def close(self) -> None:
        """Nothing is open between messages."""


def open_channel(config: Config, around: Surroundings) -> Broker:
    """A broker of these settings."""
    return Broker(config, around)
