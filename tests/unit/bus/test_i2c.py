"""What the kernel's I2C says without an adapter; with one, see integration/bus/umockdev_i2c."""

import errno
import os
import sys

import pytest

from edged.bus import i2c as module
from edged.bus.i2c import KernelI2c, adapter_name, numbers
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def dev(tmp_path):
    made = tmp_path / "dev"
    made.mkdir()
    return made


@pytest.fixture
def devices(tmp_path):
    made = tmp_path / "sys/bus/i2c/devices"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def bus(tmp_path, clock):
    made = KernelI2c(1, dev=f"{tmp_path}/dev", sysfs=f"{tmp_path}/sys", clock=clock)
    yield made
    made.close()


def test_buses_are_listed_in_the_order_of_their_numbers(dev):
    for name in ("i2c-20", "i2c-1", "i2c-0", "i2c-", "i2c-x", "spidev0.0"):
        (dev / name).touch()
    assert numbers(str(dev)) == [0, 1, 20]


def test_an_adapter_has_the_kernels_name_or_none(devices, tmp_path):
    (devices / "i2c-1").mkdir()
    (devices / "i2c-1/name").write_text("bcm2835 (i2c@7e804000)\n")
    assert adapter_name(1, f"{tmp_path}/sys") == "bcm2835 (i2c@7e804000)"
    assert adapter_name(2, f"{tmp_path}/sys") == ""


async def test_a_bus_that_is_not_there_says_how_it_is_switched_on(bus, dev):
    for attempt in (bus.transfer(0x76, b"\xd0", 1), bus.detect(0x76)):
        with pytest.raises(NoDeviceError, match=r"i2c-1 is not there.*dtparam=i2c_arm=on"):
            await attempt


async def test_a_node_that_is_no_adapter_is_refused_and_left_closed(bus, dev):
    (dev / "i2c-1").touch()
    opened = []
    for _ in range(3):
        with pytest.raises(BusError, match="cannot be opened") as caught:
            await bus.transfer(0x76, b"\xd0", 1)
        assert caught.value.errno == errno.ENOTTY
        opened.append(len(os.listdir("/proc/self/fd")))
    # The thread and its loop may hold some; not one for each attempt.
    assert opened[1:] == opened[:-1]


async def test_a_missing_library_is_named_with_how_to_get_it(bus, dev, monkeypatch):
    monkeypatch.setitem(sys.modules, "smbus2", None)
    with pytest.raises(
        NoDeviceError, match="needs the Python package smbus2: .*pip install smbus2"
    ):
        await bus.transfer(0x76, b"\xd0", 1)


@pytest.mark.parametrize(
    ("address", "write", "read_len", "faults"),
    [
        (0x50, bytes(8193), 0, ["write"]),
        (0x50, b"\x00", 8193, ["read_len"]),
        (0x80, b"", 1, ["address"]),
        (-1, bytes(9000), 9000, ["write", "read_len", "address"]),
    ],
)
async def test_what_cannot_be_is_refused_with_every_fault_before_the_bus_is_opened(
    bus, address, write, read_len, faults
):
    with pytest.raises(InvalidArgumentsError) as caught:
        await bus.transfer(address, write, read_len)
    assert [fault.path for fault in caught.value.faults] == faults


async def test_the_owner_of_an_address_is_believed_for_a_second(bus, devices, clock):
    """Fault 25. Modules are loaded and drivers unbound while edged runs."""
    assert bus.owner(0x48) == ""
    (devices / "1-0048/hwmon/hwmon2").mkdir(parents=True)
    (devices / "1-0048/driver").symlink_to("../../drivers/lm75")
    assert bus.owner(0x48) == ""
    clock.advance(module.OWNER_S)
    assert bus.owner(0x48) == "lm75"
    with pytest.raises(BusyError, match=r"lm75 owns it: read it at \S*/1-0048/hwmon/hwmon2, or"):
        await bus.transfer(0x48, b"\x00", 2)
    assert await bus.detect(0x48)
    (devices / "1-0048/driver").unlink()
    (devices / "1-0048/hwmon/hwmon2").rmdir()
    (devices / "1-0048/hwmon").rmdir()
    (devices / "1-0048").rmdir()
    # The value went with the driver, within the second.
    with pytest.raises(BusyError, match=r"lm75 owns it: read it at \S*/1-0048, or"):
        await bus.transfer(0x48, b"\x00", 2)


async def test_a_sensor_with_a_bus_behind_it_is_read_at_its_values(bus, devices):
    """As the kernel's MPU6050, which may have a compass behind it."""
    for name in ("channel-0", "iio:device1"):
        (devices / "1-0068" / name).mkdir(parents=True)
    (devices / "1-0068/driver").symlink_to("../../drivers/inv-mpu6050-i2c")
    with pytest.raises(BusyError, match=r"owns it: read it at \S*/1-0068/iio:device1, or"):
        await bus.transfer(0x68, b"\x75", 1)


async def test_a_device_without_a_driver_has_no_owner(bus, devices):
    (devices / "1-0048").mkdir()
    assert bus.owner(0x48) == ""


async def test_a_hold_is_let_go_when_its_work_failed(bus):
    for _ in range(2):
        with pytest.raises(NoDeviceError):
            async with bus.hold() as held:
                await held.transfer(0x76, b"\xd0", 1)
