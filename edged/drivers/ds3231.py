"""Maxim DS3231: a clock with a battery, and its temperature, over I2C.

Source: Maxim DS3231 datasheet, 19-5170, revision 10; sections named below are
its. The chip is taken to count UTC, as Linux has it, in the years 2000 to 2099.
Where the kernel's own driver owns it, the bus says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from edged.bus import I2c, Sleep
from edged.clock import Clock, iso
from edged.drivers import Channel, Command, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, Fault, InvalidArgumentsError, NoDeviceError
from edged.register import Field, Register, signed

FIRST_S, LAST_S = 946_684_800, 4_102_444_799
"""2000-01-01T00:00:00Z and 2099-12-31T23:59:59Z."""


class SetTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `set_time` takes.

    Attributes:
        time: RFC 3339, with its zone.
    """

    time: Annotated[
        str, msgspec.Meta(description="RFC 3339 with a zone, such as 2026-01-31T12:00:00Z")
    ]


INFO = Info(
    title="DS3231 clock and temperature",
    compatible=("maxim,ds3231",),
    bus="i2c",
    addresses=(0x68,),
    channels=(
        Channel("temperature", "Cel", -40.0, 85.0),
        Channel("time", "s", float(FIRST_S), float(LAST_S)),
    ),
    commands=(Command("set_time", "Sets the clock.", SetTime),),
    datasheet="DS3231 datasheet, 19-5170, revision 10 (March 2015)",
)

# Figure 1; the bits of the registers below are in table 2.
TIME, CONTROL, STATUS, TEMPERATURE, MEMORY_LEN = 0x00, 0x0E, 0x0F, 0x11, 0x13
TIME_LEN = 7
CONTROL_BITS = Register(CONTROL, (Field("eosc", 7),))
STATUS_BITS = Register(STATUS, (Field("osf", 7), Field("zeros", 4, 3), Field("alarms", 0, 2)))

_LOST = "its oscillator stopped, so that its time is not right: set it with set_time"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one DS3231.

    Attributes:
        address: 0x68.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x68")] = 0x68


def _bcd(byte: int) -> int:
    tens, ones = byte >> 4, byte & 0x0F
    if tens > 9 or ones > 9:
        raise ValueError(f"{byte:#04x} is not two decimal digits")
    return tens * 10 + ones


def _to_bcd(value: int) -> int:
    return value // 10 << 4 | value % 10


def _hour(byte: int) -> int:
    """Hour of the day: bit 6 chooses 12 hours, in which bit 5 is PM."""
    if not byte & 0x40:
        return _bcd(byte)
    hour = _bcd(byte & 0x1F)
    if not 1 <= hour <= 12:
        raise ValueError(f"there is no {hour} o'clock")
    return hour % 12 + (12 if byte & 0x20 else 0)


def decode_time(data: bytes) -> int:
    """Seconds since 1970-01-01 UTC.

    Shape:
        data: 7 bytes: seconds, minutes, hours, day of the week, day, month with the
        century in bit 7, year; all but that bit BCD.

    Raises:
        ValueError: no such time.

    Source: figure 1. The century's bit counts overflows of the year and is of no meaning.
    """
    second, minute, hour, _, day, month, year = data
    moment = datetime(
        2000 + _bcd(year),
        _bcd(month & 0x7F),
        _bcd(day),
        _hour(hour),
        _bcd(minute),
        _bcd(second),
        tzinfo=UTC,
    )
    return int(moment.timestamp())


