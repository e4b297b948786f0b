"""The callers' files: which path leads where, who may go there, and how it is opened.

Laws: a caller's own directories are never left, by the kernel's word and not by a look at
a path; everything else needs the owner's pattern or grant, and is opened without a link on
the way, so that it is what was allowed. As root, own files are reached with the rights of
the tools' account alone. Only regular files and directories are opened.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from edged.errors import (
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
)
from edged.identity import Caller
from edged.policy import Grant, Policy, covers
from edged.sections import Files
from edged.units import size_bytes
from edged.workspace.homes import Homes
from edged.workspace.threads import Changes, Threads

if TYPE_CHECKING:
    from edged.sandbox.account import Account
    from edged.workspace.patterns import Patterns

MEDIA = "media://"

USER = "/officer/user"
HOME = f"{USER}/workspace"
"""What a relative path is relative to; tools call it `/workspace` too."""

PATH_MAX = 4_096
"""Characters of a path, as the kernel's own limit in bytes."""

_OWN = {
    "/workspace": ("workspace", True),
    HOME: ("workspace", True),
    f"{USER}/home": ("home", True),
    f"{USER}/files": ("files", True),
    f"{USER}/tools": ("tools", False),
    # Databases, which are written by those who know SQLite's locks.
    "/officer/data": ("data", False),
}
"""The caller's own directories by the names that tools know them by; whether to write there."""

_SHARED = {"/officer/tools": "tools"}
"""Directories that all callers read."""

_PARENTS = {
    "/officer": ("data", "tools", "user"),
    USER: ("files", "home", "tools", "workspace"),
}
"""Directories that are there in name only, and what they hold."""

_SHOWN = ("/workspace", f"{USER}/home", f"{USER}/files", f"{USER}/tools", "/officer/data")


_ROOT = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(msgspec.Struct, frozen=True):
    """Where a path leads.

    Attributes:
        shown: as callers are shown it.
        host: absolute path on the host, its links not followed; empty for what is there in
            name only.
        root: the caller's own directory that it is in; empty outside of those.
        inner: the path below `root`.
        write: whether the caller may write there without being granted it.
        names: of a directory that is there in name only, what it holds.
    """

    shown: str
    host: str
    root: str = ""
    inner: str = ""
    write: bool = False
    names: tuple[str, ...] = ()


class Route(msgspec.Struct, frozen=True):
    """A way that a caller may go; opened any number of times, from any thread.

    Attributes:
        place: where it leads.
        base: the directory that is never left; `/` for what a pattern allows.
        path: below `base`.
        links: whether links are followed; else `path` has none.
        grant: what allows it, if a grant does.
        account: whose rights are used; None for the daemon's own.
    """

    place: Place
    base: str
    path: str
    links: bool
    grant: Grant | None = None
    account: Account | None = None


