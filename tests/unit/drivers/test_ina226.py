"""The INA226 driver: the datasheet's worked example, and its register model through the bus."""

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import Identity, _ina, ina226
from edged.drivers._ina import Raw
from edged.drivers.ina226 import CHIP, Config
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

EXAMPLE = Config(shunt_ohms=0.002, max_current_a=32.768)
"""Section 7.5: 2 milliohm, and a step of 1 mA (32768 of which are 32.768 A)."""


@pytest.fixture
def clock():
    return FakeClock()


def on_a_bus(sim):
    return SimI2c("i2c-1", {0x40: sim})


def values(raw, config=EXAMPLE):
    return {s.channel: s.value for s in _ina.samples(raw, config)}


def test_the_worked_example():
    """7.5, the example: 20 mV, 11.98 V, 10 A, 119.8 W."""
    assert _ina.calibration(CHIP, 0.001, 0.002) == 0x0A00
    assert EXAMPLE.calibration == 0x0A00
    assert EXAMPLE.current_step_a == pytest.approx(0.001)
    assert values(Raw(8, 0x2570, 0x1F40, 0x2710, 0x12B8)) == {
        "voltage": 11.98,
        "current": 10.0,
        "power": 119.8,
        "shunt_voltage": 0.02,
    }


def test_shunt_and_current_are_signed_and_power_is_a_magnitude():
    """7.6.2, 7.6.5: two's complement."""
    assert values(Raw(8, 0x2570, 0xE0C0, 0xD8F0, 0x12B8)) == {
        "voltage": 11.98,
        "current": -10.0,
        "power": -119.8,
        "shunt_voltage": -0.02,
    }
    assert values(Raw(8, 0, 0xFFFF, 0xFFFF, 0))["shunt_voltage"] == -2.5e-6


@pytest.mark.parametrize(
    ("shunt", "volts"), [(0x7FFF, 0.0819175), (0x8000, -0.08192), (0x7FFE, None), (0x8002, None)]
)
def test_the_ends_of_the_shunts_range_are_clipped(shunt, volts):
    """7.6.2: full scale is 81.92 mV."""
    found = _ina.samples(Raw(8, 0x2570, shunt, 100, 100), EXAMPLE)
    if volts is None:
        assert {s.quality for s in found} == {"ok"}
    else:
        assert [s.quality for s in found] == ["ok", "clipped", "clipped", "clipped"]
        assert found[3].value == volts
        assert found[1].note == "at or beyond 40.96 A, the end of its range"


def test_an_overflow_is_no_value():
    """7.6.7, bit ovf: current and power may be invalid; the voltages are not."""
    voltage, current, power, shunt = _ina.samples(
        Raw(0x0C, 0x2570, 0x1F40, 0x2710, 0x12B8), EXAMPLE
    )
    assert (voltage.value, shunt.value) == (11.98, 0.02)
    assert {(s.value, s.quality, s.note) for s in (current, power)} == {
        (None, "error", "more than 32.768 A: raise max_current_a")
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "missing required field `shunt_ohms`"),
        ({"shunt_ohms": -0.1}, "> 0"),
        ({"shunt_ohms": 0.1, "max_current_a": 1}, "0.1 V on the shunt.*take a smaller shunt"),
        ({"shunt_ohms": 0.1, "max_current_a": 0.05}, "raise max_current_a.*would be 33554"),
        ({"shunt_ohms": 0.1, "samples": 2}, "Invalid enum value"),
    ],
)
def test_settings_that_the_chip_cannot_do_are_refused(settings, words):
    """7.6.6: the calibration has 15 bits."""
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


@pytest.mark.parametrize(("step", "word"), [(1.5e-6, "raise"), (1.0, "lower")])
def test_a_calibration_beyond_its_register_is_refused(step, word):
    with pytest.raises(ValueError, match=f"{word} max_current_a"):
        _ina.calibration(CHIP, step, 0.1)


@pytest.mark.parametrize("value", [1, 2, 2048, 0x7FFE, 0x7FFF])
def test_calibrations_that_fit(value):
    assert _ina.calibration(CHIP, 0.00512 / value, 1.0) == value


