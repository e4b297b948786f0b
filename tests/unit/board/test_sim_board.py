"""The board of `edged serve --sim`: a greenhouse where what acts changes what is measured."""

import asyncio
import subprocess
import sys
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.board.scan import scan_board
from edged.board.sim import sim_board
from edged.board.sim.greenhouse import DAY_S, TANK_L, Door, Greenhouse, RainGauge, outside_cel, sun
from edged.bus import SerialSettings, SpiSettings
from edged.errors import NoDeviceError
from edged.testing import FakeClock

MIDNIGHT = 1_700_006_400.0
"""2023-11-15T00:00:00Z."""
HOUR_S = 3600.0

SENSORS = ["air", "dust", "greenhouse", "host", "light", "rain", "soil", "supply", "tank", "water"]


def at_hour(hour):
    return FakeClock(now=MIDNIGHT + hour * HOUR_S)


class Board:
    """A simulated board at an hour of the day, open, with its clock."""

    def __init__(self, hour):
        self.clock = at_hour(hour)
        self.board = sim_board(self.clock, sleep=self.clock.sleep)

    async def __aenter__(self):
        await self.board.__aenter__()
        return self

    async def __aexit__(self, *failure):
        await self.board.__aexit__(*failure)

    async def values(self, sensor):
        return {one.channel: one.value for one in await self.board.read(sensor)}

    async def relay(self, output, on):
        await self.board.act("relays", "set", {"output": output, "on": on})

    async def window(self, degrees):
        await self.board.act("window", "angle", {"degrees": degrees})


@pytest.fixture
def at():
    """A board at an hour of the day, UTC."""
    return Board


# What there is ----------------------------------------------------------------------------------


async def test_it_has_a_dozen_devices(at):
    """Issue 3, part 8."""
    async with at(10) as it:
        assert [info.name for info in it.board.sensors] == SENSORS
        assert [info.name for info in it.board.actuators] == ["display", "relays", "window"]
        assert [info.name for info in it.board.lines] == ["button", "door", "led"]
        assert not any(part.error for part in (*it.board.actuators, *it.board.lines))


@settings(max_examples=60)
@given(second=st.floats(0, 7 * DAY_S), later=st.floats(0, 2 * DAY_S))
def test_every_sensor_has_its_values_at_any_time(second, later):
    """Nothing in the story is beyond what a chip can measure."""

    async def read():
        clock = FakeClock(now=MIDNIGHT + second)
        async with sim_board(clock, sleep=clock.sleep) as board:
            for passes in (0.0, later):
                clock.advance(passes)
                for info in board.sensors:
                    readings = await board.read(info.name)
                    assert [r.channel for r in readings] == [c.name for c in info.channels]
                    assert {r.quality for r in readings} <= {"ok", "warming"}
                    assert all(c.low <= r.value <= c.high or c.unit == "/100"
                               for c, r in zip(info.channels, readings, strict=True))  # fmt: skip

    asyncio.run(read())


@pytest.mark.parametrize("seconds", [-400 * DAY_S, -30.0, 7.0, 30 * 365 * DAY_S])
async def test_a_clock_that_is_set_does_no_harm(at, seconds):
    """Boards without a battery begin in 1970 and jump when NTP answers."""
    async with at(12) as it:
        before = await it.values("soil")
        it.clock.jump(seconds)
        assert await it.values("soil") == pytest.approx(before, abs=0.1)
        for name in SENSORS:
            assert None not in (await it.values(name)).values()


async def test_a_scan_names_every_chip(at):
    """Issue 3, part 6: by identity, or as one of several candidates."""
    wired = {
        0x20: "pcf8574", 0x23: "bh1750", 0x3C: "ssd1306", 0x40: "ina219",
        0x48: "lm75", 0x49: "ads1115", 0x62: "scd4x", 0x76: "bme280",
    }  # fmt: skip
    async with at(10) as it:
        for name in SENSORS:
            await it.values(name)
        scan = await scan_board(it.board.buses, it.clock)
        (bus,) = scan.i2c
        found = {one.address: one for one in bus.found}
        assert found.keys() == wired.keys()
        assert all(driver in found[address].drivers for address, driver in wired.items())
        certain = {one.drivers[0] for one in bus.found if one.certain}
        assert certain == {"ads1115", "bme280", "ina219", "lm75"}
        assert scan.spi == ("spi0.0",)
        assert [port.name for port in scan.serial] == ["ttyAMA0", "ttyUSB0"]
        assert scan.w1 == ("28-0316a2795bff",)
        assert scan.problems == {}
        # Asking who they are moved nothing.
        assert (await it.values("supply"))["current"] == pytest.approx(0.12, abs=0.001)


