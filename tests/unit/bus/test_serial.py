"""Serial ports on pseudo terminals (issue 3, part 1); what any port must is tests/conformance.

A pseudo terminal has data, hang-up and partial reads as any tty has; it has no
modem lines, no error counters and no RS-485.
"""

import array
import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import select
import sys
import termios
import threading

import pytest
import serial as pyserial

from edged.bus import SerialSettings
from edged.bus import serial as kernel_serial
from edged.bus.serial import KernelSerial
from edged.errors import BusError, BusyError, InvalidArgumentsError, NoDeviceError

BOUND_S = 10.0
TCGETS2 = 0x802C_542A  # asm-generic/ioctls.h
TIOCGEXCL = 0x8004_5440  # likewise
TIOCGICOUNT = 0x545D  # likewise
FAST = SerialSettings(baudrate=4_000_000)


class Pty:
    """The other end of a port that is a pseudo terminal."""

    def __init__(self):
        self.master, slave = os.openpty()
        self.path = os.ttyname(slave)
        os.close(slave)

    def send(self, data):
        assert os.write(self.master, data) == len(data)

    def receive(self, count):
        data = b""
        while len(data) < count:
            assert select.select([self.master], [], [], BOUND_S)[0], f"only {data} came"
            data += os.read(self.master, count - len(data))
        return data

    def hang_up(self):
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def opened(self):
        """File descriptors of this process on the port, also when it hung up."""
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                node = os.readlink(f"/proc/self/fd/{fd}")
                if node.removesuffix(" (deleted)") == self.path:
                    found.append(int(fd))
        return found


