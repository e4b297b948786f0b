"""The Unix socket on real sockets (contract, sections 3 to 5)."""

import asyncio
import contextlib
import grp
import itertools
import json
import os
import socket
import stat

import msgspec
import pytest

from edged import results
from edged.config import Config, Socket, UserEntry
from edged.errors import ConfigError
from edged.jsonrpc import MAX_LINE
from edged.tool import Context, tool
from edged.transports import unix
from edged.transports.unix import (
    HIGH_WATER,
    UNFINISHED_MAX,
    UNSENT_MAX,
    Listener,
    Peer,
    bind,
    caller_of,
    peer_uid,
)

NO_GROUP = "no-such-group"


class Say(msgspec.Struct, forbid_unknown_fields=True):
    text: str = ""


@tool("echo", cut=False)
def echo(params: Say, _ctx: Context) -> results.Result:
    """Says it at once."""
    return results.text(params.text)


@tool("later")
async def later(params: Say, _ctx: Context) -> results.Result:
    """Says it after a moment."""
    await asyncio.sleep(0)
    return results.text(params.text)


@tool("whoami")
def whoami(_params: Say, ctx: Context) -> results.Result:
    """Tells who calls."""
    return results.text("", structured=msgspec.to_builtins(ctx.caller))


class Gate:
    """A tool that waits until the test says so."""

    def __init__(self):
        self.started, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool("gate")
        async def gate(params: Say, ctx: Context) -> results.Result:
            """Waits."""
            self.started.set()
            try:
                await self.go.wait()
            finally:
                self.ended.set()
            return results.text(params.text)

        self.tool = gate


class Client:
    """One connection and its lines."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, number, method="tools/call", name="echo", **arguments):
        params = {"name": name, "arguments": arguments} if method == "tools/call" else arguments
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            body["id"] = number
        self.writer.write(json.dumps(body).encode() + b"\n")

    async def line(self):
        async with asyncio.timeout(20):
            return json.loads(await self.reader.readline())

    async def ask(self, number, *args, **arguments):
        self.send(number, *args, **arguments)
        answer = await self.line()
        assert answer["id"] == number
        return answer

    async def rest(self):
        """Every line until the daemon closes."""
        async with asyncio.timeout(20):
            data = await self.reader.read()
        return [json.loads(line) for line in data.splitlines()]

    async def close(self):
        self.writer.close()
        await self.writer.wait_closed()


class Door:
    """A listener of the core, and clients of it."""

    def __init__(self, core, path, config, **options):
        self.core, self.path = core, str(path)
        self.listener = Listener(core.control, config, **options)
        self.gate = Gate()
        self.clients = []
        core.add(echo, later, whoami, self.gate.tool)

    async def client(self):
        streams = await asyncio.open_unix_connection(self.path, limit=MAX_LINE * 2)
        self.clients.append(Client(*streams))
        return self.clients[-1]

    async def close(self):
        self.listener.close()
        self.listener.close_peers()
        for client in self.clients:
            client.writer.transport.abort()
        async with asyncio.timeout(20):
            while self.listener._peers:
                await asyncio.sleep(0)


@pytest.fixture
async def opened(core, tmp_path):
    """Opens a door with settings of the socket; at the end every peer is gone."""
    doors = []

    async def make(**settings):
        door = Door(core, tmp_path / "edged.sock", Config(socket=Socket(**settings)))
        await door.listener.start(bind(door.path, NO_GROUP))
        doors.append(door)
        return door

    yield make
    for door in doors:
        await door.close()


@pytest.fixture
async def door(opened):
    return await opened()


@pytest.fixture
async def client(door):
    return await door.client()


# Who is calling ---------------------------------------------------------------------------


def test_an_unmapped_uid_is_the_local_user_and_an_agent():
    """Contract, section 4: the role is apart from the user."""
    other = os.geteuid() + 1_000
    caller = caller_of(other, Config(), "unix")
    assert (caller.user, caller.role, caller.door) == ("local", "agent", "unix")
    assert (caller.session, caller.peer) == ("", f"uid {other}")


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_daemons_own_uid_are_owners(uid):
    """Contract, section 4; also where a mapping names another user or a lesser role."""
    assert (caller_of(uid, Config(), "unix").user) == "local"
    assert caller_of(uid, Config(), "unix").is_owner
    for entry in ("ada@example.org", UserEntry(user="ada@example.org", role="agent")):
        caller = caller_of(uid, Config(users={str(uid): entry}), "unix")
        assert (caller.user, caller.role) == ("ada@example.org", "owner")


def test_users_are_mapped_to_identities_and_roles():
    """Contract, section 11: `users: {1000: …, 1001: {user: …, role: owner}}`."""
    one, two = os.geteuid() + 1_000, os.geteuid() + 1_001
    users = {
        str(one): "ada@example.org",
        str(two): UserEntry(user="bob@example.org", role="owner"),
    }
    config = Config(users=users)
    ada, bob = caller_of(one, config, "unix"), caller_of(two, config, "unix")
    assert (ada.user, ada.role) == ("ada@example.org", "agent")
    assert (bob.user, bob.role) == ("bob@example.org", "owner")


def test_the_kernel_says_who_is_at_the_other_end():
    """unix(7), SO_PEERCRED."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.geteuid()


