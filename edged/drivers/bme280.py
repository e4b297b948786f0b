"""Bosch BME280: temperature, pressure and humidity over I2C.

Source: Bosch BST-BME280-DS002-15, revision 1.6; sections named below are its.
Each reading is one forced measurement (3.3.3): the chip sleeps between, which
keeps its own warmth out of the temperature.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import msgspec

from edged.bus import I2c, I2cTransfers
from edged.clock import Clock
from edged.drivers import Channel, Identity, Info, Sample, Sleep
from edged.errors import DataError, NoDeviceError
from edged.register import Field, Register, signed

CHIP_ID = 0x60

INFO = Info(
    title="BME280 temperature, pressure and humidity",
    compatible=("bosch,bme280",),
    bus="i2c",
    addresses=(0x76, 0x77),
    identity=Identity(register=0xD0, values=(CHIP_ID,)),
    channels=(
        Channel("temperature", "Cel", -40.0, 85.0),
        Channel("pressure", "Pa", 30_000.0, 110_000.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="BST-BME280-DS002-15, revision 1.6 (September 2018)",
)

# Section 5.4.
CTRL_HUM = Register(0xF2, (Field("osrs_h", 0, 3),))
STATUS = Register(0xF3, (Field("measuring", 3), Field("im_update", 0)))
CTRL_MEAS = Register(0xF4, (Field("osrs_t", 5, 3), Field("osrs_p", 2, 3), Field("mode", 0, 2)))
ID, RESET, DATA, DATA_LEN = 0xD0, 0xE0, 0xF7, 8
RESET_WORD = 0xB6
SLEEP_MODE, FORCED_MODE, NORMAL_MODE = 0, 1, 3

START_UP_S = 0.002
"""Table 1, t_startup."""

_SKIPPED_20, _SKIPPED_16 = 0x80000, 0x8000
"""What the data registers hold when a quantity was not measured (5.4.7 to 5.4.9)."""

_POLLS, _POLL_S = 20, 0.001

_OTHER_CHIPS = {
    0x55: "a BMP180",
    0x56: "a BMP280, which has no humidity",
    0x57: "a BMP280, which has no humidity",
    0x58: "a BMP280, which has no humidity",
    0x61: "a BME680",
}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one BME280.

    Attributes:
        address: 0x76 with SDO at ground, 0x77 with SDO at the supply.
        oversampling: samples that the chip averages for each reading.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x76 or 0x77")] = 0x76
    oversampling: Literal[1, 2, 4, 8, 16] = 1


class Calibration(NamedTuple):
    """The trimming parameters `dig_*` (4.2.2, table 16)."""

    t1: int
    t2: int
    t3: int
    p1: int
    p2: int
    p3: int
    p4: int
    p5: int
    p6: int
    p7: int
    p8: int
    p9: int
    h1: int
    h2: int
    h3: int
    h4: int
    h5: int
    h6: int


class Raw(NamedTuple):
    """The converter's values: temperature and pressure of 20 bits, humidity of 16."""

    temperature: int
    pressure: int
    humidity: int


_CALIB_LOW, _CALIB_HIGH = 0x88, 0xE1
_LOW_LAYOUT = struct.Struct("<Hhh H8h xB")
_HIGH_LAYOUT = struct.Struct("<hB3Bb")


def decode_calibration(low: bytes, high: bytes) -> Calibration:
    """The trimming parameters from the chip's memory.

    Shape:
        low: 26 bytes from 0x88, little-endian words; 0xA0 is unused.
        high: 7 bytes from 0xE1; H4 and H5 are 12 bits that share 0xE5.

    Source: 4.2.2, table 16.
    """
    h2, h3, e4, e5, e6, h6 = _HIGH_LAYOUT.unpack(high)
    h4 = signed(e4 << 4 | e5 & 0x0F, 12)
    h5 = signed(e6 << 4 | e5 >> 4, 12)
    return Calibration._make((*_LOW_LAYOUT.unpack(low), h2, h3, h4, h5, h6))


def encode_calibration(cal: Calibration) -> tuple[bytes, bytes]:
    """The inverse of `decode_calibration`, for register models."""
    e4, e6 = cal.h4 >> 4 & 0xFF, cal.h5 >> 4 & 0xFF
    e5 = cal.h4 & 0x0F | (cal.h5 & 0x0F) << 4
    return _LOW_LAYOUT.pack(*cal[:13]), _HIGH_LAYOUT.pack(cal.h2, cal.h3, e4, e5, e6, cal.h6)


