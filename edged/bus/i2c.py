"""I2C over the kernel's /dev/i2c-N.

One thread a bus does what blocks, in order. Each transaction is one I2C_RDWR with a
repeated start; adapters that have only SMBus do what that can (`edged.bus._i2cdev`).
An address that a driver of the kernel owns is refused: I2C_RDWR would reach the
chip behind that driver's back.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from edged.bus import I2cTransfers, Sleep
from edged.bus._breaker import Breaker
from edged.bus._i2cdev import Adapter
from edged.bus._limits import check_i2c
from edged.bus._stepping import Done, Pause, give_up, step
from edged.bus._worker import Worker
from edged.bus.faults import NO_ANSWER, STUCK, i2c_error, open_error, silent_error
from edged.clock import Clock
from edged.errors import BusyError, NoDeviceError
from edged.libraries import install

_T = TypeVar("_T")

OWNER_S = 1.0
"""How long it is believed who owns an address: drivers bind when modules are loaded."""

_NACK_TIMES_OUT = ("CP2112",)
"""Adapters, by how their name begins, that see no difference between an address that nobody
acknowledged and a stuck bus: both are ETIMEDOUT. Source: `drivers/hid/hid-cp2112.c`."""


def numbers(dev: str = "/dev") -> list[int]:
    """The buses that are there, `[1, 20]` for /dev/i2c-1 and /dev/i2c-20."""
    found = (name.removeprefix("i2c-") for name in os.listdir(dev) if name.startswith("i2c-"))
    return sorted(int(number) for number in found if number.isdecimal())


def adapter_name(number: int, sysfs: str = "/sys") -> str:
    """What the kernel calls the adapter, `bcm2835 (i2c@7e804000)`; empty when unknown."""
    try:
        with open(f"{sysfs}/bus/i2c/devices/i2c-{number}/name", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


class KernelI2c:
    """One adapter of the kernel: an `edged.bus.I2c`, opened when it is first used.

    Args:
        number: N of /dev/i2c-N.
        dev: where the nodes are.
        sysfs: where the kernel tells who owns an address.
        clock: its time.
    """

    def __init__(
        self, number: int, *, dev: str = "/dev", sysfs: str = "/sys", clock: Clock
    ) -> None:
        self.name = f"i2c-{number}"
        self._number, self._sysfs, self._clock = number, sysfs, clock
        self._node = _Node(number, dev, sysfs, Breaker(self.name, clock))
        self._worker = Worker(self.name)
        self._lock = asyncio.Lock()
        self._held = _HeldI2c(self._transfer)
        self._holds = 0
        """Of the measurement that `run` steps."""
        self._owners: dict[int, tuple[str, float]] = {}
        self._looking: asyncio.Future[None]

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[I2cTransfers]:
        """Holds the bus for several transfers; waiters are served in order."""
        if self._worker.is_current:
            # `run` has it for as long as this goes on.
            self._holds += 1
            try:
                yield self._held
            finally:
                self._holds -= 1
            return
        async with self._lock:
            yield self._held

    async def run(self, work: Coroutine[Any, Any, _T], sleep: Sleep) -> _T:
        """A measurement, stepped on the bus's thread; see `I2c.run`."""
        held = False
        try:
            while True:
                if not held:
                    await self._lock.acquire()
                    held = True
                reached = await self._worker.run(step, work)
                if isinstance(reached, Done):
                    return reached.value
                if not self._holds:
                    held = False
                    self._lock.release()
                await sleep(reached.seconds)
        except BaseException as error:
            if inspect.getcoroutinestate(work) != inspect.CORO_CLOSED:
                # After the step that may be under way.
                self._worker.post(give_up, work, error)
            raise
        finally:
            if held:
                self._lock.release()

    async def pause(self, seconds: float, sleep: Sleep) -> None:
        """How what `run` steps sleeps; anything else by `sleep`."""
        await (Pause(seconds) if self._worker.is_current else sleep(seconds))

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        """One transaction on its own; see `I2cTransfers.transfer`.

        Raises:
            InvalidArgumentsError: longer than the kernel takes; no byte moved.
        """
        if self._worker.is_current or not self._lock.locked():
            # The thread keeps the order, and goes from one to the next without a pause.
            return await self._transfer(address, write, read_len)
        async with self._lock:
            return await self._transfer(address, write, read_len)

    async def detect(self, address: int) -> bool:
        """Whether something acknowledges the address; what the kernel owns is not asked."""
        if self.owner(address):
            return True
        if self._worker.is_current:
            return self._node.detect(address)
        async with self._lock:
            return await self._worker.run(self._node.detect, address)

    def owner(self, address: int) -> str:
        """The kernel's driver that owns the address."""
        now = self._clock.monotonic()
        name, until = self._owners.get(address, ("", now))
        if now >= until:
            try:
                name = os.path.basename(os.readlink(f"{self._device(address)}/driver"))
            except OSError:
                name = ""
            self._owners[address] = name, now + OWNER_S
        return name

    def look(self) -> None:
        """Gives the adapter back soon if it was unplugged.

        The kernel waits for that, and its USB hub with it: until then nothing that is
        plugged in there is seen.
        """
        if self._node.is_open:
            self._looking = asyncio.ensure_future(self._worker.run(self._node.look))

    def close(self) -> None:
        """Ends the bus's thread and gives the adapter back; use then raises `NoDeviceError`."""
        self._worker.close()
        self._node.close()

    async def _transfer(self, address: int, write: bytes, read_len: int) -> bytes:
        check_i2c(address, len(write), read_len)
        driver = self.owner(address)
        if driver:
            device = self._device(address)
            raise BusyError(
                f"{self.name}, address {address:#04x}: the kernel's driver {driver} owns it: "
                f"read it at {_value(device)}, or unbind the driver (echo "
                f"{os.path.basename(device)} > {device}/driver/unbind)"
            )
        if self._worker.is_current:
            return self._node.transfer(address, write, read_len)
        return await self._worker.run(self._node.transfer, address, write, read_len)

    def _device(self, address: int) -> str:
        return f"{self._sysfs}/bus/i2c/devices/{self._number}-{address:04x}"


