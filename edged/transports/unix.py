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
from collections.abc import Callable
from typing import cast

import msgspec

from edged import log
from edged.config import Config, UserEntry
from edged.control import Control
from edged.errors import ConfigError
from edged.identity import LOCAL_USER, Caller, Door
from edged.jsonrpc import Lines
from edged.mcp.server import Connection

WATCH_S = 2.0
"""Between two looks for tools that were added, while an MCP session is open."""

HIGH_WATER = 1 << 20
"""Bytes that may wait for a peer before its input is no longer read."""

BACKLOG = 512
"""Connections that may wait to be accepted."""

_UCRED = struct.Struct("iII")
"""pid, uid, gid (`struct ucred`, unix(7))."""


def caller_of(uid: int, config: Config, door: Door) -> Caller:
    """Who a local uid is (contract, section 4)."""
    entry = config.users.get(str(uid), LOCAL_USER)
    mapped = entry if isinstance(entry, UserEntry) else UserEntry(user=entry)
    # Root and the daemon's own uid could take any right anyway.
    role = "owner" if uid in (0, os.geteuid()) else mapped.role
    return Caller(mapped.user, role, "", door, f"uid {uid}")


def peer_uid(sock: socket.socket) -> int:
    """The uid at the other end (`SO_PEERCRED`, unix(7))."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(data)[1]
    return uid


class Peer:
    """One accepted connection: what `asyncio.Protocol` describes."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lines = Lines()
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._paused = False
        self._ended = False
        self._hangup: select.epoll | None = None
        self._out: list[bytes] = []
        self._in_batch = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Find out who it is, or refuse one too many."""
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        sock = transport.get_extra_info("socket")
        refusal = self._listener.admit(self)
        if refusal:
            transport.write(refusal)
            transport.close()
            return
        control, config = self._listener.control, self._listener.config
        caller = caller_of(peer_uid(sock), config, "unix")
        self._connection = Connection(
            control,
            caller,
            self._send,
            congested=lambda: self._paused,
            on_answered=self._answered,
        )

    def data_received(self, data: bytes) -> None:
        """Handle the lines that are whole, and answer them with one write."""
        if self._connection is None:
            return
        self._in_batch = True
        for line in self._lines.feed(data):
            self._connection.receive(line)
        self._flush()
        self._throttle()
        if self._connection.user_told is not None:
            self._listener.watch()

    def eof_received(self) -> bool:
        """No more requests come; true while there is something to answer."""
        if self._connection is None or self._transport is None:
            return False
        self._in_batch = True
        for line in self._lines.end():
            self._connection.receive(line)
        self._flush()
        self._ended = True
        if not self._connection.pending:
            return False
        self._watch_hangup(self._transport)
        return True

    def connection_lost(self, _: Exception | None) -> None:
        """Both ways are closed: nobody waits for its calls any more."""
        self._listener.left(self)
        self._unwatch_hangup()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._paused = True
        self._throttle()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._paused = False
        self._throttle()

    @property
    def user_told(self) -> str | None:
        """Whose tools this peer hears of, if anyone's."""
        return self._connection.user_told if self._connection is not None else None

    def tools_changed(self) -> None:
        """Pass the registry's change on."""
        if self._connection is not None:
            self._connection.tools_changed()

    def stop(self) -> None:
        """Close once what was written is out."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, line: bytes) -> None:
        if self._in_batch:
            self._out.append(line)
        elif self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def _flush(self) -> None:
        self._in_batch = False
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _throttle(self) -> None:
        """Read no more from a peer that does not read, or has too much in flight."""
        if self._transport is None or self._connection is None or self._ended:
            return
        limit = self._listener.config.socket.max_calls
        if self._paused or self._connection.pending >= limit:
            if self._transport.is_reading():
                self._transport.pause_reading()
                self._watch_hangup(self._transport)
        elif not self._transport.is_reading():
            self._unwatch_hangup()
            self._transport.resume_reading()

    def _answered(self) -> None:
        if self._in_batch or self._transport is None or self._connection is None:
            return
        if self._ended and not self._connection.pending:
            self._transport.close()
        self._throttle()

    # A peer that closed its input, or that is not read for a while, may still close
    # for good: the loop does not watch it, and a hang-up is what epoll(7) reports unasked.

    def _watch_hangup(self, transport: asyncio.Transport) -> None:
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

    def __init__(self, control: Control, config: Config) -> None:
        self.control = control
        self.config = config
        self._peers: set[Peer] = set()
        self._server: asyncio.Server | None = None
        self._notice: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        control.registry.on_change.append(self._changed)

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        loop = asyncio.get_running_loop()
        # No base class: asyncio asks for none, and its methods are documented here.
        accept = cast("Callable[[], asyncio.Protocol]", lambda: Peer(self))
        self._server = await loop.create_unix_server(accept, sock=sock, backlog=BACKLOG)

    def admit(self, peer: Peer) -> bytes:
        """Count a peer in; else the line that refuses it."""
        limit = self.config.socket.max_connections
        if len(self._peers) >= limit:
            text = f"{limit} connections are the limit (socket.max_connections)"
            body = {"jsonrpc": "2.0", "id": None, "error": {"code": -31029, "message": text}}
            return msgspec.json.encode(body) + b"\n"
        self._peers.add(peer)
        return b""

    def left(self, peer: Peer) -> None:
        """Count a peer out."""
        self._peers.discard(peer)

    def close(self) -> None:
        """Take no more connections; the open ones go on."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._notice is not None:
            self._notice.cancel()
            self._notice = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def close_peers(self) -> None:
        """End what is open."""
        for peer in tuple(self._peers):
            peer.stop()

    def watch(self) -> None:
        """Look for new tools now and then, while a peer is there that wants to be told."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_S, self._look)

    def _look(self) -> None:
        self._watch = None
        users = {user for peer in self._peers if (user := peer.user_told) is not None}
        for user in users:
            self.control.catalogue.look(user)
        if users and self._server is not None:
            self.watch()

    def _changed(self) -> None:
        # A scan changes many tools at once: one notice for all.
        if self._notice is None and self._peers:
            loop = asyncio.get_running_loop()
            self._notice = loop.call_later(0.05, self._tell)

    def _tell(self) -> None:
        self._notice = None
        for peer in tuple(self._peers):
            peer.tools_changed()


def bind(path: str, group: str, *, mode: int = 0o660) -> socket.socket:
    """Bind and listen on a Unix path; a stale one of a dead daemon is replaced.

    Raises:
        ConfigError: another daemon answers there, or the path cannot be bound.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        _unlink_stale(path)
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
        raise ConfigError(f"{reason}: choose another with --socket") from None
    except ConfigError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _unlink_stale(path: str) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        # connect(2) refuses it as it refuses a dead daemon's socket: never remove it.
        reason = f"{path} is in the way (no socket): move it or choose another with --socket"
        raise ConfigError(reason)
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A daemon that is too busy to accept would have it wait.
    probe.setblocking(False)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except BlockingIOError:
        raise ConfigError(_ANSWERS.format(path)) from None
    else:
        raise ConfigError(_ANSWERS.format(path))
    finally:
        probe.close()


_ANSWERS = "a daemon answers on {} already: stop it, or use --socket"


def _open_to_group(path: str, group: str, mode: int) -> None:
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        mode &= 0o600
    except PermissionError:
        # Not a member of that group.
        log.info(f"only you and root can connect to {path}: you are not in the group {group!r}")
        mode &= 0o600
    os.chmod(path, mode)
