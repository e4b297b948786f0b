"""`edged.bus.spi` down to the bytes of each ioctl.

`test_umockdev_spi` runs this file under `umockdev-wrapper`, which puts the device
nodes and ioctls of `umockdev_spidev` before this process and its children.
"""

import asyncio
import errno
import os
import sys
import threading

import pytest

from edged.bus import SpiSettings
from edged.bus.spi import Controller, KernelSpi, names
from edged.errors import BusError, InvalidArgumentsError, NoDeviceError
from tests.integration.bus.umockdev_spi_kernel import Kernel, server

BOUND_S = 10.0
PLAIN = SpiSettings()

# linux/spi/spi.h.
CPHA, CPOL, CS_HIGH, LSB_FIRST = 1, 2, 4, 8


@pytest.fixture(scope="module")
def ask():
    """Sends a command to the process that answers ioctls."""
    with server() as running:
        yield running


@pytest.fixture
def testbed(ask, monkeypatch):
    """The root of a new one."""
    root = ask("testbed")
    monkeypatch.setenv("UMOCKDEV_DIR", root)
    return root


@pytest.fixture
def plug(ask, testbed):
    """Plugs a target in: `plug("0.0")`."""
    return lambda number: Kernel(ask, number)


@pytest.fixture
def kernel(plug):
    return plug("0.0")


@pytest.fixture
def spi():
    """Opens targets by name, and closes them."""
    opened = []

    def open_target(name="spi0.0", **options):
        opened.append(KernelSpi(name, **options))
        return opened[-1]

    yield open_target
    for target in opened:
        target.close()
    assert [one.name for one in threading.enumerate() if one.name.startswith("spi")] == []


def bufsiz(testbed, text):
    path = os.path.join(testbed, "sys/module/spidev/parameters/bufsiz")
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write(text)


async def test_a_transfer_is_one_message_with_its_speed_and_word_size(kernel, spi):
    """Source: struct spi_ioc_transfer; the chip select stays active throughout (cs_change 0)."""
    settings = SpiSettings(mode=0, max_speed_hz=1_350_000, bits_per_word=8)
    assert await spi().transfer(b"\x01\x80\x00", settings) == b"\xfe\x7f\xff"
    # number, sent, speed_hz, delay_usecs, bits_per_word, cs_change, tx_nbits, rx_nbits, word_delay
    assert kernel.transfers == [["0.0", "018000", 1_350_000, 0, 8, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        (SpiSettings(mode=0), 0),
        (SpiSettings(mode=1), CPHA),
        (SpiSettings(mode=2), CPOL),
        (SpiSettings(mode=3), CPOL | CPHA),
        (SpiSettings(mode=3, lsb_first=True), CPOL | CPHA | LSB_FIRST),
        (SpiSettings(cs_high=True), CS_HIGH),
    ],
)
async def test_the_mode_is_set_whatever_another_program_left(kernel, spi, settings, mode):
    """Source: spidev keeps mode bits of the target from one opening to the next."""
    kernel.set(mode=CS_HIGH | LSB_FIRST | CPOL)
    await spi().transfer(b"\x00", settings)
    assert kernel.mode == mode


async def test_a_mode_that_stands_is_not_set_again(kernel, spi):
    """Setting one may move clock and chip select."""
    target = spi()
    for _ in range(3):
        await target.transfer(b"\x00", PLAIN)
    first = len(kernel.modes)
    await target.transfer(b"\x00", SpiSettings(mode=3))
    assert first <= 3
    assert kernel.mode == CPOL | CPHA
    await target.transfer(b"\x00", PLAIN)
    assert kernel.mode == 0


async def test_more_than_one_transfer_takes_is_refused_before_a_byte_moves(kernel, spi):
    """Fault 52: the kernel's EMSGSIZE, and the package's own OverflowError at 4096."""
    target = spi()
    with pytest.raises(InvalidArgumentsError, match="4097 bytes are more than the 4096 of one"):
        await target.transfer(bytes(4097), PLAIN)
    with pytest.raises(InvalidArgumentsError, match="65541 bytes are more than"):
        # The package would send 5 of them.
        await target.transfer(bytes(65_541), PLAIN)
    assert kernel.transfers == []
    assert len(await target.transfer(bytes(4096), PLAIN)) == 4096


async def test_a_smaller_buffer_of_the_kernel_counts(testbed, kernel, spi):
    """Source: module parameter bufsiz of spidev."""
    bufsiz(testbed, "64\n")
    target = spi()
    with pytest.raises(InvalidArgumentsError, match="65 bytes .* buffer of 64: raise it with spi"):
        await target.transfer(bytes(65), PLAIN)
    assert kernel.transfers == []
    assert len(await target.transfer(bytes(64), PLAIN)) == 64


@pytest.mark.parametrize("text", ["65536\n", "", "many\n"])
async def test_a_larger_or_unknown_buffer_changes_nothing(testbed, kernel, spi, text):
    """`xfer2` of spidev 3.8 moves 4096 at most."""
    bufsiz(testbed, text)
    target = spi()
    assert len(await target.transfer(bytes(4096), PLAIN)) == 4096
    with pytest.raises(InvalidArgumentsError, match="more than the 4096 of one transfer"):
        await target.transfer(bytes(4097), PLAIN)


