"""The HTTP door: listening sockets, and the connections they bring.

Opens plain asyncio servers; aiohttp is imported when the first connection comes,
in a thread, while that connection waits unread (an idle daemon pays for neither).
Bounded: so many connections, so much patience. Loop thread only.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import os
import socket
from typing import Any, NamedTuple

import msgspec

from edged import log
from edged.config import Config
from edged.control import Control
from edged.errors import WIRE, ConfigError
from edged.store import unlink
from edged.transports._limits import Timing
from edged.transports.unix import bind

KEY = "http.listen"
UNIX = "unix:"
BACKLOG = 512


class Address(NamedTuple):
    """Where to listen: a Unix path, or an IP address and port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return UNIX + self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches it."""
        return bool(self.path) or self.host.startswith("127.") or self.host == "::1"


def parse(text: str) -> Address:
    """Read an address of the configuration.

    Raises:
        ConfigError: it is none; says how one is written.
    """
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not os.path.isabs(path):
            raise ConfigError(
                f"{text!r} needs an absolute path: unix:/run/edged-http.sock", key=KEY
            )
        return Address(path=path)
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if host == "localhost":
        host = "127.0.0.1"
    if not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65_536):
        host = ""
    try:
        socket.getaddrinfo(host or "none", None, flags=socket.AI_NUMERICHOST)
    except OSError:
        hint = "write 127.0.0.1:8420, [::1]:8420, 0.0.0.0:8420 or unix:/path"
        raise ConfigError(f"{text!r} is not an address: {hint}", key=KEY) from None
    return Address(host=host, port=int(port))


class HttpListener:
    """All HTTP listeners of the daemon and their connections."""

    def __init__(self, control: Control, config: Config, timing: Timing | None = None) -> None:
        self._control = control
        self._config = config
        self._timing = timing or Timing()
        self._servers: list[asyncio.Server] = []
        self._addresses: list[Address] = []
        self._paths: list[str] = []
        self._gates: set[_Gate] = set()
        self._loading: asyncio.Future[Any] | None = None
        self._api: Any = None
        self._closed = False

    async def start(self, given: list[socket.socket] | None = None) -> None:
        """Listen on the configured addresses, and on sockets that systemd opened.

        Raises:
            ConfigError: an address is none, is taken or cannot be used; nothing listens.
        """
        sockets = list(given or [])
        there = {str(_address_of(sock)) for sock in sockets}
        try:
            addresses = [parse(text) for text in self._config.http.listen]
            sockets.extend(self._bind(a) for a in addresses if str(a) not in there)
        except ConfigError:
            for sock in sockets:
                sock.close()
            self._unlink()
            raise
        loop = asyncio.get_running_loop()
        for sock in sockets:
            self._addresses.append(_address_of(sock))
            # Serves Unix sockets too, and unlike `create_unix_server` never unlinks systemd's.
            server = await loop.create_server(lambda: _Gate(self), sock=sock, backlog=BACKLOG)
            self._servers.append(server)
        public = [str(a) for a in self._addresses if not a.is_private]
        if public:
            log.warning(
                f"HTTP on {', '.join(public)} is not encrypted: whoever reads the network reads "
                "tokens and results: put a TLS proxy before it, or listen on 127.0.0.1"
            )

    def addresses(self) -> list[str]:
        """Where it listens, as URLs and `unix:` paths."""
        return [str(a) if a.path else f"http://{a}" for a in self._addresses]

    def close(self) -> None:
        """Take no more connections; the open ones go on."""
        self._closed = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._unlink()

    async def close_connections(self) -> None:
        """End what is open; answers on their way may end within a moment."""
        for gate in tuple(self._gates):
            gate.abort()
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._api is not None:
            await self._api.close()

    def arrived(self, gate: _Gate) -> None:
        """A connection came: hand it to aiohttp, let it wait, or refuse it."""
        limit = self._config.http.max_connections
        if self._closed or len(self._gates) >= 2 * limit:
            # So many are being refused already that this one is not even told.
            gate.abort()
            return
        waiting = sum(g.is_waiting for g in self._gates)
        self._gates.add(gate)
        full = waiting + (self._api.open if self._api else 0) >= limit
        if full and not (self._api is not None and self._api.evict()):
            text = f"{limit} connections are the limit (http.max_connections)"
            gate.refuse(text, self._timing.linger_s)
        elif self._api is not None:
            self._hand_over(gate)
        else:
            gate.wait()
            self._load()

    def left(self, gate: _Gate) -> None:
        """A connection ended before aiohttp had it, or was refused."""
        self._gates.discard(gate)

    def _load(self) -> None:
        if self._loading is None:
            loop = asyncio.get_running_loop()
            self._loading = loop.run_in_executor(
                None, importlib.import_module, "edged.transports._routes"
            )
            self._loading.add_done_callback(self._loaded)

    def _loaded(self, loading: asyncio.Future[Any]) -> None:
        self._loading = None
        waiting = [g for g in self._gates if g.is_waiting]
        error = loading.exception()
        if error is not None:
            log.error(f"HTTP cannot be served: {error}")
            for gate in waiting:
                gate.refuse("edged cannot serve HTTP; its log says why", self._timing.linger_s)
            return
        self._api = loading.result().api(self._control, self._config, self._timing)
        for gate in waiting:
            self._hand_over(gate)

    def _hand_over(self, gate: _Gate) -> None:
        self._gates.discard(gate)
        gate.is_waiting = False
        transport = gate.transport
        sock = transport.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            # tcp(7): ends a connection whose peer is gone or reads nothing.
            stalled_ms = int(self._timing.stalled_s * 1_000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled_ms)
        connection = self._api.connection()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        transport.resume_reading()

    def _bind(self, address: Address) -> socket.socket:
        if address.path:
            sock = bind(address.path, self._config.socket.group, option="--http")
            self._paths.append(address.path)
            return sock
        return _bind_tcp(address)

    def _unlink(self) -> None:
        for path in self._paths:
            unlink(path)
        self._paths.clear()


class _Gate(asyncio.Protocol):
    """One connection that aiohttp does not have: it waits, or is being refused."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport
        self.is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  a stream server's
        self.transport = transport
        self._listener.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        if self._timer is not None:
            self._timer.cancel()
        self._listener.left(self)

    def wait(self) -> None:
        """Leave what the peer sends in the kernel's bounded buffer.

        Before Python 3.11.5 the loop begins to read after `connection_made` whatever that
        said (cpython issue 106527), so the pause comes one step later: still before a read.
        """
        self.is_waiting = True
        asyncio.get_running_loop().call_soon(self._pause)

    def _pause(self) -> None:
        if self.is_waiting:
            self.transport.pause_reading()

    def refuse(self, detail: str, linger_s: float) -> None:
        """Answer without HTTP's library; then throw away what comes, so that it arrives."""
        self.is_waiting = False
        self.transport.write(_refusal(detail))
        self.transport.write_eof()
        self.transport.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(linger_s, self.transport.abort)

    def abort(self) -> None:
        """Cut it."""
        self.is_waiting = False
        self.transport.abort()


