"""The scan names what it can ask without harm, and says what is wrong with the wiring."""

import errno

import pytest

from edged.board import Board
from edged.board.scan import Scan, identify, scan_board, scan_i2c, yaml_lines
from edged.bus.sim import SimBuses, SimI2c, SimOneWire, SimSerial
from edged.drivers import bme280, ina219, lm75
from edged.errors import BusError, NoDeviceError
from edged.testing import FakeClock


class Nothing:
    """A chip that acknowledges and says nothing of use."""

    def __init__(self, byte=0x00):
        self.byte, self.written = byte, []

    def write(self, data):
        self.written.append(data)

    def read(self, length):
        return bytes([self.byte]) * length


@pytest.fixture
def clock():
    return FakeClock()


async def test_a_chip_that_tells_its_identity_is_named(clock):
    """Issue 3, part 6: chips recognised by identity registers."""
    bus = SimI2c("i2c-1", {0x77: bme280.Sim(clock)})
    (found,) = (await scan_i2c(bus, clock)).found
    assert (found.address, found.certain, found.drivers[0]) == (0x77, True, "bme280")
    assert "BME280" in found.title


async def test_where_an_address_is_shared_all_candidates_are_named(clock):
    """0x23 is a BH1750's, and a port expander's; neither has an identity."""
    bus = SimI2c("i2c-1", {0x23: Nothing()})
    (found,) = (await scan_i2c(bus, clock)).found
    assert "bh1750" in found.drivers
    assert not found.certain


async def test_all_ones_are_told_as_wiring(clock):
    bus = SimI2c("i2c-1", {0x76: Nothing(0xFF)})
    assert "all ones or all zeros" in (await identify(bus, 0x76)).note


async def test_what_the_kernel_owns_is_not_touched(clock):
    """Fault 25: named with its driver, no byte on the bus."""
    chip = Nothing()
    bus = SimI2c("i2c-1", {0x48: chip})
    bus.owners[0x48] = "lm75"
    (found,) = (await scan_i2c(bus, clock)).found
    assert found.owner == "lm75"
    assert chip.written == []


async def test_what_a_configured_device_holds_is_not_touched_and_named(clock):
    """Whoever scans again pastes nothing twice."""
    chip = Nothing()
    bus = SimI2c("i2c-1", {0x76: chip})
    found = await scan_i2c(bus, clock, holder={"i2c-1/0x76": "the sensor room"}.get)
    assert [one.used_by for one in found.found] == ["the sensor room"]
    assert chip.written == []
    assert yaml_lines(Scan(i2c=(found,))) == []


async def test_an_lm75_is_known_by_its_limit_after_a_reset_and_may_be_one_with_another(clock):
    """SNIS153B: THYST is 75 °C; whoever uses its alert pin sets it."""
    chip = lm75.Sim(clock)
    bus = SimI2c("i2c-1", {0x48: chip})
    found = await identify(bus, 0x48)
    assert (found.certain, found.drivers) == (True, ("lm75",))
    chip.write(b"\x02\x14\x00")
    found = await identify(bus, 0x48)
    assert not found.certain
    assert "lm75" in found.drivers


async def test_a_stuck_bus_ends_the_scan_with_its_diagnosis(clock):
    """Fault 20: not "no devices" after minutes."""
    bus = SimI2c("i2c-1", {0x76: bme280.Sim(clock)})
    bus.stuck = True
    found = await scan_i2c(bus, clock)
    assert found.found == ()
    assert "the bus is stuck" in found.problem


class TimesOut(SimI2c):
    """Of an adapter that reports no missing acknowledgement, as QEMU's i.MX."""

    answered = False

    async def detect(self, address):
        if self.owner(address):
            return True
        there = await super().detect(address)
        self.answered = self.answered or there
        if there or self.answered:
            return there
        raise BusError(errno.ETIMEDOUT, f"{address:#04x}: the bus is stuck")


async def test_time_outs_before_the_first_answer_are_absent_addresses(clock):
    """The bus moves: someone answers."""
    found = await scan_i2c(TimesOut("i2c-1", {0x76: bme280.Sim(clock)}), clock)
    assert [one.address for one in found.found] == [0x76]
    assert (found.problem, found.asked) == ("", 112)


async def test_time_outs_and_no_answer_are_a_stuck_bus(clock):
    found = await scan_i2c(TimesOut("i2c-1", {}), clock)
    assert found.problem == "0x20: the bus is stuck"


async def test_time_outs_are_a_stuck_bus_though_the_kernel_owns_an_address(clock):
    """That one was not asked."""
    bus = TimesOut("i2c-1", {})
    bus.owners[0x48] = "lm75"
    found = await scan_i2c(bus, clock)
    assert [one.owner for one in found.found] == ["lm75"]
    assert "the bus is stuck" in found.problem


