"""Arguments, every rule of contract section 8."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from edged import arguments, results
from edged.errors import InvalidArgumentsError
from edged.tool import Context, tool


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["fast", "slow"]


class Inputs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    path: str
    count: Annotated[int, Meta(ge=1, le=10)] = 5
    ratio: float = 0.5
    force: bool = False
    mode: Literal["read", "write"] | None = None
    note: Annotated[str, Meta(max_length=8)] = ""
    data: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(max_length=4)] | None = None
    inner: Inner | None = None
    level: Literal["on", "off"] | bool | Annotated[int, Meta(ge=0, le=1)] | None = None
    extra: Any = None
    tags: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.mode == "write" and not self.force:
            raise ValueError("write needs force")


@tool("sample", aliases={"file": "path", "cwd": "path", "limit": "count"})
def sample(_params: Inputs, _ctx: Context) -> results.Result:
    """Takes one input of each kind."""
    return results.text("")


def decode(value):
    return arguments.decode(
        sample, value if isinstance(value, bytes) else msgspec.json.encode(value)
    )


def faults(value):
    with pytest.raises(InvalidArgumentsError) as caught:
        decode(value)
    return dict(caught.value.faults)


def test_what_fits_is_taken_as_it_is_and_defaults_are_applied():
    """Defaults are applied when a key is absent."""
    assert decode({"path": "a", "count": 7}) == Inputs("a", 7)


def test_aliases_reach_the_input_that_they_mean():
    """The spellings that clients also use are accepted."""
    assert decode({"file": "a", "limit": 3}) == Inputs("a", 3)


@pytest.mark.parametrize("both", [{"path": "a", "file": "b"}, {"file": "b", "path": "a"}])
def test_an_input_under_two_names_is_refused_once(both):
    """Neither of two values is the obvious one."""
    assert faults(both) == {"file": "is given twice: 'file' is another word for 'path'"}
    assert "limit" not in faults(both)


def test_two_aliases_of_one_input_are_refused():
    """As above."""
    assert set(faults({"file": "b", "cwd": "c"})) == {"cwd"}


def test_a_null_beside_an_alias_is_absent():
    """Null for an optional input means absent, under every name."""
    assert decode({"path": "a", "count": None, "limit": 3}).count == 3


def test_injected_names_are_accepted_and_dropped():
    """P's `workspace`, `channel`, `chat_id`; they never widen a right."""
    hosts = {"workspace": "/", "channel": "telegram", "chat_id": "1"}
    assert decode({"path": "a", **hosts}) == Inputs("a")


def test_an_unknown_name_is_refused_with_the_known_ones():
    """An unknown name is an error that lists the known ones."""
    reason = faults({"path": "a", "pth": "b"})["pth"]
    assert reason.startswith("is not an input of this tool; it takes: path, count, ratio")


def test_a_tool_without_inputs_says_so():
    """As above, where there is nothing to list."""

    @tool("bare")
    def bare(_params: Nothing, _ctx: Context) -> results.Result:
        """Takes nothing."""
        return results.text("")

    with pytest.raises(InvalidArgumentsError, match="x: .* it takes: none"):
        arguments.decode(bare, b'{"x": 1}')


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


@pytest.mark.parametrize("raw", [b"", b"{}", b"null"])
def test_no_arguments_at_all_name_what_is_required(raw):
    """Required inputs are reported as such, not as a fault of JSON."""
    with pytest.raises(InvalidArgumentsError) as caught:
        arguments.decode(sample, raw)
    assert caught.value.faults == (("path", "is required (a text)"),)


def test_null_for_a_required_input_is_refused():
    """Only an optional input may be null."""
    assert faults({"path": None}) == {"path": "must be a text, not null"}


