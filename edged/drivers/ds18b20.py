"""Maxim DS18B20, DS1822 and DS18S20: temperature over 1-wire, by the kernel's w1_therm driver.

Source: Maxim DS18B20, revision 6 (07/19), DS18S20 (19-7474, revision 2) and the
kernel's drivers/w1/slaves/w1_therm.c; sections named below are the DS18B20's.
What is decoded is the scratchpad, so that what only looks like a temperature
is told from one: the values after power-on, at a low supply, on a shorted line.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from edged.bus import OneWire, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import DataError, NoDeviceError
from edged.register import signed

INFO = Info(
    title="DS18B20, DS1822, DS18S20 temperature (1-wire)",
    compatible=("maxim,ds18b20", "maxim,ds1822", "maxim,ds18s20"),
    bus="w1",
    channels=(Channel("temperature", "Cel", -55.0, 125.0),),
    datasheet="Maxim DS18B20, revision 6 (July 2019)",
)

FAMILIES = {"28": "DS18B20", "22": "DS1822", "10": "DS18S20"}
"""By the first two digits of the id (64-bit ROM code)."""

SCRATCHPAD_LEN = 9
POWER_ON_REMAIN = 0x0C
"""Byte 6 as it stands after power-on; a conversion to 85 Cel leaves 0x10 there."""

_POWER_ON = {"28": 0x0550, "22": 0x0550, "10": 0x00AA}
_LOW_SUPPLY = 0x07FF


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one thermometer.

    Attributes:
        id: which one, `28-0316a2795bff`; needed where there are several.
        resolution: bits, 9 to 12; a bit less halves the time of a measurement of
            0.75 s. None leaves the chip as it is. Setting it needs root's rights.
    """

    id: (
        Annotated[
            str,
            msgspec.Meta(pattern="^(28|22|10)-[0-9a-f]{12}$", examples=["28-0316a2795bff"]),
        ]
        | None
    ) = None
    resolution: Literal[9, 10, 11, 12] | None = None


class Reading(NamedTuple):
    """What a scratchpad says.

    Attributes:
        temperature_cel: temperature.
        resolution: bits that count.
    """

    temperature_cel: float
    resolution: int


def crc8(data: bytes) -> int:
    """CRC-8 of 1-wire: x^8 + x^5 + x^4 + 1, lowest bit first, from 0; with its own CRC it is 0.

    Source: DS18B20, CRC generation; Maxim application note 27.
    """
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x8C if crc & 1 else crc >> 1
    return crc


def parse(text: str) -> bytes:
    """The scratchpad of a `w1_slave` file: its first line is what the chip sent.

    Shape:
        returns: 9 bytes: temperature LSB and MSB, TH, TL, configuration, three
        more, CRC.

    Raises:
        DataError: it is not such a file.

    Source: drivers/w1/slaves/w1_therm.c, `w1_slave_show`.
    """
    match = re.match(r"((?:[0-9a-f]{2} ){9}): crc=[0-9a-f]{2} (?:YES|NO)\n", text + "\n")
    if match is None:
        raise DataError(f"the kernel shows no scratchpad but {text[:80]!r}")
    return bytes.fromhex(match[1])


def decode(scratchpad: bytes, family: str = "28") -> Reading:
    """The temperature in a scratchpad.

    Args:
        scratchpad: 9 bytes, as `parse` gives them.
        family: a key of `FAMILIES`.

    Raises:
        NoDeviceError: all ones: nothing pulls the line low.
        DataError: a wrong CRC, or what is no measurement.

    Source: DS18B20, figure 4, table 1 and memory; DS18S20, temperature measurement.
    """
    if scratchpad == b"\xff" * SCRATCHPAD_LEN:
        raise NoDeviceError("does not answer (all ones): check its wiring")
    if not any(scratchpad):
        raise DataError("reads all zeros: its data line is shorted to ground")
    if crc8(scratchpad):
        raise DataError("the checksum is wrong: a long or noisy line, or a weak pull-up")
    code = signed(int.from_bytes(scratchpad[:2], "little"), 16)
    if code == _POWER_ON[family] and scratchpad[6] == POWER_ON_REMAIN:
        raise DataError(
            "gives the 85 °C of its power-on and no measurement: its supply drops, or is too "
            "weak for a conversion (parasite power)"
        )
    if family == "10":
        return _decode_ds18s20(code, scratchpad)
    if code == _LOW_SUPPLY:
        raise DataError("gives 127.94 °C, which it does when its supply is too low")
    # R1 and R0 of the configuration register, table 2; below 12 bits the low ones are undefined.
    resolution = 9 + (scratchpad[4] >> 5 & 3)
    return Reading((code & -(1 << (12 - resolution))) / 16, resolution)


def _decode_ds18s20(code: int, scratchpad: bytes) -> Reading:
    """Half degrees, made finer by the counters COUNT REMAIN and COUNT PER °C."""
    remain, per_degree = scratchpad[6:8]
    if per_degree == 0 or remain > per_degree:
        raise DataError(f"its counters make no sense: {remain} of {per_degree}")
    return Reading((code >> 1) - 0.25 + (per_degree - remain) / per_degree, 12)