@pytest.mark.parametrize(
    ("samples", "word"),
    [
        (1, "4123"),
        (4, "4323"),
        (16, "4523"),
        (64, "4723"),
        (128, "4923"),
        (256, "4b23"),
        (512, "4d23"),
        (1024, "4f23"),
    ],
)
def test_the_configuration_word(samples, word):
    """Tables 6 to 9, by hand: bit 14 is always 1."""
    assert ina226.encode_config(Config(shunt_ohms=0.1, samples=samples)).hex() == word


@pytest.mark.parametrize(("samples", "seconds"), [(1, 0.00242), (1024, 2.47808)])
def test_the_longest_time_of_a_conversion(samples, seconds):
    """6.5: 1.21 ms; shunt and bus one after the other."""
    assert ina226.conversion_s(samples) == pytest.approx(seconds)


def test_the_model_has_the_identity(clock):
    """7.6.11: the lowest four bits are the revision."""
    sim = ina226.Sim(clock)
    assert ina226.INFO.identity == Identity(0xFF, (0x2260,), 2, 0xFFF0)
    sim.write(b"\xff")
    assert sim.read(2) == b"\x22\x60"


@pytest.mark.parametrize("samples", [1, 16, 1024])
@pytest.mark.parametrize(
    ("volts", "amperes"), [(12.0, 0.5), (3.3, -0.7), (0.0, 0.0), (36.0, 0.81), (5.0, -0.0003)]
)
async def test_the_driver_reads_what_is_true(volts, amperes, samples, clock):
    """Steps: 1.25 mV; 2.5 uV on 0.1 ohm are 25 uA."""
    sim = ina226.Sim(clock, volts=volts, amperes=amperes)
    config = Config(shunt_ohms=0.1, samples=samples)
    device = await ina226.probe(config, on_a_bus(sim), clock.sleep)
    voltage, current, power, shunt = await device.read()
    assert voltage.value == pytest.approx(volts, abs=0.001)
    assert current.value == pytest.approx(amperes, abs=4e-5)
    assert power.value == pytest.approx(volts * amperes, abs=0.002)
    assert shunt.value == pytest.approx(amperes * 0.1, abs=1.3e-6)
    assert {s.quality for s in (voltage, current, power, shunt)} == {"ok"}
    assert [c.name for c in ina226.channels(config)] == [
        "voltage",
        "current",
        "power",
        "shunt_voltage",
    ]
    assert device.identity == "INA226, id 0x2260"


@pytest.mark.parametrize("amperes", [5.0, -5.0])
async def test_a_current_beyond_the_shunt_is_clipped(amperes, clock):
    sim = ina226.Sim(clock, amperes=amperes)
    device = await ina226.probe(Config(shunt_ohms=0.1), on_a_bus(sim), clock.sleep)
    _, current, _, shunt = await device.read()
    assert (current.quality, shunt.quality) == ("clipped", "clipped")
    assert current.value == pytest.approx(0.8192 if amperes > 0 else -0.8192, abs=0.0001)


async def test_a_current_beyond_the_configured_one_is_no_value(clock):
    sim = ina226.Sim(clock, amperes=0.7)
    config = Config(shunt_ohms=0.1, max_current_a=0.41)
    device = await ina226.probe(config, on_a_bus(sim), clock.sleep)
    _, current, power, shunt = await device.read()
    assert (current.value, power.value, shunt.value) == (None, None, 0.07)
    sim.amperes = 0.4
    assert (await device.read())[1].value == pytest.approx(0.4, abs=0.0001)


async def test_after_a_brown_out_it_is_calibrated_again(clock):
    """7.6.6: the calibration is 0 after power-on, and the current with it."""
    sim = ina226.Sim(clock)
    bus = on_a_bus(sim)
    device = await ina226.probe(Config(shunt_ohms=0.1), bus, clock.sleep)
    bus.brown_out(0x40)
    assert (await device.read())[1].value == pytest.approx(0.42, abs=0.0001)