class Bench:
    """A /dev and a /sys in which pseudo terminals are serial ports."""

    def __init__(self, folder):
        self.dev, self.sysfs, self.ptys = f"{folder}/dev", f"{folder}/sys", []
        os.makedirs(f"{self.dev}/serial/by-id")
        os.makedirs(f"{self.dev}/serial/by-path")
        os.makedirs(f"{self.sysfs}/class/tty")
        self.ports = KernelSerial(dev=self.dev, sysfs=self.sysfs)

    def plug(self, name="ttyUSB0"):
        pty = Pty()
        self.ptys.append(pty)
        self.node(name, pty.path)
        return pty

    def node(self, name, target="/dev/null", usb=None, driver="", files=None):
        """A port in /dev and /sys; its USB device's files, where it is on USB."""
        device = f"{self.sysfs}/devices/{usb or 'platform'}/{name}.0/{name}"
        self.file(f"{device}/uevent", "")
        self.file(f"{os.path.dirname(device)}/uevent", "")
        if driver:
            os.symlink(f"../../drivers/{driver}", f"{device}/driver")
        link = f"{self.sysfs}/class/tty/{name}"
        os.makedirs(link, exist_ok=True)
        for file, text in (files or {}).items():
            self.file(f"{link}/{file}", text)
        with contextlib.suppress(FileExistsError):
            os.symlink(device, f"{link}/device")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.dev}/{name}")
        os.symlink(target, f"{self.dev}/{name}")

    def usb(self, place, vid, pid, **files):
        folder = f"{self.sysfs}/devices/{place}"
        values = {"idVendor": vid, "idProduct": pid, **files}
        for file, text in {"uevent": "", **values}.items():
            self.file(f"{folder}/{file}", f"{text}\n")

    def file(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def link(self, place, name, port):
        os.symlink(f"../../{port}", f"{self.dev}/serial/{place}/{name}")


@pytest.fixture
async def bench(tmp_path):
    made = Bench(tmp_path)
    async with asyncio.timeout(BOUND_S * 3):
        yield made
        await made.ports.close()
    for pty in made.ptys:
        assert pty.opened() == []
        pty.hang_up()
    assert [one.name for one in threading.enumerate() if one.name.startswith("serial")] == []


@pytest.fixture
def pty(bench):
    return bench.plug()


@pytest.fixture
async def port(bench, pty):
    return await bench.ports.open("ttyUSB0", FAST, "test")


async def steps(count):
    for _ in range(count):
        await asyncio.sleep(0)


# Bytes, of the kernel and of the simulation -----------------------------------------------------


# Going away -------------------------------------------------------------------------------------


async def test_fifty_unplugs_are_fifty_errors_and_the_name_is_free_each_time(bench):
    """Faults 2 and 6: the fd is closed before anyone hears, so a replug gets the same name."""
    lost = 0
    for number in range(50):
        pty = bench.plug()
        port = await bench.ports.open("ttyUSB0", FAST, "test")
        sent = bytes([number]) * 3
        pty.send(sent)
        assert await port.read(3, BOUND_S) == sent
        reading = asyncio.create_task(port.read(1, BOUND_S))
        await steps(number % 4)
        (fd,) = pty.opened()
        pty.hang_up()
        with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
            await reading
        lost += 1
        assert pty.opened() == []
        assert not asyncio.get_running_loop().remove_reader(fd)
    assert lost == 50


async def test_a_port_that_hung_up_leaves_the_loop_alone(bench, pty, port, monkeypatch):
    """Fault 6: an fd that is readable for ever made 100 % CPU and one exception each time."""
    reads = []
    read = os.read

    def counting(fd, count):
        reads.append(fd)
        return read(fd, count)

    monkeypatch.setattr(kernel_serial.os, "read", counting)
    pty.hang_up()
    with pytest.raises(NoDeviceError):
        await port.read(1, BOUND_S)
    first = len(reads)
    await steps(1_000)
    assert first == 1
    assert len(reads) == 1


async def test_a_port_that_hangs_up_while_nobody_uses_it_is_given_back(bench, pty, port):
    """Fault 2: a dead fd that is kept makes the device come back as ttyUSB1."""
    pty.hang_up()
    while pty.opened():
        await asyncio.sleep(0.001)
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await port.line_errors()


async def test_a_writer_that_waits_hears_of_the_hang_up(bench, pty, port):
    writing = asyncio.create_task(port.write(bytes(1_000_000)))
    await asyncio.to_thread(pty.receive, 1)
    pty.hang_up()
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await writing


async def test_a_write_that_comes_before_the_loop_saw_the_hang_up_says_so_too(pty, port):
    """write(2) fails with EIO then."""
    pty.hang_up()
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await port.write(b"x")


async def test_a_device_that_goes_while_its_output_drains_is_gone(pty, port, monkeypatch):
    """tcdrain(3) fails with EIO then."""

    def gone(_fd):
        raise termios.error(errno.EIO, "Input/output error")

    monkeypatch.setattr(termios, "tcdrain", gone)
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await port.write(b"x")


async def test_readiness_without_data_is_no_hang_up(pty, port, monkeypatch):
    """Fault 1: another reader took the bytes; only end of file or an error is one."""
    read, blocked = os.read, [BlockingIOError, InterruptedError]

    def stolen(fd, count):
        if blocked:
            raise blocked.pop()
        return read(fd, count)

    monkeypatch.setattr(kernel_serial.os, "read", stolen)
    pty.send(b"ok")
    assert await port.read(2, BOUND_S) == b"ok"
    assert not blocked


async def test_a_read_error_is_a_hang_up(port, pty, monkeypatch):
    """Some drivers answer EIO where others say end of file."""

    def broken(_fd, _count):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(kernel_serial.os, "read", broken)
    pty.send(b"x")
    with pytest.raises(NoDeviceError, match="was unplugged or hung up"):
        await port.read(1, BOUND_S)


async def test_everyone_who_waits_hears_of_the_hang_up(bench, pty, port):
    waiting = [asyncio.create_task(port.read(1, BOUND_S)) for _ in range(3)]
    await steps(3)
    pty.hang_up()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in done] == [NoDeviceError] * 3


