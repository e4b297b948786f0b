"""What the daemon holds: idle with both doors open, and after each part was used."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
import urllib.request

from tests.bench.load import connect, edged, pss_mib, running
from tests.bench.table import Table
from tests.bench.tools import many_tools


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


PORT = _free_port()


def measure(table: Table, directory: str) -> None:
    many_tools(os.path.join(directory, "data", "tools"), 100)
    argv = edged(directory, "", "--http", f"127.0.0.1:{PORT}", "--sim")
    with running(argv, cpu=None):
        # The first start reads every TOOL.md; a start like any other follows.
        asyncio.run(_settled(directory))
    with running(argv, cpu=None) as process:
        asyncio.run(_settled(directory))
        table.row(
            "idle PSS, both doors open, 100 tools", pss_mib(process.pid), at_most=26, unit="MiB"
        )
        before = _cpu_ticks(process.pid)
        time.sleep(10)
        table.row(
            "CPU of 10 idle seconds",
            (_cpu_ticks(process.pid) - before) * 10,
            at_most=10,
            unit="ms",
        )
        asyncio.run(_use_all(directory))
        table.row(
            "PSS after HTTP and every tool was used", pss_mib(process.pid), at_most=45, unit="MiB"
        )
        used = pss_mib(process.pid)
        asyncio.run(_flood(directory))
        table.row(
            "peak of 30 commands with 29 MB of output each, to before",
            _peak_mib(process.pid) / used,
            at_most=6,
        )
        table.row("PSS after these, to before", pss_mib(process.pid) / used, at_most=2)


async def _settled(directory: str) -> None:
    client = await connect(f"{directory}/edged.sock")
    await client.ask("edged/tools/state", {})
    await asyncio.sleep(1.5)


async def _flood(directory: str) -> None:
    """Bytes that are no text take the most: each is a character of three."""
    command = "head -c 20000000 /dev/urandom; head -c 9000000 /dev/urandom >&2"

    async def one() -> None:
        client = await connect(f"{directory}/edged.sock")
        ask = {"name": "exec", "arguments": {"command": command, "timeout": 60}}
        assert b'"output_bytes":29000000' in await client.ask("tools/call", ask)

    await asyncio.gather(*(one() for _ in range(30)))


def _peak_mib(pid: int) -> float:
    """The most that was ever resident (proc_pid_status(5), VmHWM)."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def _cpu_ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


async def _use_all(directory: str) -> None:
    client = await connect(f"{directory}/edged.sock")
    for name, arguments in (
        ("echo", {"text": "x"}),
        ("sensor", {"action": "read"}),
        ("gpio", {"line": "led", "value": "on"}),
        ("tool_describe", {"name": "hello"}),
        ("tool_call", {"name": "echo", "arguments": {"text": "x"}}),
        ("hello", {"name": "x"}),
        ("hello_bash", {"name": "x"}),
        ("hello_typescript", {"name": "x"}),
        ("system_info", {}),
        ("tool_00001", {"text": "x"}),
    ):
        line = await client.ask("tools/call", {"name": name, "arguments": arguments})
        assert b'"isError":false' in line, line
    with open(f"{directory}/data/token") as file:
        token = file.read().strip()
    for path in ("tools", "status", "log", "tools/hello"):
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/api/{path}")
        request.add_header("Authorization", f"Bearer {token}")
        assert await asyncio.to_thread(_get, request)
    await asyncio.sleep(1)


def _get(request: urllib.request.Request) -> bytes:
    with urllib.request.urlopen(request, timeout=20) as answer:
        return re.sub(rb"\s", b"", answer.read())
