"""What no bus can do: refused before a byte moves, and on the simulated ones likewise."""

from __future__ import annotations

from edged.bus import SpiSettings
from edged.errors import Fault, InvalidArgumentsError

MESSAGE_MAX = 8192
"""Bytes of one message of I2C_RDWR; i2c-dev refuses more. Source: `i2c-dev.c` of the kernel."""

BUFFER_MAX = 65_536
"""Bytes of a serial port that wait for a reader; of more, the oldest are dropped and counted."""

PULSE_MIN_S, PULSE_MAX_S = 1e-6, 0.1
"""Shorter ones nobody can promise; longer ones would hold the chip's thread."""


def check_i2c(address: int, write_len: int, read_len: int) -> None:
    """A transfer that no adapter can do.

    Raises:
        InvalidArgumentsError: with every fault.
    """
    faults = [
        Fault(name, f"{count} bytes are more than the {MESSAGE_MAX} of one message: split it")
        for name, count in (("write", write_len), ("read_len", read_len))
        if count > MESSAGE_MAX
    ]
    if not 0 <= address <= 0x7F:
        faults.append(Fault("address", f"{address:#04x} does not fit into 7 bits"))
    if faults:
        raise InvalidArgumentsError(faults)


def is_spi_possible(settings: SpiSettings) -> bool:
    """Whether the fields of `struct spi_ioc_transfer` can hold it; spidev does not check."""
    return (
        settings.mode in range(4)
        and 0 < settings.max_speed_hz < 1 << 32
        and 0 < settings.bits_per_word <= 32
    )


def check_fits(name: str, count: int, low: int) -> None:
    """A number of bytes that a port can never have at once.

    Args:
        name: of the argument.
        count: its value.
        low: the least.

    Raises:
        InvalidArgumentsError: more than the port's buffer, or less than `low`.
    """
    if not low <= count <= BUFFER_MAX:
        raise InvalidArgumentsError([Fault(name, f"must be {low} to {BUFFER_MAX}")])


def check_pulse(duration_s: float) -> None:
    """A pulse that is too short or too long; no number neither.

    Raises:
        InvalidArgumentsError: shorter than 1 us or longer than 0.1 s.
    """
    if not PULSE_MIN_S <= duration_s <= PULSE_MAX_S:
        raise InvalidArgumentsError([Fault("duration", "must be from 1 us to 0.1 s")])
