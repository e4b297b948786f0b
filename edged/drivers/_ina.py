"""What the INA219 and the INA226 have in common: registers, calibration, measuring.

Each reading is one triggered conversion. The chips forget their calibration when
their supply dips, and then read a current of 0: so that register is read before
each measurement.

Source: SBOS448G (INA219), 8.5 and 8.6; SBOS547A (INA226), 7.5 and 7.6.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.drivers import Channel, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError
from edged.register import signed

CONFIG, SHUNT, BUS, POWER, CURRENT, CALIBRATION = 0x00, 0x01, 0x02, 0x03, 0x04, 0x05

_POLLS, _POLL_S = 20, 0.001


class Chip(NamedTuple):
    """What the two differ in.

    Attributes:
        name: for people.
        factor: of the calibration, in ohm ampere.
        calibration_mask: bits that the calibration register has.
        shunt_max_v: voltage on the shunt that can be measured.
        shunt_step_v: worth of a step of the shunt's voltage.
        bus_max_v: voltage that the pin for the line stands.
        bus_step_v: worth of a step of the line's voltage.
        bus_shift: bits below the line's voltage in its register.
        power_steps: a step of power is that many steps of current, at 1 V.
        flags: register that says when a conversion is done.
        done: bit of it.
        overflow: bit of it that current and power do not fit their registers.
    """

    name: str
    factor: float
    calibration_mask: int
    shunt_max_v: float
    shunt_step_v: float
    bus_max_v: float
    bus_step_v: float
    bus_shift: int
    power_steps: int
    flags: int
    done: int
    overflow: int


class InaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of one chip.

    Attributes:
        address: by the pins A0 and A1.
        shunt_ohms: of the resistor on the board, which the chip cannot know:
            marked R100 (0.1), R010 (0.01) or R002 (0.002).
        max_current_a: the highest current to measure; less is finer. None is
            what the chip can measure at most with this shunt.
    """

    CHIP: ClassVar[Chip]

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x40 to 0x4f")] = 0x40
    shunt_ohms: Annotated[float, msgspec.Meta(gt=0, description="ohms: R100 is 0.1")]
    max_current_a: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        volts, limit = self.max_a * self.shunt_ohms, self.CHIP.shunt_max_v
        if volts > limit * 1.0001:
            raise ValueError(
                f"max_current_a: {self.max_a:g} A make {volts:g} V on the shunt: more than the "
                f"chip's {limit:g} V; take a smaller shunt"
            )
        _ = self.calibration

    @property
    def max_a(self) -> float:
        """The highest current to measure in A."""
        return self.max_current_a or self.CHIP.shunt_max_v / self.shunt_ohms

    @property
    def calibration(self) -> int:
        """The calibration register; its `ValueError` is that of `calibration`."""
        return calibration(self.CHIP, self.max_a / 0x8000, self.shunt_ohms)

    @property
    def current_step_a(self) -> float:
        """Worth of a step of current: the calibration holds whole numbers."""
        return self.CHIP.factor / (self.calibration * self.shunt_ohms)

    @property
    def shunt_limit(self) -> int:
        """The code at which the shunt's voltage is at the end of its range."""
        return 0x7FFF


def calibration(chip: Chip, current_step_a: float, shunt_ohms: float) -> int:
    """The calibration register: it tells the chip what a step of current is worth.

    Raises:
        ValueError: it does not fit the register.

    Source: INA219 8.5.1, INA226 7.5.1: equation 1.
    """
    # A hair more: 20479.999999 is the arithmetic of floats, not another step.
    value = int(chip.factor / (current_step_a * shunt_ohms) * (1 + 1e-12))
    highest = chip.calibration_mask
    if value > highest or not value & highest:
        word = "raise" if value > highest else "lower"
        raise ValueError(
            f"{word} max_current_a: with this shunt_ohms the calibration would be {value}, "
            f"which is not within 1 to {highest}"
        )
    return value & highest


def channels(config: InaConfig) -> tuple[Channel, ...]:
    """What is measured: `voltage` is that of the line against ground."""
    amperes, volts, chip = config.max_a, config.CHIP.bus_max_v, config.CHIP
    return (
        Channel("voltage", "V", 0.0, volts),
        Channel("current", "A", -amperes, amperes),
        Channel("power", "W", -amperes * volts, amperes * volts),
        Channel("shunt_voltage", "V", -chip.shunt_max_v, chip.shunt_max_v),
    )


class Raw(NamedTuple):
    """The flags and data registers of one conversion, as they are."""

    flags: int
    bus: int
    shunt: int
    current: int
    power: int


