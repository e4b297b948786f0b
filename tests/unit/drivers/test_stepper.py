"""The driver of stepper motors, on a model whose shaft follows its inputs.

Sequence of the coils: 28BYJ-48 datasheet; pulses: A4988 datasheet.
"""

import asyncio

import msgspec
import pytest

from edged.bus.sim import SimGpio
from edged.drivers import stepper
from edged.drivers.stepper import HALF_STEPS, Config, Goto, Move, Stop, Zero
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError
from edged.testing import FakeClock

COILS = Config(**stepper.SIM_CONFIG)
CHIP = Config(step="GPIO20", direction="GPIO21", enable="GPIO16")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return stepper.Sim(clock)


@pytest.fixture
def gpio(sim, clock):
    return SimGpio(sim.lines, clock.now)


@pytest.fixture
def found(gpio, clock):
    async def probe(config=COILS, sleep=clock.sleep, **changes):
        return await stepper.probe(msgspec.structs.replace(config, **changes), gpio, sleep)

    return probe


async def position(device):
    (sample,) = await device.read()
    assert sample.channel == "position"
    return sample.value


class Gate:
    """A sleep that does not end the third time."""

    def __init__(self, clock):
        self.reached = asyncio.Event()
        self.steps = 0
        self._clock = clock

    async def sleep(self, seconds):
        self.steps += 1
        if self.steps == 3:
            self.reached.set()
            await asyncio.get_running_loop().create_future()
        self._clock.advance(seconds)


async def test_half_steps_turn_the_shaft(found, sim):
    device = await found()
    assert device.identity == "stepper on four coils"
    assert await device.act("move", Move(4096)) == "position is 4096"
    assert sim.half_steps == 4096
    await device.act("move", Move(-5000))
    assert (sim.half_steps, await position(device)) == (-904, -904.0)


async def test_full_steps_use_two_coils_and_are_twice_as_long(found, sim):
    device = await found(half_steps=False)
    await device.act("move", Move(7))
    await device.act("move", Move(-3))
    # The first one draws the rotor to a pattern of two coils.
    assert (sim.half_steps, await position(device)) == (9, 4.0)


async def test_no_pattern_is_passed_that_is_not_of_the_sequence(found, sim, gpio):
    """Off before on: never more than two coils draw current, never two that work against."""
    device = await found(half_steps=False)
    seen = []
    for name in COILS.coils:
        wire = sim.lines[name]
        told = wire._driven_to
        wire._driven_to = lambda level, told=told: (told(level), seen.append(sim.pattern))
    await device.act("move", Move(20))
    await device.act("move", Move(-20))
    assert set(seen) == {0, *HALF_STEPS}


@pytest.mark.parametrize(("hold", "coils_on"), [(False, 0), (True, 1)])
async def test_standing_it_draws_current_only_to_hold(found, sim, hold, coils_on):
    device = await found(hold=hold)
    await device.act("move", Move(2))
    assert sim.pattern.bit_count() == coils_on
    await device.act("move", Move(1))
    assert sim.half_steps == 3


async def test_a_driver_chip_counts_pulses(found, sim):
    """A4988: DIR and ENABLE before the rising edge of STEP; ENABLE is active low."""
    device = await found(CHIP)
    assert device.identity == "stepper with STEP and DIR"
    await device.act("goto", Goto(200))
    assert (sim.pulses, sim.enabled) == (200, False)
    await device.act("goto", Goto(-50))
    assert (sim.pulses, await position(device)) == (-50, -50.0)


async def test_a_driver_chip_without_enable_is_left_on(found, sim):
    sim.enabled = True
    device = await found(CHIP, enable="")
    await device.act("move", Move(3))
    await device.safe()
    assert sim.pulses == 3


async def test_it_is_no_faster_than_it_may_be(found, clock):
    device = await found(max_steps_s=100.0)
    begun = clock.monotonic()
    await device.act("move", Move(50))
    assert clock.monotonic() - begun == pytest.approx(0.5 + stepper.SETTLE_S)
    await device.act("move", Move(50, steps_s=10.0))
    assert clock.monotonic() - begun == pytest.approx(5.5 + 2 * stepper.SETTLE_S)
    with pytest.raises(InvalidArgumentsError, match="steps_s: must be up to 100"):
        await device.act("move", Move(1, steps_s=101.0))


