"""Writes a caller's file whole or not at all, and durably.

The new content is a file without a name until it is whole on disk; then it takes the
place of the old one, with its mode, owner and attributes. A crash leaves the old file or
the new one whole; where the disk knows no files without a name (FAT, NFS) a hidden part of
the new one too. Any thread. Source: open(2) O_TMPFILE, linkat(2),
rename(2), fsync(2).
"""

from __future__ import annotations

import binascii
import errno
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from edged.errors import BusyError, DeniedError, EdgedError, Fault, InvalidArgumentsError
from edged.sandbox.account import Account
from edged.store import write_all
from edged.workspace.beneath import acting_as, close, open_at, path_of
from edged.workspace.opening import Way, fault
from edged.workspace.room import BLOCK, LEAST

TRIES = 8
"""How often the place of a file is looked up anew that others rename meanwhile."""

CHUNK = 1 << 20
"""Bytes between two looks whether the caller still wants it."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_PERMISSIONS = 0o777

_NEW_FILE = 0o664
"""What a new file may have of its directory's permissions: it is open to those to whom the
directory is, is no program, and is written by no stranger."""

_MARKED = 0o1700
"""Permissions of a directory while it is made, by which it is known: few have these."""

_NEW_DIRECTORY = 0o2775
"""Likewise of a new directory, which belongs to its parent's group where that does."""


class Written(NamedTuple):
    """A file that was written.

    Attributes:
        created: it was not there before.
        device: its own.
        inode: likewise.
        size: in bytes.
    """

    created: bool
    device: int
    inode: int
    size: int


class StoppedError(Exception):
    """The caller does not want it any more; nothing was changed."""


class _Spot(NamedTuple):
    """The directory of a file, its name there, and itself where it is there."""

    directory: int
    name: str
    old: int
    shown: str


_NOWHERE = _Spot(-1, "", -1, "")


def replace(
    way: Way,
    data: bytes,
    *,
    create: bool = True,
    overwrite: bool = True,
    expected: os.stat_result | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Written:
    """Write a file, in the place of what is there.

    Args:
        way: to where, for writing.
        data: all of it.
        create: a missing one is made, with the directories above it.
        overwrite: one that is there is replaced.
        expected: the file that is replaced must still be this one, and unchanged.
        stopped: asked until the last moment; then nothing is changed.

    Raises:
        EdgedError: nothing was changed, or, where a disk fails at the very last step, it may
            not survive a power cut.
        StoppedError: see `stopped`.
    """
    base = new = -1
    spot = _NOWHERE
    try:
        base = way.base()
        for _ in range(TRIES):
            # At once: a number that is closed twice may be another's by then.
            before, spot, new = (spot.directory, spot.old, new), _NOWHERE, -1
            close(*before)
            with acting_as(way.route.account):
                spot = _locate(way, base, create=create)
                if spot.old >= 0 and not overwrite:
                    raise _there(spot)
                old = _writable(spot)
                new, temporary = _unnamed(spot)
            try:
                way.make_room(_growth(old, len(data)))
                _fill(
                    spot, new, data, old, like_directory=way.route.account is None, stopped=stopped
                )
                if _put(spot, new, temporary, expected):
                    made = os.fstat(new)
                    if old is None:
                        way.note_made(way.route.path, made)
                    return Written(old is None, made.st_dev, made.st_ino, len(data))
                if not overwrite:
                    raise _there(spot)
            finally:
                if temporary:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=spot.directory)
        raise BusyError(f"{way.shown} is renamed again and again: try later")
    except OSError as error:
        if isinstance(error, EdgedError):
            raise
        raise fault(way.shown, error) from None
    finally:
        close(base, new, spot.directory, spot.old)


def _there(spot: _Spot) -> InvalidArgumentsError:
    reason = f"{spot.shown} is there already: overwrite=true replaces it"
    return InvalidArgumentsError([Fault("path", reason)])


# Where ------------------------------------------------------------------------------------


def _locate(way: Way, base: int, *, create: bool) -> _Spot:
    """The file's directory and name, links followed as far as they may be."""
    for _ in range(TRIES):
        try:
            old = way.opened(base, way.route.path, os.O_PATH)
        except FileNotFoundError:
            if not create:
                raise
            return _missing(way, base)
        directory = -1
        try:
            way.check(old)
            if stat.S_ISDIR(os.fstat(old).st_mode):
                raise _failed(errno.EISDIR)
            directory, name, shown = _parent(way, base, old)
            if _is_at(directory, name, old):
                found = _Spot(directory, name, old, shown)
                directory = old = -1
                return found
        except FileNotFoundError:
            continue
        finally:
            close(directory, old)
    raise BusyError(f"{way.shown} is renamed again and again: try later")


