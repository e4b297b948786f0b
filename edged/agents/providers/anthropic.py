"""Anthropic's messages.

Source: Anthropic API reference, "Messages", "Streaming Messages" and "Tool use".
"""

from __future__ import annotations

from typing import Any

import msgspec

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
    plain_name,
    plain_object,
    text,
)
from edged.agents.providers.openai import CALLS_MAX
from edged.errors import RemoteProtocolError

FORM = "anthropic"
PATH = "/messages"
BASE = "https://api.anthropic.com/v1"
VERSION = "2023-06-01"

_INPUT = "partial_json"


def headers(key: str) -> dict[str, str]:
    """Who asks, and in which version."""
    found = {"anthropic-version": VERSION}
    return {**found, "x-api-key": key} if key else found


def body(question: Question) -> dict[str, Any]:
    """The request."""
    asked: dict[str, Any] = {
        "model": question.model,
        "max_tokens": question.max_tokens,
        "messages": [_message(turn) for turn in question.turns],
        "stream": True,
    }
    if question.system:
        asked["system"] = question.system
    if question.tools:
        asked["tools"] = list(question.tools)
    if question.temperature is not None:
        asked["temperature"] = question.temperature
    return asked


def _message(turn: Turn) -> dict[str, Any]:
    if isinstance(turn, Told):
        return {"role": "user", "content": turn.text}
    if isinstance(turn, Outcomes):
        rows = [
            {
                "type": "tool_result",
                "tool_use_id": row.id,
                "content": row.text,
                "is_error": row.is_error,
            }
            for row in turn.rows
        ]
        return {"role": "user", "content": rows}
    return {"role": "assistant", "content": list(turn.items)}


class Reading:
    """One streamed answer: a message, its blocks piece by piece."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        """What came of each block since it was begun, by the name of the text."""
        self._usage = Usage()
        self._stop = ""
        self._is_whole = False

    def take(self, event: dict[str, Any]) -> bool:
        """Read one event."""
        kind = text(event.get("type"))
        if kind == "error":
            raise fault(event.get("error"))
        index = number(event.get("index"))
        if kind == "message_start":
            self._count(one(event.get("message")).get("usage"))
        elif kind == "content_block_start":
            if index >= CALLS_MAX:
                raise RemoteProtocolError(f"the model's answer has more than {CALLS_MAX} parts")
            self._blocks[index] = one(event.get("content_block"))
            self._pieces[index] = {}
        elif kind == "content_block_delta":
            self._add(index, one(event.get("delta")))
        elif kind == "message_delta":
            self._stop = text(one(event.get("delta")).get("stop_reason")) or self._stop
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self._is_whole = True
        return self._is_whole

    def _add(self, index: int, delta: dict[str, Any]) -> None:
        pieces = self._pieces.get(index)
        if pieces is None:
            raise RemoteProtocolError("the model's answer goes on in a part that was never begun")
        kind = delta.get("type")
        if kind == "input_json_delta":
            pieces.setdefault(_INPUT, []).append(text(delta.get(_INPUT)))
        for name in ("text", "thinking", "signature"):
            if kind == f"{name}_delta":
                pieces.setdefault(name, []).append(text(delta.get(name)))

    def _count(self, usage: object) -> None:
        found = one(usage)
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens", "input_tokens")
        self._usage = Usage(
            sum(number(found.get(name)) for name in cached) or self._usage.input,
            number(found.get("output_tokens")) or self._usage.output,
        )

    def whole(self, answer: dict[str, Any]) -> None:
        """Read a message of a server that does not stream."""
        if answer.get("type") == "error" or answer.get("error"):
            raise fault(answer.get("error"))
        self._blocks = dict(enumerate(many(answer.get("content"))))
        self._stop = text(answer.get("stop_reason"))
        self._count(answer.get("usage"))
        self._is_whole = True

    def said(self) -> Said:
        """What was said; an input that is no JSON is kept as the model wrote it."""
        if not self._is_whole:
            raise RemoteProtocolError("the model's answer ended in the middle")
        words, calls, items = [], [], []
        for index, begun in sorted(self._blocks.items()):
            added = {name: "".join(rows) for name, rows in self._pieces.get(index, {}).items()}
            written = added.pop(_INPUT, "")
            block = begun | {name: text(begun.get(name)) + more for name, more in added.items()}
            item = block
            if block.get("type") == "text":
                words.append(text(block.get("text")))
            elif block.get("type") == "tool_use":
                given = msgspec.json.encode(block.get("input") or {}).decode()
                call = ToolCall(text(block.get("id")), text(block.get("name")), written or given)
                calls.append(call)
                name = plain_name(call.name)
                item = {**block, "name": name, "input": plain_object(call.arguments)}
            if item.get("type") != "text" or item.get("text"):
                items.append(item)
        return Said("".join(words), tuple(calls), self._usage, self._stop, tuple(items))
