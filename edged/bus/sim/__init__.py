"""Simulated buses: the same Protocols as the real ones, over models handed in.

Targets are register models (a driver's `Sim`), GPIO lines carry parts with
physics, and faults are to order. Time is injected and nothing here waits for
it but edges of lines, so that a test decides what time it is. Knows no driver.
"""

from edged.bus.faults import NackError
from edged.bus.sim.board import SimBuses
from edged.bus.sim.gpio import (
    BOUNCE_S,
    Button,
    Level,
    Part,
    SimGpio,
    SimLine,
    StoryButton,
    debounced,
)
from edged.bus.sim.i2c import FaultKind, SimI2c, Target
from edged.bus.sim.kernel import OneWireTarget, SimOneWire, SimPwm, SimSysfs
from edged.bus.sim.mux import SimMux
from edged.bus.sim.serial import SerialPeer, SimSerial
from edged.bus.sim.spi import SimSpi, SpiTarget

__all__ = [
    "BOUNCE_S",
    "Button",
    "FaultKind",
    "Level",
    "NackError",
    "OneWireTarget",
    "Part",
    "SerialPeer",
    "SimBuses",
    "SimGpio",
    "SimI2c",
    "SimLine",
    "SimMux",
    "SimOneWire",
    "SimPwm",
    "SimSerial",
    "SimSpi",
    "SimSysfs",
    "SpiTarget",
    "StoryButton",
    "Target",
    "debounced",
]
