"""A call of another MCP server's tool through edged, against the same call without it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

from tests.bench.load import HERE, Load, closed_loop, connect, edged, pipes, running
from tests.bench.table import Table

SECONDS = 2.0
ROUNDS = 3
CLIENTS = (1, 16)
TOOL = "mcp_bare_echo"
PYTHON = "/usr/bin/python3"
"""As the sandbox has it, for both."""


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {1})
    script = os.path.join(directory, "bare_echo.py")
    shutil.copy(os.path.join(HERE, "bare_echo.py"), script)
    os.chmod(script, 0o644)
    server = f"command: {PYTHON}, args: [{script}], read: [{script}], deferred: false, lazy: false"
    config = f"tools: {{mcp: {{servers: {{bare: {{{server}}}}}}}}}\n"
    direct: dict[int, list[Load]] = {count: [] for count in CLIENTS}
    through: dict[int, list[Load]] = {count: [] for count in CLIENTS}
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(edged(directory, config)), running([PYTHON, script], **options) as process:
        asyncio.run(_both(process, f"{directory}/edged.sock", direct, through))
    wrong = sum(load.wrong for loads in (*direct.values(), *through.values()) for load in loads)
    table.row("wrong answers", wrong, at_most=0, unit=" ")
    for count in CLIENTS:
        bare, via = min(x.p50_ms for x in direct[count]), min(x.p50_ms for x in through[count])
        table.note(
            f"{count} in flight: direct {bare:.3f} ms {max(x.rate for x in direct[count]):.0f}/s, "
            f"through edged {via:.3f} ms {max(x.rate for x in through[count]):.0f}/s"
        )
        if count == 1:
            table.row("upstream call p50, added by edged", via - bare, at_most=0.5, unit="ms")


async def _both(
    process: subprocess.Popen,
    path: str,
    direct: dict[int, list[Load]],
    through: dict[int, list[Load]],
) -> None:
    bare = await pipes(process)
    await bare.initialize()
    clients = [await connect(path) for _ in range(max(CLIENTS))]
    for client in clients:
        await client.initialize()
    while TOOL.encode() not in await clients[0].ask("tools/list", {}):
        await asyncio.sleep(0.05)
    for _ in range(ROUNDS):
        for count in CLIENTS:
            direct[count].append(await closed_loop([bare], SECONDS, in_flight=count))
            through[count].append(await closed_loop(clients[:count], SECONDS, TOOL))
