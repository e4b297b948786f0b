"""A satellite receiver (GPS, Galileo ...) that speaks NMEA 0183, over serial.

Source: NMEA 0183, version 4.1: sentences RMC, GGA and VTG of any talker. A
reading is made of sentences that came after it was asked for. What has a wrong
checksum is never looked into.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import reduce
from operator import xor
from typing import NamedTuple

import msgspec

from edged.bus import SerialPort, SerialSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import DataError, NoDeviceError

INFO = Info(
    title="NMEA satellite receiver: position, speed",
    compatible=("u-blox,neo-6m", "u-blox,neo-m8", "mediatek,mt3339"),
    bus="serial",
    channels=(
        Channel("lat", "lat", -90.0, 90.0),
        Channel("lon", "lon", -180.0, 180.0),
        Channel("altitude", "m", -1_000.0, 100_000.0),
        Channel("speed", "m/s", 0.0, 10_000.0),
        Channel("course", "deg", 0.0, 360.0),
        Channel("satellites", "count", 0.0, 99.0),
        Channel("fix", "/", 0.0, 1.0),
    ),
    datasheet="NMEA 0183, version 4.1",
    serial=SerialSettings(baudrate=9600),
)

LINE_MAX = 120
"""A sentence has 82 characters at most; makers' own ones have more."""

SILENCE_S = 2.5
"""Receivers send a burst of sentences once a second."""

LISTEN_S = 8.0
"""Longest time of one reading, whatever comes."""

_SENTENCES = 3
"""Who begins to listen within a burst has all of the next one with the third RMC or GGA."""

_TEXT = frozenset(string.printable.encode())
_BINARY_SHARE = 0.1
"""Text at another speed looks binary by far more than this, a disturbed line by less."""

_KNOT = 1852 / 3600
"""In m/s."""

_UNMEASURED = {
    "6": "dead reckoning",
    "7": "typed in by hand",
    "8": "a simulation",
    "E": "dead reckoning",
    "M": "typed in by hand",
    "S": "a simulation",
}
"""Quality of GGA and mode of RMC that stand for no fix of its own."""

