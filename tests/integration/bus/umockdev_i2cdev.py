"""i2c-dev and what is behind it, emulated by umockdev in the process that uses it.

Source: linux/i2c.h, linux/i2c-dev.h and `drivers/i2c/i2c-dev.c` of the kernel.
"""

import errno
import os
import struct
import threading
from collections import deque

import gi

gi.require_version("UMockdev", "1.0")
from gi.repository import GLib, UMockdev  # noqa: E402  after its version

BOUND_S = 10.0

# linux/i2c-dev.h and linux/i2c.h.
I2C_SLAVE, I2C_FUNCS, I2C_RDWR, I2C_SMBUS = 0x0703, 0x0705, 0x0707, 0x0720
I2C_M_RD = 1
POINTER = struct.calcsize("P")
QUICK, BYTE, BYTE_DATA, WORD_DATA, I2C_BLOCK = 0, 1, 2, 3, 8
WRITE, READ = 0, 1

# Functions as adapters have them: i2c-bcm2835.c, i2c-stub.c, hid-cp2112.c.
BCM2835 = 0x0EFF_0009
STUB = 0x0C7F_0000
CP2112 = 0x0EFE_0001 & ~0x0001_0000


class Memory:
    """A chip of plain registers, which counts up."""

    def __init__(self, content=range(256)):
        self.content = bytearray(content)
        self.pointer = 0

    def write(self, data):
        self.pointer = data[0]
        for value in data[1:]:
            self.content[self.pointer] = value
            self.pointer = self.pointer + 1 & 0xFF

    def read(self, length):
        start, self.pointer = self.pointer, self.pointer + length & 0xFF
        return bytes((self.content * 2)[start : start + length])


class Kernel:
    """One adapter: i2c-dev and what is behind it, on the thread of the GLib loop."""

    def __init__(self, functions, targets):
        self.functions, self.targets = functions, targets
        self.ioctls = []
        self.errnos = deque()
        """Of the next ioctls that move bytes; 0 is none."""
        self.stuck = set()
        """Addresses that time out; -1 is all."""
        self.absent = errno.EREMOTEIO
        self.bound = set()
        self.go_on = threading.Event()
        self.go_on.set()
        self.arrived = threading.Event()
        self.slave = None

    def handle(self, _, client):
        try:
            result = self.answer(client.get_request(), client.get_arg())
        except OSError as error:
            client.complete(-1, error.errno)
        else:
            client.complete(result, 0)
        return True

    def answer(self, request, arg):
        if request == I2C_FUNCS:
            arg.resolve(0, POINTER).update(0, self.functions.to_bytes(POINTER, "little"))
            return 0
        if request == I2C_SLAVE:
            self.slave = int.from_bytes(bytes(arg.retrieve()), "little")
            self.ioctls.append(("SLAVE", self.slave))
            if self.slave in self.bound:
                raise OSError(errno.EBUSY, "")
            return 0
        self.arrived.set()
        assert self.go_on.wait(BOUND_S)
        return {I2C_RDWR: self.rdwr, I2C_SMBUS: self.smbus}[request](arg)

    def rdwr(self, arg):
        data = arg.resolve(0, 2 * POINTER)
        (count,) = struct.unpack_from("=I", bytes(data.retrieve()), POINTER)
        table = data.resolve(0, count * (8 + POINTER))
        rows = bytes(table.retrieve())
        heads = [struct.unpack_from("=HHH", rows, i * (8 + POINTER)) for i in range(count)]
        buffers = [
            table.resolve(i * (8 + POINTER) + 8, length) for i, (_, _, length) in enumerate(heads)
        ]
        self.ioctls.append(
            ("RDWR", *[
                (address, "read", length) if flags == I2C_M_RD
                else (address, "write" if not flags else hex(flags), bytes(buffer.retrieve()))
                for (address, flags, length), buffer in zip(heads, buffers, strict=True)
            ])
        )  # fmt: skip
        for (address, flags, length), buffer in zip(heads, buffers, strict=True):
            target = self.reach(address)
            if flags & I2C_M_RD:
                buffer.update(0, target.read(length))
            else:
                target.write(bytes(buffer.retrieve()))
        return count

    def smbus(self, arg):
        data = arg.resolve(0, 8 + POINTER)
        direction, command, size = struct.unpack_from("=BBxxI", bytes(data.retrieve()))
        union = data.resolve(8, 34)
        content = bytes(union.retrieve())
        length = {QUICK: 0, BYTE: 1, BYTE_DATA: 1, WORD_DATA: 2, I2C_BLOCK: content[0]}[size]
        offset = 1 if size == I2C_BLOCK else 0
        payload = content[offset : offset + length]
        self.ioctls.append(("SMBUS", direction, command, size, length if direction else payload))
        target = self.reach(self.slave)
        if size == QUICK:
            return 0
        if size == BYTE and direction == WRITE:
            target.write(bytes([command]))
        elif direction == WRITE:
            target.write(bytes([command]) + payload)
        else:
            if size != BYTE:
                target.write(bytes([command]))
            union.update(offset, target.read(length))
        return 0

    def reach(self, address):
        number = self.errnos.popleft() if self.errnos else 0
        if address in self.stuck or -1 in self.stuck:
            number = errno.ETIMEDOUT
        target = self.targets.get(address)
        if number or target is None:
            raise OSError(number or self.absent, "")
        return target


class Loop:
    """What answers ioctls, and a place to plug adapters into; `with` starts and ends it."""

    def __init__(self):
        # The end of one unsets where all are looked for.
        self._kept = []
        self._loop = GLib.MainLoop()
        self._thread = threading.Thread(target=self._loop.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._loop.quit()
        self._thread.join()

    def testbed(self):
        """A machine without buses."""
        self._kept.append(UMockdev.Testbed.new())
        return self._kept[-1]


def plug(testbed, number, functions, targets, name="bcm2835 (i2c@7e804000)"):
    """Plugs an adapter in: `plug(testbed, 1, BCM2835, {0x48: Memory()})`."""
    node = f"/dev/i2c-{number}"
    testbed.add_from_string(
        f"P: /devices/i2c-{number}/i2c-dev/i2c-{number}\nN: i2c-{number}\n"
        f"E: DEVNAME={node}\nE: SUBSYSTEM=i2c-dev\n"
    )
    lay(testbed, f"bus/i2c/devices/i2c-{number}/name", name + "\n")
    kernel = Kernel(functions, targets)
    handler = UMockdev.IoctlBase()
    handler.connect("handle-ioctl", kernel.handle)
    testbed.attach_ioctl(node, handler)
    return kernel


def lay(testbed, path, text):
    whole = os.path.join(testbed.get_sys_dir(), path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "w") as file:
        file.write(text)


def bind(testbed, device, driver, value):
    """Has a driver of the kernel own a device, with its value below."""
    lay(testbed, f"bus/i2c/devices/{device}/{value}", "21500\n")
    lay(testbed, f"bus/i2c/drivers/{driver}/unbind", "")
    devices = os.path.join(testbed.get_sys_dir(), "bus/i2c/devices")
    os.symlink(f"../../drivers/{driver}", f"{devices}/{device}/driver")
