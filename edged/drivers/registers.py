"""Any I2C chip that has registers, described in the configuration.

Source: UM10204, I2C-bus specification and user manual, revision 7.0, section
3.1.10: a register is read by one transfer, its address written and its content
read after a repeated start. What the registers mean is said by the chip's own
datasheet to whoever describes them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, Fault, InvalidArgumentsError, NoDeviceError
from edged.register import signed
from edged.units import UNITS

Order = Literal["big", "little"]
Address = Annotated[int, Meta(ge=0, le=0xFF)]
Size = Annotated[int, Meta(ge=1, le=4)]


class _Register(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What measured and settable registers have in common.

    Attributes:
        register: its address; the first one of several bytes.
        size: bytes.
        order: of the bytes.
        signed: two's complement, of the bits that count.
        scale: factor from the raw value to `unit`.
        offset: added after that.
        unit: a SenML unit.
    """

    register: Address
    size: Size = 1
    order: Order = "big"
    signed: bool = False
    scale: float = 1.0
    offset: float = 0.0
    unit: str = "/"

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is not one of {', '.join(UNITS)}")
        if self.scale == 0:
            raise ValueError("scale: must not be 0")

    def range(self, bits: int) -> tuple[float, float]:
        """What so many bits can hold, in `unit`."""
        low = -(1 << bits - 1) if self.signed else 0
        ends = (low, low + (1 << bits) - 1)
        first, last = sorted(end * self.scale + self.offset for end in ends)
        return first, last


class ChannelRegister(_Register, frozen=True, kw_only=True):
    """A register that measures.

    Attributes:
        mask: bits that count; 0 is all.
        shift: bits that fall off at the right, after the mask.
        low: lowest value that can be, in `unit`; what is lower is no value.
        high: highest value that can be.
    """

    mask: int = 0
    shift: Annotated[int, Meta(ge=0, le=31)] = 0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mask < 1 << 8 * self.size:
            raise ValueError(f"mask: does not fit into {self.size} bytes")
        if self.bits <= 0:
            raise ValueError("shift: no bit is left")
        low, high = self.limits()
        if low >= high:
            raise ValueError("low: must be less than high")

    @property
    def bits(self) -> int:
        """Width of the raw value."""
        return (self.mask.bit_length() or 8 * self.size) - self.shift

    def limits(self) -> tuple[float, float]:
        """Lowest and highest value, in `unit`."""
        low, high = self.range(self.bits)
        return (low if self.low is None else self.low, high if self.high is None else self.high)

    def decode(self, data: bytes) -> float:
        """The value in `unit`.

        Shape:
            data: `size` bytes in `order`.
        """
        word = int.from_bytes(data, self.order)
        raw = (word & self.mask if self.mask else word) >> self.shift
        if self.signed:
            raw = signed(raw, self.bits)
        return _tidy(raw * self.scale + self.offset)


class OutputRegister(_Register, frozen=True, kw_only=True):
    """A register that may be set.

    Attributes:
        min: lowest value that it may be set to, in `unit`.
        max: highest.
        safe: what it is set to at start, at stop and when its deadline passes.
    """

    min: float
    max: float
    safe: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.range(8 * self.size)
        if not low <= self.min < self.max <= high:
            raise ValueError(f"min and max: must rise, within {low:g} to {high:g}")
        if self.safe is not None and not self.min <= self.safe <= self.max:
            raise ValueError("safe: must be from min to max")

    def encode(self, value: float) -> bytes:
        """The register's bytes."""
        raw = round((value - self.offset) / self.scale)
        return raw.to_bytes(self.size, self.order, signed=self.signed)


