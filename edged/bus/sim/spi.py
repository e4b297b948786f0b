"""Simulated SPI targets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from edged.bus import SpiSettings, SpiTransfers
from edged.bus._limits import is_spi_possible
from edged.bus.faults import spi_error
from edged.errors import Fault, InvalidArgumentsError

BUFSIZ = 4096
"""Longest transfer, as the kernel's spidev has it by default."""


class SpiTarget(Protocol):
    """A model of one chip on a chip select."""

    def transfer(self, write: bytes) -> bytes:
        """As many bytes as came, in one selection."""


class SimSpi:
    """One simulated target; call from the event loop's thread.

    Args:
        name: `spi0.0`.
        target: the model; None is an open data line, which reads ones.
    """

    def __init__(self, name: str, target: SpiTarget | None) -> None:
        self.name = name
        self.target = target
        self.reads: Literal["target", "all_ones", "all_zeros"] = "target"
        """Set to one of the others, the data line is not connected, or shorted."""
        self._lock = asyncio.Lock()
        self._held = _HeldSpi(self)

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[SpiTransfers]:
        """Holds the target for several transfers."""
        async with self._lock:
            yield self._held

    async def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        """One transfer on its own."""
        async with self._lock:
            return await self._held.transfer(write, settings)


class _HeldSpi:
    """The transfers of whoever holds the target."""

    def __init__(self, spi: SimSpi) -> None:
        self._spi = spi

    async def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        await asyncio.sleep(0)
        spi = self._spi
        if len(write) > BUFSIZ:
            reason = f"{len(write)} bytes are more than the kernel's buffer of {BUFSIZ}"
            raise InvalidArgumentsError([Fault("data", reason)])
        if not is_spi_possible(settings):
            raise spi_error(errno.EINVAL, spi.name)
        if spi.reads == "all_zeros":
            return bytes(len(write))
        if spi.target is None or spi.reads == "all_ones":
            return b"\xff" * len(write)
        return spi.target.transfer(write)
