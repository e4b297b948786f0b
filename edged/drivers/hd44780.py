"""Hitachi HD44780 character display behind a PCF8574 (the usual I2C backpack).

Source: HD44780U data sheet, ADE-207-272(Z), revision 0.0; sections named below
are its. The chip takes four bits at a time and never answers here, so a glitch
can leave it between the two halves of a byte, and all that follows is garbage:
each command begins by bringing it to a known phase from any.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Command, Info, Sample
from edged.errors import Fault, InvalidArgumentsError

# How the backpack connects the PCF8574 (P4 to P7 are DB4 to DB7).
RS, ENABLE, BACKLIGHT = 0x01, 0x04, 0x08

# Table 6 (instructions).
CLEAR, HOME, ENTRY_MODE, DISPLAY_ON, FOUR_BITS_TWO_LINES, SET_ADDRESS = (
    *(0x01, 0x02, 0x06, 0x0C, 0x28, 0x80),
)

POWER_ON_S, FIRST_S, NEXT_S, SLOW_S = 0.05, 0.0045, 0.0002, 0.002
"""Figures 23, 24: more than 40 ms, 4.1 ms, 100 us; table 6: 1.52 ms for clear and home."""
_CHUNK = 32
"""Bytes that are written at once: more do not go through every adapter."""


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `text` takes."""

    text: Annotated[
        str,
        Meta(max_length=1_000, description="the whole display, its lines parted by newlines"),
    ]


class Backlight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `backlight` takes."""

    on: bool


class Clear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `clear` takes: nothing."""


INFO = Info(
    title="HD44780 character display on a PCF8574 backpack",
    compatible=("hit,hd44780",),
    bus="i2c",
    addresses=(0x27, 0x3F, *range(0x20, 0x27), *range(0x38, 0x3F)),
    commands=(
        Command("text", "shows up to four lines of text in place of what was there", Text),
        Command("backlight", "switches the light on or off", Backlight),
        Command("clear", "sets the display up anew, empty", Clear),
    ),
    datasheet="ADE-207-272(Z), HD44780U, revision 0.0 (1999)",
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one display.

    Attributes:
        address: of the backpack: 0x27, or 0x3F with a PCF8574A.
        rows: lines of the display.
        cols: characters of a line.
        backlight: whether the light is on at start.
    """

    address: Annotated[int, Meta(description="7-bit address: 0x27 or 0x3f, or by jumpers")] = 0x27
    rows: Literal[1, 2, 4] = 2
    cols: Literal[8, 16, 20, 40] = 16
    backlight: bool = True

    def __post_init__(self) -> None:
        if self.rows * self.cols > 80:
            raise ValueError(f"rows: one chip has 80 characters, not {self.rows} x {self.cols}")


_SPECIAL = dict(
    zip(
        "¥→←・°αäβεμσρ√¢ñöθ∞ΩüΣπ÷█ßµ",
        bytes.fromhex("5c7e7fa5dfe0e1e2e3e4e5e6e8eceeeff2f3f4f5f6f7fdffe2e4"),
        strict=True,
    )
) | {chr(0xFF61 + code): 0xA1 + code for code in range(0x3E)}
"""Characters of ROM A00 beyond ASCII (table 4); from 0xA1 on half-width katakana."""
_REPLACED = str.maketrans(
    "\\~–—−“”„‘’×\u00a0",  # noqa: RUF001  what is typed for the characters below
    '/----"""\'\'x ',
) | {ord("…"): "..."}
"""Before all else: where ASCII has \\ and ~, ROM A00 has a yen and an arrow (table 4)."""


def encode_text(text: str) -> bytes:
    """The codes of ROM A00 that look like a text, one a character.

    What the ROM lacks loses its accents; what then remains is a question mark.

    Source: table 4 (ROM code A00).
    """
    return bytes(_code(char) for char in text.translate(_REPLACED))


def _code(char: str) -> int:
    if char in _SPECIAL:
        return _SPECIAL[char]
    plain = unicodedata.normalize("NFKD", char)[0]
    return ord(plain) if " " <= plain <= "}" and plain != "\\" else ord("?")


