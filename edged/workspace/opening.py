"""Opens what a route leads to, by the kernel's word alone, and says what went wrong.

Any thread. A grant is held to the very file or directory that it was given for.
"""

from __future__ import annotations

import errno
import os
import stat

from edged.errors import (
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
)
from edged.identity import Caller
from edged.workspace import Place, Route, Workspace, forbidden
from edged.workspace.beneath import acting_as, acting_as_itself, close, open_at, path_of

_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Way:
    """One caller's way to one path."""

    __slots__ = ("_caller", "_workspace", "made", "route")

    def __init__(self, workspace: Workspace, caller: Caller, route: Route) -> None:
        self._workspace, self._caller, self.route = workspace, caller, route
        self.made: tuple[int, int] | None = None
        """Device and inode of what was granted, where it had to be made and was."""

    @property
    def is_to_be_made(self) -> bool:
        """Whether the grant is of what was not there: then it is not of what is."""
        grant = self.route.grant
        return grant is not None and grant.anchor not in ("", grant.path)

    def note_made(self, path: str, found: os.stat_result) -> None:
        """Something was made at a path below the base; perhaps it is what was granted."""
        grant = self.route.grant
        if self.is_to_be_made and grant and os.path.join(self.route.base, path) == grant.path:
            self.made = found.st_dev, found.st_ino

    def put_there(self) -> DeniedError:
        """What is at the path was put there by another, and nobody allowed that."""
        return DeniedError(
            f"{self.shown} was not there when the owner allowed it, and was put there by another "
            "since: ask again"
        )

    @property
    def shown(self) -> str:
        """The path as the caller is shown it."""
        return self.route.place.shown

    def open(self, flags: int, mode: int = 0o600) -> int:
        """Open it; see `look`."""
        return self.look(flags, mode)[0]

    def look(self, flags: int, mode: int = 0o600) -> tuple[int, os.stat_result]:
        """Open it: the open file and its facts.

        Raises:
            EdgedError: it is not there, or it is neither file nor directory.
        """
        fd = base = -1
        try:
            base = self.base()
            with acting_as(self.route.account):
                fd = self.opened(base, self.route.path, flags, mode)
            facts = self.check(fd)
            found, fd = fd, -1
            return found, facts
        except OSError as error:
            if isinstance(error, EdgedError):
                raise
            raise fault(self.shown, error) from None
        finally:
            close(base, fd)

    def opened(self, base: int, path: str, flags: int, mode: int = 0) -> int:
        """Open a path below the base, with the rights that this thread has now.

        Raises:
            OSError: the kernel's.
            DeniedError: it is neither file nor directory.
        """
        links = self.route.links
        if flags & os.O_PATH == 0:
            # A pipe that nobody writes to must not be waited for.
            flags |= os.O_NONBLOCK | os.O_NOCTTY
            if not links:
                # Not opened before it is known what it is: a device may act on it alone.
                self._probe(base, path, is_made=bool(flags & os.O_CREAT))
        return open_at(base, path, flags, mode, links=links, absolute=self._absolute)

    def _absolute(self, target: str) -> tuple[int, str] | None:
        """A tool's link by the names that tools know: it leads to the caller's own."""
        place = self.place(target)
        return (self.other(place), place.inner) if place.root else None

    def _probe(self, base: int, path: str, *, is_made: bool) -> None:
        try:
            fd = open_at(base, path, os.O_PATH, links=False)
        except FileNotFoundError:
            if is_made:
                return
            raise
        try:
            _check_kind(os.fstat(fd), self.shown)
        finally:
            os.close(fd)

    def base(self) -> int:
        """The directory that the route starts from; close it.

        Raises:
            OSError: it is not there.
            DeniedError: it is not the one that was granted.
        """
        route, grant = self.route, self.route.grant
        if grant is None or route.base == "/":
            try:
                return os.open(route.base, _ROOT)
            except FileNotFoundError:
                # Removed by hand while the daemon runs.
                if not route.place.root:
                    raise
                self._workspace.homes.prepare(self._caller.user)
                return os.open(route.base, _ROOT)
        root = os.open("/", _ROOT)
        try:
            flags = os.O_PATH | os.O_DIRECTORY
            fd = open_at(root, route.base.lstrip("/"), flags, links=False)
        finally:
            os.close(root)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (grant.device, grant.inode):
            os.close(fd)
            raise DeniedError(_swapped(route.base))
        return fd

    def make_room(self, growth: int) -> None:
        """Count bytes that are about to be written.

        Raises:
            StoreError: the disk, or the caller's share of it, has no room for them.
        """
        room = self._workspace.room
        try:
            room.check_free(self._caller)
            if self.route.place.root:
                room.take(self._caller, growth)
        except StoreError as error:
            raise StoreError(f"{self.shown}: {error}") from None

    def place(self, path: str) -> Place:
        """Where another path leads for the same caller."""
        return self._workspace.place(self._caller, path)

    def other(self, place: Place) -> int:
        """Another of the caller's own directories, while this thread acts for the route."""
        with acting_as_itself(self.route.account):
            return os.open(place.root, _ROOT)

    def check(self, fd: int) -> os.stat_result:
        """Make sure that what is open is a file or directory that may be had; its facts.

        Raises:
            DeniedError: it is something else, another than was granted, or forbidden.
        """
        route, grant = self.route, self.route.grant
        found = os.fstat(fd)
        _check_kind(found, self.shown)
        if self.is_to_be_made:
            raise self.put_there()
        # A grant of a directory is bound to that, one of a file to the file.
        bound = (grant.device, grant.inode) if grant is not None and route.base == "/" else None
        if bound is not None and (found.st_dev, found.st_ino) != bound:
            raise DeniedError(_swapped(self.shown))
        if route.links and self._workspace.settings.deny:
            self.check_real(path_of(fd), write=False)
        return found

    def check_real(self, real: str, *, write: bool) -> None:
        """Make sure that links led to nothing that is forbidden.

        Raises:
            DeniedError: to what a pattern denies, or what is not to be written.
        """
        if not self.route.links:
            return
        place = self.place(real.removesuffix(" (deleted)"))
        if write and not place.write:
            raise DeniedError(f"{self.shown} leads to {place.shown}, which is read-only")
        if self._workspace.denied(place):
            raise DeniedError(forbidden(self.shown))