async def test_what_nobody_configured_is_there_to_try_the_tools_on(at):
    """A thermometer at the specification's 0x48, a converter, a looped port, free lines."""
    async with at(13) as it:
        buses = it.board.buses
        it.clock.advance(1)
        word = await buses.i2c("i2c-1").transfer(0x48, b"\x00", 2)
        warm = (await it.values("greenhouse"))["temperature"]
        assert int.from_bytes(word, "big") / 256 == pytest.approx(warm, abs=0.6)
        # DS21295D, 6.1: channel 1 against ground; the supply's 12.57 V through a divider.
        answer = await buses.spi("spi0.0").transfer(b"\x01\x90\x00", SpiSettings())
        volts = (int.from_bytes(answer, "big") & 0x3FF) / 1024 * 3.3
        assert volts == pytest.approx(12.57 / 5, abs=0.01)
        port = await buses.serial.open("/dev/ttyUSB0", SerialSettings(), "test")
        await port.write(b"hello")
        assert await port.read(5, 1.0) == b"hello"
        await port.close()
        assert len(await buses.gpio.lines()) == 28
        assert await it.board.read_line("GPIO5") is False


async def test_tests_of_users_reach_the_models_through_the_buses(at):
    """`edged.testing`: faults to order, and what is true."""
    async with at(10) as it:
        bus = it.board.buses.i2c("i2c-1")
        bus.targets[0x76].reset()
        assert (await it.values("greenhouse"))["humidity"] is not None
        bus.brown_out(0x76)
        assert (await it.values("greenhouse"))["temperature"] == pytest.approx(
            bus.targets[0x76].model.temperature_cel, abs=0.02
        )


