"""What the doctor says of the configured board."""

import importlib.util
import os
import sys

import pytest

from edged import settings
from edged.doctor import board
from edged.errors import ConfigError


def findings(tmp_path, text, nodes=(), model=""):
    for name in ("dev", "sys", "proc/device-tree"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for node in nodes:
        (tmp_path / "dev" / node).touch()
    (tmp_path / "proc/device-tree/model").write_text(model + "\0")
    loaded = settings.parse(text, "/etc/edged.yaml")
    places = (str(tmp_path / name) for name in ("dev", "sys", "proc"))
    return [(f.level, f.text, f.remedy) for f in board.examine(loaded, *places)]


SENSOR = "board: {sensors: {attic: {driver: bme280, bus: i2c-1}}}\n"


def test_a_whole_board_is_told_in_one_line(tmp_path):
    assert findings(tmp_path, SENSOR, ["i2c-1"]) == [
        ("ok", "1 configured devices and lines have their buses", "")
    ]


def test_an_unconfigured_one_is_told_what_there_is(tmp_path):
    """`edged scan` is the next step of a newcomer."""
    assert findings(tmp_path, "", ["i2c-1", "ttyUSB0"]) == [
        ("note", "nothing is configured; there is i2c, serial", "see what is wired: edged scan")
    ]
    assert findings(tmp_path / "bare", "") == [
        ("note", "nothing is configured; there is no bus", "")
    ]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("{driver: bme280, bus: i2c-1}", "dtparam=i2c_arm=on in /boot/firmware/config.txt"),
        ("{driver: mcp3008}", "spidev0.0 is not there: switch it on with dtparam=spi=on"),
        ("{driver: pms5003, bus: ttyAMA0}", "ttyAMA0 is not there: switch it on with enable_uart"),
        ("{driver: ds18b20}", "no 1-wire bus here"),
        ("{driver: hcsr04, options: {trigger: GPIO23, echo: GPIO24}}", "attic: no GPIO chip here"),
    ],
)
def test_a_bus_that_is_not_there_is_told_with_its_line(tmp_path, config, text):
    """Issue 3, part 6: what, cause and remedy for this board."""
    found = findings(tmp_path, f"board: {{sensors: {{attic: {config}}}}}\n")
    assert any(level == "fault" and text in said for level, said, _ in found), found


def test_an_actuator_without_its_pwm_is_told_too(tmp_path):
    text = "board: {actuators: {window: {driver: servo, options: {channel: pwmchip0/0}}}}\n"
    ((level, said, remedy),) = findings(tmp_path, text)
    assert (level, said) == ("fault", "window: no PWM chip here")
    assert "dtoverlay=pwm-2chan" in remedy


def test_a_package_that_is_missing_is_told_with_how_to_get_it(tmp_path, monkeypatch):
    """Issue 3, part 7: says exactly what to install."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "spidev" else found(name)
    )
    text = "board: {sensors: {pots: {driver: mcp3008}}}\n"
    assert findings(tmp_path, text, ["spidev0.0"]) == [
        (
            "fault",
            "pots needs the Python package spidev",
            f"{sys.prefix}/bin/pip install 'edged[spi]'",
        )
    ]


def test_a_wrong_setting_is_told_with_its_line():
    """By the finding of the configuration, which is not valid then."""
    text = "board:\n  sensors:\n    attic: {driver: bme280, address: 0x40}\n"
    with pytest.raises(ConfigError, match="^/etc/edged.yaml:3: board.sensors.attic.address: 0x40"):
        board.check(settings.parse(text, "/etc/edged.yaml"))
    for right in ("", SENSOR):
        board.check(settings.parse(right, "/etc/edged.yaml"))


def test_lines_need_a_chip(tmp_path):
    text = "board: {gpio: {pump: {line: GPIO17, direction: output}}}\n"
    ((level, said, _),) = findings(tmp_path, text)
    assert (level, said) == ("fault", "gpio pump: this machine shows no GPIO chip")
    assert findings(tmp_path, text, ["gpiochip0"])[0][0] == "ok"


@pytest.mark.parametrize(
    ("model", "noted"),
    [
        ("Raspberry Pi 4 Model B Rev 1.4", True),
        ("Raspberry Pi 5 Model B Rev 1.0", False),
        ("Freescale i.MX6 Quad SABRE Lite Board", False),
    ],
)
def test_a_chip_that_holds_the_clock_is_noted_where_that_fails(tmp_path, model, noted):
    """Fault 19; Pi 5 has another controller."""
    text = "board: {sensors: {air: {driver: scd30, bus: i2c-1}}}\n"
    found = findings(tmp_path, text, ["i2c-1"], model)
    assert any("holds the clock" in said for _, said, _ in found) is noted


def test_a_node_that_is_closed_to_this_user_is_told_with_its_group(tmp_path):
    was = os.geteuid()
    dev = tmp_path / "dev"
    dev.mkdir(parents=True)
    (dev / "i2c-1").touch(0o000)
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    loaded = settings.parse(SENSOR, "/etc/edged.yaml")
    if was == 0:
        os.seteuid(65_534)
    try:
        found = list(board.examine(loaded, str(dev), str(tmp_path / "sys"), str(tmp_path)))
    finally:
        os.seteuid(was)
    assert any("usermod -aG i2c" in one.text for one in found)
