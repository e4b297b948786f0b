"""Hardware under many hands: chips that callers share, and ports that are pulled while read.

All goes over a daemon's socket, and each answer is compared with what is true just then.
Seeded: what a caller does next, what the world does meanwhile, when a plug is pulled.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edged.board import Board
from edged.bus import Buses
from edged.bus.kernel import KernelBuses
from edged.bus.settings import BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimI2c
from edged.clock import SystemClock
from edged.drivers import ads1115, mpu6050, nmea
from edged.testing import Running, running
from tests.bench.load import Lines, connect
from tests.unit.bus.test_serial import Bench, Pty

BOUND_S = 20.0

CALLERS = 16
BAND_V = 0.8
"""Each input of the ADC has voltages of its own: 0 to 0.4, 0.8 to 1.2 and so on."""

ALTERED_S = 0.003
"""Between two changes of the world, which are many in one measurement of the ADC."""


@asynccontextmanager
async def daemon(sensors: dict[str, SensorConfig], buses: Buses) -> AsyncIterator[Running]:
    config, clock = BoardConfig(sensors=sensors), SystemClock()
    with tempfile.TemporaryDirectory(prefix="edged-") as folder:
        os.chmod(folder, 0o755)
        async with running(
            data=folder,
            http=False,
            board=lambda publish: Board(config, buses, clock, publish=publish),
        ) as it:
            yield it


async def call(client: Lines, tool: str, **arguments: Any) -> dict[str, Any]:
    """A call's result as MCP has it."""
    async with asyncio.timeout(BOUND_S):
        line = await client.ask("tools/call", {"name": tool, "arguments": arguments})
    return json.loads(line)["result"]


async def client_of(it: Running) -> Lines:
    client = await connect(it.socket)
    await client.initialize()
    return client


# Shared chips -------------------------------------------------------------------------------


class World:
    """What two chips measure; each moment is another, and known by any of its values."""

    def __init__(self, dice: random.Random) -> None:
        clock = SystemClock()
        self.adc, self.motion = ads1115.Sim(clock), mpu6050.Sim(clock)
        self.bus = SimI2c("i2c-1", {0x48: self.adc, 0x68: self.motion})
        self._dice = dice
        self._alter()

    async def go_on(self) -> None:
        while True:
            self._alter()
            await asyncio.sleep(ALTERED_S)

    def _alter(self) -> None:
        self.adc.volts[:] = [BAND_V * n + self._dice.uniform(0.01, 0.4) for n in range(4)]
        k = self._dice.uniform(1, 8)
        self.motion.accel, self.motion.gyro = (k, k + 1, -k), (k / 10, -k / 10, k / 5)
        self.motion.temperature_cel = 20 + k


def check_input(number: int, readings: list[dict[str, Any]]) -> None:
    """One value, of the input that was asked for."""
    (reading,) = readings
    assert reading["channel"] == f"a{number}", reading
    assert 0 < reading["value"] - BAND_V * number < 0.41, reading


def check_motion(readings: list[dict[str, Any]]) -> None:
    """Seven values of one moment."""
    values = {reading["channel"]: reading["value"] for reading in readings}
    k = values["temperature"] - 20
    wanted = {
        "accel_x": k, "accel_y": k + 1, "accel_z": -k,
        "gyro_x": k / 10, "gyro_y": -k / 10, "gyro_z": k / 5, "temperature": 20 + k,
    }  # fmt: skip
    assert values == pytest.approx(wanted, abs=0.03), values


