"""Solomon SSD1306 and Sino Wealth SH1106: OLED displays of 128 x 64 or 128 x 32 over I2C.

Source: SSD1306, revision 1.1 (April 2008), and SH1106, version 2.3; sections named
below are of the first. Both are driven in page mode, the only one of the SH1106,
whose memory is 132 columns wide and shows the middle ones. Nothing can be read
back: each picture begins by setting the display up, as after a dip of its supply.
"""

from __future__ import annotations

import asyncio
import io
import struct
import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from edged.bus import I2c, Sleep
from edged.clock import Clock
from edged.drivers import Command, Info, Sample
from edged.errors import Fault, InvalidArgumentsError, NotFoundError
from edged.libraries import install

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Model = Literal["ssd1306", "sh1106"]

WIDTH = 128
# Section 8.1.5.2: the byte that says what follows it.
COMMANDS, PIXELS = 0x00, 0x40
# Section 9 (command table).
COLUMN_LOW, COLUMN_HIGH, PAGE, CONTRAST = 0x00, 0x10, 0xB0, 0x81
DISPLAY_OFF, DISPLAY_ON = 0xAE, 0xAF
_CHUNK = 31
"""Pixel bytes that are written at once: 32 with the byte before go through any adapter."""
_FIRST_COLUMN: dict[Model, int] = {"ssd1306": 0, "sh1106": 2}

_PNG_MAX = 262_144
_SCALED_DOWN_FROM = 4
"""A picture may be that many times as wide and high as the display."""


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `text` takes."""

    text: Annotated[
        str,
        Meta(max_length=1_000, description="the whole display, its lines parted by newlines"),
    ]


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `image` takes."""

    png: Annotated[bytes, Meta(max_length=_PNG_MAX, description="a PNG file, in base64")]


class Clear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `clear` takes: nothing."""


class Contrast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `contrast` takes."""

    level: Annotated[int, Meta(ge=0, le=255, description="brightness, 0 to 255")]


