"""Each place on the board belongs to one holder at a time."""

import pytest

from edged.board.claims import Claims, refuse_twice
from edged.errors import BusyError, ConfigError


def test_a_second_claim_is_refused_with_its_holder():
    """Issue 3, part 3: claims with the holder's name."""
    claims = Claims()
    claims.take("i2c-1/0x76", "the sensor attic")
    with pytest.raises(BusyError, match="i2c-1/0x76 is in use by the sensor attic"):
        claims.take("i2c-1/0x76", "tool x")
    claims.take("i2c-1/0x77", "tool x")


def test_who_holds_a_bus_holds_what_is_on_it():
    claims = Claims()
    claims.take("i2c-1/0x76", "the sensor attic")
    claims.take("i2c-1", "tool camera")
    with pytest.raises(BusyError, match="in use by tool camera"):
        claims.check("i2c-1/0x48")
    with pytest.raises(BusyError, match="in use by tool camera"):
        claims.check("i2c-1/0x76", "the sensor attic")
    claims.free("i2c-1")
    claims.check("i2c-1/0x76", "the sensor attic")


def test_no_place_is_always_free():
    """A driver on lines or on the kernel's files claims what it takes by itself."""
    Claims().check("")


@pytest.mark.parametrize("before", ["i2c-1/0x76", "i2c-1/0x70"])
def test_an_address_before_and_behind_a_multiplexer_is_refused(before):
    """Fault 15: both chips would answer; and the multiplexer's own address is its own."""
    places = [("board.sensors.a", before), ("board.sensors.b", "i2c-1/0x70/3/0x76")]
    with pytest.raises(ConfigError, match=f"board.sensors.b: .*a has {before} before it"):
        refuse_twice(places)


def test_the_same_address_on_two_channels_is_what_a_multiplexer_is_for():
    refuse_twice(
        [
            ("a", "i2c-1/0x70/3/0x76"),
            ("b", "i2c-1/0x70/4/0x76"),
            ("c", "i2c-2/0x76"),
            ("d", "ttyUSB0/1"),
            ("e", ""),
            ("f", ""),
        ]
    )
