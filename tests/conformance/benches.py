"""What a rig has: buses under test, and a hand on the outside of each.

A rig is a place where the suite runs: the simulation, an emulated board, a real one. For
each kind of bus it makes a bench, with the bus of edged and what is known of, and can be
done to, what is wired to it. What a rig cannot do it does not name among its abilities;
tests that need it do not exist there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, NamedTuple, Self

from edged.bus import Gpio, I2c, SerialPort, SerialPorts, SerialSettings, Spi
from edged.bus.kernel import KernelBuses
from edged.clock import SystemClock

BOUND_S = 30.0
"""The longest that anything is waited for, on an emulated CPU that has to share."""

ABILITIES = {
    "i2c": "an I2C bus with chips",
    "i2c.memory": "a chip on it whose memory may be written, its address counting up",
    "i2c.limits": "the longest transfers are known, and that memory is all of a test's",
    "i2c.trace": "the outside tells of each transaction",
    "i2c.scan": "all that is on the bus is known, and a scan ends soon",
    "i2c.owner": "a driver of the kernel can be bound to a chip",
    "spi": "a chip on SPI, or a wire",
    "spi.long": "an answer is known of the longest transfer, and has every byte",
    "serial": "a serial port whose other end is in hand, or a wire",
    "serial.pull": "it can be pulled out",
    "serial.flood": "more than a port keeps can be sent at once",
    "serial.programs": "other programs can open the port",
    "gpio": "an output that is seen and an input that is driven from outside",
    "gpio.edges": "the chip tells of edges",
    "gpio.debounce": "levels can change faster than a debounce",
    "gpio.bias": "the chip has pull resistors, and the input can be let go",
    "drivers": "chips of which edged has drivers",
}


async def until(what: str, so: Callable[[], Awaitable[bool]]) -> None:
    """Waits until something is so that tells nobody."""
    ended = time.monotonic() + BOUND_S
    while not await so():
        assert time.monotonic() < ended, f"{what}: not within {BOUND_S:g} s"
        await asyncio.sleep(0.01)


# I2C ------------------------------------------------------------------------------------------


class Edges(list[Any]):
    """Collects the edges of a line; waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self._came = asyncio.Event()

    def __call__(self, edges: Sequence[Any]) -> None:
        self.extend(edges)
        self._came.set()

    async def until(self, enough: Callable[[Edges], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not enough(self):
                self._came.clear()
                await self._came.wait()


class Register(NamedTuple):
    """A register whose content is known.

    Attributes:
        address: of the chip.
        pointer: the register's address, of one byte or more.
        content: from there on.
    """

    address: int
    pointer: bytes
    content: bytes


class Memory(NamedTuple):
    """A chip of memory that tests may write.

    Attributes:
        address: of the chip.
        pointer_len: bytes of an address in it.
        start: a place in it, at the beginning of a page.
        page: bytes from there on that one transfer may write.
    """

    address: int
    pointer_len: int
    start: int
    page: int

    def pointer(self, offset: int) -> bytes:
        """Address of a byte, counted from the start."""
        return (self.start + offset).to_bytes(self.pointer_len, "big")


Transaction = tuple[int, bytes, int]
"""Address, what was written, and how many bytes were read: from a start to its stop."""


class I2cBench:
    """A bus and its chips.

    Attributes:
        bus: under test.
        registers: of chips that answer.
        absent: an address where nothing is.
        chips: all addresses where something is (`i2c.scan`).
        memory: `i2c.memory`.
        longest_write: bytes of the longest write (`i2c.limits`).
        longest_read: bytes of the longest read of the memory from its start.
    """

    bus: I2c
    registers: Sequence[Register] = ()
    absent: int
    chips: frozenset[int]
    memory: Memory
    longest_write: int
    longest_read: int

    def trace(self) -> list[Transaction]:
        """What went over the wire since it was asked last, as the outside saw it."""
        raise NotImplementedError

    def own(self) -> AbstractContextManager[tuple[int, str]]:
        """Has a driver of the kernel own a chip meanwhile; address, and the driver's name."""
        raise NotImplementedError

    async def write(self, offset: int, data: bytes) -> None:
        """Writes memory, and waits until it has kept that."""
        memory = self.memory
        await self.bus.transfer(memory.address, memory.pointer(offset) + data)
        await until("the memory answers", lambda: self.bus.detect(memory.address))

    async def read(self, offset: int, count: int) -> bytes:
        """Reads memory."""
        memory = self.memory
        return await self.bus.transfer(memory.address, memory.pointer(offset), count)


# SPI ------------------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """What a chip is asked, and its answer after the first `skip` bytes."""

    write: bytes
    skip: int
    answer: bytes


class SpiBench:
    """A target, and what it answers.

    Attributes:
        spi: under test.
        exchanges: whose answers are known.
        modes: in which it answers.
        longest: an exchange of 4096 bytes, whose answer has every byte (`spi.long`).
    """

    spi: Spi
    exchanges: Sequence[Exchange] = ()
    modes: Sequence[int] = (0,)
    longest: Exchange


# Serial ---------------------------------------------------------------------------------------


class SerialBench:
    """A port, and its other end.

    Attributes:
        ports: under test.
        port: name of the port.
        path: of its node (`serial.programs`).
        settings: how it is opened.
        settle_s: by then all that was sent has come.
    """

    ports: SerialPorts
    port: str
    path: str
    settings = SerialSettings(baudrate=115_200)
    settle_s = 0.05

    async def open(self, consumer: str = "test") -> SerialPort:
        """The port, open."""
        return await self.ports.open(self.port, self.settings, consumer)

    async def send(self, port: SerialPort, data: bytes) -> None:
        """Has bytes arrive at the open port."""
        raise NotImplementedError

    async def receive(self, port: SerialPort, count: int) -> bytes:
        """Bytes that the port sent."""
        raise NotImplementedError

    async def pull(self) -> None:
        """Pulls it out."""
        raise NotImplementedError


# GPIO -----------------------------------------------------------------------------------------


class GpioBench:
    """An output and an input, with what is wired to them.

    Attributes:
        gpio: under test.
        output: a line that may be driven.
        input: a line that is driven from outside, at first low.
        settle_s: after an input was requested, from then on its edges count.
        debounce_s: longer than five turns of the input (`gpio.debounce`).
    """

    gpio: Gpio
    output: str
    input: str
    settle_s = 0.0
    debounce_s = 0.2

    async def drive(self, high: bool) -> None:
        """Gives the input a level; returns once its chip took notice."""
        raise NotImplementedError

    async def let_go(self) -> None:
        """Nothing drives the input (`gpio.bias`)."""
        raise NotImplementedError

    async def shows(self, high: bool) -> bool:
        """Whether the output has a level, as a meter on it comes to show."""
        raise NotImplementedError

    def now(self) -> float:
        """The time that edges are told in."""
        return time.monotonic()


# Drivers --------------------------------------------------------------------------------------


class Truth(NamedTuple):
    """What is so around a chip, and what its driver must say then.

    Attributes:
        outside: what the rig sets around the chip, by its own names.
        samples: value and how far the chip's may be from it, by channel.
        source: where these values stand.
    """

    outside: dict[str, Any]
    samples: dict[str, tuple[float, float]]
    source: str


class Subject(NamedTuple):
    """A chip that is on a rig.

    Attributes:
        driver: edged's.
        bus: where it is, `i2c-0`.
        address: there, of an I2C chip.
        options: of the driver's `Config`.
        truths: one after the other; with none its values must be within its limits.
        identity: part of what it must say it is.
        model: arguments of the driver's model, where the chip is one.
    """

    driver: str
    bus: str
    address: int | None = None
    options: dict[str, Any] = {}
    truths: Sequence[Truth] = ()
    identity: str = ""
    model: dict[str, Any] = {}


class Plugged(NamedTuple):
    """A subject in its place.

    Attributes:
        bus: of the driver's kind, under test.
        sleep: how its driver waits.
        surround: has something be so around it.
    """

    bus: Any
    sleep: Callable[[float], Awaitable[None]]
    surround: Callable[[dict[str, Any]], Awaitable[None]]


class Rig:
    """A place where the suite runs; `with` sets it up and clears it away.

    Attributes:
        name: in the names of tests.
        is_kernel: between edged and the chip is a kernel that no one here wrote.
        can: keys of `ABILITIES`.
        subjects: chips for `drivers`.
    """

    name: str
    is_kernel = True
    can: frozenset[str] = frozenset()
    subjects: Sequence[Subject] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def i2c(self) -> AbstractAsyncContextManager[I2cBench]:
        raise NotImplementedError

    def spi(self) -> AbstractAsyncContextManager[SpiBench]:
        raise NotImplementedError

    def serial(self) -> AbstractAsyncContextManager[SerialBench]:
        raise NotImplementedError

    def gpio(self) -> AbstractAsyncContextManager[GpioBench]:
        raise NotImplementedError

    def plug(self, subject: Subject) -> AbstractAsyncContextManager[Plugged]:
        """Has a subject in its place meanwhile."""
        raise NotImplementedError


@asynccontextmanager
async def kernel_buses() -> AsyncIterator[KernelBuses]:
    """The real buses of this machine, closed again."""
    made = KernelBuses(SystemClock())
    try:
        yield made
    finally:
        await made.close()
