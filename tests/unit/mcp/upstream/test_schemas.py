"""Input schemas as every provider takes them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import InvalidArgumentsError
from edged.mcp.upstream.inputs import Inputs
from edged.mcp.upstream.schemas import adapted

KEYWORDS = ["$ref", "anyOf", "allOf", "oneOf", "properties", "items", "type", "required", "$defs"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "#", "#/$defs/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=4)
    ),
    max_leaves=20,
)


def roots(node):
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from roots(value)
    elif isinstance(node, list):
        for value in node:
            yield from roots(value)


@given(VALUES)
def test_whatever_is_published_is_flat_and_whole(schema):
    """facts/mcp.md, faults 28 and 29: an object at the root, no alternatives, no references."""
    try:
        found = adapted(schema).schema
    except ValueError as error:
        assert "its input" in str(error)
        return
    assert found["type"] == "object"
    assert isinstance(found["properties"], dict)
    assert not {"anyOf", "oneOf", "allOf", "not", "if", "enum", "const"} & found.keys()
    assert set(found.get("required", [])) <= found["properties"].keys()
    assert not any(isinstance(one.get("$ref"), str) for one in roots(found["properties"]))
    assert adapted(found).schema == found


def test_nothing_of_a_plain_schema_is_lost():
    plain = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1, "default": 3, "description": "how many"},
            "b": {"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]},
            "enum": {"type": "array", "items": {"enum": ["x", 1]}, "maxItems": 3},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert adapted(plain).schema == plain
    assert adapted(None).schema == {"type": "object", "properties": {}}


def test_local_references_are_put_in_place():
    """facts/picoclaw.md #2668: references cost a 400 at some providers."""
    found = adapted(
        {
            "type": "object",
            "properties": {
                "at": {"$ref": "#/$defs/point", "description": "where"},
                "tree": {"$ref": "#/definitions/a~1b"},
                "far": {"$ref": "https://example.org/schema.json"},
            },
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "definitions": {
                "a/b": {"type": "object", "properties": {"next": {"$ref": "#/definitions/a~1b"}}}
            },
        }
    ).schema["properties"]
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "description": "where"}
    assert found["at"] == point
    assert found["tree"] == {"type": "object", "properties": {"next": {"type": "object"}}}
    assert found["far"] == {"description": "See https://example.org/schema.json"}


def test_alternatives_at_the_root_become_optional_inputs_and_a_sentence():
    found = adapted(
        {
            "properties": {"always": {"type": "string"}},
            "required": ["always"],
            "oneOf": [
                {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"properties": {"id": {"type": "string"}, "name": {}}, "required": ["name"]},
            ],
            "allOf": [{"properties": {"more": {"type": "boolean"}}, "required": ["more"]}],
        }
    )
    assert found.schema["required"] == ["always", "more"]
    assert found.schema["properties"]["id"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found.note == "Give exactly one of these sets of inputs: id; name."


@pytest.mark.parametrize(
    "schema",
    [
        [],
        "object",
        True,
        {"type": "string"},
        {"type": ["string", "null"]},
        {"properties": {f"p{n}": {"description": "x" * 1000} for n in range(300)}},
        {"$defs": {f"d{n}": {"properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "abcdef"}}
                   for n in range(12)}, "properties": {"a": {"$ref": "#/$defs/d0"}}},
    ],
)  # fmt: skip
def test_what_cannot_be_published_says_why(schema):
    """Left out alone (fault 28); references that multiply without end are bounded."""
    with pytest.raises(ValueError, match="its input"):
        adapted(schema)


def takes(**properties):
    return Inputs(adapted({"type": "object", "properties": properties, "required": ["need"]}))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b"", {}),
        (b"null", {}),
        (b'{"text":"12345"}', {"text": "12345"}),
        (b'{"text":"{\\"a\\":1}"}', {"text": '{"a":1}'}),
        (b'{"count":"5"}', {"count": 5}),
        (b'{"count":"5.5"}', {"count": "5.5"}),
        (b'{"count":5.0}', {"count": 5.0}),
        (b'{"on":"true"}', {"on": True}),
        (b'{"on":"yes"}', {"on": "yes"}),
        (b'{"map":"{\\"a\\":[1]}"}', {"map": {"a": [1]}}),
        (b'{"list":"[1]","map":"[1]"}', {"list": [1], "map": "[1]"}),
        (b'{"text":null,"need":null}', {"need": None}),
        (b'{"open":"5","other":null}', {"open": "5", "other": None}),
    ],
)
def test_arguments_are_passed_on_to_the_letter(given, sent):
    """facts/mcp.md, fault 26: only what does not fit is made what it spells; null is absent."""
    inputs = takes(
        text={"type": "string"},
        count={"type": "integer"},
        on={"type": "boolean"},
        map={"type": "object"},
        list={"type": "array"},
        open={},
        need={"type": "string"},
    )
    assert msgspec.json.decode(inputs.arguments(given)) == sent
    untouched = b'{"text": "a",  "need":1}'
    assert inputs.arguments(untouched) is untouched


