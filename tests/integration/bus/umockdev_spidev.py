"""spidev and what is behind it, for `umockdev_spi`, in a process of its own.

The package spidev keeps Python's lock during some of its ioctls: whoever answers
them cannot live in the same process. Reads commands as lines of JSON and answers
each with one; `Kernel` answers ioctls as the kernel does.

Source: linux/spi/spi.h, linux/spi/spidev.h and `drivers/spi/spidev.c` of the kernel.
"""

import errno
import json
import struct
import sys
import threading

import gi

gi.require_version("UMockdev", "1.0")
from gi.repository import GLib, UMockdev  # noqa: E402  after its version

BOUND_S = 10.0

# linux/spi/spidev.h, SPI_IOC_MESSAGE(1) and so on: direction, size, 'k', number.
MESSAGE = 0x4020_6B00
RD_MODE, WR_MODE = 0x8001_6B01, 0x4001_6B01
RD_BITS, RD_SPEED = 0x8001_6B03, 0x8004_6B04
TRANSFER = struct.Struct("=QQIIHBBBBBx")
"""struct spi_ioc_transfer: tx, rx, len, speed_hz, delay, bits, cs_change, nbits, word delay."""


class Kernel:
    """One target, whose chip answers the complement of each byte."""

    transfers = []
    """Of all targets, in their order: number, sent bytes, and the fields of each."""

    def __init__(self, number):
        self.number = number
        self.mode, self.modes, self.errnos = 0, [], []
        self.possible = self.kept = 0xFF
        """Bits of the mode that are not refused, and that are not dropped."""
        self.go_on, self.arrived = threading.Event(), threading.Event()
        self.go_on.set()

    def handle(self, _, client):
        try:
            result = self.ioctl(client.get_request(), client.get_arg())
        except OSError as error:
            client.complete(-1, error.errno)
        else:
            client.complete(result, 0)
        return True

    def ioctl(self, request, arg):
        if request == MESSAGE:
            return self.message(arg)
        if request == WR_MODE:
            (mode,) = bytes(arg.resolve(0, 1).retrieve())
            if mode & ~self.possible:
                raise OSError(errno.EINVAL, "")
            self.mode = mode & self.kept
            self.modes.append(mode)
            return 0
        values = {RD_MODE: bytes([self.mode]), RD_BITS: b"\x08", RD_SPEED: struct.pack("=I", 9)}
        arg.resolve(0, len(values[request])).update(0, values[request])
        return 0

    def message(self, arg):
        self.arrived.set()
        assert self.go_on.wait(BOUND_S)
        block = arg.resolve(0, TRANSFER.size)
        _, _, length, *rest = TRANSFER.unpack(bytes(block.retrieve()))
        sent = bytes(block.resolve(0, length).retrieve())
        self.transfers.append([self.number, sent.hex(), *rest])
        if self.errnos:
            raise OSError(self.errnos.pop(0), "")
        block.resolve(8, length).update(0, bytes(255 - byte for byte in sent))
        return length


class Server:
    """What the commands do."""

    def __init__(self):
        # The end of one unsets where all are looked for.
        self.testbeds = []
        self.kernels = {}

    def testbed(self):
        self.testbeds.append(UMockdev.Testbed.new())
        self.kernels = {}
        Kernel.transfers.clear()
        return self.testbeds[-1].get_root_dir()

    def plug(self, number):
        self.testbeds[-1].add_from_string(
            f"P: /devices/spidev{number}\nN: spidev{number}\n"
            f"E: DEVNAME=/dev/spidev{number}\nE: SUBSYSTEM=spidev\n"
        )
        kernel = self.kernels[number] = Kernel(number)
        handler = UMockdev.IoctlBase()
        handler.connect("handle-ioctl", kernel.handle)
        self.testbeds[-1].attach_ioctl(f"/dev/spidev{number}", handler)

    def get(self, number, name):
        return getattr(self.kernels[number], name)

    def set(self, number, name, value):
        setattr(self.kernels[number], name, value)

    def stop(self, number):
        """From now on transfers stay inside the kernel."""
        self.kernels[number].arrived.clear()
        self.kernels[number].go_on.clear()

    def arrived(self, number):
        return self.kernels[number].arrived.wait(BOUND_S)

    def go_on(self, number):
        self.kernels[number].go_on.set()


def main():
    loop = GLib.MainLoop()
    threading.Thread(target=loop.run).start()
    server = Server()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(server, command)(*arguments)), flush=True)
    loop.quit()


main()
