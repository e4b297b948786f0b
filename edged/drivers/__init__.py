"""Drivers: one file a chip, its name the key.

A driver is a module with `INFO`, `Config`, `probe` and `Sim`. Decoding is pure
functions with the datasheet's section named; the device class only moves bytes
and waits. A measurement holds its bus once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from edged.bus import Kind, SerialSettings, Sleep
from edged.clock import Clock
from edged.units import Quality


class Identity(NamedTuple):
    """What tells the chip, read without changing anything.

    Attributes:
        register: address of the identity register, or a command of several bytes.
        values: those that it may have.
        size: bytes, big-endian.
        mask: bits that count; None is all.
        decisive: whether with another value it is another chip; not so where it is what
            the register has after a reset, and may be set.
    """

    register: int | bytes
    values: tuple[int, ...]
    size: int = 1
    mask: int | None = None
    decisive: bool = True


class Channel(msgspec.Struct, frozen=True, gc=False):
    """One quantity that a device measures: SenML unit and the chip's limits in it."""

    name: str
    unit: str
    low: float
    high: float


class Command(msgspec.Struct, frozen=True):
    """Something that a device can be told to do.

    Attributes:
        name: `angle`.
        description: one line, with units.
        params: a frozen Struct that forbids unknown fields; its fields are what
            the command takes, with `Meta` for ranges and descriptions.
        interrupts: it ends a command that runs, by cancelling it: `stop`.
    """

    name: str
    description: str
    params: type[msgspec.Struct]
    interrupts: bool = False


class Info(msgspec.Struct, frozen=True):
    """What a driver is for.

    Attributes:
        title: for people, in a few words: `BME280 temperature, pressure, humidity`.
        compatible: devicetree's names of the chips.
        bus: kind of bus.
        addresses: I2C addresses where the chip may be, the usual one first.
        identity: what tells the chip, if anything does.
        channels: what it measures; of a chip whose settings decide, see `Driver`.
        commands: what it can be told.
        datasheet: document and revision.
        serial: how its port is opened; of serial devices.
        interval_s: no more than one measurement in this time; who asks sooner gets the last.
        warm_up_s: for this long after it was set up its values are not to be trusted.
        stretches: it holds the clock, which some boards get wrong.
        needs_loop: its measurement awaits more than its bus and its sleep.
    """

    title: str
    compatible: tuple[str, ...]
    bus: Kind
    datasheet: str
    addresses: tuple[int, ...] = ()
    identity: Identity | None = None
    channels: tuple[Channel, ...] = ()
    commands: tuple[Command, ...] = ()
    serial: SerialSettings | None = None
    interval_s: float = 0.0
    warm_up_s: float = 0.0
    stretches: bool = False
    needs_loop: bool = False


class Sample(NamedTuple):
    """One channel's value as the device gave it; None where there is no value."""

    channel: str
    value: float | None
    quality: Quality = "ok"
    note: str = ""
    raw: bytes = b""
    """What the value was decoded from, where that helps."""


class Device(Protocol):
    """A chip that was found and set up."""

    identity: str
    """What the chip says it is, for people."""

    async def read(self) -> tuple[Sample, ...]:
        """Measures all channels once, in the order of the driver's channels.

        A channel that this variant of the chip lacks is left out.

        Raises:
            NoDeviceError: it no longer answers.
            BusError: a transfer failed.
            DataError: it answered with what cannot be right.
        """


class Actuator(Device, Protocol):
    """A device that acts: `INFO.commands` are not empty.

    `read` returns what it was told last, or () where there is nothing to tell.
    """

    async def act(self, command: str, params: Any) -> str:
        """Does what it is told; returns one line for people.

        Args:
            command: a name of `INFO.commands`.
            params: that command's `params`, decoded.

        Raises:
            InvalidArgumentsError: beyond what its configuration allows.
            NoDeviceError, BusError: as `read`.
        """

    async def safe(self) -> None:
        """Goes to its safe state: at the start, at the stop, and when its deadline passes."""


class Driver(Protocol):
    """The module of a driver.

    `Config` is a frozen Struct (unknown fields forbidden) with the driver's
    settings; of an I2C chip `address` is among them, of a serial one nothing of
    the port. `Sim(clock)` is a model of the chip for the simulated bus: an I2C
    `Target` for I2C; `SpiTarget`, `SerialPeer`, `Part` likewise
    (`edged.bus.sim`).

    A module may have `channels(config) -> tuple[Channel, ...]` where settings
    decide what is measured, `place(config) -> str` where several devices share a
    port (a Modbus unit), and `close(self)` on its device class where
    something is held open.
    """

    INFO: Info
    Config: type[msgspec.Struct]
    Sim: Callable[[Clock], Any]

    async def probe(self, config: Any, bus: Any, sleep: Sleep) -> Device:
        """Finds the chip by its identity and sets it up.

        Args:
            config: a `Config`.
            bus: of the kind that `INFO.bus` names: `I2c`, `Spi`, an open
                `SerialPort`, `Gpio`, `Pwm`, `OneWire`, `Sysfs`, or of `board` all
                `Buses`.
            sleep: how to wait.

        Raises:
            NoDeviceError: nothing there.
            BusError: a transfer failed.
            DataError: another chip, or data that cannot be right.
        """
