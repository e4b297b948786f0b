"""Error codes and the table that maps them to the wires."""

import builtins
import inspect

import pytest

from edged import errors
from edged.cli import guarded
from edged.client import raise_remote
from edged.errors import WIRE, BusError, ConfigError, EdgedError, Fault


def leaves(kind=EdgedError):
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == "edged.errors":
            yield from leaves(child)


def test_each_code_is_on_the_table_once():
    """Architecture, laws, errors: one table maps code to HTTP status and JSON-RPC code."""
    codes = [kind.code for kind in leaves()]
    assert sorted(codes) == sorted(set(codes))
    assert set(codes) == set(WIRE)


@pytest.mark.parametrize("kind", [kind for kind in leaves() if kind is not EdgedError])
def test_each_error_is_also_the_builtin_that_a_python_user_would_catch(kind):
    """Architecture, laws, errors."""
    assert any(b.__module__ == builtins.__name__ and b is not Exception for b in kind.__bases__)


def test_json_rpc_codes_of_our_own_lie_outside_the_reserved_range():
    """MCP 2026-07-28, errors: own codes outside -32768..-32000."""
    standard = {-32600, -32602, -32603}
    own = {wire.jsonrpc for wire in WIRE.values()} - standard
    assert not [code for code in own if -32768 <= code <= -32000]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("unknown_tool", 404),
        ("invalid_arguments", 400),
        ("unauthenticated", 401),
        ("denied", 403),
        ("unavailable", 409),
        ("too_large", 413),
        ("rate_limited", 429),
    ],
)
def test_http_statuses_are_those_of_the_contract(code, status):
    """Contract, section 6, errors."""
    assert WIRE[code].http == status


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "no"),
        ({"file": "edged.yaml"}, "edged.yaml: no"),
        ({"file": "edged.yaml", "line": 3}, "edged.yaml:3: no"),
        ({"file": "edged.yaml", "line": 3, "key": "http.listen"}, "edged.yaml:3: http.listen: no"),
        ({"key": "http.listen", "line": 3}, "http.listen: no"),
    ],
)
def test_a_configuration_error_says_file_line_and_key(facts, text):
    """Contract, section 11."""
    assert str(ConfigError("no", **facts)) == text


def test_an_unknown_tool_is_told_with_the_nearest_name():
    assert str(errors.UnknownToolError("helo", "hello")) == (
        "no tool named 'helo'; did you mean 'hello'?"
    )
    assert str(errors.UnknownToolError("x")) == "no tool named 'x'"
    assert str(errors.UnknownToolError("x", is_hidden=True)) == (
        "no tool named 'x' is unlocked: it is hidden, and is called once tool_search_tool_bm25 "
        "or tool_search_tool_regex found it"
    )


def test_all_faults_of_the_arguments_are_in_one_message():
    """Contract, section 8: all faults of a call are reported at once."""
    found = [Fault("name", "is required"), Fault("", "is not JSON")]
    error = errors.InvalidArgumentsError(found, "hello")
    assert str(error) == "hello: name: is required; is not JSON"
    assert error.faults == tuple(found)
    assert str(errors.InvalidArgumentsError(found[:1])) == "name: is required"


def test_an_unavailable_tool_says_why_and_what_to_do():
    """Contract, section 6: `reason_code`."""
    blocked = errors.ToolUnavailableError("my_db", "blocked", "requires_runtime", "install Node")
    assert str(blocked) == "tool 'my_db' is blocked (requires_runtime): install Node"
    assert str(errors.ToolUnavailableError("x", "disabled", "", "switch it on")) == (
        "tool 'x' is disabled: switch it on"
    )


def test_errors_carry_what_a_door_needs_beside_the_message():
    assert errors.RateLimitedError("slow down", 1.5).retry_after_s == 1.5
    assert errors.SandboxLimitError("memory", "stopped").limit == "memory"
    assert errors.BusError(121, "i2c-1").errno == 121


def test_a_failed_transfer_is_told_without_the_number_before_it():
    """`OSError` would put `[Errno 13]` there; the number stays for programs."""
    error = BusError(13, "edged may not open /dev/ttyS0")
    assert (str(error), error.errno) == ("edged may not open /dev/ttyS0", 13)
    assert str(BusError("odd")) == "odd"


@pytest.mark.parametrize("kind", list(leaves()))
def test_an_error_of_another_process_has_its_text_and_all_that_its_class_has(kind, capsys):
    """The client rebuilds what the daemon refused with by its code and its text alone."""
    with pytest.raises(kind) as found:
        raise_remote("w.md:3: odd", {"code": kind.code})
    assert type(found.value) is kind
    assert str(found.value) == "w.md:3: odd"
    _, *needs = inspect.signature(kind.__init__).parameters.values()
    required = [p for p in needs if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    given = [() if p.name == "faults" else "x" for p in required]
    attributes = vars(kind(*given))
    assert {name for name in attributes if not hasattr(found.value, name)} == set()

    def fails():
        raise found.value

    assert guarded(fails) in (1, 3)
    assert capsys.readouterr().err == "edged: w.md:3: odd\n"
