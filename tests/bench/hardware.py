"""Hardware through the daemon: what it adds to a bus, edges a second, sensors by the dozen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from itertools import pairwise

from tests.bench.board import INTERVAL_S, SENSORS, places
from tests.bench.load import PYTHON, ROOT, TICK, Lines, connect, edged, running
from tests.bench.table import Table

RATE, EDGES_S = 1_000, 5
PAUSE_S = 3.0
"""Longer than the pipe takes edges for: what comes then is dropped, as the kernel does it."""

EVENT = struct.Struct("=QIIII24x")
"""`struct gpio_v2_line_event` of linux/gpio.h: time stamp, id, offset, sequence twice."""

SAMPLED_S = 20.0
FSYNCS = "fsync,fdatasync,sync,syncfs,sync_file_range,msync"


def measure(table: Table, directory: str) -> None:
    os.sched_setaffinity(0, {0, 1})
    with _adapters() as env:
        _reads(table, _below(directory, "reads"), env)
        _sampling_on_umockdev(table, _below(directory, "umockdev"), env)
    _edges(table, _below(directory, "edges"))
    _sampling(table, _below(directory, "sensors"))


def _below(directory: str, name: str) -> str:
    path = os.path.join(directory, name)
    os.makedirs(path)
    return path


# One read -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _adapters() -> Iterator[dict[str, str]]:
    """Emulated I2C adapters, and the environment of those who use them."""
    # Debian's Python, for its `gi`, with the packages of this one.
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"}
    argv = ["umockdev-wrapper", "/usr/bin/python3", "-W", "ignore", "-m", "tests.bench.adapter"]
    with subprocess.Popen(
        argv, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield os.environ | json.loads(process.stdout.readline())
        process.stdin.close()


def _measured(env: dict[str, str], *words: str):
    argv = [PYTHON, "-m", "tests.bench.reads", *words]
    ran = subprocess.run(argv, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE)
    return json.loads(ran.stdout)


def _reads(table: Table, directory: str, env: dict[str, str]) -> None:
    config = (
        "tools: {echo: {enabled: true}}\n"
        "board: {sensors: {one: {driver: lm75, bus: i2c-1, address: 0x48, every: 0}}}\n"
    )
    with running(edged(directory, config), cpu=None, env=env):
        p50 = _measured(env, f"{directory}/edged.sock", "1")
    tell_reads(table, "at 100 kHz on umockdev", p50)
    # Here alone: an emulated processor is ten times slower, an emulated bus is not.
    ratio = p50["i2c"] / p50["floor"]
    table.row("i2c read, to the least server's with a thread", ratio, at_most=1.15)


def tell_reads(table: Table, where: str, p50: dict[str, float]) -> None:
    """What `tests.bench.reads` measured there."""
    shown = ", ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in p50.items())
    table.note(f"ms {where}: {shown}")
    for call, bus in (("i2c", "register"), ("sensor", "chip")):
        ratio = (p50[call] - p50["echo"]) / p50[bus]
        # Without a bound: on these emulated buses a transfer takes less than a millisecond,
        # and the two thread changes that keep the loop from waiting for it much of that.
        table.note(f"{call} read less an echo, to smbus2 without a thread: {ratio:.2f}")
        ratio = (p50[call] - p50["kept"]) / p50[f"{bus}, on a thread"]
        table.row(f"{call} read less a call, to smbus2 on a thread", ratio, at_most=1.15)
    own = (p50["floor"] - p50["floor's echo"]) / p50["register"]
    table.note(f"the same of the least server that reads on a thread: {own:.2f}")
    table.note(f"8 reads in flight, to smbus2 in a loop: {p50['of many'] / p50['in a loop']:.2f}")


# Edges --------------------------------------------------------------------------------------


class _Chip:
    """The kernel's side of a line: edges into a pipe; those without room are dropped."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self.made = 0

    def turn(self, seconds: float) -> None:
        """Makes `RATE` edges a second for a time."""
        begun, first = time.monotonic(), self.made
        while (elapsed := time.monotonic() - begun) < seconds:
            while self.made - first < elapsed * RATE:
                self.made += 1
                stamp = time.monotonic_ns()
                event = EVENT.pack(stamp, 1 + self.made % 2, 4, self.made, self.made)
                with contextlib.suppress(BlockingIOError):
                    os.write(self._write_end, event)
            time.sleep(1 / RATE)

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self._write_end)


