"""OpenAI's responses.

Source: OpenAI API reference, Responses, "Create a model response" and its streaming events.
"""

from __future__ import annotations

from typing import Any

from edged.agents.providers import (
    Outcomes,
    Question,
    Said,
    Told,
    ToolCall,
    Turn,
    Usage,
    fault,
    many,
    number,
    one,
    plain_arguments,
    plain_name,
    text,
)
from edged.agents.providers.openai import CALLS_MAX, headers
from edged.errors import RemoteProtocolError

__all__ = ["BASE", "FORM", "PATH", "Reading", "body", "headers"]

FORM = "openai-responses"
PATH = "/responses"
BASE = "https://api.openai.com/v1"


def body(question: Question) -> dict[str, Any]:
    """The request; the server keeps nothing of it."""
    asked: dict[str, Any] = {
        "model": question.model,
        "input": [item for turn in question.turns for item in _items(turn)],
        "max_output_tokens": question.max_tokens,
        "store": False,
        "stream": True,
    }
    if question.system:
        asked["instructions"] = question.system
    if question.tools:
        asked["tools"] = list(question.tools)
    if question.temperature is not None:
        asked["temperature"] = question.temperature
    return asked


def _items(turn: Turn) -> list[Any]:
    if isinstance(turn, Told):
        return [{"role": "user", "content": turn.text}]
    if isinstance(turn, Outcomes):
        return [
            {"type": "function_call_output", "call_id": row.id, "output": row.text}
            for row in turn.rows
        ]
    return list(turn.items)


class Reading:
    """One streamed answer: `response.*` events, of which the last has it whole."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def take(self, event: dict[str, Any]) -> bool:
        """Read one event."""
        kind = text(event.get("type"))
        if kind == "error":
            raise fault(event.get("error") or event)
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.whole(one(event.get("response")))
            return True
        return False

    def whole(self, answer: dict[str, Any]) -> None:
        """Read a `response`."""
        if answer.get("error"):
            raise fault(answer["error"])
        self._response = answer

    def said(self) -> Said:
        """What was said."""
        response = self._response
        if response is None:
            raise RemoteProtocolError("the model's answer ended in the middle")
        items = many(response.get("output"))
        calls = tuple(
            ToolCall(text(i.get("call_id")), text(i.get("name")), text(i.get("arguments")))
            for i in items
            if i.get("type") == "function_call"
        )
        if len(calls) > CALLS_MAX:
            raise RemoteProtocolError(f"the model wants more than {CALLS_MAX} tools at once")
        words = [
            text(part.get("text"))
            for item in items
            if item.get("type") == "message"
            for part in many(item.get("content"))
            if part.get("type") == "output_text"
        ]
        usage = one(response.get("usage"))
        reason = text(one(response.get("incomplete_details")).get("reason"))
        return Said(
            "".join(words),
            calls,
            Usage(number(usage.get("input_tokens")), number(usage.get("output_tokens"))),
            reason or text(response.get("status")),
            tuple(_sendable(item) for item in items),
        )


def _sendable(item: dict[str, Any]) -> dict[str, Any]:
    """An item of an answer as a later question has it: what is not said there is left out."""
    kept = {name: value for name, value in item.items() if value is not None}
    if kept.get("type") == "function_call":
        kept["name"] = plain_name(text(kept.get("name")))
        kept["arguments"] = plain_arguments(text(kept.get("arguments")))
    return kept
