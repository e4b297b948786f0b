"""CRCs and words of Sensirion's chips, and what their register models have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.sim import NackError
from edged.drivers import _sensirion
from edged.drivers._crc import crc8
from edged.errors import DataError, NoDeviceError
from edged.testing import FakeClock


@pytest.mark.parametrize(
    ("data", "crc"),
    [("BEEF", 0x92), ("6666", 0x93), ("8000", 0xA2), ("FFFF", 0xAC), ("0000", 0x81), ("", 0xFF)],
)
def test_the_crc_is_the_datasheets(data, crc):
    """SHT3x-DIS, table 20 (0xBEEF); the others are of its measurements."""
    assert crc8(bytes.fromhex(data)) == crc


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=6))
def test_words_encode_and_decode_to_themselves(words):
    assert list(_sensirion.decode_words(_sensirion.encode_words(*words), "chip")) == words


@given(st.integers(0, 0xFFFF), st.integers(0, 23))
def test_each_flipped_bit_is_noticed(word, bit):
    """A CRC-8 finds every single wrong bit; fault 19 (raspberrypi/linux#4884)."""
    data = int.from_bytes(_sensirion.encode_words(word), "big") ^ 1 << bit
    with pytest.raises((DataError, NoDeviceError)):
        _sensirion.decode_words(data.to_bytes(3, "big"), "chip")


@pytest.mark.parametrize(("byte", "level"), [("FF", "ones"), ("00", "zeros")])
@pytest.mark.parametrize("words", [1, 2, 6])
def test_a_silent_line_is_wiring_and_not_a_wrong_crc(byte, level, words):
    """Fault 23 (esphome/issues#6269, #6611): say "does not answer (all ones)"."""
    with pytest.raises(NoDeviceError, match=rf"SHT3x does not answer \(all {level}\)"):
        _sensirion.decode_words(bytes.fromhex(byte * 3 * words), "SHT3x")


def test_a_word_of_ones_among_others_is_a_value():
    """0xFFFF has the CRC 0xAC."""
    assert _sensirion.decode_words(bytes.fromhex("FFFFAC800 0A2".replace(" ", "")), "chip") == (
        0xFFFF,
        0x8000,
    )


@pytest.mark.parametrize(("word", "cel"), [(0, -45.0), (0x6666, 25.0), (0xFFFF, 130.0)])
def test_temperature(word, cel):
    """SHT3x-DIS, 4.13: -45 to 130 Cel over 16 bits."""
    assert _sensirion.temperature_cel(word) == pytest.approx(cel, abs=1e-6)
    assert _sensirion.temperature_word(cel) == word


class Echo(_sensirion.CommandModel):
    """Gives back the arguments of command 0001 after a second."""

    def obey(self, command):
        return (1.0, _sensirion.encode_words(*self.words)) if command == b"\x00\x01" else None


def test_a_model_acknowledges_nothing_before_it_is_done():
    clock = FakeClock()
    chip = Echo(clock)
    chip.write(bytes.fromhex("0001BEEF92"))
    with pytest.raises(NackError):
        chip.read(3)
    with pytest.raises(NackError):
        chip.write(b"\x00\x01")
    clock.advance(1)
    assert chip.read(4) == bytes.fromhex("BEEF92FF")


def test_a_model_gives_its_answer_once_and_knows_its_commands_only():
    clock = FakeClock()
    chip = Echo(clock)
    with pytest.raises(NackError):
        chip.read(3)
    with pytest.raises(NackError):
        chip.write(b"\x00\x02")
    chip.write(bytes.fromhex("0001BEEF92"))
    clock.advance(1)
    assert chip.read(2) == b"\xbe\xef"
    with pytest.raises(NackError):
        chip.read(2)
