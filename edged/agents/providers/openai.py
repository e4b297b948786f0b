"""OpenAI's chat completions, which most servers of local models speak too.

Source: OpenAI API reference, Chat, "Create chat completion" and its streaming chunks.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

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
from edged.errors import RemoteProtocolError

FORM = "openai"
PATH = "/chat/completions"
BASE = "https://api.openai.com/v1"

CALLS_MAX = 128
"""Calls of one answer."""

BOUNDS = frozenset({
    "pattern", "format", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minProperties", "maxProperties", "patternProperties", "propertyNames",
})  # fmt: skip
"""What a schema says of values beside their types; calls are checked here anyway.

llama.cpp, and what is built on it, compiles the schemas of all tools to one grammar, and
refuses a question for a single length or pattern that it cannot express in it.
"""

_NAMED = frozenset({"properties", "$defs", "definitions"})
_VALUES = frozenset({"enum", "const", "default", "examples", "required"})


def headers(key: str) -> dict[str, str]:
    """Who asks."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(question: Question) -> dict[str, Any]:
    """The request."""
    messages = [{"role": "system", "content": question.system}] if question.system else []
    for turn in question.turns:
        messages += _messages(turn)
    # OpenAI's own newer models refuse the older name, others do not know the newer.
    is_own = (urlsplit(question.base_url).hostname or "") == "api.openai.com"
    asked: dict[str, Any] = {
        "model": question.model,
        "messages": messages,
        "max_completion_tokens" if is_own else "max_tokens": question.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if question.tools:
        asked["tools"] = [row if is_own else _light_tool(row) for row in question.tools]
    if question.temperature is not None:
        asked["temperature"] = question.temperature
    return asked


def _light_tool(row: dict[str, Any]) -> dict[str, Any]:
    function = one(row.get("function"))
    return {**row, "function": {**function, "parameters": light(function.get("parameters"))}}


def light(schema: Any) -> Any:
    """A JSON Schema without `BOUNDS`: names, types and words."""
    if isinstance(schema, list):
        return [light(row) for row in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _VALUES:
            found[key] = value
        elif key in _NAMED:
            found[key] = {name: light(row) for name, row in one(value).items()}
        elif key not in BOUNDS:
            found[key] = light(value)
    if found.get("type") == "object" and not found.get("properties"):
        # Of a closed object without a name llama.cpp makes no grammar either.
        for key in ("properties", "additionalProperties", "required"):
            found.pop(key, None)
    return found


def _messages(turn: Turn) -> list[dict[str, Any]]:
    if isinstance(turn, Told):
        return [{"role": "user", "content": turn.text}]
    if isinstance(turn, Outcomes):
        return [{"role": "tool", "tool_call_id": row.id, "content": row.text} for row in turn.rows]
    message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": plain_name(call.name),
                    "arguments": plain_arguments(call.arguments),
                },
            }
            for call in turn.calls
        ]
    return [message]


class _Call:
    """A call so far: its pieces are joined once, however many there are."""

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name: list[str] = []
        self.arguments: list[str] = []


class Reading:
    """One streamed answer: `chat.completion.chunk` objects."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        """The call that each index stands for now."""
        self._stop = ""
        self._usage = Usage()

    def take(self, event: dict[str, Any]) -> bool:
        """Read one chunk; that the stream is over is said by its end."""
        if event.get("error"):
            raise fault(event["error"])
        if event.get("usage"):
            self._count(event["usage"])
        for choice in many(event.get("choices"))[:1]:
            self._add(one(choice.get("delta")))
            self._stop = text(choice.get("finish_reason")) or self._stop
        return False

    def whole(self, answer: dict[str, Any]) -> None:
        """Read a `chat.completion` of a server that does not stream."""
        if answer.get("error"):
            raise fault(answer["error"])
        self._count(answer.get("usage"))
        for choice in many(answer.get("choices"))[:1]:
            message = one(choice.get("message"))
            rows = [{"index": i, **row} for i, row in enumerate(many(message.get("tool_calls")))]
            self._add({"content": message.get("content"), "tool_calls": rows})
            self._stop = text(choice.get("finish_reason")) or "stop"

    def _count(self, usage: object) -> None:
        found = one(usage)
        self._usage = Usage(
            number(found.get("prompt_tokens")), number(found.get("completion_tokens"))
        )

    def _add(self, delta: dict[str, Any]) -> None:
        self._text.append(text(delta.get("content")))
        for row in many(delta.get("tool_calls")):
            function = one(row.get("function"))
            call = self._call(number(row.get("index")), text(row.get("id")))
            call.name.append(text(function.get("name")))
            call.arguments.append(text(function.get("arguments")))

    def _call(self, index: int, call_id: str) -> _Call:
        """The call that a piece belongs to; some servers give all of them the index 0."""
        call = self._at.get(index)
        if call is None or (call_id and call.id and call_id != call.id):
            if len(self._calls) >= CALLS_MAX:
                raise RemoteProtocolError(f"the model wants more than {CALLS_MAX} tools at once")
            call = self._at[index] = _Call(call_id)
            self._calls.append(call)
        call.id = call.id or call_id
        return call

    def said(self) -> Said:
        """What was said; some servers give calls no id of their own."""
        if not self._stop:
            raise RemoteProtocolError("the model's answer ended in the middle")
        calls = tuple(
            ToolCall(call.id or f"call_{index}", "".join(call.name), "".join(call.arguments))
            for index, call in enumerate(self._calls)
        )
        # Some servers leave what a model thought in its text; it is neither told nor sent back.
        words = _without_thoughts("".join(self._text))
        return Said(words, calls, self._usage, self._stop)


def _without_thoughts(words: str) -> str:
    """Leave out the first `<think>` with its end; linear, whatever a model falls into."""
    head, begun, rest = words.partition("<think>")
    _, ended, tail = rest.partition("</think>")
    return head.rstrip() + tail.lstrip() if begun and ended else words
