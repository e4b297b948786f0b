"""The Unix socket: JSON-RPC lines, and who is at the other end of them.

A client that ends its input still gets its answers; one that is gone both ways
has its calls cancelled. Loop thread only.
"""

from __future__ import annotations

import asyncio
import grp
import os
import select
import socket
import stat
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import cast

import msgspec

from edged import jsonrpc, log
from edged.config import Config, UserEntry
from edged.control import Control
from edged.errors import ConfigError
from edged.identity import LOCAL_USER, Caller, Door
from edged.jsonrpc import Lines
from edged.loop import Loop
from edged.mcp.notices import Notices
from edged.mcp.server import Connection
from edged.transports._limits import Places

HIGH_WATER = 1 << 20
"""Bytes that may wait for a peer before nothing of its input is handled or read any more."""

TURN = 128
"""Lines of one peer that are handled before others get their turn."""

TURN_S = 0.005
"""Seconds of such a turn: who must switch off waits for a few of these at most."""

UNFINISHED_MAX = 64 << 20
"""Bytes of lines without an end that all peers together may have sent."""

UNSENT_MAX = 64 << 20
"""Bytes that wait for all peers: who leaves most there is ended first, owners last."""

STALLED_S = 60.0
"""How long a line that was begun may stay without an end and without progress."""

_NONE = b""
"""No line: blank ones are left out."""

BACKLOG = 512
"""Connections that may wait to be accepted."""

_UCRED = struct.Struct("iII")
"""pid, uid, gid (`struct ucred`, unix(7))."""


def caller_of(uid: int, config: Config, door: Door) -> Caller:
    """Who a local uid is (contract, section 4)."""
    entry = config.users.get(str(uid), LOCAL_USER)
    mapped = entry if isinstance(entry, UserEntry) else UserEntry(user=entry)
    role = "owner" if is_trusted(uid) else mapped.role
    return Caller(mapped.user, role, "", door, f"uid {uid}")


def is_trusted(uid: int) -> bool:
    """Whether it is root or the daemon's own uid, which could take any right anyway."""
    return uid in (0, os.geteuid())


