"""The kernel's errno in a maker's words: what happened, the likely cause, the next step.

One table for all buses; whoever does the I/O translates here, once. Pure.

Source: `Documentation/i2c/fault-codes.rst` of the kernel, and what adapters do in fact.
"""

from __future__ import annotations

import errno

from edged.errors import BusError, BusyError, EdgedError, NoDeviceError

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
    reason = _I2C.get(number, "the transfer failed")
    return BusError(number, f"{bus}, address {address:#04x}: {reason}")


def spi_error(number: int, device: str) -> BusError:
    """The error of a failed SPI transfer on `spi0.0`."""
    return BusError(number, f"{device}: {_SPI.get(number, 'the transfer failed')}")


def open_error(number: int, kind: str, path: str) -> EdgedError:
    """The error of a device node that cannot be opened.

    Args:
        number: the kernel's errno.
        kind: of bus, a key of `GROUPS`.
        path: of the node.
    """
    if number in {errno.ENOENT, errno.ENXIO, errno.ENODEV}:
        return NoDeviceError(f"{path} is not there: {_enable(kind)}")
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
    return BusError(number, f"{path} cannot be opened")


def _enable(kind: str) -> str:
    line = ENABLE.get(kind)
    if line is None:
        return "check that the kernel's driver is loaded"
    module = {"i2c": ", modprobe i2c-dev", "w1": ", modprobe w1-therm"}.get(kind, "")
    return f"switch it on with {line} in /boot/firmware/config.txt{module}, and reboot"
