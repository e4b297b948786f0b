"""A CP2112 of Silicon Labs, a USB bridge to I2C and eight GPIO lines, behind /dev/uhid.

The kernel's own hid-cp2112 makes a real /dev/i2c-N and gpiochip of it; the chips on
its bus are edged's register models. It is unplugged when this process ends.

Commands on stdin, each answered, are lines of JSON:
`["plug", 118, "bmp280", {}]`: puts a driver's model at an address, made with these arguments;
`["unplug", 118]`; `["set", 118, "temperature_cel", 25.08]`: what is true around it;
`["trace"]`: transactions since it was asked last: address, bytes written in hexadecimal,
number of bytes read;
`["pull", 3, true]`: what is wired to a line gives it this level;
`["levels"]`: the levels of the eight lines, lowest first, as a meter shows them.

Source: Silicon Labs AN495, CP2112 interface specification, revision 0.2 (numbers and
layout of the reports); linux/uhid.h and Documentation/hid/uhid.rst of the kernel.
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
from typing import Any

from edged import plugins
from edged.bus.faults import NackError
from edged.bus.sim.i2c import Target, on_bus
from edged.clock import SystemClock

# AN495, numbers of the reports.
GPIO_CONFIG, GPIO_GET, GPIO_SET, VERSION, SMBUS_CONFIG = 0x02, 0x03, 0x04, 0x05, 0x06
READ, WRITE_READ, READ_SEND, READ_RESPONSE, WRITE = 0x10, 0x11, 0x12, 0x13, 0x14
STATUS, STATUS_RESPONSE, CANCEL = 0x15, 0x16, 0x17
LOCK_BYTE = 0x20

CHUNK = 61
"""Bytes of one read response and of one write at most."""
IDLE, COMPLETE, ERROR = 0x00, 0x02, 0x03
NACKED, SUCCEEDED = 0x00, 0x05

FEATURES = {GPIO_CONFIG: 4, GPIO_GET: 1, GPIO_SET: 2, VERSION: 2, SMBUS_CONFIG: 12, LOCK_BYTE: 1}
OUTPUTS = {READ: 3, WRITE_READ: 20, READ_SEND: 2, WRITE: 62, STATUS: 1, CANCEL: 1}
INPUTS = {READ_RESPONSE: 63, STATUS_RESPONSE: 6}
"""Bytes of the reports, their number not counted."""

# linux/uhid.h
UHID_OUTPUT, UHID_GET_REPORT, UHID_GET_REPORT_REPLY = 6, 9, 10
UHID_CREATE2, UHID_INPUT2, UHID_SET_REPORT, UHID_SET_REPORT_REPLY = 11, 12, 13, 14
DATA_MAX = 4096
EVENT_MAX = 4380
BUS_USB = 0x03
VENDOR, PRODUCT = 0x10C4, 0xEA90

EIO = 5
POWER_ON = {
    GPIO_CONFIG: bytes(4),
    # Part number; the third silicon revision has repeated starts.
    VERSION: bytes([0x0C, 0x03]),
    SMBUS_CONFIG: struct.pack(">IBBHHBH", 100_000, 0x02, 0, 0, 0, 0, 0),
    LOCK_BYTE: b"\xff",
}


def descriptor() -> bytes:
    """The HID report descriptor: every report is an array of bytes of the vendor's own."""
    made = bytes.fromhex("0600ff 0901 a101 1500 26ff00 7508")
    for reports, item in ((FEATURES, "b102"), (OUTPUTS, "9102"), (INPUTS, "8102")):
        for number, length in reports.items():
            made += bytes([0x85, number, 0x95, length, 0x09, 0x01]) + bytes.fromhex(item)
    return made + b"\xc0"


