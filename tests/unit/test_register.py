"""Registers as bit fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.register import Field, Register, signed

CTRL_MEAS = Register(0xF4, (Field("osrs_t", 5, 3), Field("osrs_p", 2, 3), Field("mode", 0, 2)))


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (0xFF5E, 16, -162),
        (0x0191, 16, 401),
        (0x800, 12, -2048),
        (0x7FF, 12, 2047),
        (0xFFF, 12, -1),
    ],
)
def test_twos_complement(value, bits, expected):
    """DS18B20 datasheet, table 1: FF5E is -10.125 at 1/16; the rest by definition."""
    assert signed(value, bits) == expected


def test_fields_decode_from_their_bits():
    """BME280 datasheet, 5.4.5: 0x25 is oversampling 1, 1 and forced mode."""
    assert CTRL_MEAS.decode(b"\x25") == {"osrs_t": 1, "osrs_p": 1, "mode": 1}


def test_encode_keeps_the_other_bits():
    assert CTRL_MEAS.encode({"mode": 3}, keep=b"\x24") == b"\x27"
    assert CTRL_MEAS.encode({"osrs_t": 5}) == b"\xa0"


def test_little_endian_words():
    """INA219-like words exist in both orders."""
    word = Register(0x05, (Field("all", 0, 16, signed=True),), size=2, order="little")
    assert word.decode(b"\x30\xf8") == {"all": -2000}
    assert word.encode({"all": -2000}) == b"\x30\xf8"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"speed": 1}, "no field 'speed'"),
        ({"mode": 4}, "mode is 4, which is not within 0 to 3"),
        ({"mode": -1}, "not within 0 to 3"),
    ],
)
def test_what_does_not_fit_is_refused(values, reason):
    with pytest.raises(ValueError, match=reason):
        CTRL_MEAS.encode(values)


def test_another_length_is_refused():
    with pytest.raises(ValueError, match="register 0xf4 has 1 bytes, not 2"):
        CTRL_MEAS.decode(b"\x00\x00")


@given(
    data=st.data(),
    order=st.sampled_from(["big", "little"]),
    keep=st.binary(min_size=3, max_size=3),
)
def test_what_is_encoded_decodes_to_itself(data, order, keep):
    """Property: fields do not touch each other, whatever else the register holds."""
    fields = (Field("a", 0, 5), Field("b", 7, 9, signed=True), Field("c", 20, 4))
    register = Register(0x10, fields, size=3, order=order)
    values = {f.name: data.draw(st.integers(*f.range())) for f in fields}
    encoded = register.encode(values, keep)
    assert register.decode(encoded) == values
    untouched = 0b0000_1111_0000_0000_0110_0000
    assert int.from_bytes(encoded, order) & untouched == int.from_bytes(keep, order) & untouched
