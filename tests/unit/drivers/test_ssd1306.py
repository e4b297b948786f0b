"""The SSD1306/SH1106 driver: what a person sees on the model's display."""

import asyncio
import io
import struct
import sys
import tracemalloc
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pil

from edged.bus.sim import SimI2c
from edged.drivers import ssd1306
from edged.drivers.ssd1306 import Clear, Config, Contrast, Image, Text
from edged.errors import BusError, InvalidArgumentsError, NoDeviceError, NotFoundError
from edged.testing import FakeClock

DARK = "." * 128


def png(width, height, colour="white", mode="RGB"):
    file = io.BytesIO()
    Pil.new(mode, (width, height), colour).save(file, "PNG")
    return file.getvalue()


def head(width, height):
    """The chunk that says how large a PNG is (RFC 2083, 4.1.1)."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))


SMALL_PNG = png(3, 2)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=["ssd1306", "sh1106"])
def model(request):
    return request.param


@pytest.fixture
def sim(model, clock):
    return ssd1306.Sim(clock, model=model)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x3C: sim})


@pytest.fixture
async def device(model, bus, clock):
    return await ssd1306.probe(Config(model=model), bus, clock.sleep)


def lit(sim):
    """Where pixels are on: left, top, right, bottom, the last ones included."""
    rows = sim.shown()
    where = [(x, y) for y, row in enumerate(rows) for x, pixel in enumerate(row) if pixel == "#"]
    xs, ys = [x for x, _ in where], [y for _, y in where]
    return (min(xs), min(ys), max(xs), max(ys)), len(where)


def test_the_commands_that_set_it_up():
    """Application note in section 15, by hand for each model and height."""
    assert ssd1306.encode_setup(Config(), 0xCF).hex(" ") == (
        "a8 3f d3 00 40 a1 c8 da 12 d5 80 81 cf a4 a6 2e 20 02 8d 14 d9 f1 db 40"
    )
    assert (
        ssd1306.encode_setup(Config(height=32), 1)
        .hex(" ")
        .startswith("a8 1f d3 00 40 a1 c8 da 02 d5 80 81 01")
    )
    assert (
        ssd1306.encode_setup(Config(model="sh1106"), 0xCF)
        .hex(" ")
        .endswith("a4 a6 ad 8b d9 22 db 35")
    )


def test_its_addresses():
    """8.1.5: SA0; boards print 0x78 and 0x7A, with the bit for reading."""
    assert ssd1306.INFO.addresses == (0x78 >> 1, 0x7A >> 1)


@pytest.mark.parametrize(
    ("page", "column", "commands"), [(0, 0, "b00010"), (7, 2, "b70210"), (3, 0x7E, "b30e17")]
)
def test_the_commands_that_say_where(page, column, commands):
    """10.1.1, 10.1.2, 10.1.13: the column in two halves."""
    assert ssd1306.encode_position(page, column).hex() == commands


def test_a_byte_is_eight_rows_with_the_upper_one_lowest():
    """8.7, figure 14."""
    picture = Pil.new("1", (128, 16))
    for x, y in ((0, 0), (1, 7), (2, 8), (127, 15), (3, 3), (3, 4)):
        picture.putpixel((x, y), 1)
    upper, lower = ssd1306.encode_pages(picture)
    assert (len(upper), len(lower)) == (128, 128)
    assert upper[:4] == bytes([0x01, 0x80, 0x00, 0x18])
    assert (lower[2], lower[127]) == (0x01, 0x80)
    assert sum(map(bool, upper + lower)) == 5


async def test_it_starts_dark_without_a_flash_of_what_the_memory_woke_up_with(device, sim):
    assert sim.lit
    assert sim.shown() == (DARK,) * 64
    assert await device.read() == ()
    assert sim.read(1) == b"\x00"


async def test_before_it_is_set_up_it_is_off(sim):
    assert sim.read(1) == b"\x40"
    assert sim.shown() == (DARK,) * 64


async def test_a_text_is_what_is_seen(device, sim):
    """An H of Pillow's small font."""
    assert await device.act("text", Text("H")) == "the text is shown"
    assert [row[:8] for row in sim.shown()[:10]] == [
        "........",
        "........",
        "........",
        "##.###..",
        "##.##...",
        "#####...",
        "##.##...",
        "##.##...",
        "##.###..",
        "........",
    ]
    assert lit(sim) == ((0, 3, 5, 8), 27)


