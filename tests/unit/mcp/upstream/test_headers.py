"""Headers that repeat parts of a body (MCP 2026-07-28, Streamable HTTP, Request Metadata)."""

import pytest

from edged.mcp.upstream.headers import encoded, mirrored, parameters


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_values_are_encoded_as_the_revision_shows(value, header):
    """Its table of encoding examples."""
    assert encoded(value) == header


def schema(**properties):
    return {"type": "object", "properties": properties}


def test_marked_inputs_are_repeated_at_any_depth():
    """Null or absent ones have no header; booleans and integers in their own words."""
    fields = mirrored(
        schema(
            region={"type": "string", "x-mcp-header": "Region"},
            deep=schema(count={"type": "integer", "x-mcp-header": "Count"}),
            on={"type": "boolean", "x-mcp-header": "On"},
            plain={"type": "string"},
        )
    )
    given = {"region": "ä", "deep": {"count": 42}, "on": False, "plain": "x"}
    assert parameters(fields, given) == {
        "Mcp-Param-Region": "=?base64?w6Q=?=",
        "Mcp-Param-Count": "42",
        "Mcp-Param-On": "false",
    }
    assert parameters(fields, {"region": None, "deep": 3}) == {}
    with pytest.raises(ValueError, match="2\\*\\*53"):
        parameters(fields, {"deep": {"count": 2**53}})


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "a b"}},
        {"a": {"type": "string", "x-mcp-header": "Rég"}},
        {"a": {"type": "string", "x-mcp-header": "a\r\nb"}},
        {"a": {"type": "string", "x-mcp-header": 3}},
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "object", "x-mcp-header": "A"}},
        {
            "a": {"type": "string", "x-mcp-header": "A"},
            "b": {"type": "string", "x-mcp-header": "a"},
        },
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}},
    ],
)
def test_a_wrong_mark_is_refused(properties):
    """Constraints on `x-mcp-header` values; such a tool must be left out."""
    with pytest.raises(ValueError, match="x-mcp-header"):
        mirrored(schema(**properties))


def test_an_input_may_be_called_like_the_mark():
    assert mirrored(schema(**{"x-mcp-header": {"type": "string"}})) == {}
