"""The rotary encoder: quadrature from edges of two lines, and its model on simulated ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus import Edge, LineSettings
from edged.bus.sim import SimGpio
from edged.drivers import encoder
from edged.drivers.encoder import Quadrature
from edged.errors import BusyError
from edged.testing import FakeClock

CONFIG = encoder.Config(a="GPIO5", b="GPIO6")
PERIOD = [(False, True), (True, True), (False, False), (True, False)]
"""One period with A leading, as (is_b, value): Bourns PEC11R, quadrature output table."""


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return encoder.Sim(clock)


@pytest.fixture
def gpio(sim, clock):
    return SimGpio(sim.lines, clock.now)


@pytest.fixture
async def device(gpio, clock):
    found = await encoder.probe(CONFIG, gpio, clock.sleep)
    yield found
    await found.close()


async def values(device):
    return [sample.value for sample in await device.read()]


def test_a_leading_counts_up_and_b_leading_down():
    turns = Quadrature(a=False, b=False)
    for _ in range(3):
        for edge in PERIOD:
            turns.turn(*edge)
    assert (turns.position, turns.invalid) == (12, 0)
    for is_b, value in reversed(PERIOD):
        turns.turn(is_b, not value)
    assert (turns.position, turns.invalid) == (8, 0)


def test_a_bounce_goes_to_and_fro():
    """An edge that is taken back counts for nothing."""
    turns = Quadrature(a=False, b=False)
    for value in (True, False, True, False, True):
        turns.turn(is_b=False, value=value)
    assert (turns.position, turns.invalid) == (1, 0)


def test_an_edge_that_cannot_be_is_counted_as_invalid():
    """The level is the one that it was: an edge before it was missed."""
    turns = Quadrature(a=False, b=False)
    turns.turn(is_b=False, value=True)
    turns.turn(is_b=False, value=True)
    assert (turns.position, turns.invalid) == (1, 1)


@given(st.booleans(), st.booleans(), st.lists(st.sampled_from([1, -1]), max_size=40))
def test_any_way_there_ends_where_it_should(a, b, steps):
    """The position is the sum of the steps, wherever it begins."""
    places = list(encoder._PLACES)
    place = places.index((a, b))
    turns = Quadrature(a, b)
    for step in steps:
        was, place = places[place], (place + step) % 4
        is_b = was[0] == places[place][0]
        turns.turn(is_b, places[place][is_b])
    assert (turns.position, turns.invalid) == (sum(steps), 0)


@pytest.mark.parametrize(
    ("steps", "position"), [(4, 1.0), (-4, -1.0), (80, 20.0), (6, 1.5), (-1, -0.25)]
)
async def test_a_click_is_one(steps, position, device, sim, clock):
    assert device.identity == "encoder at GPIO5 and GPIO6"
    assert await values(device) == [0.0, 0.0]
    sim.turn(steps)
    clock.advance(1.0)
    assert await values(device) == [position, 0.0]
    sim.turn(-steps)
    clock.advance(1.0)
    assert await values(device) == [0.0, 0.0]


async def test_it_begins_where_it_stands(sim, gpio, clock):
    """Levels at the start are no edges."""
    sim.turn(2)
    clock.advance(1.0)
    device = await encoder.probe(CONFIG, gpio, clock.sleep)
    assert await values(device) == [0.0, 0.0]
    sim.turn(4)
    clock.advance(1.0)
    assert await values(device) == [1.0, 0.0]


class Lines:
    """GPIO lines whose edges are told by hand."""

    def __init__(self, fails=()):
        self.told, self.released, self.fails = {}, [], fails

    async def request(self, line, settings, consumer, on_edges=None):
        self.told[line] = on_edges
        lines = self

        class Line:
            async def get(self):
                if line in lines.fails:
                    raise BusyError("no level")
                return False

            async def release(self):
                lines.released.append(line)

        return Line()


def period(start, step=0.001):
    """Edges of A and of B over one period, A leading."""
    a = [Edge(True, start, 1), Edge(False, start + 2 * step, 2)]
    b = [Edge(True, start + step, 1), Edge(False, start + 3 * step, 2)]
    return a, b


@pytest.mark.parametrize("first", [0, 1])
async def test_edges_are_put_into_their_order_by_their_times(first, clock):
    """Each line's edges come together: those of the other may be older."""
    lines = Lines()
    device = await encoder.probe(CONFIG, lines, clock.sleep)
    for round_ in range(5):
        told = [
            *zip((lines.told["GPIO5"], lines.told["GPIO6"]), period(100.0 + round_), strict=True)
        ]
        for tell, edges in (told[first], told[1 - first]):
            tell(edges)
    assert await values(device) == [5.0, 0.0]


async def test_what_is_kept_while_nobody_reads_is_bounded(clock):
    """Every buffer is bounded."""
    lines = Lines()
    device = await encoder.probe(CONFIG, lines, clock.sleep)
    for number in range(10_000):
        lines.told["GPIO5"]([Edge(number % 2 == 0, number / 1000, number + 1)])
        assert len(device._coming) <= encoder.KEPT
    assert await values(device) == [0.0, 0.0]


async def test_missed_edges_make_the_position_suspect_once_and_are_counted(clock):
    """Fault 46: reported, not guessed."""
    lines = Lines()
    device = await encoder.probe(CONFIG, lines, clock.sleep)
    lines.told["GPIO5"]([Edge(True, 1.0, 3, lost=2), Edge(True, 1.1, 4)])
    position, invalid = await device.read()
    assert (position.value, position.quality) == (0.25, "suspect")
    assert position.note == "3 edges were missed or bounced: the position may be off"
    assert (invalid.value, invalid.quality) == (3.0, "ok")
    assert [(s.value, s.quality) for s in await device.read()] == [(0.25, "ok"), (3.0, "ok")]
    await device.close()
    await device.close()
    assert sorted(lines.released) == ["GPIO5", "GPIO6"]


@pytest.mark.parametrize(("steps", "position"), [(1, 8.0), (2, 4.0), (4, 2.0)])
async def test_what_counts_as_one_is_a_setting(steps, position, sim, gpio, clock):
    config = encoder.Config(a="GPIO5", b="GPIO6", steps=steps)
    device = await encoder.probe(config, gpio, clock.sleep)
    sim.turn(8)
    clock.advance(1.0)
    assert await values(device) == [position, 0.0]


async def test_a_line_that_is_taken_leaves_the_other_free(gpio, clock):
    await gpio.request("GPIO6", LineSettings("output"), "relay")
    with pytest.raises(BusyError, match="'relay'"):
        await encoder.probe(CONFIG, gpio, clock.sleep)
    assert [line.consumer for line in await gpio.lines()] == ["", "relay"]
    lines = Lines(fails=("GPIO6",))
    with pytest.raises(BusyError, match="no level"):
        await encoder.probe(CONFIG, lines, clock.sleep)
    assert sorted(lines.released) == ["GPIO5", "GPIO6"]


@pytest.mark.parametrize(
    "settings",
    [{"a": "x"}, {"a": "x", "b": "y", "steps": 3}, {"a": "x", "b": "y", "debounce": "?"}],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, encoder.Config)