def _value(device: str) -> str:
    """Where the kernel's driver of a device shows what it reads, in sysfs."""
    names = _listed(device)
    for name in names:
        if name in {"hwmon", "rtc"}:
            # A class: the numbered device is below, hwmon/hwmon0.
            return "/".join([device, name, *_listed(f"{device}/{name}")[:1]])
        if name.startswith("iio:device"):
            return f"{device}/{name}"
    # The buses behind it. Some sensors have one too, the MPU6050 for a compass.
    channels = [name for name in names if name.startswith("channel-")]
    return "/".join([device, *channels[:1]])


def _listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        # Its driver was unbound since it was asked for.
        return []


class _HeldI2c:
    """The transfers of whoever holds the bus."""

    def __init__(self, run: Callable[[int, bytes, int], Awaitable[bytes]]) -> None:
        self._run = run

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        return await self._run(address, write, read_len)


class _Node:
    """The adapter as its own thread sees it: opened when needed, stuck or not.

    That a bus is stuck is found out here and not by who waits: callers give up
    before the kernel does.
    """

    def __init__(self, number: int, dev: str, sysfs: str, breaker: Breaker) -> None:
        self._number, self._sysfs, self._breaker = number, sysfs, breaker
        self._name, self._path = f"i2c-{number}", f"{dev}/i2c-{number}"
        self._adapter: Adapter | None = None
        self._answered: list[int] = []
        """Up to two addresses that answered last, the latest first."""

    def transfer(self, address: int, write: bytes, read_len: int) -> bytes:
        self._breaker.check()
        adapter = self._opened()
        try:
            data = adapter.transfer(address, write, read_len)
        except OSError as error:
            number = error.errno or errno.EIO
            moves = self._failed(adapter, address, number)
            if moves and number in STUCK:
                raise silent_error(self._name, address) from error
            raise i2c_error(number, self._name, address) from error
        self._succeeded(address)
        return data

    def detect(self, address: int) -> bool:
        # Also while it is taken for stuck: who asks for what is there looks for the fault.
        adapter = self._opened()
        try:
            there = adapter.detect(address)
        except OSError as error:
            number = error.errno or errno.EIO
            if number == errno.EBUSY:
                # A driver of the kernel took it a moment ago.
                return True
            if self._failed(adapter, address, number, counts=False):
                return False
            raise i2c_error(number, self._name, address) from error
        if there:
            self._succeeded(address)
        else:
            self._failed(adapter, address, errno.ENXIO)
        return there

    @property
    def is_open(self) -> bool:
        """Whether the adapter is open, as any thread may ask."""
        return self._adapter is not None

    def look(self) -> None:
        if self._adapter is not None and self._adapter.is_gone():
            self.close()

    def close(self) -> None:
        if self._adapter is not None:
            self._adapter.close()
            self._adapter = None

    def _opened(self) -> Adapter:
        if self._adapter is None:
            name = adapter_name(self._number, self._sysfs)
            times_out = name.startswith(_NACK_TIMES_OUT)
            try:
                self._adapter = Adapter(self._path, nack_times_out=times_out)
            except OSError as error:
                raise open_error(error.errno or errno.EIO, "i2c", self._path) from error
            except ImportError as error:
                raise NoDeviceError(
                    f"{self._name} needs the Python package smbus2: "
                    f"{install('smbus2', 'python3-smbus2')}"
                ) from error
        return self._adapter

    def _succeeded(self, address: int) -> None:
        self._breaker.moved()
        if self._answered[:1] != [address]:
            self._answered = [address, *self._answered[:1]]

    def _failed(self, adapter: Adapter, address: int, number: int, *, counts: bool = True) -> bool:
        """Draws conclusions from a failure; whether the bus is known to move.

        Args:
            adapter: that failed.
            address: that was asked.
            number: the kernel's errno.
            counts: whether a time-out is a sign of a stuck bus, as that of a device is
                that should be there.
        """
        if adapter.is_gone():
            self.close()
            raise open_error(errno.ENODEV, "i2c", self._path)
        if number == errno.ETIMEDOUT and not self._moves(adapter, address):
            if counts:
                self._breaker.timed_out()
            return False
        if number in NO_ANSWER | STUCK:
            self._breaker.moved()
            return True
        return False

    def _moves(self, adapter: Adapter, address: int) -> bool:
        """Whether a target that answered before answers now, when another timed out.

        Then it is that other one alone: it holds the clock, or it is absent and the
        adapter says it like this (the i.MX one as QEMU has it).
        """
        others = [other for other in self._answered if other != address]
        if not others:
            return False
        try:
            adapter.detect(others[0])
        except OSError:
            return False
        # Even that it is no longer there is an answer of the bus.
        return True
