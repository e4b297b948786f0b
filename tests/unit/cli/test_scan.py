"""`edged scan` for people."""

from edged.board.scan import BusScan, Found, Scan
from edged.cli import scan


def test_a_board_without_i2c_is_told_how_to_switch_it_on():
    """Most sensors of makers are on it: its absence is never passed over."""
    lines = scan._lines(Scan(spi=("spi0.0",)))
    assert lines[0] == "I2C"
    assert " ".join(" ".join(lines[1:]).split()).startswith(
        "no bus: switch it on with dtparam=i2c_arm=on in /boot/firmware/config.txt, modprobe"
    )
    assert lines[-2:] == ["SPI", "  spi0.0"]


def test_a_bus_where_nothing_answers_is_told_with_what_to_check():
    assert scan._lines(Scan(i2c=(BusScan("i2c-1", ()),))) == [
        "i2c-1",
        "  nothing answers: check power, SDA, SCL and pull-ups",
    ]


def test_nothing_at_all_is_told_in_one_line():
    assert scan._lines(Scan()) == ["no buses here: `edged doctor` says how to switch them on"]


def test_who_uses_a_chip_is_named_and_it_is_not_to_be_pasted_again():
    found = (Found(0x48, "lm75"), Found(0x76, holder="the sensor room"))
    assert scan._lines(Scan(i2c=(BusScan("i2c-1", found),))) == [
        "i2c-1",
        "  0x48  in use by the kernel's driver lm75",
        "  0x76  in use by the sensor room",
    ]
