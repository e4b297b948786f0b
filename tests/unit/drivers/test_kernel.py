"""Devices of the kernel's own drivers: their files' arithmetic, and reading through the bus.

Units and names are those of Documentation/hwmon/sysfs-interface.rst (h) and of
Documentation/ABI/testing/sysfs-bus-iio (i).
"""

import errno

import msgspec
import pytest

from edged.bus.sim import SimSysfs
from edged.drivers import kernel
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

HWMON, IIO = "class/hwmon/hwmon2", "bus/iio/devices/iio:device0"


def bus(directory=HWMON, name="chip", **files):
    named = {file.replace("__", "-"): text for file, text in files.items()}
    return SimSysfs(
        {f"{directory}/name": name, **{f"{directory}/{f}": t for f, t in named.items()}}
    )


async def probed(bus, channels, **settings):
    config = kernel.Config(**{"name": "chip", **settings}, channels=channels)
    return await kernel.probe(config, bus, FakeClock().sleep)


async def value(file, directory=HWMON, **files):
    device = await probed(bus(directory, **files), {"x": file})
    (sample,) = await device.read()
    assert sample.quality == "ok"
    return sample.value


@pytest.mark.parametrize(
    ("file", "text", "expected", "unit"),
    [
        ("temp1_input", "21500", 21.5, "Cel"),
        ("temp1_input", "-10062", -10.062, "Cel"),
        ("temp2_input", "0", 0.0, "Cel"),
        ("in0_input", "860", 0.86, "V"),
        ("in3_input", "-5012", -5.012, "V"),
        ("curr1_input", "-1250", -1.25, "A"),
        ("power1_input", "119800000", 119.8, "W"),
        ("power1_average", "1", 0.000001, "W"),
        ("energy1_input", "3600000000", 3600.0, "J"),
        ("humidity1_input", "45012", 45.012, "%RH"),
        ("fan1_input", "1450", 1450.0, "1/min"),
        ("freq1_input", "50000000", 50e6, "Hz"),
    ],
)
async def test_values_of_hwmon(file, text, expected, unit):
    """(h): thousandths, but power and energy in millionths, fans in revolutions per minute."""
    assert await value(file, **{file: text}) == expected
    assert kernel.kind_of(file).unit == unit


@pytest.mark.parametrize(
    ("file", "text", "expected", "unit"),
    [
        ("in_temp_input", "25080", 25.08, "Cel"),
        ("in_humidityrelative_input", "54997", 54.997, "%RH"),
        ("in_pressure_input", "100.653270000", 100653.27, "Pa"),
        ("in_illuminance_input", "28066.7", 28066.7, "lx"),
        ("in_distance_input", "1.715", 1.715, "m"),
        ("in_voltage0_input", "3300", 3.3, "V"),
        ("in_power1_input", "1500", 1.5, "W"),
        ("in_concentration_co2_input", "0.0439", 439.0, "ppm"),
    ],
)
async def test_processed_values_of_iio(file, text, expected, unit):
    """(i): milli degrees, milli percent, kilopascal, millivolt, percent."""
    assert await value(file, IIO, **{file: text}) == expected
    assert kernel.kind_of(file).unit == unit


@pytest.mark.parametrize(
    ("file", "files", "expected"),
    [
        # (raw + offset) * scale, in the kernel's unit
        ("in_temp_raw", {"in_temp_raw": "-521", "in_temp_scale": "2.941176", "in_temp_offset": "12420"}, 34.997053),
        ("in_temp_raw", {"in_temp_raw": "200", "in_temp_scale": "62.5"}, 12.5),
        ("in_voltage0_raw", {"in_voltage0_raw": "26667", "in_voltage_scale": "0.125"}, 3.333375),
        ("in_voltage0_raw", {"in_voltage0_raw": "-1", "in_voltage0_scale": "0.125", "in_voltage_scale": "9"}, -0.000125),
        ("in_voltage0-voltage1_raw", {"in_voltage0__voltage1_raw": "-8", "in_voltage__voltage_scale": "0.125"}, -0.001),
        ("in_accel_x_raw", {"in_accel_x_raw": "-16384", "in_accel_scale": "0.000598550"}, -9.806643),
        ("in_current3_raw", {"in_current3_raw": "10000", "in_current3_scale": "1.0"}, 10.0),
    ],
)  # fmt: skip
async def test_raw_values_of_iio(file, files, expected):
    """(i): scale is applied after the offset; the nearest of both counts."""
    assert await value(file, IIO, **files) == expected


async def test_a_raw_value_without_a_scale_is_none():
    """(i): raw numbers have no unit."""
    device = await probed(bus(IIO, in_voltage0_raw="7"), {"x": "in_voltage0_raw"})
    with pytest.raises(DataError, match="chip: in_voltage0_raw: the kernel tells no scale"):
        await device.read()


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("temp1_input", "-280000", "-280 Cel cannot be"),
        ("humidity1_input", "100100", "100.1 %RH cannot be"),
        ("temp1_input", "nan", "nan Cel cannot be"),
        ("temp1_input", "inf", "cannot be"),
        ("temp1_input", "", "'' is no number"),
        ("temp1_input", "N/A", "'N/A' is no number"),
    ],
)
async def test_what_cannot_be_is_an_error(file, text, words):
    device = await probed(bus(**{file: text}), {"x": file})
    with pytest.raises(DataError, match=words):
        await device.read()


