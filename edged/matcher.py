"""Patterns of callers, matched in a process of its own that can be killed.

Python's `re` backtracks: some patterns of a few characters run for hours, and hold
the interpreter's lock all the while. So a pattern never runs in the daemon. The
process starts with the first pattern and ends when none came for a while.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from edged.errors import BusyError, Fault, InvalidArgumentsError

LIMIT_S = 1.0
START_S = 20.0
"""Until the process has its texts: a slow card, a busy board."""

IDLE_S = 60.0
PATTERN_MAX = 200
"""Characters of a pattern."""


class Matcher:
    """One pattern after the other; loop thread only."""

    def __init__(self, limit_s: float = LIMIT_S, idle_s: float = IDLE_S) -> None:
        """A matcher without a process.

        Args:
            limit_s: what takes longer is ended.
            idle_s: the process is kept for so long.
        """
        self._limit_s, self._idle_s = limit_s, idle_s
        self._turn = asyncio.Lock()
        self._child: _Child | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """Of the process; 0 where there is none."""
        return self._child.process.pid if self._child is not None else 0

    def close(self) -> None:
        """End the process."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._child is not None:
            child, self._child = self._child, None
            child.writer.transport.abort()
            child.process.kill()
            child.process.wait()

    async def find(self, texts: Sequence[str], pattern: str, count: int) -> tuple[list[int], int]:
        """The numbers of `count` texts that match, and how many do.

        Args:
            texts: the first line of each is a name; sent once, as long as they stay the same.
            pattern: in Python's syntax, without regard to case; `^` and `$` match at lines.
            count: those whose name matches go first, else in their order.

        Raises:
            InvalidArgumentsError: it is no pattern, or takes too long.
            BusyError: the system has no process left.
        """
        if len(pattern) > PATTERN_MAX:
            raise _refused(f"must be at most {PATTERN_MAX} characters")
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
            answered = False
            try:
                answer = await self._ask(texts, pattern, count)
                answered = True
            finally:
                if not answered:
                    # Nobody knows what it does now.
                    self.close()
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self.close)
        if answer.startswith("!"):
            raise _refused(f"is no regular expression: {answer[1:]}")
        total, *numbers = map(int, answer.split())
        return numbers, total

    async def _ask(self, texts: Sequence[str], pattern: str, count: int) -> str:
        if self._child is not None and self._child.process.poll() is not None:
            # The kernel ended it meanwhile, for want of memory.
            self.close()
        if self._child is None:
            self._child = await _start()
        child = self._child
        try:
            if child.texts is not texts:
                async with asyncio.timeout(START_S):
                    await child.send(b"T", "\0".join(text.replace("\0", " ") for text in texts))
                child.texts = texts
                # It has read them once it answers what costs nothing.
                async with asyncio.timeout(START_S):
                    await child.ask(1, "^")
            async with asyncio.timeout(self._limit_s):
                answer = await child.ask(count, pattern)
        except TimeoutError:
            text = f"took longer than {self._limit_s:g} s over {len(texts)} tools: simplify it, "
            raise _refused(f"{text}a repeat within a repeat such as (a+)+ may never end") from None
        except (OSError, EOFError):
            raise _refused("needs more memory than a search may have: simplify it") from None
        return answer


class _Child:
    """The process and the connection to it; `texts` is what it has."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process, self.reader, self.writer = process, reader, writer
        self.texts: Sequence[str] | None = None

    async def send(self, kind: bytes, text: str, *numbers: int) -> None:
        data = text.encode("utf-8", "replace")
        sizes = b" ".join(b"%d" % number for number in (*numbers, len(data)))
        self.writer.write(b"%b %b\n%b" % (kind, sizes, data))
        await self.writer.drain()

    async def ask(self, count: int, pattern: str) -> str:
        await self.send(b"P", pattern, count)
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return line.decode()


async def _start() -> _Child:
    ours, its = socket.socketpair()
    with its:
        try:
            process = _run(its.fileno())
        except OSError as error:
            ours.close()
            reason = f"no process can be had for a pattern: {error.strerror}: try again"
            raise BusyError(reason) from None
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
    except BaseException:
        # Whoever asked went away.
        ours.close()
        process.kill()
        process.wait()
        raise
    return _Child(process, reader, writer)


def _run(fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-W", "ignore", _program()],
        stdin=fd,
        stdout=fd,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )


def _program() -> str:
    """Its file: source, or byte code where the source was left out."""
    here = os.path.dirname(os.path.abspath(__file__))
    name = "matching"
    return os.path.join(here, name + os.path.splitext(__file__)[1])


def _refused(reason: str) -> InvalidArgumentsError:
    return InvalidArgumentsError([Fault("pattern", reason)])
