"""The 1-wire thermometers: datasheet values, and their model through the bus.

The scratchpads are those of Maxim's datasheets; the table is DS18B20, table 1.
"""

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimOneWire
from edged.drivers import ds18b20
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock

ID = "28-0316a2795bff"


def scratchpad(low, high=0, config=0x7F, remain=0x10, per_degree=0x10):
    data = bytes([low, high, 0x4B, 0x46, config, 0xFF, remain, per_degree])
    return data + bytes([ds18b20.crc8(data)])


class Device:
    """A device whose files are a table."""

    def __init__(self, **files):
        self.files = files

    def file(self, attribute):
        return self.files.get(attribute, errno.ENOENT)

    def write(self, attribute, text):
        raise BusError(errno.EACCES, f"edged may not open {attribute}")


def shown(data):
    return f"{data.hex(' ')} : crc={ds18b20.crc8(data[:-1]):02x} YES\n{data.hex(' ')} t=21000\n"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return ds18b20.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimOneWire(dict(sim.devices))


async def probed(bus, clock, **settings):
    return await ds18b20.probe(ds18b20.Config(**settings), bus, clock.sleep)


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        ("02 1C B8 01 00 00 00", 0xA2),  # ROM code of application note 27
        ("50 05 4B 46 7F FF 0C 10", 0x1C),
        ("5E FF 4B 46 7F FF 02 10", 0xB6),
    ],
)
def test_the_checksum_is_that_of_1_wire(data, crc):
    """Application note 27; what it covers together with its CRC gives 0."""
    assert ds18b20.crc8(bytes.fromhex(data)) == crc
    assert ds18b20.crc8(bytes.fromhex(data) + bytes([crc])) == 0


@pytest.mark.parametrize(
    ("code", "cel"),
    [
        (0x07D0, 125.0),
        (0x0550, 85.0),
        (0x0191, 25.0625),
        (0x00A2, 10.125),
        (0x0008, 0.5),
        (0x0001, 0.0625),
        (0x0000, 0.0),
        (0xFFFF, -0.0625),
        (0xFFF0, -1.0),
        (0xFFF8, -0.5),
        (0xFF5E, -10.125),
        (0xFE6F, -25.0625),
        (0xFC90, -55.0),
    ],
)
@pytest.mark.parametrize("family", ["28", "22"])
def test_the_table_of_temperatures(code, cel, family):
    """DS18B20, table 1; a genuine 85 leaves 0x10 in byte 6 (fault 32), -1 is no 65535 (27)."""
    data = scratchpad(code & 0xFF, code >> 8)
    assert ds18b20.decode(data, family) == (cel, 12)


@pytest.mark.parametrize(
    ("config", "resolution", "cel"),
    [(0x1F, 9, 25.5), (0x3F, 10, 25.75), (0x5F, 11, 25.875), (0x7F, 12, 25.9375)],
)
def test_below_12_bits_the_undefined_ones_do_not_count(config, resolution, cel):
    """DS18B20, table 2: at 9 bits, bits 2, 1 and 0 are undefined."""
    assert ds18b20.decode(scratchpad(0x9F, 0x01, config)) == (cel, resolution)


@pytest.mark.parametrize(
    ("low", "high", "remain", "cel"),
    [
        (0x32, 0x00, 0x0C, 25.0),
        (0x33, 0x00, 0x0F, 24.8125),
        (0x32, 0x00, 0x01, 25.6875),
        (0x01, 0x00, 0x0C, 0.0),
        (0xFF, 0xFF, 0x0C, -1.0),
        (0xCE, 0xFF, 0x0C, -25.0),
        (0x92, 0xFF, 0x0C, -55.0),
        (0xAA, 0x00, 0x04, 85.5),
    ],
)
def test_the_ds18s20_is_half_a_degree_made_finer_by_its_counters(low, high, remain, cel):
    """DS18S20: TEMP_READ - 0.25 + (COUNT_PER_C - COUNT_REMAIN) / COUNT_PER_C."""
    assert ds18b20.decode(scratchpad(low, high, 0xFF, remain), "10").temperature_cel == cel


@pytest.mark.parametrize(("remain", "per_degree"), [(0x0C, 0), (0x11, 0x10)])
def test_counters_that_make_no_sense_are_no_temperature(remain, per_degree):
    with pytest.raises(DataError, match="counters make no sense"):
        ds18b20.decode(scratchpad(0x32, 0, 0xFF, remain, per_degree), "10")


