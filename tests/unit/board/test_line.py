"""Lines: edges, pulses, deadlines, and lines without a configuration."""

import asyncio
import errno
import gc
import weakref

import pytest

from edged.board import Board, deadline
from edged.bus import Edge, LineSettings
from edged.bus.settings import BoardConfig, GpioConfig
from edged.bus.sim import BOUNCE_S, Button, SimBuses, SimGpio
from edged.errors import (
    BusError,
    BusyError,
    DeniedError,
    InvalidArgumentsError,
    NoDeviceError,
)
from edged.testing import FakeClock


class Rig:
    def __init__(self, allow=(), gpio=SimGpio, **config):
        self.clock = FakeClock()
        self.button = Button(self.clock.monotonic)
        self.bell = Button(self.clock.monotonic)
        self.gpio = gpio(
            {"GPIO17": None, "GPIO22": None, "GPIO27": self.button, "GPIO5": self.bell},
            self.clock.monotonic,
        )
        lines = {
            "pump": GpioConfig(line="GPIO17", direction="output", **config),
            "door": GpioConfig(
                line="GPIO27", direction="input", bias="pull-up", active_low=True, edge="both"
            ),
        }
        self.events = []
        self.board = Board(
            BoardConfig(gpio=lines, allow=list(allow)),
            SimBuses(gpio=self.gpio),
            self.clock,
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )

    def consumer(self, line):
        return self.gpio._lines[line].consumer

    def press(self):
        """Press, and let the contact settle."""
        self.button.press()
        self.clock.advance(BOUNCE_S[-1] + 0.001)
        self.button.release()
        self.clock.advance(BOUNCE_S[-1] + 0.001)


class Shaky(SimGpio):
    """Lines whose next writes go wrong, as on a chip behind a long cable."""

    def __init__(self, *args):
        super().__init__(*args)
        self.faults, self.driven = [], []
        self.stuck = asyncio.Event()

    async def request(self, *args):
        return ShakyLine(self, await super().request(*args))


class ShakyLine:
    def __init__(self, chip, line):
        self.chip, self.line = chip, line
        self.get, self.release = line.get, line.release

    async def set(self, value):
        fault = self.chip.faults.pop(0) if self.chip.faults else ""
        if fault == "nack":
            raise BusError(errno.EREMOTEIO, "nothing answered")
        await self.line.set(value)
        self.chip.driven.append(value)
        if fault == "late":
            raise BusError(errno.EIO, "cut off")
        if fault == "stuck":
            await self.chip.stuck.wait()

    async def pulse(self, duration_s):
        self.chip.driven.append(duration_s)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_edges_are_counted_and_told_in_batches():
    """Contract, section 6: events of edges; a bouncing contact drowns nobody."""
    rig = Rig()
    async with rig.board as board:
        rig.press()
        rig.press()
        both = 4 * (1 + len(BOUNCE_S)) - 1
        await until(lambda: sum(facts["edges"] for _, facts in rig.events) >= both)
        (info,) = (one for one in board.lines if one.name == "door")
    assert {(kind, facts["line"]) for kind, facts in rig.events} == {("gpio.edge", "door")}
    assert sum(facts["edges"] for _, facts in rig.events) == info.edges
    assert len(rig.events) < info.edges


async def test_lost_edges_are_told():
    """Fault 46: the counter is exact, or says what is missing."""
    rig = Rig()
    async with rig.board as board:
        line = board._lines["door"]
        line._on_edges([Edge(True, 1.0, 1), Edge(False, 2.0, 38, 36)])
        await until(lambda: rig.events)
        assert line.info().edges == 38
        assert line.info().lost == 36
    assert rig.events[0][1]["lost"] == 36
    assert rig.events[0][1]["value"] is False


class UsbGpio(SimGpio):
    """A chip that can be pulled out of its socket, and another plugged in."""

    sockets = 1
    is_there = True

    async def request(self, *args):
        if not self.is_there:
            raise NoDeviceError("no such line")
        return UsbLine(self, await super().request(*args))

    async def pull(self):
        self.is_there = False
        self.sockets += 1
        for line in self._lines.values():
            line.release()