async def test_lines_go_below_each_other(device, sim):
    await device.act("text", Text("\n\nlow"))
    (_, top, _, bottom), _ = lit(sim)
    assert 22 <= top < bottom < 33
    await device.act("text", Text("x" * 21))
    (left, _, right, _), _ = lit(sim)
    assert left <= 2
    assert right >= 124


async def test_the_same_text_looks_the_same_on_both_models(clock):
    """The SH1106 has two columns more on either side: its picture begins at the third."""
    seen = []
    for model in ("ssd1306", "sh1106"):
        sim = ssd1306.Sim(clock, model=model)
        bus = SimI2c("i2c-1", {0x3C: sim})
        device = await ssd1306.probe(Config(model=model), bus, clock.sleep)
        await device.act("text", Text("21.5 °C\n45 %"))
        seen.append(sim.shown())
    assert seen[0] == seen[1]


async def test_the_wrong_model_shows_rubbish_at_the_edge(clock):
    """Why `model` must be right: a cleared SSD1306 picture leaves columns of an SH1106."""
    sim = ssd1306.Sim(clock, model="sh1106")
    sim.write(b"\x00\xad\x8b")
    await ssd1306.probe(Config(model="ssd1306"), SimI2c("i2c-1", {0x3C: sim}), clock.sleep)
    assert lit(sim)[0][0] == 126


@pytest.mark.parametrize(
    ("height", "text", "words"),
    [
        (64, "a\nb\nc\nd\ne\nf", "text: has 6 lines: 5 fit"),
        (32, "a\nb\nc", "text: has 3 lines: 2 fit"),
        (64, "ok\n" + "x" * 22, "text: line 2 has 22 characters: 21 fit"),
    ],
)
async def test_a_text_that_does_not_fit_is_refused_and_changes_nothing(height, text, words, clock):
    sim = ssd1306.Sim(clock, height=height)
    bus = SimI2c("i2c-1", {0x3C: sim})
    device = await ssd1306.probe(Config(height=height), bus, clock.sleep)
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act("text", Text(text))
    assert sim.shown() == (DARK,) * height


def test_a_text_that_could_not_be_shown_is_not_taken():
    """Nor looked at line by line."""
    assert msgspec.convert({"text": "x" * 1_000}, Text)
    with pytest.raises(msgspec.ValidationError, match="length <= 1000"):
        msgspec.convert({"text": "\n" * 1_001}, Text)


def chunk(kind, body):
    """RFC 2083, 3.2."""
    whole = kind + body
    return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))