async def test_a_call_has_its_peer_as_its_caller(client):
    """Contract, section 4."""
    answer = await client.ask(1, name="whoami")
    caller = answer["result"]["structuredContent"]
    assert (caller["user"], caller["role"], caller["door"]) == ("local", "owner", "unix")
    assert caller["peer"] == f"uid {os.geteuid()}"


# Framing ----------------------------------------------------------------------------------


async def test_a_message_may_come_in_any_pieces(client):
    """A stream has no frames but its newlines."""
    for byte in b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n\n  \n{"jsonrpc":"2.0","id":2,':
        client.writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.line())["id"] == 1
    client.writer.write(b'"method":"ping"}\n')
    assert (await client.line())["id"] == 2


async def test_many_messages_may_come_at_once(client):
    """Pipelined; answers to plain calls are in order."""
    for number in range(500):
        client.send(number, text=str(number))
    for number in range(500):
        answer = await client.line()
        assert (answer["id"], answer["result"]["content"][0]["text"]) == (number, str(number))


async def test_a_line_that_is_too_long_is_answered_once_and_the_stream_stays_in_step(client):
    """Contract, section 5: at most 16 MiB; facts, fault 6."""
    client.writer.write(b"x" * (2 * MAX_LINE))
    client.writer.write(b"x" * MAX_LINE + b"\n")
    client.send(7, "ping")
    error = await client.line()
    assert (error["id"], error["error"]["code"]) == (None, -32600)
    assert (await client.line())["id"] == 7
    assert (await client.ask(8, text="on"))["result"]["content"][0]["text"] == "on"


async def test_a_long_line_that_fits_is_served(client):
    """Facts, fault 6: no limit of 64 KiB anywhere."""
    text = "x y " * (1 << 20)
    answer = await client.ask(1, text=text)
    assert answer["result"]["content"][0]["text"] == text


async def test_what_is_no_message_costs_one_error(client):
    """Facts, fault 36."""
    client.writer.write(b"GET / HTTP/1.1\r\n\xff\x00\n{}\n")
    errors = [await client.line() for _ in range(3)]
    assert [e["error"]["code"] for e in errors] == [-32700, -32700, -32600]
    assert "result" in await client.ask(1)


async def test_many_clients_get_their_own_answers(door):
    """Facts, fault 25: equal ids of two clients are two requests."""
    clients = [await door.client() for _ in range(40)]

    async def talk(index, client):
        for number in range(20):
            name = "echo" if (index + number) % 2 else "later"
            answer = await client.ask(number, name=name, text=f"{index} {number}")
            assert answer["result"]["content"][0]["text"] == f"{index} {number}"

    await asyncio.gather(*(talk(i, c) for i, c in enumerate(clients)))


# Ends -------------------------------------------------------------------------------------


async def test_the_end_of_input_still_gets_its_answers(door, client):
    """Contract, section 5: so that `echo … | socat` works; then the daemon closes."""
    client.send(1, name="gate", text="slow")
    client.send(2, text="quick")
    client.writer.write_eof()
    await door.gate.started.wait()
    assert (await client.line())["id"] == 2
    door.gate.go.set()
    (last,) = await client.rest()
    assert (last["id"], last["result"]["content"][0]["text"]) == (1, "slow")