class UsbLine:
    def __init__(self, chip, line):
        self.chip, self.line, self.socket = chip, line, chip.sockets

    async def get(self):
        if self.socket != self.chip.sockets:
            raise NoDeviceError("its chip was unplugged")
        return await self.line.get()

    async def set(self, value):
        await self.get()
        await self.line.set(value)

    async def release(self):
        await self.line.release()


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_line_is_had_again_when_its_chip_is_plugged_in(at_once):
    """Of a chip on USB; until then each use of it says that it is gone."""
    rig = Rig(gpio=UsbGpio)
    async with rig.board as board:
        await rig.gpio.pull()
        if not at_once:
            for _ in range(2):
                board.wake()
                await until(lambda: all(one.error for one in board.lines))
            with pytest.raises(NoDeviceError, match="no such line"):
                await board.read_line("pump")
        rig.gpio.is_there = True
        board.wake()
        board.wake()
        await until(lambda: {line.consumer for line in rig.gpio._lines.values()} > {"edged door"})
        await until(lambda: not any(one.error for one in board.lines))
        rig.press()
        await until(lambda: rig.events)
        await board.write_line("pump", True)
        assert rig.gpio.level("GPIO17")
        # Closed meanwhile, it does not take the lines once more.
        board.wake()
    assert {line.consumer for line in rig.gpio._lines.values()} == {""}


async def test_watching_waits_for_edges_and_gives_up_in_time():
    """Issue 3, part 2: `gpio` watch."""
    rig = Rig()
    async with rig.board as board:
        watching = asyncio.create_task(board.watch_line("door", 1, 5.0))
        await until(lambda: board._lines["door"]._watchers)
        rig.clock.advance(0.001)
        rig.button.press()
        (edge,) = await watching
        assert edge.value is True
        assert await board.watch_line("door", 50, 0.01) == []
        with pytest.raises(InvalidArgumentsError, match="reports no edges: add edge: both"):
            await board.watch_line("pump", 1, 1.0)


async def test_an_output_goes_safe_when_nobody_drives_it_on(capsys):
    """Issue 3, part 3: a dead-man deadline for actuators."""
    rig = Rig(safe="off", deadline="20ms")
    async with rig.board as board:
        await board.write_line("pump", True)
        assert rig.gpio.level("GPIO17") is True
        await until(lambda: not rig.gpio.level("GPIO17"))
        await until(lambda: ("gpio.level", {"line": "pump", "value": False}) in rig.events)
    assert rig.events.count(("gpio.deadline", {"line": "pump"})) == 1
    assert "gpio pump: nobody held it for 0.02 s" in capsys.readouterr().err


async def test_an_output_tells_of_the_level_that_it_has_now():
    """MCP, resources: who subscribes to a line hears of each change that lasts, and no flood."""
    rig = Rig()

    def levels():
        return [facts["value"] for kind, facts in rig.events if kind == "gpio.level"]

    async with rig.board as board:
        await board.write_line("pump", True)
        await until(lambda: levels() == [True])
        for value in (True, False) * 20:
            await board.write_line("pump", value)
        await until(lambda: levels()[-1] is False)
        assert len(levels()) == 2
        await board.pulse_line("pump", 0.002)
        await until(lambda: len(levels()) == 3)
        await board.write_line("pump", False)
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: levels()[-1])
        pulse.cancel()
        await until(lambda: levels()[-1] is False)


async def test_a_long_pulse_ends_with_off_even_when_cancelled():
    rig = Rig()
    async with rig.board as board:
        await board.pulse_line("pump", 0.002)
        assert rig.gpio.level("GPIO17") is False
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        pulse.cancel()
        await asyncio.gather(pulse, return_exceptions=True)
        assert rig.gpio.level("GPIO17") is False


@pytest.mark.parametrize("fault", ["late", "stuck"])
@pytest.mark.parametrize("use", ["write_line", "pulse_line"])
async def test_an_output_goes_safe_after_a_write_that_was_cut_or_failed_halfway(use, fault):
    """A dead man's handle counts what was driven, not what was answered."""
    rig = Rig(gpio=Shaky, deadline="20ms")
    async with rig.board as board:
        rig.gpio.faults = [fault, "nack"]
        driving = asyncio.create_task(getattr(board, use)("pump", 0.015))
        await until(lambda: rig.gpio.level("GPIO17"))
        driving.cancel()
        rig.gpio.stuck.set()
        await asyncio.gather(driving, return_exceptions=True)
        if fault == "late":
            assert not driving.cancelled()
        await until(lambda: ("gpio.deadline", {"line": "pump"}) in rig.events)
        assert rig.gpio.level("GPIO17") is False


