"""Tools and their schemas (architecture, "One type is the schema")."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from edged import results
from edged.tool import READS, Context, Hints, Tool, schema_of, tool


class Point(msgspec.Struct):
    """Where."""

    x: int
    axis: Literal[1, 2] = 1


class Plot(msgspec.Struct, kw_only=True):
    """Inputs of a plot."""

    points: list[Point]
    start: Point | None = None
    colour: Annotated[Literal["red", "blue"], Meta(description="Of the line.")] = "red"
    width: Annotated[float, Meta(gt=0, le=10)] | None = None
    level: Literal["on", "off"] | bool | Annotated[int, Meta(ge=0, le=1)] | None = None
    unit: Literal["Cel", None] = "Cel"  # noqa: PYI061  msgspec publishes it otherwise
    enum: str = ""
    default: str | None = None


@tool("plot", label="Plot", hints=READS, timeout_s=5.0)
def plot(params: Plot, _ctx: Context) -> results.Result:
    """Draw a line
    through points.

    More, for people.
    """  # noqa: D205  how a long first line comes
    return results.text(str(len(params.points)))


def nodes(value):
    """Every object of a JSON document."""
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from nodes(one)
    elif isinstance(value, list):
        for one in value:
            yield from nodes(one)


def test_a_schema_is_a_flat_object_without_references():
    """MCP: the root is `type: object`; facts, fault 29: clients resolve no `$ref`."""
    schema = plot.schema
    assert schema["type"] == "object"
    assert schema["required"] == ["points"]
    assert schema["additionalProperties"] is False
    assert not any("$ref" in node or "$defs" in node for node in nodes(schema))
    point = schema["properties"]["points"]["items"]
    assert point["properties"]["x"] == {"type": "integer"}
    assert schema["properties"]["start"]["properties"] == point["properties"]


def test_enums_are_published_as_strings():
    """Contract, section 8: `type: string` with `enum`."""
    assert plot.schema["properties"]["colour"] == {
        "type": "string",
        "enum": ["blue", "red"],
        "default": "red",
        "description": "Of the line.",
    }


def test_an_enum_of_numbers_is_not_called_a_string():
    """JSON Schema: a value must fit `type` and `enum` both."""
    axis = plot.schema["properties"]["points"]["items"]["properties"]["axis"]
    assert axis == {"type": "integer", "enum": [1, 2], "default": 1}


def test_an_optional_input_has_its_own_type_and_no_null():
    """Contract, section 8: null means absent; clients read plain types best."""
    properties = plot.schema["properties"]
    assert properties["width"] == {"type": "number", "exclusiveMinimum": 0, "maximum": 10}
    assert properties["unit"] == {"type": "string", "enum": ["Cel"], "default": "Cel"}
    assert properties["level"] == {
        "anyOf": [
            {"type": "string", "enum": ["off", "on"]},
            {"type": "boolean"},
            {"type": "integer", "minimum": 0, "maximum": 1},
        ]
    }


def test_inputs_may_be_called_like_keywords_of_json_schema():
    """Names under `properties` are names."""
    properties = plot.schema["properties"]
    assert properties["enum"] == {"type": "string", "default": ""}
    assert properties["default"] == {"type": "string"}


def test_a_tool_without_inputs_publishes_an_empty_object():
    """MCP, tools: the form for no arguments is an object that allows nothing."""
    assert schema_of(msgspec.defstruct("Nothing", [])) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_the_description_is_the_first_paragraph_of_the_docstring():
    """Architecture, "A Tool"."""
    assert plot.description == "Draw a line through points."
    assert (plot.name, plot.label, plot.hints, plot.timeout_s) == ("plot", "Plot", READS, 5.0)


def test_a_given_description_wins_and_a_decorator_can_be_used_again():
    """`@tool` registers nothing and keeps nothing."""
    wrap = tool("twice", description="Said.")

    def one(params: Point, ctx: Context) -> results.Result: ...

    assert wrap(one).description == "Said."
    assert wrap(one).description == "Said."
    assert tool("bare")(one).description == ""


def test_defaults_follow_the_name():
    """Contract, section 6: every tool has a category and a `config_key`; 10: `label` is the title."""
    bare = tool("bare")(plot.run)
    assert (bare.label, bare.category, bare.config_key) == ("bare", "system", "bare")
    assert bare.hints == Hints()


def test_the_struct_is_built_once_and_only_when_it_is_needed():
    """Architecture: start-up is a feature, TOOL.md inputs are compiled when first used."""
    made = []

    def make():
        made.append(1)
        return Point

    lazy = Tool("lazy", plot.run, description="", make_type=make)
    assert not made
    assert lazy.decode(b'{"x": 1}') == Point(1)
    assert lazy.decode(b'{"x": 2}') == Point(2)
    assert set(lazy.fields) == {"x", "axis"}
    assert lazy.fields is lazy.fields
    assert lazy.schema is lazy.schema
    assert made == [1]


def test_a_schema_of_its_own_is_taken_as_it_is():
    """TOOL.md tools publish the order and words of their file."""
    own = {"type": "object", "properties": {}}
    made = Tool("x", plot.run, description="", make_type=lambda: Point, make_schema=lambda: own)
    assert made.schema is own


def test_a_tool_switched_off_leaves_the_original_on():
    """Configuration: `tools.<name>.enabled: false`."""
    off = plot.switched_off()
    assert (off.status, plot.status) == ("disabled", "enabled")
    assert (off.name, off.run) == (plot.name, plot.run)


def test_a_mixed_enum_is_refused_when_the_schema_is_made():
    """No JSON type fits it; a list of tools must not carry it to clients."""
    mixed = msgspec.defstruct("Mixed", [("value", Literal["on", 1])])
    with pytest.raises(ValueError, match="too many values"):
        schema_of(mixed)