class Bridge:
    """The chip: what reports do, and what is wired to it.

    Attributes:
        targets: register models by address.
        pulled: level of each line by what is wired to it.
        trace: each transaction: address, bytes written, number of bytes read.
    """

    def __init__(self) -> None:
        self.targets: dict[int, Target] = {}
        self.pulled = [True] * 8
        self.trace: list[tuple[int, str, int]] = []
        self._settings = dict(POWER_ON)
        self._latch = 0
        self._status = bytes([IDLE, 0, 0, 0, 0, 0])
        self._data = b""

    def feature(self, number: int) -> bytes | None:
        """What a feature report holds; None of one that is not modelled."""
        if number == GPIO_GET:
            return bytes([sum(level << line for line, level in enumerate(self.levels()))])
        return self._settings.get(number)

    def set_feature(self, number: int, data: bytes) -> None:
        if number == GPIO_SET:
            values, mask = data[:2]
            self._latch = self._latch & ~mask | values & mask
        else:
            self._settings[number] = data

    def levels(self) -> list[bool]:
        """Of all lines: outputs as they were set, inputs as they are pulled."""
        outputs = self._settings[GPIO_CONFIG][0]
        return [
            bool(self._latch >> line & 1) if outputs >> line & 1 else pulled
            for line, pulled in enumerate(self.pulled)
        ]

    def output(self, number: int, data: bytes) -> list[bytes]:
        """Does what an output report says; the input reports that answer it."""
        if number == READ:
            self._transfer(data[0], b"", int.from_bytes(data[1:3], "big"))
        elif number == WRITE_READ:
            self._transfer(data[0], data[4 : 4 + data[3]], int.from_bytes(data[1:3], "big"))
        elif number == WRITE:
            self._transfer(data[0], data[2 : 2 + data[1]], 0)
        elif number == STATUS:
            return [bytes([STATUS_RESPONSE]) + self._status]
        elif number == READ_SEND:
            return self._send(int.from_bytes(data[:2], "big"))
        elif number == CANCEL:
            self._status, self._data = bytes([IDLE, 0, 0, 0, 0, 0]), b""
        return []

    def _transfer(self, address: int, write: bytes, read_len: int) -> None:
        self.trace.append((address >> 1, write.hex(), read_len))
        targets = on_bus(self.targets, address >> 1)
        self._data = b""
        try:
            if not targets:
                raise NackError
            for target in targets:
                if write:
                    target.write(write)
            if read_len:
                self._data = targets[0].read(read_len)
        except NackError:
            self._status = bytes([ERROR, NACKED, 0, 1, 0, 0])
        else:
            self._status = struct.pack(">BBHH", COMPLETE, SUCCEEDED, 0, len(self._data))

    def _send(self, length: int) -> list[bytes]:
        sent, self._data = self._data[:length], self._data[length:]
        chunks = [sent[at : at + CHUNK] for at in range(0, len(sent), CHUNK)] or [b""]
        return [
            bytes([READ_RESPONSE, COMPLETE, len(chunk)]) + chunk.ljust(CHUNK, b"\0")
            for chunk in chunks
        ]


class Uhid:
    """The kernel's side of a HID device that this process is."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.descriptor = os.open("/dev/uhid", os.O_RDWR | os.O_CLOEXEC)
        described = descriptor()
        self._write(
            struct.pack(
                f"<I128s64s64sHHIIII{DATA_MAX}s",
                *(UHID_CREATE2, b"CP2112 HID USB-to-SMBus Bridge", b"", b""),
                *(len(described), BUS_USB, VENDOR, PRODUCT, 0x0100, 0, described),
            )
        )

    def serve(self) -> None:
        """Handles one event."""
        event = os.read(self.descriptor, EVENT_MAX)
        (kind,) = struct.unpack_from("<I", event)
        if kind == UHID_OUTPUT:
            data, size = struct.unpack_from(f"<{DATA_MAX}sH", event, 4)
            for report in self._bridge.output(data[0], data[1:size]):
                self._write(struct.pack("<IH", UHID_INPUT2, len(report)) + report)
        elif kind == UHID_GET_REPORT:
            asked, number, _ = struct.unpack_from("<IBB", event, 4)
            held = self._bridge.feature(number)
            report = b"" if held is None else bytes([number]) + held
            head = (UHID_GET_REPORT_REPLY, asked, 0 if report else EIO, len(report))
            self._write(struct.pack("<IIHH", *head) + report)
        elif kind == UHID_SET_REPORT:
            asked, number, _, size = struct.unpack_from("<IBBH", event, 4)
            start = 4 + struct.calcsize("<IBBH")
            self._bridge.set_feature(number, event[start + 1 : start + size])
            self._write(struct.pack("<IIH", UHID_SET_REPORT_REPLY, asked, 0))

    def _write(self, event: bytes) -> None:
        os.write(self.descriptor, event)


def obey(bridge: Bridge, verb: str, *words: Any) -> Any:
    """Does one command of stdin; its answer."""
    if verb == "plug":
        address, driver, arguments = words
        model = plugins.load("edged.drivers", driver).Sim
        bridge.targets[address] = model(SystemClock(), **arguments)
    elif verb == "unplug":
        del bridge.targets[words[0]]
    elif verb == "set":
        address, name, value = words
        setattr(bridge.targets[address], name, value)
    elif verb == "pull":
        line, level = words
        bridge.pulled[line] = level
    elif verb == "levels":
        return bridge.levels()
    elif verb == "trace":
        seen, bridge.trace = bridge.trace, []
        return seen
    return None


def main(commands: str) -> None:
    bridge = Bridge()
    for command in json.loads(commands):
        obey(bridge, *command)
    uhid = Uhid(bridge)
    poll = select.poll()
    for descriptor in (uhid.descriptor, 0):
        poll.register(descriptor, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == uhid.descriptor:
                uhid.serve()
                continue
            line = sys.stdin.readline()
            if not line:
                return
            print(json.dumps(obey(bridge, *json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
