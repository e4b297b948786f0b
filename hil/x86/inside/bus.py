"""`edged.bus.i2c` on an adapter that has limits of its own; run in the guest.

Source: drivers/hid/hid-cp2112.c of the kernel: at most 16 bytes written before a repeated
start; an address that nobody acknowledges is ETIMEDOUT. The rest is tests/conformance.
"""

import errno

import pytest
from smbus2 import SMBus, i2c_msg

from edged.errors import BusError

EEPROM, NOBODY = 0x50, 0x51


async def test_a_long_write_before_a_repeated_start_is_refused(bridge, bus):
    """Issue 3, part 1: refused before a byte moves."""
    bridge.plug(EEPROM, "at24", chip="24c32")
    bridge.ask("trace")
    with pytest.raises(BusError, match="the kernel refused the transfer: too long") as caught:
        await bus.transfer(EEPROM, bytes(17), 1)
    assert caught.value.errno == errno.EINVAL
    assert bridge.ask("trace") == []


def test_the_kernel_says_of_an_absent_address_what_others_say_of_a_stuck_bus(bridge):
    """So that the conformance suite's absent address is one that times out."""
    message = i2c_msg.read(NOBODY, 1)
    with SMBus(bridge.number) as raw, pytest.raises(TimeoutError) as caught:
        raw.i2c_rdwr(message)
    assert caught.value.errno == errno.ETIMEDOUT
