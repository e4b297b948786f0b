"""The HD44780 driver: what a person reads on the model's display."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.faults import NackError
from edged.bus.sim import SimI2c
from edged.drivers import hd44780
from edged.drivers.hd44780 import Backlight, Clear, Config, Text
from edged.errors import BusError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

EMPTY = (" " * 16, " " * 16)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return hd44780.Sim(clock)


@pytest.fixture
def bus(sim):
    return SimI2c("i2c-1", {0x27: sim})


@pytest.fixture
async def device(bus, clock):
    return await hd44780.probe(Config(), bus, clock.sleep)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Az 09}", b"Az 09}"),
        ("21.5 °C", b"21.5 \xdfC"),
        ("a\\b~c", b"a/b-c"),
        ("¥→←", b"\x5c\x7e\x7f"),
        ("äöüñß", b"\xe1\xef\xf5\xee\xe2"),
        ("ÄÖÜé", b"AOUe"),
        ("µμΩπΣ÷∞√", b"\xe4\xe4\xf4\xf7\xf6\xfd\xf3\xe8"),
        ("“x”–‘y’ 3×4…", b"\"x\"-'y' 3x4..."),
        ("ｱｲﾟ", b"\xb1\xb2?"),
        ("日本 \u20ac\x07\x7f", b"?? ???"),
        ("", b""),
    ],
)
def test_text_in_the_codes_of_rom_a00(text, codes):
    """Table 4: 0x5C is a yen, 0x7E and 0x7F are arrows."""
    assert hd44780.encode_text(text) == codes


@given(st.text(max_size=20))
def test_no_text_becomes_an_instruction_or_a_character_of_the_users(text):
    """Codes below 0x20 are the user's own characters, which nobody defined."""
    assert all(code >= 0x20 for code in hd44780.encode_text(text))


@pytest.mark.parametrize(
    ("rows", "cols", "addresses"),
    [
        (1, 16, (0x00,)),
        (2, 16, (0x00, 0x40)),
        (2, 40, (0x00, 0x40)),
        (4, 16, (0x00, 0x40, 0x10, 0x50)),
        (4, 20, (0x00, 0x40, 0x14, 0x54)),
    ],
)
def test_where_rows_begin(rows, cols, addresses):
    """Figures 2 to 6: 00 40 14 54 of the usual 20x4."""
    assert hd44780.row_addresses(Config(rows=rows, cols=cols)) == addresses


def test_the_addresses_are_those_of_the_backpack():
    """A PCF8574 or PCF8574A with its jumpers open, and with any of them closed."""
    assert hd44780.INFO.addresses[:2] == (0x27, 0x3F)
    assert sorted(hd44780.INFO.addresses) == [*range(0x20, 0x28), *range(0x38, 0x40)]


def test_four_bits_are_taken_as_enable_falls():
    """Figure 9 (timing): upper half first; RS is bit 0, ENABLE bit 2, the light bit 3."""
    assert hd44780.encode_nibble(3, 0x08).hex() == "3c38"
    assert hd44780.encode_byte(0x41, 0x09).hex() == "4d491d19"


def test_a_display_that_one_chip_cannot_have_is_refused():
    """Table 1: 80 characters."""
    with pytest.raises(msgspec.ValidationError, match="has 80 characters, not 4 x 40"):
        msgspec.convert({"rows": 4, "cols": 40}, Config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb\nc", "text: has 3 lines: there are 2 rows"),
        ("x" * 17, "text: line 1 has 17 characters: 16 fit"),
        ("ok\n" + "é…" * 5, "text: line 2 has 20 characters: 16 fit"),
    ],
)
async def test_a_text_that_does_not_fit_is_refused_and_changes_nothing(text, words, device, sim):
    with pytest.raises(InvalidArgumentsError, match=words):
        await device.act("text", Text(text))
    assert sim.shown() == EMPTY


async def test_the_display_starts_empty_and_lit(device, sim):
    assert sim.lit
    assert sim.backlight
    assert sim.shown() == EMPTY
    assert await device.read() == ()
    assert device.identity == "HD44780 16x2 (it has no id)"


async def test_a_text_is_what_is_read(device, sim):
    assert await device.act("text", Text("Hello, world!\n21.5 °C  45 %")) == "the text is shown"
    assert sim.shown() == ("Hello, world!   ", "21.5 °C  45 %   ")
    await device.act("text", Text("short\n"))
    assert sim.shown() == ("short           ", " " * 16)


@pytest.mark.parametrize(("rows", "cols"), [(1, 8), (2, 40), (4, 16), (4, 20)])
async def test_every_row_is_where_it_belongs(rows, cols, clock):
    sim = hd44780.Sim(clock, rows=rows, cols=cols)
    bus = SimI2c("i2c-1", {0x27: sim})
    device = await hd44780.probe(Config(rows=rows, cols=cols), bus, clock.sleep)
    text = tuple((f"row {number} " + "abcdefgh" * 5)[:cols] for number in range(rows))
    await device.act("text", Text("\n".join(text)))
    assert sim.shown() == text


async def test_the_light_goes_off_and_stays_off_with_the_next_text(device, sim):
    assert await device.act("backlight", Backlight(False)) == "the light is off"
    assert not sim.backlight
    await device.act("text", Text("dark"))
    assert not sim.backlight
    assert await device.act("backlight", Backlight(True)) == "the light is on"
    assert sim.backlight
    assert sim.shown()[0] == "dark            "