def lines(text: str, config: Config) -> list[bytes]:
    """The codes of every row, filled up with spaces.

    Raises:
        InvalidArgumentsError: more lines than rows, or longer ones.
    """
    found = [encode_text(line) for line in text.removesuffix("\n").split("\n")]
    faults = []
    if len(found) > config.rows:
        faults.append(Fault("text", f"has {len(found)} lines: there are {config.rows} rows"))
    faults += [
        Fault("text", f"line {number} has {len(line)} characters: {config.cols} fit")
        for number, line in enumerate(found, 1)
        if len(line) > config.cols
    ]
    if faults:
        raise InvalidArgumentsError(faults)
    found += [b""] * (config.rows - len(found))
    return [line.ljust(config.cols) for line in found]


def row_addresses(config: Config) -> tuple[int, ...]:
    """Where each row begins: the third and fourth go on the first two (figures 2 to 6)."""
    return (0x00, 0x40, config.cols, 0x40 + config.cols)[: config.rows]


def encode_nibble(value: int, flags: int) -> bytes:
    """The bytes for the PCF8574 that hand four bits over; the chip takes them as ENABLE falls.

    Args:
        value: 0 to 15.
        flags: RS and BACKLIGHT.
    """
    return bytes([value << 4 | flags | ENABLE, value << 4 | flags])


def encode_byte(value: int, flags: int) -> bytes:
    """The bytes for the PCF8574 that hand one byte over, its upper half first."""
    return encode_nibble(value >> 4, flags) + encode_nibble(value & 0xF, flags)


