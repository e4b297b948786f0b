"""The simulated board of `edged serve --sim`."""

from __future__ import annotations

import asyncio

from edged.board import Board
from edged.board.sensor import Publish
from edged.bus.settings import BoardConfig, GpioConfig, SensorConfig
from edged.bus.sim import SimBuses, SimGpio, SimI2c, StoryButton
from edged.clock import Clock
from edged.drivers import Sleep, bme280


def sim_board(
    clock: Clock,
    *,
    sleep: Sleep = asyncio.sleep,
    publish: Publish | None = None,
) -> Board:
    """The board of `edged serve --sim`.

    A BME280, `greenhouse`, whose temperature swings by 2 Cel in ten minutes; a
    push button to ground, `button`, that someone presses from second 50 to 52
    of each minute of the wall clock; an LED, `led`.
    """
    config = BoardConfig(
        sensors={"greenhouse": SensorConfig(driver="bme280", bus="i2c-1", address=0x76)},
        gpio={
            "button": GpioConfig(
                line="GPIO27",
                direction="input",
                active_low=True,
                bias="pull-up",
                edge="both",
                debounce="20ms",
            ),
            "led": GpioConfig(line="GPIO17", direction="output", safe="off"),
        },
    )
    buses = SimBuses(
        i2c={"i2c-1": SimI2c("i2c-1", {0x76: bme280.Sim(clock, drift_cel=2.0)})},
        gpio=SimGpio(
            {"GPIO17": None, "GPIO27": StoryButton()}, clock.now, monotonic=clock.monotonic
        ),
    )
    more = {} if publish is None else {"publish": publish}
    return Board(config, buses, clock, sleep=sleep, **more)
