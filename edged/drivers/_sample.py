"""From a number to a sample, within the limits of its channel. Pure."""

from __future__ import annotations

from edged.drivers import Channel, Sample


def limited(channel: Channel, value: float, raw: bytes = b"") -> Sample:
    """A value, or the chip's limit in its place and marked as `clipped`.

    Args:
        channel: whose limits hold.
        value: in its unit; what is finer than a thousandth is arithmetic, not measurement.
        raw: what it was decoded from.
    """
    limit = min(max(value, channel.low), channel.high)
    if limit != value:
        note = f"beyond the chip's range of {channel.low:g} to {channel.high:g} {channel.unit}"
        return Sample(channel.name, limit, "clipped", note, raw)
    return Sample(channel.name, round(value, 3), raw=raw)


def silent(who: str, level: str = "ones") -> str:
    """What to say of a chip whose bytes are all the same.

    Args:
        who: `SHT3x at 0x44 on i2c-1`.
        level: `ones` or `zeros`.
    """
    return f"{who} does not answer (all {level}): check its wiring"
