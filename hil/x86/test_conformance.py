"""The conformance suite on USB hardware, the same code as on the simulator."""

import pytest

pytestmark = pytest.mark.timeout(1800)


def test_the_conformance_suite(guest):
    """Issue 3, part 9."""
    guest.check("tests/conformance")