async def test_a_last_line_without_its_newline_is_served(client):
    """`printf '…' | socat`."""
    client.writer.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    client.writer.write_eof()
    assert [m["id"] for m in await client.rest()] == [1]


async def test_a_client_that_says_nothing_is_let_go(client):
    """Nothing to answer."""
    client.writer.write_eof()
    assert await client.rest() == []


async def test_a_peer_that_is_gone_takes_its_calls_along(door, client):
    """Contract, section 5: a connection closed both ways cancels its calls."""
    client.send(1, name="gate")
    await door.gate.started.wait()
    await client.close()
    await door.gate.ended.wait()
    assert not door.gate.go.is_set()


async def test_a_peer_that_closed_its_input_and_then_all_takes_its_calls_along(door, client):
    """The daemon reads no more from it and notices all the same."""
    client.send(1, name="gate")
    client.writer.write_eof()
    await door.gate.started.wait()
    client.writer.transport.abort()
    await door.gate.ended.wait()


async def test_a_peer_that_is_gone_at_once_leaves_nothing_running(door):
    """Connect, write, close, before the daemon looked."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(door.path)
        sock.sendall(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"gate"}}\n' * 2
        )
    async with asyncio.timeout(20):
        while door.core.audited() == []:
            await asyncio.sleep(0)
    assert door.core.audited()[-1].outcome == "cancelled"


async def test_a_stopping_daemon_sends_what_it_has_and_closes(door, client):
    """Law: drain, then close."""
    assert "result" in await client.ask(1)
    door.listener.close()
    door.listener.close_peers()
    assert await client.rest() == []
    with pytest.raises(ConnectionRefusedError):
        await door.client()
    door.listener.close()


# Limits -----------------------------------------------------------------------------------


async def test_one_connection_too_many_is_refused_with_a_clear_line(opened):
    """Every queue is bounded and says what happens when it is full."""
    door = await opened(max_connections=2)
    clients = [await door.client() for _ in range(2)]
    for number, client in enumerate(clients):
        assert "result" in await client.ask(number)
    third = await door.client()
    third.send(1)
    refusal = await third.line()
    assert (refusal["id"], refusal["error"]["code"]) == (None, -31029)
    assert refusal["error"]["message"] == ("2 connections are the limit (socket.max_connections)")
    await clients[0].close()
    async with asyncio.timeout(20):
        while len(door.listener._peers) > 1:
            await asyncio.sleep(0)
    assert "result" in await (await door.client()).ask(1)


async def test_one_user_leaves_places_to_others_and_the_owner(core):
    """One uid takes three quarters at most; root and the daemon's own uid are no others."""
    name = f"\0edged-test-{os.getpid()}"
    listener = Listener(core.control, Config(socket=Socket(max_connections=4)))
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(name)
    sock.setblocking(False)
    await listener.start(sock)
    root = os.geteuid() == 0
    clients = []

    async def connect(*, as_nobody):
        with socket.socket(socket.AF_UNIX) as plain:
            # unix(7): the credentials are those at the time of connect(2).
            if as_nobody and root:
                os.seteuid(65_534)
            try:
                plain.connect(name)
            finally:
                if root:
                    os.seteuid(0)
            clients.append(Client(*await asyncio.open_unix_connection(sock=plain.dup())))
            clients[-1].send(1, "ping")
            return await clients[-1].line()

    answers = [await connect(as_nobody=True) for _ in range(4)]
    assert ["result" in answer for answer in answers] == [True, True, True, not root]
    if root:
        assert "too many connections of uid 65534" in answers[3]["error"]["message"]
    assert ("result" in await connect(as_nobody=False)) is root
    listener.close()
    for client in clients:
        client.writer.transport.abort()
    async with asyncio.timeout(20):
        while listener._peers:
            await asyncio.sleep(0)
    assert listener._places.take(65_534, owner=False)


