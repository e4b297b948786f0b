"""The MCP23017/MCP23008 driver, and its register model through the bus."""

import asyncio

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import mcp23017
from edged.drivers.mcp23017 import Config, Input, Output, SetOutput
from edged.errors import BusError, DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

HOUSE = Config(
    inputs={
        "door": Input("gpb0", active_low=True, bias="pull-up"),
        "tank": Input("gpa3"),
    },
    outputs={
        "pump": Output("gpa0", active_low=True),
        "lamp": Output("gpb7"),
        "valve": Output("gpa7", safe="on"),
    },
)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return mcp23017.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x20: sim})


@pytest.fixture
async def device(bus, clock):
    return await mcp23017.probe(HOUSE, bus, clock.sleep)


def test_settings_are_bits_by_line():
    """3.5.1: a one in IODIR is an input; gpa0 is bit 0, gpb7 bit 15."""
    assert mcp23017.settings(HOUSE) == (0x7F7E, 0x0100, 0x0081)
    assert mcp23017.settings(Config()) == (0xFFFF, 0, 0)
    assert mcp23017.settings(Config(model="mcp23008")) == (0xFF, 0, 0)


def test_levels_are_logical_values():
    names = [c.name for c in mcp23017.channels(HOUSE)]
    assert names == ["door", "tank", "pump", "lamp", "valve"]
    found = [(s.channel, s.value) for s in mcp23017.samples(0x8009, HOUSE)]
    assert found == [("door", 1), ("tank", 1), ("pump", 0), ("lamp", 1), ("valve", 0)]


def test_without_lines_every_line_is_an_input_but_those_for_outputs_only():
    """DS20001952D, page 1: GPA7 and GPB7 are outputs only."""
    names = [c.name for c in mcp23017.channels(Config())]
    assert names == [*(f"gpa{n}" for n in range(7)), *(f"gpb{n}" for n in range(7))]
    assert len(mcp23017.channels(Config(model="mcp23008"))) == 8


def test_an_input_where_only_outputs_are_specified_is_suspect():
    config = Config(inputs={"late": Input("gpa7"), "fine": Input("gpa6")})
    late, fine = mcp23017.samples(0x80, config)
    assert (late.value, late.quality, fine.quality) == (1, "suspect", "ok")
    assert "gpa7 is for outputs only on current chips" in late.note


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inputs": {"a": {"line": "gpc0"}}}, "inputs.a.line: there is gpa0 to gpb7"),
        (
            {"model": "mcp23008", "outputs": {"a": {"line": "gpa0"}}},
            "outputs.a.line: there is gp0 to gp7",
        ),
        (
            {"inputs": {"a": {"line": "gpa0"}}, "outputs": {"b": {"line": "gpa0"}}},
            "outputs.b.line: gpa0 is inputs.a already",
        ),
        (
            {"inputs": {"a": {"line": "gpa0"}}, "outputs": {"a": {"line": "gpa1"}}},
            "outputs.a: is the name of an input too",
        ),
    ],
)
def test_lines_that_cannot_be_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


async def test_levels_are_set_before_directions(device, sim):
    """A latch that is written after its line became an output pulses a relay."""
    assert list(sim.log) == ["gpa0 high", "gpa7 high", "gpb7 low"]


async def test_lines_read_as_they_are(device, sim):
    sim.outside = {"gpa3": True, "gpb0": False}
    values = {s.channel: s.value for s in await device.read()}
    assert values == {"door": 1, "tank": 1, "pump": 0, "lamp": 0, "valve": 1}
    sim.outside = {}
    values = {s.channel: s.value for s in await device.read()}
    assert (values["door"], values["tank"]) == (0, 0), "the pull-up holds an open door's line high"


async def test_an_output_is_set_and_the_others_stay(device, sim):
    sim.log.clear()
    assert await device.act("set", SetOutput("pump", True)) == "pump is on"
    assert await device.act("set", SetOutput("lamp", True)) == "lamp is on"
    assert await device.act("set", SetOutput("valve", False)) == "valve is off"
    assert await device.act("set", SetOutput("pump", False)) == "pump is off"
    assert list(sim.log) == ["gpa0 low", "gpb7 high", "gpa7 low", "gpa0 high"]
    values = {s.channel: s.value for s in await device.read()}
    assert (values["pump"], values["lamp"], values["valve"]) == (0, 1, 0)


async def test_outputs_set_at_the_same_time_do_not_undo_each_other(device, sim):
    """The latch of eight lines is one register."""
    names = ("pump", "lamp", "valve")
    for on in (True, False, True):
        await asyncio.gather(*(device.act("set", SetOutput(name, on)) for name in names))
        values = {s.channel: s.value for s in await device.read()}
        assert [values[name] for name in names] == [on] * 3


async def test_the_safe_state_is_what_each_output_says(device, sim):
    """Issue 3, part 3."""
    for name, on in (("pump", True), ("lamp", True), ("valve", False)):
        await device.act("set", SetOutput(name, on))
    await device.safe()
    values = {s.channel: s.value for s in await device.read()}
    assert (values["pump"], values["lamp"], values["valve"]) == (0, 0, 1)


