"""One configured sensor: finds its device, samples it, shares measurements, knows its state.

A measurement serves everyone who waits for it. Whatever fails or is cancelled in
between, the next one finds the device and sets it up anew. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from edged import log
from edged.board.claims import Claims
from edged.board.device import Ports, Slot
from edged.board.values import AlarmState, Conversion
from edged.bus import Buses, Sleep
from edged.bus.settings import ChannelConfig, SensorConfig
from edged.clock import Clock
from edged.drivers import Channel, Device, Sample
from edged.errors import ConfigError, EdgedError, NoDeviceError
from edged.units import Quality, Reading, amount
from edged.yamlio import unknown_key

State = Literal["unknown", "absent", "warming", "ready", "degraded", "lost"]

LOST_AFTER = 3
"""Failures in a row of a device that answers: then it is lost."""

BACKOFF_MAX_S = 300.0
"""Longest time between two looks for a device that is not there."""

Publish = Callable[[str, dict[str, Any]], None]
"""Tells of an event: its kind and its facts."""


class SensorInfo(msgspec.Struct, frozen=True):
    """What is known of a configured sensor.

    Attributes:
        name: configured name.
        driver: name of its driver.
        bus: `i2c-1`; empty where there is none to name.
        address: 7-bit I2C address; None on other buses.
        channels: what it measures.
        state: `unknown` until it is first read; `absent`: never found; `degraded`:
            it failed just now; `lost`: found once, and not any more.
        identity: what the chip said it is; empty before it was found.
        error: why it is absent, degraded or lost.
        every_s: between two samplings; 0 is only when asked.
        failures: measurements that failed since the start.
    """

    name: str
    driver: str
    bus: str
    address: int | None
    channels: tuple[Channel, ...]
    state: State
    identity: str
    error: str
    every_s: float
    failures: int


class Sensor:
    """One entry of `board.sensors`."""

    def __init__(
        self,
        name: str,
        config: SensorConfig,
        buses: Buses,
        ports: Ports,
        clock: Clock,
        sleep: Sleep,
        claims: Claims,
        publish: Publish,
    ) -> None:
        """A sensor that nobody looked for yet.

        Raises:
            ConfigError: see `Slot`.
        """
        self.name, self.config = name, config
        self.slot = Slot("sensors", name, config, buses, ports, sleep)
        self._clock, self._sleep, self._claims, self._publish = clock, sleep, claims, publish
        self.channels = tuple(self._converted(channel) for channel in self.slot.channels)
        self._conversions: dict[str, Conversion] = {}
        self._check_channels()
        self.calibrate({})
        self.on_readings: Callable[[tuple[Reading, ...]], None] | None = None
        self._state: State = "unknown"
        self._identity = ""
        self._error = ""
        self._failures = 0
        self._failed_in_a_row = 0
        self._warm_at = 0.0
        self._readings: tuple[Reading, ...] = ()
        self._shared: asyncio.Task[tuple[Reading, ...]] | None = None
        self._waiting = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()

    def _check_channels(self) -> None:
        """Refuse settings of a channel that is not there: its alarm would never ring."""
        known = [channel.name for channel in self.slot.channels]
        for name in self.config.channels:
            if name not in known:
                key = f"board.sensors.{self.name}.channels.{name}"
                raise ConfigError(unknown_key(name, known), key=key)

    def _converted(self, channel: Channel) -> Channel:
        unit = self._channel_config(channel.name).unit
        return msgspec.structs.replace(channel, unit=unit) if unit else channel

    def _channel_config(self, channel: str) -> ChannelConfig:
        return self.config.channels.get(channel, _PLAIN)

    def calibrate(self, offsets: dict[str, float]) -> None:
        """Use these offsets, by channel, beside those of the configuration."""
        self.offsets = offsets
        for channel in self.channels:
            config = self._channel_config(channel.name)
            offset = config.offset + offsets.get(channel.name, 0.0)
            config = msgspec.structs.replace(config, offset=offset)
            self._conversions[channel.name] = Conversion(config)

    @property
    def place(self) -> str:
        """What it claims."""
        return self.slot.place

    @property
    def holder(self) -> str:
        """How others are told who holds its place."""
        return f"the sensor {self.name}"

    def info(self) -> SensorInfo:
        """What is known of it."""
        return SensorInfo(
            name=self.name,
            driver=self.config.driver,
            bus=self.slot.bus,
            address=self.slot.address,
            channels=self.channels,
            state=self._state,
            identity=self._identity,
            error=self._error,
            every_s=self.config.every_s,
            failures=self._failures,
        )

    def alarms(self) -> dict[str, AlarmState]:
        """Channels that are out of their bounds."""
        states = {name: one.alarm for name, one in self._conversions.items()}
        return {name: state for name, state in states.items() if state != "ok"}

    # Readings -----------------------------------------------------------------------------

    def latest(self) -> tuple[Reading, ...]:
        """The last readings; what is too old has no value any more, and says so."""
        now = self._clock.monotonic()
        return tuple(self._aged(reading, now) for reading in self._readings)

    def _aged(self, reading: Reading, now: float) -> Reading:
        age = reading.age_s(now)
        if age <= self.config.max_age_s or reading.value is None:
            return reading
        note = f"the last value, {reading.value:g}, is {age:.0f} s old"
        return msgspec.structs.replace(reading, value=None, quality="stale", note=note)

    def recent(self, max_age_s: float) -> tuple[Reading, ...] | None:
        """The last readings, if they are not older than this."""
        now = self._clock.monotonic()
        newest = max(max_age_s, self.slot.driver.INFO.interval_s)
        if self._readings and newest > 0 and self._readings[0].age_s(now) <= newest:
            return self._readings
        return None

    async def measure(self) -> tuple[Reading, ...]:
        """Readings of the measurement under way, else of a new one.

        It goes on while at least one caller waits for it.

        Raises:
            NoDeviceError, BusError, BusyError, DataError: see `Device.read`.
        """
        self._claims.check(self.place, self.holder)
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

    async def identify(self) -> str:
        """Look for the device anew, and set it up.

        Raises:
            NoDeviceError, BusError, BusyError, DataError: see `Driver.probe`.
        """
        if self._shared is not None:
            await asyncio.wait([self._shared])
        await self.slot.lose()
        await self.measure()
        return self._identity

    # Sampling -----------------------------------------------------------------------------

    def sample(self) -> None:
        """Measure from now on as often as the configuration says."""
        if self.config.every_s > 0:
            task = asyncio.create_task(self._sampling(), name=f"sampling {self.name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sampling(self) -> None:
        every = self.config.every_s
        failed = 0
        due = self._clock.monotonic()
        while True:
            # What is plugged in or out while it is being measured wakes the wait after it.
            self._wake.clear()
            try:
                await self.measure()
                failed = 0
            except EdgedError:
                failed += 1  # told by its state
            # An absent device is looked for less and less often; others keep their period.
            wait = min(every * 2 ** min(failed, 16), max(every, BACKOFF_MAX_S))
            now = self._clock.monotonic()
            due = max(due + wait, now)
            if await self._is_woken(due - now):
                # The pause was for what was there before.
                failed, due = 0, self._clock.monotonic()

    async def _is_woken(self, seconds: float) -> bool:
        """Waits that long, or until something is plugged in or out."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        """Something was plugged in or out: look at once, if that may be of consequence."""
        if self._state in {"absent", "lost"} or self.slot.is_gone:
            self._wake.set()

    def cancel(self) -> None:
        """End what is under way; `stop` waits for it."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """End what is under way, and give back what is held."""
        self.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self.slot.lose()

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
        async with self.slot.lock:
            fresh = self.slot.device is None
            device, samples = await self._samples()
        self._found(device, fresh=fresh)
        time, monotonic = self._clock.now(), self._clock.monotonic()
        units = {channel.name: channel.unit for channel in self.channels}
        self._readings = tuple(
            self._reading(sample, units[sample.channel], time, monotonic) for sample in samples
        )
        self._tell()
        return self._readings

    async def _samples(self) -> tuple[Device, tuple[Sample, ...]]:
        whole = False
        try:
            device = await self.slot.find()
            samples = await self.slot.measure()
            whole = True
        except EdgedError as error:
            self._failed(error)
            raise
        finally:
            if not whole:
                # What fails or is cancelled in between leaves a chip in an unknown state.
                await self.slot.lose()
        return device, samples

    def _reading(self, sample: Sample, unit: str, time: float, monotonic: float) -> Reading:
        value, quality, note = sample.value, sample.quality, sample.note
        if value is not None:
            conversion = self._conversions[sample.channel]
            value = conversion.convert(value)
            jumped = conversion.is_jump(value, monotonic)
            if quality == "ok" and monotonic < self._warm_at:
                quality = "warming"
            elif quality == "ok" and jumped:
                quality, note = "suspect", "it changed faster than it can (max_rate)"
        return Reading(
            sensor=self.name,
            channel=sample.channel,
            value=value,
            unit=unit,
            time=time,
            monotonic=monotonic,
            identity=self._identity,
            quality=quality,
            note=note,
            raw=sample.raw,
        )

    def _tell(self) -> None:
        values = {r.channel: r.value for r in self._readings}
        troubled: dict[str, Quality] = {
            r.channel: r.quality for r in self._readings if r.quality != "ok"
        }
        facts: dict[str, Any] = {"sensor": self.name, "values": values}
        if troubled:
            facts["quality"] = troubled
        self._publish("sensor.reading", facts)
        for reading in self._readings:
            self._check(reading)
        if self.on_readings is not None and self.config.history:
            self.on_readings(self._readings)

    def _check(self, reading: Reading) -> None:
        if reading.value is None or reading.quality not in {"ok", "clipped"}:
            return
        conversion = self._conversions[reading.channel]
        change = conversion.check(reading.value, reading.monotonic)
        if change is None:
            return
        facts = {
            "sensor": self.name,
            "channel": reading.channel,
            "state": change.state,
            "value": reading.value,
            "limit": change.limit,
            "unit": reading.unit,
        }
        self._publish("sensor.alarm", facts)
        what = f"{self.name} {reading.channel} {amount(reading.value, reading.unit)}"
        if change.state == "ok":
            log.info(f"alarm over: {what}")
        else:
            limit = amount(change.limit, reading.unit)
            log.warning(f"alarm: {what} is {change.state} {limit}")

    # State --------------------------------------------------------------------------------

    def _failed(self, error: EdgedError) -> None:
        self._failures += 1
        self._failed_in_a_row += 1
        self._error = str(error)
        if not self._identity:
            self._enter("absent")
        elif self._is_lost_by(error):
            self._enter("lost")
        else:
            self._enter("degraded")

    def _is_lost_by(self, error: EdgedError) -> bool:
        # What is lost stays so, however looking for it fails, until it is found.
        return (
            self._state == "lost"
            or isinstance(error, NoDeviceError)
            or self._failed_in_a_row >= LOST_AFTER
        )

    def _found(self, device: Device, *, fresh: bool) -> None:
        self._failed_in_a_row = 0
        self._identity, self._error = device.identity, ""
        now = self._clock.monotonic()
        if fresh:
            self._warm_at = now + self.slot.driver.INFO.warm_up_s
        self._enter("warming" if now < self._warm_at else "ready")

    def _enter(self, state: State) -> None:
        """Change the state; each change is told once."""
        before, self._state = self._state, state
        if state == before:
            return
        facts = {"sensor": self.name, "state": state, "before": before}
        if self._error:
            facts["error"] = self._error
        self._publish("sensor.state", facts)
        if state in {"absent", "degraded", "lost"}:
            log.warning(f"sensor {self.name} is {state}: {self._error}")
        elif before in {"absent", "degraded", "lost"}:
            log.info(f"sensor {self.name} is back: {self._identity}")


_PLAIN = ChannelConfig()
