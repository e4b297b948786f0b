"""The board: its configured sensors, actuators and GPIO lines, over buses that are handed in.

Laws: a device is looked for when it is first needed, so that an absent one never
stops the start; outputs stand on their safe level from start and after stop; a
cancelled or failed caller never blocks the next. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self, TypeVar

import msgspec

from edged.board.actuator import Actuator, ActuatorInfo
from edged.board.claims import Claims, reached, refuse_twice
from edged.board.device import Ports, Slot
from edged.board.line import GpioLine, LineInfo
from edged.board.loose import LooseLines
from edged.board.sensor import Publish, Sensor, SensorInfo
from edged.bus import Buses, Edge, PortInfo, PwmChannel, Sleep
from edged.bus.settings import BoardConfig, bus_name
from edged.clock import Clock
from edged.drivers import Sample
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.units import Reading, duration_s

__all__ = ["ActuatorInfo", "Board", "LineInfo", "SensorInfo"]

_Part = TypeVar("_Part")


def _nobody(_kind: str, _facts: dict[str, Any]) -> None:
    """Nobody listens to events."""


class Board:
    """The configured devices and lines; `async with` opens and closes them.

    Args:
        config: `board:` of edged.yaml.
        buses: those that there are.
        clock: time of readings.
        sleep: how drivers wait.
        publish: who is told of events.
        simulated: what it measures is not to be mixed with what is true.

    Raises:
        ConfigError: an unknown driver, a setting that its driver refuses, or
            one address or line configured twice.
    """

    def __init__(
        self,
        config: BoardConfig,
        buses: Buses,
        clock: Clock,
        *,
        sleep: Sleep = asyncio.sleep,
        publish: Publish = _nobody,
        simulated: bool = False,
    ) -> None:
        self.config = config
        self.simulated = simulated
        self.buses = buses
        self._clock, self._publish = clock, publish
        self._claims = Claims()
        self._open = False
        ports = Ports(buses)
        self._sensors = {
            name: Sensor(name, one, buses, ports, clock, sleep, self._claims, publish)
            for name, one in config.sensors.items()
        }
        self._actuators = {
            name: Actuator(
                Slot("actuators", name, one, buses, ports, sleep),
                f"the actuator {name}",
                duration_s(one.deadline),
                self._claims,
                publish,
            )
            for name, one in config.actuators.items()
        }
        self._acting = {
            **self._actuators,
            **{
                name: Actuator(sensor.slot, sensor.holder, 0.0, self._claims, publish)
                for name, sensor in self._sensors.items()
                if sensor.slot.driver.INFO.commands
            },
        }
        """What can be told something: sensors with commands too, such as a clock to be set."""
        self._lines = {
            name: GpioLine(name, one, lambda: buses.gpio, clock, publish)
            for name, one in config.gpio.items()
        }
        self._pwm: dict[str, PwmChannel] = {}
        self._loose = LooseLines(self._lines, lambda: buses.gpio, clock, publish)
        refuse_twice(
            [
                *(taken for part in self._parts for taken in part.slot.taken()),
                *((f"board.gpio.{name}", one.line) for name, one in config.gpio.items()),
            ]
        )
        for part in self._parts:
            if part.place:
                self._claims.take(part.place, part.holder)

    async def __aenter__(self) -> Self:
        self._open = True
        try:
            for line in self._lines.values():
                await line.start()
            for actuator in self._actuators.values():
                await actuator.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    def sample(self, on_readings: Callable[[tuple[Reading, ...]], None] | None = None) -> None:
        """Begin to sample the sensors; each measurement is handed to `on_readings`."""
        for sensor in self._sensors.values():
            sensor.on_readings = on_readings
            sensor.sample()

    def wake(self) -> None:
        """Something was plugged in or out: look at what is absent, or now is, at once."""
        self.buses.look()
        for sensor in self._sensors.values():
            sensor.wake()
        for line in self._lines.values():
            line.wake()

    # What there is ------------------------------------------------------------------------

    @property
    def sensors(self) -> tuple[SensorInfo, ...]:
        """The configured sensors, by name."""
        return tuple(self._sensors[name].info() for name in sorted(self._sensors))

    def sensor_info(self, name: str) -> SensorInfo | None:
        """One configured sensor; None where there is none of that name."""
        sensor = self._sensors.get(name)
        return None if sensor is None else sensor.info()

    def line_info(self, name: str) -> LineInfo | None:
        """Likewise a GPIO line."""
        line = self._lines.get(name)
        return None if line is None else line.info()

    @property
    def actuators(self) -> tuple[ActuatorInfo, ...]:
        """What acts, by name: the configured actuators, and sensors with commands."""
        found = (self._acting[name].info() for name in sorted(self._acting))
        return tuple(
            msgspec.structs.replace(info, error=self._sensors[info.name].info().error)
            if info.name in self._sensors
            else info
            for info in found
        )

    @property
    def lines(self) -> tuple[LineInfo, ...]:
        """The configured GPIO lines, by name."""
        return tuple(self._lines[name].info() for name in sorted(self._lines))

    # Sensors ------------------------------------------------------------------------------

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
        sensor = self._sensor(name, channel)
        readings = sensor.recent(max_age_s)
        if readings is None:
            readings = await sensor.measure()
        return tuple(one for one in readings if channel in {None, one.channel})

    def latest(self, name: str) -> tuple[Reading, ...]:
        """The last readings of a sensor, without measuring; () before the first.

        Raises:
            NoDeviceError: no such sensor.
        """
        return self._sensor(name).latest()

    def alarms(self, name: str) -> Mapping[str, str]:
        """Channels of a sensor that are out of their bounds: `above` or `below`."""
        return self._sensor(name).alarms()

    async def identify(self, name: str) -> SensorInfo:
        """Look for a sensor's chip anew; see `read` for errors."""
        sensor = self._sensor(name)
        await sensor.identify()
        return sensor.info()

    async def calibrate(self, name: str, channel: str, true_value: float) -> float:
        """Have a channel say `true_value` for what it measures now; returns its new offset.

        Raises: as `read`, or InvalidArgumentsError where it has no value now.
        """
        sensor = self._sensor(name, channel)
        (limits,) = (one for one in sensor.channels if one.name == channel)
        if not limits.low <= true_value <= limits.high:
            reason = f"{channel} is from {limits.low:g} to {limits.high:g} {limits.unit}"
            raise InvalidArgumentsError([Fault("value", reason)])
        readings = await sensor.measure()
        (found,) = (one.value for one in readings if one.channel == channel)
        if found is None:
            reason = f"{name} has no value of {channel} now to compare with"
            raise InvalidArgumentsError([Fault("channel", reason)])
        # To what it has already: nobody sees a value without it meanwhile.
        offset = round(sensor.offsets.get(channel, 0.0) + true_value - found, 6)
        await self._calibrated(sensor, {**sensor.offsets, channel: offset})
        return offset

    async def uncalibrate(self, name: str, channel: str) -> None:
        """Drop the offset that `calibrate` made; errors as `read`."""
        sensor = self._sensor(name, channel)
        left = {one: offset for one, offset in sensor.offsets.items() if one != channel}
        await self._calibrated(sensor, left)

    async def _calibrated(self, sensor: Sensor, offsets: dict[str, float]) -> None:
        sensor.calibrate(offsets)
        # What was measured before is not given out beside what is measured from now on.
        await sensor.measure()

    def calibrations(self, name: str) -> Mapping[str, float]:
        """The offsets that `calibrate` made, by channel."""
        return self._sensor(name).offsets

    def offsets(self, stored: Mapping[str, dict[str, float]]) -> None:
        """Use stored calibrations, by sensor and channel; those of others are left alone."""
        for name, offsets in stored.items():
            if name in self._sensors:
                self._sensors[name].calibrate(offsets)

    def check_channel(self, name: str, channel: str | None) -> None:
        """Refuse a sensor or a channel that is not there; errors as `read`."""
        self._sensor(name, channel)

    def _sensor(self, name: str, channel: str | None = None) -> Sensor:
        self._check_open()
        sensor = _known(self._sensors, name, "sensor")
        channels = [known.name for known in sensor.channels]
        if channel is not None and channel not in channels:
            reason = f"{name} has no channel {channel!r}: it has {', '.join(channels)}"
            raise InvalidArgumentsError([Fault("channel", reason)])
        return sensor

    # Actuators ----------------------------------------------------------------------------

    async def act(self, name: str, command: str, arguments: dict[str, Any]) -> str:
        """Tell an actuator what to do; see `Actuator.act`.

        Raises:
            NoDeviceError: no such actuator (the message lists those there are).
        """
        self._check_open()
        return await _known(self._acting, name, "actuator").act(command, arguments)

    async def told(self, name: str) -> tuple[Sample, ...]:
        """What an actuator was told last."""
        self._check_open()
        return await _known(self._acting, name, "actuator").read()

    # Lines --------------------------------------------------------------------------------

    async def read_line(self, name: str) -> bool:
        """The logical value of a line, an output's too.

        Args:
            name: of a configured line, else of a line itself (`GPIO22`).

        Raises:
            NoDeviceError: no such line (the message lists those there are).
            BusyError: another program holds it; the message names it.
            BusError: refused by the kernel.
        """
        self._check_open()
        line = self._lines.get(name)
        return await (self._loose.read(name) if line is None else line.get())

    async def write_line(self, name: str, value: bool) -> None:
        """Drives an output to a logical value.

        A line that is used by its own name becomes an output, and keeps its
        value until the daemon stops; then it goes to off.

        Raises:
            InvalidArgumentsError: the line is an input.
            NoDeviceError: no such line (the message lists those there are).
            BusyError: another program holds it; the message names it.
            BusError: refused by the kernel.
        """
        await (await self._output(name)).set(value)

    async def pulse_line(self, name: str, duration_s: float) -> None:
        """Drives an output to on for a time, then to off.

        Raises: as `write_line`, and BusyError: another pulse is under way, or a write
        ended this one; InvalidArgumentsError: longer than the line's deadline.
        """
        await (await self._output(name)).pulse(duration_s)

    async def watch_line(self, name: str, count: int, timeout_s: float) -> Sequence[Edge]:
        """The next edges of a line: `count` of them, or fewer when the time is over.

        Raises:
            InvalidArgumentsError: a configured line that reports no edges, or an output.
            NoDeviceError, BusyError, BusError: as `read_line`.
        """
        self._check_open()
        line = self._lines.get(name)
        if line is not None:
            return await line.watch(count, timeout_s)
        return await self._loose.watch(name, count, timeout_s)

    async def set_pwm(self, channel: str, period_ns: int, duty_ns: int) -> None:
        """Puts out pulses on a PWM channel until the daemon stops; a duty of 0 ends them.

        Raises:
            NoDeviceError, BusyError, BusError, InvalidArgumentsError: see `edged.bus.Pwm`.
        """
        self._check_open()
        taken = self._pwm.get(channel)
        if taken is None:
            taken = self._pwm[channel] = await self.buses.pwm.request(channel, "edged")
        await taken.set(period_ns, duty_ns)
        if duty_ns == 0:
            del self._pwm[channel]
            await taken.release()

    async def check_line(self, name: str) -> None:
        """Refuse a line that is not there, or is configured by another name; see `read_line`."""
        self._check_open()
        if name not in self._lines:
            await self._loose.place(name)

    async def check_pwm(self, channel: str) -> None:
        """Refuse a PWM channel that is not there; see `set_pwm`."""
        self._check_open()
        await self.buses.pwm.canonical(channel)

    def is_configured(self, name: str) -> bool:
        """Whether a line is one that the owner named."""
        return name in self._lines

    async def _output(self, name: str) -> GpioLine:
        self._check_open()
        line = self._lines.get(name)
        if line is not None:
            if line.config.direction != "output":
                reason = f"{name} is an input: only outputs can be written"
                raise InvalidArgumentsError([Fault("line", reason)])
            return line
        return await self._loose.output(name)

    # Places -------------------------------------------------------------------------------

    def allows(self, place: str) -> bool:
        """Whether the owner's `allow:` lets tools write to a place without a confirmation."""
        return any(
            place == allowed or place.startswith(f"{allowed}/") for allowed in self.config.allow
        )

    def check_free(self, place: str) -> None:
        """Refuse a place that a sensor, an actuator or a tool holds.

        Raises:
            BusyError: the message names the holder.
        """
        self._claims.check(place)

    def holder(self, place: str) -> str:
        """Which device of the owner's configuration has a place; a simulated board has none."""
        return "" if self.simulated else self._claims.holder(place)

    def check_write(self, place: str, confirmed: bool) -> None:
        """Refuse a write that nobody confirmed (contract, section 8).

        Raises:
            BusyError: the place is held; the message names the holder.
            DeniedError: no confirmation; the message says how to give one.
        """
        self.check_free(place)
        self.check_confirmed(place, confirmed)

    async def check_port(self, info: PortInfo) -> None:
        """Refuse a serial port that a device holds, however the configuration names it.

        Raises:
            BusyError: the message names the holder.
        """
        for part in self._parts:
            slot = part.slot
            if slot.driver.INFO.bus == "serial" and await self._is_port(slot.bus, info):
                raise BusyError(f"{info.name} is in use by {part.holder}")

    async def _is_port(self, written: str, info: PortInfo) -> bool:
        try:
            return (await self.buses.serial.find(written)).path == info.path
        except EdgedError:
            # Not there now, so it is another one.
            return False

    @property
    def _parts(self) -> Sequence[Sensor | Actuator]:
        """The configured devices."""
        return (*self._sensors.values(), *self._actuators.values())

    def names_bus(self, bus: str) -> bool:
        """Whether the configuration names an I2C bus: a device is on it."""
        return any(part.slot.bus == bus for part in self._parts)

    def check_confirmed(self, place: str, confirmed: bool) -> None:
        """Refuse a write that nobody confirmed, to a place that the writer holds.

        Raises:
            DeniedError: no confirmation; the message says how to give one.
        """
        if not confirmed and not self.allows(place):
            raise DeniedError(
                f"a write to {place} needs confirm: true, or allow: [{place}] under board: in "
                "edged.yaml",
                unconfirmed=f"write to {place}",
            )

    def check_limits(self, place: str, data: bytes) -> None:
        """Refuse a write to an I2C address that the owner's `limits:` leave out.

        Args:
            place: `i2c-1/0x60`.
            data: as it goes out: a register, and its value in big-endian order.

        Raises:
            DeniedError: the message says what may be written there.
        """
        for one in reached(place):
            limits = self.config.limits.get(one)
            if limits is None:
                continue
            low, high = limits.get(data[0], (1, 0)) if data else (1, 0)
            if not low <= int.from_bytes(data[1:], "big") <= high:
                may = ", ".join(f"{n:#04x} from {a:#x} to {b:#x}" for n, (a, b) in limits.items())
                raise DeniedError(
                    f"{one}: {data[:8].hex(' ') or 'nothing'} is not within limits: under board: "
                    f"in edged.yaml, which let registers be written: {may or 'none'}"
                )

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
        device = bus_name(device).removeprefix("/dev/")
        self._claims.take(device, holder)
        try:
            async with AsyncExitStack() as held:
                if device.startswith("i2c-"):
                    bus = self.buses.i2c(device)
                    await held.enter_async_context(bus.hold())
                yield
        finally:
            self._claims.free(device)

    def _check_open(self) -> None:
        if not self._open:
            raise NoDeviceError("the board is not open")

    async def _close(self) -> None:
        """Outputs to their safe level first, whatever else fails."""
        self._open = False
        # A measurement may hold the bus of an output for a second.
        for sensor in self._sensors.values():
            sensor.cancel()
        failed: list[Exception] = []
        stops: list[Callable[[], Awaitable[None]]] = [
            *(one.stop for one in (*self._lines.values(), *self._loose.held)),
            *(one.stop for one in self._actuators.values()),
            *(one.release for one in self._pwm.values()),
            *(one.stop for one in self._sensors.values()),
            self.buses.close,
        ]
        for stop in stops:
            try:
                await stop()
            except EdgedError as error:
                failed.append(error)
        if failed:
            raise ExceptionGroup("outputs may not be on their safe level", failed)


def _known(parts: Mapping[str, _Part], name: str, kind: str) -> _Part:
    if name not in parts:
        there = ", ".join(sorted(parts)) or "none is configured"
        raise NoDeviceError(f"no {kind} {name!r}: there is {there}")
    return parts[name]
