"""The buses' Protocols: what drivers, tools and the board may ask of a bus.

A Protocol has the fewest verbs; the simulated and the real buses are the same
to whoever uses one. Errors are edged's own already (`edged.bus.faults`).
Loop thread only: what blocks runs on the bus's own thread. Waiters are served
in order; a cancelled or failed one never blocks the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

_T = TypeVar("_T")

Sleep = Callable[[float], Awaitable[None]]
"""Waits that many seconds; injected, so that simulated chips need no real time."""

Kind = Literal["i2c", "spi", "serial", "gpio", "pwm", "w1", "sysfs", "board"]
"""`board`: a device that needs several buses is handed all of them."""

# I2C ------------------------------------------------------------------------------------------


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
            BusyError: a driver of the kernel owns the address; the message names it.
        """


class I2c(I2cTransfers, Protocol):
    """One I2C bus. A transfer on its own holds the bus for itself."""

    name: str
    """`i2c-1`; of a channel behind a multiplexer `i2c-1/0x70/3`."""

    def hold(self) -> AbstractAsyncContextManager[I2cTransfers]:
        """Holds the bus for the several transfers of one measurement."""

    async def detect(self, address: int) -> bool:
        """Whether something acknowledges the address, asked as harmlessly as possible.

        Raises:
            BusError: the bus is stuck.
        """

    def owner(self, address: int) -> str:
        """The kernel's driver that owns the address, `lm75`; empty when none does."""

    async def run(self, work: Coroutine[Any, Any, _T], sleep: Sleep) -> _T:
        """What a measurement comes to, done where its transfers cost least.

        Args:
            work: awaits nothing but this bus, and `pause` of it.
            sleep: how the loop waits for it.
        """
        del sleep
        return await work

    async def pause(self, seconds: float, sleep: Sleep) -> None:
        """How a measurement waits, whether `run` does it or not."""
        await sleep(seconds)


# SPI ------------------------------------------------------------------------------------------


class SpiSettings(msgspec.Struct, frozen=True, gc=False):
    """How a target is spoken to.

    Attributes:
        mode: clock polarity and phase, 0 to 3.
        max_speed_hz: the controller rounds it down.
        bits_per_word: 8 on most controllers.
        lsb_first: least significant bit first.
        cs_high: the chip select is active high.
    """

    mode: int = 0
    max_speed_hz: int = 500_000
    bits_per_word: int = 8
    lsb_first: bool = False
    cs_high: bool = False


class SpiTransfers(Protocol):
    """A target that is held: nobody else's transfer comes between these."""

    async def transfer(self, write: bytes, settings: SpiSettings) -> bytes:
        """One transfer in both directions, with the chip select active throughout.

        Args:
            write: bytes to send; as many are received.
            settings: for this transfer.

        Raises:
            InvalidArgumentsError: longer than the kernel's buffer; no byte moved.
            BusError: the transfer failed; `errno` is the kernel's.
        """


class Spi(SpiTransfers, Protocol):
    """One SPI target: a controller and a chip select. A transfer on its own holds it."""

    name: str
    """`spi0.0`."""

    def hold(self) -> AbstractAsyncContextManager[SpiTransfers]:
        """Holds the controller for several transfers."""


# Serial ---------------------------------------------------------------------------------------

Parity = Literal["none", "even", "odd"]


class SerialSettings(msgspec.Struct, frozen=True, gc=False):
    """How a port is opened.

    Attributes:
        baudrate: bits a second.
        bytesize: data bits, 5 to 8.
        parity: of the line.
        stopbits: 1 or 2.
        dtr: level of DTR while open; None is what the kernel does (it raises it,
            which resets many microcontroller boards).
        rts: likewise.
        rtscts: hardware flow control.
        xonxoff: software flow control.
        rs485: the transceiver's direction follows RTS, by the kernel.
    """

    baudrate: int = 9600
    bytesize: int = 8
    parity: Parity = "none"
    stopbits: int = 1
    dtr: bool | None = None
    rts: bool | None = None
    rtscts: bool = False
    xonxoff: bool = False
    rs485: bool = False


class SerialPort(Protocol):
    """An open port. What arrives is kept in a bounded buffer until it is read."""

    name: str
    """`ttyUSB0`."""
    settings: SerialSettings
    lost: int
    """Bytes dropped since the port was opened, because nobody read them."""

    async def write(self, data: bytes) -> None:
        """Sends bytes, and returns when all are on their way.

        Raises:
            NoDeviceError: the device was unplugged or the line hung up.
            BusError: any other failure.
        """

    async def read(self, count: int, timeout_s: float) -> bytes:
        """Bytes that came: `count` of them, or fewer when the time is over.

        Raises:
            NoDeviceError: unplugged or hung up, and nothing is left to read.
        """

    async def read_until(self, end: bytes, limit: int, timeout_s: float) -> bytes:
        """Bytes up to and with `end`, or what came when the time is over or at `limit`.

        Raises:
            NoDeviceError: unplugged or hung up before `end` came.
        """

    def discard(self) -> int:
        """Forgets what came and was not read; the number of bytes."""

    def hold(self) -> AbstractAsyncContextManager[None]:
        """Keeps other users of the port out for one exchange."""

    async def line_errors(self) -> dict[str, int] | None:
        """Framing, parity, overrun and break counts since it was opened; None where unknown."""

    async def close(self) -> None:
        """Gives the port back; anything else then raises `NoDeviceError`."""


