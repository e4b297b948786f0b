"""DHT11, DHT22 and AM2302 by the kernel's driver: its arithmetic, and its files through the bus."""

import errno

import pytest

from edged.bus.sim import SimSysfs
from edged.drivers import dht
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


def kernel(frame):
    """What the kernel's driver shows of a frame of the sensor (dht11.c, `dht11_decode`)."""
    hum_int, hum_dec, temp_int, temp_dec, checksum = frame
    assert (hum_int + hum_dec + temp_int + temp_dec) & 0xFF == checksum
    if hum_int < 4:
        sign = -100 if temp_int & 0x80 else 100
        return str(((temp_int & 0x7F) << 8 | temp_dec) * sign), str((hum_int << 8 | hum_dec) * 100)
    return str(temp_int * 1000), str(hum_int * 1000)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return dht.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimSysfs(sim.files)


async def probed(bus, clock, **settings):
    return await dht.probe(dht.Config(**settings), bus, clock.sleep)


@pytest.mark.parametrize(
    ("frame", "cel", "rh"),
    [
        ("02 8C 01 5F EE", 35.1, 65.2),  # AM2302 manual, section 7.3
        ("02 8C 80 65 73", -10.1, 65.2),  # likewise: bit 15 is the sign
        ("02 8C FF 9B 28", -10.1, 65.2),  # a copy that sends two's complement
        ("02 8C 80 01 0F", -0.1, 65.2),
        ("02 8C FF FF 8C", -0.1, 65.2),
        ("00 FF 81 90 10", -40.0, 25.5),
        ("03 E8 03 20 0E", 80.0, 100.0),
        ("35 00 18 00 4D", 24.0, 53.0),  # DHT11 manual: whole numbers
    ],
)
def test_frames_of_the_sensors(frame, cel, rh):
    """Fault 26: just below zero is neither 3276 °C nor -10.2."""
    temperature, humidity = dht.decode(*kernel(bytes.fromhex(frame)))
    assert temperature == ("temperature", pytest.approx(cel, abs=1e-9), "ok", "", b"")
    assert humidity == ("humidity", pytest.approx(rh, abs=1e-9), "ok", "", b"")


@pytest.mark.parametrize(
    ("temperature", "humidity", "words"),
    [
        ("21500", "100100", "a humidity of 100.1 % cannot be"),
        ("21500", "-100", "a humidity of -0.1 % cannot be"),
        ("80100", "50000", "a temperature of 80.1 °C cannot be"),
        ("-40100", "50000", "a temperature of -40.1 °C cannot be"),
        ("0", "0", "all zeros: its data line is held low"),
        ("", "50000", "the kernel shows no numbers"),
    ],
)
def test_what_no_sensor_measures_is_an_error(temperature, humidity, words):
    """Humidity > 100: error."""
    with pytest.raises(DataError, match=words):
        dht.decode(temperature, humidity)


@pytest.mark.parametrize("cel", [21.5, -10.1, 0.0, -40.0, 80.0])
async def test_it_reads_what_is_true(cel, sim, bus, clock):
    sim.temperature_cel = cel
    device = await probed(bus, clock)
    assert [s.value for s in await device.read()] == [cel, 52.0]
    assert device.identity == "DHT (dht11@4)"
    assert clock.monotonic() == 0.0


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_failed_transfer_is_tried_again_two_seconds_later(failures, sim, bus, clock):
    """Fault 39; ETIMEDOUT and EIO are normal."""
    device = await probed(bus, clock)
    sim.failures = failures
    assert (await device.read())[0].value == 21.5
    assert clock.monotonic() == 2.0 * failures


async def test_after_three_tries_there_is_an_error_and_no_value(sim, bus, clock):
    """Fault 39: bounded, never fabricated."""
    device = await probed(bus, clock)
    sim.failures = 3
    with pytest.raises(BusError, match="no valid answer in 3 tries") as caught:
        await device.read()
    assert caught.value.errno == errno.EIO
    assert clock.monotonic() == 4.0
    assert sim.failures == 0
    assert (await device.read())[0].value == 21.5


async def test_values_that_cannot_be_are_tried_again_too(sim, bus, clock):
    sim.humidity_rh = 102.3
    device = await probed(bus, clock)
    with pytest.raises(DataError, match=r"DHT \(dht11@4\): a humidity of 102.3 % cannot be"):
        await device.read()
    assert clock.monotonic() == 4.0


async def test_a_sensor_whose_driver_was_unloaded_is_not_waited_for(bus, clock):
    device = await probed(bus, clock)
    bus.files.clear()
    with pytest.raises(NoDeviceError, match="is not there"):
        await device.read()
    assert clock.monotonic() == 0.0


async def test_without_the_overlay_it_says_how_to_switch_it_on(clock):
    with pytest.raises(NoDeviceError, match="no DHT sensor: .* dtoverlay=dht11,gpiopin=4"):
        await probed(SimSysfs({}), clock)
    others = {"bus/iio/devices/iio:device0/name": "bmp280", "bus/iio/devices/trigger0/x": ""}
    with pytest.raises(NoDeviceError, match="the kernel has no dht11@17"):
        await probed(SimSysfs(others), clock, name="dht11@17")


async def test_of_several_the_named_one_is_taken(bus, clock):
    bus.files["bus/iio/devices/iio:device1/name"] = "dht11@17"
    bus.files["bus/iio/devices/iio:device2/name"] = "bmp280"
    with pytest.raises(NoDeviceError, match="several, name one: dht11@4, dht11@17"):
        await probed(bus, clock)
    assert (await probed(bus, clock, name="dht11@4")).identity == "DHT (dht11@4)"
