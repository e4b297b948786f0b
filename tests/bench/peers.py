"""edged beside what one would take instead: the SDKs' servers, FastMCP, mcpo; one run for all.

Every server runs all the time, on one CPU, and is asked in turn, so that what else the machine
does hits all of them. A ratio is the median of those of the rounds. Over stdio 16 clients are
as many calls in flight on one pipe, over the socket and HTTP as many connections. Each peer
speaks the revision that it is fastest in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests import npm
from tests.bench import venvs
from tests.bench.load import (
    HERE,
    Client,
    Load,
    closed_loop,
    connect,
    edged,
    pipes,
    pss_mib,
    running,
    tree,
)
from tests.bench.posts import Door
from tests.bench.table import Table

SECONDS = 0.5
ROUNDS = 15
STARTS = 5
CLIENTS = (1, 16)
IDLE_S = 1.5
PATIENCE_S = 60.0
EVERYTHING = "@modelcontextprotocol/server-everything/dist/index.js"
# What one token may ask for in a second is limited; this is a load.
CONFIG = "tools: {echo: {enabled: true}}\nhttp: {rate: 1000000, burst: 1000000}\n"
FASTMCP = ("fastmcp==4.2.3",)
# mcpo 0.0.20 starts neither with mcp 2 nor with FastAPI 0.165.
MCPO = ("mcpo==0.0.20", "mcp<2", "fastapi<0.129")
PYTHON_PEERS = ("Python SDK", "FastMCP")


@dataclass
class Server:
    """One that is measured.

    Attributes:
        name: as the table has it.
        argv: how it is started.
        reach: opens so many clients; None: over its own stdin and stdout.
        argument: of its `echo`.
        env: variables beside the bench's own.
        loads: what was measured, by clients.
        started_ms: from its start to its first list.
        held_mib: proportional set size of its processes, idle.
    """

    name: str
    argv: list[str]
    reach: Callable[[], Awaitable[Client]] | None = None
    argument: str = "text"
    env: dict[str, str] = field(default_factory=dict)
    loads: dict[int, list[Load]] = field(default_factory=dict)
    started_ms: list[float] = field(default_factory=list)
    held_mib: float = 0.0
    process: subprocess.Popen | None = None
    pipe: Client | None = None

    @property
    def options(self) -> dict:
        ends = subprocess.PIPE if self.reach is None else subprocess.DEVNULL
        return {"stdin": ends, "stdout": ends, "env": os.environ | self.env}

    @contextlib.asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[Sequence[Client]]:
        """So many connections; over stdio the one pipe."""
        if self.reach is None:
            yield [self.pipe]
            return
        made = [await self.reach() for _ in range(count)]
        yield made
        for one in made:
            one.close()

    async def answer(self, process: subprocess.Popen) -> Client:
        """A client of a server that was just started, once it has listed its tools."""
        if self.reach is None:
            client = await pipes(process)
            await client.initialize()
        else:
            client = await self._reached(process)
        await self._first(client)
        return client

    async def _reached(self, process: subprocess.Popen) -> Client:
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                client = await self.reach()
                await self._first(client)
            except OSError:
                assert process.poll() is None, f"{self.name} ended"
                assert time.monotonic() < end, f"{self.name} does not answer"
                await asyncio.sleep(0.005)
            else:
                return client

    async def _first(self, client: Client) -> None:
        if getattr(client, "is_plain", False):
            # An API without a list: its first answer.
            await self.use(client)
        else:
            assert b'"echo"' in await client.ask("tools/list", {})

    async def use(self, client: Client) -> None:
        """Call it once."""
        call = {"name": "echo", "arguments": {self.argument: "up"}}
        assert b"up" in await client.ask("tools/call", call)

    def lead(self, peer: Server, count: int) -> float:
        """Calls per second, to those of a peer in the same rounds."""
        pairs = zip(self.loads[count], peer.loads[count], strict=True)
        return statistics.median(own.rate / other.rate for own, other in pairs)

    def shown(self) -> str:
        parts = []
        for count in CLIENTS:
            rate, p50_ms, p99_ms = (
                statistics.median(getattr(load, name) for load in self.loads[count])
                for name in ("rate", "p50_ms", "p99_ms")
            )
            parts.append(f"{rate:>6.0f}/s {p50_ms:>6.2f} {p99_ms:>6.2f} ms")
        return "  ".join(parts)


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {1})
    lines, posts = (
        _lines(os.path.join(directory, "lines")),
        _posts(os.path.join(directory, "http")),
    )
    _started([*lines, *posts])
    with contextlib.ExitStack() as stack:
        asyncio.run(_all([*lines, *posts], stack))
    wrong = sum(
        load.wrong for one in (*lines, *posts) for loads in one.loads.values() for load in loads
    )
    table.row("wrong answers", wrong, at_most=0, unit=" ")
    table.note("start and idle memory; calls/s, p50 and p99 with 1 and with 16 clients")
    for way, servers in (("lines", lines), ("http", posts)):
        for one in servers:
            table.note(
                f"{one.name:<14} {way:<5} {min(one.started_ms):>5.0f} ms "
                f"{one.held_mib:>4.0f} MiB  {one.shown()}"
            )
    _told_of_lines(table, *lines)
    _told_of_posts(table, *posts)


def _script(name: str, *words: str, python: str = sys.executable) -> list[str]:
    return [python, os.path.join(HERE, name), *words]


def _lines(home: str) -> list[Server]:
    """Those over the socket and those over stdio."""
    os.makedirs(home)
    path, floor = f"{home}/edged.sock", f"{home}/floor.sock"
    own = os.path.join(os.path.dirname(sys.executable), "edged")
    everything = [npm.NODE, str(npm.modules("mcp") / EVERYTHING), "stdio"]
    fastmcp = venvs.python("fastmcp", *FASTMCP)

    async def session(where: str) -> Client:
        client = await connect(where)
        await client.initialize()
        return client

    return [
        Server("floor", _script("floor.py", floor), lambda: session(floor)),
        Server("edged", edged(home), lambda: session(path)),
        Server("edged mcp", [own, "mcp", "--socket", path]),
        Server("Python SDK", _script("sdk_echo.py")),
        Server("FastMCP", _script("fastmcp_echo.py", python=fastmcp)),
        Server("TypeScript SDK", everything, argument="message"),
    ]


def _free(*names: str) -> dict[str, int]:
    """A port for each, which nobody listens on."""
    with contextlib.ExitStack() as stack:
        links = {name: stack.enter_context(socket.socket()) for name in names}
        for link in links.values():
            link.bind(("127.0.0.1", 0))
        return {name: link.getsockname()[1] for name, link in links.items()}


def _posts(home: str) -> list[Server]:
    """Those over HTTP."""
    os.makedirs(home)
    ports = _free("floor", "edged", "Python SDK", "FastMCP", "mcpo", "TypeScript SDK")
    fastmcp = venvs.python("fastmcp", *FASTMCP)
    mcpo = os.path.join(os.path.dirname(venvs.python("mcpo", *MCPO)), "mcpo")
    everything = [npm.NODE, str(npm.modules("mcp") / EVERYTHING), "streamableHttp"]

    def at(name: str, era: str) -> Callable[[], Awaitable[Client]]:
        return lambda: Door(ports[name], era).connect()

    async def owner() -> Client:
        with open(f"{home}/data/token") as file:
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        return await Door(ports["edged"], "modern", headers).connect()

    def words(name: str) -> str:
        return str(ports[name])

    serve = [mcpo, "--host", "127.0.0.1", "--port", words("mcpo"), "--log-level", "ERROR", "--"]
    return [
        Server("floor", _script("floor.py", words("floor")), at("floor", "modern")),
        Server("edged", edged(home, CONFIG, "--http", f"127.0.0.1:{ports['edged']}"), owner),
        Server(
            "Python SDK", _script("sdk_echo.py", words("Python SDK")), at("Python SDK", "modern")
        ),
        Server(
            "FastMCP",
            _script("fastmcp_echo.py", words("FastMCP"), python=fastmcp),
            at("FastMCP", "modern"),
        ),
        Server("mcpo", [*serve, *_script("sdk_echo.py")], at("mcpo", "/{}")),
        Server(
            "TypeScript SDK",
            everything,
            at("TypeScript SDK", "legacy"),
            argument="message",
            env={"PORT": words("TypeScript SDK")},
        ),
    ]


def _started(servers: list[Server]) -> None:
    """Cold starts to the first list, in turn, each alone; the pipe beside its daemon."""

    async def first(server: Server, process: subprocess.Popen) -> None:
        await server.answer(process)

    daemon = next(server for server in servers if server.name == "edged")
    for _ in range(STARTS):
        for server in servers:
            with contextlib.ExitStack() as stack:
                if server.name == "edged mcp":
                    one = stack.enter_context(running(daemon.argv, **daemon.options))
                    asyncio.run(first(daemon, one))
                begun = time.perf_counter()
                process = stack.enter_context(running(server.argv, **server.options))
                asyncio.run(first(server, process))
                server.started_ms.append((time.perf_counter() - begun) * 1000)


async def _all(servers: list[Server], stack: contextlib.ExitStack) -> None:
    """What each holds after one call, idle; then the loads of each in turn."""
    for server in servers:
        # In their order: the pipe finds its daemon.
        server.process = stack.enter_context(running(server.argv, **server.options))
        client = await server.answer(server.process)
        server.pipe = client if server.reach is None else None
        await server.use(client)
    await asyncio.sleep(IDLE_S)
    for server in servers:
        server.held_mib = sum(pss_mib(pid) for pid in tree(server.process.pid))
    for _ in range(ROUNDS):
        for server in servers:
            for count in CLIENTS:
                async with server.clients(count) as clients:
                    in_flight = count if server.reach is None else 1
                    load = await closed_loop(
                        clients, SECONDS, in_flight=in_flight, argument=server.argument
                    )
                    server.loads.setdefault(count, []).append(load)


def _said(count: int) -> str:
    return f"calls/s, {count} clients" if count > 1 else "calls/s, 1 client"


def _bound(wanted: float, floor: Server, peer: Server, count: int) -> float:
    """Most of a call with one client is this client's own time (as in `calls`)."""
    return round(min(wanted, 0.8 * floor.lead(peer, count)), 2)


