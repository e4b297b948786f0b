"""The board: sensors, lines, claims, safe levels."""

import asyncio
import errno
import subprocess
import sys

import pytest

from edged.board import Board
from edged.board.sim import sim_board
from edged.bus import LineSettings
from edged.bus.settings import BoardConfig, GpioConfig, SensorConfig
from edged.bus.sim import Button, SimBuses, SimGpio, SimI2c
from edged.drivers import bme280
from edged.errors import (
    BusError,
    BusyError,
    ConfigError,
    InvalidArgumentsError,
    NoDeviceError,
)


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return 1_700_000_000.0 + self.seconds

    async def sleep(self, seconds):
        self.seconds += seconds
        await asyncio.sleep(0)


class Watched:
    """A register model whose writes are remembered."""

    def __init__(self, model, writes):
        self.model, self.writes = model, writes

    def write(self, data):
        self.writes.append(data)
        self.model.write(data)

    def read(self, length):
        return self.model.read(length)


class Rig:
    """A board with everything behind it in reach."""

    def __init__(self, sensors=None, gpio=None, lines=lambda lines: lines):
        self.clock = FakeClock()
        self.writes = []
        self.bus = SimI2c("i2c-1", {0x76: Watched(bme280.Sim(self.clock), self.writes)})
        self.button = Button(self.clock.monotonic)
        self.gpio = SimGpio(
            {"GPIO17": None, "GPIO18": None, "GPIO27": self.button}, self.clock.monotonic
        )
        config = BoardConfig(
            sensors={"greenhouse": SensorConfig(driver="bme280", bus="i2c-1")}
            if sensors is None
            else sensors,
            gpio={
                "pump": GpioConfig(line="GPIO17", direction="output", active_low=True, safe="off"),
                "lamp": GpioConfig(line="GPIO18", direction="output", safe="on"),
                "button": GpioConfig(
                    line="GPIO27", direction="input", active_low=True, bias="pull-up"
                ),
            }
            if gpio is None
            else gpio,
        )
        self.events = []
        self.board = Board(
            config,
            SimBuses(i2c={"i2c-1": self.bus}, gpio=lines(self.gpio)),
            self.clock,
            sleep=self.clock.sleep,
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )

    def measurements(self):
        return sum(1 for data in self.writes if data[:1] == b"\xf2")


class Unplugged:
    """GPIO lines of which one, once requested, fails whatever it is asked."""

    def __init__(self, gpio):
        self.gpio = gpio

    async def request(self, line, settings, consumer, on_edges=None):
        found = await self.gpio.request(line, settings, consumer, on_edges)
        return self if line == "GPIO17" else found

    async def set(self, value):
        raise BusError(errno.ENODEV, "unplugged")

    async def release(self):
        pass


class Stuck:
    """GPIO lines of which one never answers its request."""

    def __init__(self, gpio):
        self.gpio = gpio
        self.asked = asyncio.Event()

    async def request(self, line, settings, consumer, on_edges=None):
        if line == "GPIO18":
            self.asked.set()
            await asyncio.Event().wait()
        return await self.gpio.request(line, settings, consumer, on_edges)


@pytest.fixture
def rig():
    return Rig()


async def test_a_sensor_reads_with_all_that_a_reading_needs(rig):
    """Issue 3, part 5: value, SenML unit, when, quality, identity."""
    async with rig.board as board:
        readings = await board.read("greenhouse")
    assert [(r.channel, r.unit) for r in readings] == [
        ("temperature", "Cel"),
        ("pressure", "Pa"),
        ("humidity", "%RH"),
    ]
    first = readings[0]
    assert first.value == pytest.approx(21.5, abs=0.005)
    assert (first.sensor, first.quality, first.identity) == ("greenhouse", "ok", "BME280, id 0x60")
    assert (first.time, first.monotonic) == (rig.clock.now(), rig.clock.monotonic())


async def test_one_channel_can_be_asked_for(rig):
    async with rig.board as board:
        (reading,) = await board.read("greenhouse", "humidity")
        assert reading.value == pytest.approx(45.0, abs=0.01)
        with pytest.raises(InvalidArgumentsError, match="has temperature, pressure, humidity"):
            await board.read("greenhouse", "wind")