def _parent(way: Way, base: int, old: int) -> tuple[int, str, str]:
    """Where an open file has its name: directory, name, and how it is shown."""
    if not way.route.links:
        folder, name = os.path.split(way.route.path)
        return open_at(base, folder, _DIRECTORY, links=False), name, way.shown
    real = path_of(old)
    way.check_real(real, write=True)
    place = way.place(real)
    folder, name = os.path.split(place.inner)
    if place.root == way.route.place.root:
        return open_at(base, folder, _DIRECTORY, links=False), name, place.shown
    other = way.other(place)
    try:
        return open_at(other, folder, _DIRECTORY, links=False), name, place.shown
    finally:
        close(other)


def _is_at(directory: int, name: str, fd: int) -> bool:
    there, found = os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(fd)
    return (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino)


def _missing(way: Way, base: int) -> _Spot:
    folder, name = os.path.split(way.route.path)
    if not name:
        raise _failed(errno.EISDIR)
    directory = _made(way, base, folder)
    try:
        way.check_real(f"{path_of(directory)}/{name}", write=True)
        target = os.readlink(name, dir_fd=directory)
    except DeniedError:
        close(directory)
        raise
    except OSError:
        return _Spot(directory, name, -1, way.shown)
    close(directory)
    reason = f"{way.shown} is a link to {target}, which is not there: name that"
    raise InvalidArgumentsError([Fault("path", reason)])


def _made(way: Way, base: int, folder: str) -> int:
    """A directory, made with those above it where they are missing."""
    fd, missing = _deepest(way, base, folder)
    at = ""
    try:
        way.check_real(path_of(fd), write=True)
        if way.is_to_be_made and len(missing) < len(folder.split("/")) and folder:
            raise way.put_there()
        while missing:
            above, name = os.fstat(fd), missing.pop()
            at = os.path.join(at, name)
            inner, is_new = _directory(way, fd, name, above)
            try:
                os.fsync(fd)
            finally:
                close(fd)
                fd = inner
            if is_new and way.route.account is None:
                _give(fd, above)
            if is_new:
                os.fchmod(fd, above.st_mode & _NEW_DIRECTORY)
                way.note_made(at, os.fstat(fd))
    except BaseException:
        close(fd)
        raise
    return fd


def _directory(way: Way, fd: int, name: str, above: os.stat_result) -> tuple[int, bool]:
    """One directory, made where it is missing, and whether it was.

    What lies there when it is opened may be another by then: who may rename in a directory
    can put there what only root may open. So root makes it as the one whose directory it
    is in, and takes for new only what is empty, that one's, and has the mark.
    """
    root, uid = os.geteuid() == 0 and way.route.account is None, above.st_uid
    owner = Account(uid, above.st_gid, "") if root and uid else None
    with acting_as(owner):
        is_new = True
        try:
            os.mkdir(name, _MARKED, dir_fd=fd)
        except FileExistsError:
            if way.is_to_be_made:
                raise way.put_there() from None
            is_new = False
        inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        if is_new and way.route.account is None:
            found = os.fstat(inner)
            facts = found.st_uid, found.st_mode & ~stat.S_ISGID
            marked = uid if owner else os.geteuid(), stat.S_IFDIR | _MARKED
            # A FAT has one owner and one mode for all.
            if facts not in (marked, (uid, above.st_mode & ~stat.S_ISGID)) or os.listdir(inner):
                raise way.put_there()
    except BaseException:
        close(inner)
        raise
    return inner, is_new


def _deepest(way: Way, base: int, folder: str) -> tuple[int, list[str]]:
    """The last directory on the way that is there, and the names of those that are not."""
    missing: list[str] = []
    while True:
        try:
            return way.opened(base, folder, _DIRECTORY), missing
        except FileNotFoundError:
            folder, name = os.path.split(folder)
            if not name:
                raise
            missing.append(name)


# What -------------------------------------------------------------------------------------


def _writable(spot: _Spot) -> os.stat_result | None:
    """The old file's facts, after the kernel said that it may be written."""
    if spot.old < 0:
        return None
    try:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        os.close(os.open(f"/proc/self/fd/{spot.old}", flags))
    except OSError as error:
        # A program that runs may be replaced, though not written.
        if error.errno != errno.ETXTBSY:
            raise
    return os.fstat(spot.old)


def _growth(old: os.stat_result | None, size: int) -> int:
    """Bytes of the disk that a file of this size takes more than the old one."""
    return max(size, LEAST) - (0 if old is None else max(old.st_blocks * BLOCK, LEAST))


