"""Files of sysfs, on a tree of plain files that stands in for it.

A FIFO without a reader gives ENXIO when it is opened for writing, a directory
EISDIR when it is read: where the kernel would give an error.
"""

import errno
import os
import threading

import pytest

from edged.bus import faults
from edged.bus.sysfs import KernelSysfs, write_text
from edged.errors import BusError, BusyError, NoDeviceError


@pytest.fixture
def root(tmp_path):
    hwmon = tmp_path / "class/hwmon/hwmon1"
    hwmon.mkdir(parents=True)
    (hwmon / "name").write_text("lm75\n")
    (hwmon / "temp1_input").write_text("21500\n")
    return tmp_path


@pytest.fixture
async def sysfs(root):
    bus = KernelSysfs(str(root))
    yield bus
    await bus.close()


async def test_a_file_is_read_without_its_line_end(sysfs):
    """`edged.bus.Sysfs.read`; paths are relative to the root, with or without a slash."""
    assert await sysfs.read("class/hwmon/hwmon1/temp1_input") == "21500"
    assert await sysfs.read("/class/hwmon/hwmon1/name") == "lm75"


async def test_a_directory_is_listed_sorted_and_an_absent_one_is_empty(sysfs):
    """`edged.bus.Sysfs.list`."""
    assert await sysfs.list("class/hwmon/hwmon1") == ["name", "temp1_input"]
    assert await sysfs.list("bus/iio/devices") == []
    assert await sysfs.list("class/hwmon/hwmon1/name") == []


async def test_a_list_that_is_refused_is_an_error_and_not_an_empty_list(root, sysfs):
    """Two links that lead to each other: ELOOP."""
    (root / "loop").symlink_to("loop")
    with pytest.raises(BusError) as caught:
        await sysfs.list("loop")
    assert caught.value.errno == errno.ELOOP


async def test_a_file_that_is_not_there_is_no_device(root, sysfs):
    """A chip that was unplugged takes its directory along."""
    with pytest.raises(NoDeviceError, match=f"{root}/class/hwmon/hwmon7/name is not there"):
        await sysfs.read("class/hwmon/hwmon7/name")
    with pytest.raises(NoDeviceError, match="is not there"):
        await sysfs.read("class/hwmon/hwmon1/name/below")


async def test_a_file_that_the_kernel_cannot_read_keeps_its_errno(root, sysfs):
    """`edged.bus.Sysfs.read`: BusError; the next read is served."""
    (root / "broken").mkdir()
    with pytest.raises(BusError, match="broken: the kernel could not do it") as caught:
        await sysfs.read("broken")
    assert caught.value.errno == errno.EISDIR
    assert await sysfs.read("class/hwmon/hwmon1/name") == "lm75"


async def test_a_file_that_gives_nothing_never_makes_the_reader_wait(root, sysfs):
    """A FIFO that nobody writes to, opened plainly, would block for ever."""
    os.mkfifo(root / "silent")
    assert await sysfs.read("silent") == ""


async def test_bytes_that_are_no_text_are_shown_and_not_fatal(root, sysfs):
    """Devicetree's properties may hold anything."""
    (root / "blob").write_bytes(b"a\xff\n")
    assert await sysfs.read("blob") == "a�"


async def test_the_loop_never_waits_for_a_read(root, sysfs):
    """Architecture: blocking calls on that bus's own thread."""
    await sysfs.read("class/hwmon/hwmon1/name")
    assert "sysfs" in [thread.name for thread in threading.enumerate()]
    await sysfs.close()
    assert "sysfs" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(NoDeviceError, match="closed"):
        await sysfs.read("class/hwmon/hwmon1/name")


def test_a_write_replaces_what_stands_there(root):
    path = root / "class/hwmon/hwmon1/temp1_input"
    write_text(str(path), "7")
    assert path.read_text() == "7"


def test_a_write_that_fails_is_an_error_of_edged(root):
    os.mkfifo(root / "nobody")
    with pytest.raises(NoDeviceError, match="the device is gone or does not answer"):
        write_text(str(root / "nobody"), "1")
    with pytest.raises(NoDeviceError, match="is not there"):
        write_text(str(root / "absent"), "1")


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOENT, NoDeviceError, "is not there"),
        (errno.ENODEV, NoDeviceError, "the device is gone"),
        (errno.EREMOTEIO, NoDeviceError, "does not answer"),
        (errno.EIO, BusError, "no valid answer"),
        (errno.ETIMEDOUT, BusError, "did not answer in time"),
        (errno.EINVAL, BusError, "refused the value"),
        (errno.EBUSY, BusyError, "another program or driver"),
        (errno.EACCES, BusError, "for root alone"),
        (errno.EPERM, BusError, "for root alone"),
        (errno.ENOSPC, BusError, "the kernel could not do it"),
    ],
)
def test_every_errno_of_a_file_is_told_in_a_makers_words(number, kind, words):
    """errno(3) as drivers of hwmon, iio and w1 give them."""
    error = faults.file_error(number, "/sys/x")
    assert isinstance(error, kind)
    assert "/sys/x" in str(error)
    assert words in str(error)
    if kind is BusError:
        assert error.errno == number


def test_who_may_not_open_a_file_of_a_group_is_told_the_group():
    """Debian and Raspberry Pi OS give PWM to the group gpio."""
    error = faults.file_error(errno.EACCES, "/sys/class/pwm/pwmchip0/export", "pwm")
    assert "usermod -aG gpio" in str(error)