def decode_data(data: bytes) -> Raw:
    """The converter's values from one burst.

    Shape:
        data: 8 bytes from 0xF7: pressure and temperature as msb, lsb and the
        upper half of xlsb, humidity as msb, lsb.

    Source: 4 and 5.4.7 to 5.4.9.
    """
    pressure = int.from_bytes(data[0:3], "big") >> 4
    temperature = int.from_bytes(data[3:6], "big") >> 4
    return Raw(temperature, pressure, int.from_bytes(data[6:8], "big"))


def encode_data(raw: Raw) -> bytes:
    """The inverse of `decode_data`, for register models."""
    pressure = (raw.pressure << 4).to_bytes(3, "big")
    temperature = (raw.temperature << 4).to_bytes(3, "big")
    return pressure + temperature + raw.humidity.to_bytes(2, "big")


def fine_temperature(adc: int, cal: Calibration) -> float:
    """Temperature in units of 1/5120 Cel, which the other formulas build on (`t_fine`).

    Source: 8.1; 4.2.3 is the same in integers.
    """
    linear = (adc / 16384 - cal.t1 / 1024) * cal.t2
    square = (adc / 131072 - cal.t1 / 8192) ** 2 * cal.t3
    return linear + square


def temperature_cel(adc: int, cal: Calibration) -> float:
    """Temperature in Cel. Source: 8.1."""
    return fine_temperature(adc, cal) / 5120


def pressure_pa(adc: int, t_fine: int, cal: Calibration) -> float:
    """Pressure in Pa; 0.0 when the parameters would divide by zero. Source: 8.1."""
    fine = t_fine / 2 - 64000
    offset = (fine * fine * cal.p6 / 32768 + fine * cal.p5 * 2) / 4 + cal.p4 * 65536
    scale = (cal.p3 * fine * fine / 524288 + cal.p2 * fine) / 524288
    scale = (1 + scale / 32768) * cal.p1
    if scale == 0:
        return 0.0
    pressure = (1048576 - adc - offset / 4096) * 6250 / scale
    correction = cal.p9 * pressure * pressure / 2147483648 + pressure * cal.p8 / 32768
    return pressure + (correction + cal.p7) / 16


def humidity_rh(adc: int, t_fine: int, cal: Calibration) -> float:
    """Relative humidity in %RH, not yet limited to 0 to 100. Source: 8.1."""
    fine = t_fine - 76800
    bent = 1 + cal.h6 / 67108864 * fine * (1 + cal.h3 / 67108864 * fine)
    humidity = (adc - (cal.h4 * 64 + cal.h5 / 16384 * fine)) * (cal.h2 / 65536 * bent)
    return humidity * (1 - cal.h1 * humidity / 524288)


def samples(raw: Raw, cal: Calibration) -> tuple[Sample, ...]:
    """All channels of one measurement, in the order of `INFO.channels`.

    A quantity that was not measured has no value, and neither have those that
    are computed with it.
    """
    measured_t = raw.temperature != _SKIPPED_20
    t_fine = int(fine_temperature(raw.temperature, cal))
    values = (
        temperature_cel(raw.temperature, cal) if measured_t else None,
        pressure_pa(raw.pressure, t_fine, cal)
        if measured_t and raw.pressure != _SKIPPED_20
        else None,
        humidity_rh(raw.humidity, t_fine, cal)
        if measured_t and raw.humidity != _SKIPPED_16
        else None,
    )
    return tuple(
        _sample(channel, value) for channel, value in zip(INFO.channels, values, strict=True)
    )


def _sample(channel: Channel, value: float | None) -> Sample:
    if value is None:
        return Sample(channel.name, None, "error", "the chip did not measure it")
    limited = min(max(value, channel.low), channel.high)
    if limited != value:
        note = f"beyond the chip's range of {channel.low:g} to {channel.high:g} {channel.unit}"
        return Sample(channel.name, limited, "clipped", note)
    # Finer digits are arithmetic, not measurement (resolutions in 3.4).
    return Sample(channel.name, round(value, 3))


def measurement_s(oversampling: int) -> float:
    """Longest time of one measurement of all three quantities. Source: 9.1."""
    return (1.25 + 3 * 2.3 * oversampling + 2 * 0.575) / 1000


