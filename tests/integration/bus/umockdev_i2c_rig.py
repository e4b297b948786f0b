"""Emulated ioctls of I2C as a rig of the conformance suite."""

import errno
import os
from contextlib import asynccontextmanager, contextmanager

from edged import plugins
from edged.bus.faults import NackError
from edged.bus.i2c import KernelI2c
from edged.drivers import lm75
from edged.testing import FakeClock
from tests.conformance.benches import I2cBench, Memory, Plugged, Register, Rig
from tests.conformance.models import subjects
from tests.conformance.sim import Cells
from tests.integration.bus import umockdev_i2cdev as i2cdev

MEMORY, THERMOMETER = 0x30, 0x48


class Chip:
    """A model on the emulated wire: it says that it is busy as the kernel would."""

    def __init__(self, model):
        self._model = model

    def write(self, data):
        self._asked(self._model.write, data)

    def read(self, length):
        return self._asked(self._model.read, length)

    def _asked(self, ask, what):
        try:
            return ask(what)
        except NackError:
            raise OSError(errno.EREMOTEIO, "") from None


class EmulatedBench(I2cBench):
    absent = 0x76
    chips = frozenset({MEMORY, THERMOMETER})
    memory = Memory(MEMORY, 1, 0x40, 32)
    longest_write = longest_read = 8192
    # SNIS153B: limits of 75 and 80 degrees after power-on.
    registers = (
        Register(THERMOMETER, b"\x02", b"\x4b\x00"),
        Register(THERMOMETER, b"\x03", b"\x50\x00"),
    )

    def __init__(self, testbed):
        self._testbed, self._clock = testbed, FakeClock()
        chips = {MEMORY: Cells(), THERMOMETER: Chip(lm75.Sim(self._clock))}
        self._kernel = i2cdev.plug(testbed, 1, i2cdev.BCM2835, chips)
        self.bus = KernelI2c(1, clock=self._clock)

    def trace(self):
        seen = [row[1:] for row in self._kernel.ioctls if row[0] == "RDWR"]
        self._kernel.ioctls.clear()
        return [_transaction(messages) for messages in seen]

    @contextmanager
    def own(self):
        i2cdev.bind(self._testbed, f"1-{THERMOMETER:04x}", "lm75", "hwmon/hwmon2/temp1_input")
        self._clock.advance(1.0)
        yield THERMOMETER, "lm75"
        devices = os.path.join(self._testbed.get_sys_dir(), "bus/i2c/devices")
        os.unlink(f"{devices}/1-{THERMOMETER:04x}/driver")
        self._clock.advance(1.0)


def _transaction(messages):
    parts = {"write": b"", "read": 0}
    parts.update({kind: what for _, kind, what in messages})
    return messages[0][0], parts["write"], parts["read"]


class Emulated(Rig):
    name = "umockdev"
    is_kernel = False
    can = frozenset(
        {
            *("i2c", "i2c.memory", "i2c.limits", "i2c.trace", "i2c.scan", "i2c.owner"),
            "drivers",
        }
    )
    subjects = subjects("i2c-1", "i2c")

    def __enter__(self):
        self._loop = i2cdev.Loop().__enter__()
        return self

    def __exit__(self, *error):
        self._loop.__exit__(*error)

    @asynccontextmanager
    async def i2c(self):
        bench = EmulatedBench(self._loop.testbed())
        yield bench
        bench.bus.close()

    @asynccontextmanager
    async def plug(self, subject):
        clock = FakeClock()
        model = plugins.load("edged.drivers", subject.driver).Sim(clock, **subject.model)
        i2cdev.plug(self._loop.testbed(), 1, i2cdev.BCM2835, {subject.address: Chip(model)})
        bus = KernelI2c(1, clock=clock)

        async def surround(outside):
            for name, value in outside.items():
                setattr(model, name, value)

        yield Plugged(bus, clock.sleep, surround)
        bus.close()


RIGS = (Emulated(),)
