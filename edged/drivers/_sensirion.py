"""The command protocol of Sensirion's chips: commands, and words with a CRC each.

A command is written, takes its time, and then its answer is read: a transfer of
its own, as these chips know no repeated start. Encode and decode are pure; who
sends holds the bus.

Source: Sensirion SHT3x-DIS datasheet, version 7, section 4; the others are alike.
"""

from __future__ import annotations

from typing import NamedTuple

from edged.bus import I2cTransfers, Sleep
from edged.bus.faults import NackError
from edged.clock import Clock
from edged.drivers._crc import crc8
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError


def encode_words(*words: int) -> bytes:
    """Each 16-bit word, its higher byte first, with its CRC."""
    pairs = (word.to_bytes(2, "big") for word in words)
    return b"".join(pair + bytes([crc8(pair)]) for pair in pairs)


def decode_words(data: bytes, who: str) -> tuple[int, ...]:
    """The words of an answer.

    Shape:
        data: three bytes a word: higher byte, lower byte, CRC.

    Raises:
        NoDeviceError: all ones or all zeros, which no word with its CRC is.
        DataError: a CRC is wrong.
    """
    for byte, level in ((b"\xff", "ones"), (b"\x00", "zeros")):
        if data == byte * len(data):
            raise NoDeviceError(silent(who, level))
    words = []
    for start in range(0, len(data), 3):
        pair = data[start : start + 2]
        if crc8(pair) != data[start + 2]:
            raise DataError(
                f"{who}: the checksum of its answer is wrong: noise, or too long wires"
            )
        words.append(int.from_bytes(pair, "big"))
    return tuple(words)


def temperature_cel(word: int) -> float:
    """Temperature in Cel. Source: SHT3x-DIS, section 4.13; the SHT4x and SCD4x are alike."""
    return -45 + 175 * word / 65535


def temperature_word(cel: float) -> int:
    """The inverse of `temperature_cel`, for register models."""
    return max(0, min(round((cel + 45) * 65535 / 175), 0xFFFF))


class Link(NamedTuple):
    """A chip on a bus that is held.

    Attributes:
        bus: the held bus.
        address: 7-bit address.
        who: for messages: `SHT3x at 0x44 on i2c-1`.
        sleep: how to wait.
    """

    bus: I2cTransfers
    address: int
    who: str
    sleep: Sleep

    async def send(self, command: bytes, wait_s: float = 0.0, words: tuple[int, ...] = ()) -> None:
        """Sends a command with its arguments, and waits as long as it takes."""
        await self.bus.transfer(self.address, command + encode_words(*words))
        await self.sleep(wait_s)

    async def fetch(self, command: bytes, wait_s: float, count: int) -> tuple[int, ...]:
        """The words that a command gives.

        Raises:
            NoDeviceError: it does not answer.
            BusError: a transfer failed.
            DataError: a CRC is wrong.
        """
        await self.send(command, wait_s)
        return decode_words(await self.bus.transfer(self.address, b"", 3 * count), self.who)


class CommandModel:
    """What the register models of these chips have in common: one command at a time.

    While it works on one, and when it has nothing to give, the chip does not
    acknowledge.

    Args:
        clock: what its times follow.
    """

    width = 2
    """Bytes of a command."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._busy_until = 0.0
        self._answer = b""
        self.words: tuple[int, ...] = ()
        """Arguments of the command at hand."""

    def obey(self, command: bytes) -> tuple[float, bytes] | None:
        """What the chip does: how long it takes and what can be read then.

        Args:
            command: `width` bytes; its arguments are in `words`.

        Returns:
            None when the chip does not know the command, or not now.
        """
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        """A command and its arguments."""
        self._check_idle()
        command, arguments = data[: self.width], data[self.width :]
        self.words = decode_words(arguments, "model") if arguments else ()
        done = self.obey(command)
        if done is None:
            raise NackError
        wait_s, self._answer = done
        self._busy_until = self._clock.monotonic() + wait_s

    def read(self, length: int) -> bytes:
        """The answer, once."""
        self._check_idle()
        if not self._answer:
            raise NackError
        answer, self._answer = self._answer, b""
        return answer[:length].ljust(length, b"\xff")

    def _check_idle(self) -> None:
        if self._clock.monotonic() < self._busy_until:
            raise NackError
