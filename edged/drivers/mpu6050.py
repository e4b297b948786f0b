"""InvenSense MPU-6050 and its kin: acceleration, rotation and temperature over I2C.

Source: RM-MPU-6000A-00, revision 4.2 (register map), PS-MPU-6000A-00 (data
sheet); RM-MPU-6500A-00 and RM-MPU-9250A-00 have the same registers. Many boards
that are sold as MPU-6050 carry another chip of the family; its identity is said,
and picks the formula of the temperature.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, NamedTuple

import msgspec

from edged.bus import I2c, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Identity, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError
from edged.register import Field, Register, signed
from edged.units import Quality


class Variant(NamedTuple):
    """One chip of the family: its temperature is raw / `divisor` + `offset` in Cel."""

    name: str
    divisor: float
    offset: float


VARIANTS = {
    0x68: Variant("MPU-6050", 340.0, 36.53),
    0x70: Variant("MPU-6500", 333.87, 21.0),
    0x71: Variant("MPU-9250", 333.87, 21.0),
    0x72: Variant("an unknown relative of the MPU-6500", 333.87, 21.0),
    0x73: Variant("MPU-9255", 333.87, 21.0),
    0x98: Variant("ICM-20689", 326.8, 25.0),
}
"""By `WHO_AM_I` (4.32; PS-MPU-6500A-01, 3.4.2; PS-MPU-9250A-01, 3.4.2; DS-000143, 3.5)."""
_UNKNOWN = 0x72

INFO = Info(
    title="MPU-6050 family acceleration and rotation",
    compatible=("invensense,mpu6050", "invensense,mpu6500", "invensense,mpu9250"),
    bus="i2c",
    addresses=(0x68, 0x69),
    identity=Identity(register=0x75, values=tuple(VARIANTS)),
    datasheet="RM-MPU-6000A-00, revision 4.2 (August 2013)",
)

# Section 4 of the register map.
FILTER, RANGES, DATA, POWER, WHO_AM_I = 0x1A, 0x1B, 0x3B, 0x6B, 0x75
DATA_LEN = 14
GYRO_RANGE = Register(0x1B, (Field("fs_sel", 3, 2),))
ACCEL_RANGE = Register(0x1C, (Field("afs_sel", 3, 2),))
FILTER_44_HZ = 3
RESET, SLEEP, CLOCK_GYRO = 0x80, 0x40, 0x01

RESET_S, START_UP_S = 0.1, 0.1
"""4.28 (device reset); gyro start-up 30 ms and filter settling (data sheet, 6.1)."""

STANDARD_GRAVITY = 9.80665
_AXES = ("x", "y", "z")
_ACCEL_RANGES, _GYRO_RANGES = (2, 4, 8, 16), (250, 500, 1000, 2000)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one MPU-6050 or relative.

    Attributes:
        address: 0x68 with AD0 at ground, 0x69 with AD0 at the supply.
        accel_range_g: highest acceleration in g (9.80665 m/s2); less is finer.
        gyro_range_dps: highest rotation in degrees a second; less is finer.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x68 or 0x69")] = 0x68
    accel_range_g: Literal[2, 4, 8, 16] = 2
    gyro_range_dps: Literal[250, 500, 1000, 2000] = 250


def channels(config: Config) -> tuple[Channel, ...]:
    """Acceleration and rotation by axis, and the chip's own temperature."""
    accel = config.accel_range_g * STANDARD_GRAVITY
    gyro = math.radians(config.gyro_range_dps)
    return (
        *(Channel(f"accel_{axis}", "m/s2", -accel, accel) for axis in _AXES),
        *(Channel(f"gyro_{axis}", "rad/s", -gyro, gyro) for axis in _AXES),
        Channel("temperature", "Cel", -40.0, 85.0),
    )


def encode_ranges(config: Config) -> bytes:
    """The two range registers from 0x1B on. Source: 4.4, 4.5."""
    gyro = GYRO_RANGE.encode({"fs_sel": _GYRO_RANGES.index(config.gyro_range_dps)})
    accel = ACCEL_RANGE.encode({"afs_sel": _ACCEL_RANGES.index(config.accel_range_g)})
    return gyro + accel


