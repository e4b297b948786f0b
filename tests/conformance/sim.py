"""The simulation as a rig."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager

from edged import plugins
from edged.bus.sim import (
    SimBuses,
    SimGpio,
    SimI2c,
    SimOneWire,
    SimPwm,
    SimSerial,
    SimSpi,
    SimSysfs,
)
from edged.drivers import at24, lm75
from edged.testing import FakeClock
from tests.conformance.benches import (
    Exchange,
    GpioBench,
    I2cBench,
    Memory,
    Plugged,
    Register,
    Rig,
    SerialBench,
    SpiBench,
)
from tests.conformance.models import subjects

MEMORY, EEPROM, THERMOMETER = 0x30, 0x50, 0x48
DATA = bytes(range(1, 33))
EVERY = bytes(range(256))


class Cells:
    """A chip of 256 bytes, whose address counts up."""

    def __init__(self) -> None:
        self._cells, self._pointer = bytearray(256), 0

    def write(self, data: bytes) -> None:
        self._pointer = data[0]
        for byte in data[1:]:
            self._cells[self._step()] = byte

    def read(self, length: int) -> bytes:
        return bytes(self._cells[self._step()] for _ in range(length))

    def _step(self) -> int:
        at, self._pointer = self._pointer, self._pointer + 1 & 0xFF
        return at


class SimI2cBench(I2cBench):
    """Registers that may be written, and two chips whose content is known."""

    absent = 0x76
    chips = frozenset({MEMORY, EEPROM, THERMOMETER})
    memory = Memory(MEMORY, 1, 0x40, 32)
    longest_write = longest_read = 8192
    registers = (
        # SNIS153B: limits of 75 and 80 degrees after power-on.
        Register(THERMOMETER, b"\x02", b"\x4b\x00"),
        Register(THERMOMETER, b"\x03", b"\x50\x00"),
        Register(EEPROM, b"\x01\x00", DATA),
    )

    def __init__(self) -> None:
        clock = FakeClock()
        eeprom = at24.Sim(clock)
        eeprom.memory[0x100 : 0x100 + len(DATA)] = DATA
        chips = {MEMORY: Cells(), EEPROM: eeprom, THERMOMETER: lm75.Sim(clock)}
        self.bus = SimI2c("i2c-1", chips)

    @contextmanager
    def own(self) -> Iterator[tuple[int, str]]:
        self.bus.owners[THERMOMETER] = "lm75"
        yield THERMOMETER, "lm75"
        del self.bus.owners[THERMOMETER]


class Complement:
    """A target that answers the complement of each byte."""

    def transfer(self, write: bytes) -> bytes:
        return bytes(255 - byte for byte in write)


def complement(write: bytes) -> Exchange:
    """With such a target."""
    return Exchange(write, 0, Complement().transfer(write))


class SimSpiBench(SpiBench):
    exchanges = (complement(b"\x01\x80\x00"),)
    longest = complement(EVERY * 16)
    modes = tuple(range(4))

    def __init__(self) -> None:
        self.spi = SimSpi("spi0.0", Complement())


class Peer:
    """The other end of a simulated port."""

    def attach(self, send):
        self.send, self.taken = send, bytearray()

    def receive(self, data):
        self.taken += data

    def detach(self):
        pass


class SimSerialBench(SerialBench):
    port = "ttyUSB0"

    def __init__(self) -> None:
        self._peer = Peer()
        self.ports = SimSerial({self.port: self._peer})

    async def send(self, port, data):
        self._peer.send(data)

    async def receive(self, port, count):
        return bytes(self._peer.taken[:count])

    async def pull(self):
        self.ports.pull(self.port)


class Wire:
    """What a hand holds at a level, or lets go."""

    def __init__(self) -> None:
        self._moves = [(float("-inf"), False)]
        self._changed = []

    def levels(self, at):
        return [(when, level) for when, level in self._moves if when <= at]

    def watch(self, changed):
        self._changed.append(changed)

    def next_change(self, at):
        return min((when for when, _ in self._moves if when > at), default=float("inf"))

    def move(self, level: bool | None) -> None:
        self._moves.append((time.monotonic(), level))
        for changed in self._changed:
            changed()


class SimGpioBench(GpioBench):
    output, input = "GPIO17", "GPIO27"
    debounce_s = 0.05

    def __init__(self) -> None:
        self._wire = Wire()
        self.gpio = SimGpio({self.output: None, self.input: self._wire}, time.monotonic)

    async def drive(self, high):
        self._wire.move(high)

    async def let_go(self):
        self._wire.move(None)

    async def shows(self, high):
        return self.gpio.level(self.output) is high


class Simulated(Rig):
    """All that the Protocols ask for, and every driver's model."""

    name = "sim"
    is_kernel = False
    can = frozenset(
        {
            *("i2c", "i2c.memory", "i2c.limits", "i2c.scan", "i2c.owner", "spi", "spi.long"),
            *("serial", "serial.pull", "serial.flood"),
            *("gpio", "gpio.edges", "gpio.debounce", "gpio.bias", "drivers"),
        }
    )
    subjects = subjects("i2c-1")

    @asynccontextmanager
    async def i2c(self):
        yield SimI2cBench()

    @asynccontextmanager
    async def spi(self):
        yield SimSpiBench()

    @asynccontextmanager
    async def serial(self):
        yield SimSerialBench()

    @asynccontextmanager
    async def gpio(self):
        yield SimGpioBench()

    @asynccontextmanager
    async def plug(self, subject):
        driver = plugins.load("edged.drivers", subject.driver)
        clock = FakeClock()
        model = driver.Sim(clock, **subject.model)

        async def surround(outside):
            for name, value in outside.items():
                setattr(model, name, value)

        yield Plugged(await self._bus(driver, subject, model, clock), clock.sleep, surround)

    async def _bus(self, driver, subject, model, clock):
        kind = driver.INFO.bus
        if kind == "i2c":
            return SimI2c(subject.bus, {subject.address: model})
        if kind == "spi":
            return SimSpi("spi0.0", model)
        if kind == "serial":
            return await SimSerial({"ttyS0": model}).open("ttyS0", driver.INFO.serial, "test")
        if kind == "gpio":
            return SimGpio(model.lines, clock.now)
        if kind == "w1":
            return SimOneWire(model.devices)
        if kind == "pwm":
            return SimPwm(model.channels)
        if kind == "board":
            return SimBuses(gpio=SimGpio(model.lines, clock.now), pwm=SimPwm(model.channels))
        assert kind == "sysfs", f"no world for drivers on {kind} yet"
        return SimSysfs(model.files)


RIGS = (Simulated(),)
