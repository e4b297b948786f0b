"""Channels of a TCA9548A are buses (TI SCPS207H, 8.5.3: one byte, one bit a channel).

The reported faults are CircuitPython_TCA9548A #8, #29 (an error inside the lock
was a deadlock) and #49 (the same address before and behind the multiplexer).
"""

import asyncio

import pytest

from edged.bus.mux import MuxI2c
from edged.bus.sim import SimI2c, SimMux
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError

MUX = 0x70


class Memory:
    """A register model of plain memory, whose bytes all are the same."""

    def __init__(self, value):
        self.value = value
        self.written, self.reads = [], 0

    def write(self, data):
        self.written.append(data)

    def read(self, length):
        self.reads += 1
        return bytes([self.value]) * length


@pytest.fixture
def mux():
    return SimMux({0: {0x48: Memory(0x11)}, 3: {0x48: Memory(0x33), 0x50: Memory(0x55)}})


@pytest.fixture
def parent(mux):
    return SimI2c("i2c-1", {MUX: mux, 0x76: Memory(0x76)})


def channel(parent, number):
    return MuxI2c(parent, MUX, number)


async def test_the_same_address_on_two_channels_is_two_chips(parent, mux):
    first, second = channel(parent, 0), channel(parent, 3)
    answers = await asyncio.gather(
        *[bus.transfer(0x48, b"\x00", 1) for bus in [first, second] * 8]
    )
    assert answers == [b"\x11", b"\x33"] * 8
    assert mux.control == 0


def test_a_channel_is_named_after_its_parent_and_multiplexer(parent):
    assert channel(parent, 3).name == "i2c-1/0x70/3"
    assert MuxI2c(channel(parent, 3), 0x71, 0).name == "i2c-1/0x70/3/0x71/0"


@pytest.mark.parametrize("number", [-1, 8])
def test_a_channel_that_cannot_be_is_refused(parent, number):
    with pytest.raises(NoDeviceError, match="channels 0 to 7"):
        channel(parent, number)


async def test_one_channel_is_on_for_the_whole_of_a_held_sequence(parent, mux):
    async with channel(parent, 3).hold() as held:
        assert mux.control == 0b1000
        await held.transfer(0x48, b"\x01")
        assert mux.control == 0b1000
        assert await held.transfer(0x48, b"", 2) == b"\x33\x33"
    assert mux.control == 0


async def test_the_parent_is_held_meanwhile(parent):
    order = []

    async def outside():
        await parent.transfer(0x76, b"", 1)
        order.append("outside")

    async with channel(parent, 0).hold() as held:
        waiting = asyncio.create_task(outside())
        for _ in range(5):
            await held.transfer(0x48, b"", 1)
        order.append("inside")
    await waiting
    assert order == ["inside", "outside"]


async def test_an_error_behind_it_names_the_channel_and_turns_it_off(parent, mux):
    """Fault 15: the error inside the lock left the bus locked for ever."""
    bus = channel(parent, 3)
    with pytest.raises(NoDeviceError, match="address 0x49 on i2c-1/0x70/3"):
        await bus.transfer(0x49, b"\x00", 1)
    assert mux.control == 0
    parent.fail(0x48, "timeout", times=1)
    with pytest.raises(BusError, match="0x48: the bus is stuck"):
        await bus.transfer(0x48, b"\x00", 1)
    assert mux.control == 0
    assert await bus.transfer(0x48, b"\x00", 1) == b"\x33"


async def test_an_error_of_the_caller_turns_the_channel_off(parent, mux):
    with pytest.raises(ValueError, match="the caller's"):
        async with channel(parent, 3).hold():
            raise ValueError("the caller's own")
    assert mux.control == 0


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancelled_caller_turns_the_channel_off_wherever_it_was(parent, mux, steps):
    """Cancelled twice: the second time, perhaps, while the channel is being turned off."""
    task = asyncio.create_task(channel(parent, 3).transfer(0x48, b"\x00", 1))
    for _ in range(steps):
        await asyncio.sleep(0)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert mux.control == 0
    assert await channel(parent, 0).transfer(0x48, b"\x00", 1) == b"\x11"


async def test_what_went_wrong_first_is_what_is_told(parent):
    async with channel(parent, 3).hold() as held:
        pass
    with pytest.raises(BusError, match="address 0x48"):
        async with channel(parent, 3).hold() as held:
            parent.stuck = True
            await held.transfer(0x48, b"\x00", 1)


