"""The simulated buses behave as the Protocols say and as hardware does."""

import errno
from itertools import pairwise

import msgspec
import pytest

from edged.bus import LineSettings
from edged.bus.faults import i2c_error
from edged.bus.settings import GpioConfig, SensorConfig
from edged.bus.sim import BOUNCE_S, Button, SimGpio, SimI2c, StoryButton, debounced
from edged.errors import BusError, NoDeviceError


class Memory:
    """A register model of plain memory; keeps what it was asked."""

    def __init__(self):
        self.content = bytearray(range(16))
        self.seen = []

    def write(self, data):
        self.seen.append(("write", data))
        self.pointer = data[0]

    def read(self, length):
        self.seen.append(("read", length))
        return bytes(self.content[self.pointer : self.pointer + length])


class Seconds:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def bus(memory):
    return SimI2c("i2c-1", {0x50: memory})


@pytest.fixture
def time():
    return Seconds(100.0)


@pytest.fixture
def button(time):
    return Button(time)


@pytest.fixture
def gpio(button, time):
    return SimGpio({"GPIO17": None, "GPIO27": button}, time)


async def test_a_transfer_writes_then_reads(bus, memory):
    """UM10204, section 3.1.10: combined format with a repeated start."""
    assert await bus.transfer(0x50, b"\x04", 3) == b"\x04\x05\x06"
    assert await bus.transfer(0x50, b"\x02\xff") == b""
    assert memory.seen == [("write", b"\x04"), ("read", 3), ("write", b"\x02\xff")]


async def test_a_read_alone_writes_nothing(bus, memory):
    memory.pointer = 8
    assert await bus.transfer(0x50, read_len=1) == b"\x08"
    assert memory.seen == [("read", 1)]


async def test_ordered_nacks_end_after_their_number(bus):
    bus.fail(0x50, "nack", times=2)
    for _ in range(2):
        with pytest.raises(NoDeviceError):
            await bus.transfer(0x50, b"\x00", 1)
    assert await bus.transfer(0x50, b"\x00", 1) == b"\x00"


async def test_a_stuck_bus_times_out_with_the_kernels_errno_until_it_is_mended(bus):
    """ETIMEDOUT is what adapters report of a held clock."""
    bus.fail(0x50, "timeout")
    for _ in range(3):
        with pytest.raises(BusError, match="the bus is stuck") as caught:
            await bus.transfer(0x50, b"\x00", 1)
        assert caught.value.errno == errno.ETIMEDOUT
    bus.fail(0x50, "timeout", times=0)
    assert await bus.transfer(0x50, b"\x01", 1) == b"\x01"


async def test_all_ones_and_gone(bus, memory):
    bus.fail(0x50, "all_ones", times=1)
    assert await bus.transfer(0x50, b"\x00", 4) == b"\xff" * 4
    del bus.targets[0x50]
    with pytest.raises(NoDeviceError):
        await bus.transfer(0x50, b"\x00", 4)
    bus.targets[0x50] = memory
    assert await bus.transfer(0x50, b"\x00", 1) == b"\x00"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EREMOTEIO, NoDeviceError),
        (errno.ENXIO, NoDeviceError),
        (errno.ENODEV, NoDeviceError),
        (errno.ETIMEDOUT, BusError),
        (errno.EIO, BusError),
    ],
)
def test_errno_becomes_the_same_error_on_every_adapter(number, kind):
    """Adapters report an unacknowledged address as EREMOTEIO, ENXIO or ENODEV."""
    assert type(i2c_error(number, "i2c-1", 0x76)) is kind


async def test_a_line_is_found_by_name_and_by_chip_and_offset(gpio):
    await (
        await gpio.request("gpio-sim/0", LineSettings("output", output_value=True), "a")
    ).release()
    assert gpio.level("GPIO17") is True
    for wrong, hint in {
        "pump": "no line 'pump': the lines are GPIO17, GPIO27",
        "17": r"no line '17': did you mean GPIO17\?",
        "gpio27": r"no line 'gpio27': did you mean GPIO27\?",
    }.items():
        with pytest.raises(NoDeviceError, match=hint):
            await gpio.request(wrong, LineSettings("input"), "a")


async def test_many_lines_are_not_all_listed():
    many = SimGpio({f"GPIO{n}": None for n in range(28)}, lambda: 0.0)
    with pytest.raises(NoDeviceError, match="the lines are GPIO0, .*, GPIO7, …$"):
        await many.request("pump", LineSettings("input"), "a")


async def test_a_line_has_one_canonical_name(gpio):
    assert await gpio.canonical("GPIO17") == await gpio.canonical("gpio-sim/0") == "gpio-sim/0"
    with pytest.raises(NoDeviceError, match="no line 'GPIO4'"):
        await gpio.canonical("GPIO4")


async def test_an_output_keeps_its_level_after_release(gpio):
    line = await gpio.request("GPIO17", LineSettings("output"), "led")
    await line.set(True)
    await line.release()
    assert gpio.level("GPIO17") is True


@pytest.mark.parametrize(
    ("drive", "value", "bias", "level"),
    [
        ("open-drain", True, "pull-up", True),
        ("open-drain", True, "as-is", False),
        ("open-drain", False, "pull-up", False),
        ("open-source", False, "pull-up", True),
        ("open-source", True, "as-is", True),
    ],
)
async def test_open_outputs_leave_the_other_level_to_the_bias(gpio, drive, value, bias, level):
    line = await gpio.request("GPIO17", LineSettings("output", drive=drive, bias=bias), "bus")
    await line.set(value)
    assert gpio.level("GPIO17") is level


