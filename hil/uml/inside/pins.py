"""gpiozero's devices on `edged.bus.pins` against the kernel's gpio-sim; run in the guest."""

import os
import subprocess
import sys
import threading
import time

import pytest
from gpiozero import (
    LED,
    PWMLED,
    Button,
    DistanceSensor,
    GPIOPinInUse,
    Motor,
    PinInvalidPin,
    PinSetInput,
    RotaryEncoder,
    Servo,
)

from edged.bus import LineSettings
from edged.bus import _cdev as cdev
from edged.bus.pins import KernelFactory
from edged.errors import BusError, BusyError, NoDeviceError

BOUND_S = 20
# gpiozero praises pigpio, whatever the factory.
pytestmark = pytest.mark.filterwarnings("ignore::gpiozero.PWMSoftwareFallback")


class Pi5(KernelFactory):
    """As on a Raspberry Pi 5, whose device tree this kernel has not."""

    def _get_revision(self):
        return 0xD04170


@pytest.fixture
def factory(chip):
    made = KernelFactory()
    yield made
    made.close()
    assert not [line for line in lines(chip) if line.consumer == "gpiozero"]
    assert not [t for t in threading.enumerate() if t.name.startswith(("gpio", "PWM"))]


def lines(chip):
    return cdev.read_chip(f"/dev/{chip.name}").lines


def until(check):
    """Waits until something is so that tells nobody."""
    end = time.monotonic() + BOUND_S
    while not check():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


class Calls:
    """Remembers calls of its `call`; waits for them."""

    def __init__(self):
        self.calls = []
        self._came = threading.Semaphore(0)

    def call(self, *args):
        self.calls.append(args)
        self._came.release()

    def wait(self):
        assert self._came.acquire(timeout=BOUND_S)
        return self.calls[-1]


def test_an_led_drives_its_line(factory, chip):
    led = LED(2, pin_factory=factory)
    assert lines(chip)[2].consumer == "gpiozero"
    for action, high in ((led.on, True), (led.off, False), (led.toggle, True)):
        action()
        assert chip.level(2) is high
        assert led.value == high
    led.close()
    assert not lines(chip)[2].used
    again = LED("sim/2", active_high=False, pin_factory=factory)
    assert chip.level(2)
    again.on()
    assert not chip.level(2)


def test_an_output_starts_with_its_level(factory, chip):
    """Never a blip: a relay that is active low must not click at its start."""
    with LED(2, active_high=False, initial_value=False, pin_factory=factory):
        assert chip.level(2)
        line = lines(chip)[2]
        assert (line.direction, line.used) == ("output", True)


def test_a_button_bounces_once_in_the_kernel(factory, chip, turn):
    """Issue 3, part 1: kernel debounce."""
    chip.pull(0, True)
    with Button(0, bounce_time=0.2, pin_factory=factory) as button:
        pressed, released = Calls(), Calls()
        button.when_pressed, button.when_released = pressed.call, released.call
        for high in (False, True) * 5:
            turn(0, high)
        turn(0, False)
        pressed.wait()
        assert button.is_pressed
        turn(0, True)
        released.wait()
        assert (len(pressed.calls), len(released.calls)) == (1, 1)


def test_edges_carry_the_kernels_time_stamps(factory, chip):
    seen = Calls()
    pin = factory.pin("GPIO0")
    pin.function = "input"
    pin.when_changed = seen.call
    for high in (True, False):
        before = factory.ticks()
        chip.pull(0, high)
        ticks, level = seen.wait()
        assert level is high
        assert 0 <= factory.ticks_diff(ticks, before)
        assert factory.ticks_diff(ticks, factory.ticks()) <= 0
    pin.edges = "rising"
    for high in (True, False, True):
        chip.pull(0, high)
        if high:
            assert seen.wait()[1] is True
    assert len(seen.calls) == 4
    pin.when_changed = None
    chip.pull(0, False)
    assert pin.state == 0
    assert len(seen.calls) == 4
    assert pin.lost == 0


