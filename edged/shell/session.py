"""A command that runs beside the calls: its owner writes to it, reads it, ends it.

Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from edged.errors import BusyError, Fault, InvalidArgumentsError
from edged.held import Share
from edged.sandbox.outcome import Outcome
from edged.sandbox.profile import Profile
from edged.sandbox.run import Instance
from edged.shell import ending, keys
from edged.shell.commands import Script
from edged.shell.unread import Unread, plain

Mode = Literal["pipe", "pty"]

INPUT_MAX = 64 << 10
"""Bytes that wait for a command that does not read them."""

TEXT_HERE = 64 << 10
"""Bytes of output that are made text on the loop; more is in a thread."""

_INTERRUPT, _END_OF_INPUT = b"\x03", b"\x04"


class Session:
    """One command.

    Attributes:
        id: names it to its owner.
        owner: whose it is: the user, the session, and who.
        who: on whose account it is counted.
        command: as it was given.
        mode: `pipe`, or `pty` with a terminal of its own.
        started: seconds since 1970.
        ended: monotonic time of its end; None while it runs.
        outcome: how it ended.
        unread: what it wrote since the last read.
        script: the command, taken apart.
        profile: that it runs with.
        instance: its sandbox; None when it has ended.
    """

    def __init__(
        self,
        session_id: str,
        owner: tuple[str, str, str],
        command: str,
        script: Script,
        mode: Mode,
        instance: Instance,
        wall_s: float,
        started: float,
        share: Share,
    ) -> None:
        self.id, self.owner, self.who = session_id, owner, owner[2]
        self.command, self.script, self.mode, self.started = command, script, mode, started
        self.ended: float | None = None
        self.outcome: Outcome | None = None
        self.unread = Unread(share)
        self.pid = 0
        self.instance: Instance | None = instance
        self.profile: Profile = instance.job.profile
        self._wall_s = wall_s
        self._news = asyncio.get_running_loop().create_future()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.outcome is None

    async def serve(self, params: dict[str, str]) -> None:
        """Run it to its end."""
        assert self.instance is not None  # noqa: S101  it has not ended
        outcome = await self.instance.call(
            self.id, params, None, wall_s=self._wall_s, on_output=self._wrote
        )
        self.end(outcome)

    def end(self, outcome: Outcome) -> None:
        """It is over."""
        if self.instance is not None:
            self.pid = self.instance.pid
        self.outcome, self.instance = outcome, None
        self._tell()

    def kill(self) -> None:
        """SIGKILL all of its processes; `wait` for the end."""
        if self.instance is not None:
            self.instance.end("cancelled")

    def _wrote(self, data: bytes) -> None:
        self.unread.add(data)
        self._tell()

    def _tell(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    async def wait(self, until: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is so, or it has ended, or the time is over."""
        loop = asyncio.get_running_loop()
        over = loop.time() + timeout_s
        while not until() and self.is_running and (left := over - loop.time()) > 0:
            if self._news.done():
                self._news = loop.create_future()
            await asyncio.wait([self._news], timeout=left)

    async def read(self) -> tuple[str, int]:
        """What it wrote since the last read, and how many bytes before that were dropped."""
        data, dropped = self.unread.take(last=not self.is_running)
        if len(data) <= TEXT_HERE:
            return plain(data), dropped
        return await asyncio.to_thread(plain, data), dropped

    def status(self) -> dict[str, object]:
        """What its owner is shown of it."""
        outcome, instance = self.outcome, self.instance
        return {
            "sessionId": self.id,
            "status": "running" if outcome is None else "exited",
            "exitCode": None if outcome is None else outcome.exit_code,
            "reason": None if outcome is None else outcome.reason,
            "pid": self.pid if instance is None else instance.pid,
            "unread": len(self.unread),
        }

    def ending(self) -> str:
        """How it ended, in a line; that it runs."""
        if self.outcome is None:
            return "[running]"
        return ending.line(self.outcome, self.profile, self._wall_s, always=True)

    def hint(self, written: str) -> str:
        """What to do about a failure that a limit may have caused."""
        outcome = self.outcome
        if outcome is None or outcome.exit_code == 0:
            return ""
        return ending.hint(written, self.profile)

    # Input

    def write(self, data: str) -> int:
        """Send text as it is; how many bytes that are.

        Raises:
            InvalidArgumentsError: it has ended, or its input is closed.
            BusyError: it does not read what was sent before.
        """
        sent = data.encode("utf-8", "replace")
        self._send(sent)
        return len(sent)

    def press(self, names: str | list[str]) -> int:
        """Send keys; without a terminal Ctrl-C interrupts and Ctrl-D ends the input.

        Raises:
            InvalidArgumentsError: no such key, or as `write`.
            BusyError: as `write`.
        """
        try:
            data = keys.encode(names, application=self.unread.application)
        except ValueError as error:
            raise InvalidArgumentsError([Fault("keys", str(error))], "exec") from None
        instance = self._live()
        if self.mode == "pty":
            self._send(data)
        elif data == _INTERRUPT:
            instance.interrupt()
        elif data.endswith(_END_OF_INPUT):
            self._send(data[:-1].replace(b"\r", b"\n"), last=True)
        else:
            self._send(data.replace(b"\r", b"\n"))
        return len(data)

    def _live(self) -> Instance:
        if self.instance is None or self.outcome is not None:
            reason = f"session {self.id} has ended: {self.ending()}"
            raise InvalidArgumentsError([Fault("sessionId", reason)], "exec")
        return self.instance

    def _send(self, data: bytes, *, last: bool = False) -> None:
        instance = self._live()
        if not instance.takes_input:
            reason = f"the input of session {self.id} is closed"
            raise InvalidArgumentsError([Fault("sessionId", reason)], "exec")
        if instance.unsent + len(data) > INPUT_MAX:
            raise BusyError(
                f"session {self.id} does not read its input: {instance.unsent} bytes wait, and no "
                f"more than {INPUT_MAX >> 10} KiB may: read its output first, or send less at once"
            )
        instance.send(data, last=last)
