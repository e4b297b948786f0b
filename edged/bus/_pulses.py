"""Pulse width modulation of a GPIO output by software, a thread for each.

Widths are exact to some 10 us on an idle board and late by milliseconds on a
busy one; the kernel's PWM channels (`edged.bus.pwm`) do not know such jitter.
"""

from __future__ import annotations

import time
from threading import Event, Thread

from edged import log
from edged.bus import _cdev as cdev
from edged.bus.faults import gpio_error

_SPIN_S = 0.0002
"""A pulse's end is waited for by spinning this long: timers of the kernel are late."""


class Pulses:
    """Software PWM of an output, on a thread of its own; any thread.

    Args:
        line: descriptor of the output.
        frequency_hz: pulses in a second; the duty is 0 at first.
        title: what messages call the line.
    """

    def __init__(self, line: int, frequency_hz: float, title: str) -> None:
        self._line, self._title = line, title
        self.frequency_hz = frequency_hz
        self.duty = 0.0
        self._changed, self._ended = Event(), Event()
        self._thread = Thread(target=self._run, name=f"PWM {title}", daemon=True)
        self._thread.start()

    def set(self, frequency_hz: float, duty: float) -> None:
        """From the next pulse on.

        Args:
            frequency_hz: pulses in a second.
            duty: share of the time that it is high, 0 to 1.
        """
        self.frequency_hz, self.duty = frequency_hz, duty
        self._changed.set()

    def close(self) -> None:
        """Ends the pulses; the output is low then."""
        self._ended.set()
        self._changed.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.perf_counter()
        try:
            while not self._ended.is_set():
                self._changed.clear()
                due = self._pulse(due, 1 / self.frequency_hz, self.duty)
            cdev.write_value(self._line, False)
        except OSError as error:
            log.warning(f"{gpio_error(error.errno or 0, self._title)}: no more pulses")

    def _pulse(self, due: float, period_s: float, duty: float) -> float:
        """One period, or a constant level until something changes; when the next is due."""
        start = time.perf_counter()
        cdev.write_value(self._line, duty > 0)
        if duty in {0, 1}:
            self._changed.wait()
            return time.perf_counter()
        # The width counts from the edge as it was, the period from when it was due.
        end = start + duty * period_s
        self._ended.wait(end - time.perf_counter() - _SPIN_S)
        while time.perf_counter() < end and not self._ended.is_set():
            pass
        cdev.write_value(self._line, False)
        now = time.perf_counter()
        due = max(due + period_s, now)
        self._ended.wait(due - now)
        return due
