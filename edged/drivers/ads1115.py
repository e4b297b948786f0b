"""Texas Instruments ADS1115 and ADS1015: four analogue inputs over I2C.

Source: SBAS444D (ADS111x) and SBAS473E (ADS101x); sections named below are in
both. Each input is one single-shot conversion in one held sequence: the
multiplexer is shared, so whoever let go of the bus in between could read
another one's input. The bus is free between two inputs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Identity, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, NoDeviceError
from edged.register import Field, Register, signed

Model = Literal["ads1115", "ads1015"]
Input = Literal["a0", "a1", "a2", "a3", "a0-a1", "a0-a3", "a1-a3", "a2-a3"]

# Section 9.6 (register map).
CONVERSION = 0x00
CONFIG = Register(
    0x01,
    (
        Field("os", 15),
        Field("mux", 12, 3),
        Field("pga", 9, 3),
        Field("mode", 8),
        Field("dr", 5, 3),
        Field("comp_que", 0, 2),
    ),
    size=2,
)
LOW_THRESHOLD, HIGH_THRESHOLD = 0x02, 0x03
SINGLE_SHOT, NO_COMPARATOR = 1, 3
RESET_CONFIG = 0x8583
_RESET_THRESHOLDS = bytes.fromhex("8000 7fff")

_MUX: dict[str, int] = {
    "a0-a1": 0,
    "a0-a3": 1,
    "a1-a3": 2,
    "a2-a3": 3,
    "a0": 4,
    "a1": 5,
    "a2": 6,
    "a3": 7,
}
_PGA: dict[float, int] = {6.144: 0, 4.096: 1, 2.048: 2, 1.024: 3, 0.512: 4, 0.256: 5}
_RATES: dict[Model, tuple[int, ...]] = {
    "ads1115": (8, 16, 32, 64, 128, 250, 475, 860),
    "ads1015": (128, 250, 490, 920, 1600, 2400, 3300),
}
_USUAL_RATE: dict[Model, int] = {"ads1115": 128, "ads1015": 1600}

INFO = Info(
    title="ADS1115/ADS1015 four analogue inputs",
    compatible=("ti,ads1115", "ti,ads1015"),
    bus="i2c",
    addresses=(0x48, 0x49, 0x4A, 0x4B),
    # There is no identity register: this is the configuration after a reset and
    # as this driver leaves it (idle, single shot, comparator off).
    identity=Identity(register=0x01, values=(0x8103,), size=2, mask=0x811F),
    datasheet="SBAS444D, ADS111x (January 2018); SBAS473E, ADS101x (January 2018)",
)

_POLLS, _POLL_S = 20, 0.001


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one ADS1115 or ADS1015.

    Attributes:
        address: by the pin ADDR: ground, supply, SDA, SCL.
        model: which chip; they cannot be told apart by a register.
        inputs: full-scale range in V by input; `a0` is against ground, `a0-a1`
            the difference of two. No input may exceed the chip's supply by more
            than 0.3 V, whatever the range.
        rate_sps: conversions a second; slower is less noisy. None is the chip's
            own: 128 of an ADS1115, 1600 of an ADS1015.
    """

    address: Annotated[int, msgspec.Meta(description="7-bit address: 0x48 to 0x4b")] = 0x48
    model: Model = "ads1115"
    inputs: dict[Input, float] = msgspec.field(
        default_factory=lambda: {"a0": 4.096, "a1": 4.096, "a2": 4.096, "a3": 4.096}
    )
    rate_sps: int | None = None

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("inputs: name one at least, such as a0: 4.096")
        for name, full_scale in self.inputs.items():
            if full_scale not in _PGA:
                known = ", ".join(f"{one:g}" for one in _PGA)
                raise ValueError(f"inputs.{name}: the range in V is one of {known}")
        if self.rate_sps is not None and self.rate_sps not in _RATES[self.model]:
            known = ", ".join(str(one) for one in _RATES[self.model])
            raise ValueError(f"rate_sps of an {self.model} is one of {known}")

    @property
    def rate(self) -> int:
        """Conversions a second."""
        return self.rate_sps or _USUAL_RATE[self.model]


