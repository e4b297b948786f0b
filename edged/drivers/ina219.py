"""Texas Instruments INA219: voltage, current and power of a line over I2C.

Source: SBOS448G; sections named below are its. What it has in common with the
INA226 is in `_ina`.
"""

from __future__ import annotations

from typing import Literal

from edged.bus import I2c, Sleep
from edged.clock import Clock
from edged.drivers import Identity, Info
from edged.drivers._ina import (
    BUS,
    CALIBRATION,
    CONFIG,
    CURRENT,
    POWER,
    SHUNT,
    Chip,
    Ina,
    InaConfig,
    channels,
    check_silent,
)
from edged.errors import DataError
from edged.register import Field, Register

__all__ = ["INFO", "SIM_CONFIG", "Config", "Sim", "channels", "probe"]

INFO = Info(
    title="INA219 voltage, current and power",
    compatible=("ti,ina219",),
    bus="i2c",
    addresses=tuple(range(0x40, 0x50)),
    # There is no identity register: this is the configuration after a reset and
    # as this driver leaves it, whatever the range of the shunt's voltage.
    identity=Identity(register=0x00, values=(0x2198,), size=2, mask=0xE7F8),
    datasheet="SBOS448G, INA219 (December 2015)",
)

CHIP = Chip(
    name="INA219",
    factor=0.04096,
    # Bit 0 is always 0 (8.6.4).
    calibration_mask=0xFFFE,
    shunt_max_v=0.32,
    shunt_step_v=10e-6,
    bus_max_v=26.0,
    bus_step_v=4e-3,
    bus_shift=3,
    power_steps=20,
    # The register of the line's voltage has the flags too (8.6.3.2).
    flags=BUS,
    done=1 << 1,
    overflow=1 << 0,
)

# Section 8.6.2.1.
SETTINGS = Register(
    CONFIG,
    (
        Field("rst", 15),
        Field("brng", 13),
        Field("pg", 11, 2),
        Field("badc", 7, 4),
        Field("sadc", 3, 4),
        Field("mode", 0, 3),
    ),
    size=2,
)
RESET_CONFIG = 0x399F
TRIGGERED = 3
"""Mode: one conversion of shunt and bus (table 6)."""
GAINS_V = (0.04, 0.08, 0.16, 0.32)
"""Ranges of the shunt's voltage, by code of `pg` (table 4)."""


class Config(InaConfig, frozen=True, kw_only=True):
    """Settings of one INA219; see `InaConfig`.

    Attributes:
        samples: conversions that the chip averages for each reading, which holds the
            bus all that time.
    """

    CHIP = CHIP

    samples: Literal[1, 2, 4, 8, 16, 32, 64, 128] = 1

    @property
    def gain(self) -> int:
        """The code of the smallest range of the shunt's voltage that will do (table 4)."""
        volts = self.max_a * self.shunt_ohms / 1.0001
        return next(code for code, limit in enumerate(GAINS_V) if volts <= limit)

    @property
    def shunt_limit(self) -> int:
        """The code at the end of the range (8.6.3.1)."""
        return round(GAINS_V[self.gain] / CHIP.shunt_step_v)


SIM_CONFIG = {"shunt_ohms": 0.1}
"""Settings without a default, for the simulated chip."""


def encode_config(config: Config) -> bytes:
    """The configuration that starts one conversion; 2 bytes. Source: 8.6.2.1."""
    # From 2 samples on: 1xxx, the exponent of the number (table 5).
    adc = 0b1000 | config.samples.bit_length() - 1 if config.samples > 1 else 0b0011
    fields = {"brng": 1, "pg": config.gain, "badc": adc, "sadc": adc, "mode": TRIGGERED}
    return SETTINGS.encode(fields)