async def test_an_unknown_output_is_refused_with_those_there_are(device, bus, clock):
    with pytest.raises(
        InvalidArgumentsError, match="no output 'door': there is pump, lamp, valve"
    ):
        await device.act("set", SetOutput("door", True))
    bare = await mcp23017.probe(Config(), bus, clock.sleep)
    with pytest.raises(InvalidArgumentsError, match="there is none"):
        await bare.act("set", SetOutput("pump", True))


async def test_a_brown_out_is_noticed_and_ends_in_the_safe_state(device, sim, bus):
    """Table 3-1: after power-on every line is an input, and no output holds."""
    await device.act("set", SetOutput("pump", True))
    bus.brown_out(0x20)
    for action in (device.read(), device.act("set", SetOutput("lamp", True))):
        with pytest.raises(DataError, match="its supply dipped and its outputs float"):
            await action
    sim.log.clear()
    await device.safe()
    assert list(sim.log) == ["gpa0 high", "gpa7 high", "gpb7 low"]
    assert (await device.read())[2].value == 0


async def test_a_small_chip_has_other_addresses(clock):
    """DS21919E, table 1-3: one register of each kind."""
    sim = mcp23017.Sim(clock, model="mcp23008")
    config = Config(
        model="mcp23008", inputs={"key": Input("gp7")}, outputs={"led": Output("gp0", safe="on")}
    )
    device = await mcp23017.probe(config, SimI2c("i2c-1", {0x20: sim}), clock.sleep)
    assert list(sim.log) == ["gp0 high"]
    sim.outside["gp7"] = True
    assert [s.value for s in await device.read()] == [1, 1]
    await device.act("set", SetOutput("led", False))
    assert [s.value for s in await device.read()] == [1, 0]
    assert device.identity.startswith("MCP23008")
    sim.write(b"\x00")
    assert sim.read(11).hex() == "fe00000000000000008000"


@pytest.mark.parametrize("iocon", [0x80, 0xA0, 0x20, 0x1E])
async def test_it_sets_up_a_chip_that_another_program_left_in_any_mode(iocon, sim, bus, clock):
    """3.2.1: bits BANK and SEQOP of IOCON change what an address means."""
    sim.write(bytes([0x0A, iocon]))
    sim.outside["gpa3"] = True
    device = await mcp23017.probe(HOUSE, bus, clock.sleep)
    assert [s.value for s in await device.read()] == [0, 1, 0, 0, 1]
    assert list(sim.log) == ["gpa0 high", "gpa7 high", "gpb7 low"]


async def test_inverted_by_another_program_it_is_set_right(sim, bus, clock):
    """3.5.2: IPOL turns what is read around."""
    sim.write(b"\x02\xff\xff")
    sim.write(b"\x12")
    assert sim.read(2) == b"\xff\xff"
    device = await mcp23017.probe(Config(), bus, clock.sleep)
    assert {s.value for s in await device.read()} == {0}


async def test_all_outputs_low_are_not_taken_for_a_dead_line(clock):
    lines = [f"gp{port}{bit}" for port in "ab" for bit in range(8)]
    config = Config(outputs={line: Output(line) for line in lines})
    bus = SimI2c("i2c-1", {0x20: mcp23017.Sim(clock)})
    device = await mcp23017.probe(config, bus, clock.sleep)
    assert {s.value for s in await device.read()} == {0}


class Deaf:
    """A chip that keeps nothing."""

    def write(self, data):
        pass

    def read(self, length):
        return b"\x11" * length


async def test_another_chip_is_refused(clock):
    with pytest.raises(DataError, match="or it is another chip"):
        await mcp23017.probe(HOUSE, SimI2c("i2c-1", {0x20: Deaf()}), clock.sleep)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "MCP23017 at 0x20 on i2c-1 does not answer \\(all ones\\)"),
        ("all_zeros", NoDeviceError, "does not answer \\(all zeros\\)"),
    ],
)
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, words, device, bus):
    """Issue 3, part 1: a failed caller never blocks the next."""
    bus.fail(0x20, kind)
    for action in (device.read(), device.act("set", SetOutput("lamp", True)), device.safe()):
        with pytest.raises(error, match=words):
            await action
    bus.fail(0x20, kind, times=0)
    await device.safe()
    assert (await device.read())[4].value == 1


def test_the_models_read_only_and_missing_registers(sim):
    """3.5.9, 3.5.10: INTF and INTCAP are read only; writing GPIO writes the latch."""
    sim.write(b"\x0e\xff\xff\xff\xff")
    sim.write(b"\x0e")
    assert sim.read(4) == b"\x00\x00\x00\x00"
    sim.write(b"\x12\x05\x00")
    sim.write(b"\x14")
    assert sim.read(2) == b"\x05\x00"
    sim.write(b"\x40\x01")
    sim.write(b"\x40")
    assert sim.read(1) == b"\x00"
    sim.write(b"\x0a\x80")
    sim.write(b"\x1f")
    assert sim.read(1) == b"\x00"
