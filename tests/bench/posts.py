"""A kept HTTP/1.1 connection that posts calls: MCP's Streamable HTTP, or a plain JSON API."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping

from tests.bench.load import INIT

LEGACY, MODERN = INIT["protocolVersion"], "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INIT["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Posts(asyncio.Protocol):
    """One connection; a request at a time."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._status = 0
        self._size: int | None = None
        self.headers: dict[str, str] = {}
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        link = transport.get_extra_info("socket")
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._size is None and not self._read_head():
            return
        if self._size == -1:
            if not self._buffer.endswith(b"0\r\n\r\n"):
                return
            # Calls are answered by a few lines: chunks need not be told apart.
            self._finish(len(self._buffer))
        elif len(self._buffer) >= self._size:
            self._finish(self._size)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        first, *rows = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        self._status = int(first.split()[1])
        pairs = (row.partition(":") for row in rows)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._size = -1 if chunked else int(self.headers.get("content-length", 0))
        return True

    def _finish(self, size: int) -> None:
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._size = None
        answer, self._answer = self._answer, None
        if self._status >= 300:
            answer.set_exception(ConnectionError(f"{self._status}: {body[:300]!r}"))
        else:
            answer.set_result(body)

    def post(self, head: bytes, body: bytes) -> asyncio.Future[bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        return self._answer

    def close(self) -> None:
        self.transport.close()


def _head(path: str, port: int, headers: Mapping[str, str]) -> bytes:
    rows = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Content-Length: ",
    ]
    return "\r\n".join(rows).encode()


class Door:
    """Where and how a server is asked over HTTP.

    Args:
        port: of 127.0.0.1.
        era: `modern` or `legacy` for MCP at /mcp; else the path of a plain API, `/{}` in it for
            the tool's name, which takes the arguments as they are.
        headers: of every request.
    """

    def __init__(self, port: int, era: str, headers: Mapping[str, str] | None = None) -> None:
        self.port, self.era, self.headers = port, era, headers or {}

    async def connect(self) -> Client:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(Posts, "127.0.0.1", self.port)
        client = Client(self, link)
        if self.era == "legacy":
            await client.initialize()
        return client


class Client:
    """What calls are made of, as `load.Lines` for lines."""

    def __init__(self, door: Door, link: Posts) -> None:
        self._door, self._link = door, link
        self._count = 0
        self._session: dict[str, str] = {}
        self._heads: dict[tuple[str, str], bytes] = {}
        self.is_plain = door.era not in ("modern", "legacy")

    async def initialize(self) -> None:
        await self._post(
            "initialize", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INIT}
        )
        self._session = {"MCP-Protocol-Version": LEGACY}
        if session := self._link.headers.get("mcp-session-id"):
            self._session["Mcp-Session-Id"] = session
        self._heads.clear()
        await self._post("", {"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict) -> asyncio.Future[bytes]:
        name = params.get("name", "")
        if self.is_plain:
            return self._post(method, params["arguments"], name)
        self._count += 1
        if self._door.era == "modern":
            params = {**params, "_meta": META}
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        return self._post(method, message, name)

    def _post(self, method: str, body: dict, name: str = "") -> asyncio.Future[bytes]:
        head = self._heads.get((method, name))
        if head is None:
            head = self._heads[method, name] = self._made_head(method, name)
        return self._link.post(head, json.dumps(body).encode())

    def _made_head(self, method: str, name: str) -> bytes:
        door = self._door
        if self.is_plain:
            return _head(door.era.format(name), door.port, door.headers)
        own = dict(self._session)
        if door.era == "modern":
            own = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if name:
                own["Mcp-Name"] = name
        return _head("/mcp", door.port, {**door.headers, **own})

    def close(self) -> None:
        self._link.close()
