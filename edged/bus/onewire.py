"""1-wire devices, through the kernel's w1 drivers.

One thread a master: a conversion blocks its reader for 0.75 s, and the kernel
does one at a time on each master anyway.

Source: Documentation/w1/w1-generic.rst and slaves/w1_therm.rst of the kernel.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from edged.bus._worker import Worker
from edged.bus.faults import file_error, remedy
from edged.bus.sysfs import names, read_text, write_text
from edged.errors import Fault, InvalidArgumentsError, NoDeviceError

# Patterns stay text until their first use: compiling them is the larger part of the import.
_DEVICE = r"[0-9a-f]{2}-[0-9a-f]{12}"
_ATTRIBUTE = r"[a-z][a-z0-9_]*"


class KernelOneWire:
    """An `edged.bus.OneWire` over /sys/bus/w1/devices.

    Args:
        root: where sysfs is mounted.
    """

    def __init__(self, root: str = "/sys") -> None:
        self._directory = os.path.join(root, "bus/w1/devices")
        self._lookups = Worker("w1")
        self._masters: dict[str, Worker] = {}

    async def devices(self) -> Sequence[str]:
        """Ids of the devices; see `edged.bus.OneWire.devices`."""
        return await self._lookups.run(_devices, self._directory)

    async def read(self, device: str, attribute: str) -> str:
        """A file of a device; see `edged.bus.OneWire.read`."""
        path = self._path(device, attribute)
        text = await (await self._master(device)).run(read_text, path)
        if not text:
            # What the kernel's driver gives when a conversion failed.
            raise file_error(errno.EIO, path)
        return text

    async def write(self, device: str, attribute: str, text: str) -> None:
        """Writes a file of a device; see `edged.bus.OneWire.write`."""
        path = self._path(device, attribute)
        await (await self._master(device)).run(write_text, path, text)

    async def close(self) -> None:
        """Ends every thread."""
        for worker in (self._lookups, *self._masters.values()):
            worker.close()

    def _path(self, device: str, attribute: str) -> str:
        """Where the file is; names come from callers and must not lead elsewhere."""
        faults = [
            Fault(name, f"{given!r} is not {what}")
            for name, given, pattern, what in (
                ("device", device, _DEVICE, "a 1-wire id, such as 28-0316a2795bff"),
                ("attribute", attribute, _ATTRIBUTE, "a file's name, such as temperature"),
            )
            if re.fullmatch(pattern, given) is None
        ]
        if faults:
            raise InvalidArgumentsError(faults)
        return os.path.join(self._directory, device, attribute)

    async def _master(self, device: str) -> Worker:
        """The thread of the device's master."""
        name = await self._lookups.run(_master, self._directory, device)
        if name not in self._masters:
            self._masters[name] = Worker(name)
        return self._masters[name]


def _devices(directory: str) -> list[str]:
    return [name for name in names(directory) if re.fullmatch(_DEVICE, name)]


def _master(directory: str, device: str) -> str:
    """The master's name: its directory holds the device's, to which the listed one links."""
    there = _devices(directory)
    if device not in there:
        raise NoDeviceError(f"no 1-wire device {device}: {_told(directory, there)}")
    return os.path.basename(os.path.dirname(os.path.realpath(os.path.join(directory, device))))


def _told(directory: str, there: Sequence[str]) -> str:
    if there:
        return f"there is {', '.join(there)}"
    if names(directory):
        return "there is none: check power, data line and the pull-up of 4.7 kOhm on it"
    return f"there is no bus: {remedy('w1')}"
