"""One tty as its port's thread opens, sets up and closes it. Blocking.

pyserial sets speed, framing, flow control and lines; what it lacks is done
here: a port belongs to one program, closing it does not reset what is attached,
and a read that has nothing says so.

Source: tty_ioctl(2), termios(3), flock(2); linux/serial.h.
"""

from __future__ import annotations

import array
import errno
import fcntl
import termios
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from edged.bus import Parity, SerialSettings
from edged.bus._ports import holders
from edged.bus.faults import open_error
from edged.errors import (
    BusError,
    BusyError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.libraries import install

BAUDRATE_MAX = 20_000_000
"""Faster than any UART that there is."""

_TIOCGEXCL = 0x8004_5440
"""asm-generic/ioctls.h: whether TIOCEXCL is set; Python's termios does not have it."""

_TIOCGICOUNT = 0x545D
_PARITY: dict[Parity, str] = {"none": "N", "even": "E", "odd": "O"}


class Counts(NamedTuple):
    """Errors of the line, as its driver counts them."""

    framing: int
    parity: int
    overrun: int
    breaks: int

    def since(self, before: Counts) -> dict[str, int]:
        """How many came since then."""
        return {
            "framing": self.framing - before.framing,
            "parity": self.parity - before.parity,
            "overrun": self.overrun - before.overrun,
            "break": self.breaks - before.breaks,
        }


class Tty:
    """A serial node that is opened once and closed once.

    Args:
        path: of the node.
        settings: how.
    """

    def __init__(self, path: str, settings: SerialSettings) -> None:
        self._path, self._settings = path, settings
        # pyserial has no types of its own.
        self._serial: Any = None
        self._before: Counts | None = None

    @property
    def fd(self) -> int:
        """The open file, which does not block."""
        return int(self._serial.fd)

    def open(self) -> None:
        """Opens and sets up; on failure nothing is left open.

        The kernel raises DTR and RTS while it opens; what `settings` say of them is
        set right after.

        Raises:
            NoDeviceError: nothing there, or pyserial is not installed.
            BusyError: another program has it open; the message names it where it may be seen.
            InvalidArgumentsError: settings that no port has.
            BusError: refused by the kernel.
        """
        # Its own check comes first: setting up would change the other one's settings.
        others = holders(self._path)
        if others:
            raise BusyError(f"{self._path} is in use by {', '.join(others)}: stop it first")
        serial = self._configured()
        try:
            serial.open()
            self._serial = serial
            self._set_up()
        except EdgedError:
            self.close()
            raise
        except (OSError, termios.error, ValueError) as error:
            self.close()
            raise _open_error(error, self._path) from error

    def drain(self) -> None:
        """Waits until what was written is on its way; for ever where flow control holds it.

        Raises:
            OSError: the device is gone.
        """
        try:
            termios.tcdrain(self.fd)
        except termios.error as error:
            raise OSError(*error.args) from error

    def drop_output(self) -> None:
        """Forgets what was written and is not on its way; ends `drain`. Does not block."""
        with suppress(termios.error):
            termios.tcflush(self.fd, termios.TCOFLUSH)

    def line_errors(self) -> dict[str, int] | None:
        """Errors since it was opened; None where the driver does not count."""
        now = self._counts()
        return None if now is None or self._before is None else now.since(self._before)

    def close(self) -> None:
        """Gives the node back; nothing when it is not open."""
        if self._serial is None:
            return
        # A pseudo terminal outlives its file, and with it the mark that it is taken.
        with suppress(OSError):
            fcntl.ioctl(self.fd, termios.TIOCNXCL)
        serial, self._serial = self._serial, None
        serial.close()

    def _configured(self) -> Any:
        try:
            serial = import_module("serial").Serial()
        except ImportError as error:
            raise NoDeviceError(
                f"{self._path} needs the Python package pyserial: "
                f"{install('pyserial', 'python3-serial')}"
            ) from error
        wanted = self._settings
        if not 0 < wanted.baudrate <= BAUDRATE_MAX:
            # 0 would hang up (termios(3), B0).
            raise InvalidArgumentsError([Fault("baudrate", f"must be 1 to {BAUDRATE_MAX}")])
        try:
            serial.baudrate = wanted.baudrate
            serial.bytesize = wanted.bytesize
            serial.stopbits = wanted.stopbits
        except ValueError as error:
            raise InvalidArgumentsError([Fault("settings", str(error))]) from error
        serial.port = self._path
        serial.parity = _PARITY[wanted.parity]
        serial.rtscts, serial.xonxoff = wanted.rtscts, wanted.xonxoff
        # An flock(2), taken before anything is set.
        serial.exclusive = True
        if wanted.dtr is not None:
            serial.dtr = wanted.dtr
        if wanted.rts is not None:
            serial.rts = wanted.rts
        return serial

    def _set_up(self) -> None:
        if self._settings.rs485:
            self._set_rs485()
        fd = self.fd
        # Root may open what another marked as taken: ask, before marking it.
        taken = array.array("i", [0])
        fcntl.ioctl(fd, _TIOCGEXCL, taken)
        if taken[0]:
            raise BusyError(f"{self._path} is in use by another program")
        fcntl.ioctl(fd, termios.TIOCEXCL)
        mode = termios.tcgetattr(fd)
        # Closing does not lower DTR, nor opening it again raise it: no reset.
        mode[2] &= ~termios.HUPCL
        # With a minimum of 0 a read of nothing looks like one from a port that is gone.
        mode[6][termios.VMIN] = 1
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        self._before = self._counts()

    def _set_rs485(self) -> None:
        try:
            self._serial.rs485_mode = import_module("serial.rs485").RS485Settings()
        except ValueError as error:
            raise BusError(
                errno.ENOTTY,
                f"{self._path}: its driver cannot switch an RS-485 transceiver: set rs485 to "
                "false and use an adapter that switches by itself",
            ) from error

    def _counts(self) -> Counts | None:
        """Source: linux/serial.h, struct serial_icounter_struct."""
        block = array.array("i", [0] * 20)
        try:
            fcntl.ioctl(self.fd, _TIOCGICOUNT, block)
        except OSError:
            return None
        _cts, _dsr, _rng, _dcd, _rx, _tx, framing, overrun, parity, breaks, full = block[:11]
        return Counts(framing, parity, overrun + full, breaks)


def _open_error(error: Exception, path: str) -> EdgedError:
    """The error of a port that pyserial could not open or set up."""
    if isinstance(error, ValueError):
        # It wraps the errno of a speed that the driver has not.
        return BusError(errno.EINVAL, f"{path}: {error}")
    number = _number(error) or errno.EIO
    if number in {errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOENT}:
        return NoDeviceError(f"{path} has no hardware behind it, or was unplugged")
    if number == errno.ENOTTY:
        return BusError(number, f"{path} is no serial port")
    return open_error(number, "serial", path)


def _number(error: BaseException | None) -> int:
    """The errno of an error or of what it was made from; pyserial keeps it in some only."""
    while error is not None:
        found = next(iter(error.args), None)
        if isinstance(found, int):
            return found
        error = error.__context__
    return 0
