"""Microchip MCP23017 and MCP23008: 16 or 8 lines over I2C.

Source: DS20001952D (MCP23017) and DS21919E (MCP23008); sections named below are
of the first. One block read tells everything: the lines, and whether the chip
still has its settings, for after a dip of its supply every line is an input again.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample, _expander
from edged.drivers._expander import SET, Output, SetOutput
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError

Model = Literal["mcp23017", "mcp23008"]


class _Ports(NamedTuple):
    """The lines of a model, and how many registers each quantity has."""

    lines: tuple[str, ...]
    ports: int


_MODELS: dict[Model, _Ports] = {
    "mcp23017": _Ports(tuple(f"gp{port}{bit}" for port in "ab" for bit in range(8)), 2),
    "mcp23008": _Ports(tuple(f"gp{bit}" for bit in range(8)), 1),
}
OUTPUTS_ONLY = ("gpa7", "gpb7")
"""An input there may disturb SDA: current chips are specified for outputs only."""

# Section 3.5 (register order; times the number of ports with IOCON.BANK 0).
IODIR, IPOL, GPINTEN, IOCON, GPPU, GPIO, OLAT = 0, 1, 2, 5, 6, 9, 10
_QUANTITIES = 11
_BANK_1_IOCON = 0x05
"""Where IOCON is while its bit BANK is 1; GPINTENB of an MCP23017 while it is 0."""


INFO = Info(
    title="MCP23017/MCP23008 16 or 8 input and output lines",
    compatible=("microchip,mcp23017", "microchip,mcp23008"),
    bus="i2c",
    addresses=tuple(range(0x20, 0x28)),
    commands=(SET,),
    datasheet="DS20001952D, MCP23017 (2022); DS21919E, MCP23008 (2007)",
)


class Input(_expander.Input, frozen=True):
    """A line that is read.

    Attributes:
        bias: the chip's pull-up resistor of 100 kilohm.
    """

    bias: Literal["disabled", "pull-up"] = "disabled"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one MCP23017 or MCP23008.

    Attributes:
        address: by the pins A0 to A2.
        model: which chip; they cannot be told apart.
        inputs: lines that are read, by name. The chip's names for lines are `gpa0`
            to `gpb7`, of an MCP23008 `gp0` to `gp7`.
        outputs: lines that are driven, by name. With neither, every line that can
            be is an input by the chip's name.
    """

    address: Annotated[int, Meta(description="7-bit address: 0x20 to 0x27")] = 0x20
    model: Model = "mcp23017"
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}

    def __post_init__(self) -> None:
        _expander.check_lines(self.inputs, self.outputs, _MODELS[self.model].lines)

    @property
    def read_lines(self) -> dict[str, Input | Output]:
        """What is read, by name: the inputs, then the outputs."""
        if self.inputs or self.outputs:
            return {**self.inputs, **self.outputs}
        lines = _MODELS[self.model].lines
        return {line: Input(line) for line in lines if line not in OUTPUTS_ONLY}


def channels(config: Config) -> tuple[Channel, ...]:
    """The lines by name: 1 is logical true."""
    return _expander.channels(config.read_lines)


class Settings(NamedTuple):
    """What the chip is set to; bit 0 is the first line."""

    direction: int
    pull_up: int
    safe: int


def settings(config: Config) -> Settings:
    """The registers of a configuration: inputs are ones in `direction` (3.5.1, 3.5.7)."""
    direction = (1 << len(_MODELS[config.model].lines)) - 1
    pull_up = safe = 0
    for part in config.inputs.values():
        pull_up |= _bit(config, part.line) if part.bias == "pull-up" else 0
    for output in config.outputs.values():
        bit = _bit(config, output.line)
        direction &= ~bit
        safe |= bit if output.safe_level else 0
    return Settings(direction, pull_up, safe)


