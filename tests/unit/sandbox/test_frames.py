"""Messages of a host among the output of its tool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.held import Room, Share
from edged.sandbox.frames import (
    FRAME_MAX,
    FREE,
    MESSAGE_MAX,
    STRAY,
    Frames,
    Message,
    Output,
    harmless,
    readable,
    unescape,
)

NONCE = b"0123456789abcdef"


def frames(kind: str, data: bytes, size: int = FRAME_MAX - 23) -> bytes:
    """As the hosts write them."""
    out = b""
    for start in range(0, max(len(data), 1), size):
        part = data[start : start + size]
        more = b"+" if start + size < len(data) else b"."
        out += b"\x1e" + NONCE + kind.encode() + more + b"%04x" % len(part) + part
    return out


def collect(chunks: list[bytes]) -> list[Message]:
    """What a reader sees; neighbouring stray output joined."""
    reader = Frames(NONCE)
    found = [message for chunk in chunks for message in reader.feed(chunk)] + reader.finish()
    joined: list[Message] = []
    for message in found:
        if joined and joined[-1].kind == STRAY == message.kind:
            joined[-1] = Message(STRAY, joined[-1].data + message.data)
        else:
            joined.append(message)
    return joined


STREAM = (
    b"out"
    + frames("R", b"")
    + frames("u", b"x" * 9000)
    + b"\x1e\x1e01 stray\x1e0123"
    + frames("r", b"{}")
    + b"\x1e"
)
MESSAGES = [
    (STRAY, b"out"),
    ("R", b""),
    ("u", b"x" * 9000),
    (STRAY, b"\x1e\x1e01 stray\x1e0123"),
    ("r", b"{}"),
    (STRAY, b"\x1e"),
]


@pytest.mark.parametrize("at", range(0, len(STREAM), 131))
def test_a_stream_that_is_split_anywhere_is_the_same(at: int) -> None:
    assert collect([STREAM[:at], STREAM[at:]]) == MESSAGES


def test_a_stream_that_comes_byte_by_byte_is_the_same() -> None:
    assert collect([STREAM[n : n + 1] for n in range(len(STREAM))]) == MESSAGES


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60), st.tuples(st.sampled_from("urft"), st.binary(max_size=60))
        )
    ),
    st.integers(1, 50),
)
def test_messages_and_output_come_apart(parts: list, step: int) -> None:
    """Whatever a tool's processes write, the host's messages are whole."""
    stream = b"".join(p if isinstance(p, bytes) else frames(*p, size=20) for p in parts)
    seen = collect([stream[n : n + step] for n in range(0, len(stream), step)])
    assert [m for m in seen if m.kind != STRAY] == [p for p in parts if isinstance(p, tuple)]
    output = b"".join(p for p in parts if isinstance(p, bytes))
    assert b"".join(m.data for m in seen if m.kind == STRAY) == output


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    collect([b"\x1e" + NONCE + data])


def test_a_bad_length_is_passed_over() -> None:
    assert collect([b"\x1e" + NONCE + b"u.zzzz" + frames("r", b"1")])[-1] == ("r", b"1")


@pytest.mark.parametrize(
    "header", [b"x.0001", b"\xff+0001", b"r-0001", b"r.-0ff", b"r.+001", b"r. 1 ", b"r.00FF"]
)
def test_what_no_host_sends_is_output(header: bytes) -> None:
    """Two hundred kinds of unfinished messages would be two hundred buffers."""
    data = b"\x1e" + NONCE + header + b"x" * 300
    assert collect([data + frames("R", b"")]) == [(STRAY, data), ("R", b"")]


def test_a_frame_longer_than_an_atomic_write_is_output() -> None:
    """pipe(7): PIPE_BUF is 4096, of which the header takes 23."""
    data = b"\x1e" + NONCE + b"u.0fea" + b"x" * 0xFEA
    assert collect([data]) == [(STRAY, data)]
    assert collect([frames("u", b"x" * 0xFE9)]) == [("u", b"x" * 0xFE9)]


def test_a_message_that_never_ends_is_bounded() -> None:
    """Every buffer is bounded."""
    reader = Frames(NONCE)
    endless = [b"\x1e" + NONCE + kind + b"+0fe9" + b"x" * 0xFE9 for kind in (b"u", b"t")]
    for count in range(MESSAGE_MAX // 0xFE9):
        assert reader.feed(endless[count % 2]) == []
    assert not reader.overfull
    assert reader.feed(endless[0]) == []
    assert reader.overfull
    assert not any(reader._parts.values())
    assert reader.feed(frames("u", b"end")) == []


def test_the_longest_message_of_a_host_passes() -> None:
    """The hosts' RESULT_MAX."""
    reader = Frames(NONCE)
    more, last = divmod(MESSAGE_MAX, 0xFE9)
    for _ in range(more):
        assert reader.feed(b"\x1e" + NONCE + b"r+0fe9" + b"x" * 0xFE9) == []
    [message] = reader.feed(frames("r", b"x" * last))
    assert (message.kind, len(message.data), reader.overfull) == ("r", MESSAGE_MAX, False)


