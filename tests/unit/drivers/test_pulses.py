"""The pulse counter: exact counts, frequency from the kernel's time stamps."""

import msgspec
import pytest

from edged.bus import Edge
from edged.bus.sim import SimGpio
from edged.drivers import pulses
from edged.errors import NoDeviceError
from edged.testing import FakeClock


class Lines:
    """One GPIO line whose edges are told by hand."""

    def __init__(self):
        self.released = self.gone = False

    async def request(self, line, settings, consumer, on_edges=None):
        self.tell, self.settings = on_edges, settings
        return self

    async def get(self):
        if self.gone:
            raise NoDeviceError("gpiochip2 is gone")
        return False

    async def release(self):
        self.released = True


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def lines():
    return Lines()


async def probed(lines, **settings):
    config = msgspec.convert({"line": "GPIO22", **settings}, pulses.Config)
    return await pulses.probe(config, lines, FakeClock().sleep)


async def values(device):
    return [sample.value for sample in await device.read()]


def edges(start, count, period, first=1):
    return [Edge(True, start + n * period, first + n) for n in range(count)]


def test_without_a_unit_there_is_no_amount():
    names = [channel.name for channel in pulses.channels(pulses.Config(line="GPIO22"))]
    assert names == ["count", "frequency"]


async def test_before_the_first_pulse_there_is_none(lines):
    assert await values(await probed(lines)) == [0.0, 0.0]


async def test_every_pulse_counts_and_their_times_give_the_frequency(lines):
    device = await probed(lines)
    lines.tell(edges(100.0, 1, 0.1))
    assert await values(device) == [1.0, 0.0]
    lines.tell(edges(100.1, 5, 0.1, first=2))
    lines.tell(edges(100.6, 5, 0.1, first=7))
    assert await values(device) == [11.0, 10.0]
    # None since: it stands still.
    assert await values(device) == [11.0, 0.0]
    lines.tell(edges(103.0, 2, 1.0, first=12))
    # From the last pulse before, at 101.0, two in three seconds.
    assert await values(device) == [13.0, 0.6667]


async def test_a_thousand_pulses_a_second_are_counted_exactly(lines):
    """Issue 3, shows."""
    device = await probed(lines)
    for first in range(1, 60_001, 250):
        lines.tell(edges(first / 1000, 250, 0.001, first))
    assert await values(device) == [60_000.0, 1000.0]


async def test_dropped_edges_are_counted_and_make_the_count_suspect(lines):
    """Fault 46: the numbers of a line's edges have no gap but for those that were dropped."""
    device = await probed(lines, unit="kWh", per_pulse=0.001)
    lines.tell(edges(100.0, 16, 0.01))
    lines.tell([Edge(True, 101.0, 101, lost=84)])
    count, frequency, amount = await device.read()
    assert (count.value, count.quality) == (101.0, "suspect")
    assert count.note == "the kernel dropped 84 edges, which are counted by their numbers"
    assert (frequency.value, frequency.quality) == (100.0, "ok")
    assert amount[1:4] == (0.101, "suspect", count.note)
    assert [s.quality for s in await device.read()] == ["ok"] * 3


async def test_the_count_goes_on_when_the_kernels_numbers_begin_anew(lines):
    """linux/gpio.h: line_seqno has 32 bits, 50 days of a thousand pulses a second."""
    device = await probed(lines)
    lines.tell([Edge(True, 100.0, 1), Edge(True, 101.0, 0xFFFFFFFF, lost=0xFFFFFFFD)])
    lines.tell([Edge(True, 102.0, 0), Edge(True, 103.0, 1)])
    count, _ = await device.read()
    assert count.value == 0x1_0000_0001


async def test_two_edges_of_one_moment_give_no_frequency(lines):
    """Time stamps are as fine as the interrupt is late."""
    device = await probed(lines)
    lines.tell([Edge(True, 100.0, 1), Edge(True, 100.0, 2)])
    assert await values(device) == [2.0, 0.0]


@pytest.mark.parametrize(
    ("per_pulse", "unit", "count", "amount"),
    [(0.0002794, "m", 10, 0.002794), (0.001, "kWh", 1234, 1.234), (1.0, "count", 3, 3.0)],
)
async def test_an_amount_is_so_much_a_pulse(per_pulse, unit, count, amount, lines):
    """A rain gauge of 0.2794 mm a tip, a meter of 1000 pulses per kWh."""
    device = await probed(lines, per_pulse=per_pulse, unit=unit)
    lines.tell(edges(100.0, count, 1.0))
    assert await values(device) == [count, 1.0, amount]
    names = [(c.name, c.unit) for c in pulses.channels(device._config)]
    assert names == [("count", "count"), ("frequency", "Hz"), ("amount", unit)]


async def test_the_contact_closes_to_ground_and_every_closing_counts(lines):
    device = await probed(lines, debounce="5ms")
    asked = lines.settings
    assert (asked.active_low, asked.bias, asked.edge) == (True, "pull-up", "rising")
    assert asked.debounce_s == 0.005
    assert device.identity == "pulses at GPIO22"
    await device.close()
    assert lines.released


async def test_a_chip_that_is_gone_is_an_error_and_no_standstill(lines):
    """Fault 54: never a frozen value."""
    device = await probed(lines)
    lines.gone = True
    with pytest.raises(NoDeviceError):
        await device.read()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"unit": "furlong"}, "unit: 'furlong' is none of Cel, "),
        ({"per_pulse": 0}, "> 0"),
        ({"per_pulse": -1}, "> 0"),
        ({"debounce": "x"}, "is not a duration"),
        ({"gate": 3}, "gate"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert({"line": "GPIO22", **settings}, pulses.Config)


@pytest.mark.parametrize("frequency", [2.0, 0.7, 50.0])
async def test_it_counts_its_model(frequency, clock):
    sim = pulses.Sim(clock, frequency_hz=frequency)
    gpio = SimGpio(sim.lines, clock.now)
    device = await pulses.probe(pulses.Config(line="GPIO22"), gpio, clock.sleep)
    await device.read()
    for _ in range(4):
        clock.advance(10.0)
        count, measured = await device.read()
        assert measured.value == pytest.approx(frequency, rel=1e-3)
    assert count.value == pytest.approx(40 * frequency, abs=1)
    await device.close()


@pytest.mark.parametrize("frequency", [1.0, 4.9, 60.0])
def test_the_models_next_change_is_always_to_come(frequency, clock):
    """Else who waits for it would wait no time at all."""
    sim = pulses.Sim(clock, frequency_hz=frequency)
    at = clock.now()
    for _ in range(1_000):
        following = sim.next_change(at)
        assert 0 < following - at < 1 / frequency
        at = following