async def test_it_has_no_tasks_of_its_own(at):
    """Idle, it costs nothing."""
    async with at(10) as it:
        for name in SENSORS:
            await it.values(name)
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_at_start_nothing_is_loaded_that_nobody_asked_for():
    """Architecture, idea 5: start-up is a feature; Pillow is needed to draw, not to be there."""
    code = (
        "import asyncio, sys; from edged.board.sim import sim_board;"
        "from edged.clock import SystemClock\n"
        "async def main():\n"
        "    async with sim_board(SystemClock()): pass\n"
        "asyncio.run(main())\n"
        "print([m for m in ('PIL', 'serial', 'smbus2', 'yaml', 'sqlite3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# The story --------------------------------------------------------------------------------------


async def test_the_pump_wets_the_soil_and_draws_current_and_empties_the_tank(at):
    """The nearest bed takes most."""
    async with at(10) as it:
        dry, idle, full = [await it.values(one) for one in ("soil", "supply", "tank")]
        await it.relay("pump", True)
        it.clock.advance(60)
        wet, busy, used = [await it.values(one) for one in ("soil", "supply", "tank")]
        gained = [wet[bed] - dry[bed] for bed in dry]
        assert gained[0] == pytest.approx(7.1, abs=0.3)
        assert all(gain > 4 for gain in gained)
        assert busy["current"] - idle["current"] == pytest.approx(1.9, abs=0.01)
        assert busy["voltage"] < idle["voltage"]
        # 6 l of 500 l, which stand 1 m high.
        assert used["distance"] - full["distance"] == pytest.approx(0.012, abs=0.001)
        await it.relay("pump", False)
        it.clock.advance(HOUR_S)
        after = await it.values("soil")
        assert all(0.5 < wet[bed] - after[bed] < 6 for bed in after)
        assert (await it.values("supply"))["current"] == pytest.approx(0.12, abs=0.001)


async def test_a_pump_that_runs_dry_shows_by_its_current_and_wets_nothing(at):
    """300 l at 6 l a minute."""
    async with at(10.2) as it:
        await it.relay("pump", True)
        it.clock.advance(51 * 60)
        assert (await it.values("tank"))["distance"] == pytest.approx(1.2, abs=0.001)
        assert (await it.values("supply"))["current"] == pytest.approx(0.82, abs=0.001)
        before = await it.values("soil")
        it.clock.advance(60)
        after = await it.values("soil")
        assert all(after[bed] < before[bed] for bed in after)


async def test_the_open_window_cools_and_lets_out_what_is_stale(at):
    async with at(13.2) as it:
        it.clock.advance(20 * 60)
        warm, stale, clean = [await it.values(one) for one in ("greenhouse", "air", "dust")]
        await it.window(90)
        it.clock.advance(60)
        assert (await it.values("greenhouse"))["temperature"] < warm["temperature"] - 2
        it.clock.advance(15 * 60)
        cool, fresh, dusty = [await it.values(one) for one in ("greenhouse", "air", "dust")]
        assert cool["temperature"] < warm["temperature"] - 6
        assert cool["humidity"] > warm["humidity"]
        assert 420 <= fresh["co2"] < stale["co2"] - 100
        assert dusty["pm2_5"] > clean["pm2_5"]
        await it.window(0)
        it.clock.advance(15 * 60)
        assert (await it.values("greenhouse"))["temperature"] > cool["temperature"] + 5


@pytest.mark.parametrize("hour", [0.2, 5.2, 8.2, 12.2, 17.2, 22.2])
async def test_the_window_cools_at_any_hour(at, hour):
    """What the greenhouse has gathered is always more than what is outside."""
    async with at(hour) as it, at(hour) as beside:
        await it.window(90)
        for one in (it, beside):
            one.clock.advance(5 * 60)
        opened, closed = [await one.values("greenhouse") for one in (it, beside)]
        assert opened["temperature"] < closed["temperature"] - 1
        assert opened["temperature"] > outside_cel(it.clock.now())


async def test_a_servo_without_pulses_stays_where_it_is(at):
    async with at(13.2) as it:
        await it.window(90)
        await it.board.act("window", "off", {})
        it.clock.advance(15 * 60)
        freed = await it.values("greenhouse")
        assert freed["temperature"] < outside_cel(it.clock.now()) + 5


async def test_light_follows_the_sun_of_the_wall_clock_and_the_lamp(at):
    lux = {}
    for hour in (0, 5, 8, 13, 18, 21):
        async with at(hour) as it:
            lux[hour] = (await it.values("light"))["illuminance"]
            if hour == 0:
                await it.relay("lamp", True)
                assert (await it.values("light"))["illuminance"] > 1_000
                assert (await it.values("supply"))["current"] == pytest.approx(1.02, abs=0.001)
    assert lux[0] == lux[5] == lux[21] < 3
    assert lux[0] < lux[8] < lux[13] > lux[18] > lux[21]
    assert lux[13] > 15_000


async def test_co2_rises_while_the_door_is_closed(at):
    """It stands open around each full hour."""
    async with at(1) as it:
        it.clock.advance(3 * 60)
        assert await it.board.read_line("door") is True
        opened = (await it.values("air"))["co2"]
        it.clock.advance(30 * 60)
        assert await it.board.read_line("door") is False
        closed = (await it.values("air"))["co2"]
        assert closed > opened + 200
        it.clock.advance(29 * 60)
        assert (await it.values("air"))["co2"] < closed - 200


async def test_rain_is_counted_and_fills_the_tank(at):
    """A quarter of an hour, every third hour, two tips a minute of 0.2794 mm."""
    async with at(2.9) as it:
        before = (await it.values("tank"))["distance"]
        assert (await it.values("rain"))["count"] == 0
        for _ in range(60):
            it.clock.advance(30)
            rain = await it.values("rain")
        assert rain["count"] == 30
        assert rain["amount"] == pytest.approx(30 * 0.2794)
        # 2.8 l a tip into 500 l.
        assert before - (await it.values("tank"))["distance"] == pytest.approx(0.168, abs=0.002)


async def test_at_the_stop_the_pump_stands_and_the_window_is_closed(at):
    """Contract: outputs stand on their safe level after the stop."""
    async with at(10) as it:
        await it.relay("pump", True)
        await it.window(45)
        chip = it.board.buses.i2c("i2c-1").targets[0x20]
        assert chip.level("p0") is False
    assert (chip.level("p0"), chip.level("p1")) == (True, True)
    again = sim_board(it.clock, sleep=it.clock.sleep)
    async with again:
        it.clock.advance(60)
        assert (await again.read("tank"))[0].value == pytest.approx(0.6, abs=0.001)


async def test_at_the_stop_no_output_waits_for_a_measurement_on_its_bus():
    """The SCD4x keeps the bus to itself for half a second; the pump hangs on it too."""
    clock, measures = at_hour(10), asyncio.Event()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waits = False

    async def sleep(seconds):
        if waits:
            measures.set()
            await never
        await clock.sleep(seconds)

    board = sim_board(clock, sleep=sleep)
    async with asyncio.timeout(20):
        async with board:
            await board.act("relays", "set", {"output": "pump", "on": True})
            chip = board.buses.i2c("i2c-1").targets[0x20]
            waits = True
            reading = asyncio.create_task(board.read("air"))
            await measures.wait()
            assert chip.level("p0") is False
        assert chip.level("p0") is True
        with pytest.raises(NoDeviceError, match="air: the board was closed"):
            await reading


async def test_dry_soil_and_a_hot_greenhouse_are_alarms(at):
    """The farthest bed is dry after some hours without water."""
    async with at(10) as it:
        await it.values("soil")
        assert it.board.alarms("soil") == {}
        it.clock.advance(9 * HOUR_S)
        await it.values("soil")
        assert it.board.alarms("soil") == {"a3": "below"}
        await it.relay("pump", True)
        it.clock.advance(120)
        await it.values("soil")
        assert it.board.alarms("soil") == {}
        it.clock.advance(19.5 * HOUR_S)
        for _ in range(2):
            await it.values("greenhouse")
            it.clock.advance(60)
        assert it.board.alarms("greenhouse") == {"temperature": "above"}


# The world alone --------------------------------------------------------------------------------


def test_it_is_the_same_however_often_one_looks():
    """Within what steps of a minute can do."""
    seldom, often = (at_hour(9.1) for _ in range(2))
    one, other = Greenhouse(seldom), Greenhouse(often)
    for house in (one, other):
        house.switch(pump=True, lamp=False)
    for _ in range(240):
        often.advance(7.5)
        other.look()
    seldom.advance(240 * 7.5)
    one.look()
    assert one.tank_l == pytest.approx(other.tank_l)
    assert one.soil == pytest.approx(other.soil, abs=0.01)
    assert one.temperature_cel == pytest.approx(other.temperature_cel, abs=0.05)
    assert one.co2_ppm == pytest.approx(other.co2_ppm, abs=2)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 2 * DAY_S), st.booleans(), st.floats(-1, 2)), max_size=8))
