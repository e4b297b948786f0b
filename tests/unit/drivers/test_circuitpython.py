"""Drivers for CircuitPython on our bus: Adafruit's own for two chips, and small ones with faults.

What Adafruit's driver and ours read from one chip must agree.
"""

import asyncio
import subprocess
import sys
import threading
from types import ModuleType

import msgspec
import pytest

from edged.bus.sim import SimI2c
from edged.clock import SystemClock
from edged.drivers import bme280, circuitpython
from edged.drivers.circuitpython import Config, Property
from edged.errors import BusError, ConfigError, DataError, NoDeviceError
from edged.testing import FakeClock

MCP9808 = Config(address=0x18, **circuitpython.SIM_CONFIG)


class Memory:
    """A chip with 256 registers that count up."""

    def __init__(self):
        self.registers = bytearray(range(256))
        self.pointer = 0
        self.writes = []

    def write(self, data):
        self.writes.append(bytes(data))
        self.pointer = data[0]
        self.registers[self.pointer : self.pointer + len(data) - 1] = data[1:]

    def read(self, length):
        return bytes(self.registers[self.pointer : self.pointer + length])


class Chip:
    """A driver as it is written for CircuitPython."""

    def __init__(self, i2c, address=0x40, *, offset=0):
        self.i2c, self.address, self.offset = i2c, address, offset

    @property
    def value(self):
        buffer = bytearray(2)
        while not self.i2c.try_lock():
            pass
        try:
            self.i2c.writeto_then_readfrom(self.address, b"\x10", buffer)
        finally:
            self.i2c.unlock()
        return int.from_bytes(buffer, "big") + self.offset


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def bus(memory):
    return SimI2c("i2c-1", {0x40: memory})


@pytest.fixture
async def found(bus, monkeypatch):
    """Finds a chip with a driver whose property `value` is what is given."""
    devices = []

    async def probe(value=None, **changes):
        kind = type("Chip", (Chip,), {} if value is None else {"value": property(value)})
        module = ModuleType("some_driver")
        module.Chip = kind
        monkeypatch.setitem(sys.modules, "some_driver", module)
        config = Config("some_driver", "Chip", {"value": Property("value", "count")}, address=0x40)
        config = msgspec.structs.replace(config, **changes)
        devices.append(await circuitpython.probe(config, bus, FakeClock().sleep))
        return devices[-1]

    yield probe
    for device in devices:
        await device.close()


async def test_adafruits_driver_and_ours_agree():
    """Issue 3, part 4: any CircuitPython driver, on our bus; the same chip, the same values."""
    sim = bme280.Sim(SystemClock(), temperature_cel=-7.3, pressure_pa=98_765.0, humidity_rh=61.0)
    bus = SimI2c("i2c-1", {0x77: sim})
    config = Config(
        "adafruit_bme280.basic",
        "Adafruit_BME280_I2C",
        {
            "temperature": Property("temperature", "Cel"),
            "pressure": Property("pressure", "Pa", scale=100.0),
            "humidity": Property("relative_humidity", "%RH"),
        },
        address=0x77,
    )
    theirs = await circuitpython.probe(config, bus, asyncio.sleep)
    assert theirs.identity == "Adafruit_BME280_I2C of adafruit_bme280.basic"
    ours = await bme280.probe(bme280.Config(address=0x77), bus, asyncio.sleep)
    for one, other in zip(await theirs.read(), await ours.read(), strict=True):
        assert one.channel == other.channel
        assert one.value == pytest.approx(other.value, rel=1e-4, abs=0.02)
    await theirs.close()