# Writing ----------------------------------------------------------------------------------------


async def test_more_than_the_kernel_takes_at_once_arrives_whole(bench, pty, port):
    """Partial writes: the kernel's buffer has 4 KiB."""
    sent = bytes(number % 253 for number in range(200_000))
    received = asyncio.create_task(asyncio.to_thread(pty.receive, len(sent)))
    await port.write(sent)
    assert await received == sent


async def test_two_writers_do_not_mix_their_bytes(pty, port, monkeypatch):
    """However often the kernel has no room."""
    write, calls = os.write, itertools.count()

    def sparing(fd, data):
        if fd != pty.master and next(calls) % 2:
            raise BlockingIOError
        return write(fd, data[:1])

    monkeypatch.setattr(kernel_serial.os, "write", sparing)
    await asyncio.gather(port.write(b"aaaa"), port.write(b"bbbb"))
    assert pty.receive(8) == b"aaaabbbb"


async def test_a_line_that_xoff_holds_ends_the_write_and_xon_frees_it(bench, pty, monkeypatch):
    """A write is bounded whatever the other end does; the port stays usable."""
    monkeypatch.setattr(kernel_serial, "GRACE_S", 0.05)
    settings = SerialSettings(baudrate=4_000_000, xonxoff=True)
    port = await bench.ports.open("ttyUSB0", settings, "test")
    pty.send(b"\x13")
    await steps(50)
    with pytest.raises(BusError, match="flow control holds the line") as caught:
        while True:
            # The XOFF is on its way through the kernel.
            await port.write(b"held")
    assert caught.value.errno == errno.ETIMEDOUT
    pty.send(b"\x11")
    freed = asyncio.create_task(asyncio.to_thread(_drain_until, pty, b"freed"))
    while True:
        with contextlib.suppress(BusError):
            await port.write(b"freed")
            break
    await freed


@pytest.fixture
def held(monkeypatch):
    """A line that flow control holds: tcdrain(3) returns when tcflush(3) drops the output."""
    dropped, flush = threading.Event(), termios.tcflush

    def drain(_fd):
        assert dropped.wait(BOUND_S)

    def drop(fd, queue):
        if queue == termios.TCOFLUSH:
            dropped.set()
        flush(fd, queue)

    monkeypatch.setattr(termios, "tcdrain", drain)
    monkeypatch.setattr(termios, "tcflush", drop)


async def test_output_that_never_drains_ends_the_write(pty, port, held, monkeypatch):
    """A UART with CTS low; the thread is free for the next one then."""
    monkeypatch.setattr(kernel_serial, "GRACE_S", 0.05)
    with pytest.raises(BusError, match="flow control holds the line"):
        await port.write(b"held")
    await port.write(b"freed")
    assert await asyncio.to_thread(pty.receive, 9) == b"heldfreed"


async def test_output_that_never_drains_does_not_hold_the_closing(pty, port, held):
    """close(2) of a tty waits for its output, by default for 30 s."""
    writing = asyncio.create_task(port.write(b"held"))
    await asyncio.to_thread(pty.receive, 4)
    writing.cancel()
    await asyncio.wait([writing])
    await asyncio.wait_for(port.close(), BOUND_S / 2)
    assert pty.opened() == []


async def test_a_cancelled_closing_still_gives_the_port_back(bench, pty, port, monkeypatch):
    """Its thread is busy: the closing waits in the queue when it is cancelled."""
    inside, go_on = threading.Event(), threading.Event()

    def drain(_fd):
        inside.set()
        assert go_on.wait(BOUND_S)

    monkeypatch.setattr(termios, "tcdrain", drain)
    writing = asyncio.create_task(port.write(b"x"))
    await asyncio.to_thread(inside.wait, BOUND_S)
    closing = asyncio.create_task(port.close())
    await steps(3)
    for task in (writing, closing):
        task.cancel()
    await asyncio.wait([writing, closing])
    go_on.set()
    while pty.opened():
        await asyncio.sleep(0.001)
    await (await bench.ports.open("ttyUSB0", FAST, "next")).close()