async def share_chips(seed: int, seconds: float) -> None:
    """Sixteen callers on one ADC and one motion sensor; every answer is from its channel."""
    print(f"seed {seed}")
    dice = random.Random(seed)
    world, answers = World(dice), Counter[str]()
    sensors = {
        "adc": SensorConfig(driver="ads1115", every=0, options={"rate_sps": 860}),
        "motion": SensorConfig(driver="mpu6050", every="50ms"),
    }
    async with daemon(sensors, SimBuses(i2c={"i2c-1": world.bus})) as it:
        altering = asyncio.create_task(world.go_on())
        end = time.monotonic() + seconds
        callers = [
            _ask(await client_of(it), random.Random(dice.random()), end) for _ in range(CALLERS)
        ]
        for counted in await asyncio.gather(*callers):
            # None waits for ever while the others are served.
            assert min(counted[one] for one in ("adc", "motion", "register")) > 0, counted
            answers += counted
        altering.cancel()
    print(f"{sum(answers.values())} answers: {dict(answers)}")


async def _ask(client: Lines, dice: random.Random, end: float) -> Counter[str]:
    counted = Counter[str]()
    while time.monotonic() < end:
        await asyncio.sleep(dice.choice((0, 0, 0.001, 0.01)))
        what = dice.choice(("adc", "adc", "motion", "register"))
        if what == "adc":
            number = dice.randrange(4)
            result = await call(client, "sensor", sensor="adc", channel=f"a{number}")
            check_input(number, result["structuredContent"]["readings"])
        elif what == "motion":
            result = await call(client, "sensor", sensor="motion")
            check_motion(result["structuredContent"]["readings"])
        else:
            address, register, length, wanted = dice.choice(
                ((0x48, 3, 2, "7fff"), (0x48, 2, 2, "8000"), (0x68, 0x75, 1, "68"))
            )
            result = await call(
                client, "i2c", action="read", address=address, register=register, length=length
            )
            assert result["structuredContent"]["hex"] == wanted, result
        counted[what] += 1
    return counted


# Pulled ports -------------------------------------------------------------------------------


class Port:
    """A USB serial port, always of the same two names; what is at it can be pulled."""

    def __init__(self, bench: Bench, node: str, by_id: str) -> None:
        self.node, self.by_id = node, by_id
        self._bench = bench
        self.pty: Pty | None = None

    def plug(self) -> None:
        self.pty = self._bench.plug(self.node)
        self._bench.link("by-id", self.by_id, self.node)

    def pull(self) -> Pty:
        for path in (f"serial/by-id/{self.by_id}", self.node):
            os.unlink(f"{self._bench.dev}/{path}")
        pty, self.pty = self.pty, None
        assert pty is not None
        pty.hang_up()
        return pty


