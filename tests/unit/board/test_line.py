"""Lines: edges, pulses, deadlines, and lines without a configuration."""

import asyncio

import pytest

from edged.board import Board
from edged.bus import Edge
from edged.bus.settings import BoardConfig, GpioConfig
from edged.bus.sim import BOUNCE_S, Button, SimBuses, SimGpio
from edged.errors import BusyError, DeniedError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock


class Rig:
    def __init__(self, allow=(), gpio=SimGpio, **config):
        self.clock = FakeClock()
        self.button = Button(self.clock.monotonic)
        self.gpio = gpio(
            {"GPIO17": None, "GPIO22": None, "GPIO27": self.button}, self.clock.monotonic
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

    def press(self):
        """Press, and let the contact settle."""
        self.button.press()
        self.clock.advance(BOUNCE_S[-1] + 0.001)
        self.button.release()
        self.clock.advance(BOUNCE_S[-1] + 0.001)


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
            await line.release()


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
        await until(lambda: rig.events)
    assert rig.events == [("gpio.deadline", {"line": "pump"})]
    assert "gpio pump: nobody held it for 0.02 s" in capsys.readouterr().err


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
