"""Every SPI target: `edged.bus.Spi`."""

import asyncio
import errno

import pytest

from edged.bus import SpiSettings
from edged.errors import BusError, InvalidArgumentsError
from tests.conformance.benches import BOUND_S

pytestmark = pytest.mark.needs("spi")
PLAIN = SpiSettings(max_speed_hz=1_000_000)
LONGEST = 4096
"""The kernel's spidev, parameter bufsiz; as much as the package spidev moves."""


async def check(bench, settings=PLAIN):
    for write, skip, answer in bench.exchanges:
        received = await bench.spi.transfer(write, settings)
        assert len(received) == len(write)
        assert received[skip:] == answer


async def test_a_chip_answers_what_it_is_known_to_answer(spi_bench):
    """Each transfer is a selection of its own: a chip takes it for a new command."""
    assert spi_bench.exchanges
    for _ in range(3):
        await check(spi_bench)


@pytest.mark.needs("spi.long")
async def test_every_byte_goes_through_up_to_the_longest_transfer(spi_bench):
    write, skip, answer = spi_bench.longest
    assert (len(write), set(answer)) == (LONGEST, set(range(256)))
    assert (await spi_bench.spi.transfer(write, PLAIN))[skip:] == answer


async def test_a_chip_answers_in_every_mode_that_it_has(spi_bench):
    """The kernel keeps the mode of a target: each transfer has its own nevertheless."""
    for mode in (*spi_bench.modes, *reversed(spi_bench.modes)):
        await check(spi_bench, SpiSettings(mode=mode, max_speed_hz=500_000))


async def test_more_than_a_transfer_takes_is_refused(spi_bench):
    """Fault 52; nothing moved, and the next is served."""
    with pytest.raises(InvalidArgumentsError, match="4097 bytes are more than"):
        await spi_bench.spi.transfer(bytes(LONGEST + 1), PLAIN)
    await check(spi_bench)


@pytest.mark.parametrize(
    "settings",
    [
        SpiSettings(mode=4),
        SpiSettings(mode=-1),
        SpiSettings(max_speed_hz=0),
        SpiSettings(max_speed_hz=-5),
        SpiSettings(max_speed_hz=1 << 32),
        SpiSettings(bits_per_word=0),
        SpiSettings(bits_per_word=264),
    ],
)
async def test_settings_that_cannot_be_are_refused_not_cut(spi_bench, settings):
    """The package spidev would cut 264 bits to 8, and 2**32 Hz to 0."""
    with pytest.raises(BusError, match="the controller cannot do this mode") as caught:
        await spi_bench.spi.transfer(b"\x00", settings)
    assert caught.value.errno == errno.EINVAL
    await check(spi_bench)


async def test_nothing_to_send_is_nothing_received(spi_bench):
    assert await spi_bench.spi.transfer(b"", PLAIN) == b""


async def test_nothing_comes_between_the_transfers_of_a_holder(spi_bench):
    """A measurement holds its bus once."""
    order = []

    async def pair(name):
        async with spi_bench.spi.hold() as held:
            for _ in range(2):
                await held.transfer(spi_bench.exchanges[0].write, PLAIN)
                order.append(name)

    async def once(name):
        await spi_bench.spi.transfer(spi_bench.exchanges[0].write, PLAIN)
        order.append(name)

    await asyncio.gather(pair("a"), once("b"), pair("c"), once("d"))
    assert "".join(order) == "aabccd"


async def test_a_cancelled_caller_never_blocks_the_next(spi_bench):
    """Issue 3, part 1; at every step."""
    write, skip, answer = spi_bench.exchanges[0]
    for count in range(8):
        callers = [asyncio.create_task(spi_bench.spi.transfer(write, PLAIN)) for _ in range(3)]
        for _ in range(count):
            await asyncio.sleep(0)
        for caller in callers[:2]:
            caller.cancel()
        await asyncio.wait(callers[:2])
        assert (await asyncio.wait_for(callers[2], BOUND_S))[skip:] == answer