async def test_a_connection_with_too_many_calls_is_read_again_when_one_is_over(opened):
    """`socket.max_calls`: back-pressure, and nothing is lost."""
    door = await opened(max_calls=2)
    client = await door.client()
    client.send(1, name="gate")
    client.send(2, name="gate")
    await door.gate.started.wait()
    client.send(3, text="waits")
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(door.core.audited()) == 0
    door.gate.go.set()
    assert {(await client.line())["id"] for _ in range(3)} == {1, 2, 3}


async def test_calls_of_one_write_are_begun_up_to_the_limit(opened):
    """`socket.max_calls` holds for what was read already too."""
    door = await opened(max_calls=2)
    client = await door.client()
    call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s"}}\n'
    client.writer.write(call % (1, b"gate") + call % (2, b"gate") + call % (3, b"echo"))
    await door.gate.started.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert (door.core.dispatcher.running, door.core.audited()) == (2, [])
    door.gate.go.set()
    assert {(await client.line())["id"] for _ in range(3)} == {1, 2, 3}


async def test_a_peer_that_is_not_read_may_still_go_away(opened):
    """At its limit of calls nothing is read from it; its end is noticed all the same."""
    door = await opened(max_calls=1)
    client = await door.client()
    client.send(1, name="gate")
    await door.gate.started.wait()
    client.send(2, text="waits")
    for _ in range(50):
        await asyncio.sleep(0)
    client.writer.transport.abort()
    await door.gate.ended.wait()


async def test_a_peer_that_does_not_read_is_not_read_either(door):
    """Back-pressure: what waits for it is bounded; then every answer comes, in order."""
    text, sent, taken = "x" * 10_000, 0, b""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, door.path)
        blocked = 0
        while blocked < 100:
            call = {"name": "echo", "arguments": {"text": text}}
            line = {"jsonrpc": "2.0", "id": sent, "method": "tools/call", "params": call}
            try:
                # A Unix socket takes so little whole or not at all.
                sock.send(json.dumps(line).encode() + b"\n")
            except BlockingIOError:
                blocked += 1
            else:
                sent, blocked = sent + 1, 0
                assert sent * len(text) < 16 * HIGH_WATER, "it takes more and more"
            await asyncio.sleep(0)
        assert sent * len(text) > HIGH_WATER
        async with asyncio.timeout(20):
            while taken.count(b"\n") < sent:
                taken += await loop.sock_recv(sock, 1 << 20)
    assert [json.loads(line)["id"] for line in taken.splitlines()] == list(range(sent))


@pytest.mark.parametrize("method", ["edged/media", "tools/call"])
async def test_a_peer_that_does_not_read_has_nothing_done_for_it(door, method):
    """A few kilobytes of requests in one write must not become a gigabyte of answers."""
    uri = door.core.media.put("local", bytes(4 << 20), "image/png", "big")
    ran = []

    @tool("large", cut=False)
    def large(_params: Say, _ctx: Context) -> results.Result:
        """Says much."""
        ran.append(1)
        return results.text("x" * 300_000)

    door.core.add(large)
    params = {"id": uri} if method == "edged/media" else {"name": "large"}
    lines = b"".join(
        msgspec.json.encode({"jsonrpc": "2.0", "id": n, "method": method, "params": params})
        + b"\n"
        for n in range(200)
    )
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, door.path)
        await loop.sock_sendall(sock, lines)
        await (await door.client()).ask(1, "ping")
        (peer,) = (p for p in door.listener._peers if p.is_held)
        waiting = peer._transport.get_write_buffer_size()
        assert HIGH_WATER < waiting < 3 * HIGH_WATER
        assert len(ran) < 20
        # It reads again: every answer comes, in order.
        taken, ends = [], 0
        async with asyncio.timeout(20):
            while ends < 200:
                taken.append(await loop.sock_recv(sock, 1 << 20))
                ends += taken[-1].count(b"\n")
    assert [json.loads(line)["id"] for line in b"".join(taken).splitlines()] == list(range(200))