async def test_unknown_names_are_refused_with_the_known_ones(rig):
    async with rig.board as board:
        with pytest.raises(NoDeviceError, match="no sensor 'cellar': there is greenhouse"):
            await board.read("cellar")
        with pytest.raises(
            NoDeviceError, match="no gpio line 'door': there is button, lamp, pump, and"
        ):
            await board.read_line("door")


async def test_sensors_are_listed_with_their_state(rig):
    async with rig.board as board:
        (info,) = board.sensors
        assert (info.name, info.driver, info.bus, info.address) == (
            "greenhouse",
            "bme280",
            "i2c-1",
            0x76,
        )
        assert info.state == "unknown"
        await board.read("greenhouse")
        (info,) = board.sensors
        assert (info.state, info.identity) == ("ready", "BME280, id 0x60")


async def test_concurrent_readers_share_one_measurement(rig):
    """One measurement holds its bus once."""
    async with rig.board as board:
        await board.read("greenhouse")
        before = rig.measurements()
        results = await asyncio.gather(*(board.read("greenhouse") for _ in range(16)))
        assert rig.measurements() == before + 1
        assert all(result == results[0] for result in results)


async def test_a_recent_measurement_will_do_when_the_caller_says_so(rig):
    async with rig.board as board:
        first = await board.read("greenhouse")
        rig.clock.seconds += 5
        assert await board.read("greenhouse", max_age_s=5) == first
        rig.clock.seconds += 1
        assert await board.read("greenhouse", max_age_s=5) != first
        again = await board.read("greenhouse")
        assert await board.read("greenhouse") != again


async def test_a_cancelled_reader_leaves_the_others_their_reading(rig):
    """A cancelled or failed caller never blocks the next."""
    async with rig.board as board, rig.bus.hold():
        gone = asyncio.create_task(board.read("greenhouse"))
        stays = asyncio.create_task(board.read("greenhouse"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert not stays.done()
    # The board is closed by now: whoever still waited was told so.
    with pytest.raises(NoDeviceError, match="the board was closed"):
        await asyncio.wait_for(stays, 5)


async def test_when_the_last_reader_is_cancelled_the_measurement_ends(rig):
    async with rig.board as board:
        async with rig.bus.hold():
            gone = asyncio.create_task(board.read("greenhouse"))
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.wait([gone])
            after = asyncio.create_task(board.read("greenhouse"))
            await asyncio.sleep(0)
        assert (await asyncio.wait_for(after, 5))[0].value == pytest.approx(21.5, abs=0.005)
        assert rig.writes.count(b"\xd0") == 1


@pytest.mark.parametrize("steps", range(1, 40))
async def test_a_reader_cancelled_at_any_moment_never_blocks_the_next(steps):
    """The same law, at every point where a measurement waits."""
    rig = Rig()
    async with rig.board as board:
        gone = asyncio.create_task(board.read("greenhouse"))
        for _ in range(steps):
            await asyncio.sleep(0)
        gone.cancel()
        readings = await asyncio.wait_for(board.read("greenhouse"), 5)
        assert readings[0].value == pytest.approx(21.5, abs=0.005)
        await asyncio.wait([gone])


async def test_a_failure_reaches_every_reader_and_the_next_read_finds_the_chip_anew(rig, capsys):
    """Architecture, laws: a device that goes is logged once when it goes and once when back."""
    async with rig.board as board:
        await board.read("greenhouse")
        del rig.bus.targets[0x76]
        results = await asyncio.gather(
            *(board.read("greenhouse") for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [NoDeviceError] * 3
        with pytest.raises(NoDeviceError):
            await board.read("greenhouse")
        (info,) = board.sensors
        assert info.state == "lost"
        assert "nothing answered" in info.error
        rig.writes.clear()
        rig.bus.targets[0x76] = Watched(bme280.Sim(rig.clock, temperature_cel=30.0), rig.writes)
        assert (await board.read("greenhouse"))[0].value == pytest.approx(30.0, abs=0.005)
        assert rig.writes[0] == b"\xd0"
        assert board.sensors[0].error == ""
    logged = [line for line in capsys.readouterr().err.splitlines() if "greenhouse" in line]
    assert [line.split("greenhouse ")[1][:7] for line in logged] == ["is lost", "is back"]


async def test_a_sensor_that_was_never_there_is_absent_and_stops_nothing(rig):
    rig.bus.targets.clear()
    async with rig.board as board:
        with pytest.raises(NoDeviceError, match="address 0x76"):
            await board.read("greenhouse")
        assert board.sensors[0].state == "absent"


async def test_a_bus_that_is_not_there_is_said(rig):
    sensors = {"cellar": SensorConfig(driver="bme280", bus="i2c-7")}
    async with Rig(sensors=sensors).board as board:
        with pytest.raises(NoDeviceError, match="no bus i2c-7 \\(there is i2c-1\\)"):
            await board.read("cellar")
    async with Board(BoardConfig(sensors=sensors), SimBuses(), FakeClock()) as board:
        with pytest.raises(NoDeviceError, match="there is none"):
            await board.read("cellar")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"driver": "bme820", "bus": "i2c-1"},
            "driver: 'bme820' is not one of drivers; did you mean 'bme280'",
        ),
        (
            {"driver": "bme280", "bus": "i2c-1", "address": 0x40},
            "0x40 is not an address of bme280",
        ),
        ({"driver": "bme280", "bus": "i2c-1", "address": "28-1"}, "'28-1' is not an address"),
        (
            {"driver": "bme280", "bus": "i2c-1", "options": {"oversampling": 3}},
            "options.oversampling: expected one of 1, 2, 4, 8, 16; got 3",
        ),
        ({"driver": "bme280", "bus": "i2c-1", "options": {"speed": 3}}, "speed"),
    ],
)
def test_a_sensor_that_cannot_be_is_refused_with_its_key(config, reason):
    """Architecture: a driver's Config is checked by the board when the driver is loaded."""
    with pytest.raises(ConfigError, match=f"board.sensors.attic.*{reason}"):
        Rig(sensors={"attic": SensorConfig(**config)})


