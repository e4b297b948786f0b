"""A sensor knows its state, samples, ages, and tells of changes once."""

import asyncio

import pytest

from edged.board import Board
from edged.bus.settings import AlarmConfig, BoardConfig, ChannelConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.drivers import bme280
from edged.errors import (
    BusError,
    ConfigError,
    DataError,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.testing import FakeClock


class Bme680:
    """Another chip at the same address: identity 0x61."""

    def write(self, data):
        pass

    def read(self, length):
        return b"\x61" * length


class Rig:
    """A board with one BME280 whose world can be set."""

    def __init__(self, **config):
        self.clock = FakeClock()
        self.chip = bme280.Sim(self.clock)
        self.bus = SimI2c("i2c-1", {0x76: self.chip})
        sensor = SensorConfig(driver="bme280", bus="i2c-1", **config)
        self.events, self.samples = [], []
        self.i2c = {"i2c-1": self.bus}
        self.board = Board(
            BoardConfig(sensors={"attic": sensor}),
            SimBuses(i2c=self.i2c),
            self.clock,
            sleep=self.clock.sleep,
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )

    def told(self, kind):
        return [facts for k, facts in self.events if k == kind]

    def states(self):
        return [facts["state"] for facts in self.told("sensor.state")]

    def state(self):
        return self.board.sensors[0].state


async def fails(board, kind=NoDeviceError):
    with pytest.raises(kind):
        await board.read("attic")


async def test_each_change_of_state_is_told_once(capsys):
    """Issue 3, part 5: states, each change logged once and sent as an event."""
    rig = Rig()
    async with rig.board as board:
        del rig.bus.targets[0x76]
        await fails(board)
        await fails(board)
        rig.bus.targets[0x76] = rig.chip
        await board.read("attic")
        await board.read("attic")
        del rig.bus.targets[0x76]
        await fails(board)
    assert rig.states() == ["absent", "ready", "lost"]
    assert "nothing answered" in rig.told("sensor.state")[0]["error"]
    log = capsys.readouterr().err
    assert [log.count(word) for word in ("is absent", "is back", "is lost")] == [1, 1, 1]


async def test_a_chip_that_fails_but_answers_is_degraded_and_then_lost():
    """Never a made-up value in between."""
    rig = Rig()
    async with rig.board as board:
        await board.read("attic")
        rig.bus.stuck = True
        for _ in range(3):
            await fails(board, BusError)
        rig.bus.stuck = False
        await board.read("attic")
    assert rig.states() == ["ready", "degraded", "lost", "ready"]


async def test_a_brown_out_is_noticed_and_the_chip_set_up_anew():
    """Fault 21; its calibration and mode are gone, so it is identified and reset again."""
    rig = Rig()
    async with rig.board as board:
        await board.read("attic")
        rig.bus.brown_out(0x76)
        readings = await board.read("attic")
    assert readings[0].value == pytest.approx(21.5, abs=0.01)


async def test_what_is_too_old_is_no_value_any_more():
    """Fault 54: a frozen last value ran a heating away."""
    rig = Rig(max_age="5m")
    async with rig.board as board:
        assert board.latest("attic") == ()
        await board.read("attic")
        rig.clock.advance(300)
        assert board.latest("attic")[0].quality == "ok"
        rig.clock.advance(1)
        reading = board.latest("attic")[0]
    assert (reading.value, reading.quality) == (None, "stale")
    assert reading.note.startswith("the last value, 21.5")
    assert reading.age_s(rig.clock.monotonic()) == pytest.approx(301, abs=0.1)


async def test_channels_are_calibrated_and_watched(capsys):
    """Issue 3, part 5: filters, calibration per channel, alarms as events."""
    alarm = AlarmConfig(above=25.0)
    rig = Rig(channels={"temperature": ChannelConfig(offset=-1.5, alarm=alarm)})
    async with rig.board as board:
        assert (await board.read("attic", "temperature"))[0].value == pytest.approx(20, abs=0.01)
        rig.chip.temperature_cel = 30.0
        await board.read("attic")
        assert board.alarms("attic") == {"temperature": "above"}
        rig.chip.temperature_cel = 21.5
        await board.read("attic")
        assert board.alarms("attic") == {}
    first, second = rig.told("sensor.alarm")
    assert (first["state"], first["limit"], first["unit"]) == ("above", 25.0, "Cel")
    assert second["state"] == "ok"
    log = capsys.readouterr().err
    assert "alarm: attic temperature 28.5" in log
    assert "alarm over" in log


async def test_a_jump_is_suspect_and_not_kept():
    """Fault 32; `quality` says so, the history leaves it out."""
    rig = Rig(channels={"temperature": ChannelConfig(max_rate=0.1)})
    async with rig.board as board:
        await board.read("attic")
        rig.clock.advance(10)
        rig.chip.temperature_cel = 60.0
        reading = (await board.read("attic"))[0]
    assert (reading.quality, reading.note) == (
        "suspect",
        "it changed faster than it can (max_rate)",
    )


async def test_calibrating_makes_a_channel_say_the_true_value():
    alarm = AlarmConfig(above=24.0)
    rig = Rig(channels={"temperature": ChannelConfig(offset=1.0, alarm=alarm)})
    async with rig.board as board:
        offset = await board.calibrate("attic", "temperature", 20.0)
        assert offset == pytest.approx(-2.5, abs=0.01)
        assert board.latest("attic")[0].value == pytest.approx(20.0, abs=0.01)
        # A second time to what it has: no value without its offset is ever told.
        rig.chip.temperature_cel = 24.0
        await board.calibrate("attic", "temperature", 21.0)
        values = [facts["values"]["temperature"] for facts in rig.told("sensor.reading")]
        assert max(values) < 24.0
        assert rig.told("sensor.alarm") == []
        assert board.calibrations("attic") == {"temperature": pytest.approx(-4.0, abs=0.01)}
        await board.uncalibrate("attic", "temperature")
        assert board.latest("attic")[0].value == pytest.approx(25.0, abs=0.01)


@pytest.mark.parametrize(
    ("channel", "value", "reason"),
    [("taste", 1.0, "no channel 'taste'"), ("humidity", 5000.0, "humidity is from 0 to 100 %RH")],
)
async def test_nonsense_is_no_calibration(channel, value, reason):
    async with Rig().board as board:
        with pytest.raises(InvalidArgumentsError, match=reason):
            await board.calibrate("attic", channel, value)


async def test_a_failed_calibration_changes_nothing():
    rig = Rig()
    async with rig.board as board:
        await board.calibrate("attic", "temperature", 20.0)
        rig.bus.stuck = True
        with pytest.raises(BusError):
            await board.calibrate("attic", "temperature", 30.0)
        rig.bus.stuck = False
        assert (await board.read("attic", "temperature"))[0].value == pytest.approx(20.0, abs=0.01)


def test_settings_of_a_channel_that_is_not_there_are_refused():
    """Its alarm would never ring."""
    with pytest.raises(
        ConfigError, match=r"attic.channels.temprature: .*did you mean 'temperature'"
    ):
        Rig(channels={"temprature": ChannelConfig()})


async def test_stored_calibrations_are_used():
    rig = Rig()
    async with rig.board as board:
        board.offsets({"attic": {"temperature": 1.0}, "gone": {"x": 1.0}})
        assert (await board.read("attic"))[0].value == pytest.approx(22.5, abs=0.01)


async def test_identify_looks_for_the_chip_anew():
    rig = Rig()
    async with rig.board as board:
        await board.read("attic")
        assert (await board.identify("attic")).identity == "BME280, id 0x60"
        rig.bus.targets[0x76] = Bme680()
        with pytest.raises(DataError, match="not a BME280"):
            await board.identify("attic")


async def test_a_measurement_is_an_event_with_its_values():
    """Contract, section 6: events of readings."""
    rig = Rig()
    async with rig.board as board:
        await board.read("attic")
    (facts,) = rig.told("sensor.reading")
    assert facts["sensor"] == "attic"
    assert set(facts["values"]) == {"temperature", "pressure", "humidity"}


async def test_sampling_measures_by_itself_and_hands_samples_on():
    """Issue 3, part 5: sampling by `every`."""
    rig = Rig(every="20ms")
    came = asyncio.Event()
    async with rig.board as board:
        board.sample(lambda readings: (rig.samples.append(readings), came.set()))
        for _ in range(3):
            await asyncio.wait_for(came.wait(), 5)
            came.clear()
    assert len(rig.samples) == 3
    assert {len(readings) for readings in rig.samples} == {3}


async def test_a_sensor_that_is_only_read_when_asked_is_not_sampled():
    rig = Rig(every=0)
    async with rig.board as board:
        board.sample()
        await asyncio.sleep(0)
        assert rig.state() == "unknown"


async def test_what_is_plugged_in_is_found_at_once():
    """Issue 3, part 2: hot-plug; an absent one is else looked for less and less often."""
    rig = Rig(every="1h")
    del rig.bus.targets[0x76]
    came = asyncio.Event()
    async with rig.board as board:
        board.sample(lambda _: came.set())
        async with asyncio.timeout(5):
            while rig.state() != "absent":
                await asyncio.sleep(0)
        rig.bus.targets[0x76] = rig.chip
        board.wake()
        await asyncio.wait_for(came.wait(), 5)
        assert rig.state() == "ready"


async def test_a_bus_that_is_unplugged_is_noticed_at_once():
    """Issue 3, part 5: it would be found out at the next sample, in an hour."""
    rig = Rig(every="1h")
    async with rig.board as board:
        board.sample()
        async with asyncio.timeout(5):
            while rig.state() != "ready":
                await asyncio.sleep(0)
            rig.i2c.clear()
            rig.bus.targets.clear()
            board.wake()
            while rig.state() == "ready":
                await asyncio.sleep(0)
    assert rig.states() == ["ready", "lost"]


async def test_history_false_keeps_samples_off_the_disk():
    rig = Rig(history=False)
    async with rig.board as board:
        board.sample(rig.samples.append)
        await board.read("attic")
    assert rig.samples == []
