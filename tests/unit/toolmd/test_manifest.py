"""The front matter's rules, the schema and the Struct of the inputs."""

import keyword
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import ConfigError
from edged.toolmd.manifest import Input, Manifest, arguments, parse, review, schema, struct

HEAD = "name: my_db\ndescription: Query it.\nversion: 1\n"

# specification, "Frontmatter"
FULL = """\
name: tool_name
label: Tool Name
description: What the tool does and when the agent should use it.
version: 1
language: typescript
inputs:
  param_name:
    type: string
    description: What this parameter is for.
  optional_param:
    type: number
    description: An optional parameter.
    optional: true
  secret_param:
    type: string
    description: A sensitive value (e.g., API token).
    optional: true
    sensitive: true
  mode:
    type: enum
    values: single,batch
    description: Choose between modes.
"""


def of(text: str, body: str = "") -> Manifest:
    return parse(f"---\n{text}\n---\n{body}".encode(), "TOOL.md")


def faults(text: str) -> list[tuple[int, str, str]]:
    found = review(f"---\n{text}\n---\n".encode(), "TOOL.md")
    assert found.manifest is None
    assert all(one.file == "TOOL.md" for one in found.faults)
    return [(one.line, one.key, one.reason) for one in found.faults]


def warnings(text: str) -> list[tuple[int, str, str]]:
    found = review(f"---\n{text}\n---\n".encode(), "TOOL.md")
    assert found.manifest is not None
    return [(one.line, one.key, one.reason) for one in found.warnings]


def test_the_specifications_front_matter_is_read() -> None:
    """Specification, "Frontmatter"."""
    assert of(FULL, "\n# Tool\n") == Manifest(
        name="tool_name",
        label="Tool Name",
        description="What the tool does and when the agent should use it.",
        version=1,
        language="typescript",
        inputs=(
            Input("param_name", "string", "What this parameter is for."),
            Input("optional_param", "number", "An optional parameter.", optional=True),
            Input(
                "secret_param",
                "string",
                "A sensitive value (e.g., API token).",
                optional=True,
                sensitive=True,
            ),
            Input("mode", "enum", "Choose between modes.", values=("single", "batch")),
        ),
        body="\n# Tool\n",
    )


def test_the_optional_fields_have_their_defaults() -> None:
    """Contract, section 10, and specification, "Fields"."""
    found = of(HEAD)
    assert (found.label, found.language, found.inputs) == ("my_db", "typescript", ())
    assert (found.timeout_s, found.memory_max, found.network) == (60.0, 256 << 20, False)
    assert (found.devices, found.calls, found.env, found.resources) == ((), (), (), ())
    assert found.warm is True
    assert found.set == frozenset()
    assert found.warnings == ()