def peer_uid(sock: socket.socket) -> int:
    """The uid at the other end (`SO_PEERCRED`, unix(7))."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(data)[1]
    return uid


def nothing() -> None:
    """What stops where nothing is to be stopped."""


class Peer:
    """One accepted connection: what `asyncio.Protocol` describes.

    Attributes:
        uid: of the other end.
        is_owner: whether it is root's or the daemon's own.
        unfinished: bytes of its line without an end, as the listener counts them.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._max_calls = listener.config.socket.max_calls
        self._lines = Lines()
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._paused = False
        self._ended = False
        self._hangup: select.epoll | None = None
        self._out: list[bytes] = []
        self._out_size = 0
        self._in_batch = False
        self._scheduled = False
        self._read_no_more: Callable[[], None] = nothing
        self.uid = -1
        self.is_owner = False
        self.unfinished = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Find out who it is, or refuse one too many."""
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        self.uid = peer_uid(transport.get_extra_info("socket"))
        control, config = self._listener.control, self._listener.config
        caller = caller_of(self.uid, config, "unix")
        self.is_owner = is_trusted(self.uid)
        refusal = self._listener.admit(self)
        if refusal:
            transport.write(refusal)
            transport.close()
            return
        self._connection = Connection(
            control,
            caller,
            self._send,
            congested=lambda _: self._paused,
            on_answered=self._answered,
        )
        self._listener.notices.join(self._connection)
        loop = asyncio.get_running_loop()
        if isinstance(loop, Loop):
            self._read_no_more = loop.read_directly(transport, self.data_received)

    def data_received(self, data: bytes) -> None:
        """Handle the lines that are whole, and answer them with one write."""
        if self._connection is None:
            return
        self._lines.feed(data)
        if self._listener.has_turns and not self.is_owner:
            # Others wait already: an owner's line, on which lives may hang, goes before.
            self._in_turn()
            self._throttle()
        else:
            self._work()
        if self._lines.unfinished or self.unfinished:
            self._listener.count_unfinished(self, self._lines.unfinished)
        if self._connection.user_told is not None:
            self._listener.notices.watch()

    def eof_received(self) -> bool:
        """No more requests come; true while there is something to answer."""
        if self._connection is None or self._transport is None:
            return False
        self._lines.end()
        self._ended = True
        self._work()
        if self.unfinished:
            self._listener.count_unfinished(self, 0)
        if self._is_over:
            return False
        self._watch_hangup(self._transport)
        return True

    def connection_lost(self, _: Exception | None) -> None:
        """Both ways are closed: nobody waits for its calls any more."""
        self._read_no_more()
        if self._connection is not None:
            self._listener.left(self)
            self._listener.notices.leave(self._connection)
            self._connection.close()
            self._connection = None
        self._unwatch_hangup()

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._paused = True
        self._throttle()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._paused = False
        self._listener.count_unsent(self)
        self._work()

    def refuse(self, reason: str) -> None:
        """Say why, and end the connection; a peer that does not read is not told."""
        self._lines = Lines()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(jsonrpc.error(b"", jsonrpc.INVALID_REQUEST, reason))
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()

    @property
    def is_held(self) -> bool:
        """Whether nothing of this peer is begun: it does not read, or has too much in flight."""
        connection = self._connection
        return self._paused or (connection is not None and connection.pending >= self._max_calls)

    def stop(self) -> None:
        """Close once what was written is out."""
        if self._connection is not None:
            self._connection.end()
        if self._transport is not None:
            self._transport.close()

    def _send(self, line: bytes, _about: bytes = b"", _ends: int | None = None) -> None:
        if self._in_batch:
            self._out.append(line)
            self._out_size += len(line)
            if not self._lines.waiting:
                # The last answer: it goes out before its call is noted anywhere.
                self._flush()
        elif self._transport is not None and not self._transport.is_closing():
            self._write(self._transport, line)

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        transport.write(data)
        if transport.get_write_buffer_size():
            self._listener.count_unsent(self)

    @property
    def waiting(self) -> int:
        """Bytes that it was sent and does not take."""
        transport = self._transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def abort(self) -> None:
        """It takes nothing, and what waits for it takes too much."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        self._in_batch = False
        if self._out and self._transport is not None:
            out, self._out, self._out_size = self._out, [], 0
            self._write(self._transport, out[0] if len(out) == 1 else b"".join(out))

    def _work(self) -> None:
        """Handle lines one by one, while the peer takes what they are answered with.

        Other peers get their turn after `TURN` lines or `TURN_S`, or once a write became large.
        """
        connection = self._connection
        if connection is None or self._transport is None or self._transport.is_closing():
            return
        self._in_batch, over = True, 0.0
        for _ in range(TURN):
            if self._out_size > HIGH_WATER or self.is_held:
                break
            line = next(self._lines, _NONE)
            if line is _NONE:
                break
            connection.receive(line)
            self._in_batch = True
            if self._lines.waiting:
                # Lines are not alike: one may take as long as a hundred others.
                over = over or monotonic() + TURN_S
                if monotonic() > over:
                    break
        self._flush()
        # The peer has its answers: now there is time to keep the books.
        self._listener.control.services.trail.settle()
        if self._lines.waiting and not self.is_held:
            self._in_turn()
        if self._ended and self._is_over:
            self._transport.close()
        self._throttle()

    def _in_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._listener.give_turn(self)

    def go_on(self) -> None:
        """It has its turn."""
        self._scheduled = False
        self._work()

    @property
    def _is_over(self) -> bool:
        """Whether everything that came is answered."""
        return not (self._lines.waiting or (self._connection and self._connection.pending))

    def _throttle(self) -> None:
        """Read no more from a peer while it is held or has lines to be handled."""
        if self._transport is None or self._connection is None or self._ended:
            return
        held = self.is_held
        if held and self._hangup is None:
            self._watch_hangup(self._transport)
        elif not held:
            self._unwatch_hangup()
        if held or self._lines.waiting:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _answered(self) -> None:
        if not self._in_batch:
            self._work()

    # A peer that closed its input, or that is not read for a while, may still close
    # for good: the loop does not watch it, and a hang-up is what epoll(7) reports unasked.

    def _watch_hangup(self, transport: asyncio.Transport) -> None:
        if self._hangup is not None:
            return
        watch = self._hangup = select.epoll()
        watch.register(transport.get_extra_info("socket").fileno(), select.EPOLLET)

        def happened() -> None:
            if any(event & select.EPOLLHUP for _, event in watch.poll(0)):
                transport.abort()

        asyncio.get_running_loop().add_reader(watch.fileno(), happened)

    def _unwatch_hangup(self) -> None:
        if self._hangup is not None:
            asyncio.get_running_loop().remove_reader(self._hangup.fileno())
            self._hangup.close()
            self._hangup = None


