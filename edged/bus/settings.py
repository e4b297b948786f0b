"""What the configuration says of the board (`board:` of edged.yaml)."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged.bus import Bias, Direction, Drive, EdgeDetection, LineSettings
from edged.units import UNITS, duration_s, size_bytes

_LOWEST, _HIGHEST = 0x03, 0x77
"""7-bit I2C addresses outside are reserved (UM10204, section 3.1.12)."""

Duration = Annotated[str | int | float, Meta(description="seconds, or text such as 20ms, 60s, 1h")]

EVERY_MIN_S = 0.02
"""Sampling faster than this is the business of a driver, not of a timer."""


def _duration(field: str, written: str | float, low: float) -> float:
    """Seconds of a field; a fault begins with the field's name."""
    try:
        seconds = duration_s(written) if written != "" else 0.0
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None
    if seconds < low:
        raise ValueError(f"{field}: must be at least {low:g}s")
    return seconds


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the board's configuration; an unknown key stops the start."""


class AlarmConfig(Part, frozen=True):
    """When a channel is out of bounds; in the channel's unit.

    Attributes:
        above: alarm when the value is higher.
        below: alarm when it is lower.
        hysteresis: how far it must come back inside before the alarm ends.
        hold: how long it must be out of bounds before the alarm begins.
    """

    above: float | None = None
    below: float | None = None
    hysteresis: Annotated[float, Meta(ge=0)] = 0.0
    hold: Duration = 0

    def __post_init__(self) -> None:
        _duration("hold", self.hold, 0)
        if self.above is None and self.below is None:
            raise ValueError("above or below is missing: an alarm needs a bound")
        if self.above is not None and self.below is not None and self.below >= self.above:
            raise ValueError("below must be less than above")


class ChannelConfig(Part, frozen=True):
    """What is done with the values of one channel, in this order: points, scale, offset, median.

    Attributes:
        points: pairs of what the device says and what is true; between them it is
            interpolated, beyond them extended.
        scale: factor.
        offset: added, in the channel's unit.
        median: of so many last values, which takes spikes away; 1 is off.
        max_rate: a faster change, in the channel's unit a second, makes a value suspect.
        unit: SenML unit of what comes out, where it is another quantity.
        alarm: bounds to watch.
    """

    points: list[tuple[float, float]] = []
    scale: float = 1.0
    offset: float = 0.0
    median: Annotated[int, Meta(ge=1, le=99)] = 1
    max_rate: Annotated[float, Meta(gt=0)] | None = None
    unit: str = ""
    alarm: AlarmConfig | None = None

    def __post_init__(self) -> None:
        if self.unit and self.unit not in UNITS:
            known = ", ".join(UNITS)
            raise ValueError(f"unit: {self.unit!r} is no unit that edged knows: {known}")
        if len(self.points) == 1:
            raise ValueError("points: one pair alone is an offset: give two or more")
        if any(right[0] <= left[0] for left, right in pairwise(self.points)):
            raise ValueError("points: the first numbers must rise from pair to pair")


class DeviceConfig(Part, frozen=True):
    """What entries of `board.sensors` and `board.actuators` have in common.

    Attributes:
        driver: name of a driver, `bme280`.
        bus: `i2c-1` (or `/dev/i2c-1`), `spi0.0`, a serial port; empty where the
            driver needs none.
        address: 7-bit I2C address, as a number or as `"0x76"`; None is the
            driver's usual one.
        baudrate: of its serial port, where that differs from the driver's usual one.
        options: settings of the driver itself, checked by its `Config`.
    """

    driver: str
    bus: Annotated[str, Meta(examples=["i2c-1"])] = ""
    address: int | str | None = None
    baudrate: Annotated[int, Meta(ge=1)] | None = None
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "bus", bus_name(self.bus))
        address = _number(self.address)
        msgspec.structs.force_setattr(self, "address", address)
        if isinstance(address, int) and not _LOWEST <= address <= _HIGHEST:
            raise ValueError(_address_fault(address))


class SensorConfig(DeviceConfig, frozen=True):
    """One entry of `board.sensors`.

    Attributes:
        every: how often it is sampled, `10s`; 0 is only when it is asked.
        max_age: an older value is no longer given as the present one; by default
            three samplings, one minute at least.
        history: whether its samples are kept.
        channels: what is done with the values, by channel.
    """

    every: Duration = "10s"
    max_age: Duration | None = None
    history: bool = True
    channels: dict[str, ChannelConfig] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        every = _duration("every", self.every, 0)
        if 0 < every < EVERY_MIN_S:
            raise ValueError(f"every: must be 0 or at least {EVERY_MIN_S:g}s")
        if self.max_age is not None:
            _duration("max_age", self.max_age, 0)

    @property
    def every_s(self) -> float:
        """Seconds between two samplings; 0 is never."""
        return duration_s(self.every)

    @property
    def max_age_s(self) -> float:
        """Seconds after which a value is stale."""
        if self.max_age is not None:
            return duration_s(self.max_age)
        return max(60.0, 3 * self.every_s)


class ActuatorConfig(DeviceConfig, frozen=True):
    """One entry of `board.actuators`.

    Attributes:
        deadline: it goes to its safe state this long after it was told anything
            last; empty is never.
    """

    deadline: Duration = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _duration("deadline", self.deadline, 0)


