"""The YAML loader: scalars, what is refused, lines, and the way into Structs."""

import enum
import json
import math
import re
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from edged import yamlio
from edged.errors import ConfigError
from edged.yamlio import DEPTH_MAX, SIZE_MAX, Secret, convert, dotted, load, nearest


def value(text: str) -> Any:
    return load(text, "f.yaml").value


def fault(text: str, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(text, "f.yaml", **options)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # YAML 1.2.2, section 10.3.2: the core schema's table and its example.
        ("null", None),
        ("Null", None),
        ("NULL", None),
        ("~", None),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("False", False),
        ("FALSE", False),
        ("0", 0),
        ("0o7", 7),
        ("0x3A", 58),
        ("-19", -19),
        ("+12", 12),
        ("0.", 0.0),
        ("-0.0", -0.0),
        (".5", 0.5),
        ("+12e03", 12000.0),
        ("-2E+05", -200000.0),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("+.INF", math.inf),
        ("18446744073709551615", (1 << 64) - 1),
        ("-9223372036854775808", -(1 << 63)),
        # Contract, section 3: what a person would read.
        ("on", "on"),
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("Y", "Y"),
        ("12:30", "12:30"),
        ("1:30:00", "1:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("010", "010"),
        ("-010", "-010"),
        ("007.5", "007.5"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("0o8", "0o8"),
        ("0x", "0x"),
        ("1.2.3", "1.2.3"),
        ("+", "+"),
        ("nUll", "nUll"),
        ("'true'", "true"),
        ('"1"', "1"),
        ("|\n 1\n", "1\n"),
        ("=", "="),
    ],
)
def test_a_scalar_is_what_the_core_schema_and_a_person_say(text: str, expected: object) -> None:
    """YAML 1.2.2, 10.3.2, and contract, section 3."""
    found = value(f"a: {text}")["a"]
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_a_number() -> None:
    """YAML 1.2.2, 10.3.2."""
    assert all(math.isnan(value(f"a: {text}")["a"]) for text in (".nan", ".NaN", ".NAN"))


def test_an_empty_document_is_nothing() -> None:
    """A configuration with comments alone is a configuration of defaults."""
    assert value("") is None
    assert value("# only a comment\n") is None
    assert value("a:\n") == {"a": None}


def test_a_json_file_is_read() -> None:
    """Contract, section 3; JSON escapes of characters beyond U+FFFF are pairs (RFC 8259, 7)."""
    data = {"a": [1, 2.5, None, True, "on"], "smile": "\U0001f600\U0001f601 \\ud83d", "b": {}}
    assert value(json.dumps(data)) == data
    assert value(json.dumps(data, indent="\t")) == data


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    """Editors on Windows write one."""
    assert value("\ufeffa: 1") == {"a": 1}


def test_keys_become_text() -> None:
    """Contract, section 11: `users: {1000: …}`, `i2c: {1: {}}`."""
    assert value("users: {1000: ada}\ni2c: {1: {}, 0x3: {}}\n12:30: x") == {
        "users": {"1000": "ada"},
        "i2c": {"1": {}, "3": {}},
        "12:30": "x",
    }


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "on line 1"),
        ("1: a\n'1': b", 2, "on line 1"),
        ("a: &x 1", 1, "anchor '&x'"),
        ("a: &x {}", 1, "anchor '&x'"),
        ("a: 1\nb: *x", 2, "alias '*x'"),
        ("a:\n  <<: {b: 1}", 2, "merge key"),
        ("a: !!str 1", 1, "tag"),
        ("a: !!map {}", 1, "tag"),
        ("a: !secret x", 1, "tag '!secret'"),
        ("!!str a: 1", 1, "tag"),
        ("a: ! 3", 1, "tag"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: 1\n... \n---\n", 3, "second document"),
        ("true: 1", 1, "not text"),
        ("~: 1", 1, "not text"),
        ("1.5: 1", 1, "not text"),
        ("? [a]\n: 1", 1, "must be text"),
        ("a: 1\nb: {a: 1, a: 2}", 2, "there already"),
        ("a: description: b", 1, "quotes"),
        ("a:\n\t- b", 2, "a tab"),
        ("a: @b", 1, "cannot begin with '@'"),
        ("a: `b`", 1, "cannot begin with '`'"),
        ('a: 1\nb: "c', 2, "quotes"),
        ("a: [1,\n", 1, "brackets"),
        ("- a\nb: c", 2, "not YAML"),
        ("a: 1\nb: \x07", 2, "U+0007"),
        ("a: 18446744073709551616", 1, "64 bits"),
        (f"a: {'9' * 5000}", 1, "64 bits"),
        (f"a: 0x{'f' * 17}", 1, "64 bits"),
        ("a: 1e999", 1, "too large"),
        ("a: \ud800", 1, "U+D800"),
    ],
)
def test_what_a_person_would_not_expect_is_refused_with_its_line(
    text: str, line: int, words: str
) -> None:
    """Contract, section 3: errors with file and line."""
    error = fault(text)
    assert (error.file, error.line) == ("f.yaml", line)
    assert words in error.reason


