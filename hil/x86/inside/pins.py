"""`edged.bus.gpio` on the bridge's eight lines; run in the guest."""

import asyncio
import time

import pytest

from edged.bus import LineSettings
from edged.bus.gpio import KernelGpio
from edged.errors import BusyError, NoDeviceError

BOUND_S = 20.0


@pytest.fixture
async def gpio(bridge):
    made = KernelGpio()
    yield made
    await made.close()


async def test_levels_go_out_and_come_in(bridge, gpio):
    """As a meter on the bridge shows them."""
    relay = await gpio.request("cp2112_gpio/6", LineSettings("output", output_value=True), "relay")
    door = await gpio.request("cp2112_gpio/2", LineSettings("input", active_low=True), "door")
    assert bridge.ask("levels")[6]
    await relay.set(False)
    assert not bridge.ask("levels")[6]
    for level in (False, True):
        bridge.ask("pull", 2, level)
        assert await door.get() == (not level)
    names = {state.offset: state.consumer for state in await gpio.lines() if state.used}
    assert names == {2: "door", 6: "relay"}
    with pytest.raises(BusyError, match="'relay'"):
        await gpio.request("cp2112_gpio/6", LineSettings("input"), "other")


async def test_an_edge_on_the_bridge_is_told_and_its_end_too(bridge, gpio):
    """The kernel asks the bridge for its levels some times a second; then it is pulled."""
    edges = asyncio.Queue()

    def told(some):
        for edge in some:
            edges.put_nowait(edge)

    began = time.monotonic()
    settings = LineSettings("input", edge="both")
    bridge.ask("pull", 3, True)
    line = await gpio.request("cp2112_gpio/3", settings, "door", told)
    # Its first look is at the level from which edges count.
    await asyncio.sleep(0.5)
    for sequence, level in enumerate((False, True, False), 1):
        bridge.ask("pull", 3, level)
        edge = await asyncio.wait_for(edges.get(), BOUND_S)
        assert (edge.value, edge.sequence, edge.lost) == (level, sequence, 0)
        assert began < edge.monotonic < time.monotonic()
    bridge.kill()
    async with asyncio.timeout(BOUND_S):
        while line.is_watched:
            await asyncio.sleep(0.05)
    with pytest.raises(NoDeviceError, match="its chip was unplugged"):
        await line.get()
    assert edges.empty()