async def test_a_cancelled_writer_never_blocks_the_next(bench, pty, port):
    """Issue 3, part 1; cancelled at every step."""
    for count in range(12):
        writing = asyncio.create_task(port.write(bytes(300_000)))
        await steps(count)
        writing.cancel()
        await asyncio.wait([writing])
    drained = asyncio.create_task(asyncio.to_thread(_drain_until, pty, b"next"))
    await port.write(b"next")
    await drained


def _drain_until(pty, end):
    data = b""
    while not data.endswith(end):
        data += pty.receive(1)


# Opening ----------------------------------------------------------------------------------------


async def test_a_cancelled_opening_leaves_nothing_open(bench, pty):
    """Cancelled at every step; the thread may be inside open(2) then."""
    for count in range(40):
        opening = asyncio.create_task(bench.ports.open("ttyUSB0", FAST, "test"))
        await steps(count)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().close()
        while True:
            with contextlib.suppress(BusyError):
                port = await bench.ports.open("ttyUSB0", FAST, "next")
                break
            await asyncio.sleep(0)
        assert len(pty.opened()) == 1
        await port.close()
        assert pty.opened() == []


async def test_a_port_that_is_locked_out_of_sight_is_refused(bench, pty):
    """flock(2), where /proc hides the other program; here this very process."""
    other = os.open(pty.path, os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="is in use by another program"):
            await bench.ports.open("ttyUSB0", FAST, "test")
    finally:
        os.close(other)


async def test_a_port_that_is_marked_exclusive_is_refused_to_root_too(bench, pty):
    """tty_ioctl(2), TIOCEXCL: the kernel lets CAP_SYS_ADMIN in."""
    other = os.open(pty.path, os.O_RDWR | os.O_NOCTTY)
    try:
        fcntl.ioctl(other, termios.TIOCEXCL)
        with pytest.raises(BusyError, match="is in use by another program"):
            await bench.ports.open("ttyUSB0", FAST, "test")
        assert pty.opened() == [other]
    finally:
        fcntl.ioctl(other, termios.TIOCNXCL)
        os.close(other)


async def test_closing_resets_nothing_and_a_read_of_nothing_is_no_end_of_file(bench, pty):
    """Fault 4: without HUPCL closing lowers no DTR; termios(3) on VMIN and O_NONBLOCK."""
    mode = termios.tcgetattr(pty.master)
    mode[2] |= termios.HUPCL
    termios.tcsetattr(pty.master, termios.TCSANOW, mode)
    port = await bench.ports.open("ttyUSB0", FAST, "test")
    mode = termios.tcgetattr(pty.master)
    assert not mode[2] & termios.HUPCL
    assert mode[6][termios.VMIN] == 1
    await port.close()


