"""Buttons, reed contacts and motion sensors on simulated lines."""

import msgspec
import pytest

from edged.bus import Edge
from edged.bus.sim import SimGpio
from edged.drivers import button
from edged.errors import NoDeviceError
from edged.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def sim(clock):
    return button.Sim(clock)


@pytest.fixture
def gpio(sim, clock):
    return SimGpio(sim.lines, clock.now)


@pytest.fixture
async def device(gpio, clock):
    found = await button.probe(button.Config(line="GPIO27"), gpio, clock.sleep)
    yield found
    await found.close()


async def values(device):
    return [sample.value for sample in await device.read()]


async def test_a_contact_to_ground_is_pressed_while_it_is_closed(device, sim, clock):
    assert device.identity == "input GPIO27"
    assert await values(device) == [0.0, 0.0]
    sim.button.press()
    clock.advance(1.0)
    assert await values(device) == [1.0, 1.0]
    sim.button.release()
    clock.advance(1.0)
    assert await values(device) == [0.0, 1.0]


async def test_bounces_count_once(device, sim, clock):
    """The contact of the model changes five times at each press."""
    for _ in range(3):
        sim.button.press()
        clock.advance(0.1)
        sim.button.release()
        clock.advance(0.1)
        await device.read()
    assert await values(device) == [0.0, 3.0]


async def test_a_press_between_two_readings_is_not_missed(device, sim, clock):
    """The kernel tells of it by an edge (fault 45)."""
    sim.button.press()
    clock.advance(0.1)
    sim.button.release()
    clock.advance(60.0)
    assert await values(device) == [0.0, 1.0]


class Lines:
    """GPIO lines whose edges are told by hand."""

    def __init__(self):
        self.told, self.settings, self.released, self.value = {}, {}, [], False

    async def request(self, line, settings, consumer, on_edges=None):
        self.told[line], self.settings[line] = on_edges, settings
        lines = self

        class Line:
            async def get(self):
                return lines.value

            async def release(self):
                lines.released.append(line)

        return Line()


async def test_dropped_edges_are_counted_and_told_once(clock):
    """Fault 46: 80 edges into a queue of 16; line_seqno of the first that is left is 65."""
    lines = Lines()
    device = await button.probe(button.Config(line="GPIO4"), lines, clock.sleep)
    lines.told["GPIO4"](
        [Edge(True, 1.0, 65, lost=64), *(Edge(True, 2.0, n) for n in range(66, 81))]
    )
    pressed, presses = await device.read()
    assert (pressed.value, pressed.quality) == (0.0, "ok")
    assert (presses.value, presses.quality) == (80.0, "suspect")
    assert presses.note == "the kernel dropped 64 edges, which are counted by their numbers"
    assert (await device.read())[1][1:4] == (80.0, "ok", "")
    await device.close()
    assert lines.released == ["GPIO4"]


async def test_a_motion_sensor_drives_its_line_high(clock):
    lines = Lines()
    settings = {"line": "GPIO4", "active_low": False, "bias": "as-is", "debounce": 0}
    lines.value = True
    device = await button.probe(msgspec.convert(settings, button.Config), lines, clock.sleep)
    assert (await device.read())[0].value == 1.0
    asked = lines.settings["GPIO4"]
    assert (asked.active_low, asked.bias, asked.edge, asked.debounce_s) == (
        False,
        "as-is",
        "rising",
        0,
    )


async def test_a_line_that_is_not_there_is_no_device(gpio, clock):
    with pytest.raises(NoDeviceError, match="GPIO99"):
        await button.probe(button.Config(line="GPIO99"), gpio, clock.sleep)


@pytest.mark.parametrize(
    "settings",
    [{}, {"line": "GPIO4", "debounce": "soon"}, {"line": "GPIO4", "edge": "both"}, {"line": 4}],
)
def test_wrong_settings_are_refused(settings):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, button.Config)


def test_a_button_is_debounced_unless_it_is_told_otherwise():
    assert button.Config(line="GPIO4").settings().debounce_s == 0.02
