"""The GPIO lines of the board, through the kernel's GPIO character device.

A thread for each chip drives and reads its lines, since chips behind I2C sleep;
edges come to the loop, with the kernel's time stamps.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from edged import log
from edged.bus import LineSettings, LineState, OnEdges
from edged.bus import _cdev as cdev
from edged.bus._chips import Chips, take
from edged.bus._limits import check_pulse
from edged.bus._lines import Found
from edged.bus._worker import Worker
from edged.bus.faults import gpio_error
from edged.errors import EdgedError, NoDeviceError

LOOK_S = 2.0
"""How often lines with edges are asked whether their chip is still there.

Kernels before 6.6 do not wake who waits for the edges of a chip that was unplugged.
"""
_SPIN_MAX_S = 0.001
"""Up to here a pulse is timed by spinning; the kernel's timers are late by about 0.1 ms."""

_GONE = "is gone: its chip was unplugged"

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class KernelGpio:
    """The lines of all chips; call from the event loop's thread.

    Args:
        dev: where the device nodes are.
        sysfs: where the kernel lists the chips.
    """

    def __init__(self, *, dev: str = "/dev", sysfs: str = "/sys") -> None:
        self._chips = Chips(dev, sysfs)
        self._search = Worker("gpio")
        self._workers: dict[str, Worker] = {}
        self._lines: set[KernelLine] = set()
        self._giving_back: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def request(
        self,
        line: str,
        settings: LineSettings,
        consumer: str,
        on_edges: OnEdges | None = None,
    ) -> KernelLine:
        """Takes a line for its consumer alone."""
        found = await self._search.run(self._chips.locate, line)
        worker = self._workers.get(found.chip.name)
        if worker is None:
            worker = self._workers[found.chip.name] = Worker(found.chip.name)
        descriptors: list[int] = []
        try:
            await worker.run(_take, descriptors, found, settings, consumer)
        except asyncio.CancelledError:
            # The thread may take it all the same; before the next job it is given back.
            giving_back = asyncio.ensure_future(worker.run(_give_back, descriptors))
            self._giving_back.add(giving_back)
            giving_back.add_done_callback(self._giving_back.discard)
            raise
        taken = KernelLine(found.title, descriptors[0], worker, self._lines.discard)
        self._lines.add(taken)
        if on_edges is not None and settings.edge != "none":
            taken.watch(on_edges)
            self._look()
        return taken

    async def canonical(self, line: str) -> str:
        """The one name of a line: `gpiochip0/17`, as long as that chip is plugged in."""
        found = await self._search.run(self._chips.locate, line)
        return f"{found.chip.name}/{found.offset}"

    async def lines(self) -> Sequence[LineState]:
        """All lines of all chips, by chip and offset.

        Raises:
            BusError: edged may open none of the chips.
        """
        chips = await self._search.run(self._chips.all)
        return [line for chip in chips for line in chip.lines]

    async def close(self) -> None:
        """Gives all lines back and ends the threads."""
        if self._timer is not None:
            self._timer.cancel()
        for line in list(self._lines):
            await line.release()
        await asyncio.gather(*self._giving_back)
        for worker in (self._search, *self._workers.values()):
            worker.close()

    def _look(self) -> None:
        """Ends the watched lines whose chip was unplugged; looks again while there are others."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for line in [line for line in self._lines if line.is_watched]:
            line.look()
        if any(line.is_watched for line in self._lines):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


class KernelLine:
    """A requested line; call from the event loop's thread.

    The descriptor is used and closed by the chip's thread, one job after the
    other; only edges are read on the loop.

    Args:
        title: what messages call it.
        descriptor: holds the line; given back with it.
        worker: of its chip.
        ended: told once when the line was released or its chip is gone.
    """

    def __init__(
        self,
        title: str,
        descriptor: int,
        worker: Worker,
        ended: Callable[[KernelLine], None],
    ) -> None:
        self._title = title
        self._descriptor = descriptor
        self._worker = worker
        self._ended = ended
        self.is_watched = False
        """Whether somebody is told of its edges."""
        self._sequence = 0
        self._why = ""
        self._closing: asyncio.Future[None]

    async def get(self) -> bool:
        """The present value; of an output too."""
        return await self._run(cdev.read_value)

    async def set(self, value: bool) -> None:
        """Drives an output."""
        await self._run(cdev.write_value, value)

    async def pulse(self, duration_s: float) -> None:
        """Drives true, then false; who is cancelled meanwhile does not change it.

        Raises:
            InvalidArgumentsError: shorter than 1 us or longer than 0.1 s.
        """
        check_pulse(duration_s)
        await self._run(_pulse, duration_s)

    async def release(self) -> None:
        """Gives the line back; once is enough."""
        self._end("was released")
        await asyncio.shield(self._closing)

    def watch(self, on_edges: OnEdges) -> None:
        """Hands edges on from now until the line ends."""
        self.is_watched = True
        asyncio.get_running_loop().add_reader(self._descriptor, self._readable, on_edges)

    def look(self) -> None:
        """Ends the line if its chip is gone."""
        poll = select.poll()
        poll.register(self._descriptor, 0)
        if poll.poll(0):
            self._unplugged()

    async def _run(self, use: Callable[[int, *_Args], _T], *args: *_Args) -> _T:
        # Jobs that were handed in before the end run before the descriptor is closed.
        if self._why:
            raise NoDeviceError(f"line {self._title} {self._why}")
        try:
            return await self._worker.run(use, self._descriptor, *args)
        except OSError as error:
            if isinstance(error, EdgedError):
                raise
            if error.errno == errno.ENODEV:
                self._end(_GONE)
            raise gpio_error(error.errno or 0, self._title) from error

    def _readable(self, on_edges: OnEdges) -> None:
        try:
            edges = cdev.read_edges(self._descriptor, self._sequence)
        except BlockingIOError:
            return
        except OSError:
            edges = []
        if not edges:
            self._unplugged()
            return
        self._sequence = edges[-1].sequence
        on_edges(edges)

    def _unplugged(self) -> None:
        # Nobody waits for an answer who could be told.
        log.warning(f"line {self._title} {_GONE}")
        self._end(_GONE)

    def _end(self, why: str) -> None:
        """Ends the line, once: nobody is told any more, and it is given back soon."""
        if self._why:
            return
        self._why = why
        if self.is_watched:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            self.is_watched = False
        self._closing = asyncio.ensure_future(self._worker.run(os.close, self._descriptor))
        self._ended(self)


def _pulse(descriptor: int, duration_s: float) -> None:
    cdev.write_value(descriptor, True)
    try:
        if duration_s > _SPIN_MAX_S:
            time.sleep(duration_s)
        else:
            end = time.perf_counter() + duration_s
            while time.perf_counter() < end:
                pass
    finally:
        cdev.write_value(descriptor, False)


def _take(descriptors: list[int], found: Found, settings: LineSettings, consumer: str) -> None:
    descriptors.append(take(found, settings, consumer))


def _give_back(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
