"""The callers' files: which path leads where, who may go there, and how it is opened.

Laws: a caller's own directories are never left, by the kernel's word and not by a look at
a path; everything else needs the owner's pattern or grant, and is opened without a link on
the way, so that it is what was allowed. As root, own files are reached with the rights of
the tools' account alone. Only regular files and directories are opened.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from edged.errors import DeniedError, EdgedError, Fault, InvalidArgumentsError
from edged.identity import Caller
from edged.policy import Grant, Policy, covers
from edged.sections import Files
from edged.units import size_bytes
from edged.workspace.homes import Homes
from edged.workspace.room import Room
from edged.workspace.threads import Changes, Threads

if TYPE_CHECKING:
    from edged.sandbox.account import Account
    from edged.workspace.opening import Way
    from edged.workspace.patterns import Patterns

MEDIA = "media://"

USER = "/officer/user"
HOME = f"{USER}/workspace"
"""What a relative path is relative to; tools call it `/workspace` too."""

PATH_MAX = 4_096
"""Characters of a path, as the kernel's own limit in bytes."""

ROUTES_MAX = 256
"""Ways that are remembered."""

_OWN = {
    "/workspace": ("workspace", True),
    HOME: ("workspace", True),
    f"{USER}/home": ("home", True),
    f"{USER}/files": ("files", True),
    f"{USER}/tools": ("tools", False),
    f"{USER}/skills": ("skills", False),
    # Databases, which are written by those who know SQLite's locks.
    "/officer/data": ("data", False),
}
"""The caller's own directories by the names that tools know them by; whether to write there."""

_SHARED = {"/officer/tools": "tools", "/officer/skills": "skills"}
"""Directories that all callers read."""

_PARENTS = {
    "/officer": ("data", "skills", "tools", "user"),
    USER: ("files", "home", "skills", "tools", "workspace"),
}
"""Directories that are there in name only, and what they hold."""

_SHOWN = (
    "/workspace",
    *(f"{USER}/{name}" for name in ("home", "files", "tools", "skills")),
    "/officer/data",
)


LOOKED_AT_MAX = 20_000
"""Entries of a directory that are looked at for what is forbidden in it."""


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
    """All callers' files. Loop thread only, but where it says otherwise."""

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
        self._routes: dict[tuple[str, str, bool], Route] = {}
        """Ways within the callers' own directories, which nothing but the text decides."""
        self.threads, self.changes = Threads(), Changes()
        self.room = Room(self._data, settings)
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
        known = self._routes.get((caller.user, path, write))
        if known is not None:
            return known
        place = self.place(caller, path)
        if place.names:
            if write:
                raise DeniedError(f"{place.shown} holds directories only: write into /workspace")
            return Route(place, "", "", links=False)
        if place.root:
            route = self._own_route(caller, place, write=write)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[caller.user, path, write] = route
            return route
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
        if covers("/proc", real):
            raise DeniedError(f"{place.shown} is of processes: no file tool reaches it")
        if any(covers(own, real) for own in self._private):
            raise DeniedError(f"{place.shown} is edged's own: no file tool reaches it")
        deny = self._compiled()[0]
        if deny.covers(real) or deny.covers(place.shown):
            raise DeniedError(forbidden(place.shown))
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
        if self.denied(place):
            raise DeniedError(forbidden(place.shown))
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
            return self.way(caller, route).open(flags, mode)
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

    def rebind(self, way: Way, device: int, inode: int) -> None:
        """What was granted was replaced, or made, by its caller; see `Policy.rebind`."""
        route, made = way.route, way.made
        if route.grant is not None and route.base == "/":
            made = device, inode
        if route.grant is not None and made is not None:
            self.policy.rebind(route.grant, *made)

    def way(self, caller: Caller, route: Route) -> Way:
        """What opens a route, from any thread."""
        from edged.workspace.opening import Way  # noqa: PLC0415  ctypes is heavy

        return Way(self, caller, route)

    def denied(self, place: Place) -> bool:
        """Whether a pattern of the owner forbids a place. Any thread."""
        deny = self._compiled()[0]
        return bool(deny) and (deny.covers(place.shown) or deny.covers(place.host))

    def denied_in(self, path: str) -> str:
        """What a pattern of the owner forbids of a path on the host and all below it.

        Blocks as the disk does; any thread.

        Returns:
            The first that was found, or the path itself where there is too much to look
            at; empty where nothing is forbidden.
        """
        deny = self._compiled()[0]
        if not deny:
            return ""
        if deny.covers(path):
            return path
        left = LOOKED_AT_MAX
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                inner = os.path.join(folder, name)
                if deny.covers(inner):
                    return inner
            left -= len(folders) + len(files)
            if left < 0:
                return path
        return ""


def forbidden(shown: str) -> str:
    """What a caller is told of what a pattern forbids."""
    return f"{shown}: tools.files.deny of the configuration forbids it"


def _outside(shown: str, *, write: bool) -> str:
    kind = "write" if write else "read"
    return (
        f"{shown} is outside of your directories: use /workspace, or ask the owner with "
        f"request_permission; the owner may also add it to tools.files.{kind}"
    )