async def test_a_slow_adapter_is_given_up_after_the_budget(clock):
    """Issue 3, part 6: respects a total time budget."""

    class Slow(SimI2c):
        async def detect(self, address):
            clock.advance(1.0)
            return await super().detect(address)

    found = await scan_i2c(Slow("i2c-1", {}), clock, budget_s=5.0)
    assert found.asked == 6
    assert "gave up after 5 s" in found.problem


async def test_a_bus_where_every_address_answers_has_no_wiring(clock):
    bus = SimI2c("i2c-1", {address: Nothing() for address in range(0x08, 0x78)})
    found = await scan_i2c(bus, clock)
    assert found.found == ()
    assert "SDA is held low" in found.problem


async def test_the_lines_to_paste_are_a_configuration(clock):
    """Issue 3: pastes what it prints into `edged.yaml`."""
    from edged import settings

    class Device:
        def file(self, attribute):
            return ""

    chips = {
        0x40: ina219.Sim(clock),
        0x50: Nothing(0x12),
        0x76: bme280.Sim(clock),
        0x77: bme280.Sim(clock),
    }
    buses = SimBuses(
        i2c={"i2c-1": SimI2c("i2c-1", chips)},
        w1=SimOneWire({"28-0316a2795bff": Device()}),
        serial=SimSerial({"ttyUSB0": None}),
    )
    found = await scan_board(buses, clock)
    assert [port.name for port in found.serial] == ["ttyUSB0"]
    loaded = settings.parse("\n".join(yaml_lines(found)) + "\n", "edged.yaml")
    assert max(map(len, yaml_lines(found))) <= 80
    Board(loaded.config.board, buses, clock)
    sensors = loaded.config.board.sensors
    assert {(s.driver, s.bus, s.address) for s in sensors.values()} == {
        ("ina219", "i2c-1", 0x40),
        ("bme280", "i2c-1", 0x76),
        ("bme280", "i2c-1", 0x77),
        ("ds18b20", "", "28-0316a2795bff"),
    }


async def test_sensors_that_may_be_there_are_lines_to_choose_from(clock):
    """Most have no identity: without their # they are a configuration."""
    from edged import settings

    chips = {0x23: Nothing(0x12), 0x44: Nothing(0x12), 0x76: bme280.Sim(clock)}
    found = await scan_board(SimBuses(i2c={"i2c-1": SimI2c("i2c-1", chips)}), clock)
    lines = yaml_lines(found)
    assert max(map(len, lines)) <= 80
    assert set(settings.parse("\n".join(lines), "edged.yaml").config.board.sensors) == {"bme280"}
    chosen = [line.replace("    #", "    ") for line in lines if "does not say" not in line]
    sensors = settings.parse("\n".join(chosen), "edged.yaml").config.board.sensors
    assert {("bh1750", 0x23), ("sht3x", 0x44), ("sht4x", 0x44)} <= {
        (sensor.driver, sensor.address) for sensor in sensors.values()
    }


async def test_all_buses_are_scanned_at_once(clock):
    """A board of three slow buses takes no longer than one: each waits on its own thread."""
    order = []

    class Slow(SimI2c):
        async def detect(self, address):
            order.append(self.name)
            return await super().detect(address)

    names = ["i2c-0", "i2c-1", "i2c-2"]
    found = await scan_board(SimBuses(i2c={name: Slow(name, {}) for name in names}), clock)
    assert [bus.name for bus in found.i2c] == names
    assert set(order[:6]) == set(names)


async def test_the_usual_addresses_of_known_chips_are_asked_first(clock):
    """An adapter that waits a second for each absent one is given up before the last."""
    asked = []

    class Noted(SimI2c):
        async def detect(self, address):
            asked.append(address)
            return await super().detect(address)

    found = await scan_i2c(Noted("i2c-1", {0x48: Nothing(), 0x0B: Nothing()}), clock)
    assert asked.index(0x76) < asked.index(0x4C) < asked.index(0x08)
    assert sorted(asked) == list(range(0x08, 0x78))
    assert [one.address for one in found.found] == [0x0B, 0x48]


async def test_a_clock_whose_registers_are_zero_is_no_fault_of_the_wiring(clock):
    """0x68 is an MPU6050's and a DS3231's: the latter has no identity, and zeros in it."""
    found = await identify(SimI2c("i2c-1", {0x68: Nothing()}), 0x68)
    assert found.note == ""
    assert "ds3231" in found.drivers


async def test_one_bus_can_be_asked_for(clock):
    buses = SimBuses(i2c={"i2c-1": SimI2c("i2c-1", {})})
    found = await scan_board(buses, clock, only="i2c-1")
    assert [bus.name for bus in found.i2c] == ["i2c-1"]
    with pytest.raises(NoDeviceError, match="no bus i2c-9"):
        await scan_board(buses, clock, only="i2c-9")
