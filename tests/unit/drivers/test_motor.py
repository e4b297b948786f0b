"""The driver of DC motors: levels of the bridge's inputs (L298, TB6612FNG, function tables)."""

import msgspec
import pytest

from edged.bus.sim import SimBuses, SimGpio, SimPwm
from edged.drivers import motor
from edged.drivers.motor import Config, Run, Stop
from edged.errors import BusyError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

CONFIG = Config(**motor.SIM_CONFIG)
PLAIN = Config("GPIO5", "GPIO6")


class Watched(SimGpio):
    """Keeps every pair of levels that the bridge's inputs had."""

    def __init__(self):
        self.seen = []
        parts = dict.fromkeys(("GPIO5", "GPIO6"), self)
        super().__init__({**parts, "GPIO16": None}, lambda: 0.0)

    def levels(self, at):
        return [(float("-inf"), None)]

    def driven(self, value, at):
        self.seen.append(self.bridge)

    @property
    def bridge(self):
        return self.level("GPIO5"), self.level("GPIO6")


@pytest.fixture
def gpio():
    return Watched()


@pytest.fixture
def buses(gpio):
    return SimBuses(gpio=gpio, pwm=SimPwm(["pwmchip0/0"]))


async def found(buses, config=CONFIG, **changes):
    config = msgspec.structs.replace(config, **changes)
    return await motor.probe(config, buses, FakeClock().sleep)


@pytest.mark.parametrize(
    ("speed", "levels", "duty"),
    [
        (1.0, (True, False), 1_000_000),
        (0.25, (True, False), 250_000),
        (-0.5, (False, True), 500_000),
        (0.0, (False, False), 0),
    ],
)
async def test_a_speed_is_a_direction_and_a_duty(buses, gpio, speed, levels, duty):
    device = await found(buses)
    assert device.identity == "motor on GPIO5 and GPIO6"
    assert await device.read() == ()
    assert await device.act("run", Run(speed)) == f"speed is {speed:g}"
    assert gpio.bridge == levels
    assert gpio.level("GPIO16") == (speed != 0)
    assert buses.pwm.output["pwmchip0/0"] == (1_000_000, duty)
    (sample,) = await device.read()
    assert (sample.channel, sample.value) == ("speed", speed)


@pytest.mark.parametrize(
    ("how", "said", "levels", "enabled", "duty"),
    [
        ("coast", "coasting", (False, False), False, 0),
        ("brake", "braked", (True, True), True, 1_000_000),
    ],
)
async def test_it_halts_in_two_ways(buses, gpio, how, said, levels, enabled, duty):
    device = await found(buses)
    await device.act("run", Run(0.5))
    assert await device.act("stop", Stop(how)) == said
    assert (gpio.bridge, gpio.level("GPIO16")) == (levels, enabled)
    assert buses.pwm.output["pwmchip0/0"] == (1_000_000, duty)
    assert (await device.read())[0].value == 0.0


async def test_reversing_goes_through_coasting(buses, gpio):
    device = await found(buses)
    await device.act("run", Run(1))
    gpio.seen.clear()
    await device.act("run", Run(-1))
    assert gpio.seen == [(False, False), (False, True)]


async def test_after_a_brake_one_input_goes_low_first(buses, gpio):
    device = await found(buses)
    await device.act("stop", Stop("brake"))
    gpio.seen.clear()
    await device.act("run", Run(1))
    assert gpio.seen == [(True, False), (True, False)]


@pytest.mark.parametrize(("safe", "levels"), [("coast", (False, False)), ("brake", (True, True))])
async def test_its_safe_state_is_as_configured(buses, gpio, safe, levels):
    device = await found(buses, safe=safe)
    await device.act("run", Run(1))
    await device.safe()
    assert gpio.bridge == levels


@pytest.mark.parametrize("speed", [0.81, -0.81, float("nan")])
async def test_nothing_faster_than_allowed_is_set(buses, gpio, speed):
    """Issue 3, part 3: value limits."""
    device = await found(buses, max_speed=0.8)
    with pytest.raises(InvalidArgumentsError, match="speed: must be from -0.8 to 0.8"):
        await device.act("run", Run(speed))
    assert gpio.bridge == (False, False)


async def test_without_pwm_there_is_only_full_speed(buses, gpio):
    device = await found(buses, PLAIN)
    with pytest.raises(InvalidArgumentsError, match="without pwm it is -1, 0 or 1"):
        await device.act("run", Run(0.5))
    for speed, levels in ((1, (True, False)), (-1, (False, True)), (0, (False, False))):
        await device.act("run", Run(speed))
        assert gpio.bridge == levels
    await device.safe()
    with pytest.raises(msgspec.ValidationError, match="without pwm there is only full speed"):
        msgspec.convert({"forward": "a", "backward": "b", "max_speed": 0.5}, Config)


async def test_it_begins_with_all_inputs_low(buses, gpio):
    await found(buses)
    assert (gpio.bridge, gpio.level("GPIO16")) == ((False, False), False)


async def test_what_it_took_is_given_back(buses):
    device = await found(buses)
    with pytest.raises(BusyError, match="edged motor"):
        await found(buses)
    await device.close()
    await found(buses)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"enable": "GPIO99"}, NoDeviceError),
        ({"backward": "GPIO5"}, BusyError),
        ({"pwm": "pwmchip9/0"}, NoDeviceError),
    ],
)
async def test_a_part_that_cannot_be_had_leaves_none_taken(buses, changes, error):
    with pytest.raises(error):
        await found(buses, **changes)
    await found(buses)