async def test_a_deadline_tries_again_until_the_output_is_safe(capsys, monkeypatch):
    """One NACK must not leave a pump on."""
    monkeypatch.setattr(deadline, "RETRY_MIN_S", 0.005)
    rig = Rig(gpio=Shaky, deadline="20ms")
    async with rig.board as board:
        await board.write_line("pump", True)
        rig.gpio.faults = ["nack"] * 3
        await until(lambda: ("gpio.deadline", {"line": "pump"}) in rig.events)
        assert rig.gpio.level("GPIO17") is False
    said = capsys.readouterr().err
    assert said.count("gpio pump may not be in its safe state, trying again: ") == 1


@pytest.mark.parametrize("value", [False, True])
async def test_a_write_ends_a_pulse_and_decides(value):
    """Nobody's pulse keeps others from switching off; reads go on meanwhile."""
    rig = Rig()
    async with rig.board as board:
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        assert await board.read_line("pump") is True
        await asyncio.wait_for(board.write_line("pump", value), 5)
        with pytest.raises(BusyError, match="the pulse of pump was ended by a write"):
            await asyncio.wait_for(pulse, 5)
        assert rig.gpio.level("GPIO17") is value
        await asyncio.wait_for(board.pulse_line("pump", 0.002), 5)


async def test_a_write_that_fails_leaves_the_pulse_its_end():
    rig = Rig(gpio=Shaky)
    async with rig.board as board:
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        rig.gpio.faults = ["nack"]
        with pytest.raises(BusError):
            await board.write_line("pump", True)
        await asyncio.gather(pulse, return_exceptions=True)
        assert rig.gpio.level("GPIO17") is False


@pytest.mark.parametrize("second", [0.0005, 60])
async def test_pulses_do_not_queue(second):
    """Six of them would keep a pump on six times as long."""
    rig = Rig()
    async with rig.board as board:
        first = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        with pytest.raises(BusyError, match="pump gives a pulse already"):
            await board.pulse_line("pump", second)
        assert rig.gpio.level("GPIO17") is True
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("duration_s", [0.0005, 60])
async def test_a_pulse_that_was_cancelled_while_it_waited_drives_nothing(duration_s):
    rig = Rig(gpio=Shaky)
    async with rig.board as board:
        rig.gpio.faults = ["stuck"]
        write = asyncio.create_task(board.write_line("pump", True))
        await until(lambda: rig.gpio.driven)
        pulse = asyncio.create_task(board.pulse_line("pump", duration_s))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pulse.cancel()
        await asyncio.sleep(0)
        rig.gpio.stuck.set()
        await asyncio.gather(write, pulse, return_exceptions=True)
        assert pulse.cancelled()
        assert rig.gpio.driven == [True]


async def test_a_pulse_whose_caller_is_cancelled_twice_ends_with_off():
    """A caller that went away, then a daemon that stops."""
    rig = Rig(gpio=Shaky)
    async with rig.board as board:
        rig.gpio.faults = ["", "", "stuck"]
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        await board.write_line("pump", True)
        await asyncio.gather(pulse, return_exceptions=True)
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        write = asyncio.create_task(board.read_line("pump"))
        await until(lambda: len(rig.gpio.driven) == 3)
        for _ in range(2):
            pulse.cancel()
            await asyncio.sleep(0)
        rig.gpio.stuck.set()
        await write
        await until(lambda: not rig.gpio.level("GPIO17"))


async def test_a_pulse_that_cannot_end_says_so(capsys):
    rig, told = Rig(gpio=Shaky), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, facts: told.append(facts))
    async with rig.board as board:
        rig.gpio.faults = ["", "nack"]
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        pulse.cancel()
        await asyncio.wait([pulse])
        del pulse
        gc.collect()
        assert told == []
        assert "gpio pump may still be on: " in capsys.readouterr().err
        rig.gpio.faults = ["", "nack"]
        with pytest.raises(BusError):
            await board.pulse_line("pump", 0.002)
        assert "gpio pump may still be on: " in capsys.readouterr().err
        await board.pulse_line("pump", 0.002)
        assert rig.gpio.level("GPIO17") is False