class Watcher(Lines):
    """A connection that keeps what events tell of sensors' states."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[str] = []
        self.told = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        for line in bytes(self.buffer + data).split(b"\n")[:-1]:
            event = json.loads(line).get("params", {}) if line else {}
            if event.get("kind") == "sensor.state":
                self.states.append(event["data"]["state"])
                self.told.set()
        super().data_received(data)

    async def until(self, state: str, count: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.states.count(state) < count:
                self.told.clear()
                await self.told.wait()


class Pulls:
    """A GPS receiver that is a sensor, and a device that a caller reads byte by byte."""

    def __init__(self, it: Running, client: Lines, folder: str, dice: random.Random) -> None:
        bench = Bench(folder)
        self.receiver = Port(bench, "ttyUSB0", "usb-receiver")
        self.device = Port(bench, "ttyUSB1", "usb-device")
        self.it, self.client, self.dice = it, client, dice
        self.watcher = Watcher()
        self.sentences = nmea.Sim(SystemClock(), 0.0)
        self.idle_s = self.cpu_s = 0.0
        self.bytes = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self.watcher, self.it.socket)
        await self.watcher.ask("edged/events", {})

    async def round(self, number: int, idle_s: float) -> None:
        """Plugged, read, pulled in the midst of it; then it is quiet."""
        self.receiver.plug()
        self.device.plug()
        # What the kernel's message of a plug leads to.
        self.it.daemon._plugged()
        sending = asyncio.create_task(self._send())
        await self.watcher.until("ready", number)
        await self._read_bytes()
        reading = asyncio.create_task(self._read_sensor())
        await self._cut_off()
        pulled = self.receiver.pull()
        await reading
        await self.watcher.until("lost", number)
        sending.cancel()
        assert pulled.opened() == []
        result = await call(self.client, "serial", action="list")
        assert result["structuredContent"]["ports"] == []
        await self._rest(idle_s)

    async def _rest(self, seconds: float) -> None:
        before = time.process_time()
        await asyncio.sleep(seconds)
        self.idle_s += seconds
        self.cpu_s += time.process_time() - before

    # The sensor.

    async def _send(self) -> None:
        while self.receiver.pty is not None:
            self.receiver.pty.send(self.sentences.burst())
            await asyncio.sleep(0.01)

    async def _read_sensor(self) -> None:
        """Asks until it fails: so it is pulled while it is read."""
        while True:
            result = await call(self.client, "sensor", sensor="gps")
            if result["isError"]:
                return
            (lat, *_) = result["structuredContent"]["readings"]
            assert lat["value"] == pytest.approx(self.sentences.lat, abs=1e-4), lat

    # The bytes.

    async def _serial(self, **arguments: Any) -> dict[str, Any]:
        return await call(self.client, "serial", port=self.device.by_id, **arguments)

    async def _read_bytes(self) -> None:
        """Every byte that was sent comes, once."""
        result = await self._serial(action="open", baudrate=4_000_000)
        assert result["structuredContent"]["port"] == self.device.node, result
        for _ in range(self.dice.randint(1, 5)):
            sent = self.dice.randbytes(self.dice.randint(1, 2_000))
            self.device.pty.send(sent)
            assert await self._come(len(sent)) == sent

    async def _come(self, count: int) -> bytes:
        came = b""
        while len(came) < count:
            length = self.dice.randint(1, count - len(came))
            result = await self._serial(length=length, timeout=10)
            came += bytes.fromhex(result["structuredContent"]["hex"])
        self.bytes += count
        return came

    async def _cut_off(self) -> None:
        """The plug is pulled while a read waits for more than there is."""
        reading = asyncio.create_task(self._serial(length=64, timeout=10))
        sent = self.dice.randbytes(self.dice.randint(0, 63))
        await asyncio.sleep(self.dice.uniform(0, 0.005))
        if sent:
            self.device.pty.send(sent)
        await asyncio.sleep(self.dice.choice((0, 0.0005, 0.005)))
        pulled = self.device.pull()
        result = await reading
        if not result["isError"]:
            # What came before the end is still told; that it ended is told with the next.
            value = result["structuredContent"]
            assert sent.startswith(bytes.fromhex(value["hex"])), result
            assert value["received"] > 0, result
            result = await self._serial(length=1, timeout=10)
        said = result["content"][0]["text"]
        assert result["isError"], result
        assert "was unplugged or hung up" in said or "no serial port" in said, said
        assert pulled.opened() == []


async def pull_ports(seed: int, times: int, idle_s: float) -> float:
    """Pulls two serial ports while they are read; the CPU's share while nothing is plugged."""
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="edged-") as folder:
        buses = KernelBuses(SystemClock(), dev=f"{folder}/dev", sysfs=f"{folder}/sys")
        sensors = {"gps": SensorConfig(driver="nmea", bus="usb-receiver", every="1s")}
        os.makedirs(f"{folder}/dev")
        async with daemon(sensors, buses) as it:
            pulls = Pulls(it, await client_of(it), folder, random.Random(seed))
            await pulls.start()
            for number in range(1, times + 1):
                await pulls.round(number, idle_s)
    # Before the first plug it may have been looked for.
    states = [state for state in pulls.watcher.states if state != "absent"]
    assert states == ["ready", "lost"] * times
    share = pulls.cpu_s / pulls.idle_s if pulls.idle_s else 0.0
    print(f"{times} pulls, {pulls.bytes} bytes, CPU without them {share:.2%}")
    return share
