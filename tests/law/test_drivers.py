"""What every driver is held to."""

import asyncio
import inspect
import os
import re

import msgspec
import pytest

import edged.drivers
import edged.errors
from edged import plugins
from edged.bus.sim import SimI2c
from edged.units import UNITS

NAMES = plugins.names("edged.drivers")


class FakeClock:
    """Time that passes only by sleeping."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    now = monotonic

    async def sleep(self, seconds):
        self.seconds += seconds


@pytest.fixture(params=NAMES)
def driver(request):
    return plugins.load("edged.drivers", request.param)


def test_every_file_is_a_driver():
    """Architecture: a file is a plugin and its file name is its key."""
    files = os.listdir(os.path.dirname(edged.drivers.__file__))
    assert sorted(f[:-3] for f in files if f.endswith(".py") and not f.startswith("_")) == NAMES


def test_info_is_whole(driver):
    """Architecture, shapes, driver."""
    info = driver.INFO
    assert isinstance(info, edged.drivers.Info)
    assert all(re.fullmatch(r"[a-z0-9-]+,[a-z0-9-]+", name) for name in info.compatible)
    assert any(
        name.partition(",")[2] == driver.__name__.rpartition(".")[2] for name in info.compatible
    )
    assert info.addresses
    assert all(0x03 <= address <= 0x77 for address in info.addresses)
    assert info.datasheet
    assert info.channels
    assert all(channel.unit in UNITS and channel.low < channel.high for channel in info.channels)
    assert len({channel.name for channel in info.channels}) == len(info.channels)


def test_config_is_a_frozen_struct_that_knows_its_address_and_refuses_others(driver):
    config = driver.Config
    assert issubclass(config, msgspec.Struct)
    assert config.__struct_config__.frozen
    assert config.__struct_config__.forbid_unknown_fields
    assert config().address == driver.INFO.addresses[0]


def test_probe_has_the_protocols_shape(driver):
    """`edged.drivers.Driver`."""
    assert inspect.iscoroutinefunction(driver.probe)
    assert list(inspect.signature(driver.probe).parameters) == ["config", "bus", "sleep"]


def test_the_datasheet_is_named_at_the_top(driver):
    assert driver.INFO.datasheet.partition(",")[0] in driver.__doc__


async def test_it_measures_its_register_model_through_the_bus(driver):
    """Issue 3, shows: every driver runs against its register model through the bus."""
    clock = FakeClock()
    bus = SimI2c("i2c-1", {address: driver.Sim(clock) for address in driver.INFO.addresses})
    for address in driver.INFO.addresses:
        device = await driver.probe(driver.Config(address=address), bus, clock.sleep)
        assert device.identity
        samples = await device.read()
        assert [s.channel for s in samples] == [c.name for c in driver.INFO.channels]
        for sample, channel in zip(samples, driver.INFO.channels, strict=True):
            assert sample.quality == "ok"
            assert channel.low <= sample.value <= channel.high


@pytest.mark.parametrize("kind", ["nack", "timeout", "all_ones"])
async def test_a_fault_on_the_bus_is_an_error_of_edged_and_never_a_value(driver, kind):
    """Issue 3, part 5: never a made-up number; part 1: never blocks the next."""
    clock = FakeClock()
    address = driver.INFO.addresses[0]
    bus = SimI2c("i2c-1", {address: driver.Sim(clock)})
    device = await driver.probe(driver.Config(), bus, clock.sleep)
    for action in (device.read, lambda: driver.probe(driver.Config(), bus, clock.sleep)):
        bus.fail(address, kind)
        with pytest.raises(edged.errors.EdgedError):
            await asyncio.wait_for(action(), 5)
        bus.fail(address, kind, times=0)
        await asyncio.wait_for(device.read(), 5)
