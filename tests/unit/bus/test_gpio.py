"""What of the kernel's GPIO can be shown without GPIO in this machine's kernel.

Pipes stand in for descriptors of lines: they are read, polled and hung up alike.
The rest is shown on a kernel with simulated chips (hil/uml).
"""

import asyncio
import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest

from edged.bus import LineSettings
from edged.bus import _cdev as cdev
from edged.bus._chips import SETTLE_S, Chips, take
from edged.bus._lines import Found
from edged.bus._worker import Worker
from edged.bus.faults import gpio_busy, gpio_error
from edged.bus.gpio import KernelGpio, KernelLine
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError

BOUND_S = 10
INPUT = LineSettings("input")


def event(sequence, rising=True):
    return cdev.EVENT.pack(1_000 * sequence, 1 if rising else 2, 0, sequence, sequence)


class Told(list):
    """Collects edges; waits for them."""

    def __init__(self):
        super().__init__()
        self._came = asyncio.Event()

    def __call__(self, edges):
        self.append([edge.sequence for edge in edges])
        self._came.set()

    async def once(self):
        async with asyncio.timeout(BOUND_S):
            await self._came.wait()
        self._came.clear()


class Wired:
    """A line whose kernel is a pipe."""

    def __init__(self):
        self.descriptor, self.kernel = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ended = []
        self.worker = Worker("gpiochip0")
        self.line = KernelLine("GPIO17", self.descriptor, self.worker, self.ended.append)

    def hang_up(self):
        os.close(self.kernel)
        self.kernel = -1

    @property
    def is_held(self):
        return os.path.exists(f"/proc/self/fd/{self.descriptor}")


@pytest.fixture
async def wired():
    made = Wired()
    yield made
    await made.line.release()
    made.worker.close()
    if made.kernel >= 0:
        made.hang_up()


async def test_edges_that_wait_come_in_one_batch(wired):
    told = Told()
    os.write(wired.kernel, event(1) + event(2, rising=False))
    wired.line.watch(told)
    await told.once()
    os.write(wired.kernel, event(5))
    await told.once()
    assert told == [[1, 2], [5]]


async def test_more_edges_than_one_read_takes_come_all(wired):
    told = Told()
    count = cdev.EVENT_BUFFER
    os.write(wired.kernel, b"".join(event(n) for n in range(1, count + 1)))
    wired.line.watch(told)
    async with asyncio.timeout(BOUND_S):
        while sum(map(len, told)) < count:
            await told.once()
    assert [n for batch in told for n in batch] == list(range(1, count + 1))


async def test_a_line_that_only_seems_readable_goes_on(wired):
    """Another thread of the kernel may have been quicker: EAGAIN."""
    told = Told()
    wired.line._readable(told)
    assert told == []
    assert wired.ended == []


@pytest.mark.parametrize("how", ["readable", "look", "read error"])
async def test_a_chip_that_is_gone_ends_the_line_once(wired, how, capsys):
    """Readers get ENODEV or the end; kernels before 6.6 tell only who asks."""
    told = Told()
    wired.line.watch(told)
    if how == "look":
        wired.line.look()
        assert wired.ended == []
    if how == "read error":
        directory = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(directory, wired.descriptor, inheritable=False)
        os.close(directory)
        wired.line._readable(told)
    else:
        wired.hang_up()
    if how == "look":
        wired.line.look()
    async with asyncio.timeout(BOUND_S):
        while wired.is_held:
            await asyncio.sleep(0)
    assert not wired.line.is_watched
    assert wired.ended == [wired.line]
    for use in (wired.line.get(), wired.line.set(True), wired.line.pulse(0.001)):
        with pytest.raises(NoDeviceError, match="line GPIO17 is gone: its chip was unplugged"):
            await use
    await wired.line.release()
    assert wired.ended == [wired.line]
    assert capsys.readouterr().err.count("its chip was unplugged") == 1


async def test_a_released_line_is_given_back_once(wired):
    wired.line.watch(Told())
    await asyncio.gather(wired.line.release(), wired.line.release())
    assert not wired.is_held
    assert wired.ended == [wired.line]
    with pytest.raises(NoDeviceError, match="line GPIO17 was released"):
        await wired.line.get()


async def test_a_cancelled_release_still_gives_the_line_back(wired):
    release = asyncio.ensure_future(wired.line.release())
    await asyncio.sleep(0)
    release.cancel()
    with pytest.raises(asyncio.CancelledError):
        await release
    async with asyncio.timeout(BOUND_S):
        while wired.is_held:
            await asyncio.sleep(0)


async def test_what_the_kernel_refuses_leaves_the_line_in_use(wired):
    """A pipe knows no such ioctl (ENOTTY)."""
    for use in (wired.line.get(), wired.line.set(True), wired.line.pulse(0.001)):
        with pytest.raises(BusError, match="line GPIO17: the kernel could not do it") as caught:
            await use
        assert caught.value.errno == errno.ENOTTY
    assert wired.ended == []


@pytest.mark.parametrize("duration_s", [0, 0.9e-6, 0.11, -1, float("nan"), float("inf")])
async def test_a_pulse_out_of_bounds_is_refused(wired, duration_s):
    """`Line.pulse`: 1 us to 0.1 s."""
    with pytest.raises(InvalidArgumentsError, match="duration: must be from 1 us to 0.1 s"):
        await wired.line.pulse(duration_s)


