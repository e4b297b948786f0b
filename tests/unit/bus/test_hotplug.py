"""The kernel's messages about hardware are told from others."""

import asyncio
import socket

import pytest

from edged.bus import hotplug
from edged.bus.hotplug import Hotplug, is_hardware


def message(action, **variables):
    """A message as the kernel writes it (lib/kobject_uevent.c)."""
    parts = [f"{action}@/devices/x", f"ACTION={action}"]
    parts += [f"{key}={value}" for key, value in variables.items()]
    return b"".join(part.encode() + b"\0" for part in parts)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (message("add", SUBSYSTEM="tty", DEVNAME="ttyUSB0"), True),
        (message("remove", SUBSYSTEM="i2c-dev"), True),
        (message("bind", SUBSYSTEM="i2c"), True),
        (message("change", SUBSYSTEM="tty"), False),
        (message("add", SUBSYSTEM="net"), False),
        (b"libudev\0\xfe\xed\xca\xfe", False),
        (b"", False),
        (message("add", SUBSYSTEM="\xff"), False),
    ],
)
def test_only_what_is_about_our_hardware_counts(data, told):
    """Issue 3, part 2: tools appear on hot-plug."""
    assert is_hardware(data) is told


async def test_several_messages_are_told_once(monkeypatch):
    """Drivers bind and udev works for a while after a plug."""
    monkeypatch.setattr(hotplug, "SETTLE_S", 0.01)
    told = []
    came = asyncio.Event()
    watch = Hotplug(lambda: (told.append(1), came.set()))
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    here.setblocking(False)

    class Kernel:
        """The kernel's end: its messages come from port 0."""

        def recvfrom(self, size):
            return here.recv(size), (0, 1)

        def fileno(self):
            return here.fileno()

        def close(self):
            here.close()

    watch._socket = Kernel()
    asyncio.get_running_loop().add_reader(here, watch._read)
    for _ in range(3):
        there.send(message("add", SUBSYSTEM="tty"))
    await asyncio.wait_for(came.wait(), 5)
    assert told == [1]
    watch.close()
    there.close()


async def test_it_starts_and_ends_on_this_machine():
    """Where the kernel sends no messages it goes on without."""
    watch = Hotplug(list)
    watch.start()
    watch.close()
