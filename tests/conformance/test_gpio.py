"""Every GPIO chip: `edged.bus.Gpio` and `Line`."""

import asyncio
import errno

import pytest

from edged.bus import LineSettings
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError
from tests.conformance.benches import Edges

pytestmark = pytest.mark.needs("gpio")
INPUT, OUTPUT = LineSettings("input"), LineSettings("output")
BOTH = LineSettings("input", edge="both")


@pytest.fixture
async def take(gpio_bench):
    """Requests lines; gives them back."""
    taken = []

    async def request(name, settings, consumer="test", on_edges=None):
        taken.append(await gpio_bench.gpio.request(name, settings, consumer, on_edges))
        return taken[-1]

    yield request
    for line in taken:
        await line.release()


async def state(bench, name):
    """What the kernel tells of a line."""
    place = await bench.gpio.canonical(name)
    offset = int(place.rpartition("/")[2])
    for line in await bench.gpio.lines():
        if line.offset == offset:
            # A chip has a label, and a name.
            if await bench.gpio.canonical(f"{line.chip}/{offset}") == place:
                return line
    raise AssertionError(f"no line {name}")


@pytest.mark.parametrize("active_low", [False, True])
async def test_an_output_is_seen_outside(gpio_bench, take, active_low):
    """linux/gpio.h, GPIO_V2_LINE_FLAG_ACTIVE_LOW: values turn, levels do not."""
    settings = LineSettings("output", active_low=active_low, output_value=True)
    line = await take(gpio_bench.output, settings)
    assert await gpio_bench.shows(not active_low)
    for value in (False, True, False):
        await line.set(value)
        assert await gpio_bench.shows(value != active_low)
        assert await line.get() is value


@pytest.mark.parametrize("active_low", [False, True])
async def test_an_input_follows_what_drives_it(gpio_bench, take, active_low):
    line = await take(gpio_bench.input, LineSettings("input", active_low=active_low))
    for high in (True, False, True):
        await gpio_bench.drive(high)
        assert await line.get() is (high != active_low)


async def test_an_input_cannot_be_driven(gpio_bench, take):
    line = await take(gpio_bench.input, INPUT)
    with pytest.raises(BusError, match="input") as caught:
        await line.set(True)
    assert caught.value.errno == errno.EPERM


@pytest.mark.needs("gpio.bias")
@pytest.mark.parametrize(("bias", "high"), [("pull-up", True), ("pull-down", False)])
async def test_a_bias_decides_where_nothing_drives(gpio_bench, take, bias, high):
    await gpio_bench.let_go()
    line = await take(gpio_bench.input, LineSettings("input", bias=bias))
    assert await line.get() is high


async def test_a_look_changes_nothing(gpio_bench, take):
    """gpio-v2-get-line-ioctl.rst: without a direction the line is as it is."""
    look = LineSettings("as-is")
    line = await take(gpio_bench.output, LineSettings("output", output_value=True))
    await line.release()
    line = await take(gpio_bench.output, look)
    assert await gpio_bench.shows(await line.get())
    assert (await state(gpio_bench, gpio_bench.output)).direction == "output"
    line = await take(gpio_bench.input, INPUT)
    await line.release()
    line = await take(gpio_bench.input, look)
    for high in (True, False):
        await gpio_bench.drive(high)
        assert await line.get() is high
    assert (await state(gpio_bench, gpio_bench.input)).direction == "input"


async def test_a_pulse_ends_low(gpio_bench, take):
    line = await take(gpio_bench.output, OUTPUT)
    await line.pulse(0.001)
    assert await gpio_bench.shows(False)
    assert await line.get() is False


@pytest.mark.parametrize("duration_s", [0, 0.9e-6, 0.11, -1, float("nan"), float("inf")])
async def test_a_pulse_out_of_bounds_is_refused(take, gpio_bench, duration_s):
    """`Line.pulse`: 1 us to 0.1 s."""
    line = await take(gpio_bench.output, OUTPUT)
    with pytest.raises(InvalidArgumentsError, match="duration: must be from 1 us to 0.1 s"):
        await line.pulse(duration_s)


