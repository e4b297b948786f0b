"""A pin factory of gpiozero over the kernel's GPIO character device.

`GPIOZERO_PIN_FACTORY=edged` selects it in any program. Lines are found by name on
every board; debouncing and time stamps of edges are the kernel's. PWM is made by
software (`edged.bus._pulses`).

Synchronous, as gpiozero is; `when_changed` is called on one thread for all pins.

Source: gpiozero, `pins/__init__.py` and `pins/local.py` (what a factory and a pin offer).
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from threading import RLock, Thread
from types import MethodType
from typing import Any
from weakref import WeakMethod, ref

from gpiozero import PinUnknownPi  # type: ignore[import-untyped]  # it has no types
from gpiozero.exc import (  # type: ignore[import-untyped]
    PinFixedPull,
    PinInvalidBounce,
    PinInvalidEdges,
    PinInvalidFunction,
    PinInvalidPin,
    PinInvalidPull,
    PinInvalidState,
    PinPWMFixedValue,
    PinSetInput,
)
from gpiozero.pins import (  # type: ignore[import-untyped]
    BoardInfo,
    HeaderInfo,
    Pin,
    PinInfo,
)
from gpiozero.pins.local import LocalPiFactory  # type: ignore[import-untyped]
from gpiozero.pins.pi import PiBoardInfo  # type: ignore[import-untyped]

from edged import log
from edged.bus import Bias, Direction, Edge, EdgeDetection, LineSettings
from edged.bus import _cdev as cdev
from edged.bus._chips import Chips, take
from edged.bus._lines import find
from edged.bus._pulses import Pulses
from edged.bus.faults import gpio_error
from edged.errors import NoDeviceError

_DIRECTIONS: dict[str, Direction] = {"input": "input", "output": "output"}
_BIASES: dict[str, Bias] = {"up": "pull-up", "down": "pull-down", "floating": "disabled"}
_EDGES: dict[str, EdgeDetection] = {
    "both": "both",
    "rising": "rising",
    "falling": "falling",
    "none": "none",
}
WhenChanged = Callable[[float, bool], None]
"""Told of an edge: when, in the factory's ticks, and the level after it."""


class KernelFactory(LocalPiFactory):  # type: ignore[misc]  # gpiozero has no types
    """Pins of this machine; any thread.

    On a Raspberry Pi they are called as gpiozero calls them (17, `GPIO17`, `BOARD11`), on
    other boards as the kernel calls their lines, or `gpiochip0/17`. Pins and
    reservations are shared with gpiozero's other local factories, as theirs are.

    Args:
        dev: where the device nodes are.
        sysfs: where the kernel lists the chips.
        consumer: who holds the lines, as other programs see it.
    """

    def __init__(
        self, *, dev: str = "/dev", sysfs: str = "/sys", consumer: str = "gpiozero"
    ) -> None:
        super().__init__()
        self._info: Any = None
        self.pin_class = KernelPin
        self.chips = Chips(dev, sysfs)
        self.consumer = consumer
        self.watcher = Watcher()

    def close(self) -> None:
        """Gives all lines back and ends the thread."""
        super().close()
        self.watcher.close()

    def _get_board_info(self) -> Any:
        if self._info is None:
            try:
                self._info = PiBoardInfo.from_revision(self._get_revision())
            except PinUnknownPi:
                self._info = board_info(self.chips.all())
        return self._info


def board_info(chips: Sequence[cdev.Chip]) -> Any:
    """What gpiozero needs to know of a board that is no Raspberry Pi: a header is a chip.

    Args:
        chips: of the board.
    """
    headers = {
        chip.name: HeaderInfo(
            name=chip.name,
            rows=len(chip.lines),
            columns=1,
            pins={line.offset + 1: _pin_info(chip, line.offset, chips) for line in chip.lines},
        )
        for chip in chips
    }
    unknown = dict.fromkeys(BoardInfo._fields, "")
    return BoardInfo(**{**unknown, "model": "board", "headers": headers})


def _pin_info(chip: cdev.Chip, offset: int, chips: Sequence[cdev.Chip]) -> Any:
    place = f"{chip.name}/{offset}"
    names: set[str | int] = set(_names(chip, offset, chips))
    name = next((n for n in sorted(map(str, names)) if "/" not in n), place)
    if name.startswith("GPIO") and name[4:].isdecimal():
        names |= {int(name[4:]), name[4:]}
    return PinInfo(
        number=offset + 1,
        name=name,
        names=frozenset(names),
        pull="",
        row=offset + 1,
        col=1,
        interfaces=frozenset({"gpio"}),
    )


