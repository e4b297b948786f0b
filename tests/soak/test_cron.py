"""The simulated year, whole: 10,000 jobs, 1,000 restarts at random moments."""

import pytest

from tests.unit.cron.conftest import folder  # noqa: F401  a fixture
from tests.unit.cron.year import Year


@pytest.mark.parametrize("seed", [20_270_101])
async def test_every_run_of_ten_thousand_jobs_is_begun_once_or_told(folder, seed):  # noqa: F811
    """Issue 4, Shows."""
    year = Year(folder, seed, days=366, jobs=10_000, restarts=1_000, jumps=60, often=0.1)
    await year.run()
    assert year.check() == []
