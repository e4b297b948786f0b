"""Any driver for CircuitPython, on our bus: the extra `edged[circuitpython]`.

Source: CircuitPython core modules, version 9, `busio.I2C`, which such drivers are
written against. The driver is handed an object of that shape; it runs on a
thread, and the event loop makes each of its transfers on the bus that is held
for the measurement, so that its queue, claims and errors hold. Nothing of Blinka
is loaded: its modules that drivers import are stood in for, and a board without
a compiler may leave it out (`pip install --no-deps`, of the driver's package and
of adafruit-circuitpython-busdevice, -register and -typing).
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.bus._worker import Worker
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import silent
from edged.errors import ConfigError, DataError, EdgedError, NoDeviceError
from edged.units import UNITS

T = TypeVar("T")

INFO = Info(
    title="Chip with a driver for CircuitPython",
    compatible=(),
    bus="i2c",
    addresses=tuple(range(0x08, 0x78)),
    datasheet="CircuitPython core modules, version 9",
    needs_loop=True,
)

MEASURE_S = 10.0
"""Longest time of one measurement: a driver may wait for its chip for ever."""

TRANSFERS_MAX = 5_000
"""Transfers of one measurement: a driver may poll its chip for ever."""

_STOOD_IN = ("board", "busio", "digitalio", "microcontroller", "micropython")
"""Modules of Blinka that drivers import; with Blinka's own, hardware would be opened."""


class Property(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One quantity: a property of the driver's class.

    Attributes:
        attribute: its name, `temperature`.
        unit: SenML unit of the channel.
        index: which one, of a property that is a tuple such as `acceleration`.
        scale: factor from the driver's value to `unit`: 100 from hPa to Pa.
        offset: added after that.
        low: lowest value that can be, in `unit`; what is lower is no value.
        high: highest value that can be.
    """

    attribute: str
    unit: str
    index: Annotated[int, Meta(ge=0)] | None = None
    scale: float = 1.0
    offset: float = 0.0
    low: float = -1e12
    high: float = 1e12

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} is not one of {', '.join(UNITS)}")
        if self.low >= self.high:
            raise ValueError("low: must be less than high")


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which driver, and what of it is measured.

    Attributes:
        module: to import, `adafruit_mcp9808`.
        class_name: in it, `MCP9808`.
        properties: by the name of their channel.
        address: the chip's 7-bit address.
        address_argument: what the class calls the address; empty when it takes none.
        arguments: further ones for the class.
    """

    module: str
    class_name: str
    properties: dict[str, Property]
    address: Annotated[int, Meta(ge=0x08, le=0x77)] = 0x08
    address_argument: str = "address"
    arguments: dict[str, str | int | float | bool] = {}

    def __post_init__(self) -> None:
        if not self.properties:
            raise ValueError(
                "properties: there are none: name one at least, such as "
                "{temperature: {attribute: temperature, unit: Cel}}"
            )


def channels(config: Config) -> tuple[Channel, ...]:
    """One for each property."""
    return tuple(
        Channel(name, one.unit, one.low, one.high) for name, one in config.properties.items()
    )


class StandIn(ModuleType):
    """A module whose every name is an empty class, made when it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _same if name == "const" else type(name, (), {})
        setattr(self, name, found)
        return found


def _same(value: Any) -> Any:
    """What `micropython.const` does."""
    return value


def load(module: str, class_name: str) -> Callable[..., Any]:
    """The class of a driver.

    Raises:
        ConfigError: its package is not installed, or has no such class.
    """
    for name in _STOOD_IN:
        sys.modules.setdefault(name, StandIn(name))
    try:
        found = getattr(importlib.import_module(module), class_name, None)
    except ImportError as error:
        raise ConfigError(
            f"{module} cannot be imported ({error}): install edged[circuitpython] and the package "
            "of the driver where edged is installed",
            key="module",
        ) from error
    if not isinstance(found, type):
        raise ConfigError(f"{module} has no class {class_name}", key="class_name")
    return found


class BusI2c:
    """What a driver takes for its `busio.I2C`; called from the driver's thread.

    Args:
        address: the only one that it may speak to; the others are not claimed.
        loop: where transfers are made.
    """

    def __init__(self, address: int, loop: asyncio.AbstractEventLoop) -> None:
        self.error: EdgedError | None = None
        """Of the last transfer, if it failed: drivers hide errors behind their own."""
        self._address, self._loop = address, loop
        self._held: I2cTransfers | None = None
        self._left = 0
        self._making: asyncio.Task[Any] | None = None
        """The transfer under way. Set on the loop: the thread would be late for a cancel."""
        self._read, self._ones = 0, 0

    def lend(self, held: I2cTransfers) -> None:
        """From the loop: the bus is held for the driver from now on."""
        self._held = held
        self._left = TRANSFERS_MAX
        self.error = None
        self._read, self._ones = 0, 0

    def take_back(self) -> None:
        """From the loop: the bus is no longer held; a transfer under way fails."""
        self._held = None
        if self._making is not None:
            self._making.cancel()

    @property
    def silent(self) -> bool:
        """Whether all that was read since `lend` is ones."""
        return 2 <= self._read == self._ones

    def try_lock(self) -> bool:
        """It is held already."""
        return True

    def unlock(self) -> None:
        """It is held until the measurement is over."""

    def writeto(
        self, address: int, buffer: Any, *, start: int = 0, end: int | None = None
    ) -> None:
        """Writes a part of a buffer."""
        data = bytes(buffer)[start:end]
        # Empty, it asks whether the chip is there, which `probe` knows.
        if data or address != self._address:
            self._transfer(address, data, 0)

    def readfrom_into(
        self, address: int, buffer: Any, *, start: int = 0, end: int | None = None
    ) -> None:
        """Reads into a part of a buffer."""
        self.writeto_then_readfrom(address, b"", buffer, in_start=start, in_end=end)

    def writeto_then_readfrom(
        self,
        address: int,
        out_buffer: Any,
        in_buffer: Any,
        *,
        out_start: int = 0,
        out_end: int | None = None,
        in_start: int = 0,
        in_end: int | None = None,
    ) -> None:
        """Writes a part of one buffer, and after a repeated start reads into one of the other."""
        data = bytes(out_buffer)[out_start:out_end]
        target = memoryview(in_buffer).cast("B")[in_start:in_end]
        target[:] = self._transfer(address, data, len(target))

    def _transfer(self, address: int, data: bytes, length: int) -> bytes:
        if address != self._address:
            raise OSError(f"the driver speaks to {address:#04x}, which is not its own")
        self._left -= 1
        if self._left < 0:
            raise OSError(f"the driver makes more than {TRANSFERS_MAX} transfers")
        return asyncio.run_coroutine_threadsafe(self._made(data, length), self._loop).result()

    async def _made(self, data: bytes, length: int) -> bytes:
        if self._held is None:
            raise OSError("the measurement was given up")
        self.error = None
        self._making = asyncio.current_task()
        try:
            found = await self._held.transfer(self._address, data, length)
        except EdgedError as error:
            self.error = error
            raise
        finally:
            self._making = None
        self._read += len(found)
        self._ones += found.count(0xFF)
        return found


class CircuitPython:
    """A chip whose driver found it; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c) -> None:
        self.identity = f"{config.class_name} of {config.module}"
        self._where = f"{self.identity} at {config.address:#04x} on {bus.name}"
        self._config, self._bus = config, bus
        self._worker = Worker(f"{config.module} {bus.name}")
        self._i2c = BusI2c(config.address, asyncio.get_running_loop())
        self._driver: Any = None

    async def read(self) -> tuple[Sample, ...]:
        """All properties."""
        values = await self._run(self._properties)
        if self._i2c.silent:
            raise NoDeviceError(silent(self._where))
        return tuple(
            _sample(name, one, value)
            for (name, one), value in zip(self._config.properties.items(), values, strict=True)
        )

    async def set_up(self) -> None:
        """Makes the driver's object, which looks for its chip."""
        self._driver = await self._run(self._make)

    async def close(self) -> None:
        """Ends the driver's thread, or leaves it behind when the driver never returns."""
        await asyncio.to_thread(self._worker.close)

    def _make(self) -> Any:
        config = self._config
        arguments: dict[str, Any] = dict(config.arguments)
        if config.address_argument:
            arguments[config.address_argument] = config.address
        return load(config.module, config.class_name)(self._i2c, **arguments)

    def _properties(self) -> list[Any]:
        return [getattr(self._driver, one.attribute) for one in self._config.properties.values()]

    async def _run(self, work: Callable[[], T]) -> T:
        """What `work` returns on the driver's thread, with the bus held."""
        i2c = self._i2c
        async with self._bus.hold() as held:
            i2c.lend(held)
            deadline = asyncio.timeout(MEASURE_S)
            try:
                async with deadline:
                    return await self._worker.run(work)
            except EdgedError:
                raise
            except Exception as error:
                if deadline.expired():
                    raise DataError(f"{self._where}: not done in {MEASURE_S:g} s") from error
                said = f"{self._where}: {type(error).__name__}: {error}"
                raise (i2c.error or DataError(said)) from error
            finally:
                i2c.take_back()