class Ds18b20:
    """A thermometer that was found; call from the event loop's thread."""

    def __init__(self, bus: OneWire, device: str) -> None:
        self.identity = f"{FAMILIES[device[:2]]} {device}"
        self._bus, self._device = bus, device

    async def read(self) -> tuple[Sample, ...]:
        """One conversion, of 0.75 s at 12 bits."""
        (channel,) = INFO.channels
        value, _ = await self.measure()
        limit = min(max(value, channel.low), channel.high)
        if limit != value:
            return (Sample(channel.name, limit, "clipped", "beyond the chip's range"),)
        return (Sample(channel.name, value),)

    async def measure(self) -> Reading:
        """One conversion, decoded."""
        text = await self._bus.read(self._device, "w1_slave")
        try:
            return decode(parse(text), self._device[:2])
        except (DataError, NoDeviceError) as error:
            raise type(error)(f"{self.identity}: {error}") from None

    async def set_resolution(self, resolution: int) -> None:
        """Sets the bits of a conversion, until the chip loses its power.

        Raises:
            DataError: the chip stays as it is, as counterfeits of it do.
            BusError: edged may not write it.
        """
        if self._device.startswith("10"):
            raise DataError(f"{self.identity} has but one resolution: remove `resolution`")
        await self._bus.write(self._device, "resolution", str(resolution))
        found = (await self.measure()).resolution
        if found != resolution:
            raise DataError(
                f"{self.identity} stays at {found} bits, as many counterfeits do: "
                "remove `resolution`"
            )


async def probe(config: Config, bus: OneWire, sleep: Sleep) -> Ds18b20:  # noqa: ARG001  the kernel's driver waits
    """Finds the thermometer and measures once; see `Driver.probe`."""
    device = Ds18b20(bus, config.id or _only(await bus.devices()))
    found = (await device.measure()).resolution
    if config.resolution is not None and config.resolution != found:
        await device.set_resolution(config.resolution)
    return device


def _only(devices: Sequence[str]) -> str:
    """The one thermometer among the devices of the board."""
    found = [device for device in devices if device[:2] in FAMILIES]
    if len(found) == 1:
        return found[0]
    if found:
        raise NoDeviceError(f"there are several thermometers, name one: {', '.join(found)}")
    if any(device.startswith("00-") for device in devices):
        raise NoDeviceError(
            "no 1-wire thermometer, but phantoms (00-…): its data line lacks a pull-up of 4.7 kΩ"
        )
    raise NoDeviceError(
        "no 1-wire thermometer: check power, data line and its pull-up of 4.7 kΩ, and "
        "dtoverlay=w1-gpio in /boot/firmware/config.txt"
    )


def encode(temperature_cel: float, resolution: int = 12) -> bytes:
    """The scratchpad of a DS18B20 after a conversion, for models."""
    code = math.floor(temperature_cel * 16) & -(1 << (12 - resolution)) & 0xFFFF
    configuration = (resolution - 9) << 5 | 0x1F
    data = code.to_bytes(2, "little") + bytes([0x4B, 0x46, configuration, 0xFF])
    # A conversion leaves here what is left of its last degree, in sixteenths.
    data += bytes([0x10 - (code & 0x0F), 0x10])
    return data + bytes([crc8(data)])


POWER_ON_SCRATCHPAD = bytes.fromhex("50054b467fff0c101c")


class Sim:
    """Model of a DS18B20 as w1_therm shows it.

    Args:
        clock: what the drift follows.
        device: its id.
        temperature_cel: true temperature.
        drift_cel: the temperature swings by this much, once in `DRIFT_PERIOD_S`.
    """

    DRIFT_PERIOD_S = 900.0

    def __init__(
        self,
        clock: Clock,
        *,
        device: str = "28-0316a2795bff",
        temperature_cel: float = 18.0,
        drift_cel: float = 0.0,
    ) -> None:
        self.devices = {device: self}
        self.temperature_cel = temperature_cel
        self.drift_cel = drift_cel
        self.scratchpad: bytes | None = None
        """What the chip sends in place of a measurement, `POWER_ON_SCRATCHPAD`."""
        self.fixed_resolution = False
        """A counterfeit that takes no other."""
        self._resolution = 12
        self._clock = clock

    def file(self, attribute: str) -> str | int:
        """A file of its directory; a number is an errno."""
        data = self.scratchpad or self._convert()
        crc = crc8(data[:-1])
        shown = data.hex(" ")
        verdict = "YES" if crc == data[-1] else "NO"
        millis = signed(int.from_bytes(data[:2], "little"), 16) * 1000 // 16
        files = {
            "w1_slave": f"{shown} : crc={crc:02x} {verdict}\n{shown} t={millis}\n",
            "temperature": f"{millis}\n",
            "resolution": f"{self._resolution}\n",
            "ext_power": "1\n",
        }
        return files.get(attribute, errno.ENOENT)

    def write(self, attribute: str, text: str) -> None:
        """Only `resolution` does anything."""
        if attribute == "resolution" and not self.fixed_resolution:
            self._resolution = int(text)

    def _convert(self) -> bytes:
        phase = 2 * math.pi * self._clock.monotonic() / self.DRIFT_PERIOD_S
        return encode(self.temperature_cel + self.drift_cel * math.sin(phase), self._resolution)
