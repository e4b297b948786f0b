"""Simulated serial ports: bytes both ways with a peer, and a plug to pull."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from edged.bus import PortInfo, SerialSettings
from edged.bus._limits import BUFFER_MAX, check_fits
from edged.errors import BusyError, NoDeviceError


class SerialPeer(Protocol):
    """What is at the other end of the line."""

    def attach(self, send: Callable[[bytes], None]) -> None:
        """The port was opened; `send` puts bytes on its line, from now on, at any time."""

    def receive(self, data: bytes) -> None:
        """Bytes that the port sent."""

    def detach(self) -> None:
        """The port was closed."""


class SimSerial:
    """Simulated ports by name; call from the event loop's thread."""

    def __init__(self, peers: dict[str, SerialPeer]) -> None:
        self.peers = peers
        """May change while in use: `pull` and `plug` do it properly."""
        self._open: dict[str, SimPort] = {}

    async def list(self) -> Sequence[PortInfo]:
        """The ports that are there."""
        return [PortInfo(name, f"/dev/{name}", description="simulated") for name in self.peers]

    async def find(self, port: str) -> PortInfo:
        """The port that is meant."""
        for info in await self.list():
            if port in {info.name, info.path}:
                return info
        there = ", ".join(self.peers) or "none"
        raise NoDeviceError(f"no serial port {port!r}: there is {there}")

    async def open(self, port: str, settings: SerialSettings, consumer: str) -> SimPort:
        """Opens a port for its consumer alone."""
        name = (await self.find(port)).name
        peer = self.peers[name]
        if name in self._open:
            raise BusyError(f"{name} is in use by {self._open[name].consumer}")
        opened = SimPort(name, settings, consumer, peer, lambda: self._open.pop(name, None))
        self._open[name] = opened
        peer.attach(opened.arrive)
        return opened

    def pull(self, port: str) -> SerialPeer:
        """Pulls the plug of a port; returns the peer, for `plug`."""
        if port in self._open:
            self._open[port].hang_up()
        return self.peers.pop(port)

    def plug(self, port: str, peer: SerialPeer) -> None:
        """Plugs a peer in."""
        self.peers[port] = peer


class SimPort:
    """An open simulated port."""

    def __init__(
        self,
        name: str,
        settings: SerialSettings,
        consumer: str,
        peer: SerialPeer,
        on_close: Callable[[], object],
    ) -> None:
        self.name = name
        self.settings = settings
        self.consumer = consumer
        self.lost = 0
        self._peer = peer
        self._on_close = on_close
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._gone = ""
        self._lock = asyncio.Lock()

    def arrive(self, data: bytes) -> None:
        """Bytes from the peer."""
        self._buffer += data
        over = len(self._buffer) - BUFFER_MAX
        if over > 0:
            del self._buffer[:over]
            self.lost += over
        self._arrived.set()

    def hang_up(self) -> None:
        """The device was unplugged."""
        self._end("was unplugged or hung up")

    async def write(self, data: bytes) -> None:
        """Sends bytes."""
        await asyncio.sleep(0)
        self._check()
        self._peer.receive(data)

    async def read(self, count: int, timeout_s: float) -> bytes:
        """Bytes that came."""
        check_fits("count", count, 0)
        await self._until(lambda: len(self._buffer) >= count, timeout_s)
        return self._take(count)

    async def read_until(self, end: bytes, limit: int, timeout_s: float) -> bytes:
        """Bytes up to and with `end`."""
        check_fits("limit", limit, 1)
        await self._until(lambda: end in self._buffer or len(self._buffer) >= limit, timeout_s)
        at = self._buffer.find(end, 0, limit)
        if at < 0 and len(self._buffer) < limit:
            self._check()
        return self._take(limit if at < 0 else at + len(end))

    def discard(self) -> int:
        """Forgets what came."""
        count = len(self._buffer)
        self._buffer.clear()
        return count

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Keeps others out for one exchange."""
        async with self._lock:
            yield

    async def line_errors(self) -> dict[str, int] | None:
        """Not known of a simulated line."""
        return None

    async def close(self) -> None:
        """Gives the port back."""
        self._end("is closed")
        await asyncio.sleep(0)

    def _end(self, reason: str) -> None:
        if not self._gone:
            self._gone = reason
            self._peer.detach()
            self._on_close()
            self._arrived.set()

    def _check(self) -> None:
        if self._gone:
            raise NoDeviceError(f"{self.name} {self._gone}")

    async def _until(self, enough: Callable[[], bool], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not enough() and not self._gone:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return
        if not self._buffer:
            self._check()

    def _take(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
