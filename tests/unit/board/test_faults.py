"""Reported faults of other programs, at the board: what they were is said at each test."""

import asyncio
import os

import pytest

from edged.board import Board
from edged.bus.kernel import KernelBuses
from edged.bus.settings import BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c, SimSerial
from edged.clock import SystemClock
from edged.drivers import ads1115, bme280, modbus, nmea, scd4x
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock
from tests.unit.bus.test_serial import Bench

BOUND_S = 10.0


class Rig:
    """A board of some sensors, and what was told of them."""

    def __init__(self, sensors, buses, clock):
        self.clock = clock
        self.events, self.samples = [], []
        self.board = Board(
            BoardConfig(sensors=sensors),
            buses,
            self.clock,
            sleep=getattr(clock, "sleep", asyncio.sleep),
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )

    def states(self, sensor):
        told = [facts for kind, facts in self.events if kind == "sensor.state"]
        return [facts["state"] for facts in told if facts["sensor"] == sensor]

    def count(self, sensor):
        return sum(readings[0].sensor == sensor for readings in self.samples)


async def until(condition):
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.001)


# Plugged and pulled ---------------------------------------------------------------------------

NAME = "usb-u-blox_GNSS_receiver-if00"


class Receiver:
    """A GPS receiver on a USB port that can be pulled."""

    def __init__(self, folder):
        self.bench = Bench(folder)
        self.sentences = nmea.Sim(SystemClock(), 0.0)
        self.pty, self.node = None, ""

    def plug(self, node):
        self.node, self.pty = node, self.bench.plug(node)
        self.bench.link("by-id", NAME, node)

    def pull(self):
        for path in (f"serial/by-id/{NAME}", self.node):
            os.unlink(f"{self.bench.dev}/{path}")
        pty, self.pty = self.pty, None
        pty.hang_up()
        return pty

    async def send(self):
        while True:
            if self.pty is not None:
                self.pty.send(self.sentences.burst())
            await asyncio.sleep(0.01)


async def test_a_sensor_on_a_port_comes_back_by_its_stable_name(tmp_path, capsys):
    """2 (Klipper#299, modbus-relay#7): the dead descriptor was kept, and ttyUSB1 not looked at."""
    receiver = Receiver(tmp_path)
    buses = KernelBuses(SystemClock(), dev=receiver.bench.dev, sysfs=receiver.bench.sysfs)
    config = SensorConfig(driver="nmea", bus=f"/dev/serial/by-id/{NAME}", every="20ms")
    rig = Rig({"gps": config}, buses, SystemClock())
    receiver.plug("ttyUSB0")
    sending = asyncio.create_task(receiver.send())
    async with rig.board as board:
        board.sample(rig.samples.append)
        for number in range(1, 4):
            seen = rig.count("gps")
            await until(lambda seen=seen: rig.count("gps") > seen + 1)
            pty = receiver.pull()
            await until(lambda number=number: rig.states("gps").count("lost") == number)
            assert pty.opened() == []
            receiver.plug(f"ttyUSB{number}")
            board.wake()
            await until(lambda number=number: rig.states("gps").count("ready") == number + 1)
    sending.cancel()
    receiver.pull()
    assert rig.states("gps") == ["ready", *["lost", "ready"] * 3]
    log = capsys.readouterr().err
    assert (log.count("gps is lost"), log.count("gps is back")) == (3, 3)


class Meters:
    """An RS-485 line with two meters, behind one plug."""

    def __init__(self):
        self.units = [modbus.Sim(FakeClock()) for _ in range(2)]
        for number, unit in enumerate(self.units, 1):
            unit.unit_id = number

    def attach(self, send):
        for unit in self.units:
            unit.attach(send)

    def receive(self, data):
        for unit in self.units:
            unit.receive(data)

    def detach(self):
        for unit in self.units:
            unit.detach()


def meter(unit_id):
    registers = {"volts": {"address": 0, "unit": "V", "kind": "input", "scale": 0.1}}
    options = {"registers": registers, "unit_id": unit_id, "retries": 0, "timeout_s": 0.05}
    return SensorConfig(driver="modbus", bus="ttyUSB0", options=options, every=0)


async def test_a_shared_port_is_open_anew_for_who_asks_first():
    """2: the other meter, asked once an hour, held the dead port for both."""
    serial = SimSerial({"ttyUSB0": Meters()})
    rig = Rig({"one": meter(1), "two": meter(2)}, SimBuses(serial=serial), FakeClock())
    async with rig.board as board:
        for name in ("one", "two"):
            assert (await board.read(name))[0].value == pytest.approx(230.1)
        serial.plug("ttyUSB0", serial.pull("ttyUSB0"))
        with pytest.raises(NoDeviceError, match="was unplugged"):
            await board.read("one")
        assert (await board.read("one"))[0].value == pytest.approx(230.1)
        with pytest.raises(NoDeviceError, match="was unplugged"):
            await board.read("two")
        for name in ("two", "one"):
            assert (await board.read(name))[0].value == pytest.approx(230.1)
    assert rig.states("one") == rig.states("two") == ["ready", "lost", "ready"]
    assert serial._open == {}


