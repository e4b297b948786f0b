"""A program that lives in a sandbox until it is told to end: raw bytes in and out.

Where an `Instance` serves one call, this serves whoever holds it: it has no deadline, its
standard input stays open, its standard output goes to its holder as it comes. What it
writes to standard error is drained for ever and its last part kept. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from edged.sandbox.frames import STRAY, Output
from edged.sandbox.profile import MIB
from edged.sandbox.run import Instance, Job, Machine
from edged.sandbox.unconfined import Unconfined

FOREVER_S = 1_000_000_000
"""CPU seconds of a program that may run for years."""

CLOSE_S, TERM_S = 2.0, 2.0
"""Between the end of its input and SIGTERM, and between that and SIGKILL."""

STDERR_HEAD, STDERR_TAIL = 4 << 10, 16 << 10

ERROR_RATE = 1 << 20
"""Bytes a second of standard error that are read: more waits in the pipe, and is read then."""

_PAUSE_S = 0.1
_REASONS = {
    "disk": "it wrote more than it may",
    "files": "it made more files than it may",
    "cancelled": "it was stopped",
    "hung": "it no longer answered",
    "flood": "it wrote without end",
}


class Service(Instance):
    """One program; `over` is done when all of its processes are dead."""

    def __init__(self, job: Job, machine: Machine) -> None:
        super().__init__(job, machine)
        self.on_bytes: Callable[[bytes], None] = lambda _: None
        """Takes what it writes to standard output."""
        self._stderr = Output(STDERR_HEAD, STDERR_TAIL)
        self._keeps_input = True
        self._fed = True
        self._error_window = 0
        self._cause = ""

    # What comes

    def _on_stdout(self) -> None:
        data = self._take("stdout")
        if self._let_go:
            if data:
                self.on_bytes(data)
        else:
            self._begin(data)
        self._settle()

    def _begin(self, data: bytes) -> None:
        """Before it is let go, only its gate writes."""
        for message in self._frames.feed(data):
            if message.kind == STRAY:
                self._stderr.add(message.data)
            else:
                self._on_host(message)
                self.ready.set_result(None)
                self.group.rest()

    def _on_stderr(self) -> None:
        data = self._take("stderr")
        self._stderr.add(data)
        self._error_window += len(data)
        if "errors" not in self._timers:
            self._timers["errors"] = self._loop.call_later(_PAUSE_S, self._errors_again)
        if self._error_window > ERROR_RATE * _PAUSE_S and "stderr" in self._readers:
            self.hold("stderr")
        self._settle()

    def _errors_again(self) -> None:
        del self._timers["errors"]
        self._error_window = 0
        self._release_reader("stderr", self._on_stderr)

    def hold(self, name: str) -> None:
        """Read no more of `stdout` or `stderr`; what it writes waits in the pipe."""
        if name in self._readers:
            self._readers.discard(name)
            self._loop.remove_reader(self._fds[name])

    def resume(self) -> None:
        """Read its standard output again."""
        self._release_reader("stdout", self._on_stdout)

    def _release_reader(self, name: str, callback: Callable[[], None]) -> None:
        if name in self._fds and name not in self._readers:
            self._read(name, callback)

    # Its end

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error, made harmless."""
        return self._stderr.text()

    def stop_for(self, cause: str) -> None:
        """Kill it for a reason that `why` tells."""
        self._cause = self._cause or cause
        self.kill()

    def why(self) -> str:
        """How it ended, in words."""
        self._drain()
        if self._cause:
            return _REASONS.get(self._cause, self._cause)
        if self._reason == "memory" or self.group.memory_exceeded():
            limit = self.job.profile.limits.memory_max // MIB
            return f"it used more than its {limit} MiB of memory: raise `memory`"
        if self._message or self._own_failure():
            return self._message
        code, number = self._exit_code, self._signal()
        if number:
            with contextlib.suppress(ValueError):
                return f"it was ended by {signal.Signals(number).name}"
        if code is None:
            return "it is gone"
        return f"it ended with exit status {code}"

    async def stop(self) -> None:
        """End it as MCP asks a client to: close its input, SIGTERM, SIGKILL.

        Source: MCP 2026-07-28, basic/transports/stdio, "Shutdown".
        """
        try:
            if not self.over.done():
                if "stdin" in self._fds:
                    self._drop("stdin")
                await asyncio.wait([self.over], timeout=CLOSE_S)
            if not self.over.done() and self.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGTERM)
                await asyncio.wait([self.over], timeout=TERM_S)
        finally:
            self.kill()


class Loose(Service, Unconfined):
    """The same without a sandbox, for `sandbox: none`."""