INFO = Info(
    title="SSD1306/SH1106 OLED display",
    compatible=("solomon,ssd1306", "sinowealth,sh1106"),
    bus="i2c",
    addresses=(0x3C, 0x3D),
    commands=(
        Command("text", "shows lines of text in place of what was there", Text),
        Command("image", "shows a PNG, scaled down to fit, in black and white", Image),
        Command("clear", "empties the display", Clear),
        Command("contrast", "sets the brightness, 0 to 255", Contrast),
    ),
    datasheet="SSD1306, revision 1.1 (April 2008); SH1106, version 2.3",
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one display.

    Attributes:
        address: 0x3C or 0x3D, by a resistor on the board (which may print 0x78 or
            0x7A for them).
        model: the chip. An SH1106 that is driven as an SSD1306 shows the picture two
            columns aside, with rubbish at the edge.
        height: rows of pixels.
        contrast: brightness at start.
    """

    address: Annotated[int, Meta(description="7-bit address: 0x3c or 0x3d")] = 0x3C
    model: Model = "ssd1306"
    height: Literal[32, 64] = 64
    contrast: Annotated[int, Meta(ge=0, le=255)] = 207


def encode_setup(config: Config, contrast: int) -> bytes:
    """The commands that set the display up; whether it is on stays as it is.

    Source: section 10 and the application note in 15 (figure 4); SH1106, section 8.
    """
    pins = 0x12 if config.height == 64 else 0x02
    common = [0xA8, config.height - 1, 0xD3, 0x00, 0x40, 0xA1, 0xC8, 0xDA, pins, 0xD5, 0x80]
    common += [CONTRAST, contrast, 0xA4, 0xA6]
    if config.model == "sh1106":
        # Its own converter on; its precharge and its level.
        return bytes([*common, 0xAD, 0x8B, 0xD9, 0x22, 0xDB, 0x35])
    # No scrolling, page mode; its own charge pump on, its precharge and its level.
    return bytes([*common, 0x2E, 0x20, 0x02, 0x8D, 0x14, 0xD9, 0xF1, 0xDB, 0x40])


def encode_position(page: int, column: int) -> bytes:
    """The commands that say where pixels go; a page is eight rows.

    Source: 10.1.1, 10.1.2, 10.1.13.
    """
    return bytes([PAGE | page, COLUMN_LOW | column & 0xF, COLUMN_HIGH | column >> 4])


def encode_pages(picture: Picture) -> list[bytes]:
    """The pixel bytes of every page of a picture in black and white.

    Shape:
        one byte a column, left to right; bit 0 is the upper row.

    Source: 8.7 (graphic display data RAM).
    """
    pages = picture.height // 8
    # Turned by a quarter, a column of the display is a row of the picture, whose
    # bits Pillow packs with the first one highest.
    turned = picture.transpose(_pillow().image.Transpose.ROTATE_270).tobytes()
    return [turned[pages - 1 - page :: pages] for page in range(pages)]


def text_picture(text: str, height: int) -> Picture:
    """A picture of lines of text, in Pillow's own small font; what it lacks is a `?`.

    Raises:
        InvalidArgumentsError: more lines or longer ones than fit.
        NotFoundError: Pillow is not installed.
    """
    pil = _pillow()
    # Later ones have another default font, which is not made of whole pixels.
    load = getattr(pil.font, "load_default_imagefont", pil.font.load_default)
    font = load()
    lines = text.removesuffix("\n").encode("latin-1", "replace").decode("latin-1").split("\n")
    cell_width, cell_height = font.getbbox("M")[2:]
    rows, cols = height // cell_height, WIDTH // cell_width
    faults = []
    if len(lines) > rows:
        faults.append(Fault("text", f"has {len(lines)} lines: {rows} fit"))
    faults += [
        Fault("text", f"line {number} has {len(line)} characters: {cols} fit")
        for number, line in enumerate(lines, 1)
        if len(line) > cols
    ]
    if faults:
        raise InvalidArgumentsError(faults)
    picture: Picture = pil.image.new("1", (WIDTH, height))
    draw = pil.draw.Draw(picture)
    for number, line in enumerate(lines):
        draw.text((0, number * cell_height), line, font=font, fill=1)
    return picture


def png_picture(png: bytes, height: int) -> Picture:
    """A PNG in black and white, in the middle of the display, scaled down if it is larger.

    Raises:
        InvalidArgumentsError: no PNG, a broken one, or one that is far too large.
        NotFoundError: Pillow is not installed.
    """
    pil = _pillow()
    size = _size(png, WIDTH * _SCALED_DOWN_FROM, height * _SCALED_DOWN_FROM)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pil.image.open(io.BytesIO(_bare(png)), formats=["PNG"]) as found:
                if found.size != size:
                    raise ValueError("a second head says otherwise")
                picture = found.convert("RGBA")
    except Exception:  # noqa: BLE001  of a broken file Pillow raises whatever comes up
        raise InvalidArgumentsError([Fault("png", "is not a whole PNG file")]) from None
    picture.thumbnail((WIDTH, height))
    shown: Picture = pil.image.new("RGBA", (WIDTH, height), "black")
    corner = ((WIDTH - picture.width) // 2, (height - picture.height) // 2)
    shown.alpha_composite(picture, corner)
    return shown.convert("1")


def _size(png: bytes, widest: int, highest: int) -> tuple[int, int]:
    """Width and height; what would take too long is refused before anything is unpacked.

    Raises:
        InvalidArgumentsError: no PNG, or larger than that.

    Source: RFC 2083, 3.1 and 4.1.1: the signature, then both in `IHDR`.
    """
    if png[:8] != b"\x89PNG\r\n\x1a\n" or len(png) < 24:
        raise InvalidArgumentsError([Fault("png", "is not a whole PNG file")])
    width, height = struct.unpack_from(">II", png, 16)
    if width > widest or height > highest:
        reason = f"is {width} x {height} pixels: {widest} x {highest} at most"
        raise InvalidArgumentsError([Fault("png", reason)])
    return width, height


def _bare(png: bytes) -> bytes:
    """The file without what only tells about the picture, which may unpack to many megabytes.

    Source: RFC 2083, 3.2 (length, type, data, CRC), 3.3 (a type that begins with a capital
    letter is needed to show it), 4.2.9 (`tRNS`: transparency).
    """
    kept, at = [png[:8]], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4].rjust(4, b"\0"))
        kind, end = png[at + 4 : at + 8], at + 12 + length
        if kind[:1].isupper() or kind == b"tRNS":
            kept.append(png[at:end])
        at = end
    return b"".join(kept)


class _Pillow(NamedTuple):
    image: Any
    draw: Any
    font: Any


def _pillow() -> _Pillow:
    try:
        from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415  large, and an extra
    except ImportError:
        raise NotFoundError(
            "Pillow is not installed, which draws text and pictures: "
            f"{install('edged[display]', 'python3-pil')}"
        ) from None
    return _Pillow(Image, ImageDraw, ImageFont)


class Ssd1306:
    """A display that was set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c) -> None:
        self.identity = f"{config.model.upper()} {WIDTH}x{config.height} (it has no id)"
        self._config, self._bus = config, bus
        self._contrast = config.contrast
        self._drawing = asyncio.Lock()

    async def read(self) -> tuple[Sample, ...]:
        """Nothing: what it shows is not a quantity."""
        return ()

    async def act(self, command: str, params: Any) -> str:  # noqa: ARG002  params tell the command
        """Does what it is told; see `Actuator.act`."""
        height = self._config.height
        if isinstance(params, Text):
            await self._show(encode_pages(text_picture(params.text, height)))
            return "the text is shown"
        if isinstance(params, Image):
            await self._show(encode_pages(png_picture(params.png, height)))
            return "the picture is shown"
        if isinstance(params, Contrast):
            await self._send(COMMANDS, bytes([CONTRAST, params.level]))
            self._contrast = params.level
            return f"the contrast is {params.level}"
        await self.safe()
        return "the display is empty"

    async def safe(self) -> None:
        """Empty: what is shown while nobody keeps it up would grow old unseen."""
        await self._show([bytes(WIDTH)] * (self._config.height // 8))

    async def _show(self, pages: list[bytes]) -> None:
        """A whole picture; the bus is free between two pages, the display is not."""
        async with self._drawing:
            await self._send(COMMANDS, encode_setup(self._config, self._contrast))
            column = _FIRST_COLUMN[self._config.model]
            for page, pixels in enumerate(pages):
                async with self._bus.hold() as bus:
                    position = bytes([COMMANDS, *encode_position(page, column)])
                    await bus.transfer(self._config.address, position)
                    for first in range(0, WIDTH, _CHUNK):
                        chunk = bytes([PIXELS, *pixels[first : first + _CHUNK]])
                        await bus.transfer(self._config.address, chunk)
            # Last, so that after power-on nobody sees what the memory woke up with.
            await self._send(COMMANDS, bytes([DISPLAY_ON]))

    async def _send(self, control: int, data: bytes) -> None:
        await self._bus.transfer(self._config.address, bytes([control, *data]))


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Ssd1306:  # noqa: ARG001  never waits
    """Sets the display up, empty; see `Driver.probe`."""
    device = Ssd1306(config, bus)
    await device.safe()
    return device


class Sim:
    """Model of a display in page mode, with its memory.

    Args:
        clock: of the simulation; the chip needs none.
        model: the chip.
        height: rows of pixels.
    """

    def __init__(self, clock: Clock, *, model: Model = "ssd1306", height: int = 64) -> None:  # noqa: ARG002  see Driver
        self.model, self.height = model, height
        self.reset()

    def reset(self) -> None:
        """Power-on: off, its memory full of chance (here: a pattern)."""
        self.contrast = 0x7F
        self.lit = False
        self._columns = 132 if self.model == "sh1106" else WIDTH
        self._memory = [bytearray(b"\xa5" * self._columns) for _ in range(8)]
        self._page = self._column = 0
        self._pump = False
        self._segments_turned = self._rows_turned = False
        self._pending = b""

    def shown(self) -> tuple[str, ...]:
        """What a person sees, a row of pixels a text of `#` and `.`; dark while it is off."""
        if not (self.lit and self._pump):
            return ("." * WIDTH,) * self.height
        return tuple(
            "".join("#" if self._pixel(x, y) else "." for x in range(WIDTH))
            for y in range(self.height)
        )

    def write(self, data: bytes) -> None:
        """A control byte, then commands or pixels to the end."""
        if data[0] == PIXELS:
            for byte in data[1:]:
                self._memory[self._page][self._column] = byte
                self._column = (self._column + 1) % self._columns
        elif data[0] == COMMANDS:
            for byte in data[1:]:
                self._take(byte)

    def read(self, length: int) -> bytes:
        """The status: bit 6 says that it is off (8.1.5.2)."""
        return bytes([0x00 if self.lit else 0x40]) * length

    def _pixel(self, x: int, y: int) -> bool:
        # The panel is mounted so that both directions must be turned (10.1.8, 10.1.14).
        column = _FIRST_COLUMN[self.model] + x
        if not self._segments_turned:
            column = self._columns - 1 - column
        row = y if self._rows_turned else self.height - 1 - y
        return bool(self._memory[row // 8][column] >> row % 8 & 1)

    def _take(self, byte: int) -> None:
        self._pending += bytes([byte])
        command = self._pending[0]
        if len(self._pending) > _ARGUMENTS.get(command, 0):
            self._execute(command, self._pending[-1])
            self._pending = b""

    def _execute(self, command: int, argument: int) -> None:
        if command < COLUMN_HIGH:
            self._column = self._column & 0xF0 | command
        elif command < 0x20:
            self._column = self._column & 0x0F | (command & 0x0F) << 4
        elif command & 0xF8 == PAGE:
            self._page = command & 7
        elif command == CONTRAST:
            self.contrast = argument
        elif command in {DISPLAY_OFF, DISPLAY_ON}:
            self.lit = command == DISPLAY_ON
        elif command in {0xA0, 0xA1}:
            self._segments_turned = command == 0xA1
        elif command in {0xC0, 0xC8}:
            self._rows_turned = command == 0xC8
        elif (self.model, command) in {("ssd1306", 0x8D), ("sh1106", 0xAD)}:
            self._pump = argument == (0x14 if command == 0x8D else 0x8B)


_ARGUMENTS = {
    **dict.fromkeys((0x20, CONTRAST, 0x8D, 0xA8, 0xAD, 0xD3, 0xD5, 0xD9, 0xDA, 0xDB), 1),
    **dict.fromkeys((0x21, 0x22), 2),
}
"""Commands of more than one byte (9)."""
