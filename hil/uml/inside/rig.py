"""The quick guest as a rig of the conformance suite: gpio-sim, i2c-stub and its ttys."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from edged.bus.i2c import KernelI2c
from edged.testing import FakeClock
from hil.bench import Bench, EndsPart, File, GpioPart
from hil.uml.inside.simchip import SimChip, Turn
from tests.conformance.benches import (
    GpioBench,
    I2cBench,
    Memory,
    Register,
    Rig,
    kernel_buses,
)
from tests.conformance.pty import Pty

MEMORY, THERMOMETER = 0x50, 0x48
PACE = 3


class StubBench(I2cBench):
    """An adapter with SMBus only; registers are memory of 16 bits each, for us of 8."""

    absent = 0x51
    chips = frozenset({MEMORY, THERMOMETER})
    memory = Memory(MEMORY, 1, 0x40, 32)
    # A block of 32 bytes after the register's address; reads as far as registers go.
    longest_write = 33
    longest_read = 0x100 - 0x40

    def __init__(self) -> None:
        # It believes for a second who owns an address, by a clock that stands still otherwise.
        self._clock = FakeClock()
        (self._adapter,) = Path("/sys/bus/i2c/devices").glob("i2c-*")
        self.bus = KernelI2c(int(self._adapter.name.removeprefix("i2c-")), clock=self._clock)

    @contextmanager
    def own(self):
        (self._adapter / "new_device").write_text(f"lm75 {THERMOMETER:#x}")
        self._clock.advance(1.0)
        try:
            yield THERMOMETER, "lm75"
        finally:
            (self._adapter / "delete_device").write_text(f"{THERMOMETER:#x}")
            self._clock.advance(1.0)


class SimGpioBench(GpioBench):
    """Two lines of a chip."""

    output, input = "GPIO1", "GPIO0"

    def __init__(self, gpio, chip: SimChip) -> None:
        self.gpio, self._chip, self._turn = gpio, chip, Turn(chip, PACE)

    async def drive(self, high):
        self._turn(0, high)

    async def let_go(self):
        """A simulated line is pulled by what was asked for last: the bias, from now on."""

    async def shows(self, high):
        return self._chip.level(1) is high

    def close(self):
        self._turn.close()


class Guest(Rig):
    name = "uml"
    can = Pty.can | {
        *("i2c", "i2c.memory", "i2c.limits", "i2c.scan", "i2c.owner"),
        *("gpio", "gpio.edges", "gpio.debounce", "gpio.bias"),
    }

    @asynccontextmanager
    async def i2c(self):
        module = f"{os.environ['kernel']}/i2c-stub.ko"
        subprocess.run(["insmod", module, f"chip_addr={MEMORY},{THERMOMETER}"], check=True)
        bench = StubBench()
        try:
            await bench.bus.transfer(THERMOMETER, b"\x02\x4b\x00")
            bench.registers = (Register(THERMOMETER, b"\x02", b"\x4b\x00"),)
            yield bench
        finally:
            bench.bus.close()
            subprocess.run(["rmmod", "i2c_stub"], check=True)

    @asynccontextmanager
    async def gpio(self):
        chip = SimChip("sim", ["GPIO0", "GPIO1", "GPIO2", "", "ACT"], {4: "spi0 CS0"})
        try:
            async with kernel_buses() as buses:
                bench = SimGpioBench(buses.gpio, chip)
                yield bench
                bench.close()
        finally:
            chip.remove()

    @asynccontextmanager
    async def serial(self):
        async with Pty().serial() as bench:
            yield bench


class Wires:
    """Jumper wires between lines of a chip: what one end is, the other is pulled to.

    Args:
        chip: whose lines.
        ends: from which line to which.
    """

    def __init__(self, chip: SimChip, ends: dict[int, int]) -> None:
        self._chip, self._ends, self._ended = chip, ends, threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wires")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _carry(self) -> None:
        carried: dict[int, bool] = {}
        while not self._ended.wait(0.001):
            for start, end in self._ends.items():
                level = self._chip.level(start)
                if carried.get(end) is not level:
                    carried[end] = level
                    self._chip.pull(end, level)


class Wired(Bench):
    """Lines with wires between them, as a file describes a real bench's."""

    def __init__(self) -> None:
        ends = {
            "output": EndsPart(line="out", wired_to="meter"),
            "input": EndsPart(line="in", wired_to="hand"),
        }
        super().__init__("wires", File(gpio=GpioPart(**ends, debounce=False)))

    @asynccontextmanager
    async def gpio(self):
        chip = SimChip("wired", ["out", "meter", "in", "hand"])
        try:
            with Wires(chip, {0: 1, 3: 2}):
                async with super().gpio() as bench:
                    yield bench
        finally:
            chip.remove()


RIGS = (Guest(), Wired())
