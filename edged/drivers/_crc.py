"""The checksums that chips send after their data. Pure."""

from __future__ import annotations


def crc8(data: bytes, init: int = 0xFF) -> int:
    """CRC-8 of the polynomial x^8 + x^5 + x^4 + 1 (0x31), highest bit first, not inverted.

    Args:
        data: what it covers.
        init: value to start with; Sensirion's and Aosong's chips use 0xFF.

    Source: Sensirion SHT3x-DIS datasheet, section 4.12, table 20.
    """
    crc = init
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 ^ 0x31 if crc & 0x80 else crc << 1
        crc &= 0xFF
    return crc
