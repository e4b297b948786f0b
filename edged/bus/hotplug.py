"""Tells when hardware comes or goes, by the kernel's own messages: nothing is polled.

Source: netlink(7), NETLINK_KOBJECT_UEVENT; Documentation/driver-api/driver-model of the kernel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from edged import log

NETLINK_KOBJECT_UEVENT = 15
KERNEL_GROUP = 1
"""The kernel's own messages; udev sends its on another."""

SUBSYSTEMS = frozenset(
    ("i2c", "i2c-dev", "spidev", "spi", "tty", "gpio", "w1", "hwmon", "iio", "pwm", "usb-serial")
)

SETTLE_S = 0.5
"""After the last message: drivers bind and udev sets the groups of nodes meanwhile."""

_MESSAGE_MAX = 16_384


class Hotplug:
    """Watches for buses and devices; loop thread only.

    Args:
        changed: called some time after something came or went.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin; where the kernel sends no messages (some containers) nothing is noticed."""
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        try:
            made = socket.socket(socket.AF_NETLINK, kind, NETLINK_KOBJECT_UEVENT)
        except OSError as error:
            log.info(f"hot-plugging is not noticed: {error.strerror}")
            return
        try:
            made.bind((0, KERNEL_GROUP))
        except OSError as error:
            made.close()
            log.info(f"hot-plugging is not noticed: {error.strerror}")
            return
        self._socket = made
        asyncio.get_running_loop().add_reader(made, self._read)

    def close(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data, sender = self._socket.recvfrom(_MESSAGE_MAX)
        except BlockingIOError:
            return
        except OSError:
            # More came than the buffer holds (ENOBUFS): something changed, whatever it was.
            self._soon()
            return
        # Port 0 is the kernel; any process may send to the group.
        if sender[0] == 0 and is_hardware(data):
            self._soon()

    def _soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(SETTLE_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._changed()


def is_hardware(message: bytes) -> bool:
    """Whether a message is about a bus or device of ours that came or went.

    Shape:
        message: `add@/devices/…` and variables such as `SUBSYSTEM=tty`, each ended by a zero.
    """
    head, *variables = message.split(b"\0")
    if head.partition(b"@")[0] not in {b"add", b"remove", b"bind", b"unbind"}:
        return False
    return any(
        variable[10:].decode("ascii", "replace") in SUBSYSTEMS
        for variable in variables
        if variable.startswith(b"SUBSYSTEM=")
    )