def channels(config: Config) -> tuple[Channel, ...]:
    """The configured inputs, in V."""
    return tuple(
        Channel(name, "V", -full_scale, full_scale) for name, full_scale in config.inputs.items()
    )


def encode_config(config: Config, name: Input) -> bytes:
    """The configuration that starts one conversion of an input.

    Shape:
        2 bytes, most significant first.

    Source: 9.6.3 (config register).
    """
    return CONFIG.encode(
        {
            "os": 1,
            "mux": _MUX[name],
            "pga": _PGA[config.inputs[name]],
            "mode": SINGLE_SHOT,
            "dr": _RATES[config.model].index(config.rate),
            "comp_que": NO_COMPARATOR,
        }
    )


def conversion_s(rate_sps: int) -> float:
    """Longest time of one conversion: the rate is true to 10 %. Source: 7.5."""
    return 1.1 / rate_sps


def sample(name: str, data: bytes, full_scale: float, model: Model) -> Sample:
    """One input's voltage.

    Args:
        name: of the channel.
        data: the conversion register.
        full_scale: range in V.
        model: an ADS1015 has its 12 bits at the upper end.

    Shape:
        data: 2 bytes, most significant first, two's complement.

    Raises:
        DataError: the lowest four bits are used, which an ADS1015 lacks.

    Source: 9.5.4 (data format); ADS101x 9.6.2.
    """
    code = signed(int.from_bytes(data, "big"), 16)
    highest = 0x7FFF if model == "ads1115" else 0x7FF0
    if code & 0xF and model == "ads1015":
        raise DataError("the chip has 16 bits: write model: ads1115")
    # A step of the smallest range is 7.8125 uV.
    volts = round(code * full_scale / 0x8000, 10)
    if code in {highest, -0x8000}:
        note = f"beyond the range of {full_scale:g} V: configure a larger one"
        return Sample(name, volts, "clipped", note, data)
    return Sample(name, volts, raw=data)


