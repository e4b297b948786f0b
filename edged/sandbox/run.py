"""One started sandbox, from its first process to its last.

Spawns bubblewrap, puts its first process under the limits before anything of the
tool runs, feeds the call, reads messages and output, and ends the whole tree.
Loop thread only: the death signal follows the thread that spawned (prctl(2)), so a
sandbox started by a worker would die with the worker.

A call has returned when its process tree is dead: the first process of a PID
namespace is the last to go (pid_namespaces(7)), and its descriptor says when.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from edged import log
from edged.clock import Clock
from edged.errors import SandboxSetupError
from edged.held import Share
from edged.sandbox import bwrap, calls, devices, limits, outcome, probe, proc, seccomp
from edged.sandbox.account import Account
from edged.sandbox.bwrap import Layout
from edged.sandbox.disk import DiskWatch
from edged.sandbox.frames import STRAY, Frames, Message, Output, readable, unescape
from edged.sandbox.limits import Backend
from edged.sandbox.outcome import Outcome, Reason
from edged.sandbox.profile import Bind, Profile

Key = tuple[str, str, str]
"""The user, the tool or where it is, and what it is made of; empty where it has none."""

Language = Literal["python", "bash", "typescript", "shell"]
"""Of a tool; `shell` is a command of a caller."""
OnUpdate = Callable[[list[dict[str, Any]]], None]
OnOutput = Callable[[bytes], None]
"""Takes what a command writes, as it comes."""

DRAIN_S = 0.3
"""After the end of the processes, for output that is still under way."""
GRACE_S = 0.5
"""Between the cancel and the kill (contract, section 10)."""
KILLED_S = 2.0
"""After a kill; a process that hangs in a driver cannot be waited for."""
LOOK_S = 0.25
UPDATE_S = 0.1
"""Between two updates of a shell's output."""
UPDATES_MAX = 100
"""Updates of one tool that are shown in a second: each costs its caller, and others, time."""

OUTPUT_RATE = 4 << 20
"""Bytes a second that are read of a command whose output is handed on; it waits then."""

_READ = 1 << 16
_PAUSE_S = 0.1
_UPDATE_SHOWN = 16 << 10
_INPUT_MAX = 100 << 10
"""Bytes of one `INPUT_` variable; the kernel's limit of a string is 128 KiB (execve(2))."""
_INPUTS_MAX = 1 << 20
_OOM_SCORE_ADJ = "800"
_EXIT_SIGNAL = 128
"""bubblewrap reports the end by signal n as status 128 + n."""
_KEPT = {
    "bash": (2 << 20, 1 << 20),
    "python": (8 << 10, 24 << 10),
    "typescript": (8 << 10, 24 << 10),
    "shell": (7 << 20, 1 << 20),
}
"""Bytes of the beginning and the end of stdout; a shell's is its result."""
_KEPT_STDERR = {
    "bash": (16 << 10, 48 << 10),
    "python": (16 << 10, 48 << 10),
    "typescript": (16 << 10, 48 << 10),
    "shell": (1 << 20, 1 << 20),
}
_CROWDED = (
    "its result finds no room beside those of other calls: try again later, or return less, "
    "such as the path of a file"
)
_SHELLS = frozenset({"bash", "shell"})
"""Whose output is shown while it comes, and whose processes are told to end by SIGTERM."""


class Job(msgspec.Struct, frozen=True):
    """A tool as the sandbox knows it: what to run, in what.

    Attributes:
        key: of equal sandboxes: the user, the tool, and a digest of all that it is
            made of.
        name: of the tool, for people.
        language: decides how parameters go in and results come out.
        argv: the host and the entry file, as seen inside.
        profile: what it may see and use.
        warm: whether a spare may be kept ready.
        calls: whether it gets the descriptor for calls of other tools.
        hosted: whether it is started by a host of edged's, which is told the nonce.
    """

    key: Key
    name: str
    language: Language
    argv: tuple[str, ...]
    profile: Profile
    warm: bool = True
    calls: bool = False
    hosted: bool = True


