"""The SCD30 driver: the interface description's example, and its states through the bus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import NackError, SimI2c
from edged.drivers import scd30
from edged.drivers._sensirion import decode_words
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return scd30.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x61: sim})


@pytest.fixture
async def device(bus, clock):
    return await scd30.probe(scd30.Config(), bus, clock.sleep)


def test_the_interface_descriptions_example():
    """1.4.5: 439 ppm, 27.2 Cel, 48.8 %RH."""
    raw = bytes.fromhex("43DB CB 8C2E 8F 41D9 70 E7FF F5 4243 BF 3A1B 74")
    words = decode_words(raw, "chip")
    assert scd30.decode_measurement(words) == pytest.approx((439.095, 27.238, 48.807), abs=0.001)
    assert [s.value for s in scd30.samples(words)] == [439.095, 27.238, 48.807]
    assert [s.raw.hex().upper() for s in scd30.samples(words)] == [
        "43DB8C2E",
        "41D9E7FF",
        "42433A1B",
    ]


@given(st.tuples(*[st.floats(width=32, allow_nan=False)] * 3))
def test_measurements_encode_and_decode_to_themselves(values):
    assert scd30.decode_measurement(scd30.encode_measurement(*values)) == values


@pytest.mark.parametrize(
    ("values", "samples"),
    [
        ((0.0, 21.0, 40.0), [(None, "error"), (21.0, "ok"), (40.0, "ok")]),
        ((float("nan"), -12.5, 40.0), [(None, "error"), (-12.5, "ok"), (40.0, "ok")]),
        ((700.0, float("inf"), 40.0), [(700.0, "ok"), (None, "error"), (40.0, "ok")]),
        (
            (50_000.0, -50.0, 101.0),
            [(40_000.0, "clipped"), (-40.0, "clipped"), (100.0, "clipped")],
        ),
    ],
)
def test_what_is_no_reading_and_what_is_beyond_the_range(values, samples):
    """No air has 0 ppm; negatives are no matter (fault 27)."""
    words = scd30.encode_measurement(*values)
    assert [(s.value, s.quality) for s in scd30.samples(words)] == samples


async def test_the_firmware_identifies_it(device):
    """1.4.10: 0x0342 is 3.66."""
    assert device.identity == "SCD30, firmware 3.66"


async def test_each_reading_is_a_new_measurement(sim, device, clock):
    """1.4.3: every 2 s as it comes from the factory; asking sooner waits for the next one."""
    assert [s.value for s in await device.read()] == pytest.approx([620, 21.5, 45], abs=0.001)
    at = clock.monotonic()
    sim.co2_ppm, sim.temperature_cel = 1500.0, -7.25
    assert [s.value for s in await device.read()] == pytest.approx([1500, -7.25, 45], abs=0.001)
    assert clock.monotonic() - at == pytest.approx(2.0, abs=0.3)


async def test_a_chip_that_measures_is_told_nothing(clock):
    """Fault 34: settings are non-volatile, and were rewritten at each start."""
    sim = scd30.Sim(clock, measuring=True)
    bus = SimI2c("i2c-1", {0x61: sim})
    for _ in range(3):
        device = await scd30.probe(scd30.Config(), bus, clock.sleep)
        assert (await device.read())[0].value == pytest.approx(620)
        bus.brown_out(0x61)
    assert sim.stored == 0


async def test_a_new_chip_is_told_to_measure_once(sim, bus, clock):
    """1.4.1: it keeps measuring after that, through power cycles."""
    for _ in range(3):
        device = await scd30.probe(scd30.Config(), bus, clock.sleep)
        assert (await device.read())[0].value == pytest.approx(620)
    assert sim.stored == 1


async def test_what_was_measured_before_the_start_is_not_given(sim, clock):
    """It may be hours old: the first reading is a measurement of its own."""
    sim = scd30.Sim(clock, measuring=True)
    clock.advance(3600)
    device = await scd30.probe(scd30.Config(), SimI2c("i2c-1", {0x61: sim}), clock.sleep)
    sim.co2_ppm = 800.0
    assert (await device.read())[0].value == pytest.approx(800)


async def test_a_long_interval_is_left_as_it_is_and_nobody_waits_for_it(clock):
    """1.4.3: up to 1800 s, set by someone on purpose."""
    sim = scd30.Sim(clock, measuring=True, interval_s=1800)
    device = await scd30.probe(scd30.Config(), SimI2c("i2c-1", {0x61: sim}), clock.sleep)
    before = clock.monotonic()
    samples = await device.read()
    assert clock.monotonic() - before < 12
    assert {(s.value, s.quality) for s in samples} == {(None, "stale")}
    assert samples[0].note == "it measures every 1800 s, and has nothing new"
    clock.advance(1800)
    assert (await device.read())[0].value == pytest.approx(620)
    assert sim.stored == 0


@pytest.mark.parametrize("interval", [0, 1, 1801])
async def test_an_interval_that_cannot_be_is_another_chip(interval, clock):
    """1.4.3: 2 to 1800 s."""
    sim = scd30.Sim(clock, interval_s=interval)
    with pytest.raises(DataError, match=f"its interval cannot be {interval} s"):
        await scd30.probe(scd30.Config(), SimI2c("i2c-1", {0x61: sim}), clock.sleep)


async def test_a_chip_that_stops_measuring_is_an_error(sim, bus, clock, device):
    """Every poll is bounded."""
    sim.measuring = False
    before = clock.monotonic()
    with pytest.raises(DataError, match="it does not measure"):
        await device.read()
    assert clock.monotonic() - before < 4


async def test_the_model_gives_no_answer_too_soon(sim, clock):
    """1.4.4: 3 ms between the command and the read; no repeated start (1.1)."""
    sim.write(scd30.READY)
    with pytest.raises(NackError):
        sim.read(3)
    clock.advance(0.003)
    assert sim.read(3) == bytes.fromhex("000081")
    with pytest.raises(NackError):
        sim.write(scd30.INTERVAL + bytes.fromhex("0002E3"))
    with pytest.raises(NackError):
        sim.write(scd30.READ)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x61"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "SCD30 at 0x61 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("flipped_bit", DataError, "checksum"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, bus, clock, device):
    """Fault 19 and 23: a chip that stretches is where bits flip; its CRCs tell."""
    bus.fail(0x61, kind)
    for action in (device.read, lambda: scd30.probe(scd30.Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x61, kind, times=0)
    assert (await device.read())[0].quality == "ok"
