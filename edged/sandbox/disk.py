"""Growth of the directories that a call may write: cheap while there is none.

The free space of the file system is one system call, and so are its free inodes; only
when these have fallen by more than a call may add are the directories walked to see
whether this call did it. Loop thread only; the walk gives way to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from edged.sandbox import proc
from edged.sandbox.profile import Limits

_PAUSE_EVERY = 1_000
_DEPTH_MAX = 128
_BLOCK = 512
"""Unit of `st_blocks` (stat(2))."""
_CLOCK_LAG_NS = 20_000_000
"""The kernel stamps files by the tick before."""


class _Amount(msgspec.Struct):
    bytes: int = 0
    files: int = 0


class DiskWatch:
    """Watches the directories of one call from its start on."""

    def __init__(
        self,
        directories: Sequence[int],
        limits: Limits,
        started: float,
        pids: Callable[[], list[int]],
        places: Sequence[str] = (),
        ends: Sequence[int] = (),
    ) -> None:
        """A watch.

        Args:
            directories: their descriptors (`O_PATH` will do); used until the end.
            limits: of which `disk_max` and `files_max` are what the call may add.
            started: wall time of its start, seconds since 1970.
            pids: the processes of the call, asked for only under suspicion.
            places: the directories, as these see them.
            ends: sockets of this process that lead to these.
        """
        self._directories = directories
        self._limits = limits
        self._since_ns = int(started * 1e9) - _CLOCK_LAG_NS
        self._pids = pids
        self._places = places
        self._ends = ends
        self._free = {os.fstat(fd).st_dev: (fd, _free(fd)) for fd in directories}
        self._trigger = _Amount(limits.disk_max, limits.files_max)
        self._others = 0
        """Bytes by which the space is known to have fallen for others."""

    async def exceeded(self) -> Literal["", "disk", "files"]:
        """What this call has added more of than it may."""
        fallen = self._fallen()
        if fallen.bytes < self._trigger.bytes and fallen.files < self._trigger.files:
            return ""
        devices = set(self._free)
        held = await asyncio.to_thread(
            proc.unnamed, self._pids(), devices, self._places, self._ends
        )
        added = _Amount(held.bytes, held.files)
        for directory in self._directories:
            await self._add_changed(added, directory, ".", 0)
        if added.bytes >= self._limits.disk_max:
            return "disk"
        if added.files >= self._limits.files_max:
            return "files"
        if not held.hidden:
            self._others = max(0, fallen.bytes - added.bytes)
        elif fallen.bytes - self._others >= self._limits.disk_max:
            return "disk"
        # Another filled it: look again later.
        if fallen.bytes >= self._trigger.bytes:
            self._trigger.bytes = fallen.bytes + self._limits.disk_max // 4
        if fallen.files >= self._trigger.files:
            self._trigger.files = fallen.files + self._limits.files_max // 4
        return ""

    def _fallen(self) -> _Amount:
        """By how much there is less free than there was at most since the start.

        What others remove meanwhile must not hide what the call adds.
        """
        fallen = _Amount()
        for fd, most in self._free.values():
            now = _free(fd)
            most.bytes, most.files = max(most.bytes, now.bytes), max(most.files, now.files)
            fallen.bytes += most.bytes - now.bytes
            fallen.files += most.files - now.files
        return fallen

    def _is_over(self, added: _Amount) -> bool:
        limits = self._limits
        return added.bytes >= limits.disk_max or added.files >= limits.files_max

    async def _add_changed(self, added: _Amount, parent: int, name: str, depth: int) -> None:
        """Add what changed below a directory since the start, as far as it matters.

        Inode times cannot be set back (utimensat(2)), so nothing hides by its date;
        what hides by depth or by mode counts as too much.
        """
        try:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if isinstance(error, PermissionError):
                added.bytes += self._limits.disk_max
            return
        try:
            below = await self._add_entries(added, folder)
            if below and depth == _DEPTH_MAX:
                added.bytes += self._limits.disk_max
            for child in below:
                if self._is_over(added):
                    break
                await self._add_changed(added, folder, child, depth + 1)
        finally:
            os.close(folder)
        await asyncio.sleep(0)

    async def _add_entries(self, added: _Amount, folder: int) -> list[str]:
        """Add what changed in one directory; the names of those below."""
        below: list[str] = []
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries, 1):
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        below.append(entry.name)
                    if status.st_ctime_ns >= self._since_ns:
                        added.bytes += status.st_blocks * _BLOCK
                        added.files += 1
                if count % _PAUSE_EVERY == 0:
                    await asyncio.sleep(0)
                    if self._is_over(added):
                        break
        return below


def _free(fd: int) -> _Amount:
    """What is free on the file system of a descriptor."""
    status = os.fstatvfs(fd)
    return _Amount(status.f_bfree * status.f_frsize, status.f_ffree)
