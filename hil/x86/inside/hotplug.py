"""`edged serve` while a bus with sensors is pulled out and plugged in; run in the guest."""

from __future__ import annotations

import asyncio
import time

import pytest

from edged.bus.gpio import KernelGpio
from hil.x86.inside.bridge import Bridge, until
from hil.x86.inside.daemon import Daemon

CHIPS = {0x76: "bmp280", 0x48: "lm75"}
CONFIG = """
board:
  sensors:
    often: {driver: bmp280, bus: i2c-0, address: 0x76, every: 1s, history: false}
    seldom: {driver: lm75, bus: i2c-0, address: 0x48, every: 1h, history: false}
  gpio:
    door: {line: cp2112_gpio/3, direction: input, edge: falling}
"""


@pytest.fixture
def daemon(tmp_path):
    started = Daemon(tmp_path, CONFIG)
    yield started
    print(started.log)
    started.stop()


async def consumers():
    """Who holds lines, as the kernel tells it."""
    gpio = KernelGpio()
    try:
        return {state.consumer for state in await gpio.lines()}
    finally:
        await gpio.close()


def opened(bridge, daemon):
    """Opens the door for longer than the kernel looks away, and shuts it; edges told so far."""
    for level in (False, True):
        bridge.ask("pull", 3, level)
        time.sleep(0.2)
    return len(daemon.events("gpio.edge"))


def test_what_comes_and_goes_is_noticed_at_once(daemon):
    """Issue 3, parts 2 and 5: the kernel's messages, and one event for each change."""
    assert daemon.tool("i2c") == ("blocked", "requires_device")
    until("nothing was found", lambda: set(daemon.states().values()) == {"absent"})
    for _ in range(2):
        bridge = Bridge(CHIPS)
        try:
            assert bridge.name == "i2c-0"
            # One of them would be looked for again in an hour.
            until("both are found", lambda: set(daemon.states().values()) == {"ready"})
            assert daemon.tool("i2c") == ("enabled", "")
            until("its line is taken", lambda: "edged door" in asyncio.run(consumers()))
            told = len(daemon.events("gpio.edge"))
            until("an edge is told", lambda: opened(bridge, daemon) > told)
        finally:
            bridge.kill()
        until("its loss is noticed", lambda: set(daemon.states().values()) == {"lost"})
        until("its tool is gone", lambda: daemon.tool("i2c") == ("blocked", "requires_device"))
    for sensor in ("often", "seldom"):
        told = [
            fact["state"] for fact in daemon.events("sensor.state") if fact["sensor"] == sensor
        ]
        assert told == ["absent", *["ready", "lost"] * 2]
        assert daemon.log.count(f"sensor {sensor} is lost") == 2
