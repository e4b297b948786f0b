"""NXP PCA9685: 16 PWM outputs over I2C, for LEDs and servos.

Source: PCA9685 product data sheet, revision 4 (16 April 2015); sections named
below are its. All outputs share one frequency. The chip's answer to the all-call
address is switched off: another device may be there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from edged.bus import I2c, I2cTransfers, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.drivers._sample import silent
from edged.errors import DataError, Fault, InvalidArgumentsError, NoDeviceError

Output = Literal[
    "ch0",
    "ch1",
    "ch2",
    "ch3",
    "ch4",
    "ch5",
    "ch6",
    "ch7",
    "ch8",
    "ch9",
    "ch10",
    "ch11",
    "ch12",
    "ch13",
    "ch14",
    "ch15",
]
_OUTPUTS: tuple[Output, ...] = get_args(Output)
_Number = Annotated[int, Meta(ge=0, le=15, description="output 0 to 15")]

# Section 7.3 (register definitions).
MODE1, MODE2, LED0, ALL_OFF_H, PRE_SCALE = 0x00, 0x01, 0x06, 0xFD, 0xFE
RESTART, AUTO_INCREMENT, SLEEP, ALL_CALL = 0x80, 0x20, 0x10, 0x01
TOTEM_POLE = 0x04
_FULL = 0x10
"""Bit 4 of an ON_H or OFF_H register: on or off all the time (7.3.3)."""
_LED_LEN = 4
_AWAKE = AUTO_INCREMENT

OSCILLATOR_HZ = 25_000_000
COUNTS = 4096
WAKE_S = 0.0005
"""7.3.1.1: the oscillator needs 500 us."""
_CHUNK = 4
"""Outputs that are written at once: 17 bytes go through any adapter."""


class Duty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `duty` takes."""

    channel: _Number
    duty: Annotated[float, Meta(ge=0, le=1, description="part of the time that it is on, 0 to 1")]


class Pulse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `pulse` takes."""

    channel: _Number
    width_us: Annotated[float, Meta(ge=0, description="length of each pulse in microseconds")]


class Angle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `angle` takes."""

    channel: _Number
    degrees: Annotated[float, Meta(description="within the configured range of the servo")]


