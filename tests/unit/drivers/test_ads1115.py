"""The ADS1115/ADS1015 driver: datasheet codes, and its register model through the bus."""

import asyncio

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import ads1115
from edged.drivers.ads1115 import Config
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

VOLTS = (0.5, 1.25, 2.0, 3.3)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return ads1115.Sim(clock, volts=VOLTS)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x48: sim})


class Waiting:
    """A clock's sleep during which something happens."""

    def __init__(self, clock):
        self.clock = clock
        self.happens = lambda: None

    async def sleep(self, seconds):
        self.happens()
        await self.clock.sleep(seconds)


@pytest.mark.parametrize(
    ("code", "full_scale", "volts"),
    [
        ("7FFE", 4.096, 4.09575),
        ("0001", 4.096, 125e-6),
        ("0000", 4.096, 0.0),
        ("FFFF", 4.096, -125e-6),
        ("8001", 4.096, -4.095875),
        ("0001", 6.144, 187.5e-6),
        ("0001", 2.048, 62.5e-6),
        ("0001", 1.024, 31.25e-6),
        ("0001", 0.512, 15.625e-6),
        ("0001", 0.256, 7.8125e-6),
    ],
)
def test_codes_are_twos_complement_steps_of_the_range(code, full_scale, volts):
    """9.5.4, and table 3: steps of 187.5 to 7.8125 uV."""
    data = bytes.fromhex(code)
    assert ads1115.sample("a0", data, full_scale, "ads1115") == ("a0", volts, "ok", "", data)


@pytest.mark.parametrize(
    ("code", "model", "volts"),
    [
        ("7FFF", "ads1115", 4.095875),
        ("8000", "ads1115", -4.096),
        ("7FF0", "ads1015", 4.094),
        ("8000", "ads1015", -4.096),
    ],
)
def test_a_full_scale_code_is_clipped(code, model, volts):
    """9.5.4: the output clips at these codes for signals that exceed full scale."""
    sample = ads1115.sample("a0", bytes.fromhex(code), 4.096, model)
    assert (sample.value, sample.quality) == (volts, "clipped")
    assert "configure a larger one" in sample.note


@pytest.mark.parametrize(("code", "volts"), [("0010", 0.002), ("FFF0", -0.002), ("7FE0", 4.092)])
def test_twelve_bits_are_the_upper_ones(code, volts):
    """ADS101x: a step of the range of 4.096 V is 2 mV."""
    assert ads1115.sample("a0", bytes.fromhex(code), 4.096, "ads1015").value == volts


def test_a_chip_of_16_bits_is_no_ads1015():
    """ADS101x 9.6.2: the lowest four bits are always 0."""
    with pytest.raises(DataError, match="write model: ads1115"):
        ads1115.sample("a0", b"\x12\x34", 4.096, "ads1015")


@pytest.mark.parametrize(
    ("config", "name", "word"),
    [
        (Config(), "a0", "C383"),
        (Config(), "a3", "F383"),
        (Config(inputs={"a0-a1": 2.048}), "a0-a1", "8583"),
        (Config(inputs={"a0-a3": 6.144}, rate_sps=8), "a0-a3", "9103"),
        (Config(inputs={"a1-a3": 0.512}, rate_sps=860), "a1-a3", "A9E3"),
        (Config(inputs={"a2-a3": 0.256}), "a2-a3", "BB83"),
        (Config(inputs={"a1": 1.024}, model="ads1015"), "a1", "D783"),
        (Config(inputs={"a2": 4.096}, model="ads1015", rate_sps=3300), "a2", "E3C3"),
    ],
)
def test_one_word_starts_a_conversion(config, name, word):
    """9.6.3, by hand: os, mux, pga, mode 1, rate, comparator off."""
    assert ads1115.encode_config(config, name).hex().upper() == word


def test_a_conversion_takes_its_rate_and_a_tenth_more():
    """7.5: the data rate is within 10 %."""
    assert ads1115.conversion_s(128) == pytest.approx(0.00859375)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inputs": {}}, "name one at least"),
        ({"inputs": {"a0": 5.0}}, "inputs.a0: the range in V is one of 6.144, 4.096"),
        ({"inputs": {"a4": 4.096}}, "Invalid enum value"),
        ({"rate_sps": 100}, "rate_sps of an ads1115 is one of 8, 16"),
        ({"rate_sps": 860, "model": "ads1015"}, "rate_sps of an ads1015 is one of 128, 250"),
    ],
)
def test_settings_that_the_chip_lacks_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


def test_its_identity_is_its_configuration_idle(sim, clock):
    """9.6.3: there is no identity register: reset value, or as a conversion leaves it."""
    identity = ads1115.INFO.identity
    for write in (b"\x01", bytes.fromhex("01C383"), bytes.fromhex("01BBE3")):
        sim.write(write)
        clock.advance(0.2)
        word = int.from_bytes(sim.read(2), "big")
        assert (identity.register, identity.size) == (1, 2)
        assert word & identity.mask in identity.values
    for other in (0x60A0, 0x0000, 0x4B00, 0xFFFF):
        assert other & identity.mask not in identity.values


