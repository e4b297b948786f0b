"""What systemd is told, and what it hands over. Standard library only.

Source: sd_notify(3), sd_listen_fds(3). Sockets are found by name, never by
position: their order differs between versions.
"""

from __future__ import annotations

import os
import socket

from edged import log

_FIRST_FD = 3


def notify(state: str) -> None:
    """Tell systemd; nothing happens outside of a unit.

    Args:
        state: `READY=1`, `STOPPING=1`, `WATCHDOG=1`, `STATUS=…`.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as error:
        log.warning(f"systemd could not be told {state.partition('=')[0]}: {error}")


def watchdog_s() -> float:
    """How often `WATCHDOG=1` is due, in seconds; 0 where there is no watchdog."""
    owner = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    interval = os.environ.get("WATCHDOG_USEC", "")
    if not interval.isdecimal() or owner != str(os.getpid()):
        return 0.0
    return int(interval) / 2_000_000


def listening() -> dict[str, list[socket.socket]]:
    """Sockets that systemd opened for this process, by their unit's name for them."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = os.environ.get("LISTEN_FDS", "0")
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[socket.socket]] = {}
    for index in range(int(count) if count.isdecimal() else 0):
        name = names[index] if index < len(names) and names[index] else "unknown"
        sock = socket.socket(fileno=_FIRST_FD + index)
        sock.set_inheritable(False)
        sock.setblocking(False)
        found.setdefault(name, []).append(sock)
    return found
