"""Sensirion SHT40, SHT41, SHT45: temperature and humidity over I2C.

Source: Sensirion SHT4x datasheet, version 6; chapters named below are its.
Each reading is one measurement of high precision. The heater is never used.
"""

from __future__ import annotations

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

INFO = Info(
    title="SHT4x temperature and humidity",
    compatible=("sensirion,sht4x", "sensirion,sht40", "sensirion,sht41", "sensirion,sht45"),
    bus="i2c",
    addresses=(0x44, 0x45, 0x46),
    channels=(
        Channel("temperature", "Cel", -40.0, 125.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="SHT4x datasheet, version 6",
)

# "Command overview".
MEASURE, SERIAL, SOFT_RESET = b"\xfd", b"\x89", b"\x94"
MEASURE_S = 0.0083
"""Longest measurement duration, high repeatability."""
RESET_S = SERIAL_S = 0.001


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one SHT4x.

    Attributes:
        address: 0x44, 0x45 or 0x46 by the chip's order code.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x44, 0x45 or 0x46")] = 0x44


def humidity_rh(word: int) -> float:
    """Relative humidity in %RH; -6 to 119, of which 0 to 100 can be true.

    Source: "Conversion of signal output".
    """
    return -6 + 125 * word / 65535


def samples(words: tuple[int, ...]) -> tuple[Sample, Sample]:
    """All channels of one measurement.

    Shape:
        words: temperature and humidity as the chip sends them.
    """
    temperature, humidity = INFO.channels
    return (
        limited(temperature, temperature_cel(words[0]), words[0].to_bytes(2, "big")),
        limited(humidity, humidity_rh(words[1]), words[1].to_bytes(2, "big")),
    )


class Sht4x:
    """An SHT4x that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = ""
        self._address, self._bus, self._sleep = config.address, bus, sleep
        self._who = f"SHT4x at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """One measurement of both channels."""
        async with self._bus.hold() as held:
            chip = Link(held, self._address, self._who, self._sleep)
            return samples(await chip.fetch(MEASURE, MEASURE_S, 2))

    async def reset(self) -> None:
        """Ends what the chip does, and reads its serial number.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: the serial number has a wrong CRC.
        """
        async with self._bus.hold() as held:
            chip = Link(held, self._address, self._who, self._sleep)
            await chip.send(SOFT_RESET, RESET_S)
            high, low = await chip.fetch(SERIAL, SERIAL_S, 2)
        self.identity = f"SHT4x, serial number {high:04X}{low:04X}"


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Sht4x:
    """Finds the chip by its serial number; see `Driver.probe`."""
    device = Sht4x(config, bus, sleep)
    await device.reset()
    return device


class Sim(CommandModel):
    """Register model of an SHT4x in true surroundings.

    Set `temperature_cel` and `humidity_rh` to what is true.

    Args:
        clock: what its times follow.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
        serial: its serial number, 32 bits.
    """

    width = 1

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        humidity_rh: float = 45.0,
        serial: int = 0x0F4A7C21,
    ) -> None:
        super().__init__(clock)
        self.temperature_cel, self.humidity_rh = temperature_cel, humidity_rh
        self._serial = serial

    def obey(self, command: bytes) -> tuple[float, bytes] | None:
        """Any other command is not acknowledged."""
        if command == SOFT_RESET:
            return RESET_S, b""
        if command == SERIAL:
            return SERIAL_S, encode_words(self._serial >> 16, self._serial & 0xFFFF)
        if command == MEASURE:
            humidity = max(0, min(round((self.humidity_rh + 6) * 65535 / 125), 0xFFFF))
            return MEASURE_S, encode_words(temperature_word(self.temperature_cel), humidity)
        return None
