"""A daemon with a board for one measurement, in a process of its own.

python -m tests.bench.board DIRECTORY edges FD
python -m tests.bench.board DIRECTORY sensors
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

from edged.board import Board
from edged.board.sensor import Publish
from edged.bus._worker import Worker
from edged.bus.gpio import KernelLine
from edged.bus.settings import BoardConfig, GpioConfig, HistoryConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.clock import SystemClock
from edged.daemon import GC_THRESHOLD
from edged.drivers import lm75
from edged.testing import running

SENSORS = 50
INTERVAL_S = 5
"""Between two batches of the history."""


def places() -> list[tuple[str, int]]:
    """Bus and address of each sensor."""
    addresses = lm75.INFO.addresses
    return [(f"i2c-{1 + n // 8}", addresses[n % 8]) for n in range(SENSORS)]


class Pipe:
    """A GPIO chip whose only line has its edges from a pipe, as the kernel writes them."""

    def __init__(self, fd):
        self.fd = fd

    async def request(self, line, settings, consumer, on_edges=None):
        taken = KernelLine(line, self.fd, Worker("gpio"), lambda _: None)
        taken.watch(on_edges)
        return taken


def edges(fd):
    os.set_blocking(fd, False)
    config = BoardConfig(gpio={"wheel": GpioConfig(line="GPIO4", direction="input", edge="both")})
    return config, SimBuses(gpio=Pipe(fd))


def sensors():
    config = BoardConfig(
        sensors={
            f"room{n}": SensorConfig(driver="lm75", bus=bus, address=address, every="1s")
            for n, (bus, address) in enumerate(places())
        },
        history=HistoryConfig(interval=INTERVAL_S),
    )
    buses = {bus: SimI2c(bus, {}) for bus, _ in places()}
    for bus, address in places():
        buses[bus].targets[address] = lm75.Sim(SystemClock())
    return config, SimBuses(i2c=buses)


async def main(directory, what, *words):
    config, buses = {"edges": edges, "sensors": sensors}[what](*map(int, words))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def board(publish: Publish) -> Board:
        return Board(config, buses, SystemClock(), publish=publish)

    async with running(data=directory, http=False, board=board):
        # As `edged serve` does.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
