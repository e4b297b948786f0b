"""A USB serial adapter in hand: QEMU's FTDI, whose other end is a port of the guest's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hil.x86.inside.bridge import until

PORTS = Path("/dev/virtio-ports")
SERIAL = "A50285BI"
BY_ID = f"usb-QEMU_QEMU_USB_SERIAL_{SERIAL}-if00-port0"


class Hands:
    """Plug and pull, by QEMU's monitor; and hold the far end of the adapter's wire.

    There is one pair, `grown`: the monitor greets once.
    """

    def __init__(self) -> None:
        self._monitor = (PORTS / "monitor").open("r+b", buffering=0)
        self._lines = b""
        self.far = os.open(PORTS / "far", os.O_RDWR)
        self.is_plugged = False
        self._hear(lambda message: "QMP" in message)
        self._do("qmp_capabilities")

    def plug(self) -> None:
        options = {"chardev": "usbserial", "always-plugged": True, "serial": SERIAL}
        self._do("device_add", driver="usb-serial", id="adapter", **options)
        self.is_plugged = True
        until("udev has named it", lambda: os.path.exists(f"/dev/serial/by-id/{BY_ID}"))

    def pull(self) -> None:
        self._do("device_del", id="adapter")
        self._hear(lambda message: message.get("event") == "DEVICE_DELETED")
        self.is_plugged = False

    def _do(self, command: str, **arguments: Any) -> None:
        request = {"execute": command, "arguments": arguments}
        self._monitor.write(json.dumps(request).encode() + b"\n")
        self._hear(lambda message: "return" in message)

    def _hear(self, is_it: Callable[[dict[str, Any]], bool]) -> None:
        """Waits for a message of the monitor."""
        while True:
            while b"\n" not in self._lines:
                self._lines += self._monitor.read(4096)
            line, _, self._lines = self._lines.partition(b"\n")
            message = json.loads(line)
            assert "error" not in message, message
            if is_it(message):
                return


@cache
def grown() -> Hands:
    """The hands of this process."""
    return Hands()