async def test_a_pulse_is_shorter_than_the_deadline():
    """It would be ended by that."""
    rig = Rig(deadline="2s")
    async with rig.board as board:
        with pytest.raises(InvalidArgumentsError, match="shorter than the deadline of pump, 2 s"):
            await board.pulse_line("pump", 2.0)
        assert rig.gpio.level("GPIO17") is False


async def test_a_board_that_stops_ends_a_pulse_and_takes_no_line_again():
    rig = Rig()
    async with rig.board as board:
        pulse = asyncio.create_task(board.pulse_line("pump", 60))
        await until(lambda: rig.gpio.level("GPIO17"))
        line = board._lines["pump"]
    await asyncio.wait([pulse])
    assert isinstance(pulse.exception(), BusyError)
    assert rig.gpio.level("GPIO17") is False
    with pytest.raises(NoDeviceError, match="gpio pump was given back"):
        await line.set(True)
    assert rig.consumer("GPIO17") == ""


async def failure(use):
    """What it raises, if somebody still has it."""
    try:
        await use
    except BusError as error:
        return weakref.ref(error)


async def test_an_error_of_a_pulse_is_freed_at_once():
    """No cycles: the daemon's memory is not the collector's to find."""
    rig = Rig(gpio=Shaky)
    async with rig.board as board:
        rig.gpio.faults = ["late"]
        gc.collect()
        gc.disable()
        try:
            assert (await failure(board.pulse_line("pump", 0.002)))() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("name", ["GPIO22", "gpio-sim/1"])
async def test_watching_leaves_an_output_alone(name):
    """Without a confirmation nobody turns another's output into an input."""
    rig = Rig()
    async with rig.board as board:
        await board.write_line("GPIO22", True)
        with pytest.raises(InvalidArgumentsError, match="is an output now"):
            await board.watch_line(name, 1, 0.01)
        assert rig.gpio.level("GPIO22") is True
        assert await board.read_line(name) is True


async def test_a_line_that_is_watched_may_be_driven_and_stays_an_output():
    rig = Rig()
    async with rig.board as board:
        watching = asyncio.create_task(board.watch_line("GPIO22", 1, 0.05))
        await until(lambda: rig.consumer("GPIO22"))
        await board.write_line("gpio-sim/1", True)
        assert await watching == []
        await board.write_line("GPIO22", False)
        assert rig.gpio.level("GPIO22") is False
        await board.write_line("GPIO22", True)
    assert rig.gpio.level("GPIO22") is False


async def test_all_who_watch_a_line_see_its_edges_and_the_last_gives_it_back():
    rig = Rig()
    async with rig.board as board:
        short = asyncio.create_task(board.watch_line("GPIO5", 50, 0.01))
        long = asyncio.create_task(board.watch_line("gpio-sim/3", 1, 5.0))
        await until(lambda: rig.consumer("GPIO5"))
        assert await short == []
        assert rig.consumer("GPIO5") == "edged GPIO5"
        assert await board.read_line("GPIO5") is False
        third = asyncio.create_task(board.watch_line("GPIO5", 1, 5.0))
        await asyncio.sleep(0)
        rig.bell.press()
        rig.clock.advance(0.001)
        rig.bell.release()
        (first,), (second,) = await asyncio.wait_for(asyncio.gather(long, third), 5)
        assert first == second
        assert rig.consumer("GPIO5") == ""


async def test_a_line_that_was_read_is_free_again():
    """A read without a confirmation keeps nobody from it, under any of its names."""
    rig = Rig()
    async with rig.board as board:
        for name in ("GPIO22", "gpio-sim/1"):
            assert await board.read_line(name) is False
            assert rig.consumer("GPIO22") == ""
        assert await asyncio.gather(*(board.read_line("GPIO22") for _ in range(3))) == [False] * 3