@pytest.mark.parametrize(
    ("params", "field"),
    [(Move(101), "steps"), (Move(-11), "steps"), (Goto(101), "position"), (Goto(-11), "position")],
)
async def test_it_never_goes_beyond_its_ends(found, sim, params, field):
    """Issue 3, part 3: value limits; refused before the first step."""
    device = await found(min_position=-10, max_position=100)
    with pytest.raises(InvalidArgumentsError, match=f"{field}: position .* -10 to 100"):
        await device.act("move", params)
    assert sim.half_steps == 0
    await device.act("goto", Goto(100))
    await device.act("goto", Goto(-10))
    assert sim.half_steps == -10


async def test_a_number_without_bounds_is_refused(found):
    device = await found()
    with pytest.raises(InvalidArgumentsError, match="-inf to inf"):
        await device.act("move", Move(10**15))


async def test_where_it_stands_can_be_zero(found, sim):
    device = await found()
    await device.safe()
    await device.act("move", Move(30))
    assert await device.act("zero", Zero()) == "position is 0"
    await device.act("goto", Goto(-10))
    assert sim.half_steps == 20


async def test_a_cancelled_move_ends_at_a_whole_step_without_current(found, sim, clock):
    """Issue 3, part 3: a caller that goes away leaves nothing running."""
    gate = Gate(clock)
    device = await found(sleep=gate.sleep)
    move = asyncio.ensure_future(device.act("move", Move(1000)))
    await gate.reached.wait()
    move.cancel()
    with pytest.raises(asyncio.CancelledError):
        await move
    assert (sim.half_steps, await position(device), sim.pattern) == (3, 3.0, 0)
    await device.act("goto", Goto(0))
    assert sim.half_steps == 0


@pytest.mark.parametrize("turns", range(12))
async def test_wherever_it_is_cancelled_it_knows_where_it_stands(found, sim, turns):
    device = await found()
    move = asyncio.ensure_future(device.act("move", Move(1000)))
    for _ in range(turns):
        await asyncio.sleep(0)
    move.cancel()
    await asyncio.wait([move])
    assert sim.pattern == 0
    assert sim.half_steps == await position(device)


@pytest.mark.parametrize("how", ["stop", "safe"])
async def test_a_move_is_stopped_from_outside(found, sim, clock, how):
    async def sleep(seconds):
        clock.advance(seconds)
        await asyncio.sleep(0)

    device = await found(sleep=sleep)
    move = asyncio.ensure_future(device.act("move", Move(1_000_000)))
    while sim.half_steps < 5:
        await asyncio.sleep(0)
    with pytest.raises(BusyError, match="the motor is moving: wait, or stop it"):
        await device.act("move", Move(1))
    if how == "stop":
        said = await device.act("stop", Stop())
        assert said == f"position is {sim.half_steps}"
    else:
        await device.safe()
    stopped = sim.half_steps
    assert await move == f"position is {stopped} (stopped)"
    assert stopped < 1_000_000
    assert sim.pattern == 0
    assert await device.act("move", Move(1)) == f"position is {stopped + 1}"


async def test_its_safe_state_is_as_configured(found, sim):
    device = await found(hold=True, safe="hold")
    await device.act("move", Move(2))
    await device.safe()
    assert sim.pattern == HALF_STEPS[2]
    await device.close()
    device = await found(hold=True)
    await device.act("move", Move(2))
    await device.safe()
    assert sim.pattern == 0


async def test_a_failed_step_is_not_counted(found, gpio):
    device = await found()
    line = gpio._lines["GPIO6"]
    line.settings = msgspec.structs.replace(line.settings, direction="input")
    with pytest.raises(BusError):
        await device.act("move", Move(3))
    assert await position(device) == 0.0


async def test_what_it_took_is_given_back(found):
    device = await found()
    with pytest.raises(BusyError, match="edged stepper"):
        await found()
    await device.close()
    with pytest.raises(NoDeviceError):
        await found(coils=("GPIO5", "GPIO6", "GPIO13", "GPIO99"))
    await found()


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({}, "coils, or step and direction"),
        ({"step": "a"}, "coils, or step and direction"),
        ({"coils": ["a", "b", "c", "c"]}, "four different lines"),
        ({"coils": ["a", "b", "c", "d"], "enable": "e"}, "no step, direction or enable"),
        (
            {"coils": ["a", "b", "c", "d"], "min_position": 1},
            "0, where it counts from, is between",
        ),
        (
            {"coils": ["a", "b", "c", "d"], "min_position": 0, "max_position": 0},
            "0, where it counts from",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, fault):
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert(settings, Config)
