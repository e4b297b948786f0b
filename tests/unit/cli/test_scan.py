"""`edged scan` for people."""

from edged.board.scan import BusScan, Scan
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
