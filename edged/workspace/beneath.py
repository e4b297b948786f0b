"""Opens paths that never leave a directory, whatever links and renames do meanwhile.

The kernel resolves them (openat2(2), `RESOLVE_BENEATH`); where it cannot, each component
is opened by itself and no link is followed but by its text. Knows nothing of callers.
Any thread. Source: openat2(2), path_resolution(7), credentials(7).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import ClassVar, Self

from edged.errors import SandboxSetupError
from edged.sandbox.account import Account

SYS_OPENAT2 = 437
"""The same on every architecture: it came after their numbers were unified (Linux 5.6)."""

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

LINKS_MAX = 40
"""Links that one path may go through, as the kernel's own MAXSYMLINKS."""

TRIES = 64
"""How often a resolution is begun anew that others' renames disturbed."""

Absolute = Callable[[str], tuple[int, str] | None]
"""An absolute link's target to an open directory that is never left and the path in it."""


class _How(ctypes.Structure):
    """`struct open_how` (linux/openat2.h)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(_How),
    ctypes.c_size_t,
)
_syscall.restype = ctypes.c_long
_HOW_SIZE = ctypes.sizeof(_How)

# They never wait, so they keep Python's lock; and they report no failure.
_setfsuid, _setfsgid = (getattr(ctypes.PyDLL(None), name) for name in ("setfsuid", "setfsgid"))
_setfsuid.argtypes = _setfsgid.argtypes = (ctypes.c_uint32,)
_NOBODY = 0xFFFF_FFFF
"""No id: the two calls change nothing for it, and answer with the present one."""


def open_at(
    base: int,
    path: str,
    flags: int,
    mode: int = 0,
    *,
    links: bool = True,
    absolute: Absolute = lambda _: None,
) -> int:
    """Open a path below a directory.

    Args:
        base: the directory.
        path: relative to it; empty for itself.
        flags: as of open(2); O_CLOEXEC comes by itself.
        mode: of a file that is made.
        links: whether symbolic links are followed, while they stay beneath.
        absolute: where an absolute link leads that is to be followed all the same.

    Raises:
        OSError: EXDEV where the path leads out, ELOOP at a link that is not followed.
    """
    flags |= os.O_CLOEXEC
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if links else RESOLVE_NO_SYMLINKS)
    try:
        return _openat2(base, path or ".", flags, mode, resolve)
    except OSError as error:
        # EPERM is what a filter of system calls may answer for one that it does not know.
        unknown = error.errno in (errno.ENOSYS, errno.EPERM)
        if not (unknown or (links and error.errno == errno.EXDEV)):
            raise
    return walk(base, path, flags, mode, links=links, absolute=absolute)


@lru_cache(maxsize=64)
def _how(flags: int, mode: int, resolve: int) -> _How:
    return _How(flags, mode, resolve)


def _openat2(base: int, path: str, flags: int, mode: int, resolve: int) -> int:
    how = _how(flags, mode if flags & os.O_CREAT else 0, resolve)
    name, number = os.fsencode(path), 0
    for _ in range(TRIES):
        fd: int = _syscall(SYS_OPENAT2, base, name, how, _HOW_SIZE)
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def walk(
    base: int,
    path: str,
    flags: int,
    mode: int = 0,
    *,
    links: bool = True,
    absolute: Absolute = lambda _: None,
) -> int:
    """`open_at` component by component, for kernels without openat2 and for absolute links.

    Raises:
        OSError: as `open_at`.
    """
    with _Walk(base, path, links=links, absolute=absolute) as steps:
        return steps.open(flags, mode)


class _Walk:
    """One resolution: the directories down to where it is, and what is still to be gone."""

    def __init__(self, base: int, path: str, *, links: bool, absolute: Absolute) -> None:
        self._path = path
        self._held = [os.dup(base)]
        self._waiting = path.split("/")[::-1]
        self._budget = LINKS_MAX if links else 0
        self._absolute = absolute

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close(*self._held)

    def open(self, flags: int, mode: int) -> int:
        while self._waiting:
            name = self._waiting.pop()
            if name == "..":
                self._up()
            elif name not in ("", "."):
                # A slash at the end changes nothing: what is there says what it is.
                fd = self._step(name, flags, mode, is_last=not any(self._waiting))
                if fd >= 0:
                    return fd
        # What O_CREAT makes has a name; this is a directory.
        return os.open(".", flags & ~(os.O_CREAT | os.O_EXCL), dir_fd=self._held[-1])

    def _up(self) -> None:
        if len(self._held) == 1:
            raise _failed(errno.EXDEV, self._path)
        # Never the directory's own `..`, which a rename may have led out.
        close(self._held.pop())

    def _step(self, name: str, flags: int, mode: int, *, is_last: bool) -> int:
        """One component: the open file where it is the last, else -1."""
        here = self._held[-1]
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except FileNotFoundError:
            if is_last and flags & os.O_CREAT:
                return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=here)
            raise
        kind = os.fstat(fd).st_mode
        if stat.S_ISDIR(kind) and not is_last:
            self._held.append(fd)
            return -1
        try:
            if stat.S_ISLNK(kind):
                if is_last and flags & os.O_NOFOLLOW:
                    raise _failed(errno.ELOOP, self._path)
                self._follow(os.readlink("", dir_fd=fd))
                return -1
            if not is_last:
                raise _failed(errno.ENOTDIR, self._path)
            # By its name again, for an O_PATH handle reads nothing; never through a link.
            return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=here)
        finally:
            close(fd)

    def _follow(self, target: str) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise _failed(errno.ELOOP, self._path)
        if target.startswith("/"):
            known = self._absolute(target)
            if known is None:
                raise _failed(errno.EXDEV, self._path)
            fd, target = known
            close(*self._held)
            self._held = [fd]
        self._waiting += target.split("/")[::-1]


def _failed(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def path_of(fd: int) -> str:
    """Where an open file lies now, as the kernel has it."""
    return os.readlink(f"/proc/self/fd/{fd}")


class acting_as:  # noqa: N801  used as a function
    """Reach files with an account's rights alone, and make them its own; this thread only.

    Args:
        account: None changes nothing: the daemon is that account.

    Raises:
        SandboxSetupError: the daemon is root and may not act for another.
    """

    __slots__ = ("_account",)
    _works: ClassVar[set[Account]] = set()
    """Accounts that it was seen to work for."""

    def __init__(self, account: Account | None) -> None:
        self._account = account

    def __enter__(self) -> None:
        account = self._account
        if account is None:
            return
        _setfsgid(account[1])
        _setfsuid(account[0])
        if account in self._works:
            return
        if (_setfsuid(_NOBODY), _setfsgid(_NOBODY)) == (account.uid, account.gid):
            self._works.add(account)
        else:
            self.__exit__()
            raise SandboxSetupError(
                f"edged may not reach files as the user {account.name}: it needs CAP_SETUID and "
                "CAP_SETGID, or to be started as a plain user"
            )

    def __exit__(self, *_: object) -> None:
        if self._account is not None:
            _setfsuid(0)
            _setfsgid(0)


@contextmanager
def acting_as_itself(account: Account | None) -> Iterator[None]:
    """Inside of `acting_as`: with the daemon's rights for a moment."""
    if account is None:
        yield
        return
    _setfsuid(0)
    _setfsgid(0)
    try:
        yield
    finally:
        _setfsgid(account.gid)
        _setfsuid(account.uid)


def close(*fds: int) -> None:
    """Close what is open; -1 is nothing."""
    for fd in fds:
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)
