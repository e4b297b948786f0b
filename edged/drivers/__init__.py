"""Drivers: one file a chip, its name the key.

A driver is a module with `INFO`, `Config`, `probe` and `Sim`. Decoding is pure
functions with the datasheet's section named; the device class only moves bytes
and waits. A measurement holds its bus once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from edged.clock import Clock
from edged.units import Quality

Sleep = Callable[[float], Awaitable[None]]
"""Waits that many seconds; injected, so that simulated chips need no real time."""


class Identity(NamedTuple):
    """A register that tells the chip: its address and the values it may have."""

    register: int
    values: tuple[int, ...]


class Channel(msgspec.Struct, frozen=True, gc=False):
    """One quantity that a device measures: SenML unit and the chip's limits in it."""

    name: str
    unit: str
    low: float
    high: float


class Info(msgspec.Struct, frozen=True):
    """What a driver is for.

    Attributes:
        compatible: devicetree's names of the chips.
        bus: kind of bus.
        addresses: where the chip may be, the usual one first.
        identity: what tells the chip, if anything does.
        channels: what it measures.
        datasheet: document and revision.
    """

    compatible: tuple[str, ...]
    bus: Literal["i2c"]
    addresses: tuple[int, ...]
    identity: Identity | None
    channels: tuple[Channel, ...]
    datasheet: str


class Sample(NamedTuple):
    """One channel's value as the device gave it; None where there is no value."""

    channel: str
    value: float | None
    quality: Quality = "ok"
    note: str = ""


class Device(Protocol):
    """A chip that was found and set up."""

    identity: str
    """What the chip says it is, for people."""

    async def read(self) -> tuple[Sample, ...]:
        """Measures all channels once, in the order of `Info.channels`.

        Raises:
            NoDeviceError: it no longer answers.
            BusError: a transfer failed.
            DataError: it answered with what cannot be right.
        """


class Driver(Protocol):
    """The module of a driver.

    `Config` is a frozen Struct with the driver's settings, `address` among
    them; `Sim(clock)` is a register model of the chip for the simulated bus.
    """

    INFO: Info
    Config: type[msgspec.Struct]
    Sim: Callable[[Clock], Any]

    async def probe(self, config: Any, bus: Any, sleep: Sleep) -> Device:
        """Finds the chip by its identity and sets it up.

        Args:
            config: a `Config`.
            bus: of the kind that `INFO.bus` names.
            sleep: how to wait.

        Raises:
            NoDeviceError: nothing there.
            BusError: a transfer failed.
            DataError: another chip, or data that cannot be right.
        """