def test_null_for_an_optional_input_means_absent():
    """Its default is applied."""
    assert decode({"path": "a", "count": None, "ratio": None, "force": None}) == Inputs("a")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "7", 7),
        ("ratio", "0.25", 0.25),
        ("ratio", "-1e3", -1000.0),
        ("ratio", "7", 7.0),
        ("force", "true", True),
        ("force", "false", False),
        ("level", "1", 1),
        ("level", "true", True),
        ("level", "on", "on"),
    ],
)
def test_a_text_that_spells_the_value_is_taken_for_it(name, text, value):
    """A numeric string is taken for a number and "true"/"false" for a boolean."""
    taken = getattr(decode({"path": "a", name: text}), name)
    assert (taken, type(taken)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("count", "seven", "must be an integer, not 'seven'"),
        ("count", "", "must be an integer, not ''"),
        ("count", "07", "must be an integer, not '07'"),
        ("count", "+7", "must be an integer, not '+7'"),
        ("count", " 7", "must be an integer, not ' 7'"),
        ("count", "٧", "must be an integer, not '٧'"),
        ("count", "1_0", "must be an integer, not '1_0'"),
        ("count", 1.5, "must be an integer, not the number 1.5"),
        ("count", True, "must be an integer, not true"),
        ("count", "true", "must be an integer, not 'true'"),
        ("count", [1], "must be an integer, not a list"),
        ("data", "1", "must be a list, not '1'"),
        ("count", {}, "must be an integer, not an object"),
        ("ratio", "NaN", "must be a number, not 'NaN'"),
        ("ratio", "Infinity", "must be a number, not 'Infinity'"),
        ("ratio", "-inf", "must be a number, not '-inf'"),
        ("ratio", "1e999", "must be a number, not '1e999'"),
        ("ratio", "9" * 5000, "must be a number, not text"),
        ("force", 1, "must be true or false, not the number 1"),
        ("force", "yes", "must be true or false, not 'yes'"),
        ("force", "True", "must be true or false, not 'True'"),
        ("mode", "red", "must be one of read, write, not 'red'"),
        ("mode", 1, "must be one of read, write, not the number 1"),
        (
            "level",
            2,
            "must be one of off, on or a boolean or an integer from 0 to 1, not the number 2",
        ),
        ("path", 1, "must be a text, not the number 1"),
        ("tags", "{}", "must be an object, not '{}'"),
    ],
)
def test_nothing_else_is_coerced(name, value, reason):
    """The reason says what would do, in JSON's words, and what came; a long text by its kind."""
    assert faults({"path": "a", name: value})[name] == reason


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("count", 0, "must be an integer from 1 to 10, not the number 0"),
        ("count", "11", "must be an integer from 1 to 10, not the number 11"),
        ("count", 11, "must be an integer from 1 to 10, not the number 11"),
        (
            "level",
            "2",
            "must be one of off, on or a boolean or an integer from 0 to 1, not the number 2",
        ),
        ("note", "123456789", "must have at most 8 characters"),
        ("data", [1] * 5, "must have at most 4 items"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_range(name, value, reason):
    """Validation: required, type, enum, range."""
    assert faults({"path": "a", name: value}) == {name: reason}


@pytest.mark.parametrize("text", ["12345", "0x10", "true", "1.5", "null", '{"a": 1}', ""])
def test_text_that_looks_like_something_else_stays_text(text):
    """Facts, fault 26: a valid value is never touched."""
    assert decode({"path": text, "limit": 2}).path == text


@pytest.mark.parametrize("raw", [b'{"path":"a","ratio":NaN}', b'{"path":"a","ratio":-Infinity}'])
def test_nan_and_infinity_are_refused(raw):
    """They are no JSON."""
    assert "arguments are not JSON" in faults(raw)[""]


def test_a_number_beyond_every_range_is_refused():
    """1e999 would be Infinity."""
    assert "out of range" in faults(b'{"path":"a","ratio":1e999}')[""]


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**70])
def test_integers_keep_every_digit(number):
    """64-bit numbers (device ids, nanoseconds) are not rounded, spelled out or not."""

    @tool("wide")
    def wide(_params: Wide, _ctx: Context) -> results.Result:
        """Takes a number."""
        return results.text("")

    assert arguments.decode(wide, b'{"n": %d}' % number) == Wide(number)
    assert arguments.decode(wide, b'{"n": "%d"}' % number) == Wide(number)


class Wide(msgspec.Struct, forbid_unknown_fields=True):
    n: int


def test_a_whole_number_with_a_point_is_an_integer():
    """JSON Schema 2020-12, 6.1.1: an integer is any number without a fraction."""
    assert decode({"path": "a", "count": 7.0}).count == 7


def test_all_faults_are_reported_at_once_with_their_paths():
    """Contract: all faults of a call, with the path of each."""
    found = faults({"cnt": 1, "count": 99, "force": "yes", "data": [1, "x", 300, "7"]})
    assert set(found) == {"cnt", "path", "count", "force", "data[1]", "data[2]"}
    assert found["data[1]"] == "must be an integer, not text"
    assert found["data[2]"] == "must be an integer, at most 255"


def test_the_message_names_the_tool_and_every_fault():
    """The agent reads one text."""
    with pytest.raises(InvalidArgumentsError) as caught:
        decode({"count": 99, "x": 1})
    text = str(caught.value)
    assert text.startswith("sample: x: is not an input")
    assert "path: is required (a text)" in text
    assert "count: must be an integer from 1 to 10, not the number 99" in text


def test_items_of_a_list_may_be_spelled_out():
    """Numbers as texts, as agents send bytes."""
    assert decode({"path": "a", "data": ["1", 2]}).data == [1, 2]


def test_a_fault_inside_an_object_has_its_path_and_not_its_value():
    """What is inside of a value is not named by the tool's maker, and may be anything."""
    assert faults({"path": "a", "inner": {"mode": "hunter2"}}) == {
        "inner.mode": "invalid enum value"
    }