class Off(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `off` takes."""

    channel: Annotated[_Number | None, Meta(description="this one only; all by default")] = None


INFO = Info(
    title="PCA9685 16 PWM outputs, for LEDs and servos",
    compatible=("nxp,pca9685-pwm",),
    bus="i2c",
    # 0x70 is every PCA9685's all-call address until it is set up.
    addresses=(*range(0x40, 0x70), *range(0x71, 0x78)),
    channels=tuple(Channel(name, "/", 0.0, 1.0) for name in _OUTPUTS),
    commands=(
        Command("duty", "sets the part of the time that an output is on, 0 to 1", Duty),
        Command("pulse", "sets the length of an output's pulses in microseconds", Pulse),
        Command("angle", "turns a servo to an angle in degrees", Angle),
        Command("off", "switches one output off, or all", Off),
    ),
    datasheet="PCA9685, revision 4 (April 2015)",
)


class Servo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A servo on an output: the pulses at both ends of its way.

    Attributes:
        min_us: shortest pulse in us.
        max_us: longest pulse.
        min_deg: angle at the shortest pulse.
        max_deg: angle at the longest.
    """

    min_us: float = 1000.0
    max_us: float = 2000.0
    min_deg: float = 0.0
    max_deg: float = 180.0

    def __post_init__(self) -> None:
        if not 0 < self.min_us < self.max_us:
            raise ValueError("min_us must be above 0 and below max_us")
        if self.min_deg >= self.max_deg:
            raise ValueError("min_deg must be below max_deg")

    def width_us(self, degrees: float) -> float:
        """The pulse of an angle."""
        part = (degrees - self.min_deg) / (self.max_deg - self.min_deg)
        return self.min_us + part * (self.max_us - self.min_us)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one PCA9685.

    Attributes:
        address: by the pins A0 to A5.
        frequency_hz: of all outputs; servos want 50.
        trim: how much faster than 25 MHz the chip's oscillator is: the frequency
            that is measured at trim 1, over `frequency_hz`.
        servos: outputs that turn servos, `ch0`; nothing drives one beyond its ends.
        safe: part of the time that an output is on in the safe state; of those not
            named, none.
    """

    address: Annotated[int, Meta(description="7-bit address: 0x40 to 0x77 but 0x70")] = 0x40
    frequency_hz: float = 50.0
    trim: Annotated[float, Meta(ge=0.9, le=1.1)] = 1.0
    servos: dict[Output, Servo] = {}
    safe: dict[Output, Annotated[float, Meta(ge=0, le=1)]] = {}

    def __post_init__(self) -> None:
        prescale(self.frequency_hz, self.trim)
        period_us = self.count_us * COUNTS
        for name, servo in self.servos.items():
            if servo.max_us >= period_us:
                raise ValueError(f"servos.{name}: max_us is longer than a period: {period_us:g}")
        for name, duty in self.safe.items():
            reason = _beyond_servo(self.servos.get(name), duty * period_us)
            if reason:
                raise ValueError(f"safe.{name}: {reason}")

    @property
    def count_us(self) -> float:
        """Length of one of the 4096 steps of a period."""
        oscillator_mhz = OSCILLATOR_HZ * self.trim / 1e6
        return (prescale(self.frequency_hz, self.trim) + 1) / oscillator_mhz


def prescale(frequency_hz: float, trim: float = 1.0) -> int:
    """The value of PRE_SCALE, rounded and not cut.

    Raises:
        ValueError: the chip cannot do this frequency.

    Source: 7.3.5, equation 1.
    """
    wanted = OSCILLATOR_HZ * trim / COUNTS
    value = round(wanted / frequency_hz) - 1 if frequency_hz > 0 else 0
    if not 3 <= value <= 255:
        raise ValueError(
            f"frequency_hz: {frequency_hz:g} is not within {wanted / 256:.0f} to {wanted / 4:.0f}"
        )
    return value


def encode_output(counts: int) -> bytes:
    """The four registers of an output that is on for so many of 4096 counts.

    Shape:
        4 bytes: when it goes on, when off, each 12 bits with the low byte first.

    Source: 7.3.3.
    """
    if counts <= 0:
        return bytes([0, 0, 0, _FULL])
    if counts >= COUNTS:
        return bytes([0, _FULL, 0, 0])
    return bytes([0, 0, *counts.to_bytes(2, "little")])


def decode_output(data: bytes) -> int:
    """For how many of 4096 counts an output is on; see `encode_output`."""
    on, off = int.from_bytes(data[0:2], "little"), int.from_bytes(data[2:4], "little")
    full = _FULL << 8
    if off & full:
        return 0
    return COUNTS if on & full else (off - on) % COUNTS


def pulse_us(params: Duty | Pulse | Angle, config: Config) -> float:
    """How long the pulses are that a command means, in us.

    Raises:
        InvalidArgumentsError: longer than a period, beyond the ends of the
            output's servo, or an angle where no servo is configured.
    """
    servo = config.servos.get(_OUTPUTS[params.channel])
    if isinstance(params, Angle):
        if servo is None:
            raise _refused("channel", f"{params.channel} is no servo: configure it under servos")
        if not servo.min_deg <= params.degrees <= servo.max_deg:
            raise _refused("degrees", f"must be from {servo.min_deg:g} to {servo.max_deg:g}")
        return servo.width_us(params.degrees)
    period_us = config.count_us * COUNTS
    if isinstance(params, Duty):
        field, width_us = "duty", params.duty * period_us
    else:
        field, width_us = "width_us", params.width_us
    if round(width_us / config.count_us) > COUNTS:
        raise _refused(field, f"is longer than a period, which is {period_us:.0f} us")
    reason = _beyond_servo(servo, width_us)
    if reason:
        raise _refused(field, reason)
    return width_us


class Pca9685:
    """A PCA9685 that was found and set up; call from the event loop's thread."""

    def __init__(self, config: Config, bus: I2c, sleep: Sleep) -> None:
        self.identity = "PCA9685 (it has no id)"
        self._config, self._bus, self._sleep = config, bus, sleep
        self._prescale = prescale(config.frequency_hz, config.trim)

    async def read(self) -> tuple[Sample, ...]:
        """What the outputs are set to, as the chip has it."""
        async with self._bus.hold() as bus:
            await self._check(bus)
            half = len(_OUTPUTS) // 2 * _LED_LEN
            data = await self._read(bus, LED0, half) + await self._read(bus, LED0 + half, half)
        return tuple(
            Sample(name, decode_output(data[i * _LED_LEN : (i + 1) * _LED_LEN]) / COUNTS)
            for i, name in enumerate(_OUTPUTS)
        )

    async def act(self, command: str, params: Any) -> str:  # noqa: ARG002  params tell the command
        """Does what it is told; see `Actuator.act`."""
        if isinstance(params, Off) and params.channel is None:
            await self._tell(ALL_OFF_H, bytes([_FULL]))
            return "all outputs are off"
        width_us = 0.0 if isinstance(params, Off) else pulse_us(params, self._config)
        counts = round(width_us / self._config.count_us)
        await self._tell(LED0 + params.channel * _LED_LEN, encode_output(counts))
        if not counts:
            return f"output {params.channel} is off"
        true_us = counts * self._config.count_us
        return (
            f"output {params.channel} is on {counts / COUNTS:.1%} of the time, "
            f"{true_us:.0f} us of each period"
        )

    async def safe(self) -> None:
        """Every output as configured: off, but those named in `safe`."""
        async with self._bus.hold() as bus:
            await self.set_up(bus)
            counts = [round(self._config.safe.get(name, 0.0) * COUNTS) for name in _OUTPUTS]
            for first in range(0, len(counts), _CHUNK):
                chunk = [encode_output(one) for one in counts[first : first + _CHUNK]]
                await self._write(bus, LED0 + first * _LED_LEN, *b"".join(chunk))

    async def set_up(self, bus: I2cTransfers) -> None:
        """Sets frequency and mode; if they are right already, no output moves.

        Raises:
            NoDeviceError: what is read is all ones.
            DataError: it does not keep what is written.
        """
        if await self._is_set_up(bus):
            return
        # Off first: the frequency can be changed only asleep, and moves every output.
        await self._write(bus, ALL_OFF_H, _FULL)
        await self._write(bus, MODE1, SLEEP | AUTO_INCREMENT)
        await self._write(bus, PRE_SCALE, self._prescale)
        await self._write(bus, MODE2, TOTEM_POLE)
        await self._write(bus, MODE1, _AWAKE)
        await self._sleep(WAKE_S)
        await self._write(bus, MODE1, RESTART | _AWAKE)
        if not await self._is_set_up(bus):
            raise DataError(f"{self._place} does not keep its settings: another chip?")

    async def _is_set_up(self, bus: I2cTransfers) -> bool:
        (mode1,) = await self._read(bus, MODE1, 1)
        (scale,) = await self._read(bus, PRE_SCALE, 1)
        if mode1 == scale == 0xFF:
            raise NoDeviceError(silent(self._place))
        return mode1 == _AWAKE and scale == self._prescale

    async def _check(self, bus: I2cTransfers) -> None:
        if not await self._is_set_up(bus):
            raise DataError(
                f"{self._place} lost its settings: its supply dipped and its outputs are off, "
                "or another program uses it"
            )

    async def _tell(self, register: int, values: bytes) -> None:
        async with self._bus.hold() as bus:
            await self._check(bus)
            await self._write(bus, register, *values)

    async def _read(self, bus: I2cTransfers, register: int, length: int) -> bytes:
        return await bus.transfer(self._config.address, bytes([register]), length)

    async def _write(self, bus: I2cTransfers, register: int, *values: int) -> None:
        await bus.transfer(self._config.address, bytes([register, *values]))

    @property
    def _place(self) -> str:
        return f"PCA9685 at {self._config.address:#04x} on {self._bus.name}"


async def probe(config: Config, bus: I2c, sleep: Sleep) -> Pca9685:
    """Finds the chip and sets its frequency; see `Driver.probe`."""
    device = Pca9685(config, bus, sleep)
    async with bus.hold() as held:
        await device.set_up(held)
    return device


def _beyond_servo(servo: Servo | None, width_us: float) -> str:
    """Why a servo cannot have such pulses; no pulse at all lets it loose."""
    # Half a microsecond is the rounding of what was written.
    if servo is None or not width_us or servo.min_us - 0.5 <= width_us <= servo.max_us + 0.5:
        return ""
    return f"pulses of its servo are {servo.min_us:g} to {servo.max_us:g} us, not {width_us:g}"


def _refused(path: str, reason: str) -> InvalidArgumentsError:
    return InvalidArgumentsError([Fault(path, reason)])


class Sim:
    """Register model of a PCA9685.

    Args:
        clock: what the oscillator's start follows.
        oscillator_hz: true frequency; the data sheet's is 25 MHz.
    """

    def __init__(self, clock: Clock, *, oscillator_hz: float = OSCILLATOR_HZ) -> None:
        self.oscillator_hz = oscillator_hz
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Power-on (table 4): asleep, all outputs off."""
        self._pointer = 0
        self._memory = bytearray(256)
        self._memory[MODE1], self._memory[MODE2] = SLEEP | ALL_CALL, TOTEM_POLE
        for output in range(len(_OUTPUTS)):
            self._memory[LED0 + output * _LED_LEN + 3] = _FULL
        self._memory[PRE_SCALE] = 0x1E
        self._awake_since: float | None = None

    def write(self, data: bytes) -> None:
        """A register's number, then values for it and those after it."""
        self._pointer = data[0]
        for value in data[1:]:
            self._set(self._pointer, value)
            self._step()

    def read(self, length: int) -> bytes:
        """Bytes from the addressed register on."""
        found = bytearray()
        for _ in range(length):
            found.append(self._memory[self._pointer])
            self._step()
        return bytes(found)

    def duty(self, output: int) -> float:
        """What an output really puts out now."""
        since = self._awake_since
        if since is None or self._clock.monotonic() - since < WAKE_S:
            return 0.0
        if self._memory[MODE1] & RESTART:
            return 0.0
        start = LED0 + output * _LED_LEN
        return decode_output(bytes(self._memory[start : start + _LED_LEN])) / COUNTS

    def width_us(self, output: int) -> float:
        """The true length of an output's pulses."""
        return self.duty(output) * 1e6 / self.frequency_hz

    @property
    def frequency_hz(self) -> float:
        """The true frequency of the outputs."""
        return self.oscillator_hz / COUNTS / (self._memory[PRE_SCALE] + 1)

    def _step(self) -> None:
        """To the next register (7.3.1, bit AI)."""
        if self._memory[MODE1] & AUTO_INCREMENT:
            self._pointer = (self._pointer + 1) & 0xFF

    def _set(self, register: int, value: int) -> None:
        asleep = self._memory[MODE1] & SLEEP
        if register == MODE1:
            self._set_mode(value)
        elif register == PRE_SCALE:
            # Blocked while it runs, and no lower than 3 (7.3.5).
            self._memory[register] = max(value, 3) if asleep else self._memory[register]
        elif register >= ALL_OFF_H - 3:
            for output in range(len(_OUTPUTS)):
                self._memory[LED0 + output * _LED_LEN + register - (ALL_OFF_H - 3)] = value
        else:
            self._memory[register] = value

    def _set_mode(self, value: int) -> None:
        before = self._memory[MODE1]
        running = any(self.duty(output) for output in range(len(_OUTPUTS)))
        # Set by going to sleep with outputs on; cleared by writing 1 (7.3.1.1).
        restart = RESTART if running and value & SLEEP else before & RESTART
        if value & RESTART and not value & SLEEP:
            restart = 0
        self._memory[MODE1] = value & ~RESTART | restart
        if value & SLEEP:
            self._awake_since = None
        elif self._awake_since is None:
            self._awake_since = self._clock.monotonic()
