"""How much the callers' files may take: a quota of each user's, and what stays free.

A user's directories are counted by a walk, and only when what is known of them might not
do: the free space of the file system, one system call, says by how much they can have grown
since. What is hidden from the walk counts as too much. Any thread but for `left`.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading

import msgspec

from edged.errors import StoreError
from edged.identity import Caller
from edged.sandbox.outcome import size
from edged.sections import Files
from edged.units import size_bytes

QUOTA_SHARE = 4
"""`auto`: a user may have a quarter of the disk."""

RESERVE_SHARE, RESERVE_MAX = 20, 256 << 20
"""`auto`: a twentieth of the disk stays free, and not more than this."""

OVER_SHARE = 8
"""Over its quota by up to an eighth of it a user may still run what removes files."""

LITTLE = 1 << 20
"""Bytes that a call may add then."""

ASKED_MAX, FILES_PER_ASKED = 16, 100
"""A count is made anew after so many questions, and one more for so many files that it costs
to look at: what others remove hides what is added."""

DEPTH_MAX = 128
"""Directories below each other that are walked."""

LEAST = 4_096
"""Bytes that a file counts at least: an empty one has an inode and a name too."""

HIDDEN = 1 << 62
"""Bytes that what cannot be looked into counts for."""

BLOCK = 512
"""Unit of `st_blocks` (stat(2))."""

_COUNTED = {
    "workspace": "/workspace",
    "home": "/officer/user/home",
    "files": "/officer/user/files",
    "data": "/officer/data",
}
"""What a user's calls can write, and how it is shown; media have bounds of their own."""


class _Count(msgspec.Struct):
    """What is known of a user's files.

    Attributes:
        bytes: that they took.
        files: how many.
        unseen: a directory of theirs that could not be looked into.
        free: bytes that were free then on the disk.
        most: free at most since then.
        added: by file tools since then.
        asked: how often since then.
    """

    bytes: int
    files: int
    unseen: str
    free: int
    most: int
    added: int = 0
    asked: int = 0


