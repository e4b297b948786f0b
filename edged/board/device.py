"""A configured device and its driver: found, set up, closed again.

What sensors and actuators have in common. Loop thread only.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from edged import plugins
from edged.bus import Buses, SerialPort, SerialSettings
from edged.bus.settings import DeviceConfig
from edged.drivers import Channel, Device, Driver, Sleep
from edged.errors import BusyError, ConfigError, NoDeviceError

USUAL_BUS = {"i2c": "i2c-1", "spi": "spi0.0"}
"""Where the header of a Raspberry Pi is."""


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
        key = f"board.{section}.{name}"
        try:
            module = plugins.load("edged.drivers", config.driver)
        except ConfigError as error:
            raise ConfigError(error.reason, key=f"{key}.driver") from None
        # A module is checked against the Protocol by tests/law/test_drivers.py.
        self.driver = cast("Driver", module)
        kind = self.driver.INFO.bus
        self.bus = config.bus or USUAL_BUS.get(kind, "")
        if kind == "serial" and not self.bus:
            raise ConfigError(
                f"bus is missing: {config.driver} is on a serial port, such as ttyUSB0", key=key
            )
        self.settings = _settings(key, config, self.driver)
        self._buses, self._ports, self._sleep = buses, ports, sleep
        self._port: SerialPort | None = None
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

    async def find(self) -> Device:
        """The device, found and set up if it was not.

        Raises:
            NoDeviceError, BusError, BusyError, DataError: see `Driver.probe`.
        """
        if self.device is None:
            bus = await self._open_bus()
            self.device = await self.driver.probe(self.settings, bus, self._sleep)
        return self.device

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


def _settings(key: str, config: DeviceConfig, driver: Driver) -> Any:
    """The driver's own settings, checked by its `Config`."""
    given = dict(config.options)
    info = driver.INFO
    if info.bus == "i2c":
        address = info.addresses[0] if config.address is None else config.address
        if address not in info.addresses:
            shown = f"{address:#04x}" if isinstance(address, int) else repr(address)
            known = ", ".join(f"{one:#04x}" for one in info.addresses)
            raise ConfigError(f"{shown} is not an address of {config.driver}: {known}", key=key)
        given["address"] = address
    elif config.address is not None:
        if info.bus != "w1":
            raise ConfigError(f"{config.driver} has no address: remove it", key=f"{key}.address")
        given["id"] = config.address
    if info.bus != "serial" and config.baudrate is not None:
        raise ConfigError(f"{config.driver} has no baudrate: remove it", key=f"{key}.baudrate")
    try:
        return msgspec.convert(given, driver.Config)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), key=f"{key}.options") from None