@pytest.mark.parametrize(
    ("model", "rates"),
    [
        ("ads1115", (8, 16, 32, 64, 128, 250, 475, 860)),
        ("ads1015", (128, 250, 490, 920, 1600, 2400, 3300)),
    ],
)
def test_rates_are_codes_in_their_order(model, rates):
    """9.6.3, bits 7 to 5."""
    words = [
        ads1115.encode_config(Config(model=model, inputs={"a0": 4.096}, rate_sps=rate), "a0")
        for rate in rates
    ]
    assert [word[1] >> 5 for word in words] == list(range(len(rates)))


def test_its_channels_are_the_configured_inputs():
    config = Config(inputs={"a1": 2.048, "a0-a1": 0.256})
    assert [(c.name, c.unit, c.low, c.high) for c in ads1115.channels(config)] == [
        ("a1", "V", -2.048, 2.048),
        ("a0-a1", "V", -0.256, 0.256),
    ]


@pytest.mark.parametrize("model", ["ads1115", "ads1015"])
@pytest.mark.parametrize("rate", [None, 128, 250])
async def test_the_driver_reads_what_is_true(model, rate, clock):
    """Half a step of the range of 6.144 V: 0.1 mV of 16 bits, 3 mV of 12 bits."""
    sim = ads1115.Sim(clock, model=model, volts=VOLTS)
    inputs = {"a3": 6.144, "a0": 1.024, "a0-a1": 2.048, "a0-a3": 4.096, "a1-a3": 6.144, "a2-a3": 2}
    config = Config(model=model, rate_sps=rate, inputs={**inputs, "a2-a3": 2.048})
    device = await ads1115.probe(config, SimI2c("i2c-1", {0x48: sim}), clock.sleep)
    samples = await device.read()
    assert [s.channel for s in samples] == list(inputs)
    step = 1 if model == "ads1115" else 16
    for sample, true, full_scale in zip(
        samples, (3.3, 0.5, -0.75, -2.8, -2.05, -1.3), config.inputs.values(), strict=True
    ):
        assert sample.value == pytest.approx(true, abs=step * full_scale / 0x8000)
        assert sample.quality == "ok"
    assert device.identity.startswith(model.upper())


async def test_beyond_the_range_is_clipped_and_said(clock):
    sim = ads1115.Sim(clock, volts=(3.3, -0.2, 0, 0))
    config = Config(inputs={"a0": 2.048, "a1-a3": 0.256, "a0-a1": 0.256})
    device = await ads1115.probe(config, SimI2c("i2c-1", {0x48: sim}), clock.sleep)
    assert [(s.value, s.quality) for s in await device.read()] == [
        (pytest.approx(2.048, abs=1e-4), "clipped"),
        (pytest.approx(-0.2, abs=1e-5), "ok"),
        (pytest.approx(0.256, abs=1e-4), "clipped"),
    ]


async def test_four_parallel_clients_get_four_right_channels(bus, clock):
    """Reported of other drivers (Adafruit_CircuitPython_ADS1x15#40): channels swap, or deadlock."""
    devices = [
        await ads1115.probe(Config(inputs={f"a{n}": 4.096}), bus, clock.sleep) for n in range(4)
    ]
    for _ in range(20):
        found = await asyncio.gather(*(device.read() for device in devices))
        assert [s.channel for (s,) in found] == ["a0", "a1", "a2", "a3"]
        assert [s.value for (s,) in found] == pytest.approx(VOLTS, abs=1e-4)


async def test_parallel_readers_of_one_device_get_all_channels_right(bus, clock):
    device = await ads1115.probe(Config(), bus, clock.sleep)
    for samples in await asyncio.gather(*(device.read() for _ in range(16))):
        assert [s.value for s in samples] == pytest.approx(VOLTS, abs=1e-4)


async def test_a_second_program_in_a_conversion_is_noticed(sim, bus, clock):
    """The multiplexer is shared: the answer could be another input's."""
    waiting = Waiting(clock)
    device = await ads1115.probe(Config(inputs={"a0": 4.096}), bus, waiting.sleep)
    waiting.happens = lambda: sim.write(bytes.fromhex("01F383"))
    with pytest.raises(DataError, match="its settings changed during a conversion"):
        await device.read()


async def test_a_conversion_under_way_is_not_disturbed_by_a_new_one(sim, clock):
    """What makes channels swap when conversions are not kept apart."""
    sim.write(bytes.fromhex("01C383"))
    sim.write(bytes.fromhex("01D383"))
    assert sim.read(2).hex() == "5383"
    clock.advance(0.01)
    sim.write(b"\x00")
    assert int.from_bytes(sim.read(2), "big") == 4000