def _names(chip: cdev.Chip, offset: int, chips: Sequence[cdev.Chip]) -> Iterator[str]:
    """Names that mean this line and no other."""
    for name in (chip.lines[offset].name, f"{chip.name}/{offset}", f"{chip.label}/{offset}"):
        try:
            found = find(name, chips)
        except NoDeviceError:
            continue
        if (found.chip.name, found.offset) == (chip.name, offset):
            yield name


class KernelPin(Pin):  # type: ignore[misc]  # gpiozero has no types
    """A line, taken when it is first made an input or an output; any thread.

    Args:
        factory: of the pin.
        info: of the pin; its `name` is the line's.
    """

    bounce_time = Pin.bounce
    """What gpiozero's RotaryEncoder calls `bounce`."""

    def __init__(self, factory: KernelFactory, info: Any) -> None:
        super().__init__()
        if "gpio" not in info.interfaces:
            raise PinInvalidPin(f"{info.name} is not a GPIO line")
        self._factory = factory
        self._info = info
        self._lock = RLock()
        self._line: int | None = None
        self._function: Direction | None = None
        self._pull: str = info.pull or "floating"
        self._bounce_s = 0.0
        self._edges: EdgeDetection = "both"
        self._when_changed: Callable[[], WhenChanged | None] | None = None
        self._level = False
        self._sequence = 0
        self._pulses: Pulses | None = None
        self.lost = 0
        """Edges that came faster than they were read, since the pin was made."""

    def __repr__(self) -> str:
        return str(self._info.name)

    def close(self) -> None:
        """Gives the line back."""
        with self._lock:
            self._stop_pulses()
            if self._line is not None:
                self._factory.watcher.remove(self._line)
                os.close(self._line)
                self._line = None
            self._function, self._when_changed = None, None
            self._pull, self._bounce_s, self._edges = self._info.pull or "floating", 0.0, "both"
            self._level, self._sequence = False, 0

    def output_with_state(self, state: float) -> None:
        """Makes it an output that starts with this level."""
        with self._lock:
            self._level = bool(state)
            self._set_function("output")

    def input_with_pull(self, pull: str) -> None:
        """Makes it an input with this pull."""
        with self._lock:
            self._check_pull(pull)
            self._pull = pull
            self._set_function("input")

    def take_edges(self) -> list[tuple[Edge, WhenChanged]]:
        """Edges that wait, each with who is told; the watcher's thread."""
        with self._lock:
            if self._line is None or self._when_changed is None:
                return []
            try:
                edges = cdev.read_edges(self._line, self._sequence)
            except BlockingIOError:
                return []
            except OSError:
                edges = []
            if not edges:
                self._factory.watcher.remove(self._line)
                log.warning(f"line {self!r} is gone: its chip was unplugged")
                return []
            self._sequence = edges[-1].sequence
            self.lost += sum(edge.lost for edge in edges)
            told = self._when_changed()
        return [] if told is None else [(edge, told) for edge in edges]

    def _apply(self) -> None:
        """Takes the line, or changes how it is held, to what the pin's properties say."""
        if self._function is None:
            return
        is_input = self._function == "input"
        settings = LineSettings(
            direction=self._function,
            bias=_BIASES[self._pull] if is_input else "as-is",
            edge=self._edges if is_input and self._when_changed is not None else "none",
            debounce_s=self._bounce_s if is_input else 0.0,
            output_value=self._level,
        )
        if self._line is None:
            found = self._factory.chips.locate(self._info.name)
            self._line = take(found, settings, self._factory.consumer)
        else:
            self._do(cdev.reconfigure, settings)
        if settings.edge == "none":
            self._factory.watcher.remove(self._line)
        else:
            self._factory.watcher.add(self._line, self)

    def _do(self, use: Callable[..., Any], *args: Any) -> Any:
        try:
            return use(self._line, *args)
        except OSError as error:
            raise gpio_error(error.errno or 0, repr(self)) from error

    def _stop_pulses(self) -> None:
        if self._pulses is not None:
            self._pulses.close()
            self._pulses = None
            self._level = False

    # What gpiozero's properties get and set.

    def _get_info(self) -> Any:
        return self._info

    def _get_function(self) -> str:
        if self._function is not None:
            return self._function
        found = self._factory.chips.locate(self._info.name)
        return found.chip.lines[found.offset].direction

    def _set_function(self, value: str) -> None:
        if value not in _DIRECTIONS:
            raise PinInvalidFunction(f'invalid function "{value}" for pin {self!r}')
        with self._lock:
            self._stop_pulses()
            self._function = _DIRECTIONS[value]
            self._apply()

    def _get_state(self) -> float:
        with self._lock:
            if self._pulses is not None:
                return self._pulses.duty
            if self._line is None:
                self._set_function("input")
            return bool(self._do(cdev.read_value))

    def _set_state(self, value: float) -> None:
        with self._lock:
            if self._function != "output":
                raise PinSetInput(f"cannot set state of pin {self!r}: it is an input")
            if self._pulses is None:
                self._do(cdev.write_value, bool(value))
                self._level = bool(value)
            elif 0 <= value <= 1:
                self._pulses.set(self._pulses.frequency_hz, value)
            else:
                raise PinInvalidState(f'invalid state "{value}" for pin {self!r}')

    def _get_pull(self) -> str:
        return self._pull

    def _set_pull(self, value: str) -> None:
        with self._lock:
            if self._function != "input":
                raise PinFixedPull(f"cannot set pull on non-input pin {self!r}")
            self._check_pull(value)
            self._pull = value
            self._apply()

    def _check_pull(self, value: str) -> None:
        if value not in _BIASES:
            raise PinInvalidPull(f'invalid pull "{value}" for pin {self!r}')
        if self._info.pull not in {value, ""}:
            raise PinFixedPull(f"{self!r} has a physical pull-{self._info.pull} resistor")

    def _get_frequency(self) -> float | None:
        return None if self._pulses is None else self._pulses.frequency_hz

    def _set_frequency(self, value: float | None) -> None:
        with self._lock:
            if not value:
                self._stop_pulses()
            elif self._pulses is not None:
                self._pulses.set(value, self._pulses.duty)
            elif self._function != "output" or self._line is None:
                raise PinPWMFixedValue(f"cannot start PWM on pin {self!r}: it is no output")
            else:
                self._pulses = Pulses(self._line, value, repr(self))

    def _get_bounce(self) -> float | None:
        return self._bounce_s or None

    def _set_bounce(self, value: float | None) -> None:
        if value is not None and value < 0:
            raise PinInvalidBounce("bounce must be 0 or greater")
        with self._lock:
            self._bounce_s = value or 0.0
            self._apply()

    def _get_edges(self) -> str:
        return self._edges

    def _set_edges(self, value: str) -> None:
        if value not in _EDGES:
            raise PinInvalidEdges(f'invalid edges "{value}" for pin {self!r}')
        with self._lock:
            self._edges = _EDGES[value]
            self._apply()

    def _get_when_changed(self) -> WhenChanged | None:
        return None if self._when_changed is None else self._when_changed()

    def _set_when_changed(self, value: WhenChanged | None) -> None:
        with self._lock:
            # Weak, as in gpiozero: a device that is no longer used closes its pin.
            if value is None:
                self._when_changed = None
            elif isinstance(value, MethodType):
                self._when_changed = WeakMethod(value)
            else:
                self._when_changed = ref(value)
            self._apply()


