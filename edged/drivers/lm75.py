"""LM75 and its kin TMP75, TMP102, TMP105: temperature over I2C.

Source: TI LM75B/LM75C datasheet SNIS153B; NXP LM75B data sheet, revision 6.1; TI TMP105
datasheet SLLS648D and TMP106 datasheet SLLS672A (converter resolution); TI TMP102
datasheet SBOS397C.
The chips measure by themselves, over and over. None tells which of the family it is, so
the configuration says it: they differ in how many bits of the temperature are meant.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Identity, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError
from edged.register import signed

TEMPERATURE, CONFIGURATION, LOW_LIMIT, HIGH_LIMIT = 0x00, 0x01, 0x02, 0x03
"""SNIS153B, pointer register."""

RESET_LOW_LIMIT = 0x4B00
"""75 °C, of the whole family (SNIS153B, THYST; SLLS648D and SBOS397C, TLOW)."""

INFO = Info(
    title="LM75, TMP75, TMP102, TMP105 temperature",
    compatible=(
        "national,lm75",
        "national,lm75a",
        "national,lm75b",
        "ti,tmp75",
        "ti,tmp102",
        "ti,tmp105",
    ),
    bus="i2c",
    addresses=tuple(range(0x48, 0x50)),
    # There is no identity register.
    identity=Identity(LOW_LIMIT, (RESET_LOW_LIMIT,), size=2, decisive=False),
    channels=(Channel("temperature", "Cel", -55.0, 125.0),),
    datasheet="SNIS153B, LM75B/LM75C, March 2013",
)

SHUTDOWN = 0x01
RESOLUTION_SHIFT, RESOLUTION_MASK = 5, 0x60
"""SLLS648D, configuration register: R1 and R0. An LM75 tests itself by these bits."""
ALERT_MASK = 0x1E
"""Fault queue, polarity, mode: of the alert pin, which is none of ours."""

LIMIT_BITS = 9
"""Of the limits those that all chips have."""
LOWEST_CEL = -128.0

BITS = {"lm75": 9, "lm75b": 11, "tmp75": 12, "tmp102": 12, "tmp105": 12}
"""Of a measurement, by chip. The TMP75 and TMP105 can be told to take fewer."""
SETTABLE = frozenset({"tmp75", "tmp105"})

MEASUREMENT_S, TYPICAL_S = 0.3, 0.22
"""Time of one measurement: TMP105 at 12 bits; an LM75 takes no longer."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one chip.

    Attributes:
        address: 0x48 to 0x4F by its pins.
        chip: what is printed on it; a TMP175 or TMP275 is a tmp75, NXP's LM75A an lm75b.
        resolution: bits of a measurement of a TMP75 or TMP105, 12 by default: each fewer
            halves its time (0.22 s) and doubles the step (0.0625 °C).
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x48 to 0x4F")] = 0x48
    chip: Literal["lm75", "lm75b", "tmp75", "tmp102", "tmp105"] = "lm75"
    resolution: Literal[9, 10, 11, 12] | None = None

    def __post_init__(self) -> None:
        if self.resolution is not None and self.chip not in SETTABLE:
            bits = BITS[self.chip]
            raise ValueError(f"resolution: that of the {self.chip} is always {bits}: remove it")

    @property
    def bits(self) -> int:
        """Bits of a measurement."""
        return self.resolution or BITS[self.chip]


def temperature_cel(word: int, bits: int) -> float:
    """Temperature in Cel of a register, whose further bits are not defined.

    Source: SNIS153B, temperature register; SLLS648D, table 5.
    """
    return signed(word >> 16 - bits, bits) / (1 << bits - 8)


def extended_cel(word: int) -> float:
    """Temperature in Cel of a TMP102 in extended mode, 13 bits.

    Source: SBOS397C, table 6.
    """
    return signed(word >> 3, 13) / 16


def sample(word: int, config: Config) -> Sample:
    """The sample of a temperature register."""
    if config.chip == "tmp102" and word & 1:
        # Someone else switched it to extended mode, and the chip marks its data so.
        value = extended_cel(word)
    else:
        value = temperature_cel(word, config.bits)
    (channel,) = INFO.channels
    limit = min(max(value, channel.low), channel.high)
    raw = word.to_bytes(2, "big")
    if limit != value:
        note = f"{value:g} Cel is beyond the chip's range of {channel.low:g} to {channel.high:g}"
        return Sample(channel.name, limit, "clipped", note, raw)
    return Sample(channel.name, value, raw=raw)