def _sample(name: str, one: Property, value: Any) -> Sample:
    if one.index is not None and isinstance(value, tuple) and one.index < len(value):
        value = value[one.index]
    if value is None:
        return Sample(name, None, "error", "the driver has no value")
    if not isinstance(value, int | float):
        return Sample(name, None, "error", f"{one.attribute} is no number but {value!r}")
    value = value * one.scale + one.offset
    if one.low <= value <= one.high:
        return Sample(name, float(f"{value:.12g}"))
    return Sample(name, None, "error", f"{value:g} is not within {one.low:g} to {one.high:g}")


async def probe(config: Config, bus: I2c, sleep: Sleep) -> CircuitPython:  # noqa: ARG001  Driver
    """Looks for the chip, and lets its driver set it up; see `Driver.probe`."""
    if not await bus.detect(config.address):
        raise NoDeviceError(
            f"nothing answered at address {config.address:#04x} on {bus.name}: check power and "
            "wiring"
        )
    device = CircuitPython(config, bus)
    try:
        await device.set_up()
    except BaseException:
        await device.close()
        raise
    return device


SIM_CONFIG = {
    "module": "adafruit_mcp9808",
    "class_name": "MCP9808",
    "properties": {"temperature": Property("temperature", "Cel", low=-40.0, high=125.0)},
}
"""Settings that fit the model."""


class Sim:
    """Model of a Microchip MCP9808; set `temperature_cel` to what is true.

    Its registers have 16 bits; 5 is the temperature, 6 and 7 the identity
    (datasheet DS25095A, section 5).

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.temperature_cel = 21.5
        self._pointer = 0

    def write(self, data: bytes) -> None:
        """A register's address; what is written behind it changes nothing here."""
        self._pointer = data[0]

    def read(self, length: int) -> bytes:
        """The register that was addressed last."""
        words = {5: round(self.temperature_cel * 16) & 0x1FFF, 6: 0x0054, 7: 0x0400}
        return words.get(self._pointer, 0).to_bytes(2, "big")[:length]