class PortInfo(msgspec.Struct, frozen=True):
    """A serial port that is there.

    Attributes:
        name: `ttyUSB0`.
        path: `/dev/ttyUSB0`.
        by_id: stable name below /dev/serial/by-id; empty when it has none.
        description: maker and product as USB tells them, or the kernel's driver.
        vid_pid: `1a86:7523`; empty when it is not on USB.
        serial_number: of a USB device; empty when it has none.
    """

    name: str
    path: str
    by_id: str = ""
    description: str = ""
    vid_pid: str = ""
    serial_number: str = ""


class SerialPorts(Protocol):
    """The serial ports of the board."""

    async def list(self) -> Sequence[PortInfo]:
        """The ports that are there, by name."""

    async def find(self, port: str) -> PortInfo:
        """The port that is meant; nothing is opened.

        Args:
            port: a name, a path, a by-id or by-path name, or `usb:VID:PID[:SERIAL]`.

        Returns:
            One of `list`; of a node that is no hardware (a pseudo terminal) its
            path alone, as its name too.

        Raises:
            NoDeviceError: no such port, or several match.
        """

    async def open(self, port: str, settings: SerialSettings, consumer: str) -> SerialPort:
        """Opens a port for its consumer alone.

        Args:
            port: as for `find`.
            settings: how.
            consumer: who, for the others' error messages.

        Raises:
            NoDeviceError: no such port, or several match.
            BusyError: it is open already; the message names the holder.
            BusError: refused by the kernel.
        """


# GPIO -----------------------------------------------------------------------------------------

Direction = Literal["input", "output"]
Bias = Literal["as-is", "disabled", "pull-up", "pull-down"]
Drive = Literal["push-pull", "open-drain", "open-source"]
EdgeDetection = Literal["none", "rising", "falling", "both"]


_NOT_OF = {
    "output": ("edge", "debounce"),
    "input": ("drive",),
    "as-is": ("edge", "debounce", "drive", "bias"),
}
"""Settings that a line of a direction cannot have."""


class LineSettings(msgspec.Struct, frozen=True, gc=False):
    """How a GPIO line is requested, in libgpiod's words.

    Combinations that the kernel would refuse with EINVAL are refused here, by
    name. Source: linux/gpio.h, `GPIO_V2_LINE_FLAG_*`.

    Attributes:
        direction: input, output, or as-is for a look that changes nothing.
        active_low: logical true is the low level.
        bias: pull resistors of the chip.
        drive: of an output.
        edge: edges that are reported, of an input.
        debounce_s: how long a level must hold to count, of an input.
        output_value: the logical value that an output starts with.
    """

    direction: Direction | Literal["as-is"]
    active_low: bool = False
    bias: Bias = "as-is"
    drive: Drive = "push-pull"
    edge: EdgeDetection = "none"
    debounce_s: float = 0.0
    output_value: bool = False

    def __post_init__(self) -> None:
        given = {
            "edge": self.edge != "none",
            "debounce": self.debounce_s > 0,
            "drive": self.drive != "push-pull",
            "bias": self.bias != "as-is",
        }
        wrong = [word for word in _NOT_OF[self.direction] if given[word]]
        # The kernel counts microseconds in 32 bits.
        if not 0 <= self.debounce_s <= 3600:
            raise ValueError("debounce must be from 0s to 1h")
        if wrong:
            which = "a line as it is" if self.direction == "as-is" else f"an {self.direction}"
            raise ValueError(f"{which} has no {' and no '.join(wrong)}: remove it")


class Edge(NamedTuple):
    """One edge of a line.

    Attributes:
        value: the logical value after it.
        monotonic: when, by the kernel, in seconds of the monotonic clock.
        sequence: of this line, from 1; a gap means lost edges.
        lost: edges of this line that the kernel dropped just before it.
    """

    value: bool
    monotonic: float
    sequence: int
    lost: int = 0


OnEdges = Callable[[Sequence[Edge]], None]
"""Called on the loop with edges in their order, soon after they happened."""


class Line(Protocol):
    """One requested GPIO line; values are logical (`active_low` applied)."""

    async def get(self) -> bool:
        """The present value; an output's own level too."""

    async def set(self, value: bool) -> None:
        """Drives an output.

        Raises:
            BusError: the line is an input (EPERM).
        """

    async def pulse(self, duration_s: float) -> None:
        """Drives an output to true, and after a time of 1 us to 0.1 s to false."""

    async def release(self) -> None:
        """Gives the line back; its level is then no longer guaranteed."""


