"""The VL53L0X driver: what results mean, and its register model through the bus."""

import pytest

from edged.bus.sim import SimI2c
from edged.drivers import vl53l0x
from edged.errors import BusError, DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return vl53l0x.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x29: sim})


@pytest.fixture
async def device(bus, clock):
    return await vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)


def result(status, distance_mm):
    """The chip's twelve bytes from RESULT."""
    return bytes([status << 3 | 4, *bytes(9), *distance_mm.to_bytes(2, "big")])


@pytest.mark.parametrize(
    ("status", "distance_mm", "value", "note"),
    [
        (11, 500, 0.5, ""),
        (11, 0, 0.0, ""),
        (11, 2000, 2.0, ""),
        (11, 8190, None, "no target in range"),
        (11, 8191, None, "no target in range"),
        (6, 8190, None, "no target in range"),
        (6, 700, None, "the target is beyond its range"),
        (9, 700, None, "the target is beyond its range"),
        (4, 700, None, "too little light comes back"),
        (7, 700, None, "the measurement is too uncertain"),
        (12, 700, None, "no valid measurement (status 12)"),
        (0, 0, None, "no valid measurement (status 0)"),
    ],
)
def test_only_a_valid_result_is_a_distance(status, distance_mm, value, note):
    """API, VL53L0X_get_pal_range_status; fault 35: 8190 was taken for a distance."""
    sample = vl53l0x.sample(result(status, distance_mm))
    assert (sample.value, sample.note) == (value, note)
    assert sample.raw == result(status, distance_mm)
    assert sample.quality == ("ok" if value is not None else "error")


@pytest.mark.parametrize("status", [1, 2, 3])
def test_a_faulty_chip_gives_no_sample(status):
    """The laser's watchdogs and a missing calibration."""
    with pytest.raises(ValueError, match=f"its laser or its calibration failed .status {status}"):
        vl53l0x.sample(result(status, 500))


@pytest.mark.parametrize(
    ("good", "count", "aperture", "chosen"),
    [
        ("FFFFFFFFFFFF", 5, True, "00F001000000"),
        ("FFFFFFFFFFFF", 3, False, "070000000000"),
        ("FFEFFFFFFFFF", 5, True, "00E003000000"),
        ("000000000000", 5, True, "000000000000"),
        ("FFFFFFFFFFFF", 48, False, "FFFFFFFFFFFF"),
        ("FFFFFFFFFFFF", 0, False, "000000000000"),
    ],
)
def test_the_first_good_detectors_of_a_kind_are_chosen(good, count, aperture, chosen):
    """API, VL53L0X_set_reference_spads: those with an aperture begin at the 13th."""
    found = vl53l0x.reference_spads(bytes.fromhex(good), count, aperture=aperture)
    assert found.hex().upper() == chosen


def test_the_time_of_a_ranging_follows_from_its_registers():
    """UM2039, timing budget: the steps' timeouts in macro periods, and fixed overheads."""
    set_to = {}
    page = 0
    for start in range(0, len(vl53l0x.TUNING + vl53l0x._READY), 2):
        register, value = (vl53l0x.TUNING + vl53l0x._READY)[start : start + 2]
        page = value if register == 0xFF else page
        set_to[page, register] = value

    def periods(register):
        return (set_to[0, register + 1] << set_to[0, register]) + 1

    def period_us(register):
        return 2304 * 2 * (set_to[0, register] + 1) * 1.655 / 1000

    steps_us = 2 * ((set_to[0, 0x46] + 1) * period_us(0x50) + 690)
    steps_us += periods(0x51) * period_us(0x50) + 660
    steps_us += (periods(0x71) - periods(0x51)) * period_us(0x70) + 550
    assert set_to[0, 0x01] == 0xE8
    assert (1910 + 960 + steps_us) / 1e6 == pytest.approx(vl53l0x.BUDGET_S, abs=0.0005)


@pytest.mark.parametrize("distance", [0.03, 0.5, 1.234, 2.0])
async def test_it_reads_what_is_true(distance, sim, device):
    sim.distance_m = distance
    (sample,) = await device.read()
    assert (sample.channel, sample.value, sample.quality) == ("distance", distance, "ok")
    assert device.identity == "VL53L0X, revision 0x10"


async def test_without_a_target_there_is_no_value(sim, device):
    """Fault 35."""
    sim.distance_m = None
    (sample,) = await device.read()
    assert (sample.value, sample.quality, sample.note) == (None, "error", "no target in range")


