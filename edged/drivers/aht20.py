"""Aosong AHT20 and AHT10: temperature and humidity over I2C.

Source: Aosong AHT20 datasheet, version 1.1, and AHT10 datasheet, version 1.1;
sections named below are the AHT20's. The chips take commands and have no
registers; neither says which of the two it is, so the configuration does.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.bus.faults import NackError
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._crc import crc8
from edged.drivers._sample import limited, silent
from edged.errors import DataError, NoDeviceError

INFO = Info(
    title="AHT20 or AHT10 temperature and humidity",
    compatible=("aosong,aht20", "aosong,aht10"),
    bus="i2c",
    addresses=(0x38, 0x39),
    channels=(
        Channel("temperature", "Cel", -40.0, 85.0),
        Channel("humidity", "%RH", 0.0, 100.0),
    ),
    datasheet="AHT20 datasheet, version 1.1",
)

# Section 5.3, table 9.
STATUS, MEASURE = b"\x71", b"\xac\x33\x00"
INIT = {"aht20": b"\xbe\x08\x00", "aht10": b"\xe1\x08\x00"}
BUSY, CALIBRATED = 0x80, 0x08
READY = {"aht20": 0x18, "aht10": CALIBRATED}
"""Bits of the status without which the chip must be initialised (5.4, step 1)."""

FRAME_LEN = {"aht20": 7, "aht10": 6}
"""Status, five bytes of data, and of the AHT20 a CRC (5.4, step 4)."""

START_UP_S = 0.1
INIT_S = 0.01
MEASURE_S = 0.08
_POLLS, _POLL_S = 10, 0.01

Chip = Literal["aht20", "aht10"]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one AHT20 or AHT10.

    Attributes:
        address: 0x38; an AHT10 may be at 0x39.
        chip: which of the two; the AHT21 and AHT25 are as the AHT20, the AHT15 as the AHT10.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x38 or 0x39")] = 0x38
    chip: Chip = "aht20"


def decode_frame(frame: bytes) -> tuple[int, int]:
    """Raw humidity and temperature, 20 bits each.

    Shape:
        frame: status, humidity, humidity, humidity's last 4 bits and
        temperature's first 4, temperature, temperature; then perhaps a CRC.

    Source: 5.4, step 5, figure 15.
    """
    both = int.from_bytes(frame[1:6], "big")
    return both >> 20, both & 0xFFFFF


def encode_frame(status: int, humidity: int, temperature: int, chip: Chip = "aht20") -> bytes:
    """The inverse of `decode_frame`, for register models."""
    frame = bytes([status]) + (humidity << 20 | temperature).to_bytes(5, "big")
    return frame + bytes([crc8(frame)]) if chip == "aht20" else frame


def samples(frame: bytes) -> tuple[Sample, Sample]:
    """All channels of one frame. Source: 6.1, 6.2."""
    humidity, temperature = decode_frame(frame)
    return (
        limited(INFO.channels[0], temperature * 200 / 2**20 - 50, frame),
        limited(INFO.channels[1], humidity * 100 / 2**20, frame),
    )


class Aht20:
    """An AHT20 or AHT10 that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = config.chip.upper()
        self._config, self._bus, self._sleep = config, bus, sleep
        self._who = f"{self.identity} at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """One measurement of both channels."""
        async with self._bus.hold() as bus:
            await bus.transfer(self._config.address, MEASURE)
            await self._sleep(MEASURE_S)
            frame = await self._frame(bus)
        chip = self._config.chip
        if chip == "aht20" and crc8(frame[:6]) != frame[6]:
            raise DataError(
                f"{self._who}: the checksum is wrong: noise, or it is an AHT10 (chip: aht10)"
            )
        if not frame[0] & CALIBRATED:
            raise DataError(f"{self._who}: it lost its calibration: its supply dipped")
        return samples(frame)

    async def initialise(self) -> None:
        """Has the chip load its calibration if it did not.

        Raises:
            NoDeviceError, BusError: it does not answer.
            DataError: it stays without calibration.
        """
        chip = self._config.chip
        async with self._bus.hold() as bus:
            await self._sleep(START_UP_S)
            if await self._status(bus) & READY[chip] == READY[chip]:
                return
            await bus.transfer(self._config.address, INIT[chip])
            await self._sleep(INIT_S)
            status = await self._status(bus)
        if not status & CALIBRATED:
            raise DataError(f"{self._who}: it stays without calibration: is it an {chip}?")

    async def _status(self, bus: I2cTransfers) -> int:
        status = (await bus.transfer(self._config.address, STATUS, 1))[0]
        if status == 0xFF:
            raise NoDeviceError(silent(self._who))
        return status

    async def _frame(self, bus: I2cTransfers) -> bytes:
        """The frame of a measurement that is over."""
        for _ in range(_POLLS):
            length = FRAME_LEN[self._config.chip]
            frame = await bus.transfer(self._config.address, b"", length)
            if frame == b"\xff" * length:
                raise NoDeviceError(silent(self._who))
            if not frame[0] & BUSY:
                return frame
            await self._sleep(_POLL_S)
        raise DataError(f"{self._who}: its measurement does not end: power it off and on")


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Aht20:
    """Finds the chip and has it load its calibration; see `Driver.probe`."""
    device = Aht20(config, bus, sleep)
    await device.initialise()
    return device


class Sim:
    """Register model of an AHT20 or AHT10 in true surroundings.

    Set `temperature_cel` and `humidity_rh` to what is true.

    Args:
        clock: what its times follow.
        temperature_cel: true temperature.
        humidity_rh: true relative humidity.
        chip: which of the two.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        temperature_cel: float = 21.5,
        humidity_rh: float = 45.0,
        chip: Chip = "aht20",
    ) -> None:
        self.temperature_cel, self.humidity_rh = temperature_cel, humidity_rh
        self._clock, self._chip = clock, chip
        self._busy_until = 0.0
        self._raw = 0, 0
        self._ready = 0

    def reset(self) -> None:
        """Comes up anew, as after a brown-out: without its calibration."""
        self._ready = 0
        self._raw = 0, 0

    def write(self, data: bytes) -> None:
        """A command; another chip's initialisation is not acknowledged."""
        if data == INIT[self._chip]:
            self._ready = READY[self._chip]
        elif data == MEASURE:
            self._busy_until = self._clock.monotonic() + MEASURE_S
            self._raw = (
                min(round(self.humidity_rh * 2**20 / 100), 0xFFFFF),
                round((self.temperature_cel + 50) * 2**20 / 200),
            )
        elif data != STATUS:
            raise NackError

    def read(self, length: int) -> bytes:
        """The status, and what was measured last."""
        busy = BUSY if self._clock.monotonic() < self._busy_until else 0
        frame = encode_frame(busy | self._ready, *self._raw, self._chip)
        return frame[:length].ljust(length, b"\xff")