class Watcher:
    """Tells pins that edges came, on a thread that starts with the first pin; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pins: dict[int, KernelPin] = {}
        self._epoll = select.epoll()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._end, select.EPOLLIN)
        self._thread: Thread | None = None

    def add(self, line: int, pin: KernelPin) -> None:
        """Watches a line, unless it is watched already."""
        with self._lock:
            if line not in self._pins:
                self._pins[line] = pin
                self._epoll.register(line, select.EPOLLIN)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="gpio edges", daemon=True)
                self._thread.start()

    def remove(self, line: int) -> None:
        """Watches a line no longer, if it was."""
        with self._lock:
            if self._pins.pop(line, None) is not None:
                self._epoll.unregister(line)

    def close(self) -> None:
        """Ends the thread; once is enough."""
        if self._epoll.closed:
            return
        os.eventfd_write(self._end, 1)
        if self._thread is not None:
            self._thread.join()
        self._epoll.close()
        os.close(self._end)

    def _run(self) -> None:
        while True:
            ready = [line for line, _ in self._epoll.poll()]
            if self._end in ready:
                return
            with self._lock:
                pins = [self._pins[line] for line in ready if line in self._pins]
            # In the order in which they happened, whatever the pin: who turns a knob is told
            # by the order of the edges of two.
            edges = sorted(
                (entry for pin in pins for entry in pin.take_edges()),
                key=lambda entry: entry[0].monotonic,
            )
            for edge, told in edges:
                _call(told, edge)


def _call(told: WhenChanged, edge: Edge) -> None:
    """Calls what may be a user's; an error ends neither the thread nor the next call."""
    try:
        told(edge.monotonic, edge.value)
    except Exception:  # noqa: BLE001  shown as any thread's is
        threading.excepthook(
            threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
        )
