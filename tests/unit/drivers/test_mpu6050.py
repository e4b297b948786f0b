"""The MPU-6050 family's driver: datasheet values, and its register model through the bus."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimI2c
from edged.drivers import mpu6050
from edged.drivers.mpu6050 import Config, Raw
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

G = 9.80665
WORDS = st.integers(-0x8000, 0x7FFF)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return mpu6050.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x68: sim})


def values(raw, who_am_i=0x68, config=None):
    return {s.channel: s.value for s in mpu6050.samples(raw, who_am_i, config or Config())}


def test_a_burst_is_seven_signed_words():
    """4.17 to 4.19: acceleration, temperature, rotation."""
    data = bytes.fromhex("C000 4000 0001 FDF7 FF7D 0083 8000".replace(" ", ""))
    assert mpu6050.decode_data(data) == ((-16384, 16384, 1), -521, (-131, 131, -32768))


@given(st.tuples(WORDS, WORDS, WORDS), WORDS, st.tuples(WORDS, WORDS, WORDS))
def test_a_burst_encodes_and_decodes_to_itself(accel, temperature, gyro):
    raw = Raw(accel, temperature, gyro)
    assert mpu6050.decode_data(mpu6050.encode_data(raw)) == raw


def test_the_worked_values():
    """16384 steps a g, 131 a degree a second; negatives too."""
    found = values(Raw((-16384, 16384, 1), -521, (-131, 131, 1)))
    assert found == {
        "accel_x": -G,
        "accel_y": G,
        "accel_z": 0.0006,
        "gyro_x": pytest.approx(math.radians(-1), abs=1e-6),
        "gyro_y": pytest.approx(math.radians(1), abs=1e-6),
        "gyro_z": pytest.approx(math.radians(1 / 131), abs=1e-6),
        "temperature": 35.0,
    }


@pytest.mark.parametrize(
    ("who_am_i", "celsius", "quality"),
    [
        (0x68, 35.0, "ok"),
        (0x70, 19.44, "ok"),
        (0x71, 19.44, "ok"),
        (0x73, 19.44, "ok"),
        (0x98, 23.41, "ok"),
        (0x72, 19.44, "suspect"),
    ],
)
def test_the_identity_picks_the_temperatures_formula(who_am_i, celsius, quality):
    """Raw -521: 35.00 Cel of an MPU-6050, 19.44 of an MPU-6500, by hand 23.41 of an ICM-20689."""
    sample = mpu6050.samples(Raw((0, 0, 0), -521, (0, 0, 0)), who_am_i, Config())[6]
    assert (sample.value, sample.quality) == (celsius, quality)
    assert bool(sample.note) == (quality != "ok")


@pytest.mark.parametrize(
    ("accel_g", "gyro_dps", "g", "dps"),
    [(2, 250, 0.5, 62.5), (4, 500, 1, 125), (8, 1000, 2, 250), (16, 2000, 4, 500)],
)
def test_ranges_scale_the_values(accel_g, gyro_dps, g, dps):
    """4.17, 4.19: steps double from range to range."""
    config = Config(accel_range_g=accel_g, gyro_range_dps=gyro_dps)
    found = values(Raw((8192, 0, 0), 0, (131 * 62 + 66, 0, 0)), config=config)
    assert found["accel_x"] == pytest.approx(g * G, abs=1e-5)
    assert found["gyro_x"] == pytest.approx(math.radians(dps), abs=0.004)


@pytest.mark.parametrize("code", [0x7FFF, -0x8000])
def test_the_ends_of_a_range_are_clipped(code):
    found = mpu6050.samples(Raw((code, 0, 0), 0, (0, 0, code)), 0x68, Config())
    assert [s.channel for s in found if s.quality == "clipped"] == ["accel_x", "gyro_z"]


@pytest.mark.parametrize(
    ("config", "registers"),
    [
        (Config(), "0000"),
        (Config(accel_range_g=4, gyro_range_dps=500), "0808"),
        (Config(accel_range_g=16, gyro_range_dps=250), "0018"),
        (Config(accel_range_g=8, gyro_range_dps=2000), "1810"),
    ],
)
def test_the_range_registers(config, registers):
    """4.4, 4.5: bits 4 and 3."""
    assert mpu6050.encode_ranges(config).hex() == registers


@pytest.mark.parametrize("who_am_i", list(mpu6050.VARIANTS))
@pytest.mark.parametrize(
    ("accel", "gyro", "celsius"),
    [
        ((0.0, 0.0, G), (0.0, 0.0, 0.0), 25.0),
        ((-1.5, 2.5, -9.0), (1.0, -2.0, 0.5), -9.0),
    ],
)
async def test_every_variant_reads_what_is_true(who_am_i, accel, gyro, celsius, clock):
    """Reported of other drivers (mpu6050#21): relatives refused, or 15 degrees off."""
    sim = mpu6050.Sim(clock, who_am_i=who_am_i, accel=accel, gyro=gyro, temperature_cel=celsius)
    device = await mpu6050.probe(Config(), SimI2c("i2c-1", {0x68: sim}), clock.sleep)
    found = [s.value for s in await device.read()]
    assert found[:3] == pytest.approx(accel, abs=0.0004)
    assert found[3:6] == pytest.approx(gyro, abs=0.0001)
    assert found[6] == pytest.approx(celsius, abs=0.01)
    assert device.identity == f"{mpu6050.VARIANTS[who_am_i].name}, id {who_am_i:#04x}"


@pytest.mark.parametrize(("accel_g", "gyro_dps"), [(4, 500), (8, 1000), (16, 2000)])
async def test_every_range_reads_what_is_true(accel_g, gyro_dps, clock):
    sim = mpu6050.Sim(clock, accel=(15.0, -3.0, G), gyro=(4.0, -8.0, 0.1))
    config = Config(accel_range_g=accel_g, gyro_range_dps=gyro_dps)
    device = await mpu6050.probe(config, SimI2c("i2c-1", {0x68: sim}), clock.sleep)
    samples = await device.read()
    assert [s.channel for s in samples] == [c.name for c in mpu6050.channels(config)]
    assert [s.value for s in samples[:3]] == pytest.approx((15.0, -3.0, G), abs=0.003)
    assert [s.value for s in samples[3:6]] == pytest.approx((4.0, -8.0, 0.1), abs=0.001)


async def test_sixteen_readers_get_whole_bursts(bus, sim, clock):
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    for samples in await asyncio.gather(*(device.read() for _ in range(16))):
        assert samples[2].value == pytest.approx(G, abs=0.0004)


async def test_asleep_again_is_an_error_and_not_zeros(bus, clock):
    """4.28: power-on state is sleep; a dip of the supply leaves it there."""
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    bus.brown_out(0x68)
    with pytest.raises(DataError, match="MPU-6050, id 0x68 at 0x68 on i2c-1 is asleep"):
        await device.read()
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    assert (await device.read())[2].quality == "ok"


async def test_asleep_with_its_last_values_is_an_error(bus, sim, clock):
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    await device.read()
    sim.write(b"\x6b\x41")
    with pytest.raises(DataError, match="is asleep"):
        await device.read()


@pytest.mark.parametrize("write", ["1b08", "1c18", "6b00"])
async def test_settings_that_another_program_changed_are_an_error(write, bus, sim, clock):
    """Another range would give wrong values without a word."""
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    sim.write(bytes.fromhex(write))
    with pytest.raises(DataError, match="lost its settings"):
        await device.read()


@pytest.mark.parametrize(
    ("who_am_i", "error", "words"),
    [
        (0x11, DataError, "is not of the MPU-6050 family: its id is 0x11"),
        (0x00, NoDeviceError, "does not answer \\(all zeros\\)"),
        (0xFF, NoDeviceError, "does not answer \\(all ones\\)"),
    ],
)
async def test_another_identity_is_refused(who_am_i, error, words, clock):
    sim = mpu6050.Sim(clock, who_am_i=who_am_i)
    with pytest.raises(error, match=words):
        await mpu6050.probe(Config(), SimI2c("i2c-1", {0x68: sim}), clock.sleep)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "all ones"),
        ("all_zeros", NoDeviceError, "all zeros"),
    ],
)
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, words, bus, clock):
    """Issue 3, part 1: a failed caller never blocks the next."""
    device = await mpu6050.probe(Config(), bus, clock.sleep)
    bus.fail(0x68, kind)
    for action in (device.read(), mpu6050.probe(Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action
    bus.fail(0x68, kind, times=0)
    assert (await device.read())[6].value == pytest.approx(25.0, abs=0.01)


async def test_after_the_set_up_it_is_awake_with_the_gyros_clock_and_a_filter(bus, sim, clock):
    """4.28: the gyro's clock is the stabler one; 4.3: filter 3 is 44 Hz."""
    sim.write(b"\x6b\x41")
    await mpu6050.probe(Config(address=0x68, accel_range_g=8), bus, clock.sleep)
    for register, value in ((0x6B, 0x01), (0x1A, 0x03), (0x1B, 0x00), (0x1C, 0x10)):
        sim.write(bytes([register]))
        assert sim.read(1) == bytes([value])
    assert mpu6050.INFO.addresses == (0x68, 0x69)


async def test_it_waits_for_the_reset_and_the_gyro(bus, clock):
    """4.28: 100 ms after the reset bit; data sheet, 6.1: 30 ms until it rotates right."""
    started = clock.monotonic()
    await mpu6050.probe(Config(), bus, clock.sleep)
    assert clock.monotonic() - started == pytest.approx(0.2)


def test_rotation_is_zero_until_the_gyro_runs(clock):
    sim = mpu6050.Sim(clock, gyro=(1.0, 1.0, 1.0))
    sim.write(b"\x6b\x01")
    sim.write(b"\x43")
    assert sim.read(2) == b"\x00\x00"
    clock.advance(0.03)
    assert sim.read(2) != b"\x00\x00"


def test_other_registers_keep_their_values(sim):
    sim.write(b"\x75\x00")
    assert sim.read(1) == b"\x68"
