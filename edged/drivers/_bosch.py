"""What Bosch's BME280 and BMP280 have in common: registers, formulas, measuring.

Source: Bosch BST-BME280-DS002-15, revision 1.6; sections named below are its.
The BMP280 (BST-BMP280-DS001-26) is the same without humidity. Each reading is
one forced measurement (3.3.3): the chip sleeps between, which keeps its own
warmth out of the temperature.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, NamedTuple

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.drivers import Channel, Sample
from edged.drivers._sample import limited, silent
from edged.errors import DataError, NoDeviceError
from edged.register import Field, Register, signed

TEMPERATURE = Channel("temperature", "Cel", -40.0, 85.0)
PRESSURE = Channel("pressure", "Pa", 30_000.0, 110_000.0)
HUMIDITY = Channel("humidity", "%RH", 0.0, 100.0)

BME280_ID = 0x60
BMP280_IDS = (0x58, 0x56, 0x57)
"""5.4.1; BMP280 datasheet, 4.3.1. Samples of the BMP280 have 0x56 and 0x57."""

_OTHER_IDS = {0x55: "a BMP180", 0x61: "a BME680"}

# Section 5.4.
CTRL_HUM = Register(0xF2, (Field("osrs_h", 0, 3),))
STATUS = Register(0xF3, (Field("measuring", 3), Field("im_update", 0)))
CTRL_MEAS = Register(0xF4, (Field("osrs_t", 5, 3), Field("osrs_p", 2, 3), Field("mode", 0, 2)))
ID, RESET, DATA = 0xD0, 0xE0, 0xF7
RESET_WORD = 0xB6
SLEEP_MODE, FORCED_MODE, NORMAL_MODE = 0, 1, 3

START_UP_S = 0.002
"""Table 1, t_startup."""

SKIPPED_20, SKIPPED_16 = 0x80000, 0x8000
"""What the data registers hold when a quantity was not measured (5.4.7 to 5.4.9)."""

_POLLS, _POLL_S = 20, 0.001


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one chip.

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


NOTHING = Raw(SKIPPED_20, SKIPPED_20, SKIPPED_16)
"""What a chip shows that measured nothing since its reset (4, 5.4.7 to 5.4.9)."""


CALIB_LOW, CALIB_HIGH = 0x88, 0xE1
_LOW_LAYOUT = struct.Struct("<Hhh H8h xB")
_HIGH_LAYOUT = struct.Struct("<hB3Bb")


def decode_calibration(low: bytes, high: bytes) -> Calibration:
    """The trimming parameters from the chip's memory.

    Shape:
        low: 26 bytes from 0x88, little-endian words; 0xA0 is unused.
        high: 7 bytes from 0xE1; H4 and H5 are 12 bits that share 0xE5. A BMP280
            has none: what it gives there is of no use, and is not used.

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
        upper half of xlsb, humidity as msb, lsb; a BMP280 has only the first 6.

    Source: 4 and 5.4.7 to 5.4.9.
    """
    pressure = int.from_bytes(data[0:3], "big") >> 4
    temperature = int.from_bytes(data[3:6], "big") >> 4
    humidity = int.from_bytes(data[6:8], "big") if data[6:] else SKIPPED_16
    return Raw(temperature, pressure, humidity)


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


def samples(
    raw: Raw, cal: Calibration, *, all_measured: bool = False
) -> tuple[Sample, Sample, Sample]:
    """Temperature, pressure and humidity of one measurement.

    A quantity that was not measured has no value, and neither have those that
    are computed with it.

    Args:
        raw: the converter's values.
        cal: the chip's trimming parameters.
        all_measured: what looks like a quantity left out is a value of half the range.
    """
    if all_measured:
        skipped_20 = skipped_16 = -1
    else:
        skipped_20, skipped_16 = SKIPPED_20, SKIPPED_16
    measured_t = raw.temperature != skipped_20
    t_fine = int(fine_temperature(raw.temperature, cal))
    temperature = temperature_cel(raw.temperature, cal) if measured_t else None
    pressure = humidity = None
    if measured_t and raw.pressure != skipped_20:
        pressure = pressure_pa(raw.pressure, t_fine, cal)
    if measured_t and raw.humidity != skipped_16:
        humidity = humidity_rh(raw.humidity, t_fine, cal)
    return (
        _sample(TEMPERATURE, temperature),
        _sample(PRESSURE, pressure),
        _sample(HUMIDITY, humidity),
    )


def _sample(channel: Channel, value: float | None) -> Sample:
    if value is None:
        return Sample(channel.name, None, "error", "the chip did not measure it")
    return limited(channel, value)


def measurement_s(oversampling: int, *, humidity: bool = True) -> float:
    """Longest time of one measurement of all quantities.

    Source: 9.1; BMP280 datasheet, 3.8.1.
    """
    quantities = 3 if humidity else 2
    return (1.25 + quantities * 2.3 * oversampling + (quantities - 1) * 0.575) / 1000


def identity(chip_id: int, wanted: str) -> str:
    """What the chip is, and what that means for whoever configured the `wanted` one."""
    name = "BME280" if chip_id == BME280_ID else "BMP280"
    said = f"{name}, id {chip_id:#04x}"
    if name == wanted:
        return said
    if name == "BMP280":
        return f"{said}: a BMP280 sold as a BME280 has no humidity"
    return f"{said}: for its humidity configure the driver bme280"


class Chip(NamedTuple):
    """What was found.

    Attributes:
        who: for messages: `BME280 at 0x76 on i2c-1`.
        identity: what it says it is.
        humidity: whether that is measured.
        cal: its trimming parameters.
    """

    who: str
    identity: str
    humidity: bool
    cal: Calibration


class Bosch280:
    """A chip that was found and set up; call from the event loop's thread."""

    def __init__(self, settings: Settings, bus: I2c, sleep: Sleep, chip: Chip) -> None:
        self.identity = chip.identity
        self._settings, self._bus, self._sleep, self._chip = settings, bus, sleep, chip

    async def read(self) -> tuple[Sample, ...]:
        """One forced measurement of all that the chip has."""
        async with self._bus.hold() as bus:
            data = await self.measure(bus)
        raw = decode_data(data)
        # All are measured, or none where the chip forgot its settings.
        found = samples(raw, self._chip.cal, all_measured=raw != NOTHING)
        return tuple(
            sample._replace(raw=data) for sample in (found if self._chip.humidity else found[:2])
        )

    async def measure(self, bus: I2cTransfers) -> bytes:
        """The data registers after one forced measurement, on a held bus."""
        address, oversampling = self._settings.address, self._settings.oversampling
        humidity = self._chip.humidity
        code = oversampling.bit_length()
        write = bytes(
            [
                CTRL_MEAS.address,
                *CTRL_MEAS.encode({"osrs_t": code, "osrs_p": code, "mode": FORCED_MODE}),
            ]
        )
        if humidity:
            # ctrl_hum counts only from the next write of ctrl_meas (5.4.3).
            write = bytes([CTRL_HUM.address, *CTRL_HUM.encode({"osrs_h": code})]) + write
        await bus.transfer(address, write)
        await self._sleep(measurement_s(oversampling, humidity=humidity))
        await _wait_for(bus, address, "measuring", self._sleep, self._chip.who)
        data = await bus.transfer(address, bytes([DATA]), 8 if humidity else 6)
        if data == b"\xff" * len(data):
            raise NoDeviceError(silent(self._chip.who))
        return data