class HistoryConfig(Part, frozen=True):
    """Samples on disk.

    Attributes:
        size: of the file; the oldest and finest samples make room.
        interval: samples are written in batches; a power cut loses one at most.
        raw: how long each sample is kept; then its minute's, then its hour's mean.
        minutes: how long the minutes are kept.
    """

    enabled: bool = True
    size: str | int = "64M"
    interval: Duration = "1m"
    raw: Duration = "2d"
    minutes: Duration = "60d"

    def __post_init__(self) -> None:
        try:
            size = size_bytes(self.size)
        except ValueError as error:
            raise ValueError(f"size: {error}") from None
        if size < 1 << 20:
            raise ValueError("size: must be 1M at least")
        _duration("interval", self.interval, 1)
        _duration("raw", self.raw, 60)
        _duration("minutes", self.minutes, 3_600)


class GpioConfig(Part, frozen=True):
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
        deadline: an output goes to its safe level this long after it was driven last
            (dead man's handle); 0 is never.
    """

    line: Annotated[str, Meta(examples=["GPIO17"])]
    direction: Direction
    active_low: bool = False
    safe: Literal["off", "on"] | None = None
    bias: Bias = "as-is"
    drive: Drive = "push-pull"
    edge: EdgeDetection = "none"
    debounce: Duration = ""
    deadline: Duration = 0

    def __post_init__(self) -> None:
        if _duration("deadline", self.deadline, 0) and self.direction == "input":
            raise ValueError("an input has no deadline: remove it")
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
            debounce_s=_duration("debounce", self.debounce, 0),
            output_value=self.safe == "on",
        )


_I2C_TARGET = r"i2c-\d+/0x[0-7][0-9a-f](/[0-7]/0x[0-7][0-9a-f])*"

_PLACE = (
    rf"i2c-\d+|{_I2C_TARGET}|spi\d+(\.\d+)?|tty\w+|/dev/[\w./:+-]+"
    r"|usb:[\w:.-]+|[A-Z][A-Z0-9_]*\d*|[\w.:-]+/\d+"
)
"""What `allow` may name, as tools name it."""


class BoardConfig(Part, frozen=True):
    """`board:` of edged.yaml, whole.

    Attributes:
        i2c: buses that are used, by number; a bus that a sensor names need not be here.
        sensors: what measures, by name.
        actuators: what acts, by name.
        gpio: lines, by name.
        allow: places that tools may write to without a confirmation: `i2c-1/0x3c`,
            `spi0.0`, `ttyUSB0`, `GPIO22`.
        limits: by I2C address, the registers of one byte that tools may write there, each
            with the lowest and the highest value; a confirmation lifts none of them.
        history: samples on disk.
    """

    i2c: dict[str, dict[str, Any]] = {}
    sensors: dict[str, SensorConfig] = {}
    actuators: dict[str, ActuatorConfig] = {}
    gpio: dict[str, GpioConfig] = {}
    allow: list[str] = []
    limits: dict[str, dict[int | str, tuple[int, int]]] = {}
    history: HistoryConfig = HistoryConfig()

    def __post_init__(self) -> None:
        for place in self.allow:
            if re.fullmatch(_PLACE, place) is None:
                known = "i2c-1, i2c-1/0x3c, spi0.0, ttyUSB0, GPIO22 or pwmchip0/0"
                raise ValueError(f"allow: {place!r} is no place of a board: write {known}")
        limits = {place: _registers(place, given) for place, given in self.limits.items()}
        msgspec.structs.force_setattr(self, "limits", limits)
        for kind in ("sensors", "actuators", "gpio"):
            for name in getattr(self, kind):
                if not _is_name(name):
                    raise ValueError(
                        f"{kind}.{name}: a name has letters, digits, - and _, and no more than 64"
                    )
        for kind, others in (("gpio", self.gpio), ("sensors", self.sensors)):
            twice = sorted(set(others) & set(self.actuators))
            if twice:
                reason = f"is a name under {kind} too: rename one"
                raise ValueError(f"actuators.{twice[0]}: {reason}")


def _registers(
    place: str, given: dict[int | str, tuple[int, int]]
) -> dict[int | str, tuple[int, int]]:
    """The limits of one address, registers as numbers.

    Raises:
        ValueError: the place is no I2C address, or a register or its range is none.
    """
    if re.fullmatch(_I2C_TARGET, place) is None:
        raise ValueError(f"limits: {place!r} is no I2C address: write i2c-1/0x60")
    found: dict[int | str, tuple[int, int]] = {}
    for register, (low, high) in given.items():
        number = _whole(str(register))
        if number is None or not 0 <= number <= 0xFF:
            raise ValueError(f"limits: {place}: {register!r} is no register: write 0x00 to 0xff")
        if not 0 <= low <= high:
            raise ValueError(f"limits: {place}: {register}: [{low}, {high}] is no range")
        found[number] = low, high
    return found


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 64 and name.replace("-", "").replace("_", "").isalnum()


def bus_name(bus: str) -> str:
    """The name of a bus for its node: `i2c-1`, `spi0.0`; a serial port stays as it is written."""
    name = bus.removeprefix("/dev/")
    if name.startswith("spidev"):
        return "spi" + name.removeprefix("spidev")
    if not name.startswith("i2c-"):
        return bus
    bus, *behind = name.split("/")
    # A multiplexer's address and channel are written in many ways, and compared as text.
    numbers = [_whole(part) for part in behind]
    if None in numbers:
        return name
    shown = (f"{n}" if at % 2 else f"{n:#04x}" for at, n in enumerate(numbers))
    return "/".join([bus, *shown])


def _whole(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


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
