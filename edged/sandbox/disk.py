"""Growth of the directories that a call may write: cheap while there is none.

The free space of the file system is one system call; only when it has fallen by
more than a call may add are the directories walked to see whether this call did it.
Loop thread only; the walk gives way to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Sequence

from edged.sandbox import proc

_PAUSE_EVERY = 1_000
_DEPTH_MAX = 128
_BLOCK = 512
"""Unit of `st_blocks` (stat(2))."""
_CLOCK_LAG_NS = 20_000_000
"""The kernel stamps files by the tick before."""


class DiskWatch:
    """Watches the directories of one call from its start on."""

    def __init__(
        self,
        directories: Sequence[int],
        disk_max: int,
        started: float,
        pids: Callable[[], list[int]],
    ) -> None:
        """A watch.

        Args:
            directories: their descriptors (`O_PATH` will do); used until the end.
            disk_max: bytes that the call may add.
            started: wall time of its start, seconds since 1970.
            pids: the processes of the call, asked for only under suspicion.
        """
        self._directories = directories
        self._disk_max = disk_max
        self._since_ns = int(started * 1e9) - _CLOCK_LAG_NS
        self._pids = pids
        self._free = {os.fstat(fd).st_dev: (fd, _free(fd)) for fd in directories}
        self._trigger = disk_max

    async def exceeded(self) -> bool:
        """Whether this call has added more than it may."""
        fallen = sum(max(0, before - _free(fd)) for fd, before in self._free.values())
        if fallen < self._trigger:
            return False
        total = proc.unnamed_bytes(self._pids(), set(self._free))
        for directory in self._directories:
            total += await self._changed(directory, ".", 0)
        if total >= self._disk_max:
            return True
        self._trigger = fallen + self._disk_max // 4  # another filled it: look again later
        return False

    async def _changed(self, parent: int, name: str, depth: int) -> int:
        """Bytes of files below a directory that changed since the start.

        Inode times cannot be set back (utimensat(2)), so nothing hides by its date;
        what hides by depth or by mode counts as too much.
        """
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            return self._disk_max if isinstance(error, PermissionError) else 0
        total = 0
        below: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for count, entry in enumerate(entries, 1):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            below.append(entry.name)
                        elif status.st_ctime_ns >= self._since_ns:
                            total += status.st_blocks * _BLOCK
                    if count % _PAUSE_EVERY == 0:
                        await asyncio.sleep(0)
            if below and depth == _DEPTH_MAX:
                return self._disk_max
            for child in below:
                total += await self._changed(folder, child, depth + 1)
        finally:
            os.close(folder)
        await asyncio.sleep(0)
        return total


def _free(fd: int) -> int:
    """Bytes free on the file system of a descriptor."""
    status = os.fstatvfs(fd)
    return status.f_bfree * status.f_frsize
