"""`edged.bus.gpio` against the kernel's gpio-sim; run in the guest.

Where no source is named it is the Protocol (`edged.bus.Gpio`, `Line`).
"""

import asyncio
import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from edged.bus import LineSettings
from edged.bus import _cdev as cdev
from edged.bus._worker import Worker
from edged.bus.gpio import KernelGpio, KernelLine
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError
from tests.conformance.benches import Edges

INPUT, OUTPUT = LineSettings("input"), LineSettings("output")
BOTH = LineSettings("input", edge="both")
BOUND_S = 20


async def until(check):
    """Waits until something is so that tells nobody."""
    async with asyncio.timeout(BOUND_S):
        while not check():
            await asyncio.sleep(0.01)


@pytest.fixture
async def gpio():
    made = KernelGpio()
    yield made
    await made.close()
    for line in await made_lines():
        assert line.consumer != "test", "a line is still held"
    assert not [t for t in threading.enumerate() if t.name.startswith("gpio")]


async def made_lines():
    other = KernelGpio()
    try:
        return await other.lines()
    finally:
        await other.close()


def held(chip, offset):
    return cdev.read_chip(f"/dev/{chip.name}").lines[offset].used


async def test_lines_are_listed_with_chip_direction_and_consumer(gpio, chip):
    lines = await gpio.lines()
    assert [(line.name, line.chip, line.offset) for line in lines] == [
        ("GPIO0", "sim", 0), ("GPIO1", "sim", 1), ("GPIO2", "sim", 2), ("", "sim", 3),
        ("ACT", "sim", 4),
    ]  # fmt: skip
    assert (lines[4].direction, lines[4].consumer, lines[4].used) == ("output", "spi0 CS0", True)
    await gpio.request("GPIO1", OUTPUT, "test")
    line = (await gpio.lines())[1]
    assert (line.direction, line.consumer, line.used) == ("output", "test", True)


async def test_no_chip_is_no_line(gpio):
    assert list(await gpio.lines()) == []
    with pytest.raises(NoDeviceError, match="no GPIO chip"):
        await gpio.request("GPIO17", INPUT, "test")


async def test_a_line_is_found_by_name_label_and_chip(gpio, rack, chip):
    """facts: chips by label, never by number."""
    other = rack.chip("expander", ["a", "b"])
    for name, where, offset in [
        ("GPIO2", chip, 2), ("sim/3", chip, 3), (f"{other.name}/1", other, 1), ("a", other, 0),
    ]:  # fmt: skip
        assert await gpio.canonical(name) == f"{where.name}/{offset}"
        line = await gpio.request(name, OUTPUT, "test")
        await line.set(True)
        assert where.level(offset)
        await line.set(False)
        assert not where.level(offset)
        await line.release()


async def test_a_name_on_two_chips_is_refused_with_both(gpio, rack):
    rack.chip("left", ["x", "relay"])
    rack.chip("right", ["relay"])
    with pytest.raises(NoDeviceError, match=r"left/1 .* and right/0 "):
        await gpio.request("relay", OUTPUT, "test")
    line = await gpio.request("right/0", OUTPUT, "test")
    await line.release()


async def test_the_header_of_a_raspberry_pi_comes_first(gpio, rack):
    """A Pi 5's header is pinctrl-rp1; its numbers of chips changed."""
    rack.chip("gpio-brcmstb", ["GPIO17"])
    header = rack.chip("pinctrl-rp1", [f"GPIO{n}" if n != 2 else "SDA1" for n in range(54)])
    for name, offset in [("GPIO17", 17), ("pin 11", 17), ("BOARD11", 17), ("GPIO2", 2)]:
        line = await gpio.request(name, LineSettings("output", output_value=True), "test")
        assert header.level(offset)
        await line.release()


