"""The kernel's errno in a maker's words: what happened, the likely cause, the next step.

One table for all buses; whoever does the I/O translates here, once. Pure.

Source: `Documentation/i2c/fault-codes.rst` of the kernel, and what adapters do in fact.
"""

from __future__ import annotations

import errno
import os
import re

from edged.errors import BusError, BusyError, EdgedError, NoDeviceError


class NackError(Exception):
    """A register model does not acknowledge: it is busy, or knows no such command.

    Here, and not with the simulated bus, for the drivers' models to raise
    without importing it; `i2c_error` is what their users see.
    """


NO_ANSWER = frozenset({errno.EREMOTEIO, errno.ENXIO, errno.ENODEV})
"""Adapters differ in the errno of an address that nobody acknowledged."""

STUCK = frozenset({errno.ETIMEDOUT})
"""The bus itself does not move."""

GROUPS = {"i2c": "i2c", "spi": "spi", "gpio": "gpio", "serial": "dialout", "pwm": "gpio"}
"""Who may open the device nodes, on Raspberry Pi OS and by our udev rules."""

ENABLE = {
    "i2c": "dtparam=i2c_arm=on",
    "spi": "dtparam=spi=on",
    "serial": "enable_uart=1",
    "w1": "dtoverlay=w1-gpio",
    "pwm": "dtoverlay=pwm-2chan",
}
"""Lines of /boot/firmware/config.txt that switch a bus on, on a Raspberry Pi."""

_I2C = {
    errno.ETIMEDOUT: (
        "the bus is stuck or a device holds the clock: check for SDA or SCL low and a missing "
        "pull-up, then power the devices off and on"
    ),
    errno.EAGAIN: "arbitration was lost: another controller or noise is on the bus",
    errno.EOPNOTSUPP: "the adapter cannot do a transfer of this shape: try smaller ones",
    errno.EINVAL: "the kernel refused the transfer: too long, or an address out of range",
    errno.EPROTO: "the device answered with a block length that cannot be",
    errno.EBADMSG: "the checksum (PEC) was wrong: noise, or a device without PEC",
    errno.EIO: "the transfer failed: check the wiring and the supply",
}
_SPI = {
    errno.EMSGSIZE: (
        "longer than the kernel's buffer: raise it with spidev.bufsiz=65536 on the kernel's "
        "command line"
    ),
    errno.EINVAL: "the controller cannot do this mode, speed or word size",
    errno.ESHUTDOWN: "the controller was removed",
}
_GPIO = {
    errno.EPERM: "it is an input: request it as an output to drive it",
    errno.EINVAL: "its chip cannot do this mix of direction, bias, drive, edges and debounce",
    errno.ENXIO: "its chip tells of no edges (no interrupt): read its level instead",
    errno.EIO: "its chip did not answer: check the chip's wiring and supply",
}
_GPIO_HOLDERS = {
    r"spi(\d+) CS(\d+)": (
        "it is a chip select of SPI: use spi{0}.{1}, or free it with dtoverlay=spi{0}-0cs in "
        "/boot/firmware/config.txt"
    ),
    r"(?:onewire|w1)\b.*": (
        "it is the 1-wire bus (dtoverlay=w1-gpio): read its devices there, or take that line out "
        "of /boot/firmware/config.txt"
    ),
    r"sysfs": (
        "a program exported it in /sys/class/gpio: end that program, or write its number to "
        "/sys/class/gpio/unexport"
    ),
}
"""Consumers that makers meet, and what to do about each."""
_FILE = {
    errno.EIO: "the kernel's driver got no valid answer: check the wiring and the supply",
    errno.ETIMEDOUT: "the device did not answer in time: check the wiring and the supply",
    errno.EAGAIN: "there is no value yet: try again",
    errno.ENODATA: "there is no value yet: try again",
    errno.EINVAL: "the kernel's driver refused the value",
    errno.EOPNOTSUPP: "the kernel's driver cannot do this",
}


def i2c_error(number: int, bus: str, address: int) -> EdgedError:
    """The error of a failed I2C transfer.

    Args:
        number: the kernel's errno.
        bus: `i2c-1`.
        address: 7-bit address of the target.
    """
    if number in NO_ANSWER:
        return NoDeviceError(
            f"nothing answered at address {address:#04x} on {bus}: check power, SDA and SCL "
            "swapped, the address pin and the pull-ups"
        )
    if number == errno.EBUSY:
        return BusyError(f"{bus}, address {address:#04x}: a driver of the kernel owns it")
    reason = _I2C.get(number, _unknown(number))
    return BusError(number, f"{bus}, address {address:#04x}: {reason}")


