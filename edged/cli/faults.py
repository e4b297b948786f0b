"""Faults of files in words: what could not be done, to which one, why, what to do.

The one place for it: whatever `OSError` reaches a person comes through here.
"""

from __future__ import annotations

import errno
import os

_REMEDIES = {
    errno.EACCES: "check its permissions",
    errno.EPERM: "check its permissions",
    errno.EROFS: "choose another place",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "name a file",
    errno.EEXIST: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EFBIG: "choose another place",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "check the disk",
}
"""What to do about an error, whatever it happened to."""

_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of a write to a file that is open already."""


def cannot(act: str, path: str, error: OSError | int, remedy: str = "") -> str:
    """`cannot write PATH: reason: what to do`.

    Args:
        act: what was to be done.
        path: as the user knows it.
        error: what was in the way, or its number.
        remedy: where there is a better one than the error's own.
    """
    number = error if isinstance(error, int) else error.errno
    reason = os.strerror(number) if number else str(error)
    todo = remedy or _REMEDIES.get(number or 0, "")
    return f"cannot {act} {path}: {reason}" + (f": {todo}" if todo else "")


def in_words(error: OSError) -> str:
    """An error that nobody expected."""
    path = error.filename
    if path is not None:
        named = os.fsencode(path) if isinstance(path, str | bytes) else str(path).encode()
        return cannot("use", named.decode("utf-8", "backslashreplace"), error)
    if error.errno in _OF_OUTPUT:
        return cannot("write", "the output", error)
    return error.strerror or str(error) or type(error).__name__


def unwritable(path: str) -> int:
    """Why no file can be made in a directory that may still have to be made; 0 if it can.

    Returns:
        A number of `errno`.
    """
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return errno.ENOTDIR
    if not os.access(there, os.W_OK | os.X_OK):
        return errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
    return 0
