"""What every driver is held to."""

import asyncio
import contextlib
import inspect
import os
import re

import msgspec
import msgspec.inspect
import pytest

import edged.drivers
import edged.errors
from edged import plugins
from edged.board.device import LINES
from edged.bus._stepping import Pause, step
from edged.bus.sim import SimI2c
from edged.testing import FakeClock
from edged.units import UNITS

NAMES = plugins.names("edged.drivers")


def load(name):
    return plugins.load("edged.drivers", name)


I2C = [name for name in NAMES if load(name).INFO.bus == "i2c"]


@pytest.fixture(params=NAMES)
def driver(request):
    return load(request.param)


@pytest.fixture(params=I2C)
def i2c_driver(request):
    return load(request.param)


def test_every_file_is_a_driver():
    """Architecture: a file is a plugin and its file name is its key."""
    files = os.listdir(os.path.dirname(edged.drivers.__file__))
    assert sorted(f[:-3] for f in files if f.endswith(".py") and not f.startswith("_")) == NAMES


def test_info_is_whole(driver):
    """Architecture, shapes, driver."""
    info = driver.INFO
    assert isinstance(info, edged.drivers.Info)
    assert info.title
    assert len(info.title) <= 60
    assert all(re.fullmatch(r"[a-z0-9-]+,[a-z0-9-]+", name) for name in info.compatible)
    assert (info.bus == "i2c") == bool(info.addresses)
    assert all(0x03 <= address <= 0x77 for address in info.addresses)
    assert info.datasheet
    assert info.channels or info.commands or hasattr(driver, "channels")
    assert all(channel.unit in UNITS and channel.low < channel.high for channel in info.channels)
    assert len({channel.name for channel in info.channels}) == len(info.channels)
    assert (info.serial is not None) == (info.bus == "serial")


def test_commands_take_frozen_structs_that_refuse_unknown_fields(driver):
    """`edged.drivers.Command`: the type is the schema."""
    for command in driver.INFO.commands:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", command.name)
        assert command.description
        assert command.params.__struct_config__.frozen
        assert command.params.__struct_config__.forbid_unknown_fields
        msgspec.json.schema(command.params)


def test_config_is_a_frozen_struct_that_refuses_unknown_fields(driver):
    config = driver.Config
    assert issubclass(config, msgspec.Struct)
    assert config.__struct_config__.frozen
    assert config.__struct_config__.forbid_unknown_fields


def test_an_i2c_drivers_config_knows_its_usual_address(i2c_driver):
    (default,) = (
        field.default
        for field in msgspec.structs.fields(i2c_driver.Config)
        if field.name == "address"
    )
    assert default == i2c_driver.INFO.addresses[0]


NO_LINES = {"unit"}
"""Settings that are plain text and name no line."""


def test_settings_that_name_lines_are_claimed(driver):
    """`edged.board.device.LINES`: two devices of one line would fight over it."""
    if driver.INFO.bus in {"gpio", "pwm", "board"}:
        fields = msgspec.inspect.type_info(driver.Config).fields
        plain = {f.name for f in fields if is_plain_text(f.type)}
        assert plain - NO_LINES <= LINES


def is_plain_text(kind):
    if isinstance(kind, msgspec.inspect.UnionType):
        others = {type(one) for one in kind.types} - {msgspec.inspect.NoneType}
        return len(others) == 1 and any(map(is_plain_text, kind.types))
    if isinstance(kind, msgspec.inspect.TupleType):
        return any(map(is_plain_text, kind.item_types))
    return isinstance(kind, msgspec.inspect.StrType)


def test_probe_has_the_protocols_shape(driver):
    """`edged.drivers.Driver`."""
    assert inspect.iscoroutinefunction(driver.probe)
    assert list(inspect.signature(driver.probe).parameters) == ["config", "bus", "sleep"]


def test_the_datasheet_is_named_at_the_top(driver):
    assert driver.INFO.datasheet.partition(",")[0] in driver.__doc__


def settings(driver, **given):
    """A `Config`, with what the driver's own model needs beside its defaults."""
    return driver.Config(**{**getattr(driver, "SIM_CONFIG", {}), **given})


async def test_it_is_found_at_each_of_its_addresses(i2c_driver):
    """`Info.addresses`; what it reads there, tests/conformance says."""
    clock = FakeClock()
    for address in i2c_driver.INFO.addresses:
        bus = SimI2c("i2c-1", {address: i2c_driver.Sim(clock)})
        device = await i2c_driver.probe(settings(i2c_driver, address=address), bus, clock.sleep)
        assert device.identity


class SteppedBus:
    """A bus whose transfers are done as they are asked for, as on the thread of a real one."""

    def __init__(self, target):
        self.name, self.target = "i2c-1", target

    @contextlib.asynccontextmanager
    async def hold(self):
        yield self

    async def transfer(self, address, write=b"", read_len=0):
        if write:
            self.target.write(write)
        return self.target.read(read_len) if read_len else b""

    async def detect(self, address):
        return True


@pytest.mark.parametrize("name", [name for name in I2C if not load(name).INFO.needs_loop])
def test_an_i2c_measurement_awaits_only_its_bus_and_its_sleep(name):
    """`edged.drivers.Info.needs_loop`: else it is stepped on its bus's thread."""
    driver = load(name)
    clock = FakeClock()

    def stepped(work):
        while isinstance(reached := step(work), Pause):
            clock.advance(reached.seconds)
        return reached.value

    bus = SteppedBus(driver.Sim(clock))
    device = stepped(driver.probe(settings(driver), bus, Pause))
    measures = driver.INFO.channels or hasattr(driver, "channels")
    assert bool(stepped(device.read())) == bool(measures)


@pytest.mark.parametrize("kind", ["nack", "timeout", "all_ones"])
async def test_a_fault_on_the_bus_is_an_error_of_edged_and_never_a_value(i2c_driver, kind):
    """Issue 3, part 5: never a made-up number; part 1: never blocks the next."""
    driver = i2c_driver
    clock = FakeClock()
    address = driver.INFO.addresses[0]
    bus = SimI2c("i2c-1", {address: driver.Sim(clock)})
    config = settings(driver)
    device = await driver.probe(config, bus, clock.sleep)
    if driver.INFO.commands:
        # Writing to all ones goes unnoticed: there is nothing to read.
        actions = () if kind == "all_ones" else (device.safe,)
    else:
        actions = (device.read, lambda: driver.probe(config, bus, clock.sleep))
    for action in actions:
        bus.fail(address, kind)
        with pytest.raises(edged.errors.EdgedError):
            await asyncio.wait_for(action(), 5)
        bus.fail(address, kind, times=0)
        await asyncio.wait_for(device.read(), 5)