async def test_requests_that_wait_are_answered_after_the_end_of_input_too(door):
    """`edged … | slow reader`: it closed its input and reads late."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, door.path)
        call = {"name": "echo", "arguments": {"text": "x" * 30_000}}
        for number in range(100):
            line = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            await loop.sock_sendall(sock, msgspec.json.encode(line) + b"\n")
            await asyncio.sleep(0)
            if any(p.is_held for p in door.listener._peers):
                break
        sock.shutdown(socket.SHUT_WR)
        taken = b""
        async with asyncio.timeout(20):
            while data := await loop.sock_recv(sock, 1 << 20):
                taken += data
    assert [json.loads(x)["id"] for x in taken.splitlines()] == list(range(number + 1))


async def test_a_long_batch_of_one_peer_lets_others_in_between(door, client):
    """So many lines a turn."""
    client.writer.write(b"".join(PING % n for n in range(20_000)))
    other = await door.client()
    await other.ask(1, "ping")
    taken = 0
    async with asyncio.timeout(20):
        while not (await client.reader.readline()).startswith(b'{"jsonrpc":"2.0","id":19999,'):
            taken += 1
    assert taken == 19_999


PING = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'


async def test_lines_without_an_end_are_bounded_together(opened):
    """One megabyte of each of many connections is a gigabyte: the largest one goes."""
    door = await opened()
    small = await door.client()
    small.writer.write(b"x" * 100_000)
    large = [await door.client() for _ in range(4)]
    for client in large:
        client.writer.write(b"x" * (MAX_LINE - 10))
        await client.writer.drain()
    async with asyncio.timeout(20):
        while len(door.listener._peers) == 5:
            await asyncio.sleep(0)
    assert 0 < sum(p.unfinished for p in door.listener._peers) <= UNFINISHED_MAX
    small.writer.write(b"\n")
    assert (await small.line())["error"]["code"] == -32700
    assert len(door.listener._peers) == 4


async def test_a_turn_ends_by_time_too(door, monkeypatch):
    """Lines that are long to handle kept an owner from switching off for 5 seconds."""
    client = await door.client()
    await client.ask(1, "ping")
    [peer] = door.listener._peers
    times = itertools.count(1)
    monkeypatch.setattr(unix, "monotonic", lambda: next(times) * unix.TURN_S * 0.6)
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % n for n in range(20))
    handled, receive = [], peer._connection.receive
    monkeypatch.setattr(
        peer._connection, "receive", lambda one: handled.append(one) or receive(one)
    )
    peer.data_received(lines)
    assert len(handled) == 2
    assert [(await client.line())["id"] for _ in range(20)] == list(range(20))


async def test_agents_go_one_after_the_other_and_an_owner_before_them(door, monkeypatch):
    """Hundreds of connections with a turn each in one round were a wait of seconds."""
    clients = [await door.client() for _ in range(4)]
    for client in clients:
        await client.ask(99, "ping")
    peers = list(door.listener._peers)
    order = []
    for peer in peers:
        receive = peer._connection.receive

        def noted(line, peer=peer, receive=receive):
            order.append(peer)
            receive(line)

        monkeypatch.setattr(peer._connection, "receive", noted)
    owner, *agents = peers
    for peer in agents:
        peer.is_owner = False
        door.listener._places.leave(peer.uid, owner=True)
        assert door.listener._places.take(peer.uid, owner=False)
    times = itertools.count(1)
    monkeypatch.setattr(unix, "monotonic", lambda: next(times) * unix.TURN_S * 0.6)
    lines = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % n for n in range(6))
    for peer in agents:
        peer.data_received(lines)
    # The first began at once, the others wait for their turns; an owner does not.
    assert order == [agents[0]] * 2
    owner.data_received(lines[: lines.index(b"\n") + 1])
    assert order[2:] == [owner]
    await asyncio.sleep(0)
    assert order[3:] == [agents[0]] * 2
    async with asyncio.timeout(20):
        while len(order) < 3 * 6 + 1:
            await asyncio.sleep(0)
    assert not door.listener.has_turns
    rest = order[3:]
    # Round and round, two lines each.
    assert rest[:6] == [agents[0]] * 2 + [agents[1]] * 2 + [agents[2]] * 2
    assert {peer: order.count(peer) for peer in agents} == dict.fromkeys(agents, 6)


async def test_answers_that_nobody_reads_are_bounded_together(opened, monkeypatch, capsys):
    """64 of 10 MB waited on each of an agent's connections."""
    monkeypatch.setattr(unix, "UNSENT_MAX", 4 << 20)
    door = await opened()
    reads, loop = await door.client(), asyncio.get_running_loop()
    await reads.ask(1, "ping")
    call = {"name": "echo", "arguments": {"text": "x" * (2 << 20)}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            await loop.sock_connect(one, door.path)
            await loop.sock_sendall(one, line.encode() + b"\n")
        async with asyncio.timeout(20):
            while "is ended: it reads no answers" not in capsys.readouterr().err:
                await asyncio.sleep(0)
            while len(door.listener._peers) > 3:
                await asyncio.sleep(0)
        assert 1 << 20 < sum(peer.waiting for peer in door.listener._peers) <= 4 << 20
        assert (await reads.ask(2, "ping"))["result"] == {}


async def test_an_owners_unread_answers_go_last(door, monkeypatch):
    sizes = {}
    for _ in range(4):
        await (await door.client()).ask(1, "ping")
    owner, small, large, took = peers = tuple(door.listener._peers)
    for one in peers[1:]:
        one.is_owner = False
        door.listener._places.leave(one.uid, owner=True)
        assert door.listener._places.take(one.uid, owner=False)
    monkeypatch.setattr(Peer, "waiting", property(sizes.get))
    sizes |= {owner: 0, small: 5, large: 6, took: 20}
    for one in (small, large, took):
        door.listener.count_unsent(one)
    sizes |= {took: 0, owner: UNSENT_MAX - 10}
    door.listener.count_unsent(owner)
    assert [one._transport.is_closing() for one in peers] == [False, False, True, False]


async def test_an_owners_unfinished_line_goes_last(door):
    """Others' lines go first, however short they are."""
    for _ in range(3):
        await (await door.client()).ask(1, "ping")
    one, two, three = door.listener._peers
    two.is_owner = three.is_owner = False
    door.listener._places.leave(two.uid, owner=True)
    door.listener._places.leave(three.uid, owner=True)
    assert door.listener._places.take(two.uid, owner=False)
    assert door.listener._places.take(three.uid, owner=False)
    door.listener.count_unfinished(one, UNFINISHED_MAX - 10)
    door.listener.count_unfinished(two, 5)
    door.listener.count_unfinished(three, 6)
    assert [p.unfinished for p in (one, two, three)] == [UNFINISHED_MAX - 10, 5, 0]


async def test_a_line_that_was_begun_and_makes_no_progress_ends_its_connection(core, tmp_path):
    """Unfinished input is kept for a while; a peer whose calls run is not hurried."""
    door = Door(core, tmp_path / "edged.sock", Config(socket=Socket(max_calls=1)), stalled_s=0.02)
    await door.listener.start(bind(door.path, NO_GROUP))
    client, busy, idle = [await door.client() for _ in range(3)]
    busy.send(1, name="gate", text="slow")
    busy.writer.write(b'{"jsonrpc":')
    assert "result" in await idle.ask(1, "ping")
    await door.gate.started.wait()
    client.writer.write(b'{"jsonrpc":')
    (refusal,) = await client.rest()
    assert (refusal["id"], refusal["error"]["code"]) == (None, -32600)
    assert "not ended within 0.02 s" in refusal["error"]["message"]
    door.gate.go.set()
    assert (await busy.line())["id"] == 1
    assert "result" in await idle.ask(2, "ping")
    await door.close()


async def test_updates_are_dropped_for_a_peer_that_does_not_read(door, client):
    """Facts, fault 12: progress dropped, results never; the daemon's memory stays bounded."""
    big = "x" * 100_000

    @tool("chatty", cut=False)
    async def chatty(_params: Say, ctx: Context) -> results.Result:
        """Sends a hundred megabytes of updates."""
        for _ in range(1_000):
            ctx.update([results.Text(big)])
            await asyncio.sleep(0)
        return results.text("done")

    door.core.add(chatty)
    client.writer.transport.pause_reading()
    call = {"name": "chatty", "_meta": {"progressToken": 1}}
    client.writer.write(
        msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        + b"\n"
    )
    async with asyncio.timeout(20):
        while door.core.audited() == []:
            await asyncio.sleep(0)
    client.writer.transport.resume_reading()
    progress = []
    while "id" not in (message := await client.line()):
        progress.append(message["params"]["progress"])
    assert message["result"]["content"][0]["text"] == "done"
    assert progress == sorted(set(progress))
    assert 0 < len(progress) < 100


# Changes ----------------------------------------------------------------------------------


async def test_a_burst_of_changes_is_told_once(door, client):
    """Facts, fault 31: debounced, to every session that sent `initialize`."""
    other, bare = await door.client(), await door.client()
    for one in (client, other):
        assert "result" in await one.ask(1, "initialize")
    for _ in range(20):
        door.core.registry.touch()
    for one in (client, other):
        assert (await one.line())["method"] == "notifications/tools/list_changed"
        # Their documentation is there to be read.
        assert (await one.line())["method"] == "notifications/resources/list_changed"
        assert "result" in await one.ask(2, "ping")
    assert "result" in await bare.ask(1, "ping")


async def test_a_change_as_the_daemon_stops_is_told_to_nobody(door, client):
    """No timer outlives the listener."""
    assert "result" in await client.ask(1, "initialize")
    door.core.registry.touch()
    door.listener.close()
    assert "result" in await client.ask(2, "ping")


# The socket file --------------------------------------------------------------------------


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_the_socket_is_open_to_its_group(tmp_path):
    """Contract, section 4: mode 0660, group `edged`."""
    group = grp.getgrgid(os.getegid())
    path = str(tmp_path / "run" / "edged" / "edged.sock")
    with bind(path, group.gr_name) as sock:
        assert mode(path) == 0o660
        assert os.stat(path).st_gid == group.gr_gid
        assert not sock.getblocking()


def test_without_its_group_the_socket_is_the_owners_alone(tmp_path):
    """Never wider than it was asked to be."""
    path = str(tmp_path / "edged.sock")
    with bind(path, NO_GROUP):
        assert mode(path) == 0o600


def test_a_plain_user_who_is_not_in_the_group_gets_a_socket_of_its_own(tmp_path, capfd):
    """By hand as a user: chown(2) is refused, and the log says who can connect."""
    os.chmod(tmp_path, 0o777)
    # Root does it as nobody; pytest's own directory above is root's alone.
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    child = os.fork()
    if child == 0:
        try:
            os.fchdir(directory)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            bind("edged.sock", "root")
            os._exit(0 if mode("edged.sock") == 0o600 else 2)
        finally:
            os._exit(1)
    os.close(directory)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert "only you and root can connect to edged.sock" in capfd.readouterr().err


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path):
    """After `kill -9` it starts again without a hand."""
    path = str(tmp_path / "edged.sock")
    bind(path, NO_GROUP).close()
    assert os.path.exists(path)
    with bind(path, NO_GROUP), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)


