"""How edged reaches the web: sessions of aiohttp that dial what may be dialled.

Imports aiohttp, so nothing that starts with the daemon imports this. The environment's
proxies are not used: what is configured is. Loop thread only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import (
    BaseConnector,
    ClientConnectionError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from edged import __version__
from edged.errors import ConfigError
from edged.libraries import install
from edged.web.guard import Guard

AGENT = f"Mozilla/5.0 (compatible; edged/{__version__})"
HEADER_MAX = 32 << 10
CONNECT_S = 15.0
IDLE_S = 20.0
"""Between two pieces of an answer."""

ADDRESSES_MAX = 4
"""Of one host that are tried through a proxy."""

Lookup = Callable[[str, int], Awaitable[list[tuple[socket.AddressFamily, str]]]]
"""Addresses of a host, as the system's resolver knows them."""


async def lookup(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    """Ask the system's resolver.

    Raises:
        OSError: there is no such host.
    """
    loop = asyncio.get_running_loop()
    rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, str(address[0])) for family, _, _, _, address in rows]


class Resolver(AbstractResolver):
    """Names become addresses once, and what the guard refuses is not among them.

    aiohttp dials what this returns and does not ask again, so that a name cannot stand
    for another address a moment later (DNS rebinding).
    """

    def __init__(self, guard: Guard, find: Lookup = lookup) -> None:
        self._guard = guard
        self._find = find

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host that may be dialled.

        Raises:
            DeniedError: it has only others.
            OSError: there is no such host.
        """
        rows = await self._find(host, port)
        fit = [row for row in rows if family in (socket.AF_UNSPEC, row[0])]
        kept = set(self._guard.checked(host, [address for _, address in fit]))
        return [_result(host, address, port, kind) for kind, address in fit if address in kept]

    async def close(self) -> None:
        """Nothing is open."""


class _Names(AbstractResolver):
    """Leaves names to the proxy."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [_result(host, host, port, family)]

    async def close(self) -> None:
        """Nothing is open."""


def _result(host: str, address: str, port: int, family: socket.AddressFamily) -> ResolveResult:
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=0, flags=socket.AI_NUMERICHOST
    )


class Tunnel(TCPConnector):
    """Dials through a proxy: HTTP CONNECT or SOCKS, to the address that was resolved here.

    Were this never called, the same address would be dialled directly.
    """

    def __init__(self, proxy: str, resolver: AbstractResolver) -> None:
        super().__init__(resolver=resolver, use_dns_cache=False, force_close=True)
        self._url = proxy
        self._open: list[object] = []

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[Any],
        timeout: ClientTimeout,  # noqa: ASYNC109
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        failed = ClientConnectionError("no address")
        for info in addr_infos[:ADDRESSES_MAX]:
            host, port = info[4][:2]
            try:
                writer = await self._connect(host, port, timeout.sock_connect or CONNECT_S)
            except ClientConnectionError as error:
                failed = error
                continue
            self._open.append(writer)  # it would close its transport when it is forgotten
            protocol = args[0]()
            transport = writer.transport
            if kwargs.get("ssl") is not None:
                transport = await self._loop.start_tls(
                    transport,
                    protocol,
                    kwargs["ssl"],
                    server_hostname=kwargs.get("server_hostname"),
                    ssl_handshake_timeout=timeout.sock_connect or CONNECT_S,
                )
            else:
                transport.set_protocol(protocol)
            protocol.connection_made(transport)
            return transport, protocol
        raise failed

    async def _connect(self, host: str, port: int, timeout_s: float) -> Any:
        """A stream to the target; what is wrong with the proxy is told without its password."""
        import python_socks  # noqa: PLC0415  an extra
        from python_socks.async_.asyncio.v2 import Proxy  # noqa: PLC0415

        url = URL(self._url)
        kinds = {"http": "HTTP", "https": "HTTP", "socks5": "SOCKS5", "socks5h": "SOCKS5"}
        secure = None
        if url.scheme == "https":
            import ssl  # noqa: PLC0415  only for such a proxy

            secure = ssl.create_default_context()
        proxy = Proxy(
            proxy_type=python_socks.ProxyType[kinds[url.scheme]],
            host=url.host or "",
            port=url.port or 1080,
            username=url.user,
            password=url.password,
            rdns=True,
            proxy_ssl=secure,
        )
        try:
            stream = await proxy.connect(host, port, timeout=timeout_s)
        except (python_socks.ProxyError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            where = f"{url.scheme}://{url.host}:{url.port}"
            raise ClientConnectionError(
                f"the proxy {where} gives no way to {host} port {port}: {reason}"
            ) from None
        return stream.writer


def _need_socks() -> None:
    from importlib.util import find_spec  # noqa: PLC0415  rare

    if find_spec("python_socks") is None:
        raise ConfigError(f"this proxy needs python-socks: {install('edged[proxy]')}")


def guarded(guard: Guard, proxy: str, total_s: float, find: Lookup = lookup) -> ClientSession:
    """A session for URLs of strangers: every address is checked, behind a proxy too.

    An address that is written in a URL is dialled as it is: check it with the guard first.

    Args:
        guard: what may be dialled.
        proxy: of the configuration, or empty; it may itself be anywhere.
        total_s: of one request.
        find: the resolver.

    Raises:
        ConfigError: the proxy needs a library that is not there.
    """
    resolver = Resolver(guard, find)
    if proxy:
        _need_socks()
        return _session(Tunnel(proxy, resolver), total_s)
    return _session(
        TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True), total_s
    )


def trusted(proxy: str, total_s: float) -> ClientSession:
    """A session for servers that the owner chose: search providers.

    Raises:
        ConfigError: as `guarded`.
    """
    if proxy.startswith("socks"):
        _need_socks()
        resolver = Resolver(_Anywhere()) if proxy.startswith("socks5:") else _Names()
        return _session(Tunnel(proxy, resolver), total_s)
    return _session(TCPConnector(force_close=True), total_s, proxy)


class _Anywhere(Guard):
    def permits(self, text: str) -> bool:  # noqa: ARG002  nothing is refused
        return True


def _session(connector: BaseConnector, total_s: float, proxy: str = "") -> ClientSession:
    timeout = ClientTimeout(total=total_s, sock_connect=CONNECT_S, sock_read=IDLE_S)
    return ClientSession(
        connector=connector,
        timeout=timeout,
        # Bodies are unpacked here, piece by piece: a bomb is cut at the limit.
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
        headers={"User-Agent": AGENT, "Accept-Encoding": "gzip, deflate"},
        max_line_size=HEADER_MAX,
        max_field_size=HEADER_MAX,
        proxy=proxy or None,
    )
