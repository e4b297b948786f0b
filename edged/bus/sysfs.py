"""The files of sysfs, where the kernel's own drivers show what they measure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from edged.bus._worker import Worker
from edged.bus.faults import file_error

_FILE_MAX = 65_536
"""Attributes are a page at most; devicetree properties may be longer."""


class KernelSysfs:
    """An `edged.bus.Sysfs`: one reader, as a driver may take a second for a value.

    Args:
        root: where sysfs is mounted.
    """

    def __init__(self, root: str = "/sys") -> None:
        self._root = root
        self._worker = Worker("sysfs")

    async def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted; see `edged.bus.Sysfs.list`."""
        return await self._worker.run(names, self._path(path))

    async def read(self, path: str) -> str:
        """A file's text; see `edged.bus.Sysfs.read`."""
        return await self._worker.run(read_text, self._path(path))

    async def close(self) -> None:
        """Ends the thread."""
        self._worker.close()

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.strip("/"))


def names(directory: str) -> list[str]:
    """Names in a directory, sorted; none when it is not there. Blocks."""
    try:
        return sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise file_error(error.errno or 0, directory) from None


def read_text(path: str) -> str:
    """A file's text, without the white space around it. Blocks.

    Raises:
        NoDeviceError: it is not there, or its device does not answer.
        BusError: the kernel's driver could not read it.
    """
    try:
        # Never waits for the other end, should it not be a plain attribute.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(file, _FILE_MAX)
        finally:
            os.close(file)
    except OSError as error:
        raise file_error(error.errno or 0, path) from None
    return data.decode(errors="replace").strip()


def write_text(path: str, text: str, kind: str = "") -> None:
    """Writes a file in one piece. Blocks.

    Args:
        path: of the file, which is there.
        text: what to write.
        kind: of bus, for the remedy where edged may not.

    Raises:
        NoDeviceError: it is not there, or its device does not answer.
        BusyError: another user has what it stands for.
        BusError: the kernel refused it.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
    except OSError as error:
        raise file_error(error.errno or 0, path, kind) from None