def test_the_socket_of_a_living_daemon_is_left_alone(tmp_path):
    """Two daemons do not share a door."""
    path = str(tmp_path / "edged.sock")
    with bind(path, NO_GROUP), pytest.raises(ConfigError, match="a daemon answers on"):
        bind(path, NO_GROUP)


def test_a_daemon_that_is_too_busy_to_accept_is_alive(tmp_path):
    """connect(2): EAGAIN when the backlog is full; nothing waits for it."""
    path = str(tmp_path / "edged.sock")
    waiting = []
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(path)
        with pytest.raises(ConfigError, match="a daemon answers on"):
            bind(path, NO_GROUP)
        for sock in waiting:
            sock.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_in_the_way_and_no_socket_is_left_alone(tmp_path, kind):
    """connect(2) refuses a plain file as it refuses a dead socket: it must not be removed."""
    path = tmp_path / "edged.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is in the way"):
        bind(str(path), NO_GROUP)
    assert path.is_symlink() or path.is_dir() or path.read_text() == "precious"


@pytest.mark.parametrize("path", ["x" * 200, "file/edged.sock"])
def test_a_path_that_cannot_be_bound_is_refused_with_what_to_do(tmp_path, path):
    """unix(7): 108 bytes; and no directory can be made below a file."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot listen on .*: choose another with --socket"):
        bind(str(tmp_path / path), NO_GROUP)