_NO_FIX = "no fix: the antenna needs a clear view of the sky"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one receiver: it has none."""


class Sentence(NamedTuple):
    """A sentence whose checksum is right: talker `GP`, kind `RMC`, what follows as text."""

    talker: str
    kind: str
    fields: tuple[str, ...]


def checksum(body: bytes) -> int:
    """Of what stands between `$` and `*`."""
    return reduce(xor, body, 0)


def parse(line: bytes) -> Sentence | None:
    """The sentence that a line ends with; None when it is none, or spoiled.

    Where a line's end was lost, another one stands before it.
    """
    body, star, given = line.rstrip(b"\r\n").rpartition(b"$")[2].rpartition(b"*")
    if b"$" not in line or not star or given.upper() != b"%02X" % checksum(body):
        return None
    address, *fields = body.decode("ascii", "replace").split(",")
    if len(address) != 5:
        return None
    return Sentence(address[:2], address[2:], tuple(fields))


def sentence(body: str) -> bytes:
    """A sentence on the wire, for models."""
    encoded = body.encode("ascii")
    return b"$%s*%02X\r\n" % (encoded, checksum(encoded))


def _number(text: str) -> float | None:
    digits = text.removeprefix("-").replace(".", "", 1)
    return float(text) if digits.isascii() and digits.isdecimal() else None


def _degrees(text: str, side: str) -> float | None:
    """Degrees of `4807.038` and `N`; None when there are none."""
    value = _number(text)
    if value is None or side not in {"N", "S", "E", "W"}:
        return None
    degrees, minutes = divmod(value, 100)
    if minutes >= 60:
        return None
    return round((degrees + minutes / 60) * (-1 if side in {"S", "W"} else 1), 7)


class Epoch:
    """What a receiver says of one moment, line by line; knows no port."""

    def __init__(self) -> None:
        self.dropped = 0
        """Lines that were no sentence, or spoiled."""
        self.sentences: dict[str, Sentence] = {}
        """The last of each kind."""
        self._came = 0

    def feed(self, line: bytes) -> None:
        """Takes one line."""
        found = parse(line)
        if found is None:
            self.dropped += 1
        elif found.kind in {"RMC", "GGA"}:
            self._came += 1
            self.sentences[found.kind] = found
        elif found.kind == "VTG":
            self.sentences["VTG"] = found

    @property
    def whole(self) -> bool:
        """Whether there is all that this receiver sends of one moment."""
        moments = [self._field(kind, 0) for kind in ("RMC", "GGA")]
        return self._came >= _SENTENCES or (
            self.sentences.keys() >= {"RMC", "GGA"} and moments[0] == moments[1]
        )

    @property
    def talker(self) -> str:
        """`GP`, `GN` ...; empty before anything came."""
        return next((one.talker for one in self.sentences.values()), "")

    def samples(self) -> tuple[Sample, ...]:
        """All channels, in the order of `INFO.channels`."""
        satellites = _number(self._field("GGA", 6))
        fix = self._fix()
        values = self._values() if fix else dict.fromkeys(("lat", "lon"))
        values |= {"satellites": satellites, "fix": float(fix)}
        modes = (self._field("GGA", 5), self._field("RMC", 11))
        doubt = next((_UNMEASURED[mode] for mode in modes if mode in _UNMEASURED), "")
        return tuple(_sample(one, values.get(one.name), fix, doubt) for one in INFO.channels)

    def _fix(self) -> bool:
        statuses = [
            self._field(kind, at) not in none
            for kind, at, none in (("RMC", 1, {"", "V"}), ("GGA", 5, {"", "0"}))
            if kind in self.sentences
        ]
        return bool(statuses) and all(statuses)

    def _values(self) -> dict[str, float | None]:
        kind, at = ("GGA", 1) if "GGA" in self.sentences else ("RMC", 2)
        speed, course = self._field("RMC", 6), self._field("RMC", 7)
        knots = _number(speed or self._field("VTG", 4))
        return {
            "lat": _degrees(self._field(kind, at), self._field(kind, at + 1)),
            "lon": _degrees(self._field(kind, at + 2), self._field(kind, at + 3)),
            "altitude": _number(self._field("GGA", 8)),
            "speed": None if knots is None else round(knots * _KNOT, 3),
            "course": _number(course or self._field("VTG", 0)),
        }

    def _field(self, kind: str, at: int) -> str:
        """A field of a sentence; empty where it is not given."""
        found = self.sentences.get(kind)
        return found.fields[at] if found is not None and at < len(found.fields) else ""


def _sample(channel: Channel, value: float | None, fix: bool, doubt: str) -> Sample:
    if value is None:
        note = _NO_FIX if not fix else "the receiver leaves it out"
        return Sample(channel.name, None, "error", note)
    if not channel.low <= value <= channel.high:
        return Sample(channel.name, None, "error", f"{value:g} cannot be")
    if doubt and channel.name != "satellites":
        return Sample(channel.name, value, "suspect", f"not measured: {doubt}")
    return Sample(channel.name, value)


class Nmea:
    """A receiver that was heard; call from the event loop's thread."""

    def __init__(self, port: SerialPort, talker: str) -> None:
        self.identity = f"NMEA receiver, talker {talker}"
        self.dropped = 0
        """Lines that were dropped since it was found, for a wrong checksum or none."""
        self._port = port

    async def read(self) -> tuple[Sample, ...]:
        """What the receiver says next; without a fix the values are None."""
        epoch = await _listen(self._port)
        self.dropped += epoch.dropped
        return epoch.samples()


async def probe(config: Config, bus: SerialPort, sleep: Sleep) -> Nmea:  # noqa: ARG001  Driver
    """Waits for sentences; see `Driver.probe`."""
    return Nmea(bus, (await _listen(bus)).talker)


