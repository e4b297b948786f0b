"""The INA219 driver: the datasheet's worked example, and its register model through the bus."""

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import _ina, ina219
from edged.drivers._ina import Raw
from edged.drivers.ina219 import CHIP, Config
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

EXAMPLE = Config(shunt_ohms=0.002, max_current_a=32.768)
"""Section 8.5.2: 2 milliohm, and a step of 1 mA (32768 of which are 32.768 A)."""


@pytest.fixture
def clock():
    return FakeClock()


def on_a_bus(sim):
    return SimI2c("i2c-1", {0x40: sim})


def values(raw, config=EXAMPLE):
    return {s.channel: s.value for s in _ina.samples(raw, config)}


def test_the_worked_example():
    """8.5, table 8: 20 mV, 11.98 V, 10 A, 119.8 W."""
    assert _ina.calibration(CHIP, 0.001, 0.002) == 0x5000
    assert EXAMPLE.calibration == 0x5000
    assert EXAMPLE.current_step_a == pytest.approx(0.001)
    assert values(Raw(0x5D9A, 0x5D9A, 0x07D0, 0x2710, 0x1766)) == {
        "voltage": 11.98,
        "current": 10.0,
        "power": 119.8,
        "shunt_voltage": 0.02,
    }


def test_shunt_and_current_are_signed_and_power_is_a_magnitude():
    """Reported of other drivers (Adafruit_INA219#2): a negative current as 65 A."""
    assert values(Raw(0x5D9A, 0x5D9A, 0xF830, 0xD8F0, 0x1766)) == {
        "voltage": 11.98,
        "current": -10.0,
        "power": -119.8,
        "shunt_voltage": -0.02,
    }
    assert values(Raw(2, 2, 0xFFFF, 0xFFFF, 0))["shunt_voltage"] == -1e-5


@pytest.mark.parametrize(
    ("shunt", "max_a", "limit", "code"),
    [
        (0.1, None, 0x7D00, 3),
        (0.1, 1.6, 0x3E80, 2),
        (0.1, 0.8, 0x1F40, 1),
        (0.1, 0.4, 0x0FA0, 0),
        (0.1, 0.41, 0x1F40, 1),
    ],
)
def test_the_range_is_the_smallest_that_will_do_and_its_end_is_clipped(shunt, max_a, limit, code):
    """Table 4, and figures 20 to 23: the register ends at the range."""
    config = Config(shunt_ohms=shunt, max_current_a=max_a)
    assert config.gain == code
    for raw in (limit, -limit & 0xFFFF):
        found = _ina.samples(Raw(0x5D9A, 0x5D9A, raw, 100, 100), config)
        assert [s.quality for s in found] == ["ok", "clipped", "clipped", "clipped"]
    found = _ina.samples(Raw(0x5D9A, 0x5D9A, limit - 1, 100, 100), config)
    assert {s.quality for s in found} == {"ok"}


def test_an_overflow_is_no_value():
    """8.6.3.2, bit ovf: current and power are then meaningless; the voltages are not."""
    voltage, current, power, shunt = _ina.samples(
        Raw(0x5D9B, 0x5D9B, 0x07D0, 0x2710, 0x1766), EXAMPLE
    )
    assert (voltage.value, shunt.value) == (11.98, 0.02)
    assert {(s.value, s.quality, s.note) for s in (current, power)} == {
        (None, "error", "more than 32.768 A: raise max_current_a")
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "missing required field `shunt_ohms`"),
        ({"shunt_ohms": 0}, "> 0"),
        ({"shunt_ohms": 0.1, "max_current_a": 3.3}, "0.33 V on the shunt.*take a smaller shunt"),
        (
            {"shunt_ohms": 0.1, "max_current_a": 0.2},
            "raise max_current_a.*would be 67108, which is not within 1 to 65534",
        ),
        ({"shunt_ohms": 0.1, "samples": 3}, "Invalid enum value"),
    ],
)
def test_settings_that_the_chip_cannot_do_are_refused(settings, words):
    """Reported of other drivers (pi_ina219#14): a calibration above FFFE wraps around."""
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


@pytest.mark.parametrize(
    ("step", "ohms", "word"), [(1e-6, 0.1, "raise"), (6.25e-6, 0.1, "raise"), (1.0, 0.1, "lower")]
)
def test_a_calibration_beyond_its_register_is_refused(step, ohms, word):
    """8.6.4: 16 bits of which the lowest is 0."""
    with pytest.raises(ValueError, match=f"{word} max_current_a"):
        _ina.calibration(CHIP, step, ohms)


