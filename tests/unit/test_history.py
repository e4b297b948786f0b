"""Samples on disk: what was written is there, and the file stays within its bounds."""

import asyncio
import os
import sqlite3

import pytest

from edged.bus.settings import HistoryConfig
from edged.errors import BusyError
from edged.history import MINUTE_S, QUERIES_MAX, ROWS_MAX, WAITING_MAX, History
from edged.testing import FakeClock
from edged.units import Reading

DAY_S = 86_400


class Rig:
    """A history whose time moves by hand."""

    def __init__(self, path, **config):
        self.path = str(path / "history" / "samples.db")
        self.clock = FakeClock()
        self.config = HistoryConfig(**config)
        self.history = self.open()

    def open(self):
        return History(self.path, self.config, self.clock)

    def reading(self, value, channel="temperature", quality="ok"):
        now, monotonic = self.clock.now(), self.clock.monotonic()
        return Reading("attic", channel, value, "Cel", now, monotonic, "chip", quality)

    def add(self, *values, every_s=1.0):
        for value in values:
            self.history.add([self.reading(value)])
            self.clock.advance(every_s)

    async def write(self):
        await self.history._flush()

    def on_disk(self):
        db = sqlite3.connect(self.path)
        try:
            return [value for (value,) in db.execute("SELECT value FROM raw ORDER BY time")]
        finally:
            db.close()

    async def rows(self, since=0.0, step_s=0.0):
        (series,) = await self.history.read("attic", None, since, step_s)
        return series.rows


@pytest.fixture
async def rig(tmp_path):
    one = Rig(tmp_path)
    yield one
    await one.history.close()


async def test_samples_come_back_with_their_time_and_unit(rig):
    """Issue 3, part 5: history of readings."""
    start = rig.clock.now()
    rig.add(20.5, 21.0)
    (series,) = await rig.history.read("attic", "temperature", start, 0.0)
    assert (series.sensor, series.channel, series.unit, series.step_s) == (
        "attic", "temperature", "Cel", 0.0
    )  # fmt: skip
    assert [(r.time, r.mean, r.low, r.high, r.count) for r in series.rows] == [
        (start, 20.5, 20.5, 20.5, 1),
        (start + 1, 21.0, 21.0, 21.0, 1),
    ]


async def test_what_was_measured_before_the_clock_was_set_follows_its_jump(rig):
    """Architecture, time: a board without a battery starts in the past."""
    rig.add(20.0)
    rig.clock.jump(1_000_000)
    rows = await rig.rows()
    assert rows[0].time == pytest.approx(rig.clock.now() - 1)


async def test_no_value_and_no_doubtful_one_is_kept(rig):
    """Never a made-up number."""
    rig.history.add([rig.reading(None), rig.reading(9.0, quality="suspect"), rig.reading(1.0)])
    assert [r.mean for r in await rig.rows()] == [1.0]


async def test_steps_hold_mean_extremes_and_count(rig):
    """Contract, section 6: history downsampled by the server."""
    rig.clock.advance(-rig.clock.now() % 10)
    rig.add(*range(20))
    rows = await rig.rows(step_s=10)
    assert [(r.mean, r.low, r.high, r.count) for r in rows] == [
        (4.5, 0, 9, 10),
        (14.5, 10, 19, 10),
    ]


async def test_an_answer_does_not_write_what_waits(rig):
    """The batch interval spares the card, however often somebody asks."""
    rig.add(1.0)
    await rig.write()
    rig.add(2.0, 3.0)
    for _ in range(3):
        assert [r.mean for r in await rig.rows()] == [1.0, 2.0, 3.0]
        assert rig.on_disk() == [1.0]
    await rig.write()
    assert [r.mean for r in await rig.rows()] == [1.0, 2.0, 3.0]
    assert rig.on_disk() == [1.0, 2.0, 3.0]


async def test_steps_are_of_what_waits_and_what_is_written(rig):
    """One step has samples of both."""
    rig.clock.advance(-rig.clock.now() % 10)
    rig.add(*range(5))
    await rig.write()
    rig.add(*range(5, 12))
    rows = await rig.rows(step_s=10)
    assert [(r.mean, r.low, r.high, r.count) for r in rows] == [(4.5, 0, 9, 10), (10.5, 10, 11, 2)]
    since = rig.clock.now() - 1
    assert [r.mean for r in await rig.rows(since=since)] == [11]


async def test_channels_that_only_wait_are_told_apart(rig):
    """A sensor that is new, and one that has a new channel; another's are not told."""
    rig.add(1.0)
    await rig.write()
    for value, channel in ((40.0, "humidity"), (990.0, "pressure"), (41.0, "humidity")):
        rig.history.add([rig.reading(value, channel)])
        rig.clock.advance(1.0)
    found = await rig.history.read("attic", None, 0.0)
    assert {one.channel: [r.mean for r in one.rows] for one in found} == {
        "temperature": [1.0], "humidity": [40.0, 41.0], "pressure": [990.0]
    }  # fmt: skip
    (one,) = await rig.history.read("attic", "humidity", 0.0)
    assert [r.mean for r in one.rows] == [40.0, 41.0]
    assert await rig.history.read("cellar", None, 0.0) == ()


