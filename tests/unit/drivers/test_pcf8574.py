"""The PCF8574 driver, and its model through the bus."""

import asyncio

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.drivers import pcf8574
from edged.drivers.pcf8574 import Config, Input, Output, SetOutput
from edged.errors import BusError, DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

RELAYS = Config(
    inputs={"door": Input("p6", active_low=True), "tank": Input("p7")},
    outputs={
        "pump": Output("p0", active_low=True),
        "fan": Output("p1", active_low=True, safe="on"),
        "lamp": Output("p2"),
    },
)


@pytest.fixture
def clock():
    return FakeClock()


class Listening(pcf8574.Sim):
    """A chip that remembers what it was told."""

    def __init__(self, clock):
        self.heard = []
        super().__init__(clock)

    def write(self, data):
        self.heard.append(data.hex())
        super().write(data)


@pytest.fixture
def sim(clock):
    return Listening(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x20: sim})


@pytest.fixture
async def device(bus, clock):
    return await pcf8574.probe(RELAYS, bus, clock.sleep)


@pytest.mark.parametrize(
    ("config", "byte"),
    [
        (Config(), 0xFF),
        (RELAYS, 0xF9),
        (Config(outputs={"a": Output("p0", safe="on"), "b": Output("p7")}), 0x7F),
        (Config(outputs={"a": Output("p3", active_low=True, safe="on")}), 0xF7),
    ],
)
def test_the_safe_byte(config, byte):
    """8.1: inputs and unused lines are written 1."""
    assert pcf8574.safe_byte(config) == byte


def test_levels_are_logical_values():
    assert [c.name for c in pcf8574.channels(RELAYS)] == ["door", "tank", "pump", "fan", "lamp"]
    assert [s.value for s in pcf8574.samples(0b1011_1001, RELAYS)] == [1, 1, 0, 1, 0]
    assert [s.value for s in pcf8574.samples(0x0F, Config())] == [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inputs": {"a": {"line": "p8"}}}, "inputs.a.line: there is p0 to p7"),
        (
            {"inputs": {"a": {"line": "p0"}}, "outputs": {"b": {"line": "p0"}}},
            "outputs.b.line: p0 is inputs.a already",
        ),
        (
            {"inputs": {"a": {"line": "p0"}}, "outputs": {"a": {"line": "p1"}}},
            "outputs.a: is the name of an input too",
        ),
    ],
)
def test_lines_that_cannot_be_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(settings, Config)


def test_the_addresses_of_both_variants():
    """Tables 4 and 5."""
    assert pcf8574.INFO.addresses[0] == 0x20
    assert set(pcf8574.INFO.addresses) == {*range(0x20, 0x28), *range(0x38, 0x40)}


async def test_the_safe_value_is_written_before_anything_else(device, sim):
    """A relay board must get it first."""
    assert sim.heard == ["f9"]


async def test_lines_read_as_they_are(device, sim):
    sim.outside = {"p6": False, "p7": False}
    assert [s.value for s in await device.read()] == [1, 0, 0, 1, 0]
    sim.outside = {}
    assert [s.value for s in await device.read()] == [0, 1, 0, 1, 0]


async def test_an_output_is_set_and_the_others_stay(device, sim):
    assert await device.act("set", SetOutput("pump", True)) == "pump is on"
    assert await device.act("set", SetOutput("lamp", True)) == "lamp is on"
    assert await device.act("set", SetOutput("fan", False)) == "fan is off"
    assert sim.heard[1:] == ["f8", "fc", "fe"]
    assert [s.value for s in await device.read()] == [0, 1, 1, 0, 1]


async def test_inputs_stay_ones_whatever_they_read(device, sim):
    """8.1: a line that was written 0 could no longer be read."""
    sim.outside = {"p6": False}
    await device.act("set", SetOutput("pump", True))
    assert sim.latch == 0xF8


async def test_a_weak_high_that_its_load_pulls_down_reads_low(device, sim):
    """8.1: high is a current source of 100 uA: no fault, but no lamp either."""
    sim.outside = {"p2": False}
    await device.act("set", SetOutput("lamp", True))
    assert (await device.read())[4].value == 0


async def test_outputs_set_at_the_same_time_do_not_undo_each_other(device):
    for on in (True, False):
        names = ("pump", "fan", "lamp")
        await asyncio.gather(*(device.act("set", SetOutput(name, on)) for name in names))
        assert [s.value for s in await device.read()][2:] == [on] * 3


async def test_the_safe_state_is_what_each_output_says(device, sim):
    """Issue 3, part 3."""
    await device.act("set", SetOutput("pump", True))
    await device.act("set", SetOutput("fan", False))
    await device.safe()
    assert sim.latch == 0xF9


async def test_an_unknown_output_is_refused_with_those_there_are(device, bus, clock):
    with pytest.raises(InvalidArgumentsError, match="no output 'door': there is pump, fan, lamp"):
        await device.act("set", SetOutput("door", True))
    bare = await pcf8574.probe(Config(), bus, clock.sleep)
    with pytest.raises(InvalidArgumentsError, match="there is none"):
        await bare.act("set", SetOutput("pump", True))


async def test_after_a_brown_out_nothing_comes_on_by_the_way(device, sim, bus):
    """8.4: all lines are high after power-on."""
    await device.act("set", SetOutput("pump", True))
    bus.brown_out(0x20)
    sim.heard.clear()
    for action in (device.read(), device.act("set", SetOutput("lamp", True))):
        with pytest.raises(NoDeviceError, match="all ones.*or its supply dipped"):
            await action
    assert sim.heard == []
    await device.safe()
    assert sim.latch == 0xF9


async def test_a_shorted_output_is_named(device, sim):
    class Shorted(pcf8574.Sim):
        def read(self, length):
            return b"\xfb" * length

    chip = Shorted(None)
    with pytest.raises(DataError, match="p1 is driven low and reads high: a short"):
        await pcf8574.probe(RELAYS, SimI2c("i2c-1", {0x20: chip}), None)


@pytest.mark.parametrize(("address", "name"), [(0x27, "PCF8574 "), (0x38, "PCF8574A ")])
async def test_the_address_tells_the_variant(address, name, clock):
    """Table 4 and 5: fixed bits 0100 and 0111."""
    bus = SimI2c("i2c-1", {address: pcf8574.Sim(clock)})
    device = await pcf8574.probe(Config(address=address), bus, clock.sleep)
    assert device.identity.startswith(name)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("nack", NoDeviceError, "nothing answered"),
        ("timeout", BusError, "stuck"),
        ("all_ones", NoDeviceError, "does not answer \\(all ones\\)"),
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
    assert (await device.read())[3].value == 1
