"""A real bench as a rig of the conformance suite: chips and wires that a file describes.

The suite runs on the board itself. The file is hil/bench.yaml, or where EDGED_BENCH
says; hil/bench.example.yaml shows all of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from edged import plugins, yamlio
from edged.bus import LineSettings, SerialSettings
from edged.bus.i2c import OWNER_S, KernelI2c
from edged.clock import SystemClock
from tests.conformance.benches import (
    BOUND_S,
    Exchange,
    GpioBench,
    I2cBench,
    Memory,
    Plugged,
    Register,
    Rig,
    SerialBench,
    SpiBench,
    Subject,
    Truth,
    kernel_buses,
    until,
)


def named() -> Path | None:
    """The file of the bench, if one is named."""
    file = Path(os.environ.get("EDGED_BENCH") or Path(__file__).with_name("bench.yaml"))
    return file if os.environ.get("EDGED_BENCH") or file.exists() else None


# The file -------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class RegisterPart(Part, frozen=True):
    address: int
    pointer: str
    content: str


class MemoryPart(Part, frozen=True):
    address: int
    pointer_bytes: int = 2
    start: int = 0
    page: int = 32


class OwnerPart(Part, frozen=True):
    address: int
    chip: str
    driver: str


class I2cPart(Part, frozen=True):
    bus: str
    absent: int
    registers: list[RegisterPart]
    chips: list[int] = []
    memory: MemoryPart | None = None
    owner: OwnerPart | None = None


class ExchangePart(Part, frozen=True):
    write: str
    answer: str
    skip: int = 0


class SpiPart(Part, frozen=True):
    device: str
    loopback: bool = False
    exchanges: list[ExchangePart] = []
    modes: tuple[int, ...] = (0,)


class SerialPart(Part, frozen=True):
    port: str
    far: str = ""
    baudrate: int = 115_200


class EndsPart(Part, frozen=True):
    line: str
    wired_to: str


class GpioPart(Part, frozen=True):
    output: EndsPart
    input: EndsPart
    bias: bool = False
    edges: bool = True
    debounce: bool = True


class DriverPart(Part, frozen=True):
    driver: str
    bus: str
    address: int | None = None
    options: dict[str, Any] = {}
    identity: str = ""
    expect: dict[str, tuple[float, float]] = {}


class File(Part, frozen=True):
    i2c: I2cPart | None = None
    spi: SpiPart | None = None
    serial: SerialPart | None = None
    gpio: GpioPart | None = None
    drivers: list[DriverPart] = []


def load(file: Path) -> File:
    """What a file describes.

    Raises:
        ConfigError: with every fault of it.
    """
    return yamlio.convert(yamlio.load(file.read_text(), str(file)), File, str(file))


# Its buses ------------------------------------------------------------------------------------


class RealI2c(I2cBench):
    def __init__(self, part: I2cPart) -> None:
        self._part = part
        self.bus = KernelI2c(int(part.bus.removeprefix("i2c-")), clock=SystemClock())
        self.absent, self.chips = part.absent, frozenset(part.chips)
        self.registers = [
            Register(row.address, bytes.fromhex(row.pointer), bytes.fromhex(row.content))
            for row in part.registers
        ]
        if memory := part.memory:
            place = (memory.address, memory.pointer_bytes, memory.start, memory.page)
            self.memory = Memory(*place)

    @contextmanager
    def own(self):
        adapter, owner = Path("/sys/bus/i2c/devices", self._part.bus), self._part.owner
        (adapter / "new_device").write_text(f"{owner.chip} {owner.address:#x}")
        try:
            # So long it is believed who owned it before.
            time.sleep(OWNER_S)
            yield owner.address, owner.driver
        finally:
            (adapter / "delete_device").write_text(f"{owner.address:#x}")
            time.sleep(OWNER_S)


class RealSpi(SpiBench):
    def __init__(self, part: SpiPart, spi) -> None:
        self.spi, self.modes = spi, part.modes
        self.exchanges = [
            Exchange(bytes.fromhex(row.write), row.skip, bytes.fromhex(row.answer))
            for row in part.exchanges
        ]
        if part.loopback:
            every = bytes(range(256)) * 16
            self.exchanges.append(Exchange(every[:3], 0, every[:3]))
            self.longest = Exchange(every, 0, every)


class RealSerial(SerialBench):
    """A port whose TX is wired to its own RX, or both to another port."""

    settle_s = 0.5

    def __init__(self, part: SerialPart, ports, path: str, far) -> None:
        self.ports, self.port, self.path, self._far = ports, part.port, path, far
        self.settings = SerialSettings(baudrate=part.baudrate)

    async def send(self, port, data):
        await (self._far or port).write(data)

    async def receive(self, port, count):
        return await (self._far or port).read(count, BOUND_S)


class RealGpio(GpioBench):
    """An output and an input, each with a wire to a line that is the outside."""

    settle_s, debounce_s = 0.02, 0.5

    def __init__(self, part: GpioPart, gpio, hand, meter) -> None:
        self.gpio, self._hand, self._meter = gpio, hand, meter
        self.output, self.input = part.output.line, part.input.line

    async def drive(self, high):
        await self._hand.set(high)
        # The chip's interrupt is done within that.
        await asyncio.sleep(self.settle_s)

    async def let_go(self):
        await self._hand.release()

    async def shows(self, high):
        async def so():
            return await self._meter.get() is high

        await until(f"{self.output} is {'high' if high else 'low'}", so)
        return True


class Bench(Rig):
    """What a file describes.

    Args:
        name: of the rig.
        file: the description.
    """

    def __init__(self, name: str, file: File) -> None:
        self.name, self.file = name, file
        can = {
            "i2c": file.i2c,
            "i2c.memory": file.i2c and file.i2c.memory,
            "i2c.scan": file.i2c and file.i2c.chips,
            "i2c.owner": file.i2c and file.i2c.owner,
            "spi": file.spi,
            "spi.long": file.spi and file.spi.loopback,
            "serial": file.serial,
            "serial.programs": file.serial,
            "gpio": file.gpio,
            "gpio.edges": file.gpio and file.gpio.edges,
            "gpio.debounce": file.gpio and file.gpio.debounce,
            "gpio.bias": file.gpio and file.gpio.bias,
            "drivers": file.drivers,
        }
        self.can = frozenset(name for name, there in can.items() if there)
        self.subjects = [_subject(part) for part in file.drivers]

    @asynccontextmanager
    async def i2c(self):
        bench = RealI2c(self.file.i2c)
        yield bench
        bench.bus.close()

    @asynccontextmanager
    async def spi(self):
        async with kernel_buses() as buses:
            yield RealSpi(self.file.spi, buses.spi(self.file.spi.device))

    @asynccontextmanager
    async def serial(self):
        part = self.file.serial
        async with kernel_buses() as buses, kernel_buses() as outside:
            settings = SerialSettings(baudrate=part.baudrate)
            far = part.far and await outside.serial.open(part.far, settings, "bench")
            path = (await buses.serial.find(part.port)).path
            yield RealSerial(part, buses.serial, path, far)

    @asynccontextmanager
    async def gpio(self):
        part = self.file.gpio
        async with kernel_buses() as buses, kernel_buses() as outside:
            hand = await outside.gpio.request(part.input.wired_to, LineSettings("output"), "bench")
            meter = await outside.gpio.request(
                part.output.wired_to, LineSettings("input"), "bench"
            )
            yield RealGpio(part, buses.gpio, hand, meter)

    @asynccontextmanager
    async def plug(self, subject):
        async def surround(outside):
            """It is what it is."""

        async with AsyncExitStack() as stack:
            buses = await stack.enter_async_context(kernel_buses())
            info = plugins.load("edged.drivers", subject.driver).INFO
            if info.bus in {"i2c", "spi"}:
                bus = getattr(buses, info.bus)(subject.bus)
            elif info.bus == "serial":
                bus = await buses.serial.open(subject.bus, info.serial, "test")
                stack.push_async_callback(bus.close)
            else:
                bus = buses if info.bus == "board" else getattr(buses, info.bus)
            yield Plugged(bus, asyncio.sleep, surround)


def _subject(part: DriverPart) -> Subject:
    samples = {
        channel: ((low + high) / 2, (high - low) / 2)
        for channel, (low, high) in part.expect.items()
    }
    truths = (Truth({}, samples, "the bench's file"),)
    return Subject(
        part.driver, part.bus, part.address, part.options, truths, identity=part.identity
    )


RIGS = tuple(Bench("bench", load(file)) for file in [named()] if file)
