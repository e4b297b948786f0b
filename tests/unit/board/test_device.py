"""Devices on their buses: shared ports, interrupted commands, deadlines."""

import asyncio
import errno
import gc
import re
import weakref

import pytest

from edged.board import Board
from edged.bus.settings import ActuatorConfig, BoardConfig, GpioConfig, SensorConfig
from edged.bus.sim import SimBuses, SimGpio, SimI2c, SimPwm, SimSerial
from edged.drivers import pcf8574
from edged.errors import (
    BusError,
    BusyError,
    ConfigError,
    InvalidArgumentsError,
    NoDeviceError,
)
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
        (SensorConfig(driver="ina219"), r"\.options\.shunt_ohms: is missing: add it"),
        (
            SensorConfig(driver="ina219", options={"shunt_ohms": 0.1, "max_current_a": 99}),
            r"\.options\.max_current_a: 99 A make",
        ),
        (
            SensorConfig(driver="ina219", options={"shunt_ohm": 0.1}),
            r"\.options\.shunt_ohm: unknown key; did you mean 'shunt_ohms'",
        ),
        (
            SensorConfig(driver="scd4x", options={"zzz": 1}),
            r"\.options\.zzz: unknown key; known here: altitude_m$",
        ),
        (
            SensorConfig(driver="hcsr04", options={"trigger": 5, "echo": "GPIO6"}),
            r"\.options\.trigger: expected text, got a whole number",
        ),
        (
            SensorConfig(driver="bme280", options={"address": 0x76}),
            r"\.options\.address: stands beside driver, not among its options",
        ),
        (
            SensorConfig(driver="ds18b20", address="28-xyz"),
            r"\.address: expected text such as 28-",
        ),
        (SensorConfig(driver="servo"), r"\.driver: servo only acts: put it under actuators"),
        (SensorConfig(driver="at24"), r"\.driver: at24 only acts: put it under actuators"),
        (SensorConfig(driver="thermometer"), r"there are \d+ \(edged config --driver lists them"),
    ],
)
def test_what_a_driver_does_not_take_is_refused_with_its_key(sensor, reason):
    with pytest.raises(ConfigError, match=f"^board.sensors.x.*{reason}"):
        Board(BoardConfig(sensors={"x": sensor}), SimBuses(), FakeClock())


def test_a_rule_over_several_options_is_told_with_them():
    """`__post_init__` of the driver's settings."""
    options = {"coils": ["GPIO5"], "max_steps_s": 10}
    config = BoardConfig(actuators={"x": ActuatorConfig(driver="stepper", options=options)})
    with pytest.raises(ConfigError, match=r"^board\.actuators\.x\.options.*: ") as caught:
        Board(config, SimBuses(), FakeClock())
    assert "$" not in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "bus", "reason"),
    [
        ("bme280", "i2c_1", "'i2c_1' is not an I2C bus, where bme280 is: write i2c-1"),
        ("bme280", "1", "write i2c-1"),
        ("bme280", "spi0.0", "'spi0.0' is not an I2C bus"),
        ("bme280", "i2c-1/0x70/9", "i2c-1/0x70/0 for channel 0 of a multiplexer at 0x70"),
        ("bme280", "i2c-1/0x70", "multiplexer"),
        ("bme280", "i2c-1/0x20/1", "multiplexer"),
        ("mcp3008", "i2c-1", "'i2c-1' is not an SPI target, where mcp3008 is: write spi0.0"),
        ("mcp3008", "0.0", "write spi0.0"),
        ("pms5003", "i2c-1", "'i2c-1' is not a serial port, where pms5003 is: write a serial"),
        ("ds18b20", "i2c-1", "ds18b20 has no bus: remove it"),
    ],
)
def test_a_bus_of_another_kind_is_refused_with_what_to_write(driver, bus, reason):
    """Else it would be told as a bus that is not there."""
    config = BoardConfig(sensors={"x": SensorConfig(driver=driver, bus=bus)})
    with pytest.raises(ConfigError, match=rf"board\.sensors\.x\.bus: .*{re.escape(reason)}"):
        Board(config, SimBuses(), FakeClock())


@pytest.mark.parametrize(
    ("driver", "bus"),
    [
        ("bme280", "/dev/i2c-10"),
        ("bme280", "i2c-1/112/7"),
        ("bme280", "i2c-1/0x70/0/0x71/3"),
        ("mcp3008", "/dev/spidev1.2"),
        ("pms5003", "usb:1a86:7523"),
        ("pms5003", "/dev/serial/by-id/usb-x"),
    ],
)
def test_a_bus_may_be_written_as_people_know_it(driver, bus):
    config = BoardConfig(sensors={"x": SensorConfig(driver=driver, bus=bus)})
    assert Board(config, SimBuses(), FakeClock()).sensors


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


