"""A configured device and its driver: found, set up, closed again.

What sensors and actuators have in common. Loop thread only.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, cast

import msgspec

from edged import plugins, yamlio
from edged.bus import Buses, I2c, Kind, SerialPort, SerialSettings, Sleep
from edged.bus.settings import DeviceConfig
from edged.drivers import Channel, Device, Driver, Sample
from edged.errors import BusyError, ConfigError, Fault, NoDeviceError

USUAL_BUS = {"i2c": "i2c-1", "spi": "spi0.0"}
"""Where the header of a Raspberry Pi is."""

# Patterns stay text until their first use: compiling them is the larger part of the import.
_BUSES: dict[Kind, tuple[str, str]] = {
    "i2c": (
        r"i2c-[0-9]+(/0x7[0-7]/[0-7])*",
        "i2c-1, or i2c-1/0x70/0 for channel 0 of a multiplexer at 0x70",
    ),
    "spi": (r"spi[0-9]+\.[0-9]+", "spi0.0 for chip select 0 of controller 0"),
    "serial": (r"(?!(i2c|spi)).+", "a serial port such as ttyUSB0 or /dev/serial/by-id/…"),
}
"""How the name of a bus looks, and what to write, by kind; other kinds have no names."""

_BESIDE = {"i2c": "address", "w1": "id"}
"""The field of a driver's `Config` that is the entry's own `address`."""


LINES = frozenset(
    (
        *("line", "trigger", "echo", "a", "b", "coils", "step", "direction", "enable"),
        *("forward", "backward", "channel", "pwm"),
    )
)
"""Settings of drivers that name lines and PWM channels."""


class Ports:
    """Open serial ports that several devices share, such as the meters of one RS-485 line."""

    def __init__(self, buses: Buses) -> None:
        self._buses = buses
        self._open: dict[str, tuple[SerialPort, int]] = {}
        self._lock = asyncio.Lock()

    async def take(self, bus: str, settings: SerialSettings, holder: str) -> SerialPort:
        """The open port; the first one opens it, and anew when it was unplugged.

        Raises:
            BusyError: it is open in another way; or see `SerialPorts.open`.
        """
        async with self._lock:
            port, users = self._open.get(bus, (None, 0))
            if port is not None and await _is_gone(port):
                # Others may not have noticed yet.
                del self._open[bus]
                port, users = None, 0
            if port is None:
                port = await self._buses.serial.open(bus, settings, holder)
            elif port.settings != settings:
                raise BusyError(
                    f"{bus} is open with other settings: give all its devices the same"
                )
            self._open[bus] = port, users + 1
            return port

    async def release(self, bus: str, port: SerialPort) -> None:
        """Give it back; the last one closes it."""
        async with self._lock:
            known, users = self._open.get(bus, (None, 0))
            if known is port and users > 1:
                self._open[bus] = port, users - 1
                return
            if known is port:
                del self._open[bus]
            # Else it was unplugged, which has closed it.
            await port.close()


async def _is_gone(port: SerialPort) -> bool:
    try:
        await port.read(0, 0.0)
    except NoDeviceError:
        return True
    return False


class Slot:
    """The place of one device in the configuration, and the device once it is found.

    Args:
        section: `sensors` or `actuators`, for error messages.
        name: configured name.
        config: its entry.
        buses: of the board.
        ports: those of them that are open.
        sleep: how drivers wait.

    Raises:
        ConfigError: an unknown driver, or a setting that its driver refuses.
    """

    def __init__(
        self,
        section: str,
        name: str,
        config: DeviceConfig,
        buses: Buses,
        ports: Ports,
        sleep: Sleep,
    ) -> None:
        self.name, self.config = name, config
        self._key = key = f"board.{section}.{name}"
        try:
            module = plugins.load("edged.drivers", config.driver)
        except ConfigError as error:
            reason = f"{error.reason} (edged config --driver lists them)"
            raise ConfigError(reason, key=f"{key}.driver") from None
        # A module is checked against the Protocol by tests/law/test_drivers.py.
        self.driver = cast("Driver", module)
        kind = self.driver.INFO.bus
        if section == "sensors" and _only_acts(self.driver):
            reason = f"{config.driver} only acts: put it under actuators"
            raise ConfigError(reason, key=f"{key}.driver")
        self.bus = config.bus or USUAL_BUS.get(kind, "")
        _check_bus(key, self.bus, config.driver, kind)
        self.settings = _settings(key, config, self.driver)
        self._buses, self._ports, self._sleep = buses, ports, sleep
        self._port: SerialPort | None = None
        self._i2c: I2c | None = None
        """The bus of a device that it may measure on its own thread."""
        self.device: Device | None = None
        self.lock = asyncio.Lock()
        """Held by whoever uses the device: it is found, lost and told one thing at a time."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """What it measures."""
        by_settings = getattr(self.driver, "channels", None)
        if by_settings is not None:
            return cast("tuple[Channel, ...]", by_settings(self.settings))
        return self.driver.INFO.channels

    @property
    def address(self) -> int | None:
        """7-bit I2C address; None on other buses."""
        found = getattr(self.settings, "address", None)
        return found if self.driver.INFO.bus == "i2c" else None

    @property
    def place(self) -> str:
        """What it claims; empty when that is up to its driver (lines, channels)."""
        kind = self.driver.INFO.bus
        if kind == "i2c":
            return f"{self.bus}/{self.address:#04x}"
        if kind not in {"spi", "serial"}:
            return ""
        within = getattr(self.driver, "place", None)
        return f"{self.bus}/{within(self.settings)}" if within is not None else self.bus

    @property
    def is_gone(self) -> bool:
        """Whether its I2C bus was unplugged; a serial port says so itself."""
        bus = self.bus.partition("/")[0]
        return self.driver.INFO.bus == "i2c" and bus not in self._buses.names("i2c")

    def taken(self) -> list[tuple[str, str]]:
        """Its key path, with each that nobody else may have: its place, lines and channels."""
        return [(self._key, one) for one in self._takes()]

    def _takes(self) -> list[str]:
        kind = self.driver.INFO.bus
        given = msgspec.to_builtins(self.settings)
        if kind == "serial":
            return [self.place.removeprefix("/dev/")]
        if kind == "w1":
            return [f"w1/{given.get('id') or 'the only device'}"]
        if kind not in {"gpio", "pwm", "board"}:
            return [self.place]
        found: list[str] = []
        for name, value in given.items():
            if name in LINES and value:
                found += value if isinstance(value, list) else [str(value)]
        return found

    async def find(self) -> Device:
        """The device, found and set up if it was not.

        Raises:
            NoDeviceError, BusError, BusyError, DataError: see `Driver.probe`.
        """
        if self.device is None:
            bus = await self._open_bus()
            info, sleep = self.driver.INFO, self._sleep
            self._i2c = bus if info.bus == "i2c" and not info.needs_loop else None
            if self._i2c is not None:
                sleep = partial(self._i2c.pause, sleep=self._sleep)
            self.device = await self.driver.probe(self.settings, bus, sleep)
        return self.device

    async def measure(self) -> tuple[Sample, ...]:
        """What the device measures, found and set up if it was not.

        Raises:
            NoDeviceError, BusError, BusyError, DataError: see `Device.read`.
        """
        device = await self.find()
        if self._i2c is None:
            return await device.read()
        return await self._i2c.run(device.read(), self._sleep)

    async def lose(self) -> None:
        """Forget the device: the next `find` identifies and sets it up anew."""
        device, self.device = self.device, None
        port, self._port = self._port, None
        try:
            close = getattr(device, "close", None)
            if close is not None:
                await close()
        finally:
            if port is not None:
                await self._ports.release(self.bus, port)

    async def _open_bus(self) -> Any:
        buses, kind = self._buses, self.driver.INFO.bus
        if kind == "i2c":
            return buses.i2c(self.bus)
        if kind == "spi":
            return buses.spi(self.bus)
        if kind == "serial":
            return await self._open_port()
        return buses if kind == "board" else getattr(buses, kind)

    async def _open_port(self) -> SerialPort:
        settings = self.driver.INFO.serial
        if settings is None:
            raise ConfigError(
                f"the driver {self.config.driver} does not say how its port is opened"
            )
        if self.config.baudrate is not None:
            settings = msgspec.structs.replace(settings, baudrate=self.config.baudrate)
        if self._port is None:
            self._port = await self._ports.take(self.bus, settings, f"edged {self.name}")
        return self._port


def _only_acts(driver: Driver) -> bool:
    """Whether it is of no use as a sensor: nobody would bring it to its safe state."""
    measures = driver.INFO.channels or hasattr(driver, "channels")
    return not measures or "safe" in driver.Config.__struct_fields__


def _check_bus(key: str, bus: str, driver: str, kind: Kind) -> None:
    if kind not in _BUSES:
        if bus:
            raise ConfigError(f"{driver} has no bus: remove it", key=f"{key}.bus")
        return
    pattern, usual = _BUSES[kind]
    if not bus:
        raise ConfigError(f"bus is missing: {driver} is on {usual}", key=key)
    if re.fullmatch(pattern, bus) is None:
        named = {"i2c": "an I2C bus", "spi": "an SPI target", "serial": "a serial port"}[kind]
        reason = f"{bus!r} is not {named}, where {driver} is: write {usual}"
        raise ConfigError(reason, key=f"{key}.bus")


def _settings(key: str, config: DeviceConfig, driver: Driver) -> Any:
    """The driver's own settings, checked by its `Config`."""
    given = dict(config.options)
    info = driver.INFO
    beside = _BESIDE.get(info.bus, "")
    if beside in given:
        reason = f"stands beside driver, not among its options: write address: {given[beside]}"
        raise ConfigError(reason, key=f"{key}.options.{beside}")
    if info.bus == "i2c":
        address = info.addresses[0] if config.address is None else config.address
        if address not in info.addresses:
            shown = f"{address:#04x}" if isinstance(address, int) else repr(address)
            known = ", ".join(f"{one:#04x}" for one in info.addresses)
            reason = f"{shown} is not an address of {config.driver}: {known}"
            raise ConfigError(reason, key=f"{key}.address")
        given["address"] = address
    elif config.address is not None:
        if info.bus != "w1":
            raise ConfigError(f"{config.driver} has no address: remove it", key=f"{key}.address")
        given["id"] = config.address
    if info.bus != "serial" and config.baudrate is not None:
        raise ConfigError(f"{config.driver} has no baudrate: remove it", key=f"{key}.baudrate")
    try:
        return msgspec.convert(given, driver.Config, str_keys=True)
    except msgspec.ValidationError:
        # Said again below, in words; other faults are told when the first one is mended.
        pass
    raise _of_option(key, yamlio.faults(given, driver.Config)[0], driver)


def _of_option(key: str, fault: Fault, driver: Driver) -> ConfigError:
    """A fault of a driver's settings, with the key of the configuration that it is about."""
    beside = _BESIDE.get(driver.INFO.bus, "")
    options = [name for name in driver.Config.__struct_fields__ if name != beside]
    named, reason = fault
    if not named:
        # A rule of a Struct (`__post_init__`) names the field that it is about, and a colon.
        head, _, rest = reason.partition(": ")
        if head in driver.Config.__struct_fields__:
            named, reason = head, rest
    if named == beside:
        return ConfigError(reason, key=f"{key}.address")
    if reason.startswith(yamlio.UNKNOWN_KEY) and "." not in named:
        reason = yamlio.unknown_key(named, options)
    return ConfigError(reason, key=".".join(filter(None, (f"{key}.options", named))))
