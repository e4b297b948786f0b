"""`edged.bus.i2c` on an adapter that has limits of its own; run in the guest.

Source: drivers/hid/hid-cp2112.c of the kernel: at most 61 bytes written, 16 before a
repeated start, 512 read; an address that nobody acknowledges is ETIMEDOUT.
"""

import errno

import pytest
from smbus2 import SMBus, i2c_msg

from edged.errors import BusError, NoDeviceError

EEPROM, NOBODY = 0x50, 0x51


@pytest.fixture(scope="module")
def content(bridge):
    """What an EEPROM holds that every test reads, over all of its 4096 bytes."""
    bridge.plug(EEPROM, "at24", chip="24c32")
    yield bytes(range(1, 29))


async def write(bus, offset, data):
    await bus.transfer(EEPROM, offset.to_bytes(2, "big") + data)
    while not await bus.detect(EEPROM):
        pass


async def test_bytes_go_both_ways_with_a_repeated_start(bus, content):
    await write(bus, 0x0100, content)
    assert await bus.transfer(EEPROM, b"\x01\x00", len(content)) == content
    assert await bus.transfer(EEPROM, b"", 4) == b"\xff" * 4
    assert await bus.transfer(EEPROM, b"\x01\x02", 3) == content[2:5]


async def test_the_most_that_the_adapter_can_goes_through(bus, content):
    read = await bus.transfer(EEPROM, bytes(2), 512)
    assert read == b"\xff" * 256 + content + b"\xff" * (256 - len(content))
    await bus.transfer(EEPROM, bytes(61))


@pytest.mark.parametrize(("write_len", "read_len"), [(62, 0), (17, 1), (2, 513)])
async def test_more_is_refused_and_no_byte_moves(bus, content, write_len, read_len):
    """Issue 3, part 1: refused before a byte moves."""
    with pytest.raises(BusError, match="the kernel refused the transfer: too long") as caught:
        await bus.transfer(EEPROM, bytes(write_len), read_len)
    assert caught.value.errno == errno.EINVAL


async def test_an_address_where_nothing_is_does_not_answer(bridge, bus, content):
    """The kernel's driver says of it what others say of a stuck bus."""
    message = i2c_msg.read(NOBODY, 1)
    with SMBus(bridge.number) as raw, pytest.raises(TimeoutError) as caught:
        raw.i2c_rdwr(message)
    assert caught.value.errno == errno.ETIMEDOUT
    for _ in range(5):
        with pytest.raises(NoDeviceError, match="nothing answered at address 0x51 on i2c-"):
            await bus.transfer(NOBODY, b"\x00", 1)
    # Its breaker stayed closed: it is no stuck bus.
    assert await bus.transfer(EEPROM, b"\x01\x00", 1) == content[:1]


async def test_a_scan_finds_what_is_there_alone(bridge, bus, content):
    bridge.plug(0x76, "bme280")
    bridge.plug(0x23, "bh1750")
    found = [address for address in range(0x08, 0x78) if await bus.detect(address)]
    assert found == [0x23, EEPROM, 0x76]
