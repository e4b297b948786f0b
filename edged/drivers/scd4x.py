"""Sensirion SCD40, SCD41: CO2, temperature and humidity over I2C.

Source: Sensirion SCD4x datasheet, version 1.3; sections named below are its.
The chip measures by itself every 5 s. While it does so it knows a few commands
only and does not acknowledge the others, so it is stopped first and set up then.
Nothing is written to its EEPROM, which wears.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec

from edged.bus import I2c, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import limited
from edged.drivers._sensirion import (
    CommandModel,
    Link,
    encode_words,
    temperature_cel,
    temperature_word,
)
from edged.errors import DataError, NoDeviceError

INFO = Info(
    title="SCD4x CO2, temperature and humidity",
    compatible=("sensirion,scd40", "sensirion,scd41"),
    bus="i2c",
    addresses=(0x62,),
    channels=(
        Channel("co2", "ppm", 0.0, 40_000.0),
        Channel("temperature", "Cel", -10.0, 60.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="SCD4x datasheet, version 1.3 (September 2022)",
    interval_s=5.0,
    # Table 1: its response time to a step of CO2.
    warm_up_s=60.0,
)

# Table 9.
START, READ, STOP, READY = b"\x21\xb1", b"\xec\x05", b"\x3f\x86", b"\xe4\xb8"
ALTITUDE, SERIAL, WAKE_UP = b"\x24\x27", b"\x36\x82", b"\x36\xf6"
WHILE_MEASURING = frozenset({READ, STOP, READY})
"""Of these commands; the others are not acknowledged then (table 9)."""

COMMAND_S, STOP_S, WAKE_UP_S = 0.001, 0.5, 0.03
INTERVAL_S = 5.0
READY_BITS = 0x07FF
"""All clear: no new measurement (3.8.2)."""

_POLLS, _POLL_S = 13, 0.5
"""Somewhat longer than the chip's own 5 s."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one SCD4x.

    Attributes:
        address: 0x62.
        altitude_m: of the place above the sea, which CO2 is corrected by; without it the
            chip's own setting counts.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x62")] = 0x62
    altitude_m: Annotated[int, msgspec.Meta(ge=0, le=3000)] | None = None


def samples(words: tuple[int, ...]) -> tuple[Sample, ...]:
    """All channels of one measurement.

    Shape:
        words: CO2 in ppm, temperature and humidity as the chip sends them.

    Source: 3.5.2.
    """
    co2, temperature, humidity = INFO.channels
    raw = [word.to_bytes(2, "big") for word in words]
    return (
        limited(co2, words[0], raw[0])
        if words[0]
        else Sample("co2", None, "error", "the chip did not measure it", raw[0]),
        limited(temperature, temperature_cel(words[1]), raw[1]),
        limited(humidity, 100 * words[2] / 65535, raw[2]),
    )


class Scd4x:
    """An SCD4x that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = ""
        self._config, self._bus, self._sleep = config, bus, sleep
        self._who = f"SCD4x at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """The next measurement, waited for up to 6.5 s; the bus is free meanwhile."""
        for _ in range(_POLLS):
            async with self._bus.hold() as held:
                chip = Link(held, self._config.address, self._who, self._sleep)
                # Reading without a new measurement would not be acknowledged (3.5.2).
                (ready,) = await chip.fetch(READY, COMMAND_S, 1)
                if ready & READY_BITS:
                    return samples(await chip.fetch(READ, COMMAND_S, 3))
            await self._sleep(_POLL_S)
        raise DataError(f"{self._who}: it does not measure: its supply may have dipped")

    async def start(self) -> None:
        """Has the chip measure from anew, whatever state it is in.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: its serial number has a wrong CRC.
        """
        async with self._bus.hold() as held:
            chip = Link(held, self._config.address, self._who, self._sleep)
            await self._stop(chip)
            try:
                serial = serial_number(await chip.fetch(SERIAL, COMMAND_S, 3))
                if self._config.altitude_m is not None:
                    await chip.send(ALTITUDE, COMMAND_S, (self._config.altitude_m,))
            finally:
                # Whatever failed, it is not left standing.
                await chip.send(START)
        self.identity = f"SCD4x, serial number {serial}"

    async def _stop(self, chip: Link) -> None:
        with suppress(NoDeviceError):
            await chip.send(STOP, STOP_S)
            return
        # An SCD41 may be asleep: it wakes up without acknowledging that (3.10.4).
        with suppress(NoDeviceError):
            await chip.send(WAKE_UP)
        await self._sleep(WAKE_UP_S)
        await chip.send(STOP, STOP_S)


def serial_number(words: tuple[int, ...]) -> str:
    """The serial number as the datasheet writes it: 48 bits, highest word first (3.9.2)."""
    return "".join(f"{word:04X}" for word in words)


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Scd4x:
    """Finds the chip by its serial number and has it measure; see `Driver.probe`."""
    device = Scd4x(config, bus, sleep)
    await device.start()
    return device


class Sim(CommandModel):
    """Register model of an SCD4x in true air: set `co2_ppm`, `temperature_cel`, `humidity_rh`.

    Args:
        clock: what its times follow.
        co2_ppm: true CO2.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
        measuring: whether another program started it.
        asleep: whether another program put it to sleep.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        co2_ppm: int = 620,
        temperature_cel: float = 21.5,
        humidity_rh: float = 45.0,
        measuring: bool = False,
        asleep: bool = False,
    ) -> None:
        super().__init__(clock)
        self.co2_ppm = co2_ppm
        self.temperature_cel, self.humidity_rh = temperature_cel, humidity_rh
        self.altitude_m = 0
        self._started: float | None = clock.monotonic() if measuring else None
        self._asleep = asleep
        self._read = 0

    def reset(self) -> None:
        """Comes up anew, as after a brown-out: idle."""
        self._started = None
        self._asleep = False
        self.altitude_m = 0

    def obey(self, command: bytes) -> tuple[float, bytes] | None:
        """What is not acknowledged depends on the state (table 9, 3.10.4)."""
        if command == WAKE_UP:
            self._asleep = False
            return None
        if self._asleep or (self._started is not None and command not in WHILE_MEASURING):
            return None
        if command == STOP:
            self._started = None
            return STOP_S, b""
        if command == START:
            self._started, self._read = self._clock.monotonic(), 0
            return 0.0, b""
        if command == SERIAL:
            return COMMAND_S, encode_words(0xF896, 0x9F07, 0x3BBE)
        if command == ALTITUDE:
            (self.altitude_m,) = self.words
            return COMMAND_S, b""
        if command == READY:
            return COMMAND_S, encode_words(0x8006 if self._new() else 0x8000)
        if command == READ and self._new():
            self._read = self._measured()
            return COMMAND_S, self._measurement()
        return None

    def _measured(self) -> int:
        """Number of measurements since the start."""
        if self._started is None:
            return 0
        return int((self._clock.monotonic() - self._started) / INTERVAL_S)

    def _new(self) -> bool:
        return self._measured() > self._read

    def _measurement(self) -> bytes:
        humidity = round(self.humidity_rh * 65535 / 100)
        return encode_words(self.co2_ppm, temperature_word(self.temperature_cel), humidity)
