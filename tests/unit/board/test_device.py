"""Devices on their buses: shared ports, interrupted commands, deadlines."""

import asyncio

import pytest

from edged.board import Board
from edged.bus.settings import ActuatorConfig, BoardConfig, SensorConfig
from edged.bus.sim import SimBuses, SimGpio, SimI2c, SimPwm, SimSerial
from edged.drivers import pcf8574
from edged.errors import BusyError, ConfigError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

REGISTERS = {"volts": {"address": 0, "unit": "V"}}


class Line:
    """An RS-485 line that is quiet, and knows who opened it."""

    def __init__(self):
        self.opened = self.closed = 0

    def attach(self, send):
        self.opened += 1

    def receive(self, data):
        pass

    def detach(self):
        self.closed += 1


def meter(unit_id, **config):
    options = {"registers": REGISTERS, "unit_id": unit_id, "retries": 0, "timeout_s": 0.05}
    return SensorConfig(driver="modbus", bus="ttyUSB0", options=options, **config)


async def test_meters_of_one_line_share_its_port():
    """RS-485: up to 247 units on one pair of wires."""
    line, clock = Line(), FakeClock()
    config = BoardConfig(sensors={"one": meter(1), "two": meter(2)})
    serial = SimSerial({"ttyUSB0": line})
    async with Board(config, SimBuses(serial=serial), clock, sleep=clock.sleep) as board:
        for name in ("one", "two"):
            with pytest.raises(NoDeviceError):
                await board.read(name)
        assert line.opened == line.closed > 0
        first, second = (board._sensors[name].slot for name in ("one", "two"))
        assert await first._open_bus() is await second._open_bus()
        await first.lose()
        assert line.opened == line.closed + 1
        await second.lose()
        assert line.opened == line.closed


async def test_a_port_has_one_speed():
    config = BoardConfig(sensors={"one": meter(1), "two": meter(2, baudrate=19200)})
    serial = SimSerial({"ttyUSB0": Line()})
    async with Board(config, SimBuses(serial=serial), FakeClock()) as board:
        first, second = (board._sensors[name].slot for name in ("one", "two"))
        await first._open_bus()
        with pytest.raises(BusyError, match="ttyUSB0 is open with other settings"):
            await second._open_bus()


@pytest.mark.parametrize(
    ("sensor", "reason"),
    [
        (SensorConfig(driver="pms5003"), "bus is missing: pms5003 is on a serial port"),
        (SensorConfig(driver="host", address=3), "host has no address: remove it"),
        (SensorConfig(driver="bme280", baudrate=9600), "bme280 has no baudrate: remove it"),
        (SensorConfig(driver="at24"), r"options: .*missing required field `chip`"),
    ],
)
def test_what_a_driver_does_not_take_is_refused_with_its_key(sensor, reason):
    with pytest.raises(ConfigError, match=f"board.sensors.x.*{reason}"):
        Board(BoardConfig(sensors={"x": sensor}), SimBuses(), FakeClock())


def test_the_same_unit_twice_is_refused():
    config = BoardConfig(sensors={"one": meter(1), "two": meter(1)})
    with pytest.raises(ConfigError, match="ttyUSB0/1 is taken by board.sensors.one"):
        Board(config, SimBuses(), FakeClock())


class Relays:
    """A board with a port expander whose world can be set."""

    def __init__(self, **config):
        self.clock, self.events = FakeClock(), []
        self.chip = pcf8574.Sim(self.clock)
        self.bus = SimI2c("i2c-1", {pcf8574.INFO.addresses[0]: self.chip})
        one = ActuatorConfig(driver="pcf8574", **config)
        self.board = Board(
            BoardConfig(actuators={"relays": one}),
            SimBuses(i2c={"i2c-1": self.bus}),
            self.clock,
            sleep=self.clock.sleep,
            publish=lambda kind, facts: self.events.append((kind, facts)),
        )


def stepper(clock, sleep):
    coils = ["GPIO5", "GPIO6", "GPIO13", "GPIO19"]
    gpio = SimGpio(dict.fromkeys(coils), clock.monotonic)
    config = BoardConfig(
        actuators={"blind": ActuatorConfig(driver="stepper", options={"coils": coils})}
    )
    return Board(config, SimBuses(gpio=gpio, pwm=SimPwm([])), clock, sleep=sleep)


async def test_a_sensor_with_commands_measures_and_is_told():
    """A clock tells its temperature and is set; a meter has registers to write."""
    from edged.drivers import ds3231

    clock = FakeClock()
    bus = SimI2c("i2c-1", {0x68: ds3231.Sim(clock)})
    config = BoardConfig(sensors={"clock": SensorConfig(driver="ds3231")})
    board = Board(config, SimBuses(i2c={"i2c-1": bus}), clock, sleep=clock.sleep)
    async with board:
        assert [info.name for info in board.actuators] == ["clock"]
        await board.act("clock", "set_time", {"time": "2026-05-01T12:00:00Z"})
        (time,) = await board.read("clock", "time")
        assert time.value == pytest.approx(1_777_636_800, abs=2)


def test_one_name_is_one_thing():
    with pytest.raises(ValueError, match=r"actuators.x: is a name under sensors too"):
        BoardConfig(
            sensors={"x": SensorConfig(driver="bme280")},
            actuators={"x": ActuatorConfig(driver="pcf8574")},
        )


async def test_stop_ends_a_move_under_way():
    """Issue 3, part 3: an agent cannot wedge a motor."""
    moving = asyncio.Event()
    held = asyncio.Event()

    async def sleep(_seconds):
        moving.set()
        await held.wait()

    async with stepper(FakeClock(), sleep) as board:
        move = asyncio.create_task(board.act("blind", "move", {"steps": 1000}))
        await asyncio.wait_for(moving.wait(), 5)
        held.set()
        await board.act("blind", "stop", {})
        with pytest.raises(BusyError, match="blind move was ended by another command"):
            await move


async def test_an_actuator_goes_safe_when_nobody_tells_it_anything(capsys):
    """Issue 3, part 3: a dead-man deadline for actuators."""
    rig = Relays(deadline="20ms")
    async with rig.board as board:
        commands = {c["name"] for info in board.actuators for c in info.commands}
        assert "set" in commands
        writes = len(rig.events)
        actuator = board._actuators["relays"]
        actuator._deadline.hold()
        async with asyncio.timeout(5):
            while len(rig.events) == writes:
                await asyncio.sleep(0.001)
    assert rig.events[-1] == ("actuator.deadline", {"actuator": "relays"})
    assert "actuator relays: nobody held it for 0.02 s" in capsys.readouterr().err


async def test_one_that_was_gone_is_made_safe_before_it_acts_again():
    """A brown-out leaves it in any state."""
    rig = Relays()
    async with rig.board as board:
        del rig.bus.targets[pcf8574.INFO.addresses[0]]
        with pytest.raises(NoDeviceError):
            await board.safe()
        assert board.actuators[0].error
        rig.bus.targets[pcf8574.INFO.addresses[0]] = rig.chip
        await board.safe()
        assert board.actuators[0].error == ""
        with pytest.raises(InvalidArgumentsError, match="relays knows"):
            await board.act("relays", "dance", {})
        with pytest.raises(NoDeviceError, match="no actuator 'arm': there is relays"):
            await board.act("arm", "set", {})
