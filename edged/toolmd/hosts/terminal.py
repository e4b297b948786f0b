"""Runs a command on a terminal of the sandbox's own, and ends as it ends.

Started by `shell.sh` as `python3 -I -S terminal.py PROGRAM ARGUMENT…`. What comes by
descriptor 0 is typed, what the terminal shows goes to descriptor 1. The terminal is of the
sandbox's devpts, so that job control and Ctrl-C are the kernel's (pty(7), termios(3)).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import sys
import termios

ROWS, COLUMNS = 24, 80
READ = 1 << 16
RESET = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
TYPED_MAX = 1 << 16
"""Bytes that wait for a command that does not read; the rest waits in the pipe."""


def start(argv: list[str], master: int, slave: int) -> int:
    """The command in a session of its own, whose terminal is the slave; its pid."""
    pid = os.fork()
    if pid:
        os.close(slave)
        return pid
    os.close(master)
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in range(3):
        os.dup2(slave, fd)
    if slave > 2:
        os.close(slave)
    # What Python, or whoever started the daemon in the background, has ignored.
    for number in RESET:
        signal.signal(number, signal.SIG_DFL)
    os.environ["TERM"] = "xterm"
    try:
        os.execv(argv[0], argv)
    finally:
        os._exit(127)


class Terminal:
    """Carries bytes between the pipes and the terminal's master."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._typed = b""
        self._can_type = self._can_show = True
        self._poll = select.poll()
        self._wanted: dict[int, int] = {}

    def carry(self, ended: int) -> None:
        """Carry both ways until `ended` can be read, then show what is left."""
        self._poll.register(ended, select.POLLIN)
        ready: dict[int, int] = {}
        while ended not in ready:
            room = self._can_type and len(self._typed) < TYPED_MAX
            self._want(0, select.POLLIN if room else 0)
            write = select.POLLOUT if self._typed else 0
            self._want(self._master, (select.POLLIN | write) if self._can_show else 0)
            ready = dict(self._poll.poll())
            if 0 in ready:
                data = os.read(0, READ)
                self._can_type = bool(data)
                self._typed += data
            events = ready.get(self._master, 0)
            if events & select.POLLOUT:
                self._type()
            if events & ~select.POLLOUT:
                self._show()
        while self._can_show and self._show():
            pass

    def _want(self, fd: int, events: int) -> None:
        if self._wanted.get(fd, 0) == events:
            return
        self._wanted[fd] = events
        if events:
            self._poll.register(fd, events)
        else:
            self._poll.unregister(fd)

    def _type(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._typed = self._typed[os.write(self._master, self._typed) :]

    def _show(self) -> bool:
        """Pass on what the terminal shows now; whether there may be more."""
        try:
            data = os.read(self._master, READ)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the last process that had the terminal open has closed it
            self._can_show = False
            return False
        while data:
            data = data[os.write(1, data) :]
        return True


def main(argv: list[str]) -> None:
    """Run the command."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    pid = start(argv, master, slave)
    Terminal(master).carry(os.pidfd_open(pid))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    # By a signal n as 128 + n, as shells have it.
    os._exit(code if code >= 0 else 128 - code)


main(sys.argv[1:])
