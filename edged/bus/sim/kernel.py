"""Simulated views of the kernel's own drivers: sysfs files, 1-wire devices, PWM channels."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from edged.bus.faults import file_error
from edged.errors import BusyError, Fault, InvalidArgumentsError, NoDeviceError

File = str | int | Callable[[], str]
"""Text, or what gives it; a number is the errno with which reading fails."""


class SimSysfs:
    """Files by path relative to /sys; may change while in use."""

    def __init__(self, files: dict[str, File]) -> None:
        self.files = files

    async def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted."""
        below = path.strip("/") + "/"
        return sorted({p[len(below) :].split("/")[0] for p in self.files if p.startswith(below)})

    async def read(self, path: str) -> str:
        """A file's text."""
        await asyncio.sleep(0)
        found = self.files.get(path.strip("/"))
        if found is None:
            raise file_error(errno.ENOENT, f"/sys/{path}")
        return _text(found, f"/sys/{path}")


class OneWireTarget(Protocol):
    """A model of a 1-wire device as the kernel's driver shows it."""

    def file(self, attribute: str) -> File:
        """A file of its directory."""

    def write(self, attribute: str, text: str) -> None:
        """A file of its directory is written."""


class SimOneWire:
    """1-wire devices by id; may change while in use."""

    def __init__(self, targets: dict[str, OneWireTarget]) -> None:
        self.targets = targets

    async def devices(self) -> Sequence[str]:
        """Ids of the devices."""
        await asyncio.sleep(0)
        return sorted(self.targets)

    async def read(self, device: str, attribute: str) -> str:
        """A file of a device."""
        await asyncio.sleep(0)
        text = _text(self._target(device).file(attribute), f"{device}/{attribute}")
        if not text:
            raise file_error(errno.EIO, f"{device}/{attribute}")
        return text

    async def write(self, device: str, attribute: str, text: str) -> None:
        """Writes a file of a device."""
        await asyncio.sleep(0)
        self._target(device).write(attribute, text)

    def _target(self, device: str) -> OneWireTarget:
        target = self.targets.get(device)
        if target is None:
            there = ", ".join(sorted(self.targets)) or "none"
            raise NoDeviceError(f"no 1-wire device {device}: there is {there}")
        return target


class SimPwm:
    """PWM channels by name, `pwmchip0/0`."""

    def __init__(self, channels: Sequence[str]) -> None:
        self.output: dict[str, tuple[int, int]] = dict.fromkeys(channels, (0, 0))
        """Period and duty that each channel puts out now, in ns."""
        self._consumers: dict[str, str] = {}

    async def request(self, channel: str, consumer: str) -> SimPwmChannel:
        """Takes a channel for its consumer alone."""
        await self.canonical(channel)
        if channel in self._consumers:
            raise BusyError(f"{channel} is used by {self._consumers[channel]!r}")
        self._consumers[channel] = consumer
        return SimPwmChannel(self, channel)

    async def canonical(self, channel: str) -> str:
        """The one name of a channel."""
        if channel not in self.output:
            raise NoDeviceError(f"no PWM channel {channel}: there is {', '.join(self.output)}")
        return channel

    async def channels(self) -> Sequence[str]:
        """Those that there are."""
        return list(self.output)

    def put(self, channel: str, period_ns: int, duty_ns: int) -> None:
        """What a channel puts out from now on."""
        self.output[channel] = (period_ns, duty_ns)

    def free(self, channel: str) -> None:
        """Stops a channel's output; it is to be had again."""
        self.put(channel, 0, 0)
        self._consumers.pop(channel, None)


class SimPwmChannel:
    """One requested channel."""

    def __init__(self, pwm: SimPwm, channel: str) -> None:
        self._pwm, self._channel = pwm, channel

    async def set(self, period_ns: int, duty_ns: int) -> None:
        """Puts out pulses."""
        await asyncio.sleep(0)
        if period_ns <= 0 or not 0 <= duty_ns <= period_ns:
            reason = f"must be from 0 to the period of {period_ns} ns, which is above 0"
            raise InvalidArgumentsError([Fault("duty", reason)])
        self._pwm.put(self._channel, period_ns, duty_ns)

    async def release(self) -> None:
        """Gives the channel back."""
        self._pwm.free(self._channel)


def _text(file: File, path: str) -> str:
    if isinstance(file, int):
        raise file_error(file, path)
    return (file if isinstance(file, str) else file()).strip()
