"""edged's GPIO on a kernel that no one here wrote."""

import pytest

pytestmark = pytest.mark.timeout(1800)  # the first run builds the kernel


def test_lines_on_the_kernels_own_simulated_chips(guest):
    """Issue 3, part 9 (b2)."""
    guest.run("hil/uml/inside/gpio.py")


def test_gpiozeros_devices_on_the_pin_factory(guest):
    """Issue 3, part 1: gpiozero's devices on a pin factory of ours."""
    guest.run("hil/uml/inside/pins.py")


def test_i2c_on_an_adapter_with_smbus_only(guest):
    """Issue 3, part 9 (b2)."""
    guest.run("hil/uml/inside/i2c.py")


def test_the_conformance_suite(guest):
    """Issue 3, part 9: the same code as on the simulator."""
    guest.run("tests/conformance")