class LineState(msgspec.Struct, frozen=True):
    """What the kernel tells of a line.

    Attributes:
        name: `GPIO17`; empty when the board names none.
        chip: label of its chip, `pinctrl-bcm2711`.
        offset: on that chip.
        direction: as it stands.
        consumer: who uses it; empty when it is free.
        used: whether it is in use (by a nameless consumer too).
    """

    name: str
    chip: str
    offset: int
    direction: Direction
    consumer: str = ""
    used: bool = False


class Gpio(Protocol):
    """The GPIO lines of the board, over all chips."""

    async def request(
        self,
        line: str,
        settings: LineSettings,
        consumer: str,
        on_edges: OnEdges | None = None,
    ) -> Line:
        """Takes a line for its consumer alone.

        Args:
            line: a line's name, `GPIO17`, or chip (label or name) and offset, `gpio-sim/17`.
            settings: how.
            consumer: who holds it, as other programs see it.
            on_edges: who is told of the edges that `settings` asks for.

        Raises:
            NoDeviceError: no such line, or several of that name.
            BusError: refused by the kernel.
            BusyError: taken; the message names its consumer.
        """

    async def canonical(self, line: str) -> str:
        """The one name of a line that has several: chip and offset; nothing is taken.

        Args:
            line: as for `request`.

        Raises:
            NoDeviceError: no such line, or several of that name.
            BusError: not found, and a chip may not be opened.
        """

    async def lines(self) -> Sequence[LineState]:
        """All lines of all chips, by chip and offset."""


# PWM ------------------------------------------------------------------------------------------


class PwmChannel(Protocol):
    """One requested PWM channel."""

    async def set(self, period_ns: int, duty_ns: int) -> None:
        """Puts out pulses of `duty_ns` every `period_ns`; a duty of 0 is low.

        Raises:
            InvalidArgumentsError: the duty is longer than the period, or the period 0.
            BusError: refused by the kernel.
        """

    async def release(self) -> None:
        """Stops the output and gives the channel back."""


class Pwm(Protocol):
    """The PWM channels of the board, over all chips."""

    async def request(self, channel: str, consumer: str) -> PwmChannel:
        """Takes a channel for its consumer alone.

        Args:
            channel: chip and channel, `pwmchip0/1`.
            consumer: who, for the others' error messages.

        Raises:
            NoDeviceError: no such channel.
            BusyError: taken.
            BusError: refused by the kernel.
        """

    async def canonical(self, channel: str) -> str:
        """The one name of a channel: `pwmchip0/0`.

        Raises:
            NoDeviceError: no such channel.
        """

    async def channels(self) -> Sequence[str]:
        """Those that there are, `pwmchip0/0`."""


# What the kernel's own drivers show -----------------------------------------------------------


class OneWire(Protocol):
    """The 1-wire masters of the board, through the kernel's w1 drivers."""

    async def devices(self) -> Sequence[str]:
        """Ids of the devices that there are, `28-0316a2795bff`."""

    async def read(self, device: str, attribute: str) -> str:
        """A file of a device, `temperature` or `w1_slave`; a conversion may take 0.75 s.

        Raises:
            NoDeviceError: no such device.
            BusError: the kernel could not read it.
        """

    async def write(self, device: str, attribute: str, text: str) -> None:
        """Writes a file of a device, `resolution`.

        Raises:
            NoDeviceError: no such device.
            BusError: the kernel refused it, or edged may not write it.
        """


class Sysfs(Protocol):
    """The files of sysfs; paths are relative to /sys."""

    async def list(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted; none when it is not there."""

    async def read(self, path: str) -> str:
        """A file's text, without the white space around it.

        Raises:
            NoDeviceError: it is not there.
            BusError: the kernel's driver could not read it.
        """


class Buses(Protocol):
    """The buses of one board, each opened when it is first used.

    Each raises `NoDeviceError` when there is no such bus; the message says how
    it is enabled on this board, or which package is missing.
    """

    def i2c(self, name: str) -> I2c:
        """`i2c-1`, or a channel behind a multiplexer, `i2c-1/0x70/3`."""

    def spi(self, name: str) -> Spi:
        """`spi0.0`."""

    @property
    def serial(self) -> SerialPorts:
        """The serial ports."""

    @property
    def gpio(self) -> Gpio:
        """The GPIO lines."""

    @property
    def pwm(self) -> Pwm:
        """The PWM channels."""

    @property
    def w1(self) -> OneWire:
        """The 1-wire devices."""

    @property
    def sysfs(self) -> Sysfs:
        """The kernel's own drivers."""

    def names(self, kind: Literal["i2c", "spi"]) -> Sequence[str]:
        """Buses of that kind that are there now."""

    def present(self) -> frozenset[Kind]:
        """Kinds of which there is anything now; a quick look that opens nothing."""

    def look(self) -> None:
        """Something was plugged in or out: what is open of the latter is given back soon."""

    async def close(self) -> None:
        """Ends every thread and gives back whatever is still open."""
