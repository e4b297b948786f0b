"""The kernel's side of `edged.bus.i2c`, down to the bytes of each ioctl.

umockdev puts device nodes before this process and hands their ioctls to
`umockdev_i2cdev.Kernel`, which answers as the kernel does. `test_umockdev_i2c` runs this
file under `umockdev-wrapper`, with Debian's Python for the sake of its `gi`.
"""

import asyncio
import errno
import functools
import os
import threading

import pytest

from edged.bus.i2c import KernelI2c, adapter_name, numbers
from edged.bus.mux import MuxI2c
from edged.bus.sim import SimMux
from edged.clock import SystemClock
from edged.drivers import bme280
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock
from tests.integration.bus.umockdev_i2cdev import (
    BCM2835,
    BOUND_S,
    BYTE,
    BYTE_DATA,
    CP2112,
    I2C_BLOCK,
    QUICK,
    READ,
    STUB,
    WORD_DATA,
    WRITE,
    Loop,
    Memory,
    bind,
    plug,
)


@pytest.fixture(scope="module")
def loop():
    with Loop() as running:
        yield running


@pytest.fixture
def testbed(loop):
    return loop.testbed()


@pytest.fixture
def adapter(testbed):
    """Plugs an adapter in: `adapter(1, BCM2835, {0x48: Memory()})`."""
    return functools.partial(plug, testbed)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def i2c(clock):
    """Opens buses by number, and closes them."""
    opened = []

    def open_bus(number):
        opened.append(KernelI2c(number, clock=clock))
        return opened[-1]

    yield open_bus
    for bus in opened:
        bus.close()


def moved(kernel):
    """The ioctls so far; forgets them."""
    ioctls = kernel.ioctls[:]
    kernel.ioctls.clear()
    return ioctls


# The shape of a transaction -----------------------------------------------------------------


async def test_a_register_read_is_one_ioctl_with_a_repeated_start(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    assert await i2c(1).transfer(0x48, b"\x05", 2) == b"\x05\x06"
    assert moved(kernel) == [("RDWR", (0x48, "write", b"\x05"), (0x48, "read", 2))]


async def test_a_register_of_16_bits_is_addressed_in_two_bytes(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x29: Memory()})
    await i2c(1).transfer(0x29, b"\x01\x0f", 1)
    assert moved(kernel) == [("RDWR", (0x29, "write", b"\x01\x0f"), (0x29, "read", 1))]


