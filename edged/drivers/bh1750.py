"""Rohm BH1750: illuminance over I2C.

Source: Rohm BH1750FVI datasheet, 2011.11, revision D; pages named below are its.
The chip takes opcodes of one byte and has no registers. Each reading is one
measurement in high resolution, after which the chip powers itself down.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.bus.faults import NackError
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import silent
from edged.errors import NoDeviceError

INFO = Info(
    title="BH1750 illuminance",
    compatible=("rohm,bh1750",),
    bus="i2c",
    addresses=(0x23, 0x5C),
    channels=(Channel("illuminance", "lx", 0.0, 121_556.0),),
    datasheet="BH1750FVI, 2011.11, revision D",
)

# Page 5.
POWER_DOWN, POWER_ON, RESET, ONE_TIME_HIGH = 0x00, 0x01, 0x07, 0x20
TIME_HIGH, TIME_LOW = 0x40, 0x60
TIME_DEFAULT = 69

COUNTS_PER_LX = 1.2
"""Page 11, at the usual measurement time."""
SATURATED = 0xFFFF


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one BH1750.

    Attributes:
        address: 0x23 with ADDR at ground, 0x5C with ADDR at the supply.
        measurement_time: 69 reaches 54,600 lx; 31 reaches 121,500 lx, which direct sun
            needs; 254 resolves 0.23 lx.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x23 or 0x5C")] = 0x23
    measurement_time: Annotated[int, msgspec.Meta(ge=31, le=254)] = TIME_DEFAULT


def illuminance_lx(raw: int, measurement_time: int = TIME_DEFAULT) -> float:
    """Illuminance in lx. Source: page 11."""
    return raw / COUNTS_PER_LX * TIME_DEFAULT / measurement_time


def measurement_s(measurement_time: int) -> float:
    """Longest time of one measurement. Source: page 2 (180 ms) and page 11."""
    return 0.18 * measurement_time / TIME_DEFAULT


def time_opcodes(measurement_time: int) -> tuple[int, int]:
    """The two opcodes that set the measurement time. Source: page 5."""
    return TIME_HIGH | measurement_time >> 5, TIME_LOW | measurement_time & 0x1F


class Bh1750:
    """A BH1750 that was found; call from the event loop's thread."""

    identity = "BH1750"

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self._config, self._bus, self._sleep = config, bus, sleep
        self._who = f"BH1750 at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """One measurement."""
        time = self._config.measurement_time
        async with self._bus.hold() as bus:
            raw = await self._measure(bus)
            if raw == 0:
                # Its supply may have dipped meanwhile: then 0 is no reading, and the next one is.
                raw = await self._measure(bus)
            if raw == SATURATED:
                await self._check_presence(bus)
        data = raw.to_bytes(2, "big")
        if raw == SATURATED:
            limit = illuminance_lx(SATURATED, time)
            note = f"brighter than {limit:.0f} lx: set measurement_time to 31 or shade it"
            return (Sample("illuminance", None, "clipped", note, data),)
        return (Sample("illuminance", round(illuminance_lx(raw, time), 3), raw=data),)

    async def _measure(self, bus: I2cTransfers) -> int:
        """The raw value of one measurement on a held bus."""
        time = self._config.measurement_time
        await self._tell(bus, POWER_ON, *time_opcodes(time), ONE_TIME_HIGH)
        await self._sleep(measurement_s(time))
        return int.from_bytes(await bus.transfer(self._config.address, b"", 2), "big")

    async def _check_presence(self, bus: I2cTransfers) -> None:
        """All ones may be bright light or an open line: a chip that was reset reads zero."""
        await self._tell(bus, POWER_ON, RESET)
        if any(await bus.transfer(self._config.address, b"", 2)):
            raise NoDeviceError(silent(self._who))

    async def _tell(self, bus: I2cTransfers, *opcodes: int) -> None:
        for opcode in opcodes:
            await bus.transfer(self._config.address, bytes([opcode]))


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Bh1750:
    """Finds the chip, and has it measure once; see `Driver.probe`."""
    device = Bh1750(config, bus, sleep)
    await device.read()
    return device


class Sim:
    """Model of a BH1750 in true light: set `illuminance_lx`.

    Args:
        clock: what its times follow.
        illuminance_lx: true illuminance.
    """

    def __init__(self, clock: Clock, *, illuminance_lx: float = 320.0) -> None:
        self.illuminance_lx = illuminance_lx
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Comes up anew, as after a brown-out: powered down, and with nothing measured."""
        self._powered = False
        self._time = TIME_DEFAULT
        self._data = 0
        self._done_at: float | None = None

    def write(self, data: bytes) -> None:
        """One opcode; what is no opcode is not acknowledged."""
        self._settle()
        opcode = data[0]
        if opcode in {POWER_DOWN, POWER_ON}:
            self._powered = opcode == POWER_ON
        elif opcode == RESET:
            self._data = 0 if self._powered else self._data
        elif opcode == ONE_TIME_HIGH:
            self._done_at = self._clock.monotonic() + measurement_s(self._time)
        elif opcode & 0xF8 == TIME_HIGH:
            self._time = (opcode & 0x07) << 5 | self._time & 0x1F
        elif opcode & 0xE0 == TIME_LOW:
            self._time = self._time & 0xE0 | opcode & 0x1F
        else:
            raise NackError

    def read(self, length: int) -> bytes:
        """What was measured last."""
        self._settle()
        return self._data.to_bytes(2, "big")[:length].ljust(length, b"\xff")

    def _settle(self) -> None:
        """Ends a measurement whose time is over."""
        if self._done_at is not None and self._clock.monotonic() >= self._done_at:
            counts = self.illuminance_lx * COUNTS_PER_LX * self._time / TIME_DEFAULT
            self._data = min(round(counts), SATURATED)
            self._done_at = None
            self._powered = False
