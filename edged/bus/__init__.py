"""The buses' Protocols: what drivers, tools and the board may ask of a bus.

A Protocol has the fewest verbs; the simulated and the real buses are the same
to whoever uses one. Errors are edged's own already: the table below translates
the kernel's errno at this rim, once.
"""

from __future__ import annotations

import errno
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from edged.errors import BusError, EdgedError, NoDeviceError


class I2cTransfers(Protocol):
    """A bus that is held: nobody else's transfer comes between these."""

    async def transfer(self, address: int, write: bytes = b"", read_len: int = 0) -> bytes:
        """One transaction: write, repeated start, read; either part may be empty.

        Args:
            address: 7-bit address of the target.
            write: bytes to send first.
            read_len: number of bytes to read.

        Raises:
            NoDeviceError: nothing acknowledged the address.
            BusError: the transfer failed; `errno` is the kernel's.
        """


class I2c(I2cTransfers, Protocol):
    """One I2C bus. A transfer on its own holds the bus for itself.

    Waiters are served in order; a cancelled or failed one never blocks the next.
    """

    name: str
    """`i2c-1`."""

    def hold(self) -> AbstractAsyncContextManager[I2cTransfers]:
        """Holds the bus for the several transfers of one measurement."""


Direction = Literal["input", "output"]
Bias = Literal["as-is", "disabled", "pull-up", "pull-down"]
Drive = Literal["push-pull", "open-drain", "open-source"]
EdgeDetection = Literal["none", "rising", "falling", "both"]


class LineSettings(msgspec.Struct, frozen=True, gc=False):
    """How a GPIO line is requested, in libgpiod's words.

    Combinations that the kernel would refuse with EINVAL are refused here, by
    name. Source: linux/gpio.h, `GPIO_V2_LINE_FLAG_*`.

    Attributes:
        direction: input or output.
        active_low: logical true is the low level.
        bias: pull resistors of the chip.
        drive: of an output.
        edge: edges that are reported, of an input.
        debounce_s: how long a level must hold to count, of an input.
        output_value: the logical value that an output starts with.
    """

    direction: Direction
    active_low: bool = False
    bias: Bias = "as-is"
    drive: Drive = "push-pull"
    edge: EdgeDetection = "none"
    debounce_s: float = 0.0
    output_value: bool = False

    def __post_init__(self) -> None:
        if self.direction == "output":
            wrong = [
                word
                for word, is_set in (
                    ("edge", self.edge != "none"),
                    ("debounce", self.debounce_s > 0),
                )
                if is_set
            ]
        else:
            wrong = ["drive"] if self.drive != "push-pull" else []
        if wrong:
            raise ValueError(f"an {self.direction} has no {' and no '.join(wrong)}: remove it")


class Line(Protocol):
    """One requested GPIO line; values are logical (`active_low` applied)."""

    async def get(self) -> bool:
        """The present value; an output's own level too."""

    async def set(self, value: bool) -> None:
        """Drives an output.

        Raises:
            BusError: the line is an input (EPERM).
        """

    async def release(self) -> None:
        """Gives the line back; its level is then no longer guaranteed."""


class Gpio(Protocol):
    """The GPIO lines of the board, over all chips."""

    async def request(self, line: str, settings: LineSettings, consumer: str) -> Line:
        """Takes a line for its consumer alone.

        Args:
            line: a line's name, `GPIO17`, or chip and offset, `gpio-sim/17`.
            settings: how.
            consumer: who holds it, as other programs see it.

        Raises:
            NoDeviceError: no such line.
            BusError: refused by the kernel.
            BusyError: taken; the message names its consumer.
        """


def i2c_error(number: int, bus: str, address: int) -> EdgedError:
    """The error of a failed I2C transfer, with a remedy in a maker's words.

    Args:
        number: the kernel's errno.
        bus: `i2c-1`.
        address: 7-bit address of the target.
    """
    if number in _NO_ANSWER:
        return NoDeviceError(
            f"nothing answered at address {address:#04x} on {bus}: check power, SDA and SCL "
            "swapped, the address pin and the pull-ups"
        )
    reason = _REASONS.get(number, "the transfer failed")
    return BusError(number, f"{bus}, address {address:#04x}: {reason}")


_NO_ANSWER = {errno.EREMOTEIO, errno.ENXIO, errno.ENODEV}
"""Adapters differ in the errno of an address that nobody acknowledged."""

_REASONS = {
    errno.ETIMEDOUT: (
        "the bus is stuck or a device holds the clock: check for SDA or SCL low and a missing "
        "pull-up, then power the devices off and on"
    ),
}
