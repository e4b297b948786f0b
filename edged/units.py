"""Quantities: SenML units, readings; durations and sizes as people write them.

Pure. Values keep the unit of the wire (SenML, RFC 8428 section 12.1)
everywhere; conversion happens only in `text`, for people.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal, NamedTuple

import msgspec

from edged.clock import iso

Quality = Literal["ok", "warming", "clipped", "stale", "suspect", "error"]


class Unit(NamedTuple):
    """How people read a SenML unit: symbol, factor from the wire's value, digits."""

    symbol: str
    factor: float = 1.0
    digits: int = 1


UNITS: dict[str, Unit] = {
    "Cel": Unit("°C"),
    "K": Unit("K"),
    "%RH": Unit("%"),
    "Pa": Unit("hPa", factor=0.01),
    "lx": Unit("lx"),
    "V": Unit("V", digits=3),
    "A": Unit("A", digits=3),
    "W": Unit("W", digits=2),
    "VA": Unit("VA", digits=2),
    "var": Unit("var", digits=2),
    "J": Unit("J"),
    "kWh": Unit("kWh", digits=3),
    "Hz": Unit("Hz"),
    "m": Unit("m", digits=3),
    "mm": Unit("mm"),
    "m/s2": Unit("m/s²", digits=2),
    "rad/s": Unit("°/s", factor=180 / math.pi),
    "m/s": Unit("m/s", digits=2),
    "deg": Unit("°"),
    "kg": Unit("kg", digits=3),
    "ug/m3": Unit("µg/m³"),
    "s": Unit("s", digits=3),
    "%EL": Unit("%"),
    "lat": Unit("°", digits=6),
    "lon": Unit("°", digits=6),
    "ppm": Unit("ppm", digits=0),
    "1/min": Unit("/min", digits=0),
    "B": Unit("GB", factor=1e-9),
    "count": Unit("", digits=0),
    "/": Unit("", digits=3),
    "/100": Unit("%"),
}
"""The units that channels may have, by their SenML name (RFC 8428, section 12.1; RFC 8798).

SenML has none for rotation: `rad/s` is the kernel's (IIO, `anglvel`).
"""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """One value of one channel, with all that is needed to trust it.

    Attributes:
        sensor: configured name.
        channel: name within the sensor, `temperature`.
        value: in `unit`; None when there is no value (`quality` says why).
        unit: a key of `UNITS`.
        time: when it was measured, seconds since 1970-01-01 UTC.
        monotonic: the same moment on the monotonic clock, the basis of its age.
        identity: the chip that measured, as it identified itself.
        quality: `clipped`: the chip's limit stands in for the value.
        note: for people, why `quality` is not `ok`.
        raw: bytes that the value was decoded from, where the driver tells.
    """

    sensor: str
    channel: str
    value: float | None
    unit: str
    time: float
    monotonic: float
    identity: str
    quality: Quality = "ok"
    note: str = ""
    raw: bytes = b""

    def age_s(self, monotonic: float) -> float:
        """Seconds since the measurement, at that moment of the monotonic clock."""
        return max(0.0, monotonic - self.monotonic)


def amount(value: float, unit: str) -> str:
    """A value for people, in the unit that they know: `21.3 °C`.

    Args:
        value: in `unit`.
        unit: a key of `UNITS`.
    """
    known = UNITS[unit]
    return f"{value * known.factor:z.{known.digits}f} {known.symbol}".rstrip()


def text(reading: Reading, age_s: float = 0.0) -> str:
    """One clear line for people: `temperature 21.3 °C`.

    Args:
        reading: what to say.
        age_s: its age; said from one second on.
    """
    shown = "no value" if reading.value is None else amount(reading.value, reading.unit)
    remarks = []
    if reading.quality != "ok":
        remarks.append(f"{reading.quality}: {reading.note}" if reading.note else reading.quality)
    if age_s >= 1:
        remarks.append(f"{age_s:.0f} s ago")
    return f"{reading.channel} {shown}" + (f" ({', '.join(remarks)})" if remarks else "")


def row(reading: Reading, now: float, *, raw: bool = False) -> dict[str, Any]:
    """A reading for the wire.

    Args:
        reading: what.
        now: the present moment of the monotonic clock.
        raw: with the bytes that it came from.
    """
    found: dict[str, Any] = {
        "sensor": reading.sensor,
        "channel": reading.channel,
        "value": reading.value,
        "unit": reading.unit,
        "time": iso(reading.time),
        "age_s": round(reading.age_s(now), 3),
        "quality": reading.quality,
        "identity": reading.identity,
    }
    if reading.note:
        found["note"] = reading.note
    if raw and reading.raw:
        found["raw"] = reading.raw.hex()
    return found


# Patterns stay text until their first use: compiling them is the larger part of the import.
_DURATION = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = r"(?i)([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(?:([KMG])i?)?B?"
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def duration_s(written: str | float) -> float:
    """Seconds of a duration as it is written in the configuration: `20ms`, `10s`, `1h`.

    Args:
        written: one number and one unit of ms, s, m, h, d; or a bare number of seconds.

    Raises:
        ValueError: neither of them.
    """
    if isinstance(written, str):
        match = re.fullmatch(_DURATION, written)
        if match is not None:
            return float(match[1]) * _SECONDS[match[2]]
    elif math.isfinite(written) and written >= 0:
        return float(written)
    raise ValueError(f"{written!r} is not a duration: write 20ms, 10s, 5m, 1h or 2d")


def size_bytes(written: str | int) -> int:
    """Bytes of a size as it is written in the configuration: `64K`, `256M`, `1.5G`, `4096`.

    Args:
        written: a number with or without K, M or G (powers of 1024); or a bare number.

    Raises:
        ValueError: neither of them.
    """
    match = re.fullmatch(_SIZE, str(written))
    if match is None:
        raise ValueError(f"{written!r} is not a size: write 64K, 256M or 1G")
    return int(float(match[1]) * _BYTES[(match[2] or "").upper()])