@pytest.mark.needs("gpio.edges")
async def test_edges_come_in_order_with_the_kernels_time_stamps(gpio_bench, take):
    edges, turns = Edges(), []
    line = await take(gpio_bench.input, BOTH, "test", edges)
    await asyncio.sleep(gpio_bench.settle_s)
    for high in (True, False, True):
        before = gpio_bench.now()
        await gpio_bench.drive(high)
        await edges.until(lambda edges: len(edges) > len(turns))
        turns.append((before, gpio_bench.now()))
        assert await line.get() is high
    assert [(e.value, e.sequence, e.lost) for e in edges] == [
        (True, 1, 0), (False, 2, 0), (True, 3, 0),
    ]  # fmt: skip
    for edge, (before, after) in zip(edges, turns, strict=True):
        assert before <= edge.monotonic <= after


@pytest.mark.needs("gpio.edges")
@pytest.mark.parametrize("active_low", [False, True])
async def test_only_the_edges_that_were_asked_for_come(gpio_bench, take, active_low):
    """Of the values, not of the levels."""
    edges = Edges()
    settings = LineSettings("input", edge="rising", active_low=active_low)
    await take(gpio_bench.input, settings, "test", edges)
    await asyncio.sleep(gpio_bench.settle_s)
    for turns in range(1, 3):
        for high in (True, False):
            await gpio_bench.drive(high)
            if high is not active_low:
                await edges.until(lambda edges, turns=turns: len(edges) == turns)
            else:
                # Its chip has noticed what is not told.
                await asyncio.sleep(gpio_bench.settle_s)
    assert [edge.value for edge in edges] == [True, True]


@pytest.mark.needs("gpio.edges", "gpio.debounce")
async def test_five_bounces_are_one_debounced_edge(gpio_bench, take):
    """facts: kernel debounce of 5 bounces -> 1 event."""
    edges = Edges()
    settings = LineSettings("input", edge="both", debounce_s=gpio_bench.debounce_s)
    line = await take(gpio_bench.input, settings, "test", edges)
    for _ in range(5):
        await gpio_bench.drive(True)
        await gpio_bench.drive(False)
    await gpio_bench.drive(True)
    assert await line.get() is False
    await edges.until(bool)
    assert await line.get() is True
    await gpio_bench.drive(False)
    await edges.until(lambda edges: len(edges) > 1)
    assert [(e.value, e.sequence, e.lost) for e in edges] == [(True, 1, 0), (False, 2, 0)]


async def test_a_second_consumer_is_refused_with_the_first_ones_name(gpio_bench, take):
    """linux/gpio.h, v2: EBUSY; by whatever name it is asked for."""
    line = await take(gpio_bench.output, OUTPUT, "edged pump")
    place = await gpio_bench.gpio.canonical(gpio_bench.output)
    for name in (gpio_bench.output, place):
        with pytest.raises(BusyError, match="is used by 'edged pump'"):
            await take(name, INPUT, "other")
    await line.release()
    again = await take(place, INPUT, "other")
    # It is no longer that one's to give back.
    await line.release()
    with pytest.raises(NoDeviceError, match="was released"):
        await line.get()
    assert await again.get() in {True, False}
    assert (await state(gpio_bench, place)).consumer == "other"


async def test_lines_are_listed_with_direction_and_consumer(gpio_bench, take):
    free = await state(gpio_bench, gpio_bench.output)
    assert (free.consumer, free.used) == ("", False)
    line = await take(gpio_bench.output, OUTPUT, "lamp")
    taken = await state(gpio_bench, gpio_bench.output)
    assert (taken.direction, taken.consumer, taken.used) == ("output", "lamp", True)
    await line.release()
    assert not (await state(gpio_bench, gpio_bench.output)).used


async def test_no_such_line_is_no_device(gpio_bench, take):
    for attempt in (take("no such line", INPUT), gpio_bench.gpio.canonical("no such line")):
        with pytest.raises(NoDeviceError, match="'no such line'"):
            await attempt


async def test_a_cancelled_request_holds_nothing(gpio_bench, take):
    """Nor does it keep the next one out, at whatever moment it was cancelled."""
    for moment in range(20):
        task = asyncio.ensure_future(gpio_bench.gpio.request(gpio_bench.output, OUTPUT, "test"))
        for _ in range(moment % 10):
            await asyncio.sleep(0.0002)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        line = await take(gpio_bench.output, OUTPUT, "next")
        await line.release()
