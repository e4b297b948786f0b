"""Sockets that are read where the kernel tells of them; all else is asyncio's as ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.loop import READ_SIZE, Loop, Selector

BOUND_S = 10.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def selector():
    with contextlib.closing(Selector()) as made:
        yield made


@pytest.fixture
def ends():
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(one) for one in socket.socketpair()]
        for one in both:
            one.setblocking(False)
        yield both


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "modify", "unregister", "send", "take", "shut"]),
        st.integers(0, 3),
        st.sampled_from([READ, WRITE, READ | WRITE]),
    ),
    max_size=30,
)


@given(_STEPS)
def test_it_tells_what_the_standard_librarys_selector_tells(steps) -> None:
    """The whole of `selectors`, in any order: keys, events, errors."""
    pairs = [socket.socketpair() for _ in range(4)]
    with contextlib.ExitStack() as stack:
        for one, other in pairs:
            one.setblocking(False)
            stack.enter_context(one)
            stack.enter_context(other)
        both = [
            stack.enter_context(contextlib.closing(kind()))
            for kind in (Selector, selectors.EpollSelector)
        ]
        for act, number, events in steps:
            one, other = pairs[number]
            if act in ("register", "modify"):
                told = [_told(getattr(s, act), one, events, number) for s in both]
            elif act == "unregister":
                told = [_told(s.unregister, one) for s in both]
            elif act == "send":
                told = [_told(other.send, b"x") and None] * 2
            elif act == "take":
                told = [_told(one.recv, 100) and None] * 2
            else:
                told = [_told(other.shutdown, socket.SHUT_WR) and None] * 2
            assert told[0] == told[1]
            ready = [{key.fd: (key, found) for key, found in s.select(0)} for s in both]
            assert ready[0] == ready[1]
            maps = [s.get_map() for s in both]
            assert dict(maps[0]) == {key.fd: key for key in maps[1].values()}
            assert len(maps[0]) == len(maps[1])
            for each, _ in pairs:
                assert _told(both[0].get_key, each) == _told(both[1].get_key, each)
                assert maps[0].get(each.fileno()) == maps[1].get(each.fileno())


def _told(act, *given):
    try:
        return act(*given)
    except (KeyError, OSError) as error:
        return type(error)


def test_descriptors_that_were_closed_before_are_forgotten(selector) -> None:
    """epoll(7): the kernel has forgotten them then; asyncio relies on it."""
    one, other = socket.socketpair()
    with other:
        key = selector.register(one, READ)
        fd = one.fileno()
        one.close()
        assert selector.unregister(fd) == key
        assert not selector.get_map()


@pytest.mark.parametrize(
    ("timeout", "wait_s"), [(None, -1.0), (0.0101, 0.011), (0, 0.0), (-3, 0.0)]
)
def test_it_waits_as_long_as_the_standard_librarys(selector, timeout, wait_s) -> None:
    """Rounded up to milliseconds, which epoll_wait(2) counts in: never too short."""
    waited = []

    class Epoll:
        def poll(self, seconds, most):
            waited.append((seconds, most))
            raise InterruptedError

        def close(self):
            """Nothing to close."""

    selector._epoll.close()
    selector._epoll = Epoll()
    assert selector.select(timeout) == []
    assert waited == [(pytest.approx(wait_s), 1)]


class Heard(asyncio.Protocol):
    """What a protocol is told, in its order."""

    def __init__(self, fails: bool = False):
        self.told, self.fails = [], fails
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.stop = asyncio.get_running_loop().read_directly(transport, self.received)

    def received(self, data):
        self.told.append(data)
        if self.fails:
            raise RuntimeError("no")
        self.transport.write(data)

    def data_received(self, data):
        self.told.append("asyncio")
        self.transport.write(data)

    def eof_received(self):
        self.told.append("eof")

    def connection_lost(self, error):
        self.stop()
        self.over.set_result(error)


@contextlib.asynccontextmanager
async def connected(ends, **options):
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    _, heard = await loop.create_connection(lambda: Heard(**options), sock=ends[0])
    async with asyncio.timeout(BOUND_S):
        yield heard, ends[1], loop
    heard.transport.abort()
    await heard.over


async def test_what_comes_is_read_directly_and_its_end_is_asyncios(ends) -> None:
    async with connected(ends) as (heard, other, loop):
        other.setblocking(True)

        def talk():
            for size in (1, 100, 5_000):
                other.sendall(b"x" * size)
                assert len(other.recv(size, socket.MSG_WAITALL)) == size

        await asyncio.to_thread(talk)
        assert heard.told == [b"x" * size for size in (1, 100, 5_000)]
        await asyncio.to_thread(other.shutdown, socket.SHUT_WR)
        assert await heard.over is None
        assert heard.told[-1] == "eof"
        assert not loop._direct.direct


async def test_nothing_is_read_before_what_came_before_it(ends) -> None:
    """A loop that has something to do reads as asyncio does, in its order."""
    async with connected(ends) as (heard, other, loop):
        other.send(b"x")
        loop.call_soon(heard.told.append, "before")
        while len(heard.told) < 2:
            await asyncio.sleep(0)
        assert heard.told == ["before", "asyncio"]


async def test_much_comes_in_pieces(ends) -> None:
    async with connected(ends) as (heard, other, loop):
        size = 3 * READ_SIZE + 7
        sent = asyncio.create_task(loop.sock_sendall(other, b"x" * size))
        back = b""
        while len(back) < size:
            back += await loop.sock_recv(other, 1 << 20)
        await sent
        assert back == b"x" * size
        assert max(len(one) for one in heard.told if type(one) is bytes) <= READ_SIZE


async def test_a_socket_that_is_not_to_be_read_is_not(ends) -> None:
    async with connected(ends) as (heard, other, loop):
        heard.transport.pause_reading()
        other.send(b"later")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard.told == []
        heard.transport.resume_reading()
        assert await loop.sock_recv(other, 99) == b"later"
        assert heard.told == [b"later"]
        # Whoever stops it leaves it to asyncio.
        heard.stop()
        other.send(b"again")
        assert await loop.sock_recv(other, 99) == b"again"
        assert heard.told == [b"later", "asyncio"]


async def test_a_reader_that_fails_costs_its_connection_and_no_other(ends) -> None:
    """As asyncio has it for `data_received`."""
    said = []
    async with connected(ends, fails=True) as (heard, other, loop):
        loop.set_exception_handler(lambda _, what: said.append(what))
        other.send(b"x")
        assert await heard.over is None
        [what] = said
        assert isinstance(what["exception"], RuntimeError)
        assert what["transport"] is heard.transport


async def test_a_connection_that_is_reset_is_lost_with_its_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = socket.create_connection(listening.getsockname())
        one, _ = listening.accept()
    async with connected((one, other)) as (heard, _, _):
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        assert isinstance(await heard.over, ConnectionResetError)
        assert heard.told == []


async def test_one_that_another_closes_in_the_same_turn_is_not_read(ends) -> None:
    """Both were told of by the kernel at once."""
    with contextlib.ExitStack() as stack:
        more = [stack.enter_context(one) for one in socket.socketpair()]
        async with connected(ends) as (one, other, _), connected(more) as (two, another, _):

            def ends_both(data):
                one.told.append(data)
                for each in (one, two):
                    each.transport.abort()

            one.received = two.received = ends_both
            for each in (one, two):
                each.stop()
                each.connection_made(each.transport)
            other.send(b"x")
            another.send(b"y")
            await asyncio.gather(one.over, two.over)
            assert len(one.told) == 1


async def test_what_cannot_be_read_is_asyncios_to_tell_of(ends, monkeypatch) -> None:
    """And a readiness that is none any more is nothing (select(2), BUGS)."""
    async with connected(ends) as (heard, _, loop):
        [read] = loop._direct.direct.values()
        assert read()

        def fails(_fd, _size):
            raise ConnectionResetError

        monkeypatch.setattr(os, "read", fails)
        assert not read()
        monkeypatch.setattr(os, "read", lambda *_: b"")
        assert not read()
        assert heard.told == []