async def test_an_uncalibrated_chip_reads_no_current(clock):
    """Why the calibration is looked at."""
    sim = ina226.Sim(clock)
    sim.write(bytes.fromhex("004123"))
    clock.advance(0.01)
    sim.write(b"\x04")
    assert sim.read(2) == b"\x00\x00"


async def test_reading_the_flag_clears_it(clock):
    """7.6.7, bit cvrf."""
    sim = ina226.Sim(clock)
    sim.write(bytes.fromhex("004123"))
    sim.write(b"\x06")
    clock.advance(0.0021)
    assert sim.read(2) == b"\x00\x00"
    clock.advance(0.0002)
    assert sim.read(2) == b"\x00\x08"
    assert sim.read(2) == b"\x00\x00"


async def test_a_slow_chip_is_waited_for_and_a_dead_one_given_up():
    """Every poll is bounded."""
    slow = FakeClock()
    bus = on_a_bus(ina226.Sim(slow))
    factor = 0.5

    async def sleep(seconds):
        slow.advance(seconds * factor)

    device = await ina226.probe(Config(shunt_ohms=0.1), bus, sleep)
    assert (await device.read())[0].value == 5.1
    factor = 0.0
    with pytest.raises(DataError, match="a conversion does not end"):
        await device.read()


class Wired:
    """A chip whose registers are a table that cannot be written."""

    def __init__(self, registers):
        self.registers = registers
        self.written = []

    def write(self, data):
        self.pointer = data[0]
        if len(data) > 1:
            self.written.append(data)

    def read(self, length):
        return self.registers.get(self.pointer, bytes(length))


@pytest.mark.parametrize(
    ("maker", "die"), [("5449", "2270"), ("5449", "2261"), ("399f", "2260"), ("5449", "0000")]
)
async def test_the_identity_decides_and_another_chip_is_not_written_to(maker, die, clock):
    """7.6.10, 7.6.11: 5449 is TI's, 226x the chip and its revision (227x is an INA260)."""
    chip = Wired({0xFE: bytes.fromhex(maker), 0xFF: bytes.fromhex(die), 5: b"\x08\x00"})
    attempt = ina226.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)
    if (maker, die) == ("5449", "2261"):
        assert (await attempt).identity == "INA226, id 0x2261"
        return
    with pytest.raises(DataError, match=f"is not an INA226: its ids are 0x{maker} and 0x{die}"):
        await attempt
    assert chip.written == []


async def test_a_chip_that_keeps_no_calibration_is_refused(clock):
    chip = Wired({0xFE: b"\x54\x49", 0xFF: b"\x22\x60", 5: b"\x00\x01"})
    with pytest.raises(DataError, match="does not keep its calibration \\(reads 0x0001\\)"):
        await ina226.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)


async def test_data_of_all_ones_is_no_reading(clock):
    """The flags' bits 9 to 5 are always 0."""
    chip = Wired({0xFE: b"\x54\x49", 0xFF: b"\x22\x60", 5: b"\x08\x00", 6: b"\xff\xff"})
    device = await ina226.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)
    with pytest.raises(NoDeviceError, match="all ones"):
        await device.read()


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
    ],
)
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, words, clock):
    """Issue 3, part 1: a failed caller never blocks the next."""
    bus = on_a_bus(ina226.Sim(clock))
    config = Config(shunt_ohms=0.1)
    device = await ina226.probe(config, bus, clock.sleep)
    bus.fail(0x40, kind)
    for action in (device.read(), ina226.probe(config, bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action
    bus.fail(0x40, kind, times=0)
    assert (await device.read())[0].value == 5.1


async def test_writes_to_data_registers_change_nothing(clock):
    sim = ina226.Sim(clock)
    sim.write(b"\x01\x12\x34")
    assert sim.read(2) == b"\x00\x00"
    sim.write(bytes.fromhex("004120"))
    clock.advance(10)
    sim.write(b"\x02")
    assert sim.read(2) == b"\x00\x00"
