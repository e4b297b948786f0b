"""SPI through /dev/spidevB.C: a thread and a lock for each controller.

Takes from the package spidev only `xfer2`: it lets other threads run, keeps the
chip select active throughout and leaves the caller's bytes alone. What it would
cut silently (lengths, speeds and word sizes that do not fit its fields) is
refused before.

Source: `Documentation/spi/spidev.rst` of the kernel, linux/spi/spidev.h; spidev 3.6
(Debian 12's) to 3.8.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from edged.bus import SpiSettings, SpiTransfers
from edged.bus._limits import is_spi_possible
from edged.bus._worker import Worker
from edged.bus.faults import open_error, spi_error
from edged.errors import BusError, Fault, InvalidArgumentsError, NoDeviceError
from edged.libraries import install

XFER2_MAX = 4096
"""Bytes that one `xfer2` moves; the kernel's own buffer is of the same size by default."""

_NODE = re.compile(r"spidev(\d+)\.(\d+)")
_NAME = re.compile(r"spi\d+\.\d+")
_GONE = frozenset({errno.ESHUTDOWN, errno.ENODEV, errno.ENXIO})


def names(dev: str = "/dev") -> list[str]:
    """The targets that there are, `spi0.0`, in the order of their numbers."""
    found = [match for name in os.listdir(dev) if (match := _NODE.fullmatch(name))]
    return [f"spi{m[1]}.{m[2]}" for m in sorted(found, key=lambda m: (int(m[1]), int(m[2])))]


class Controller:
    """What the chip selects of one controller share: its thread, and who holds it.

    Args:
        name: `spi0`.
    """

    def __init__(self, name: str) -> None:
        self.worker = Worker(name)
        self.lock = asyncio.Lock()


class KernelSpi:
    """An `edged.bus.Spi`: one chip select, opened when it is first used; loop thread only.

    Args:
        name: `spi0.0`, for /dev/spidev0.0.
        dev: where device nodes are; what is not there is not opened in /dev.
        sysfs: where sysfs is mounted.
        controller: shared with the other chip selects of the same one.

    Raises:
        NoDeviceError: that is no name of a target.
    """

    def __init__(
        self,
        name: str,
        *,
        dev: str = "/dev",
        sysfs: str = "/sys",
        controller: Controller | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise NoDeviceError(f"{name!r} is no SPI target: write spi0.0 for {dev}/spidev0.0")
        self.name = name
        self._controller = controller or Controller(name.partition(".")[0])
        self._node = _Node(name, dev, sysfs)
        self._held = _HeldSpi(self._transfer)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[SpiTransfers]:
        """Holds the controller for several transfers; waiters are served in order."""
        async with self._controller.lock:
            yield self._held

    async def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        """One transfer on its own; see `SpiTransfers.transfer`.

        Raises:
            NoDeviceError: no such target, or the package spidev is not installed.
        """
        async with self._controller.lock:
            return await self._transfer(write, settings)

    def close(self) -> None:
        """Ends the controller's thread and gives the target back; no use after."""
        self._controller.worker.close()
        self._node.close()

    async def _transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        if not write:
            return b""
        return await self._controller.worker.run(self._node.transfer, write, settings)


class _HeldSpi:
    """The transfers of whoever holds the controller."""

    def __init__(self, run: Callable[[bytes, SpiSettings], Awaitable[bytes]]) -> None:
        self._run = run

    async def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        return await self._run(write, settings)


class _Node:
    """The target as the controller's thread sees it: opened when needed, set up as last."""

    def __init__(self, name: str, dev: str, sysfs: str) -> None:
        self._name = name
        self._path = os.path.join(dev, name.replace("spi", "spidev", 1))
        self._bufsiz = os.path.join(sysfs, "module/spidev/parameters/bufsiz")
        self._longest = XFER2_MAX
        # An object of a C extension without types.
        self._device: Any = None
        self._set: tuple[int, bool, bool] | None = None

    def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        device = self._opened()
        if len(write) > self._longest:
            raise InvalidArgumentsError([Fault("data", self._too_long(len(write)))])
        if not is_spi_possible(settings):
            raise spi_error(errno.EINVAL, self._name)
        try:
            self._set_up(device, settings)
            received = device.xfer2(write, settings.max_speed_hz, 0, settings.bits_per_word)
        except OSError as error:
            raise self._failed(error) from error
        return bytes(received)

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device, self._set = None, None

    def _opened(self) -> Any:
        if self._device is None:
            try:
                device = import_module("spidev").SpiDev()
            except ImportError as error:
                raise NoDeviceError(
                    f"{self._name} needs the Python package spidev: "
                    f"{install('edged[spi]', 'python3-spidev')} (without a wheel "
                    "it needs a compiler: apt install gcc python3-dev)"
                ) from error
            try:
                os.stat(self._path)
                # By number: there is no `open_path` before 3.8.
                device.open(*map(int, self._name.removeprefix("spi").split(".")))
            except OSError as error:
                device.close()
                raise open_error(error.errno or errno.EIO, "spi", self._path) from error
            self._device = device
            self._longest = min(XFER2_MAX, _number(self._bufsiz) or XFER2_MAX)
        return self._device

    def _set_up(self, device: Any, settings: SpiSettings) -> None:
        """Mode and order of bits, which the kernel keeps; the rest goes with each transfer."""
        wanted = (settings.mode, settings.lsb_first, settings.cs_high)
        if wanted != self._set:
            self._set = None
            device.mode, device.lsbfirst, device.cshigh = wanted
            self._set = wanted

    def _failed(self, error: OSError) -> BusError:
        # A mode that the driver did not keep has no errno of the kernel's.
        number = error.errno or errno.EINVAL
        if number in _GONE:
            self.close()
        return spi_error(number, self._name)

    def _too_long(self, count: int) -> str:
        if self._longest < XFER2_MAX:
            return (
                f"{count} bytes are more than the kernel's buffer of {self._longest}: raise it "
                f"with spidev.bufsiz={XFER2_MAX} on the kernel's command line, or send less"
            )
        return f"{count} bytes are more than the {self._longest} of one transfer: send less"


def _number(path: str) -> int:
    """The number in a file of sysfs; 0 when the module is built without it or not there."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
