"""A tool of another server as the registry, the trail and the doors see it."""

import msgspec
import pytest

from edged.arguments import secret_values, without_sensitive
from edged.errors import InvalidArgumentsError, TooLargeError
from edged.mcp.client import Called, RemoteTool
from edged.mcp.upstream.content import result
from edged.mcp.upstream.tool import UpstreamTool
from edged.registry import Registry
from edged.tool import Hints


def made(**facts):
    remote = RemoteTool("t", **facts)
    return UpstreamTool("mcp_s_t", remote, lambda *_: None, source="mcp server s")


def test_what_a_server_says_of_a_tool_is_shown():
    """MCP, ToolAnnotations: where it is silent the worst is supposed."""
    plain = made()
    assert plain.hints == Hints(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )
    told = made(title="Read  it", annotations={"readOnlyHint": True, "openWorldHint": False})
    assert told.hints == Hints(
        read_only=True, destructive=False, idempotent=True, open_world=False
    )
    assert (told.label, plain.label, told.category) == ("Read it", "mcp_s_t", "mcp")
    odd = made(annotations={"readOnlyHint": "yes", "title": 3}, description="x" * 9_000)
    hostile = made(title="a\x1b[2Jb", description="c\u202ed\n")
    assert (hostile.label, hostile.description) == ("a\ufffd[2Jb", "c\ufffdd")
    assert (odd.hints.read_only, odd.label, len(odd.description)) == (False, "3", 8_000)
    noted = made(input_schema={"dependentRequired": {"a\x1b": ["b" * 9_000]}})
    assert noted.description[:11] == "With a\ufffd: bb"
    assert len(noted.description) == 8_000


def test_its_output_schema_is_published_where_clients_can_check_it():
    """facts/mcp.md, fault 27; one that refers elsewhere would cost a client the whole list."""
    registry = Registry()
    output = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"type": "number"}},
    }
    registry.register(made(output_schema=output))
    (listed,) = msgspec.json.decode(registry.pages("u", "mcp", frozenset())[0])
    assert listed["outputSchema"] == {"type": "object", "properties": {"a": {"type": "number"}}}
    assert made(output_schema={"type": "array"}).output_schema is None
    assert made(output_schema={"properties": {"$a": {}}}).output_schema is None
    plain = Registry()
    plain.register(made())
    (listed,) = msgspec.json.decode(plain.pages("u", "mcp", frozenset())[0])
    assert "outputSchema" not in listed


def test_passwords_are_kept_out_of_the_trail():
    """Contract, section 7: `sensitive` inputs."""
    schema = {"properties": {"pin": {"type": "string", "format": "password"}, "a": {}}}
    tool = made(input_schema=schema)
    raw = b'{"pin":"1234567","a":1}'
    params = tool.decode(raw)
    assert params.raw == raw
    assert secret_values(tool, params) == ("1234567",)
    assert without_sensitive(tool, raw) == {"a": 1}


def test_arguments_are_an_object_and_bounded():
    tool = made()
    with pytest.raises(InvalidArgumentsError, match="mcp_s_t: arguments must be an object"):
        tool.decode(b"[1]")
    with pytest.raises(TooLargeError):
        tool.decode(b" " * (17 << 20))


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ([{"type": "text", "text": "a"}], "a"),
        ([{"type": "text", "text": "a", "annotations": {"audience": ["user"]}}], "a"),
        ([{"type": "text"}], '{"type":"text"}'),
        ([3, None], "3\nnull"),
        ([{"type": "audio", "data": "QQ==", "mimeType": "audio/wav"}], "[audio: audio/wav]"),
        ([{"type": "resource", "resource": {"uri": "x:1", "text": "body"}}], "body"),
        ([{"type": "resource_link", "uri": "x:1", "name": "n", "size": 3}], "[n: x:1]"),
        ([], '{"b":1}'),
    ],
)
def test_content_of_every_kind_has_text(content, shown):
    """facts/picoclaw.md, section 11; what is no block is shown as it is."""
    from edged.results import complete

    found = complete(result(Called(content, {"b": 1} if not content else None)))
    assert found.for_llm == shown


def test_a_failure_has_no_structure_and_an_unknown_kind_of_result_is_shown():
    """facts/mcp.md, fault 27 and section 1.10."""
    failed = result(Called([{"type": "text", "text": "no"}], {"x": 1}, is_error=True))
    assert (failed.is_error, failed.structured) == (True, None)
    odd = result(Called(result_type="task"))
    assert '"resultType":"task"' in odd.content[0].text
