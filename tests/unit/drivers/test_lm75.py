"""The LM75 driver: datasheet values, and its register model through the bus."""

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import lm75
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

# SLLS648D and SBOS397C, table 5: code of 12 bits, temperature.
TABLE_12 = [
    (0x7FF, 127.9375),
    (0x640, 100.0),
    (0x500, 80.0),
    (0x4B0, 75.0),
    (0x320, 50.0),
    (0x190, 25.0),
    (0x004, 0.25),
    (0x000, 0.0),
    (0xFFC, -0.25),
    (0xE70, -25.0),
    (0xC90, -55.0),
]
# SNIS153B, temperature data format: code of 9 bits, temperature.
TABLE_9 = [
    (0x0FA, 125.0),
    (0x032, 25.0),
    (0x001, 0.5),
    (0x000, 0.0),
    (0x1FF, -0.5),
    (0x1CE, -25.0),
    (0x192, -55.0),
]
# NXP LM75B, table 10: code of 11 bits, temperature.
TABLE_11 = [(0x3F8, 127.0), (0x3F7, 126.875), (0x001, 0.125), (0x7FF, -0.125), (0x649, -54.875)]
TABLES = [
    (bits, *row) for bits, rows in ((12, TABLE_12), (9, TABLE_9), (11, TABLE_11)) for row in rows
]


@pytest.fixture
def clock():
    return FakeClock()


def on_bus(sim, address=0x48):
    return SimI2c("i2c-1", {address: sim})


async def found(clock, sim, **settings):
    config = lm75.Config(**settings)
    return await lm75.probe(config, on_bus(sim, config.address), clock.sleep)


@pytest.mark.parametrize(("bits", "code", "cel"), TABLES)
def test_temperature(bits, code, cel):
    """The datasheets' tables; what is below the bits that count is not defined."""
    assert lm75.temperature_cel(code << 16 - bits, bits) == cel
    assert lm75.temperature_cel(code << 16 - bits | (1 << 16 - bits) - 1, bits) == cel


@pytest.mark.parametrize(
    ("code", "cel"),
    [(0x0960, 150.0), (0x0800, 128.0), (0x07FF, 127.9375), (0x1FFC, -0.25), (0x1C90, -55.0)],
)
def test_extended_mode_of_a_tmp102(code, cel):
    """SBOS397C, table 6; D0 of byte 2 marks it (temperature register)."""
    word = code << 3 | 1
    assert lm75.extended_cel(word) == cel
    (limit,) = (min(cel, 125.0),)
    assert lm75.sample(word, lm75.Config(chip="tmp102")).value == limit


@pytest.mark.parametrize(
    ("chip", "word", "value", "quality"),
    [
        ("tmp105", 0x1580, 21.5, "ok"),
        ("tmp105", 0xF600, -10.0, "ok"),
        ("tmp105", 0x7D00, 125.0, "ok"),
        ("tmp105", 0x7FF0, 125.0, "clipped"),
        ("tmp105", 0xC900, -55.0, "ok"),
        ("tmp105", 0x8000, -55.0, "clipped"),
        ("lm75", 0x157F, 21.0, "ok"),
        ("tmp102", 0x0010, 0.0625, "ok"),
    ],
)
def test_a_sample_is_within_the_chips_range_or_marked(chip, word, value, quality):
    """SNIS153B: -55 to 125 °C; what was read is kept."""
    sample = lm75.sample(word, lm75.Config(chip=chip))
    assert (sample.channel, sample.value, sample.quality) == ("temperature", value, quality)
    assert sample.raw == word.to_bytes(2, "big")
    assert bool(sample.note) == (quality == "clipped")


@pytest.mark.parametrize("address", range(0x48, 0x50))
@pytest.mark.parametrize(
    ("chip", "resolution", "step"),
    [
        ("lm75", None, 0.5),
        ("lm75b", None, 0.125),
        ("tmp75", None, 0.0625),
        ("tmp102", None, 0.0625),
        ("tmp105", None, 0.0625),
        ("tmp105", 11, 0.125),
        ("tmp105", 10, 0.25),
        ("tmp105", 9, 0.5),
    ],
)
async def test_it_reads_what_is_true(address, chip, resolution, step, clock):
    """SLLS672A, table 8: the step of each resolution."""
    sim = lm75.Sim(clock, temperature_cel=-55.0, chip=chip)
    device = await found(clock, sim, address=address, chip=chip, resolution=resolution)
    assert device.identity == chip.upper()
    for cel in (-55.0, -10.0, -step, 0.0, step, 21.5, 21.5 + step, 125.0):
        sim.temperature_cel = cel
        (sample,) = await device.read()
        assert (sample.value, sample.quality) == (cel, "ok")


@pytest.mark.parametrize("chip", ["lm75", "lm75b", "tmp102"])
def test_a_resolution_is_refused_where_the_chip_has_but_one(chip):
    with pytest.raises(msgspec.ValidationError, match=f"resolution: that of the {chip} is always"):
        msgspec.convert({"chip": chip, "resolution": 9}, lm75.Config)