class Raw(NamedTuple):
    """The measured values of one instant, as they are."""

    accel: tuple[int, int, int]
    temperature: int
    gyro: tuple[int, int, int]


def decode_data(data: bytes) -> Raw:
    """The values of one burst, which the chip takes at the same instant.

    Shape:
        data: 14 bytes from 0x3B, big-endian words in two's complement:
        acceleration x, y, z; temperature; rotation x, y, z.

    Source: 4.17 to 4.19.
    """
    words = [signed(int.from_bytes(data[i : i + 2], "big"), 16) for i in range(0, DATA_LEN, 2)]
    ax, ay, az, temperature, gx, gy, gz = words
    return Raw((ax, ay, az), temperature, (gx, gy, gz))


def encode_data(raw: Raw) -> bytes:
    """The inverse of `decode_data`, for register models."""
    words = (*raw.accel, raw.temperature, *raw.gyro)
    return b"".join((word & 0xFFFF).to_bytes(2, "big") for word in words)


def temperature_cel(raw: int, variant: Variant) -> float:
    """Temperature of the chip in Cel. Source: 4.18; PS-MPU-6500A-01, 3.4.2."""
    return raw / variant.divisor + variant.offset


def samples(raw: Raw, who_am_i: int, config: Config) -> tuple[Sample, ...]:
    """All channels of one instant, in the order of `channels`.

    Source: 4.17 (16384 steps a g at the range of 2 g), 4.19 (131 a degree a
    second at the range of 250).
    """
    g_step = config.accel_range_g / 0x8000 * STANDARD_GRAVITY
    # 131 and not 131.072: the range's name is rounded.
    dps_step = config.gyro_range_dps / 250 / 131
    found = [
        _axis(f"accel_{axis}", value, round(value * g_step, 5))
        for axis, value in zip(_AXES, raw.accel, strict=True)
    ]
    found += [
        _axis(f"gyro_{axis}", value, round(math.radians(value * dps_step), 6))
        for axis, value in zip(_AXES, raw.gyro, strict=True)
    ]
    celsius = round(temperature_cel(raw.temperature, VARIANTS[who_am_i]), 2)
    quality: Quality = "suspect" if who_am_i == _UNKNOWN else "ok"
    note = "the formula is another chip's: this one's is not known" if quality != "ok" else ""
    return (*found, Sample("temperature", celsius, quality, note))


def _axis(channel: str, code: int, value: float) -> Sample:
    if code in {0x7FFF, -0x8000}:
        note = "at the end of its range: configure a larger one"
        return Sample(channel, value, "clipped", note)
    return Sample(channel, value)


