"""Raw transfers take turns: a caller's many do not keep a bus from the others."""

import asyncio
from functools import partial

import msgspec
import pytest

from edged.board import Board
from edged.bus.settings import BoardConfig
from edged.bus.sim import SimBuses, SimI2c, SimSpi
from edged.identity import Caller
from edged.tools import _turns, i2c, spi
from edged.tools._turns import turn
from edged.tools.sensors import history_of

OTHER = Caller("local", "agent", "", "unix", "uid 1002")
MANY = 40


class Chip:
    """Remembers who was asked, in order; on either bus."""

    def __init__(self):
        self.order = []

    def write(self, data):
        self.order.append(data[0])

    def read(self, length):
        return bytes(length)

    def transfer(self, write):
        self.order.append(write[0])
        return bytes(len(write))


@pytest.fixture
def chip(core):
    core.add(*i2c.TOOLS, *spi.TOOLS)
    made = Chip()
    buses = SimBuses(
        i2c={"i2c-1": SimI2c("i2c-1", {0x48: made})},
        spi={name: SimSpi(name, made) for name in ("spi0.0", "spi0.1")},
    )
    board = Board(BoardConfig(allow=["spi0.0", "spi0.1"]), buses, core.clock)
    core.dispatcher.services = msgspec.structs.replace(core.dispatcher.services, board=board)
    return made


def i2c_read(mark):
    return "i2c", {"bus": 1, "address": 0x48, "register": mark}


def spi_transfer(mark):
    return "spi", {"device": f"spi0.{mark // 200}", "action": "transfer", "data": [mark]}


def start(core, caller, name, arguments):
    return core.dispatcher.start(caller, None, name, msgspec.json.encode(arguments))


@pytest.mark.parametrize("form", [i2c_read, spi_transfer])
async def test_the_owner_does_not_wait_for_all_of_an_agents_transfers(core, chip, form):
    """Whoever comes last waits for two of each other caller, and nothing is refused."""
    calls = [start(core, core.agent, *form(mark)) for mark in range(MANY)]
    calls += [start(core, OTHER, *form(100 + mark)) for mark in range(MANY)]
    await asyncio.sleep(0)
    calls.append(start(core, core.owner, *form(200)))
    async with asyncio.timeout(core.bound_s):
        results = [await call.wait() for call in calls]
    assert not any(result.is_error for result in results)
    assert len(chip.order) == 2 * MANY + 1
    # Two more may have begun before the owner's was there.
    assert chip.order.index(200) <= 6
    # One caller's come in the order of asking.
    for first in (0, 100):
        marks = [mark for mark in chip.order if first <= mark < first + 100]
        assert marks == list(range(first, first + MANY))


async def test_scans_take_turns_too(core, chip):
    """A scan is more than a hundred transfers."""
    scans = [start(core, core.agent, "i2c", {"bus": 1, "action": "scan"}) for _ in range(8)]
    await asyncio.sleep(0)
    async with asyncio.timeout(core.bound_s):
        await start(core, core.owner, *i2c_read(1)).wait()
        assert sum(scan.done for scan in scans) <= 2
        for scan in scans:
            await scan.wait()


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("i2c-1", "i2c-1/0x70/3", True),
        ("i2c-1/0x70/3", "i2c-1/0x71/0", True),
        ("i2c-1", "i2c-11", False),
        ("spi0.0", "spi0.1", True),
        ("spi0.0", "spi1.0", False),
    ],
)
async def test_channels_and_chip_selects_are_of_one_bus(core, first, second, is_one):
    """There are many names for the same wires."""
    board = core.board
    async with turn(board, first, "uid 1"), turn(board, first, "uid 1"):
        async with turn(board, first, "uid 2"):
            pass
        began = asyncio.Event()

        async def third():
            async with turn(board, second, "uid 1"):
                began.set()

        waiting = asyncio.create_task(third())
        await asyncio.sleep(0)
        assert began.is_set() is not is_one
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_who_gives_up_while_waiting_leaves_nothing_behind(core, chip):
    """No queue outlives its calls."""
    calls = [start(core, core.agent, *i2c_read(mark)) for mark in range(MANY)]
    await asyncio.sleep(0)
    tasks = [call.task for call in calls]
    for call in calls[::2]:
        call.cancel()
    await asyncio.wait(tasks)
    assert not any(call.result.is_error for call in calls[1::2])
    assert not _turns._queues


async def test_one_callers_queries_of_the_history_do_not_keep_the_others_waiting(core):
    """Nor are they refused: a page asks for many sensors at once."""

    class Disk:
        def __init__(self):
            self.asked, self.go = [], asyncio.Event()

        async def read(self, name, channel, since, step_s):
            self.asked.append(channel)
            await self.go.wait()
            return ()

    disk = Disk()
    services = msgspec.structs.replace(core.dispatcher.services, history=disk)
    ask = partial(history_of, services, "greenhouse", since="1h", step=0)
    asking = [asyncio.create_task(ask("temperature", who="uid 1001")) for _ in range(MANY)]
    await asyncio.sleep(0)
    asking.append(asyncio.create_task(ask("humidity", who="uid 0")))
    await asyncio.sleep(0)
    assert disk.asked == ["temperature", "temperature", "humidity"]
    disk.go.set()
    async with asyncio.timeout(core.bound_s):
        await asyncio.gather(*asking)
    assert len(disk.asked) == MANY + 1