def test_an_error_in_a_callback_is_shown_and_stops_nothing(factory, chip):
    shown, seen, released = Calls(), Calls(), Calls()

    def fails():
        seen.call()
        raise ValueError("the user's own")

    hook, threading.excepthook = threading.excepthook, shown.call
    try:
        chip.pull(0, True)
        with Button(0, pin_factory=factory) as button:
            button.when_pressed, button.when_released = fails, released.call
            for _ in range(2):
                chip.pull(0, False)
                seen.wait()
                chip.pull(0, True)
                released.wait()
            shown.wait()
    finally:
        threading.excepthook = hook
    assert "the user's own" in str(shown.calls[0][0].exc_value)


@pytest.mark.parametrize(("pull_up", "high"), [(True, True), (False, False)])
def test_a_pull_is_set_in_the_chip(factory, chip, pull_up, high):
    chip.pull(0, not high)
    with Button(0, pull_up=pull_up, pin_factory=factory) as button:
        assert button.pin.pull == ("up" if pull_up else "down")
        assert button.pin.state == high
        with pytest.raises(PinSetInput):
            button.pin.state = True


def test_a_pwm_led_pulses_and_rests(factory, chip):
    with PWMLED(1, frequency=50, pin_factory=factory) as led:
        led.value = 0.5
        for level in (True, False) * 3:
            until(lambda: chip.level(1) is level)
        assert led.value == 0.5
        led.value = 1
        until(lambda: chip.level(1))
        led.frequency = 100
        assert (led.frequency, led.value) == (100, 1)
        led.off()
        until(lambda: not chip.level(1))
        led.pulse(0.02, 0.02, n=1, background=False)
        led.on()
    assert not lines(chip)[1].used


def test_a_servo_gets_its_pulse_widths(factory, chip):
    """1.5 ms of 20 ms is the middle; whole percents would be 6 positions (facts, fault 44)."""
    with Servo(1, pin_factory=factory) as servo:
        assert servo.pwm_device.pin.state == pytest.approx(0.075)
        servo.value = 0.01
        assert servo.pwm_device.pin.state == pytest.approx(0.07525)
        until(lambda: chip.level(1))
        servo.detach()
        assert servo.pwm_device.pin.frequency is None
        assert not chip.level(1)


def test_a_motor_turns_both_ways(factory, chip):
    with Motor(1, 2, pwm=False, pin_factory=factory) as motor:
        for action, levels in (
            (motor.forward, (True, False)), (motor.reverse, (False, True)),
            (motor.stop, (False, False)),
        ):  # fmt: skip
            action()
            assert (chip.level(1), chip.level(2)) == levels


def test_edges_of_two_pins_come_in_their_order(factory, turn):
    """A knob's direction is the order of its edges, also when nobody had time for a while."""
    seen, held, go_on = Calls(), Calls(), threading.Event()

    def hold(ticks, level):
        held.call()
        go_on.wait(BOUND_S)

    told = [lambda ticks, level, line=line: seen.call(line, level) for line in (0, 1)]
    for line, call in ((0, told[0]), (1, told[1]), (2, hold)):
        pin = factory.pin(line)
        pin.function = "input"
        pin.when_changed = call
    turn(2, True)
    held.wait()
    edges = [(1, True), (0, True), (1, False), (0, False), (0, True)]
    for edge in edges:
        turn(*edge)
    go_on.set()
    for _ in edges:
        seen.wait()
    assert seen.calls == edges


def test_a_rotary_encoder_counts_its_steps(factory, chip, turn):
    for line in (0, 1):
        chip.pull(line, True)
    with RotaryEncoder(0, 1, pin_factory=factory) as encoder:
        turned = Calls()
        encoder.when_rotated = lambda: turned.call(encoder.steps)
        for first, second, steps in ((0, 1, 1), (0, 1, 2), (1, 0, 1), (1, 0, 0), (1, 0, -1)):
            for line, high in ((first, False), (second, False), (first, True), (second, True)):
                turn(line, high)
            assert turned.wait() == (steps,)


