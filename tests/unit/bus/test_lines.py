"""Which GPIO line a name means."""

import tracemalloc

import pytest

from edged.bus import LineState
from edged.bus._cdev import Chip
from edged.bus._lines import HEADER, find
from edged.errors import NoDeviceError


def chip(number, label, names):
    lines = tuple(LineState(name, label, n, "input") for n, name in enumerate(names))
    return Chip(f"gpiochip{number}", label, f"/dev/gpiochip{number}", lines)


PI_4 = chip(0, "pinctrl-bcm2711", ["ID_SDA", "ID_SCL"] + [f"GPIO{n}" for n in range(2, 58)])
# Mainline's device tree names lines by their function.
PI_3 = chip(0, "pinctrl-bcm2835", ["ID_SDA", "ID_SCL", "SDA1", "SCL1"] + [""] * 50)
PI_5 = [
    chip(0, "pinctrl-rp1", ["ID_SDA", "ID_SCL"] + [f"GPIO{n}" for n in range(2, 54)]),
    chip(10, "gpio-brcmstb@107d508500", ["-", "GPIO17", "-"]),
]
EXPANDERS = [chip(1, "mcp23017", ["a", "NC", "NC"]), chip(2, "mcp23017", ["b", "relay"])]


def where(line, chips):
    found = find(line, chips)
    return found.chip.name, found.offset, found.title


@pytest.mark.parametrize(
    ("line", "chips", "expected"),
    [
        ("GPIO17", [PI_4], ("gpiochip0", 17, "GPIO17 (pin 11)")),
        ("GPIO42", [PI_4], ("gpiochip0", 42, "GPIO42")),
        ("GPIO17", PI_5, ("gpiochip0", 17, "GPIO17 (pin 11)")),
        ("GPIO2", [PI_3], ("gpiochip0", 2, "GPIO2 (pin 3)")),
        ("SDA1", [PI_3], ("gpiochip0", 2, "SDA1 (pin 3)")),
        ("relay", EXPANDERS, ("gpiochip2", 1, "relay")),
        ("pinctrl-rp1/17", PI_5, ("gpiochip0", 17, "pinctrl-rp1/17 (GPIO17)")),
        ("gpiochip0/5", [PI_3], ("gpiochip0", 5, "gpiochip0/5")),
        ("gpiochip2/1", EXPANDERS, ("gpiochip2", 1, "gpiochip2/1 (relay)")),
    ],
)
def test_a_line_is_found(line, chips, expected):
    assert where(line, chips) == expected


@pytest.mark.parametrize("line", ["pin 11", "pin11", "Pin 11", "BOARD11", "board 11"])
def test_a_header_pin_is_echoed_with_both_numbers(line):
    """facts: BCM and BOARD numbering: accept both, echo both."""
    assert where(line, [PI_4]) == ("gpiochip0", 17, "GPIO17 (pin 11)")


def test_the_header_is_that_of_the_raspberry_pi():
    """The 40-pin header: 26 GPIO lines and the two of the HAT's EEPROM, 8 grounds, 4 supplies."""
    assert sorted(HEADER) == list(range(1, 41))
    assert sorted(bcm for bcm in HEADER.values() if isinstance(bcm, int)) == list(range(28))
    assert [pin for pin, bcm in HEADER.items() if bcm == "GND"] == [6, 9, 14, 20, 25, 30, 34, 39]
    assert [HEADER[pin] for pin in (1, 17, 2, 4)] == ["3V3", "3V3", "5V", "5V"]
    some = {3: 2, 5: 3, 7: 4, 8: 14, 10: 15, 19: 10, 21: 9, 23: 11, 24: 8, 26: 7, 40: 21}
    assert {pin: HEADER[pin] for pin in some} == some


@pytest.mark.parametrize(
    ("line", "chips", "reason"),
    [
        ("GPIO17", [], "this machine shows no GPIO chip"),
        ("GPIO1", [chip(0, "soc", ["GPIO17"])], "did you mean GPIO17"),
        ("pump", EXPANDERS, r"write its name, or chip and offset; .*mcp23017 \(gpiochip1, 3 l"),
        ("17", [PI_4], r"write GPIO17 \(pin 11 of the header\) or pin 17 \(3V3\)"),
        ("11", [PI_4], r"write GPIO11 \(pin 23 of the header\) or pin 11 \(GPIO17\)"),
        ("30", [PI_4], r"write pin 30 \(GND\)$"),
        ("99", [PI_4], "write GPIO and its BCM number"),
        ("17", [chip(0, "soc", ["GPIO17"])], "did you mean GPIO17"),
        ("NC", EXPANDERS, r"2 .* mcp23017/1 \(gpiochip1\) and mcp23017/2 \(gpiochip1\): write"),
        ("mcp23017/0", EXPANDERS, "2 GPIO chips .* gpiochip1 and gpiochip2: write which"),
        ("max7300/0", EXPANDERS, r"no GPIO chip 'max7300': there is mcp23017 \(gpiochip1\), mcp"),
        ("gpiochip9/0", [], "there is none"),
        ("gpiochip1/3", EXPANDERS, r"no line 3 on mcp23017 \(gpiochip1\): it has 0 to 2"),
        ("gpiochip1/-1", EXPANDERS, "no GPIO line"),
        ("pin 6", [PI_4], "pin 6 of the header is GND, not a GPIO line: GPIO6 would be pin 31"),
        ("pin 39", [PI_4], "pin 39 of the header is GND, not a GPIO line$"),
        ("pin 41", [PI_4], "pins 1 to 40"),
        ("pin 11", EXPANDERS, r"pin 11 \(GPIO17\): this board has no header"),
        ("", EXPANDERS, "no GPIO line ''"),
    ],
)
def test_what_is_no_line_says_what_to_write(line, chips, reason):
    with pytest.raises(NoDeviceError, match=reason):
        find(line, chips)


@pytest.mark.parametrize(
    "line",
    ["A" * 15_000_000, "gpiochip0/" + "9" * 5_000, "9" * 5_000, "9" * 65, "pin " + "1" * 5_000],
    ids=["letters", "offset", "number", "65", "pin"],
)
def test_what_is_longer_than_any_name_is_refused_by_its_length(line):
    """Text without end costs neither memory nor a fault; what is told is short."""
    tracemalloc.start()
    with pytest.raises(NoDeviceError, match="no GPIO line") as refused:
        find(line, [PI_4])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(str(refused.value)) < 250
    assert "pinctrl-bcm2711 (gpiochip0, 58 lines)" in str(refused.value)
    assert peak < 1 << 20


@pytest.mark.parametrize("line", ["gpiochip0/" + "9" * 54, "9" * 64])
def test_an_offset_of_many_digits_is_one_that_is_not_there(line):
    with pytest.raises(NoDeviceError, match="no line 9{54} on|write GPIO and its BCM number"):
        find(line, [PI_4])


@pytest.mark.parametrize(
    "line", ["gpiochip0/٣", "pin ١١", "GPIO١٧", "١٧", "gpiochip0/³"]
)  # digits of other scripts
def test_digits_are_ascii(line):
    """What looks like another number is none."""
    with pytest.raises(NoDeviceError, match="no GPIO line"):
        find(line, [PI_4])