async def test_the_old_result_stays_until_the_conversion_is_done(sim, clock):
    """9.4.2.1: bit os says when."""
    sim.write(bytes.fromhex("01C383"))
    clock.advance(0.007)
    assert sim.read(2).hex() == "4383"
    clock.advance(0.001)
    assert sim.read(2).hex() == "c383"


async def test_a_brown_out_during_a_conversion_is_noticed(bus, clock):
    waiting = Waiting(clock)
    device = await ads1115.probe(Config(), bus, waiting.sleep)
    waiting.happens = lambda: bus.brown_out(0x48)
    with pytest.raises(DataError, match="its supply dipped"):
        await device.read()
    waiting.happens = lambda: None
    assert (await device.read())[0].value == pytest.approx(0.5, abs=1e-4)


class Frozen:
    """A chip whose registers are a table."""

    def __init__(self, registers):
        self.registers = registers
        self.pointer = 0

    def write(self, data):
        self.pointer = data[0]
        if len(data) > 1:
            self.registers[self.pointer] = data[1:]

    def read(self, length):
        return bytes(self.registers[self.pointer])[:length]


async def test_a_conversion_that_never_ends_is_given_up(clock):
    """Every poll is bounded."""

    class Endless(Frozen):
        def read(self, length):
            word = super().read(length)
            return bytes([word[0] & 0x7F]) + word[1:] if self.pointer == 1 else word

    chip = Endless({0: b"\0\0", 1: b"\x85\x83", 2: b"\x80\x00", 3: b"\x7f\xff"})
    device = await ads1115.probe(Config(), SimI2c("i2c-1", {0x48: chip}), clock.sleep)
    with pytest.raises(DataError, match="a conversion does not end"):
        await device.read()
    assert clock.monotonic() < 1


async def test_a_slow_chip_is_waited_for():
    """A clock slower than the datasheet's 10 %: the bit decides, not the time."""
    slow = FakeClock()
    bus = SimI2c("i2c-1", {0x48: ads1115.Sim(slow, volts=VOLTS)})

    async def sleep(seconds):
        slow.advance(seconds * 0.7)

    device = await ads1115.probe(Config(inputs={"a0": 4.096}), bus, sleep)
    assert (await device.read())[0].value == 0.5


@pytest.mark.parametrize("high", ["7fff", "7ff0"])
async def test_a_chip_in_use_before_is_known_by_its_thresholds(high, clock):
    """9.6.4: reset values; an ADS1015's lowest four bits are not there."""
    chip = Frozen({1: b"\x42\x83", 2: b"\x80\x00", 3: bytes.fromhex(high)})
    assert await ads1115.probe(Config(), SimI2c("i2c-1", {0x48: chip}), clock.sleep)


async def test_another_chip_is_refused_and_not_written_to(clock):
    """A TMP102 is at the same address: its configuration reads 60A0 (SBOS397)."""
    registers = {1: b"\x60\xa0", 2: b"\x4b\x00", 3: b"\x50\x00"}
    with pytest.raises(
        DataError, match="is not an ADS1115 or ADS1015: .* reads 60a0 and not 8583"
    ):
        await ads1115.probe(
            Config(), SimI2c("i2c-1", {0x48: Frozen(dict(registers))}), clock.sleep
        )


@pytest.mark.parametrize(("kind", "level"), [("all_ones", "ones"), ("all_zeros", "zeros")])
async def test_a_silent_line_is_wiring_and_not_a_value(kind, level, bus, clock):
    device = await ads1115.probe(Config(), bus, clock.sleep)
    bus.fail(0x48, kind)
    for action in (device.read(), ads1115.probe(Config(), bus, clock.sleep)):
        with pytest.raises(NoDeviceError, match=f"does not answer \\(all {level}\\)"):
            await action


@pytest.mark.parametrize("transfer", ["first", "later"])
@pytest.mark.parametrize(("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError)])
async def test_a_fault_at_any_transfer_is_an_error_and_frees_the_bus(
    kind, error, transfer, bus, clock
):
    """Issue 3, part 1: a failed caller never blocks the next."""
    waiting = Waiting(clock)
    device = await ads1115.probe(Config(), bus, waiting.sleep)
    if transfer == "first":
        bus.fail(0x48, kind)
    else:
        waiting.happens = lambda: bus.fail(0x48, kind)
    with pytest.raises(error):
        await device.read()
    waiting.happens = lambda: None
    bus.fail(0x48, kind, times=0)
    assert (await device.read())[3].value == pytest.approx(3.3, abs=1e-4)


async def test_the_conversion_register_cannot_be_written(sim):
    """9.6.2: read only."""
    sim.write(b"\x00\x12\x34")
    assert sim.read(2) == b"\x00\x00"


async def test_thresholds_are_kept_and_start_nothing(sim):
    """9.6.4."""
    sim.write(b"\x02\x12\x34")
    assert sim.read(2) == b"\x12\x34"
    sim.write(b"\x01")
    assert sim.read(2).hex() == "8583"
