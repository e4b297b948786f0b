"""What of the pin factory can be shown without GPIO in this machine's kernel.

The rest is shown with gpiozero's devices on a kernel with simulated chips (hil/uml).
"""

import gpiozero
import gpiozero.exc as refused
import pytest

from edged.bus import LineState
from edged.bus._cdev import Chip
from edged.bus.pins import KernelFactory, KernelPin, board_info
from edged.errors import NoDeviceError


def chip(number, label, names):
    lines = tuple(LineState(name, label, n, "input") for n, name in enumerate(names))
    return Chip(f"gpiochip{number}", label, f"/dev/gpiochip{number}", lines)


CHIPS = [
    chip(0, "soc", ["GPIO17", "LED", "", "both"]),
    chip(1, "expander", ["both"]),
    chip(2, "expander", [""]),
]


class Pi(KernelFactory):
    """As on a Raspberry Pi 4, whose device tree this machine has not."""

    def _get_revision(self):
        return 0xB03111


@pytest.fixture
def factory(tmp_path):
    with Pi(dev=str(tmp_path), sysfs=str(tmp_path)) as made:
        yield made


@pytest.fixture
def pin(factory):
    return factory.pin(17)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("GPIO17", (1, "GPIO17")),
        (17, (1, "GPIO17")),
        ("17", (1, "GPIO17")),
        ("soc/0", (1, "GPIO17")),
        ("LED", (2, "LED")),
        ("gpiochip0/1", (2, "LED")),
        ("gpiochip0/2", (3, "gpiochip0/2")),
        ("gpiochip0/3", (4, "gpiochip0/3")),
        ("gpiochip1/0", (1, "gpiochip1/0")),
    ],
)
def test_lines_of_any_board_are_pins(name, place):
    ((_, info),) = board_info(CHIPS).find_pin(name)
    assert (info.number, info.name) == place


@pytest.mark.parametrize("name", ["both", "expander/0", "", 1])
def test_a_name_that_means_several_lines_or_none_is_no_pin(name):
    assert list(board_info(CHIPS).find_pin(name)) == []


def test_a_board_prints_itself():
    """`pinout` and `print(factory.board_info)` of gpiozero."""
    info = board_info(CHIPS)
    assert "GPIO17" in f"{info.headers['gpiochip0']:mono}"
    assert "model='board'" in repr(info)


def test_a_raspberry_pi_is_known_by_its_revision(factory):
    assert factory.board_info.model == "4B"
    for name in (17, "GPIO17", "BOARD11", "J8:11", "BCM17"):
        assert repr(factory.pin(name)) == "GPIO17"
    assert factory.pin("BOARD11") is factory.pin(17)
    with pytest.raises(gpiozero.PinInvalidPin):
        factory.pin(99)


def test_another_board_is_what_its_chips_are(tmp_path):
    with KernelFactory(dev=str(tmp_path), sysfs=str(tmp_path)) as factory:
        assert factory.board_info.headers == {}
        with pytest.raises(gpiozero.PinInvalidPin):
            factory.pin(17)


def test_a_supply_is_no_pin(factory):
    (_, info), *_ = factory.board_info.find_pin("GND")
    with pytest.raises(gpiozero.PinInvalidPin, match="GND is not a GPIO line"):
        KernelPin(factory, info)


def test_a_line_that_is_not_there_is_no_device(pin):
    for use in (lambda: pin.function, lambda: pin.state, lambda: pin.output_with_state(1)):
        with pytest.raises(NoDeviceError, match="no GPIO line 'GPIO17'"):
            use()


def test_a_pin_begins_as_gpiozero_wants_it(pin):
    assert (pin.pull, pin.edges, pin.bounce, pin.frequency, pin.when_changed, pin.lost) == (
        "floating", "both", None, None, None, 0,
    )  # fmt: skip
    assert pin.info.name == "GPIO17"


def test_properties_wait_until_the_pin_is_an_input(pin, factory):
    """Gpiozero sets them in any order."""

    def told(ticks, state):
        pass

    pin.bounce, pin.edges, pin.when_changed = 0.01, "rising", told
    assert (pin.bounce, pin.bounce_time, pin.edges, pin.when_changed) == (
        0.01, 0.01, "rising", told,
    )  # fmt: skip
    assert pin.take_edges() == []
    del told
    assert pin.when_changed is None
    pin.bounce = None
    assert pin.bounce is None
    pin.close()
    assert (pin.edges, pin.when_changed) == ("both", None)


@pytest.mark.parametrize(
    ("attribute", "value", "error"),
    [
        ("function", "alt0", refused.PinInvalidFunction),
        ("edges", "all", refused.PinInvalidEdges),
        ("bounce", -1, refused.PinInvalidBounce),
        ("pull", "up", refused.PinFixedPull),
        ("state", 1, refused.PinSetInput),
        ("frequency", 100, refused.PinPWMFixedValue),
    ],
)
def test_what_a_pin_cannot_is_gpiozeros_own_error(pin, attribute, value, error):
    with pytest.raises(error):
        setattr(pin, attribute, value)


def test_a_pull_that_cannot_be_is_refused_before_the_line_is_taken(factory):
    """GPIO2 and GPIO3 have resistors on the board."""
    with pytest.raises(refused.PinFixedPull, match="physical pull-up"):
        factory.pin(2).input_with_pull("down")
    with pytest.raises(refused.PinInvalidPull):
        factory.pin(17).input_with_pull("sideways")
    assert factory.pin(2).pull == "up"


def test_ticks_are_seconds_of_the_kernels_clock_of_edges(factory):
    """CLOCK_MONOTONIC, as gpio_v2_line_event has it."""
    before = factory.ticks()
    assert factory.ticks_diff(factory.ticks(), before) >= 0
    assert factory.ticks_diff(2.5, 1.0) == 1.5


def test_a_factory_may_be_closed_twice(tmp_path):
    factory = KernelFactory(dev=str(tmp_path), sysfs=str(tmp_path))
    factory.close()
    factory.close()