async def test_an_answer_during_a_batch_has_every_sample_once(tmp_path):
    """On its way it is neither in memory nor on disk."""
    rig = Rig(tmp_path)
    rig.add(1.0, 2.0)
    rig.history._write()
    answer = asyncio.create_task(rig.rows())
    await asyncio.sleep(0)
    rig.add(3.0)
    assert [r.mean for r in await answer] == [1.0, 2.0, 3.0]
    assert rig.on_disk() == [1.0, 2.0]
    await rig.history.close()


async def test_answers_that_are_waited_for_are_bounded(rig):
    """Each may look at everything; one that ends or is given up makes room."""
    rig.add(1.0)
    answers = [asyncio.create_task(rig.rows()) for _ in range(QUERIES_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="16 queries of the history"):
        await rig.rows()
    answers[0].cancel()
    await asyncio.wait([answers[0]])
    assert [r.mean for r in await rig.rows()] == [1.0]
    for rows in await asyncio.gather(*answers[1:]):
        assert [r.mean for r in rows] == [1.0]
    assert rig.history._queries == 0


async def test_too_many_samples_are_told_in_longer_steps(rig):
    rig.add(*range(ROWS_MAX + 1000))
    (series,) = await rig.history.read("attic", None, 0.0, 0.0)
    assert len(series.rows) <= ROWS_MAX + 1
    assert series.step_s >= 1.0
    assert sum(r.count for r in series.rows) == ROWS_MAX + 1000


async def test_what_is_old_becomes_minutes_and_then_hours(tmp_path):
    """Downsampled tiers: no sample is lost from the sums."""
    rig = Rig(tmp_path, raw="1h", minutes="1d")
    rig.clock.advance(-rig.clock.now() % 3_600)
    start = rig.clock.now()
    rig.add(*range(120), every_s=30)
    await rig.write()
    for after, step in ((2 * 3_600, MINUTE_S), (2 * DAY_S, 3_600)):
        rig.clock.advance(after)
        rig.add(7.0)
        await rig.write()
        rows = [r for r in await rig.rows() if r.time < start + 3_600]
        assert {r.time % step for r in rows} == {0}
        assert sum(r.count for r in rows) == 120
        assert sum(r.mean * r.count for r in rows) == pytest.approx(sum(range(120)))
        assert (min(r.low for r in rows), max(r.high for r in rows)) == (0, 119)
    assert len(rows) == 1
    await rig.history.close()


async def test_the_file_stays_within_its_size(tmp_path):
    """Issue 3, part 5: a size bound; the oldest and finest samples make room."""
    rig = Rig(tmp_path, size="1M")
    for batch in range(20):
        rig.add(*range(batch * 5_000, batch * 5_000 + 5_000))
        await rig.write()
        rows = await rig.rows(step_s=1)
    assert rows[-1].mean == pytest.approx(99_999, abs=ROWS_MAX)
    assert rows[0].low > 0
    await rig.history.close()
    assert os.path.getsize(rig.path) < 1.5 * (1 << 20)


async def test_what_was_written_is_there_after_the_end_of_the_process(tmp_path):
    """Issue 3, part 5: survives power loss; nothing is closed here."""
    rig = Rig(tmp_path)
    rig.add(1.0, 2.0)
    await rig.write()
    second = rig.open()
    (series,) = await second.read("attic", None, 0.0, 0.0)
    assert [r.mean for r in series.rows] == [1.0, 2.0]
    await second.close()
    await rig.history.close()


async def test_a_broken_database_is_set_aside(tmp_path, capsys):
    """Architecture, state: a broken file is never erased."""
    rig = Rig(tmp_path)
    os.makedirs(os.path.dirname(rig.path))
    with open(rig.path, "wb") as file:
        file.write(b"no database at all" * 1000)
    rig.add(1.0)
    assert [r.mean for r in await rig.rows()] == [1.0]
    with open(rig.path + ".broken", "rb") as file:
        assert file.read(2) == b"no"
    assert "set aside" in capsys.readouterr().err
    await rig.history.close()


async def test_samples_wait_while_the_disk_does_not_take_them(tmp_path, capsys):
    """Rule 8: a full disk loses nothing that can be kept."""
    rig = Rig(tmp_path)
    rig.add(1.0)
    await rig.write()
    locker = sqlite3.connect(rig.path, timeout=0, isolation_level=None)
    locker.execute("PRAGMA journal_mode = WAL")
    locker.execute("BEGIN IMMEDIATE")
    rig.add(2.0)
    await rig.history._flush()
    locker.execute("ROLLBACK")
    locker.close()
    assert "samples are kept in memory" in capsys.readouterr().err
    assert [r.mean for r in await rig.rows()] == [1.0, 2.0]
    await rig.write()
    assert "written again" in capsys.readouterr().err
    await rig.history.close()


async def test_what_waits_is_bounded(rig):
    """Of more than that, the oldest are dropped and counted."""
    rig.history.add([rig.reading(float(n)) for n in range(WAITING_MAX + 5)])
    assert rig.history.lost == 5


async def test_a_batch_is_written_by_itself(tmp_path):
    """The interval of the configuration."""
    rig = Rig(tmp_path, interval="1s")
    rig.add(1.0)
    async with asyncio.timeout(10):
        while rig.history._waiting or rig.history._writing:
            await asyncio.sleep(0.05)
    assert rig.on_disk() == [1.0]
    await rig.history.close()
