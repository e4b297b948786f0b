"""A model server with a script: what it is asked, and what it answers, is in the SDKs' own types.

A request that the official `openai` or `anthropic` package could not have sent is refused
with 400, and each event it sends is made of those packages' models: a wrong one does not
get out. What a script says is said in whichever of the three APIs it is asked in.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from anthropic import types as anthropic
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types import chat, responses
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from tests.integration.agents.shapes import faults

IN, OUT = 100, 20
"""Tokens of each answer."""


class Say(NamedTuple):
    """An answer in words; `stop` true cuts it."""

    text: str
    cut: bool = False


class Call(NamedTuple):
    """Tools that it wants called: name and arguments, text where they are to be broken."""

    calls: tuple[tuple[str, Any], ...]
    text: str = ""


class Refuse(NamedTuple):
    """A status that is no success."""

    status: int
    message: str = "no"
    headers: tuple[tuple[str, str], ...] = ()


class Raw(NamedTuple):
    """Bytes in place of events."""

    body: bytes


class Broken(NamedTuple):
    """An answer that ends in the middle."""

    step: Say | Call


class Hang(NamedTuple):
    """No answer."""


class Fault(NamedTuple):
    """An error event."""

    message: str


Step = Say | Call | Refuse | Raw | Broken | Hang | Fault

KINDS = {
    "/v1/chat/completions": CompletionCreateParamsStreaming,
    "/v1/responses": ResponseCreateParamsStreaming,
    "/v1/messages": MessageCreateParamsStreaming,
}


class ModelServer:
    """One server; `script` is what it answers next, `asked` what it was asked.

    Attributes:
        wrong: requests that were none.
        arrived: set at each request.
    """

    def __init__(self) -> None:
        self.url = ""
        self.script: list[Step] = []
        self.endless: Step | None = None
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.wrong: list[str] = []
        self.arrived = asyncio.Event()
        self.released = asyncio.Event()
        self.next = lambda: self.endless

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.headers.append(dict(request.headers))
        if wrong := faults(body, KINDS[request.path]):
            self.wrong += wrong
            return web.json_response({"error": {"message": "; ".join(wrong)}}, status=400)
        self.asked.append(body)
        self.arrived.set()
        step = self.script.pop(0) if self.script else self.next()
        assert step is not None, "the script is over"
        if isinstance(step, Refuse):
            said = {"error": {"message": step.message, "type": "x"}, "type": "error"}
            return web.json_response(said, status=step.status, headers=dict(step.headers))
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        if isinstance(step, Hang):
            await self.released.wait()
        elif isinstance(step, Raw):
            await answer.write(step.body)
        else:
            events = list(EVENTS[request.path](step))
            is_whole = not isinstance(step, Broken)
            for event in events if is_whole else events[: len(events) // 2]:
                name = f"event: {event.type}\n" if hasattr(event, "type") else ""
                data = event.model_dump_json(exclude_unset=True)
                await answer.write(f"{name}data: {data}\n\n".encode())
            if is_whole and request.path == "/v1/chat/completions":
                await answer.write(b"data: [DONE]\n\n")
        return answer


@asynccontextmanager
async def model_server():
    """A server on a free port."""
    server = ModelServer()
    app = web.Application()
    for path in KINDS:
        app.router.add_post(path, server.serve)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _halves(text: str):
    """Two pieces, as streams have them."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


# Chat completions ---------------------------------------------------------------------------


def _chunk(delta: dict[str, Any], finish: str | None = None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return chat.ChatCompletionChunk.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
            "choices": [choice],
        }
    )


def chat_events(step: Step):
    if isinstance(step, Broken):
        step = step.step
    if isinstance(step, Fault):
        yield _Plain({"error": {"message": step.message}})
        return
    yield _chunk({"role": "assistant", "content": ""})
    for piece in _halves(step.text):
        yield _chunk({"content": piece})
    calls = step.calls if isinstance(step, Call) else ()
    for index, (name, arguments) in enumerate(calls):
        head = {"name": name, "arguments": ""}
        one = {"index": index, "id": f"call_{index}", "type": "function", "function": head}
        yield _chunk({"tool_calls": [one]})
        for piece in _halves(_json(arguments)):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    finish = "tool_calls" if calls else "length" if step.cut else "stop"
    yield _chunk({}, finish)
    usage = {"prompt_tokens": IN, "completion_tokens": OUT, "total_tokens": IN + OUT}
    yield chat.ChatCompletionChunk.model_validate(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
            "choices": [],
            "usage": usage,
        }
    )


