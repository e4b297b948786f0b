"""What the daemon adds to the bus of an emulated board: a kernel's own adapter and driver."""

from __future__ import annotations

import json
from pathlib import Path

from hil.rig import Board, build
from tests.bench.hardware import tell_reads
from tests.bench.load import ROOT
from tests.bench.table import Table

HOME = "/bench"
CONFIG = """\
tools: {echo: {enabled: true}}
board: {sensors: {one: {driver: lm75, bus: i2c-0, address: 0x48, every: 0}}}
"""
CPU = ("-icount", "shift=1")
"""Its clock counts instructions, of 2 ns each as a Cortex-A9's of 1 GHz more or less: what else
this machine has to do is not measured."""
READS_S = 1200


def measure(table: Table, directory: str) -> None:
    with Board(build(), Path(directory), CPU) as board:
        board.chips.set("tmp105", "temperature", 21_500)
        agent = board.agent
        for file in Path(ROOT, "tests/bench").glob("*.py"):
            agent.put(f"{HOME}/tests/bench/{file.name}", file.read_text())
        agent.put(f"{HOME}/edged.yaml", CONFIG)
        serve = f"serve --config edged.yaml --data {HOME}/data --socket {HOME}/sock --http off"
        agent.run(f"cd {HOME} && setsid python3 -m edged {serve} >log 2>&1 </dev/null &")
        # It waits for the socket.
        command = f"cd {HOME} && python3 -m tests.bench.reads {HOME}/sock 0"
        p50 = json.loads(agent.run(command, timeout=READS_S))
    tell_reads(table, "on the emulated i.MX6", p50)