class Bme280:
    """A BME280 that was found and set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep, cal: Calibration) -> None:
        self.identity = f"BME280, id {CHIP_ID:#04x}"
        self._config, self._bus, self._sleep, self._cal = config, bus, sleep, cal

    async def read(self) -> tuple[Sample, ...]:
        """One forced measurement of all channels."""
        async with self._bus.hold() as bus:
            return samples(await self.measure(bus), self._cal)

    async def measure(self, bus: I2cTransfers) -> Raw:
        """The converter's values of one forced measurement, on a held bus."""
        address, oversampling = self._config.address, self._config.oversampling
        code = oversampling.bit_length()
        hum = CTRL_HUM.encode({"osrs_h": code})
        meas = CTRL_MEAS.encode({"osrs_t": code, "osrs_p": code, "mode": FORCED_MODE})
        # ctrl_hum counts only from the next write of ctrl_meas (5.4.3).
        await bus.transfer(address, bytes([CTRL_HUM.address, *hum, CTRL_MEAS.address, *meas]))
        await self._sleep(measurement_s(oversampling))
        await _wait_for(bus, address, "measuring", self._sleep)
        data = await bus.transfer(address, bytes([DATA]), DATA_LEN)
        if data == b"\xff" * DATA_LEN:
            raise NoDeviceError(_silent(self._bus.name, address, 0xFF))
        return decode_data(data)


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Bme280:
    """Finds the chip, resets it and reads its calibration; see `Driver.probe`."""
    address = config.address
    async with bus.hold() as held:
        _check_identity((await held.transfer(address, bytes([ID]), 1))[0], bus.name, address)
        await held.transfer(address, bytes([RESET, RESET_WORD]))
        await sleep(START_UP_S)
        await _wait_for(held, address, "im_update", sleep)
        low = await held.transfer(address, bytes([_CALIB_LOW]), _LOW_LAYOUT.size)
        high = await held.transfer(address, bytes([_CALIB_HIGH]), _HIGH_LAYOUT.size)
        cal = decode_calibration(low, high)
        if cal.t1 in {0, 0xFFFF} or cal.p1 in {0, 0xFFFF}:
            raise DataError(f"BME280 at {address:#04x} on {bus.name}: its calibration is empty")
        device = Bme280(config, bus, sleep, cal)
        # The first measurement after a reset is not trusted.
        await device.measure(held)
    return device


async def _wait_for(bus: I2cTransfers, address: int, bit: str, sleep: Sleep) -> None:
    """Polls the status register until a bit of it is clear."""
    for _ in range(_POLLS):
        status = await bus.transfer(address, bytes([STATUS.address]), STATUS.size)
        if not STATUS.decode(status)[bit]:
            return
        await sleep(_POLL_S)
    raise DataError(f"BME280 at {address:#04x}: status bit {bit!r} stays set; power it off and on")


def _check_identity(chip_id: int, bus: str, address: int) -> None:
    if chip_id == CHIP_ID:
        return
    if chip_id in {0x00, 0xFF}:
        raise NoDeviceError(_silent(bus, address, chip_id))
    other = _OTHER_CHIPS.get(chip_id, "another chip")
    raise DataError(
        f"the chip at {address:#04x} on {bus} is not a BME280: its id is {chip_id:#04x}, {other}"
    )


def _silent(bus: str, address: int, byte: int) -> str:
    level = "ones" if byte else "zeros"
    return f"BME280 at {address:#04x} on {bus} does not answer (all {level}): check its wiring"


SIM_CALIBRATION = Calibration(
    *(27504, 26435, -1000),
    *(36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000),
    *(75, 362, 0, 313, 50, 30),
)
"""Of the simulated chip; T and P are those of Bosch's worked example (BMP280, 3.12)."""


