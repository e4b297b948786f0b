"""The MCP3008 family's driver: worked frames, and the model through the bus."""

import msgspec
import pytest

from edged.bus.sim import SimSpi
from edged.drivers import mcp3008
from edged.drivers.mcp3008 import Config
from edged.errors import DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

VOLTS = (0.0, 0.1, 0.5, 1.0, 1.65, 2.5, 3.0, 3.3)


@pytest.fixture
def clock():
    return FakeClock()


def spi(clock, **of_sim):
    return SimSpi("spi0.0", mcp3008.Sim(clock, **of_sim))


@pytest.mark.parametrize(
    ("name", "model", "frame"),
    [
        ("ch0", "mcp3008", "018000"),
        ("ch5", "mcp3008", "01d000"),
        ("ch7", "mcp3008", "01f000"),
        ("ch0-ch1", "mcp3008", "010000"),
        ("ch1-ch0", "mcp3008", "011000"),
        ("ch6-ch7", "mcp3008", "016000"),
        ("ch3", "mcp3004", "01b000"),
        ("ch0", "mcp3208", "060000"),
        ("ch3", "mcp3208", "06c000"),
        ("ch4", "mcp3208", "070000"),
        ("ch7", "mcp3208", "07c000"),
        ("ch2-ch3", "mcp3208", "048000"),
        ("ch5-ch4", "mcp3208", "054000"),
        ("ch3", "mcp3204", "06c000"),
    ],
)
def test_a_request_is_start_bit_kind_and_input(name, model, frame):
    """Figures 6-1: 01, (8 + channel) << 4, 00; a pair's code is without the 8."""
    assert mcp3008.encode_request(name, model).hex() == frame


@pytest.mark.parametrize(
    ("data", "model", "code"),
    [
        ("00029a", "mcp3008", 666),
        ("fffa9a", "mcp3008", 666),
        ("000000", "mcp3008", 0),
        ("fffbff", "mcp3008", 1023),
        ("ffe29a", "mcp3208", 666),
        ("ffefff", "mcp3204", 4095),
    ],
)
def test_the_result_is_the_last_bits_whatever_came_before(data, model, code):
    """Figures 6-1: what comes before the null bit is undefined."""
    assert mcp3008.decode(bytes.fromhex(data), model) == code


@pytest.mark.parametrize(
    ("data", "model"), [("00069a", "mcp3008"), ("fffe9a", "mcp3004"), ("fff29a", "mcp3208")]
)
def test_a_null_bit_of_one_is_no_result(data, model):
    with pytest.raises(DataError, match="the bit that is always 0 is 1"):
        mcp3008.decode(bytes.fromhex(data), model)


@pytest.mark.parametrize(
    ("data", "config", "volts", "quality"),
    [
        ("00029a", Config(), 2.1462891, "ok"),
        ("000001", Config(), 0.0032227, "ok"),
        ("0002ff", Config(vref=5.0), 3.7451172, "ok"),
        ("0003ff", Config(), 3.2967773, "clipped"),
        ("000800", Config(model="mcp3208", vref=4.096), 2.048, "ok"),
        ("000fff", Config(model="mcp3208", vref=4.096), 4.095, "clipped"),
    ],
)
def test_a_code_is_a_part_of_the_reference(data, config, volts, quality):
    """Equation 4-2: 666 of 1024 at 3.3 V is 2.14629 V."""
    sample = mcp3008.sample("ch0", bytes.fromhex(data), config)
    assert (sample.value, sample.quality) == (volts, quality)


def test_a_pair_below_zero_is_clipped_at_zero():
    """5.1: a negative difference reads 0."""
    sample = mcp3008.sample("ch0-ch1", bytes(3), Config())
    assert (sample.value, sample.quality, sample.note) == (0.0, "clipped", "at or below ch1")
    assert mcp3008.sample("ch0", bytes(3), Config()).quality == "ok"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "mcp3004", "inputs": ["ch4"]}, "an mcp3004 has no ch4, only ch0 to ch3"),
        ({"model": "mcp3204", "inputs": ["ch6-ch7"]}, "an mcp3204 has no ch6-ch7"),
        ({"inputs": ["ch0-ch2"]}, "Invalid enum value"),
        ({"inputs": ["ch0", "ch0"]}, "one is there twice"),
        ({"vref": 0}, ">= 0.25"),
    ],
)
def test_settings_that_the_chip_lacks_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