def _unnamed(spot: _Spot) -> tuple[int, str]:
    """A new file in a directory: without a name, or by a hidden one where that cannot be."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(".", flags | os.O_TMPFILE, 0o600, dir_fd=spot.directory), ""
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    name = f".edged-{os.urandom(6).hex()}.new"
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.open(name, flags, 0o600, dir_fd=spot.directory), name


def _hidden(name: str) -> str:
    """What a whole file is named for the moment before it takes the old one's place.

    The same for each write of a file: the next one clears what a crash left of it.
    """
    return f".edged-{binascii.crc32(os.fsencode(name)):08x}.new"


def _fill(
    spot: _Spot,
    new: int,
    data: bytes,
    old: os.stat_result | None,
    *,
    like_directory: bool,
    stopped: Callable[[], bool],
) -> None:
    for at in range(0, len(data), CHUNK):
        if stopped():
            raise StoppedError
        write_all(new, data[at : at + CHUNK])
    if old is None:
        above = os.fstat(spot.directory)
        if like_directory:
            _give(new, above)
        os.fchmod(new, above.st_mode & _NEW_FILE)
    else:
        _keep_owner(spot, new, old)
        # After the owner: a change of that takes set-user-ID away, which is never given.
        os.fchmod(new, old.st_mode & _PERMISSIONS)
        _keep_attributes(spot.old, new)
    os.fsync(new)
    if stopped():
        raise StoppedError


def _give(fd: int, above: os.stat_result) -> None:
    """Root's new file outside of the users' directories belongs to whom its directory does."""
    if os.geteuid() == 0:
        os.fchown(fd, above.st_uid, above.st_gid)


def _keep_owner(spot: _Spot, new: int, old: os.stat_result) -> None:
    made = os.fstat(new)
    if (made.st_uid, made.st_gid) == (old.st_uid, old.st_gid):
        return
    try:
        os.fchown(new, old.st_uid, old.st_gid)
    except PermissionError:
        raise DeniedError(
            f"{spot.shown} belongs to uid {old.st_uid}, group {old.st_gid}, which a write would "
            "change: write a new file beside it, or let its owner change that"
        ) from None


def _keep_attributes(old: int, new: int) -> None:
    """Access lists and the user's attributes go along, as far as they can be read."""
    path = f"/proc/self/fd/{old}"
    with suppress(OSError):
        for name in os.listxattr(path):
            if name.startswith("user.") or name == "system.posix_acl_access":
                with suppress(OSError):
                    os.setxattr(new, name, os.getxattr(path, name))


_naming = threading.Lock()
"""Two writers of one file must not take each other's hidden name."""


def _put(spot: _Spot, new: int, temporary: str, expected: os.stat_result | None) -> bool:
    """Give the new file its name; False where another one was quicker, to be tried anew."""
    directory = spot.directory
    with _naming:
        if expected is not None:
            _check_unchanged(spot, expected)
        if spot.old < 0:
            try:
                _name(new, temporary, spot.name, directory)
            except FileExistsError:
                return False
        else:
            if not _is_at(directory, spot.name, spot.old):
                return False
            hidden = temporary or _hidden(spot.name)
            if not temporary:
                with suppress(FileNotFoundError):
                    os.unlink(hidden, dir_fd=directory)
                _name(new, "", hidden, directory)
            try:
                os.rename(hidden, spot.name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                with suppress(OSError):
                    os.unlink(hidden, dir_fd=directory)
                raise
    os.fsync(directory)
    return True


def _name(new: int, temporary: str, name: str, directory: int) -> None:
    """Name a file that is not to replace another.

    Raises:
        FileExistsError: there is one of that name.
    """
    if not temporary:
        os.link(f"/proc/self/fd/{new}", name, dst_dir_fd=directory, follow_symlinks=True)
        return
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        # A FAT has no second names.
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _check_unchanged(spot: _Spot, expected: os.stat_result) -> None:
    there = os.stat(spot.name, dir_fd=spot.directory, follow_symlinks=False)
    for fact in ("st_dev", "st_ino", "st_size", "st_mtime_ns"):
        if getattr(there, fact) != getattr(expected, fact):
            raise BusyError(
                f"{spot.shown} was changed by another meanwhile: read it and try again"
            )


def append(
    way: Way,
    data: bytes,
    stopped: Callable[[], bool] = lambda: False,
) -> Written:
    """Add to the end of a file in its place; on a failure it is cut back to what it was.

    For files that are too large to be written anew: a crash in the middle of it may leave
    a part of `data` at the end, and all that was there before.

    Raises:
        EdgedError: nothing was added.
    """
    flags = os.O_WRONLY | os.O_APPEND
    fd = way.open(flags)
    try:
        before = os.fstat(fd)
        if stopped():
            raise StoppedError
        way.make_room(len(data))
        try:
            write_all(fd, data)
            os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, before.st_size)
                os.fsync(fd)
            raise
        return Written(False, before.st_dev, before.st_ino, before.st_size + len(data))
    except OSError as error:
        if isinstance(error, EdgedError):
            raise
        raise fault(way.shown, error) from None
    finally:
        close(fd)


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))