def test_the_limits_are_read_and_remembered_as_given() -> None:
    """Contract, section 10; `tools.defaults` fills only what is not given."""
    found = of(
        HEAD
        + "timeout: 600\nmemory: 512M\nnetwork: true\ndevices: [i2c-1, /dev/ttyUSB0, snd/pcmC0D0p]\n"
        "calls: [sensor, gpio, sensor]\nenv: [MY_DB_PATH]\nresources: [optical-character-recognition]\n"
        "warm: false\n"
    )
    assert (found.timeout_s, found.memory_max, found.network) == (600.0, 512 << 20, True)
    assert found.devices == ("i2c-1", "ttyUSB0", "snd/pcmC0D0p")
    assert found.calls == ("sensor", "gpio")
    assert found.env == ("MY_DB_PATH",)
    assert found.resources == ("optical-character-recognition",)
    assert found.warm is False
    assert found.set == {
        "timeout", "memory", "network", "devices", "calls", "env", "resources", "warm"
    }  # fmt: skip
    some = of(HEAD + "timeout: 1.5\nnetwork: false\nmemory:\nresources: all\n")
    assert some.set == {"timeout", "network", "resources"}
    assert (some.timeout_s, some.resources) == (1.5, "all")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16M", 16 << 20),
        ("1G", 1 << 30),
        ("1g", 1 << 30),
        ("256 MiB", 256 << 20),
        ("65536K", 64 << 20),
        ("67108864", 64 << 20),
        ("'67108864'", 64 << 20),
    ],
)
def test_memory_is_bytes_or_a_size(text: str, size: int) -> None:
    """Contract, section 10: `memory: 256M`."""
    assert of(f"{HEAD}memory: {text}").memory_max == size


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("description: x\nversion: 1", 2, "name", "is missing: write `name: …`"),
        ("name: ''\ndescription: x\nversion: 1", 2, "name", "is missing"),
        ("name: 5\ndescription: x\nversion: 1", 2, "name", "in quotes"),
        ("name: 5a\ndescription: x\nversion: 1", 2, "name", "write a letter"),
        (f"name: {'a' * 65}\ndescription: x\nversion: 1", 2, "name", "at most 40"),
        ("name: a b\ndescription: x\nversion: 1", 2, "name", "write a letter"),
        ("name: a\nversion: 1", 2, "description", "is missing"),
        ("name: a\nversion: 1\ndescription: ' '", 4, "description", "is missing"),
        ("name: a\nversion: 1\ndescription: [x]", 4, "description", "must be text"),
        (HEAD + "label: 3", 5, "label", "must be text"),
        ("name: a\ndescription: x\nversion: 1.0", 4, "version", "whole number"),
        ("name: a\ndescription: x\nversion: '2'", 4, "version", "without quotes"),
        ("name: a\ndescription: x\nversion: -1", 4, "version", "whole number"),
        ("name: a\ndescription: x\nversion: true", 4, "version", "whole number"),
        (HEAD + "language: Python", 5, "language", "did you mean 'python'?"),
        (HEAD + "language: 3", 5, "language", "one of typescript, python, bash"),
        (HEAD + "timeout: 0", 5, "timeout", "1 to 3600"),
        (HEAD + "timeout: 3601", 5, "timeout", "1 to 3600"),
        (HEAD + "timeout: 60s", 5, "timeout", "write `timeout: 60`"),
        (HEAD + "timeout: true", 5, "timeout", "1 to 3600"),
        (HEAD + "timeout: .nan", 5, "timeout", "1 to 3600"),
        (HEAD + "memory: 256", 5, "memory", "at least 16M"),
        (HEAD + "memory: lots", 5, "memory", "write `memory: 256M`"),
        (HEAD + "memory: [1]", 5, "memory", "at least 16M"),
        (HEAD + "network: [api.example.com]", 5, "network", "not enforceable"),
        (HEAD + "network: yes", 5, "network", "write true or false"),
        (HEAD + "warm: 1", 5, "warm", "write true or false"),
        (HEAD + "devices: i2c-1", 5, "devices", "must be a list: write `[i2c-1]`"),
        (HEAD + "devices: [../mem]", 5, "devices", "'../mem' is not a name"),
        (HEAD + "devices: [/etc/passwd]", 5, "devices", "is not a name"),
        (HEAD + "devices: [3]", 5, "devices", "3 is not a name"),
        (HEAD + "calls: [a b]", 5, "calls", "'a b' is not a name"),
        (HEAD + "env: [A-B]", 5, "env", "'A-B' is not a name"),
        (HEAD + "resources: everything", 5, "resources", "or `all`"),
        (HEAD + "inputs: [a]", 5, "inputs", "must be a mapping"),
        (HEAD + "inputs: {a: string}", 5, "inputs.a", "write `type: string`"),
        (HEAD + "inputs: {a-b: {type: string, description: x}}", 5, "inputs.a-b", "letter or `_`"),
        (HEAD + "inputs: {1a: {type: string, description: x}}", 5, "inputs.1a", "letter or `_`"),
        ("- a", 2, "", "must be `key: value` lines"),
        ("", 0, "", "must be `key: value` lines"),
        (HEAD + "name: b", 5, "", "'name' is there already, on line 2"),
    ],
)
def test_a_fault_has_its_line_and_its_remedy(text: str, line: int, key: str, words: str) -> None:
    """Contract, section 10; issue 2, part 3: listed with file, line, reason."""
    ((found_line, found_key, reason),) = faults(text)
    assert (found_line, found_key) == (line, key)
    assert words in reason


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("optional: yes", "optional", "write true or false"),
        ("sensitive: 1", "sensitive", "write true or false"),
        ("default: 3", "default", "must be text"),
        ("type: number\n    default: '3'", "default", "a number, without quotes"),
        ("type: number\n    default: true", "default", "a number"),
        ("type: number\n    default: .inf", "default", "a number"),
        ("type: boolean\n    default: 'true'", "default", "true or false"),
        ("type: boolean\n    default: 1", "default", "true or false"),
        ("type: enum\n    values: a, b\n    default: c", "default", "one of a, b"),
        ("type: object\n    default: {}", "default", "must be text"),
        ("type: enum", "values", "write `values: a, b`"),
        ("type: enum\n    values: ' , '", "values", "write `values: a, b`"),
        ("type: enum\n    values: a, a", "values", "there twice"),
        ("type: enum\n    values: [a, 1.10]", "values", "put it in quotes"),
        ("type: enum\n    values: [a, [b]]", "values", "put it in quotes"),
        ("description: 3", "description", "must be text"),
    ],
)
def test_a_fault_of_an_input_is_found(text: str, key: str, words: str) -> None:
    """Specification, "Input Properties"; contract, section 8: nothing is coerced in a file."""
    found = faults(f"{HEAD}inputs:\n  a:\n    {text}\n")
    assert any(k == f"inputs.a.{key}" and words in reason for _, k, reason in found)