def test_one_address_or_line_belongs_to_one_entry():
    """Refuse conflicting configuration; the holder is named."""
    twice = {name: SensorConfig(driver="bme280", bus="i2c-1") for name in ("attic", "cellar")}
    with pytest.raises(
        ConfigError, match=r"board\.sensors\.cellar: i2c-1/0x76 is taken by board\.sensors\.attic"
    ):
        Rig(sensors=twice)
    lines = {name: GpioConfig(line="GPIO17", direction="input") for name in ("a", "b")}
    with pytest.raises(ConfigError, match=r"board\.gpio\.b: GPIO17 is taken by board\.gpio\.a"):
        Rig(gpio=lines)


async def test_outputs_stand_on_their_safe_level_from_the_start_and_after_stop(rig):
    """Contract, section 11, `safe`; architecture, laws, stop."""
    async with rig.board as board:
        assert (rig.gpio.level("GPIO17"), rig.gpio.level("GPIO18")) == (True, True)
        await board.write_line("pump", True)
        await board.write_line("lamp", False)
        assert (rig.gpio.level("GPIO17"), rig.gpio.level("GPIO18")) == (False, False)
        assert await board.read_line("pump") is True
    assert (rig.gpio.level("GPIO17"), rig.gpio.level("GPIO18")) == (True, True)


async def test_outputs_go_to_their_safe_level_when_the_program_fails(rig):
    async def fail():
        async with rig.board as board:
            await board.write_line("pump", True)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert rig.gpio.level("GPIO17") is True


async def test_a_line_that_fails_at_the_end_does_not_keep_the_others_from_their_level():
    """Architecture, laws, stop: outputs on their safe level, whatever else fails."""
    rig = Rig(lines=Unplugged)
    board = await rig.board.__aenter__()
    await board.write_line("lamp", False)
    assert rig.gpio.level("GPIO18") is False
    with pytest.raises(ExceptionGroup, match="safe level") as caught:
        await board.__aexit__(None, None, None)
    assert [type(error) for error in caught.value.exceptions] == [BusError]
    assert rig.gpio.level("GPIO18") is True


async def test_lines_are_listed_with_direction_and_safe_level(rig):
    async with rig.board as board:
        shown = [(i.name, i.line, i.direction, i.active_low, i.safe, i.error) for i in board.lines]
    assert shown == [
        ("button", "GPIO27", "input", True, None, ""),
        ("lamp", "GPIO18", "output", False, "on", ""),
        ("pump", "GPIO17", "output", True, "off", ""),
    ]


async def test_a_button_reads_as_pressed(rig):
    async with rig.board as board:
        assert await board.read_line("button") is False
        rig.button.press()
        rig.clock.seconds += 1
        assert await board.read_line("button") is True


async def test_an_input_is_not_written(rig):
    async with rig.board as board:
        with pytest.raises(InvalidArgumentsError, match="button is an input"):
            await board.write_line("button", True)


