"""The board: its configured sensors and GPIO lines, over buses that are handed in.

Laws: a device is looked for when it is first read, so that an absent one never
stops the start; a measurement serves everyone who waits for it; outputs stand
on their safe level from start and after stop; a cancelled or failed caller
never blocks the next. Call from the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, Literal, Self, TypeVar, cast

import msgspec

from edged import log, plugins
from edged.bus import Direction, Gpio, I2c, Line
from edged.bus.settings import GpioConfig, SensorConfig
from edged.clock import Clock
from edged.drivers import Channel, Device, Driver, Sleep
from edged.errors import (
    BusyError,
    ConfigError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.units import Reading

_Part = TypeVar("_Part")

SensorState = Literal["unknown", "ready", "absent", "lost"]


class SensorInfo(msgspec.Struct, frozen=True):
    """What is known of a configured sensor.

    Attributes:
        name: configured name.
        driver: name of its driver.
        bus: `i2c-1`.
        address: 7-bit I2C address.
        channels: what it measures.
        state: `unknown` until it is first read; `absent`: never found;
            `lost`: found once, failed since.
        identity: what the chip said it is; empty before it was found.
        error: why it is absent or lost.
    """

    name: str
    driver: str
    bus: str
    address: int
    channels: tuple[Channel, ...]
    state: SensorState
    identity: str
    error: str


class LineInfo(msgspec.Struct, frozen=True):
    """What is known of a configured GPIO line.

    Attributes:
        name: configured name.
        line: the chip's name for it, `GPIO17`.
        direction: input or output.
        active_low: logical true is the low level.
        safe: level at start and after stop; None of an input.
        error: why it cannot be used; empty when it can.
    """

    name: str
    line: str
    direction: Direction
    active_low: bool
    safe: Literal["off", "on"] | None
    error: str


class Board:
    """The configured sensors and lines; `async with` opens and closes them.

    Args:
        sensors: by configured name.
        gpio: likewise.
        i2c: the buses that there are, by name.
        gpio_bus: the GPIO lines that there are, if any.
        clock: time of readings.
        sleep: how drivers wait.

    Raises:
        ConfigError: an unknown driver, a setting that its driver refuses, or
            one address or line configured twice.
    """

    def __init__(
        self,
        sensors: Mapping[str, SensorConfig],
        gpio: Mapping[str, GpioConfig],
        i2c: Mapping[str, I2c],
        gpio_bus: Gpio | None,
        clock: Clock,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._i2c = i2c
        self._clock = clock
        self._claims: dict[str, str] = {}
        self._open = False
        self._sensors = {
            name: _Sensor(name, config, i2c, clock, sleep) for name, config in sensors.items()
        }
        self._lines = {name: _GpioLine(name, config, gpio_bus) for name, config in gpio.items()}
        _refuse_twice({f"board.sensors.{s.name}": s.place for s in self._sensors.values()})
        _refuse_twice({f"board.gpio.{name}": config.line for name, config in gpio.items()})

    async def __aenter__(self) -> Self:
        self._open = True
        try:
            for line in self._lines.values():
                await line.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def sensors(self) -> tuple[SensorInfo, ...]:
        """The configured sensors, by name."""
        return tuple(self._sensors[name].info() for name in sorted(self._sensors))

    @property
    def lines(self) -> tuple[LineInfo, ...]:
        """The configured GPIO lines, by name."""
        return tuple(self._lines[name].info() for name in sorted(self._lines))

    async def read(
        self, name: str, channel: str | None = None, *, max_age_s: float = 0.0
    ) -> tuple[Reading, ...]:
        """Readings of one measurement.

        Args:
            name: of a configured sensor.
            channel: only this one.
            max_age_s: a measurement this old will do; by default a new one is
                made, or one under way shared.

        Raises:
            NoDeviceError: no such sensor (the message lists those there are),
                or it does not answer.
            InvalidArgumentsError: the sensor has no such channel.
            BusyError: its bus is claimed; the message names the holder.
            BusError: a transfer failed.
            DataError: it answered with what cannot be right.
        """
        self._check_open()
        sensor = _known(self._sensors, name, "sensor")
        channels = [known.name for known in sensor.driver.INFO.channels]
        if channel is not None and channel not in channels:
            reason = f"{name} has no channel {channel!r}: it has {', '.join(channels)}"
            raise InvalidArgumentsError([Fault("channel", reason)])
        readings = sensor.recent(max_age_s)
        if readings is None:
            self._check_free(sensor.config.bus)
            readings = await sensor.measure()
        return tuple(one for one in readings if channel in {None, one.channel})

    async def read_line(self, name: str) -> bool:
        """The logical value of a configured line, an output's too.

        Raises:
            NoDeviceError: no such line (the message lists those there are).
            BusyError: another program holds it; the message names it.
            BusError: refused by the kernel.
        """
        self._check_open()
        return await _known(self._lines, name, "gpio line").get()

    async def write_line(self, name: str, value: bool) -> None:
        """Drives a configured output to a logical value.

        Raises:
            InvalidArgumentsError: the line is an input.
            NoDeviceError: no such line (the message lists those there are).
            BusyError: another program holds it; the message names it.
            BusError: refused by the kernel.
        """
        self._check_open()
        line = _known(self._lines, name, "gpio line")
        if line.config.direction != "output":
            reason = f"{name} is an input: only outputs can be written"
            raise InvalidArgumentsError([Fault("name", reason)])
        await line.set(value)

    @asynccontextmanager
    async def claim(self, device: str, holder: str) -> AsyncIterator[None]:
        """Keeps a bus or device node for its holder alone.

        A measurement under way on the bus is waited for; later ones are refused.

        Args:
            device: `i2c-1` or `/dev/i2c-1`.
            holder: who, for the others' error messages.

        Raises:
            BusyError: it is claimed; the message names the holder.
        """
        device = device.removeprefix("/dev/")
        self._check_free(device)
        self._claims[device] = holder
        try:
            async with AsyncExitStack() as held:
                if device in self._i2c:
                    await held.enter_async_context(self._i2c[device].hold())
                yield
        finally:
            del self._claims[device]

    def _check_open(self) -> None:
        if not self._open:
            raise NoDeviceError("the board is not open")

    def _check_free(self, device: str) -> None:
        holder = self._claims.get(device)
        if holder is not None:
            raise BusyError(f"{device} is in use by {holder}")

    async def _close(self) -> None:
        """Outputs to their safe level first, whatever else fails."""
        self._open = False
        failed: list[Exception] = []
        for line in self._lines.values():
            try:
                await line.stop()
            except EdgedError as error:
                failed.append(error)
        for sensor in self._sensors.values():
            await sensor.stop()
        if failed:
            raise ExceptionGroup("outputs may not be on their safe level", failed)


class _Sensor:
    """One configured sensor: finds its device, measures, shares measurements."""

    def __init__(
        self,
        name: str,
        config: SensorConfig,
        buses: Mapping[str, I2c],
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self.name, self.config = name, config
        # A module is checked against the Protocol by tests/law/test_drivers.py.
        self.driver = cast("Driver", _driver_module(name, config.driver))
        self._settings = _driver_config(name, config, self.driver)
        self._address: int = self._settings.address
        self._buses, self._clock, self._sleep = buses, clock, sleep
        self._state: SensorState = "unknown"
        self._identity = ""
        self._error = ""
        self._device: Device | None = None
        self._readings: tuple[Reading, ...] = ()
        self._shared: asyncio.Task[tuple[Reading, ...]] | None = None
        self._waiting = 0
        self._tasks: set[asyncio.Task[tuple[Reading, ...]]] = set()

    @property
    def place(self) -> str:
        """Where it is, for the claim on it."""
        return f"{self.config.bus} {self._address:#04x}"

    def info(self) -> SensorInfo:
        return SensorInfo(
            name=self.name,
            driver=self.config.driver,
            bus=self.config.bus,
            address=self._address,
            channels=self.driver.INFO.channels,
            state=self._state,
            identity=self._identity,
            error=self._error,
        )

    def recent(self, max_age_s: float) -> tuple[Reading, ...] | None:
        """The last readings, if they are not older than this."""
        now = self._clock.monotonic()
        if self._readings and max_age_s > 0 and self._readings[0].age_s(now) <= max_age_s:
            return self._readings
        return None

    async def measure(self) -> tuple[Reading, ...]:
        """Readings of the measurement under way, else of a new one.

        It goes on while at least one caller waits for it.
        """
        if self._shared is None:
            self._shared = self._start()
        task = self._shared
        self._waiting += 1
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if task is self._shared:
                self._waiting -= 1
                if self._waiting == 0:
                    # Nobody joins a measurement that is being given up.
                    self._shared = None
                    task.cancel()
            raise
        if task.cancelled():
            raise NoDeviceError(f"{self.name}: the board was closed")
        return task.result()

    async def stop(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> asyncio.Task[tuple[Reading, ...]]:
        task = asyncio.create_task(self._run(), name=f"sensor {self.name}")
        self._waiting = 0
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[tuple[Reading, ...]]) -> None:
        self._tasks.discard(task)
        if task is self._shared:
            self._shared = None
        if not task.cancelled():
            # Seen by those who wait; when all went away it has no reader.
            task.exception()

    async def _run(self) -> tuple[Reading, ...]:
        # Kept again only after a whole measurement: whatever fails or is
        # cancelled in between, the next one finds the device and sets it up anew.
        device, self._device = self._device, None
        try:
            if device is None:
                device = await self.driver.probe(self._settings, self._bus(), self._sleep)
            samples = await device.read()
        except EdgedError as error:
            self._failed(error)
            raise
        self._device = device
        self._found(device.identity)
        units = {channel.name: channel.unit for channel in self.driver.INFO.channels}
        time, monotonic = self._clock.now(), self._clock.monotonic()
        self._readings = tuple(
            Reading(
                sensor=self.name,
                channel=sample.channel,
                value=sample.value,
                unit=units[sample.channel],
                time=time,
                monotonic=monotonic,
                identity=device.identity,
                quality=sample.quality,
                note=sample.note,
            )
            for sample in samples
        )
        return self._readings

    def _bus(self) -> I2c:
        bus = self._buses.get(self.config.bus)
        if bus is None:
            there = ", ".join(sorted(self._buses)) or "none"
            raise NoDeviceError(f"{self.name}: no bus {self.config.bus} (there is {there})")
        return bus

    def _failed(self, error: EdgedError) -> None:
        self._error = str(error)
        state: SensorState = "lost" if self._identity else "absent"
        if state != self._state:
            log.warning(f"sensor {self.name} is {state}: {error}")
        self._state = state

    def _found(self, identity: str) -> None:
        if self._state in {"absent", "lost"}:
            log.info(f"sensor {self.name} is back: {identity}")
        self._state, self._identity, self._error = "ready", identity, ""


class _GpioLine:
    """One configured line: requested once, retried while it cannot be had."""

    def __init__(self, name: str, config: GpioConfig, gpio: Gpio | None) -> None:
        self.name, self.config = name, config
        self._gpio = gpio
        self._line: Line | None = None
        self._error = ""
        self._lock = asyncio.Lock()

    def info(self) -> LineInfo:
        config = self.config
        return LineInfo(
            name=self.name,
            line=config.line,
            direction=config.direction,
            active_low=config.active_low,
            safe=(config.safe or "off") if config.direction == "output" else None,
            error=self._error,
        )

    async def start(self) -> None:
        """Takes the line; one that cannot be had is logged and tried again when used."""
        try:
            async with self._lock:
                await self._taken()
        except EdgedError as error:
            log.warning(f"gpio {self.name}: {error}")

    async def stop(self) -> None:
        """An output to its safe level, after every write; then the line is given back."""
        async with self._lock:
            line, self._line = self._line, None
            if line is None:
                return
            try:
                if self.config.direction == "output":
                    await line.set(self.config.safe == "on")
            finally:
                await line.release()

    async def get(self) -> bool:
        async with self._lock:
            return await (await self._taken()).get()

    async def set(self, value: bool) -> None:
        async with self._lock:
            await (await self._taken()).set(value)

    async def _taken(self) -> Line:
        if self._line is None:
            self._line = await self._request()
        return self._line

    async def _request(self) -> Line:
        try:
            if self._gpio is None:
                raise NoDeviceError(f"{self.name}: this board has no GPIO lines")
            line = await self._gpio.request(
                self.config.line, self.config.settings(), f"edged {self.name}"
            )
        except EdgedError as error:
            self._error = str(error)
            raise
        self._error = ""
        return line


def _driver_module(name: str, driver: str) -> ModuleType:
    try:
        return plugins.load("edged.drivers", driver)
    except ConfigError as error:
        raise ConfigError(error.reason, key=f"board.sensors.{name}.driver") from None


def _driver_config(name: str, config: SensorConfig, driver: Driver) -> Any:
    """The driver's own settings, checked by its `Config`."""
    key = f"board.sensors.{name}"
    if not config.bus:
        raise ConfigError(f"bus is missing: {config.driver} needs one, such as i2c-1", key=key)
    address = driver.INFO.addresses[0] if config.address is None else config.address
    if address not in driver.INFO.addresses:
        shown = f"{address:#04x}" if isinstance(address, int) else repr(address)
        known = ", ".join(f"{one:#04x}" for one in driver.INFO.addresses)
        raise ConfigError(f"{shown} is not an address of {config.driver}: {known}", key=key)
    try:
        return msgspec.convert({**config.options, "address": address}, driver.Config)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error), key=f"{key}.options") from None


