"""A board on which jobs run."""

import os
import tempfile
from datetime import UTC, datetime

import pytest

from tests.unit.cron.world import World

NOW = datetime(2027, 1, 1, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def folder():
    """A directory in memory: what a disk does is tested elsewhere."""
    where = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=where) as made:
        yield made


@pytest.fixture
async def world(folder):
    made = World(folder, NOW)
    await made.start()
    yield made
    if made.cron is not None:
        await made.stop()
    assert not made.tasks, "a task outlived its test"
