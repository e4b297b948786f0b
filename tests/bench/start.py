"""Cold start to the first answered call, and the stdio bridge's first list."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from tests.bench.load import connect, edged, pipes, pss_mib, running
from tests.bench.table import Table
from tests.bench.tools import many_tools

ROUNDS = 7


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {0, 1})
    floor = min(_import_floor() for _ in range(ROUNDS))
    table.note(f"python3 -c 'import asyncio, msgspec': {floor:.0f} ms")
    for count, bound in ((100, 2), (5_000, 3)):
        home = os.path.join(directory, str(count))
        os.makedirs(home)
        many_tools(os.path.join(home, "data", "tools"), count)
        _first_call(home)  # fills the caches, as any earlier start did
        best = min(_first_call(home) for _ in range(ROUNDS))
        table.note(f"{count} tools: first answer after {best:.0f} ms")
        table.row(f"cold start with {count} tools, to the imports", best / floor, at_most=bound)
    home = os.path.join(directory, "100")
    with running(edged(home), cpu=None):
        asyncio.run(_wait(home))
        bridges = [asyncio.run(_bridge(home)) for _ in range(ROUNDS)]
    table.row("edged mcp: first list", min(b[0] for b in bridges), at_most=0.2, unit="s")
    table.row("edged mcp: PSS", min(b[1] for b in bridges), at_most=8, unit="MiB")


def _import_floor() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import asyncio, msgspec"], check=True)
    return (time.perf_counter() - started) * 1000


def _first_call(home: str) -> float:
    argv = edged(home)
    started = time.perf_counter()
    with running(argv, cpu=None):
        asyncio.run(_wait(home))
        return (time.perf_counter() - started) * 1000


async def _wait(home: str) -> None:
    client = await connect(f"{home}/edged.sock")
    line = await client.ask("tools/call", {"name": "echo", "arguments": {"text": "up"}})
    assert b'"up"' in line


async def _bridge(home: str) -> tuple[float, float]:
    started = time.perf_counter()
    argv = [
        os.path.join(os.path.dirname(sys.executable), "edged"),
        "mcp",
        "--socket",
        f"{home}/edged.sock",
    ]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client = await pipes(process)
    await client.initialize()
    await client.ask("tools/list", {})
    took = time.perf_counter() - started
    cost = pss_mib(process.pid)
    process.terminate()
    process.wait()
    return took, cost
