"""Plantower PMS5003: dust in air, over serial.

Source: PMS5003 series data manual, version 2.3; appendices named below are its.
The PMS7003, PMSA003 and PMS3003 speak the same protocol. The sensor is put into
passive mode and asked, so that a reading is never older than the question; one
whose receive pin is not connected goes on sending by itself, which does as well.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edged.bus import SerialPort, SerialSettings, Sleep
from edged.clock import Clock
from edged.drivers import Channel, Info, Sample
from edged.drivers._sample import limited
from edged.errors import DataError, NoDeviceError

_RANGE = 1000.0
"""Highest value of PM2.5 that the manual gives (technical index, maximum range)."""

INFO = Info(
    title="PMS5003 dust: PM1, PM2.5, PM10",
    compatible=("plantower,pms5003", "plantower,pms7003", "plantower,pmsa003"),
    bus="serial",
    channels=(
        Channel("pm1", "ug/m3", 0.0, _RANGE),
        Channel("pm2_5", "ug/m3", 0.0, _RANGE),
        Channel("pm10", "ug/m3", 0.0, _RANGE),
    ),
    datasheet="PMS5003 series data manual, version 2.3 (June 2016)",
    serial=SerialSettings(baudrate=9600),
    # The fan needs 30 s after it starts (circuit attentions, 4).
    warm_up_s=30.0,
)

_START = b"\x42\x4d"
_MEASURED = 18
"""Bytes of the shortest contents with measured values, those of a PMS3003."""
_LENGTHS = frozenset({4, 20, 28})
"""What the length field may say: an answer to a command, a PMS3003, all others."""

# Appendix II.
PASSIVE, ASK = b"\xe1\x00\x00", b"\xe2\x00\x00"

ANSWER_S = 3.5
"""The longest interval of active mode is 2.3 s; a frame takes 33 ms."""

_READS = 8
"""Reads of one measurement at most: an answer and a frame are two each, a broken one more."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one PMS5003: it has none."""


class Frames:
    """Takes frames out of a stream of bytes, whatever it begins with; knows no port.

    A byte that cannot be where it stands costs only itself: the search goes on
    with the byte behind it. A checksum of 0x42 stands right before the next start.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def missing(self) -> int:
        """Bytes without which no further frame can be whole; at least one."""
        return _frame_size(self._buffer) - len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The contents of the frames that are whole now, oldest first."""
        buffer = self._buffer
        buffer += data
        found = []
        while (size := _frame_size(buffer)) <= len(buffer):
            body, checksum = buffer[: size - 2], buffer[size - 2 : size]
            if size and int.from_bytes(checksum, "big") == sum(body):
                found.append(bytes(body[4:]))
                del buffer[:size]
            else:
                del buffer[:1]
        return found


def _frame_size(buffer: bytearray) -> int:
    """Bytes of the frame that begins here, as far as can be told; 0 when none does."""
    if not _START.startswith(buffer[:2]):
        return 0
    if len(buffer) < 4:
        return 4
    length = int.from_bytes(buffer[2:4], "big")
    return 4 + length if length in _LENGTHS else 0


def command(data: bytes) -> bytes:
    """A command on the wire. Source: appendix II."""
    body = _START + data
    return body + sum(body).to_bytes(2, "big")


def frame(contents: bytes) -> bytes:
    """A frame on the wire, for models. Source: appendix I."""
    body = _START + (len(contents) + 2).to_bytes(2, "big") + contents
    return body + sum(body).to_bytes(2, "big")


def samples(contents: bytes) -> tuple[Sample, ...]:
    """The mass concentrations under atmospheric environment.

    Shape:
        contents: 26 bytes (18 of a PMS3003), big-endian words; data 4 to 6 count.

    Source: appendix I.
    """
    words = [int.from_bytes(contents[at : at + 2], "big") for at in (6, 8, 10)]
    return tuple(
        limited(channel, word) for channel, word in zip(INFO.channels, words, strict=True)
    )


class Pms5003:
    """A PMS5003 that was heard; call from the event loop's thread."""

    def __init__(self, port: SerialPort) -> None:
        self.identity = "PMS5003"
        self._port = port

    async def read(self) -> tuple[Sample, ...]:
        """Asks for a measurement and takes the first one that comes after the question."""
        port = self._port
        async with port.hold():
            port.discard()
            await port.write(command(ASK))
            return samples(await _measurement(port))


async def probe(config: Config, bus: SerialPort, sleep: Sleep) -> Pms5003:  # noqa: ARG001  Driver
    """Puts the sensor into passive mode and waits for a whole frame; see `Driver.probe`."""
    device = Pms5003(bus)
    async with bus.hold():
        await bus.write(command(PASSIVE))
    await device.read()
    return device


async def _measurement(port: SerialPort) -> bytes:
    """The contents of the next frame with measured values."""
    frames = Frames()
    came = 0
    for _ in range(_READS):
        wanted = frames.missing
        data = await port.read(wanted, ANSWER_S)
        came += len(data)
        for contents in frames.feed(data):
            if len(contents) >= _MEASURED:
                return contents
        if len(data) < wanted:
            break
    if came == 0:
        raise NoDeviceError(
            f"no PMS5003 is heard on {port.name}: check its 5 V, that its TX goes to RX here, "
            "and that its SET pin is not low (which is sleep)"
        )
    raise DataError(
        f"{port.name} receives {came} bytes but no frame of a PMS5003: is it this sensor, "
        "at 9600 Bd?"
    )


class Sim:
    """Model of a PMS5003 in true air; set `pm1`, `pm2_5` and `pm10` (ug/m3) to what is true.

    It answers when it is asked; `emit` sends a frame unasked, as in active mode.

    Args:
        clock: of the simulated board.
    """

    def __init__(self, clock: Clock) -> None:  # noqa: ARG002  every model gets it
        self.pm1, self.pm2_5, self.pm10 = 4, 7, 9
        self.deaf = False
        """Its receive pin is not connected."""
        self._send: Callable[[bytes], None] = _nowhere

    def attach(self, send: Callable[[bytes], None]) -> None:
        """The port was opened: it is in the middle of a frame."""
        self._send = send
        send(self.measured()[20:])

    def receive(self, data: bytes) -> None:
        """A command."""
        if self.deaf:
            return
        if data == command(PASSIVE):
            self._send(frame(PASSIVE[:1] + PASSIVE[2:]))
        elif data == command(ASK):
            self.emit()

    def detach(self) -> None:
        """The port was closed."""
        self._send = _nowhere

    def emit(self) -> None:
        """Sends what is true."""
        self._send(self.measured())

    def measured(self) -> bytes:
        """The frame of what is true; standard particles and air alike, no counts."""
        words = (self.pm1, self.pm2_5, self.pm10) * 2
        contents = b"".join(word.to_bytes(2, "big") for word in words) + bytes(12)
        return frame(contents + b"\x97\x00")


def _nowhere(_: bytes) -> None:
    """Nobody listens."""