def samples(raw: Raw, config: InaConfig) -> tuple[Sample, ...]:
    """All channels of one conversion, in the order of `channels`.

    The power register is a magnitude; it gets the sign of the current.

    Source: INA219 8.6.3, INA226 7.6.2 to 7.6.5; equations 2 to 5 and 2 to 4.
    """
    chip, step = config.CHIP, config.current_step_a
    shunt, current = signed(raw.shunt, 16), signed(raw.current, 16)
    amperes = round(current * step, 7)
    watts = round((-1 if current < 0 else 1) * raw.power * chip.power_steps * step, 6)
    found = (
        Sample("voltage", round((raw.bus >> chip.bus_shift) * chip.bus_step_v, 5)),
        Sample("current", amperes),
        Sample("power", watts),
        Sample("shunt_voltage", round(shunt * chip.shunt_step_v, 7)),
    )
    if abs(shunt) >= config.shunt_limit:
        limit = config.shunt_limit * chip.shunt_step_v / config.shunt_ohms
        note = f"at or beyond {limit:.4g} A, the end of its range"
        return found[0], *(one._replace(quality="clipped", note=note) for one in found[1:])
    if raw.flags & chip.overflow:
        note = f"more than {config.max_a:g} A: raise max_current_a"
        lost = (one._replace(value=None, quality="error", note=note) for one in found[1:3])
        return found[0], *lost, found[3]
    return found


class Ina:
    """A chip that was found and set up; call from the event loop's thread.

    Args:
        config: its settings.
        bus: where it is.
        sleep: how to wait.
        identity: what it says it is, for people.
        start: the configuration that starts one conversion.
        conversion_s: the longest that it takes.
    """

    def __init__(
        self,
        config: InaConfig,
        bus: I2c,
        sleep: Sleep,
        *,
        identity: str,
        start: bytes,
        conversion_s: float,
    ) -> None:
        self.identity = identity
        self._config, self._bus, self._sleep = config, bus, sleep
        self._start, self._conversion_s = start, conversion_s

    async def read(self) -> tuple[Sample, ...]:
        """One conversion of all channels."""
        async with self._bus.hold() as bus:
            return samples(await self._measure(bus), self._config)

    async def calibrate(self, bus: I2cTransfers) -> None:
        """Writes the calibration if it is not there, as after a dip of the supply.

        Raises:
            NoDeviceError: what is read back is all ones or all zeros.
            DataError: another value is read back.
        """
        wanted = self._config.calibration
        if await self._word(bus, CALIBRATION) == wanted:
            return
        await self._write(bus, CALIBRATION, wanted.to_bytes(2, "big"))
        seen = await self._word(bus, CALIBRATION)
        if seen != wanted:
            check_silent(seen, self._place)
            raise DataError(
                f"{self._place} does not keep its calibration (reads {seen:#06x}): another chip?"
            )

    async def _measure(self, bus: I2cTransfers) -> Raw:
        await self.calibrate(bus)
        await self._write(bus, CONFIG, self._start)
        await self._sleep(self._conversion_s)
        return Raw(
            await self._flags(bus),
            await self._word(bus, BUS),
            await self._word(bus, SHUNT),
            await self._word(bus, CURRENT),
            await self._word(bus, POWER),
        )

    async def _flags(self, bus: I2cTransfers) -> int:
        """The flags, once they say that the conversion is done."""
        chip = self._config.CHIP
        for _ in range(_POLLS):
            flags = await self._word(bus, chip.flags)
            # Zeros are flags; ones are not: either chip has bits there that read 0.
            if flags == 0xFFFF:
                check_silent(flags, self._place)
            if flags & chip.done:
                return flags
            await self._sleep(_POLL_S)
        raise DataError(f"{self._place}: a conversion does not end; power it off and on")

    async def _word(self, bus: I2cTransfers, register: int) -> int:
        data = await bus.transfer(self._config.address, bytes([register]), 2)
        return int.from_bytes(data, "big")

    async def _write(self, bus: I2cTransfers, register: int, value: bytes) -> None:
        await bus.transfer(self._config.address, bytes([register, *value]))

    @property
    def _place(self) -> str:
        return f"{self._config.CHIP.name} at {self._config.address:#04x} on {self._bus.name}"


def check_silent(word: int, place: str) -> None:
    """Refuses a register that reads all the same.

    Args:
        word: of 16 bits.
        place: `INA219 at 0x40 on i2c-1`.

    Raises:
        NoDeviceError: all ones or all zeros.
    """
    if word in {0x0000, 0xFFFF}:
        raise NoDeviceError(silent(place, "ones" if word else "zeros"))
