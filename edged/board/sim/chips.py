"""The buses of the simulated board and what is on them.

Chips are register models, told what is true in the greenhouse when they are
spoken to. Nothing here has a timer or a task: idle, the board costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from edged.board.sim.greenhouse import Greenhouse
from edged.bus.sim import (
    SimBuses,
    SimGpio,
    SimI2c,
    SimOneWire,
    SimPwm,
    SimSerial,
    SimSpi,
    SimSysfs,
    StoryButton,
    Target,
)
from edged.clock import Clock
from edged.drivers import (
    ads1115,
    bh1750,
    bme280,
    ds18b20,
    hcsr04,
    host,
    ina219,
    lm75,
    mcp3008,
    pcf8574,
    pms5003,
    scd4x,
    ssd1306,
)

THERMOMETER = "28-0316a2795bff"
WINDOW = "pwmchip0/0"
DRY_V, WET_V = 2.7, 1.2
"""Of a capacitive soil probe in air and in water."""


def make_buses(clock: Clock, house: Greenhouse) -> SimBuses:
    """All buses.

    Args:
        clock: of the chips and lines.
        house: what they measure and move.
    """
    # The tank's sensor is at GPIO23 and GPIO24.
    parts: dict[str, Any] = {
        **_Tank(clock, house).lines,
        "GPIO22": house.door,
        "GPIO25": house.rain,
        "GPIO27": StoryButton(),
    }
    files: dict[str, Any] = host.Sim(clock).files
    lines = {f"GPIO{number}": parts.get(f"GPIO{number}") for number in range(28)}
    return SimBuses(
        i2c={"i2c-1": SimI2c("i2c-1", _chips(clock, house))},
        spi={"spi0.0": SimSpi("spi0.0", _Converter(clock, house))},
        serial=SimSerial({"ttyAMA0": _Dust(clock, house), "ttyUSB0": Loop()}),
        gpio=SimGpio(lines, clock.now, monotonic=clock.monotonic),
        pwm=_Pwm(house),
        w1=SimOneWire({THERMOMETER: _Water(clock, house)}),
        sysfs=SimSysfs(files),
    )


def _chips(clock: Clock, house: Greenhouse) -> dict[int, Target]:
    """What is on i2c-1, by address."""

    def climate(chip: bme280.Sim) -> None:
        chip.temperature_cel, chip.humidity_rh = house.temperature_cel, house.humidity_rh
        chip.pressure_pa = house.pressure_pa

    def soil(chip: ads1115.Sim) -> None:
        chip.volts = [DRY_V + wet / 100 * (WET_V - DRY_V) for wet in house.soil]

    def light(chip: bh1750.Sim) -> None:
        chip.illuminance_lx = house.illuminance_lx

    def supply(chip: ina219.Sim) -> None:
        chip.amperes, chip.volts = house.current_a, house.voltage_v

    def air(chip: scd4x.Sim) -> None:
        chip.co2_ppm = round(house.co2_ppm)
        chip.temperature_cel, chip.humidity_rh = house.temperature_cel, house.humidity_rh

    def spare(chip: lm75.Sim) -> None:
        chip.temperature_cel = house.temperature_cel

    return {
        0x20: _Relays(clock, house),
        0x23: Chip(house, bh1750.Sim(clock), light),
        0x3C: ssd1306.Sim(clock),
        0x40: Chip(house, ina219.Sim(clock), supply),
        0x48: Chip(house, lm75.Sim(clock), spare),
        0x49: Chip(house, ads1115.Sim(clock), soil),
        0x62: Chip(house, scd4x.Sim(clock), air),
        0x76: Chip(house, bme280.Sim(clock), climate),
    }


_Model = TypeVar("_Model", bound=Any)


class Chip(Generic[_Model]):
    """A chip of the greenhouse; a `Target`.

    Args:
        house: where it is.
        model: its register model.
        tell: tells the model what is true, before each transfer.
    """

    def __init__(self, house: Greenhouse, model: _Model, tell: Callable[[_Model], None]) -> None:
        self.model = model
        self._house, self._tell = house, tell

    def write(self, data: bytes) -> None:
        """See `Target`."""
        self._look()
        self.model.write(data)

    def read(self, length: int) -> bytes:
        """See `Target`."""
        self._look()
        found: bytes = self.model.read(length)
        return found

    def reset(self) -> None:
        """Comes up anew from a brown-out."""
        self.model.reset()

    def _look(self) -> None:
        self._house.look()
        self._tell(self.model)


class _Relays(pcf8574.Sim):
    """Switches the pump and the lamp; a relay is on while its line is low."""

    def __init__(self, clock: Clock, house: Greenhouse) -> None:
        # The model resets itself.
        self._house = house
        super().__init__(clock)

    def write(self, data: bytes) -> None:
        super().write(data)
        self._switch()

    def reset(self) -> None:
        super().reset()
        self._switch()

    def _switch(self) -> None:
        self._house.switch(pump=not self.level("p0"), lamp=not self.level("p1"))


class _Pwm(SimPwm):
    """One channel, with the servo of the window: 1 ms is closed, 2 ms open."""

    def __init__(self, house: Greenhouse) -> None:
        super().__init__([WINDOW])
        self._house = house

    def put(self, channel: str, period_ns: int, duty_ns: int) -> None:
        super().put(channel, period_ns, duty_ns)
        # Without pulses it stays where it is.
        if duty_ns:
            self._house.turn_window(duty_ns / 1e6 - 1)


class _Tank(hcsr04.Sim):
    """The distance sensor above the water."""

    def __init__(self, clock: Clock, house: Greenhouse) -> None:
        super().__init__(clock)
        self._house = house

    def _triggered(self, at: float) -> None:
        self.distance_m = self._house.look().tank_distance_m
        super()._triggered(at)


class _Water(ds18b20.Sim):
    """The thermometer in the tank."""

    def __init__(self, clock: Clock, house: Greenhouse) -> None:
        super().__init__(clock)
        self._house = house

    def file(self, attribute: str) -> str | int:
        self.temperature_cel = self._house.water_cel
        return super().file(attribute)


class _Dust(pms5003.Sim):
    """The dust sensor in the air inside."""

    def __init__(self, clock: Clock, house: Greenhouse) -> None:
        super().__init__(clock)
        self._house = house

    def measured(self) -> bytes:
        dust = self._house.dust_ug_m3
        self.pm1, self.pm2_5, self.pm10 = round(dust * 0.6), round(dust), round(dust * 1.4)
        return super().measured()


class _Converter(mcp3008.Sim):
    """A converter with a solar cell on ch0 and the supply, divided by five, on ch1."""

    def __init__(self, clock: Clock, house: Greenhouse) -> None:
        super().__init__(clock, volts=(0.0,) * 8)
        self._house = house

    def transfer(self, write: bytes) -> bytes:
        house = self._house.look()
        self.volts[:2] = house.solar_v, house.voltage_v / 5
        return super().transfer(write)


class Loop:
    """A serial port whose TX is wired to its RX; a `SerialPeer`."""

    def __init__(self) -> None:
        self._send: Callable[[bytes], None] = lambda _: None

    def attach(self, send: Callable[[bytes], None]) -> None:
        """See `SerialPeer`."""
        self._send = send

    def receive(self, data: bytes) -> None:
        """What is sent comes back."""
        self._send(data)

    def detach(self) -> None:
        """Nothing comes by itself."""
