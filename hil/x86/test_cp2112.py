"""edged and the kernel on one bus, whose chips are edged's own models."""

import pytest

# The first run fetches the kernel.
pytestmark = pytest.mark.timeout(1800)


def test_the_kernels_drivers_and_edged_agree_on_the_same_chips(guest):
    """Issue 3, part 9 (b)."""
    guest.check("chips")


def test_an_adapter_with_limits_of_its_own(guest):
    """Issue 3, part 1: repeated starts, transfers beyond its limits, absent addresses."""
    guest.check("bus")


def test_lines_of_a_chip_on_usb(guest):
    """Issue 3, part 1: edges with the kernel's time stamps; the chip is pulled out."""
    guest.check("pins")


def test_what_is_plugged_in_and_pulled_out_while_edged_runs(guest):
    """Issue 3, parts 2 and 5: tools appear and go, sensors are lost once and found at once."""
    guest.check("hotplug")