def conversion_s(samples: int) -> float:
    """Longest time of one conversion of shunt and bus. Source: 6.5 (586 us of 12 bits)."""
    return 2 * samples * 586e-6


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Ina:
    """Finds the chip by its reset value and calibrates it; see `Driver.probe`."""
    address = config.address
    device = Ina(
        config,
        bus,
        sleep,
        identity="INA219 (it has no id)",
        start=encode_config(config),
        conversion_s=conversion_s(config.samples),
    )
    async with bus.hold() as held:
        seen = int.from_bytes(await held.transfer(address, bytes([CONFIG]), 2), "big")
        check_silent(seen, f"INA219 at {address:#04x} on {bus.name}")
        # Nothing is written to a chip that cannot be it: bits 15 and 14 read 0.
        if seen & 0xC000 == 0:
            await held.transfer(address, bytes([CONFIG, *SETTINGS.encode({"rst": 1})]))
            seen = int.from_bytes(await held.transfer(address, bytes([CONFIG]), 2), "big")
        if seen != RESET_CONFIG:
            other = ": an INA226?" if seen & 0xF000 == 0x4000 else ""
            raise DataError(
                f"the chip at {address:#04x} on {bus.name} is not an INA219: its configuration "
                f"reads {seen:#06x} after a reset and not {RESET_CONFIG:#06x}{other}"
            )
        await device.calibrate(held)
    return device


class Sim:
    """Register model of an INA219 on a line.

    Args:
        clock: what conversion times follow.
        shunt_ohms: of the resistor.
        volts: true voltage at the load; may be changed.
        amperes: true current through the shunt; may be changed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        shunt_ohms: float = 0.1,
        volts: float = 5.1,
        amperes: float = 0.42,
    ) -> None:
        self.shunt_ohms, self.volts, self.amperes = shunt_ohms, volts, amperes
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Power-on (8.6.1); also the bit `rst`."""
        self._pointer = 0
        self._registers = [RESET_CONFIG, 0, 0, 0, 0, 0]
        self._ready_at: float | None = None

    def write(self, data: bytes) -> None:
        """A register's number, then its two bytes."""
        self._settle()
        self._pointer = data[0]
        if len(data) != 3:
            return
        word = int.from_bytes(data[1:], "big")
        if self._pointer == CALIBRATION:
            self._registers[CALIBRATION] = word & ~1
        elif self._pointer == CONFIG:
            self._configure(word)

    def read(self, length: int) -> bytes:
        """The addressed register; reading the power clears the flag `cnvr`."""
        self._settle()
        known = self._pointer < len(self._registers)
        word = self._registers[self._pointer] if known else 0
        if self._pointer == POWER:
            self._registers[BUS] &= ~2
        return word.to_bytes(2, "big").ljust(length, b"\xff")[:length]

    def _configure(self, word: int) -> None:
        if word & 0x8000:
            self.reset()
            return
        self._registers[CONFIG] = word
        if self._fields()["mode"] == TRIGGERED:
            self._registers[BUS] &= ~2
            averaged = [code & 7 if code & 8 else 0 for code in self._adc_codes()]
            duration = sum(532e-6 * (1 << exponent) for exponent in averaged)
            self._ready_at = self._clock.monotonic() + duration

    def _adc_codes(self) -> tuple[int, int]:
        fields = self._fields()
        return fields["badc"], fields["sadc"]

    def _settle(self) -> None:
        if self._ready_at is None or self._clock.monotonic() < self._ready_at:
            return
        self._ready_at = None
        limit = round(GAINS_V[self._fields()["pg"]] / CHIP.shunt_step_v)
        shunt = round(self.amperes * self.shunt_ohms / CHIP.shunt_step_v)
        shunt = min(max(shunt, -limit), limit)
        bus = min(max(round(self.volts / CHIP.bus_step_v), 0), 8000)
        current = shunt * self._registers[CALIBRATION] // 4096
        power = abs(current) * bus // 5000
        overflow = not -0x8000 <= current <= 0x7FFF or power > 0xFFFF
        self._registers[SHUNT] = shunt & 0xFFFF
        self._registers[BUS] = bus << 3 | 2 | overflow
        self._registers[CURRENT] = current & 0xFFFF
        self._registers[POWER] = power & 0xFFFF

    def _fields(self) -> dict[str, int]:
        return SETTINGS.decode(self._registers[CONFIG].to_bytes(2, "big"))
