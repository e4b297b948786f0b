"""The DS3231 driver: what the registers mean, and its model through the bus."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimI2c
from edged.drivers import ds3231
from edged.drivers.ds3231 import SetTime
from edged.errors import BusError, BusyError, DataError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return ds3231.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x68: sim})


@pytest.fixture
async def device(bus, clock):
    return await ds3231.probe(ds3231.Config(), bus, clock.sleep)


class Canned:
    """Registers that never change."""

    def __init__(self, memory):
        self.memory = bytes.fromhex(memory)

    def write(self, data):
        pass

    def read(self, length):
        return self.memory[:length].ljust(length, b"\x00")


@pytest.mark.parametrize(
    ("data", "cel"),
    [
        ("1940", 25.25),
        ("F6C0", -9.25),
        ("0000", 0.0),
        ("FFC0", -0.25),
        ("D800", -40.0),
        ("5500", 85.0),
    ],
)
def test_temperature(data, cel):
    """Temperature registers, 0x11 and 0x12: 10 bits with sign, a quarter of a degree (fault 27)."""
    assert ds3231.temperature_cel(bytes.fromhex(data)) == cel


@pytest.mark.parametrize(
    ("data", "time"),
    [
        ("00 00 00 06 01 01 00", datetime(2000, 1, 1, tzinfo=UTC)),
        ("59 59 23 04 31 12 99", datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("07 30 20 01 28 02 16", datetime(2016, 2, 28, 20, 30, 7, tzinfo=UTC)),
        ("07 30 68 01 28 02 16", datetime(2016, 2, 28, 20, 30, 7, tzinfo=UTC)),
        ("07 30 48 01 28 02 16", datetime(2016, 2, 28, 8, 30, 7, tzinfo=UTC)),
        ("00 00 52 01 29 02 16", datetime(2016, 2, 29, 0, 0, 0, tzinfo=UTC)),
        ("00 00 72 01 29 02 16", datetime(2016, 2, 29, 12, 0, 0, tzinfo=UTC)),
        ("00 00 71 01 29 82 16", datetime(2016, 2, 29, 23, 0, 0, tzinfo=UTC)),
    ],
)
def test_time(data, time):
    """Figure 1; fault 36: 8 PM was read as 14, the century's bit as seven years."""
    assert ds3231.decode_time(bytes.fromhex(data)) == time.timestamp()


@pytest.mark.parametrize(
    "data",
    [
        "5A 00 00 06 01 01 00",
        "A0 00 00 06 01 01 00",
        "60 00 00 06 01 01 00",
        "00 00 24 06 01 01 00",
        "00 00 40 06 01 01 00",
        "00 00 53 06 01 01 00",
        "00 00 00 06 30 02 16",
        "00 00 00 00 00 00 00",
        "FF FF FF FF FF FF FF",
    ],
)
def test_what_is_no_time_is_refused(data):
    """Fault 36: BCD is checked; all ones would decode to 165 seconds."""
    with pytest.raises(ValueError, match=r"digits|must be|o'clock|day is out|month"):
        ds3231.decode_time(bytes.fromhex(data))


@given(st.integers(ds3231.FIRST_S, ds3231.LAST_S))
def test_times_encode_and_decode_to_themselves(seconds):
    assert ds3231.decode_time(ds3231.encode_time(seconds)) == seconds


