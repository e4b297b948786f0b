"""A closed-loop load over line-delimited JSON-RPC, and what processes cost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Protocol

TICK = os.sysconf("SC_CLK_TCK")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = sys.executable
INIT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


def tree(pid: int) -> list[int]:
    """A process and all its living descendants."""
    found, todo = [], [pid]
    while todo:
        one = todo.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children") as file:
                    todo += [int(child) for child in file.read().split()]
            found.append(one)
    return found


def pss_mib(pid: int) -> float:
    """Proportional set size of one process, MiB."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        rows = [line.split() for line in file]
    return int(next(row[1] for row in rows if row[0] == "Pss:")) / 1024


class Lines(asyncio.Protocol):
    """One connection or pipe; answers are matched by id."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.out: asyncio.WriteTransport | None = None
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.out = self.out or transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self.buffer).split(b"\n")
        self.buffer = bytearray(rest)
        for line in lines:
            message = json.loads(line) if line.strip() else {}
            future = self.waiting.pop(message.get("id"), None)
            if future is not None and not future.done():
                future.set_result(line)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("closed"))

    def ask(self, method: str, params: dict) -> asyncio.Future[bytes]:
        self.count += 1
        future = asyncio.get_running_loop().create_future()
        self.waiting[self.count] = future
        message = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        self.out.write(json.dumps(message).encode() + b"\n")
        return future

    def close(self) -> None:
        self.out.close()

    async def initialize(self) -> None:
        await self.ask("initialize", INIT)
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self.out.write(json.dumps(note).encode() + b"\n")


async def connect(path: str, patience_s: float = 20.0) -> Lines:
    """A connection to a Unix socket, once it is there."""
    loop = asyncio.get_running_loop()
    end = time.monotonic() + patience_s
    while True:
        try:
            _, protocol = await loop.create_unix_connection(Lines, path)
            return protocol
        except OSError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.005)


async def pipes(process: subprocess.Popen) -> Lines:
    """The same over a child's stdin and stdout."""
    loop = asyncio.get_running_loop()
    protocol = Lines()
    transport, _ = await loop.connect_write_pipe(asyncio.Protocol, process.stdin)
    protocol.out = transport
    await loop.connect_read_pipe(lambda: protocol, process.stdout)
    return protocol


class Load:
    """What a closed loop measured."""

    def __init__(self, latencies: list[float], seconds: float, wrong: int) -> None:
        self.p50_ms = statistics.median(latencies) * 1000
        self.p99_ms = sorted(latencies)[len(latencies) * 99 // 100] * 1000
        self.rate = len(latencies) / seconds
        self.wrong = wrong


class Client(Protocol):
    """Whatever calls can be made of: `Lines`, or a connection of HTTP."""

    def ask(self, method: str, params: dict) -> Awaitable[bytes]: ...


async def closed_loop(
    clients: Sequence[Client],
    seconds: float,
    tool: str = "echo",
    in_flight: int = 1,
    argument: str = "text",
) -> Load:
    """Each client calls again as soon as it is answered; every answer is checked."""
    latencies: list[float] = []
    wrong = 0
    end = time.perf_counter() + seconds

    async def one(client: Client, name: str) -> None:
        nonlocal wrong
        number = 0
        while time.perf_counter() < end:
            number += 1
            text = f"{name}-{number}-".ljust(64, "x")
            started = time.perf_counter()
            line = await client.ask("tools/call", {"name": tool, "arguments": {argument: text}})
            latencies.append(time.perf_counter() - started)
            if text.encode() not in line:
                wrong += 1

    started = time.perf_counter()
    await asyncio.gather(
        *(one(c, f"{i}.{n}") for i, c in enumerate(clients) for n in range(in_flight))
    )
    return Load(latencies, time.perf_counter() - started, wrong)


@contextlib.contextmanager
def running(argv: list[str], cpu: int | None = 0, **options) -> Iterator[subprocess.Popen]:
    """A server in a process of its own, pinned, ended at the end."""

    def pin() -> None:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})

    options.setdefault("stderr", subprocess.DEVNULL)
    process = subprocess.Popen(argv, preexec_fn=pin, start_new_session=True, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def edged(directory: str, config: str = "", *extra: str) -> list[str]:
    """The command line of a daemon with everything of its own below `directory`."""
    file = os.path.join(directory, "edged.yaml")
    if not os.path.exists(file):
        with open(file, "w") as out:
            out.write(config or "tools: {echo: {enabled: true}}\n")
    return [
        PYTHON,
        "-m",
        "edged",
        "serve",
        "--config",
        file,
        "--data",
        os.path.join(directory, "data"),
        "--socket",
        os.path.join(directory, "edged.sock"),
        *(extra or ("--http", "off")),
    ]