def test_a_misspelt_type_is_told_once() -> None:
    """Not both: that it counts as string, and that it is a fault."""
    text = f"---\n{HEAD}inputs:\n  a:\n    type: nmber\n    description: x\n    default: 1\n---\n"
    found = review(text.encode(), "TOOL.md")
    (fault,) = found.faults
    assert fault.key == "inputs.a.type"
    assert fault.reason.startswith("'nmber' is unknown: write one of string, number")
    assert fault.reason.endswith("; did you mean 'number'?")
    assert found.warnings == ()


def test_every_fault_of_a_file_is_told_at_once() -> None:
    """Issue 2, part 3."""
    text = "name: 5\nversion: x\nlanguage: ruby\ntimeout: 0\ninputs: {a: {optional: maybe}}"
    assert [key for _, key, _ in faults(text)] == [
        "name",
        "description",
        "version",
        "language",
        "inputs.a.optional",
        "timeout",
    ]
    with pytest.raises(ConfigError, match=r"6 faults:\n  TOOL.md:2: name: must be text") as caught:
        of(text)
    assert len(caught.value.faults) == 6


def test_a_file_that_is_no_front_matter_is_one_fault() -> None:
    """Issue 2, part 3: anything at all may lie in a tool's directory."""
    with pytest.raises(ConfigError, match=r"TOOL\.md:1: the first line"):
        parse(b"# Title\n", "TOOL.md")
    assert review(b"---\na: [\n---\n", "TOOL.md").faults[0].line in (2, 3)


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("name: a\ndescription: x", 2, "version", "counts as 0"),
        ("name: My-Tool\ndescription: x\nversion: 1", 2, "name", "lower case"),
        (f"name: {'a' * 64}\ndescription: x\nversion: 1", 2, "name", "at most 40"),
        (HEAD + "timout: 3", 5, "timout", "did you mean 'timeout'? (ignored)"),
        (HEAD + "author: me", 5, "author", "known here"),
        (HEAD + "inputs: {a: {type: string}}", 5, "inputs.a.description", "is missing"),
        (HEAD + "inputs: {a: {description: x}}", 5, "inputs.a.type", "counts as string"),
        (
            HEAD + "inputs: {a: {description: x, type: object}}",
            5,
            "inputs.a.type",
            "accept a JSON string",
        ),
        (HEAD + "inputs: {a: {description: x, type: array}}", 5, "inputs.a.type", "JSON string"),
        (
            HEAD + "inputs: {a: {description: x, type: nubmer}}",
            5,
            "inputs.a.type",
            "did you mean 'number'?",
        ),
        (
            HEAD + "inputs: {a: {description: x, type: [1]}}",
            5,
            "inputs.a.type",
            "counts as string",
        ),
        (
            HEAD + "inputs: {a: {description: x, type: string, requird: true, optional: true}}",
            5,
            "inputs.a.requird",
            "unknown key",
        ),
        (
            HEAD + "inputs: {a: {description: x, type: string, values: a}}",
            5,
            "inputs.a.values",
            "only `type: enum`",
        ),
    ],
)
def test_what_the_platform_tolerates_is_a_warning(
    text: str, line: int, key: str, words: str
) -> None:
    """Specification, "Fields" and "Input Types"; contract, section 10, names."""
    ((found_line, found_key, reason),) = warnings(text)
    assert (found_line, found_key) == (line, key)
    assert words in reason
    assert of(text).warnings == (f"line {line}: {key}: {reason}",)


def test_an_unknown_type_counts_as_string() -> None:
    """Specification, "Input Types": default if type is unrecognized."""
    (one,) = of(HEAD + "inputs: {a: {type: date, description: x}}").inputs
    assert one.type == "string"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("single,batch", ("single", "batch")),
        ("' single , batch ,'", ("single", "batch")),
        ("[single, batch]", ("single", "batch")),
        ("[1, 2]", ("1", "2")),
        ("[true, on]", ("true", "on")),
        ("one", ("one",)),
        ("1", ("1",)),
    ],
)
def test_enum_values_are_a_text_or_a_list(text: str, values: tuple[str, ...]) -> None:
    """Specification, "Input Types": comma-separated or array."""
    text = f"inputs:\n  a:\n    type: enum\n    values: {text}\n    description: x\n"
    (one,) = of(HEAD + text).inputs
    assert one.values == values


