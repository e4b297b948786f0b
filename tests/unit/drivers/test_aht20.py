"""The AHT20 driver: worked frames, and the chips' models through the bus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import NackError, SimI2c
from edged.drivers import aht20
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return aht20.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x38: sim})


@pytest.fixture
async def device(bus, clock):
    return await aht20.probe(aht20.Config(), bus, clock.sleep)


class Canned:
    """A chip that acknowledges everything and always answers the same."""

    def __init__(self, answer):
        self.answer = bytes.fromhex(answer)
        self.written = []

    def write(self, data):
        self.written.append(data)

    def read(self, length):
        return self.answer[:length]


@pytest.mark.parametrize(
    ("frame", "cel", "percent"),
    [
        ("1C 80 00 06 00 00 4E", 25.0, 50.0),
        ("1C 80 00 03 33 33 28", -10.0, 50.0),
        ("18 3B 5E 86 88 B2", 31.676, 23.191),
    ],
)
async def test_raw_bytes_are_true_values(frame, cel, percent, clock):
    """5.4 and 6: 20 bits each; CRC-8 with 0x31 from 0xFF over six bytes; an AHT10 has none."""
    chip = "aht20" if len(bytes.fromhex(frame)) == 7 else "aht10"
    bus = SimI2c("i2c-1", {0x38: Canned(frame)})
    device = await aht20.probe(aht20.Config(chip=chip), bus, clock.sleep)
    temperature, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.001)
    assert humidity.value == pytest.approx(percent, abs=0.001)
    assert (temperature.quality, humidity.quality) == ("ok", "ok")
    assert temperature.raw == humidity.raw == bytes.fromhex(frame)


@pytest.mark.parametrize(
    ("temperature", "cel"), [(0, -40.0), (0xFFFFF, 85.0)], ids=["lowest", "highest"]
)
def test_beyond_the_range_its_limit_is_given_and_marked(temperature, cel):
    """Table 2: -40 to 85 Cel; the formula goes from -50 to 150."""
    sample, _ = aht20.samples(aht20.encode_frame(0x18, 0, temperature))
    assert (sample.value, sample.quality) == (cel, "clipped")


@given(st.integers(0, 0xFFFFF), st.integers(0, 0xFFFFF))
def test_frames_encode_and_decode_to_themselves(humidity, temperature):
    frame = aht20.encode_frame(0x18, humidity, temperature)
    assert aht20.decode_frame(frame) == (humidity, temperature)


@pytest.mark.parametrize("chip", ["aht20", "aht10"])
@pytest.mark.parametrize("cel", [-39.9, -0.0625, 0.0, 21.5, 84.9])
@pytest.mark.parametrize(("address", "percent"), [(0x38, 0.0), (0x39, 99.9)])
async def test_it_reads_what_is_true(address, cel, percent, chip, clock):
    """20 bits: 0.0002 Cel, 0.0001 %RH; negatives are no matter (fault 27)."""
    sim = aht20.Sim(clock, temperature_cel=cel, humidity_rh=percent, chip=chip)
    config = aht20.Config(address=address, chip=chip)
    device = await aht20.probe(config, SimI2c("i2c-1", {address: sim}), clock.sleep)
    temperature, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.001)
    assert humidity.value == pytest.approx(percent, abs=0.001)
    assert device.identity == chip.upper()


@pytest.mark.parametrize(
    ("chip", "status", "writes"),
    [
        ("aht20", "18", ["71"]),
        ("aht20", "1C", ["71"]),
        ("aht20", "08", ["71", "BE0800", "71"]),
        ("aht10", "08", ["71"]),
        ("aht10", "19", ["71"]),
    ],
)
async def test_only_a_chip_without_calibration_is_initialised(chip, status, writes, clock):
    """5.4, step 1: status bits 4 and 3 of an AHT20, bit 3 of an AHT10."""
    canned = Canned(status)
    bus = SimI2c("i2c-1", {0x38: canned})
    await aht20.probe(aht20.Config(chip=chip), bus, clock.sleep)
    assert [data.hex().upper() for data in canned.written] == writes


@pytest.mark.parametrize(("chip", "init"), [("aht20", "BE0800"), ("aht10", "E10800")])
async def test_each_chip_has_its_own_initialisation(chip, init, clock):
    """AHT10 datasheet, table 9: 0xE1; AHT20, table 9: 0xBE. One that does not help is an error."""
    canned = Canned("00")
    bus = SimI2c("i2c-1", {0x38: canned})
    with pytest.raises(DataError, match=f"stays without calibration: is it an {chip}"):
        await aht20.probe(aht20.Config(chip=chip), bus, clock.sleep)
    assert canned.written[1].hex().upper() == init


async def test_an_aht10_configured_as_aht20_is_told_by_its_missing_crc(clock):
    """Its seventh byte is what the open line reads as."""
    bus = SimI2c("i2c-1", {0x38: Canned("18 80 00 06 00 00 FF")})
    device = await aht20.probe(aht20.Config(), bus, clock.sleep)
    with pytest.raises(DataError, match="or it is an AHT10 \\(chip: aht10\\)"):
        await device.read()


@pytest.mark.parametrize("chip", ["aht20", "aht10"])
async def test_after_a_brown_out_it_gives_no_value_until_it_is_set_up_again(chip, clock):
    """Without its calibration the chip answers all the same."""
    bus = SimI2c("i2c-1", {0x38: aht20.Sim(clock, chip=chip)})
    config = aht20.Config(chip=chip)
    device = await aht20.probe(config, bus, clock.sleep)
    bus.brown_out(0x38)
    with pytest.raises(DataError, match="lost its calibration"):
        await device.read()
    device = await aht20.probe(config, bus, clock.sleep)
    assert (await device.read())[0].value == pytest.approx(21.5, abs=0.001)


async def test_it_waits_for_a_slow_measurement_and_not_for_ever(clock):
    """5.4, step 3: bit 7 is set while it measures; every poll is bounded."""
    bus = SimI2c("i2c-1", {0x38: Canned("98 80 00 06 00 00 00")})
    device = await aht20.probe(aht20.Config(), bus, clock.sleep)
    with pytest.raises(DataError, match="its measurement does not end"):
        await device.read()
    assert clock.monotonic() < 0.5


async def test_a_value_is_ready_after_80_ms(sim, clock, device):
    """5.4, step 3."""
    sim.write(aht20.MEASURE)
    clock.advance(0.079)
    assert sim.read(1) == b"\x98"
    clock.advance(0.002)
    assert sim.read(8)[0] == 0x18


async def test_another_command_is_not_acknowledged(sim):
    with pytest.raises(NackError):
        sim.write(aht20.INIT["aht10"])


@pytest.mark.parametrize("chip", ["aht20", "aht10"])
@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x38"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "at 0x38 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", DataError, "checksum|calibration"),
        ("flipped_bit", DataError, "does not end"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, chip, clock):
    """Fault 23: "0xFF != 0xAC" is no help; say that it does not answer."""
    bus = SimI2c("i2c-1", {0x38: aht20.Sim(clock, chip=chip)})
    config = aht20.Config(chip=chip)
    device = await aht20.probe(config, bus, clock.sleep)
    bus.fail(0x38, kind)
    with pytest.raises(error, match=words):
        await device.read()
    if kind != "flipped_bit":
        with pytest.raises(error):
            await aht20.probe(config, bus, clock.sleep)
    bus.fail(0x38, kind, times=0)
    assert (await device.read())[0].quality == "ok"
