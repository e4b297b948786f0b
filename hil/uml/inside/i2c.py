"""`edged.bus.i2c` on an adapter that has SMBus only, the kernel's i2c-stub; run in the guest.

Source: Documentation/i2c/i2c-stub.rst of the kernel.
"""

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from edged.bus.i2c import OWNER_S
from edged.bus.kernel import KernelBuses
from edged.errors import BusError, BusyError
from edged.testing import FakeClock

ADDRESS, THERMOMETER = 0x50, 0x48


@pytest.fixture
def stub():
    """The name of the adapter; registers are memory of 16 bits each."""
    module = f"{os.environ['kernel']}/i2c-stub.ko"
    subprocess.run(["insmod", module, f"chip_addr={ADDRESS},{THERMOMETER}"], check=True)
    (adapter,) = Path("/sys/bus/i2c/devices").glob("i2c-*")
    assert "stub" in (adapter / "name").read_text()
    yield adapter
    subprocess.run(["rmmod", "i2c_stub"], check=True)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def buses(stub, clock):
    made = KernelBuses(clock)
    yield made
    await made.close()


@pytest.fixture
def bus(buses, stub):
    assert buses.names("i2c") == [stub.name]
    return buses.i2c(stub.name)


async def test_registers_go_both_ways(bus):
    """The same transactions as on plain I2C, each by the SMBus call with the same wire."""
    await bus.transfer(ADDRESS, b"\x10\xab")
    assert await bus.transfer(ADDRESS, b"\x10", 1) == b"\xab"
    await bus.transfer(ADDRESS, b"\x20\x12\x34")
    assert await bus.transfer(ADDRESS, b"\x20", 2) == b"\x12\x34"
    block = bytes(range(1, 33))
    await bus.transfer(ADDRESS, b"\x40" + block)
    assert await bus.transfer(ADDRESS, b"\x40", 32) == block
    assert await bus.transfer(ADDRESS, b"\x40", 48) == block + bytes(16)


@pytest.mark.parametrize(
    ("write", "read_len"), [(b"\x00\x10", 2), (bytes(40), 0), (b"", 4), (b"\xf0", 40)]
)
async def test_what_smbus_cannot_is_refused(bus, write, read_len):
    """Issue 3, part 1: split or refused before a byte moves."""
    with pytest.raises(BusError, match="cannot do a transfer of this shape") as caught:
        await bus.transfer(ADDRESS, write, read_len)
    assert caught.value.errno == errno.EOPNOTSUPP


async def test_an_address_of_the_kernels_driver_is_refused_with_its_value(bus, stub, clock):
    """Issue 3, part 3; 21.5 Cel in the register of an lm75, high byte first."""
    await bus.transfer(THERMOMETER, b"\x00\x15\x80")
    (stub / "new_device").write_text(f"lm75 {THERMOMETER:#x}")
    try:
        # Who owns an address is believed for a while.
        clock.advance(OWNER_S)
        with pytest.raises(BusyError, match=r"driver lm75 owns it: read it at (\S+),") as caught:
            await bus.transfer(THERMOMETER, b"\x00", 2)
        where = re.search(r"read it at (\S+),", str(caught.value))[1]
        assert (Path(where) / "temp1_input").read_text() == "21500\n"
        assert await bus.detect(THERMOMETER)
    finally:
        (stub / "delete_device").write_text(f"{THERMOMETER:#x}")
