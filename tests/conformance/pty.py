"""Pseudo terminals of this machine's own kernel as a rig: it has them on any machine.

They have data, hang-up and partial reads as any tty has.
"""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import asynccontextmanager

from edged.bus import SerialSettings
from tests.conformance.benches import BOUND_S, Rig, SerialBench, kernel_buses


class PtyBench(SerialBench):
    """A port that is a pseudo terminal, and its master."""

    settings = SerialSettings(baudrate=4_000_000)

    def __init__(self, ports) -> None:
        self.ports = ports
        self._master, slave = os.openpty()
        self.path = self.port = os.ttyname(slave)
        os.close(slave)

    async def send(self, port, data):
        # More than the kernel's buffers hold waits for the loop.
        sent = await asyncio.to_thread(os.write, self._master, data)
        assert sent == len(data)

    async def receive(self, port, count):
        return await asyncio.to_thread(self._receive, count)

    async def pull(self):
        os.close(self._master)
        self._master = -1

    def close(self):
        if self._master >= 0:
            os.close(self._master)

    def _receive(self, count):
        data = b""
        while len(data) < count:
            assert select.select([self._master], [], [], BOUND_S)[0], f"only {data} came"
            data += os.read(self._master, count - len(data))
        return data


class Pty(Rig):
    name = "pty"
    can = frozenset({"serial", "serial.flood", "serial.pull", "serial.programs"})

    @asynccontextmanager
    async def serial(self):
        async with kernel_buses() as buses:
            bench = PtyBench(buses.serial)
            try:
                yield bench
            finally:
                bench.close()


RIGS = (Pty(),)