class Lm75:
    """A chip that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = config.chip.upper()
        self._config, self._bus, self._sleep = config, bus, sleep
        self._who = f"{self.identity} at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """The measurement that the chip ended last."""
        async with self._bus.hold() as bus:
            await self._keep_running(bus)
            word = await self._word(bus, TEMPERATURE)
            if self._steps(word) == 0:
                # So it reads from power-on until it has measured; then the next one counts.
                await self._sleep(MEASUREMENT_S)
                word = await self._word(bus, TEMPERATURE)
            if self._steps(word) in {0, -1}:
                await self._check_presence(bus, self._steps(word))
        return (sample(word, self._config),)

    async def check(self) -> None:
        """Refuse another chip at this address, as far as its registers show it.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: its limits can be none.
        """
        async with self._bus.hold() as bus:
            limits = await self._limits(bus)
        low, high = (temperature_cel(limit, LIMIT_BITS) for limit in limits)
        if not LOWEST_CEL < low <= high:
            # An ADS1115 at the same address has -128 and 127.5 there.
            raise DataError(
                f"{self._who} has alert limits of {low:g} and {high:g} °C, which cannot be: "
                "another chip is at this address, such as an ADS1115"
            )

    async def _keep_running(self, bus: I2cTransfers) -> None:
        """A chip that lost its supply has a coarse resolution; one in shutdown an old value."""
        configuration = await self._configuration(bus)
        if self._is_set(configuration):
            return
        wanted = configuration & ALERT_MASK | self._resolution
        await bus.transfer(self._config.address, bytes([CONFIGURATION, wanted]))
        if not self._is_set(await self._configuration(bus)):
            raise DataError(
                f"{self._who} does not keep its settings: set chip in its options to what is "
                "printed on it; lm75 suits all"
            )
        await self._sleep(MEASUREMENT_S)

    @property
    def _resolution(self) -> int:
        """Bits of the configuration register; zeros where they must be."""
        settable = self._config.chip in SETTABLE
        return self._config.bits - 9 << RESOLUTION_SHIFT if settable else 0

    def _is_set(self, configuration: int) -> bool:
        mask = SHUTDOWN | (RESOLUTION_MASK if self._config.chip in SETTABLE else 0)
        return configuration & mask == self._resolution

    async def _configuration(self, bus: I2cTransfers) -> int:
        data = await bus.transfer(self._config.address, bytes([CONFIGURATION]), 1)
        if data == b"\xff":
            # Some of its bits are always zero, or the chip is one that was shut down.
            raise NoDeviceError(silent(self._who))
        return data[0]

    async def _limits(self, bus: I2cTransfers) -> list[int]:
        return [await self._word(bus, limit) for limit in (LOW_LIMIT, HIGH_LIMIT)]

    async def _word(self, bus: I2cTransfers, register: int) -> int:
        # Both bytes always: after one alone an LM75 may hold the data line (SNIS153B, page 11).
        return int.from_bytes(
            await bus.transfer(self._config.address, bytes([register]), 2), "big"
        )

    def _steps(self, word: int) -> int:
        """What the bits that count hold."""
        return signed(word >> 16 - self._config.bits, self._config.bits)

    async def _check_presence(self, bus: I2cTransfers, steps: int) -> None:
        """All zeros and all ones are temperatures: no chip is there if its limits are so too."""
        limits = {
            signed(limit >> 16 - LIMIT_BITS, LIMIT_BITS) for limit in await self._limits(bus)
        }
        if limits == {steps}:
            raise NoDeviceError(silent(self._who, "zeros" if steps == 0 else "ones"))


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Lm75:
    """Finds the chip, and has it measure; see `Driver.probe`."""
    device = Lm75(config, bus, sleep)
    await device.read()
    await device.check()
    return device


class Sim:
    """Register model of one chip in true surroundings: set `temperature_cel`.

    Args:
        clock: what its times follow.
        temperature_cel: true temperature.
        chip: a key of `BITS`.
    """

    def __init__(self, clock: Clock, *, temperature_cel: float = 21.5, chip: str = "lm75") -> None:
        self.temperature_cel = temperature_cel
        self._clock, self._chip = clock, chip
        self.reset()

    def reset(self) -> None:
        """Comes up anew, as after a brown-out."""
        self._pointer = TEMPERATURE
        self._configuration = RESOLUTION_MASK if self._chip == "tmp102" else 0
        # The upper one is 80 °C.
        self._limits = {LOW_LIMIT: RESET_LOW_LIMIT.to_bytes(2, "big"), HIGH_LIMIT: b"\x50\x00"}
        self._word = 0
        self._began = self._clock.monotonic()

    def write(self, data: bytes) -> None:
        """Pointer, then what the register is to hold."""
        self._pointer = data[0] & 0x03
        if self._pointer == CONFIGURATION and len(data) > 1:
            self._measure()
            kept = RESOLUTION_MASK if self._chip in SETTABLE else 0
            fixed = self._configuration & ~(kept | ALERT_MASK | SHUTDOWN)
            self._configuration = fixed | data[1] & (kept | ALERT_MASK | SHUTDOWN)
            self._began = self._clock.monotonic()
        elif self._pointer in self._limits and len(data) > 2:
            self._limits[self._pointer] = data[1:3]

    def read(self, length: int) -> bytes:
        """The register that the pointer names."""
        self._measure()
        if self._pointer == CONFIGURATION:
            data = bytes([self._configuration])
        elif self._pointer == TEMPERATURE:
            data = self._word.to_bytes(2, "big")
        else:
            data = self._limits[self._pointer]
        return data[:length].ljust(length, b"\xff")

    def _measure(self) -> None:
        """Takes over what is true, if the chip runs and had time for it."""
        if self._configuration & SHUTDOWN:
            return
        if self._clock.monotonic() - self._began >= TYPICAL_S:
            bits = BITS[self._chip]
            if self._chip in SETTABLE:
                bits = 9 + (self._configuration >> RESOLUTION_SHIFT & 3)
            top = 1 << bits - 1
            steps = max(-top, min(round(self.temperature_cel * (1 << bits - 8)), top - 1))
            self._word = (steps & (1 << bits) - 1) << 16 - bits
