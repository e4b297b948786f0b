"""A built-in call over the socket, against a bare echo and the official SDK."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from tests.bench.load import HERE, Load, closed_loop, connect, edged, pipes, running
from tests.bench.table import Table

SECONDS = 2.0
ROUNDS = 3
CLIENTS = (1, 16)


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {1})
    floor_path = os.path.join(directory, "floor.sock")
    floor = [sys.executable, os.path.join(HERE, "floor.py"), floor_path]
    best: dict[tuple[str, int], list[Load]] = {}
    with running(floor), running(edged(directory)):
        for _ in range(ROUNDS):
            for name, path in (("floor", floor_path), ("edged", f"{directory}/edged.sock")):
                for count in CLIENTS:
                    best.setdefault((name, count), []).append(asyncio.run(_socket(path, count)))
    sdk_argv = [sys.executable, os.path.join(HERE, "sdk_echo.py")]
    with running(sdk_argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        sdk = asyncio.run(_stdio(process))
    wrong = sum(load.wrong for loads in best.values() for load in loads)
    table.row("wrong answers", wrong, at_most=0, unit=" ")

    def p50(name: str, count: int) -> float:
        return min(load.p50_ms for load in best[name, count])

    def rate(name: str, count: int) -> float:
        return max(load.rate for load in best[name, count])

    for count in CLIENTS:
        table.note(
            f"{count} clients: floor {p50('floor', count):.3f} ms {rate('floor', count):.0f}/s, "
            f"edged {p50('edged', count):.3f} ms {rate('edged', count):.0f}/s, "
            f"SDK {sdk[count].rate:.0f}/s"
        )
    table.row("call p50, 1 client, to bare echo", p50("edged", 1) / p50("floor", 1), at_most=2)
    for count in CLIENTS:
        ratio = rate("edged", count) / rate("floor", count)
        table.row(f"calls/s, {count} clients, to bare echo", ratio, at_least=0.6)
        # With one client most of a call is this client's own time: where even a bare echo
        # is hardly five times the SDK, four fifths of its lead are asked for.
        lead = rate("floor", count) / sdk[count].rate
        ratio = rate("edged", count) / sdk[count].rate
        bound = round(min(5, 0.8 * lead), 2)
        table.row(f"calls/s, {count} clients, to the SDK over stdio", ratio, at_least=bound)


async def _socket(path: str, count: int) -> Load:
    clients = [await connect(path) for _ in range(count)]
    for client in clients:
        await client.initialize()
    return await closed_loop(clients, SECONDS)


async def _stdio(process: subprocess.Popen) -> dict[int, Load]:
    client = await pipes(process)
    await client.initialize()
    return {count: await closed_loop([client], SECONDS, in_flight=count) for count in CLIENTS}