async def test_a_write_and_a_read_alone_are_one_message(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    assert await bus.transfer(0x48, b"\x02\xaa\xbb") == b""
    assert await bus.transfer(0x48, read_len=3) == b"\x04\x05\x06"
    assert moved(kernel) == [
        ("RDWR", (0x48, "write", b"\x02\xaa\xbb")),
        ("RDWR", (0x48, "read", 3)),
    ]


async def test_an_address_alone_is_a_quick_write(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    assert await i2c(1).transfer(0x48) == b""
    assert moved(kernel) == [("SLAVE", 0x48), ("SMBUS", WRITE, 0, QUICK, b"")]


async def test_reads_beyond_32_bytes_are_one_transaction(adapter, i2c):
    """Fault 17: SMBus ends at 32 bytes; i2c-dev takes 8192 a message."""
    kernel = adapter(1, BCM2835, {0x50: Memory()})
    data = await i2c(1).transfer(0x50, b"\x00", 200)
    assert data == bytes(range(200))
    assert moved(kernel) == [("RDWR", (0x50, "write", b"\x00"), (0x50, "read", 200))]


@pytest.mark.parametrize(
    ("write", "read_len", "path"),
    [(bytes(8193), 0, "write"), (b"\x00", 8193, "read_len")],
)
async def test_what_is_longer_than_a_message_is_refused_before_a_byte_moves(
    adapter, i2c, write, read_len, path
):
    kernel = adapter(1, BCM2835, {0x50: Memory()})
    bus = i2c(1)
    with pytest.raises(InvalidArgumentsError, match="8193 bytes are more than the 8192") as caught:
        await bus.transfer(0x50, write, read_len)
    assert [fault.path for fault in caught.value.faults] == [path]
    assert moved(kernel) == []
    await bus.transfer(0x50, b"\x00", 8192)
    assert moved(kernel) == [("RDWR", (0x50, "write", b"\x00"), (0x50, "read", 8192))]


# A measurement on the bus's thread -----------------------------------------------------------


class Measurement:
    """Two reads of one chip with a pause between, the way drivers do it."""

    def __init__(self, bus, *, held, sleep=asyncio.sleep):
        self.bus, self.held, self.sleep = bus, held, sleep
        self.threads = []

    def run(self):
        return self.bus.run(self._whole(), self.sleep)

    async def _whole(self):
        if not self.held:
            return await self._reads(self.bus)
        async with self.bus.hold() as bus:
            return await self._reads(bus)

    async def _reads(self, bus):
        self.threads.append(threading.current_thread().name)
        first = await bus.transfer(0x48, b"\x10", 1)
        try:
            await self.bus.pause(0, self.sleep)
            return first + await bus.transfer(0x48, b"\x20", 1)
        finally:
            await bus.transfer(0x48, b"\x00\x01")


def reads_of(*ioctls):
    return [("RDWR", (0x48, "write", bytes([n])), (0x48, "read", 1)) for n in ioctls]


SWITCHED_OFF = ("RDWR", (0x48, "write", b"\x00\x01"))


@pytest.mark.parametrize("held", [True, False])
async def test_a_measurement_is_stepped_on_the_thread_of_its_bus(adapter, i2c, held):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    measurement = Measurement(i2c(1), held=held)
    assert await measurement.run() == b"\x10\x20"
    assert measurement.threads == ["i2c-1"]
    assert moved(kernel) == [*reads_of(0x10, 0x20), SWITCHED_OFF]


async def test_others_have_a_bus_in_a_pause_unless_it_is_held(adapter, i2c):
    """Contract: a sequence that holds its bus is not broken by others."""
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)

    async def between(_):
        others.append(asyncio.create_task(bus.transfer(0x48, b"\x30", 1)))
        for _ in range(20):
            await asyncio.sleep(0)
        if not held:
            await others[-1]

    for held in (True, False):
        others = []
        await Measurement(bus, held=held, sleep=between).run()
        assert await asyncio.gather(*others) == [b"\x30"]
        own = [*reads_of(0x10), *reads_of(0x20), SWITCHED_OFF]
        own.insert(3 if held else 1, *reads_of(0x30))
        assert moved(kernel) == own


@pytest.mark.parametrize("held", [True, False])
async def test_a_measurement_that_is_given_up_in_a_pause_still_tidies_up(adapter, i2c, held):
    """A driver's `finally` puts its chip to sleep; the bus is free at once."""
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus, paused = i2c(1), asyncio.Event()

    async def long(_):
        paused.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(Measurement(bus, held=held, sleep=long).run())
    async with asyncio.timeout(BOUND_S):
        await paused.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bus.transfer(0x48, b"\x30", 1)
        await Measurement(bus, held=held).run()
    first, off, other, *rest = moved(kernel)
    assert [first, other] == reads_of(0x10, 0x30)
    assert [off, rest[-1]] == [SWITCHED_OFF] * 2


async def test_a_measurement_that_is_given_up_in_a_transfer_ends_after_it(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    kernel.go_on.clear()
    task = asyncio.create_task(Measurement(bus, held=True).run())
    async with asyncio.timeout(BOUND_S):
        await asyncio.to_thread(kernel.arrived.wait, BOUND_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        kernel.go_on.set()
        await bus.transfer(0x48, b"\x30", 1)
    assert moved(kernel) == [*reads_of(0x10), SWITCHED_OFF, *reads_of(0x30)]


async def test_what_fails_in_a_measurement_is_raised_and_frees_the_bus(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    kernel.errnos.append(errno.EAGAIN)
    with pytest.raises(BusError, match="arbitration was lost"):
        await Measurement(bus, held=True).run()
    assert await Measurement(bus, held=True).run() == b"\x10\x20"


async def test_a_measurement_on_a_closed_bus_says_so(adapter, i2c):
    adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    await bus.transfer(0x48, b"\x30", 1)
    bus.close()
    with pytest.raises(NoDeviceError, match="i2c-1 is closed"):
        await Measurement(bus, held=True).run()


# Errors of the kernel -----------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EREMOTEIO, errno.ENXIO, errno.ENODEV])
async def test_an_absent_address_is_said_to_be_absent_whatever_the_adapter_calls_it(
    adapter, i2c, number
):
    kernel = adapter(1, BCM2835, {})
    kernel.absent = number
    with pytest.raises(NoDeviceError, match="nothing answered at address 0x76 on i2c-1"):
        await i2c(1).transfer(0x76, b"\xd0", 1)


async def test_other_errors_keep_their_errno(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.errnos.append(errno.EAGAIN)
    with pytest.raises(BusError, match="arbitration was lost") as caught:
        await i2c(1).transfer(0x48, b"\x00", 1)
    assert caught.value.errno == errno.EAGAIN


async def test_a_transfer_that_signals_broke_off_is_done_again(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.errnos.extend([errno.EINTR, errno.EINTR])
    assert await i2c(1).transfer(0x48, b"\x09", 1) == b"\x09"
    assert moved(kernel) == [("RDWR", (0x48, "write", b"\x09"), (0x48, "read", 1))] * 3


async def test_signals_without_end_are_an_error(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.errnos.extend([errno.EINTR] * 100)
    with pytest.raises(BusError) as caught:
        await i2c(1).transfer(0x48, b"\x09", 1)
    assert caught.value.errno == errno.EINTR


# Adapters without plain I2C -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "read_len", "smbus"),
    [
        (b"\x05", 1, [(READ, 5, BYTE_DATA, 1)]),
        (b"\x05", 2, [(READ, 5, WORD_DATA, 2)]),
        (b"\x88", 24, [(READ, 0x88, I2C_BLOCK, 24)]),
        (b"\x10", 70, [(READ, 0x10, I2C_BLOCK, 32), (READ, 0x30, I2C_BLOCK, 32), (READ, 0x50, I2C_BLOCK, 6)]),
        (b"", 1, [(READ, 0, BYTE, 1)]),
        (b"\x07", 0, [(WRITE, 7, BYTE, b"\x00")]),
        (b"\x07\x01", 0, [(WRITE, 7, BYTE_DATA, b"\x01")]),
        (b"\x07\x01\x02", 0, [(WRITE, 7, WORD_DATA, b"\x01\x02")]),
        (b"\x07" + bytes(range(32)), 0, [(WRITE, 7, I2C_BLOCK, bytes(range(32)))]),
    ],
)  # fmt: skip
async def test_an_smbus_adapter_does_the_same_with_what_it_has(
    adapter, i2c, write, read_len, smbus
):
    """Fault 17; on the wire each of these is as I2C_RDWR would have it."""
    memory = Memory()
    kernel = adapter(2, STUB, {0x50: memory})
    data = await i2c(2).transfer(0x50, write, read_len)
    start = write[0] if write else 0
    assert data == bytes(range(start, start + read_len))
    assert memory.content[start : start + len(write[1:])] == write[1:]
    assert moved(kernel) == [("SLAVE", 0x50), *[("SMBUS", *row) for row in smbus]]


@pytest.mark.parametrize(
    ("write", "read_len"),
    [
        (bytes(34), 0),
        (b"", 2),
        (b"\x01\x0f", 1),
        (b"\xf0", 40),
    ],
)
async def test_what_an_smbus_adapter_cannot_do_is_refused_before_a_byte_moves(
    adapter, i2c, write, read_len
):
    kernel = adapter(2, STUB, {0x50: Memory()})
    with pytest.raises(BusError, match="cannot do a transfer of this shape") as caught:
        await i2c(2).transfer(0x50, write, read_len)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert moved(kernel) == []


async def test_an_adapter_without_blocks_reads_and_writes_bytes_only(adapter, i2c):
    byte_data_only = 0x0018_0000
    kernel = adapter(2, byte_data_only, {0x50: Memory()})
    bus = i2c(2)
    assert await bus.transfer(0x50, b"\x05", 1) == b"\x05"
    await bus.transfer(0x50, b"\x05\x55")
    moved(kernel)
    for write, read_len in ((b"\x05", 3), (b"\x05\x06\x07", 0), (b"\x05", 0), (b"", 1), (b"", 0)):
        with pytest.raises(BusError) as caught:
            await bus.transfer(0x50, write, read_len)
        assert caught.value.errno == errno.EOPNOTSUPP
    assert moved(kernel) == []


async def test_two_targets_of_an_smbus_adapter_are_not_confused_by_many_callers(adapter, i2c):
    """Fault 13: smbus2 remembers the address of the last call, as the kernel does."""
    adapter(2, STUB, {0x50: Memory(), 0x51: Memory(range(255, -1, -1))})
    bus = i2c(2)

    async def read(address, register):
        data = await bus.transfer(address, bytes([register]), 1)
        return data[0] if address == 0x50 else 255 - data[0]

    callers = [(0x50 + i % 2, i) for i in range(100)]
    assert await asyncio.gather(*[read(*caller) for caller in callers]) == list(range(100))


# Detecting ----------------------------------------------------------------------------------


async def test_detecting_writes_nothing_and_asks_eeproms_for_a_byte(adapter, i2c):
    """As i2cdetect(8): a quick write could spoil EEPROMs of the AT24RF08 kind."""
    kernel = adapter(1, BCM2835, {0x48: Memory(), 0x50: Memory(), 0x30: Memory()})
    bus = i2c(1)
    found = [address for address in (0x30, 0x47, 0x48, 0x50, 0x51) if await bus.detect(address)]
    assert found == [0x30, 0x48, 0x50]
    assert [row[1:] for row in moved(kernel) if row[0] == "SMBUS"] == [
        (READ, 0, BYTE, 1),
        (WRITE, 0, QUICK, b""),
        (WRITE, 0, QUICK, b""),
        (READ, 0, BYTE, 1),
        (READ, 0, BYTE, 1),
    ]


@pytest.mark.parametrize("number", [errno.EREMOTEIO, errno.ENXIO, errno.EIO])
async def test_an_address_that_nobody_acknowledges_is_not_detected(adapter, i2c, number):
    kernel = adapter(1, BCM2835, {})
    kernel.absent = number
    assert not await i2c(1).detect(0x48)


async def test_an_address_that_a_driver_took_a_moment_ago_is_detected(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.bound.add(0x48)
    assert await i2c(1).detect(0x48)


async def test_detecting_on_a_stuck_bus_is_an_error(adapter, i2c):
    kernel = adapter(1, BCM2835, {})
    kernel.stuck.add(-1)
    with pytest.raises(BusError, match="stuck") as caught:
        await i2c(1).detect(0x48)
    assert caught.value.errno == errno.ETIMEDOUT


async def test_an_adapter_whose_timeout_is_a_missing_acknowledge_can_be_scanned(adapter, i2c):
    """hid-cp2112.c: STATUS1_TIMEOUT_NACK is ETIMEDOUT, and there is no quick write."""
    kernel = adapter(7, CP2112, {0x76: Memory()}, name="CP2112 SMBus Bridge on hidraw0")
    kernel.absent = errno.ETIMEDOUT
    bus = i2c(7)
    assert [address for address in range(0x70, 0x78) if await bus.detect(address)] == [0x76]
    with pytest.raises(NoDeviceError, match="nothing answered"):
        await bus.transfer(0x77, b"\xd0", 1)
    assert await bus.transfer(0x76, b"\x11", 1) == b"\x11"


# Drivers of the kernel ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "value", "shown"),
    [
        ("lm75", "hwmon/hwmon2/temp1_input", "hwmon/hwmon2"),
        ("bmp280", "iio:device0/in_temp_input", "iio:device0"),
        ("rtc-ds1307", "rtc/rtc0/time", "rtc/rtc0"),
        ("pca954x", "channel-0/name", "channel-0"),
        ("at24", "eeprom", ""),
    ],
)
async def test_an_address_of_a_kernel_driver_is_refused_with_where_its_value_is(
    testbed, adapter, i2c, driver, value, shown
):
    """Fault 25: I2C_RDWR does not look whether a driver is bound, and would disturb it."""
    kernel = adapter(1, BCM2835, {0x48: Memory(), 0x49: Memory()})
    bind(testbed, "1-0048", driver, value)
    bus = i2c(1)
    assert bus.owner(0x48) == driver
    where = "/".join(part for part in ("/sys/bus/i2c/devices/1-0048", shown) if part)
    with pytest.raises(BusyError) as caught:
        await bus.transfer(0x48, b"\x00", 2)
    assert f"0x48: the kernel's driver {driver} owns it: read it at {where}, or" in str(
        caught.value
    )
    assert await bus.detect(0x48)
    assert moved(kernel) == []
    assert await bus.transfer(0x49, b"\x00", 1) == b"\x00"


async def test_an_address_is_free_soon_after_its_driver_let_it_go(testbed, adapter, i2c, clock):
    adapter(1, BCM2835, {0x48: Memory()})
    bind(testbed, "1-0048", "lm75", "hwmon/hwmon2/temp1_input")
    bus = i2c(1)
    assert bus.owner(0x48) == "lm75"
    os.unlink(os.path.join(testbed.get_sys_dir(), "bus/i2c/devices/1-0048/driver"))
    clock.advance(1.0)
    assert bus.owner(0x48) == ""
    assert await bus.transfer(0x48, b"\x03", 1) == b"\x03"


# Many callers -------------------------------------------------------------------------------


async def test_a_caller_who_gives_up_leaves_nothing_behind(adapter, i2c):
    """Fault 16: the one in the kernel, and those who wait, are cancelled; the next goes on."""
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    kernel.go_on.clear()
    callers = [asyncio.create_task(bus.transfer(0x48, bytes([i]), 1)) for i in range(4)]
    await asyncio.to_thread(kernel.arrived.wait, BOUND_S)
    for caller in callers[:3]:
        caller.cancel()
    ended = await asyncio.gather(*callers[:3], return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError] * 3
    kernel.go_on.set()
    assert await callers[3] == b"\x03"
    assert [row[1][2] for row in moved(kernel)] == [b"\x00", b"\x03"]


# A stuck bus --------------------------------------------------------------------------------


async def test_a_stuck_bus_is_diagnosed_once_and_left_alone_while_others_go_on(
    adapter, i2c, clock, capfd
):
    """Fault 20: every transfer waited for the kernel's timeout."""
    stuck = adapter(1, BCM2835, {0x48: Memory()})
    adapter(3, BCM2835, {0x48: Memory()})
    bus, other = i2c(1), i2c(3)
    stuck.stuck.add(-1)
    for _ in range(3):
        with pytest.raises(BusError, match="SDA or SCL low"):
            await bus.transfer(0x48, b"\x00", 1)
    moved(stuck)
    clock.advance(2.0)
    with pytest.raises(BusError, match="stuck for 2 s and is tried again in 3 s") as caught:
        await bus.transfer(0x48, b"\x00", 1)
    assert caught.value.errno == errno.ETIMEDOUT
    assert moved(stuck) == []
    assert await other.transfer(0x48, b"\x01", 1) == b"\x01"
    clock.advance(3.0)
    with pytest.raises(BusError):
        await bus.transfer(0x48, b"\x00", 1)
    assert len(moved(stuck)) == 1
    stuck.stuck.clear()
    clock.advance(10.0)
    assert await bus.transfer(0x48, b"\x02", 1) == b"\x02"
    logged = capfd.readouterr().err.splitlines()
    assert [line.split(":")[1:3] for line in logged] == [
        [" warning", " i2c-1 is stuck"],
        [" i2c-1 works again after 15 s"],
    ]


async def test_whoever_looks_what_is_there_asks_a_stuck_bus_and_ends_its_pause(adapter, i2c):
    """A scan after the devices were switched off and on."""
    stuck = adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    stuck.stuck.add(-1)
    for _ in range(3):
        with pytest.raises(BusError, match="SDA or SCL low"):
            await bus.transfer(0x48, b"\x00", 1)
    moved(stuck)
    with pytest.raises(BusError, match="address 0x23: the bus is stuck") as caught:
        await bus.detect(0x23)
    assert caught.value.errno == errno.ETIMEDOUT
    assert moved(stuck) != []
    stuck.stuck.clear()
    assert await bus.detect(0x48)
    assert await bus.transfer(0x48, b"\x02", 1) == b"\x02"


async def test_absent_addresses_that_time_out_are_no_stuck_bus(adapter, i2c, capfd):
    """A scan asks for a hundred; what is polled there goes on."""
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.absent = errno.ETIMEDOUT
    bus = i2c(1)
    for address in range(0x20, 0x28):
        with pytest.raises(BusError, match="stuck"):
            await bus.detect(address)
    assert await bus.detect(0x48)
    assert not await bus.detect(0x20)
    assert await bus.transfer(0x48, b"\x02", 1) == b"\x02"
    assert "stuck" not in capfd.readouterr().err


async def test_callers_who_give_up_before_the_kernel_does_count_too(adapter, i2c):
    """A deadline shorter than the adapter's timeout must not keep a stuck bus undiagnosed."""
    kernel = adapter(1, BCM2835, {0x48: Memory()})
    kernel.stuck.add(-1)
    bus = i2c(1)
    for _ in range(3):
        kernel.go_on.clear()
        kernel.arrived.clear()
        caller = asyncio.create_task(bus.transfer(0x48, b"\x00", 1))
        await asyncio.to_thread(kernel.arrived.wait, BOUND_S)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        kernel.go_on.set()
    with pytest.raises(BusError, match="is tried again in 5 s"):
        await bus.transfer(0x48, b"\x00", 1)


async def test_a_bus_that_sticks_after_its_devices_answered_is_diagnosed_too(adapter, i2c):
    kernel = adapter(1, BCM2835, {0x48: Memory(), 0x49: Memory()})
    bus = i2c(1)
    for address in (0x48, 0x49):
        await bus.transfer(address, b"\x00", 1)
    kernel.stuck.add(-1)
    for _ in range(3):
        with pytest.raises(BusError, match="SDA or SCL low"):
            await bus.transfer(0x49, b"\x00", 1)
    with pytest.raises(BusError, match="is tried again in 5 s"):
        await bus.transfer(0x48, b"\x00", 1)


async def test_one_device_that_times_out_does_not_stop_those_that_answer(adapter, i2c, capfd):
    """It holds the clock, or it is absent and the adapter says it so (QEMU's i.MX)."""
    kernel = adapter(1, BCM2835, {0x48: Memory(), 0x49: Memory()})
    bus = i2c(1)
    for address in (0x48, 0x49):
        await bus.transfer(address, b"\x00", 1)
    kernel.stuck.add(0x49)
    for _ in range(5):
        with pytest.raises(NoDeviceError, match="0x49 on i2c-1, where others do"):
            await bus.transfer(0x49, b"\x00", 1)
    assert not await bus.detect(0x49)
    assert await bus.transfer(0x48, b"\x04", 1) == b"\x04"
    assert capfd.readouterr().err == ""


# Coming and going ---------------------------------------------------------------------------


async def test_an_adapter_that_is_unplugged_is_gone_and_back_when_plugged_in(
    testbed, adapter, i2c
):
    """The kernel ends the removal of an adapter only when nobody has it open any more."""
    chips = {0x48: Memory()}
    kernel = adapter(7, BCM2835, chips)
    node = os.path.join(testbed.get_root_dir(), "dev/i2c-7")
    bus = i2c(7)
    for attempt in (lambda: bus.transfer(0x48, b"\x01", 1), lambda: bus.detect(0x48)):
        assert await attempt()
        opened = len(os.listdir("/proc/self/fd"))
        kernel.targets, kernel.absent = {}, errno.ENODEV
        os.rename(node, node + ".unplugged")
        for _ in range(2):
            with pytest.raises(NoDeviceError, match="/dev/i2c-7 is not there"):
                await attempt()
        assert len(os.listdir("/proc/self/fd")) < opened
        os.rename(node + ".unplugged", node)
        kernel.targets = chips
        assert await attempt()


async def test_an_adapter_that_is_unplugged_is_given_back_before_it_is_used_again(
    testbed, adapter, i2c
):
    """The kernel waits for it, and the USB hub that it was on waits with it."""
    adapter(7, BCM2835, {0x48: Memory()})
    node = os.path.join(testbed.get_root_dir(), "dev/i2c-7")
    bus = i2c(7)
    bus.look()
    await bus.transfer(0x48, b"\x01", 1)
    opened = len(os.listdir("/proc/self/fd"))
    bus.look()
    await bus.transfer(0x48, b"\x01", 1)
    assert len(os.listdir("/proc/self/fd")) == opened
    os.rename(node, node + ".unplugged")
    bus.look()
    async with asyncio.timeout(BOUND_S):
        while len(os.listdir("/proc/self/fd")) == opened:
            await asyncio.sleep(0.01)


async def test_a_closed_bus_says_so(adapter, i2c):
    adapter(1, BCM2835, {0x48: Memory()})
    bus = i2c(1)
    await bus.transfer(0x48, b"\x01", 1)
    bus.close()
    with pytest.raises(NoDeviceError, match="i2c-1 is closed"):
        await bus.transfer(0x48, b"\x01", 1)
    assert "i2c-1" not in [thread.name for thread in threading.enumerate()]


async def test_buses_are_listed_by_number_and_named_as_the_kernel_does(adapter):
    adapter(1, BCM2835, {})
    adapter(20, STUB, {}, name="SMBus stub driver")
    assert numbers() == [1, 20]
    assert adapter_name(1) == "bcm2835 (i2c@7e804000)"
    assert adapter_name(20) == "SMBus stub driver"


# Whole devices ------------------------------------------------------------------------------


@pytest.mark.parametrize("functions", [BCM2835, STUB])
async def test_a_driver_reads_its_chip_through_the_kernels_interface(adapter, i2c, functions):
    """The model's weather, as from the simulated bus, on both kinds of adapter."""
    adapter(1, functions, {0x76: bme280.Sim(SystemClock())})
    device = await bme280.probe(bme280.Config(), i2c(1), asyncio.sleep)
    readings = {sample.channel: sample for sample in await device.read()}
    assert {sample.quality for sample in readings.values()} == {"ok"}
    assert readings["temperature"].value == pytest.approx(22.0, abs=5.0)
    assert readings["pressure"].value == pytest.approx(101_000, abs=3_000)


async def test_a_multiplexer_turns_its_channel_on_and_off_around_a_held_sequence(adapter, i2c):
    left, right = Memory([1] * 256), Memory([2] * 256)
    mux = SimMux({0: {0x48: left}, 3: {0x48: right}})
    kernel = adapter(1, BCM2835, {0x70: mux})
    chips = kernel.targets
    kernel.reach = lambda address: chips[0x70] if address == 0x70 else mux.behind(address)[0]
    parent = i2c(1)
    async with MuxI2c(parent, 0x70, 3).hold() as held:
        assert await held.transfer(0x48, b"\x00", 1) == b"\x02"
        assert await held.transfer(0x48, b"\x00", 1) == b"\x02"
    assert await MuxI2c(parent, 0x70, 0).transfer(0x48, b"\x00", 1) == b"\x01"
    read = ("RDWR", (0x48, "write", b"\x00"), (0x48, "read", 1))
    assert moved(kernel) == [
        ("RDWR", (0x70, "write", b"\x08")), read, read, ("RDWR", (0x70, "write", b"\x00")),
        ("RDWR", (0x70, "write", b"\x01")), read, ("RDWR", (0x70, "write", b"\x00")),
    ]  # fmt: skip