def test_the_largest_calibration():
    assert _ina.calibration(CHIP, 0.04096 / 0xFFFE, 1.0) == 0xFFFE
    assert _ina.calibration(CHIP, 0.04096 / 0x1001, 1.0) == 0x1000


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (Config(shunt_ohms=0.1), "399b"),
        (Config(shunt_ohms=0.1, max_current_a=0.4), "219b"),
        (Config(shunt_ohms=0.1, samples=2), "3ccb"),
        (Config(shunt_ohms=0.1, samples=128), "3ffb"),
    ],
)
def test_the_configuration_word(config, word):
    """Tables 4 to 6, by hand: 32 V, range, samples, one conversion of both."""
    assert ina219.encode_config(config).hex() == word


@pytest.mark.parametrize(("samples", "seconds"), [(1, 0.001172), (128, 0.150016)])
def test_the_longest_time_of_a_conversion(samples, seconds):
    """6.5: 586 us for 12 bits; shunt and bus one after the other."""
    assert ina219.conversion_s(samples) == pytest.approx(seconds)


def is_told_by(word):
    identity = ina219.INFO.identity
    return word & identity.mask in identity.values


async def test_it_is_known_by_its_reset_value_whatever_it_was_set_to(clock):
    """8.6.2.1: 399F after a reset."""
    sim = ina219.Sim(clock)
    assert sim.read(2).hex() == "399f"
    assert is_told_by(0x399F)
    sim.write(bytes.fromhex("002001"))
    sim.write(bytes.fromhex("051234"))
    device = await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(sim), clock.sleep)
    assert (await device.read())[1].value == pytest.approx(0.42, abs=0.0002)


@pytest.mark.parametrize("max_current_a", [0.4, 0.8, 1.6, 3.2])
def test_it_is_told_from_others_in_use_too(max_current_a):
    """A scan finds it as this driver left it; an INA226 begins with 4127 (SBOS547A, 7.6.1)."""
    word = ina219.encode_config(Config(shunt_ohms=0.1, max_current_a=max_current_a))
    assert is_told_by(int.from_bytes(word, "big"))
    assert not any(map(is_told_by, (0x0000, 0xFFFF, 0x4127)))


@pytest.mark.parametrize("samples", [1, 8, 128])
@pytest.mark.parametrize(
    ("volts", "amperes"), [(12.0, 1.5), (3.3, -0.7), (0.0, 0.0), (26.0, 3.19), (5.0, -0.0003)]
)
async def test_the_driver_reads_what_is_true(volts, amperes, samples, clock):
    """Steps: 4 mV; 10 uV on 0.1 ohm are 0.1 mA."""
    sim = ina219.Sim(clock, volts=volts, amperes=amperes)
    config = Config(shunt_ohms=0.1, samples=samples)
    device = await ina219.probe(config, on_a_bus(sim), clock.sleep)
    voltage, current, power, shunt = await device.read()
    assert voltage.value == pytest.approx(volts, abs=0.002)
    assert current.value == pytest.approx(amperes, abs=0.00015)
    assert power.value == pytest.approx(volts * amperes, abs=0.01)
    assert shunt.value == pytest.approx(amperes * 0.1, abs=5e-6)
    assert {s.quality for s in (voltage, current, power, shunt)} == {"ok"}
    assert [c.name for c in ina219.channels(config)] == [
        "voltage",
        "current",
        "power",
        "shunt_voltage",
    ]


@pytest.mark.parametrize("amperes", [5.0, -5.0])
async def test_a_current_beyond_the_shunt_is_clipped(amperes, clock):
    sim = ina219.Sim(clock, amperes=amperes)
    device = await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(sim), clock.sleep)
    _, current, _, shunt = await device.read()
    assert (current.quality, shunt.quality) == ("clipped", "clipped")
    assert current.value == pytest.approx(3.2 if amperes > 0 else -3.2, abs=0.001)


async def test_a_current_beyond_the_configured_one_is_no_value(clock):
    """Between the highest current asked for and the end of the range the register overflows."""
    sim = ina219.Sim(clock, amperes=0.7)
    device = await ina219.probe(
        Config(shunt_ohms=0.1, max_current_a=0.41), on_a_bus(sim), clock.sleep
    )
    voltage, current, power, shunt = await device.read()
    assert (current.value, power.value) == (None, None)
    assert shunt.value == 0.07
    sim.amperes = 0.4
    assert (await device.read())[1].value == pytest.approx(0.4, abs=0.0001)