async def test_a_channel_that_could_not_be_turned_off_is_an_error(parent):
    with pytest.raises(BusError, match="address 0x70: the bus is stuck"):
        async with channel(parent, 3).hold():
            parent.stuck = True


async def test_a_cancelled_caller_is_cancelled_though_turning_off_failed(parent):
    async def work():
        async with channel(parent, 3).hold():
            parent.stuck = True
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    for _ in range(5):
        await asyncio.sleep(0)
    assert parent.stuck
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_absent_multiplexer_is_named(parent):
    with pytest.raises(NoDeviceError, match=r"i2c-1/0x71/2: no multiplexer: .*0x71 on i2c-1"):
        await MuxI2c(parent, 0x71, 2).transfer(0x48, b"\x00", 1)


async def test_the_multiplexers_own_address_is_refused_before_a_byte_moves(parent, mux):
    with pytest.raises(InvalidArgumentsError, match="0x70 is the multiplexer of i2c-1/0x70/3"):
        await channel(parent, 3).transfer(MUX, b"\xff")
    assert mux.control == 0


async def test_only_what_is_behind_the_channel_is_detected(parent, mux):
    """What is before the multiplexer answers on each channel, and is none of them."""
    found = [address for address in range(0x03, 0x78) if await channel(parent, 3).detect(address)]
    assert found == [0x48, 0x50]
    assert mux.control == 0


async def test_eeproms_are_detected_by_a_byte(parent, mux):
    """A quick write may spoil those of the AT24RF08 kind: i2cdetect(8)."""
    for address in (0x48, 0x50):
        assert await channel(parent, 3).detect(address)
    assert [mux.channels[3][address].reads for address in (0x48, 0x50)] == [0, 1]


async def test_a_channel_that_was_left_on_does_not_hide_its_chips(parent, mux):
    mux.write(b"\x08")
    assert await channel(parent, 3).detect(0x48)


async def test_an_adapter_without_quick_writes_detects_by_a_byte(parent):
    """Fault 17: there SMBus has no transaction of an address alone (EOPNOTSUPP)."""

    class NoQuick(SimI2c):
        async def _transfer(self, address, write, read_len):
            if not write and not read_len:
                raise BusError(95, "cannot do a transfer of this shape")
            return await super()._transfer(address, write, read_len)

    bus = MuxI2c(NoQuick("i2c-1", parent.targets), MUX, 3)
    assert [address for address in (0x48, 0x49, 0x76) if await bus.detect(address)] == [0x48]


async def test_detecting_on_a_stuck_bus_is_an_error(parent):
    parent.stuck = True
    with pytest.raises(BusError, match="stuck"):
        await channel(parent, 3).detect(0x48)


async def test_a_timeout_behind_it_is_an_error_of_detecting_too(parent, mux):
    parent.fail(0x48, "timeout", times=1)
    with pytest.raises(BusError, match="stuck"):
        await channel(parent, 3).detect(0x48)
    assert mux.control == 0


async def test_what_a_kernel_driver_owns_before_it_is_owned_behind_it(parent):
    parent.owners[0x48] = "lm75"
    bus = channel(parent, 3)
    assert bus.owner(0x48) == "lm75"
    assert await bus.detect(0x48)
    with pytest.raises(BusyError):
        await bus.transfer(0x48, b"\x00", 1)


async def test_a_multiplexer_behind_a_multiplexer_is_a_bus_too(parent, mux):
    inner = SimMux({7: {0x48: Memory(0x77)}})
    mux.channels = {1: {0x71: inner}}
    bus = MuxI2c(channel(parent, 1), 0x71, 7)
    assert await bus.transfer(0x48, b"\x00", 1) == b"\x77"
    assert (mux.control, inner.control) == (0, 0)


# The simulated one --------------------------------------------------------------------------


async def test_two_chips_at_once_on_one_address_spoil_each_other(parent, mux):
    """An open-drain line: a low level of either wins."""
    await parent.transfer(MUX, bytes([0b1001]))
    assert await parent.transfer(0x48, b"\x00", 1) == bytes([0x11 & 0x33])
    assert mux.channels[0][0x48].written == mux.channels[3][0x48].written == [b"\x00"]


async def test_its_control_register_reads_back_and_is_off_after_a_brown_out(parent, mux):
    await parent.transfer(MUX, b"\x01\x05")
    assert await parent.transfer(MUX, b"", 2) == b"\x05\x05"
    parent.brown_out(MUX)
    assert mux.control == 0
    assert not await parent.detect(0x48)
