"""What waits for its reader is bounded, and never half a character or sequence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.held import Room, Share
from edged.sandbox.frames import FREE
from edged.shell.unread import SIZE, Unread, plain

SEQUENCES = [
    "\x1b[0m",
    "\x1b[1;31m",
    "\x1b[?2004h",
    "\x1b]0;title\x07",
    "\x1b]8;;x\x1b\\",
    "\x1b(B",
]


def test_old_bytes_give_way_and_are_counted_each_time():
    """Facts of PicoClaw, 4: a later overflow went unsaid."""
    unread = Unread(Share(Room(100)), 10)
    for text in (b"a" * 8, b"b" * 25, b"c"):
        unread.add(text)
    assert (len(unread), unread.seen) == (10, 34)
    assert unread.take(last=False) == (b"b" * 9 + b"c", 24)
    unread.add(b"d" * 12)
    assert unread.take(last=True) == (b"d" * 10, 2)
    assert unread.take(last=True) == (b"", 0)


@given(
    st.lists(st.one_of(st.sampled_from(SEQUENCES), st.text("aé漢🎉\n", max_size=4)), max_size=8),
    st.data(),
)
def test_reads_at_any_moment_add_up_to_the_whole_text(pieces, data):
    """RFC 3629, ECMA-48: what has only begun waits for its rest."""
    whole = "".join(pieces).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    unread, read, start = Unread(Share(Room(SIZE))), "", 0
    for cut in [*cuts, len(whole)]:
        unread.add(whole[start:cut])
        read += plain(unread.take(last=False)[0])
        start = cut
    read += plain(unread.take(last=True)[0])
    assert read == "".join(piece for piece in pieces if not piece.startswith("\x1b"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\nb\r\r\nc", "a\nb\nc"),
        (b"x\r\n\x1b[?2004l\ry", "x\ny"),
        (b"10%\r20%\r", "10%\n20%\n"),
        (b"\x1b[1mbold\x1b[0m", "bold"),
        (b"\xff\x07", "\N{REPLACEMENT CHARACTER}" * 2),
        (b"\x1b]0;never closed", ""),
    ],
)
def test_text_has_no_control_sequences(data, text):
    assert plain(data) == text


def test_last_cursor_mode_counts_also_across_pieces():
    """DECCKM decides what an arrow key sends (xterm's ctlseqs)."""
    unread = Unread(Share(Room(SIZE)))
    unread.add(b"x\x1b[?1")
    assert not unread.application
    unread.add(b"h")
    assert unread.application
    unread.add(b"\x1b[?1h\x1b[?1l")
    assert not unread.application


def test_carriage_returns_before_a_line_end_go_with_it():
    assert plain(b"a\r\r\nb\r\n\rc") == "a\nb\nc"


def test_a_flood_of_carriage_returns_is_no_burden():
    """It took the square of their number, hours for these, and the loop with it."""
    assert not plain(b"\r" * 2_000_000).strip()


def test_less_waits_where_others_have_the_room():
    """64 sessions, and those that have ended, would hold 128 MiB and more."""
    room = Room(4 * SIZE)
    unread, last = Unread(Share(room)), Unread(Share(Room(0)))
    for _ in range(50):
        unread.add(b"x" * 65_536)
        last.add(b"y" * 65_536)
        assert len(last) <= 2 * FREE
    assert len(unread) == SIZE
    assert SIZE <= room.used <= 2 * SIZE
    data, dropped = last.take(last=False)
    assert FREE <= len(data) <= 2 * FREE
    assert len(data) + dropped == last.seen
    assert len(unread.take(last=False)[0]) == SIZE
    assert room.used == 0


def test_nothing_is_kept_once_nobody_will_read_it():
    room = Room(4 * SIZE)
    unread = Unread(Share(room))
    unread.add(b"x" * SIZE)
    unread.forget()
    unread.add(b"x" * SIZE)
    assert (room.used, len(unread), unread.take(last=True)[0]) == (0, 0, b"")
