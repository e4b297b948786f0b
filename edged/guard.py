"""A small process that outlives a killed daemon and brings the board's outputs to safety.

Forked before the daemon has threads, a loop or sockets, so that it costs little more than
its page tables; it waits for the end of a pipe. An orderly end tells it so; else it becomes
`edged safe`. Where systemd runs the daemon it ends this process too, and the unit's
`ExecStopPost=edged safe` does the same in its place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

ORDERLY = b"1"
SENT_TO_ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Guard:
    """The daemon's end."""

    def __init__(self, arguments: list[str]) -> None:
        """Fork it.

        Args:
            arguments: of `edged safe`, such as `--config FILE`.
        """
        read, self._write = os.pipe()
        # What is sent to all processes while one of them is being made waits until it is known.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SENT_TO_ALL)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._write)
            _wait(read, arguments)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(read)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._pid

    def release(self) -> None:
        """All outputs are safe: it may end."""
        with contextlib.suppress(BrokenPipeError):  # it was killed itself
            os.write(self._write, ORDERLY)
        os.close(self._write)
        os.waitpid(self._pid, 0)


def _wait(read: int, arguments: list[str]) -> None:
    """The guard's life; does not return."""
    try:
        # Whatever ends the daemon by a signal to all must not end this one first.
        for number in SENT_TO_ALL:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SENT_TO_ALL)
        os.closerange(3, read)
        os.closerange(read + 1, os.sysconf("SC_OPEN_MAX"))
        if os.read(read, 1) == ORDERLY:
            os._exit(0)
        command = [sys.executable, "-m", "edged", "safe", *arguments]
        os.execv(sys.executable, command)  # noqa: S606  no shell is wanted
    except OSError:
        os._exit(1)
