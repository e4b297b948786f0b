"""One open /dev/i2c-N: what moves bytes. Blocking: on the thread of its bus only.

Raises the kernel's `OSError`; `edged.bus.i2c` puts it into a maker's words. Takes
the calls from smbus2, but for an address that the file descriptor remembers:
I2C_RDWR names the address in each message.

Source: `Documentation/i2c/dev-interface.rst` and `smbus-protocol.rst` of the
kernel, linux/i2c.h.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from edged.bus.faults import NO_ANSWER

if TYPE_CHECKING:
    from smbus2 import i2c_msg

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")
_Call = TypeVar("_Call", bound=Callable[..., object])

BLOCK_MAX = 32
"""Bytes of one SMBus block."""

# linux/i2c.h, I2C_FUNC_*.
_I2C = 0x0000_0001
_QUICK = 0x0001_0000
_READ_BYTE, _WRITE_BYTE = 0x0002_0000, 0x0004_0000
_READ_BYTE_DATA, _WRITE_BYTE_DATA = 0x0008_0000, 0x0010_0000
_READ_WORD_DATA, _WRITE_WORD_DATA = 0x0020_0000, 0x0040_0000
_READ_BLOCK, _WRITE_BLOCK = 0x0400_0000, 0x0800_0000

_SIGNALS_MAX = 16
"""Calls that signals may break off before it counts as an error."""


def is_spoilt_by_quick(address: int) -> bool:
    """Whether there may be an EEPROM of the AT24RF08 kind, which a quick write may spoil.

    Source: i2cdetect(8) of i2c-tools.
    """
    return 0x30 <= address <= 0x37 or 0x50 <= address <= 0x5F


class Adapter:
    """An adapter that is open.

    Args:
        path: of its node.
        nack_times_out: its kernel driver has no other errno for an address that
            nobody acknowledged than that of a stuck bus.

    Raises:
        OSError: it cannot be opened.
        ImportError: smbus2 is not installed.
    """

    def __init__(self, path: str, *, nack_times_out: bool = False) -> None:
        from smbus2 import SMBus, i2c_msg  # noqa: PLC0415  first use of any I2C bus

        self._path = path
        self._nack_times_out = nack_times_out
        self._message: type[i2c_msg] = i2c_msg
        self._bus = SMBus()
        try:
            self._bus.open(path)
            self._node = os.stat(path)
        except OSError:
            self._bus.close()
            raise
        self._functions = int(self._bus.funcs)

    def transfer(self, address: int, write: bytes, read_len: int) -> bytes:
        """One transaction: write, repeated start, read; with neither, the address alone.

        Adapters without plain I2C do what SMBus has on the same wire: a write of up
        to 33 bytes, a read of one, and from a register of one byte any number. Of
        these they do 32 at a time and go on at the register that follows.

        Raises:
            OSError: EOPNOTSUPP when the adapter cannot do it; no byte moved then.
        """
        if not write and not read_len:
            self._call(self._need(_QUICK, self._bus.write_quick), address)
            return b""
        if self._functions & _I2C:
            return self._combined(address, write, read_len)
        if read_len:
            return self._smbus_read(address, write, read_len)
        self._smbus_write(address, write)
        return b""

    def detect(self, address: int) -> bool:
        """Whether something acknowledges, asked as i2cdetect does.

        By an address alone; where that may harm, or the adapter cannot, for a byte.

        Raises:
            OSError: EBUSY when a driver of the kernel owns the address; it was not asked.
        """
        quick = self._can(_QUICK) and not is_spoilt_by_quick(address)
        try:
            self._call(self._bus.write_quick if quick else self._bus.read_byte, address)
        except OSError as error:
            if error.errno in NO_ANSWER or error.errno == errno.EIO:
                return False
            raise
        return True

    def is_gone(self) -> bool:
        """Whether the node is no longer that which was opened: the adapter was unplugged."""
        try:
            return not os.path.samestat(os.stat(self._path), self._node)
        except FileNotFoundError:
            return True

    def close(self) -> None:
        """Gives it back; the kernel waits for that when an adapter is unplugged."""
        self._bus.close()

    def _combined(self, address: int, write: bytes, read_len: int) -> bytes:
        messages = [self._message.write(address, write)] if write else []
        if read_len:
            messages.append(self._message.read(address, read_len))
        self._call(self._bus.i2c_rdwr, *messages)
        return bytes(messages[-1]) if read_len else b""

    def _smbus_write(self, address: int, write: bytes) -> None:
        bus, register, data = self._bus, write[0], write[1:]
        if not data:
            self._call(self._need(_WRITE_BYTE, bus.write_byte), address, register)
        elif len(data) == 1 and self._can(_WRITE_BYTE_DATA):
            self._call(bus.write_byte_data, address, register, data[0])
        elif len(data) == 2 and self._can(_WRITE_WORD_DATA):
            # The lower byte of a word goes first.
            self._call(bus.write_word_data, address, register, int.from_bytes(data, "little"))
        elif len(data) <= BLOCK_MAX:
            call = self._need(_WRITE_BLOCK, bus.write_i2c_block_data)
            self._call(call, address, register, list(data))
        else:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def _smbus_read(self, address: int, write: bytes, read_len: int) -> bytes:
        bus = self._bus
        if not write and read_len == 1:
            return bytes([self._call(self._need(_READ_BYTE, bus.read_byte), address)])
        if len(write) != 1 or (read_len > BLOCK_MAX and write[0] + read_len > 0x100):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        register = write[0]
        if read_len == 1 and self._can(_READ_BYTE_DATA):
            return bytes([self._call(bus.read_byte_data, address, register)])
        if read_len == 2 and self._can(_READ_WORD_DATA):
            word = self._call(bus.read_word_data, address, register)
            return word.to_bytes(2, "little")
        call = self._need(_READ_BLOCK, bus.read_i2c_block_data)
        data = b""
        while len(data) < read_len:
            count = min(read_len - len(data), BLOCK_MAX)
            data += bytes(self._call(call, address, register + len(data), count))
        return data

    def _can(self, function: int) -> bool:
        return bool(self._functions & function)

    def _need(self, function: int, call: _Call) -> _Call:
        if not self._can(function):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return call

    def _call(self, call: Callable[[*_Args], _T], *args: *_Args) -> _T:
        """Calls, and again when a signal broke it off: Python does not for ioctl (PEP 475)."""
        for _ in range(_SIGNALS_MAX):
            try:
                return call(*args)
            except InterruptedError:
                continue
            except TimeoutError:
                if self._nack_times_out:
                    raise OSError(errno.ENXIO, os.strerror(errno.ENXIO)) from None
                raise
        raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