async def test_a_line_that_could_not_be_had_is_left_as_it_was():
    rig = Rig()
    async with rig.board as board:
        other = await rig.gpio.request("GPIO22", LineSettings("input"), "other")
        for use in (board.read_line("GPIO22"), board.write_line("GPIO22", True)):
            with pytest.raises(BusyError, match="used by 'other'"):
                await use
        await other.release()
        assert await board.read_line("GPIO22") is False
        assert rig.consumer("GPIO22") == ""


async def test_an_output_is_one_under_all_its_names():
    rig = Rig()
    async with rig.board as board:
        await board.write_line("GPIO22", True)
        assert await board.read_line("gpio-sim/1") is True
        await board.write_line("gpio-sim/1", False)
        assert rig.gpio.level("GPIO22") is False
        assert rig.consumer("GPIO22") == "edged GPIO22"


class Searched(SimGpio):
    searches = 0

    async def canonical(self, line):
        self.searches += 1
        return await super().canonical(line)


async def test_an_output_is_not_searched_for_at_each_write():
    """That is a system call for each line of each chip."""
    rig = Rig(gpio=Searched)
    async with rig.board as board:
        await board.write_line("GPIO22", True)
        searches = rig.gpio.searches
        await board.write_line("GPIO22", False)
        assert await board.read_line("GPIO22") is False
        assert rig.gpio.searches == searches


async def test_a_line_is_used_by_its_own_name_and_off_at_the_end():
    """No configuration is needed to try an LED."""
    rig = Rig()
    async with rig.board as board:
        assert await board.read_line("GPIO22") is False
        await board.write_line("GPIO22", True)
        assert await board.read_line("GPIO22") is True
        assert rig.gpio.level("GPIO22") is True
        states = {state.name: state.consumer for state in await rig.gpio.lines()}
        assert states["GPIO22"] == "edged GPIO22"
    assert rig.gpio.level("GPIO22") is False


async def test_a_look_at_a_free_line_does_not_turn_it_round():
    """What another program left driven stays so: a relay may hang on it."""
    rig = Rig()
    left = await rig.gpio.request("GPIO22", LineSettings("output", output_value=True), "other")
    await left.release()
    async with rig.board as board:
        assert await board.read_line("GPIO22") is True
        assert rig.gpio.level("GPIO22") is True
        states = {state.name: state for state in await rig.gpio.lines()}
        assert (states["GPIO22"].direction, states["GPIO22"].used) == ("output", False)


async def test_a_configured_line_has_one_name():
    """Its settings, active_low among them, hold for everyone."""
    rig = Rig()
    async with rig.board as board:
        with pytest.raises(InvalidArgumentsError, match="GPIO17 is configured as pump"):
            await board.read_line("GPIO17")
        with pytest.raises(NoDeviceError, match="no line 'GPIO99'"):
            await board.write_line("GPIO99", True)


async def test_a_write_needs_a_confirmation_or_the_owners_word():
    """Contract, section 8."""
    async with Rig(allow=["i2c-1", "GPIO22"]).board as board:
        board.check_write("GPIO22", confirmed=False)
        board.check_write("i2c-1/0x3c", confirmed=False)
        board.check_write("GPIO5", confirmed=True)
        with pytest.raises(DeniedError, match=r"needs confirm: true, or allow: \[GPIO5\]"):
            board.check_write("GPIO5", confirmed=False)
        async with board.claim("ttyUSB0", "tool modem"):
            with pytest.raises(BusyError, match="in use by tool modem"):
                board.check_write("ttyUSB0", confirmed=True)


async def test_pwm_stays_until_it_is_ended_or_the_board_stops():
    from edged.bus.sim import SimPwm

    pwm = SimPwm(["pwmchip0/0", "pwmchip0/1"])
    async with Board(BoardConfig(), SimBuses(pwm=pwm), FakeClock()) as board:
        await board.set_pwm("pwmchip0/0", 1_000_000, 250_000)
        await board.set_pwm("pwmchip0/1", 20_000_000, 1_500_000)
        await board.set_pwm("pwmchip0/1", 20_000_000, 1_505_000)
        assert pwm.output == {
            "pwmchip0/0": (1_000_000, 250_000),
            "pwmchip0/1": (20_000_000, 1_505_000),
        }
        await board.set_pwm("pwmchip0/0", 1_000_000, 0)
        assert await pwm.request("pwmchip0/0", "next")
    assert pwm.output["pwmchip0/1"] == (0, 0)
