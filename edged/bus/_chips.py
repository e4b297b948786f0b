"""The GPIO chips that are there now, and their lines to be taken: for both users of `_cdev`.

Synchronous; any thread. Errors are edged's own. Every call looks anew: chips come
and go, and their numbers with them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from edged.bus import LineSettings
from edged.bus import _cdev as cdev
from edged.bus._lines import Found, find
from edged.bus.faults import gpio_busy, gpio_error, open_error
from edged.errors import BusError, EdgedError, NoDeviceError

SETTLE_S = 1.0
"""How long udev may take to give a new device node to its group."""
_POLL_S = 0.05


class Chips:
    """The GPIO chips of this machine.

    A node that may not be opened is looked at again for a second where what is
    wanted is not found without it: udev gives a new node to its group a little later.

    Args:
        dev: where their device nodes are.
        sysfs: where the kernel lists them.
        sleep: waits that many seconds.
    """

    def __init__(
        self, dev: str = "/dev", sysfs: str = "/sys", sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._dev = dev
        self._list = f"{sysfs}/bus/gpio/devices"
        self._sleep = sleep

    def all(self) -> Sequence[cdev.Chip]:
        """Those that may be opened, by number.

        Raises:
            BusError: there are some, and none may be opened.
        """
        chips, denied = self._settled(bool)
        if denied is not None and not chips:
            raise denied
        return chips

    def locate(self, line: str) -> Found:
        """The line of that name; see `edged.bus._lines.find`.

        Raises:
            NoDeviceError: no such line, or several.
            BusError: not found, and a chip may not be opened.
        """
        chips, denied = self._settled(lambda chips: _is_on(line, chips))
        try:
            return find(line, chips)
        except NoDeviceError:
            if denied is not None:
                raise denied from None
            raise

    def _settled(
        self, enough: Callable[[Sequence[cdev.Chip]], bool]
    ) -> tuple[list[cdev.Chip], EdgedError | None]:
        """What `_look` finds, after udev had its time where that is not enough."""
        for _ in range(round(SETTLE_S / _POLL_S)):
            chips, denied = self._look()
            if not isinstance(denied, BusError) or denied.errno != errno.EACCES or enough(chips):
                return chips, denied
            self._sleep(_POLL_S)
        return self._look()

    def _look(self) -> tuple[list[cdev.Chip], EdgedError | None]:
        """The chips, and the error of one that may not be opened."""
        chips, denied = [], None
        for name in self._names():
            path = os.path.join(self._dev, name)
            try:
                chips.append(cdev.read_chip(path))
            except OSError as error:
                # One that went away meanwhile is no longer there.
                if error.errno not in {errno.ENODEV, errno.ENXIO}:
                    denied = open_error(error.errno or 0, "gpio", path)
        return chips, denied

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self._list)
        except OSError:
            return []
        chips = [name for name in names if name.startswith("gpiochip")]
        return sorted(chips, key=lambda name: (len(name), name))


def take(found: Found, settings: LineSettings, consumer: str) -> int:
    """Takes a line; the descriptor that holds it.

    Raises:
        NoDeviceError: its chip was unplugged.
        BusyError: taken; the message names its consumer.
        BusError: refused by the kernel.
    """
    try:
        return cdev.request(found.chip.path, found.offset, settings, consumer)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise gpio_busy(found.title, _consumer(found)) from None
        raise gpio_error(error.errno or 0, found.title) from error


def _consumer(found: Found) -> str:
    try:
        return cdev.read_chip(found.chip.path).lines[found.offset].consumer
    except OSError:
        return ""


def _is_on(line: str, chips: Sequence[cdev.Chip]) -> bool:
    try:
        find(line, chips)
    except NoDeviceError:
        return False
    return True