def encode_time(seconds: int) -> bytes:
    """The inverse of `decode_time`, in 24 hours.

    Args:
        seconds: since 1970-01-01 UTC, within `FIRST_S` to `LAST_S`.
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    fields = (
        moment.second,
        moment.minute,
        moment.hour,
        moment.isoweekday(),
        moment.day,
        moment.month,
        moment.year - 2000,
    )
    return bytes(_to_bcd(field) for field in fields)


def temperature_cel(data: bytes) -> float:
    """Temperature in Cel.

    Shape:
        data: 2 bytes: two's complement of 10 bits, left-justified.

    Source: "Temperature registers (11h-12h)".
    """
    return signed(int.from_bytes(data, "big") >> 6, 10) / 4


def samples(memory: bytes) -> tuple[Sample, ...]:
    """All channels.

    Shape:
        memory: all 19 registers.

    Raises:
        ValueError: what no DS3231 has in them.
    """
    status = STATUS_BITS.decode(memory[STATUS : STATUS + 1])
    if status["zeros"] or memory[TEMPERATURE + 1] & 0x3F:
        raise ValueError("bits are set that are always clear")
    raw = memory[TEMPERATURE : TEMPERATURE + 2]
    temperature = Sample("temperature", temperature_cel(raw), raw=raw)
    raw = memory[TIME : TIME + TIME_LEN]
    if status["osf"]:
        return temperature, Sample("time", None, "error", _LOST, raw)
    return temperature, Sample("time", float(decode_time(raw)), raw=raw)


class Ds3231:
    """A DS3231 that was found; call from the event loop's thread."""

    identity = "DS3231"

    def __init__(self, config: Config, bus: I2c) -> None:
        self._address, self._bus = config.address, bus
        self._who = f"DS3231 at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """Temperature and time."""
        memory = await self._bus.transfer(self._address, bytes([TIME]), MEMORY_LEN)
        if memory == b"\xff" * MEMORY_LEN:
            raise NoDeviceError(silent(self._who))
        try:
            return samples(memory)
        except ValueError as error:
            raise DataError(f"{self._who}: {error}: is it another chip, an MPU6050?") from None

    async def act(self, command: str, params: SetTime) -> str:  # noqa: ARG002  there is one
        """Sets the clock, and has it run on its battery; see `Actuator.act`."""
        seconds = parse_time(params.time)
        async with self._bus.hold() as bus:
            await bus.transfer(self._address, bytes([TIME]) + encode_time(seconds))
            control, status = await bus.transfer(self._address, bytes([CONTROL]), 2)
            kept = (
                CONTROL_BITS.encode({"eosc": 0}, bytes([control])),
                # Writing ones to the alarms' flags leaves them as they are.
                STATUS_BITS.encode({"osf": 0, "alarms": 3}, bytes([status])),
            )
            await bus.transfer(self._address, bytes([CONTROL]) + b"".join(kept))
        _, time = await self.read()
        if time.value is None or not 0 <= time.value - seconds <= 2:
            raise DataError(f"{self._who}: it did not take the time")
        return f"the clock is set to {iso(seconds)}"

    async def safe(self) -> None:
        """A clock has no outputs to put right: looks whether it is there."""
        await self._bus.transfer(self._address, bytes([STATUS]), 1)


def parse_time(written: str) -> int:
    """Seconds since 1970-01-01 UTC of a time that the clock can hold.

    Raises:
        InvalidArgumentsError: not RFC 3339, without a zone, or beyond 2000 to 2099.
    """
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        reason = f"{written!r} is not a time with its zone, such as 2026-01-31T12:00:00Z"
        raise InvalidArgumentsError([Fault("time", reason)])
    seconds = int(moment.timestamp())
    if not FIRST_S <= seconds <= LAST_S:
        raise InvalidArgumentsError([Fault("time", "the clock counts from 2000 to 2099")])
    return seconds


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Ds3231:  # noqa: ARG001  the Protocol's
    """Finds the chip by what its registers can hold; see `Driver.probe`."""
    device = Ds3231(config, bus)
    await device.read()
    return device


class Sim:
    """Register model of a DS3231.

    Args:
        clock: what it counts by; its wall clock is what it was set to.
        temperature_cel: true temperature.
        battery: whether it has one; without, a brown-out loses the time.
        twelve_hours: whether another program has it count 12 hours.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        battery: bool = True,
        twelve_hours: bool = False,
    ) -> None:
        self.temperature_cel = temperature_cel
        self._clock, self._battery, self._twelve_hours = clock, battery, twelve_hours
        self._pointer = 0
        self._memory = bytearray(MEMORY_LEN)
        self._memory[CONTROL], self._memory[STATUS] = 0x1C, 0x08
        self._ahead_s = int(clock.now()) - clock.monotonic()

    def reset(self) -> None:
        """The supply dips."""
        if not self._battery:
            self._ahead_s = FIRST_S - self._clock.monotonic()
            self._memory[CONTROL], self._memory[STATUS] = 0x1C, 0x88

    def write(self, data: bytes) -> None:
        """A register's address, and values for it and those after it."""
        self._settle()
        self._pointer = data[0]
        for byte in data[1:]:
            self._memory[self._pointer] = byte
            self._pointer = (self._pointer + 1) % MEMORY_LEN
        if data[1:] and data[0] < TIME_LEN:
            self._twelve_hours = bool(self._memory[2] & 0x40)
            self._ahead_s = decode_time(bytes(self._memory[:TIME_LEN])) - self._clock.monotonic()

    def read(self, length: int) -> bytes:
        """Registers from the one addressed last, counting up."""
        self._settle()
        start = self._pointer
        return bytes(self._memory[(start + i) % MEMORY_LEN] for i in range(length))

    def _settle(self) -> None:
        """Brings the registers to the present time."""
        now = encode_time(int(self._ahead_s + self._clock.monotonic()))
        self._memory[:TIME_LEN] = now
        if self._twelve_hours:
            hour = _bcd(now[2])
            self._memory[2] = 0x40 | 0x20 * (hour >= 12) | _to_bcd((hour - 1) % 12 + 1)
        raw = round(self.temperature_cel * 4) & 0x3FF
        self._memory[TEMPERATURE : TEMPERATURE + 2] = (raw << 6).to_bytes(2, "big")
