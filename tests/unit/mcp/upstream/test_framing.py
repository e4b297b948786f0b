"""Lines and events of peers that may write anything."""

import json

from hypothesis import given
from hypothesis import strategies as st

from edged.errors import TooLargeError
from edged.mcp.upstream.framing import Framing, Long
from edged.mcp.upstream.sse import EventStream


def in_parts(data, cuts):
    at = 0
    for cut in sorted({cut % (len(data) + 1) for cut in cuts}):
        yield data[at:cut]
        at = cut
    yield data[at:]


@given(
    st.lists(st.binary(max_size=40).filter(lambda b: b.strip() and b"\n" not in b)),
    st.lists(st.integers(0, 10_000)),
)
def test_lines_come_whole_however_they_are_cut(lines, cuts):
    """MCP, stdio: one message a line."""
    data = b"".join(line + b"\n" for line in lines)
    framing = Framing()
    found = [line for part in in_parts(data, cuts) for line in framing.feed(part)]
    assert found == lines
    assert framing.size == 0


@given(st.lists(st.integers(0, 10_000)), st.booleans())
def test_a_line_too_long_costs_its_own_request_alone(cuts, is_last):
    """facts/mcp.md, fault 6: the stream stays in step, the id shows at one of the ends."""
    result = {"content": "x" * 900}
    row = {"result": result, "jsonrpc": "2.0", "id": 41} if is_last else {"id": 41, **result}
    long = json.dumps(row).encode()
    framing = Framing(limit=600)
    data = b'{"id":1}\n' + long + b'\n{"id":2}\n'
    found = [line for part in in_parts(data, cuts) for line in framing.feed(part)]
    assert found == [b'{"id":1}', Long(41, len(long)), b'{"id":2}']


def test_an_id_inside_of_a_long_result_is_not_taken_for_its_own():
    framing = Framing(limit=600)
    (found,) = framing.feed(b'{"result":{"id":7,"text":"' + b"x" * 900 + b'"}}\n')
    assert found.id == -1


EVENTS = (
    b"\xef\xbb\xbf: a comment\r\nid: 1\r\nretry: 250\r\ndata:\r\n\r\n"
    b"event: endpoint\ndata: /messages\n\nid: 2\rdata: one\rdata: two\r\rdata: cut"
)


@given(st.lists(st.integers(0, 10_000)))
def test_events_come_whole_however_they_are_cut(cuts):
    """HTML Living Standard, 9.2.6; an event without data only sets id and retry."""
    stream = EventStream()
    found = [event for part in in_parts(EVENTS, cuts) for event in stream.feed(part)]
    assert found == [("endpoint", b"/messages", "1"), ("message", b"one\ntwo", "2")]
    assert (stream.last_id, stream.retry_ms) == ("2", 250)


def test_an_event_is_bounded():
    stream = EventStream(limit=100)
    try:
        for _ in range(100):
            stream.feed(b"data: " + b"x" * 20 + b"\n")
    except TooLargeError:
        return
    raise AssertionError


def test_an_event_that_comes_byte_by_byte_costs_each_byte_once():
    """A server may send a megabyte without a line's end, and single bytes from then on."""
    stream = EventStream()
    assert stream.feed(b"data: " + b"a" * (15 << 20)) == []
    for _ in range(20_000):
        assert stream.feed(b"b") == []
    (event,) = stream.feed(b"\n\n")
    assert (len(event.data), event.data[-20_001:]) == ((15 << 20) + 20_000, b"a" + b"b" * 20_000)
