"""Serial EEPROMs of the family 24C over I2C: AT24C01 to AT24C512 and their likes.

Source: Microchip AT24C32E datasheet, DS20006109A, whose chapters are named below;
those of the other sizes are alike. Which chip it is cannot be asked, and
asking a small one as if it were a large one writes to it: the configuration
says it, and finding out whether it is there sends no byte.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.bus.faults import NackError
from edged.clock import Clock
from edged.drivers import Command, Info, Sample
from edged.errors import DataError, Fault, InvalidArgumentsError, NoDeviceError


class Layout(NamedTuple):
    """Of one chip: bytes in all, in a page, and of an address."""

    size: int
    page: int
    address_len: int

    @property
    def blocks(self) -> int:
        """I2C addresses that it takes: small ones have the upper bits of an address there."""
        return max(1, self.size >> 8) if self.address_len == 1 else 1

    @property
    def block_size(self) -> int:
        """Bytes behind one I2C address."""
        return self.size // self.blocks


# The smallest pages that makers give a chip of that name.
LAYOUTS = {
    "24c01": Layout(1 << 7, 8, 1),
    "24c02": Layout(1 << 8, 8, 1),
    "24c04": Layout(1 << 9, 16, 1),
    "24c08": Layout(1 << 10, 16, 1),
    "24c16": Layout(1 << 11, 16, 1),
    "24c32": Layout(1 << 12, 32, 2),
    "24c64": Layout(1 << 13, 32, 2),
    "24c128": Layout(1 << 14, 64, 2),
    "24c256": Layout(1 << 15, 64, 2),
    "24c512": Layout(1 << 16, 128, 2),
}

WRITE_S = 0.005
"""Self-timed write cycle, longest: it acknowledges nothing meanwhile."""
_POLLS, _POLL_S = 10, 0.001

MOST = 256
"""Bytes of one command."""


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `read` takes.

    Attributes:
        offset: of the first byte.
        length: number of bytes.
    """

    offset: Annotated[int, msgspec.Meta(ge=0, description="address of the first byte")]
    length: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="number of bytes")] = 16


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `write` takes: `hex` or `text`.

    Attributes:
        offset: of the first byte.
        hex: bytes in hexadecimal, with or without spaces.
        text: written as UTF-8.
    """

    offset: Annotated[int, msgspec.Meta(ge=0, description="address of the first byte")]
    hex: Annotated[str, msgspec.Meta(description="bytes in hexadecimal: 48 65 6c")] = ""
    text: Annotated[str, msgspec.Meta(description="text in place of hex, written as UTF-8")] = ""


INFO = Info(
    title="24C EEPROM",
    compatible=tuple(f"atmel,{name}" for name in LAYOUTS),
    bus="i2c",
    addresses=tuple(range(0x50, 0x58)),
    commands=(
        Command("read", "Reads up to 256 bytes.", Read),
        Command("write", "Writes up to 256 bytes, and reads them back.", Write),
    ),
    datasheet="AT24C32E datasheet, DS20006109A (2018)",
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one EEPROM.

    Attributes:
        chip: its name without its maker's letters: 24c02, 24c32, 24c256.
        address: 0x50 to 0x57; the first of those that a 24c04, 24c08 or 24c16 takes.
    """

    chip: str
    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x50 to 0x57")] = 0x50

    def __post_init__(self) -> None:
        if self.chip not in LAYOUTS:
            raise ValueError(f"chip: {self.chip!r} is not one of {', '.join(LAYOUTS)}")
        blocks = LAYOUTS[self.chip].blocks
        if self.address % blocks:
            first = self.address - self.address % blocks
            raise ValueError(
                f"address: a {self.chip} takes {blocks} addresses: give their first, {first:#04x}"
            )


SIM_CONFIG = {"chip": "24c32"}
"""Of the model."""


