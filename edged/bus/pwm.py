"""PWM channels, through the kernel's sysfs.

A channel is exported for its consumer, and stopped and given back on release.

Source: Documentation/driver-api/pwm.rst and drivers/pwm/sysfs.c of the kernel.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from edged.bus._worker import Worker
from edged.bus.faults import file_error, remedy
from edged.bus.sysfs import names, read_text, write_text
from edged.errors import BusError, BusyError, Fault, InvalidArgumentsError, NoDeviceError

SETTLE_S, POLL_S = 1.0, 0.05
"""udev gives the files of a new channel to its group a moment after they came."""

_FILES = ("period", "duty_cycle", "enable")


class Chip(NamedTuple):
    """A PWM chip.

    Attributes:
        name: `pwmchip0`; the number may be another after the next start.
        path: its directory.
        device: path of the hardware behind it, `…/1f00098000.pwm`, which stays.
        channels: how many it has.
    """

    name: str
    path: str
    device: str
    channels: int


class KernelPwm:
    """An `edged.bus.Pwm` over /sys/class/pwm.

    A chip is `pwmchip0`, or the end of its device's path, `1f00098000.pwm`.

    Args:
        root: where sysfs is mounted.
        sleep: how to wait for udev.
        take_over: a channel that is exported already is used all the same: by
            `edged safe`, since what a killed daemon exported goes on.
    """

    def __init__(
        self,
        root: str = "/sys",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        take_over: bool = False,
    ) -> None:
        self._take_over = take_over
        self._directory = os.path.join(root, "class/pwm")
        self._sleep = sleep
        self._worker = Worker("pwm")
        self._channels: dict[str, KernelPwmChannel] = {}

    async def channels(self) -> Sequence[str]:
        """Those that there are; see `edged.bus.Pwm.channels`."""
        chips = await self._worker.run(_chips, self._directory)
        return [f"{chip.name}/{number}" for chip in chips for number in range(chip.channels)]

    async def canonical(self, channel: str) -> str:
        """The one name of a channel; see `edged.bus.Pwm.canonical`."""
        chip, number = _find(await self._worker.run(_chips, self._directory), channel)
        return f"{chip.name}/{number}"

    async def request(self, channel: str, consumer: str) -> KernelPwmChannel:
        """Takes a channel for its consumer alone; see `edged.bus.Pwm.request`."""
        chip, number = _find(await self._worker.run(_chips, self._directory), channel)
        name = f"{chip.name}/{number}"
        holder = self._channels.get(name)
        if holder is not None and holder.is_held:
            raise BusyError(f"{name} is used by {holder.consumer!r}")
        taken = self._channels[name] = KernelPwmChannel(
            self._worker, chip, number, consumer, take_over=self._take_over
        )
        try:
            await taken.open(self._sleep)
        except BaseException:
            await taken.release()
            raise
        return taken

    async def close(self) -> None:
        """Stops and gives back every channel, then ends the thread."""
        for channel in self._channels.values():
            await channel.release()
        self._worker.close()


class KernelPwmChannel:
    """One requested channel."""

    def __init__(
        self, worker: Worker, chip: Chip, number: int, consumer: str, *, take_over: bool
    ) -> None:
        self._take_over = take_over
        self.name = f"{chip.name}/{number}"
        self.consumer = consumer
        self._worker, self._chip, self._number = worker, chip, number
        self._path = os.path.join(chip.path, f"pwm{number}")
        # Set by the worker's thread: a caller that is cancelled does not stop an export.
        self._exported = False
        self._released = False

    @property
    def is_held(self) -> bool:
        """Whether nobody else may have it: until the kernel has it back."""
        return self._exported or not self._released

    async def open(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Exports it, and waits until its files may be written."""
        await self._worker.run(self._export)
        await settled(lambda: self._worker.run(_check_writable, self._path), sleep)

    async def set(self, period_ns: int, duty_ns: int) -> None:
        """Puts out pulses; see `edged.bus.PwmChannel.set`."""
        if period_ns <= 0 or not 0 <= duty_ns <= period_ns:
            reason = f"must be from 0 to the period of {period_ns} ns, which is above 0"
            raise InvalidArgumentsError([Fault("duty", reason)])
        if self._released:
            raise NoDeviceError(f"{self.name} was released")
        await self._worker.run(_set, self._path, period_ns, duty_ns)

    async def release(self) -> None:
        """Stops the output and gives the channel back; again when that was cancelled."""
        if self.is_held:
            self._released = True
            await self._worker.run(self._unexport)

    def _export(self) -> None:
        path = os.path.join(self._chip.path, "export")
        try:
            write_text(path, str(self._number), "pwm")
        except BusyError:
            if self._take_over and os.path.isdir(self._path):
                self._exported = True
                return
            raise BusyError(
                f"{self.name} is used by a driver of the kernel, or exported by another program: "
                f"if none needs it, echo {self._number} > {self._chip.path}/unexport"
            ) from None
        self._exported = True

    def _unexport(self) -> None:
        if not self._exported:
            return
        try:
            _stop(self._path)
        except NoDeviceError:
            # Its chip was unplugged: nothing is left to stop or to give back.
            return
        finally:
            self._exported = False
            _give_back(os.path.join(self._chip.path, "unexport"), self._number)