def test_a_rule_over_several_inputs_is_a_fault_of_the_call():
    """A Struct's `__post_init__`; also after aliases were resolved."""
    assert faults({"path": "a", "mode": "write"}) == {"": "write needs force"}
    assert faults({"file": "a", "mode": "write"}) == {"": "write needs force"}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [(b"[]", "a list"), (b'"x"', "text"), (b"3", "a number"), (b"true", "a boolean")],
)
def test_arguments_that_are_no_object_are_refused(raw, kind):
    """MCP: `arguments` is an object."""
    assert faults(raw)[""] == f"arguments must be an object of names and values, not {kind}"


@pytest.mark.parametrize("raw", [b"{", b'{"path": "\xff"}', b"\xff", b'{"path":"\\ud800"}'])
def test_what_is_no_json_is_refused_as_such(raw):
    """Also broken UTF-8 and half a surrogate pair."""
    assert faults(raw)[""].startswith("arguments are not JSON: ")


def test_nesting_without_end_is_refused():
    """A hundred thousand brackets end no daemon."""
    deep = b'{"path":"a","extra":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert faults(deep)[""].startswith("arguments are not JSON: ")


def test_a_million_wrong_names_get_a_bounded_answer():
    """What goes out is bounded whatever came in."""
    found = faults({f"name{i}": 0 for i in range(1_000)} | {"x" * 10_000: 1})
    assert len(found) == arguments.FAULTS_MAX + 1
    assert found[""] == "and 982 more faults"
    long = faults({"x" * 10_000: 1, "path": "a"})
    assert list(long) == ["x" * 64]


def test_an_input_of_any_type_can_be_required():
    """Its schema has no type to name."""

    @tool("any")
    def anything(_params: Anything, _ctx: Context) -> results.Result:
        """Takes anything."""
        return results.text("")

    with pytest.raises(InvalidArgumentsError, match=r"value: is required \(any value\)"):
        arguments.decode(anything, b"{}")


class Anything(msgspec.Struct, forbid_unknown_fields=True):
    value: Any


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_whatever_comes_in_gives_inputs_or_faults(raw):
    """Malformed arguments only ever cost their own call (facts, fault 36)."""
    try:
        assert isinstance(arguments.decode(sample, raw), Inputs)
    except InvalidArgumentsError as error:
        assert error.faults


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*sample.fields, "file", "limit", "channel", "x"]), JSON))
def test_any_values_under_known_names_give_inputs_or_faults(value):
    """As above, closer to what agents get wrong."""
    try:
        taken = decode(value)
    except InvalidArgumentsError as error:
        assert error.faults
    else:
        assert msgspec.json.decode(msgspec.json.encode(taken), type=Inputs) == taken


# What the audit trail and masking see -----------------------------------------------------


class Login(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str
    pin: int | float = 0
    remember: bool = False
    code: str | None = None


@tool(
    "login",
    sensitive=frozenset({"password", "pin", "remember", "code"}),
    aliases={"pw": "password", "name": "user"},
)
def login(_params: Login, _ctx: Context) -> results.Result:
    """Takes secrets."""
    return results.text("")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"user": "a", "password": 4711}, "must be a text, not a number"),
        (
            {"user": "a", "password": "x", "pin": "hunter2"},
            "must be an integer or a number, not text",
        ),
        ({"user": "a", "pw": 4711}, "must be a text, not a number"),
        ({"user": "a", "password": "x", "remember": "hunter2"}, "must be true or false, not text"),
    ],
)
def test_a_sensitive_value_never_shows_in_a_reason(given, reason):
    """Contract, section 7: absent from errors."""
    with pytest.raises(InvalidArgumentsError) as caught:
        arguments.decode(login, msgspec.json.encode(given))
    assert [fault.reason for fault in caught.value.faults] == [reason]


def test_a_value_that_no_terminal_should_see_is_named_by_its_kind():
    """As is a number of a thousand digits."""
    assert faults({"path": "a", "mode": "\x1b[2J"}) == {
        "mode": "must be one of read, write, not text"
    }
    assert faults({"path": 10**50})["path"] == "must be a text, not a number"


def test_the_trail_sees_known_inputs_without_the_sensitive_ones():
    """Contract, section 7: absent from the audit trail, under every name."""
    raw = b'{"name": "ada", "pw": "hunter2", "password": "x", "typo": "hunter2", "channel": "c"}'
    assert arguments.without_sensitive(login, raw) == {"name": "ada"}
    assert arguments.without_sensitive(login, b"") == {}


@pytest.mark.parametrize("raw", [b"[1]", b"{", b"[" * 100_000])
def test_the_trail_sees_nothing_of_what_cannot_be_told_apart(raw):
    """A secret may be anywhere in it."""
    assert arguments.without_sensitive(login, raw) is None


def test_the_values_to_mask_are_those_of_sensitive_inputs_as_tools_print_them():
    """A PIN given as a number comes back as text."""
    params = Login("ada", "hunter2", 123456.0, remember=True)
    assert set(arguments.secret_values(login, params)) == {"hunter2", "123456"}
    assert set(arguments.secret_values(login, Login("a", "", 1.5))) == {"1.5"}
    assert arguments.secret_values(sample, Inputs("a")) == ()
