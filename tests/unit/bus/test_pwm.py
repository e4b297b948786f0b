"""PWM on a tree of plain files that stands in for sysfs.

Nothing there makes a channel's files when it is exported: a tree without them
is a kernel whose udev has not come round to it yet.
"""

import asyncio
import errno
import fcntl
import os
import pty
import shutil
import tempfile
import termios
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.bus.pwm import POLL_S, SETTLE_S, KernelPwm, steps
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError

DEVICES = {"pwmchip0": "platform/soc/fe20c000.pwm", "pwmchip10": "platform/axi/rp1/1f00098000.pwm"}


def channel_files(root, name, **values):
    directory = os.path.join(root, "class/pwm", name)
    os.makedirs(directory)
    for file, value in {"period": "0", "duty_cycle": "0", "enable": "0", **values}.items():
        with open(os.path.join(directory, file), "w") as out:
            out.write(value + "\n")
        os.chmod(os.path.join(directory, file), 0o666)


@pytest.fixture
def root():
    """Two chips, whose channels' files are there at once; open to whoever tests."""
    root = os.path.realpath(tempfile.mkdtemp())
    os.chmod(root, 0o755)
    for chip, device in DEVICES.items():
        directory = os.path.join(root, "class/pwm", chip)
        hardware = os.path.join(root, "devices", device)
        os.makedirs(hardware)
        os.makedirs(directory)
        os.symlink(hardware, os.path.join(directory, "device"))
        for file, value in (("npwm", "2\n"), ("export", ""), ("unexport", "")):
            with open(os.path.join(directory, file), "w") as out:
                out.write(value)
            os.chmod(os.path.join(directory, file), 0o666)
        channel_files(root, f"{chip}/pwm0")
    os.makedirs(os.path.join(root, "class/pwm/power"))
    yield root
    shutil.rmtree(root)


class Waits:
    """What the bus slept; may do something at the n-th time."""

    def __init__(self):
        self.slept, self.then = [], {}

    async def __call__(self, seconds):
        self.slept.append(seconds)
        self.then.get(len(self.slept), lambda: None)()


@pytest.fixture
def sleep():
    return Waits()


@pytest.fixture
async def pwm(root, sleep):
    bus = KernelPwm(root, sleep)
    yield bus
    await bus.close()