def test_nothing_ever_is_beyond_what_can_be(acts):
    clock = at_hour(0)
    house = Greenhouse(clock)
    for seconds, pump, opening in acts:
        house.switch(pump=pump, lamp=not pump)
        house.turn_window(opening)
        clock.advance(seconds)
        house.look()
        assert 0 <= house.tank_l <= TANK_L
        assert all(12 <= bed <= 85 for bed in house.soil)
        assert 400 <= house.co2_ppm < 1_500
        assert outside_cel(clock.now()) - 8 < house.temperature_cel < 42
        assert 30 <= house.humidity_rh <= 95


def test_the_sun_is_highest_at_thirteen_and_down_at_night():
    assert sun(MIDNIGHT + 13 * HOUR_S) == pytest.approx(1)
    assert sun(MIDNIGHT + 5.9 * HOUR_S) == sun(MIDNIGHT + 20.1 * HOUR_S) == 0


@given(second=st.floats(0, DAY_S))
def test_the_rain_gauge_says_when_it_changes_next(second):
    """What a line with edges relies on: nothing between now and then, and something then."""
    rain, now = RainGauge(), MIDNIGHT + second
    following = rain.next_change(now)
    assert now < following
    (*_, (began, level)) = rain.levels(now)
    assert began <= now
    assert rain.levels((now + following) / 2)[-1] == (began, level)
    assert rain.levels(following)[-1] == (following, False if level is None else None)


def test_a_shower_tips_thirty_times():
    rain, begin = RainGauge(), MIDNIGHT + 3 * HOUR_S
    assert rain.tips(begin - 0.01) + 1 == rain.tips(begin)
    assert rain.tips(begin - 0.01) + 30 == rain.tips(begin + 15 * 60) == rain.tips(begin + HOUR_S)
    assert rain.levels(begin)[-1] == (begin, False)
    assert rain.levels(begin + 1)[-1] == (begin + 0.1, None)


@given(second=st.floats(1, 2 * DAY_S))
def test_the_door_is_what_its_contact_says(second):
    """Closed is low; the contact bounces for 3 ms."""
    door, now = Door(), MIDNIGHT + second
    follows = door.next_change(now)
    assert now < follows < inf
    if now - door.levels(now)[-1][0] > 0.01 and follows - now > 0.01:
        assert door.is_open(now) == (door.levels(now)[-1][1] is None)
