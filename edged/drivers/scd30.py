"""Sensirion SCD30: CO2, temperature and humidity over I2C.

Source: Sensirion SCD30 interface description, version 1.0; sections named below
are its. The chip measures by itself and keeps all its settings, that it measures
included, in non-volatile memory: here none is ever rewritten, and a chip is told
to measure only when it does not. It holds the clock for up to 150 ms.
"""

from __future__ import annotations

import math
import struct
from typing import Annotated

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import limited
from edged.drivers._sensirion import CommandModel, Link, encode_words
from edged.errors import DataError

INFO = Info(
    title="SCD30 CO2, temperature and humidity",
    compatible=("sensirion,scd30",),
    bus="i2c",
    addresses=(0x61,),
    channels=(
        Channel("co2", "ppm", 0.0, 40_000.0),
        Channel("temperature", "Cel", -40.0, 70.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="SCD30 interface description, version 1.0 (May 2020)",
    interval_s=2.0,
    # Datasheet, table 1: its response time to a step of CO2.
    warm_up_s=20.0,
    stretches=True,
)

# Section 1.4.
START, INTERVAL, READY, READ, VERSION = (
    b"\x00\x10",
    b"\x46\x00",
    b"\x02\x02",
    b"\x03\x00",
    b"\xd1\x00",
)
ANSWER_S = 0.003
"""Between a command and the read of its answer (1.4.4)."""
INTERVALS_S = range(2, 1801)

LONGEST_WAIT_S = 10
"""Nobody waits longer than this for a chip whose interval someone made longer."""
_POLL_S = 0.25

_FLOATS = struct.Struct(">3f")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one SCD30.

    Attributes:
        address: 0x61.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x61")] = 0x61


def decode_measurement(words: tuple[int, ...]) -> tuple[float, float, float]:
    """CO2 in ppm, temperature in Cel, relative humidity in %RH.

    Shape:
        words: six; each two are a big-endian float, its higher word first.

    Source: 1.4.5.
    """
    co2, temperature, humidity = _FLOATS.unpack(struct.pack(">6H", *words))
    return co2, temperature, humidity


def encode_measurement(co2: float, temperature: float, humidity: float) -> tuple[int, ...]:
    """The inverse of `decode_measurement`, for register models."""
    return struct.unpack(">6H", _FLOATS.pack(co2, temperature, humidity))


def samples(words: tuple[int, ...]) -> tuple[Sample, ...]:
    """All channels of one measurement; what is no number has no value, and no air has 0 ppm."""
    values = list(decode_measurement(words))
    if values[0] == 0:
        values[0] = math.nan
    found = []
    for index, (channel, value) in enumerate(zip(INFO.channels, values, strict=True)):
        raw = struct.pack(">2H", *words[2 * index : 2 * index + 2])
        if math.isfinite(value):
            found.append(limited(channel, value, raw))
        else:
            note = "the chip did not measure it"
            found.append(Sample(channel.name, None, "error", note, raw))
    return tuple(found)


class Scd30:
    """An SCD30 that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = ""
        self._address, self._bus, self._sleep = config.address, bus, sleep
        self._who = f"SCD30 at {config.address:#04x} on {bus.name}"
        self._interval_s = INTERVALS_S[0]

    async def read(self) -> tuple[Sample, ...]:
        """The next measurement, waited for; the bus is free meanwhile."""
        words = await self._next()
        if words is not None:
            return samples(words)
        if self._interval_s > LONGEST_WAIT_S:
            note = f"it measures every {self._interval_s} s, and has nothing new"
            return tuple(Sample(channel.name, None, "stale", note) for channel in INFO.channels)
        raise DataError(f"{self._who}: it does not measure: power it off and on")

    async def start(self) -> None:
        """Has the chip measure if it does not.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: what it answers cannot be right.
        """
        async with self._bus.hold() as held:
            chip = self._link(held)
            (version,) = await chip.fetch(VERSION, ANSWER_S, 1)
            (self._interval_s,) = await chip.fetch(INTERVAL, ANSWER_S, 1)
        if self._interval_s not in INTERVALS_S:
            raise DataError(f"{self._who}: its interval cannot be {self._interval_s} s")
        self.identity = f"SCD30, firmware {version >> 8}.{version & 0xFF}"
        # What lies ready may be old: it only tells that the chip measures.
        if await self._next() is None and self._interval_s <= LONGEST_WAIT_S:
            async with self._bus.hold() as held:
                await self._link(held).send(START, ANSWER_S, (0,))

    async def _next(self) -> tuple[int, ...] | None:
        """The words of the next measurement; None when there is none in its time."""
        wait_s = min(self._interval_s, LONGEST_WAIT_S) + 1
        for _ in range(round(wait_s / _POLL_S)):
            async with self._bus.hold() as held:
                chip = self._link(held)
                (ready,) = await chip.fetch(READY, ANSWER_S, 1)
                if ready == 1:
                    return await chip.fetch(READ, ANSWER_S, 6)
            await self._sleep(_POLL_S)
        return None

    def _link(self, held: I2cTransfers) -> Link:
        return Link(held, self._address, self._who, self._sleep)


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Scd30:
    """Finds the chip by its firmware's version; see `Driver.probe`."""
    device = Scd30(config, bus, sleep)
    await device.start()
    return device


class Sim(CommandModel):
    """Register model of an SCD30 in true air: set `co2_ppm`, `temperature_cel`, `humidity_rh`.

    Args:
        clock: what its times follow.
        co2_ppm: true CO2.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
        measuring: whether it was told to, once; a new chip was not.
        interval_s: of its measurements.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        co2_ppm: float = 620.0,
        temperature_cel: float = 21.5,
        humidity_rh: float = 45.0,
        measuring: bool = False,
        interval_s: int = 2,
    ) -> None:
        super().__init__(clock)
        self.co2_ppm = co2_ppm
        self.temperature_cel, self.humidity_rh = temperature_cel, humidity_rh
        self.interval_s = interval_s
        self.stored = 0
        """Writes to the non-volatile memory."""
        self.measuring = measuring
        self.reset()

    def reset(self) -> None:
        """Comes up anew, as after a brown-out: it goes on measuring."""
        self._started = self._clock.monotonic()
        self._read = 0

    def obey(self, command: bytes) -> tuple[float, bytes] | None:
        """The commands that the driver needs; the rest of 1.4 is not acknowledged."""
        if command == START:
            self.measuring = True
            self.stored += 1
            self.reset()
            return ANSWER_S, b""
        if command == INTERVAL and not self.words:
            return ANSWER_S, encode_words(self.interval_s)
        if command == VERSION:
            return ANSWER_S, encode_words(0x0342)
        if command == READY:
            return ANSWER_S, encode_words(self._measured() > self._read)
        if command == READ and self._measured() > self._read:
            self._read = self._measured()
            values = self.co2_ppm, self.temperature_cel, self.humidity_rh
            return ANSWER_S, encode_words(*encode_measurement(*values))
        return None

    def _measured(self) -> int:
        """Number of measurements since it came up."""
        if not self.measuring:
            return 0
        return int((self._clock.monotonic() - self._started) / self.interval_s)
