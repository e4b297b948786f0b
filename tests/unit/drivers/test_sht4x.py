"""The SHT4x driver: datasheet values, and its register model through the bus."""

import pytest

from edged.bus.sim import NackError, SimI2c
from edged.drivers import sht4x
from edged.drivers._sensirion import encode_words
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return sht4x.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x44: sim})


@pytest.fixture
async def device(bus, clock):
    return await sht4x.probe(sht4x.Config(), bus, clock.sleep)


@pytest.mark.parametrize(
    ("word", "percent"), [(0x72B0, 50.0006), (0x8000, 56.501), (0x0000, -6.0), (0xFFFF, 119.0)]
)
def test_humidity(word, percent):
    """Conversion of signal output: not the SHT3x's formula."""
    assert sht4x.humidity_rh(word) == pytest.approx(percent, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "samples"),
    [
        ((0x6666, 0x72B0), [(25.0, "ok"), (50.001, "ok")]),
        ((0x6666, 0x0000), [(25.0, "ok"), (0.0, "clipped")]),
        ((0x6666, 0xFFFF), [(25.0, "ok"), (100.0, "clipped")]),
        ((0x0000, 0x72B0), [(-40.0, "clipped"), (50.001, "ok")]),
    ],
)
def test_what_cannot_be_is_the_limit_and_marked(words, samples):
    """Conversion of signal output: values beyond 0 to 100 %RH come of the sensor's spread and are cropped."""
    assert [(s.value, s.quality) for s in sht4x.samples(words)] == samples
    assert [int.from_bytes(s.raw, "big") for s in sht4x.samples(words)] == list(words)


@pytest.mark.parametrize("cel", [-39.9, -0.0625, 0.0, 21.5, 124.9])
@pytest.mark.parametrize(("address", "percent"), [(0x44, 0.0), (0x45, 33.3), (0x46, 100.0)])
async def test_it_reads_what_is_true(address, cel, percent, clock):
    """Resolution of 16 bits; negatives are no matter (fault 27)."""
    sim = sht4x.Sim(clock, temperature_cel=cel, humidity_rh=percent)
    config = sht4x.Config(address=address)
    device = await sht4x.probe(config, SimI2c("i2c-1", {address: sim}), clock.sleep)
    temperature, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.002)
    assert humidity.value == pytest.approx(percent, abs=0.002)


async def test_the_serial_number_identifies_it(device):
    """Command 0x89: two words."""
    assert device.identity == "SHT4x, serial number 0F4A7C21"


async def test_reading_too_early_is_not_acknowledged(sim, clock, device):
    """No stretching: the driver waits the longest measurement duration instead."""
    sim.write(sht4x.MEASURE)
    clock.advance(0.008)
    with pytest.raises(NackError):
        sim.read(6)
    clock.advance(0.001)
    assert sim.read(6)[:3] == encode_words(24903)


async def test_the_heater_is_never_used(sim):
    """Ten percent of the time at most, and it would spoil the reading: no such command."""
    with pytest.raises(NackError):
        sim.write(b"\x39")


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x44"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "SHT4x at 0x44 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("flipped_bit", DataError, "checksum"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, bus, clock, device):
    """Fault 23; issue 3, part 5: never a made-up number."""
    bus.fail(0x44, kind)
    for action in (device.read, lambda: sht4x.probe(sht4x.Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x44, kind, times=0)
    assert (await device.read())[0].quality == "ok"
