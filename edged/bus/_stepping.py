"""A measurement stepped on its bus's thread, where each transfer is done as it is asked for.

A driver's coroutine awaits nothing but its bus and its sleep: stepped on the thread
of the bus, it comes back to the loop only to sleep and at its end. A change of
threads costs as much as a short transfer; this way there is one for many of them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")

_PAUSES_MAX = 16
"""Of what is given up: it may still want to wait between its last transfers."""


class Pause:
    """What a stepped coroutine awaits to be woken by the loop, that many seconds later."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


class Done(Generic[_T]):
    """It ended, with what it returned."""

    __slots__ = ("value",)

    def __init__(self, value: _T) -> None:
        self.value = value


def step(work: Coroutine[Any, Any, _T]) -> Pause | Done[_T]:
    """Goes on until it wants to sleep or is over. Blocks: on the bus's thread.

    Raises:
        TypeError: it awaits something that only a loop has.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        return Done(end.value)
    if isinstance(awaited, Pause):
        return awaited
    raise TypeError(f"a measurement awaits its bus and its sleep, not {awaited!r}")


def give_up(work: Coroutine[Any, Any, object], reason: BaseException) -> None:
    """Ends it, with the transfers of its own that it makes at such an end, and no pauses."""
    try:
        work.throw(reason)
        for _ in range(_PAUSES_MAX):
            work.send(None)
    except BaseException:  # noqa: BLE001  it is over; who waited knows why
        return
    work.close()
