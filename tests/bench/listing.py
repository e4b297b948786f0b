"""Listing 10,000 tools against a server that only writes the very same bytes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from tests.bench.load import connect, edged, running
from tests.bench.table import Table
from tests.bench.tools import many_tools

ROUNDS = 15

REPLAY = """
import asyncio, json, sys
rests = open(sys.argv[2], "rb").read().split(b"\\n")
class Peer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        for line in data.splitlines():
            number = json.loads(line)["id"]
            rest = rests[(number - 1) % len(rests)]
            self.transport.write(b'{"jsonrpc":"2.0","id":%d,%b\\n' % (number, rest))
async def main():
    server = await asyncio.get_running_loop().create_unix_server(Peer, sys.argv[1])
    await server.serve_forever()
asyncio.run(main())
"""


def measure(table: Table, directory: str) -> None:
    many_tools(os.path.join(directory, "data", "tools"), 10_000)
    replay, pages = f"{directory}/replay.sock", f"{directory}/pages"
    with running(edged(directory), cpu=0):
        lines = asyncio.run(_pages(f"{directory}/edged.sock"))
        with open(pages, "wb") as file:
            file.write(b"\n".join(line.split(b",", 2)[2] for line in lines))
        with running([sys.executable, "-c", REPLAY, replay, pages], cpu=0):
            results = [asyncio.run(_both(f"{directory}/edged.sock", replay, len(lines)))]
    ours, floor = results[0]
    size = sum(map(len, lines))
    table.note(f"{size / 1e6:.1f} MB in {ours * 1000:.1f} ms; written only: {floor * 1000:.1f} ms")
    table.row("listing 10,000 tools, to writing the bytes", ours / floor, at_most=1.25)


async def _pages(path: str) -> list[bytes]:
    client = await connect(path, 60)
    cursor: dict[str, str] = {}
    lines = []
    while True:
        lines.append(await client.ask("tools/list", cursor))
        result = json.loads(lines[-1])["result"]
        if "nextCursor" not in result:
            return lines
        cursor = {"cursor": result["nextCursor"]}


async def _both(ours: str, floor: str, count: int) -> tuple[float, float]:
    best = {ours: float("inf"), floor: float("inf")}
    clients = {path: await connect(path) for path in best}
    for _ in range(ROUNDS):
        for path, client in clients.items():
            started = time.perf_counter()
            for page in range(count):
                await client.ask("tools/list", {"cursor": f"p{page}"} if page else {})
            best[path] = min(best[path], time.perf_counter() - started)
    return best[ours], best[floor]
