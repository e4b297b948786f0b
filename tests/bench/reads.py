"""Reads of one chip: through the daemon's socket, and by smbus2 itself, in turn.

Run where both meet the same adapter, with umockdev's environment or on the emulated board;
prints seconds as JSON.

    python -m tests.bench.reads SOCKET BUS        medians of one read
    python -m tests.bench.reads --pace SECONDS    CPU of sampling, as a share of one core
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from smbus2 import SMBus, i2c_msg

from tests.bench.board import places
from tests.bench.load import Lines, connect, running

ADDRESS = 0x48
TEMPERATURE, CONFIGURATION = 0x00, 0x01
CEL_21_5 = b"\x15\x80"
READ = {"action": "read", "address": ADDRESS, "register": TEMPERATURE, "length": 2}
CALLS = {
    "sensor": ("sensor", {"sensor": "one"}),
    # The same way through the daemon, without a bus.
    "kept": ("sensor", {"sensor": "one", "max_age": 600}),
    "echo": ("echo", {"text": "i2c-1 0x48 register 0x00: read 15 80"}),
}
ROUNDS, TURNS = 3, 150
IN_FLIGHT, MANY = 8, 240


def register(bus: SMBus, number: int, length: int, address: int = ADDRESS) -> bytes:
    write, read = i2c_msg.write(address, [number]), i2c_msg.read(address, length)
    bus.i2c_rdwr(write, read)
    return bytes(read)


def chip(bus: SMBus, address: int = ADDRESS) -> bytes:
    """The transfers that one measurement of an LM75 is made of."""
    register(bus, CONFIGURATION, 1, address)
    return register(bus, TEMPERATURE, 2, address)


class Reader:
    """Does one thing at a time, in each way, and takes its time."""

    def __init__(self, client: Lines, floor: Lines, bus: int) -> None:
        self.client = client
        self.floor = floor
        self.bus = SMBus(bus)
        self.thread = ThreadPoolExecutor(1)
        self.ways = {
            **{name: self._call(*call) for name, call in CALLS.items()},
            "i2c": self._call("i2c", READ | {"bus": bus}),
            "floor": self._floor("read"),
            "floor's echo": self._floor("echo"),
            "register": self._register,
            "chip": self._chip,
            "register, on a thread": self._register_on_a_thread,
            "chip, on a thread": self._chip_on_a_thread,
        }

    def _call(self, tool, arguments):
        async def call():
            line = await self.client.ask("tools/call", {"name": tool, "arguments": arguments})
            assert b"15 80" in line or b"21.5" in line, line

        return call

    def _floor(self, method):
        async def ask():
            line = await self.floor.ask(method, CALLS["echo"][1])
            assert b"15 80" in line, line

        return ask

    async def _register(self):
        assert register(self.bus, TEMPERATURE, 2) == CEL_21_5

    async def _chip(self):
        assert chip(self.bus) == CEL_21_5

    # The least that a program does whose loop must not wait for a bus.

    async def _register_on_a_thread(self):
        assert await self._on_a_thread(TEMPERATURE, 2) == CEL_21_5

    async def _chip_on_a_thread(self):
        await self._on_a_thread(CONFIGURATION, 1)
        assert await self._on_a_thread(TEMPERATURE, 2) == CEL_21_5

    def _on_a_thread(self, number, length):
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self.thread, register, self.bus, number, length)

    async def turns(self) -> dict[str, float]:
        """Medians, in an order that favours none: whoever comes after a pause is slower."""
        took: dict[str, list[float]] = {name: [] for name in self.ways}
        order, dice = list(self.ways), random.Random(1)
        for _ in range(TURNS):
            dice.shuffle(order)
            for name in order:
                started = time.perf_counter()
                await self.ways[name]()
                took[name].append(time.perf_counter() - started)
        return {name: statistics.median(times) for name, times in took.items()}

    async def many(self) -> dict[str, float]:
        """One read of many: some of them in flight, and by smbus2 in a loop."""

        async def some() -> None:
            for _ in range(MANY // IN_FLIGHT):
                await self.ways["i2c"]()

        started = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
        between = time.perf_counter()
        for _ in range(MANY):
            await self._register()
        ended = time.perf_counter()
        return {"of many": (between - started) / MANY, "in a loop": (ended - between) / MANY}


async def read(path: str, bus: int) -> dict[str, float]:
    client = await connect(path)
    await client.initialize()
    with tempfile.TemporaryDirectory() as directory:
        at = f"{directory}/floor.sock"
        argv = [sys.executable, "-m", "tests.bench.bus_floor", at, str(bus)]
        with running(argv, cpu=None):
            return await _best(Reader(client, await connect(at), bus))


async def _best(reader: Reader) -> dict[str, float]:
    # A chip's first temperature is there some time after its start.
    while register(reader.bus, TEMPERATURE, 2) != CEL_21_5:
        await asyncio.sleep(0.1)
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, took in (await reader.turns() | await reader.many()).items():
            best[name] = min(best.get(name, took), took)
    return best


def pace(seconds: float) -> float:
    """Reads what the daemon samples, once a second."""
    buses = {bus: SMBus(int(bus.removeprefix("i2c-"))) for bus, _ in places()}
    begun, before = time.monotonic(), time.process_time()
    for second in range(1, round(seconds) + 1):
        for bus, address in places():
            chip(buses[bus], address)
        time.sleep(max(0.0, begun + second - time.monotonic()))
    return (time.process_time() - before) / (time.monotonic() - begun)


if __name__ == "__main__":
    if sys.argv[1] == "--pace":
        print(json.dumps(pace(float(sys.argv[2]))))
    else:
        print(json.dumps(asyncio.run(read(sys.argv[1], int(sys.argv[2])))))