async def test_a_mode_that_the_controller_has_not_is_told(kernel, spi):
    """Source: spidev answers EINVAL, or drops the bit."""
    target = spi()
    kernel.set(possible=0xFF & ~LSB_FIRST)
    with pytest.raises(BusError, match="cannot do this mode") as caught:
        await target.transfer(b"\x00", SpiSettings(lsb_first=True))
    assert caught.value.errno == errno.EINVAL
    kernel.set(possible=0xFF, kept=0xFF & ~CPHA)
    with pytest.raises(BusError, match="cannot do this mode") as caught:
        await target.transfer(b"\x00", SpiSettings(mode=1))
    assert caught.value.errno == errno.EINVAL
    assert kernel.transfers == []
    await target.transfer(b"\x00", PLAIN)
    assert kernel.mode == 0


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.EMSGSIZE])
async def test_a_failed_transfer_keeps_its_errno_and_never_blocks_the_next(kernel, spi, number):
    target = spi()
    kernel.set(errnos=[number])
    with pytest.raises(BusError, match="spi0.0: ") as caught:
        await target.transfer(b"\x01", PLAIN)
    assert caught.value.errno == number
    assert await target.transfer(b"\x02", PLAIN) == b"\xfd"


async def test_a_controller_that_was_removed_is_opened_anew(kernel, spi):
    """Source: spidev answers ESHUTDOWN for ever on a node that was open."""
    target = spi()
    await target.transfer(b"\x00", PLAIN)
    kernel.set(errnos=[errno.ESHUTDOWN])
    with pytest.raises(BusError, match="the controller was removed"):
        await target.transfer(b"\x00", PLAIN)
    kernel.set(mode=CS_HIGH)
    assert await target.transfer(b"\x0f", PLAIN) == b"\xf0"
    assert kernel.mode == 0


async def test_nothing_comes_between_the_transfers_of_a_holder(plug, spi):
    """Both chip selects of a controller: a measurement holds its bus once."""
    first, _ = plug("0.0"), plug("0.1")
    shared = Controller("spi0")
    one, other = spi("spi0.0", controller=shared), spi("spi0.1", controller=shared)
    async with one.hold() as held:
        waiting = asyncio.create_task(other.transfer(b"\xff", PLAIN))
        for byte in range(3):
            await held.transfer(bytes([byte]), PLAIN)
        assert not waiting.done()
    await waiting
    assert first.sent() == [b"\x00", b"\x01", b"\x02", b"\xff"]


async def test_a_cancelled_caller_never_blocks_the_next(kernel, spi):
    """Issue 3, part 1: the one inside the kernel, and one that waits."""
    target = spi()
    kernel.stop()
    inside = asyncio.create_task(target.transfer(b"\x01", PLAIN))
    await kernel.wait_inside()
    waiting = asyncio.create_task(target.transfer(b"\x02", PLAIN))
    last = asyncio.create_task(target.transfer(b"\x03", PLAIN))
    await asyncio.sleep(0)
    waiting.cancel()
    inside.cancel()
    await asyncio.wait([waiting, inside])
    kernel.go_on()
    assert await asyncio.wait_for(last, BOUND_S) == b"\xfc"
    assert kernel.sent() == [b"\x01", b"\x03"]


async def test_the_loop_goes_on_while_the_kernel_is_busy(kernel, spi):
    """Of the package's calls only `xfer2` and its like let other threads run."""
    target = spi()
    kernel.stop()
    busy = asyncio.create_task(target.transfer(bytes(4096), PLAIN))
    await kernel.wait_inside()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not busy.done()
    kernel.go_on()
    assert len(await busy) == 4096


async def test_targets_are_listed_in_the_order_of_their_numbers(plug):
    for number in ("10.0", "0.1", "0.0"):
        plug(number)
    assert names() == ["spi0.0", "spi0.1", "spi10.0"]


async def test_an_absent_target_says_how_to_switch_it_on(spi):
    with pytest.raises(NoDeviceError, match=r"/dev/spidev1.0 is not there: .*dtparam=spi=on"):
        await spi("spi1.0").transfer(b"\x00", PLAIN)


async def test_a_node_elsewhere_is_not_taken_from_dev(kernel, spi, tmp_path):
    """The package opens by number, in /dev."""
    with pytest.raises(NoDeviceError, match="spidev0.0 is not there"):
        await spi("spi0.0", dev=str(tmp_path)).transfer(b"\x00", PLAIN)


async def test_without_the_package_it_says_what_to_install(kernel, spi, monkeypatch):
    """Issue 3, part 7: spidev has no wheels."""
    monkeypatch.setitem(sys.modules, "spidev", None)
    with pytest.raises(
        NoDeviceError, match=r"pip install 'edged\[spi\]'.*compiler: apt install gcc"
    ):
        await spi().transfer(b"\x00", PLAIN)


@pytest.mark.parametrize("name", ["spi0", "spidev0.0", "0.0", "../sda", "spi0.0/../../sda", ""])
async def test_what_is_no_name_of_a_target_is_refused(name):
    """Nothing but spidev's own nodes is ever opened."""
    with pytest.raises(NoDeviceError, match="is no SPI target: write spi0.0"):
        KernelSpi(name)


async def test_a_closed_target_says_so(kernel, spi):
    target = spi()
    await target.transfer(b"\x00", PLAIN)
    target.close()
    with pytest.raises(NoDeviceError, match="spi0 is closed"):
        await target.transfer(b"\x00", PLAIN)