def test_output_keeps_its_beginning_and_end() -> None:
    output = Output(4, 6)
    assert (output.text(), output.whole(), output.last(3)) == ("", b"", "")
    output.add(b"0123456789")
    assert (output.text(), output.whole(), output.last(3)) == ("0123456789", b"0123456789", "789")
    output.add(b"abcdefghijklmnopqrstuvwxyz")
    assert output.text() == "0123\n[... 26 bytes left out ...]\nuvwxyz"
    assert (output.seen, output.whole(), output.last(3), output.last(50)[:5]) == (
        36,
        b"",
        "xyz",
        "0123u",
    )


@given(st.lists(st.binary(max_size=30)))
def test_output_is_whole_until_it_is_too_much(chunks: list[bytes]) -> None:
    output = Output(20, 30)
    for chunk in chunks:
        output.add(chunk)
    data = b"".join(chunks)
    assert output.seen == len(data)
    if len(data) <= 50:
        assert output.whole() == data
    assert len(output.text()) < 50 + 60


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"),
        (b"a\tb\nc", "a\tb\nc"),
        (b"a\r\nb\rc", "a\nb\nc"),
        (b"\x1b[2Jx\x00\x7f\x9b", "\ufffd[2Jx\ufffd\ufffd\ufffd"),
        ("\u202egnp.exe \x9b".encode(), "\ufffdgnp.exe \ufffd"),
        ("é\U0001f600".encode(), "é\U0001f600"),
    ],
)
def test_text_is_harmless(data: bytes, text: str) -> None:
    """A terminal obeys C0 and C1 controls (ECMA-48); bidirectional controls hide text."""
    assert readable(data) == text
    assert harmless(text) == text


def test_a_shells_escapes_are_undone() -> None:
    assert unescape(rb"a\nb\\nc\\\\d") == "a\nb\\nc\\\\d"


def test_parts_of_an_output_are_its_beginning_and_its_end():
    output = Output(3, 2)
    output.add(b"abcd")
    assert output.parts() == (b"abcd", 0, b"")
    output.add(b"efgh")
    assert output.parts() == (b"abc", 3, b"gh")


def test_an_output_keeps_less_where_others_hold_the_room() -> None:
    """Its beginning and its end are kept in any case, and every byte is counted."""
    room = Room(0)
    output = Output(7 << 20, 1 << 20)
    output.share = Share(room)
    data = bytes(range(256)) * 4096
    for at in range(0, len(data), 65_000):
        output.add(data[at : at + 65_000])
    head, left_out, tail = output.parts()
    assert data.startswith(head)
    assert data.endswith(tail)
    assert len(head) == FREE
    assert FREE <= len(tail) <= 2 * FREE
    assert len(head) + left_out + len(tail) == output.seen == len(data)


def test_an_output_is_counted_as_it_grows() -> None:
    room = Room(64 << 20)
    output = Output(7 << 20, 1 << 20)
    output.share = Share(room)
    output.add(b"x" * FREE)
    assert room.used == 0
    for _ in range(40):
        output.add(b"x" * (1 << 20))
        head, _, tail = output.parts()
        assert len(head) + len(tail) <= room.used + 3 * FREE
    assert (len(head), len(tail)) == (7 << 20, 1 << 20)
    # Of its end, up to twice as much lies there before it is cut.
    assert room.used <= 9 << 20


def test_a_result_that_finds_no_room_is_crowded_out() -> None:
    reader = Frames(NONCE)
    reader.share = Share(Room(0))
    [message] = reader.feed(frames("r", b"x" * FREE))
    assert (message.kind, reader.crowded) == ("r", False)
    reader = Frames(NONCE)
    reader.share = Share(Room(0))
    assert reader.feed(frames("r", b"x" * (FREE + 1)) + frames("f", b"why")) == []
    assert (reader.crowded, reader.overfull) == (True, False)


def test_a_result_is_counted_until_the_call_is_over_and_an_update_is_not() -> None:
    room = Room(1 << 20)
    reader = Frames(NONCE)
    reader.share = Share(room)
    for _ in range(20):
        assert len(reader.feed(frames("u", b"x" * 200_000))) == 1
        assert room.used == 0
    assert len(reader.feed(frames("r", b"x" * 200_000))) == 1
    assert 200_000 - FREE <= room.used <= 1 << 19