async def probe(wanted: str, settings: Settings, bus: I2c, sleep: Sleep) -> Bosch280:
    """Finds the chip, resets it and reads its calibration; see `Driver.probe`.

    Args:
        wanted: the driver's name for it, `BME280` or `BMP280`.
        settings: of the driver.
        bus: where it is.
        sleep: how to wait.
    """
    address = settings.address
    who = f"{wanted} at {address:#04x} on {bus.name}"
    async with bus.hold() as held:
        chip_id = (await held.transfer(address, bytes([ID]), 1))[0]
        _check_identity(chip_id, wanted, who)
        await held.transfer(address, bytes([RESET, RESET_WORD]))
        await sleep(START_UP_S)
        await _wait_for(held, address, "im_update", sleep, who)
        low = await held.transfer(address, bytes([CALIB_LOW]), _LOW_LAYOUT.size)
        high = await held.transfer(address, bytes([CALIB_HIGH]), _HIGH_LAYOUT.size)
        cal = decode_calibration(low, high)
        if cal.t1 in {0, 0xFFFF} or cal.p1 in {0, 0xFFFF}:
            raise DataError(f"{who}: its calibration is empty")
        humidity = wanted == "BME280" and chip_id == BME280_ID
        device = Bosch280(
            settings, bus, sleep, Chip(who, identity(chip_id, wanted), humidity, cal)
        )
        # The first measurement after a reset is not trusted.
        await device.measure(held)
    return device


async def _wait_for(bus: I2cTransfers, address: int, bit: str, sleep: Sleep, who: str) -> None:
    """Polls the status register until a bit of it is clear."""
    for _ in range(_POLLS):
        status = await bus.transfer(address, bytes([STATUS.address]), STATUS.size)
        if not STATUS.decode(status)[bit]:
            return
        await sleep(_POLL_S)
    raise DataError(f"{who}: status bit {bit!r} stays set; power it off and on")


def _check_identity(chip_id: int, wanted: str, who: str) -> None:
    if chip_id == BME280_ID or chip_id in BMP280_IDS:
        return
    if chip_id in {0x00, 0xFF}:
        raise NoDeviceError(silent(who, "ones" if chip_id else "zeros"))
    other = _OTHER_IDS.get(chip_id, "another chip")
    raise DataError(f"{who} is not a {wanted}: its id is {chip_id:#04x}, {other}")