@pytest.fixture
def plain_user():
    """As root nothing is forbidden."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65_534)
    yield
    os.seteuid(was)


@contextmanager
def as_owner(root):
    """For a moment the user whose the tree is, whoever tests."""
    user = os.geteuid()
    os.seteuid(os.stat(root).st_uid)
    yield
    os.seteuid(user)


def content(root, path):
    with open(os.path.join(root, "class/pwm", path)) as file:
        return file.read().strip()


def put(root, path, text):
    with open(os.path.join(root, "class/pwm", path), "w") as file:
        file.write(text)


def state(root, channel="pwmchip0/pwm0"):
    return [content(root, f"{channel}/{name}") for name in ("period", "duty_cycle", "enable")]


async def test_channels_are_listed_by_the_number_of_their_chip(pwm):
    assert await pwm.channels() == ["pwmchip0/0", "pwmchip0/1", "pwmchip10/0", "pwmchip10/1"]


async def test_a_board_without_pwm_has_no_channels(tmp_path):
    pwm = KernelPwm(str(tmp_path))
    assert await pwm.channels() == []
    with pytest.raises(NoDeviceError, match="none: switch it on with dtoverlay=pwm-2chan"):
        await pwm.request("pwmchip0/0", "test")
    await pwm.close()


async def test_a_channel_is_exported_set_enabled_and_given_back(root, pwm):
    """Documentation/driver-api/pwm.rst; nanoseconds."""
    channel = await pwm.request("pwmchip0/0", "servo")
    assert content(root, "pwmchip0/export") == "0"
    await channel.set(20_000_000, 1_505_000)
    assert state(root) == ["20000000", "1505000", "1"]
    await channel.set(20_000_000, 1_500_000)
    assert state(root) == ["20000000", "1500000", "1"]
    assert content(root, "pwmchip0/unexport") == ""
    await channel.release()
    assert state(root) == ["20000000", "0", "0"]
    assert content(root, "pwmchip0/unexport") == "0"
    with pytest.raises(NoDeviceError, match="was released"):
        await channel.set(1_000, 1)


@pytest.mark.parametrize(
    "name",
    [
        "pwmchip10/0",
        "1f00098000.pwm/0",
        "rp1/1f00098000.pwm/0",
        "/platform/axi/rp1/1f00098000.pwm/0",
    ],
)
async def test_a_chip_is_found_by_the_path_of_its_device_too(name, root, pwm):
    """On the Pi 5 the number has varied, and another chip is the fan."""
    channel = await pwm.request(name, "test")
    assert channel.name == "pwmchip10/0"
    with pytest.raises(BusyError, match="pwmchip10/0 is used by 'test'"):
        await pwm.request("pwmchip10/0", "other")


@pytest.mark.parametrize("name", ["pwmchip0/2", "pwmchip1/0", "pwmchip0", "0", "pwm/0", "/0", ""])
async def test_what_is_not_there_is_refused_with_what_there_is(name, pwm):
    with pytest.raises(NoDeviceError, match=r"pwmchip0/0 to 1 \(fe20c000.pwm\), pwmchip10/0 to 1"):
        await pwm.request(name, "test")


async def test_a_name_of_two_chips_is_refused(root, pwm):
    os.makedirs(os.path.join(root, "devices/other/fe20c000.pwm"))
    directory = os.path.join(root, "class/pwm/pwmchip3")
    os.makedirs(directory)
    os.symlink(os.path.join(root, "devices/other/fe20c000.pwm"), f"{directory}/device")
    put(root, "pwmchip3/npwm", "1")
    with pytest.raises(NoDeviceError, match="is of several chips: name pwmchip0 or pwmchip3"):
        await pwm.request("fe20c000.pwm/0", "test")
    assert (await pwm.request("soc/fe20c000.pwm/0", "test")).name == "pwmchip0/0"


async def test_a_second_request_is_refused_with_its_holder_until_the_release(pwm):
    channel = await pwm.request("pwmchip0/0", "fan")
    with pytest.raises(BusyError, match="pwmchip0/0 is used by 'fan'"):
        await pwm.request("pwmchip0/0", "servo")
    await channel.release()
    again = await pwm.request("pwmchip0/0", "servo")
    # The old one is over: it gives nothing back any more.
    await channel.release()
    with pytest.raises(BusyError, match="'servo'"):
        await pwm.request("pwmchip0/0", "other")
    assert again.is_held


async def test_a_channel_that_another_program_exported_is_busy(root, sleep, plain_user):
    """EBUSY, as the kernel says it of an exported channel.

    A terminal that is held exclusively answers an open with the same (ioctl_tty(2), TIOCEXCL).
    """
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCEXCL)
        export = os.path.join(root, "class/pwm/pwmchip0/export")
        with as_owner(root):
            os.chmod(os.ttyname(slave), 0o666)
            os.unlink(export)
            os.symlink(os.ttyname(slave), export)
        pwm = KernelPwm(root, sleep)
        with pytest.raises(
            BusyError, match="exported by another program: .* echo 0 > .*/unexport"
        ):
            await pwm.request("pwmchip0/0", "test")
        await pwm.close()
        # What it did not export it must not give back.
        assert content(root, "pwmchip0/unexport") == ""
        # What a killed daemon left goes on until it is taken over.
        for file, value in (("period", "20000000"), ("duty_cycle", "1500000"), ("enable", "1")):
            put(root, f"pwmchip0/pwm0/{file}", value)
        pwm = KernelPwm(root, sleep, take_over=True)
        await pwm.request("pwmchip0/0", "edged safe")
        await pwm.close()
        assert state(root) == ["20000000", "0", "0"]
        assert content(root, "pwmchip0/unexport") == "0"
    finally:
        os.close(master)
        os.close(slave)


async def test_files_that_udev_has_not_given_away_yet_are_waited_for(root, pwm, sleep, plain_user):
    """Reported: EACCES right after the export (fault 50)."""
    files = [os.path.join(root, "class/pwm/pwmchip0/pwm0", n) for n in ("period", "enable")]

    def udev(mode):
        with as_owner(root):
            for file in files:
                os.chmod(file, mode)

    udev(0o444)
    sleep.then[3] = lambda: udev(0o666)
    channel = await pwm.request("pwmchip0/0", "test")
    assert sleep.slept == [POLL_S] * 3
    await channel.set(1_000, 10)
    await pwm.close()


async def test_files_that_come_late_are_waited_for(root, pwm, sleep):
    """Reported: ENOENT right after the export."""
    sleep.then[2] = lambda: channel_files(root, "pwmchip0/pwm1")
    await (await pwm.request("pwmchip0/1", "test")).set(1_000, 10)
    assert state(root, "pwmchip0/pwm1") == ["1000", "10", "1"]


async def test_files_that_never_come_are_given_up_and_the_channel_given_back(root, pwm, sleep):
    """Every poll is bounded."""
    for _ in range(2):
        with pytest.raises(NoDeviceError, match="pwm1/period is not there"):
            await pwm.request("pwmchip0/1", "test")
        assert content(root, "pwmchip0/unexport") == "1"
    assert sum(sleep.slept) == pytest.approx(2 * SETTLE_S)


async def test_files_that_stay_forbidden_name_the_group(root, pwm, sleep, plain_user):
    file = os.path.join(root, "class/pwm/pwmchip0/pwm0/period")
    with as_owner(root):
        os.chmod(file, 0o444)
    with pytest.raises(BusError, match="usermod -aG gpio") as caught:
        await pwm.request("pwmchip0/0", "test")
    assert caught.value.errno == errno.EACCES
    assert sum(sleep.slept) == pytest.approx(SETTLE_S)
    await pwm.close()


async def test_another_error_is_not_waited_for(root, pwm, sleep):
    file = os.path.join(root, "class/pwm/pwmchip0/pwm0/period")
    os.unlink(file)
    os.mkdir(file)
    with pytest.raises(BusError):
        await pwm.request("pwmchip0/0", "test")
    assert sleep.slept == []


async def test_who_is_cancelled_while_waiting_leaves_the_channel_free(root, sleep):
    """Issue 3, part 1: a cancelled caller never blocks the next."""
    waiting = asyncio.Event()

    async def for_ever(_):
        waiting.set()
        await asyncio.Event().wait()

    pwm = KernelPwm(root, for_ever)
    task = asyncio.create_task(pwm.request("pwmchip0/1", "test"))
    await asyncio.wait_for(waiting.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert content(root, "pwmchip0/unexport") == "1"
    channel_files(root, "pwmchip0/pwm1")
    assert (await pwm.request("pwmchip0/1", "next")).is_held
    await pwm.close()


@pytest.mark.parametrize(("period", "duty"), [(0, 0), (-1, -1), (1_000, 1_001), (1_000, -1)])
async def test_a_duty_that_cannot_be_is_refused_before_anything_is_written(
    period, duty, root, pwm
):
    channel = await pwm.request("pwmchip0/0", "test")
    with pytest.raises(InvalidArgumentsError, match="must be from 0 to the period"):
        await channel.set(period, duty)
    assert state(root) == ["0", "0", "0"]


async def test_a_channel_that_was_never_set_is_given_back_unwritten(root, pwm):
    """drivers/pwm/core.c: a state with period 0 is EINVAL."""
    channel = await pwm.request("pwmchip0/0", "test")
    os.chmod(os.path.join(root, "class/pwm/pwmchip0/pwm0/duty_cycle"), 0o444)
    put(root, "pwmchip0/pwm0/enable", "untouched")
    await channel.release()
    assert content(root, "pwmchip0/pwm0/enable") == "untouched"
    assert content(root, "pwmchip0/unexport") == "0"


async def test_a_chip_that_was_unplugged_is_told_once_and_released_in_silence(root, pwm):
    channel = await pwm.request("pwmchip0/0", "test")
    shutil.rmtree(os.path.join(root, "class/pwm/pwmchip0"))
    with pytest.raises(NoDeviceError):
        await channel.set(1_000, 10)
    await channel.release()
    assert not channel.is_held


async def test_what_cannot_be_stopped_is_said_and_given_back_all_the_same(root, pwm):
    channel = await pwm.request("pwmchip0/0", "test")
    await channel.set(1_000, 10)
    file = os.path.join(root, "class/pwm/pwmchip0/pwm0/duty_cycle")
    os.unlink(file)
    os.mkdir(file)
    with pytest.raises(BusError):
        await channel.release()
    assert content(root, "pwmchip0/unexport") == "0"
    assert not channel.is_held


async def test_the_close_stops_every_output(root):
    pwm = KernelPwm(root)
    await (await pwm.request("pwmchip0/0", "fan")).set(40_000, 20_000)
    await (await pwm.request("pwmchip10/0", "led")).set(40_000, 20_000)
    await pwm.close()
    assert state(root)[1:] == state(root, "pwmchip10/pwm0")[1:] == ["0", "0"]
    assert content(root, "pwmchip10/unexport") == "0"


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ((0, 0), (20, 5), [("period", 20), ("duty_cycle", 5)]),
        ((20, 15), (10, 5), [("duty_cycle", 5), ("period", 10)]),
        ((10, 5), (20, 15), [("period", 20), ("duty_cycle", 15)]),
        ((20, 5), (10, 7), [("period", 10), ("duty_cycle", 7)]),
        ((20, 5), (20, 7), [("duty_cycle", 7)]),
        ((20, 5), (20, 5), []),
    ],
)
def test_the_order_of_writes(was, now, expected):
    """drivers/pwm/core.c: EINVAL for a duty above the period, or any with period 0."""
    assert steps(*was, *now) == expected


@given(st.data())
def test_no_write_ever_leaves_a_duty_above_its_period(data):
    """Fault 50: EINVAL by order."""
    periods = st.integers(1, 1_000)
    state = dict.fromkeys(("period", "duty_cycle"), 0)
    for _ in range(4):
        period = data.draw(periods)
        duty = data.draw(st.integers(0, period))
        for name, value in steps(state["period"], state["duty_cycle"], period, duty):
            state[name] = value
            assert 0 < state["period"]
            assert state["duty_cycle"] <= state["period"]
        assert state == {"period": period, "duty_cycle": duty}