def spans(offset: int, length: int, step: int) -> list[tuple[int, int]]:
    """A stretch of bytes, split wherever a multiple of `step` comes.

    Returns:
        offset and length of each part.
    """
    parts = []
    end = offset + length
    while offset < end:
        until = min(end, (offset // step + 1) * step)
        parts.append((offset, until - offset))
        offset = until
    return parts


def written(params: Write) -> bytes:
    """The bytes that are to be written.

    Raises:
        InvalidArgumentsError: neither `hex` nor `text`, both, or not hexadecimal.
    """
    if bool(params.hex.strip()) == bool(params.text):
        raise InvalidArgumentsError([Fault("hex", "give hex or text")])
    if params.text:
        return params.text.encode()
    try:
        return bytes.fromhex(params.hex)
    except ValueError:
        reason = f"{params.hex!r} is not hexadecimal: two digits a byte, 48 65 6c"
        raise InvalidArgumentsError([Fault("hex", reason)]) from None


class At24:
    """An EEPROM that is there; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self._layout = LAYOUTS[config.chip]
        self.identity = f"{config.chip}, {self._layout.size} bytes"
        self._address, self._bus, self._sleep = config.address, bus, sleep
        self._who = f"{config.chip} at {config.address:#04x} on {bus.name}"

    async def read(self) -> tuple[Sample, ...]:
        """It measures nothing."""
        return ()

    async def act(self, command: str, params: Any) -> str:
        """Reads or writes; see `Actuator.act`."""
        if command == "read":
            return await self._read(params.offset, params.length)
        return await self._write(params.offset, written(params))

    async def safe(self) -> None:
        """A memory has no outputs to put right: looks whether it is there, sending no byte."""
        for block in range(self._layout.blocks):
            await self._bus.transfer(self._address + block, b"", 1)

    async def _read(self, offset: int, length: int) -> str:
        self._check(offset, length)
        async with self._bus.hold() as bus:
            data = await self._get(bus, offset, length)
        shown = data.decode("ascii", "replace")
        text = f" {shown!r}" if shown.isprintable() and shown.isascii() else ""
        return f"{offset:#06x}: {data.hex(' ')}{text}"

    async def _write(self, offset: int, data: bytes) -> str:
        self._check(offset, len(data))
        async with self._bus.hold() as bus:
            # Within a page the chip's counter wraps ("Page write").
            for start, length in spans(offset, len(data), self._layout.page):
                target, pointer = self._place(start)
                part = data[start - offset : start - offset + length]
                await bus.transfer(target, pointer + part)
                await self._wait(bus, target)
            kept = await self._get(bus, offset, len(data))
        if kept != data:
            raise DataError(
                f"{self._who}: it did not keep what was written: is it write-protected (WP), "
                "or another chip?"
            )
        return f"wrote {len(data)} bytes at {offset:#06x} and read them back"

    def _check(self, offset: int, length: int) -> None:
        if length > MOST:
            raise InvalidArgumentsError(
                [Fault("", f"{length} bytes are too many: {MOST} at a time")]
            )
        if offset + length > self._layout.size:
            reason = f"{offset} and {length} bytes are beyond the chip's {self._layout.size}"
            raise InvalidArgumentsError([Fault("offset", reason)])

    def _place(self, offset: int) -> tuple[int, bytes]:
        """The I2C address of a byte, and its address there ("Device addressing")."""
        block, inside = divmod(offset, self._layout.block_size)
        return self._address + block, inside.to_bytes(self._layout.address_len, "big")

    async def _get(self, bus: I2cTransfers, offset: int, length: int) -> bytes:
        data = b""
        for start, count in spans(offset, length, self._layout.block_size):
            target, pointer = self._place(start)
            data += await bus.transfer(target, pointer, count)
        return data

    async def _wait(self, bus: I2cTransfers, target: int) -> None:
        """Polls for its acknowledgement until the chip has written."""
        for _ in range(_POLLS):
            await self._sleep(_POLL_S)
            try:
                await bus.transfer(target, b"", 1)
            except NoDeviceError:
                continue
            return
        raise NoDeviceError(f"{self._who}: it does not answer any more after a write")


async def probe(config: Config, bus: I2c, sleep: Sleep) -> At24:
    """Finds the chip where it should be; see `Driver.probe`."""
    device = At24(config, bus, sleep)
    await device.safe()
    return device


class Sim:
    """Model of an EEPROM; itself it is the first of its I2C addresses.

    Args:
        clock: what its writing times follow.
        chip: which, a key of `LAYOUTS`.
        write_protected: its pin WP is high: it acknowledges, and keeps what it has.
    """

    def __init__(
        self, clock: Clock, *, chip: str = "24c32", write_protected: bool = False
    ) -> None:
        self.layout = LAYOUTS[chip]
        self.write_protected = write_protected
        self.memory = bytearray(b"\xff" * self.layout.size)
        self.cycles = 0
        """Pages written: what wears it."""
        self._clock = clock
        self._busy_until = 0.0
        self._pointer = 0

    def blocks(self) -> list[Block]:
        """All its I2C addresses, in their order."""
        return [Block(self, number) for number in range(self.layout.blocks)]

    def write(self, data: bytes) -> None:
        """See `write_block`."""
        self.write_block(0, data)

    def read(self, length: int) -> bytes:
        """See `read_block`."""
        return self.read_block(length)

    def write_block(self, block: int, data: bytes) -> None:
        """An address, then bytes for its page, in which they wrap."""
        self._check_idle()
        layout = self.layout
        inside = int.from_bytes(data[: layout.address_len], "big") % layout.block_size
        self._pointer = block * layout.block_size + inside
        content = data[layout.address_len :]
        if not content or self.write_protected:
            return
        page = self._pointer - self._pointer % layout.page
        for byte in content:
            self.memory[self._pointer] = byte
            self._pointer = page + (self._pointer + 1) % layout.page
        self.cycles += 1
        self._busy_until = self._clock.monotonic() + WRITE_S

    def read_block(self, length: int) -> bytes:
        """Bytes from the address written or read last, over the end to the beginning."""
        self._check_idle()
        start, size = self._pointer, self.layout.size
        self._pointer = (start + length) % size
        return bytes(self.memory[(start + i) % size] for i in range(length))

    def _check_idle(self) -> None:
        if self._clock.monotonic() < self._busy_until:
            raise NackError


class Block(NamedTuple):
    """One I2C address of a chip that takes several."""

    chip: Sim
    number: int

    def write(self, data: bytes) -> None:
        """See `Sim.write_block`."""
        self.chip.write_block(self.number, data)

    def read(self, length: int) -> bytes:
        """See `Sim.read_block`."""
        return self.chip.read_block(length)
