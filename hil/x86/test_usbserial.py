"""edged and a USB serial adapter that is pulled out while it is open."""

import pytest

pytestmark = pytest.mark.timeout(1800)


def test_a_usb_serial_adapter_is_pulled_out_and_plugged_in(guest):
    """Issue 3, shows: pulled mid-read 50 times, one loss each, the same name again."""
    guest.check("serial")