class _Watcher(Lines):
    """A connection that adds up the edges that events tell of."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = self.lost = 0

    def data_received(self, data: bytes) -> None:
        for line in bytes(self.buffer + data).split(b"\n")[:-1]:
            event = json.loads(line).get("params", {}) if line else {}
            if event.get("kind") == "gpio.edge":
                self.edges += event["data"]["edges"]
                self.lost += event["data"].get("lost", 0)
        super().data_received(data)


def _edges(table: Table, directory: str) -> None:
    chip = _Chip()
    argv = [PYTHON, "-m", "tests.bench.board", directory, "edges", str(chip.read_end)]
    with running(argv, cpu=None, cwd=ROOT, pass_fds=[chip.read_end]) as process:
        asyncio.run(_counted(table, f"{directory}/edged.sock", process.pid, chip))
    chip.close()


async def _counted(table: Table, path: str, pid: int, chip: _Chip) -> None:
    client, watcher = await connect(path), _Watcher()
    await asyncio.get_running_loop().create_unix_connection(lambda: watcher, path)
    await watcher.ask("edged/events", {})
    before = _cpu_s(pid)
    await asyncio.to_thread(chip.turn, EDGES_S)
    line = await _line(client)
    share = (_cpu_s(pid) - before) / EDGES_S
    table.note(f"{chip.made} edges in {EDGES_S} s take {share:.1%} of a core")
    _exact(table, f"edges at {RATE}/s not counted", chip.made - line["edges"])
    _exact(table, "edges at that rate not in the events", chip.made - watcher.edges)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.to_thread(chip.turn, PAUSE_S)
    os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(0.2)
    # The next edge tells how many went missing before it.
    await asyncio.to_thread(chip.turn, 0.1)
    line = await _line(client)
    table.note(f"the daemon stood still for {PAUSE_S:g} s: {line['lost']} edges were dropped")
    assert line["lost"] > 0
    _exact(table, "dropped edges that the line's count lacks", chip.made - line["edges"])
    _exact(
        table,
        "dropped edges that no event tells of",
        chip.made - watcher.edges - watcher.lost,
    )


def _exact(table: Table, claim: str, missing: int) -> None:
    table.row(claim, abs(missing), at_most=0, unit=" ")


async def _line(client: Lines) -> dict:
    """What the daemon says of the line, once it told all."""
    await asyncio.sleep(0.5)
    answer = await client.ask("tools/call", {"name": "gpio", "arguments": {"action": "list"}})
    (line,) = json.loads(answer)["result"]["structuredContent"]["lines"]
    return line


# Sensors ------------------------------------------------------------------------------------


def _sampling(table: Table, directory: str) -> None:
    argv = [PYTHON, "-m", "tests.bench.board", directory, "sensors"]
    with running(argv, cpu=None, cwd=ROOT) as process:
        share = _sampled(directory, process.pid)
        table.row(f"{SENSORS} sensors a second, of a core", share * 100, at_most=2, unit="%")
        _fsyncs(table, process.pid)


def _sampling_on_umockdev(table: Table, directory: str, env: dict[str, str]) -> None:
    rows = [
        f"    room{n}: {{driver: lm75, bus: {bus}, address: {address}, every: 1s}}\n"
        for n, (bus, address) in enumerate(places())
    ]
    config = "board:\n  sensors:\n" + "".join(rows)
    with running(edged(directory, config), cpu=None, env=env) as process:
        share = _sampled(directory, process.pid)
    # What umockdev does in the place of the kernel is in both.
    plain = _measured(env, "--pace", str(SAMPLED_S))
    table.note(f"{SENSORS} sensors a second on umockdev: {share:.2%}, smbus2 alone {plain:.2%}")
    claim = f"{SENSORS} sensors a second, more than smbus2"
    table.row(claim, (share - plain) * 100, at_most=2, unit="%")


def _sampled(directory: str, pid: int) -> float:
    """Share of a core that the daemon takes, once all sensors are ready."""
    asyncio.run(_settled(directory))
    before, begun = _cpu_s(pid), time.monotonic()
    time.sleep(SAMPLED_S)
    return (_cpu_s(pid) - before) / (time.monotonic() - begun)


async def _settled(directory: str) -> None:
    client = await connect(f"{directory}/edged.sock")
    await asyncio.sleep(INTERVAL_S + 2)
    answer = await client.ask("tools/call", {"name": "sensor", "arguments": {"action": "list"}})
    sensors = json.loads(answer)["result"]["structuredContent"]["sensors"]
    states = {sensor["state"] for sensor in sensors}
    assert (len(sensors), states) == (SENSORS, {"ready"}), (len(sensors), states)


def _fsyncs(table: Table, pid: int) -> None:
    """How often the disk is made to write, by what the kernel is asked for."""
    assert shutil.which("strace"), "run .ci/setup test: strace counts what goes to the disk"
    argv = ["strace", "-f", "-ttt", "-e", f"trace={FSYNCS}", "-p", str(pid)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracer:
        time.sleep(SAMPLED_S)
        tracer.send_signal(signal.SIGINT)
        lines = [line for line in tracer.stderr if "sync(" in line]
    # [pid 312] 1796069952.967388 fdatasync(10) = 0
    times = [float(line.partition("] ")[2].split()[0]) for line in lines]
    # Its checkpoint is a part of a batch.
    batches = [first for last, first in pairwise([0.0, *times]) if first - last > 0.5]
    table.note(f"{len(times)} fsyncs of {len(batches)} batches in {SAMPLED_S:g} s")
    shortest = min(second - first for first, second in pairwise(batches))
    table.row("time between fsyncs, to the batch's", shortest / INTERVAL_S, at_least=0.95)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK
