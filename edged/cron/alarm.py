"""Rings at a time of the wall clock, and whenever that clock is set or the board wakes up.

One timer of the kernel; no thread, and nothing is polled. Loop thread only.

Source: timerfd_create(2): CLOCK_REALTIME, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import time
from collections.abc import Callable

CLOCK_REALTIME = 0
TFD_NONBLOCK, TFD_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET = 1, 2

NEVER_S = 1 << 33
"""A time that does not come; a timer set to 0 would be switched off."""


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Alarm:
    """One timer.

    Args:
        ring: called when the time has come, or the clock was set.
        now: the wall clock of whoever sets it; only in tests it is not the machine's.
    """

    def __init__(self, ring: Callable[[], None], now: Callable[[], float] = time.time) -> None:
        self._ring, self._now = ring, now
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def set(self, when: float | None) -> None:
        """Ring at `when`, seconds since 1970-01-01 UTC; None only when the clock is set."""
        if when is not None:
            when = max(when + time.time() - self._now(), 1.0)
        seconds, part = divmod(NEVER_S if when is None else when, 1)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(int(seconds), int(part * 1e9)))
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        if self._libc.timerfd_settime(self._fd, flags, ctypes.byref(spec), None) < 0:
            # It is set all the same, and the clock was, too.
            if ctypes.get_errno() != errno.ECANCELED:
                raise OSError(ctypes.get_errno(), "timerfd_settime")
            self._loop.call_soon(self._ring)

    def close(self) -> None:
        """Ring no more."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
        self._ring()