def _refuse_twice(places: Mapping[str, str]) -> None:
    """Each place belongs to one entry.

    Args:
        places: by the entry's key path.
    """
    holders: dict[str, str] = {}
    for key, place in places.items():
        holder = holders.setdefault(place, key)
        if holder != key:
            raise ConfigError(f"{place} is taken by {holder}", key=key)


def _known(parts: Mapping[str, _Part], name: str, kind: str) -> _Part:
    if name not in parts:
        there = ", ".join(sorted(parts)) or "none is configured"
        raise NoDeviceError(f"no {kind} {name!r}: {there}")
    return parts[name]


def sim_board(clock: Clock, *, sleep: Sleep = asyncio.sleep) -> Board:
    """The board of `edged serve --sim`.

    A BME280, `greenhouse`, whose temperature swings by 2 Cel in ten minutes; a
    push button to ground, `button`, that someone presses from second 50 to 52
    of each minute of the wall clock; an LED, `led`.
    """
    # The simulator is loaded only where it is asked for.
    from edged.bus.sim import SimGpio, SimI2c, StoryButton  # noqa: PLC0415
    from edged.drivers import bme280  # noqa: PLC0415

    return Board(
        {"greenhouse": SensorConfig(driver="bme280", bus="i2c-1", address=0x76)},
        {
            "button": GpioConfig(
                line="GPIO27",
                direction="input",
                active_low=True,
                bias="pull-up",
                edge="both",
                debounce="20ms",
            ),
            "led": GpioConfig(line="GPIO17", direction="output", safe="off"),
        },
        {"i2c-1": SimI2c("i2c-1", {0x76: bme280.Sim(clock, drift_cel=2.0)})},
        SimGpio({"GPIO17": None, "GPIO27": StoryButton()}, clock.now),
        clock,
        sleep=sleep,
    )