@pytest.mark.parametrize(
    ("data", "family", "error", "words"),
    [
        (ds18b20.POWER_ON_SCRATCHPAD, "28", DataError, "85 °C of its power-on"),
        (ds18b20.POWER_ON_SCRATCHPAD, "22", DataError, "85 °C of its power-on"),
        (scratchpad(0xAA, 0, 0xFF, 0x0C), "10", DataError, "85 °C of its power-on"),
        (scratchpad(0xFF, 0x07, remain=0x01), "28", DataError, "127.94 °C"),
        (bytes(9), "28", DataError, "all zeros: its data line is shorted"),
        (b"\xff" * 9, "28", NoDeviceError, r"all ones\): check its wiring"),
        (bytes.fromhex("5eff4b467fff0210b7"), "28", DataError, "checksum is wrong"),
        (bytes.fromhex("5fff4b467fff0210b6"), "28", DataError, "checksum is wrong"),
    ],
)
def test_what_only_looks_like_a_temperature_is_none(data, family, error, words):
    """Fault 32: power-on and brown-out values in range; all zeros have a valid CRC of 0."""
    with pytest.raises(error, match=words):
        ds18b20.decode(data, family)


def test_a_power_on_value_that_was_measured_is_a_temperature():
    """Genuine 85 °C: byte 6 is not 0x0C."""
    assert ds18b20.decode(scratchpad(0x50, 0x05, remain=0x10)).temperature_cel == 85.0
    # 0x0C stands for four sixteenths: with another temperature it says nothing.
    assert ds18b20.decode(scratchpad(0x54, 0x05, remain=0x0C)).temperature_cel == 85.25


@given(st.binary(min_size=9, max_size=9))
def test_no_noise_is_ever_a_temperature_without_its_checksum(data):
    try:
        reading = ds18b20.decode(data)
    except (DataError, NoDeviceError):
        return
    assert ds18b20.crc8(data) == 0
    assert -2048 <= reading.temperature_cel < 2048


@given(st.integers(-55_000, 125_000), st.sampled_from([9, 10, 11, 12]))
def test_encoding_and_decoding_agree(millis, resolution):
    cel = millis / 1000
    reading = ds18b20.decode(ds18b20.encode(cel, resolution))
    assert reading.resolution == resolution
    assert 0 <= cel - reading.temperature_cel < 2 ** (8 - resolution)


def test_the_scratchpad_is_in_the_first_line():
    """w1_therm.rst: `50 05 4b 46 7f ff 0c 10 1c : crc=1c YES`."""
    text = "5e ff 4b 46 7f ff 02 10 b6 : crc=b6 YES\n5e ff 4b 46 7f ff 02 10 b6 t=-10125"
    assert ds18b20.parse(text) == bytes.fromhex("5eff4b467fff0210b6")
    # After a failed CRC the second line holds the last good one, which is old.
    text = "00 ff 4b 46 7f ff 02 10 b6 : crc=17 NO\n5e ff 4b 46 7f ff 02 10 b6 t=-10125"
    assert ds18b20.parse(text)[0] == 0


@pytest.mark.parametrize(
    "text", ["21500", "", "5e ff 4b : crc=b6 YES", "zz " * 9 + ": crc=00 YES"]
)
def test_another_file_is_refused(text):
    with pytest.raises(DataError, match="no scratchpad"):
        ds18b20.parse(text)


@pytest.mark.parametrize("cel", [21.5, -10.125, 0.0, -0.5, 125.0, -55.0, 85.0])
async def test_it_reads_what_is_true(cel, sim, bus, clock):
    sim.temperature_cel = cel
    device = await probed(bus, clock)
    assert await device.read() == (("temperature", cel, "ok", "", b""),)
    assert device.identity == f"DS18B20 {ID}"


async def test_the_temperature_drifts_with_the_clock(clock):
    sim = ds18b20.Sim(clock, drift_cel=2.0)
    device = await probed(SimOneWire(sim.devices), clock)
    values = []
    for _ in range(36):
        clock.advance(25.0)
        values.append((await device.read())[0].value)
    assert (min(values), max(values)) == (16.0, 20.0)


