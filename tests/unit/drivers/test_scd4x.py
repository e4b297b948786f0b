"""The SCD4x driver: the datasheet's example, and the chip's states through the bus."""

import asyncio

import msgspec
import pytest

from edged.bus.sim import NackError, SimI2c
from edged.drivers import scd4x
from edged.drivers._sensirion import decode_words
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return scd4x.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x62: sim})


@pytest.fixture
async def device(bus, clock):
    return await scd4x.probe(scd4x.Config(), bus, clock.sleep)


def test_the_datasheets_example():
    """3.5.2: 01F4 33 6667 A2 5EB9 3C is 500 ppm, 25 Cel, 37 %RH."""
    words = decode_words(bytes.fromhex("01F4 33 6667 A2 5EB9 3C"), "chip")
    co2, temperature, humidity = scd4x.samples(words)
    assert (co2.value, co2.quality) == (500, "ok")
    assert temperature.value == pytest.approx(25.0, abs=0.01)
    assert humidity.value == pytest.approx(37.0, abs=0.01)


@pytest.mark.parametrize(
    ("words", "samples"),
    [
        ((0, 0x6667, 0x5EB9), [(None, "error"), (25.003, "ok"), (37.002, "ok")]),
        ((0xFFFF, 0x6667, 0x5EB9), [(40_000, "clipped"), (25.003, "ok"), (37.002, "ok")]),
        ((500, 0x3A42, 0xFFFF), [(500, "ok"), (-5.175, "ok"), (100.0, "ok")]),
        ((500, 0x0000, 0x0000), [(500, "ok"), (-10.0, "clipped"), (0.0, "ok")]),
    ],
)
def test_what_is_no_reading_and_what_is_beyond_the_range(words, samples):
    """3.10.2: 0 ppm stands for not measured; negatives are no matter (fault 27)."""
    assert [(s.value, s.quality) for s in scd4x.samples(words)] == samples
    assert [int.from_bytes(s.raw, "big") for s in scd4x.samples(words)] == list(words)


async def test_the_serial_number_identifies_it(device):
    """3.9.2 has this example."""
    assert device.identity == "SCD4x, serial number F8969F073BBE"


@pytest.mark.parametrize(("co2", "cel", "percent"), [(400, -9.9, 0.0), (5000, 59.9, 95.0)])
async def test_it_reads_what_is_true(co2, cel, percent, clock):
    sim = scd4x.Sim(clock, co2_ppm=co2, temperature_cel=cel, humidity_rh=percent)
    device = await scd4x.probe(scd4x.Config(), SimI2c("i2c-1", {0x62: sim}), clock.sleep)
    samples = await device.read()
    assert [s.channel for s in samples] == ["co2", "temperature", "humidity"]
    assert samples[0].value == co2
    assert samples[1].value == pytest.approx(cel, abs=0.002)
    assert samples[2].value == pytest.approx(percent, abs=0.001)


async def test_each_reading_is_a_new_measurement(sim, device, clock):
    """3.5.1: every 5 s; asking sooner waits for the next one."""
    assert (await device.read())[0].value == 620
    at = clock.monotonic()
    sim.co2_ppm = 1500
    assert (await device.read())[0].value == 1500
    assert clock.monotonic() - at == pytest.approx(5.0, abs=0.3)


async def test_the_bus_is_free_while_it_waits(bus, device, clock):
    """Issue 3, part 1: nobody is kept waiting for five seconds."""

    async def other():
        async with bus.hold():
            return clock.monotonic()

    before = clock.monotonic()
    _, at = await asyncio.gather(device.read(), other())
    assert at - before < 1


@pytest.mark.parametrize(
    "state", [{}, {"measuring": True}, {"asleep": True}], ids=["idle", "measuring", "asleep"]
)
async def test_it_starts_from_any_state(state, clock):
    """Fault 34: setting up a measuring chip gave errno 121, waking one up too."""
    bus = SimI2c("i2c-1", {0x62: scd4x.Sim(clock, **state)})
    device = await scd4x.probe(scd4x.Config(), bus, clock.sleep)
    assert (await device.read())[0].value == 620


async def test_while_it_measures_the_model_takes_few_commands(sim, device, clock):
    """Table 9: what else is sent is not acknowledged; neither is reading too soon (3.5.2)."""
    for command in (scd4x.SERIAL, scd4x.ALTITUDE + bytes.fromhex("000081"), scd4x.READ):
        with pytest.raises(NackError):
            sim.write(command)
    sim.write(scd4x.STOP)
    clock.advance(0.49)
    with pytest.raises(NackError):
        sim.write(scd4x.SERIAL)
    clock.advance(0.02)
    sim.write(scd4x.SERIAL)


@pytest.mark.parametrize(("altitude", "told"), [(None, 0), (1600, 1600)])
async def test_the_altitude_is_set_while_the_chip_is_stopped(altitude, told, sim, bus, clock):
    """3.6.3, which keeps it until power-off: the EEPROM stays as it is."""
    sim.write(scd4x.START)
    device = await scd4x.probe(scd4x.Config(altitude_m=altitude), bus, clock.sleep)
    assert sim.altitude_m == told
    assert (await device.read())[0].value == 620


@pytest.mark.parametrize("altitude", [-1, 3001])
def test_an_altitude_that_the_chip_cannot_take_is_refused(altitude):
    """Fault 34 (SCD30#39): a negative number was packed as a large one."""
    with pytest.raises(msgspec.ValidationError, match="altitude_m"):
        msgspec.convert({"altitude_m": altitude}, scd4x.Config)


async def test_after_a_brown_out_it_is_an_error_until_it_is_set_up_again(bus, clock, device):
    """Every poll is bounded; an idle chip never has anything new."""
    bus.brown_out(0x62)
    before = clock.monotonic()
    with pytest.raises(DataError, match="it does not measure: its supply may have dipped"):
        await device.read()
    assert clock.monotonic() - before < 7
    device = await scd4x.probe(scd4x.Config(), bus, clock.sleep)
    assert (await device.read())[0].value == 620


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x62"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "SCD4x at 0x62 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("flipped_bit", DataError, "checksum"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, bus, clock, device):
    """Fault 23; issue 3, part 5: never a made-up number."""
    bus.fail(0x62, kind)
    for action in (device.read, lambda: scd4x.probe(scd4x.Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x62, kind, times=0)
    # A set-up that failed half-way left the chip measuring.
    assert (await device.read())[0].quality == "ok"