def silent_error(bus: str, address: int) -> NoDeviceError:
    """The error of a target that timed out on a bus where others answer."""
    return NoDeviceError(
        f"nothing answered in time at address {address:#04x} on {bus}, where others do: it is not "
        "there, or holds the clock: check its wiring, then power it off and on"
    )


def spi_error(number: int, device: str) -> BusError:
    """The error of a failed SPI transfer on `spi0.0`."""
    return BusError(number, f"{device}: {_SPI.get(number, _unknown(number))}")


def gpio_error(number: int, line: str) -> EdgedError:
    """The error of a GPIO line that the kernel refused something; see also `gpio_busy`.

    Args:
        number: the kernel's errno.
        line: as messages call it, `GPIO17 (pin 11)`.
    """
    if number in {errno.ENODEV, errno.ENOENT}:
        return NoDeviceError(f"line {line}: its chip was unplugged")
    if number in {errno.EREMOTEIO, errno.ETIMEDOUT}:
        return NoDeviceError(
            f"line {line}: its chip does not answer: check the chip's wiring and supply"
        )
    return BusError(number, f"line {line}: {_GPIO.get(number, _unknown(number))}")


def gpio_busy(line: str, consumer: str) -> BusyError:
    """The error of a GPIO line that is taken.

    Args:
        line: as messages call it.
        consumer: as the kernel tells it; empty for a nameless one.
    """
    for pattern, advice in _GPIO_HOLDERS.items():
        if found := re.fullmatch(pattern, consumer):
            remedy = advice.format(*found.groups())
            return BusyError(f"line {line} is used by {consumer!r}: {remedy}")
    holder = repr(consumer) if consumer else "something without a name"
    return BusyError(f"line {line} is used by {holder}: end that, or use another line")


def open_error(number: int, kind: str, path: str) -> EdgedError:
    """The error of a device node that cannot be opened.

    Args:
        number: the kernel's errno.
        kind: of bus, a key of `GROUPS`.
        path: of the node.
    """
    if number in {errno.ENOENT, errno.ENXIO, errno.ENODEV}:
        return NoDeviceError(f"{path} is not there: {remedy(kind)}")
    if number == errno.EACCES:
        group = GROUPS.get(kind, "root")
        return BusError(
            number,
            f"edged may not open {path}: add its user to the group {group} "
            f"(usermod -aG {group} USER, or SupplementaryGroups={group} in the unit), "
            "then start it again",
        )
    if number == errno.EPERM:
        return BusError(
            number,
            f"{path}: the device policy of the unit or container forbids it: "
            f"allow it (DeviceAllow={path} rw)",
        )
    if number in {errno.EBUSY, errno.EAGAIN}:
        return BusyError(f"{path} is in use by another program")
    return BusError(number, f"{path} cannot be opened: {os.strerror(number)}")


def file_error(number: int, path: str, kind: str = "") -> EdgedError:
    """The error of a sysfs file that the kernel would not have read or written.

    Args:
        number: the kernel's errno.
        path: of the file.
        kind: of bus, a key of `GROUPS`; empty when no group of people has it.
    """
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return NoDeviceError(
            f"{path} is not there: check that the device is connected and its kernel driver loaded"
        )
    if number in NO_ANSWER:
        return NoDeviceError(
            f"{path}: the device is gone or does not answer the kernel's driver: check its "
            "wiring and supply"
        )
    if number == errno.EBUSY:
        return BusyError(f"{path}: another program or driver of the kernel uses it")
    if number in {errno.EACCES, errno.EPERM}:
        if kind in GROUPS:
            return open_error(number, kind, path)
        return BusError(
            number,
            f"edged may not open {path}: it is for root alone, until a "
            "udev rule gives it to edged's group",
        )
    return BusError(number, f"{path}: {_FILE.get(number, _unknown(number))}")


def _unknown(number: int) -> str:
    return f"the kernel could not do it: {os.strerror(number)}"


def remedy(kind: str) -> str:
    """How a kind of bus is switched on."""
    line = ENABLE.get(kind)
    if line is None:
        return "check that the kernel's driver is loaded"
    module = {"i2c": ", modprobe i2c-dev", "w1": ", modprobe w1-therm"}.get(kind, "")
    return f"switch it on with {line} in /boot/firmware/config.txt{module}, and reboot"