async def test_a_sensor_that_its_chip_calls_broken_has_no_value():
    """(h): tempX_fault, 1: the reading of this diode is not to be trusted."""
    chip = bus(temp1_input="21500", temp2_input="127000", temp1_fault="0", temp2_fault="1")
    device = await probed(chip, {"board": "temp1_input", "probe": "temp2_input"})
    board, remote = await device.read()
    assert (board.value, board.quality) == (21.5, "ok")
    assert (remote.value, remote.quality) == (None, "error")
    assert "open, shorted or absent" in remote.note


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA, errno.EAGAIN, errno.ETIMEDOUT])
async def test_a_channel_that_fails_hides_no_other(number):
    device = await probed(
        bus(temp1_input="21500", in0_input=number), {"t": "temp1_input", "v": "in0_input"}
    )
    temperature, voltage = await device.read()
    assert (temperature.channel, temperature.value) == ("t", 21.5)
    assert (voltage.value, voltage.quality) == (None, "error")
    assert "in0_input" in voltage.note


async def test_when_every_channel_fails_it_is_a_failure():
    chip = bus(temp1_input=errno.EIO, in0_input="x")
    device = await probed(chip, {"t": "temp1_input", "v": "in0_input"})
    with pytest.raises(BusError) as caught:
        await device.read()
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENXIO, errno.EREMOTEIO, errno.ENOENT])
async def test_a_chip_that_is_gone_is_no_device(number):
    """It is looked for anew then, and found under another number."""
    chip = bus(temp1_input="21500", in0_input="1")
    device = await probed(chip, {"t": "temp1_input", "v": "in0_input"})
    chip.files[f"{HWMON}/in0_input"] = number
    with pytest.raises(NoDeviceError):
        await device.read()


async def test_the_numbers_of_hwmon_do_not_matter():
    chips = bus(temp1_input="21500")
    chips.files["class/hwmon/hwmon0/name"] = "cpu_thermal"
    chips.files["class/hwmon/hwmon1/temp1_input"] = "1"
    chips.files["bus/iio/devices/trigger0/name"] = "chip"
    device = await probed(chips, {"t": "temp1_input"})
    assert (await device.read())[0].value == 21.5
    assert device.identity == "chip"


async def test_what_is_not_there_is_refused_with_what_there_is():
    chips = bus(name="lm75", temp1_input="1")
    chips.files[f"{IIO}/name"] = "bmp280"
    with pytest.raises(NoDeviceError, match="the kernel shows no chip, but bmp280, lm75$"):
        await probed(chips, {"t": "temp1_input"})
    with pytest.raises(NoDeviceError, match="no chip at bus/i2c/devices/1-0048, but nothing"):
        await probed(chips, {"t": "temp1_input"}, device="bus/i2c/devices/1-0048")


async def test_a_file_that_the_chip_lacks_is_named_with_those_it_has():
    chip = bus(temp1_input="1", in0_input="1", temp1_max="2", in_voltage0_raw="3")
    with pytest.raises(
        NoDeviceError, match="chip has no temp2_input: it has in0_input, in_voltage0_raw, temp1_in"
    ):
        await probed(chip, {"t": "temp2_input"})
    with pytest.raises(NoDeviceError, match="it has none"):
        await probed(bus(), {"t": "temp2_input"})


@pytest.mark.parametrize(
    "path", ["bus/i2c/devices/1-0049/hwmon/hwmon3", "bus/i2c/devices/1-0049/iio:device1"]
)
async def test_of_two_of_a_name_the_one_at_its_place_is_taken(path):
    """1-0049 is the second chip on i2c-1; hwmon's numbers change, its address does not."""
    chips = bus(temp1_input="1000")
    chips.files |= {
        "class/hwmon/hwmon3/name": "chip",
        f"{path}/name": "chip",
        f"{path}/temp1_input": "49000",
        "bus/i2c/devices/1-0049/name": "chip",
    }
    with pytest.raises(NoDeviceError, match="several of chip: name one by `device`"):
        await probed(chips, {"t": "temp1_input"})
    place = "bus/i2c/devices/1-0049"
    device = await probed(chips, {"t": "temp1_input"}, device=place)
    assert (await device.read())[0].value == 49.0
    assert device.identity == f"chip ({place})"


def test_channels_are_what_the_settings_name():
    config = kernel.Config(name="x", channels={"air": "temp1_input", "supply": "in0_input"})
    found = [(c.name, c.unit) for c in kernel.channels(config)]
    assert found == [("air", "Cel"), ("supply", "V")]


@pytest.mark.parametrize(
    ("channels", "words"),
    [
        ({}, "length >= 1"),
        ({"T 1": "temp1_input"}, "'T 1' is no name"),
        ({"t": "temp1_max"}, "'temp1_max' is no file that edged knows"),
        ({"t": "pwm1_input"}, "no file that edged knows"),
        ({"t": "in_magn_x_raw"}, "no file that edged knows"),
        ({"t": "../../../etc/passwd"}, "no file that edged knows"),
        ({"t": "uevent"}, "no file that edged knows"),
    ],
)
def test_wrong_settings_are_refused(channels, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert({"name": "lm75", "channels": channels}, kernel.Config)


async def test_the_model_is_a_board_with_two_chips():
    """The bmp280 in iio, as the kernel shows it."""
    sim = kernel.Sim(FakeClock(), temperature_cel=-10.0, pressure_pa=100_653.27)
    files = {"temperature": "in_temp_input", "pressure": "in_pressure_input"}
    device = await probed(SimSysfs(sim.files), files, name="bmp280")
    assert [s.value for s in await device.read()] == [-10.0, 100_653.27]