async def test_an_open_port_is_locked_and_marked(bench, pty, port):
    """Fault 5: flock and TIOCEXCL, for those who heed one of them."""
    (fd,) = pty.opened()
    taken = array.array("i", [0])
    fcntl.ioctl(fd, TIOCGEXCL, taken)
    assert taken[0] == 1
    fcntl.ioctl(fd, termios.TIOCNXCL)
    second = os.open(pty.path, os.O_RDWR | os.O_NOCTTY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(second)


async def test_a_closed_pseudo_terminal_can_be_opened_by_others(bench, pty, port):
    """Its mark of being taken outlives the file that made it."""
    await port.close()
    second = os.open(pty.path, os.O_RDWR | os.O_NOCTTY)
    taken = array.array("i", [0])
    fcntl.ioctl(second, TIOCGEXCL, taken)
    os.close(second)
    assert taken[0] == 0


@pytest.mark.parametrize("baudrate", [9_600, 115_200, 250_000, 31_250, 74_880])
async def test_any_baudrate_is_set(bench, pty, baudrate):
    """74880 is the ESP8266's boot log, 31250 is MIDI; TCGETS2 tells what is set."""
    port = await bench.ports.open("ttyUSB0", SerialSettings(baudrate=baudrate), "test")
    # struct termios2: four flags, line and 19 characters, then the two speeds.
    block = array.array("I", [0] * 11)
    fcntl.ioctl(pty.master, TCGETS2, block)
    assert block[9:11].tolist() == [baudrate, baudrate]
    await port.close()


async def test_framing_is_set_as_asked(bench, pty):
    settings = SerialSettings(
        baudrate=19_200, bytesize=7, parity="even", stopbits=2, rtscts=True, xonxoff=True
    )
    port = await bench.ports.open("ttyUSB0", settings, "test")
    iflag, oflag, cflag, lflag, *_ = termios.tcgetattr(pty.master)
    # A pty holds CS8 and no parity by itself (drivers/tty/pty.c, pty_set_termios).
    assert cflag & termios.CSTOPB
    assert cflag & termios.CRTSCTS
    assert iflag & termios.IXON
    assert not oflag & termios.OPOST
    assert not lflag & (termios.ICANON | termios.ECHO | termios.ISIG)
    await port.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (SerialSettings(baudrate=0), "baudrate: must be 1 to 20000000"),
        (SerialSettings(baudrate=1 << 40), "baudrate: must be 1 to 20000000"),
        (SerialSettings(bytesize=9), "Not a valid byte size"),
        (SerialSettings(stopbits=3), "Not a valid stop bit size"),
    ],
)
async def test_settings_that_no_port_has_are_refused_before_it_is_opened(
    bench, pty, settings, reason
):
    with pytest.raises(InvalidArgumentsError, match=reason):
        await bench.ports.open("ttyUSB0", settings, "test")
    port = await bench.ports.open("ttyUSB0", FAST, "test")
    await port.close()


async def test_dtr_and_rts_are_no_error_where_there_are_none(bench, pty):
    """A pty has no modem lines (ENOTTY)."""
    settings = SerialSettings(dtr=False, rts=False)
    port = await bench.ports.open("ttyUSB0", settings, "test")
    await port.close()


async def test_rs485_where_the_driver_has_none_says_what_to_do(bench, pty):
    """TIOCSRS485 is ENOTTY on a pty, as on most USB adapters."""
    with pytest.raises(BusError, match="set rs485 to false") as caught:
        await bench.ports.open("ttyUSB0", SerialSettings(rs485=True), "test")
    assert caught.value.errno == errno.ENOTTY
    assert pty.opened() == []


async def test_line_errors_are_unknown_where_the_driver_does_not_count(bench, port):
    """TIOCGICOUNT is ENOTTY on a pty."""
    assert await port.line_errors() is None


async def test_line_errors_count_from_the_opening_on(bench, pty, monkeypatch):
    """linux/serial.h, struct serial_icounter_struct: the kernel counts from the driver's start."""
    ioctl = fcntl.ioctl
    # cts dsr rng dcd rx tx frame overrun parity brk buf_overrun
    counts = [0, 0, 0, 0, 900, 80, 5, 2, 1, 0, 10]

    def counted(fd, request, *args):
        if request == TIOCGICOUNT:
            args[0][: len(counts)] = array.array("i", counts)
            return 0
        return ioctl(fd, request, *args)

    monkeypatch.setattr(fcntl, "ioctl", counted)
    port = await bench.ports.open("ttyUSB0", FAST, "test")
    assert await port.line_errors() == {"framing": 0, "parity": 0, "overrun": 0, "break": 0}
    counts[6:] = [12, 3, 1, 4, 11]
    assert await port.line_errors() == {"framing": 7, "parity": 0, "overrun": 2, "break": 4}


