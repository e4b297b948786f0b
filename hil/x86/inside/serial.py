"""A USB serial adapter that is pulled out and plugged in; run in the guest."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from edged.bus import SerialSettings
from edged.bus.serial import KernelSerial
from edged.errors import NoDeviceError
from hil.x86.inside.bridge import BOUND_S, until
from hil.x86.inside.daemon import Daemon
from hil.x86.inside.hands import BY_ID, SERIAL, grown

PULLS = 50

FIX = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"
"""NMEA 0183's own example: 48.1173 N, 11.516667 E."""
CONFIG = f"""
board:
  sensors:
    gps: {{driver: nmea, bus: {BY_ID}, baudrate: 115200, every: 1s, history: false}}
"""


@pytest.fixture
def hands():
    had = grown()
    yield had
    if had.is_plugged:
        had.pull()


@pytest.fixture
async def serial():
    made = KernelSerial()
    yield made
    await made.close()


def held():
    """Descriptors of ttys that are held."""
    links = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return [str(link.readlink()) for link in links if "ttyUSB" in str(link.readlink())]


async def test_it_is_named(hands, serial):
    hands.plug()
    info = await serial.find(BY_ID)
    assert info == await serial.find(f"usb:0403:6001:{SERIAL}")
    assert (info.name, info.vid_pid, info.serial_number) == ("ttyUSB0", "0403:6001", SERIAL)
    assert info.by_id == BY_ID


async def test_pulled_out_while_read_it_is_lost_once_and_found_again(hands, serial):
    """Issue 3, shows: the same name again, and no lost or doubled byte between."""
    sent = 0
    for _ in range(PULLS):
        hands.plug()
        port = await serial.open(BY_ID, SerialSettings(baudrate=115_200), "test")
        assert port.name == "ttyUSB0"
        chunk = bytes((sent + i) % 251 for i in range(100))
        os.write(hands.far, chunk)
        sent += len(chunk)
        assert await port.read(len(chunk), BOUND_S) == chunk
        reading = asyncio.create_task(port.read(1, BOUND_S))
        await asyncio.to_thread(hands.pull)
        with pytest.raises(NoDeviceError, match="ttyUSB0 was unplugged or hung up"):
            await reading
        for again in (port.read(1, BOUND_S), port.write(b"x")):
            with pytest.raises(NoDeviceError):
                await again
        # No descriptor of it is left, which would be ready to read for ever.
        assert held() == []
    began = time.process_time()
    await asyncio.sleep(1.0)
    assert time.process_time() - began < 0.1


@pytest.fixture
def daemon(tmp_path):
    started = Daemon(tmp_path, CONFIG)
    yield started
    print(started.log)
    started.stop()


@pytest.fixture
def satellites(hands):
    """They are seen, as long as there is a wire to say so."""
    done = threading.Event()

    def talk():
        while not done.wait(0.2):
            if hands.is_plugged:
                os.write(hands.far, FIX)

    thread = threading.Thread(target=talk)
    thread.start()
    yield
    done.set()
    thread.join()


def test_a_receiver_is_lost_once_each_time_it_is_pulled_out(hands, satellites, daemon):
    """Issue 3, shows: one lost event each, the same name again after replug."""
    until("it is missed", lambda: daemon.states() == {"gps": "absent"})
    for _ in range(3):
        hands.plug()
        until("it is found", lambda: daemon.states() == {"gps": "ready"})
        hands.pull()
        until("it is lost", lambda: daemon.states() == {"gps": "lost"})
    told = [fact["state"] for fact in daemon.events("sensor.state")]
    assert told == ["absent", *["ready", "lost"] * 3]
    readings = daemon.events("sensor.reading")
    assert {round(fact["values"]["lat"], 4) for fact in readings} == {48.1173}