@pytest.mark.parametrize(("code", "limit"), [(0x07E0, 125.0), (0xFC80, -55.0)])
async def test_beyond_the_chips_range_the_limit_is_given_and_marked(code, limit, sim, bus, clock):
    device = await probed(bus, clock)
    sim.scratchpad = scratchpad(code & 0xFF, code >> 8)
    (sample,) = await device.read()
    assert (sample.value, sample.quality, sample.note) == (
        limit,
        "clipped",
        "beyond the chip's range",
    )


async def test_after_a_brown_out_there_is_an_error_and_then_a_value_again(sim, bus, clock):
    """Fault 32."""
    device = await probed(bus, clock)
    sim.scratchpad = ds18b20.POWER_ON_SCRATCHPAD
    with pytest.raises(DataError, match=f"DS18B20 {ID}: gives the 85 °C of its power-on"):
        await device.read()
    sim.scratchpad = None
    assert (await device.read())[0].value == 18.0


async def test_a_thermometer_that_is_gone_or_answers_nothing_is_an_error(sim, bus, clock):
    """Its directory vanishes, or the kernel's file is empty."""
    device = await probed(bus, clock)
    bus.targets[ID] = Device(w1_slave="")
    with pytest.raises(BusError):
        await device.read()
    del bus.targets[ID]
    with pytest.raises(NoDeviceError, match=f"no 1-wire device {ID}"):
        await device.read()


async def test_the_only_thermometer_needs_no_id(clock, sim):
    """A DS2413 (family 3a) on the same line is none."""
    bus = SimOneWire({"3a-000000112233": Device(), **sim.devices})
    assert (await probed(bus, clock)).identity.endswith(ID)


async def test_several_thermometers_need_an_id(clock, sim):
    other = "10-000802824e58"
    bus = SimOneWire(
        {other: Device(w1_slave=shown(scratchpad(0x32, 0, 0xFF, 0x0C))), **sim.devices}
    )
    with pytest.raises(NoDeviceError, match=f"several thermometers, name one: {other}, {ID}"):
        await probed(bus, clock)
    device = await probed(bus, clock, id=other)
    assert device.identity == f"DS18S20 {other}"
    assert (await device.read())[0].value == 25.0
    with pytest.raises(DataError, match="has but one resolution"):
        await probed(bus, clock, id=other, resolution=9)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "check power, data line and its pull-up"),
        (["00-800000000000", "00-400000000000"], "phantoms .* lacks a pull-up of 4.7"),
    ],
)
async def test_none_at_all_says_what_to_check(ids, words, clock):
    """Phantom ids 00-*: no pull-up."""
    with pytest.raises(NoDeviceError, match=words):
        await probed(SimOneWire({i: Device() for i in ids}), clock)


async def test_the_resolution_is_set_when_it_differs(sim, bus, clock):
    sim.temperature_cel = 20.9375
    device = await probed(bus, clock, resolution=9)
    assert (await device.read())[0].value == 20.5
    sim.fixed_resolution = True
    await probed(bus, clock, resolution=9)


async def test_a_counterfeit_that_keeps_its_resolution_is_told(sim, bus, clock):
    sim.fixed_resolution = True
    with pytest.raises(DataError, match="stays at 12 bits, as many counterfeits do"):
        await probed(bus, clock, resolution=10)


async def test_a_resolution_that_edged_may_not_set_is_an_error(clock):
    """The kernel's file is root's."""
    bus = SimOneWire({ID: Device(w1_slave=shown(ds18b20.encode(20.0)))})
    with pytest.raises(BusError, match="edged may not open resolution"):
        await probed(bus, clock, resolution=9)


@pytest.mark.parametrize(
    "settings", [{"id": "3a-000000112233"}, {"id": "28-xyz"}, {"resolution": 8}, {"pin": 4}]
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, ds18b20.Config)


async def test_the_model_shows_the_kernels_other_files(sim, bus):
    """w1_therm.rst: temperature in thousandths."""
    sim.temperature_cel = -10.125
    assert await bus.read(ID, "temperature") == "-10125"
    assert await bus.read(ID, "resolution") == "12"
    await bus.write(ID, "eeprom", "save")
    sim.scratchpad = bytes(8) + b"\x01"
    assert "crc=00 NO" in await bus.read(ID, "w1_slave")