async def test_a_node_that_is_no_tty_says_so(bench):
    bench.node("ttyS9", "/dev/full")
    with pytest.raises(BusError, match="ttyS9 is no serial port") as caught:
        await bench.ports.open("ttyS9", FAST, "test")
    assert caught.value.errno == errno.ENOTTY


def _no_such_speed():
    raise ValueError("Failed to set custom baud rate (74880): [Errno 22] Invalid argument")


def _no_hardware():
    try:
        raise termios.error(errno.EIO, "Input/output error")
    except termios.error as error:
        raise pyserial.SerialException(f"Could not configure port: {error}") from None


def _with(number):
    def fail():
        raise pyserial.SerialException(number, "could not open port")

    return fail


@pytest.mark.parametrize(
    ("fail", "kind", "reason"),
    [
        (_with(errno.EACCES), BusError, "add its user to the group dialout"),
        (_with(errno.EPERM), BusError, "the device policy of the unit or container forbids it"),
        (_with(errno.EBUSY), BusyError, "is in use by another program"),
        (_with(errno.ENOENT), NoDeviceError, "has no hardware behind it, or was unplugged"),
        (_with(errno.ENXIO), NoDeviceError, "has no hardware behind it, or was unplugged"),
        (_no_hardware, NoDeviceError, "has no hardware behind it, or was unplugged"),
        (_no_such_speed, BusError, "Failed to set custom baud rate"),
        (lambda: _with(None)(), NoDeviceError, "has no hardware behind it, or was unplugged"),
    ],
)
async def test_what_the_kernel_refuses_is_told_with_its_remedy(
    bench, pty, monkeypatch, fail, kind, reason
):
    """The errno stands in some of pyserial's errors only."""
    monkeypatch.setattr(pyserial.Serial, "open", lambda _: fail())
    with pytest.raises(kind, match=reason):
        await bench.ports.open("ttyUSB0", FAST, "test")


async def test_without_pyserial_it_says_what_to_install(bench, pty, monkeypatch):
    """Issue 3, part 7."""
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(
        NoDeviceError, match="needs the Python package pyserial: .*pip install pyserial"
    ):
        await bench.ports.open("ttyUSB0", FAST, "test")


# Which port -------------------------------------------------------------------------------------


@pytest.fixture
def desk(bench):
    """Two adapters of one kind without serial numbers, one with, a UART and ghosts."""
    bench.usb("usb1/1-1", "1a86", "7523", product="USB Serial")
    bench.usb("usb1/1-2", "1a86", "7523", product="USB Serial")
    bench.usb("usb1/1-3", "0403", "6001", manufacturer="FTDI", product="FT232R", serial="A50285BI")
    bench.node("ttyUSB10", usb="usb1/1-1", driver="ch341")
    bench.node("ttyUSB2", usb="usb1/1-2", driver="ch341")
    bench.node("ttyACM0", usb="usb1/1-3", driver="ftdi_sio")
    bench.node("ttyAMA0", driver="uart-pl011", files={"type": "32"})
    bench.node("ttyS3", driver="serial8250", files={"type": "0\n"})
    os.makedirs(f"{bench.sysfs}/class/tty/tty1")
    os.symlink("null", f"{bench.dev}/tty1")
    bench.link("by-id", "usb-FTDI_FT232R_A50285BI-if00-port0", "ttyACM0")
    bench.link("by-path", "platform-usb-0:1:1.0-port0", "ttyUSB10")
    os.symlink("ttyAMA0", f"{bench.dev}/serial0")
    os.symlink("serial0", f"{bench.dev}/gps")
    return bench


