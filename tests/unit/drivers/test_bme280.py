"""The BME280 driver: datasheet values, and its register model through the bus.

The worked values are Bosch's (BST-BMP280-DS001, section 3.12, same formulas),
the humidity ones from Bosch's own C code for the same calibration.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimI2c
from edged.drivers import bme280
from edged.drivers.bme280 import SIM_CALIBRATION as CAL
from edged.errors import BusError, DataError, NoDeviceError

LOW = bytes.fromhex(
    "706b 4367 18fc 7d8e 43d6 d00b 270b 8c00 f9ff 8c3c f8c6 7017 00 4b".replace(" ", "")
)
HIGH = bytes.fromhex("6a01 00 13 29 03 1e".replace(" ", ""))


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.seconds = 1000.0
        self.slept = []

    def monotonic(self):
        return self.seconds

    now = monotonic

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.seconds += seconds


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


def test_calibration_decodes_from_the_chips_memory():
    """Table 16; H4 and H5 share 0xE5."""
    assert bme280.decode_calibration(LOW, HIGH) == CAL


def test_negative_h4_and_h5_are_12_bits_with_sign():
    """Both signed 12-bit."""
    cal = bme280.decode_calibration(LOW, bytes.fromhex("6a010080ffff1e"))
    assert (cal.h4, cal.h5) == (-2048 + 15, -1)


@given(st.integers(-2048, 2047), st.integers(-2048, 2047), st.integers(-128, 127))
def test_calibration_encodes_and_decodes_to_itself(h4, h5, h6):
    cal = CAL._replace(h4=h4, h5=h5, h6=h6)
    assert bme280.decode_calibration(*bme280.encode_calibration(cal)) == cal


def test_the_worked_example_in_raw_bytes():
    """Raw bytes F7..FE of the first vector."""
    raw = bme280.decode_data(bytes.fromhex("655AC07EED007530"))
    assert raw == (519888, 415148, 30000)
    assert bme280.encode_data(raw) == bytes.fromhex("655AC07EED007530")
    values = [sample.value for sample in bme280.samples(raw, CAL)]
    assert values == [25.082, 100653.258, 55.001]


def test_the_worked_example_in_formulas():
    """BMP280 3.12: t_fine 128422, 25.08 Cel, 100653.27 Pa (integer), 100653.258 Pa (double)."""
    assert int(bme280.fine_temperature(519888, CAL)) == 128422
    assert bme280.temperature_cel(519888, CAL) == pytest.approx(25.082478, abs=1e-6)
    assert bme280.pressure_pa(415148, 128422, CAL) == pytest.approx(100653.258, abs=1e-3)
    assert bme280.humidity_rh(30000, 128422, CAL) == pytest.approx(55.0007, abs=1e-4)
    assert bme280.humidity_rh(25000, 128422, CAL) == pytest.approx(27.0789, abs=1e-4)


def test_negative_temperatures():
    """The cold vector."""
    t_fine = int(bme280.fine_temperature(380000, CAL))
    assert t_fine == -97121
    assert bme280.temperature_cel(380000, CAL) == pytest.approx(-18.968968, abs=1e-6)
    assert bme280.pressure_pa(415148, t_fine, CAL) == pytest.approx(93971.395, abs=1e-3)
    assert bme280.humidity_rh(28000, t_fine, CAL) == pytest.approx(43.0265, abs=1e-4)


def test_an_empty_pressure_calibration_never_divides_by_zero():
    """8.1: returns 0 to avoid the exception."""
    assert bme280.pressure_pa(415148, 128422, CAL._replace(p1=0)) == 0.0


@pytest.mark.parametrize(
    ("raw", "missing"),
    [
        ((0x80000, 0x80000, 0x8000), ["temperature", "pressure", "humidity"]),
        ((0x80000, 415148, 30000), ["temperature", "pressure", "humidity"]),
        ((519888, 0x80000, 30000), ["pressure"]),
        ((519888, 415148, 0x8000), ["humidity"]),
    ],
)
def test_what_was_not_measured_has_no_value(raw, missing):
    """5.4.7 to 5.4.9; skip codes are never values."""
    found = bme280.samples(bme280.Raw(*raw), CAL)
    assert [s.channel for s in found if s.value is None] == missing
    assert all((s.quality == "error") == (s.value is None) for s in found)


@pytest.mark.parametrize(
    ("raw", "channel", "limit"),
    [
        ((800_000, 415148, 30000), 0, 85.0),
        ((250_000, 415148, 30000), 0, -40.0),
        ((519888, 300_000, 30000), 1, 110_000.0),
        ((519888, 900_000, 30000), 1, 30_000.0),
        ((519888, 415148, 50_000), 2, 100.0),
        ((519888, 415148, 15_000), 2, 0.0),
    ],
)
def test_beyond_the_chips_range_the_limit_is_given_and_marked(raw, channel, limit):
    """Clamp -40..85 C, 300..1100 hPa, 0..100 %."""
    sample = bme280.samples(bme280.Raw(*raw), CAL)[channel]
    assert (sample.value, sample.quality) == (limit, "clipped")
    assert sample.note.startswith("beyond the chip's range")


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


async def test_the_temperature_drifts_with_the_clock(clock):
    sim = bme280.Sim(clock, temperature_cel=20.0, drift_cel=2.0)
    device = await bme280.probe(bme280.Config(), SimI2c("i2c-1", {0x76: sim}), clock.sleep)
    values = []
    for _ in range(60):
        clock.seconds += sim.DRIFT_PERIOD_S / 60
        values.append((await device.read())[0].value)
    assert min(values) == pytest.approx(18.0, abs=0.05)
    assert max(values) == pytest.approx(22.0, abs=0.05)
    assert max(abs(a - b) for a, b in pairwise(values)) < 0.25


async def test_a_measurement_sleeps_its_longest_time_before_it_polls(device, clock):
    """9.1: 9.3 ms at one sample of each."""
    assert bme280.measurement_s(1) == pytest.approx(0.0093)
    clock.slept.clear()
    await device.read()
    assert clock.slept == [pytest.approx(0.0093)]


async def test_a_reading_during_another_ones_measurement_waits_for_it(bus, sim, clock, device):
    """5.4.4: bit 3 is set while a conversion runs; the data are not ready before."""
    sim.write(b"\xf4\x25")
    sim.read(1)
    assert sim.write(b"\xf3") or sim.read(1) == b"\x08"
    clock.seconds += 0.01
    assert sim.write(b"\xf3") or sim.read(1) == b"\x00"
    assert sim.write(b"\xf4") or sim.read(1) == b"\x24"


async def test_normal_mode_measures_for_ever(sim, clock):
    """3.3.4; the kernel's own driver uses it."""
    clock.seconds += 1
    sim.write(b"\xf2\x01\xf4\x27")
    clock.seconds += 1
    sim.write(b"\xf7")
    first = sim.read(8)
    sim.temperature_cel += 5
    sim.write(b"\xf7")
    assert sim.read(8) != first
    assert sim.write(b"\xf4") or sim.read(1) == b"\x27"


