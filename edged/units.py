"""Quantities: SenML units, readings, durations.

Pure. Values keep the unit of the wire (SenML, RFC 8428 section 12.1)
everywhere; conversion happens only in `text`, for people.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import msgspec

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
    "Hz": Unit("Hz"),
    "m": Unit("m", digits=3),
    "m/s2": Unit("m/s²", digits=2),
    "kg": Unit("kg", digits=3),
    "s": Unit("s", digits=3),
    "%EL": Unit("%"),
    "lat": Unit("°", digits=6),
    "lon": Unit("°", digits=6),
    "count": Unit("", digits=0),
    "/": Unit("", digits=3),
}
"""The units that channels may have, by their SenML name (RFC 8428, section 12.1)."""


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

    def age_s(self, monotonic: float) -> float:
        """Seconds since the measurement, at that moment of the monotonic clock."""
        return max(0.0, monotonic - self.monotonic)


def text(reading: Reading, age_s: float = 0.0) -> str:
    """One clear line for people: `temperature 21.3 °C`.

    Args:
        reading: what to say.
        age_s: its age; said from one second on.
    """
    unit = UNITS[reading.unit]
    if reading.value is None:
        shown = "no value"
    else:
        shown = f"{reading.value * unit.factor:z.{unit.digits}f} {unit.symbol}".rstrip()
    remarks = []
    if reading.quality != "ok":
        remarks.append(f"{reading.quality}: {reading.note}" if reading.note else reading.quality)
    if age_s >= 1:
        remarks.append(f"{age_s:.0f} s ago")
    return f"{reading.channel} {shown}" + (f" ({', '.join(remarks)})" if remarks else "")


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(written: str) -> float:
    """Seconds of a duration as it is written in the configuration: `20ms`, `10s`, `1h`.

    Raises:
        ValueError: not one number and one unit of ms, s, m, h, d.
    """
    match = _DURATION.fullmatch(written)
    if match is None:
        raise ValueError(f"{written!r} is not a duration: write 20ms, 10s, 5m, 1h or 2d")
    return float(match[1]) * _SECONDS[match[2]]