class Mpu6050:
    """A chip of the family that was found and set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, who_am_i: int) -> None:
        self.identity = f"{VARIANTS[who_am_i].name}, id {who_am_i:#04x}"
        self._config, self._bus, self._who_am_i = config, bus, who_am_i

    async def read(self) -> tuple[Sample, ...]:
        """All channels of one instant, after a look whether the chip is still set up."""
        address = self._config.address
        async with self._bus.hold() as bus:
            (power,) = await bus.transfer(address, bytes([POWER]), 1)
            ranges = await bus.transfer(address, bytes([RANGES]), 2)
            data = await bus.transfer(address, bytes([DATA]), DATA_LEN)
        # Asleep, the data registers read zeros, or the last values for ever.
        if power & SLEEP and power != 0xFF:
            raise self._fault("is asleep")
        if data in {bytes(DATA_LEN), b"\xff" * DATA_LEN}:
            raise NoDeviceError(_silent(self._bus.name, address, data[0]))
        if power != CLOCK_GYRO or ranges != encode_ranges(self._config):
            raise self._fault("lost its settings")
        return samples(decode_data(data), self._who_am_i, self._config)

    def _fault(self, state: str) -> DataError:
        return DataError(
            f"{self.identity} at {self._config.address:#04x} on {self._bus.name} {state}: "
            "its supply dipped, or another program uses it"
        )


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Mpu6050:
    """Finds the chip by its identity, resets it and wakes it; see `Driver.probe`."""
    address = config.address
    async with bus.hold() as held:
        (who_am_i,) = await held.transfer(address, bytes([WHO_AM_I]), 1)
        _check_identity(who_am_i, bus.name, address)
        await held.transfer(address, bytes([POWER, RESET]))
        await sleep(RESET_S)
        await held.transfer(address, bytes([POWER, CLOCK_GYRO]))
        await held.transfer(address, bytes([FILTER, FILTER_44_HZ]))
        await held.transfer(address, bytes([RANGES, *encode_ranges(config)]))
        await sleep(START_UP_S)
    return Mpu6050(config, bus, who_am_i)


def _check_identity(who_am_i: int, bus: str, address: int) -> None:
    if who_am_i in VARIANTS:
        return
    if who_am_i in {0x00, 0xFF}:
        raise NoDeviceError(_silent(bus, address, who_am_i))
    known = ", ".join(f"{one:#04x}" for one in VARIANTS)
    raise DataError(
        f"the chip at {address:#04x} on {bus} is not of the MPU-6050 family: its id is "
        f"{who_am_i:#04x} and not one of {known} (a DS3231 clock is at 0x68 too)"
    )


def _silent(bus: str, address: int, byte: int) -> str:
    return silent(f"MPU-6050 at {address:#04x} on {bus}", "ones" if byte else "zeros")


class Sim:
    """Register model of a chip of the family.

    Args:
        clock: what the start-up follows.
        who_am_i: which one.
        accel: true acceleration in m/s2 by axis; at rest the axis that points up
            has that of gravity. May be changed, as all that follows.
        gyro: true rotation in rad/s by axis.
        temperature_cel: true temperature.
    """

    GYRO_START_S = 0.03

    def __init__(
        self,
        clock: Clock,
        *,
        who_am_i: int = 0x68,
        accel: tuple[float, float, float] = (0.0, 0.0, STANDARD_GRAVITY),
        gyro: tuple[float, float, float] = (0.0, 0.0, 0.0),
        temperature_cel: float = 25.0,
    ) -> None:
        self.who_am_i, self.accel, self.gyro = who_am_i, accel, gyro
        self.temperature_cel = temperature_cel
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Power-on: asleep, all else zero (3); also the bit of `PWR_MGMT_1`."""
        self._pointer = 0
        self._memory = bytearray(128)
        self._memory[POWER] = SLEEP
        self._memory[WHO_AM_I] = self.who_am_i
        self._awake_since: float | None = None

    def write(self, data: bytes) -> None:
        """A register's number, then values for it and those after it."""
        self._pointer = data[0]
        for offset, value in enumerate(data[1:]):
            self._set(data[0] + offset & 0x7F, value)

    def read(self, length: int) -> bytes:
        """Bytes from the addressed register on."""
        if self._awake_since is not None:
            self._memory[DATA : DATA + DATA_LEN] = encode_data(self._measured())
        start = self._pointer
        return bytes(self._memory[start + i & 0x7F] for i in range(length))

    def _set(self, register: int, value: int) -> None:
        if register == POWER and value & RESET:
            self.reset()
        elif register in {FILTER, GYRO_RANGE.address, ACCEL_RANGE.address, POWER}:
            self._memory[register] = value
            if register == POWER:
                # Asleep it measures nothing: the registers keep their last values.
                self._awake_since = None if value & SLEEP else self._clock.monotonic()

    def _measured(self) -> Raw:
        gyro_range = _GYRO_RANGES[self._memory[GYRO_RANGE.address] >> 3 & 3]
        accel_range = _ACCEL_RANGES[self._memory[ACCEL_RANGE.address] >> 3 & 3]
        per_g, per_dps = 0x8000 / accel_range, 131 * 250 / gyro_range
        running = self._clock.monotonic() - (self._awake_since or 0.0) >= self.GYRO_START_S
        gx, gy, gz = (_code(math.degrees(one) * per_dps) if running else 0 for one in self.gyro)
        ax, ay, az = (_code(one / STANDARD_GRAVITY * per_g) for one in self.accel)
        variant = VARIANTS.get(self.who_am_i, VARIANTS[_UNKNOWN])
        temperature = _code((self.temperature_cel - variant.offset) * variant.divisor)
        return Raw((ax, ay, az), temperature, (gx, gy, gz))


def _code(exact: float) -> int:
    return min(max(round(exact), -0x8000), 0x7FFF)