async def test_an_lm75_is_never_told_a_resolution(clock):
    """SNIS153B: bits 5 to 7 of its configuration must be kept zero."""
    written = []

    class Watched(lm75.Sim):
        def write(self, data):
            written.append(data)
            super().write(data)

    sim = Watched(clock)
    device = await found(clock, sim)
    await device.read()
    assert {len(data) for data in written} == {1}
    sim.write(bytes([lm75.CONFIGURATION, lm75.SHUTDOWN]))
    await device.read()
    assert [data for data in written[-4:] if len(data) > 1] == [b"\x01\x00"]


async def test_the_alert_pins_settings_are_left_alone(clock):
    """Another program's: fault queue, polarity, mode (SLLS648D, configuration register)."""
    sim = lm75.Sim(clock, chip="tmp105")
    sim.write(bytes([lm75.CONFIGURATION, 0x1E]))
    await found(clock, sim, chip="tmp105")
    sim.write(bytes([lm75.CONFIGURATION]))
    assert sim.read(1) == b"\x7e"


async def test_a_brown_out_costs_neither_resolution_nor_truth(clock):
    """SLLS648D: after power-up 9 bits, and 0 °C until the first measurement ended."""
    sim = lm75.Sim(clock, temperature_cel=21.5625, chip="tmp105")
    device = await found(clock, sim, chip="tmp105")
    sim.reset()
    assert (await device.read())[0].value == 21.5625


async def test_the_zero_of_power_on_is_no_reading(clock):
    """SLLS648D, temperature register; there the resolution tells nothing."""
    sim = lm75.Sim(clock)
    device = await found(clock, sim)
    sim.reset()
    sim.temperature_cel = 30.0
    assert (await device.read())[0].value == 30.0


async def test_a_chip_in_shutdown_is_woken_and_gives_no_old_value(clock):
    """SNIS153B, configuration register, D0."""
    sim = lm75.Sim(clock)
    device = await found(clock, sim)
    sim.write(bytes([lm75.CONFIGURATION, lm75.SHUTDOWN]))
    sim.temperature_cel = -10.0
    assert (await device.read())[0].value == -10.0


async def test_another_chip_than_was_said_is_refused_with_the_remedy(clock):
    """An LM75 keeps no resolution."""
    with pytest.raises(DataError, match="does not keep its settings: set chip .* lm75 suits all"):
        await found(clock, lm75.Sim(clock), chip="tmp105")


async def test_an_adc_at_the_same_address_is_refused(clock):
    """ADS1115, SBAS444: its thresholds are 0x8000 and 0x7FFF from power-on."""
    sim = lm75.Sim(clock)
    sim.write(b"\x02\x80\x00")
    sim.write(b"\x03\x7f\xff")
    with pytest.raises(DataError, match="limits of -128 and 127.5 °C, .* another chip"):
        await found(clock, sim)


async def test_limits_that_someone_set_are_accepted(clock):
    sim = lm75.Sim(clock)
    sim.write(b"\x02\xf6\x00")
    sim.write(b"\x03\xf6\x00")
    assert (await found(clock, sim)).identity == "LM75"


@pytest.mark.parametrize("cel", [0.0, -0.5])
async def test_zero_and_the_last_step_below_it_are_temperatures(cel, clock):
    """SNIS153B, temperature data format: 0x000 and 0x1FF."""
    sim = lm75.Sim(clock, temperature_cel=cel)
    device = await found(clock, sim)
    assert (await device.read())[0].value == cel


class Undefined(lm75.Sim):
    """SNIS153B: D0 to D6 of a temperature or limit are undefined."""

    def read(self, length):
        data = super().read(length)
        return bytes([data[0], data[1] | 0x7F]) if length == 2 else data


@pytest.mark.parametrize("cel", [0.0, -0.5])
async def test_undefined_bits_make_neither_silence_nor_a_reading(cel, clock):
    """So that -0.5 °C may read as all ones, and the zero of power-on as 0x007F."""
    sim = Undefined(clock, temperature_cel=cel)
    device = await found(clock, sim)
    assert (await device.read())[0].value == cel
    sim.reset()
    sim.temperature_cel = 30.0
    assert (await device.read())[0].value == 30.0


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x48"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, r"LM75 at 0x48 on i2c-1 does not answer \(all ones\)"),
        ("all_zeros", NoDeviceError, r"LM75 at 0x48 on i2c-1 does not answer \(all zeros\)"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, clock):
    """Issue 3, part 5."""
    bus = on_bus(lm75.Sim(clock))
    device = await lm75.probe(lm75.Config(), bus, clock.sleep)
    for action in (device.read, lambda: lm75.probe(lm75.Config(), bus, clock.sleep)):
        bus.fail(0x48, kind)
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x48, kind, times=0)
    assert (await device.read())[0].quality == "ok"


async def test_data_lost_in_mid_measurement_are_no_value(clock):
    """All ones after the configuration was read right."""
    bus = on_bus(lm75.Sim(clock))
    device = await lm75.probe(lm75.Config(), bus, clock.sleep)

    class Torn(lm75.Sim):
        def read(self, length):
            return super().read(length) if length == 1 else b"\xff" * length

    bus.targets[0x48] = Torn(clock)
    with pytest.raises(NoDeviceError, match="all ones"):
        await device.read()