def stepper(clock, sleep, publish=lambda _kind, _facts: None, **config):
    coils = ["GPIO5", "GPIO6", "GPIO13", "GPIO19"]
    gpio = SimGpio(dict.fromkeys(coils), clock.monotonic)
    config = BoardConfig(
        actuators={"blind": ActuatorConfig(driver="stepper", options={"coils": coils}, **config)}
    )
    buses = SimBuses(gpio=gpio, pwm=SimPwm([]))
    return Board(config, buses, clock, sleep=sleep, publish=publish)


class Waits:
    """How a driver waits: until it is let go, or for ever."""

    def __init__(self):
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.cut = []

    async def __call__(self, seconds):
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut.append(seconds)
            raise


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


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"a": {"driver": "servo", "options": {"channel": "pwmchip0/0"}}},
            r"board.actuators.b: pwmchip0/0 is taken by board.actuators.a",
        ),
        (
            {
                "s1": {"driver": "pms5003", "bus": "ttyUSB0"},
                "s2": {"driver": "nmea", "bus": "/dev/ttyUSB0"},
            },
            r"board.sensors.s2: ttyUSB0 is taken by board.sensors.s1",
        ),
        (
            {"s1": {"driver": "ds18b20"}, "s2": {"driver": "ds18b20"}},
            r"board.sensors.s2: w1/the only device is taken by",
        ),
        (
            {"s1": {"driver": "hcsr04", "options": {"trigger": "GPIO17", "echo": "GPIO17"}}},
            r"board.sensors.s1: GPIO17 is named twice",
        ),
        (
            {"s1": {"driver": "button", "options": {"line": "GPIO17"}}, "g": "GPIO17"},
            r"board.gpio.g: GPIO17 is taken by board.sensors.s1",
        ),
    ],
)
def test_what_is_configured_twice_is_refused(config, reason):
    """Lines, channels, ports and ids too: the second would be busy for ever."""
    sensors = {n: SensorConfig(**one) for n, one in config.items() if n.startswith("s")}
    actuators = {}
    if "a" in config:
        actuators = {n: ActuatorConfig(**config["a"]) for n in ("a", "b")}
    gpio = {"g": GpioConfig(line=config["g"], direction="input")} if "g" in config else {}
    board = BoardConfig(sensors=sensors, actuators=actuators, gpio=gpio)
    with pytest.raises(ConfigError, match=reason):
        Board(board, SimBuses(), FakeClock())


@pytest.mark.parametrize("place", ["foo", "i2c-1/0x99", "i2c", "GPIO 22", ""])
def test_a_permission_that_would_never_hold_is_refused(place):
    with pytest.raises(ValueError, match="allow: .* is no place of a board"):
        BoardConfig(allow=[place])


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"i2c-1": {}}, "'i2c-1' is no I2C address: write i2c-1/0x60"),
        ({"GPIO4": {}}, "'GPIO4' is no I2C address"),
        ({"i2c-1/0x60": {256: (0, 1)}}, "256 is no register: write 0x00 to 0xff"),
        ({"i2c-1/0x60": {"mode": (0, 1)}}, "'mode' is no register"),
        ({"i2c-1/0x60": {0x40: (2, 1)}}, r"64: \[2, 1\] is no range"),
    ],
)
def test_limits_that_could_not_hold_are_refused(limits, said):
    with pytest.raises(ValueError, match=said):
        BoardConfig(limits=limits)


def test_registers_of_limits_are_numbers_however_they_are_written():
    limits = {"i2c-1/0x60": {"0x40": (0, 5), 65: (1, 2)}}
    assert BoardConfig(limits=limits).limits == {"i2c-1/0x60": {0x40: (0, 5), 0x41: (1, 2)}}


def test_all_that_tools_name_may_be_allowed():
    places = ["i2c-1", "i2c-1/0x3c", "i2c-1/0x70/3/0x76", "spi0.0", "ttyUSB0", "GPIO22"]
    places += ["pwmchip0/1", "gpio-sim/5", "SDA1", "/dev/serial/by-id/usb-1", "usb:1a86:7523"]
    BoardConfig(allow=places)


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