class IdentityRegister(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A register that always reads the same, which tells the chip.

    Attributes:
        register: its address.
        value: what it reads.
        size: bytes.
        order: of the bytes.
        mask: bits that count; 0 is all.
    """

    register: Address
    value: int
    size: Size = 1
    order: Order = "big"
    mask: int = 0


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Description of one chip.

    Attributes:
        address: its 7-bit address.
        channels: what it measures, by name.
        identity: how it is told from others.
        init: pairs of register and value that are written once it is found; of
            a register of several bytes, register and each byte in their order.
        outputs: what may be set, by name.
    """

    address: Annotated[int, Meta(ge=0x08, le=0x77)] = 0x08
    channels: dict[str, ChannelRegister] = {}
    identity: IdentityRegister | None = None
    init: list[list[Annotated[int, Meta(ge=0, le=0xFF)]]] = []
    outputs: dict[str, OutputRegister] = {}

    def __post_init__(self) -> None:
        if not self.channels and not self.outputs:
            raise ValueError(
                "channels: there are none: describe one at least, such as "
                "{voltage: {register: 0x02, unit: V, scale: 0.004}}"
            )
        if any(len(one) < 2 for one in self.init):
            raise ValueError("init: each entry is [register, value]")


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets a register."""

    output: Annotated[str, Meta(description="name of an output")]
    value: Annotated[float, Meta(description="in the output's unit")]


INFO = Info(
    title="I2C chip, by a description of its registers",
    compatible=(),
    bus="i2c",
    addresses=tuple(range(0x08, 0x78)),
    commands=(Command("write", "sets an output register to a value in its unit", Write),),
    datasheet="UM10204, revision 7.0 (October 2021)",
)


def channels(config: Config) -> tuple[Channel, ...]:
    """Those of the description."""
    return tuple(Channel(name, one.unit, *one.limits()) for name, one in config.channels.items())


def _tidy(value: float) -> float:
    """Without the digits that only come from arithmetic with binary fractions."""
    return float(f"{value:.12g}")


class Registers:
    """A chip that answered; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c) -> None:
        self.identity = f"registers at {config.address:#04x}"
        self._config, self._bus = config, bus

    async def read(self) -> tuple[Sample, ...]:
        """Reads all channels."""
        config = self._config
        async with self._bus.hold() as bus:
            found = {
                name: await _get(bus, config.address, one.register, one.size)
                for name, one in config.channels.items()
            }
            if found and not b"".join(found.values()).strip(b"\xff"):
                await self._check_all_ones(bus)
        return tuple(_sample(name, config.channels[name], data) for name, data in found.items())

    async def act(self, command: str, params: Write) -> str:  # noqa: ARG002  there is only one
        """Sets an output."""
        outputs = self._config.outputs
        one = outputs.get(params.output)
        if one is None:
            reason = f"no output {params.output!r}: there is {', '.join(outputs) or 'none'}"
            raise InvalidArgumentsError([Fault("output", reason)])
        if not one.min <= params.value <= one.max:
            reason = f"must be from {one.min:g} to {one.max:g}"
            raise InvalidArgumentsError([Fault("value", reason)])
        await self._set(one, params.value)
        return f"{params.output} is {params.value:g} {UNITS[one.unit].symbol}".rstrip()

    async def safe(self) -> None:
        """Sets every output that has a safe value."""
        for one in self._config.outputs.values():
            if one.safe is not None:
                await self._set(one, one.safe)

    async def check_identity(self, bus: I2cTransfers) -> None:
        """Compares the identity register, if there is one, on a held bus."""
        config = self._config
        expected = config.identity
        if expected is None:
            return
        data = await _get(bus, config.address, expected.register, expected.size)
        mask = expected.mask or (1 << 8 * expected.size) - 1
        found = int.from_bytes(data, expected.order)
        if (found ^ expected.value) & mask == 0:
            return
        where = f"the chip at {config.address:#04x} on {self._bus.name}"
        for level, byte in (("ones", b"\xff"), ("zeros", b"\x00")):
            if not data.strip(byte):
                raise NoDeviceError(silent(where, level))
        raise DataError(
            f"{where} is another one: register {expected.register:#04x} reads {found:#x}, "
            f"not {expected.value:#x}"
        )

    async def _check_all_ones(self, bus: I2cTransfers) -> None:
        """All ones may be what is true, if the chip can show that it is there."""
        if self._config.identity is not None:
            return await self.check_identity(bus)
        where = f"the chip at {self._config.address:#04x} on {self._bus.name}"
        raise NoDeviceError(f"{silent(where)}, or describe its identity, which tells")

    async def _set(self, one: OutputRegister, value: float) -> None:
        await self._bus.transfer(self._config.address, bytes([one.register]) + one.encode(value))


async def _get(bus: I2cTransfers, address: int, register: int, size: int) -> bytes:
    return await bus.transfer(address, bytes([register]), size)


def _sample(name: str, one: ChannelRegister, data: bytes) -> Sample:
    value = one.decode(data)
    low, high = one.limits()
    if low <= value <= high:
        return Sample(name, value, raw=data)
    note = f"{value:g} is not within {low:g} to {high:g} {one.unit}"
    return Sample(name, None, "error", note, data)


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Registers:  # noqa: ARG001  Driver
    """Checks the identity and writes what `init` says; see `Driver.probe`."""
    device = Registers(config, bus)
    async with bus.hold() as held:
        await device.check_identity(held)
        for one in config.init:
            await held.transfer(config.address, bytes(one))
    await device.read()
    return device


SIM_CONFIG = {
    "identity": IdentityRegister(0x0F, 0xA5),
    "channels": {
        "temperature": ChannelRegister(
            register=0x00, size=2, signed=True, mask=0xFFF0, shift=4, scale=0.0625, unit="Cel"
        ),
        "voltage": ChannelRegister(register=0x02, size=2, order="little", scale=0.001, unit="V"),
    },
    "outputs": {"level": OutputRegister(register=0x08, min=0, max=200, safe=0)},
}
"""Settings that fit the model."""


class Sim:
    """Model of a chip with 256 registers that count up; set `memory` to what is true.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.memory = bytearray(256)
        self.memory[0x00:0x04] = b"\x19\x10\xe4\x0c"
        self.memory[0x0F] = 0xA5
        self._pointer = 0

    def write(self, data: bytes) -> None:
        """A register's address, then values for it and those behind it."""
        self._pointer = data[0]
        for at, value in enumerate(data[1:], self._pointer):
            self.memory[at & 0xFF] = value

    def read(self, length: int) -> bytes:
        """Values from the register that was addressed last."""
        return bytes(self.memory[(self._pointer + at) & 0xFF] for at in range(length))
