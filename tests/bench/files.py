"""read_file and list_dir over the socket, against the official file server on the same files.

That is `@modelcontextprotocol/server-filesystem` on Node, over stdio. The client here costs next to nothing: it counts lines and looks
whether each has what it should.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time

from tests import npm
from tests.bench.load import INIT, connect, edged, running
from tests.bench.table import Table

PEER = "@modelcontextprotocol/server-filesystem"
SECONDS = 1.5
ROUNDS = 3
IN_FLIGHT = (1, 16)
LEAD = 5

NOTE = "".join(f"{number:4} the quick brown fox jumps over the lazy dog\n" for number in range(85))
"""4 KiB, as notes and scripts have."""

BOOK = NOTE * 14
"""A page of read_file, nearly."""

LOG = NOTE * 256
"""1 MiB: read_file answers with its first page, the peer with all of it."""

BEGINNING = "the beginning of the log\n"

FEW, MANY = 30, 1_000
"""Entries: of a directory that people look through, and of a page of list_dir."""

CALLS = {
    ("read_file", "a note of 4 KiB"): ("few/file-0000", NOTE),
    ("read_file", "a page of 58 KiB"): ("book.txt", BOOK),
    ("read_file", "a log of 1 MiB"): ("log.txt", BEGINNING),
    ("list_dir", "30 entries"): ("few", f"file-{FEW - 1:04}"),
    ("list_dir", "1,000 entries"): ("many", f"file-{MANY - 1:04}"),
    ("echo", "nothing"): ("", "nothing"),
}
NAMES = {
    "edged": {"read_file": "read_file", "list_dir": "list_dir", "echo": "echo"},
    "the peer": {"read_file": "read_text_file", "list_dir": "list_directory"},
}


class Lines:
    """One connection by its two ends; so many requests are always on their way."""

    def __init__(self, out: int, back: int) -> None:
        self._out, self._back = out, back
        self._buffer = bytearray(64 << 20)

    def ask(self, request: bytes) -> None:
        self._write(request)
        end = 0
        while not self._buffer.endswith(b"\n", 0, end):
            end += self._read(end)

    def initialize(self) -> None:
        self.ask(message("initialize", INIT))
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self._write(json.dumps(note).encode() + b"\n")

    def rate(self, tool: str, arguments: dict, wanted: bytes, at_once: int) -> float:
        """Calls per second; every answer has what it should."""
        one = message("tools/call", {"name": tool, "arguments": arguments})
        head, tail = one.split(b'"id": 1', 1)
        asked = answered = right = end = 0
        started = time.perf_counter()
        until = started + SECONDS

        def go_on(count: int) -> None:
            nonlocal asked
            ids = range(asked + 1, asked + count + 1)
            self._write(b"".join(b'%b"id": %d%b' % (head, number, tail) for number in ids))
            asked += count

        go_on(at_once)
        while answered < asked:
            begin = end
            end += self._read(end)
            count = self._buffer.count(b"\n", begin, end)
            answered += count
            if count and time.perf_counter() < until:
                go_on(count)
            if count:
                # The server is at work on the next ones meanwhile.
                whole = self._buffer.rindex(b"\n", 0, end) + 1
                right += self._buffer.count(wanted, 0, whole)
                self._buffer[: end - whole] = self._buffer[whole:end]
                end -= whole
        took = time.perf_counter() - started
        # The peer says all of it twice, as text and as a structure.
        assert right, "no answer has it"
        assert right % answered == 0, f"{answered} answers have it {right} times"
        return answered / took

    def _write(self, data: bytes) -> None:
        waiting = memoryview(data)
        while waiting:
            waiting = waiting[os.write(self._out, waiting) :]

    def _read(self, at: int) -> int:
        count = os.readv(self._back, [memoryview(self._buffer)[at:]])
        assert count, "it closed the connection"
        return count


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
    for count in IN_FLIGHT:
        table.note(
            f"echo, {count} in flight: edged {best['edged', 'echo', 'nothing', count]:.0f}/s"
        )
        for tool in ("read_file", "list_dir"):
            _row(table, best, tool, count)


def _row(table: Table, best: dict, tool: str, count: int) -> None:
    """All of a tool's files in turn: what a call of each takes, added up."""
    took = dict.fromkeys(NAMES, 0.0)
    for name, what in CALLS:
        if name != tool:
            continue
        rates = {who: best[who, tool, what, count] for who in NAMES}
        for who, rate in rates.items():
            took[who] += 1 / rate
        ratio = rates["edged"] / rates["the peer"]
        table.note(
            f"{tool}, {what}, {count} in flight: edged {rates['edged']:.0f}/s, "
            f"the peer {rates['the peer']:.0f}/s, {ratio:.1f} ×"
        )
    ratio = took["the peer"] / took["edged"]
    # Where calls that do nothing are hardly five times as fast as the peer's, with one in
    # flight, most of a call is its way: then six tenths of their lead are asked for.
    calls = sum(name == tool for name, _ in CALLS)
    lead = took["the peer"] / (calls / best["edged", "echo", "nothing", count])
    bound = round(min(LEAD, 0.6 * lead), 2)
    table.row(f"{tool}/s, these in turn, {count} in flight, to the peer", ratio, at_least=bound)


def _round(clients: dict[str, Lines], folder: str) -> list:
    found = []
    for (tool, what), (path, text) in CALLS.items():
        for who, client in clients.items():
            if tool not in NAMES[who]:
                continue
            arguments = {"path": path if who == "edged" else f"{folder}/{path}"}
            if tool == "echo":
                arguments = {"text": text}
            wanted = json.dumps(text)[1:-1].encode()
            for count in IN_FLIGHT:
                rate = client.rate(NAMES[who][tool], arguments, wanted, count)
                found.append(((who, tool, what, count), rate))
    return found


def _peer(folder: str) -> list[str]:
    return [npm.NODE, str(npm.modules("mcp") / PEER / "dist/index.js"), folder]


async def _lay(directory: str) -> None:
    client = await connect(f"{directory}/edged.sock")
    await client.initialize()

    async def write(path: str, content: str) -> None:
        arguments = {"path": path, "content": content}
        line = await client.ask("tools/call", {"name": "write_file", "arguments": arguments})
        assert b'"isError":false' in line, line

    await write("book.txt", BOOK)
    await write("log.txt", BEGINNING + LOG)
    for number in range(MANY):
        await write(f"many/file-{number:04}", "")
    for number in range(FEW):
        await write(f"few/file-{number:04}", NOTE)
    client.out.close()