@pytest.mark.parametrize("end", ["stop", "safe"])
async def test_what_ends_a_command_ends_all_that_wait_too(end):
    """Else the motor goes on from move to move, and the owner's stop waits for all."""
    waits = Waits()
    async with stepper(FakeClock(), waits) as board:
        moves = [asyncio.create_task(board.act("blind", "move", {"steps": 9})) for _ in range(8)]
        await asyncio.wait_for(waits.begun.wait(), 5)
        ending = asyncio.create_task(
            board._actuators["blind"].safe() if end == "safe" else board.act("blind", "stop", {})
        )
        await asyncio.sleep(0)
        waits.go.set()
        await asyncio.wait_for(ending, 5)
        results = await asyncio.gather(*moves, return_exceptions=True)
        assert [type(result) for result in results] == [BusyError] * 8
        (position,) = await board.told("blind")
        assert position.value == 1


async def test_one_stop_does_not_end_another_nor_cut_short_what_a_move_does_at_its_end():
    """Whoever repeats it would keep the coils on."""
    waits = Waits()
    async with stepper(FakeClock(), waits) as board:
        move = asyncio.create_task(board.act("blind", "move", {"steps": 9}))
        await asyncio.wait_for(waits.begun.wait(), 5)
        stops = []
        for _ in range(4):
            stops.append(asyncio.create_task(board.act("blind", "stop", {})))
            for _ in range(5):
                await asyncio.sleep(0)
        move.cancel()
        await asyncio.sleep(0)
        waits.go.set()
        assert await asyncio.gather(*stops) == ["position is 1"] * 4
        assert len(waits.cut) == 1


@pytest.mark.parametrize("how", ["cut", "failed"])
async def test_an_actuator_goes_safe_after_a_command_that_was_cut_or_failed_halfway(how):
    """The caller went away while the heater was switched on."""
    events, begun = [], asyncio.Event()

    async def sleep(_seconds):
        if not begun.is_set():
            begun.set()
            if how == "failed":
                raise BusError(errno.EREMOTEIO, "nothing answered")
            await asyncio.Event().wait()

    def publish(*event):
        events.append(event)

    async with stepper(FakeClock(), sleep, publish, deadline="20ms") as board:
        move = asyncio.create_task(board.act("blind", "move", {"steps": 1000}))
        await asyncio.wait_for(begun.wait(), 5)
        if how == "cut":
            move.cancel()
        await asyncio.gather(move, return_exceptions=True)
        async with asyncio.timeout(5):
            while ("actuator.deadline", {"actuator": "blind"}) not in events:
                await asyncio.sleep(0.001)


async def test_a_command_that_takes_longer_than_the_deadline_is_ended_by_it():
    """Nobody tells it anything meanwhile."""
    waits = Waits()
    async with stepper(FakeClock(), waits, deadline="20ms") as board:
        move = asyncio.create_task(board.act("blind", "move", {"steps": 1000}))
        async with asyncio.timeout(5):
            while not waits.cut:
                await asyncio.sleep(0.001)
        waits.go.set()
        with pytest.raises(BusyError, match="or to be safe"):
            await move


async def test_an_error_of_a_command_is_freed_at_once():
    """No cycles: the daemon's memory is not the collector's to find."""

    async def failure(act):
        try:
            await act
        except InvalidArgumentsError as error:
            return weakref.ref(error)

    clock = FakeClock()
    async with stepper(clock, clock.sleep) as board:
        gc.collect()
        gc.disable()
        try:
            act = board.act("blind", "move", {"steps": 1, "steps_s": 9999})
            assert (await failure(act))() is None
        finally:
            gc.enable()


async def test_an_actuator_goes_safe_when_nobody_tells_it_anything(capsys):
    """Issue 3, part 3: a dead-man deadline for actuators."""
    rig = Relays(deadline="20ms")
    async with rig.board as board:
        commands = {c["name"] for info in board.actuators for c in info.commands}
        assert "set" in commands
        writes = len(rig.events)
        actuator = board._actuators["relays"]
        with actuator._deadline.holding():
            pass
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
            await board._actuators["relays"].safe()
        assert board.actuators[0].error
        rig.bus.targets[pcf8574.INFO.addresses[0]] = rig.chip
        await board._actuators["relays"].safe()
        assert board.actuators[0].error == ""
        with pytest.raises(InvalidArgumentsError, match="relays has no 'dance': it knows set"):
            await board.act("relays", "dance", {})
        with pytest.raises(NoDeviceError, match="no actuator 'arm': there is relays"):
            await board.act("arm", "set", {})