class Workspace:
    """All callers' files. Loop thread only, but for `enter`."""

    def __init__(
        self,
        data: str,
        homes: Homes,
        policy: Policy,
        settings: Files,
        *,
        media: Callable[[Caller, str], str],
        private: tuple[str, ...] = (),
    ) -> None:
        """The files below a data directory.

        Args:
            data: the data directory.
            homes: the users' directories.
            policy: knows the grants.
            settings: the owner's patterns.
            media: the file of a `media://` URL for a caller.
            private: files of the daemon that no pattern reaches, beside the data directory.
        """
        self.homes = homes
        self.policy = policy
        self.settings = settings
        self._data = os.path.realpath(data)
        self._private = tuple(map(os.path.realpath, (data, *private)))
        self._media = media
        self._patterns: tuple[Patterns, Patterns, Patterns] | None = None
        self.threads, self.changes = Threads(), Changes()
        self.read_max = size_bytes(settings.max_read_size)

    async def close(self) -> None:
        """End what goes on in files."""
        await self.threads.close()

    # Where --------------------------------------------------------------------------------

    def place(self, caller: Caller, path: str) -> Place:
        """Where a path leads; looks at nothing on the disk.

        `..` is taken from the text, so that links change no path's meaning.

        Raises:
            InvalidArgumentsError: it is no path.
        """
        if not path or "\0" in path or len(path) > PATH_MAX:
            raise InvalidArgumentsError([Fault("path", f"is no path: {path[:40]!r}")])
        if path == "~" or path.startswith("~/"):
            path = f"{USER}/home{path[1:]}"
        full = posixpath.normpath(f"{HOME}/{path}" if path[0] != "/" else "/" + path.lstrip("/"))
        own = os.path.join(self._data, caller.user)
        for name, (folder, write) in _OWN.items():
            if covers(name, full):
                return self._own(own, folder, full[len(name) + 1 :], write=write)
        for name, folder in _SHARED.items():
            if covers(name, full):
                root, inner = os.path.join(self._data, folder), full[len(name) + 1 :]
                return Place(full, os.path.join(root, inner), root, inner)
        if full in _PARENTS:
            return Place(full, "", names=_PARENTS[full])
        # By its name on the host: as the owner knows it.
        for folder, write in dict(_OWN.values()).items():
            if covers(f"{own}/{folder}", full):
                inner = full[len(own) + len(folder) + 2 :]
                return self._own(own, folder, inner, write=write)
        return Place(full, full)

    @staticmethod
    def _own(own: str, folder: str, inner: str, *, write: bool) -> Place:
        root = f"{own}/{folder}"
        shown = next(name for name in _SHOWN if _OWN[name][0] == folder)
        return Place(
            f"{shown}/{inner}" if inner else shown,
            f"{root}/{inner}" if inner else root,
            root,
            inner,
            write,
        )

    # Who may ------------------------------------------------------------------------------

    def route(self, caller: Caller, session: str, path: str, *, write: bool) -> Route:
        """The way to a path, if the caller may go there.

        A grant is found, not used: that is `Policy.use`, before anything comes of it.

        Args:
            caller: who.
            session: its session.
            path: as it names it.
            write: whether it is going to change what is there.

        Raises:
            DeniedError: it may not, or not write there.
            NotFoundError: no such medium.
            InvalidArgumentsError: it is no path.
            SandboxSetupError: the caller's directories cannot be made.
        """
        if path.startswith(MEDIA):
            return self._medium(caller, path, write=write)
        place = self.place(caller, path)
        if place.names:
            if write:
                raise DeniedError(f"{place.shown} holds directories only: write into /workspace")
            return Route(place, "", "", links=False)
        if place.root:
            return self._own_route(caller, place, write=write)
        real = self.outside(place)
        _, read, written = self._compiled()
        if (written if write else read).covers(real) or (not write and written.covers(real)):
            return Route(place, "/", real.lstrip("/"), links=False)
        grant = self.policy.find(caller, session, real, write=write)
        if grant is None:
            raise DeniedError(_outside(place.shown, write=write))
        if grant.anchor == real:
            # The object itself is bound: it is looked at once it is open.
            return Route(place, "/", real.lstrip("/"), links=False, grant=grant)
        inner = real[len(grant.anchor) :].lstrip("/")
        return Route(place, grant.anchor, inner, links=False, grant=grant)

    def outside(self, place: Place) -> str:
        """The path of a place outside of the caller's directories, its links followed.

        Raises:
            DeniedError: the owner can allow it by no grant.
        """
        real = os.path.realpath(place.host)
        if any(covers(own, real) for own in self._private):
            raise DeniedError(f"{place.shown} is edged's own: no file tool reaches it")
        deny = self._compiled()[0]
        if deny.covers(real) or deny.covers(place.shown):
            raise DeniedError(f"{place.shown}: tools.files.deny of the configuration forbids it")
        return real

    def _medium(self, caller: Caller, path: str, *, write: bool) -> Route:
        if write:
            raise DeniedError(f"{path} is a medium, which nobody changes: write into /workspace")
        host = self._media(caller, path)
        return Route(Place(path, host), os.path.dirname(host), os.path.basename(host), links=False)

    def _own_route(self, caller: Caller, place: Place, *, write: bool) -> Route:
        if write and not place.write:
            raise DeniedError(f"{place.shown} is read-only: write into /workspace")
        self.homes.ready(caller.user)
        deny = self._compiled()[0]
        if deny and (deny.covers(place.shown) or deny.covers(place.host)):
            raise DeniedError(f"{place.shown}: tools.files.deny of the configuration forbids it")
        account = self.homes.account if os.geteuid() == 0 else None
        return Route(place, place.root, place.inner, links=True, account=account)

    def _compiled(self) -> tuple[Patterns, Patterns, Patterns]:
        """What is denied, read and written."""
        if self._patterns is None:
            from edged.workspace.patterns import Patterns  # noqa: PLC0415  at the first use

            found = self.settings
            self._patterns = Patterns(found.deny), Patterns(found.read), Patterns(found.write)
        return self._patterns

    # Opening ------------------------------------------------------------------------------

    def open(self, caller: Caller, session: str, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file or directory for a caller; a grant `once` is used up by it.

        Args:
            caller: who.
            session: its session.
            path: as it names it.
            flags: as of open(2).
            mode: of a file that is made.

        Raises:
            EdgedError: it may not, it is not there, or it is neither file nor directory.
        """
        write = flags & os.O_ACCMODE != os.O_RDONLY or flags & (os.O_CREAT | os.O_TRUNC) != 0
        route = self.route(caller, session, path, write=write)
        self.use(route)
        try:
            return self.enter(caller, route, flags, mode)
        except EdgedError:
            self.give_back(route)
            raise

    def use(self, route: Route) -> None:
        """Use the grant of a route; see `Policy.use`."""
        if route.grant is not None:
            self.policy.use(route.grant)

    def give_back(self, route: Route) -> None:
        """Nothing came of a route that was used; see `Policy.give_back`."""
        if route.grant is not None:
            self.policy.give_back(route.grant)

    def rebind(self, route: Route, device: int, inode: int) -> None:
        """The granted file itself was replaced by its caller; see `Policy.rebind`."""
        if route.grant is not None and route.base == "/":
            self.policy.rebind(route.grant, device, inode)

    def enter(self, caller: Caller, route: Route, flags: int, mode: int = 0o600) -> int:
        """Open what a route leads to. Any thread.

        Raises:
            EdgedError: it is not there, or it is neither file nor directory.
        """
        from edged.workspace.beneath import acting_as, close  # noqa: PLC0415  ctypes is heavy

        fd = base = -1
        try:
            base = self.base(route)
            with acting_as(route.account):
                fd = self.opened(caller, route, base, flags, mode)
            self.check(caller, route, fd)
            found, fd = fd, -1
            return found
        except OSError as error:
            if isinstance(error, EdgedError):
                raise
            raise fault(route.place.shown, error) from None
        finally:
            close(base, fd)

    def opened(self, caller: Caller, route: Route, base: int, flags: int, mode: int = 0) -> int:
        """Open what a route leads to, with the rights that this thread has now.

        Raises:
            OSError: the kernel's.
            DeniedError: it is neither file nor directory.
        """
        from edged.workspace import beneath  # noqa: PLC0415  ctypes is heavy

        def absolute(target: str) -> tuple[int, str] | None:
            """A tool's link by the names that tools know: it leads to the caller's own."""
            place = self.place(caller, target)
            if not place.root:
                return None
            return self.root(route, place), place.inner

        if flags & os.O_PATH == 0:
            # A pipe that nobody writes to must not be waited for.
            flags |= os.O_NONBLOCK | os.O_NOCTTY
        if not route.links and flags & os.O_PATH == 0:
            # Not opened before it is known what it is: a device may act on it alone.
            self._probe(base, route, is_made=bool(flags & os.O_CREAT))
        return beneath.open_at(base, route.path, flags, mode, links=route.links, absolute=absolute)

    @staticmethod
    def _probe(base: int, route: Route, *, is_made: bool) -> None:
        from edged.workspace import beneath  # noqa: PLC0415  ctypes is heavy

        try:
            fd = beneath.open_at(base, route.path, os.O_PATH, links=False)
        except FileNotFoundError:
            if is_made:
                return
            raise
        try:
            _check_kind(os.fstat(fd), route.place.shown)
        finally:
            os.close(fd)

    def base(self, route: Route) -> int:
        """The directory that a route starts from; close it. Any thread.

        Raises:
            OSError: it is not there.
            DeniedError: it is not the one that was granted.
        """
        from edged.workspace import beneath  # noqa: PLC0415  ctypes is heavy

        grant = route.grant
        if grant is None or route.base == "/":
            return os.open(route.base, _ROOT)
        root = os.open("/", _ROOT)
        try:
            flags = os.O_PATH | os.O_DIRECTORY
            fd = beneath.open_at(root, route.base.lstrip("/"), flags, links=False)
        finally:
            os.close(root)
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (grant.device, grant.inode):
            os.close(fd)
            raise DeniedError(_swapped(route.base))
        return fd

    @staticmethod
    def root(route: Route, place: Place) -> int:
        """Another of the caller's own directories, while this thread acts for the route."""
        from edged.workspace.beneath import acting_as_itself  # noqa: PLC0415  ctypes is heavy

        with acting_as_itself(route.account):
            return os.open(place.root, _ROOT)

    def check(self, caller: Caller, route: Route, fd: int) -> None:
        """Make sure that what is open is a file or directory that may be had. Any thread.

        Raises:
            DeniedError: it is something else, another than was granted, or forbidden.
        """
        found, shown, grant = os.fstat(fd), route.place.shown, route.grant
        _check_kind(found, shown)
        # A grant of a directory is bound to that, one of a file to the file.
        bound = (grant.device, grant.inode) if grant is not None and route.base == "/" else None
        if bound is not None and (found.st_dev, found.st_ino) != bound:
            raise DeniedError(_swapped(shown))
        if route.links and self._compiled()[0]:
            from edged.workspace.beneath import path_of  # noqa: PLC0415  ctypes is heavy

            self.check_real(caller, route, path_of(fd), write=False)

    def check_real(self, caller: Caller, route: Route, real: str, *, write: bool) -> None:
        """Make sure that links led to nothing that is forbidden. Any thread.

        Raises:
            DeniedError: to what a pattern denies, or what is not to be written.
        """
        if not route.links:
            return
        place = self.place(caller, real.removesuffix(" (deleted)"))
        if write and not place.write:
            raise DeniedError(f"{route.place.shown} leads to {place.shown}, which is read-only")
        deny = self._compiled()[0]
        if deny.covers(place.shown) or deny.covers(place.host):
            raise DeniedError(
                f"{route.place.shown}: tools.files.deny of the configuration forbids it"
            )


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
    if number in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError(f"{shown}: {error.strerror}: list_dir shows what is there")
    if number in (errno.EXDEV, errno.ELOOP):
        return DeniedError(f"{shown} leads through a link that is not followed: name its target")
    if number in (errno.ENXIO, errno.ENODEV):
        return DeniedError(f"{shown} is no file: file tools open files and directories only")
    if number in (errno.EACCES, errno.EPERM):
        return DeniedError(f"{shown}: {error.strerror}: its owner may allow it (ls -l, chmod)")
    if number in (errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EEXIST, errno.ENOTEMPTY):
        return InvalidArgumentsError([Fault("path", f"{shown}: {error.strerror}")])
    hint = {
        errno.ENOSPC: ": free some space",
        errno.EDQUOT: ": free some space",
        errno.EROFS: ": the file system is read-only",
    }.get(number, "")
    return StoreError(f"{shown}: {error.strerror or error}{hint}")


def _outside(shown: str, *, write: bool) -> str:
    kind = "write" if write else "read"
    return (
        f"{shown} is outside of your directories: use /workspace, or ask the owner with "
        f"request_permission; the owner may also add it to tools.files.{kind}"
    )


def _swapped(shown: str) -> str:
    return f"{shown} is not what the owner allowed: something else was put there; ask again"
