"""Any Modbus RTU device on a serial line, by a map of its registers.

Source: MODBUS application protocol, version 1.1b3 (here A), and MODBUS over
serial line, version 1.02 (here S). The protocol numbers no requests: an answer
must match its request by unit, function, length and checksum, and after a
failure the line is listened to until it is silent, so that a late answer is not
taken for the next one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from edged.bus import SerialPort, SerialSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Command, Info, Sample
from edged.drivers._modbus import (
    FAILED,
    LATER,
    READ,
    SHORTEST,
    WRITE_COIL,
    WRITE_REGISTERS,
    Batch,
    Kind,
    RegisterConfig,
    batches,
    crc16,
    decode,
    encode,
    fault,
    frame,
    quiet_s,
    words,
)
from edged.errors import DataError, EdgedError, Fault, InvalidArgumentsError, NoDeviceError
from edged.units import UNITS

_LATE_SIZE, _LATE_READS = 256, 8
"""Longest frame (S 2.5.1), and how many of them are waited for at most."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one device.

    Attributes:
        unit_id: its address on the line.
        registers: by the name of their channel.
        timeout_s: how long an answer may take to come.
        retries: further attempts after a failed one.
    """

    registers: dict[str, RegisterConfig]
    unit_id: Annotated[int, Meta(ge=1, le=247)] = 1
    timeout_s: Annotated[float, Meta(gt=0, le=10)] = 0.5
    retries: Annotated[int, Meta(ge=0, le=5)] = 2

    def __post_init__(self) -> None:
        if not self.registers:
            raise ValueError(
                "registers: there are none: describe one at least, such as "
                "{voltage: {address: 0, unit: V, scale: 0.1}}"
            )


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sets a register."""

    register: Annotated[str, Meta(description="name of a writable register")]
    value: Annotated[float, Meta(description="in the register's unit; 0 or 1 for a coil")]


INFO = Info(
    title="Modbus RTU device, by a map of its registers",
    compatible=(),
    bus="serial",
    commands=(Command("write", "sets a writable register to a value in its unit", Write),),
    datasheet="MODBUS application protocol, version 1.1b3",
    serial=SerialSettings(baudrate=9600),
)


def place(config: Config) -> str:
    """What the device has of its line: the others on it have other units."""
    return str(config.unit_id)


def channels(config: Config) -> tuple[Channel, ...]:
    """One for each register."""
    return tuple(Channel(name, one.unit, *one.range()) for name, one in config.registers.items())


class Modbus:
    """A device that answered; call from the event loop's thread."""

    def __init__(self, config: Config, port: SerialPort, sleep: Sleep) -> None:
        self.identity = f"Modbus unit {config.unit_id}"
        self.retries = 0
        """Failed attempts since it was found."""
        self._config, self._port, self._sleep = config, port, sleep
        self._batches = batches(config.registers)
        self._echoes = False

    async def read(self) -> tuple[Sample, ...]:
        """Reads all registers, neighbours together."""
        found: dict[str, Sample] = {}
        before = self.retries
        async with self._port.hold():
            for batch in self._batches:
                found |= await self._read(batch)
        samples = tuple(found[name] for name in self._config.registers)
        failed = self.retries - before
        if failed == 0:
            return samples
        note = f"after {failed} failed attempts"
        return tuple(one if one.note else one._replace(note=note) for one in samples)

    async def act(self, command: str, params: Write) -> str:  # noqa: ARG002  there is only one
        """Sets a register."""
        one = self._config.registers.get(params.register)
        if one is None or not one.writable:
            there = [name for name, one in self._config.registers.items() if one.writable]
            reason = f"is not writable: {', '.join(there) or 'no register'} is"
            raise InvalidArgumentsError([Fault("register", f"{params.register!r} {reason}")])
        low, high = one.limits()
        if not low <= params.value <= high or (one.is_bit and params.value not in {0, 1}):
            reason = "must be 0 or 1" if one.is_bit else f"must be from {low:g} to {high:g}"
            raise InvalidArgumentsError([Fault("value", reason)])
        await self._write(one, params.value)
        return f"{params.register} is {params.value:g} {UNITS[one.unit].symbol}".rstrip()

    async def safe(self) -> None:
        """Sets every register that has a safe value."""
        for one in self._config.registers.values():
            if one.safe is not None:
                await self._write(one, one.safe)

    async def _read(self, batch: Batch) -> dict[str, Sample]:
        answer = await self._exchange(batch.pdu, batch.data_size + 2)
        registers = self._config.registers
        if answer[0] & FAILED:
            note = f"{self.identity}: {words(answer[1])}"
            return {name: Sample(name, None, "error", note) for name in batch.names}
        return {name: _sample(name, registers[name], batch, answer[2:]) for name in batch.names}

    async def _write(self, one: RegisterConfig, value: float) -> None:
        pdu = encode(one, value)
        async with self._port.hold():
            # All three answers repeat the first five bytes (A 6.5, 6.6, 6.12).
            answer = await self._exchange(pdu, 5)
        if answer[0] & FAILED:
            raise DataError(f"{self.identity} on {self._port.name}: {words(answer[1])}")

    async def _exchange(self, pdu: bytes, size: int) -> bytes:
        """The answer to a request, or the exception in its place, after some attempts.

        Args:
            pdu: function and data of the request.
            size: bytes of the answer, function included.

        Raises:
            NoDeviceError: no answer.
            DataError: none that is whole, or the device is busy for too long.
        """
        where = f"{self.identity} on {self._port.name}"
        error: EdgedError = NoDeviceError(where)
        for attempt in range(self._config.retries + 1):
            self.retries += attempt > 0
            await self._sleep(quiet_s(self._port.settings))
            try:
                answer = await self._attempt(frame(self._config.unit_id, pdu), size, where)
            except (NoDeviceError, DataError) as failed:
                error = failed
                await self._silence()
                continue
            if not answer[0] & FAILED or answer[1] not in LATER:
                return answer
            error = DataError(f"{where}: {words(answer[1])}")
        raise error

    async def _attempt(self, request: bytes, size: int, where: str) -> bytes:
        port = self._port
        port.discard()
        await port.write(request)
        data = await self._after_echo(request)
        if not data:
            raise NoDeviceError(
                f"{where} does not answer: check its unit id, the speed and parity of the line, "
                "and that A and B are not swapped"
            )
        whole = SHORTEST if data[1:2] >= bytes([FAILED]) else size + 3
        if SHORTEST <= len(data) < whole:
            data += await port.read(whole - len(data), self._config.timeout_s)
        wrong = fault(request, data, size)
        if wrong:
            raise DataError(f"{where}: {wrong}")
        return data[1:-2]

    async def _after_echo(self, request: bytes) -> bytes:
        """The first bytes of the answer, without what the adapter heard of the request.

        An answer to a read never is its request; one to a write may be, so that
        there it is told by what the reads before it have shown.
        """
        timeout_s = self._config.timeout_s
        data = await self._port.read(SHORTEST, timeout_s)
        reads = request[1] in READ.values()
        if data == request[:SHORTEST] and (reads or self._echoes):
            data += await self._port.read(len(request) - SHORTEST, timeout_s)
            if data == request:
                self._echoes = True
                return await self._port.read(SHORTEST, timeout_s)
        return data

    async def _silence(self) -> None:
        """Waits until nothing comes: a late answer, or the rest of a broken one."""
        for _ in range(_LATE_READS):
            if not await self._port.read(_LATE_SIZE, self._config.timeout_s):
                return


