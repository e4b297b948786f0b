"""I2C adapters of umockdev's, on a bus of 100 kHz, for other processes to open.

Prints what these need in their environment, and serves until its input ends:

    umockdev-wrapper /usr/bin/python3 -m tests.bench.adapter

umockdev itself takes no time for the bytes on the wire; here each transfer takes what
the clock of standard mode makes of it (UM10204, section 3.1).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time

import gi

gi.require_version("UMockdev", "1.0")
from gi.repository import GLib, UMockdev  # noqa: E402  after its version

from edged.clock import SystemClock  # noqa: E402
from edged.drivers import lm75  # noqa: E402
from tests.integration.bus.umockdev_i2cdev import BCM2835, Kernel, lay  # noqa: E402

CLOCK_S = 1e-5
ADDRESSES = lm75.INFO.addresses
BUSES = 7
"""So many that 50 chips of eight addresses have room."""


class Standard(Kernel):
    """An adapter whose transfers take their time, and that keeps no record of them."""

    def __init__(self, targets):
        super().__init__(BCM2835, targets)
        self.clocks = 0

    def handle(self, source, client):
        self.clocks = 0
        request, arg = client.get_request(), client.get_arg()
        try:
            result = self.answer(request, arg)
        except OSError as error:
            client.complete(-1, error.errno or errno.EIO)
        else:
            if self.clocks:
                time.sleep(self.clocks * CLOCK_S)
            client.complete(result, 0)
        return True

    def rdwr(self, arg):
        count = super().rdwr(arg)
        (_, *messages) = self.ioctls.pop()
        # A start and an address, then the bytes, each with its acknowledgement; one stop.
        lengths = [m[2] if m[1] == "read" else len(m[2]) for m in messages]
        self.clocks = sum(1 + 9 * (1 + length) for length in lengths) + 1
        return count


def plug(testbed, number, kernel):
    node = f"/dev/i2c-{number}"
    testbed.add_from_string(
        f"P: /devices/i2c-{number}/i2c-dev/i2c-{number}\nN: i2c-{number}\n"
        f"E: DEVNAME={node}\nE: SUBSYSTEM=i2c-dev\n"
    )
    lay(testbed, f"bus/i2c/devices/i2c-{number}/name", "bcm2835 (i2c@7e804000)\n")
    handler = UMockdev.IoctlBase()
    handler.connect("handle-ioctl", kernel.handle)
    testbed.attach_ioctl(node, handler)


def main():
    testbed, clock = UMockdev.Testbed.new(), SystemClock()
    for number in range(1, BUSES + 1):
        plug(testbed, number, Standard({address: lm75.Sim(clock) for address in ADDRESSES}))
    loop = GLib.MainLoop()

    def until_the_end():
        sys.stdin.read()
        loop.quit()

    threading.Thread(target=until_the_end).start()
    env = {
        "UMOCKDEV_DIR": testbed.get_root_dir(),
        "LD_PRELOAD": os.environ["LD_PRELOAD"].strip(":"),
    }
    print(json.dumps(env), flush=True)
    loop.run()


main()
