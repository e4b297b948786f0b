"""A channel of a TCA9548A multiplexer is an I2C bus of its own.

The channel is on only while its bus is held, and nothing else is then on: a chip
behind one channel cannot answer for one of the same address behind another, nor
for one before the multiplexer at other times.

Source: TI SCPS207H (TCA9548A), 8.5.3: one byte, one bit a channel. The PCA9548A
and the TCA9546A (channels 0 to 3) are the same to software.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from edged.bus import I2c, I2cTransfers
from edged.bus._i2cdev import is_spoilt_by_quick
from edged.bus.faults import i2c_error
from edged.errors import BusError, EdgedError, Fault, InvalidArgumentsError, NoDeviceError

ADDRESSES = range(0x70, 0x78)
CHANNELS = 8


class MuxI2c(I2c):
    """One channel, an `edged.bus.I2c`; loop thread only.

    Args:
        parent: the bus of the multiplexer; another multiplexer's channel will do.
        address: of the multiplexer, 0x70 to 0x77.
        channel: 0 to 7.

    Raises:
        NoDeviceError: there is no such channel, or no multiplexer is at such an address.
    """

    def __init__(self, parent: I2c, address: int, channel: int) -> None:
        self.name = f"{parent.name}/{address:#04x}/{channel}"
        if address not in ADDRESSES:
            # Anything else would take the selection for data.
            raise NoDeviceError(f"no bus {self.name}: a multiplexer is at 0x70 to 0x77")
        if not 0 <= channel < CHANNELS:
            raise NoDeviceError(f"no bus {self.name}: a multiplexer has channels 0 to 7")
        self._parent, self._address, self._channel = parent, address, channel

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[I2cTransfers]:
        """Holds the parent with this channel on."""
        async with self._parent.hold() as parent, self._selected(parent):
            yield _HeldChannel(parent, self.name, self._address)

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        """One transaction on its own; see `I2cTransfers.transfer`.

        Raises:
            InvalidArgumentsError: the address is the multiplexer's; no byte moved.
        """
        async with self.hold() as held:
            return await held.transfer(address, write, read_len)

    async def detect(self, address: int) -> bool:
        """Whether something behind this channel acknowledges the address.

        What answers with the channel off is before the multiplexer, and hides
        whatever is behind.
        """
        if address == self._address:
            return False
        if self.owner(address):
            return True
        async with self._parent.hold() as parent:
            await _switch(parent, self._address, 0)
            if await _acknowledges(parent, address):
                return False
            async with self._selected(parent):
                return await _acknowledges(parent, address)

    def owner(self, address: int) -> str:
        """The kernel's driver that owns the address on the wires before the multiplexer.

        Drivers behind it have buses of the kernel's own: those of its multiplexer
        driver, which then owns the multiplexer.
        """
        return self._parent.owner(address)

    @asynccontextmanager
    async def _selected(self, parent: I2cTransfers) -> AsyncIterator[None]:
        try:
            try:
                await _switch(parent, self._address, 1 << self._channel)
            except NoDeviceError as error:
                raise NoDeviceError(f"{self.name}: no multiplexer: {error}") from error
            yield
        except BaseException:
            # What went wrong first is what there is to say.
            with suppress(EdgedError):
                await _to_the_end(_switch(parent, self._address, 0))
            raise
        await _to_the_end(_switch(parent, self._address, 0))


def channel(name: str, trunk: Callable[[str], I2c]) -> MuxI2c:
    """The bus that a name such as `i2c-1/0x70/3` means.

    Args:
        name: bus, address and channel; the numbers in any way of writing.
        trunk: the bus before the multiplexer, by its name.

    Raises:
        NoDeviceError: no such bus.
    """
    bus, *behind = name.split("/")
    try:
        address, number = (int(part, 0) for part in behind)
    except ValueError:
        raise NoDeviceError(
            f"no I2C bus {name[:40]!r}: write a multiplexer's channel as i2c-1/0x70/3"
        ) from None
    return MuxI2c(trunk(bus), address, number)


class _HeldChannel:
    """The transfers of whoever holds the channel."""

    def __init__(self, parent: I2cTransfers, name: str, mux: int) -> None:
        self._parent, self._name, self._mux = parent, name, mux

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        if address == self._mux:
            reason = f"{address:#04x} is the multiplexer of {self._name} itself"
            raise InvalidArgumentsError([Fault("address", reason)])
        try:
            return await self._parent.transfer(address, write, read_len)
        except NoDeviceError as error:
            raise i2c_error(errno.ENXIO, self._name, address) from error


async def _switch(parent: I2cTransfers, address: int, channels: int) -> None:
    """Turns these channels on, one a bit, and all others off."""
    await parent.transfer(address, bytes([channels]))


async def _acknowledges(parent: I2cTransfers, address: int) -> bool:
    """Whether something is there, asked on a held bus as `I2c.detect` asks."""
    try:
        if is_spoilt_by_quick(address):
            await parent.transfer(address, b"", 1)
            return True
        try:
            await parent.transfer(address)
        except BusError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            await parent.transfer(address, b"", 1)
    except NoDeviceError:
        return False
    return True


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Sees work through, even when whoever waits for it is cancelled, and again cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    task.result()
