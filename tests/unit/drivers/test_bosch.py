"""What the BME280 and the BMP280 have in common: datasheet values, and the register model.

The worked values are Bosch's (BST-BMP280-DS001, section 3.12, same formulas),
the humidity ones from Bosch's own C code for the same calibration.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.drivers import _bosch
from edged.drivers._bosch_model import CALIBRATION as CAL
from edged.drivers._bosch_model import Model
from edged.testing import FakeClock

LOW = bytes.fromhex("706b436718fc7d8e43d6d00b270b8c00f9ff8c3cf8c67017004b")
HIGH = bytes.fromhex("6a01001329031e")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return Model(clock)


def test_calibration_decodes_from_the_chips_memory():
    """Table 16; H4 and H5 share 0xE5."""
    assert _bosch.decode_calibration(LOW, HIGH) == CAL


def test_negative_h4_and_h5_are_12_bits_with_sign():
    """Both signed 12-bit."""
    cal = _bosch.decode_calibration(LOW, bytes.fromhex("6a010080ffff1e"))
    assert (cal.h4, cal.h5) == (-2048 + 15, -1)


@given(st.integers(-2048, 2047), st.integers(-2048, 2047), st.integers(-128, 127))
def test_calibration_encodes_and_decodes_to_itself(h4, h5, h6):
    cal = CAL._replace(h4=h4, h5=h5, h6=h6)
    assert _bosch.decode_calibration(*_bosch.encode_calibration(cal)) == cal


def test_the_worked_example_in_raw_bytes():
    """Raw bytes F7..FE of the first vector."""
    raw = _bosch.decode_data(bytes.fromhex("655AC07EED007530"))
    assert raw == (519888, 415148, 30000)
    assert _bosch.encode_data(raw) == bytes.fromhex("655AC07EED007530")
    values = [sample.value for sample in _bosch.samples(raw, CAL)]
    assert values == [25.082, 100653.258, 55.001]


def test_the_worked_example_without_humidity():
    """BMP280 datasheet, 4.3.6 and 4.3.7: its data end at 0xFC."""
    raw = _bosch.decode_data(bytes.fromhex("655AC07EED00"))
    assert raw == (519888, 415148, 0x8000)
    values = [sample.value for sample in _bosch.samples(raw, CAL)]
    assert values == [25.082, 100653.258, None]


def test_the_worked_example_in_formulas():
    """BMP280 3.12: t_fine 128422, 25.08 Cel, 100653.27 Pa (integer), 100653.258 Pa (double)."""
    assert int(_bosch.fine_temperature(519888, CAL)) == 128422
    assert _bosch.temperature_cel(519888, CAL) == pytest.approx(25.082478, abs=1e-6)
    assert _bosch.pressure_pa(415148, 128422, CAL) == pytest.approx(100653.258, abs=1e-3)
    assert _bosch.humidity_rh(30000, 128422, CAL) == pytest.approx(55.0007, abs=1e-4)
    assert _bosch.humidity_rh(25000, 128422, CAL) == pytest.approx(27.0789, abs=1e-4)


def test_negative_temperatures():
    """The cold vector."""
    t_fine = int(_bosch.fine_temperature(380000, CAL))
    assert t_fine == -97121
    assert _bosch.temperature_cel(380000, CAL) == pytest.approx(-18.968968, abs=1e-6)
    assert _bosch.pressure_pa(415148, t_fine, CAL) == pytest.approx(93971.395, abs=1e-3)
    assert _bosch.humidity_rh(28000, t_fine, CAL) == pytest.approx(43.0265, abs=1e-4)


def test_an_empty_pressure_calibration_never_divides_by_zero():
    """8.1: returns 0 to avoid the exception."""
    assert _bosch.pressure_pa(415148, 128422, CAL._replace(p1=0)) == 0.0


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
    found = _bosch.samples(_bosch.Raw(*raw), CAL)
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
    sample = _bosch.samples(_bosch.Raw(*raw), CAL)[channel]
    assert (sample.value, sample.quality) == (limit, "clipped")
    assert sample.note.startswith("beyond the chip's range")


def test_a_reading_during_another_ones_measurement_waits_for_it(sim, clock):
    """5.4.4: bit 3 is set while a conversion runs; the data are not ready before."""
    clock.advance(1)
    sim.write(b"\xf4\x25")
    assert sim.write(b"\xf3") or sim.read(1) == b"\x08"
    clock.advance(0.01)
    assert sim.write(b"\xf3") or sim.read(1) == b"\x00"
    assert sim.write(b"\xf4") or sim.read(1) == b"\x24"


def test_normal_mode_measures_for_ever(sim, clock):
    """3.3.4; the kernel's own driver uses it."""
    clock.advance(1)
    sim.write(b"\xf2\x01\xf4\x27")
    clock.advance(1)
    sim.write(b"\xf7")
    first = sim.read(8)
    sim.temperature_cel += 5
    sim.write(b"\xf7")
    assert sim.read(8) != first
    assert sim.write(b"\xf4") or sim.read(1) == b"\x27"


def test_humidity_counts_only_from_the_next_ctrl_meas(sim, clock):
    """5.4.3; write F2 before F4, else it is ignored."""
    clock.advance(1)
    sim.write(b"\xf4\x25\xf2\x01")
    clock.advance(1)
    sim.write(b"\xf7")
    assert _bosch.decode_data(sim.read(8)).humidity == 0x8000
    sim.write(b"\xf4\x01")
    clock.advance(1)
    sim.write(b"\xf7")
    raw = _bosch.decode_data(sim.read(8))
    assert (raw.temperature, raw.pressure) == (0x80000, 0x80000)
    assert raw.humidity != 0x8000


def test_writes_to_other_registers_change_nothing(sim):
    sim.write(b"\xd0\x00\xe0\x00\xf4\x24")
    sim.write(b"\xd0")
    assert sim.read(1) == b"\x60"


def test_a_brown_out_leaves_nothing_measured(sim, clock):
    """5.4.7: the data registers' values after power-on."""
    sim.write(b"\xf4\x25")
    clock.advance(1)
    sim.write(b"\xf7")
    assert _bosch.decode_data(sim.read(8)).temperature != 0x80000
    sim.reset()
    sim.write(b"\xf7")
    assert _bosch.decode_data(sim.read(8)) == (0x80000, 0x80000, 0x8000)


def test_a_measurement_takes_its_longest_time():
    """BME280 9.1: 9.3 ms at one sample of each; BMP280 3.8.1: 6.4 ms."""
    assert _bosch.measurement_s(1) == pytest.approx(0.0093)
    assert _bosch.measurement_s(1, humidity=False) == pytest.approx(0.0064, abs=1e-4)


@pytest.mark.parametrize(
    ("chip_id", "wanted", "said"),
    [
        (0x60, "BME280", "BME280, id 0x60"),
        (0x58, "BMP280", "BMP280, id 0x58"),
        (0x56, "BMP280", "BMP280, id 0x56"),
        (0x58, "BME280", "BMP280, id 0x58: a BMP280 sold as a BME280 has no humidity"),
        (0x60, "BMP280", "BME280, id 0x60: for its humidity configure the driver bme280"),
    ],
)
def test_the_identity_says_which_chip_it_is(chip_id, wanted, said):
    """Fault 29 (bme280-python#20): the id decides, and the user is told."""
    assert _bosch.identity(chip_id, wanted) == said