def samples(levels: int, config: Config) -> tuple[Sample, ...]:
    """The logical values of all lines, in the order of `channels`.

    Args:
        levels: of the lines, bit 0 is the first.
        config: names and polarity.
    """
    found = []
    for name, part in config.read_lines.items():
        value = bool(levels & _bit(config, part.line)) != part.active_low
        if isinstance(part, Input) and part.line in OUTPUTS_ONLY:
            note = f"{part.line} is for outputs only on current chips: use another line"
            found.append(Sample(name, float(value), "suspect", note))
        else:
            found.append(Sample(name, float(value)))
    return tuple(found)


class Mcp23017:
    """An MCP23017 or MCP23008 that was set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c) -> None:
        self.identity = f"{config.model.upper()} (it has no id)"
        self._config, self._bus = config, bus
        self._ports = _MODELS[config.model].ports
        self._settings = settings(config)

    async def read(self) -> tuple[Sample, ...]:
        """The levels of all lines at one instant, outputs as they really are."""
        async with self._bus.hold() as bus:
            registers = await self._registers(bus)
        return samples(registers[GPIO], self._config)

    async def act(self, command: str, params: SetOutput) -> str:  # noqa: ARG002  there is one
        """Switches an output; see `Actuator.act`."""
        output = _expander.known_output(self._config.outputs, params.output)
        bit = _bit(self._config, output.line)
        async with self._bus.hold() as bus:
            latch = (await self._registers(bus))[OLAT]
            latch = latch | bit if params.on != output.active_low else latch & ~bit
            await self._write(bus, OLAT, latch)
        return f"{params.output} is {'on' if params.on else 'off'}"

    async def safe(self) -> None:
        """Sets the chip up anew, with every output on its safe level."""
        async with self._bus.hold() as bus:
            await self.set_up(bus)

    async def set_up(self, bus: I2cTransfers) -> None:
        """Writes all settings; levels before directions, so that no line moves twice.

        Raises:
            NoDeviceError: what is read back is all ones or all zeros.
            DataError: it does not keep what is written.
        """
        if self._ports == 2:
            # In case that another program left BANK 1, where the addresses differ.
            await bus.transfer(self._config.address, bytes([_BANK_1_IOCON, 0]))
        wanted = self._settings
        for quantity, value in (
            (IOCON, 0),
            (IPOL, 0),
            (GPINTEN, 0),
            (GPPU, wanted.pull_up),
            (OLAT, wanted.safe),
            (IODIR, wanted.direction),
        ):
            await self._write(bus, quantity, value)
        await self._registers(bus)

    async def _registers(self, bus: I2cTransfers) -> list[int]:
        """Every quantity of the chip, read at once, once its settings are known to stand."""
        length = _QUANTITIES * self._ports
        data = await bus.transfer(self._config.address, b"\x00", length)
        for byte, level in ((b"\xff", "ones"), (b"\x00", "zeros")):
            # Zeros are possible: all lines are outputs, and low.
            if data == byte * length and (level == "ones" or self._settings.direction):
                raise NoDeviceError(silent(self._place, level))
        found = [
            int.from_bytes(data[i : i + self._ports], "little")
            for i in range(0, length, self._ports)
        ]
        wanted = self._settings
        seen = (found[IODIR], found[IPOL], found[IOCON], found[GPPU])
        if seen != (wanted.direction, 0, 0, wanted.pull_up):
            raise DataError(
                f"{self._place} does not have its settings: its supply dipped and its outputs "
                "float, another program uses it, or it is another chip"
            )
        return found

    async def _write(self, bus: I2cTransfers, quantity: int, value: int) -> None:
        values = value.to_bytes(self._ports, "little")
        await bus.transfer(self._config.address, bytes([quantity * self._ports, *values]))

    @property
    def _place(self) -> str:
        model, address = self._config.model.upper(), self._config.address
        return f"{model} at {address:#04x} on {self._bus.name}"


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Mcp23017:  # noqa: ARG001  never waits
    """Sets the chip up, outputs on their safe level; see `Driver.probe`."""
    device = Mcp23017(config, bus)
    await device.safe()
    return device


def _bit(config: Config, line: str) -> int:
    return 1 << _MODELS[config.model].lines.index(line)


class Sim:
    """Register model of an MCP23017 or MCP23008.

    Args:
        clock: of the simulation; the chip needs none.
        model: which chip.
    """

    def __init__(self, clock: Clock, *, model: Model = "mcp23017") -> None:  # noqa: ARG002  see Driver
        self.outside: dict[str, bool] = {}
        """Levels that something outside drives lines to, by the chip's name; may be changed."""
        self.log: deque[str] = deque(maxlen=100)
        """The last changes of lines that the chip drives, `gpa0 high`, `gpa0 floats`."""
        self._model = _MODELS[model]
        self._driven: dict[str, bool] = {}
        self.reset()

    def reset(self) -> None:
        """Power-on: every line is an input (3.5, table 3-1)."""
        ports = self._model.ports
        self._registers = bytearray(_QUANTITIES * ports)
        self._registers[IODIR * ports : (IODIR + 1) * ports] = b"\xff" * ports
        self._pointer = 0
        self._watch()

    def write(self, data: bytes) -> None:
        """A register's address, then values for it and those after it."""
        self._pointer = data[0]
        for value in data[1:]:
            at = self._index(self._pointer)
            if at is not None:
                self._set(at, value)
            self._step()

    def read(self, length: int) -> bytes:
        """Values from the addressed register on."""
        found = bytearray()
        for _ in range(length):
            at = self._index(self._pointer)
            found.append(0 if at is None else self._get(at))
            self._step()
        return bytes(found)

    def level(self, line: str) -> bool:
        """The level of a line now: driven by the chip, else from outside, else pulled up."""
        if line in self._driven:
            return self._driven[line]
        return self.outside.get(line, bool(self._word(GPPU) >> self._model.lines.index(line) & 1))

    @property
    def _bank_1(self) -> bool:
        return self._model.ports == 2 and bool(self._registers[IOCON * 2] & 0x80)

    def _index(self, address: int) -> int | None:
        """Where a register is in `_registers`, by its address (table 3-1)."""
        if self._bank_1:
            port, quantity = divmod(address, 0x10)
            return quantity * 2 + port if port < 2 and quantity < _QUANTITIES else None
        return address if address < len(self._registers) else None

    def _step(self) -> None:
        # Bit SEQOP of IOCON switches counting up off (3.2.1).
        if not self._registers[IOCON * self._model.ports] & 0x20:
            self._pointer = (self._pointer + 1) % len(self._registers)

    def _set(self, at: int, value: int) -> None:
        quantity, port = divmod(at, self._model.ports)
        if quantity == GPIO:
            quantity = OLAT
        if quantity == IOCON:
            # One register at two addresses; its bit 0 is not there.
            for one in range(self._model.ports):
                self._registers[IOCON * self._model.ports + one] = value & 0xFE
        elif quantity not in {7, 8}:
            self._registers[quantity * self._model.ports + port] = value
        self._watch()

    def _get(self, at: int) -> int:
        quantity, port = divmod(at, self._model.ports)
        if quantity != GPIO:
            return self._registers[at]
        lines = self._model.lines[8 * port : 8 * port + 8]
        levels = sum(self.level(line) << bit for bit, line in enumerate(lines))
        return levels ^ self._registers[IPOL * self._model.ports + port]

    def _word(self, quantity: int) -> int:
        ports = self._model.ports
        return int.from_bytes(self._registers[quantity * ports : (quantity + 1) * ports], "little")

    def _watch(self) -> None:
        inputs, latch = self._word(IODIR), self._word(OLAT)
        for bit, line in enumerate(self._model.lines):
            driven = None if inputs >> bit & 1 else bool(latch >> bit & 1)
            if driven == self._driven.get(line):
                continue
            if driven is None:
                del self._driven[line]
                self.log.append(f"{line} floats")
            else:
                self._driven[line] = driven
                self.log.append(f"{line} {'high' if driven else 'low'}")
