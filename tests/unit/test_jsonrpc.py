"""JSON-RPC messages and the framing of the socket and of stdio."""

import json
import tracemalloc

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edged import jsonrpc
from edged.errors import RemoteProtocolError
from edged.jsonrpc import Lines, Message, parse


def refusal(line):
    with pytest.raises(RemoteProtocolError) as caught:
        parse(line)
    _, code, raw_id = caught.value.args
    return code, raw_id


def test_a_request_has_its_id_method_and_params():
    """JSON-RPC 2.0, section 4."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello"}}'
    assert parse(line) == Message(b"1", "tools/call", b'{"name":"hello"}')


def test_a_request_without_id_is_a_notification():
    """JSON-RPC 2.0, section 4.1."""
    assert parse(b'{"jsonrpc":"2.0","method":"edged/turn"}') == Message(b"", "edged/turn", b"")


@pytest.mark.parametrize(
    "raw_id", [b"0", b"-7", b"18446744073709551616", b'"a"', b'""', '"é"'.encode(), b'"\\u00e9"']
)
def test_an_id_is_kept_to_the_letter(raw_id):
    """MCP 2025-11-25, messages: a string or an integer, echoed."""
    line = b'{"jsonrpc":"2.0","id": %b ,"method":"ping"}' % raw_id
    assert parse(line).id == raw_id


@pytest.mark.parametrize("raw_id", [b"null", b"1.5", b"1e3", b"true", b"[1]", b"{}", b'"\xff"'])
def test_an_id_that_is_none_is_refused_without_echo(raw_id):
    """MCP: never null; what is not UTF-8 would make the reply no JSON."""
    line = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % raw_id
    assert refusal(line) == (-32600, b"")


def test_null_params_are_none():
    """Clients write them for a method that takes nothing."""
    line = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}'
    assert parse(line).params == b""


@pytest.mark.parametrize(
    ("line", "code", "raw_id"),
    [
        (b"", -32700, b""),
        (b"nonsense", -32700, b""),
        (b'{"jsonrpc":"2.0","id":3', -32700, b""),
        (b"\xff", -32700, b""),
        (b'{"jsonrpc":"2.0","id":3,"method":"\xff"}', -32700, b""),
        (b"[" * 100_000, -32600, b""),
        (b'{"params":' + b"[" * 100_000, -32700, b""),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, b""),
        (b'"text"', -32600, b""),
        (b'{"jsonrpc":"2.0","id":3}', -32600, b"3"),
        (b'{"jsonrpc":"2.0","id":3,"method":""}', -32600, b"3"),
        (b'{"jsonrpc":"2.0","id":3,"method":7}', -32600, b"3"),
        (b'{"jsonrpc":"2.0","method":7}', -32600, b""),
        (b'{"jsonrpc":2,"id":"x","method":"ping"}', -32600, b'"x"'),
        (b'{"jsonrpc":"1.0","id":3,"method":"ping"}', -32600, b"3"),
        (b'{"id":3,"method":"ping"}', -32600, b"3"),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":[1]}', -32602, b"3"),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":"x"}', -32602, b"3"),
    ],
)
def test_a_broken_message_is_refused_with_its_code_and_the_id_that_could_be_read(
    line, code, raw_id
):
    """JSON-RPC 2.0, section 5.1; MCP: an error has no id only when it could not be read."""
    assert refusal(line) == (code, raw_id)


def test_an_id_behind_a_fault_that_is_too_deep_is_not_looked_for():
    """The second look must not fail where the first one was stopped earlier."""
    line = b'{"method":7,"id":' + b"[" * 100_000
    assert refusal(line) == (-32600, b"")


@pytest.mark.parametrize(
    ("line", "raw_id"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{}}', b"3"),
        (b'{"jsonrpc":"2.0","id":3,"result":null}', b"3"),
        (b'{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"no"}}', b'"a"'),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}', b""),
        (b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}', b""),
    ],
)
def test_a_response_has_no_method_and_is_never_answered_by_an_error(line, raw_id):
    """JSON-RPC 2.0, section 5: id null when the request could not be read; no ping-pong."""
    assert parse(line) == Message(raw_id, "", b"")


@given(st.binary(max_size=200))
@example(b'{"id":"\xff","method":7}')
def test_any_bytes_are_a_message_or_refused(line):
    """Issue 2, shows: fuzzing the socket never ends the daemon."""
    try:
        parse(line)
    except RemoteProtocolError as error:
        _, code, raw_id = error.args
        json.loads(jsonrpc.error(raw_id, code, str(error.args[0])))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "more"]),
        st.just("2.0") | JSON,
    )
)
def test_any_object_is_a_message_or_refused_and_its_id_can_be_echoed(message):
    """The bytes that come nearest to real ones."""
    try:
        raw_id = parse(json.dumps(message).encode()).id
    except RemoteProtocolError as error:
        raw_id = error.args[2]
    if raw_id:
        assert json.loads(raw_id) == message["id"]
        assert isinstance(message["id"], str | int)


def test_replies_are_one_line_each():
    """MCP, stdio: one message a line, no embedded newline."""
    assert jsonrpc.result(b"7", {"text": "a\nb"}) == (
        b'{"jsonrpc":"2.0","id":7,"result":{"text":"a\\nb"}}\n'
    )
    assert jsonrpc.result(b'"x"', msgspec.Raw(b'{"tools":[]}')) == (
        b'{"jsonrpc":"2.0","id":"x","result":{"tools":[]}}\n'
    )
    assert jsonrpc.notification("edged/event", {"id": 1}) == (
        b'{"jsonrpc":"2.0","method":"edged/event","params":{"id":1}}\n'
    )


def test_an_error_without_a_readable_id_has_id_null():
    """JSON-RPC 2.0, section 5."""
    assert json.loads(jsonrpc.error(b"", -32700, "not JSON")) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "not JSON"},
    }
    assert json.loads(jsonrpc.error(b"1", -32022, "no", {"supported": []}))["error"] == {
        "code": -32022,
        "message": "no",
        "data": {"supported": []},
    }


def fed(chunks, limit):
    lines = Lines(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    return found + list(lines.end())


def test_lines_are_found_and_blank_ones_left_out():
    """Contract, section 5: one message a line (LF)."""
    assert fed([b'{"a":1}\r\n\n  \n{"b":2}\nrest'], 100) == [b'{"a":1}\r', b'{"b":2}', b"rest"]
    assert fed([b"a\nb\n"], 100) == [b"a", b"b"]


def test_an_oversized_line_is_told_once_and_the_stream_stays_in_step():
    """Contract, section 5: an oversized line gets one error reply."""
    stream = [b"1234", b"5678", b"90ab", b"cd\nnext\n", b"123456789\nlast"]
    assert fed(stream, 8) == [None, b"next", None, b"last"]


def test_an_oversized_line_without_end_is_told_once():
    """The rest of it is no line of its own."""
    assert fed([b"123456789", b"x"], 8) == [None]


def test_the_limit_itself_is_allowed():
    """Contract, section 5: at most 16 MiB."""
    assert jsonrpc.MAX_LINE == 16 * 1024 * 1024
    assert fed([b"12345678\n"], 8) == [b"12345678"]
    assert fed([b"1234567", b"8", b"\n"], 8) == [b"12345678"]


@given(
    st.lists(
        st.sampled_from([b"a", b"{}", b" ", b"\n", b"\r\n", b"\x00", b"\xff", b"123456789"])
    ).map(b"".join),
    st.integers(min_value=1, max_value=12),
)
@example(b"         \na", 8)
def test_where_the_stream_is_split_does_not_matter(data, limit):
    """Architecture, tests: framing split at every byte."""
    whole = fed([data], limit)
    assert fed([data[i : i + 1] for i in range(len(data))], limit) == whole
    for cut in range(len(data) + 1):
        assert fed([data[:cut], data[cut:]], limit) == whole


def test_lines_can_be_taken_later():
    """A peer that reads nothing has what it sent kept as bytes, not as a list of lines."""
    lines = Lines(100)
    assert next(lines.feed(b"a\nb\nc")) == b"a"
    assert lines.waiting
    assert list(lines.feed(b"d\ne")) == [b"b", b"cd"]
    assert (lines.waiting, lines.unfinished) == (False, 1)
    assert list(lines.end()) == [b"e"]
    assert lines.unfinished == 0


# Crowded texts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * jsonrpc.VALUES_MAX + b"0]",
        b"[" + b"0," * (jsonrpc.VALUES_MAX + 1) + b"0]",
        b'{"a":' * (jsonrpc.VALUES_MAX + 1),
        b'["a,b"' + b',"\\""' * jsonrpc.VALUES_MAX + b",0]",
    ],
)
def test_a_text_of_too_many_values_is_seen_before_it_is_decoded(text):
    """16 MiB of brackets are 400 MiB of objects."""
    assert jsonrpc.crowded(text)
    assert jsonrpc.crowded(memoryview(text))


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"0," * 90_000 + b"0]",
        b'{"csv":"' + b"1,2,[3]\\n" * 100_000 + b'"}',
        b'{"csv":"' + b'say \\"a,b,c\\" \\\\' * 100_000 + b'","x":1}',
    ],
)
def test_a_large_text_is_not_crowded_by_what_its_strings_hold(text):
    """A file's content is one value."""
    assert len(text) > jsonrpc.VALUES_MAX or text.count(b",") < jsonrpc.VALUES_MAX
    assert not jsonrpc.crowded(text)


def test_looking_takes_no_memory_of_its_own():
    """Eleven MB of pairs became 670 MB in the look that was to prevent that."""
    text = b'{"a":[' + b'"":1,' * 190_000 + b'"x,y,z":1]}' * 1 + b" " * 1000
    tracemalloc.start()
    try:
        jsonrpc.crowded(text * 10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(text * 10)
