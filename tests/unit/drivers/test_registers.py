"""The driver of chips described in the configuration, on its model of 256 registers.

The worked temperatures are those of the TMP102 datasheet (SBOS397, table 8):
12 bits, left-aligned in two bytes, 0.0625 Cel each.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimI2c
from edged.drivers import registers
from edged.drivers.registers import (
    ChannelRegister,
    Config,
    IdentityRegister,
    OutputRegister,
    Write,
)
from edged.errors import DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

CONFIG = Config(address=0x48, **registers.SIM_CONFIG)
TMP102 = ChannelRegister(
    register=0, size=2, signed=True, mask=0xFFF0, shift=4, scale=0.0625, unit="Cel"
)


class Recording(registers.Sim):
    def __init__(self):
        super().__init__(FakeClock())
        self.writes = []

    def write(self, data):
        self.writes.append(data.hex())
        super().write(data)


@pytest.fixture
def sim():
    return Recording()


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x48: sim})


async def found(bus, **changes):
    config = msgspec.structs.replace(CONFIG, **changes)
    return await registers.probe(config, bus, FakeClock().sleep)


@pytest.mark.parametrize(
    ("data", "celsius"),
    [
        ("7ff0", 127.9375),
        ("6400", 100.0),
        ("1910", 25.0625),
        ("0040", 0.25),
        ("0000", 0.0),
        ("ffc0", -0.25),
        ("e700", -25.0),
        ("c900", -55.0),
        ("8000", -128.0),
    ],
)
def test_the_worked_temperatures(data, celsius):
    assert TMP102.decode(bytes.fromhex(data)) == celsius


@pytest.mark.parametrize(
    ("settings", "data", "value"),
    [
        ({}, "ff", 255.0),
        ({"signed": True}, "ff", -1.0),
        ({"size": 2}, "0102", 258.0),
        ({"size": 2, "order": "little"}, "0102", 513.0),
        ({"size": 3, "signed": True}, "800000", -8_388_608.0),
        ({"size": 4}, "ffffffff", 4_294_967_295.0),
        ({"mask": 0x38, "shift": 3}, "ed", 5.0),
        ({"mask": 0x38, "shift": 3, "signed": True}, "20", -4.0),
        ({"shift": 4}, "a5", 10.0),
        ({"scale": 0.1, "offset": -40}, "03", -39.7),
        ({"scale": -0.5}, "03", -1.5),
    ],
)
def test_bytes_become_a_value(settings, data, value):
    assert ChannelRegister(register=0, **settings).decode(bytes.fromhex(data)) == value


@given(
    st.integers(1, 4), st.sampled_from(["big", "little"]), st.booleans(), st.integers(), st.data()
)
def test_what_is_set_is_what_is_read(size, order, is_signed, offset, data):
    shared = {"register": 0, "size": size, "order": order, "signed": is_signed, "scale": 0.25}
    low, high = ChannelRegister(**shared).limits()
    raw = data.draw(st.integers(int(low * 4), int(high * 4)))
    output = OutputRegister(**shared, min=low, max=high)
    assert ChannelRegister(**shared).decode(output.encode(raw / 4)) == raw / 4


def test_channels_are_those_of_the_description():
    found = registers.channels(CONFIG)
    assert [(one.name, one.unit, one.low, one.high) for one in found] == [
        ("temperature", "Cel", -128.0, 127.9375),
        ("voltage", "V", 0.0, pytest.approx(65.535)),
    ]


@pytest.mark.parametrize(
    ("description", "fault"),
    [
        ({}, "channels: there are none: describe one at least, such as {voltage:"),
        ({"channels": {"a": {"register": 256}}}, "channels"),
        ({"channels": {"a": {"register": 0, "size": 5}}}, "channels"),
        ({"channels": {"a": {"register": 0, "unit": "C"}}}, "unit 'C' is not one of Cel"),
        ({"channels": {"a": {"register": 0, "scale": 0}}}, "scale: must not be 0"),
        ({"channels": {"a": {"register": 0, "mask": 256}}}, "mask: does not fit into 1 bytes"),
        ({"channels": {"a": {"register": 0, "shift": 8}}}, "shift: no bit is left"),
        ({"channels": {"a": {"register": 0, "low": 5, "high": 5}}}, "low: must be less than high"),
        ({"outputs": {"a": {"register": 0, "min": 1, "max": 1}}}, "must rise, within 0 to 255"),
        ({"outputs": {"a": {"register": 0, "min": 1, "max": 256}}}, "must rise, within 0 to 255"),
        ({"outputs": {"a": {"register": 0, "min": 1, "max": 9, "safe": 0}}}, "safe: must be from"),
        ({"channels": {"a": {"register": 0}}, "init": [[1]]}, "init: each entry is"),
        ({"channels": {"a": {"register": 0}}, "address": 0x78}, "address"),
    ],
)
def test_a_description_with_a_fault_is_refused(description, fault):
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert(description, Config)


async def test_it_reads_what_is_true(bus, sim):
    device = await found(bus)
    assert device.identity == "registers at 0x48"
    temperature, voltage = await device.read()
    assert (temperature.value, temperature.raw) == (25.0625, b"\x19\x10")
    assert voltage.value == 3.3
    sim.memory[0:2] = bytes.fromhex("e700")
    assert (await device.read())[0].value == -25.0


async def test_a_reading_is_one_transfer_for_each_register_on_a_held_bus(bus, sim):
    """UM10204 3.1.10; contract of drivers: a measurement holds its bus once."""
    device = await found(bus)
    sim.writes.clear()
    await device.read()
    assert sim.writes == ["00", "02"]


async def test_the_chip_is_set_up_after_it_showed_its_identity(bus, sim):
    await found(bus, init=[[0x01, 0x60], [0x05, 0xAB, 0xCD]])
    assert sim.writes[:3] == ["0f", "0160", "05abcd"]
    assert sim.memory[5:7] == b"\xab\xcd"


@pytest.mark.parametrize(
    ("identity", "memory"),
    [
        (IdentityRegister(0x0F, 0xA5), b"\xa5"),
        (IdentityRegister(0x0F, 0xA500, size=2), b"\xa5\x00"),
        (IdentityRegister(0x0F, 0x00A5, size=2, order="little"), b"\xa5\x00"),
        (IdentityRegister(0x0F, 0xA0, mask=0xF0), b"\xa7"),
    ],
)
async def test_a_right_identity_is_accepted(bus, sim, identity, memory):
    sim.memory[0x0F : 0x0F + len(memory)] = memory
    await found(bus, identity=identity)


async def test_another_chip_is_not_set_up(bus, sim):
    sim.memory[0x0F] = 0xA4
    with pytest.raises(DataError, match=r"0x48 on i2c-1 is another one: register 0x0f reads 0xa4"):
        await found(bus, init=[[0x01, 0x60]])
    assert sim.writes == ["0f"]


@pytest.mark.parametrize(("byte", "level"), [(0x00, "zeros"), (0xFF, "ones")])
async def test_a_silent_line_is_wiring_and_not_a_chip(bus, sim, byte, level):
    sim.memory[0x0F] = byte
    with pytest.raises(NoDeviceError, match=rf"does not answer \(all {level}\)"):
        await found(bus)


async def test_all_ones_are_no_reading_unless_the_chip_shows_itself(bus, sim):
    """Hardware faults, 23: all ones are wiring, said so."""
    sim.memory[0:4] = b"\xff" * 4
    device = await found(bus)
    assert [sample.value for sample in await device.read()] == [-0.0625, 65.535]
    bus.fail(0x48, "all_ones")
    with pytest.raises(NoDeviceError, match="all ones"):
        await device.read()
    bus.fail(0x48, "all_ones", times=0)
    with pytest.raises(NoDeviceError, match="or describe its identity, which tells"):
        await found(bus, identity=None)


async def test_without_an_identity_whatever_answers_is_read(bus, sim):
    sim.memory[0x0F] = 0
    device = await found(bus, identity=None, outputs={})
    assert (await device.read())[0].value == 25.0625
    await device.safe()


async def test_a_value_that_cannot_be_is_no_value(bus, sim):
    low = {"t": ChannelRegister(register=0, low=10, high=20, unit="Cel")}
    device = await found(bus, channels=low)
    (sample,) = await device.read()
    assert (sample.value, sample.quality) == (None, "error")
    assert sample.note == "25 is not within 10 to 20 Cel"
    assert sample.raw == b"\x19"


async def test_outputs_are_set_within_their_limits(bus, sim):
    device = await found(bus)
    assert await device.act("write", Write("level", 200)) == "level is 200"
    assert sim.memory[8] == 200
    await device.safe()
    assert sim.memory[8] == 0


@pytest.mark.parametrize(
    ("output", "value", "fault"),
    [
        ("level", 201, "value: must be from 0 to 200"),
        ("level", -1, "value: must be from 0 to 200"),
        ("level", float("nan"), "value: must be from 0 to 200"),
        ("speed", 1, "no output 'speed': there is level"),
    ],
)
async def test_what_the_description_does_not_allow_is_not_written(bus, sim, output, value, fault):
    device = await found(bus)
    sim.writes.clear()
    with pytest.raises(InvalidArgumentsError, match=fault):
        await device.act("write", Write(output, value))
    assert sim.writes == []


async def test_a_chip_that_only_acts_is_read_as_nothing(bus):
    device = await found(bus, channels={})
    assert await device.read() == ()


async def test_a_chip_that_only_measures_takes_no_command(bus):
    device = await found(bus, outputs={"quiet": OutputRegister(register=9, min=0, max=1)})
    await device.safe()
    bare = registers.Registers(Config(channels=CONFIG.channels), bus)
    with pytest.raises(InvalidArgumentsError, match="there is none"):
        await bare.act("write", Write("level", 1))