MIB = b"A" * (1 << 20)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"zTXt", b"k%d\0\0"),
        (b"iTXt", b"k%d\0\1\0\0\0"),
        (b"iCCP", b"k%d\0\0"),
        (b"sPLT", b"k%d\0\0"),
    ],
)
def test_what_a_png_tells_besides_is_not_unpacked(kind, body):
    """Sixty chunks of a megabyte each are 62 kB to send."""
    packed = zlib.compress(MIB, 9)
    told = b"".join(chunk(kind, body.replace(b"%d", b"%d" % n) + packed) for n in range(60))
    heavy = SMALL_PNG[:33] + told + SMALL_PNG[33:]
    assert len(heavy) < 70_000
    tracemalloc.start()
    picture = ssd1306.png_picture(heavy, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert picture.tobytes() == ssd1306.png_picture(SMALL_PNG, 64).tobytes()


def test_a_palettes_transparency_still_counts():
    """4.2.9: `tRNS` is no mere word about the picture."""
    file = io.BytesIO()
    Pil.new("P", (128, 64), 1).save(file, "PNG", transparency=1)
    seen = ssd1306.png_picture(file.getvalue(), 64)
    assert not any(seen.tobytes())
    assert b"tRNS" in file.getvalue()


@pytest.mark.parametrize(
    "rest", [b"", b"\0", b"\0\0\0\5IDAT", b"\xff\xff\xff\xfftEXt", b"\0" * 40]
)
def test_a_png_that_ends_anywhere_is_refused(rest):
    with pytest.raises(InvalidArgumentsError, match="whole PNG"):
        ssd1306.png_picture(SMALL_PNG[:33] + rest, 64)


async def test_what_the_font_lacks_is_a_question_mark(device, sim):
    await device.act("text", Text("日"))
    unknown = sim.shown()
    await device.act("text", Text("?"))
    assert sim.shown() == unknown


@pytest.mark.parametrize(
    ("width", "height", "box"),
    [
        (128, 64, (0, 0, 127, 63)),
        (10, 4, (59, 30, 68, 33)),
        (256, 64, (0, 16, 127, 47)),
        (512, 256, (0, 0, 127, 63)),
        (64, 256, (56, 0, 71, 63)),
    ],
)
async def test_a_picture_is_in_the_middle_and_scaled_down_to_fit(width, height, box, device, sim):
    assert await device.act("image", Image(png(width, height))) == "the picture is shown"
    left, top, right, bottom = box
    assert lit(sim) == (box, (right - left + 1) * (bottom - top + 1))


@pytest.mark.parametrize(
    ("mode", "colour", "share"),
    [("L", 128, 0.5), ("RGBA", (255, 255, 255, 0), 0), ("1", 1, 1), ("P", 0, 0), ("I;16", 0, 0)],
)
async def test_grey_is_dithered_and_what_is_transparent_is_dark(mode, colour, share, device, sim):
    await device.act("image", Image(png(128, 64, colour, mode)))
    on = sum(row.count("#") for row in sim.shown())
    assert on / (128 * 64) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "png: is not a whole PNG file"),
        (b"GIF89a" + bytes(20), "png: is not a whole PNG file"),
        (SMALL_PNG[:50], "png: is not a whole PNG file"),
        (SMALL_PNG[:33] + head(10_000, 8_000) + SMALL_PNG[33:], "png: is not a whole PNG file"),
        (SMALL_PNG[:8] + head(10_000, 8_000), "png: is 10000 x 8000 pixels: 512 x 256 at most"),
        (png(513, 10), "png: is 513 x 10 pixels: 512 x 256 at most"),
        (png(10, 257), "png: is 10 x 257 pixels"),
    ],
)
async def test_a_picture_that_cannot_be_shown_is_refused(data, words, device, sim):
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act("image", Image(data))
    assert sim.shown() == (DARK,) * 64


def test_a_picture_comes_as_base64():
    """A tool's arguments are JSON."""
    assert msgspec.convert({"png": "iVBORw=="}, Image).png == b"\x89PNG"
    with pytest.raises(msgspec.ValidationError, match="Expected `bytes` of length <= 262144"):
        msgspec.convert({"png": "AAAA" * 90_000}, Image)


@given(st.integers(0, len(SMALL_PNG) - 1), st.binary(max_size=12))
def test_a_broken_png_is_refused_or_shown_and_nothing_else(at, noise):
    """Pillow raises this and that: whoever calls sees one kind of error."""
    data = SMALL_PNG[:at] + noise + SMALL_PNG[at + len(noise) :]
    try:
        picture = ssd1306.png_picture(data, 64)
    except InvalidArgumentsError:
        return
    assert picture.size == (128, 64)


