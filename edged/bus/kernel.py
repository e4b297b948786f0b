"""The buses of the real board, each opened when it is first used.

Only what is used is imported: `smbus2`, `spidev` and `serial` cost memory that a
board without such buses keeps.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from edged.bus import Gpio, I2c, Kind, OneWire, Pwm, SerialPorts, Spi, Sysfs
from edged.bus.faults import open_error
from edged.clock import Clock
from edged.errors import NoDeviceError

if TYPE_CHECKING:
    from edged.bus.gpio import KernelGpio
    from edged.bus.i2c import KernelI2c
    from edged.bus.onewire import KernelOneWire
    from edged.bus.pwm import KernelPwm
    from edged.bus.serial import KernelSerial
    from edged.bus.spi import Controller, KernelSpi
    from edged.bus.sysfs import KernelSysfs

# ruff: noqa: PLC0415  each bus is imported when it is first used


_NODES: dict[Kind, tuple[str, ...]] = {
    "i2c": ("i2c-",),
    "spi": ("spidev",),
    "gpio": ("gpiochip",),
    "serial": ("ttyS", "ttyAMA", "ttyUSB", "ttyACM", "ttymxc", "serial"),
}
"""How device nodes begin."""


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


class KernelBuses:
    """An `edged.bus.Buses` over the kernel's device nodes. Loop thread only.

    Args:
        clock: for the breakers of stuck buses.
        dev: where the device nodes are.
        sysfs: where sysfs is mounted.
        take_over: see `KernelPwm`.
    """

    def __init__(
        self, clock: Clock, *, dev: str = "/dev", sysfs: str = "/sys", take_over: bool = False
    ) -> None:
        self._take_over = take_over
        self._clock, self._dev, self._sysfs = clock, dev, sysfs
        self._i2c: dict[str, KernelI2c] = {}
        self._muxed: dict[str, I2c] = {}
        self._spi: dict[str, KernelSpi] = {}
        self._controllers: dict[str, Controller] = {}

    def i2c(self, name: str) -> I2c:
        """A bus by name, also behind a multiplexer."""
        name = name.removeprefix("/dev/")
        if "/" in name:
            from edged.bus.mux import channel

            # By its own name, of which there is one however it was written.
            made = channel(name, self.i2c)
            return self._muxed.setdefault(made.name, made)
        found = self._i2c.get(name)
        if found is None:
            from edged.bus import i2c

            number = name.removeprefix("i2c-")
            there = [f"i2c-{n}" for n in i2c.numbers(self._dev)]
            if not number.isdecimal():
                raise NoDeviceError(
                    f"no I2C bus {name!r}: there is {', '.join(there) or 'none'} (write i2c-1)"
                )
            if name not in there:
                known = f" (there is {', '.join(there)})" if there else ""
                raise NoDeviceError(f"{open_error(2, 'i2c', f'{self._dev}/{name}')}{known}")
            found = self._i2c[name] = i2c.KernelI2c(
                int(number), dev=self._dev, sysfs=self._sysfs, clock=self._clock
            )
        return found

    def spi(self, name: str) -> Spi:
        """A target by name."""
        found = self._spi.get(name)
        if found is None:
            from edged.bus.spi import Controller, KernelSpi

            if name not in self.names("spi"):
                there = ", ".join(self.names("spi"))
                known = f" (there is {there})" if there else ""
                node = f"{self._dev}/spidev{name.removeprefix('spi')}"
                raise NoDeviceError(f"{open_error(2, 'spi', node)}{known}")
            shared = name.partition(".")[0]
            controller = self._controllers.setdefault(shared, Controller(shared))
            found = self._spi[name] = KernelSpi(
                name, dev=self._dev, sysfs=self._sysfs, controller=controller
            )
        return found

    @property
    def serial(self) -> SerialPorts:
        """The serial ports."""
        return self._serial

    @property
    def gpio(self) -> Gpio:
        """The GPIO lines."""
        return self._gpio

    @property
    def pwm(self) -> Pwm:
        """The PWM channels."""
        return self._pwm

    @property
    def w1(self) -> OneWire:
        """The 1-wire devices."""
        return self._w1

    @property
    def sysfs(self) -> Sysfs:
        """The kernel's own drivers."""
        return self._files

    @cached_property
    def _serial(self) -> KernelSerial:
        from edged.bus.serial import KernelSerial

        return KernelSerial(dev=self._dev, sysfs=self._sysfs)

    @cached_property
    def _gpio(self) -> KernelGpio:
        from edged.bus.gpio import KernelGpio

        return KernelGpio(dev=self._dev, sysfs=self._sysfs)

    @cached_property
    def _pwm(self) -> KernelPwm:
        from edged.bus.pwm import KernelPwm

        return KernelPwm(root=self._sysfs, take_over=self._take_over)

    @cached_property
    def _w1(self) -> KernelOneWire:
        from edged.bus.onewire import KernelOneWire

        return KernelOneWire(root=self._sysfs)

    @cached_property
    def _files(self) -> KernelSysfs:
        from edged.bus.sysfs import KernelSysfs

        return KernelSysfs(root=self._sysfs)

    def names(self, kind: Literal["i2c", "spi"]) -> Sequence[str]:
        """Buses of that kind that are there now."""
        if kind == "i2c":
            from edged.bus.i2c import numbers

            return [f"i2c-{number}" for number in numbers(self._dev)]
        from edged.bus.spi import names

        return names(self._dev)

    def present(self) -> frozenset[Kind]:
        """Kinds of which there is anything now; a quick look that opens nothing."""
        nodes = _listed(self._dev)
        found: set[Kind] = {
            kind for kind, prefix in _NODES.items() if any(n.startswith(prefix) for n in nodes)
        }
        if _listed(f"{self._sysfs}/bus/w1/devices"):
            found.add("w1")
        if _listed(f"{self._sysfs}/class/pwm"):
            found.add("pwm")
        return frozenset(found)

    def look(self) -> None:
        """Gives back I2C adapters that were unplugged; lines and ports see to it themselves."""
        for bus in self._i2c.values():
            bus.look()

    async def close(self) -> None:
        """Ends every thread and gives back whatever is still open."""
        for bus in self._i2c.values():
            bus.close()
        for target in self._spi.values():
            target.close()
        for name in ("_serial", "_gpio", "_pwm", "_w1", "_files"):
            if name in self.__dict__:
                await self.__dict__[name].close()
