"""The SHT3x driver: datasheet values, and its register model through the bus."""

import pytest

from edged.bus.sim import NackError, SimI2c
from edged.drivers import sht3x
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return sht3x.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x44: sim})


@pytest.fixture
async def device(bus, clock):
    return await sht3x.probe(sht3x.Config(), bus, clock.sleep)


class Canned:
    """A chip that acknowledges everything and always answers the same."""

    def __init__(self, answer):
        self.answer = bytes.fromhex(answer)

    def write(self, data):
        pass

    def read(self, length):
        return self.answer[:length]


@pytest.mark.parametrize(
    ("answer", "cel", "percent"),
    [
        ("6666 93 8000 A2", 25.0, 50.001),
        ("0000 81 0000 81", -40.0, 0.0),
        ("147A 4F FFFF AC", -31.002, 100.0),
    ],
)
async def test_raw_bytes_are_the_datasheets_values(answer, cel, percent, device, bus):
    """4.13, with bytes and CRCs as the chip sends them; below -40 Cel its limit stands in."""
    bus.targets[0x44] = Canned(answer)
    temperature, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.001)
    assert humidity.value == pytest.approx(percent, abs=0.001)
    assert temperature.quality == ("clipped" if answer.startswith("0000") else "ok")
    assert humidity.quality == "ok"
    assert (temperature.raw + humidity.raw).hex().upper() == answer[:4] + answer[8:12]


@pytest.mark.parametrize("cel", [-39.9, -0.0625, 0.0, 21.5, 124.9])
@pytest.mark.parametrize("percent", [0.0, 33.3, 100.0])
async def test_it_reads_what_is_true(cel, percent, clock):
    """Resolution of 16 bits: 0.0027 Cel, 0.0015 %RH; negatives are no matter (fault 27)."""
    sim = sht3x.Sim(clock, temperature_cel=cel, humidity_rh=percent)
    config = sht3x.Config(address=0x45)
    device = await sht3x.probe(config, SimI2c("i2c-1", {0x45: sim}), clock.sleep)
    temperature, humidity = await device.read()
    assert temperature.value == pytest.approx(cel, abs=0.002)
    assert humidity.value == pytest.approx(percent, abs=0.001)
    assert device.identity == "SHT3x"


async def test_a_chip_that_measures_by_itself_is_stopped_first(sim, bus, clock):
    """4.9: a soft reset is for an idle chip; another program may have left it measuring."""
    sim.periodic = sim.heater = True
    with pytest.raises(NackError):
        sim.write(sht3x.MEASURE)
    device = await sht3x.probe(sht3x.Config(), bus, clock.sleep)
    assert (await device.read())[0].value == pytest.approx(21.5, abs=0.002)
    assert not sim.heater


async def test_a_heater_that_no_reset_ends_is_another_chip(clock):
    """Table 18: bit 13 is off after a reset. 0x2010 has the CRC 0x1E."""
    bus = SimI2c("i2c-1", {0x44: Canned("2010 1E")})
    with pytest.raises(DataError, match="SHT3x at 0x44 on i2c-1: its heater stays on"):
        await sht3x.probe(sht3x.Config(), bus, clock.sleep)


async def test_reading_too_early_is_not_acknowledged(sim, clock, device):
    """4.3: no stretching; the driver waits the longest time of table 4 instead."""
    sim.write(sht3x.MEASURE)
    clock.advance(0.015)
    with pytest.raises(NackError):
        sim.read(6)
    clock.advance(0.001)
    assert len(sim.read(6)) == 6


async def test_an_unknown_command_is_not_acknowledged(sim):
    with pytest.raises(NackError):
        sim.write(b"\x12\x34")


async def test_after_a_brown_out_it_goes_on(sim, bus, device):
    """Each measurement is a command of its own: nothing set up is lost."""
    bus.brown_out(0x44)
    assert (await device.read())[1].value == pytest.approx(45.0, abs=0.001)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered at address 0x44"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("flipped_bit", DataError, "checksum"),
    ],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, words, bus, clock, device):
    """Fault 23; issue 3, part 5: never a made-up number."""
    bus.fail(0x44, kind)
    for action in (device.read, lambda: sht3x.probe(sht3x.Config(), bus, clock.sleep)):
        with pytest.raises(error, match=words):
            await action()
    bus.fail(0x44, kind, times=0)
    assert (await device.read())[0].quality == "ok"