class Listener:
    """The listening socket and its peers."""

    def __init__(self, control: Control, config: Config, stalled_s: float = STALLED_S) -> None:
        """A listener that does not listen yet.

        Args:
            control: the daemon.
            config: its limits.
            stalled_s: how long a line that was begun may stay as it is.
        """
        self.control = control
        self.config = config
        self._peers: set[Peer] = set()
        limit = config.socket.max_connections
        self._places = Places(limit, limit * 3 // 4)
        self._stalled_s = stalled_s
        self._begun: dict[Peer, float] = {}
        """Peers with an unfinished line, and when each got longer; the longest ago first."""
        self._unfinished = 0
        self._turns: deque[Peer] = deque()
        """Agents' connections with lines that wait, in the order of their turns."""
        self._behind: dict[Peer, int] = {}
        """Peers that did not take what they were sent, and how much waited for them then."""
        self._stalled: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self.notices = Notices(control)

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        loop = asyncio.get_running_loop()
        # No base class: asyncio asks for none, and its methods are documented here.
        accept = cast("Callable[[], asyncio.Protocol]", lambda: Peer(self))
        self._server = await loop.create_unix_server(accept, sock=sock, backlog=BACKLOG)

    def admit(self, peer: Peer) -> bytes:
        """Count a peer in; else the line that refuses it."""
        limit = self.config.socket.max_connections
        if not self._places.take(peer.uid, owner=peer.is_owner):
            text = f"{limit} connections are the limit (socket.max_connections)"
            if len(self._peers) < limit:
                text = f"too many connections of uid {peer.uid}: {text}"
            body = {"jsonrpc": "2.0", "id": None, "error": {"code": -31029, "message": text}}
            return msgspec.json.encode(body) + b"\n"
        self._peers.add(peer)
        return b""

    @property
    def has_turns(self) -> bool:
        """Whether agents' connections wait for their turn."""
        return bool(self._turns)

    def give_turn(self, peer: Peer) -> None:
        """Have a peer go on soon: an owner's at once, agents' one after the other."""
        loop = asyncio.get_running_loop()
        if peer.is_owner:
            loop.call_soon(peer.go_on)
            return
        self._turns.append(peer)
        if len(self._turns) == 1:
            loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        # In front of who has more by then, and one in each round of the loop.
        peer = self._turns.popleft()
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        peer.go_on()

    def left(self, peer: Peer) -> None:
        """Count a peer out."""
        self._peers.discard(peer)
        self._places.leave(peer.uid, owner=peer.is_owner)
        self.count_unfinished(peer, 0)
        self._behind.pop(peer, None)

    def count_unfinished(self, peer: Peer, size: int) -> None:
        """A peer's line without an end has `size` bytes now; all together are bounded."""
        self._unfinished += size - peer.unfinished
        peer.unfinished = size
        self._begun.pop(peer, None)
        if size:
            self._begun[peer] = asyncio.get_running_loop().time()
            self._await_stalled(self._stalled_s)
        while self._unfinished > UNFINISHED_MAX:
            largest = max(self._begun, key=lambda p: (not p.is_owner, p.unfinished))
            self.count_unfinished(largest, 0)
            largest.refuse("too much input without an end of its line, of all connections")

    def count_unsent(self, peer: Peer) -> None:
        """A peer did not take all at once; what waits for all of them is bounded."""
        self._behind[peer] = peer.waiting
        if sum(self._behind.values()) <= UNSENT_MAX:
            return
        # Some took it meanwhile.
        self._behind = {one: size for one in self._behind if (size := one.waiting)}
        while sum(self._behind.values()) > UNSENT_MAX:
            largest = max(self._behind, key=lambda one: (not one.is_owner, self._behind[one]))
            log.warning(f"a connection of uid {largest.uid} is ended: it reads no answers")
            del self._behind[largest]
            largest.abort()

    def _await_stalled(self, delay_s: float) -> None:
        if self._stalled is None and self._server is not None:
            loop = asyncio.get_running_loop()
            self._stalled = loop.call_later(delay_s, self._end_stalled)

    def _end_stalled(self) -> None:
        """End peers whose line makes no progress; not those that are not read."""
        self._stalled = None
        now = asyncio.get_running_loop().time()
        for peer, since in tuple(self._begun.items()):
            if peer.is_held:
                self.count_unfinished(peer, peer.unfinished)
            elif now - since >= self._stalled_s:
                self.count_unfinished(peer, 0)
                peer.refuse(f"a line was begun and not ended within {self._stalled_s:g} s")
        if self._begun:
            first = next(iter(self._begun.values()))
            self._await_stalled(max(first + self._stalled_s - now, 0.0))

    def close(self) -> None:
        """Take no more connections; the open ones go on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.notices.close()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def close_peers(self) -> None:
        """End what is open."""
        for peer in tuple(self._peers):
            peer.stop()


def bind(path: str, group: str, *, mode: int = 0o660, option: str = "--socket") -> socket.socket:
    """Bind and listen on a Unix path; a stale one of a dead daemon is replaced.

    Args:
        path: where.
        group: who may connect.
        mode: of the path.
        option: of `edged serve`, that names another.

    Raises:
        ConfigError: another daemon answers there, or the path cannot be bound.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        _unlink_stale(path, option)
        before = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        _open_to_group(path, group, mode)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        reason = f"cannot listen on {path}: {error.strerror or error}"
        raise ConfigError(f"{reason}: choose another with {option}") from None
    except ConfigError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _unlink_stale(path: str, option: str) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        # connect(2) refuses it as it refuses a dead daemon's socket: never remove it.
        reason = f"{path} is in the way (no socket): move it or choose another with {option}"
        raise ConfigError(reason)
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A daemon that is too busy to accept would have it wait.
    probe.setblocking(False)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except BlockingIOError:
        raise ConfigError(_ANSWERS.format(path, option)) from None
    else:
        raise ConfigError(_ANSWERS.format(path, option))
    finally:
        probe.close()


_ANSWERS = "a daemon answers on {} already: stop it, or use {}"


def _open_to_group(path: str, group: str, mode: int) -> None:
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        mode &= 0o600
    except OSError:
        # Not a member of that group, or it has no number in this user namespace.
        log.info(
            f"only you and root can connect to {path}: you are not in the group {group!r}: "
            f"sudo adduser $USER {group}, log in again, and start again"
        )
        mode &= 0o600
    os.chmod(path, mode)
