"""NXP PCF8574 and PCF8574A: eight quasi-bidirectional lines over I2C.

Source: PCF8574; PCF8574A product data sheet, revision 5 (27 May 2013); sections
named below are its. The chip has no registers: one byte is written to its lines
and one is read from them. A line that is written 1 is held high by a weak
current (8.1), which makes it an input as well. After power-on all lines are
high; whoever lost its supply shows by outputs that are no longer low.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample, _expander
from edged.drivers._expander import SET, Input, Output, SetOutput
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError

LINES = tuple(f"p{bit}" for bit in range(8))

INFO = Info(
    title="PCF8574/PCF8574A 8 input and output lines",
    compatible=("nxp,pcf8574", "nxp,pcf8574a"),
    bus="i2c",
    addresses=(*range(0x20, 0x28), *range(0x38, 0x40)),
    commands=(SET,),
    datasheet="PCF8574; PCF8574A, revision 5 (May 2013)",
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one PCF8574.

    Attributes:
        address: 0x20 to 0x27 of a PCF8574, 0x38 to 0x3F of a PCF8574A.
        inputs: lines that are read, by name; the chip pulls them up weakly. Its
            names for lines are `p0` to `p7`.
        outputs: lines that are driven, by name: strongly low, but only weakly high.
            With neither, every line is an input by the chip's name.
    """

    address: Annotated[int, Meta(description="7-bit address: 0x20 to 0x27, 0x38 to 0x3f")] = 0x20
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}

    def __post_init__(self) -> None:
        _expander.check_lines(self.inputs, self.outputs, LINES)

    @property
    def read_lines(self) -> dict[str, Input | Output]:
        """What is read, by name: the inputs, then the outputs."""
        if self.inputs or self.outputs:
            return {**self.inputs, **self.outputs}
        return {line: Input(line) for line in LINES}


def channels(config: Config) -> tuple[Channel, ...]:
    """The lines by name: 1 is logical true."""
    return _expander.channels(config.read_lines)


def safe_byte(config: Config) -> int:
    """The byte of the safe state: inputs and unused lines are ones (8.1)."""
    byte = 0xFF
    for output in config.outputs.values():
        if not output.safe_level:
            byte &= ~_bit(output.line)
    return byte


def samples(byte: int, config: Config) -> tuple[Sample, ...]:
    """The logical values of all lines, in the order of `channels`."""
    return tuple(
        Sample(name, float(bool(byte & _bit(part.line)) != part.active_low))
        for name, part in config.read_lines.items()
    )


class Pcf8574:
    """A PCF8574 that was set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c) -> None:
        kind = "PCF8574A" if config.address >= 0x38 else "PCF8574"
        self.identity = f"{kind} (it has no id)"
        self._config, self._bus = config, bus
        # What was written last: the chip does not tell.
        self._written = safe_byte(config)
        self._outputs = sum(_bit(output.line) for output in config.outputs.values())

    async def read(self) -> tuple[Sample, ...]:
        """The levels of all lines at one instant, outputs as they really are."""
        async with self._bus.hold() as bus:
            (byte,) = await bus.transfer(self._config.address, read_len=1)
        self._check(byte)
        return samples(byte, self._config)

    async def act(self, command: str, params: SetOutput) -> str:  # noqa: ARG002  there is one
        """Switches an output; see `Actuator.act`."""
        output = _expander.known_output(self._config.outputs, params.output)
        bit = _bit(output.line)
        async with self._bus.hold() as bus:
            # Before anything is written: after a dip of the supply, what was on
            # must not come on again by the way.
            (byte,) = await bus.transfer(self._config.address, read_len=1)
            self._check(byte)
            high = params.on != output.active_low
            await self._write(bus, self._written | bit if high else self._written & ~bit)
        return f"{params.output} is {'on' if params.on else 'off'}"

    async def safe(self) -> None:
        """Every output on its safe level."""
        async with self._bus.hold() as bus:
            await self._write(bus, safe_byte(self._config))

    async def _write(self, bus: I2cTransfers, byte: int) -> None:
        await bus.transfer(self._config.address, bytes([byte]))
        self._written = byte
        (seen,) = await bus.transfer(self._config.address, read_len=1)
        self._check(seen)

    def _check(self, byte: int) -> None:
        """An output that is driven low reads low, or the chip is not what it was.

        Raises:
            NoDeviceError: all lines read high.
            DataError: some do.
        """
        wrong = byte & self._outputs & ~self._written
        if not wrong:
            return
        place = f"PCF8574 at {self._config.address:#04x} on {self._bus.name}"
        if byte == 0xFF:
            raise NoDeviceError(
                f"{silent(place)}; or its supply dipped, and all its outputs are high"
            )
        lines = ", ".join(line for line in LINES if wrong & _bit(line))
        raise DataError(f"{place}: {lines} is driven low and reads high: a short, or another chip")


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Pcf8574:  # noqa: ARG001  never waits
    """Writes the safe state before anything else; see `Driver.probe`."""
    device = Pcf8574(config, bus)
    await device.safe()
    return device


def _bit(line: str) -> int:
    return 1 << LINES.index(line)


class Sim:
    """Model of a PCF8574.

    Args:
        clock: of the simulation; the chip needs none.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model is handed it
        self.outside: dict[str, bool] = {}
        """Levels that something outside drives lines to, by name; may be changed."""
        self.reset()

    def reset(self) -> None:
        """Power-on: all lines high (8.4)."""
        self.latch = 0xFF

    def write(self, data: bytes) -> None:
        """Each byte goes to the lines as it comes (8.2)."""
        self.latch = data[-1]

    def read(self, length: int) -> bytes:
        """The levels of the lines (8.3)."""
        return bytes([sum(self.level(line) << bit for bit, line in enumerate(LINES))]) * length

    def level(self, line: str) -> bool:
        """The level of a line now: low is strong, high gives way to what is outside."""
        return bool(self.latch & _bit(line)) and self.outside.get(line, True)
