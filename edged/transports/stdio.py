"""`edged mcp`: copies bytes between standard input and output and the daemon's socket.

The daemon speaks MCP; this knows no message. Imports nothing heavy: it answers
within a fraction of a second and costs little more than the interpreter. One
chunk at most waits in each direction: what does not drain is not read further.
"""

from __future__ import annotations

import os
import select
import sys

# `socket` would add a megabyte of enumerations to every agent's bridge.
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812  the class, whatever its module calls it

from edged import paths

NO_DAEMON = 3
"""Exit code (contract, section 2)."""

_CHUNK = 1 << 16
_ATOMIC = select.PIPE_BUF
"""A pipe that polls as writable takes so much without blocking (pipe(7))."""


def bridge(path: str, source: int = 0, sink: int = 1) -> int:
    """Connect and copy until the daemon closes the connection or nobody reads any more.

    Args:
        path: the daemon's socket.
        source: descriptor to read requests from; its end is passed on.
        sink: descriptor to write answers to; stays in blocking mode, it is shared.

    Returns:
        The exit code.
    """
    sock = Socket(AF_UNIX, SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError as error:
        sys.stderr.write(f"edged: {paths.unreachable(path, error)}\n")
        sock.close()
        return NO_DAEMON
    sock.setblocking(False)
    try:
        if _Copy(sock, source, sink).run():
            sys.stderr.write("edged: the daemon closed the connection\n")
    except KeyboardInterrupt:
        return 130
    finally:
        sock.close()
    return 0


class _Copy:
    """Both directions of one connection."""

    def __init__(self, sock: Socket, source: int, sink: int) -> None:
        self._sock = sock
        self._link = sock.fileno()
        self._source = source
        self._sink = sink
        self._up = b""
        self._down = b""
        self._input_open = True
        self._shut = False

    def run(self) -> bool:
        """Copy to the end; True when the daemon ended it while requests could still come."""
        poll = select.poll()
        while True:
            self._register(poll)
            for fd, event in poll.poll():
                if fd == self._source:
                    self._read_source()
                elif fd == self._sink:
                    if not self._write_sink(event):
                        return False
                elif not self._serve_link(event):
                    return not self._shut
            if not (self._input_open or self._up or self._shut):
                self._shut = True
                _shutdown(self._sock)

    def _register(self, poll: select.poll) -> None:
        # What is not wanted is not watched: a hang-up there would be reported for ever.
        # The sink alone is watched always, to notice that nobody reads any more.
        link = (0 if self._down else select.POLLIN) | (select.POLLOUT if self._up else 0)
        source = select.POLLIN if self._input_open and not self._up else 0
        for fd, mask in ((self._link, link), (self._source, source)):
            if mask:
                poll.register(fd, mask)
            else:
                _unregister(poll, fd)
        poll.register(self._sink, select.POLLOUT if self._down else 0)

    def _read_source(self) -> None:
        self._up = _read(self._source)
        self._input_open = bool(self._up)

    def _write_sink(self, event: int) -> bool:
        """Write a piece; False when nobody reads."""
        if not event & select.POLLOUT:
            return False
        try:
            self._down = self._down[os.write(self._sink, self._down[:_ATOMIC]) :]
        except BlockingIOError:
            # Somebody else who shares it has filled it.
            return True
        except OSError:
            return False
        return True

    def _serve_link(self, event: int) -> bool:
        """Move bytes to and from the daemon; False when it has closed."""
        if event & select.POLLOUT and self._up:
            try:
                self._up = self._up[os.write(self._link, self._up) :]
            except BlockingIOError:
                pass
            except OSError:
                # It reads no more; what it still has to say is read below.
                self._up, self._input_open, self._shut = b"", False, True
        if event & ~select.POLLOUT and not self._down:
            self._down = _read(self._link)
            return bool(self._down)
        return True


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _CHUNK)
    except OSError:
        # A reset connection or a lost terminal: the end, as well.
        return b""


def _shutdown(sock: Socket) -> None:
    try:
        sock.shutdown(SHUT_WR)
    except OSError:
        # The daemon closed first; reading will say so.
        return


def _unregister(poll: select.poll, fd: int) -> None:
    try:
        poll.unregister(fd)
    except KeyError:
        return
