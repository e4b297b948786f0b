"""Kinds of model servers: one file each, and what they have in common.

A provider is `FORM` (how the registry writes tools for it), `PATH` below the base
address, `headers(key)`, `body(question)` and `Reading`, which takes a streamed answer
event by event. Pure: sending, keys, time limits and retries are `edged.agents.line`'s.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import msgspec

from edged.errors import RemoteProtocolError

NAME_MAX = 64


class ToolCall(msgspec.Struct, frozen=True):
    """A tool that a model wants called; `arguments` is what it wrote, JSON or not."""

    id: str
    name: str
    arguments: str


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer, as the server counts them; zero where it does not."""

    input: int = 0
    output: int = 0


class Told(msgspec.Struct, frozen=True, tag="user"):
    """What the model is told."""

    text: str


class Said(msgspec.Struct, frozen=True, tag="assistant"):
    """One answer of a model.

    Attributes:
        text: what it says; may be empty beside calls.
        calls: tools that it wants called.
        usage: tokens.
        stop: why it ended, in the server's word; `length` and its like: it was cut.
        items: the answer in the provider's own shape, to be sent back as it came.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: str = ""
    items: tuple[Any, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What became of one call."""

    id: str
    name: str
    text: str
    is_error: bool = False


class Outcomes(msgspec.Struct, frozen=True, tag="tools"):
    """What became of the calls of one answer, in their order."""

    rows: tuple[Outcome, ...]


Turn = Told | Said | Outcomes


class Question(msgspec.Struct, frozen=True):
    """What a model is asked.

    Attributes:
        model: as its server knows it.
        system: the prompt before everything.
        turns: what was said until now, in order.
        tools: definitions in the provider's form.
        max_tokens: of the answer.
        temperature: None leaves it to the server.
        base_url: of the server; some speak a dialect.
    """

    model: str
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[dict[str, Any], ...]
    max_tokens: int
    temperature: float | None = None
    base_url: str = ""


class Reading(Protocol):
    """Takes one streamed answer; sans I/O."""

    def take(self, event: dict[str, Any]) -> bool:
        """Read one event; true when the answer is whole.

        Raises:
            RemoteProtocolError: it makes no sense, or tells of a fault of the server.
        """

    def whole(self, answer: dict[str, Any]) -> None:
        """Read an answer that was not streamed.

        Raises:
            RemoteProtocolError: as `take`.
        """

    def said(self) -> Said:
        """What was said.

        Raises:
            RemoteProtocolError: it has no end, or nothing in it.
        """


class Provider(Protocol):
    """A module of this package."""

    FORM: str
    PATH: str

    def headers(self, key: str) -> dict[str, str]:
        """Headers that say who asks; an empty key says nothing."""

    def body(self, question: Question) -> dict[str, Any]:
        """The body of a request for a streamed answer."""

    def Reading(self) -> Reading:  # noqa: N802  a class of the module
        """What takes one answer."""


def text(value: object) -> str:
    """A text of an answer; empty where something else is there."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """A count of an answer; zero where something else is there."""
    return value if isinstance(value, int) and value > 0 else 0


def one(value: object) -> dict[str, Any]:
    """An object of an answer; empty where something else is there."""
    return value if isinstance(value, dict) else {}


def many(value: object) -> list[dict[str, Any]]:
    """The objects of a list of an answer."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def plain_name(name: str) -> str:
    """A tool's name as every server takes it back: a model may have made up anything."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:NAME_MAX] or "unknown"


def plain_object(written: str) -> dict[str, Any]:
    """A call's arguments as they go back, where they must be an object; empty for what is none."""
    try:
        value = msgspec.json.decode(written or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return one(value)


def plain_arguments(written: str) -> str:
    """Likewise as text: some servers read it, and refuse all that was said for one bad call."""
    return written if plain_object(written) else "{}"


class ServerFaultError(RemoteProtocolError):
    """What a server's own error object says: whole, for who masks it before it is cut.

    Attributes:
        words: of the server.
    """

    def __init__(self, words: str) -> None:
        super().__init__(f"the model's server says: {words}")
        self.words = words


def fault(value: object) -> ServerFaultError:
    """What a server's own error object says."""
    found = one(value)
    words = text(found.get("message")) or text(value) or "an error without words"
    return ServerFaultError(" ".join(words.split()))
