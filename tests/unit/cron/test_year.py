"""A slice of the simulated year; the whole of it is in `make soak`."""

import pytest

from tests.unit.cron.year import Year


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_run_of_a_year_is_begun_once_or_told_as_not_begun(folder, seed):
    """Issue 4, Shows: summer time in three zones, jumps of the clock, restarts, power loss."""
    year = Year(folder, seed, days=366, jobs=80, restarts=30, jumps=10, often=0.5)
    await year.run()
    assert year.check() == []
    assert year.losses > 3
    assert sum(map(len, year.world.began.values())) > 1_000
    assert sum(map(len, year.world.spans.values())) > 20
