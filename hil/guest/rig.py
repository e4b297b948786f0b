"""The emulated board, from inside, as a rig of the conformance suite.

Its outside is the machine that emulates it (`hil.rig.Hands`), over a network of the two.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from pathlib import Path

from edged.bus import SerialSettings, SpiSettings
from hil.bench import Bench, load
from tests.conformance.benches import (
    BOUND_S,
    Exchange,
    GpioBench,
    Plugged,
    SerialBench,
    Subject,
    Truth,
    kernel_buses,
)

# SST25VF016B, S71271, table 5; a page that nothing else uses.
WRITE_ENABLE, UNLOCK = b"\x06", b"\x01\x00"
READ, PROGRAM = b"\x03\x01\x00\x00", b"\x02\x01\x00"
EVERY = bytes(range(256))

HANDS = ("10.0.2.100", 7001)
OUTPUT, INPUT = 20, 21
"""Pins of GPIO1."""


class Hands:
    """What the outside is asked to do."""

    def __init__(self) -> None:
        self._socket = socket.create_connection(HANDS, BOUND_S)
        self._lines = self._socket.makefile("rwb")

    def ask(self, verb, *words):
        self._lines.write(json.dumps([verb, *words]).encode() + b"\n")
        self._lines.flush()
        return json.loads(self._lines.readline())

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class UartBench(SerialBench):
    port, path = "ttymxc2", "/dev/ttymxc2"
    settings = SerialSettings(baudrate=115_200)
    settle_s = 1.0

    def __init__(self, ports, hands: Hands) -> None:
        self.ports, self._hands = ports, hands

    async def send(self, port, data):
        await asyncio.to_thread(self._hands.ask, "send", data.hex())

    async def receive(self, port, count):
        return bytes.fromhex(await asyncio.to_thread(self._hands.ask, "receive", count))


class Pins(GpioBench):
    """gpio-mxc turns its trigger round after each edge: the next one waits for that."""

    output, input = f"209c000.gpio/{OUTPUT}", f"209c000.gpio/{INPUT}"
    settle_s = 0.1

    def __init__(self, gpio, hands: Hands) -> None:
        self.gpio, self._hands = gpio, hands

    async def drive(self, high):
        await asyncio.to_thread(self._hands.ask, "drive", INPUT, high)
        await asyncio.sleep(self.settle_s)

    async def shows(self, high):
        return await asyncio.to_thread(self._hands.ask, "shows", OUTPUT, high)


async def _program(flash, data: bytes) -> None:
    """SST25VF016B, S71271, 4.4: one byte a command, each enabled before; the block unlocked."""
    settings = SpiSettings(max_speed_hz=1_000_000)
    for command in (WRITE_ENABLE, UNLOCK):
        await flash.transfer(command, settings)
    for offset, byte in enumerate(data):
        await flash.transfer(WRITE_ENABLE, settings)
        await flash.transfer(PROGRAM + bytes([offset, byte]), settings)


def _degrees(*values: float) -> list[Truth]:
    return [
        Truth({"tmp105": value}, {"temperature": (value, 0.0)}, "SLLS648D, table 5")
        for value in values
    ]


class Emulated(Bench):
    def __init__(self) -> None:
        super().__init__("sabrelite", load(Path(__file__).with_name("bench.yaml")))
        self.can |= {
            *("i2c.limits", "spi.long", "serial", "serial.programs", "gpio", "gpio.edges"),
        }
        truths = _degrees(125.0, 80.0, 25.0, 0.25, 0.0, -0.25, -25.0, -55.0)
        thermometer = Subject("lm75", "i2c-0", 0x48, {"chip": "tmp105"}, truths)
        self.subjects = [*self.subjects, thermometer]

    _is_programmed = False

    def __enter__(self):
        self._hands = Hands()
        return self

    def __exit__(self, *_):
        self._hands.close()

    @asynccontextmanager
    async def i2c(self):
        async with super().i2c() as bench:
            bench.longest_write = bench.longest_read = 8192
            yield bench

    @asynccontextmanager
    async def spi(self):
        async with super().spi() as bench:
            bench.longest = Exchange(READ + bytes(4092), 4, EVERY + b"\xff" * (4092 - 256))
            if not self._is_programmed:
                await _program(bench.spi, EVERY)
                self._is_programmed = True
            yield bench

    @asynccontextmanager
    async def serial(self):
        async with kernel_buses() as buses:
            yield UartBench(buses.serial, self._hands)

    @asynccontextmanager
    async def gpio(self):
        self._hands.ask("drive", INPUT, False)
        async with kernel_buses() as buses:
            yield Pins(buses.gpio, self._hands)

    @asynccontextmanager
    async def plug(self, subject):
        async def surround(outside):
            for chip, celsius in outside.items():
                self._hands.ask("set", chip, "temperature", round(celsius * 1000))
                # The chip measures by itself.
                await asyncio.sleep(0.3)

        async with super().plug(subject) as plugged:
            yield Plugged(plugged.bus, plugged.sleep, surround)


RIGS = (Emulated(),)