async def test_each_reading_is_a_ranging_of_its_own(sim, device, clock):
    """A reading that was given up leaves its result; it is not the next one's."""
    sim.write(bytes([vl53l0x.SYSRANGE_START, 1]))
    clock.advance(1)
    assert sim.read(1)
    sim.distance_m, sim.ranging_s = 1.0, 0.06
    before = clock.monotonic()
    assert (await device.read())[0].value == 1.0
    assert clock.monotonic() - before == pytest.approx(0.06, abs=0.005)


async def test_set_up_leaves_the_chip_as_the_api_does(sim, bus, device):
    """The factory's choice of detectors: 5 with an aperture, of those that are good (0xEF)."""
    sim.write(bytes([vl53l0x.SPAD_ENABLES]))
    assert sim.read(6) == bytes.fromhex("00E003000000")
    for register, value in ((0x01, 0xE8), (0x60, 0x00), (0x84, 0x01), (0x89, 0x01), (0x0A, 0x04)):
        sim.write(bytes([register]))
        assert sim.read(1) == bytes([value]), hex(register)


async def test_it_is_set_up_again_without_a_reset(bus, clock, device):
    """The daemon starts again, the chip stays powered: its stop variable is still there."""
    again = await vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)
    assert (await again.read())[0].value == 0.5


async def test_after_a_brown_out_it_is_an_error_until_it_is_set_up_again(bus, clock, device):
    """Fault 32: what a chip measures after a dip looks right."""
    bus.brown_out(0x29)
    with pytest.raises(DataError, match="it forgot its settings: its supply dipped"):
        await device.read()
    device = await vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)
    assert (await device.read())[0].value == 0.5


async def test_a_chip_that_says_it_failed_is_an_error(sim, bus, clock):
    """Another program spoiled its stop variable, which only a reset brings back."""
    sim.write(b"\xff\x01")
    sim.write(bytes([vl53l0x.STOP_VARIABLE, 0]))
    sim.write(b"\xff\x00")
    device = await vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)
    with pytest.raises(DataError, match="calibration failed .status 3.: power it off and on"):
        await device.read()


async def test_nothing_is_waited_for_for_ever(sim, bus, clock, device):
    """Fault 35 (Adafruit_VL53L0X#23): endless loops in each of its waits."""
    sim.hangs = True
    for action in (device.read, lambda: vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)):
        before = clock.monotonic()
        with pytest.raises(DataError, match="does not become ready: power it off and on .XSHUT"):
            await action()
        assert clock.monotonic() - before < 0.3


class Canned:
    """A chip whose registers all read the same few bytes."""

    def __init__(self, answer):
        self.answer = bytes.fromhex(answer)

    def write(self, data):
        pass

    def read(self, length):
        return self.answer.ljust(length, b"\x00")[:length]


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        ("FFFFFF", NoDeviceError, "does not answer \\(all ones\\)"),
        ("000000", NoDeviceError, "does not answer \\(all zeros\\)"),
        ("440000", DataError, "is not a VL53L0X: its id is 440000; TCS34725, TSL2561"),
        ("EECC10", DataError, "is not a VL53L0X: its id is eecc10"),
    ],
)
async def test_another_chip_is_named(found, error, words, clock):
    """Datasheet, reference registers: EE, AA and 10 from 0xC0."""
    bus = SimI2c("i2c-1", {0x29: Canned(found)})
    with pytest.raises(error, match=words):
        await vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)


async def test_all_ones_in_the_midst_of_a_reading_are_no_distance(bus, clock):
    """The wire comes off after the ranging began."""
    comes_off = []

    async def sleep(seconds):
        await clock.sleep(seconds)
        if comes_off:
            bus.fail(0x29, "all_ones")

    device = await vl53l0x.probe(vl53l0x.Config(), bus, sleep)
    comes_off.append("now")
    with pytest.raises(NoDeviceError, match="VL53L0X at 0x29 on i2c-1 does not answer"):
        await device.read()


@pytest.mark.parametrize(
    ("kind", "error"),
    [("nack", NoDeviceError), ("timeout", BusError), ("all_ones", NoDeviceError)],
)
async def test_a_fault_is_an_error_and_never_a_value(kind, error, bus, clock, device):
    """Issue 3, part 5: never a made-up number."""
    bus.fail(0x29, kind)
    for action in (device.read, lambda: vl53l0x.probe(vl53l0x.Config(), bus, clock.sleep)):
        with pytest.raises(error):
            await action()
    bus.fail(0x29, kind, times=0)
    assert (await device.read())[0].quality == "ok"