def _sample(name: str, one: RegisterConfig, batch: Batch, data: bytes) -> Sample:
    value = decode(one, batch, data)
    if not math.isfinite(value):
        return Sample(name, None, "error", "the device gives no number")
    return Sample(name, value)


async def probe(config: Config, bus: SerialPort, sleep: Sleep) -> Modbus:
    """Reads all registers once; see `Driver.probe`."""
    device = Modbus(config, bus, sleep)
    samples = await device.read()
    if all(sample.value is None for sample in samples):
        raise DataError(f"{bus.name}: {samples[0].note}")
    return device


SIM_CONFIG = {
    "registers": {
        "voltage": RegisterConfig(0, "input", "u16", scale=0.1, unit="V"),
        "current": RegisterConfig(1, "input", "i32", "little", scale=0.001, unit="A"),
        "energy": RegisterConfig(12, "input", "f32", unit="kWh"),
        "limit": RegisterConfig(2, writable=True, min=0, max=100, unit="A"),
        "relay": RegisterConfig(0, "coil", writable=True, safe=0),
        "alarm": RegisterConfig(3, "discrete"),
    }
}
"""Settings that fit the model."""


class Sim:
    """Model of a meter with a relay; set its four tables to what is true.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.unit_id = 1
        self.tables: dict[Kind, dict[int, int]] = {
            "input": {0: 2301, 1: 0xFB2E, 2: 0xFFFF, 12: 0x43C9, 13: 0xAA46},
            "holding": {2: 16},
            "coil": {0: 0},
            "discrete": {3: 1},
        }
        self.echoes = False
        """The adapter hears what it sends."""
        self.busy = 0
        """So many next requests get exception 6."""
        self.requests: list[bytes] = []
        self._send: Callable[[bytes], None] = _nowhere

    def attach(self, send: Callable[[bytes], None]) -> None:
        """The port was opened."""
        self._send = send

    def detach(self) -> None:
        """The port was closed."""
        self._send = _nowhere

    def receive(self, data: bytes) -> None:
        """A request."""
        if self.echoes:
            self._send(data)
        self.requests.append(data)
        if data[0] == self.unit_id and crc16(data) == 0:
            self.send(frame(self.unit_id, self.answer(data[1:-2])))

    def send(self, data: bytes) -> None:
        """Puts an answer on the line."""
        self._send(data)

    def answer(self, pdu: bytes) -> bytes:
        """The answer to a request."""
        function, address, value = struct.unpack(">BHH", pdu[:5])
        if self.busy:
            self.busy -= 1
            return bytes([function | FAILED, 6])
        try:
            if function in READ.values():
                return self._read(function, address, value)
            self._set(function, address, value, pdu[6:])
        except KeyError:
            return bytes([function | FAILED, 2])
        return pdu[:5]

    def _read(self, function: int, address: int, count: int) -> bytes:
        kind = next(kind for kind, code in READ.items() if code == function)
        values = [self.tables[kind][at] for at in range(address, address + count)]
        if kind in {"holding", "input"}:
            data = struct.pack(f">{count}H", *values)
        else:
            word = sum(bit << at for at, bit in enumerate(values))
            data = word.to_bytes((count + 7) // 8, "little")
        return bytes([function, len(data)]) + data

    def _set(self, function: int, address: int, value: int, words: bytes) -> None:
        if function == WRITE_REGISTERS:
            table = self.tables["holding"]
            new = dict(enumerate((word for (word,) in struct.iter_unpack(">H", words)), address))
            if not new.keys() <= table.keys():
                raise KeyError(address)
            table.update(new)
            return
        table = self.tables["coil" if function == WRITE_COIL else "holding"]
        if address not in table:
            raise KeyError(address)
        table[address] = int(value == 0xFF00) if function == WRITE_COIL else value


def _nowhere(_: bytes) -> None:
    """Nobody listens."""
