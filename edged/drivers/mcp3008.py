"""Microchip MCP3008, MCP3004, MCP3208 and MCP3204: analogue inputs over SPI.

Source: DS21295D (MCP3004/3008, 10 bits) and DS21298E (MCP3204/3208, 12 bits);
sections 5 and 6.1 are the same in both. The chip has no identity: an empty line
is told by the null bit, and by inputs that are all zero.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from edged.bus import Sleep, Spi, SpiSettings, SpiTransfers
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.errors import DataError, NoDeviceError

Model = Literal["mcp3008", "mcp3004", "mcp3208", "mcp3204"]
Input = Literal[
    "ch0",
    "ch1",
    "ch2",
    "ch3",
    "ch4",
    "ch5",
    "ch6",
    "ch7",
    "ch0-ch1",
    "ch1-ch0",
    "ch2-ch3",
    "ch3-ch2",
    "ch4-ch5",
    "ch5-ch4",
    "ch6-ch7",
    "ch7-ch6",
]


class _Shape(NamedTuple):
    """What the models differ in: inputs, bits, and the zeros before the start bit."""

    inputs: int
    bits: int
    leading: int


_SHAPES: dict[Model, _Shape] = {
    "mcp3008": _Shape(8, 10, 7),
    "mcp3004": _Shape(4, 10, 7),
    "mcp3208": _Shape(8, 12, 5),
    "mcp3204": _Shape(4, 12, 5),
}

INFO = Info(
    title="MCP3008/3004/3208/3204 analogue inputs",
    compatible=(
        "microchip,mcp3008",
        "microchip,mcp3004",
        "microchip,mcp3208",
        "microchip,mcp3204",
    ),
    bus="spi",
    datasheet="DS21295D, MCP3004/3008 (2008); DS21298E, MCP3204/3208 (2008)",
)

# The fastest clock at 2.7 V (DS21295D, 1.0); more is allowed at 5 V only.
SETTINGS = SpiSettings(mode=0, max_speed_hz=1_000_000)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one chip.

    Attributes:
        model: which chip; they cannot be told apart.
        vref: voltage at the pin VREF in V: what the highest code stands for.
        inputs: those that are read, in this order; `ch0` is against ground,
            `ch0-ch1` how much ch0 is above ch1. Empty is every one against ground.
    """

    model: Model = "mcp3008"
    vref: Annotated[float, msgspec.Meta(ge=0.25, le=7.0, description="V at the pin VREF")] = 3.3
    inputs: tuple[Input, ...] = ()

    def __post_init__(self) -> None:
        for name in self.inputs:
            if max(_pins(name)) >= _SHAPES[self.model].inputs:
                raise ValueError(f"inputs: an {self.model} has no {name}, only ch0 to ch3")
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError("inputs: one is there twice: remove it")

    @property
    def read_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that are read."""
        return self.inputs or _against_ground(self.model)


def channels(config: Config) -> tuple[Channel, ...]:
    """The configured inputs, in V."""
    return tuple(Channel(name, "V", 0.0, config.vref) for name in config.read_inputs)


def encode_request(name: str, model: Model) -> bytes:
    """The bytes that start one conversion and clock its result out.

    Shape:
        3 bytes: zeros, start bit, single (1) or pair (0), three bits of the
        input, and clocks for the result.

    Source: table 5-2 and 6.1 (the result ends on a byte).
    """
    pins = _pins(name)
    single = len(pins) == 1
    bits = 1 << 4 | single << 3 | pins[0]
    return (bits << 24 - _SHAPES[model].leading - 5).to_bytes(3, "big")


def decode(data: bytes, model: Model) -> int:
    """The result of one conversion.

    Shape:
        data: 3 bytes; bits before the null bit are undefined, the result is last.

    Raises:
        DataError: the null bit is not 0.

    Source: 6.1, figures 6-1 and 6-2.
    """
    bits = _SHAPES[model].bits
    word = int.from_bytes(data, "big")
    if word >> bits & 1:
        raise DataError(
            f"the bit that is always 0 is 1 ({data.hex()}): wiring, a clock that is too fast, "
            "or another model than the configured one"
        )
    return word & (1 << bits) - 1


def sample(name: str, data: bytes, config: Config) -> Sample:
    """One input's voltage; see `decode`. Source: 4.0 (equation 4-2)."""
    code = decode(data, config.model)
    size = 1 << _SHAPES[config.model].bits
    volts = round(code * config.vref / size, 7)
    if code == size - 1:
        note = f"at or above the reference of {config.vref:g} V"
        return Sample(name, volts, "clipped", note, data)
    if code == 0 and len(_pins(name)) == 2:
        other = name.partition("-")[2]
        return Sample(name, volts, "clipped", f"at or below {other}", data)
    return Sample(name, volts, raw=data)


