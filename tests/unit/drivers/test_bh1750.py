"""The BH1750 driver: datasheet values, and its model through the bus."""

import msgspec
import pytest

from edged.bus.sim import NackError, SimI2c
from edged.drivers import bh1750
from edged.errors import BusError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return bh1750.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x23: sim})


@pytest.fixture
async def device(bus, clock):
    return await bh1750.probe(bh1750.Config(), bus, clock.sleep)


@pytest.mark.parametrize(
    ("raw", "time", "lux"),
    [
        (0x8390, 69, 28066.667),
        (0x0001, 69, 0.833),
        (0xFFFE, 69, 54611.667),
        (0xFFFE, 31, 121555.0),
        (0x0001, 254, 0.226),
    ],
)
def test_illuminance(raw, time, lux):
    """Page 7 (0x8390 is 28,067 lx) and page 11 (the measurement time)."""
    assert bh1750.illuminance_lx(raw, time) == pytest.approx(lux, abs=0.001)


@pytest.mark.parametrize(
    ("time", "opcodes", "seconds"),
    [(69, (0x42, 0x65), 0.18), (31, (0x40, 0x7F), 0.0809), (254, (0x47, 0x7E), 0.6626)],
)
def test_the_measurement_time_is_set_by_two_opcodes(time, opcodes, seconds):
    """Page 5: 01000 and the upper 3 bits, 011 and the lower 5."""
    assert bh1750.time_opcodes(time) == opcodes
    assert bh1750.measurement_s(time) == pytest.approx(seconds, abs=1e-4)


@pytest.mark.parametrize("time", [30, 255])
def test_a_measurement_time_that_the_chip_lacks_is_refused(time):
    """Page 5: 31 to 254."""
    with pytest.raises(msgspec.ValidationError, match="measurement_time"):
        msgspec.convert({"measurement_time": time}, bh1750.Config)


@pytest.mark.parametrize("address", [0x23, 0x5C])
@pytest.mark.parametrize(("time", "lux"), [(69, 0.0), (69, 54_000.0), (31, 100_000), (254, 2.5)])
async def test_it_reads_what_is_true(address, time, lux, clock):
    sim = bh1750.Sim(clock, illuminance_lx=lux)
    config = bh1750.Config(address=address, measurement_time=time)
    device = await bh1750.probe(config, SimI2c("i2c-1", {address: sim}), clock.sleep)
    (sample,) = await device.read()
    assert sample.value == pytest.approx(lux, abs=1.0)
    assert (sample.channel, sample.quality) == ("illuminance", "ok")
    assert sample.raw == round(lux * 1.2 * time / 69).to_bytes(2, "big")


async def test_light_beyond_its_range_is_no_value(sim, device):
    """0xFFFF is not 54,612 lx but at least that."""
    sim.illuminance_lx = 80_000
    (sample,) = await device.read()
    assert (sample.value, sample.quality) == (None, "clipped")
    assert sample.raw == b"\xff\xff"
    assert sample.note == "brighter than 54612 lx: set measurement_time to 31 or shade it"


async def test_a_zero_of_a_chip_that_lost_its_power_is_no_reading(bus, clock):
    """Page 4: after power-on the data are zero, which is not the dark."""

    async def sleep(seconds):
        await clock.sleep(seconds)
        if dips:
            dips.pop()
            bus.brown_out(0x23)

    dips = [1]
    device = bh1750.Bh1750(bh1750.Config(), bus, sleep)
    assert (await device.read())[0].value == pytest.approx(320.0, abs=1.0)
    assert dips == []


async def test_the_model_has_the_value_only_after_its_time(sim, clock):
    """Page 2: 180 ms at most."""
    sim.write(bytes([bh1750.POWER_ON]))
    sim.write(bytes([bh1750.ONE_TIME_HIGH]))
    clock.advance(0.179)
    assert sim.read(2) == b"\x00\x00"
    clock.advance(0.002)
    assert sim.read(2) == b"\x01\x80"
    sim.write(bytes([bh1750.RESET]))
    assert sim.read(2) == b"\x01\x80", "reset is not taken when powered down (page 5)"
    sim.write(bytes([bh1750.POWER_ON]))
    sim.write(bytes([bh1750.RESET]))
    assert sim.read(2) == b"\x00\x00"
    with pytest.raises(NackError):
        sim.write(b"\x90")


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x23"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "BH1750 at 0x23 on i2c-1 does not answer \\(all ones\\)"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, bus, clock, device):
    """Fault 23: all ones are told from bright light."""
    bus.fail(0x23, kind)
    for action in (device.read, lambda: bh1750.probe(bh1750.Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x23, kind, times=0)
    assert (await device.read())[0].quality == "ok"