class Room:
    """The bounds of all users' files."""

    def __init__(self, data: str, settings: Files) -> None:
        """Nothing is counted yet.

        Args:
            data: the data directory.
            settings: of which `quota` and `reserve` are the bounds.
        """
        self._data = data
        self._settings = settings
        self._counts: dict[str, _Count] = {}
        self._locks: dict[str, threading.Lock] = {}

    # What is asked ------------------------------------------------------------------------

    def check_free(self, caller: Caller) -> None:
        """Refuse an agent while the disk has less free than its reserve.

        Raises:
            StoreError: says how much is free, and what to do.
        """
        if caller.is_owner:
            return
        disk = self._disk()
        reserve = self._reserve(disk)
        free = disk.f_bavail * disk.f_frsize
        if free < reserve:
            raise StoreError(
                f"the disk has {size(free)} free, of which agents leave {size(reserve)} "
                "(tools.files.reserve of the configuration): free some space"
            )
        if reserve and disk.f_favail < disk.f_files // RESERVE_SHARE:
            raise StoreError(
                f"the disk has room for {disk.f_favail:,} more files, and agents leave it a "
                "twentieth (tools.files.reserve of the configuration): remove some files"
            )

    def take(self, caller: Caller, growth: int) -> None:
        """Count bytes that are about to be added to a caller's directories.

        Raises:
            StoreError: they would be over the caller's quota.
        """
        quota = self._quota()
        if not quota or growth <= 0:
            return
        with self._lock(caller.user):
            count = self._counts.get(caller.user)
            if (
                count is None
                or self._is_old(count)
                or (self._upper(count) + growth > quota and self._free() != count.free)
            ):
                count = self._recount(caller.user)
            if self._upper(count) + growth > quota:
                raise StoreError(_full(count, quota))
            count.added += growth

    async def left(self, caller: Caller, most: int) -> int:
        """Bytes that a sandboxed call may add to its caller's directories, at most `most`.

        Raises:
            StoreError: they are far over the quota, or the disk has too little free.
        """
        self.check_free(caller)
        quota = self._quota()
        if not quota:
            return most
        lock = self._lock(caller.user)
        if lock.acquire(blocking=False):
            try:
                count = self._counts.get(caller.user)
                if count is not None and not self._has_drifted(count, quota):
                    return self._allowed(caller, count, quota, most)
            finally:
                lock.release()

        def recounted() -> int:
            with lock:
                return self._allowed(caller, self._recount(caller.user), quota, most)

        return await asyncio.to_thread(recounted)

    def _allowed(self, caller: Caller, count: _Count, quota: int, most: int) -> int:
        used = self._upper(count)
        if used > quota + quota // OVER_SHARE and not caller.is_owner:
            raise StoreError(_full(count, quota))
        return min(most, max(quota - used, LITTLE))

    # What is known ------------------------------------------------------------------------

    def _recount(self, user: str) -> _Count:
        free = self._free()
        walk = _walked(os.path.join(self._data, user))
        found = HIDDEN if walk.unseen else walk.bytes
        count = self._counts[user] = _Count(found, walk.files, walk.unseen, free, free)
        return count

    def _has_drifted(self, count: _Count, quota: int) -> bool:
        """Whether so much came or went that a call might have far too much or too little."""
        added = self._upper(count) - count.bytes
        slack = max(LITTLE, (quota - count.bytes) // OVER_SHARE)
        return max(added, count.most - count.free) > slack or self._is_old(count)

    @staticmethod
    def _is_old(count: _Count) -> bool:
        count.asked += 1
        return count.asked > ASKED_MAX + count.files // FILES_PER_ASKED

    def _upper(self, count: _Count) -> int:
        """Bytes that a user has at most, but for what others removed meanwhile."""
        free = self._free()
        count.most = max(count.most, free)
        return count.bytes + max(count.added, count.most - free)

    def _lock(self, user: str) -> threading.Lock:
        return self._locks.setdefault(user, threading.Lock())

    # The disk -----------------------------------------------------------------------------

    def _disk(self) -> os.statvfs_result:
        try:
            return os.statvfs(self._data)
        except OSError as error:
            raise StoreError(f"{self._data}: {error.strerror}") from None

    def _free(self) -> int:
        disk = self._disk()
        return disk.f_bfree * disk.f_frsize

    def _quota(self) -> int:
        """Bytes of a user; 0 where there is no bound."""
        if self._settings.quota != "auto":
            return size_bytes(self._settings.quota)
        disk = self._disk()
        return disk.f_blocks * disk.f_frsize // QUOTA_SHARE

    def _reserve(self, disk: os.statvfs_result) -> int:
        if self._settings.reserve != "auto":
            return size_bytes(self._settings.reserve)
        return min(disk.f_blocks * disk.f_frsize // RESERVE_SHARE, RESERVE_MAX)


def _full(count: _Count, quota: int) -> str:
    if count.unseen:
        return (
            f"{count.unseen} cannot be looked into, so what your files take is not known: "
            "make it readable (chmod u+rx), or remove it"
        )
    return (
        f"your files take {size(count.bytes + count.added)} of the {size(quota)} that they may "
        "(tools.files.quota of the configuration): remove some, or write less in their place"
    )


# Counting ---------------------------------------------------------------------------------


def _walked(base: str) -> _Walk:
    """What a user's directories hold."""
    walk = _Walk()
    for name, shown in _COUNTED.items():
        try:
            fd = os.open(os.path.join(base, name), _DIRECTORY)
        except FileNotFoundError:
            continue
        except OSError:
            walk.unseen = shown
            continue
        try:
            walk.add(fd, shown, 0)
        finally:
            os.close(fd)
    return walk


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Walk:
    """Adds up directories that others change meanwhile."""

    def __init__(self) -> None:
        self.bytes = self.files = 0
        self.unseen = ""
        self._linked: set[tuple[int, int]] = set()
        """Files of several names, which are counted once."""

    def add(self, folder: int, path: str, depth: int) -> None:
        """Add all that is below an open directory."""
        for name in self._entries(folder):
            below = f"{path}/{name}"
            if depth == DEPTH_MAX:
                self.unseen = path
                return
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=folder)
            except PermissionError:
                self.unseen = below
                continue
            except OSError:
                # It went away, or something else is there now.
                continue
            try:
                self.add(fd, below, depth + 1)
            finally:
                os.close(fd)

    def _entries(self, folder: int) -> list[str]:
        """Add what is in one directory; the names of those below."""
        below: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(found.st_mode):
                    below.append(entry.name)
                elif found.st_nlink > 1:
                    key = found.st_dev, found.st_ino
                    if key in self._linked:
                        continue
                    self._linked.add(key)
                self.files += 1
                self.bytes += max(found.st_blocks * BLOCK, LEAST)
        return below
