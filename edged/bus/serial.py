"""Serial ports of the kernel, driven by the event loop.

Laws: a port belongs to one program, and in edged to one consumer; what arrives
is kept in a bounded buffer whether or not someone reads, and a reader that is
cancelled loses nothing; a port that goes away is given back at once, so that its
name is free for the same device to come back under, and only then do those who
wait hear of it, once. Opening, draining and closing may block: each open port
has a thread for them. All else on the loop's thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from edged.bus import PortInfo, SerialSettings
from edged.bus._limits import BUFFER_MAX, check_fits
from edged.bus._ports import find, ports
from edged.bus._tty import Tty
from edged.bus._worker import Worker
from edged.errors import BusError, BusyError, NoDeviceError

GRACE_S = 5.0
"""Beyond the time that bytes take on the line, how long a write waits for flow control."""

_CHUNK = 4_096
"""The line discipline gives no more at once."""

_BITS = 12
"""Of one byte on the line at most: start, eight data, parity, two stop."""

_UNPLUGGED = "was unplugged or hung up"


class KernelSerial:
    """An `edged.bus.SerialPorts` of the kernel's ttys; loop thread only.

    Args:
        dev: where device nodes are.
        sysfs: where sysfs is mounted.
    """

    def __init__(self, *, dev: str = "/dev", sysfs: str = "/sys") -> None:
        self._dev, self._sysfs = dev, sysfs
        self._worker = Worker("serial ports")
        self._open: dict[str, KernelPort] = {}

    async def list(self) -> Sequence[PortInfo]:
        """The ports with hardware behind them, by name."""
        return await self._worker.run(ports, self._dev, self._sysfs)

    async def find(self, port: str) -> PortInfo:
        """The port that is meant; see `SerialPorts.find`."""
        return await self._worker.run(find, port, self._dev, self._sysfs)

    async def open(self, port: str, settings: SerialSettings, consumer: str) -> KernelPort:
        """Opens a port for its consumer alone; see `SerialPorts.open`."""
        info = await self.find(port)
        if info.name in self._open:
            raise BusyError(f"{info.name} is in use by {self._open[info.name].consumer}")
        opened = KernelPort(info, settings, consumer, lambda: self._open.pop(info.name, None))
        self._open[info.name] = opened
        await opened.start()
        return opened

    async def close(self) -> None:
        """Gives back every port that is open, and ends the threads."""
        for port in tuple(self._open.values()):
            await port.close()
        self._worker.close()


class KernelPort:
    """An `edged.bus.SerialPort` on a tty; `KernelSerial` makes and opens it.

    Args:
        info: which.
        settings: how.
        consumer: who has it.
        on_close: called once, when the node is free again.
    """

    def __init__(
        self,
        info: PortInfo,
        settings: SerialSettings,
        consumer: str,
        on_close: Callable[[], object],
    ) -> None:
        self.name = info.name
        self.settings = settings
        self.consumer = consumer
        self.lost = 0
        self._tty = Tty(info.path, settings)
        self._worker = Worker(f"serial {info.name}")
        self._on_close = on_close
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._held = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._fd = -1
        self._ending: asyncio.Task[None] | None = None
        self._gone = ""

    async def start(self) -> None:
        """Opens it; whatever fails, the node is given back and its name is free."""
        try:
            await self._worker.run(self._tty.open)
        except asyncio.CancelledError:
            # The thread may be about to open it: it is closed after that.
            self._end("is closed")
            raise
        except BaseException:
            self._end("is closed")
            await self._ended()
            raise
        self._fd = self._tty.fd
        asyncio.get_running_loop().add_reader(self._fd, self._on_readable)

    async def write(self, data: bytes) -> None:
        """Sends bytes, and returns when all are on their way; see `SerialPort.write`.

        Raises:
            BusError: also when flow control holds the line for `GRACE_S` longer than
                the bytes take on it (ETIMEDOUT); what was not sent is dropped.
        """
        line_s = len(data) * _BITS / self.settings.baudrate
        async with self._writing:
            left = memoryview(data)
            try:
                async with asyncio.timeout(line_s + GRACE_S):
                    while left:
                        left = left[await self._write_some(left) :]
                    await self._drain()
            except TimeoutError:
                self._tty.drop_output()
                raise BusError(
                    errno.ETIMEDOUT,
                    f"{self.name}: the other end did not take all in time ({len(data)} bytes): "
                    "flow control holds the line (CTS is not asserted, or XOFF came); check its "
                    "wires, or switch rtscts and xonxoff off",
                ) from None

    async def read(self, count: int, timeout_s: float) -> bytes:
        """Bytes that came; see `SerialPort.read`.

        Raises:
            InvalidArgumentsError: more than the buffer holds.
        """
        check_fits("count", count, 0)
        await self._until(lambda: len(self._buffer) >= count, timeout_s)
        if not self._buffer:
            self._check()
        return self._take(count)

    async def read_until(self, end: bytes, limit: int, timeout_s: float) -> bytes:
        """Bytes up to and with `end`; see `SerialPort.read_until`.

        Raises:
            InvalidArgumentsError: the limit is more than the buffer holds.
        """
        check_fits("limit", limit, 1)
        await self._until(lambda: self._ends(end, limit) > 0, timeout_s)
        length = self._ends(end, limit)
        if not length:
            self._check()
        return self._take(length or limit)

    def discard(self) -> int:
        """Forgets what came; the number of bytes."""
        count = len(self._buffer)
        self._buffer.clear()
        return count

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Keeps other users of the port out for one exchange."""
        async with self._held:
            yield

    async def line_errors(self) -> dict[str, int] | None:
        """Errors of the line since it was opened; see `SerialPort.line_errors`."""
        await self._check_open()
        return await self._worker.run(self._tty.line_errors)

    async def close(self) -> None:
        """Gives the port back; anything else then raises `NoDeviceError`."""
        self._end("is closed")
        await self._ended()

    # From the kernel ----------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            # An fd of a port that is gone stays readable for ever.
            self._end(_UNPLUGGED)
            return
        self._buffer += data
        over = len(self._buffer) - BUFFER_MAX
        if over > 0:
            del self._buffer[:over]
            self.lost += over
        self._arrived.set()

    def _on_writable(self) -> None:
        asyncio.get_running_loop().remove_writer(self._fd)
        self._writable.set()

    def _end(self, reason: str) -> None:
        """Begins to give the port back, if that did not begin before."""
        if self._ending is not None:
            return
        loop = asyncio.get_running_loop()
        if self._fd >= 0:
            loop.remove_reader(self._fd)
            loop.remove_writer(self._fd)
            self._fd = -1
            # Closing would wait for what was not sent, half a minute long.
            self._tty.drop_output()
        self._ending = loop.create_task(self._give_back(reason), name=f"close {self.name}")

    async def _ended(self) -> None:
        """Waits for the giving back, where it began; a waiter may be cancelled, that may not."""
        if self._ending is not None:
            await asyncio.shield(self._ending)

    async def _give_back(self, reason: str) -> None:
        try:
            await self._worker.run(self._tty.close)
        finally:
            self._worker.close()
            self._on_close()
            self._gone = reason
            self._arrived.set()
            self._writable.set()

    # For readers and writers --------------------------------------------------------------

    async def _until(self, enough: Callable[[], bool], timeout_s: float) -> None:
        """Waits until there is enough, the port is gone or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not enough() and not self._gone:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return

    def _ends(self, end: bytes, limit: int) -> int:
        """Where what was asked for ends in the buffer; 0 when it has not all come."""
        at = self._buffer.find(end, 0, limit)
        if at >= 0:
            return at + len(end)
        return limit if len(self._buffer) >= limit else 0

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    async def _write_some(self, data: memoryview) -> int:
        """Hands the kernel what it has room for; the number of bytes."""
        await self._check_open()
        try:
            return os.write(self._fd, data)
        except (BlockingIOError, InterruptedError):
            self._writable.clear()
            asyncio.get_running_loop().add_writer(self._fd, self._on_writable)
            try:
                await self._writable.wait()
            finally:
                if self._fd >= 0:
                    asyncio.get_running_loop().remove_writer(self._fd)
            return 0
        except OSError:
            self._end(_UNPLUGGED)
            return 0

    async def _drain(self) -> None:
        await self._check_open()
        try:
            await self._worker.run(self._tty.drain)
        except OSError:
            self._end(_UNPLUGGED)
            await self._check_open()

    async def _check_open(self) -> None:
        await self._ended()
        self._check()

    def _check(self) -> None:
        if self._gone:
            raise NoDeviceError(f"{self.name} {self._gone}")