def _check_kind(found: os.stat_result, shown: str) -> None:
    kind = found.st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        name = next((name for test, name in _KINDS if test(kind)), "no file")
        raise DeniedError(f"{shown} is {name}: file tools open files and directories only")


_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISLNK, "a link"),
)


def fault(shown: str, error: OSError) -> EdgedError:
    """What to tell a caller for the kernel's error at a path."""
    number = error.errno or 0
    if number == errno.EISDIR:
        reason = f"{shown} is a directory: name a file in it"
        return InvalidArgumentsError([Fault("path", reason)])
    if number == errno.ENOTDIR:
        return NotFoundError(f"{shown}: Not a directory: something above it is a file")
    if number == errno.ENOENT:
        return NotFoundError(f"{shown}: {error.strerror}: list_dir shows what is there")
    if number in (errno.EXDEV, errno.ELOOP):
        return DeniedError(f"{shown} leads through a link that is not followed: name its target")
    if number in (errno.ENXIO, errno.ENODEV):
        return DeniedError(f"{shown} is no file: file tools open files and directories only")
    if number in (errno.EACCES, errno.EPERM):
        return DeniedError(f"{shown}: {error.strerror}: its owner may allow it (ls -l, chmod)")
    if number in (errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTEMPTY):
        return InvalidArgumentsError([Fault("path", f"{shown}: {error.strerror}")])
    hint = {
        errno.ENOSPC: ": free some space",
        errno.EDQUOT: ": free some space",
        errno.EROFS: ": the file system is read-only",
    }.get(number, "")
    return StoreError(f"{shown}: {error.strerror or error}{hint}")


def _swapped(shown: str) -> str:
    return f"{shown} is not what the owner allowed: something else was put there; ask again"
