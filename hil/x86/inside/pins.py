"""`edged.bus.gpio` on the bridge's eight lines; run in the guest."""

import asyncio
import time

import pytest

from edged.bus import LineSettings
from edged.bus.gpio import KernelGpio
from edged.errors import NoDeviceError

BOUND_S = 20.0


@pytest.fixture
async def gpio(bridge):
    made = KernelGpio()
    yield made
    await made.close()


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
