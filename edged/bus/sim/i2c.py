"""A simulated I2C bus over register models, with faults to order."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from operator import and_
from typing import Literal, Protocol

from edged.bus import I2c, I2cTransfers
from edged.bus._limits import check_i2c
from edged.bus.faults import NackError, i2c_error
from edged.errors import BusyError

FaultKind = Literal["nack", "timeout", "all_ones", "all_zeros", "flipped_bit", "delay"]

DELAY_S = 0.05
"""How long a transfer with the fault `delay` takes."""


class Target(Protocol):
    """A register model: one chip on an I2C bus, byte by byte.

    Either method may raise `NackError`. A model that also has `reset()` comes up
    anew from a brown-out; one that has `behind` (a multiplexer) lets others onto
    the bus.
    """

    def write(self, data: bytes) -> None:
        """Takes the bytes of one write."""

    def read(self, length: int) -> bytes:
        """Gives the bytes of one read."""


Behind = Callable[[int], Sequence[Target]]
"""The chips of an address that a multiplexer lets onto the bus now."""


def on_bus(targets: Mapping[int, Target], address: int) -> list[Target]:
    """All chips that answer to an address: one, or several where addresses collide."""
    found = [targets[address]] if address in targets else []
    for target in targets.values():
        behind: Behind | None = getattr(target, "behind", None)
        if behind is not None:
            found += behind(address)
    return found


class SimI2c(I2c):
    """A simulated I2C bus; call from the event loop's thread.

    Args:
        name: `i2c-1`.
        targets: register models by 7-bit address; may change while in use, as
            devices come and go.
        sleep: how the fault `delay` waits.
    """

    def __init__(
        self,
        name: str,
        targets: dict[int, Target],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.targets = targets
        self.owners: dict[int, str] = {}
        """Kernel drivers by the address that they own."""
        self.stuck = False
        """While set, a data line is held low: nothing gets through."""
        self._sleep = sleep
        self._faults: dict[int, tuple[FaultKind, float]] = {}
        self._lock = asyncio.Lock()
        self._held = _HeldI2c(self._transfer)

    def fail(self, address: int, kind: FaultKind, times: float = inf) -> None:
        """Orders a fault for the next transfers to an address.

        Args:
            address: of the target.
            kind: `nack`: nothing acknowledges; `timeout`: the bus is stuck;
                `all_ones`, `all_zeros`: what reads give (data line not connected,
                shorted); `flipped_bit`: the first byte read has its highest bit
                wrong; `delay`: it takes `DELAY_S`.
            times: how many transfers; for good by default. 0 ends the fault.
        """
        self._faults[address] = (kind, times)

    def brown_out(self, address: int) -> None:
        """The supply of a chip dips: its registers are as after power-on."""
        reset: Callable[[], None] = getattr(self.targets[address], "reset")  # noqa: B009  optional
        reset()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[I2cTransfers]:
        """Holds the bus for several transfers; waiters are served in order."""
        async with self._lock:
            yield self._held

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        """One transaction on its own."""
        async with self._lock:
            return await self._held.transfer(address, write, read_len)

    async def detect(self, address: int) -> bool:
        """Whether something acknowledges the address."""
        async with self._lock:
            await asyncio.sleep(0)
            if self.owner(address):
                return True
            fault = self._next_fault(address)
            if self.stuck or fault == "timeout":
                raise i2c_error(errno.ETIMEDOUT, self.name, address)
            return bool(on_bus(self.targets, address)) and fault != "nack"

    def owner(self, address: int) -> str:
        """The kernel's driver that owns the address."""
        return self.owners.get(address, "")

    async def _transfer(self, address: int, write: bytes, read_len: int) -> bytes:
        check_i2c(address, len(write), read_len)
        # A real transfer takes time, in which other tasks run: so does this.
        await asyncio.sleep(0)
        if driver := self.owner(address):
            raise BusyError(
                f"{self.name}, address {address:#04x}: the kernel's driver {driver} owns it"
            )
        fault = self._next_fault(address)
        if self.stuck or fault == "timeout":
            raise i2c_error(errno.ETIMEDOUT, self.name, address)
        if fault == "delay":
            await self._sleep(DELAY_S)
        targets = on_bus(self.targets, address)
        if fault == "nack" or not targets:
            raise i2c_error(errno.EREMOTEIO, self.name, address)
        try:
            data = _exchange(targets, write, read_len)
        except NackError:
            raise i2c_error(errno.EREMOTEIO, self.name, address) from None
        return _spoiled(data, fault)

    def _next_fault(self, address: int) -> FaultKind | None:
        kind, times = self._faults.get(address, (None, 0))
        if kind is None or times <= 0:
            return None
        self._faults[address] = (kind, times - 1)
        return kind


def _exchange(targets: Sequence[Target], write: bytes, read_len: int) -> bytes:
    """What several chips of one address do at once: a low level of any of them wins."""
    if write:
        for target in targets:
            target.write(write)
    data = b"\xff" * read_len
    if read_len:
        for target in targets:
            data = bytes(map(and_, data, target.read(read_len)))
    return data


def _spoiled(data: bytes, fault: FaultKind | None) -> bytes:
    if fault == "all_ones":
        return b"\xff" * len(data)
    if fault == "all_zeros":
        return bytes(len(data))
    if fault == "flipped_bit" and data:
        return bytes([data[0] ^ 0x80]) + data[1:]
    return data


class _HeldI2c:
    """The transfers of whoever holds the bus."""

    def __init__(self, run: Callable[[int, bytes, int], Awaitable[bytes]]) -> None:
        self._run = run

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        return await self._run(address, write, read_len)
