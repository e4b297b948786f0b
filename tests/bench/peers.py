"""edged beside what one would take instead: the SDKs' servers and FastMCP; one run for all.

Every server runs all the time, on one CPU, and is asked in turn, so that what else the machine
does hits all of them. A ratio is the median of those of the rounds. Over stdio 16 clients are
as many calls in flight on one pipe, over the socket as many connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from tests.bench.table import Table

SECONDS = 0.5
ROUNDS = 15
STARTS = 5
CLIENTS = (1, 16)
IDLE_S = 1.5
PATIENCE_S = 60.0
EVERYTHING = "@modelcontextprotocol/server-everything/dist/index.js"
FASTMCP = ("fastmcp==4.2.3",)
PYTHON_PEERS = ("Python SDK", "FastMCP")


@dataclass
class Server:
    """One that is measured.

    Attributes:
        name: as the table has it.
        argv: how it is started.
        reach: opens so many clients; None: over its own stdin and stdout.
        argument: of its `echo`.
        loads: what was measured, by clients.
        started_ms: from its start to its first list.
        held_mib: proportional set size of its processes, idle.
    """

    name: str
    argv: list[str]
    reach: Callable[[], Awaitable[Client]] | None = None
    argument: str = "text"
    loads: dict[int, list[Load]] = field(default_factory=dict)
    started_ms: list[float] = field(default_factory=list)
    held_mib: float = 0.0
    process: subprocess.Popen | None = None
    pipe: Client | None = None

    @property
    def options(self) -> dict:
        ends = subprocess.PIPE if self.reach is None else subprocess.DEVNULL
        return {"stdin": ends, "stdout": ends}

    @contextlib.asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[Sequence[Client]]:
        """So many connections; over stdio the one pipe."""
        if self.reach is None:
            yield [self.pipe]
            return
        made = [await self.reach() for _ in range(count)]
        yield made
        for one in made:
            one.out.close()

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
        answer = await client.ask("tools/list", {})
        assert b'"echo"' in answer, answer

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
    servers = _servers(directory)
    _started(servers)
    with contextlib.ExitStack() as stack:
        asyncio.run(_all(servers, stack))
    _told(table, servers)


def _script(name: str, *words: str, python: str = sys.executable) -> list[str]:
    return [python, os.path.join(HERE, name), *words]


def _servers(home: str) -> list[Server]:
    """Those over the socket and those over stdio."""
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
        call = {"name": "echo", "arguments": {server.argument: "up"}}
        assert b"up" in await client.ask("tools/call", call)
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


def _told(table: Table, servers: list[Server]) -> None:
    wrong = sum(load.wrong for one in servers for loads in one.loads.values() for load in loads)
    table.row("wrong answers", wrong, at_most=0, unit=" ")
    table.note("start and idle memory; calls/s, p50 and p99 with 1 and with 16 clients")
    for one in servers:
        way = "stdio" if one.reach is None else "socket"
        table.note(
            f"{one.name:<14} {way:<6} {min(one.started_ms):>5.0f} ms {one.held_mib:>4.0f} MiB  "
            f"{one.shown()}"
        )
    floor, daemon, pipe, *peers = servers
    for count in CLIENTS:
        said = f"calls/s, {count} clients" if count > 1 else "calls/s, 1 client"
        _lead(table, f"{said}, socket to asyncio", daemon, floor, count, 0.6)
        for peer in peers:
            if peer.name in PYTHON_PEERS:
                # With one client most of a call is this client's own time (as in `calls`).
                bound = round(min(5, 0.8 * floor.lead(peer, count)), 2)
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


def _lead(table: Table, claim: str, own: Server, peer: Server, count: int, bound: float) -> None:
    table.row(claim, own.lead(peer, count), at_least=bound)
