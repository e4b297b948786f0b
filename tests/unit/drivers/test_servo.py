"""The servo driver: angles to pulses in ns, on the simulated channel."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import SimPwm
from edged.drivers import servo
from edged.drivers.servo import Angle, Config, Off, Pulse, angle_to_us, us_to_angle
from edged.errors import InvalidArgumentsError
from edged.testing import FakeClock

CONFIG = Config("pwmchip0/0")
SG90 = Config("pwmchip0/0", min_angle=0, max_angle=180, min_pulse_us=500, max_pulse_us=2400)


@pytest.fixture
def pwm():
    return SimPwm(["pwmchip0/0"])


async def found(pwm, config=CONFIG, **changes):
    config = msgspec.structs.replace(config, **changes)
    return await servo.probe(config, pwm, FakeClock().sleep)


@pytest.mark.parametrize(
    ("config", "degrees", "us"),
    [
        (CONFIG, 0, 1500),
        (CONFIG, -90, 1000),
        (CONFIG, 90, 2000),
        (CONFIG, 0.9, 1505),
        (SG90, 0, 500),
        (SG90, 90, 1450),
        (SG90, 180, 2400),
    ],
)
def test_an_angle_is_a_pulse(config, degrees, us):
    assert angle_to_us(config, degrees) == pytest.approx(us)
    assert us_to_angle(config, us) == pytest.approx(degrees)


async def test_steps_of_5_us_are_different_pulses(pwm):
    """Hardware faults, 44: 1.505 ms is not 1.500 ms, as whole percents of 20 ms would have it."""
    device = await found(pwm)
    seen = []
    for us in (1500.0, 1505.0, 1500.1):
        await device.act("pulse", Pulse(us))
        seen.append(pwm.output["pwmchip0/0"])
    assert seen == [(20_000_000, 1_500_000), (20_000_000, 1_505_000), (20_000_000, 1_500_100)]


@given(st.floats(-90, 90), st.floats(0.06, 10))
def test_angles_that_differ_have_pulses_that_differ(degrees, more):
    """The same fault, of the whole range: 0.06 degrees are 333 ns."""
    lower, higher = (round(angle_to_us(CONFIG, one) * 1000) for one in (degrees, degrees + more))
    assert higher > lower


async def test_it_turns_as_it_is_told(pwm):
    device = await found(pwm, SG90)
    assert device.identity == "servo on pwmchip0/0"
    assert await device.read() == ()
    assert await device.act("angle", Angle(90)) == "angle is 90 degrees (1450 us)"
    assert pwm.output["pwmchip0/0"] == (20_000_000, 1_450_000)
    (sample,) = await device.read()
    assert (sample.channel, sample.value) == ("angle", 90.0)
    await device.act("pulse", Pulse(2400))
    assert (await device.read())[0].value == 180.0
    assert await device.act("off", Off()) == "no pulses: it moves freely"
    assert pwm.output["pwmchip0/0"] == (20_000_000, 0)
    assert await device.read() == ()


@pytest.mark.parametrize(
    ("command", "params", "field"),
    [
        ("angle", Angle(-31), "degrees"),
        ("angle", Angle(46), "degrees"),
        ("angle", Angle(float("nan")), "degrees"),
        ("pulse", Pulse(999), "us"),
        ("pulse", Pulse(1800), "us"),
    ],
)
async def test_nothing_beyond_its_limits_is_set(pwm, command, params, field):
    """Issue 3, part 3: value limits."""
    device = await found(pwm, low=-30, high=45)
    reason = rf"{field}: must be from -30 to 45 degrees, 1333.33 to 1750 us"
    with pytest.raises(InvalidArgumentsError, match=reason):
        await device.act(command, params)
    assert pwm.output["pwmchip0/0"] == (0, 0)


@pytest.mark.parametrize(
    ("safe", "duty"), [("off", 0), ("hold", 1_750_000), (0, 1_500_000), (-90.0, 1_000_000)]
)
async def test_its_safe_state_is_as_configured(pwm, safe, duty):
    device = await found(pwm, safe=safe)
    await device.act("angle", Angle(45))
    await device.safe()
    assert pwm.output["pwmchip0/0"] == (20_000_000, duty)


async def test_closing_ends_the_pulses(pwm):
    device = await found(pwm)
    await device.act("angle", Angle(45))
    await device.close()
    assert pwm.output["pwmchip0/0"] == (0, 0)
    await found(pwm)


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"min_angle": 90}, "min_angle: must be less"),
        ({"min_pulse_us": 2000}, "min_pulse_us: must be less"),
        ({"frequency_hz": 400, "max_pulse_us": 2600}, "longer than the time between two pulses"),
        ({"low": -91}, "low and high: must rise"),
        ({"high": 91}, "low and high: must rise"),
        ({"low": 10, "high": 10}, "low and high: must rise"),
        ({"low": 10, "safe": 0}, "safe: must be from low to high"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, fault):
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert({"channel": "pwmchip0/0", **settings}, Config)
