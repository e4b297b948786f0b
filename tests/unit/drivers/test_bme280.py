"""The BME280 driver through the bus, with a BME280 and with a BMP280 in its place."""

from itertools import pairwise

import pytest

from edged.bus.sim import SimI2c
from edged.drivers import _bosch, bme280, bmp280
from edged.drivers._bosch_model import CALIBRATION
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

# The trimming parameters of Bosch's worked example (BMP280 datasheet, 3.12).
LOW = bytes.fromhex("706b436718fc7d8e43d6d00b270b8c00f9ff8c3cf8c67017004b")
HIGH = bytes.fromhex("6a01001329031e")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return bme280.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x76: sim})


@pytest.fixture
async def device(bus, clock):
    return await bme280.probe(bme280.Config(), bus, clock.sleep)


@pytest.mark.parametrize("oversampling", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    ("cel", "pascal", "percent"),
    [
        (21.5, 101_325.0, 45.0),
        (-18.97, 93_971.0, 43.0),
        (0.0, 70_000.0, 10.0),
        (60.0, 108_000.0, 95.0),
    ],
)
async def test_the_driver_reads_what_is_true(oversampling, cel, pascal, percent, clock):
    """16 bits at one sample (3.4.2, 3.4.3): 0.005 Cel, 2.62 Pa (BMP280 datasheet, table 4)."""
    sim = bme280.Sim(clock, temperature_cel=cel, pressure_pa=pascal, humidity_rh=percent)
    bus = SimI2c("i2c-1", {0x77: sim})
    config = bme280.Config(address=0x77, oversampling=oversampling)
    device = await bme280.probe(config, bus, clock.sleep)
    temperature, pressure, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.005)
    assert pressure.value == pytest.approx(pascal, abs=2.62)
    assert humidity.value == pytest.approx(percent, abs=0.01)
    assert {s.quality for s in (temperature, pressure, humidity)} == {"ok"}
    assert {len(s.raw) for s in (temperature, pressure, humidity)} == {8}
    assert _bosch.samples(_bosch.decode_data(humidity.raw), CALIBRATION)[2].value == humidity.value


async def test_the_temperature_drifts_with_the_clock(clock):
    sim = bme280.Sim(clock, temperature_cel=20.0, drift_cel=2.0)
    device = await bme280.probe(bme280.Config(), SimI2c("i2c-1", {0x76: sim}), clock.sleep)
    values = []
    for _ in range(60):
        clock.advance(sim.DRIFT_PERIOD_S / 60)
        values.append((await device.read())[0].value)
    assert min(values) == pytest.approx(18.0, abs=0.05)
    assert max(values) == pytest.approx(22.0, abs=0.05)
    assert max(abs(a - b) for a, b in pairwise(values)) < 0.25


async def test_a_measurement_sleeps_its_longest_time_before_it_polls(device, clock):
    """9.1: 9.3 ms at one sample of each."""
    before = clock.monotonic()
    await device.read()
    assert clock.monotonic() - before == pytest.approx(0.0093)


class Wired:
    """A chip whose registers are a table; everything else reads zero."""

    def __init__(self, **registers):
        self.registers = {int(name[1:], 16): value for name, value in registers.items()}

    def write(self, data):
        self.pointer = data[0]

    def read(self, length):
        known = self.registers.get(self.pointer, b"")
        return known.ljust(length, b"\x00")


@pytest.mark.parametrize(
    ("chip_id", "words"),
    [
        (0x55, "is not a BME280: its id is 0x55, a BMP180"),
        (0x61, "a BME680"),
        (0x13, "another chip"),
    ],
)
async def test_another_chip_is_named(chip_id, words, clock):
    """Identity register 0xD0 (5.4.1)."""
    bus = SimI2c("i2c-1", {0x76: Wired(xD0=bytes([chip_id]))})
    with pytest.raises(DataError, match=words):
        await bme280.probe(bme280.Config(), bus, clock.sleep)


@pytest.mark.parametrize(("chip_id", "level"), [(0x00, "zeros"), (0xFF, "ones")])
async def test_a_silent_line_is_wiring_and_not_a_chip(chip_id, level, clock):
    """A line without pull-up or chip reads all ones or all zeros."""
    bus = SimI2c("i2c-1", {0x76: Wired(xD0=bytes([chip_id]))})
    with pytest.raises(NoDeviceError, match=f"does not answer \\(all {level}\\)"):
        await bme280.probe(bme280.Config(), bus, clock.sleep)


