"""Each place on the board belongs to one holder at a time."""

import pytest

from edged.board.claims import Claims
from edged.errors import BusyError


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