class Sim:
    """Register model of a BME280 in true surroundings.

    Set `temperature_cel`, `pressure_pa` and `humidity_rh` to what is true; a
    measurement puts the raw values into the data registers that the formulas
    turn back into it, as fine as the converter is.

    Args:
        clock: what measuring times and the drift follow.
        temperature_cel: true temperature.
        pressure_pa: true pressure.
        humidity_rh: true relative humidity.
        drift_cel: the temperature swings by this much, once in `DRIFT_PERIOD_S`.
    """

    DRIFT_PERIOD_S = 600.0

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        pressure_pa: float = 101_325.0,
        humidity_rh: float = 45.0,
        drift_cel: float = 0.0,
    ) -> None:
        self.temperature_cel = temperature_cel
        self.pressure_pa = pressure_pa
        self.humidity_rh = humidity_rh
        self.drift_cel = drift_cel
        self._clock = clock
        self._pointer = 0
        self._ready_at = 0.0
        self._osrs_h = 0
        self._memory = bytearray(256)
        self._reset()

    def write(self, data: bytes) -> None:
        """A register address, then a value, then further pairs of both (6.2.1)."""
        self._settle()
        self._pointer = data[0]
        for register, value in zip(data[0::2], data[1::2], strict=False):
            self._set(register, value)

    def read(self, length: int) -> bytes:
        """Bytes from the register that was addressed last, counting up (6.2.2)."""
        self._settle()
        start = self._pointer
        return bytes(self._memory[(start + i) & 0xFF] for i in range(length))

    def _reset(self) -> None:
        low, high = encode_calibration(SIM_CALIBRATION)
        memory = self._memory
        memory[:] = bytes(256)
        memory[ID] = CHIP_ID
        memory[_CALIB_LOW : _CALIB_LOW + len(low)] = low
        memory[_CALIB_HIGH : _CALIB_HIGH + len(high)] = high
        memory[DATA : DATA + DATA_LEN] = encode_data(Raw(_SKIPPED_20, _SKIPPED_20, _SKIPPED_16))
        self._osrs_h = 0
        self._set_status(im_update=1)
        self._ready_at = self._clock.monotonic() + START_UP_S

    def _set(self, register: int, value: int) -> None:
        if register == RESET and value == RESET_WORD:
            self._reset()
        elif register == CTRL_HUM.address:
            self._memory[register] = value & 7
        elif register == CTRL_MEAS.address:
            self._memory[register] = value
            self._osrs_h = self._memory[CTRL_HUM.address]
            if value & 3 != SLEEP_MODE:
                self._start()

    def _start(self) -> None:
        fields = self._fields(CTRL_MEAS)
        longest = max(_times(code) for code in (fields["osrs_t"], fields["osrs_p"], self._osrs_h))
        self._set_status(measuring=1)
        self._ready_at = self._clock.monotonic() + measurement_s(longest)

    def _settle(self) -> None:
        """Brings the registers to the present time."""
        if self._clock.monotonic() < self._ready_at:
            return
        control = self._memory[CTRL_MEAS.address]
        if self._fields(STATUS)["measuring"] or control & 3 == NORMAL_MODE:
            self._memory[DATA : DATA + DATA_LEN] = encode_data(self._convert())
        if control & 3 != NORMAL_MODE:
            self._memory[CTRL_MEAS.address] = control & ~3
        self._set_status()

    def _fields(self, register: Register) -> dict[str, int]:
        return register.decode(bytes(self._memory[register.address : register.address + 1]))

    def _set_status(self, **bits: int) -> None:
        self._memory[STATUS.address : STATUS.address + 1] = STATUS.encode(bits)

    def _convert(self) -> Raw:
        fields = self._fields(CTRL_MEAS)
        cal = SIM_CALIBRATION
        swing = math.sin(2 * math.pi * self._clock.monotonic() / self.DRIFT_PERIOD_S)
        true_cel = self.temperature_cel + self.drift_cel * swing
        exact_t = _inverse(1 << 20, lambda adc: temperature_cel(adc, cal) - true_cel)
        raw_t = _coarse(exact_t, fields["osrs_t"])
        t_fine = int(fine_temperature(raw_t if fields["osrs_t"] else exact_t, cal))
        # Pressure falls while its raw value rises.
        exact_p = _inverse(1 << 20, lambda adc: self.pressure_pa - pressure_pa(adc, t_fine, cal))
        exact_h = _inverse(1 << 16, lambda adc: humidity_rh(adc, t_fine, cal) - self.humidity_rh)
        return Raw(
            raw_t,
            _coarse(exact_p, fields["osrs_p"]),
            exact_h if self._osrs_h else _SKIPPED_16,
        )


def _inverse(size: int, error: Callable[[int], float]) -> int:
    """The raw value below `size` where a rising error is nearest to zero."""
    above = min(bisect_left(range(size), 0.0, key=error), size - 1)
    below = max(above - 1, 0)
    return min(above, below, key=lambda adc: abs(error(adc)))


def _times(code: int) -> int:
    """Samples of an oversampling code: 0 skips, 5 and more is 16 (5.4.5)."""
    return 1 << min(code, 5) - 1 if code else 0


def _coarse(adc: int, code: int) -> int:
    """A 20-bit value as fine as the converter is: 16 bits, one more a doubling (3.4.2, 3.4.3)."""
    if not code:
        return _SKIPPED_20
    step = 16 // _times(code)
    return min((adc + step // 2) // step * step, (1 << 20) - step)