async def test_edges_that_nobody_reads_in_time_are_counted_as_lost(chip, turn):
    """facts: the oldest are dropped, the last state is right."""
    edges, worker = Edges(), Worker("test")
    taken = cdev.request(f"/dev/{chip.name}", 0, BOTH, "test", event_buffer=16)
    line = KernelLine("GPIO0", taken, worker, lambda line: None)
    line.watch(edges)
    for count in range(81):
        # The loop stands still meanwhile.
        turn(0, count % 2 == 0)
    await edges.until(bool)
    assert [(e.sequence, e.lost) for e in edges] == [(66, 65), *((n, 0) for n in range(67, 82))]
    assert edges[-1].value is True
    assert await line.get() is True
    turn(0, False)
    await edges.until(lambda edges: len(edges) == 17)
    assert edges[-1][2:] == (82, 0)
    await line.release()
    worker.close()


async def test_every_edge_is_counted(gpio, chip):
    """Issue 3: exactly, or the loss reported."""
    edges = Edges()
    await gpio.request("GPIO0", BOTH, "test", edges)
    for count in range(1, 101):
        chip.pull(0, bool(count % 2))
        await edges.until(lambda edges: len(edges) >= count)
    assert [edge.sequence for edge in edges] == list(range(1, 101))
    assert [edge.value for edge in edges] == [True, False] * 50
    assert not any(edge.lost for edge in edges)


async def test_an_error_in_a_callback_stops_no_later_edge(gpio, chip):
    seen, reported = Edges(), []

    def on_edges(edges):
        seen(edges)
        if len(seen) == 1:
            raise ValueError("the first one")

    asyncio.get_running_loop().set_exception_handler(lambda _, about: reported.append(about))
    await gpio.request("GPIO0", BOTH, "test", on_edges)
    chip.pull(0, True)
    await seen.until(bool)
    chip.pull(0, False)
    await seen.until(lambda edges: len(edges) == 2)
    assert "the first one" in str(reported[0]["exception"])