class Machine(msgspec.Struct, frozen=True):
    """What all sandboxes of this daemon share.

    Attributes:
        title: what `ps` calls its processes, by which `proc.end_titled` finds them.
    """

    backend: Backend
    account: Account
    layout: Layout
    clock: Clock
    cores: int
    title: str = bwrap.PROGRAM


def open_bind(bind: Bind) -> int | None:
    """Open the source of a bind with `O_PATH`; None when it is optional and missing.

    Below `bind.anchor` no component may be a link: a tool could have put it there.

    Raises:
        SandboxSetupError: there is a link, or nothing, or another than `bind.identity`.
    """
    fd = -1
    try:
        if not bind.anchor:
            return os.open(bind.source, os.O_PATH | os.O_CLOEXEC)
        fd = os.open(bind.anchor, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in os.path.relpath(bind.source, bind.anchor).split("/"):
            if name == "..":
                raise SandboxSetupError(f"{bind.source} is not below {bind.anchor}")
            parent = fd
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            os.close(parent)
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise SandboxSetupError(
                    f"{bind.source}: {name!r} is a symbolic link, which is not followed here:"
                    " put the directory itself there"
                )
        if bind.identity and _identity(fd) != bind.identity:
            raise SandboxSetupError(
                f"{bind.source} is no longer what it was: another is there: ask for it again"
            )
    except FileNotFoundError:
        _close(fd)
        if bind.optional:
            return None
        raise SandboxSetupError(f"{bind.source} is missing") from None
    except OSError as error:
        _close(fd)
        raise SandboxSetupError(f"{bind.source}: {error.strerror}") from error
    except SandboxSetupError:
        _close(fd)
        raise
    return fd


def shell_inputs(params: dict[str, Any]) -> bytes:
    """A shell fragment that exports each parameter as `INPUT_<NAME>`.

    Values over 100 KiB, and the largest while all are over 1 MiB, are left out: the
    kernel would refuse to start a program with them. The JSON on stdin has them all.

    Raises:
        ValueError: a value with a NUL character, which no variable can hold.
    """
    lines: list[bytes] = []
    for name, value in params.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if "\0" in text:
            raise ValueError(f"`{name}` has a NUL character, which a shell variable cannot hold")
        data = text.encode("utf-8", "replace")
        if len(data) <= _INPUT_MAX:
            variable = "".join(c if c.isascii() and c.isalnum() else "_" for c in name.upper())
            quoted = data.replace(b"'", b"'\\''")
            lines.append(b"export INPUT_%s='%s'\n" % (variable.encode(), quoted))
    lines.sort(key=len)
    while sum(map(len, lines)) > _INPUTS_MAX:
        lines.pop()
    return b"".join(lines)


def shell_lines(params: dict[str, Any]) -> bytes:
    """A command as its host reads it: how, where and what, a line each.

    Raises:
        ValueError: one has a NUL character, which no argument can hold.
    """
    lines = [str(params[name]) for name in ("mode", "workdir", "command")]
    if any("\0" in line for line in lines):
        raise ValueError("a command cannot hold a NUL character")
    escaped = (line.replace("\\", "\\\\").replace("\n", "\\n") for line in lines)
    return "".join(f"{line}\n" for line in escaped).encode("utf-8", "replace")


class Instance:
    """A sandbox that serves one call.

    Attributes:
        ready: done when the tool's code is loaded.
        begun: done when a command has taken the place of its host.
        answered: done when its result is there and each of its processes was killed.
        over: done when all of its processes are dead.
        calls: the daemon's end of the calls descriptor, or None.
        pid: of the first process, or 0.
    """

    def __init__(self, job: Job, machine: Machine) -> None:
        self.job = job
        self._machine = machine
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.begun: asyncio.Future[None] = self._loop.create_future()
        self.answered: asyncio.Future[None] = self._loop.create_future()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self.calls: socket.socket | None = None
        self.pid = 0
        self._nonce = os.urandom(8).hex()
        # Whoever of the tool's processes renames the link `.free` to its own number may use
        # the calls descriptor, until it renames it back.
        self._lock = f"/tmp/.edged-calls-{self._nonce}"  # noqa: S108  as the tool sees it
        self._frames = Frames(self._nonce.encode())
        self._stdout = Output(*_KEPT[job.language])
        self._stderr = Output(*_KEPT_STDERR[job.language])
        self._stdout_read = 0
        self._updates = 0
        self._held: Message | None = None
        self._reason: Reason | None = None
        self._result: dict[str, Any] | None = None
        self._message = ""
        self._exit_code: int | None = None
        self._killed = False
        self._shown_at = 0
        self._info = b""
        self._pending = memoryview(b"")
        self._let_go = False
        self._fed = False
        self._keeps_input = False
        self._on_update: OnUpdate | None = None
        self._on_piece: OnOutput | None = None
        self._window = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._fds: dict[str, int] = {}
        self._directories: list[int] = []
        self._set_gid = False
        self._readers: set[str] = set()
        self.group = machine.backend.open(job.name, job.profile.limits)
        self.group.on_exceeded = lambda: self.end("memory")

    # Start

    def start(self) -> None:
        """Spawn it; all else follows by callbacks.

        Raises:
            SandboxSetupError: nothing could be started.
        """
        theirs: list[int] = []  # descriptors for bubblewrap, closed here after the spawn
        try:
            stdio = [self._pipe(name, theirs) for name in ("stdin", "stdout", "stderr")]
            self._launch(theirs, stdio)
        except OSError as error:
            self._finish()
            raise SandboxSetupError(f"nothing can be started now: {error.strerror}") from error
        except BaseException:
            self._finish()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self._fds["process"] = os.pidfd_open(self._process.pid)
        self._launched()
        self._read("stdout", self._on_stdout)
        self._read("stderr", self._on_stderr)
        self._read("process", self._on_exit)

    def _pipe(self, name: str, theirs: list[int]) -> int:
        """Make a pipe; keep this side under `name`, return the other."""
        read, write = os.pipe2(os.O_CLOEXEC)
        ours, other = (write, read) if name in ("stdin", "block") else (read, write)
        os.set_blocking(ours, False)
        self._fds[name] = ours
        theirs.append(other)
        if os.geteuid() == 0:  # else /dev/stderr and the like cannot be opened inside
            os.fchown(other, self._machine.account.uid, self._machine.account.gid)
        return other

    def _launch(self, theirs: list[int], stdio: list[int]) -> None:
        """Spawn bubblewrap, whose first process waits for `_on_info`."""
        profile, machine = self.job.profile, self._machine
        token = ((f"{self._lock}.free", "token"),) if self.job.calls else ()
        profile = msgspec.structs.replace(
            profile, env=self._env(theirs), links=(*profile.links, *token)
        )
        options = bwrap.arguments(profile, machine.layout, self._open_binds(theirs))
        args = _memory("args", b"".join(option.encode() + b"\0" for option in options), theirs)
        program = seccomp.build(
            seccomp.machines_here(),
            unix=not profile.network,
            memfd=machine.backend.level != "watch",
            set_gid=self._set_gid,
        )
        command = bwrap.command(
            args,
            _memory("seccomp", program, theirs),
            self._pipe("info", theirs),
            self._pipe("block", theirs),
            self._inner(),
        )
        self._spawn(command, theirs, stdio, {}, "/")

    def _launched(self) -> None:
        self._read("info", self._on_info)

    def _env(self, theirs: list[int]) -> tuple[tuple[str, str], ...]:
        """The tool's variables, with those of its calls descriptor."""
        if not self.job.calls:
            return self.job.profile.env
        self.calls, end = socket.socketpair()
        self.calls.setblocking(False)
        theirs.append(end.detach())
        own = (("EDGED_CALLS_FD", str(theirs[-1])), ("EDGED_CALLS_LOCK", self._lock))
        return (*self.job.profile.env, *own)

    @property
    def gate(self) -> str:
        """Shell command by which the first program inside waits to be let go.

        It says that it runs, when bubblewrap has bound it to this process's life, and
        goes on when it is told to: if the daemon was killed before, nobody does, and
        nothing of the tool ever runs.
        """
        return f"printf '\\036{self._nonce}S.0000'; read -r go"

    def _inner(self) -> list[str]:
        """The command inside: limits, host, entry, nonce."""
        values = limits.rlimits(
            self.job.profile.limits, self._machine.cores, self._machine.backend.level
        )
        return limits.ulimit_script(values, self._words(self.job.argv), self.gate)

    def _words(self, argv: Sequence[str]) -> list[str]:
        """The command with what its host must know."""
        return [*argv, self._nonce] if self.job.hosted else [*argv]

    def _open_binds(self, theirs: list[int]) -> dict[str, int]:
        opened: dict[str, int] = {}
        for bind in self.job.profile.binds:
            if bind.write or bind.anchor:
                fd = open_bind(bind)
                if fd is None:
                    continue
                theirs.append(fd)
                opened[bind.source] = fd
                mode = os.fstat(fd).st_mode
                if bind.write and stat.S_ISDIR(mode):
                    self._directories.append(os.dup(fd))
                    self._set_gid |= bool(mode & stat.S_ISGID)
        return opened

    def _spawn(
        self,
        command: list[str],
        passed: list[int],
        stdio: list[int],
        env: dict[str, str],
        cwd: str,
    ) -> None:
        account = self._machine.account
        if account.uid == 0:
            raise SandboxSetupError("tools never run as uid 0")
        groups = devices.groups(self.job.profile.devices)
        root = os.geteuid() == 0
        try:
            self._process = subprocess.Popen(
                [self._machine.title, *command[1:]],
                executable=command[0],
                stdin=stdio[0],
                stdout=stdio[1],
                stderr=stdio[2],
                cwd=cwd,
                env=env,
                pass_fds=[fd for fd in passed if fd not in stdio],
                start_new_session=True,
                user=account.uid if root else None,
                group=account.gid if root else None,
                extra_groups=groups if root else None,
            )
        except FileNotFoundError as error:
            if error.filename != "bwrap":
                raise SandboxSetupError(f"{error.filename} is missing") from error
            raise SandboxSetupError(
                "bubblewrap is not installed: apt install bubblewrap"
            ) from None
        except OSError as error:
            raise SandboxSetupError(f"{command[0]} cannot be started: {error}") from error

    # Callbacks of the descriptors

    def _on_info(self) -> None:
        """Put the first process, blocked until then, under the limits and let it go."""
        data = os.read(self._fds["info"], 4096)
        self._info += data
        if not self._info.rstrip().endswith(b"}"):
            if not data:
                self._drop("info")  # bubblewrap has failed; its exit says so
            return
        self._drop("info")
        self.pid = int(msgspec.json.decode(self._info)["child-pid"])
        with contextlib.suppress(ProcessLookupError):
            self._fds["init"] = os.pidfd_open(self.pid)
            self._read("init", self._on_dead)
        if self._killed:
            self.kill()
            return
        try:
            self.group.add(self.pid)
        except SandboxSetupError as error:
            self._message = str(error)
            self.end("sandbox-failed")
            return
        _prefer_for_oom(self.pid)
        # Killed meanwhile: nobody waits to be let go, and its exit ends this.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._fds["block"], b"1")
        self._drop("block")

    def _on_stdout(self) -> None:
        data = self._take("stdout")
        self._stdout_read += len(data)
        messages = [Message(STRAY, data)] if self.begun.done() else self._frames.feed(data)
        if "stdout" not in self._fds:
            messages += self._frames.finish()
        for message in messages:
            self._on_message(message)
        self._count()
        self._settle()

    def _on_stderr(self) -> None:
        data = self._take("stderr")
        if self._on_piece is not None and data:
            self._on_piece(data)
        else:
            self._stderr.add(data)
            if data and self.job.language == "shell" and self._on_update:
                self._show_output()
        self._count()
        self._settle()

    def _take(self, name: str) -> bytes:
        try:
            data = os.read(self._fds[name], _READ)
        except BlockingIOError:
            return b""
        if not data:
            self._drop(name)
        elif self._on_piece is not None:
            self._slow(len(data))
        return data

    def _slow(self, count: int) -> None:
        """Read no more than `OUTPUT_RATE` of a command that may write for hours."""
        if "pause" not in self._timers:
            self._window = 0
            self._timers["pause"] = self._loop.call_later(_PAUSE_S, self._go_on)
        self._window += count
        if self._window > OUTPUT_RATE * _PAUSE_S:
            for name in self._readers & {"stdout", "stderr"}:
                self._readers.discard(name)
                self._loop.remove_reader(self._fds[name])

    def _go_on(self) -> None:
        del self._timers["pause"]
        for name, callback in (("stdout", self._on_stdout), ("stderr", self._on_stderr)):
            if name in self._fds and name not in self._readers:
                self._read(name, callback)

    def _on_message(self, message: Message) -> None:
        if message.kind == STRAY:
            self._on_output(message.data)
        elif self._reason is None:
            self._on_host(message)

    def _on_output(self, data: bytes) -> None:
        if self._on_piece is not None:
            self._on_piece(data)
            return
        self._stdout.add(data)
        if self.job.language in _SHELLS and self._on_update:
            self._show_output()

    def _on_host(self, message: Message) -> None:
        match message.kind:
            case "S" if not self._let_go:
                self._let_go = True
                self._pending = memoryview(b"go\n" + self._pending)
                self._write()
            case "R" if not self.ready.done():
                self.ready.set_result(None)
                if not self._fed:
                    self.group.rest()
            case "r":
                self._answered(message.data)
            case "f":
                self._message = readable(message.data)
                self.end("failed")
            case "t" if self.job.language == "shell":
                # The host becomes the command, all of whose output is its own.
                if not self.begun.done():
                    self.begun.set_result(None)
            case "u" | "t":
                self._update(message)
            case _:
                pass

    def _answered(self, data: bytes) -> None:
        try:
            self._result = outcome.decoded(data, self.job.language)
        except (ValueError, RecursionError) as error:
            self._message = str(error)
            self.end("failed")
            return
        self.end("ok")

    def _update(self, message: Message) -> None:
        """Show an update; of more than `UPDATES_MAX` in a second, the last one at its end."""
        if self._updates >= UPDATES_MAX:
            self._held = message
            return
        self._updates += 1
        if "updates" not in self._timers:
            self._timers["updates"] = self._loop.call_later(1.0, self._let_updates)
        self._show(message)

    def _let_updates(self) -> None:
        del self._timers["updates"]
        self._updates = 0
        held, self._held = self._held, None
        if held is not None:
            self._update(held)

    def _show(self, message: Message) -> None:
        if self._on_update is None:
            return
        if message.kind == "t":
            self._on_update([{"type": "text", "text": unescape(message.data)}])
            return
        # An update that is none, or is nested too deeply, shows nothing.
        with contextlib.suppress(ValueError, RecursionError):
            self._on_update(outcome.decoded(message.data, self.job.language)["content"])

    def _show_output(self) -> None:
        """Send a shell's output so far, at most ten times a second."""
        if "update" in self._timers:
            return
        self._timers["update"] = self._loop.call_later(UPDATE_S, self._shown)
        self._send_output()

    def _shown(self) -> None:
        del self._timers["update"]
        if self.bytes_seen != self._shown_at:
            self._show_output()

    def _send_output(self) -> None:
        self._shown_at = self.bytes_seen
        if self._on_update is not None:
            text = self._stdout.last(_UPDATE_SHOWN)
            if self.job.language == "shell":
                text += self._stderr.last(_UPDATE_SHOWN)
            self._on_update([{"type": "text", "text": text}])

    def _count(self) -> None:
        # With every frame, whole or not: what is thrown away costs as much to read.
        read = self._stdout_read + self._stderr.seen
        too_much = self._on_piece is None and read > self.job.profile.limits.output_max
        if self._frames.crowded:
            self._message = self._message or _CROWDED
            self.end("failed")
        elif too_much or self._frames.overfull:
            self.end("output")
        else:
            return
        for name in self._fds.keys() & {"stdout", "stderr"}:
            self._drop(name)  # it writes on until it is dead

    @property
    def bytes_seen(self) -> int:
        """Bytes of output so far, without messages."""
        return self._stdout.seen + self._stderr.seen

    def _on_dead(self) -> None:
        """The first process, and with it the whole tree, is dead."""
        self._drop("init")
        self._settle()

    def _on_exit(self) -> None:
        code = self._process.wait()
        self._exit_code = code if code >= 0 else _EXIT_SIGNAL - code
        self._exited.set_result(None)
        self._drop("process")
        self._timers["drain"] = self._loop.call_later(DRAIN_S, self._finish)
        self._settle()

    def _settle(self) -> None:
        """Whether all that matters has come."""
        if "init" in self._fds or self.over.done():
            return
        answered = self._reason in {"ok", "failed"} and self.pid
        if answered or not self._fds.keys() & {"process", "stdout", "stderr"}:
            self._finish()

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    # End

    def end(self, reason: Reason) -> None:
        """End it for a reason; the first one counts."""
        if self._reason is None:
            self._reason = reason
        self.kill()
        if self._reason == "ok" and not self.answered.done() and self.group.is_kernels:
            # Each of its processes has its SIGKILL, and runs no more: the answer need not
            # wait for the milliseconds in which the kernel clears them away.
            self.group.kill()
            self.answered.set_result(None)

    def kill(self) -> None:
        """SIGKILL the whole tree; `over` follows."""
        if not self._killed:
            self._killed = True
            self._timers["killed"] = self._loop.call_later(KILLED_S, self._give_up)
        self._kill("init")
        # bubblewrap itself reaps that process and goes; killed, it would leave a zombie to
        # the system. While the number of its child is not known, the child does not yet
        # die with it either: `_on_info` kills then.

    def _give_up(self) -> None:
        """Nothing came of the kill: bubblewrap never reported, or a driver holds a process."""
        self._kill("process")
        self._finish()

    def _kill(self, name: str) -> None:
        if name in self._fds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fds[name], signal.SIGKILL)

    async def close(self) -> None:
        """Kill what is left, wait for it, and give everything back."""
        self.kill()
        try:
            await asyncio.wait([self.over])
            if not await self._reaped():
                log.error(
                    f"{self.job.name}: process {self.pid} cannot be killed; a driver holds it"
                )
        finally:
            self._release()
            await self.group.close()

    async def _reaped(self) -> bool:
        if "process" in self._fds:
            await asyncio.wait([self._exited], timeout=KILLED_S)
        return "process" not in self._fds

    def _release(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for name in list(self._fds):
            self._drop(name)
        for fd in self._directories:
            os.close(fd)
        self._directories = []
        if self.calls is not None:
            self.calls.close()

    # The call

    async def call(
        self,
        call_id: str,
        params: dict[str, Any],
        on_update: OnUpdate | None,
        *,
        wall_s: float = 0.0,
        on_output: OnOutput | None = None,
        share: Share | None = None,
    ) -> Outcome:
        """Serve the one call.

        Args:
            call_id: handed to the tool.
            params: its validated arguments.
            on_update: gets the content of each update, until the end.
            wall_s: its time; 0: as its profile has it.
            on_output: gets all that a command writes, which is then not kept here; and
                its input stays open for `send`.
            share: what is kept of its output and its result is counted by.

        Raises:
            asyncio.CancelledError: the tool was told, and killed half a second later.
        """
        clock = self._machine.clock
        started, warm = clock.monotonic(), self.ready.done()
        self._on_update, self._on_piece = on_update, on_output
        self._keeps_input = on_output is not None
        self._stdout.share = self._stderr.share = self._frames.share = share
        self.group.wake()
        try:
            await self._served(call_id, params, wall_s)
            return self._outcome(clock.monotonic() - started, warm=warm)
        finally:
            # What was kept is handed over: a big one must not wait for the garbage collector.
            self._stdout, self._stderr = Output(0, 0), Output(0, 0)
            self._frames = Frames(self._nonce.encode())

    async def _served(self, call_id: str, params: dict[str, Any], wall_s: float) -> None:
        try:
            self._feed(_control(self.job.language, call_id, params))
            await self._ended(wall_s or self.job.profile.limits.wall_s)
        except ValueError as error:
            self._message = str(error)
            self.end("failed")
            await asyncio.wait([self.over])
        except asyncio.CancelledError:
            await self._cancelled()
            raise
        finally:
            self._on_update = None

    async def _ended(self, wall_s: float) -> None:
        """Wait for the end; look at the limits that the kernel does not end a tree by."""
        self._timers["wall"] = self._loop.call_later(wall_s, self.end, "timeout")
        watch = self.disk_watch()
        ends = (self.over, self.answered)
        while True:
            await asyncio.wait(ends, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            if self.over.done() or self.answered.done():
                break
            if self.group.memory_exceeded():  # cgroup v1 takes one process, not the tree
                self.end("memory")
            elif exceeded := await watch.exceeded():
                self.end(exceeded)

    def disk_watch(self) -> DiskWatch:
        """Watch what it adds to its directories from now on; not after `close`."""
        now, profile = self._machine.clock.now(), self.job.profile
        written = [bind for bind in profile.binds if bind.write]
        # As a tool sees them in a sandbox, and without one.
        places = [path for bind in written for path in (bind.target, bind.source)]
        ends = [] if self.calls is None else [self.calls.fileno()]
        return DiskWatch(self._directories, profile.limits, now, self.processes, places, ends)

    async def _cancelled(self) -> None:
        """Tell the tool, and kill it after the grace; at once when cancelled again."""
        try:
            self._abort()
            await asyncio.wait([self.over], timeout=GRACE_S)
        finally:
            self.end("cancelled")
        await asyncio.wait([self.over])

    def _abort(self) -> None:
        """SIGUSR2 to the host, which aborts the tool's signal; SIGTERM to all of a shell."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if not self.pid:
                return
            if self.job.language in _SHELLS:
                os.killpg(self.pid, signal.SIGTERM)
            elif pids := self.processes():
                os.kill(pids[0], signal.SIGUSR2)

    def processes(self) -> list[int]:
        """The live processes of the tool: the host, and what it started."""
        return proc.tree(self.pid)[1:] if "init" in self._fds else []

    def interrupt(self) -> None:
        """SIGINT to a command without a terminal, as Ctrl-C is with one."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGINT)

    @property
    def unsent(self) -> int:
        """Bytes that the command has not read yet, beyond those in the pipe."""
        return len(self._pending)

    @property
    def takes_input(self) -> bool:
        """Whether `send` has somewhere to write."""
        return self._keeps_input and "stdin" in self._fds

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Write to a command's standard input, in order and without waiting.

        Args:
            data: what to write; the caller bounds `unsent`.
            last: close it then.
        """
        self._keeps_input = not last
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        """Write to descriptor 0 without waiting, to the end, and close it unless it is kept."""
        self._fed = True
        self._pending = memoryview(self._pending.tobytes() + data)
        if self._let_go:
            self._write()

    def _write(self) -> None:
        if "stdin" in self._fds:
            self._on_writable()
        if self._pending and "stdin" in self._fds:
            self._loop.add_writer(self._fds["stdin"], self._on_writable)

    def _on_writable(self) -> None:
        fd = self._fds["stdin"]
        try:
            self._pending = self._pending[os.write(fd, self._pending) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the tool does not read its input, or is dead
            self._pending = self._pending[:0]
            self._keeps_input = False
        if not self._pending:
            self._loop.remove_writer(fd)
            if self._fed and not self._keeps_input:
                self._drop("stdin")

    def _outcome(self, duration_s: float, *, warm: bool) -> Outcome:
        self._drain()
        self._classify()
        if self.job.language == "shell":
            return self._shell_outcome(duration_s, warm=warm)
        shell = self.job.language == "bash"
        reason, number = self._reason or "exit", self._signal()
        bounds = self.job.profile.limits
        message = self._message or outcome.sentence(reason, bounds, self._exit_code, number)
        stdout, stderr = self._stdout.text(), self._stderr.text()
        tasks_exceeded = reason != "ok" and self.group.tasks_exceeded()
        # Handed over: a big one must not wait here for the garbage collector.
        result, self._result = self._result, None
        if result is None:
            text = outcome.failure_text(message, stdout, stderr, last=shell)
            result = outcome.text_result(text, is_error=True)
        if result["isError"] and reason in ("ok", "failed", "exit", "crashed"):
            text = calls.plain_text(result)
            hint = outcome.hint(text, self.job.profile, tasks_exceeded=tasks_exceeded)
            if hint:  # first for a shell, whose exit status stays last
                block = {"type": "text", "text": hint}
                result["content"].insert(0 if shell else len(result["content"]), block)
        return Outcome(
            reason=reason,
            result=result,
            message=message,
            exit_code=None if self._killed else self._exit_code,
            signal=number,
            stdout="" if shell else stdout,
            stderr=stderr,
            bytes_seen=self.bytes_seen,
            duration_s=duration_s,
            warm=warm,
        )

    def _shell_outcome(self, duration_s: float, *, warm: bool) -> Outcome:
        """How a command ended; its output is made readable by who has the time."""
        return Outcome(
            reason=self._reason or "exit",
            result={},
            message=self._message,
            exit_code=None if self._killed else self._exit_code,
            signal=self._signal(),
            streams=(self._stdout, self._stderr),
            bytes_seen=self.bytes_seen,
            duration_s=duration_s,
            warm=warm,
        )

    def _drain(self) -> None:
        """Read what is left of stderr, which nobody waited for after a result."""
        while "stderr" in self._fds:
            before = self._stderr.seen
            self._stderr.add(self._take("stderr"))
            if self._stderr.seen == before:
                break

    def _signal(self) -> int:
        """The signal that ended the tool's process, or 0."""
        code = self._exit_code
        if code is None or self._killed or not 0 < code - _EXIT_SIGNAL < signal.NSIG:
            return 0
        return code - _EXIT_SIGNAL

    def _classify(self) -> None:
        """Find out why a call without an answer ended."""
        if self._reason is not None:
            return
        number = self._signal()
        if self._own_failure():
            self._reason = "sandbox-failed"
        elif self.group.memory_exceeded():
            self._reason = "memory"
        elif number == signal.SIGXCPU:
            self._reason = "cpu"
        elif number:
            self._reason = "crashed"
        elif self.job.language == "bash" and self._exit_code == 0:
            self._reason = "ok"
            try:
                self._result = outcome.shell_result(self._stdout.text(), self._stdout.whole())
            except ValueError as error:
                self._reason, self._message = "failed", str(error)
        else:
            self._reason = "exit"

    def _own_failure(self) -> bool:
        """Whether bubblewrap itself failed: log the line that shows it in a shell."""
        error = self._stderr.text().partition("\n")[0]
        if self.ready.done() or self._exit_code != 1 or not error.startswith("bwrap: "):
            return False
        remedy = probe.remedy(error)
        self._message = f"the sandbox could not be started: {error}" + (remedy and f": {remedy}")
        job = self.job
        hidden = frozenset(name for name, _ in job.profile.env)
        line = bwrap.pasteable(job.profile, self._machine.layout, job.argv, hidden)
        log.error(f"{job.name}: {self._message}; to see it in a shell: {line}")
        return True

    # Descriptors

    def _read(self, name: str, callback: Callable[[], None]) -> None:
        self._readers.add(name)
        self._loop.add_reader(self._fds[name], callback)

    def _drop(self, name: str) -> None:
        fd = self._fds.pop(name)
        if name in self._readers:
            self._readers.discard(name)
            self._loop.remove_reader(fd)
        elif name == "stdin":
            self._loop.remove_writer(fd)
        os.close(fd)


def _control(language: Language, call_id: str, params: dict[str, Any]) -> bytes:
    """What goes to descriptor 0: the call, or a shell's variables and its stdin."""
    if language == "shell":
        return shell_lines(params)
    if language != "bash":
        return msgspec.json.encode({"id": call_id, "params": params})
    inputs = shell_inputs(params)
    return b"%d\n%s%s" % (len(inputs), inputs, msgspec.json.encode(params))


def _prefer_for_oom(pid: int) -> None:
    """When the machine is out of memory, let the kernel take this one, not the daemon."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write(_OOM_SCORE_ADJ)
    except OSError:
        return  # a courtesy, not a limit


def _memory(name: str, data: bytes, theirs: list[int]) -> int:
    """A descriptor to read `data` from."""
    theirs.append(proc.readable(name, data))
    return theirs[-1]


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
