"""What the configuration says of sensors and lines (`board:` of edged.yaml)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edged.bus import Bias, Direction, Drive, EdgeDetection, LineSettings
from edged.units import duration_s

_LOWEST, _HIGHEST = 0x03, 0x77
"""7-bit I2C addresses outside are reserved (UM10204, section 3.1.12)."""


class SensorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `board.sensors`.

    Attributes:
        driver: name of a driver, `bme280`.
        bus: `i2c-1` (or `/dev/i2c-1`); empty where the driver needs none.
        address: 7-bit I2C address, as a number or as `"0x76"`; an id on other
            buses; None is the driver's usual one.
        every: how often it is sampled, `10s`.
        options: settings of the driver itself, checked by its `Config`.
    """

    driver: str
    bus: str = ""
    address: int | str | None = None
    every: str = "10s"
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if duration_s(self.every) <= 0:
            raise ValueError("every must be longer than 0s")
        msgspec.structs.force_setattr(self, "bus", self.bus.removeprefix("/dev/"))
        address = _number(self.address)
        msgspec.structs.force_setattr(self, "address", address)
        if isinstance(address, int) and not _LOWEST <= address <= _HIGHEST:
            raise ValueError(_address_fault(address))


class GpioConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `board.gpio`.

    Attributes:
        line: a line's name, `GPIO17`, or chip and offset.
        direction: input or output.
        active_low: logical true (`on`) is the low level.
        safe: the logical level of an output at start and after stop; None is `off`.
        bias: pull resistors of the chip.
        drive: of an output.
        edge: edges of an input that are reported.
        debounce: how long an input's level must hold to count, `20ms`; empty is not at all.
    """

    line: str
    direction: Direction
    active_low: bool = False
    safe: Literal["off", "on"] | None = None
    bias: Bias = "as-is"
    drive: Drive = "push-pull"
    edge: EdgeDetection = "none"
    debounce: str = ""

    def __post_init__(self) -> None:
        if self.direction == "input" and self.safe is not None:
            raise ValueError("an input has no safe: remove it")
        self.settings()

    def settings(self) -> LineSettings:
        """The request for the line; an output starts on its safe level."""
        return LineSettings(
            direction=self.direction,
            active_low=self.active_low,
            bias=self.bias,
            drive=self.drive,
            edge=self.edge,
            debounce_s=duration_s(self.debounce) if self.debounce else 0.0,
            output_value=self.safe == "on",
        )


def _number(address: int | str | None) -> int | str | None:
    """The number of a text such as `"0x76"`; ids of other buses stay text."""
    if not isinstance(address, str) or not address.lower().startswith("0x"):
        return address
    try:
        return int(address, 16)
    except ValueError:
        raise ValueError(f"{address!r} is not a number: write it as 0x76") from None


def _address_fault(address: int) -> str:
    fault = f"{address:#04x} is not a 7-bit address ({_LOWEST:#04x} to {_HIGHEST:#04x})"
    if _HIGHEST < address <= 0xFF:
        # Many labels print the 8-bit form, which has the read/write bit at its end.
        return f"{fault}: an 8-bit label? then write {address >> 1:#04x}"
    return fault
