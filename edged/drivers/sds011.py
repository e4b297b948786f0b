"""Nova Fitness SDS011: dust in air, over serial.

Source: SDS011 laser PM2.5 sensor specification, version 1.3, and its control
protocol, version 1.3 (here P). It is asked for each measurement, so that a
reading is never older than the question; one that reports by itself once a
second, as the factory sets it, does as well. Its stored settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edged.bus import SerialPort, SerialSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import limited
from edged.errors import DataError, NoDeviceError

INFO = Info(
    title="SDS011 dust: PM2.5, PM10",
    compatible=("nova,sds011",),
    bus="serial",
    channels=(
        Channel("pm2_5", "ug/m3", 0.0, 999.9),
        Channel("pm10", "ug/m3", 0.0, 999.9),
    ),
    datasheet="SDS011 laser PM2.5 sensor specification, version 1.3 (2015)",
    serial=SerialSettings(baudrate=9600),
    # P 4: stable when it has worked for 30 s.
    warm_up_s=30.0,
)

_HEAD, _TAIL, FRAME_SIZE = 0xAA, 0xAB, 10
_ASKS, DATA, DONE = 0xB4, 0xC0, 0xC5
QUERY = b"\x04" + bytes(12)
"""P, 2: give the measured values."""
WORK = b"\x06\x01\x01" + bytes(10)
"""P, 4: fan and laser on; it sleeps for ever once it was told to."""

ANSWER_S = 3.0
"""It answers at once, and reports by itself once a second (specification, 5)."""

_READS = 8
"""Reads of one exchange at most: a frame is one, a broken one some more."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one SDS011: it has none."""


class Frames:
    """Takes frames out of a stream of bytes, whatever it begins with; knows no port.

    A byte that cannot be where it stands costs only itself: the search goes on
    with the byte behind it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def missing(self) -> int:
        """Bytes without which no further frame can be whole; at least one."""
        return FRAME_SIZE - len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, oldest first."""
        buffer = self._buffer
        buffer += data
        found = []
        while len(buffer) >= FRAME_SIZE:
            candidate = bytes(buffer[:FRAME_SIZE])
            if _is_frame(candidate):
                found.append(candidate)
                del buffer[:FRAME_SIZE]
            else:
                del buffer[:1]
        return found


def _is_frame(data: bytes) -> bool:
    return (
        data[0] == _HEAD
        and data[1] in {DATA, DONE}
        and data[8] == sum(data[2:8]) & 0xFF
        and data[9] == _TAIL
    )


def command(data: bytes) -> bytes:
    """A command on the wire, to whichever sensor hears it. Source: P, 1."""
    data += b"\xff\xff"
    return bytes([_HEAD, _ASKS, *data, sum(data) & 0xFF, _TAIL])


def frame(kind: int, data: bytes) -> bytes:
    """A frame on the wire, for models. Source: P, 2."""
    return bytes([_HEAD, kind, *data, sum(data) & 0xFF, _TAIL])


def samples(data: bytes) -> tuple[Sample, ...]:
    """Both concentrations.

    Shape:
        data: a frame; PM2.5 and PM10 in 0.1 ug/m3, little-endian, from byte 2.

    Source: P, 2.
    """
    values = [int.from_bytes(data[at : at + 2], "little") / 10 for at in (2, 4)]
    return tuple(
        limited(channel, value) for channel, value in zip(INFO.channels, values, strict=True)
    )


class Sds011:
    """An SDS011 that was heard; call from the event loop's thread."""

    def __init__(self, port: SerialPort, number: str) -> None:
        self.identity = f"SDS011 {number}"
        self._port = port

    async def read(self) -> tuple[Sample, ...]:
        """Asks for a measurement and takes the first one that comes after the question."""
        return samples(await _measure(self._port))


async def probe(config: Config, bus: SerialPort, sleep: Sleep) -> Sds011:  # noqa: ARG001  Driver
    """Wakes the sensor and waits for a whole frame; see `Driver.probe`."""
    async with bus.hold():
        await bus.write(command(WORK))
    return Sds011(bus, (await _measure(bus))[6:8].hex())


async def _measure(port: SerialPort) -> bytes:
    """The first frame with measured values after a question."""
    frames = Frames()
    came = 0
    async with port.hold():
        port.discard()
        await port.write(command(QUERY))
        for _ in range(_READS):
            wanted = frames.missing
            data = await port.read(wanted, ANSWER_S)
            came += len(data)
            for found in frames.feed(data):
                if found[1] == DATA:
                    return found
            if len(data) < wanted:
                break
    if came == 0:
        raise NoDeviceError(
            f"no SDS011 is heard on {port.name}: check its 5 V, and that its TXD goes to RX here"
        )
    raise DataError(
        f"{port.name} receives {came} bytes but no frame of an SDS011: is it this sensor, "
        "at 9600 Bd?"
    )


class Sim:
    """Model of an SDS011 in true air; set `pm2_5` and `pm10` (ug/m3) to what is true.

    It answers when it is asked; `emit` sends a frame unasked, as the factory sets it.

    Args:
        clock: of the simulated board.
    """

    NUMBER = b"\xa1\x60"

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.pm2_5, self.pm10 = 7.3, 12.1
        self.asleep = False
        self.deaf = False
        """Its receive pin is not connected."""
        self._send: Callable[[bytes], None] = _nowhere

    def attach(self, send: Callable[[bytes], None]) -> None:
        """The port was opened: it is in the middle of a frame."""
        self._send = send
        send(self.measured()[4:])

    def receive(self, data: bytes) -> None:
        """A command; asleep it hears only that it is to work."""
        if self.deaf:
            return
        if data == command(WORK):
            self.asleep = False
            self._send(frame(DONE, WORK[:4] + self.NUMBER))
        elif data == command(QUERY) and not self.asleep:
            self.emit()

    def detach(self) -> None:
        """The port was closed."""
        self._send = _nowhere

    def emit(self) -> None:
        """Sends what is true."""
        self._send(self.measured())

    def measured(self) -> bytes:
        """The frame of what is true."""
        tenths = (round(self.pm2_5 * 10), round(self.pm10 * 10))
        words = b"".join(value.to_bytes(2, "little") for value in tenths)
        return frame(DATA, words + self.NUMBER)


def _nowhere(_: bytes) -> None:
    """Nobody listens."""