def test_half_a_character_is_refused_whichever_parser_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RFC 8259, section 8.2; a lone half could never be sent on."""
    assert fault('a: "\\ud800"').line == 1
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert "half a character" in fault('a: "\\ud800"').reason
    assert "half a character" in fault('"\\ud800": 1').reason


def test_without_the_c_library_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML is built without libyaml on some boards."""
    text = "a: on\nb: [1, {c: 'd'}]\n"
    expected = load(text, "f.yaml")
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert load(text, "f.yaml") == expected
    assert "a tab" in fault("a:\n\t- b").reason
    assert "cannot begin with '@'" in fault("a: @b").reason


def test_size_and_depth_are_bounded() -> None:
    """Laws of the module: no input ends the process."""
    assert value("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    assert "nested deeper" in fault("[" * (DEPTH_MAX + 1)).reason
    assert "nesting depth" in fault("[" * 100_000).reason
    assert "larger than" in fault("a" * (SIZE_MAX + 1)).reason


def test_a_secret_is_kept_by_name_where_secrets_are_allowed() -> None:
    """Contract, section 11: `!secret NAME`."""
    document = load("a: !secret brave\nb: [!secret 'x']", "f.yaml", secrets=True)
    assert document.value == {"a": Secret("brave"), "b": [Secret("x")]}
    assert "wants a name" in fault("a: !secret", secrets=True).reason
    assert "the only one" in fault("a: !env x", secrets=True).reason
    assert "the only one" in fault("a: !secret {}", secrets=True).reason


def test_each_key_path_has_its_line() -> None:
    """Contract, section 11: file, line, key path; front matter begins on line 2."""
    document = load("a:\n  b:\n    - 1\n    - c: 2\n", "f.yaml", first_line=2)
    assert document.lines[()] == 2
    assert document.lines["a", "b"] == 3
    assert document.lines["a", "b", 1, "c"] == 5
    assert document.line_of(("a", "b", 1, "nothing", "below")) == 5
    assert document.line_of(("x",)) == 2
    assert load("", "f.yaml").line_of(("x",)) == 0
    assert dotted(("a", "b", 1, "c")) == "a.b[1].c"


def test_the_nearest_word_is_found_or_none() -> None:
    """Contract, section 11: the nearest known key."""
    assert nearest("timout", ["memory", "timeout"]) == "timeout"
    assert nearest("TIMEOUT", ["memory", "timeout"]) == "timeout"
    assert nearest("zzz", ["memory", "timeout"]) == ""


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc:-# '\"\\", max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values.filter(lambda found: not _has_infinity(found)))
def test_every_json_document_is_read_as_it_is(data: object) -> None:
    """Contract, section 3: a JSON file is accepted; YAML 1.2.2, 1.2: a superset."""
    assert value(json.dumps({"a": data}))["a"] == data


def _has_infinity(data: object) -> bool:
    if isinstance(data, dict):
        return any(_has_infinity(one) for one in data.values())
    if isinstance(data, list):
        return any(_has_infinity(one) for one in data)
    return isinstance(data, float) and math.isinf(data)


@given(
    st.text(
        st.sampled_from("ab: -#'\"[]{}&*!|>%@`\n\t\r,?~<1.0x\\u8\ufeff\u2028\x85\0é"), max_size=60
    )
)
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    """Laws of the module; values must be fit to be sent on as JSON and MessagePack."""
    refused = None
    try:
        document = load(text, "f.yaml")
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.reason
        assert refused.line >= 1
    else:
        msgspec.json.encode(document.value)
        msgspec.msgpack.encode(document.value)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Webhook(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="webhook"):
    url: str


class Mail(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="mail"):
    to: str


class Open(msgspec.Struct, frozen=True):
    a: int = 0


class Ordered(msgspec.Struct, frozen=True):
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


class Part(msgspec.Struct, forbid_unknown_fields=True):
    timeout: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    ratio: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    mode: Literal["plain", "fancy"] = "plain"
    kind: Literal["", "one", "two"] = ""
    auto: bool | Literal["auto"] = True
    enabled: bool = True
    color: Color = Color.RED
    word: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"


class Whole(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    part: Part | bool = False
    parts: dict[str, Part] = {}
    users: dict[int, str | Part] = {}
    named: dict[Annotated[str, msgspec.Meta(max_length=3)], int] = {}
    several: list[Part] = []
    channels: dict[str, Webhook | Mail] = {}
    pair: tuple[int, str] = (1, "")
    many: tuple[int, ...] = ()
    open: Open = Open()
    ordered: Ordered = Ordered(1, 2)
    key: str | Secret = ""
    maybe: Annotated[dict[str, int] | None, msgspec.Meta(description="x")] = None
    anything: Any = None
    switch: Literal["none"] | Part = "none"


def faults(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(ConfigError) as caught:
        convert(load(text, "e.yaml", secrets=True), Whole, "e.yaml")
    found = caught.value.faults or (caught.value,)
    assert all(one.file == "e.yaml" for one in found)
    return [(one.line, one.key, one.reason) for one in found]


def test_a_good_document_becomes_its_struct() -> None:
    """Architecture: one type is the schema."""
    text = (
        "name: x\nusers: {1000: ada, 1001: {timeout: 2}}\nkey: !secret k\npart: true\nmany: [1]\n"
    )
    found = convert(load(text, "e.yaml", secrets=True), Whole, "e.yaml")
    assert found == Whole(
        "x", part=True, users={1000: "ada", 1001: Part(2)}, key=Secret("k"), many=(1,)
    )
    assert convert(load("", "e.yaml"), Part, "e.yaml") == Part()


@pytest.mark.parametrize(
    ("text", "line", "key", "words"),
    [
        ("part:\n  timout: 3", 3, "part.timout", "unknown key; did you mean 'timeout'?"),
        ("zzzzz: 3", 2, "zzzzz", "unknown key; known here: anything, channels"),
        ("part: {timeout: 0}", 2, "part.timeout", "expected a whole number >= 1, got 0"),
        ("part: {ratio: -1}", 2, "part.ratio", "expected a number > 0.0, got -1"),
        (
            "part: {mode: fency}",
            2,
            "part.mode",
            "plain, fancy; got 'fency'; did you mean 'fancy'?",
        ),
        ("part: {mode: 3}", 2, "part.mode", "expected one of plain, fancy; got 3"),
        ("many: 3", 2, "many", "expected a list, got a whole number: put it in brackets, [3]"),
        (
            "switch: nne",
            2,
            "switch",
            "expected 'none' or a mapping; got 'nne'; did you mean 'none'?",
        ),
        ("part: {kind: foo}", 2, "part.kind", "expected one of one, two; got 'foo'"),
        ("part: {auto: 'yes'}", 2, "part.auto", "expected one of auto, true, false; got 'yes'"),
        ("part: {enabled: on}", 2, "part.enabled", "got text: write true or false"),
        ("part: {color: blue}", 2, "part.color", "expected one of red, green; got 'blue'"),
        ("part: {word: A}", 2, "part.word", "matching regex"),
        ("part: 3", 2, "part", "expected true or false or a mapping, got a whole number"),
        ("parts:\n  x: {timeout: a}", 3, "parts.x.timeout", "expected a whole number, got text"),
        ("parts: [1]", 2, "parts", "expected a mapping, got a list"),
        ("users: {bob: a}", 2, "users.bob", "the key must be a whole number"),
        ("users: {1: {mode: x}}", 2, "users.1.mode", "plain, fancy"),
        ("named: {abcd: 1}", 2, "named.abcd", "length <= 3"),
        ("several:\n- mode: x\n", 3, "several[0].mode", "plain, fancy"),
        ("several:\n- {}\n- 5", 4, "several[1]", "expected a mapping"),
        ("channels: {a: {kind: mial}}", 2, "channels.a.kind", "webhook, mail; got 'mial'; did"),
        ("channels: {a: {to: x}}", 2, "channels.a.kind", "is missing: write one of webhook, mail"),
        ("channels: {a: {kind: mail, to: 3}}", 2, "channels.a.to", "expected text"),
        ("channels: {a: {kind: mail, to: a, x: 1}}", 2, "channels.a.x", "known here: kind, to"),
        ("channels: {a: 1}", 2, "channels.a", "expected a mapping"),
        ("pair: [1]", 2, "pair", "length 2"),
        ("pair: [a, b]", 2, "pair[0]", "a whole number"),
        ("many:\n- 1\n- b", 4, "many[1]", "a whole number"),
        ("open: {a: x, other: 1}", 2, "open.a", "a whole number"),
        ("ordered: {low: 3, high: 1}", 2, "ordered", "low must not be above high"),
        ("ordered: {low: 3}", 2, "ordered.high", "is missing"),
        ("maybe: {a: x}", 2, "maybe.a", "a whole number"),
        ("key: [1]", 2, "key", "got a list"),
        ("open: !secret x", 2, "open", "a secret"),
    ],
)
def test_a_fault_has_its_line_its_key_and_what_is_expected(
    text: str, line: int, key: str, words: str
) -> None:
    """Contract, section 11: file, line, key path and the nearest known key."""
    ((found_line, found_key, reason),) = faults(f"name: x\n{text}\n")
    assert (found_line, found_key) == (line, key)
    assert words in reason


def test_every_fault_is_told_at_once() -> None:
    """Issue 2, part 1: a person mends a file in one go."""
    found = faults("nam: x\nseveral: [{timeout: 0, mode: x}, 3]\n")
    assert [(line, key) for line, key, _ in found] == [
        (1, "nam"),
        (2, "several[0].timeout"),
        (2, "several[0].mode"),
        (2, "several[1]"),
        (1, "name"),
    ]
    with pytest.raises(ConfigError, match=r"5 faults:\n  e.yaml:1: nam: unknown key"):
        convert(load("nam: x\nseveral: [{timeout: 0, mode: x}, 3]\n", "e.yaml"), Whole, "e.yaml")


def test_a_document_of_another_kind_is_one_fault() -> None:
    """A list where a mapping belongs."""
    assert faults("- 1\n") == [(1, "", "expected a mapping, got a list")]


@given(st.dictionaries(st.sampled_from(list(Whole.__struct_fields__)), json_values, max_size=5))
def test_whatever_msgspec_refuses_has_a_fault(data: dict[str, Any]) -> None:
    """The second look must never find less than the first."""
    text = json.dumps({"name": "x", **data}).replace("Infinity", ".inf")
    document = load(text, "e.yaml")
    try:
        msgspec.convert(document.value, Whole, str_keys=True)
    except msgspec.ValidationError:
        with pytest.raises(ConfigError):
            convert(document, Whole, "e.yaml")
    else:
        convert(document, Whole, "e.yaml")


class Wired(msgspec.Struct, forbid_unknown_fields=True):
    """Settings with examples of how they are written."""

    line: Annotated[str, msgspec.Meta(examples=["GPIO17"])] = ""
    id: Annotated[str, msgspec.Meta(pattern="^28-[0-9]+$", examples=["28-1"])] | None = None
    plain: str | None = None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("line: 17", "line: expected text such as GPIO17; got 17"),
        ("id: 28-x", "id: expected text such as 28-1; got '28-x'"),
        ("id: 28", "id: expected text such as 28-1; got 28"),
        ("plain: 5", "plain: expected text or nothing, got a whole number"),
    ],
)
def test_a_text_with_an_example_is_told_with_it(text, reason):
    with pytest.raises(ConfigError, match=re.escape(f"f:1: {reason}")):
        convert(load(text, "f"), Wired, "f")


def test_faults_of_a_value_that_came_from_no_file_are_told_in_the_same_words():
    """Arguments of commands, options of drivers."""
    assert yamlio.faults({"line": "GPIO17"}, Wired) == []
    assert yamlio.faults({"lin": 1, "plain": 2}, Wired) == [
        ("lin", "unknown key; did you mean 'line'?"),
        ("plain", "expected text or nothing, got a whole number"),
    ]