class _Plain:
    """An object that is no event of the SDK's."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def model_dump_json(self, **_: Any) -> str:
        return json.dumps(self._value)


# Responses ----------------------------------------------------------------------------------


def _response(output: list[dict[str, Any]], status: str, *, cut: bool = False):
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "usage": {
            "input_tokens": IN,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": IN + OUT,
        },
    }


def responses_events(step: Step):
    if isinstance(step, Broken):
        step = step.step
    if isinstance(step, Fault):
        yield responses.ResponseErrorEvent.model_validate(
            {
                "type": "error",
                "message": step.message,
                "code": None,
                "param": None,
                "sequence_number": 0,
            }
        )
        return
    begun = {"type": "response.created", "response": _response([], "in_progress")}
    yield responses.ResponseCreatedEvent.model_validate({**begun, "sequence_number": 0})
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    ]
    if step.text:
        part = {"type": "output_text", "text": step.text, "annotations": []}
        output.append(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
        for piece in _halves(step.text):
            yield responses.ResponseTextDeltaEvent.model_validate(
                {
                    "type": "response.output_text.delta",
                    "item_id": "msg_1",
                    "output_index": 1,
                    "content_index": 0,
                    "delta": piece,
                    "logprobs": [],
                    "sequence_number": 1,
                }
            )
    for index, (name, arguments) in enumerate(step.calls if isinstance(step, Call) else ()):
        output.append(
            {
                "type": "function_call",
                "id": f"fc_{index}",
                "call_id": f"call_{index}",
                "name": name,
                "arguments": _json(arguments),
                "status": "completed",
            }
        )
    cut = isinstance(step, Say) and step.cut
    kind = "incomplete" if cut else "completed"
    event = responses.ResponseIncompleteEvent if cut else responses.ResponseCompletedEvent
    yield event.model_validate(
        {
            "type": f"response.{kind}",
            "response": _response(output, kind, cut=cut),
            "sequence_number": 9,
        }
    )


# Messages -----------------------------------------------------------------------------------


def messages_events(step: Step):
    if isinstance(step, Broken):
        step = step.step
    if isinstance(step, Fault):
        yield _Plain({"type": "error", "error": {"type": "x", "message": step.message}})
        return
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": IN, "output_tokens": 1},
    }
    yield anthropic.RawMessageStartEvent.model_validate(
        {"type": "message_start", "message": message}
    )
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": "hm"},
                {"type": "signature_delta", "signature": "sig"},
            ],
        )
    ]
    if step.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _halves(step.text)]
        blocks.append(({"type": "text", "text": "", "citations": None}, deltas))
    for index, (name, arguments) in enumerate(step.calls if isinstance(step, Call) else ()):
        block = {"type": "tool_use", "id": f"call_{index}", "name": name, "input": {}}
        pieces = _halves(_json(arguments))
        blocks.append((block, [{"type": "input_json_delta", "partial_json": p} for p in pieces]))
    for index, (block, deltas) in enumerate(blocks):
        yield anthropic.RawContentBlockStartEvent.model_validate(
            {"type": "content_block_start", "index": index, "content_block": block}
        )
        for delta in deltas:
            yield anthropic.RawContentBlockDeltaEvent.model_validate(
                {"type": "content_block_delta", "index": index, "delta": delta}
            )
        yield anthropic.RawContentBlockStopEvent.model_validate(
            {"type": "content_block_stop", "index": index}
        )
    cut = isinstance(step, Say) and step.cut
    stop = "max_tokens" if cut else "tool_use" if isinstance(step, Call) else "end_turn"
    yield anthropic.RawMessageDeltaEvent.model_validate(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": OUT},
        }
    )
    yield anthropic.RawMessageStopEvent.model_validate({"type": "message_stop"})


EVENTS = {
    "/v1/chat/completions": chat_events,
    "/v1/responses": responses_events,
    "/v1/messages": messages_events,
}