async def test_after_a_brown_out_it_is_calibrated_again(clock):
    """8.5.1: the calibration is 0 after power-on, and the current with it."""
    sim = ina219.Sim(clock)
    bus = on_a_bus(sim)
    device = await ina219.probe(Config(shunt_ohms=0.1), bus, clock.sleep)
    bus.brown_out(0x40)
    assert (await device.read())[1].value == pytest.approx(0.42, abs=0.0002)


async def test_an_uncalibrated_chip_reads_no_current(clock):
    """Why the calibration is looked at."""
    sim = ina219.Sim(clock)
    sim.write(bytes.fromhex("00399b"))
    clock.advance(0.01)
    sim.write(b"\x04")
    assert sim.read(2) == b"\x00\x00"


async def test_the_flag_tells_when_it_is_done_and_reading_the_power_clears_it(clock):
    """8.6.3.2, bit cnvr."""
    sim = ina219.Sim(clock)

    def bus_flags():
        sim.write(b"\x02")
        return sim.read(2)[1] & 3

    sim.write(bytes.fromhex("00399b"))
    clock.advance(0.001)
    assert bus_flags() == 0
    clock.advance(0.0001)
    assert bus_flags() == 2
    sim.write(b"\x03")
    sim.read(2)
    assert bus_flags() == 0


async def test_a_slow_chip_is_waited_for_and_a_dead_one_given_up():
    """Every poll is bounded."""
    slow = FakeClock()
    bus = on_a_bus(ina219.Sim(slow))

    async def sleep(seconds):
        slow.advance(seconds * factor)

    factor = 0.5
    device = await ina219.probe(Config(shunt_ohms=0.1), bus, sleep)
    assert (await device.read())[0].value == 5.1
    factor = 0.0
    with pytest.raises(DataError, match="a conversion does not end"):
        await device.read()


class Wired:
    """A chip whose registers are a table, and which keeps what is written or does not."""

    def __init__(self, registers, keeps=True):
        self.registers, self.keeps = registers, keeps
        self.written = []

    def write(self, data):
        self.pointer = data[0]
        if len(data) > 1:
            self.written.append(data)
            if self.keeps:
                self.registers[self.pointer] = data[1:]

    def read(self, length):
        return self.registers.get(self.pointer, bytes(length))


async def test_another_chip_is_named_and_not_written_to(clock):
    """An INA226 has bit 14 set (SBOS547: 4127)."""
    chip = Wired({0: b"\x41\x27"})
    with pytest.raises(DataError, match="is not an INA219.*0x4127.*an INA226\\?"):
        await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)
    assert chip.written == []


async def test_a_chip_that_does_not_reset_is_refused(clock):
    chip = Wired({0: b"\x11\x11"}, keeps=False)
    with pytest.raises(DataError, match="is not an INA219.*0x1111 after a reset and not 0x399f"):
        await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)


async def test_a_chip_that_keeps_no_calibration_is_refused(clock):
    chip = Wired({0: b"\x39\x9f", 5: b"\x00\x01"}, keeps=False)
    with pytest.raises(DataError, match="does not keep its calibration \\(reads 0x0001\\)"):
        await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)


async def test_data_of_all_ones_is_no_reading(clock):
    """The bus register's bit 2 is always 0."""
    chip = Wired({0: b"\x39\x9f", 2: b"\xff\xff", 5: b"\x10\x62"}, keeps=False)
    device = await ina219.probe(Config(shunt_ohms=0.1), on_a_bus(chip), clock.sleep)
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
    bus = on_a_bus(ina219.Sim(clock))
    config = Config(shunt_ohms=0.1)
    device = await ina219.probe(config, bus, clock.sleep)
    bus.fail(0x40, kind)
    for action in (device.read(), ina219.probe(config, bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action
    bus.fail(0x40, kind, times=0)
    assert (await device.read())[0].value == 5.1


async def test_writes_to_data_registers_change_nothing(clock):
    sim = ina219.Sim(clock)
    sim.write(b"\x01\x12\x34")
    assert sim.read(2) == b"\x00\x00"
    sim.write(b"\x09")
    assert sim.read(2) == b"\x00\x00"
    sim.write(bytes.fromhex("003998"))
    clock.advance(1)
    sim.write(b"\x02")
    assert sim.read(2) == b"\x00\x00"
