"""Which device nodes tools are given, and which groups come with them."""

from __future__ import annotations

import grp
import os
import stat

import pytest

from edged.errors import SandboxSetupError
from edged.sandbox import devices

CHARACTER = stat.S_IFCHR | 0o660


def _node(mode: int, gid: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, 0, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    "name",
    [
        *("i2c-1", "spidev0.0", "gpiochip0", "gpiomem", "ttyUSB0", "ttyACM0", "ttyAMA0", "ttyS0"),
        *("video0", "media0", "snd/pcmC0D0p", "input/event0", "dri/renderD128", "hidraw0"),
        *("bus/usb/001/004", "iio:device0", "rtc0", "watch", "null", "random"),
    ],
)
def test_buses_and_peripherals_are_given(name: str) -> None:
    assert devices.fault(name, CHARACTER) == ""


@pytest.mark.parametrize(
    "name",
    [
        *(
            "mem",
            "kmem",
            "port",
            "kmsg",
            "nvram",
            "hpet",
            "fuse",
            "kvm",
            "vhost-net",
            "vhost-vsock",
        ),
        *("loop0", "loop-control", "mapper/control", "sda", "nvme0", "mmcblk0rpmb", "dm-0", "sg0"),
        *("raw/raw1", "bsg/0:0:0:0", "ng0n1", "mtd0", "ubi0", "ubi_ctrl", "watchdog", "watchdog0"),
        *("uinput", "input/uinput", "uhid", "tty", "tty0", "tty63", "console", "ptmx", "pts/0"),
        *("vcs", "vcsa1", "net/tun", "vfio/vfio", "kfd", "rfkill", "cpu/0/msr"),
    ],
)
def test_what_reaches_memory_disks_the_kernel_or_people_is_refused(name: str) -> None:
    """Linux admin-guide/devices.txt."""
    assert devices.fault(name, CHARACTER) == "it reaches memory, disks, the kernel or a terminal"


@pytest.mark.parametrize("kind", [stat.S_IFBLK, stat.S_IFIFO, stat.S_IFREG, stat.S_IFDIR])
def test_only_character_devices_are_given(kind: int) -> None:
    """A block device is a disk, whatever its name."""
    assert devices.fault("i2c-1", kind | 0o660) == "it is no character device"


def test_missing_nodes_are_passed_over() -> None:
    """A peripheral may be plugged in later."""
    assert devices.groups(["/dev/i2c-4711"]) == []
    assert devices.groups([]) == []


def test_a_node_of_root_brings_no_group() -> None:
    assert devices.groups(["/dev/null"]) == []


def test_a_link_out_of_dev_is_refused(tmp_path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/i2c-1").symlink_to("/dev/null")
    with pytest.raises(SandboxSetupError, match="i2c-1 is not given to tools: it leads out of"):
        devices.groups([f"{tmp_path}/dev/i2c-1"], f"{tmp_path}/dev")


def test_a_link_is_judged_by_what_it_stands_for(tmp_path) -> None:
    """Udev makes links such as /dev/serial/by-id; another one may lead to a disk."""
    (tmp_path / "by-id").mkdir()
    (tmp_path / "disk").write_text("")
    (tmp_path / "by-id/x").symlink_to("../disk")
    with pytest.raises(SandboxSetupError, match="by-id/x is not given.*no character device"):
        devices.groups([f"{tmp_path}/by-id/x"], str(tmp_path))


def test_what_cannot_be_looked_at_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxSetupError, match="file/i2c-1: Not a directory"):
        devices.groups([f"{tmp_path}/file/i2c-1"], str(tmp_path))


def test_only_groups_of_peripherals_are_joined() -> None:
    """A character device of the group disk would open all disks."""
    gids = {
        name: grp.getgrnam(name).gr_gid
        for name in ("root", "disk", "tty", "shadow", "video", "dialout")
    }
    unknown = max(entry.gr_gid for entry in grp.getgrall()) + 4711
    nodes = [_node(CHARACTER, gid) for gid in (*gids.values(), unknown)]
    assert devices.groups_of(nodes) == sorted([gids["video"], gids["dialout"]])


def test_a_group_that_may_not_use_the_node_is_not_joined() -> None:
    gid = grp.getgrnam("video").gr_gid
    assert devices.groups_of([_node(stat.S_IFCHR | 0o606, gid)]) == []
