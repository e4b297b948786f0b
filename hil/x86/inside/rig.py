"""The x86 guest as a rig of the conformance suite.

A USB bridge with the drivers' own models on its bus, and a USB serial adapter.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager, contextmanager

from edged.bus.i2c import KernelI2c
from edged.clock import SystemClock
from edged.testing import FakeClock
from hil.x86.inside.bridge import Bridge
from hil.x86.inside.hands import BY_ID, Hands, grown
from tests.conformance.benches import (
    GpioBench,
    I2cBench,
    Memory,
    Plugged,
    Register,
    Rig,
    SerialBench,
    kernel_buses,
)
from tests.conformance.models import subjects

EEPROM, THERMOMETER, WEATHER = 0x50, 0x48, 0x76


class BridgeBench(I2cBench):
    """A bridge with limits of its own, and three chips.

    Source: drivers/hid/hid-cp2112.c of the kernel: at most 61 bytes written, 512 read.
    """

    absent = 0x51
    chips = frozenset({EEPROM, THERMOMETER, WEATHER})
    memory = Memory(EEPROM, 2, 0x0100, 32)
    longest_write, longest_read = 61, 512
    registers = (
        # SNIS153B: limits of 75 and 80 degrees after power-on; BST-BME280-DS002, 5.4.1.
        Register(THERMOMETER, b"\x02", b"\x4b\x00"),
        Register(THERMOMETER, b"\x03", b"\x50\x00"),
        Register(WEATHER, b"\xd0", b"\x60"),
    )

    def __init__(self, bridge: Bridge) -> None:
        # It believes for a second who owns an address, by a clock that stands still otherwise.
        self._bridge, self._clock = bridge, FakeClock()
        self.bus = KernelI2c(bridge.number, clock=self._clock)

    def trace(self):
        return [(address, bytes.fromhex(w), n) for address, w, n in self._bridge.ask("trace")]

    @contextmanager
    def own(self):
        subprocess.run(["modprobe", "lm75"], check=True)
        (self._bridge.adapter / "new_device").write_text(f"lm75 {THERMOMETER:#x}")
        self._clock.advance(1.0)
        try:
            yield THERMOMETER, "lm75"
        finally:
            (self._bridge.adapter / "delete_device").write_text(f"{THERMOMETER:#x}")
            self._clock.advance(1.0)


class BridgeLines(GpioBench):
    """Two lines of the bridge, whose levels the kernel asks for some times a second."""

    output, input = "cp2112_gpio/6", "cp2112_gpio/2"
    settle_s = 0.5

    def __init__(self, gpio, bridge: Bridge) -> None:
        self.gpio, self._bridge = gpio, bridge

    async def drive(self, high):
        self._bridge.ask("pull", 2, high)

    async def shows(self, high):
        return self._bridge.ask("levels")[6] is high


class AdapterBench(SerialBench):
    port = BY_ID
    settle_s = 0.5

    def __init__(self, ports, hands: Hands) -> None:
        self.ports, self._hands = ports, hands
        self.path = os.path.realpath(f"/dev/serial/by-id/{BY_ID}")

    async def send(self, port, data):
        await asyncio.to_thread(os.write, self._hands.far, data)

    async def receive(self, port, count):
        data = b""
        while len(data) < count:
            data += await asyncio.to_thread(os.read, self._hands.far, count - len(data))
        return data

    async def pull(self):
        await asyncio.to_thread(self._hands.pull)


class Guest(Rig):
    name = "x86"
    can = frozenset(
        {
            *("i2c", "i2c.memory", "i2c.limits", "i2c.trace", "i2c.scan", "i2c.owner"),
            *("serial", "serial.pull", "serial.programs"),
            *("gpio", "gpio.edges", "drivers"),
        }
    )
    subjects = subjects("i2c-0", "i2c")

    def __enter__(self):
        self._bridge = Bridge()
        return self

    def __exit__(self, *_):
        self._bridge.kill()

    @asynccontextmanager
    async def i2c(self):
        bridge = self._bridge
        for address, driver, arguments in (
            (EEPROM, "at24", {"chip": "24c32"}), (THERMOMETER, "lm75", {}), (WEATHER, "bme280", {}),
        ):  # fmt: skip
            bridge.plug(address, driver, **arguments)
        bench = BridgeBench(bridge)
        try:
            yield bench
        finally:
            bench.bus.close()
            for address in bench.chips:
                bridge.ask("unplug", address)

    @asynccontextmanager
    async def gpio(self):
        self._bridge.ask("pull", 2, False)
        async with kernel_buses() as buses:
            yield BridgeLines(buses.gpio, self._bridge)

    @asynccontextmanager
    async def serial(self):
        hands = grown()
        hands.plug()
        try:
            async with kernel_buses() as buses:
                yield AdapterBench(buses.serial, hands)
        finally:
            if hands.is_plugged:
                hands.pull()

    @asynccontextmanager
    async def plug(self, subject):
        bridge, address = self._bridge, subject.address
        bridge.plug(address, subject.driver, **subject.model)
        bus = KernelI2c(bridge.number, clock=SystemClock())

        async def surround(outside):
            for name, value in outside.items():
                bridge.ask("set", address, name, value)

        try:
            yield Plugged(bus, asyncio.sleep, surround)
        finally:
            bus.close()
            bridge.ask("unplug", address)


RIGS = (Guest(),)
