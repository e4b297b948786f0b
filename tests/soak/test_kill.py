"""kill -9 at 200 random moments under load; `EDGED_SEED` repeats a run."""

from __future__ import annotations

import os
import time

from tests.soak.siege import besiege


def test_it_starts_again_after_each_of_two_hundred_kills(capsys):
    """Issue 2, Shows: nothing acknowledged is gone, no sandbox process survives."""
    seed = int(os.environ.get("EDGED_SEED") or time.time())
    with capsys.disabled():
        besiege(seed, rounds=200)
