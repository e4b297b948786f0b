"""The driver of dimmed LEDs: periods and duties in ns, on the simulated channel."""

import msgspec
import pytest

from edged.bus.sim import SimPwm
from edged.drivers import pwm_led
from edged.drivers.pwm_led import Brightness, Config, pulse_ns
from edged.errors import BusyError, NoDeviceError
from edged.testing import FakeClock

CONFIG = Config("pwmchip0/0")


@pytest.fixture
def pwm():
    return SimPwm(["pwmchip0/0", "pwmchip0/1"])


async def found(pwm, **changes):
    config = msgspec.structs.replace(CONFIG, **changes)
    return await pwm_led.probe(config, pwm, FakeClock().sleep)


@pytest.mark.parametrize(
    ("settings", "brightness", "pulse"),
    [
        ({}, 0.0, (1_000_000, 0)),
        ({}, 1.0, (1_000_000, 1_000_000)),
        ({}, 0.5, (1_000_000, 217_638)),
        ({"gamma": 1.0}, 0.5, (1_000_000, 500_000)),
        ({"gamma": 1.0, "frequency_hz": 50.0}, 0.001, (20_000_000, 20_000)),
        ({"active_low": True}, 0.0, (1_000_000, 1_000_000)),
        ({"active_low": True}, 1.0, (1_000_000, 0)),
    ],
)
def test_a_brightness_is_a_duty(settings, brightness, pulse):
    """0.5 to the power of 2.2 is 0.217638."""
    assert pulse_ns(msgspec.structs.replace(CONFIG, **settings), brightness) == pulse


async def test_it_is_lit_as_it_is_told(pwm):
    led = await found(pwm, gamma=1.0)
    assert led.identity == "LED on pwmchip0/0"
    assert await led.read() == ()
    assert await led.act("brightness", Brightness(0.25)) == "brightness is 0.25"
    assert pwm.output["pwmchip0/0"] == (1_000_000, 250_000)
    (sample,) = await led.read()
    assert (sample.channel, sample.value) == ("brightness", 0.25)


@pytest.mark.parametrize(("safe", "duty"), [(0.0, 0), (1.0, 1_000_000), ("hold", 250_000)])
async def test_its_safe_state_is_as_configured(pwm, safe, duty):
    led = await found(pwm, gamma=1.0, safe=safe)
    await led.act("brightness", Brightness(0.25))
    await led.safe()
    assert pwm.output["pwmchip0/0"][1] == duty


async def test_a_channel_has_one_holder_until_it_is_closed(pwm):
    led = await found(pwm)
    with pytest.raises(BusyError, match="edged pwm_led"):
        await found(pwm)
    await led.act("brightness", Brightness(1.0))
    await led.close()
    assert pwm.output["pwmchip0/0"] == (0, 0)
    await found(pwm)


async def test_an_absent_channel_is_no_device(pwm):
    with pytest.raises(NoDeviceError, match="no PWM channel pwmchip7/0"):
        await found(pwm, channel="pwmchip7/0")


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_a_brightness_is_from_0_to_1(value):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"value": value}, Brightness)


@pytest.mark.parametrize(
    "given", [{"safe": 1.5}, {"safe": "off"}, {"gamma": 0}, {"frequency_hz": 0}]
)
def test_settings_that_cannot_be_are_refused(given):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"channel": "pwmchip0/0", **given}, Config)