async def test_humidity_counts_only_from_the_next_ctrl_meas(sim, clock):
    """5.4.3; write F2 before F4, else it is ignored."""
    clock.seconds += 1
    sim.write(b"\xf4\x25\xf2\x01")
    clock.seconds += 1
    sim.write(b"\xf7")
    assert bme280.decode_data(sim.read(8)).humidity == 0x8000
    sim.write(b"\xf4\x01")
    clock.seconds += 1
    sim.write(b"\xf7")
    raw = bme280.decode_data(sim.read(8))
    assert (raw.temperature, raw.pressure) == (0x80000, 0x80000)
    assert raw.humidity != 0x8000


async def test_writes_to_other_registers_change_nothing(sim):
    sim.write(b"\xd0\x00\xe0\x00\xf4\x24")
    sim.write(b"\xd0")
    assert sim.read(1) == b"\x60"


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
        (0x58, "is not a BME280: its id is 0x58, a BMP280, which has no humidity"),
        (0x55, "a BMP180"),
        (0x61, "a BME680"),
        (0x13, "another chip"),
    ],
)
async def test_another_chip_is_named(chip_id, words, clock):
    """Identity register 0xD0 (5.4.1); a BMP280 sold as BME280 is said."""
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
    assert clock.seconds < 1001


async def test_data_of_all_ones_is_no_reading(clock):
    chip = Wired(xD0=b"\x60", x88=LOW, xE1=HIGH, xF7=b"\xff" * 8)
    with pytest.raises(NoDeviceError, match="all ones"):
        await bme280.probe(bme280.Config(), SimI2c("i2c-1", {0x76: chip}), clock.sleep)


@pytest.mark.parametrize(
    ("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError), ("all_ones", EOFError)]
)
async def test_a_fault_at_any_transfer_is_an_error_and_frees_the_bus(
    kind, error, bus, clock, device
):
    """Issue 3, part 1: a failed caller never blocks the next."""
    if kind == "all_ones":
        error = (NoDeviceError, DataError)
    bus.fail(0x76, kind)
    with pytest.raises(error):
        await device.read()
    bus.fail(0x76, kind, times=0)
    assert (await device.read())[0].value == pytest.approx(21.5, abs=0.005)