@pytest.mark.parametrize(
    ("model", "count"), [("mcp3008", 8), ("mcp3004", 4), ("mcp3208", 8), ("mcp3204", 4)]
)
async def test_every_model_reads_what_is_true(model, count, clock):
    config = Config(model=model)
    device = await mcp3008.probe(config, spi(clock, model=model, volts=VOLTS), clock.sleep)
    samples = await device.read()
    assert [s.channel for s in samples] == [c.name for c in mcp3008.channels(config)]
    step = 3.3 / (1024 if "30" in model else 4096)
    assert [s.value for s in samples] == pytest.approx(VOLTS[:count], abs=1.001 * step)
    assert {s.quality for s in samples[:7]} == {"ok"}
    assert device.identity.startswith(model.upper())


@pytest.mark.parametrize("model", ["mcp3008", "mcp3208"])
async def test_pairs_are_differences(model, clock):
    config = Config(model=model, inputs=("ch3-ch2", "ch2-ch3", "ch7-ch6"))
    device = await mcp3008.probe(config, spi(clock, model=model, volts=VOLTS), clock.sleep)
    up, down, small = await device.read()
    assert up.value == pytest.approx(0.5, abs=0.004)
    assert (down.value, down.quality) == (0.0, "clipped")
    assert small.value == pytest.approx(0.3, abs=0.004)


async def test_every_transfer_is_three_bytes(clock):
    """Longer ones than the kernel's buffer are refused, so none may grow with the inputs."""
    lengths = []

    class Listening(mcp3008.Sim):
        def transfer(self, write):
            lengths.append(len(write))
            return super().transfer(write)

    bus = SimSpi("spi0.0", Listening(clock))
    await (await mcp3008.probe(Config(), bus, clock.sleep)).read()
    assert set(lengths) == {3}
    with pytest.raises(InvalidArgumentsError, match="more than the kernel's buffer of 4096"):
        await bus.transfer(bytes(4097), mcp3008.SETTINGS)
    assert set(lengths) == {3}


async def test_an_open_line_is_wiring_and_not_a_value(clock):
    """All ones; the null bit cannot be."""
    bus = spi(clock)
    device = await mcp3008.probe(Config(), bus, clock.sleep)
    bus.reads = "all_ones"
    for action in (device.read(), mcp3008.probe(Config(), bus, clock.sleep)):
        with pytest.raises(NoDeviceError, match="does not answer \\(all ones\\)"):
            await action


async def test_zeros_at_every_input_are_wiring_and_not_a_value(clock):
    """No chip, or MISO at ground."""
    bus = spi(clock)
    config = Config(inputs=("ch1",))
    device = await mcp3008.probe(config, bus, clock.sleep)
    bus.reads = "all_zeros"
    for action in (device.read(), mcp3008.probe(config, bus, clock.sleep)):
        with pytest.raises(NoDeviceError, match="does not answer \\(all zeros\\).*to VREF"):
            await action


async def test_zero_volt_is_a_value_while_another_input_is_above(clock):
    bus = spi(clock, volts=(0.0, 0.0, 0, 0, 0, 0, 0, 3.3))
    config = Config(inputs=("ch0", "ch1"))
    device = await mcp3008.probe(config, bus, clock.sleep)
    assert [(s.value, s.quality) for s in await device.read()] == [(0.0, "ok"), (0.0, "ok")]


async def test_another_model_than_the_configured_one_is_noticed(clock):
    """Frames of 12 bits shift the null bit: at most inputs, it is seen."""
    bus = spi(clock, model="mcp3208", volts=VOLTS)
    with pytest.raises((DataError, NoDeviceError)):
        await (await mcp3008.probe(Config(), bus, clock.sleep)).read()


@pytest.mark.parametrize("write", [b"", b"\x00\x00\x00", b"\x01\x80"])
def test_the_model_puts_nothing_out_without_a_whole_request(write, clock):
    assert mcp3008.Sim(clock).transfer(write) == b"\xff" * len(write)
