"""Every serial port: `edged.bus.SerialPort`."""

import asyncio
import subprocess
import sys

import pytest

from edged.errors import BusyError, InvalidArgumentsError, NoDeviceError
from tests.conformance.benches import BOUND_S

pytestmark = pytest.mark.needs("serial")
EVERY = bytes(range(256))
KEPT = 65_536
"""Bytes that wait in a port for a reader."""


@pytest.fixture
async def port(serial_bench):
    opened = await serial_bench.open()
    yield opened
    await opened.close()


async def steps(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_bytes_go_both_ways_unchanged(serial_bench, port):
    """All of them: a terminal would take some for control characters or line ends."""
    await port.write(EVERY)
    assert await serial_bench.receive(port, 256) == EVERY
    await serial_bench.send(port, EVERY)
    assert await port.read(256, BOUND_S) == EVERY
    assert port.lost == 0


async def test_what_came_counts_when_the_time_is_over_and_is_there_once(serial_bench, port):
    """Fault 12."""
    await serial_bench.send(port, b"abcde")
    assert await port.read(3, BOUND_S) == b"abc"
    assert await port.read(10, serial_bench.settle_s) == b"de"
    assert await port.read(10, 0.0) == b""


async def test_what_came_is_kept_for_the_next_when_a_reader_is_cancelled(serial_bench, port):
    """Fault 12; at every step."""
    sent = got = b""
    for number in range(30):
        reading = asyncio.create_task(port.read(4, BOUND_S))
        await steps(number % 6)
        piece = number.to_bytes(2, "big")
        await serial_bench.send(port, piece)
        sent += piece
        await steps(number // 6)
        reading.cancel()
        await asyncio.wait([reading])
        if not reading.cancelled():
            got += reading.result()
    got += await port.read(len(sent) - len(got), BOUND_S)
    assert got == sent


async def test_a_reply_in_pieces_is_read_as_one(serial_bench, port):
    reading = asyncio.create_task(port.read(6, BOUND_S))
    for piece in (b"ab", b"cd", b"ef"):
        await steps(3)
        await serial_bench.send(port, piece)
    assert await reading == b"abcdef"


async def test_read_until_stops_at_the_end_and_keeps_the_rest(serial_bench, port):
    """Fault 12: `until` delimiter support."""
    await serial_bench.send(port, b"$GPGGA\r\n$GPRMC\r\n$GP")
    assert await port.read_until(b"\r\n", 100, BOUND_S) == b"$GPGGA\r\n"
    assert await port.read_until(b"\r\n", 100, BOUND_S) == b"$GPRMC\r\n"
    assert await port.read_until(b"\r\n", 100, serial_bench.settle_s) == b"$GP"


@pytest.mark.parametrize(("limit", "got"), [(4, b"abcd"), (5, b"abcde"), (6, b"abcde\n")])
async def test_read_until_stops_at_the_limit(serial_bench, port, limit, got):
    await serial_bench.send(port, b"abcde\nfg")
    assert await port.read_until(b"\n", limit, BOUND_S) == got


async def test_an_end_that_comes_in_two_pieces_is_found(serial_bench, port):
    reading = asyncio.create_task(port.read_until(b"\r\n", 100, BOUND_S))
    await serial_bench.send(port, b"ok\r")
    await steps(5)
    await serial_bench.send(port, b"\nnext")
    assert await reading == b"ok\r\n"
    assert await port.read(4, BOUND_S) == b"next"


async def test_what_came_can_be_forgotten(serial_bench, port):
    await serial_bench.send(port, b"stale")
    assert await port.read_until(b"t", 5, BOUND_S) == b"st"
    assert await port.read(3, BOUND_S) == b"ale"
    await serial_bench.send(port, b"old!")
    while (count := port.discard()) == 0:
        await asyncio.sleep(0.001)
    left = await port.read(4, serial_bench.settle_s)
    assert count + len(left) == 4


@pytest.mark.needs("serial.flood")
async def test_the_oldest_bytes_make_room_and_are_counted(serial_bench, port):
    """Every buffer is bounded and says what was lost (architecture, laws)."""
    sent = bytes(number % 251 for number in range(KEPT + 5_000))
    await serial_bench.send(port, sent)
    while port.lost < 5_000:
        await asyncio.sleep(0.001)
    assert port.lost == 5_000
    assert await port.read(KEPT, BOUND_S) == sent[5_000:]


async def test_one_exchange_keeps_others_out(serial_bench, port):
    order = []

    async def exchange(name):
        async with port.hold():
            order.append(name)
            await steps(5)
            order.append(name)

    await asyncio.gather(*(exchange(name) for name in "abc"))
    assert "".join(order) == "aabbcc"


async def test_a_second_consumer_is_refused_with_the_first_ones_name(serial_bench, port):
    """Fault 5: two opens share bytes."""
    with pytest.raises(BusyError, match=f"{port.name} is in use by test"):
        await serial_bench.open("other")
    await port.close()
    again = await serial_bench.open("other")
    await again.close()


@pytest.mark.needs("serial.programs")
async def test_a_port_that_another_program_has_open_is_refused_with_its_name(serial_bench):
    """Fault 5: root is let in by the kernel whatever the other one marked."""
    code = "import os, sys; os.open(sys.argv[1], os.O_RDWR); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, serial_bench.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        await asyncio.to_thread(other.stdout.readline)
        with pytest.raises(BusyError, match=rf"in use by python\S* \(pid {other.pid}\): stop it"):
            await serial_bench.open()
        other.stdin.close()
    await (await serial_bench.open()).close()


async def test_more_than_a_port_keeps_is_never_waited_for(port):
    """Every buffer is bounded (architecture, laws): 64 KiB of a port."""
    with pytest.raises(InvalidArgumentsError, match="count: must be 0 to 65536"):
        await port.read(KEPT + 1, BOUND_S)
    for limit in (0, KEPT + 1):
        with pytest.raises(InvalidArgumentsError, match="limit: must be 1 to 65536"):
            await port.read_until(b"x", limit, BOUND_S)


async def test_a_closed_port_says_so(serial_bench, port):
    await port.close()
    await port.close()
    for use in (port.read(1, BOUND_S), port.write(b"x"), port.read_until(b"x", 1, BOUND_S)):
        with pytest.raises(NoDeviceError, match=f"{port.name} is closed"):
            await use


async def test_no_such_port_names_those_there_are(serial_bench):
    for attempt in (
        serial_bench.ports.open("ttyUSB77", serial_bench.settings, "test"),
        serial_bench.ports.find("ttyUSB77"),
    ):
        with pytest.raises(NoDeviceError, match="no serial port 'ttyUSB77'"):
            await attempt
    assert (await serial_bench.ports.find(serial_bench.port)).name


@pytest.mark.needs("serial.pull")
async def test_what_came_before_it_was_pulled_out_is_read_and_then_that_is_said(
    serial_bench, port
):
    """Fault 1: one message names what happened, whatever was called."""
    await serial_bench.send(port, b"last words")
    assert await port.read(4, BOUND_S) == b"last"
    assert await port.read(1, BOUND_S) == b" "
    reading = asyncio.create_task(port.read(100, BOUND_S))
    # All has come by then.
    await asyncio.sleep(serial_bench.settle_s)
    await serial_bench.pull()
    assert await reading == b"words"
    for use in (port.read(1, BOUND_S), port.write(b"x"), port.read_until(b"x", 1, BOUND_S)):
        with pytest.raises(NoDeviceError, match=f"{port.name} was unplugged or hung up"):
            await use


@pytest.mark.needs("serial.pull")
async def test_a_line_that_is_cut_off_is_an_error_and_stays_readable(serial_bench, port):
    """`SerialPort.read_until`: hung up before the end came."""
    await serial_bench.send(port, b"half a li")
    assert await port.read(1, BOUND_S) == b"h"
    reading = asyncio.create_task(port.read_until(b"\n", 100, BOUND_S))
    await asyncio.sleep(serial_bench.settle_s)
    await serial_bench.pull()
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await reading
    assert await port.read(100, BOUND_S) == b"alf a li"