async def test_a_line_that_another_program_holds_names_it(gpio, chip):
    program = (
        "import sys; from edged.bus import LineSettings, _cdev; "
        f"_cdev.request('/dev/{chip.name}', 1, LineSettings('output'), 'lights out there'); "
        "print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match="GPIO1 is used by 'lights out there'"):
            await gpio.request("GPIO1", INPUT, "test")
        # Killed, it holds the line no more.
        other.send_signal(signal.SIGKILL)
        other.wait()
    await until(lambda: not held(chip, 1))
    line = await gpio.request("GPIO1", INPUT, "test")
    assert await line.get() in {True, False}


async def test_a_chip_select_comes_with_its_overlay(gpio, chip):
    """Issue 3, part 1; facts, fault 42: name the consumer and the overlay."""
    with pytest.raises(BusyError, match=r"'spi0 CS0'.*spi0\.0.*dtoverlay=spi0-0cs"):
        await gpio.request("ACT", OUTPUT, "test")


async def test_kernel_and_settings_agree_on_what_goes_together(chip):
    """linux/gpio.h; `LineSettings` refuses by name what the kernel would with EINVAL."""
    for direction, active_low, bias, drive, edge, debounce_s in itertools.product(
        ("input", "output", "as-is"),
        (False, True),
        ("as-is", "disabled", "pull-up", "pull-down"),
        ("push-pull", "open-drain", "open-source"),
        ("none", "rising", "falling", "both"),
        (0.0, 0.01),
    ):
        mix = {
            "direction": direction, "active_low": active_low, "bias": bias, "drive": drive,
            "edge": edge, "debounce_s": debounce_s,
        }  # fmt: skip
        try:
            LineSettings(**mix)
            ours = True
        except ValueError:
            ours = False
        try:
            settings = SimpleNamespace(**mix, output_value=False)
            os.close(cdev.request(f"/dev/{chip.name}", 0, settings, "test"))
            kernels = True
        except OSError as error:
            assert error.errno == errno.EINVAL
            kernels = False
        assert ours == kernels, mix


async def test_what_the_kernel_refuses_says_so(gpio, chip):
    """A line beyond the chip, as after its replacement by a smaller one."""
    settings = SimpleNamespace(
        direction="output", active_low=False, bias="as-is", drive="push-pull", edge="both",
        debounce_s=0.0, output_value=False,
    )  # fmt: skip
    with pytest.raises(BusError, match="line GPIO0: its chip cannot do this mix") as caught:
        await gpio.request("GPIO0", settings, "test")
    assert caught.value.errno == errno.EINVAL


async def test_a_pulse_ends_low(gpio, chip):
    line = await gpio.request("GPIO1", OUTPUT, "test")
    for duration_s in (1e-5, 0.01):
        before = time.monotonic()
        await line.pulse(duration_s)
        assert time.monotonic() - before >= duration_s
        assert not chip.level(1)
    pulse = asyncio.ensure_future(line.pulse(0.1))
    await until(lambda: chip.level(1))
    pulse.cancel()
    await until(lambda: not chip.level(1))
    for wrong in (0, 1e-7, 0.2, float("nan")):
        with pytest.raises(InvalidArgumentsError, match="1 us to 0.1 s"):
            await line.pulse(wrong)


async def test_an_unplugged_chip_ends_its_lines_once(gpio, chip, capfd):
    edges = Edges()
    watched = await gpio.request("GPIO0", BOTH, "test", edges)
    driven = await gpio.request("GPIO1", OUTPUT, "test")
    chip.unplug()
    with pytest.raises(NoDeviceError, match="line GPIO1: its chip was unplugged"):
        await driven.set(True)
    with pytest.raises(NoDeviceError, match="line GPIO1 is gone"):
        await driven.get()
    await until(lambda: not watched.is_watched)
    with pytest.raises(NoDeviceError, match="line GPIO0 is gone"):
        await watched.get()
    await watched.release()
    with pytest.raises(NoDeviceError):
        await gpio.request("GPIO0", INPUT, "test")
    chip.plug()
    again = await gpio.request("GPIO0", BOTH, "test", edges)
    chip.pull(0, True)
    await edges.until(bool)
    assert await again.get() is True
    assert capfd.readouterr().err.count("unplugged") == 1


async def test_unplugging_is_noticed_where_nobody_asks(gpio, chip):
    """Kernels before 6.6 wake nobody."""
    line = await gpio.request("GPIO0", BOTH, "test", Edges())
    chip.unplug()
    await until(lambda: not line.is_watched)


@pytest.fixture
def nobody():
    os.seteuid(65534)
    yield
    os.seteuid(0)


async def test_a_chip_that_may_not_be_opened_says_which_group(gpio, chip, nobody):
    for use in (gpio.lines(), gpio.request("GPIO0", INPUT, "test")):
        with pytest.raises(BusError, match="usermod -aG gpio") as caught:
            await use
        assert caught.value.errno == errno.EACCES


async def test_a_node_that_udev_has_not_given_away_yet_is_waited_for(gpio, chip):
    """facts: a GPIO chip shows up as root:root 0600 for a moment."""
    loop = asyncio.get_running_loop()

    def udev():
        os.seteuid(0)
        os.chmod(f"/dev/{chip.name}", 0o666)
        os.seteuid(65534)

    os.seteuid(65534)
    try:
        loop.call_later(0.2, udev)
        line = await gpio.request("GPIO0", INPUT, "test")
        await line.release()
    finally:
        os.seteuid(0)


async def test_another_chips_permissions_are_not_waited_for(gpio, chip, rack):
    other = rack.chip("open", ["mine"])
    os.chmod(f"/dev/{other.name}", 0o666)
    os.seteuid(65534)
    try:
        line = await gpio.request("mine", INPUT, "test")
        await line.release()
        assert [line.name for line in await gpio.lines()] == ["mine"]
    finally:
        os.seteuid(0)