class Ads1115:
    """An ADS1115 or ADS1015 that was found; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = f"{config.model.upper()} (it has no id)"
        self._config, self._bus, self._sleep = config, bus, sleep

    async def read(self) -> tuple[Sample, ...]:
        """One conversion of each configured input."""
        config = self._config
        found = []
        for name, full_scale in config.inputs.items():
            async with self._bus.hold() as bus:
                data = await self._convert(bus, encode_config(config, name))
            found.append(sample(name, data, full_scale, config.model))
        return tuple(found)

    async def _convert(self, bus: I2cTransfers, wanted: bytes) -> bytes:
        address = self._config.address
        await bus.transfer(address, bytes([CONFIG.address, *wanted]))
        await self._sleep(conversion_s(self._config.rate))
        for _ in range(_POLLS):
            seen = await bus.transfer(address, bytes([CONFIG.address]), CONFIG.size)
            _check_silent(seen, self._bus.name, address)
            # The bit `os` is the highest: 0 while it converts.
            if seen == wanted:
                return await bus.transfer(address, bytes([CONVERSION]), 2)
            if seen[0] | 0x80 != wanted[0] or seen[1] != wanted[1]:
                raise DataError(
                    f"{_place(self._bus.name, address)}: its settings changed during a "
                    "conversion: another program uses it, or its supply dipped"
                )
            await self._sleep(_POLL_S)
        raise DataError(
            f"{_place(self._bus.name, address)}: a conversion does not end; power it off and on"
        )


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Ads1115:
    """Finds the chip by its reset values; nothing is written. See `Driver.probe`."""
    async with bus.hold() as held:
        await _identify(held, bus.name, config.address)
    return Ads1115(config, bus, sleep)


async def _identify(bus: I2cTransfers, name: str, address: int) -> None:
    seen = await bus.transfer(address, bytes([CONFIG.address]), CONFIG.size)
    _check_silent(seen, name, address)
    if int.from_bytes(seen, "big") == RESET_CONFIG:
        return
    # In use before: nobody needs the thresholds, and other chips have other ones.
    low = await bus.transfer(address, bytes([LOW_THRESHOLD]), 2)
    high = await bus.transfer(address, bytes([HIGH_THRESHOLD]), 2)
    # An ADS1015's lowest four bits are not there.
    if low + high[:1] + bytes([high[1] | 0x0F]) != _RESET_THRESHOLDS:
        raise DataError(
            f"the chip at {address:#04x} on {name} is not an ADS1115 or ADS1015: "
            f"its configuration reads {seen.hex()} and not {RESET_CONFIG:x}"
        )


def _check_silent(data: bytes, bus: str, address: int) -> None:
    for byte, level in ((b"\xff", "ones"), (b"\x00", "zeros")):
        if data == byte * len(data):
            raise NoDeviceError(silent(_place(bus, address), level))


def _place(bus: str, address: int) -> str:
    return f"ADS1115 at {address:#04x} on {bus}"


class Sim:
    """Register model of an ADS1115 or ADS1015 in single-shot mode.

    Args:
        clock: what conversion times follow.
        model: which chip.
        volts: true voltages at a0 to a3; may be changed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        model: Model = "ads1115",
        volts: tuple[float, float, float, float] = (0.5, 1.25, 2.0, 3.3),
    ) -> None:
        self.volts = list(volts)
        self._clock, self._model = clock, model
        self.reset()

    def reset(self) -> None:
        """Power-on."""
        self._pointer = 0
        self._registers = [0, RESET_CONFIG & 0x7FFF, 0x8000, 0x7FFF]
        self._converting = 0
        self._ready_at: float | None = None

    def write(self, data: bytes) -> None:
        """A register's number, then its two bytes."""
        self._settle()
        self._pointer = data[0] & 3
        if len(data) == 3 and self._pointer != CONVERSION:
            self._registers[self._pointer] = int.from_bytes(data[1:], "big")
            if self._pointer == CONFIG.address:
                self._start()

    def read(self, length: int) -> bytes:
        """The addressed register; bit `os` of the configuration says whether it is idle."""
        self._settle()
        word = self._registers[self._pointer]
        if self._pointer == CONFIG.address:
            word |= 0x8000 if self._ready_at is None else 0
        return word.to_bytes(2, "big").ljust(length, b"\xff")[:length]

    def _start(self) -> None:
        word = self._registers[CONFIG.address]
        self._registers[CONFIG.address] = word & 0x7FFF
        # A conversion under way ends with the settings that it began with.
        if word & 0x8000 and self._ready_at is None:
            self._converting = word
            rates = _RATES[self._model]
            rate = rates[min(self._fields()["dr"], len(rates) - 1)]
            self._ready_at = self._clock.monotonic() + 1 / rate

    def _settle(self) -> None:
        if self._ready_at is not None and self._clock.monotonic() >= self._ready_at:
            self._ready_at = None
            self._registers[CONVERSION] = self._code() & 0xFFFF

    def _code(self) -> int:
        fields = self._fields()
        (name,) = (one for one, mux in _MUX.items() if mux == fields["mux"])
        positive, _, negative = name.partition("-")
        volts = self.volts[int(positive[1])] - (self.volts[int(negative[1])] if negative else 0.0)
        full_scale = next(one for one, pga in _PGA.items() if pga == min(fields["pga"], 5))
        code = min(max(round(volts / full_scale * 0x8000), -0x8000), 0x7FFF)
        return code if self._model == "ads1115" else code & ~0xF

    def _fields(self) -> dict[str, int]:
        return CONFIG.decode(self._converting.to_bytes(2, "big"))
