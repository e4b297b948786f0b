"""Every I2C bus: `edged.bus.I2c`, on whatever adapter and chips there are."""

import asyncio

import pytest

from edged.errors import BusError, BusyError, EdgedError, InvalidArgumentsError, NoDeviceError
from tests.conformance.benches import BOUND_S

pytestmark = pytest.mark.needs("i2c")
memory = pytest.mark.needs("i2c.memory")
limits = pytest.mark.needs("i2c.memory", "i2c.limits")


@pytest.fixture
def bus(i2c_bench):
    return i2c_bench.bus


async def steps(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def check(bench):
    """The bus is usable."""
    for address, pointer, content in bench.registers:
        async with asyncio.timeout(BOUND_S):
            assert await bench.bus.transfer(address, pointer, len(content)) == content


async def test_registers_hold_what_their_chips_are_known_to_hold(i2c_bench):
    """Of one byte and of more, their addresses likewise."""
    assert i2c_bench.registers
    await check(i2c_bench)


@memory
async def test_what_is_written_is_read_back_and_nothing_else_was_written(i2c_bench):
    page = i2c_bench.memory.page
    await i2c_bench.write(0, bytes(page))
    await i2c_bench.write(2, b"\xca\xfe\xba")
    assert await i2c_bench.read(0, 6) == b"\0\0\xca\xfe\xba\0"
    assert await i2c_bench.read(3, 1) == b"\xfe"
    every = bytes(range(256 - page, 256))
    await i2c_bench.write(0, every)
    assert await i2c_bench.read(0, page) == every


@pytest.mark.needs("i2c.memory", "i2c.trace")
async def test_a_register_is_read_in_one_transaction(i2c_bench):
    """UM10204, 3.1.10: a repeated start between the register's address and the data."""
    chip = i2c_bench.memory
    i2c_bench.trace()
    await i2c_bench.read(0, 4)
    await i2c_bench.bus.transfer(chip.address, b"", 1)
    assert i2c_bench.trace() == [(chip.address, chip.pointer(0), 4), (chip.address, b"", 1)]


@memory
async def test_a_chip_counts_its_address_up_from_one_transfer_to_the_next(i2c_bench):
    """AT24C32, current address read; likewise of registers that count up."""
    chip = i2c_bench.memory
    await i2c_bench.write(0, b"\x01\x02\x03\x04")
    async with i2c_bench.bus.hold() as held:
        assert await held.transfer(chip.address, chip.pointer(1), 1) == b"\x02"
        assert await held.transfer(chip.address, b"", 1) == b"\x03"


@limits
async def test_the_longest_transfers_go_through(i2c_bench):
    """Beyond SMBus's 32 bytes as far as the adapter can, in one or in several (fault 17)."""
    chip = i2c_bench.memory
    await i2c_bench.write(0, b"\x5a" * 4)
    found = await i2c_bench.read(0, i2c_bench.longest_read)
    assert len(found) == i2c_bench.longest_read
    assert found[:4] == b"\x5a" * 4
    await i2c_bench.write(0, b"\xa5" * (i2c_bench.longest_write - chip.pointer_len))
    assert await i2c_bench.read(0, 4) == b"\xa5" * 4


@limits
async def test_longer_ones_are_refused_before_a_byte_moves(i2c_bench):
    """Issue 3, part 1."""
    chip, bus = i2c_bench.memory, i2c_bench.bus
    await i2c_bench.write(0, b"\x11\x22")
    too_long = chip.pointer(0) + bytes(i2c_bench.longest_write + 1 - chip.pointer_len)
    for write, read_len in ((too_long, 0), (chip.pointer(0), i2c_bench.longest_read + 1)):
        with pytest.raises((BusError, InvalidArgumentsError), match="too long|shape|more than"):
            await bus.transfer(chip.address, write, read_len)
    assert await i2c_bench.read(0, 2) == b"\x11\x22"


@pytest.mark.parametrize(
    ("address", "write_len", "read_len", "paths"),
    [
        (0x50, 8193, 0, ["write"]),
        (0x50, 1, 8193, ["read_len"]),
        (0xEC, 1, 1, ["address"]),
        (-1, 9000, 9000, ["write", "read_len", "address"]),
    ],
)
async def test_what_no_bus_can_is_refused_with_every_fault(
    i2c_bench, address, write_len, read_len, paths
):
    """linux/i2c-dev.h: 8192 bytes a message; UM10204: addresses of 7 bits."""
    with pytest.raises(InvalidArgumentsError) as caught:
        await i2c_bench.bus.transfer(address, bytes(write_len), read_len)
    assert [fault.path for fault in caught.value.faults] == paths


async def test_an_absent_address_is_named_with_its_bus_and_costs_no_other_its_answer(i2c_bench):
    """Issue 3, part 1; whatever errno the adapter has for it."""
    await check(i2c_bench)
    absent = i2c_bench.absent
    for _ in range(4):
        with pytest.raises(NoDeviceError, match=f"{absent:#04x} on {i2c_bench.bus.name}"):
            await i2c_bench.bus.transfer(absent, b"\x00", 1)
    # Its breaker stayed closed: it is no stuck bus.
    await check(i2c_bench)
    assert not await i2c_bench.bus.detect(absent)


@pytest.mark.needs("i2c.scan")
async def test_a_scan_finds_what_is_there_and_nothing_else(i2c_bench):
    found = {address for address in range(0x08, 0x78) if await i2c_bench.bus.detect(address)}
    assert found == i2c_bench.chips
    await check(i2c_bench)


@pytest.mark.needs("i2c.owner")
async def test_an_address_of_the_kernel_is_refused_with_its_drivers_name(i2c_bench):
    """Issue 3, part 3; fault 25: I2C_RDWR would reach the chip behind that driver's back."""
    bus = i2c_bench.bus
    with i2c_bench.own() as (address, driver):
        assert bus.owner(address) == driver
        with pytest.raises(BusyError, match=f"{address:#04x}: the kernel's driver {driver} owns"):
            await bus.transfer(address, b"\x00", 1)
        assert await bus.detect(address)
    await check(i2c_bench)


@memory
async def test_nothing_comes_between_the_transfers_of_a_holder(i2c_bench):
    """Fault 14: another's transfer between pointer and read gave the other's byte."""
    chip, bus = i2c_bench.memory, i2c_bench.bus
    await i2c_bench.write(0, bytes(range(1, 9)))

    async def pair(offset):
        async with bus.hold() as held:
            await held.transfer(chip.address, chip.pointer(offset))
            await asyncio.sleep(0)
            return await held.transfer(chip.address, b"", 1)

    async def once(offset):
        return await bus.transfer(chip.address, chip.pointer(offset), 1)

    found = await asyncio.gather(*((pair, once)[i % 2](i % 8) for i in range(24)))
    assert found == [bytes([i % 8 + 1]) for i in range(24)]


@memory
async def test_a_measurement_that_the_bus_does_is_one_as_well(i2c_bench):
    """`I2c.run`: on the thread of a real bus, between others of the loop; cancelled at any step."""
    chip, bus = i2c_bench.memory, i2c_bench.bus
    await i2c_bench.write(0, bytes(range(1, 9)))

    async def pair(offset):
        async with bus.hold() as held:
            await held.transfer(chip.address, chip.pointer(offset))
            await bus.pause(0.001, asyncio.sleep)
            return await held.transfer(chip.address, b"", 1)

    async def measure(offset):
        return await bus.run(pair(offset), asyncio.sleep)

    found = await asyncio.gather(*((measure, pair)[i % 2](i % 8) for i in range(8)))
    assert found == [bytes([i + 1]) for i in range(8)]
    for count in range(8):
        given_up, last = (asyncio.create_task(measure(offset)) for offset in (0, 1))
        await steps(count)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert await asyncio.wait_for(last, BOUND_S) == b"\x02"


@memory
async def test_a_cancelled_caller_never_blocks_the_next(i2c_bench):
    """Issue 3, part 1; fault 16: at every step, one who transfers, who waits and who holds."""
    chip, bus = i2c_bench.memory, i2c_bench.bus
    await i2c_bench.write(0, b"\x07")

    async def stay():
        async with bus.hold() as held:
            await held.transfer(chip.address, chip.pointer(0), 1)
            await asyncio.Event().wait()

    for count in range(8):
        callers = [
            asyncio.create_task(i2c_bench.read(0, 1)),
            asyncio.create_task(stay()),
            asyncio.create_task(i2c_bench.read(0, 1)),
        ]
        last = asyncio.create_task(i2c_bench.read(0, 1))
        await steps(count)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        assert await asyncio.wait_for(last, BOUND_S) == b"\x07"


async def test_a_failed_caller_never_blocks_the_next(i2c_bench):
    await check(i2c_bench)
    address, pointer, content = i2c_bench.registers[0]
    bus = i2c_bench.bus

    async def fail():
        async with bus.hold() as held:
            await held.transfer(i2c_bench.absent, b"\x00", 1)

    failed, also, served = await asyncio.gather(
        fail(),
        bus.transfer(i2c_bench.absent, b"\x00", 1),
        bus.transfer(address, pointer, len(content)),
        return_exceptions=True,
    )
    assert isinstance(failed, NoDeviceError)
    assert isinstance(also, EdgedError)
    assert served == content
