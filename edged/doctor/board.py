"""What keeps the configured board from working: buses, libraries, rights.

Looks and opens nothing: a daemon that runs may have all of it in use.
"""

from __future__ import annotations

import errno
import importlib.util
import os
from collections.abc import Iterator
from typing import NamedTuple, cast

from edged import plugins
from edged.board import Board
from edged.board.device import USUAL_BUS
from edged.bus import Kind
from edged.bus.faults import open_error, remedy
from edged.bus.kernel import KernelBuses
from edged.bus.settings import DeviceConfig
from edged.clock import SystemClock
from edged.doctor.finding import Finding
from edged.drivers import Driver, Info
from edged.errors import ConfigError
from edged.libraries import install
from edged.settings import Loaded


class Library(NamedTuple):
    """A package that a bus or a driver needs."""

    module: str
    debian: str
    pip: str


LIBRARIES = {
    "i2c": Library("smbus2", "python3-smbus2", "smbus2"),
    "spi": Library("spidev", "python3-spidev", "edged[spi]"),
    "serial": Library("serial", "python3-serial", "pyserial"),
    "ssd1306": Library("PIL", "python3-pil", "edged[display]"),
    "circuitpython": Library("adafruit_bus_device", "", "edged[circuitpython]"),
}
"""By kind of bus, or by driver."""

STRETCH_BUG = ("Raspberry Pi",)
"""Boards whose I2C controller gets a stretched clock wrong (raspberrypi/linux issue 4884)."""

STRETCH_FINE = ("Raspberry Pi 5", "Raspberry Pi Compute Module 5")


def check(loaded: Loaded) -> None:
    """Refuse a board that the daemon would refuse.

    Raises:
        ConfigError: with its line.
    """
    config, clock = loaded.config.board, SystemClock()
    if not (config.sensors or config.actuators or config.gpio):
        return
    try:
        Board(config, KernelBuses(clock), clock)
    except ConfigError as error:
        raise loaded.located(error) from None


def examine(loaded: Loaded, dev: str, sysfs: str, proc: str) -> Iterator[Finding]:
    """All findings about `board:` of the configuration.

    Args:
        loaded: the configuration; see `check`.
        dev: where device nodes are.
        sysfs: where sysfs is mounted.
        proc: where the device tree's model is found.
    """
    config = loaded.config.board
    buses = KernelBuses(SystemClock(), dev=dev, sysfs=sysfs)
    devices = {**config.sensors, **config.actuators}
    if not devices and not config.gpio:
        there = sorted(buses.present())
        text = f"nothing is configured; there is {', '.join(there) or 'no bus'}"
        yield Finding("board", "note", text, "see what is wired: edged scan" if there else "")
        return
    present = buses.present()
    found = [
        one
        for name, device in devices.items()
        for one in _device(name, device, dev, sysfs, present)
    ]
    if config.gpio and "gpio" not in present:
        found.append(
            Finding(
                "board",
                "fault",
                f"gpio {', '.join(config.gpio)}: this machine shows no GPIO chip",
                "load its driver, or allow the unit its devices (DeviceAllow=char-gpiochip rw)",
            )
        )
    found += _stretching(devices, proc)
    yield from dict.fromkeys(found)
    if not any(one.level == "fault" for one in found):
        count = len(devices) + len(config.gpio)
        yield Finding("board", "ok", f"{count} configured devices and lines have their buses")


def _device(
    name: str, config: DeviceConfig, dev: str, sysfs: str, present: frozenset[Kind]
) -> Iterator[Finding]:
    info = _info(config)
    for key in (info.bus, config.driver):
        library = LIBRARIES.get(key)
        if library is not None and importlib.util.find_spec(library.module) is None:
            text = f"{name} needs the Python package {library.module}"
            yield Finding("board", "fault", text, install(library.pip, library.debian))
    node = _node(config, info, dev)
    if node is not None and not os.path.exists(node):
        yield Finding("board", "fault", f"{name}: {open_error(errno.ENOENT, info.bus, node)}")
    elif node is not None and not os.access(node, os.R_OK | os.W_OK, effective_ids=True):
        # The daemon may run as another user, of which this one knows nothing.
        text = str(open_error(errno.EACCES, info.bus, node))
        yield Finding("board", "warning", f"{name}: {text}", "where the daemon runs as this user")
    if info.bus == "w1" and not os.path.isdir(f"{sysfs}/bus/w1/devices"):
        yield Finding("board", "fault", f"{name}: no 1-wire bus here", remedy("w1"))
    if info.bus in _CHIPS and info.bus not in present:
        yield Finding("board", "fault", f"{name}: no {_CHIPS[info.bus]} here", remedy(info.bus))


_CHIPS: dict[str, str] = {"pwm": "PWM chip", "gpio": "GPIO chip"}
"""What devices are on that name no bus."""


def _info(config: DeviceConfig) -> Info:
    return cast("Driver", plugins.load("edged.drivers", config.driver)).INFO


def _node(config: DeviceConfig, info: Info, dev: str) -> str | None:
    """The device node of a device; None where it has none, or is found in another way."""
    bus = config.bus or USUAL_BUS.get(info.bus, "")
    if info.bus == "i2c":
        return f"{dev}/{bus.partition('/')[0]}"
    if info.bus == "spi":
        return f"{dev}/spidev{bus.removeprefix('spi')}"
    if info.bus == "serial" and not bus.startswith("usb:"):
        return os.path.join(dev, bus)
    return None


def _stretching(devices: dict[str, DeviceConfig], proc: str) -> Iterator[Finding]:
    model = _model(proc)
    if not model.startswith(STRETCH_BUG) or model.startswith(STRETCH_FINE):
        return
    for name, config in devices.items():
        if _info(config).stretches:
            text = f"{name}: this chip holds the clock, which the {model} may read wrongly"
            slow = "slow the bus: dtparam=i2c_arm_baudrate=10000 in /boot/firmware/config.txt"
            yield Finding("board", "note", text, slow)


def _model(proc: str) -> str:
    try:
        with open(f"{proc}/device-tree/model", encoding="utf-8") as file:
            return file.read().rstrip("\0")
    except OSError:
        return ""