class Mcp3008:
    """A chip that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: Spi) -> None:
        self.identity = f"{config.model.upper()} (it has no id)"
        self._config, self._bus = config, bus

    async def read(self) -> tuple[Sample, ...]:
        """One conversion of each configured input."""
        config = self._config
        async with self._bus.hold() as bus:
            found = [
                sample(name, await self._convert(bus, name), config) for name in config.read_inputs
            ]
            if all(one.value == 0 for one in found):
                await self.check(bus)
        return tuple(found)

    async def check(self, bus: SpiTransfers) -> None:
        """Tells a chip that reads 0 from a line that does: some input is above 0.

        Raises:
            NoDeviceError: every input of the chip reads 0.
        """
        model = self._config.model
        for name in _against_ground(model):
            if decode(await self._convert(bus, name), model):
                return
        raise NoDeviceError(
            f"{self._place} does not answer (all zeros): check its supply, its VREF, and MISO; "
            "if every input is at 0 V, connect an unused one to VREF to tell it from a dead line"
        )

    async def _convert(self, bus: SpiTransfers, name: str) -> bytes:
        data = await bus.transfer(encode_request(name, self._config.model), SETTINGS)
        if data == b"\xff\xff\xff":
            raise NoDeviceError(
                f"{self._place} does not answer (all ones): check its supply, MISO and CS"
            )
        return data

    @property
    def _place(self) -> str:
        return f"{self._config.model.upper()} on {self._bus.name}"


async def probe(config: Config, bus: Spi, sleep: Sleep) -> Mcp3008:  # noqa: ARG001  never waits
    """Finds out whether a chip answers; see `Driver.probe`."""
    device = Mcp3008(config, bus)
    async with bus.hold() as held:
        await device.check(held)
    return device


def _pins(name: str) -> tuple[int, ...]:
    """Numbers of an input's pins: `ch0` is 0, `ch1-ch0` 1 and 0."""
    return tuple(int(pin.removeprefix("ch")) for pin in name.split("-"))


def _against_ground(model: Model) -> tuple[str, ...]:
    return tuple(f"ch{number}" for number in range(_SHAPES[model].inputs))


class Sim:
    """Model of a chip, bit by bit.

    Args:
        clock: of the simulation; the chip needs none.
        model: which chip.
        vref: reference in V.
        volts: true voltages at ch0 to ch7; may be changed.
    """

    def __init__(
        self,
        clock: Clock,  # noqa: ARG002  every model is handed it
        *,
        model: Model = "mcp3008",
        vref: float = 3.3,
        volts: tuple[float, ...] = (0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.4, 2.8),
    ) -> None:
        self.volts = list(volts)
        self.vref = vref
        self._model: Model = model

    def transfer(self, write: bytes) -> bytes:
        """One selection: start bit, 4 bits, one clock to sample, the null bit, the result.

        The output floats (ones) until the null bit, and is low after the result.
        """
        length = 8 * len(write)
        sent = int.from_bytes(write, "big")
        start = length - sent.bit_length()
        bits = _SHAPES[self._model].bits
        null_at = start + 6
        if not sent or null_at + bits >= length:
            return b"\xff" * len(write)
        result = self._code(sent >> length - start - 5 & 0xF)
        after = length - null_at - 1
        floating = (1 << null_at) - 1 << after + 1
        return (floating | result << after - bits).to_bytes(len(write), "big")

    def _code(self, request: int) -> int:
        size = 1 << _SHAPES[self._model].bits
        pin = request & _SHAPES[self._model].inputs - 1
        volts = self.volts[pin] - (0.0 if request & 8 else self.volts[pin ^ 1])
        return min(max(int(volts / self.vref * size), 0), size - 1)