async def test_a_pressed_button_pulls_its_line_low(gpio, button, time):
    settings = LineSettings("input", active_low=True, bias="pull-up")
    line = await gpio.request("GPIO27", settings, "button")
    assert await line.get() is False
    button.press()
    time.now += 1
    button.press()
    assert await line.get() is True
    assert gpio.level("GPIO27") is False
    button.release()
    time.now += 1
    assert await line.get() is False


def test_a_press_bounces_and_comes_to_rest(button):
    """A contact closes and opens some times within milliseconds."""
    button.press()
    seen = [level for _, level in button.levels(101.0)]
    assert seen == [None, False, None, False, None, False]
    assert button.levels(101.0)[-1][0] == 100.0 + BOUNCE_S[-1]
    assert [level for _, level in button.levels(100.0005)] == [None, False, None]


def test_a_release_within_the_bounce_ends_it(button, time):
    button.press()
    time.now += 0.001
    button.release()
    levels = button.levels(101.0)
    assert levels[-1] == (100.001 + BOUNCE_S[-1], None)
    assert all(before[1] is not after[1] for before, after in pairwise(levels))


def test_many_presses_are_remembered_as_far_as_they_matter(button, time):
    for _ in range(20):
        button.press()
        time.now += 1
        button.release()
        time.now += 1
    button.press()
    assert len(button.levels(time.now + 1)) < 50
    assert debounced(button.levels(time.now + 1), time.now + 1, 0.02) is False


async def test_debounce_hides_the_bounces_until_the_level_has_held(gpio, button, time):
    """Kernel debounce of 5 bounces gives one event."""
    settings = LineSettings("input", active_low=True, bias="pull-up", debounce_s=0.02)
    line = await gpio.request("GPIO27", settings, "button")
    button.press()
    values = []
    for _ in range(50):
        values.append(await line.get())
        time.now += 0.001
    assert values == sorted(values)
    assert values.index(True) == 23


@pytest.mark.parametrize(
    ("second", "pressed"),
    [(0, False), (49.9, False), (50.1, True), (51.9, True), (52.1, False), (110.1, True)],
)
async def test_the_story_button_is_pressed_from_second_50_to_52(second, pressed, time):
    """Documented in `sim_board`."""
    gpio = SimGpio({"GPIO27": StoryButton()}, time)
    settings = LineSettings("input", active_low=True, bias="pull-up", debounce_s=0.02)
    line = await gpio.request("GPIO27", settings, "button")
    time.now = 1_700_000_040.0 + second  # a full minute
    assert await line.get() is pressed


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"direction": "output", "edge": "both"}, "an output has no edge"),
        ({"direction": "output", "debounce": "20ms"}, "an output has no debounce"),
        ({"direction": "output", "edge": "both", "debounce": "20ms"}, "no edge and no debounce"),
        ({"direction": "input", "drive": "open-drain"}, "an input has no drive"),
        ({"direction": "input", "safe": "off"}, "an input has no safe"),
        ({"direction": "input", "debounce": "20"}, "write 20ms"),
        ({"direction": "sideways"}, "direction"),
        ({"direction": "input", "pull": "up"}, "pull"),
    ],
)
def test_what_the_kernel_would_refuse_is_refused_by_name(settings, word):
    """Validate before the ioctl, name the flag."""
    with pytest.raises(msgspec.ValidationError, match=word):
        msgspec.convert({"line": "GPIO17", **settings}, GpioConfig)


def test_the_contracts_gpio_examples_become_requests():
    """Contract, section 11."""
    pump = msgspec.convert(
        {"line": "GPIO17", "direction": "output", "active_low": True, "safe": "off"}, GpioConfig
    )
    assert pump.settings() == LineSettings("output", active_low=True)
    door = msgspec.convert(
        {
            "line": "GPIO27",
            "direction": "input",
            "bias": "pull-up",
            "edge": "both",
            "debounce": "20ms",
        },
        GpioConfig,
    )
    assert door.settings() == LineSettings("input", bias="pull-up", edge="both", debounce_s=0.02)


@pytest.mark.parametrize(
    ("written", "address"),
    [(0x76, 0x76), ("0x76", 0x76), ("0X77", 0x77), ("28-0316a2797e5e", "28-0316a2797e5e")],
)
def test_addresses_are_numbers_or_text(written, address):
    """Contract, section 11; issue 3, part 2 accepts `"0x48"` and 72."""
    config = msgspec.convert(
        {"driver": "bme280", "bus": "/dev/i2c-1", "address": written}, SensorConfig
    )
    assert (config.bus, config.address) == ("i2c-1", address)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"address": 0xEC}, "an 8-bit label\\? then write 0x76"),
        ({"address": 0x02}, "not a 7-bit address"),
        ({"address": 0x300}, "0x300 is not a 7-bit address \\(0x03 to 0x77\\)$"),
        ({"address": "0xzz"}, "'0xzz' is not a number: write it as 0x76"),
        ({"every": "often"}, "write 20ms"),
        ({"every": "10ms"}, "must be 0 or at least 0.02s"),
        ({"speed": 3}, "speed"),
    ],
)
def test_a_wrong_sensor_entry_is_refused_with_what_to_write(entry, reason):
    """For an address above 0x77 suggest its half."""
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert({"driver": "bme280", **entry}, SensorConfig)
