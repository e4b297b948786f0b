"""Which device nodes a tool may be given, and the groups that they need.

A node is no more than a bus or a peripheral: what reaches memory, disks, the kernel
or other people's terminals and keyboards is refused, whoever declared it. Looked at
when a sandbox is started: what a name stands for changes while a board runs.

Source: Linux admin-guide/devices.txt; the groups are those of udev's own rules.
"""

from __future__ import annotations

import fnmatch
import grp
import os
import stat
from collections.abc import Iterable

from edged.errors import SandboxSetupError

_MEMORY_AND_KERNEL = ("mem", "kmem", "port", "kmsg", "nvram", "hpet", "vc-mem", "cpu/*")
_MAKERS = (  # of virtual machines, file systems, networks and sleep
    *("kvm", "vhost*", "vfio/*", "iommu", "vsock", "kfd", "rfkill", "net/*", "fuse", "cuse"),
    *("autofs", "btrfs-control", "userfaultfd", "snapshot", "watchdog*"),
)
_DISKS = (  # by any other name, and flash
    *("loop*", "mapper/*", "raw/*", "sd*", "sg*", "bsg/*", "nvme*", "ng[0-9]*"),
    *("mmcblk*", "dm-*", "mtd*", "ubi*"),
)
_PEOPLE = (  # their terminals, and what types in their place
    *("tty", "tty[0-9]*", "vcs*", "console", "ptmx", "pts/*", "uinput", "input/uinput", "uhid"),
)
REFUSED = (*_MEMORY_AND_KERNEL, *_MAKERS, *_DISKS, *_PEOPLE)
"""Names below /dev, as patterns."""

GROUPS = frozenset(
    {
        *("i2c", "spi", "gpio", "dialout", "plugdev", "bluetooth"),
        *("video", "render", "input", "audio"),
    }
)
"""Groups that a tool may be put in for a declared node; those of disks never."""


def groups(paths: Iterable[str], dev: str = "/dev") -> list[int]:
    """Check declared nodes; the groups through which a tool reaches them.

    Args:
        paths: as declared; what is missing is passed over.
        dev: the directory of device nodes.

    Raises:
        SandboxSetupError: one of them may not be given; says which and why.
    """
    found = [status for path in paths if (status := _checked(path, dev)) is not None]
    return groups_of(found) if found else []


def groups_of(nodes: Iterable[os.stat_result]) -> list[int]:
    """The groups of nodes that may use them, of `GROUPS` only."""
    used = {node.st_gid for node in nodes if node.st_mode & (stat.S_IRGRP | stat.S_IWGRP)}
    return sorted(gid for gid in used if gid and _name(gid) in GROUPS)


def fault(name: str, mode: int) -> str:
    """Why a node may not be given; empty when it may.

    Args:
        name: below /dev, without links.
        mode: its type, as `st_mode`.
    """
    if not stat.S_ISCHR(mode):
        return "it is no character device"
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in REFUSED):
        return "it reaches memory, disks, the kernel or a terminal"
    return ""


def _checked(path: str, dev: str) -> os.stat_result | None:
    """The state of a node; None when it is missing."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SandboxSetupError(f"device {path}: {error.strerror}") from error
    inside = real.startswith(dev + "/")
    why = fault(real[len(dev) + 1 :], status.st_mode) if inside else f"it leads out of {dev}"
    if why:
        raise SandboxSetupError(f"device {path} is not given to tools: {why}")
    return status


def _name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
