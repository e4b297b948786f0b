"""`edged config --reset`: what owners set at run time is dropped, and the file holds again."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Any

from edged.acts import reset as drop
from edged.cli.faults import cannot
from edged.client import SocketClient
from edged.errors import NoDaemonError, StoreError
from edged.overrides import overrides
from edged.store import Store


def reset(data: str, key: str) -> dict[str, Any]:
    """Drop what was set for `key` and below it, by the daemon where one runs.

    Args:
        data: the data directory; its lock says whether a daemon runs.
        key: such as `tools.hello.enabled`.

    Raises:
        EdgedError: nothing was set there, it could not be stored, or not an owner.
    """
    path = os.path.join(data, "lock")
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        # No daemon ever ran there, and none can be in between.
        return drop(overrides(Store(os.path.join(data, "state"))), key)
    except OSError as error:
        raise StoreError(cannot("open", path, error)) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            socket = os.pread(lock, 4096, 0).decode("utf-8", "replace").strip()
            return _ask(socket, key)
        return drop(overrides(Store(os.path.join(data, "state"))), key)
    finally:
        os.close(lock)


def _ask(socket: str, key: str) -> dict[str, Any]:
    if not socket:
        raise NoDaemonError("the daemon is starting: try again")
    with contextlib.closing(SocketClient(socket)) as client:
        found: dict[str, Any] = client.request("edged/config/reset", {"key": key})["dropped"]
        return found