def _refusal(detail: str) -> bytes:
    code = "busy"
    body = msgspec.json.encode(
        {
            "type": f"urn:edged:error:{code}",
            "title": WIRE[code].title,
            "status": 503,
            "detail": detail,
            "code": code,
            "retry_after": 1,
        }
    )
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nServer: edged\r\nRetry-After: 1\r\n"
        b"Content-Type: application/problem+json\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%b" % (len(body), body)
    )


def _address_of(sock: socket.socket) -> Address:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return Address(path=str(name))
    return Address(host=str(name[0]), port=int(name[1]))


_REMEDIES = {
    errno.EADDRINUSE: (
        "port {port} is taken, perhaps by another edged: stop what listens there "
        "(ss -ltnp shows it), or choose another with --http or http.listen"
    ),
    errno.EACCES: "port {port} is for root: choose one from 1024, such as 8420",
    errno.EADDRNOTAVAIL: "this machine has no such address: ip address shows those there are",
}


_PASSING = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
"""What is otherwise as soon as a program ends, or the network is there."""


def _bind_tcp(address: Address) -> socket.socket:
    family, _, _, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    sock: socket.socket | None = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        remedy = _REMEDIES.get(error.errno or 0, error.strerror or str(error))
        reason = f"cannot listen on {address}: {remedy.format(port=address.port)}"
        raise ConfigError(reason, key="" if error.errno in _PASSING else KEY) from None
    sock.setblocking(False)
    return sock
