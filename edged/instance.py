"""Which daemon this is, among those of all boards: how it knows itself from afar.

The same in each of its lives, another one on a board that was copied; tells nothing of
the board.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket

_NUMBERS = ("etc/machine-id", "proc/device-tree/serial-number")
"""Of the installation (machine-id(5): to be told hashed alone) and of the board."""


def instance(data: str, *, root: str = "/") -> str:
    """The daemon of a data directory, as 16 hexadecimal digits.

    Args:
        data: the data directory; absolute.
        root: of the file system.
    """
    parts = [b"edged", os.fsencode(data), os.fsencode(socket.gethostname())]
    for name in _NUMBERS:
        with contextlib.suppress(OSError), open(os.path.join(root, name), "rb") as file:
            parts.append(file.read(256).strip(b"\0\n "))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
