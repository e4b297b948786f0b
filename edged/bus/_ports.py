"""Which serial ports there are, by sysfs and udev's links, and which one is meant.

Reads small files and links; opens no port, for opening one may reset its device.
Blocking: on a thread.

Source: `Documentation/ABI/testing/sysfs-tty` of the kernel; udev's
60-serial.rules for /dev/serial.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence

from edged.bus import PortInfo
from edged.errors import Fault, InvalidArgumentsError, NoDeviceError

_LINKS_MAX = 8
_UNKNOWN_UART = "0"
"""linux/serial.h, PORT_UNKNOWN: the 8250 driver keeps nodes for UARTs that are not there."""

_NO_DRIVER = frozenset({"port", "ctrl"})
"""Drivers of the kernel's own layer between a UART and its tty, since Linux 6.5."""

_USB = re.compile(r"usb:([0-9a-f]{1,4}):([0-9a-f]{1,4})(?::(.+))?", re.IGNORECASE)


def ports(dev: str, sysfs: str) -> list[PortInfo]:
    """The ports with hardware behind them, by name.

    Args:
        dev: where device nodes are.
        sysfs: where sysfs is mounted.
    """
    by_id = _links(os.path.join(dev, "serial/by-id"))
    ttys = os.path.join(sysfs, "class/tty")
    return [
        _info(name, os.path.join(dev, name), os.path.join(ttys, name), by_id.get(name, ""))
        for name in sorted(_listed(ttys), key=_natural)
        if _is_port(os.path.join(ttys, name)) and os.path.exists(os.path.join(dev, name))
    ]


def find(port: str, dev: str, sysfs: str) -> PortInfo:
    """The port that is meant; see `SerialPorts.find`.

    Raises:
        NoDeviceError: no such port, or several match; the message lists them.
        InvalidArgumentsError: a `usb:` that is not written as it should be.
    """
    there = ports(dev, sysfs)
    if port.lower().startswith("usb:"):
        return _by_usb(port, there)
    known = {info.path: info for info in there}
    path = _path(port, dev)
    for _ in range(_LINKS_MAX):
        if path in known:
            return known[path]
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    if not _is_node(path):
        names = ", ".join(_described(info) for info in there) or "none"
        raise NoDeviceError(f"no serial port {port!r}: there is {names}")
    return PortInfo(path, path)


def holders(path: str) -> list[str]:
    """Other programs that have a node open, as far as edged may see: `gpsd (pid 312)`."""
    node = os.path.realpath(path)
    return [
        f"{_text(f'/proc/{pid}/comm') or 'a program'} (pid {pid})"
        for pid in _listed("/proc")
        if pid.isdecimal() and pid != str(os.getpid()) and _has_open(pid, node)
    ]


def _has_open(pid: str, node: str) -> bool:
    folder = f"/proc/{pid}/fd"
    return any(_target(os.path.join(folder, name)) == node for name in _listed(folder))


def _by_usb(port: str, there: Sequence[PortInfo]) -> PortInfo:
    written = _USB.fullmatch(port)
    if written is None:
        reason = "write usb:VID:PID or usb:VID:PID:SERIAL, such as usb:1a86:7523"
        raise InvalidArgumentsError([Fault("port", reason)])
    vid_pid = f"{written[1]:0>4}:{written[2]:0>4}".lower()
    serial = written[3]
    found = [p for p in there if p.vid_pid == vid_pid and serial in {None, p.serial_number}]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(_described(info) for info in found)
        raise NoDeviceError(
            f"{port} may be {names}: name one of them, best by its name in /dev/serial/by-path"
        )
    names = ", ".join(_described(info) for info in there) or "none"
    raise NoDeviceError(f"no serial port {port}: there is {names}")


def _path(port: str, dev: str) -> str:
    """The path of a port that is named by one, or by a name below /dev or in its by-* folders."""
    if port.startswith("/dev/"):
        return os.path.normpath(os.path.join(dev, port.removeprefix("/dev/")))
    places = ("", "serial", "serial/by-id", "serial/by-path")
    paths = [os.path.normpath(os.path.join(dev, place, port)) for place in places]
    return next(filter(os.path.lexists, paths), paths[0])


def _is_node(path: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def _is_port(tty: str) -> bool:
    """Whether there is hardware behind a tty: consoles and pseudo terminals have none."""
    has_device = os.path.exists(os.path.join(tty, "device"))
    return has_device and _text(os.path.join(tty, "type")) != _UNKNOWN_UART


def _info(name: str, path: str, tty: str, by_id: str) -> PortInfo:
    folders = list(_parents(os.path.join(tty, "device")))
    usb = next((f for f in folders if os.path.exists(os.path.join(f, "idVendor"))), None)
    if usb is None:
        return PortInfo(name, path, by_id, description=_driver(folders))
    vid, pid, maker, product, serial = (
        _text(os.path.join(usb, file))
        for file in ("idVendor", "idProduct", "manufacturer", "product", "serial")
    )
    return PortInfo(
        name,
        path,
        by_id,
        description=f"{maker} {product}".strip() or _driver(folders),
        vid_pid=f"{vid}:{pid}",
        serial_number=serial,
    )


def _parents(device: str) -> Iterator[str]:
    """A device's directory and those of what it is attached to, up to /sys/devices."""
    folder = os.path.realpath(device)
    while os.path.exists(os.path.join(folder, "uevent")):
        yield folder
        folder = os.path.dirname(folder)


def _driver(folders: Sequence[str]) -> str:
    names = [os.path.basename(_target(os.path.join(folder, "driver"))) for folder in folders]
    return next((name for name in names if name and name not in _NO_DRIVER), "")


def _described(info: PortInfo) -> str:
    more = [info.description, info.vid_pid, info.serial_number and f"serial {info.serial_number}"]
    told = ", ".join(filter(None, more))
    return f"{info.name} ({told})" if told else info.name


def _links(folder: str) -> dict[str, str]:
    """Names of links by the name of the node that they lead to."""
    return {
        os.path.basename(_target(os.path.join(folder, name))): name for name in _listed(folder)
    }


def _natural(name: str) -> list[tuple[str, int]]:
    """Sorts ttyUSB2 before ttyUSB10."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D+)(\d*)", name)]


def _listed(folder: str) -> list[str]:
    """Names in a directory; none where it is gone or may not be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _target(link: str) -> str:
    """Where a link leads, one step; empty where it is none or may not be read."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _text(path: str) -> str:
    """A file of sysfs or proc; empty where it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