class Hd44780:
    """A display that was set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = f"HD44780 {config.cols}x{config.rows} (it has no id)"
        self._config, self._bus, self._sleep = config, bus, sleep
        self._light = BACKLIGHT if config.backlight else 0

    async def read(self) -> tuple[Sample, ...]:
        """Nothing: what it shows is not a quantity."""
        return ()

    async def act(self, command: str, params: Any) -> str:  # noqa: ARG002  params tell the command
        """Does what it is told; see `Actuator.act`."""
        if isinstance(params, Text):
            await self._show(lines(params.text, self._config))
            return "the text is shown"
        if isinstance(params, Backlight):
            self._light = BACKLIGHT if params.on else 0
            await self._bus.transfer(self._config.address, bytes([self._light]))
            return f"the light is {'on' if params.on else 'off'}"
        await self.safe()
        return "the display is empty"

    async def safe(self) -> None:
        """Empty: what is shown while nobody keeps it up would grow old unseen."""
        async with self._bus.hold() as bus:
            await self._synchronise(bus)
            await self._instruct(bus, CLEAR)

    async def set_up(self) -> None:
        """The first set-up after power-on, which takes longer."""
        await self._bus.transfer(self._config.address, bytes([self._light]))
        await self._sleep(POWER_ON_S)
        await self.safe()

    async def _show(self, rows: list[bytes]) -> None:
        async with self._bus.hold() as bus:
            await self._synchronise(bus)
            for address, row in zip(row_addresses(self._config), rows, strict=True):
                data = encode_byte(SET_ADDRESS | address, self._light)
                for code in row:
                    data += encode_byte(code, self._light | RS)
                for first in range(0, len(data), _CHUNK):
                    chunk = data[first : first + _CHUNK]
                    await bus.transfer(self._config.address, chunk)

    async def _synchronise(self, bus: I2cTransfers) -> None:
        """Four bits at a time and in phase, whatever came before (figure 24); keeps the text.

        Three times 3 is "eight bits" in any phase: where the first completes a
        byte, it is one that moves at most the cursor, and takes as long as home.
        """
        for nibble, wait_s in ((3, FIRST_S), (3, NEXT_S), (3, NEXT_S), (2, NEXT_S)):
            await bus.transfer(self._config.address, encode_nibble(nibble, self._light))
            await self._sleep(wait_s)
        for instruction in (FOUR_BITS_TWO_LINES, DISPLAY_ON, ENTRY_MODE, HOME):
            await self._instruct(bus, instruction)

    async def _instruct(self, bus: I2cTransfers, instruction: int) -> None:
        await bus.transfer(self._config.address, encode_byte(instruction, self._light))
        await self._sleep(SLOW_S if instruction in {CLEAR, HOME} else NEXT_S)


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Hd44780:
    """Sets the display up, empty; see `Driver.probe`."""
    device = Hd44780(config, bus, sleep)
    await device.set_up()
    return device


_SHOWN = {code: char for char, code in reversed(_SPECIAL.items())}


class Sim:
    """Model of a PCF8574 with an HD44780 behind it; only writing is connected.

    Instructions that come while it is busy are lost, as they are in a real one.

    Args:
        clock: what its busy times follow.
        rows: lines of the display.
        cols: characters of a line.
    """

    BYTE_S = 90e-6
    """Nine bits at 100 kHz: a transfer takes its time, of which the clock knows nothing."""

    def __init__(self, clock: Clock, *, rows: int = 2, cols: int = 16) -> None:
        self.rows, self.cols = rows, cols
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Power-on: eight bits, one line, display off (figure 23's first box)."""
        self._byte = 0xFF
        self._on_the_bus = 0.0
        self._busy_until = self._time + 0.04
        self._four_bits = False
        self._upper: int | None = None
        self._memory = bytearray(b" " * 0x80)
        self._address = 0
        self._shift = 0
        self.lit = False
        """Whether the display is switched on (not its backlight)."""

    @property
    def backlight(self) -> bool:
        """Whether the light is on."""
        return bool(self._byte & BACKLIGHT)

    def shown(self) -> tuple[str, ...]:
        """What a person reads on it, row by row; blank while it is off."""
        if not self.lit:
            return (" " * self.cols,) * self.rows
        starts = (0x00, 0x40, self.cols, 0x40 + self.cols)[: self.rows]
        return tuple(
            "".join(self._char(start, column) for column in range(self.cols)) for start in starts
        )

    def write(self, data: bytes) -> None:
        """Bytes for the lines, one after the other."""
        for byte in data:
            self._on_the_bus += self.BYTE_S
            if self._byte & ENABLE and not byte & ENABLE:
                self._take(self._byte >> 4, bool(self._byte & RS))
            self._byte = byte

    def read(self, length: int) -> bytes:
        """The lines, as the PCF8574 has them."""
        return bytes([self._byte]) * length

    @property
    def _time(self) -> float:
        return self._clock.monotonic() + self._on_the_bus

    def _char(self, start: int, column: int) -> str:
        line = start & 0x40
        code = self._memory[line | ((start & 0x3F) + column + self._shift) % 40]
        return _SHOWN.get(code, chr(code))

    def _take(self, nibble: int, register: bool) -> None:
        if self._time < self._busy_until:
            return
        if not self._four_bits:
            # The lower four lines are not connected.
            self._execute(nibble << 4, register)
        elif self._upper is None:
            self._upper = nibble
        else:
            value, self._upper = self._upper << 4 | nibble, None
            self._execute(value, register)

    def _execute(self, value: int, register: bool) -> None:
        self._busy_until = self._time + 37e-6
        if register:
            self._memory[self._address] = value
            self._address = _next_address(self._address)
        elif value & SET_ADDRESS:
            self._address = value & 0x7F
        elif value & 0x20:
            self._four_bits = not value & 0x10
        elif value & 0x10:
            self._move(value)
        elif value & 0x08:
            self.lit = bool(value & 0x04)
        elif value in {CLEAR, HOME, HOME | 1}:
            self._busy_until = self._time + 1.52e-3
            self._address = self._shift = 0
            if value == CLEAR:
                self._memory[:] = b" " * 0x80

    def _move(self, value: int) -> None:
        """Cursor or display one to the left or right."""
        step = 1 if value & 0x04 else -1
        if value & 0x08:
            self._shift = (self._shift - step) % 40
        else:
            self._address = (self._address + step) & 0x7F


def _next_address(address: int) -> int:
    """After the 40th character of a line comes the other line (DDRAM, figure 5)."""
    return {0x27: 0x40, 0x67: 0x00}.get(address, (address + 1) & 0x7F)
