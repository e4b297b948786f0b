"""Files under the data directory: written whole or not at all.

Law: a file is replaced by a temporary file in the same directory, fsync, rename
and fsync of the directory; a broken file is set aside with its reason, never
erased. Other I/O errors than a missing file are no corruption and stay errors.
"""

from __future__ import annotations

import errno
import os
from typing import Any, TypeVar

import msgspec

from edged import log
from edged.errors import StoreError

T = TypeVar("T")


def write_atomic(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`; after the return it survives a power cut.

    Raises:
        StoreError: nothing was changed, or, where the disk fails at the very last
            step, it may not survive a power cut. The message names path and cause.
    """
    temporary = f"{path}.new"
    try:
        # Opened first: a directory that cannot be opened must fail before the rename, not after.
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            _write_new(temporary, data, mode)
            os.rename(temporary, path)
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        unlink(temporary)
        raise failed("write", path, error) from error


def _write_new(path: str, data: bytes, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(fd, mode)
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes: on a disk that fills up, the kernel takes a part first and fails then."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: str) -> None:
    """Make renames and new names in `path` survive a power cut."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unlink(path: str) -> None:
    """Remove a file that may be missing."""
    try:
        os.unlink(path)
    except OSError:
        return


def make_directory(path: str, mode: int = 0o700) -> None:
    """Make `path` and its parents where they are missing; each survives a power cut.

    Args:
        path: the directory.
        mode: of the directory itself; parents are made with 0755.

    Raises:
        StoreError: it cannot be made.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        make_directory(parent, 0o755)
    try:
        os.mkdir(path, mode)
        sync_directory(parent)
    except FileExistsError as error:
        # Another one was quicker, or a file is in the way.
        if not os.path.isdir(path):
            raise failed("make the directory", path, error) from error
    except OSError as error:
        raise failed("make the directory", path, error) from error


def failed(act: str, path: str, error: OSError) -> StoreError:
    """What to raise for the kernel's `error` when `act` was tried on `path`."""
    hint = {
        errno.ENOSPC: ": free some space",
        errno.EROFS: ": the file system is read-only",
    }.get(error.errno or 0, "")
    fault = StoreError(f"cannot {act} {path}: {error.strerror or error}{hint}")
    # Set afterwards: OSError puts its number before the text when it is given both.
    fault.errno = error.errno
    return fault


class Store:
    """Typed JSON files of one directory; the daemon is their only writer.

    Loop thread only; each write is a few hundred bytes.

    Attributes:
        broken: what was set aside since the start, and why; for people.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.broken: list[str] = []

    def path(self, name: str) -> str:
        """Where `name` lies."""
        return os.path.join(self._directory, f"{name}.json")

    def load(self, name: str, kind: type[T], default: T) -> T:
        """Read `name`, or `default` when it was never written.

        A file that does not decode is renamed to `<name>.json.broken` (or `.broken.1`
        and so on), and the generation before it is used, or the default.

        Raises:
            StoreError: it is there and cannot be read, or not be set aside.
        """
        path = self.path(name)
        try:
            value = self._read(path, kind)
            if value is None:
                # It was broken. A missing file is another matter: someone wants to begin anew.
                value = self._read(_previous(path), kind)
        except FileNotFoundError:
            return default
        return default if value is None else value

    def peek(self, name: str, kind: type[T], default: T) -> T:
        """Read `name` beside its writer; `default` where it is missing, unreadable or broken."""
        try:
            with open(self.path(name), "rb") as file:
                return msgspec.json.decode(file.read(), type=kind)
        except (OSError, msgspec.DecodeError, RecursionError):
            return default

    def _read(self, path: str, kind: type[T]) -> T | None:
        """The value of a file; None when it was broken and is set aside.

        Raises:
            FileNotFoundError: it is not there.
        """
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failed("read", path, error) from error
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            self._set_aside(path, f"{len(data)} bytes, {error}")
            return None

    def _set_aside(self, path: str, reason: str) -> None:
        aside = f"{path}.broken"
        number = 0
        while os.path.lexists(aside):
            number += 1
            aside = f"{path}.broken.{number}"
        try:
            os.rename(path, aside)
        except OSError as error:
            raise failed("set aside the broken", path, error) from error
        self.broken.append(f"{path} was broken ({reason}): kept as {aside}")
        log.error(self.broken[-1])

    def save(self, name: str, value: Any) -> None:
        """Write `name`; on return it is on disk. The generation before it is kept.

        Raises:
            StoreError: as `write_atomic`.
        """
        make_directory(self._directory)
        path = self.path(name)
        previous = _previous(path)
        try:
            unlink(previous)
            os.link(path, previous)
        except OSError:
            # The first generation, or a file system without links: then there is none to keep.
            pass
        write_atomic(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n")


def _previous(path: str) -> str:
    return f"{path}.previous"