async def test_a_measurement_is_made_on_a_held_bus_off_the_loop(bus, found):
    """The law of buses: a measurement holds its bus once; the loop never waits."""
    threads, entered, go_on = [], threading.Event(), threading.Event()

    def slow(chip):
        threads.append(threading.current_thread())
        entered.set()
        assert go_on.wait(10)
        return 1

    device = await found(slow)
    reading = asyncio.ensure_future(device.read())
    await asyncio.to_thread(entered.wait, 10)
    other = asyncio.ensure_future(bus.transfer(0x40, b"\x00", 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not other.done()
    go_on.set()
    assert (await reading)[0].value == 1
    assert await other == b"\x00"
    assert threads != [threading.main_thread()]


async def test_buffers_are_read_and_written_in_part(bus, memory, found):
    """busio.I2C: `start` and `end` of either buffer; the same buffer may be both."""

    def value(chip):
        i2c = chip.i2c
        i2c.writeto(0x40, b"ab\x20\xc8\xc9z", start=2, end=5)
        both = bytearray(b"\x00\x20\x00\x00\x00")
        i2c.writeto_then_readfrom(0x40, both, both, out_start=1, out_end=2, in_start=2, in_end=4)
        assert both == b"\x00\x20\xc8\xc9\x00"
        i2c.readfrom_into(0x40, both, start=4)
        assert both[4] == 0xC8
        i2c.writeto(0x40, b"")
        return both[3]

    device = await found(value)
    assert (await device.read())[0].value == 0xC9
    assert memory.writes == [b"\x20\xc8\xc9", b"\x20"]


async def test_the_class_gets_its_address_and_arguments(found):
    device = await found(arguments={"offset": 5})
    assert (await device.read())[0].value == 0x1011 + 5
    device = await found(address_argument="")
    assert (await device.read())[0].value == 0x1011
    with pytest.raises(DataError, match="TypeError: .*unexpected keyword argument 'addr'"):
        await found(address_argument="addr")


@pytest.mark.parametrize(
    ("given", "settings", "value", "note"),
    [
        (True, {}, 1.0, ""),
        (1013.25, {"scale": 100.0}, 101_325.0, ""),
        (50, {"scale": 1.8, "offset": 32}, 122.0, ""),
        ((1.0, 2.0), {"index": 1}, 2.0, ""),
        ((1.0, 2.0), {"index": 2}, None, "value is no number but (1.0, 2.0)"),
        ((1.0, 2.0), {}, None, "value is no number but (1.0, 2.0)"),
        (None, {}, None, "the driver has no value"),
        (float("nan"), {}, None, "nan is not within -1e+12 to 1e+12"),
        (float("inf"), {}, None, "inf is not within -1e+12 to 1e+12"),
        (-41, {"low": -40, "high": 85}, None, "-41 is not within -40 to 85"),
    ],
)
async def test_what_a_property_gives_becomes_a_value_or_none(found, given, settings, value, note):
    properties = {"value": Property("value", "count", **settings)}
    device = await found(lambda chip: given, properties=properties)
    (sample,) = await device.read()
    assert (sample.value, sample.note) == (value, note)
    assert sample.quality == ("ok" if value is not None else "error")


async def test_errors_of_the_bus_stay_what_they_are(bus, found):
    device = await found()
    for kind, error in (("nack", NoDeviceError), ("timeout", BusError)):
        bus.fail(0x40, kind, times=1)
        with pytest.raises(error, match="i2c-1"):
            await device.read()
    assert (await device.read())[0].value == 0x1011


async def test_an_error_of_the_bus_is_seen_through_the_drivers_own(bus, found):
    """I2CDevice turns every OSError into "No I2C device at address"."""

    def value(chip):
        try:
            return Chip.value.fget(chip)
        except OSError as error:
            raise ValueError("No I2C device at address") from error

    device = await found(value)
    bus.fail(0x40, "timeout", times=1)
    with pytest.raises(BusError, match="the bus is stuck"):
        await device.read()


async def test_an_error_that_a_driver_got_over_is_none(bus, found):
    def value(chip):
        with pytest.raises(OSError):
            Chip.value.fget(chip)
        return Chip.value.fget(chip)

    device = await found(value)
    bus.fail(0x40, "nack", times=1)
    assert (await device.read())[0].value == 0x1011


@pytest.mark.parametrize("error", [RuntimeError("CRC mismatch"), TimeoutError("CRC mismatch")])
async def test_an_error_of_the_driver_is_bad_data(found, error):
    def value(chip):
        raise error

    device = await found(value)
    reason = rf"Chip of some_driver at 0x40 on i2c-1: {type(error).__name__}: CRC mismatch"
    with pytest.raises(DataError, match=reason):
        await device.read()


async def test_an_absent_chip_is_no_device(bus, found):
    del bus.targets[0x40]
    with pytest.raises(NoDeviceError, match="nothing answered at address 0x40 on i2c-1"):
        await found()


async def test_all_ones_are_no_reading(bus, found):
    """Hardware faults, 23: drivers make values of them."""
    device = await found()
    bus.fail(0x40, "all_ones")
    with pytest.raises(NoDeviceError, match=r"does not answer \(all ones\)"):
        await device.read()


async def test_another_address_is_not_the_drivers(bus, found):
    """Issue 3, part 3: claims on addresses."""
    bus.targets[0x41] = Memory()
    for speak in (
        lambda chip: chip.i2c.writeto(0x41, b"\x00"),
        lambda chip: chip.i2c.writeto(0x41, b""),
        lambda chip: chip.i2c.readfrom_into(0x41, bytearray(1)),
    ):
        device = await found(speak)
        with pytest.raises(DataError, match="speaks to 0x41, which is not its own"):
            await device.read()
    assert bus.targets[0x41].writes == []


async def test_a_driver_that_polls_for_ever_is_ended(found, monkeypatch):
    """Every poll is bounded."""
    monkeypatch.setattr(circuitpython, "TRANSFERS_MAX", 50)

    def value(chip):
        while Chip.value.fget(chip):
            pass

    device = await found(value)
    with pytest.raises(DataError, match="makes more than 50 transfers"):
        await device.read()


async def test_a_driver_that_never_returns_lets_go_of_the_bus(bus, found, monkeypatch):
    monkeypatch.setattr(circuitpython, "MEASURE_S", 0.05)
    go_on = threading.Event()
    device = await found(lambda chip: go_on.wait(10))
    with pytest.raises(DataError, match="not done in 0.05 s"):
        await device.read()
    assert await bus.transfer(0x40, b"\x01", 1) == b"\x01"
    go_on.set()


async def test_a_cancelled_measurement_makes_no_further_transfer(bus, memory, found):
    """Issue 3, part 1: a cancelled caller never blocks the next, nor comes in between."""
    entered, go_on, errors = threading.Event(), threading.Event(), []

    def value(chip):
        entered.set()
        assert go_on.wait(10)
        try:
            Chip.value.fget(chip)
        except OSError as error:
            errors.append(str(error))
            raise

    device = await found(value)
    reading = asyncio.ensure_future(device.read())
    await asyncio.to_thread(entered.wait, 10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    go_on.set()
    await device.close()
    assert errors == ["the measurement was given up"]
    assert memory.writes == []


async def test_a_transfer_under_way_is_ended_with_its_measurement(found, bus):
    stopped, begun = threading.Event(), asyncio.Event()

    async def sleep(seconds):
        begun.set()
        await asyncio.get_running_loop().create_future()

    def value(chip):
        try:
            Chip.value.fget(chip)
        finally:
            stopped.set()

    device = await found(value)
    bus.fail(0x40, "delay")
    bus._sleep = sleep
    reading = asyncio.ensure_future(device.read())
    await asyncio.wait_for(begun.wait(), 10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(stopped.wait, 10)


@pytest.mark.parametrize(
    ("module", "class_name", "fault"),
    [
        ("adafruit_nothing", "Nothing", r"adafruit_nothing cannot be imported .* install edged\["),
        ("adafruit_mcp9808", "Nothing", "adafruit_mcp9808 has no class Nothing"),
        ("adafruit_mcp9808", "const", "adafruit_mcp9808 has no class const"),
    ],
)
async def test_a_driver_that_is_not_there_is_said(module, class_name, fault):
    bus = SimI2c("i2c-1", {0x18: circuitpython.Sim(FakeClock())})
    config = msgspec.structs.replace(MCP9808, module=module, class_name=class_name)
    with pytest.raises(ConfigError, match=fault):
        await circuitpython.probe(config, bus, FakeClock().sleep)


async def test_the_model_is_read_by_adafruits_driver():
    """MCP9808, DS25095A, section 5: 13 bits, 0.0625 Cel."""
    sim = circuitpython.Sim(FakeClock())
    bus = SimI2c("i2c-1", {0x18: sim})
    device = await circuitpython.probe(MCP9808, bus, FakeClock().sleep)
    for celsius in (21.5, -0.0625, -40.0, 125.0):
        sim.temperature_cel = celsius
        assert (await device.read())[0].value == celsius
    await device.close()


def test_nothing_of_blinka_is_loaded():
    """Its modules look for a board and open its hardware; drivers only name its types."""
    program = (
        "import sys; from edged.drivers import circuitpython;"
        "circuitpython.load('adafruit_bme280.basic', 'Adafruit_BME280_I2C');"
        "circuitpython.load('adafruit_mcp9808', 'MCP9808');"
        "print(sorted(n for n in sys.modules if n.startswith(('adafruit_blinka', 'adafruit_pl'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_stood_in_names_are_types():
    module = circuitpython.StandIn("busio")
    assert isinstance(module.I2C, type)
    assert module.I2C is module.I2C
    assert module.const(0x10) == 0x10
    with pytest.raises(AttributeError):
        _ = module.__all__


def test_channels_are_those_of_the_properties():
    (one,) = circuitpython.channels(MCP9808)
    assert (one.name, one.unit, one.low, one.high) == ("temperature", "Cel", -40.0, 125.0)


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ({}, "properties: there are none: name one at least, such as {temperature:"),
        ({"a": {"attribute": "a", "unit": "C"}}, "unit 'C' is not one of Cel"),
        ({"a": {"attribute": "a", "unit": "Cel", "low": 1, "high": 1}}, "low: must be less"),
    ],
)
def test_settings_with_a_fault_are_refused(properties, fault):
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert({"module": "m", "class_name": "C", "properties": properties}, Config)