async def test_a_taken_line_stops_nothing_and_is_had_once_it_is_free(rig, capsys):
    """The consumer is named."""
    other = await rig.gpio.request("GPIO17", LineSettings("input"), "spi0 CS0")
    async with rig.board as board:
        assert "used by 'spi0 CS0'" in capsys.readouterr().err
        with pytest.raises(BusyError, match="line GPIO17 is used by 'spi0 CS0'"):
            await board.write_line("pump", True)
        assert "spi0 CS0" in board.lines[2].error
        await other.release()
        await asyncio.gather(board.write_line("pump", True), board.read_line("pump"))
        assert rig.gpio.level("GPIO17") is False
        assert board.lines[2].error == ""


async def test_a_board_without_lines_says_so(capsys):
    gpio = {"led": GpioConfig(line="GPIO17", direction="output")}
    async with Board(BoardConfig(gpio=gpio), SimBuses(), FakeClock()) as board:
        with pytest.raises(NoDeviceError, match="no line 'GPIO17'"):
            await board.read_line("led")
    assert "no line 'GPIO17'" in capsys.readouterr().err


async def test_second_claim_is_refused_with_its_holder(rig):
    """Issue 3, part 3; contract, section 10, `devices`."""
    async with rig.board as board:
        async with board.claim("/dev/i2c-1", "tool camera"):
            with pytest.raises(BusyError, match="i2c-1 is in use by tool camera"):
                async with board.claim("i2c-1", "tool other"):
                    pass
            with pytest.raises(BusyError, match="i2c-1 is in use by tool camera"):
                await board.read("greenhouse")
        async with board.claim("ttyUSB0", "tool modem"):
            assert await board.read("greenhouse")


async def test_a_claim_waits_for_the_measurement_under_way(rig):
    async with rig.board as board:
        await board.read("greenhouse")
        reader = asyncio.create_task(board.read("greenhouse"))
        for _ in range(4):
            await asyncio.sleep(0)
        async with board.claim("i2c-1", "tool camera"):
            assert rig.writes[-1] == b"\xf7"
        assert await reader


async def test_a_claim_given_up_while_waiting_leaves_nothing(rig):
    async with rig.board as board:

        async def claim():
            async with board.claim("i2c-1", "tool camera"):
                pass

        async with rig.bus.hold():
            task = asyncio.create_task(claim())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert await asyncio.wait_for(board.read("greenhouse"), 5)


async def test_a_board_that_is_not_open_serves_nothing(rig):
    with pytest.raises(NoDeviceError, match="not open"):
        await rig.board.read("greenhouse")
    async with rig.board as board:
        pass
    with pytest.raises(NoDeviceError, match="not open"):
        await board.write_line("pump", True)


async def test_a_start_that_is_cancelled_gives_its_lines_back():
    gates = []
    rig = Rig(lines=lambda gpio: gates.append(Stuck(gpio)) or gates[0])
    start = asyncio.create_task(rig.board.__aenter__())
    await asyncio.wait_for(gates[0].asked.wait(), 5)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert await rig.gpio.request("GPIO17", LineSettings("input"), "next")


async def test_the_simulated_board_has_a_greenhouse_a_button_and_an_led():
    """Issue 2, part 9; the rest of it is in test_sim_board.py."""
    clock = FakeClock()
    clock.seconds = 40.0  # 1,700,000,040 is a full minute
    async with sim_board(clock, sleep=clock.sleep) as board:
        assert "greenhouse" in [info.name for info in board.sensors]
        assert {"button", "led"} <= {info.name for info in board.lines}
        assert len(await board.read("greenhouse")) == 3
        assert await board.read_line("button") is False
        clock.seconds = 40.0 + 51
        assert await board.read_line("button") is True
        await board.write_line("led", True)
        assert await board.read_line("led") is True


def test_an_empty_board_imports_no_driver_and_no_simulator():
    """Architecture, idea 5: start-up and idle cost are features."""
    code = (
        "import sys; from edged.board import Board; from edged.clock import SystemClock;"
        "from edged.bus.kernel import KernelBuses; from edged.bus.settings import BoardConfig;"
        "clock = SystemClock(); Board(BoardConfig(), KernelBuses(clock), clock);"
        "print([m for m in sys.modules if m.startswith(('edged.drivers.', 'edged.bus.sim'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
