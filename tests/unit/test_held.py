"""What is held in memory at once is bounded, and no one can take it all."""

from __future__ import annotations

import ctypes

from hypothesis import given
from hypothesis import strategies as st

from edged import held
from edged.held import Room, Share


def test_each_may_grow_to_half_of_what_the_others_leave() -> None:
    room = Room(100)
    one, two = Share(room), Share(room)
    assert (one.take(80), one.take(1), two.take(80)) == (50, 0, 25)
    assert (one.size, two.size, room.used) == (50, 25, 75)
    one.release()
    assert (two.take(80), room.used) == (25, 50)
    two.give(99)
    assert (two.size, room.used) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans())))
def test_all_together_never_hold_more_than_there_is(steps) -> None:
    room = Room(100)
    shares = [Share(room) for _ in range(4)]
    for number, count, takes in steps:
        if takes:
            assert 0 <= shares[number].take(count) <= count
        else:
            shares[number].give(count)
        assert sum(share.size for share in shares) == room.used < room.total
        assert all(share.size >= 0 for share in shares)


def test_the_c_library_is_told_to_return_what_is_large(monkeypatch) -> None:
    """mallopt(3): M_MMAP_THRESHOLD is -3, M_TRIM_THRESHOLD -1; musl has no mallopt."""
    told = []

    class Library:
        def mallopt(self, option, value):
            told.append((option, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    held.return_freed()
    assert told == [(-3, 1 << 20), (-1, 2 << 20)]
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    held.return_freed()
    assert len(told) == 2