async def test_a_closed_worker_is_no_device(wired):
    """The error of the thread's own is not the kernel's."""
    other = Worker("gone")
    other.close()
    line = KernelLine("GPIO1", wired.descriptor, other, wired.ended.append)
    with pytest.raises(NoDeviceError, match="gone is closed"):
        await line.get()


@pytest.fixture
def tree():
    """A machine whose chips are plain files; open to whoever tests."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        os.mkdir(f"{path}/dev")
        os.makedirs(f"{path}/sys/bus/gpio/devices/gpiochip0")
        os.mkdir(f"{path}/sys/bus/gpio/devices/power")
        yield path


@pytest.fixture
async def gpio(tree):
    made = KernelGpio(dev=f"{tree}/dev", sysfs=f"{tree}/sys")
    yield made
    await made.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("gpio")]


async def test_a_machine_without_gpio_has_no_lines(tmp_path):
    gpio = KernelGpio(dev=str(tmp_path), sysfs=str(tmp_path))
    assert await gpio.lines() == []
    with pytest.raises(NoDeviceError, match="'GPIO17': this machine shows no GPIO chip"):
        await gpio.request("GPIO17", INPUT, "test")
    with pytest.raises(NoDeviceError, match="'GPIO17': this machine shows no GPIO chip"):
        await gpio.canonical("GPIO17")
    await gpio.close()
    with pytest.raises(NoDeviceError, match="closed"):
        await gpio.lines()


async def test_a_chip_without_its_node_says_so(gpio):
    """As in a container that was given no devices."""
    for use in (gpio.lines(), gpio.request("GPIO17", INPUT, "test")):
        with pytest.raises(NoDeviceError, match="/dev/gpiochip0 is not there"):
            await use


async def test_a_node_that_is_no_chip_says_so(gpio, tree):
    Path(tree, "dev/gpiochip0").write_bytes(b"")
    with pytest.raises(BusError, match="/dev/gpiochip0 cannot be opened") as caught:
        await gpio.lines()
    assert caught.value.errno == errno.ENOTTY


@pytest.mark.parametrize("use", [Chips.all, lambda chips: chips.locate("GPIO17")])
def test_a_node_that_is_not_ours_is_waited_for_and_then_says_which_group(tree, use):
    """facts: a GPIO chip shows up as root:root 0600 for a moment."""
    slept = []
    node = Path(tree, "dev/gpiochip0")
    node.write_bytes(b"")
    node.chmod(0)
    user = os.geteuid()
    if user == 0:
        # Root may open everything.
        os.seteuid(65_534)
    try:
        with pytest.raises(BusError, match="usermod -aG gpio") as caught:
            use(Chips(f"{tree}/dev", f"{tree}/sys", slept.append))
    finally:
        os.seteuid(user)
    assert caught.value.errno == errno.EACCES
    assert sum(slept) == pytest.approx(SETTLE_S)


def test_a_line_of_a_chip_that_vanished_is_no_device(tree):
    chip = cdev.Chip("gpiochip0", "sim", f"{tree}/dev/gpiochip0", ())
    with pytest.raises(NoDeviceError, match="line GPIO17: its chip was unplugged"):
        take(Found(chip, 17, "GPIO17"), INPUT, "test")


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.ENODEV, NoDeviceError, "unplugged"),
        (errno.ENOENT, NoDeviceError, "unplugged"),
        (errno.EREMOTEIO, NoDeviceError, "does not answer"),
        (errno.ETIMEDOUT, NoDeviceError, "does not answer"),
        (errno.EPERM, BusError, "it is an input"),
        (errno.EINVAL, BusError, "cannot do this mix"),
        (errno.ENXIO, BusError, "no edges"),
        (errno.EIO, BusError, "did not answer"),
        (errno.EFAULT, BusError, "could not do it"),
    ],
)
def test_every_errno_is_said_in_a_makers_words(number, kind, reason):
    """Documentation/userspace-api/gpio of the kernel, gpio-v2-get-line-ioctl."""
    error = gpio_error(number, "GPIO17 (pin 11)")
    assert type(error) is kind
    assert str(error).removeprefix(f"[Errno {number}] ").startswith("line GPIO17 (pin 11): ")
    assert reason in str(error)


@pytest.mark.parametrize(
    ("consumer", "words"),
    [
        ("edged pump", "is used by 'edged pump': end that"),
        ("", "is used by something without a name"),
        ("spi0 CS1", "is used by 'spi0 CS1': .* use spi0.1, .* dtoverlay=spi0-0cs"),
        ("onewire@4", "dtoverlay=w1-gpio"),
        ("w1", "dtoverlay=w1-gpio"),
        ("sysfs", "/sys/class/gpio/unexport"),
        ("spi0 CSX", "end that"),
        ("w1ndow", "end that"),
    ],
)
def test_a_taken_line_names_its_consumer_and_the_way_out(consumer, words):
    """facts, fault 42: name the consumer and the overlay."""
    error = gpio_busy("GPIO8", consumer)
    assert isinstance(error, BusyError)
    with pytest.raises(BusyError, match=words):
        raise error


@pytest.mark.parametrize("debounce_s", [-0.001, 3601, float("nan")])
def test_a_debounce_that_the_kernel_cannot_count_is_refused(debounce_s):
    """linux/gpio.h: microseconds in 32 bits."""
    with pytest.raises(ValueError, match="debounce must be from 0s to 1h"):
        LineSettings("input", debounce_s=debounce_s)
