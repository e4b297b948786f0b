"""Texas Instruments INA226: voltage, current and power of a line over I2C.

Source: SBOS547A; sections named below are its. What it has in common with the
INA219 is in `_ina`.
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

# Section 7.6 (register maps).
FLAGS, MANUFACTURER, DIE = 0x06, 0xFE, 0xFF
MANUFACTURER_ID, DIE_ID = 0x5449, 0x2260

INFO = Info(
    title="INA226 voltage, current and power",
    compatible=("ti,ina226",),
    bus="i2c",
    addresses=tuple(range(0x40, 0x50)),
    # The lowest four bits are the revision.
    identity=Identity(register=DIE, values=(DIE_ID,), size=2, mask=0xFFF0),
    datasheet="SBOS547A, INA226 (August 2015)",
)

CHIP = Chip(
    name="INA226",
    factor=0.00512,
    # Bit 15 is not there (7.6.6).
    calibration_mask=0x7FFF,
    shunt_max_v=0.08192,
    shunt_step_v=2.5e-6,
    bus_max_v=36.0,
    bus_step_v=1.25e-3,
    bus_shift=0,
    power_steps=25,
    # Mask/enable (7.6.7).
    flags=FLAGS,
    done=1 << 3,
    overflow=1 << 2,
)

# Section 7.6.1.
SETTINGS = Register(
    CONFIG,
    (
        Field("rst", 15),
        Field("one", 14),
        Field("avg", 9, 3),
        Field("vbusct", 6, 3),
        Field("vshct", 3, 3),
        Field("mode", 0, 3),
    ),
    size=2,
)
RESET_CONFIG = 0x4127
TRIGGERED, USUAL_TIME = 3, 4
"""Mode: one conversion of shunt and bus; of 1.1 ms each (tables 7 to 9)."""
_AVERAGES = (1, 4, 16, 64, 128, 256, 512, 1024)
"""Samples by code of `avg` (table 6)."""


class Config(InaConfig, frozen=True, kw_only=True):
    """Settings of one INA226; see `InaConfig`.

    Attributes:
        samples: conversions that the chip averages for each reading, which holds the
            bus all that time.
    """

    CHIP = CHIP

    samples: Literal[1, 4, 16, 64, 128, 256, 512, 1024] = 1


SIM_CONFIG = {"shunt_ohms": 0.1}
"""Settings without a default, for the simulated chip."""


def encode_config(config: Config) -> bytes:
    """The configuration that starts one conversion; 2 bytes. Source: 7.6.1."""
    return SETTINGS.encode(
        {
            "one": 1,
            "avg": _AVERAGES.index(config.samples),
            "vbusct": USUAL_TIME,
            "vshct": USUAL_TIME,
            "mode": TRIGGERED,
        }
    )


def conversion_s(samples: int) -> float:
    """Longest time of one conversion of shunt and bus. Source: 6.5 (1.21 ms each)."""
    return 2 * samples * 1.21e-3


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Ina:
    """Finds the chip by its identity and calibrates it; see `Driver.probe`."""
    address = config.address
    async with bus.hold() as held:
        maker = int.from_bytes(await held.transfer(address, bytes([MANUFACTURER]), 2), "big")
        die = int.from_bytes(await held.transfer(address, bytes([DIE]), 2), "big")
        check_silent(maker, f"INA226 at {address:#04x} on {bus.name}")
        if (maker, die & 0xFFF0) != (MANUFACTURER_ID, DIE_ID):
            raise DataError(
                f"the chip at {address:#04x} on {bus.name} is not an INA226: its ids are "
                f"{maker:#06x} and {die:#06x}"
            )
        device = Ina(
            config,
            bus,
            sleep,
            identity=f"INA226, id {die:#06x}",
            start=encode_config(config),
            conversion_s=conversion_s(config.samples),
        )
        await held.transfer(address, bytes([CONFIG, *SETTINGS.encode({"rst": 1})]))
        await device.calibrate(held)
    return device


class Sim:
    """Register model of an INA226 on a line.

    Args:
        clock: what conversion times follow.
        shunt_ohms: of the resistor.
        volts: true voltage at VBUS; may be changed.
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
        """Power-on (7.6); also the bit `rst`."""
        self._pointer = 0
        self._registers = {
            **dict.fromkeys(range(8), 0),
            CONFIG: RESET_CONFIG,
            MANUFACTURER: MANUFACTURER_ID,
            DIE: DIE_ID,
        }
        self._ready_at: float | None = None

    def write(self, data: bytes) -> None:
        """A register's number, then its two bytes."""
        self._settle()
        self._pointer = data[0]
        if len(data) != 3:
            return
        word = int.from_bytes(data[1:], "big")
        if self._pointer == CALIBRATION:
            self._registers[CALIBRATION] = word & CHIP.calibration_mask
        elif self._pointer == CONFIG:
            self._configure(word)

    def read(self, length: int) -> bytes:
        """The addressed register; reading the flags clears `cvrf` (7.6.7)."""
        self._settle()
        word = self._registers.get(self._pointer, 0)
        if self._pointer == FLAGS:
            self._registers[FLAGS] &= ~CHIP.done
        return word.to_bytes(2, "big").ljust(length, b"\xff")[:length]

    def _configure(self, word: int) -> None:
        if word & 0x8000:
            self.reset()
            return
        self._registers[CONFIG] = word
        fields = SETTINGS.decode(word.to_bytes(2, "big"))
        if fields["mode"] == TRIGGERED:
            self._registers[FLAGS] &= ~CHIP.done
            times = _TIMES_S[fields["vbusct"]] + _TIMES_S[fields["vshct"]]
            self._ready_at = self._clock.monotonic() + times * _AVERAGES[fields["avg"]]

    def _settle(self) -> None:
        if self._ready_at is None or self._clock.monotonic() < self._ready_at:
            return
        self._ready_at = None
        shunt = round(self.amperes * self.shunt_ohms / CHIP.shunt_step_v)
        shunt = min(max(shunt, -0x8000), 0x7FFF)
        bus = min(max(round(self.volts / CHIP.bus_step_v), 0), 0x7FFF)
        current = int(shunt * self._registers[CALIBRATION] / 2048)
        power = abs(current) * bus // 20_000
        overflow = not -0x8000 <= current <= 0x7FFF or power > 0xFFFF
        self._registers |= {
            SHUNT: shunt & 0xFFFF,
            BUS: bus,
            CURRENT: current & 0xFFFF,
            POWER: power & 0xFFFF,
            FLAGS: CHIP.done | (CHIP.overflow if overflow else 0),
        }


_TIMES_S = (140e-6, 204e-6, 332e-6, 588e-6, 1.1e-3, 2.116e-3, 4.156e-3, 8.244e-3)
"""Conversion times by code of `vbusct` and `vshct` (tables 7 and 8)."""
