"""What is sent to model servers, and what is understood of their answers, event by event."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import plugins
from edged.agents.providers import (
    Outcome,
    Outcomes,
    Question,
    Said,
    Told,
    ToolCall,
    Usage,
    anthropic,
    openai,
    openai_responses,
)
from edged.errors import RemoteProtocolError

KINDS = (openai, openai_responses, anthropic)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.FORM)


def asked(kind, *turns, **more):
    facts = {"system": "Look.", "tools": (), "max_tokens": 9} | more
    return kind.body(Question("small", turns=turns, **facts))


def said(kind, *events):
    reading = kind.Reading()
    for event in events:
        reading.take(event)
    return reading.said()


def delta(calls=(), *, finish=None, **more):
    rows = [
        {"index": index, **({"id": call_id} if call_id else {}),
         "function": {"name": name, "arguments": arguments}}
        for index, call_id, name, arguments in calls
    ]  # fmt: skip
    return {"choices": [{"delta": {"tool_calls": rows, **more}, "finish_reason": finish}]}


@each_kind
def test_what_nobody_said_is_not_sent(kind):
    body = asked(kind, Told("Hi"), system="")
    assert not {"system", "instructions", "tools", "temperature"} & body.keys()
    assert "Look." not in str(body)
    base = "https://api.openai.com/v1"
    full = asked(kind, Told("Hi"), temperature=0.0, tools=({"name": "sensor"},), base_url=base)
    assert (full["temperature"], full["tools"]) == (0.0, [{"name": "sensor"}])
    assert kind.headers("") == {k: v for k, v in kind.headers("").items() if "key" not in k}
    assert "k1" in str(kind.headers("k1"))


def test_openai_itself_is_asked_in_its_newer_word():
    """Its newer models refuse `max_tokens`; servers of local models know nothing else."""
    own = asked(openai, Told("Hi"), base_url="https://api.openai.com/v1")
    assert (own.get("max_completion_tokens"), own.get("max_tokens")) == (9, None)
    assert asked(openai, Told("Hi"), base_url="http://127.0.0.1:8080/v1")["max_tokens"] == 9


@each_kind
@pytest.mark.parametrize(
    ("name", "arguments", "name_sent", "sent"),
    [
        ("sensor", '{"a": 1}', "sensor", {"a": 1}),
        ("sensor", "", "sensor", {}),
        ("sensor", '{"a": ', "sensor", {}),
        ("sensor", "[1]", "sensor", {}),
        ("no such tool!", "{}", "no_such_tool_", {}),
        ("", "{}", "unknown", {}),
        ("x" * 200, "{}", "x" * 64, {}),
    ],
)
def test_a_bad_call_goes_back_as_one_that_servers_take(kind, name, arguments, name_sent, sent):
    """A server that reads what was said before would refuse all further questions."""
    if kind is openai:
        answer = said(kind, delta([(0, "c1", name, arguments)], finish="tool_calls"))
    elif kind is openai_responses:
        item = {"type": "function_call", "call_id": "c1", "name": name, "arguments": arguments}
        answer = said(kind, {"type": "response.completed", "response": {"output": [item]}})
    else:
        block = {"type": "tool_use", "id": "c1", "name": name, "input": {}}
        piece = {"type": "input_json_delta", "partial_json": arguments}
        answer = said(
            kind,
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": piece},
            {"type": "message_stop"},
        )
    (call,) = answer.calls
    assert (call.id, call.name) == ("c1", name)
    assert call.arguments == arguments or not arguments
    body = asked(kind, answer, Outcomes((Outcome("c1", name, "no", is_error=True),)))
    if kind is openai:
        back = body["messages"][1]["tool_calls"][0]["function"]
        found = back["name"], msgspec.json.decode(back["arguments"])
    elif kind is openai_responses:
        back = body["input"][0]
        found = back["name"], msgspec.json.decode(back["arguments"])
    else:
        back = body["messages"][0]["content"][0]
        found = back["name"], back["input"]
    assert found == (name_sent, sent)


def keywords(schema, *, are_names=False):
    """All keys of a schema but the names of inputs."""
    if isinstance(schema, list):
        for row in schema:
            yield from keywords(row)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if not are_names:
                yield key
            if are_names or key not in ("default", "enum"):
                yield from keywords(value, are_names=not are_names and key == "properties")


def test_servers_of_local_models_get_schemas_that_they_can_compile():
    """ggml-org/llama.cpp issues 25746, 25923, 26930: one bound or pattern refuses every call."""
    tools = [tool for name in plugins.names("edged.tools")
             for tool in plugins.load("edged.tools", name).TOOLS]  # fmt: skip
    rows = tuple(
        {"type": "function", "function": {"name": t.name, "parameters": t.schema}} for t in tools
    )
    assert openai.BOUNDS & set(keywords([t.schema for t in tools])), "there is something to do"
    sent = asked(openai, Told("x"), tools=rows, base_url="http://127.0.0.1:8080/v1")["tools"]
    assert not openai.BOUNDS & set(keywords(sent))
    for tool, row in zip(tools, sent, strict=True):
        parameters = row["function"]["parameters"]
        assert parameters["type"] == "object"
        assert parameters.get("properties", {}).keys() == tool.schema["properties"].keys()
        for name, one in tool.schema["properties"].items():
            assert parameters["properties"][name].get("description") == one.get("description")
            assert parameters["properties"][name].get("enum") == one.get("enum")
        assert parameters.get("required") == tool.schema.get("required")
    regex = next(row for row in sent if row["function"]["name"] == "tool_search_tool_regex")
    assert "pattern" in regex["function"]["parameters"]["properties"], "the name of an input stays"
    own = asked(openai, Told("x"), tools=rows, base_url="https://api.openai.com/v1")
    assert own["tools"] == list(rows)


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"type": "object"}),
        (
            {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}], "default": "a"},
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": "a"},
        ),
        ({"enum": [{"pattern": "x"}]}, {"enum": [{"pattern": "x"}]}),
        (None, None),
    ],
)
def test_a_schema_keeps_what_is_no_bound(schema, sent):
    assert openai.light(schema) == sent


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<think>\nhm\n</think>\n\nWarm.", "Warm."),
        ("<think></think>Warm.", "Warm."),
        ("Warm <think>.", "Warm <think>."),
        ("Warm. \n<think>a</think>\n<think>b</think>", "Warm.<think>b</think>"),
        ("<think>for ever", "<think>for ever"),
        # A small model that falls into a rut: a search that starts anew at each takes minutes.
        pytest.param("\n" * 2_000_000, "\n" * 2_000_000, id="newlines"),
        pytest.param("<think>" * 400_000, "<think>" * 400_000, id="thoughts"),
    ],
)
def test_thoughts_in_the_text_are_not_what_is_said(text, told):
    """Servers of local models that do not tell them apart."""
    assert said(openai, delta(content=text, finish="stop")).text == told


def test_an_answer_in_very_many_pieces_is_put_together_once():
    """Adding each to a text of megabytes takes minutes."""
    first, more, end = "x" * 6_000_000, ["y"] * 200_000, "x" * 6_000_000 + "y" * 200_000
    rows = [(0, "a", "sensor", first), *((0, "", "", piece) for piece in more)]
    (call,) = said(openai, delta(rows, finish="tool_calls")).calls
    assert call == ToolCall("a", "sensor", end)
    kinds = (("thinking", "thinking"), ("input_json", "partial_json"), ("text", "text"))
    events = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text"}},
        *(
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": f"{kind}_delta", name: piece},
            }
            for index, (kind, name) in enumerate(kinds)
            for piece in (first, *more)
        ),
        {"type": "message_stop"},
    ]
    answer = said(anthropic, *events)
    assert (answer.text, answer.calls[0].arguments) == (end, end)
    assert answer.items[0] == {"type": "thinking", "thinking": end}


@pytest.mark.parametrize(
    "rows",
    [
        # By index, in pieces, mixed; all of index 0, with ids of their own; without ids.
        [[(0, "a", "sensor", '{"x"'), (1, "b", "gpio", "")], [(1, "", "", "{}")], [(0, "", "", ":1}")]],
        [[(0, "a", "sensor", '{"x":1}'), (0, "b", "gpio", "{}")]],
        [[(0, "a", "sensor", '{"x"')], [(0, "a", "", ":1}")], [(0, "b", "gpio", "{}")]],
    ],
)  # fmt: skip
def test_calls_in_pieces_are_put_together(rows):
    """Some servers give all calls of an answer the index 0."""
    answer = said(openai, *map(delta, rows), delta(finish="tool_calls"))
    assert answer.calls == (ToolCall("a", "sensor", '{"x":1}'), ToolCall("b", "gpio", "{}"))


def test_calls_without_ids_get_some():
    answer = said(openai, delta([(0, "", "a", "{}"), (1, "", "b", "{}")], finish="stop"))
    assert [call.id for call in answer.calls] == ["call_0", "call_1"]


def test_an_answer_in_one_piece_is_understood():
    reading = openai.Reading()
    call = {"id": "a", "function": {"name": "gpio", "arguments": "{}"}}
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    message = {"content": None, "tool_calls": [call]}
    reading.whole({"choices": [{"message": message}], "usage": usage})
    assert reading.said() == Said("", (ToolCall("a", "gpio", "{}"),), Usage(5, 7), "stop")
    reading = anthropic.Reading()
    blocks = [
        {"type": "text", "text": "Hm."},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "a", "name": "gpio", "input": {"x": 1}},
    ]
    usage = {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 2}
    reading.whole({"content": blocks, "stop_reason": "tool_use", "usage": usage})
    calls = (ToolCall("a", "gpio", '{"x":1}'),)
    items = (blocks[0], blocks[2])
    assert reading.said() == Said("Hm.", calls, Usage(7, 7), "tool_use", items)


@each_kind
def test_a_server_that_tells_of_a_fault_is_believed(kind):
    for error in ({"message": "no\n memory"}, "no memory", {"code": 1}):
        words = (
            "an error without words"
            if isinstance(error, dict) and "code" in error
            else "no memory"
        )
        with pytest.raises(RemoteProtocolError, match=f"the model's server says: {words}"):
            kind.Reading().take({"type": "error", "error": error})
        with pytest.raises(RemoteProtocolError, match=words):
            kind.Reading().whole({"error": error})


def test_a_failed_response_is_a_fault():
    failed = {"type": "response.failed", "response": {"error": {"message": "broken"}}}
    with pytest.raises(RemoteProtocolError, match="broken"):
        openai_responses.Reading().take(failed)


@each_kind
def test_too_much_at_once_is_refused(kind):
    many = range(200)
    with pytest.raises(RemoteProtocolError, match="more than 128"):
        if kind is openai:
            said(kind, delta([(i, f"c{i}", "a", "{}") for i in many], finish="stop"))
        elif kind is openai_responses:
            item = {"type": "function_call", "call_id": "a", "name": "a", "arguments": "{}"}
            response = {"output": [item for _ in many]}
            said(kind, {"type": "response.completed", "response": response})
        else:
            block = {"type": "text", "text": ""}
            starts = [
                {"type": "content_block_start", "index": i, "content_block": block} for i in many
            ]
            said(kind, *starts)


def test_a_piece_of_what_was_never_begun_is_refused():
    with pytest.raises(RemoteProtocolError, match="never begun"):
        said(anthropic, {"type": "content_block_delta", "index": 3, "delta": {}})


@each_kind
def test_nothing_is_an_answer_that_ended_in_the_middle(kind):
    with pytest.raises(RemoteProtocolError, match="ended in the middle"):
        said(kind, {}, {"type": "ping"})


WORDS = st.sampled_from(
    ["type", "index", "delta", "content", "choices", "tool_calls", "function", "name", "id",
     "arguments", "finish_reason", "usage", "response", "output", "call_id", "message",
     "content_block", "partial_json", "text", "input", "stop_reason", "error", "input_tokens"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 300) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)
TYPES = st.sampled_from(
    ["content_block_start", "content_block_delta", "message_start", "message_delta",
     "message_stop", "response.completed", "response.incomplete", "tool_use", "text", "x"]
)  # fmt: skip
EVENT = st.dictionaries(WORDS, JSON, max_size=5).flatmap(
    lambda event: TYPES.map(lambda kind: {**event, "type": kind})
)


@each_kind
@given(events=st.lists(EVENT, max_size=6))
def test_garbage_is_an_answer_or_a_fault_in_words(kind, events):
    """Whatever a server sends, nothing else is raised, and what was said can be sent back."""
    try:
        answer = said(kind, *events)
        kind.Reading().whole(events[0] if events else {})
    except RemoteProtocolError:
        return
    msgspec.json.encode(asked(kind, answer))
