"""The BMP280 driver through the bus, with a BMP280 and with a BME280 in its place."""

import pytest

from edged.bus.sim import SimI2c
from edged.drivers import bme280, bmp280
from edged.errors import DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.mark.parametrize("oversampling", [1, 16])
@pytest.mark.parametrize(("cel", "pascal"), [(21.5, 101_325.0), (-18.97, 93_971.0)])
async def test_it_reads_what_is_true(oversampling, cel, pascal, clock):
    """16 bits at one sample (datasheet, table 4 and table 5): 0.005 Cel, 2.62 Pa."""
    sim = bmp280.Sim(clock, temperature_cel=cel, pressure_pa=pascal)
    config = bmp280.Config(address=0x77, oversampling=oversampling)
    device = await bmp280.probe(config, SimI2c("i2c-1", {0x77: sim}), clock.sleep)
    temperature, pressure = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.005)
    assert pressure.value == pytest.approx(pascal, abs=2.62)
    assert device.identity == "BMP280, id 0x58"


async def test_a_measurement_sleeps_its_own_longest_time(clock):
    """3.8.1: 6.4 ms at one sample of each, not the 9.3 ms of a BME280."""
    bus = SimI2c("i2c-1", {0x76: bmp280.Sim(clock)})
    device = await bmp280.probe(bmp280.Config(), bus, clock.sleep)
    before = clock.monotonic()
    await device.read()
    assert clock.monotonic() - before == pytest.approx(0.0064, abs=1e-4)


@pytest.mark.parametrize("chip_id", [0x56, 0x57, 0x58])
async def test_samples_of_the_chip_are_known_too(chip_id, clock):
    """4.3.1; engineering samples have 0x56 and 0x57."""
    sim = bmp280.Sim(clock)
    sim.chip_id = chip_id
    sim.reset()
    device = await bmp280.probe(bmp280.Config(), SimI2c("i2c-1", {0x76: sim}), clock.sleep)
    assert device.identity == f"BMP280, id {chip_id:#04x}"


async def test_a_bme280_in_its_place_works_and_says_where_its_humidity_is(clock):
    bus = SimI2c("i2c-1", {0x76: bme280.Sim(clock, temperature_cel=3.0)})
    device = await bmp280.probe(bmp280.Config(), bus, clock.sleep)
    samples = await device.read()
    assert [sample.channel for sample in samples] == ["temperature", "pressure"]
    assert samples[0].value == pytest.approx(3.0, abs=0.005)
    assert device.identity == "BME280, id 0x60: for its humidity configure the driver bme280"


async def test_the_model_has_no_humidity(clock):
    """4.2: a BMP280 has no registers at 0xE1 to 0xE7 and none at 0xF2."""
    sim = bmp280.Sim(clock)
    clock.advance(1)
    sim.write(b"\xf2\x01\xf4\x25")
    clock.advance(1)
    for register, length in ((0xE1, 7), (0xF2, 1), (0xFD, 2)):
        sim.write(bytes([register]))
        assert sim.read(length) == bytes(length)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ("all_ones", NoDeviceError, "BMP280 at 0x76 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("flipped_bit", DataError, "is not a BMP280: its id is 0xd8, another chip"),
    ],
)
async def test_a_faulty_bus_is_no_chip(fault, error, words, clock):
    """Fault 29: an id of 00 or FF is wiring."""
    bus = SimI2c("i2c-1", {0x76: bmp280.Sim(clock)})
    bus.fail(0x76, fault)
    with pytest.raises(error, match=words):
        await bmp280.probe(bmp280.Config(), bus, clock.sleep)
