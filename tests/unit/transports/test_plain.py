"""Which requests need no parser: those that every parser reads alike (RFC 9112)."""

from __future__ import annotations

import pytest

from edged.transports._plain import BODY_MAX, HEAD_MAX, LINES_MAX, plain

FIRST = "POST /mcp HTTP/1.1"
HOST = "Host: 127.0.0.1:8420"
JSON = "Content-Type: application/json"


def made(*lines: str, body: bytes = b"{}", first: str = FIRST) -> bytes:
    """A request of these lines; the length of the body is added where no line says one."""
    rows = [first, *lines]
    if not any(line.lower().startswith("content-length") for line in lines):
        rows.append(f"Content-Length: {len(body)}")
    return "\r\n".join(rows).encode("latin-1") + b"\r\n\r\n" + body


def test_a_plain_request_is_read_as_it_is() -> None:
    data = made(
        HOST, JSON, "Authorization: Bearer  a:b", "connection: Keep-Alive", "x-!#$%&'*+: ~"
    )
    found = plain(data)
    assert found is not None
    assert found.body == b"{}"
    assert found.data is data
    assert found.headers["HOST"] == "127.0.0.1:8420"
    assert found.headers["authorization"] == "Bearer  a:b"
    assert found.headers["X-!#$%&'*+"] == "~"
    assert len(found.headers) == 6


@pytest.mark.parametrize(
    "first",
    [
        "GET /mcp HTTP/1.1",
        "post /mcp HTTP/1.1",
        "POST /mcp HTTP/1.0",
        "POST /mcp/ HTTP/1.1",
        "POST /mcp?x=1 HTTP/1.1",
        "POST  /mcp HTTP/1.1",
        "POST http://127.0.0.1/mcp HTTP/1.1",
        "POST /%6dcp HTTP/1.1",
        "\r\nPOST /mcp HTTP/1.1",
        "POST /mcp HTTP/1.1 ",
    ],
)
def test_any_other_first_line_is_left_alone(first: str) -> None:
    assert plain(made(HOST, JSON, first=first)) is None


@pytest.mark.parametrize(
    "line",
    [
        "X : 1",
        " X: 1",
        "X:1",
        "X:  1",
        "X:\t1",
        "X: 1 ",
        "X: 1\t",
        "X: a\tb",
        "X:",
        "X: ",
        "X",
        ": 1",
        "",
        "X: 1\r\n folded",
        "X: 1\r\n\tfolded",
        "X: 1\nY: 2",
        "X: 1\rY: 2",
        "X: a\x00b",
        "X: a\x7fb",
        "X: ä",
        "Ä: 1",
        "X(: 1",
        "host: 127.0.0.1",
        "HOST: evil.example",
        "content-type: application/json",
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length: 2\r\ncontent-length: 3",
        "Content-Length: +2",
        "Content-Length: -2",
        "Content-Length: 02",
        "Content-Length: 2, 2",
        "Content-Length: 0x2",
        "Content-Length: 2 2",
        "Content-Length: 1",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "transfer-encoding: identity",
        "Connection: close",
        "Connection: upgrade",
        "Connection: keep-alive, Upgrade",
        "Expect: 100-continue",
        "Upgrade: websocket",
        "Content-Encoding: gzip",
        "TE: trailers",
        "Trailer: X",
        "Sec-WebSocket-Key1: 1",
    ],
)
def test_what_can_be_read_in_two_ways_or_changes_the_reading_is_left_alone(line: str) -> None:
    """RFC 9112, sections 2.2, 5.1, 5.2, 6.1, 6.3, 9.3 and 11.2."""
    assert plain(made(HOST, JSON)) is not None
    assert plain(made(HOST, JSON, line)) is None
    assert plain(made(line, HOST, JSON)) is None


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/json; charset=utf-8", "Application/json", "application/json,"],
)
def test_only_bare_json_is_taken(kind: str) -> None:
    assert plain(made(HOST, f"Content-Type: {kind}")) is None
    assert plain(made(HOST)) is None


def test_a_request_is_taken_whole_and_alone() -> None:
    data = made(HOST, JSON)
    for end in range(len(data)):
        assert plain(data[:end]) is None
        assert plain(data[end + 1 :]) is None
    assert plain(data + b"\r\n") is None
    assert plain(data + data) is None
    without = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\r\n"
    assert plain(without) is None
    assert plain(b"POST /mcp HTTP/1.1\r\n\r\n") is None


def test_a_long_head_and_a_long_body_are_left_alone() -> None:
    assert plain(made(HOST, JSON, body=bytes(BODY_MAX))) is not None
    assert plain(made(HOST, JSON, body=bytes(BODY_MAX + 1))) is None
    room = HEAD_MAX - len(made(HOST, JSON, "X: ", body=b""))
    assert plain(made(HOST, JSON, "X: " + "x" * room, body=b"")) is not None
    assert plain(made(HOST, JSON, "X: " + "x" * (room + 1), body=b"")) is None
    fill = [f"X{number}: 1" for number in range(LINES_MAX - 3)]
    assert plain(made(HOST, JSON, *fill)) is not None
    assert plain(made(HOST, JSON, *fill, "Y: 1")) is None