async def test_a_light_that_is_off_at_start(bus, sim, clock):
    await hd44780.probe(Config(backlight=False), bus, clock.sleep)
    assert not sim.backlight


@pytest.mark.parametrize("act", [("clear", Clear()), ("safe", None)])
async def test_clear_and_the_safe_state_are_empty(act, device, sim):
    """Nobody keeps a text up after the stop: what stays would grow old unseen."""
    await device.act("text", Text("21.5 °C"))
    command, params = act
    if params is None:
        await device.safe()
    else:
        assert await device.act(command, params) == "the display is empty"
    assert sim.shown() == EMPTY


@pytest.mark.parametrize("nibble", range(16))
async def test_half_a_byte_too_many_does_no_harm(nibble, device, sim):
    """Reported of other drivers (RPLCD#29): after a glitch all is garbage until power-off."""
    sim.write(hd44780.encode_nibble(nibble, hd44780.BACKLIGHT))
    await device.act("text", Text("still\nreadable"))
    assert sim.shown() == ("still           ", "readable        ")


async def test_without_a_common_phase_all_would_be_garbage(device, sim, clock):
    """That the model can tell the difference."""
    sim.write(hd44780.encode_nibble(4, 8))
    clock.advance(0.01)
    for code in (0x80, *b"abc"):
        sim.write(hd44780.encode_byte(code, 8 | (code < 0x80)))
        clock.advance(0.001)
    assert sim.shown()[0].strip() != "abc"


@pytest.mark.parametrize("state", ["eight bits", "shifted", "off", "brown-out"])
async def test_a_text_is_right_from_any_state(state, device, sim, bus, clock):
    clock.advance(0.01)
    if state == "eight bits":
        sim.write(hd44780.encode_byte(0x33, 8))
    elif state == "shifted":
        sim.write(hd44780.encode_byte(0x1C, 8))
    elif state == "off":
        sim.write(hd44780.encode_byte(0x08, 8))
    else:
        bus.brown_out(0x27)
        clock.advance(0.05)
    await device.act("text", Text("as it should be"))
    assert sim.shown()[0] == "as it should be "


@pytest.mark.parametrize("failing", range(12))
async def test_a_transfer_that_fails_in_the_middle_leaves_nothing_behind(failing, clock):
    """Whichever it is, half a byte taken or not."""

    class Failing(hd44780.Sim):
        left = -1

        def write(self, data):
            self.left -= 1
            if self.left == 0:
                super().write(data[:3])
                raise NackError
            super().write(data)

    sim = Failing(clock)
    device = await hd44780.probe(Config(), SimI2c("i2c-1", {0x27: sim}), clock.sleep)
    sim.left = failing + 1
    with pytest.raises(NoDeviceError):
        await device.act("text", Text("lost\nlost"))
    await device.act("text", Text("found"))
    assert sim.shown() == ("found           ", " " * 16)


async def test_no_transfer_is_longer_than_any_adapter_takes(clock):
    lengths = []

    class Listening(hd44780.Sim):
        def write(self, data):
            lengths.append(len(data))
            super().write(data)

    bus = SimI2c("i2c-1", {0x27: Listening(clock, rows=4, cols=20)})
    device = await hd44780.probe(Config(rows=4, cols=20), bus, clock.sleep)
    await device.act("text", Text("x" * 20))
    assert max(lengths) == 32


async def test_it_waits_as_long_as_the_chip_needs(clock, sim, bus):
    """Table 6, figure 24: instructions that come too early are lost."""

    async def impatient(seconds):
        await FakeClock.sleep(clock, seconds / 40)

    device = await hd44780.probe(Config(), bus, impatient)
    await device.act("text", Text("too early"))
    assert sim.shown()[0] != "too early       "


@pytest.mark.parametrize(("kind", "error"), [("nack", NoDeviceError), ("timeout", BusError)])
async def test_a_fault_on_the_bus_is_an_error_and_frees_it(kind, error, device, bus, sim):
    """Issue 3, part 1: a failed caller never blocks the next."""
    bus.fail(0x27, kind)
    for action in (
        device.safe(),
        device.act("text", Text("x")),
        device.act("backlight", Backlight(False)),
    ):
        with pytest.raises(error):
            await action
    bus.fail(0x27, kind, times=0)
    await device.act("text", Text("back"))
    assert sim.shown()[0] == "back            "


def test_the_models_cursor_and_display_move(sim, clock):
    """Table 6: 0001 S/C R/L; after column 40 comes the other line (figure 5)."""

    def send(*codes, data=False):
        for code in codes:
            sim.write(hd44780.encode_byte(code, 8 | data))
            clock.advance(0.002)

    clock.advance(0.05)
    assert sim.read(1) == b"\xff"
    sim.write(hd44780.encode_nibble(2, 8))
    clock.advance(0.001)
    send(0x28, 0x0C, 0x01)
    send(*b"ab", data=True)
    send(0x10)
    send(*b"c", data=True)
    send(0x14)
    send(*b"d", data=True)
    assert sim.shown()[0] == "ac d            "
    send(0x18)
    assert sim.shown()[0] == "c d             "
    send(0x1C, 0x1C)
    assert sim.shown()[0] == " ac d           "
    send(0x02, 0xA7)
    send(*b"xy", data=True)
    assert sim.shown()[1][0] == "y"
    send(0xE7)
    send(*b"zA", data=True)
    assert sim.shown()[0][0] == "A"
    send(0x40, 0x00)
    send(0x08)
    assert sim.shown() == EMPTY
