"""kill -9 at random moments under load: a slice of `make soak`."""

from __future__ import annotations

from tests.soak.siege import besiege


def test_it_starts_again_after_each_of_ten_kills():
    """Issue 2, Shows: nothing acknowledged is gone, no sandbox process survives."""
    besiege(seed=20_250_101, rounds=10)
