"""The simulated board of `edged serve --sim`: a greenhouse with a dozen devices."""

from __future__ import annotations

import asyncio

from edged.board import Board
from edged.board.sensor import Publish
from edged.board.sim.chips import DRY_V, THERMOMETER, WET_V, WINDOW, make_buses
from edged.board.sim.greenhouse import Greenhouse
from edged.bus import Sleep
from edged.bus.settings import (
    ActuatorConfig,
    AlarmConfig,
    BoardConfig,
    ChannelConfig,
    GpioConfig,
    SensorConfig,
)
from edged.clock import Clock

__all__ = ["sim_board"]

_DRY = AlarmConfig(below=20, hysteresis=2)
_PROBE = ChannelConfig(points=[(WET_V, 100.0), (DRY_V, 0.0)], unit="/100", alarm=_DRY)
_HOT = AlarmConfig(above=32, hysteresis=1, hold="1m")


def _config() -> BoardConfig:
    """What edged.yaml would say of this board."""
    return BoardConfig(
        sensors={
            "greenhouse": SensorConfig(
                driver="bme280",
                bus="i2c-1",
                address=0x76,
                every="30s",
                channels={"temperature": ChannelConfig(alarm=_HOT)},
            ),
            "soil": SensorConfig(
                driver="ads1115",
                bus="i2c-1",
                address=0x49,
                every="1m",
                channels=dict.fromkeys(("a0", "a1", "a2", "a3"), _PROBE),
            ),
            "tank": SensorConfig(
                driver="hcsr04", every="1m", options={"trigger": "GPIO23", "echo": "GPIO24"}
            ),
            "air": SensorConfig(driver="scd4x", bus="i2c-1", every="1m"),
            "dust": SensorConfig(driver="pms5003", bus="ttyAMA0", every="1m"),
            "host": SensorConfig(driver="host", every="5m", history=False),
            "light": SensorConfig(driver="bh1750", bus="i2c-1", every="1m"),
            "rain": SensorConfig(
                driver="pulses",
                every="1m",
                options={"line": "GPIO25", "per_pulse": 0.2794, "unit": "mm"},
            ),
            "supply": SensorConfig(
                driver="ina219", bus="i2c-1", every="1m", options={"shunt_ohms": 0.1}
            ),
            "water": SensorConfig(driver="ds18b20", address=THERMOMETER, every="1m"),
        },
        actuators={
            "relays": ActuatorConfig(
                driver="pcf8574",
                bus="i2c-1",
                address=0x20,
                # A forgotten pump must not empty the tank.
                deadline="30m",
                options={
                    "outputs": {
                        "pump": {"line": "p0", "active_low": True},
                        "lamp": {"line": "p1", "active_low": True},
                    }
                },
            ),
            "window": ActuatorConfig(
                driver="servo",
                options={"channel": WINDOW, "min_angle": 0, "max_angle": 90, "safe": 0},
            ),
            "display": ActuatorConfig(driver="ssd1306", bus="i2c-1", address=0x3C),
        },
        gpio={
            "button": GpioConfig(
                line="GPIO27",
                direction="input",
                active_low=True,
                bias="pull-up",
                edge="both",
                debounce="20ms",
            ),
            "door": GpioConfig(
                line="GPIO22", direction="input", bias="pull-up", edge="both", debounce="20ms"
            ),
            "led": GpioConfig(line="GPIO17", direction="output", safe="off"),
        },
    )


def sim_board(
    clock: Clock,
    *,
    sleep: Sleep = asyncio.sleep,
    publish: Publish | None = None,
) -> Board:
    """The board of `edged serve --sim`.

    What acts changes what is measured: the pump, a relay, makes the soil wetter,
    draws current and empties the tank; the `window`, a servo, cools the
    `greenhouse` and lets CO2 out, as the `door` does, which stands open around
    each full hour. The `light` follows the sun of the wall clock (UTC); `rain`
    fills the tank in the first quarter of an hour of every third hour.

    A push button to ground, `button`, is pressed from second 50 to 52 of each
    minute; an LED, `led`, only listens. Nobody configured the thermometer at
    0x48, the converter on spi0.0 and ttyUSB0, whose pins are wired to each
    other: these are to try the tools on.
    """
    buses = make_buses(clock, Greenhouse(clock))
    more = {} if publish is None else {"publish": publish}
    return Board(_config(), buses, clock, sleep=sleep, simulated=True, **more)
