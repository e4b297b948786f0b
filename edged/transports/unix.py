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
import struct

import msgspec

from edged import log
from edged.config import Config, UserEntry
from edged.control import Control
from edged.errors import ConfigError
from edged.identity import LOCAL_USER, Caller, Door
from edged.jsonrpc import Lines
from edged.mcp.server import Connection

HIGH_WATER = 1 << 20
"""Bytes that may wait for a peer before its input is no longer read."""


def caller_of(uid: int, config: Config, door: Door) -> Caller:
    """Who a local uid is (contract, section 4)."""
    entry = config.users.get(str(uid))
    trusted = uid in (0, os.geteuid())
    peer = f"uid {uid}"
    if isinstance(entry, UserEntry):
        return Caller(entry.user, entry.role, "", door, peer)
    user = entry if entry is not None else LOCAL_USER
    return Caller(user, "owner" if trusted else "agent", "", door, peer)


def peer_uid(sock: socket.socket) -> int:
    """The uid at the other end (`SO_PEERCRED`, unix(7))."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", data)[1]
    return uid


class Peer(asyncio.Protocol):
    """One accepted connection."""

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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  a stream server's
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
            on_idle=self._idle,
        )

    def data_received(self, data: bytes) -> None:
        if self._connection is None:
            return
        self._in_batch = True
        for line in self._lines.feed(data):
            self._connection.receive(line)
        self._flush()
        self._throttle()

    def eof_received(self) -> bool:
        if self._connection is None or self._transport is None:
            return False
        self._in_batch = True
        for line in self._lines.end():
            self._connection.receive(line)
        self._flush()
        self._ended = True
        if not self._connection.pending or self._is_hung_up():
            return False
        self._watch_hangup()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.left(self)
        if self._hangup is not None:
            asyncio.get_running_loop().remove_reader(self._hangup.fileno())
            self._hangup.close()
            self._hangup = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def pause_writing(self) -> None:
        self._paused = True
        self._throttle()

    def resume_writing(self) -> None:
        self._paused = False
        self._throttle()

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
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def _idle(self) -> None:
        if self._ended and self._transport is not None and not self._in_batch:
            self._transport.close()
        self._throttle()

    # A peer that closed its input may still close for good: the loop no longer
    # watches it for reading, and a hang-up is what poll(2) reports unasked.

    def _is_hung_up(self) -> bool:
        assert self._transport is not None  # noqa: S101
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def _watch_hangup(self) -> None:
        assert self._transport is not None  # noqa: S101
        self._hangup = select.epoll()
        fd = self._transport.get_extra_info("socket").fileno()
        self._hangup.register(fd, select.EPOLLET)
        asyncio.get_running_loop().add_reader(self._hangup.fileno(), self._hung_up)

    def _hung_up(self) -> None:
        if self._hangup is None or self._transport is None:
            return
        if any(event & select.EPOLLHUP for _, event in self._hangup.poll(0)):
            self._transport.abort()


class Listener:
    """The listening socket and its peers."""

    def __init__(self, control: Control, config: Config) -> None:
        self.control = control
        self.config = config
        self._peers: set[Peer] = set()
        self._server: asyncio.Server | None = None
        self._notice: asyncio.TimerHandle | None = None
        control.registry.on_change.append(self._changed)

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: Peer(self), sock=sock, backlog=512)

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

    def close_peers(self) -> None:
        """End what is open."""
        for peer in tuple(self._peers):
            peer.stop()

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
    directory = os.path.dirname(path)
    if directory and not os.path.isdir(directory):
        os.makedirs(directory, mode=0o755, exist_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        _unlink_stale(path)
        sock.bind(path)
    except OSError as error:
        sock.close()
        reason = f"cannot listen on {path}: {error.strerror or error}"
        raise ConfigError(f"{reason}: choose another with --socket") from None
    except ConfigError:
        sock.close()
        raise
    finally:
        os.umask(before)
    _open_to_group(path, group, mode)
    sock.listen(512)
    sock.setblocking(False)
    return sock


def _unlink_stale(path: str) -> None:
    if not os.path.exists(path):
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)
    except OSError as error:
        reason = f"{path} is in the way ({error.strerror}): move it or choose another with --socket"
        raise ConfigError(reason) from None
    else:
        raise ConfigError(f"a daemon answers on {path} already: stop it, or use --socket")
    finally:
        probe.close()


def _open_to_group(path: str, group: str, mode: int) -> None:
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        mode &= 0o600
    except PermissionError:
        # Not a member of that group: the owner alone connects.
        log.info(f"{path}: not in the group {group!r}: only you and root can connect")
        mode &= 0o600
    os.chmod(path, mode)


