"""Warm sandboxed calls, against cold ones with the same profile and a bare start."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time

from tests.bench.load import Lines, connect, edged, running
from tests.bench.table import Table

CALLS = 25
PACE_S = 0.4
BURSTS = 4
NAME = {"name": "Ada"}
TOOLS = {
    "python": ("hello", NAME),
    "bash": ("hello_bash", NAME),
    "typescript": ("hello_typescript", NAME),
    "shell": ("exec", {"command": "echo Hello, Ada!"}),
}


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {0, 1})
    config = "tools: {echo: {enabled: true}}\n"
    warm_home, cold_home = os.path.join(directory, "warm"), os.path.join(directory, "cold")
    for home in (warm_home, cold_home):
        os.makedirs(home)
    cold_config = config + "sandbox: {warm_memory: 0}\n"
    with (
        running(edged(warm_home, config), cpu=None),
        running(edged(cold_home, cold_config), cpu=None),
    ):
        warm, cold, plain = asyncio.run(_paced(warm_home, cold_home))
        bursts: dict[str, list[float]] = {warm_home: [], cold_home: []}
        for _ in range(BURSTS):
            for home, rates in bursts.items():
                rates.append(asyncio.run(_burst(home)))
    burst_warm, burst_cold = sum(bursts[warm_home]), sum(bursts[cold_home])
    table.note(f"python3 -c pass: {plain:.1f} ms")
    for language in ("python", "bash", "typescript"):
        table.note(f"{language}: warm {warm[language]:.1f} ms, cold {cold[language]:.1f} ms")
    table.note(f"exec echo: warm {warm['shell']:.1f} ms, cold {cold['shell']:.1f} ms")
    table.row("warm Python call, to its cold call", warm["python"] / cold["python"], at_most=1 / 8)
    table.row("warm Python call, to python3 -c pass", warm["python"] / plain, at_most=1 / 3)
    for language in ("bash", "typescript"):
        ratio = warm[language] / cold[language]
        table.row(f"warm {language} call, to its cold call", ratio, at_most=0.5)
    table.row("unpaced calls/s with spares, to without", burst_warm / burst_cold, at_least=0.95)


async def _call(client: Lines, tool: str, arguments: dict[str, str]) -> float:
    started = time.perf_counter()
    line = await client.ask("tools/call", {"name": tool, "arguments": arguments})
    took = time.perf_counter() - started
    assert b"Hello, Ada!" in line, line
    return took * 1000


async def _paced(warm_home: str, cold_home: str) -> tuple[dict, dict, float]:
    """Interleaved, so that the machine's mood is the same for all three."""
    warm_client = await connect(f"{warm_home}/edged.sock")
    cold_client = await connect(f"{cold_home}/edged.sock")
    warm: dict[str, list[float]] = {language: [] for language in TOOLS}
    cold: dict[str, list[float]] = {language: [] for language in TOOLS}
    plain: list[float] = []
    for language, tool in TOOLS.items():
        await _call(warm_client, *tool)
        await _call(cold_client, *tool)
        for _ in range(CALLS):
            await asyncio.sleep(PACE_S)
            warm[language].append(await _call(warm_client, *tool))
            await asyncio.sleep(PACE_S / 2)
            cold[language].append(await _call(cold_client, *tool))
            if language == "python":
                await asyncio.sleep(PACE_S / 2)
                plain.append(_plain())
    return (
        {k: statistics.median(v) for k, v in warm.items()},
        {k: statistics.median(v) for k, v in cold.items()},
        statistics.median(plain),
    )


def _plain() -> float:
    started = time.perf_counter()
    subprocess.run(["/usr/bin/python3", "-c", "pass"], check=True)
    return (time.perf_counter() - started) * 1000


async def _burst(home: str, seconds: float = 3.0) -> float:
    client = await connect(f"{home}/edged.sock")
    count = 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await _call(client, "hello", NAME)
            count += 1

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(4)))
    return count / (time.perf_counter() - started)