async def test_ports_are_listed_with_what_tells_them_apart(desk):
    """Consoles and UARTs that are not there are left out; 2 comes before 10."""
    found = await desk.ports.list()
    assert [info.name for info in found] == ["ttyACM0", "ttyAMA0", "ttyUSB2", "ttyUSB10"]
    acm, ama, usb, _ = found
    assert acm.by_id == "usb-FTDI_FT232R_A50285BI-if00-port0"
    assert (acm.description, acm.vid_pid, acm.serial_number) == (
        "FTDI FT232R",
        "0403:6001",
        "A50285BI",
    )
    assert (ama.description, ama.vid_pid, ama.by_id) == ("uart-pl011", "", "")
    assert (usb.description, usb.serial_number) == ("USB Serial", "")
    assert usb.path == f"{desk.dev}/ttyUSB2"


async def test_since_linux_6_5_the_driver_is_that_of_the_uart(bench):
    """A serial-base device stands between the UART and its tty; its driver is `port`."""
    bench.node("ttyS0", driver="port", files={"type": "4"})
    os.symlink("../../drivers/serial8250", f"{bench.sysfs}/devices/platform/ttyS0.0/driver")
    (info,) = await bench.ports.list()
    assert info.description == "serial8250"


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("ttyUSB2", "ttyUSB2"),
        ("/dev/ttyUSB2", "ttyUSB2"),
        ("/dev/serial/by-id/usb-FTDI_FT232R_A50285BI-if00-port0", "ttyACM0"),
        ("by-id/usb-FTDI_FT232R_A50285BI-if00-port0", "ttyACM0"),
        ("usb-FTDI_FT232R_A50285BI-if00-port0", "ttyACM0"),
        ("platform-usb-0:1:1.0-port0", "ttyUSB10"),
        ("/dev/serial0", "ttyAMA0"),
        ("gps", "ttyAMA0"),
        ("usb:0403:6001", "ttyACM0"),
        ("USB:403:6001:A50285BI", "ttyACM0"),
    ],
)
async def test_a_port_is_found_by_what_a_person_would_write(desk, selector, name):
    """Fault 3: numbers move after a reboot, these names do not."""
    assert (await desk.ports.find(selector)).name == name


async def test_an_ambiguous_port_is_refused_with_the_candidates(desk):
    """Fault 3."""
    with pytest.raises(
        NoDeviceError,
        match=r"usb:1a86:7523 may be ttyUSB2 \(USB Serial, 1a86:7523\), ttyUSB10 .*by-path",
    ):
        await desk.ports.open("usb:1a86:7523", FAST, "test")


@pytest.mark.parametrize("selector", ["usb:0403:6001:other", "usb:dead:beef", "ttyUSB0", "tty9"])
async def test_an_absent_port_is_told_with_those_there_are(desk, selector):
    with pytest.raises(
        NoDeviceError,
        match=r"there is ttyACM0 \(FTDI FT232R, 0403:6001, serial A50285BI\), ttyAMA0",
    ):
        await desk.ports.find(selector)


@pytest.mark.parametrize("selector", ["usb:", "usb:1a86", "usb:zzzz:7523", "usb:1a86:7523:"])
async def test_a_usb_port_that_is_written_wrongly_is_told_how(desk, selector):
    with pytest.raises(InvalidArgumentsError, match="port: write usb:VID:PID"):
        await desk.ports.find(selector)


async def test_a_pseudo_terminal_is_named_by_its_path(bench, pty):
    """It is in no list: only who names it gets it."""
    os.symlink("/dev/pts", f"{bench.dev}/pts")
    path = bench.dev + pty.path.removeprefix("/dev")
    info = await bench.ports.find(pty.path)
    assert (info.name, info.path) == (path, path)
    port = await bench.ports.open(pty.path, FAST, "test")
    assert port.name == path
    await port.close()


async def test_a_file_or_a_circle_of_links_is_no_port(bench, tmp_path):
    (tmp_path / "file").write_text("")
    os.symlink("b", f"{bench.dev}/a")
    os.symlink("a", f"{bench.dev}/b")
    for selector in (str(tmp_path / "file"), "a", "../file"):
        with pytest.raises(NoDeviceError, match="there is none"):
            await bench.ports.find(selector)