async def test_what_is_lost_is_told_once_however_looking_for_it_fails(capsys):
    """6: exactly one lost event, also where the bus fails in other ways meanwhile."""
    clock = FakeClock()
    bus = SimI2c("i2c-1", {0x76: bme280.Sim(clock)})
    rig = Rig(
        {"attic": SensorConfig(driver="bme280", every=0)}, SimBuses(i2c={"i2c-1": bus}), clock
    )
    chip = bus.targets[0x76]
    async with rig.board as board:
        await board.read("attic")
        del bus.targets[0x76]
        with pytest.raises(NoDeviceError):
            await board.read("attic")
        bus.stuck = True
        with pytest.raises(BusError):
            await board.read("attic")
        bus.stuck, bus.targets[0x76] = False, chip
        await board.read("attic")
    assert rig.states("attic") == ["ready", "lost", "ready"]
    assert capsys.readouterr().err.count("sensor attic") == 2


async def test_what_came_back_is_sampled_as_before():
    """2 and 22: the pause that grew while it was away was kept, five minutes long."""
    clock = SystemClock()
    chips = {}
    bus = SimI2c("i2c-1", chips)
    config = SensorConfig(driver="bme280", every="20ms")
    rig = Rig({"attic": config}, SimBuses(i2c={"i2c-1": bus}), clock)
    async with rig.board as board:
        board.sample(rig.samples.append)
        for number in range(1, 20):
            await until(lambda number=number: board.sensors[0].failures >= number)
            board.wake()
        chips[0x76] = bme280.Sim(clock)
        board.wake()
        await until(lambda: rig.count("attic") >= 3)


# Others go on ---------------------------------------------------------------------------------


async def test_an_absent_sensor_is_left_alone_while_others_keep_their_period():
    """22 (esphome#6070): it was asked as often as the others, and each time they waited."""
    clock = SystemClock()
    bus = SimI2c("i2c-1", {0x76: bme280.Sim(clock)})
    there = SensorConfig(driver="bme280", address=0x76, every="20ms")
    absent = SensorConfig(driver="bme280", address=0x77, every="20ms")
    rig = Rig({"attic": there, "shed": absent}, SimBuses(i2c={"i2c-1": bus}), clock)
    async with rig.board as board:
        board.sample(rig.samples.append)
        await until(lambda: rig.count("attic") >= 25)
        shed = next(one for one in board.sensors if one.name == "shed")
    # At 0, 40, 120, 280, 600 ms and so on.
    assert 1 <= shed.failures <= 7
    assert rig.states("shed") == ["absent"]
    assert rig.states("attic") == ["ready"]


async def test_sixteen_callers_each_get_the_channel_that_they_asked_for():
    """14 (ADS1x15#40, gobot#827): channels were swapped, or all waited for ever."""
    clock = FakeClock()
    chip = ads1115.Sim(clock, volts=(0.5, 1.25, 2.0, 3.3))
    bus = SimI2c("i2c-1", {0x48: chip})
    rig = Rig(
        {"adc": SensorConfig(driver="ads1115", every=0)}, SimBuses(i2c={"i2c-1": bus}), clock
    )

    async def ask(number):
        # Not all at the same moment: some share a measurement, some begin one.
        for _ in range(number):
            await asyncio.sleep(0)
        (reading,) = await rig.board.read("adc", f"a{number % 4}")
        return reading.channel, reading.value

    async with rig.board:
        answers = await asyncio.gather(*(ask(number) for number in range(16)))
    for number, (channel, volts) in enumerate(answers):
        assert channel == f"a{number % 4}"
        assert volts == pytest.approx(chip.volts[number % 4], abs=0.001)


# Not yet to be trusted ------------------------------------------------------------------------


async def test_what_warms_up_says_so_and_anew_after_a_brown_out():
    """33 (SGP30#16, esphome#950): values of the first minute were data like any other."""
    clock = FakeClock()
    bus = SimI2c("i2c-1", {0x62: scd4x.Sim(clock)})
    rig = Rig({"air": SensorConfig(driver="scd4x", every=0)}, SimBuses(i2c={"i2c-1": bus}), clock)

    async def qualities():
        clock.advance(10)
        return {reading.quality for reading in await rig.board.read("air")}

    async with rig.board as board:
        assert await qualities() == {"warming"}
        assert board.sensors[0].state == "warming"
        clock.advance(60)
        assert await qualities() == {"ok"}
        bus.brown_out(0x62)
        clock.advance(10)
        with pytest.raises(DataError, match="its supply may have dipped"):
            await board.read("air")
        assert await qualities() == {"warming"}
    told = [facts for kind, facts in rig.events if kind == "sensor.reading"]
    assert set(told[0]["quality"].values()) == {"warming"}
    assert "quality" not in told[1]