@pytest.mark.parametrize("given", [b"[]", b"3", b'"a"', b"{", b'{"a":}'])
def test_what_is_no_object_is_refused(given):
    with pytest.raises(InvalidArgumentsError):
        takes().arguments(given)


def test_names_that_providers_refuse_are_published_under_others():
    """Anthropic takes ^[a-zA-Z0-9_.-]{1,64}$ alone, and else refuses the whole request."""
    found = adapted({"properties": {"$top": {}, "top": {}, "a b": {}}, "required": ["$top"]})
    assert list(found.schema["properties"]) == ["top_2", "top", "a_b"]
    assert found.schema["required"] == ["top_2"]
    sent = Inputs(found).arguments(b'{"top_2":1,"top":2,"a_b":3}')
    assert msgspec.json.decode(sent) == {"$top": 1, "top": 2, "a b": 3}


def test_injected_names_reach_no_server_that_refuses_them():
    """Contract, section 8: they are accepted everywhere."""
    closed = Inputs(adapted({"properties": {"channel": {}}, "additionalProperties": False}))
    sent = closed.arguments(b'{"workspace":"/w","channel":"c","other":1}')
    assert msgspec.json.decode(sent) == {"channel": "c", "other": 1}


def test_what_is_marked_as_a_password_is_sensitive():
    inputs = takes(key={"type": "string", "format": "password"}, pin={"writeOnly": True}, need={})
    assert inputs.sensitive == {"key", "pin"}


# Schemas that would keep the daemon busy -----------------------------------------------------


def alternatives(count):
    return {"allOf": [{"properties": {"k": {"const": number}}} for number in range(count)]}


def test_an_input_has_so_many_alternatives_and_is_anything_beyond_them():
    """Each was compared to all before it; its server judges."""
    (few,) = adapted(alternatives(100)).schema["properties"].values()
    assert few == {"anyOf": [{"const": number} for number in range(100)]}
    (many,) = adapted(alternatives(6_000)).schema["properties"].values()
    assert many == {"description": "It has too many forms to be listed."}


def test_references_are_as_long_as_people_write_them_and_followed_once():
    long = "#/" + "%61/" * 200_000
    found = adapted({"properties": {f"i{number}": {"$ref": long} for number in range(20)}})
    told = {"description": f"See {long[:200]}"}
    assert [*found.schema["properties"].values()] == [told] * 20


def test_references_to_anchors_cost_no_more_where_there_are_many():
    definitions = {f"d{one}": {"$anchor": f"a{one}", "const": one} for one in range(5_000)}
    unknown = [{"$ref": f"#x{one}"} for one in range(5_000)]
    refer = {"known": {"$ref": "#a7"}, "unknown": {"anyOf": unknown}}
    found = adapted({"properties": refer, "$defs": definitions}).schema["properties"]
    assert found["known"] == {"const": 7}
    assert found["unknown"]["anyOf"][1] == {"description": "See #x1"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"\u00e9" * n: {} for n in range(1, 502)}}, "501 inputs, more than 500"),
        (
            {
                "properties": {"a": {"items": [{"$ref": "#/$defs/a"}] * 5_000}},
                "$defs": {"a": {"enum": ["x" * 100_000]}},
            },
            "more than 256 KiB",
        ),
        (
            {
                "properties": {"a": {"items": [{"$ref": "#/$defs/a"}] * 5_000}},
                "$defs": {"a": {"properties": {"x" * 100_000: {}}}},
            },
            "more than 256 KiB",
        ),
    ],
)
def test_what_is_beyond_all_bounds_is_refused(schema, text):
    with pytest.raises(ValueError, match=text):
        adapted(schema)


def test_inputs_without_a_schema_take_anything():
    found = adapted({"allOf": [{"properties": {"a": 5}}, {"properties": {"a": {"anyOf": 3}}}] * 2})
    assert found.schema["properties"] == {"a": {"anyOf": 3}}