@given(st.integers(0, 86_399))
def test_the_model_counts_twelve_hours_too(second):
    clock = FakeClock(now=1_700_000_000.0 // 86_400 * 86_400 + second)
    sim = ds3231.Sim(clock, twelve_hours=True)
    sim.write(b"\x00")
    data = sim.read(7)
    assert data[2] & 0x40
    assert ds3231.decode_time(data) == int(clock.now())


@pytest.mark.parametrize("twelve_hours", [False, True])
@pytest.mark.parametrize("cel", [-39.75, -0.25, 0.0, 21.5])
async def test_it_reads_what_is_true(cel, twelve_hours, clock):
    sim = ds3231.Sim(clock, temperature_cel=cel, twelve_hours=twelve_hours)
    device = await ds3231.probe(ds3231.Config(), SimI2c("i2c-1", {0x68: sim}), clock.sleep)
    clock.advance(3600 * 13)
    temperature, time = await device.read()
    assert (temperature.value, temperature.quality) == (cel, "ok")
    assert (time.value, time.quality) == (int(clock.now()), "ok")
    assert ds3231.temperature_cel(temperature.raw) == cel
    assert ds3231.decode_time(time.raw) == time.value
    assert device.identity == "DS3231"


async def test_a_clock_that_lost_its_power_has_no_time_until_it_is_set(clock):
    """Status register, OSF: the time is not right; fault 36."""
    bus = SimI2c("i2c-1", {0x68: ds3231.Sim(clock, battery=False)})
    device = await ds3231.probe(ds3231.Config(), bus, clock.sleep)
    bus.brown_out(0x68)
    temperature, time = await device.read()
    assert temperature.value == 21.5
    assert (time.value, time.quality) == (None, "error")
    assert "set it with set_time" in time.note
    await device.act("set_time", SetTime("2026-01-31T12:00:00Z"))
    clock.advance(5)
    assert (await device.read())[1].value == datetime(
        2026, 1, 31, 12, 0, 5, tzinfo=UTC
    ).timestamp()


async def test_a_clock_with_a_battery_keeps_its_time(bus, clock, device):
    bus.brown_out(0x68)
    assert (await device.read())[1].value == int(clock.now())


async def test_setting_it_has_it_run_on_its_battery_and_keeps_the_alarms(sim, device):
    """Control register: EOSC is active low. Status register: a 0 clears an alarm's flag."""
    sim.write(bytes([ds3231.CONTROL, 0x9C, 0x8A]))
    said = await device.act("set_time", SetTime("2026-01-31T13:00:00+01:00"))
    assert said == "the clock is set to 2026-01-31T12:00:00.000Z"
    sim.write(bytes([ds3231.CONTROL]))
    assert sim.read(2) == bytes([0x1C, 0x0B])


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("noon", "'noon' is not a time with its zone"),
        ("2026-01-31T12:00:00", "is not a time with its zone"),
        ("1999-12-31T23:59:59Z", "from 2000 to 2099"),
        ("2100-01-01T00:00:00Z", "from 2000 to 2099"),
    ],
)
async def test_a_time_that_it_cannot_hold_is_refused_before_anything_is_written(
    time, words, bus, device
):
    bus.stuck = True
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act("set_time", SetTime(time))


async def test_a_time_that_it_does_not_take_is_an_error(bus, device):
    """Read back: a chip that is write-protected or another one."""
    bus.targets[0x68] = Canned("00 00 00 06 01 01 00")
    with pytest.raises(DataError, match="DS3231 at 0x68 on i2c-1: it did not take the time"):
        await device.act("set_time", SetTime("2026-01-31T12:00:00Z"))


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [
        ("FF" * 19, NoDeviceError, "DS3231 at 0x68 on i2c-1 does not answer \\(all ones\\)"),
        ("00" * 19, DataError, "is it another chip, an MPU6050"),
        ("00 00 00 06 01 01 00" + "00" * 8 + "10 00 00 00", DataError, "always clear"),
        ("00 00 00 06 01 01 00" + "00" * 8 + "00 00 19 41", DataError, "always clear"),
    ],
)
async def test_what_is_no_ds3231_is_refused(memory, error, words, clock):
    """Its address is the MPU6050's too, and it has no identity."""
    bus = SimI2c("i2c-1", {0x68: Canned(memory)})
    with pytest.raises(error, match=words):
        await ds3231.probe(ds3231.Config(), bus, clock.sleep)


@pytest.mark.parametrize(("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError)])
async def test_a_fault_is_an_error_and_never_a_value(kind, error, bus, device):
    bus.fail(0x68, kind)
    for action in (
        device.read,
        device.safe,
        lambda: device.act("set_time", SetTime("2026-01-31T12:00:00Z")),
    ):
        with pytest.raises(error):
            await action()
    bus.fail(0x68, kind, times=0)
    await device.safe()
    assert (await device.read())[1].quality == "ok"


async def test_a_clock_that_the_kernel_owns_is_left_to_it(bus, clock):
    """Fault 25: rtc-ds1307 serves it as /dev/rtc."""
    bus.owners[0x68] = "rtc-ds1307"
    with pytest.raises(BusyError):
        await ds3231.probe(ds3231.Config(), bus, clock.sleep)