async def test_without_pillow_the_remedy_is_said_and_the_rest_works(device, sim, monkeypatch):
    """It is an extra: a board without a display needs none."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    for command, params in (("text", Text("x")), ("image", Image(SMALL_PNG))):
        with pytest.raises(
            NotFoundError, match="Pillow is not installed.*pip install 'edged\\[display\\]'"
        ):
            await device.act(command, params)
    assert await device.act("clear", Clear()) == "the display is empty"


async def test_the_contrast_stays_with_the_next_picture(device, sim):
    assert sim.contrast == 207
    assert await device.act("contrast", Contrast(10)) == "the contrast is 10"
    assert sim.contrast == 10
    await device.act("text", Text("dim"))
    assert sim.contrast == 10


@pytest.mark.parametrize("how", ["clear", "safe"])
async def test_clear_and_the_safe_state_are_empty(how, device, sim):
    """Nobody keeps a text up after the stop: what stays would grow old unseen."""
    await device.act("text", Text("21.5 °C"))
    await (device.act("clear", Clear()) if how == "clear" else device.safe())
    assert sim.shown() == (DARK,) * 64


async def test_after_a_brown_out_the_next_text_is_seen(device, sim, bus):
    bus.brown_out(0x3C)
    await device.act("contrast", Contrast(9))
    assert sim.shown() == (DARK,) * 64
    await device.act("text", Text("back"))
    assert lit(sim)[1] > 20
    assert sim.contrast == 9


async def test_texts_at_the_same_time_do_not_mix(device, sim):
    await device.act("text", Text("aaaa\nbbbb\ncccc"))
    first = sim.shown()
    await device.act("text", Text("x\n" * 5))
    second = sim.shown()
    for _ in range(3):
        await asyncio.gather(
            device.act("text", Text("aaaa\nbbbb\ncccc")), device.act("text", Text("x\n" * 5))
        )
        assert sim.shown() == second
    assert first != second


async def test_others_use_the_bus_between_two_pages(device, bus, clock):
    """A whole picture takes a tenth of a second at 100 kHz."""
    drawing = asyncio.create_task(device.act("text", Text("x")))
    await asyncio.sleep(0)
    await bus.transfer(0x3C, b"\x00\xe3")
    assert not drawing.done()
    await drawing


async def test_no_transfer_is_longer_than_any_adapter_takes(model, clock):
    lengths = []

    class Listening(ssd1306.Sim):
        def write(self, data):
            lengths.append(len(data))
            super().write(data)

    bus = SimI2c("i2c-1", {0x3C: Listening(clock, model=model)})
    await ssd1306.probe(Config(model=model), bus, clock.sleep)
    assert max(lengths) == 32


@pytest.mark.parametrize(("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError)])
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, device, bus, sim):
    """Issue 3, part 1: a failed caller never blocks the next."""
    bus.fail(0x3C, kind)
    for action in (
        device.safe(),
        device.act("text", Text("x")),
        device.act("contrast", Contrast(1)),
    ):
        with pytest.raises(error):
            await action
    bus.fail(0x3C, kind, times=0)
    await device.act("text", Text("back"))
    assert sim.contrast == 207
    assert lit(sim)[1] > 20


def test_the_models_directions(sim, model):
    """10.1.8, 10.1.14: without A1 and C8 a picture stands on its head."""
    pump = b"\x00\x8d\x14" if model == "ssd1306" else b"\x00\xad\x8b"
    for command in (pump, b"\x00\x21\x00\x7f\x22\x00\x07", b"\x00\xa1\xc8\xaf"):
        sim.write(command)
    for page in range(8):
        sim.write(bytes([0x00, 0xB0 | page, 0x00, 0x10]))
        sim.write(b"\x40" + bytes(132 if model == "sh1106" else 128))
    sim.write(bytes([0x00, 0xB0, 0x02, 0x10]))
    sim.write(b"\x40\x01")
    upright = lit(sim)[0][:2]
    sim.write(b"\x00\xa0\xc0")
    assert lit(sim)[0][:2] == (127 - upright[0], 63)
    sim.write(b"\x00\xae")
    assert sim.shown() == (DARK,) * 64
    sim.write(b"\x80\xaf")
    assert not sim.lit