def test_an_input_with_a_default_is_optional() -> None:
    """Contract, section 8."""
    a, b, c, d, e = of(
        HEAD + "inputs:\n"
        "  a: {type: string, description: x, default: ''}\n"
        "  b: {type: number, description: x, default: 0}\n"
        "  c: {type: boolean, description: x, default: false}\n"
        "  d: {type: enum, values: 'x,y', description: x, default: y}\n"
        "  e: {type: string, description: x, default: null}\n"
    ).inputs
    assert [one.default for one in (a, b, c, d)] == ["", 0, False, "y"]
    assert all(one.optional for one in (a, b, c, d))
    assert (e.optional, e.default) == (False, None)


MANIFEST = of(
    HEAD
    + """\
inputs:
  action: {type: enum, values: "query,stats", description: Which.}
  sql: {type: string, description: SQL., optional: true}
  limit: {type: number, description: Rows., default: 10}
  dry: {type: boolean, optional: true}
"""
)


def test_the_schema_is_plain_json_schema() -> None:
    """Contract, section 8: enums are published as `type: string` with `enum`."""
    assert schema(MANIFEST) == {
        "type": "object",
        "properties": {
            "action": {"type": "string", "description": "Which.", "enum": ["query", "stats"]},
            "sql": {"type": "string", "description": "SQL."},
            "limit": {"type": "number", "description": "Rows.", "default": 10},
            "dry": {"type": "boolean"},
        },
        "required": ["action"],
        "additionalProperties": False,
    }


def test_a_tool_without_inputs_takes_an_empty_object() -> None:
    """MCP, tools: the form recommended for tools without parameters."""
    found = of(HEAD + "inputs:\n")
    assert schema(found) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert arguments(found, msgspec.convert({}, struct(found))) == {}


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"action": "query"}, {"action": "query", "limit": 10}),
        (
            {"action": "stats", "sql": "x", "limit": 2.5},
            {"action": "stats", "sql": "x", "limit": 2.5},
        ),
        (
            {"action": "stats", "sql": None, "limit": None, "dry": False},
            {"action": "stats", "limit": 10, "dry": False},
        ),
    ],
)
def test_arguments_are_decoded_with_defaults(
    given_: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Contract, section 8: defaults when absent; null for an optional input means absent."""
    assert arguments(MANIFEST, msgspec.convert(given_, struct(MANIFEST))) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"action": None},
        {"action": "drop"},
        {"action": "stats", "sql": 3},
        {"action": "stats", "limit": "3"},
        {"action": "stats", "limit": True},
        {"action": "stats", "dry": 1},
        {"action": "stats", "other": 1},
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    """Contract, section 8: required, type, enum, unknown names."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, struct(MANIFEST))


@given(
    st.lists(
        st.sampled_from([*keyword.kwlist, "__init__", "__struct_fields__", "self", "input_1"]),
        unique=True,
        max_size=12,
    )
)
def test_an_input_may_have_any_name(names: list[str]) -> None:
    """Contract, section 8; `from` and `class` are good names for a tool's inputs."""
    manifest = Manifest("a", "a", "a", inputs=tuple(Input(name) for name in names))
    data = dict.fromkeys(names, "x")
    assert arguments(manifest, msgspec.convert(data, struct(manifest))) == data


@given(
    st.lists(
        st.sampled_from(
            [
                "name: a",
                "description: b",
                "version: 1",
                "version: x",
                "inputs:",
                "  a:",
                "    type: enum",
                "    values: [1, a, null]",
                "    default: 1",
                "timeout: {}",
                "memory: null",
                "devices: [1]",
                "network: []",
                "language: [a]",
                "resources: {a: 1}",
                "? x",
                "- a",
                "warm: 1e3",
                "label: ~",
            ]
        ),
        max_size=12,
    )
)
def test_any_front_matter_is_a_manifest_or_has_a_fault(lines: list[str]) -> None:
    """Issue 2, shows: fuzzing the front matter reader; a manifest fits the cache's format."""
    data = "\n".join(["---", *lines, "---", ""]).encode()
    found = review(data, "TOOL.md")
    assert (found.manifest is None) == bool(found.faults)
    if found.manifest is not None:
        packed = msgspec.msgpack.encode(found.manifest)
        assert msgspec.msgpack.decode(packed, type=Manifest) == found.manifest
        assert msgspec.json.encode(schema(found.manifest))
        struct(found.manifest)
