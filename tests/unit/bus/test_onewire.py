"""1-wire devices on a tree of plain files that stands in for sysfs."""

import asyncio
import errno
import shutil
import threading

import pytest

from edged.bus.onewire import KernelOneWire
from edged.errors import BusError, InvalidArgumentsError, NoDeviceError

FIRST, SECOND, OTHER = "28-0316a2795bff", "28-0000072f4c11", "10-000802824e58"


@pytest.fixture
def root(tmp_path):
    """Two masters as the kernel shows them: links below bus/w1/devices to their directories."""
    listed = tmp_path / "bus/w1/devices"
    listed.mkdir(parents=True)
    for master, ids in (("w1_bus_master1", [FIRST, SECOND]), ("w1_bus_master2", [OTHER])):
        for name in ids:
            device = tmp_path / "devices" / master / name
            device.mkdir(parents=True)
            (device / "temperature").write_text("21562\n")
            (listed / name).symlink_to(device)
        (listed / master).symlink_to(tmp_path / "devices" / master)
    return tmp_path


@pytest.fixture
async def bus(root):
    made = KernelOneWire(str(root))
    yield made
    await made.close()


def threads():
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("w1"))


async def test_devices_are_listed_and_masters_are_not(bus):
    """Documentation/w1/w1-generic.rst: both are in the same directory."""
    assert await bus.devices() == [OTHER, SECOND, FIRST]


async def test_a_board_without_1_wire_has_no_devices(tmp_path):
    bus = KernelOneWire(str(tmp_path))
    assert await bus.devices() == []
    with pytest.raises(
        NoDeviceError, match="there is no bus: switch it on with dtoverlay=w1-gpio"
    ):
        await bus.read(FIRST, "temperature")
    (tmp_path / "bus/w1/devices/w1_bus_master1").mkdir(parents=True)
    with pytest.raises(
        NoDeviceError, match="there is none: check power, data line and the pull-up"
    ):
        await bus.read(FIRST, "temperature")
    await bus.close()


async def test_a_file_of_a_device_is_read(bus):
    assert await bus.read(FIRST, "temperature") == "21562"


async def test_each_master_has_a_thread_of_its_own(bus):
    """A conversion blocks for 0.75 s: the other master's devices need not wait for it."""
    assert await asyncio.gather(bus.read(FIRST, "temperature"), bus.read(OTHER, "temperature"))
    assert threads() == ["w1", "w1_bus_master1", "w1_bus_master2"]
    await bus.read(SECOND, "temperature")
    assert threads() == ["w1", "w1_bus_master1", "w1_bus_master2"]


async def test_a_device_that_vanished_is_no_device(root, bus):
    """Sensor gone: its directory vanishes."""
    await bus.read(FIRST, "temperature")
    (root / "bus/w1/devices" / FIRST).unlink()
    with pytest.raises(NoDeviceError, match=f"no 1-wire device {FIRST}: there is {OTHER}, "):
        await bus.read(FIRST, "temperature")


async def test_a_device_that_vanishes_under_its_name_is_no_device(root, bus):
    """Between the look and the read."""
    shutil.rmtree(root / "devices/w1_bus_master1" / FIRST)
    with pytest.raises(NoDeviceError, match="temperature is not there"):
        await bus.read(FIRST, "temperature")


async def test_an_empty_file_is_a_bus_error_and_never_a_value(root, bus):
    """drivers/w1/slaves/w1_therm.c, w1_slave_show: a failed conversion gives nothing."""
    (root / "devices/w1_bus_master1" / FIRST / "temperature").write_text("")
    with pytest.raises(BusError, match="check the wiring") as caught:
        await bus.read(FIRST, "temperature")
    assert caught.value.errno == errno.EIO


async def test_a_file_that_the_kernel_cannot_read_is_a_bus_error(root, bus):
    (root / "devices/w1_bus_master1" / FIRST / "eeprom").mkdir()
    with pytest.raises(BusError) as caught:
        await bus.read(FIRST, "eeprom")
    assert caught.value.errno == errno.EISDIR


async def test_a_setting_is_written(root, bus):
    """`resolution`, by drivers/w1/slaves/w1_therm.c since Linux 5.10."""
    file = root / "devices/w1_bus_master1" / FIRST / "resolution"
    file.write_text("12\n")
    await bus.write(FIRST, "resolution", "9")
    assert file.read_text() == "9"
    with pytest.raises(NoDeviceError):
        await bus.write(FIRST, "absent", "9")
    with pytest.raises(NoDeviceError):
        await bus.write("28-0316a2795b00", "resolution", "9")


@pytest.mark.parametrize(
    ("device", "attribute", "words"),
    [
        ("../../../etc", "hostname", "device: '../../../etc' is not a 1-wire id"),
        (FIRST, "../../w1_bus_master1/temperature", "attribute: '../../w1_bus"),
        (FIRST, "", "attribute: ''"),
        ("w1_bus_master1", "/etc/passwd", "device: .*attribute: '/etc/passwd'"),
        (FIRST.upper(), "temperature", "such as 28-0316a2795bff"),
    ],
)
async def test_names_that_lead_elsewhere_are_refused(device, attribute, words, bus):
    """The names come from callers."""
    with pytest.raises(InvalidArgumentsError, match=words):
        await bus.read(device, attribute)
    with pytest.raises(InvalidArgumentsError, match=words):
        await bus.write(device, attribute, "1")


async def test_after_the_close_nothing_is_left(bus):
    await bus.read(FIRST, "temperature")
    await bus.close()
    assert threads() == []
    with pytest.raises(NoDeviceError, match="closed"):
        await bus.devices()
