"""HC-SR04: its arithmetic, and its model on simulated lines."""

import pytest

from edged.bus import Edge, LineSettings
from edged.bus.sim import SimGpio
from edged.drivers import hcsr04
from edged.errors import BusyError, NoDeviceError
from edged.testing import FakeClock

CONFIG = hcsr04.Config(trigger="GPIO23", echo="GPIO24")


def echo(width, start=100.0):
    return [Edge(True, start, 1), Edge(False, start + width, 2)]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return hcsr04.Sim(clock)


@pytest.fixture
def gpio(sim, clock):
    return SimGpio(sim.lines, clock.now)


@pytest.mark.parametrize(("cel", "speed"), [(20.0, 343.42), (0.0, 331.3), (-20.0, 319.18)])
def test_the_speed_of_sound_follows_the_temperature(cel, speed):
    """The usual line: c = 331.3 + 0.606 T."""
    assert hcsr04.sound_m_s(cel) == pytest.approx(speed)


@pytest.mark.parametrize(
    ("width_s", "cel", "metre"),
    [(0.001, 20.0, 0.1717), (0.0058, 20.0, 0.9959), (0.001, 0.0, 0.1657), (0.02, 20.0, 3.4342)],
)
def test_an_echo_is_twice_the_way(width_s, cel, metre):
    """Guide: range = high level time * velocity / 2."""
    assert hcsr04.decode(echo(width_s), cel)[:3] == (
        "distance",
        pytest.approx(metre, abs=6e-5),
        "ok",
    )


@pytest.mark.parametrize(("width_s", "limit"), [(0.0001, 0.02), (0.0245, 4.0)])
def test_beyond_its_range_the_limit_is_given_and_marked(width_s, limit):
    """Guide: 2 cm to 400 cm."""
    assert hcsr04.decode(echo(width_s), 20.0)[1:3] == (limit, "clipped")


@pytest.mark.parametrize(
    ("edges", "quality", "words"),
    [
        (echo(0.038), "error", "nothing within its range"),
        (echo(0.2), "error", "nothing within its range"),
        ([Edge(True, 100.0, 1)], "error", "nothing within its range"),
        (echo(0.001) + echo(0.001, 100.002), "suspect", "4 edges in one echo: noise"),
        ([Edge(False, 100.0, 1)], "suspect", "1 edges in one echo: noise"),
        ([Edge(False, 100.0, 3, lost=2)], "suspect", "edges of the echo were lost"),
    ],
)
def test_what_is_no_echo_has_no_value(edges, quality, words):
    """Fault 48: 38 ms mean nothing in sight, and are no distance of 6.5 m."""
    sample = hcsr04.decode(edges, 20.0)
    assert (sample.value, sample.quality) == (None, quality)
    assert words in sample.note


def test_no_echo_at_all_is_no_sensor():
    """Fault 48: unplugged is an error, not the greatest distance."""
    with pytest.raises(NoDeviceError, match="does not answer: check its 5 V, Trig and Echo"):
        hcsr04.decode([], 20.0)


@pytest.mark.parametrize(
    ("metre", "cel"), [(1.0, 20.0), (0.02, 20.0), (3.999, 20.0), (1.5, -10.0)]
)
async def test_it_reads_what_is_true(metre, cel, clock):
    sim = hcsr04.Sim(clock, distance_m=metre, temperature_cel=cel)
    config = hcsr04.Config(trigger="GPIO23", echo="GPIO24", temperature=cel)
    device = await hcsr04.probe(config, SimGpio(sim.lines, clock.now), clock.sleep)
    assert device.identity == "HC-SR04 at GPIO23 and GPIO24"
    for _ in range(3):
        (sample,) = await device.read()
        assert (sample.value, sample.quality) == (pytest.approx(metre, abs=3e-4), "ok")
        clock.advance(hcsr04.INFO.interval_s)
    await device.close()


async def test_with_nothing_in_sight_there_is_no_value_and_the_next_one_is_right(sim, gpio, clock):
    """Fault 48: bounded, 38 ms."""
    device = await hcsr04.probe(CONFIG, gpio, clock.sleep)
    sim.distance_m = None
    (sample,) = await device.read()
    assert (sample.value, sample.note) == (None, "nothing within its range")
    assert clock.monotonic() == hcsr04.WAIT_S
    sim.distance_m = 0.5
    assert (await device.read())[0].value == pytest.approx(0.5, abs=3e-4)


async def test_an_unplugged_sensor_is_an_error_and_back_it_measures(sim, gpio, clock):
    device = await hcsr04.probe(CONFIG, gpio, clock.sleep)
    sim.is_plugged = False
    with pytest.raises(NoDeviceError):
        await device.read()
    sim.is_plugged = True
    assert (await device.read())[0].quality == "ok"


async def test_an_echo_that_never_ends_is_not_triggered_again(sim, gpio, clock):
    """Copies hold the line for 200 ms when nothing is in sight."""
    device = await hcsr04.probe(CONFIG, gpio, clock.sleep)
    sim.distance_m, sim.NOTHING_S = None, 0.2
    (first,) = await device.read()
    assert (first.value, first.note) == (None, "nothing within its range")
    (second,) = await device.read()
    assert (second.value, second.quality) == (None, "error")
    assert "stays high" in second.note
    assert clock.monotonic() == hcsr04.WAIT_S
    clock.advance(0.2)
    sim.distance_m = 2.0
    assert (await device.read())[0].value == pytest.approx(2.0, abs=3e-4)


async def test_both_lines_are_given_back(gpio, clock):
    assert gpio.level("GPIO23") is False
    device = await hcsr04.probe(CONFIG, gpio, clock.sleep)
    assert {line.consumer for line in await gpio.lines()} == {"edged hcsr04"}
    await device.close()
    await device.close()
    assert {line.consumer for line in await gpio.lines()} == {""}


async def test_a_trigger_that_is_taken_leaves_the_echo_free(gpio, clock):
    await gpio.request("GPIO23", LineSettings("output"), "relay")
    with pytest.raises(BusyError, match="'relay'"):
        await hcsr04.probe(CONFIG, gpio, clock.sleep)
    assert [line.consumer for line in await gpio.lines()] == ["relay", ""]


async def test_a_trigger_that_is_too_short_starts_nothing(gpio, clock):
    """Guide: 10 us."""
    edges = []
    echo = await gpio.request("GPIO24", LineSettings("input", edge="both"), "test", edges.extend)
    trigger = await gpio.request("GPIO23", LineSettings("output"), "test")
    for duration_s, expected in ((5e-6, []), (hcsr04.TRIGGER_S, [True, False])):
        await trigger.pulse(duration_s)
        clock.advance(0.1)
        await echo.get()
        assert [edge.value for edge in edges] == expected


async def test_a_line_that_makes_noise_while_nobody_reads_fills_no_memory(clock):
    """Every buffer is bounded."""
    device = hcsr04.HcSr04(CONFIG, clock.sleep)
    told = {}

    class Gpio:
        async def request(self, line, settings, consumer, on_edges=None):
            told[line] = on_edges

    await device.open(Gpio())
    for _ in range(1_000):
        told["GPIO24"](echo(0.001))
    assert len(device._edges) == 64