async def _listen(port: SerialPort) -> Epoch:
    """The next whole epoch; what came before is not the present.

    Raises:
        NoDeviceError: nothing comes.
        DataError: what comes is no NMEA.
    """
    epoch = Epoch()
    came = bytearray()
    async with port.hold():
        port.discard()
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_S):
                await _collect(port, epoch, came)
    if epoch.sentences:
        return epoch
    raise _fault(port, bytes(came), epoch.dropped)


async def _collect(port: SerialPort, epoch: Epoch, came: bytearray) -> None:
    """Feeds the epoch until it is whole or nothing comes."""
    # This line has begun already.
    came += await port.read_until(b"\n", LINE_MAX, SILENCE_S)
    while not epoch.whole:
        line = await port.read_until(b"\n", LINE_MAX, SILENCE_S)
        if not line:
            return
        came += line
        epoch.feed(line)


def _fault(port: SerialPort, came: bytes, dropped: int) -> NoDeviceError | DataError:
    """Why there were no sentences."""
    if not came:
        return NoDeviceError(
            f"no receiver is heard on {port.name}: check its supply, and that its TX goes to RX"
        )
    share = sum(byte not in _TEXT for byte in came) / len(came)
    if share > _BINARY_SHARE:
        return DataError(
            f"{port.name} receives no text ({share:.0%} of the bytes are binary): "
            f"{port.settings.baudrate} Bd is the wrong speed; set baudrate to what the receiver "
            "has (4800, 9600, 38400 or 115200)"
        )
    return DataError(
        f"{port.name} receives text, but no RMC, GGA or VTG sentence of NMEA 0183 "
        f"({dropped} lines had a wrong checksum or none)"
    )


class Sim:
    """Model of a receiver at a true place; it sends a burst every `interval_s`.

    Args:
        clock: the time that it tells.
        interval_s: between two bursts, on the event loop; 0 is only by `emit`.
    """

    def __init__(self, clock: Clock, interval_s: float = 0.2) -> None:
        self.lat, self.lon, self.altitude = 48.1173, 11.5166667, 545.4
        """Degrees and m."""
        self.knots, self.course = 22.4, 84.4
        self.satellites = 8
        self.fix = True
        self._clock, self._interval_s = clock, interval_s
        self._send: Callable[[bytes], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, send: Callable[[bytes], None]) -> None:
        """The port was opened."""
        self._send = send
        self._go_on()

    def receive(self, data: bytes) -> None:
        """It takes no commands."""

    def detach(self) -> None:
        """The port was closed."""
        self._send = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def emit(self) -> None:
        """Sends one burst."""
        if self._send is not None:
            self._send(self.burst())

    def burst(self) -> bytes:
        """The sentences of this moment; without a fix their fields are empty."""
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        time, date = now.strftime("%H%M%S.00"), now.strftime("%d%m%y")
        lat, lon = _angle(self.lat, 2, "NS"), _angle(self.lon, 3, "EW")
        if not self.fix:
            bodies = (
                f"GPRMC,{time},V,,,,,,,{date},,,N",
                "GPVTG,,,,,,,,,N",
                f"GPGGA,{time},,,,,0,{self.satellites:02d},,,M,,M,,",
            )
        else:
            speed = f"{self.knots:.1f},N,{self.knots * 1.852:.1f},K"
            bodies = (
                f"GPRMC,{time},A,{lat},{lon},{self.knots:.1f},{self.course:.1f},{date},,,A",
                f"GPVTG,{self.course:.1f},T,,M,{speed},A",
                f"GPGGA,{time},{lat},{lon},1,{self.satellites:02d},0.9,{self.altitude:.1f},M,46.9,M,,",
            )
        return b"".join(map(sentence, bodies))

    def _go_on(self) -> None:
        self.emit()
        if self._interval_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval_s, self._go_on)


def _angle(degrees: float, digits: int, sides: str) -> str:
    """`4807.03800,N`."""
    whole, part = divmod(round(abs(degrees) * 60, 5), 60)
    return f"{int(whole):0{digits}d}{part:08.5f},{sides[degrees < 0]}"