async def test_an_empty_calibration_is_refused(clock):
    bus = SimI2c("i2c-1", {0x76: Wired(xD0=b"\x60")})
    with pytest.raises(DataError, match="its calibration is empty"):
        await bme280.probe(bme280.Config(), bus, clock.sleep)


async def test_a_conversion_that_never_ends_is_given_up(clock):
    """Every poll is bounded."""
    bus = SimI2c("i2c-1", {0x76: Wired(xD0=b"\x60", xF3=b"\x08", x88=LOW, xE1=HIGH)})
    with pytest.raises(DataError, match="status bit 'measuring' stays set"):
        await bme280.probe(bme280.Config(), bus, clock.sleep)
    assert clock.monotonic() < 1


async def test_data_of_all_ones_is_no_reading(clock):
    chip = Wired(xD0=b"\x60", x88=LOW, xE1=HIGH, xF7=b"\xff" * 8)
    with pytest.raises(NoDeviceError, match="all ones"):
        await bme280.probe(bme280.Config(), SimI2c("i2c-1", {0x76: chip}), clock.sleep)


async def test_a_bmp280_in_its_place_has_no_humidity_and_says_so(clock):
    """Fault 29 (finitespace/BME280#125): its humidity used to read 0 %."""
    bus = SimI2c("i2c-1", {0x76: bmp280.Sim(clock, temperature_cel=-5.0)})
    device = await bme280.probe(bme280.Config(), bus, clock.sleep)
    samples = await device.read()
    assert [sample.channel for sample in samples] == ["temperature", "pressure"]
    assert samples[0].value == pytest.approx(-5.0, abs=0.005)
    assert device.identity == "BMP280, id 0x58: a BMP280 sold as a BME280 has no humidity"


class FirstWrong:
    """A chip whose first data after a reset are those of another temperature (380000)."""

    def __init__(self, sim):
        self.sim = sim
        self.reads = 0

    def write(self, data):
        self.pointer = data[0]
        self.sim.write(data)

    def read(self, length):
        data = self.sim.read(length)
        if self.pointer != 0xF7:
            return data
        self.reads += 1
        return bytes.fromhex("655AC05CC6007530") if self.reads == 1 else data


async def test_the_first_measurement_after_the_reset_is_discarded(sim, clock):
    """Fault 30 (finitespace/BME280#59, SparkFun_BME280#27): it was wrong."""
    bus = SimI2c("i2c-1", {0x76: FirstWrong(sim)})
    device = await bme280.probe(bme280.Config(), bus, clock.sleep)
    assert (await device.read())[0].value == pytest.approx(21.5, abs=0.005)


async def test_a_chip_that_never_measures_has_no_values(clock):
    """Fault 30 (BMP280_driver#16): the skip codes were taken for values for ever."""
    chip = Wired(xD0=b"\x60", x88=LOW, xE1=HIGH, xF7=bytes.fromhex("8000008000008000"))
    device = await bme280.probe(bme280.Config(), SimI2c("i2c-1", {0x76: chip}), clock.sleep)
    samples = await device.read()
    assert [sample.value for sample in samples] == [None, None, None]
    assert {(s.quality, s.note) for s in samples} == {("error", "the chip did not measure it")}


async def test_a_value_that_looks_like_one_left_out_is_a_value(clock):
    """0x80000 is half of the converter's range too, by the calibration here 26.46 °C."""
    cel = _bosch.temperature_cel(0x80000, CALIBRATION)
    bus = SimI2c("i2c-1", {0x76: bme280.Sim(clock, temperature_cel=cel)})
    device = await bme280.probe(bme280.Config(), bus, clock.sleep)
    samples = await device.read()
    assert _bosch.decode_data(samples[0].raw).temperature == 0x80000
    assert [s.quality for s in samples] == ["ok"] * 3
    assert samples[0].value == pytest.approx(cel, abs=0.001)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("nack", NoDeviceError),
        ("timeout", BusError),
        ("all_ones", (NoDeviceError, DataError)),
    ],
)
async def test_a_fault_at_any_transfer_is_an_error_and_frees_the_bus(
    kind, error, bus, clock, device
):
    """Issue 3, part 1: a failed caller never blocks the next."""
    bus.fail(0x76, kind)
    with pytest.raises(error):
        await device.read()
    bus.fail(0x76, kind, times=0)
    assert (await device.read())[0].value == pytest.approx(21.5, abs=0.005)
