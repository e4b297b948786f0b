"""Sensirion SHT30, SHT31, SHT35: temperature and humidity over I2C.

Source: Sensirion SHT3x-DIS datasheet, version 7; sections named below are its.
Each reading is one measurement of high repeatability without clock stretching
(4.3): the chip idles between, and nothing on the bus has to wait for it.
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
from edged.errors import DataError
from edged.register import Field, Register

INFO = Info(
    title="SHT3x temperature and humidity",
    compatible=("sensirion,sht3x", "sensirion,sht30", "sensirion,sht31", "sensirion,sht35"),
    bus="i2c",
    addresses=(0x44, 0x45),
    channels=(
        Channel("temperature", "Cel", -40.0, 125.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="SHT3x-DIS datasheet, version 7 (December 2022)",
)

# Sections 4.3, 4.8, 4.9, 4.11; the model alone knows what another program may have started.
MEASURE, BREAK, SOFT_RESET, STATUS = b"\x24\x00", b"\x30\x93", b"\x30\xa2", b"\xf3\x2d"
PERIODIC = b"\x21\x30"
MEASURE_S = 0.0155
"""Table 4, high repeatability, lowest supply."""
RESET_S = 0.0015
COMMAND_S = 0.001

STATUS_BITS = Register(0, (Field("heater", 13), Field("reset", 4)), size=2)
"""Table 18; the register is a command's answer and has no address."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one SHT3x.

    Attributes:
        address: 0x44 with ADDR at ground, 0x45 with ADDR at the supply.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x44 or 0x45")] = 0x44


def humidity_rh(word: int) -> float:
    """Relative humidity in %RH. Source: 4.13."""
    return 100 * word / 65535


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


class Sht3x:
    """An SHT3x that was found and set up; call from the event loop's thread."""

    identity = "SHT3x"

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self._address, self._bus, self._sleep = config.address, bus, sleep
        self._who = f"SHT3x at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """One measurement of both channels."""
        async with self._bus.hold() as held:
            chip = Link(held, self._address, self._who, self._sleep)
            return samples(await chip.fetch(MEASURE, MEASURE_S, 2))

    async def reset(self) -> None:
        """Ends whatever another program started, and looks whether it is a SHT3x.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: its status cannot be right.
        """
        async with self._bus.hold() as held:
            chip = Link(held, self._address, self._who, self._sleep)
            # A soft reset is taken only when it does not measure by itself (4.9).
            await chip.send(BREAK, COMMAND_S)
            await chip.send(SOFT_RESET, RESET_S)
            (status,) = await chip.fetch(STATUS, COMMAND_S, 1)
        if STATUS_BITS.decode(status.to_bytes(2, "big"))["heater"]:
            raise DataError(f"{self._who}: its heater stays on after a reset: is it another chip?")


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Sht3x:
    """Finds the chip and resets it; see `Driver.probe`."""
    device = Sht3x(config, bus, sleep)
    await device.reset()
    return device


class Sim(CommandModel):
    """Register model of an SHT3x in true surroundings.

    Set `temperature_cel` and `humidity_rh` to what is true.

    Args:
        clock: what its times follow.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
        periodic: whether another program has it measure by itself.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        humidity_rh: float = 45.0,
        periodic: bool = False,
    ) -> None:
        super().__init__(clock)
        self.temperature_cel, self.humidity_rh = temperature_cel, humidity_rh
        self.periodic = periodic
        self.heater = False

    def reset(self) -> None:
        """Comes up anew: by command, and after a brown-out."""
        self.periodic = self.heater = False

    def obey(self, command: bytes) -> tuple[float, bytes] | None:
        """While it measures by itself it takes nothing but the command to stop that (4.8)."""
        if command == BREAK:
            self.periodic = False
            return COMMAND_S, b""
        if self.periodic:
            return None
        if command == SOFT_RESET:
            self.reset()
            return RESET_S, b""
        if command == STATUS:
            bits = STATUS_BITS.encode({"heater": self.heater, "reset": 1})
            return 0.0, encode_words(int.from_bytes(bits, "big"))
        if command == MEASURE:
            humidity = round(self.humidity_rh * 65535 / 100)
            return MEASURE_S, encode_words(temperature_word(self.temperature_cel), humidity)
        return None
