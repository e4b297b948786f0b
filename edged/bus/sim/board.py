"""All simulated buses of one board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from edged.bus import I2c, Kind
from edged.bus.mux import channel
from edged.bus.sim.gpio import SimGpio
from edged.bus.sim.i2c import SimI2c
from edged.bus.sim.kernel import SimOneWire, SimPwm, SimSysfs
from edged.bus.sim.serial import SimSerial
from edged.bus.sim.spi import SimSpi
from edged.errors import NoDeviceError

_T = TypeVar("_T")


class SimBuses:
    """An `edged.bus.Buses` of models that are handed in."""

    def __init__(
        self,
        *,
        i2c: Mapping[str, SimI2c] | None = None,
        spi: Mapping[str, SimSpi] | None = None,
        serial: SimSerial | None = None,
        gpio: SimGpio | None = None,
        pwm: SimPwm | None = None,
        w1: SimOneWire | None = None,
        sysfs: SimSysfs | None = None,
    ) -> None:
        self._i2c = i2c or {}
        self._spi = spi or {}
        self.serial = serial or SimSerial({})
        self.gpio = gpio or SimGpio({}, lambda: 0.0)
        self.pwm = pwm or SimPwm([])
        self.w1 = w1 or SimOneWire({})
        self.sysfs = sysfs or SimSysfs({})

    def i2c(self, name: str) -> I2c:
        """A bus by name, also behind a multiplexer."""
        return channel(name, self.i2c) if "/" in name else _known(self._i2c, name)

    def spi(self, name: str) -> SimSpi:
        """A target by name."""
        return _known(self._spi, name)

    def names(self, kind: Literal["i2c", "spi"]) -> Sequence[str]:
        """Buses of that kind."""
        return sorted(self._i2c if kind == "i2c" else self._spi)

    def present(self) -> frozenset[Kind]:
        """Kinds of which there is anything."""
        there: dict[Kind, object] = {
            "i2c": self._i2c,
            "spi": self._spi,
            "serial": self.serial.peers,
            "w1": self.w1.targets,
            "pwm": self.pwm.output,
        }
        return frozenset(kind for kind, found in there.items() if found)

    def look(self) -> None:
        """Nothing is open."""

    async def close(self) -> None:
        """Nothing is open."""


def _known(buses: Mapping[str, _T], name: str) -> _T:
    if name not in buses:
        raise NoDeviceError(f"no bus {name} (there is {', '.join(sorted(buses)) or 'none'})")
    return buses[name]
