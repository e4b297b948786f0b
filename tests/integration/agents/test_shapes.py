"""The model server of these tests refuses what no client of the SDKs could have sent."""

import copy

import pytest

from tests.integration.agents.modelserver import KINDS
from tests.integration.agents.shapes import faults

TOOL = {"name": "a", "description": "b", "parameters": {"type": "object"}}
CHAT = {
    "model": "m",
    "stream": True,
    "temperature": 1,
    "messages": [
        {"role": "system", "content": "Look."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ],
    "tools": [{"type": "function", "function": TOOL}],
}  # fmt: skip
RESPONSES = {
    "model": "m",
    "stream": True,
    "store": False,
    "input": [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
    ],
    "tools": [{"type": "function", **TOOL, "strict": False}],
}
MESSAGES = {
    "model": "m",
    "stream": True,
    "max_tokens": 9,
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "c", "name": "a", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "ok", "is_error": False},
        ]},
    ],
    "tools": [{"name": "a", "input_schema": {"type": "object"}}],
}  # fmt: skip
RIGHT = dict(zip(KINDS, (CHAT, RESPONSES, MESSAGES), strict=True))


@pytest.mark.parametrize("path", KINDS)
def test_what_is_right_is_taken(path):
    assert faults(RIGHT[path], KINDS[path]) == []


@pytest.mark.parametrize(
    ("path", "keys", "value", "fault"),
    [
        ("/v1/chat/completions", ["nonsense"], 1, ".nonsense: is not known"),
        ("/v1/chat/completions", ["stream"], False, ".stream: False is not one of (True,)"),
        ("/v1/chat/completions", ["messages"], {}, ".messages: is no list"),
        ("/v1/chat/completions", ["messages", 1, "content"], 3, ".messages[1].content: "),
        ("/v1/chat/completions", ["messages", 1, "name2"], "x", ".messages[1].name2: is not known"),
        ("/v1/chat/completions", ["messages", 1, "role"], "robot", "role"),
        ("/v1/chat/completions", ["messages", 2, "tool_calls", 0, "id"], None, ".id: is no str"),
        ("/v1/chat/completions", ["messages", 3, "tool_call_id"], 3, "tool_call_id: is no str"),
        ("/v1/chat/completions", ["temperature"], True, ".temperature"),
        ("/v1/chat/completions", ["tools", 0, "function", "strictly"], 1, "strictly: is not known"),
        ("/v1/responses", ["input", 3, "output"], 3, ".input[3]"),
        ("/v1/responses", ["input", 2, "ok"], 3, ".input[2].ok: is not known"),
        ("/v1/responses", ["tools", 0, "strict"], "yes", ".tools[0]"),
        ("/v1/messages", ["max_tokens"], "9", ".max_tokens: is no int"),
        ("/v1/messages", ["messages", 1, "content", 1, "input"], "{}", "input: is no object"),
        ("/v1/messages", ["messages", 2, "content", 0, "tool_use_id"], 1, "tool_use_id: is no str"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(path, keys, value, fault):
    wrong = copy.deepcopy(RIGHT[path])
    place = wrong
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    assert fault in "; ".join(faults(wrong, KINDS[path]))


@pytest.mark.parametrize("path", KINDS)
def test_what_is_missing_is_asked_for(path):
    wrong = {key: value for key, value in RIGHT[path].items() if key != "model"}
    if path != "/v1/responses":
        assert ".model: is missing" in faults(wrong, KINDS[path])
    wrong = {key: value for key, value in RIGHT[path].items() if key != "stream"}
    assert ".stream: is missing" in faults(wrong, KINDS[path])