def steps(was_period: int, was_duty: int, period: int, duty: int) -> list[tuple[str, int]]:
    """What to write, in an order in which the duty is never longer than the period.

    The kernel refuses such a moment with EINVAL, and any duty while the period is 0.

    Args:
        was_period: what stands there now; likewise `was_duty`.
        was_duty: of it.
        period: what is to come, above 0.
        duty: up to the period.
    """
    wanted = [("period", period), ("duty_cycle", duty)]
    if period < was_duty:
        wanted.reverse()
    was = {"period": was_period, "duty_cycle": was_duty}
    return [(name, value) for name, value in wanted if value != was[name]]


async def settled(
    check: Callable[[], Awaitable[None]], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Waits until a check passes, for files that are not there or may not be written yet.

    Raises:
        NoDeviceError, BusError: what the check still raises after `SETTLE_S`.
    """
    left = round(SETTLE_S / POLL_S)
    while True:
        try:
            await check()
            return
        except (NoDeviceError, BusError) as error:
            too_soon = isinstance(error, NoDeviceError) or error.errno == errno.EACCES
            if not too_soon or not left:
                raise
        left -= 1
        await sleep(POLL_S)


def _chips(directory: str) -> list[Chip]:
    """The chips, by number."""
    found = []
    for name in names(directory):
        match = re.fullmatch(r"pwmchip([0-9]+)", name)
        if match is not None:
            path = os.path.join(directory, name)
            device = os.path.realpath(os.path.join(path, "device"))
            count = int(read_text(os.path.join(path, "npwm")))
            found.append((int(match[1]), Chip(name, path, device, count)))
    return [chip for _, chip in sorted(found)]


def _find(chips: Sequence[Chip], channel: str) -> tuple[Chip, int]:
    wanted, _, number = channel.strip("/").rpartition("/")
    found = [
        chip
        for chip in chips
        if wanted == chip.name or (wanted and chip.device.endswith(f"/{wanted}"))
    ]
    if not number.isdecimal() or len(found) != 1 or int(number) >= found[0].channels:
        there = ", ".join(
            f"{chip.name}/0 to {chip.channels - 1} ({os.path.basename(chip.device)})"
            for chip in chips
        )
        if len(found) > 1:
            which = " or ".join(chip.name for chip in found)
            raise NoDeviceError(f"PWM channel {channel!r} is of several chips: name {which}")
        none = f"none: {remedy('pwm')}"
        raise NoDeviceError(f"no PWM channel {channel!r}: there is {there or none}")
    return found[0], int(number)


def _check_writable(path: str) -> None:
    for name in _FILES:
        file = os.path.join(path, name)
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            raise file_error(error.errno or 0, file, "pwm") from None


def _set(path: str, period_ns: int, duty_ns: int) -> None:
    # Read anew each time: the channels of many chips share one period.
    was_period, was_duty = (int(read_text(os.path.join(path, name))) for name in _FILES[:2])
    for name, value in steps(was_period, was_duty, period_ns, duty_ns):
        write_text(os.path.join(path, name), str(value), "pwm")
    if read_text(os.path.join(path, "enable")) != "1":
        write_text(os.path.join(path, "enable"), "1", "pwm")


def _stop(path: str) -> None:
    # With period 0 nothing was put out yet, and the kernel refuses any duty.
    if read_text(os.path.join(path, "period")) != "0":
        # Disabled alone, some chips keep the level that they had at that moment.
        write_text(os.path.join(path, "duty_cycle"), "0", "pwm")
        write_text(os.path.join(path, "enable"), "0", "pwm")


def _give_back(path: str, number: int) -> None:
    try:
        write_text(path, str(number), "pwm")
    except NoDeviceError:
        # The chip was unplugged, or somebody else has given the channel back.
        return
