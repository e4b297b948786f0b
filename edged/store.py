"""Files under the data directory: written whole or not at all.

Law: a file is replaced by a temporary file in the same directory, fsync, rename
and fsync of the directory; a broken file is set aside with its reason and never
erased. Other I/O errors than a missing file are no corruption and stay errors.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

import msgspec

from edged import log
from edged.errors import StoreError

T = TypeVar("T")


def write_atomic(path: str, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`; after the return it survives a power cut.

    Raises:
        StoreError: nothing was changed; the message names the path and cause.
    """
    temporary = f"{path}.new"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        try:
            os.fchmod(fd, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        sync_directory(os.path.dirname(path))
    except OSError as error:
        unlink(temporary)
        raise _failed("write", path, error) from error


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
    """Make `path` and its parents where they are missing.

    Raises:
        StoreError: it cannot be made.
    """
    try:
        os.makedirs(path, mode=mode, exist_ok=True)
    except OSError as error:
        raise _failed("make the directory", path, error) from error


def _failed(act: str, path: str, error: OSError) -> StoreError:
    hint = {28: ": free some space", 30: ": the file system is read-only"}.get(error.errno or 0, "")
    return StoreError(error.errno, f"cannot {act} {path}: {error.strerror or error}{hint}")


class Store:
    """Typed JSON files of one directory; the daemon is their only writer.

    Loop thread only; each write is a few hundred bytes.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def path(self, name: str) -> str:
        """Where `name` lies."""
        return os.path.join(self._directory, f"{name}.json")

    def load(self, name: str, kind: type[T], default: T) -> T:
        """Read `name`, or `default` when it was never written.

        A file that does not decode is renamed to `<name>.json.broken` and the
        default is used.

        Raises:
            StoreError: it is there and cannot be read.
        """
        path = self.path(name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return default
        except OSError as error:
            raise _failed("read", path, error) from error
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, ValueError) as error:
            os.replace(path, f"{path}.broken")
            log.error(f"{path} ({len(data)} bytes) is broken ({error}): kept as {path}.broken")
            return default

    def save(self, name: str, value: Any) -> None:
        """Write `name`; on return it is on disk.

        Raises:
            StoreError: nothing was changed.
        """
        make_directory(self._directory)
        write_atomic(self.path(name), msgspec.json.format(msgspec.json.encode(value)) + b"\n")