def _told_of_lines(
    table: Table, floor: Server, daemon: Server, pipe: Server, *peers: Server
) -> None:
    for count in CLIENTS:
        said = _said(count)
        _lead(table, f"{said}, socket to asyncio", daemon, floor, count, 0.6)
        for peer in peers:
            if peer.name in PYTHON_PEERS:
                bound = _bound(5, floor, peer, count)
                _lead(table, f"{said}, socket to {peer.name}", daemon, peer, count, bound)
                ratio = pipe.lead(peer, count)
                table.note(f"{said}, through the pipe to {peer.name}: {ratio:.1f} ×")
            elif count == 1:
                _lead(table, f"{said}, socket to {peer.name}", daemon, peer, count, 1)
                ratio = pipe.lead(peer, count)
                table.note(f"{said}, through the pipe to {peer.name}: {ratio:.2f} ×")
    ours = daemon.held_mib + pipe.held_mib
    for peer in peers:
        most = 0.5 if peer.name in PYTHON_PEERS else 1
        table.row(f"memory with its pipe, to {peer.name}", ours / peer.held_mib, at_most=most)
        if peer.name in PYTHON_PEERS:
            # A client starts the pipe; the daemon is started once, by the board.
            ratio = min(peer.started_ms) / min(pipe.started_ms)
            table.row(f"start of the pipe, {peer.name}'s to it", ratio, at_least=5)
            ratio = min(peer.started_ms) / min(daemon.started_ms)
            table.note(f"start of the daemon, {peer.name}'s to it: {ratio:.1f} ×")


def _told_of_posts(table: Table, floor: Server, own: Server, *peers: Server) -> None:
    for count in CLIENTS:
        _lead(table, f"{_said(count)}, HTTP to aiohttp", own, floor, count, 0.6)
        for peer in peers:
            if peer.name == "TypeScript SDK":
                ratio = own.lead(peer, count)
                table.note(f"{_said(count)}, HTTP to {peer.name}: {ratio:.2f} ×")
            else:
                bound = _bound(2, floor, peer, count)
                _lead(table, f"{_said(count)}, HTTP to {peer.name}", own, peer, count, bound)
    for peer in peers:
        table.note(f"memory, HTTP, to {peer.name}: {own.held_mib / peer.held_mib:.2f} ×")


def _lead(table: Table, claim: str, own: Server, peer: Server, count: int, bound: float) -> None:
    table.row(claim, own.lead(peer, count), at_least=bound)