def test_a_rotary_encoder_is_debounced_by_the_kernel(factory, chip):
    """It asks for it by a name that gpiozero's own pins do not know."""
    with RotaryEncoder(0, 1, bounce_time=0.005, pin_factory=factory) as encoder:
        assert encoder.a.pin.bounce == 0.005
        assert encoder.b.pin.bounce == 0.005


def test_a_distance_sensor_without_echo_does_not_hang(factory, chip):
    """facts, fault 48."""
    chip.pull(0, False)
    with pytest.warns(match="no echo received") as warned:
        with DistanceSensor(echo=0, trigger=1, pin_factory=factory):
            until(lambda: len(warned) > 2)
    assert not chip.level(1)


def test_one_pin_belongs_to_one_device(factory, chip):
    with LED(2, pin_factory=factory):
        with pytest.raises(GPIOPinInUse):
            LED(2, pin_factory=factory)


def test_a_line_of_another_program_names_it(factory, chip):
    held = cdev.request(f"/dev/{chip.name}", 2, LineSettings("output"), "another")
    with pytest.raises(BusyError, match="used by 'another'"):
        LED(2, pin_factory=factory)
    os.close(held)
    LED(2, pin_factory=factory).close()


def test_an_unknown_line_is_no_pin(factory, chip):
    with pytest.raises(PinInvalidPin):
        LED(17, pin_factory=factory)


def test_the_present_direction_is_told_before_a_line_is_taken(factory, chip):
    assert factory.pin("sim/4").function == "output"
    pin = factory.pin(0)
    assert pin.function == "input"
    assert not lines(chip)[0].used
    chip.pull(0, True)
    assert pin.state == 1
    assert lines(chip)[0].used


def test_an_unplugged_chip_is_no_device(factory, chip):
    led = LED(2, pin_factory=factory)
    fading = PWMLED(1, pin_factory=factory)
    fading.value = 0.5
    chip.unplug()
    with pytest.raises(NoDeviceError, match="unplugged"):
        led.on()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("PWM")])
    led.close()
    fading.close()
    chip.plug()
    LED(2, pin_factory=factory).close()


def test_on_a_pi_5_the_header_is_rp1(rack):
    """gpiozero#1166: never by the number of the chip."""
    rack.chip("gpio-brcmstb", ["GPIO17"])
    header = rack.chip("pinctrl-rp1", [f"GPIO{n}" if n != 2 else "SDA1" for n in range(54)])
    with Pi5() as factory:
        for name, offset in ((17, 17), ("BOARD11", 17), ("GPIO2", 2), ("J8:3", 2)):
            with LED(name, pin_factory=factory) as led:
                led.on()
                assert header.level(offset)
        with Button(2, pin_factory=factory) as button:
            assert button.pull_up is True
            with pytest.raises(Exception, match="physical pull-up"):
                button.pin.pull = "down"


def test_the_environment_selects_it(chip):
    """Gpiozero's entry points, group gpiozero_pin_factories."""
    program = (
        "from gpiozero import LED, Device; led = LED(2); led.on(); "
        "print(type(Device.pin_factory).__name__, open(sys.argv[1]).read())"
    )
    value = f"{chip._lines}/sim_gpio2/value"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}", value],
        env={**os.environ, "GPIOZERO_PIN_FACTORY": "edged"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["KernelFactory", "1"], done.stderr


def test_settings_that_the_kernel_refuses_say_so(factory, chip):
    """A debounce of more than 32 bits of microseconds would be another one."""
    pin = factory.pin(0)
    pin.function = "input"
    with pytest.raises((BusError, ValueError), match="debounce"):
        pin.bounce = 5000
