"""Commands of callers, in the sandbox that tools have, and the sessions that outlive a call.

The sandbox is the wall: what a command names that it may not see is not there. The list of
refused commands (`rules`) stands before it as a courtesy. What the owner granted is shown
by its directory, opened and compared first, whatever its name leads to by then. Loop
thread only.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Coroutine, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from edged.clock import Clock
from edged.config import seconds, size
from edged.errors import (
    BusyError,
    DeniedError,
    EdgedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    SandboxSetupError,
)
from edged.events import Events
from edged.held import Room, Share
from edged.identity import Caller
from edged.policy import Grant, covers, is_there
from edged.sandbox import bwrap
from edged.sandbox.outcome import Outcome
from edged.sandbox.pool import Pool
from edged.sandbox.profile import Bind, Profile
from edged.sandbox.run import Instance, Job, OnUpdate
from edged.sandbox.unconfined import host_path
from edged.sections import Exec
from edged.workspace import Workspace

if TYPE_CHECKING:
    from edged.shell.commands import Script
    from edged.shell.session import Session

COMMAND_MAX = 100 << 10
"""Bytes of a command: the kernel's limit of one argument is 128 KiB (execve(2))."""

SESSIONS_MAX = 64
"""Sessions of all callers that run at once."""

UNREAD_MAX = 16 << 20
"""Bytes that nobody read, of all sessions."""

KEPT_S = 1_800.0
"""A session that has ended may be read for so long."""

KEPT_MAX = 16
"""Of one caller's; the one that ended first goes first."""

BEGIN_S = 10.0
"""For a session's command to begin."""

NAMED_MAX = 16
"""Paths of one command that are looked at."""

_PARSED_HERE = 4 << 10
"""Bytes of a command that is taken apart on the loop; a longer one is in a thread."""
_TEXT_HERE = 64 << 10
"""Bytes of output that are made text on the loop."""

_LOOKED_AT = 64 << 10
"""Bytes at the end of what a command wrote that are looked at for the cause of a failure."""

Owner = tuple[str, str, str]
"""Whose a session is: the user, the session that it was started in, and who that was."""

_WORKSPACE = "/workspace"
_REAL_WORKSPACE = "/officer/user/workspace"
_HOME = "/officer/user/home"
_OWN = ("/officer", "/workspace", "/edged", "/tmp", "/dev", "/proc")  # noqa: S108  inside


class Sandboxes(Protocol):
    """What runs commands: `edged.runner.Runner`."""

    @property
    def is_off(self) -> bool:
        """Whether the operator switched the sandbox off."""

    async def pool(self) -> Pool:
        """What runs sandboxes; raises SandboxSetupError where nothing can."""

    def home(self, user: str, devices: tuple[str, ...]) -> tuple[str, Profile]:
        """What a user's commands see, and a mark that changes with what is behind it."""


class Order(msgspec.Struct, frozen=True):
    """A command as it is asked for.

    Attributes:
        command: for the shell.
        workdir: relative to the workspace, or absolute.
        timeout_s: that the caller wants; 0: the configuration's.
        limit_s: never more than that: the call's own.
        pty: with a terminal.
    """

    command: str
    workdir: str = ""
    timeout_s: float = 0.0
    limit_s: float = 0.0
    pty: bool = False


class Finished(msgspec.Struct, frozen=True):
    """How a command ended: its outcome, words on it, whether it failed, and had a sandbox."""

    outcome: Outcome
    last: tuple[str, ...]
    failed: bool
    confined: bool

    @property
    def is_long(self) -> bool:
        """Whether its text is to be made off the loop."""
        return self.outcome.bytes_seen > _TEXT_HERE

    def text(self) -> str:
        """What it wrote, and how it ended."""
        from edged.shell import ending  # noqa: PLC0415  loaded already when this runs

        streams = self.outcome.streams
        written = ("", "") if streams is None else map(ending.output, streams)
        return ending.text(*written, *self.last)


class _Seen(NamedTuple):
    """A named path on the host: where it leads, by which link, and whether it is there."""

    path: str
    real: str
    link: tuple[str, str] | None
    is_there: bool


class _Ready(NamedTuple):
    """A command, ready to be run."""

    job: Job
    params: dict[str, str]
    grants: list[Grant]
    wanted_s: float
    wall_s: float
    script: Script


class Shell:
    """Runs commands; one for the daemon."""

    def __init__(
        self,
        section: Exec,
        data: str,
        clock: Clock,
        events: Events,
        workspace: Workspace,
        sandboxes: Callable[[], Sandboxes],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """A shell service.

        Args:
            section: its settings.
            data: the data directory, of which no grant shows anything.
            clock: for sessions that have ended.
            events: hears of these.
            workspace: the callers' files, and what the owner granted.
            sandboxes: what runs commands, once the daemon has it.
            spawn: the daemon's task group.
        """
        self.section = section
        self._data = os.path.realpath(data)
        self._clock, self._events = clock, events
        self._workspace, self._policy = workspace, workspace.policy
        self._sandboxes, self._spawn = sandboxes, spawn
        self._sessions: dict[str, Session] = {}
        self._unread = Room(UNREAD_MAX)
        self._running: dict[asyncio.Task[Any], tuple[str, Profile]] = {}
        """Commands that a call waits for: whose, and what they see."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting: dict[str, int] = {}
        self._layout: bwrap.Layout | None = None
        self._deny = [re.compile(pattern) for pattern in section.deny]
        self._allow = [re.compile(pattern) for pattern in section.allow]

    @staticmethod
    def order(
        command: str, workdir: str = "", timeout_s: float = 0.0, limit_s: float = 0.0, *, pty: bool
    ) -> Order:
        """A command to be run; see `Order`."""
        return Order(command, workdir, timeout_s, limit_s, pty)

    # One command --------------------------------------------------------------------------

    async def run(
        self,
        caller: Caller,
        call_id: str,
        order: Order,
        on_update: OnUpdate | None = None,
        share: Share | None = None,
    ) -> Finished:
        """Run a command to its end; nothing of it is left then.

        Raises:
            DeniedError: it is refused, or its directory is the owner's.
            InvalidArgumentsError: no such directory.
            BusyError: too many calls wait for a sandbox.
            SandboxSetupError: it cannot be run; the message says what to do.
            StoreError: the caller's files, or the disk, have no room for more.
        """
        pool = await self._sandboxes().pool()
        mode: Literal["run", "pty"] = "pty" if order.pty else "run"
        ready = await self._ready(caller, order, mode, seconds(self.section.timeout))
        self._use(caller, ready.grants)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  it is a coroutine
        self._running[task] = caller.user, ready.job.profile
        try:
            outcome = await pool.call(
                ready.job,
                call_id,
                ready.params,
                on_update,
                depth=caller.depth,
                user=caller.user,
                owner=caller.is_owner,
                wall_s=ready.wall_s,
                share=share,
            )
        except EdgedError:
            # It found no place, and nothing was run.
            self._give_back(ready.grants)
            raise
        finally:
            del self._running[task]
        self._check_begun(ready, outcome)
        return await self._finished(caller, ready, outcome)

    async def _finished(self, caller: Caller, ready: _Ready, outcome: Outcome) -> Finished:
        from edged.shell import ending  # noqa: PLC0415  with the first command

        stdout = stderr = ""
        if outcome.streams is not None:
            stdout, stderr = (stream.last(_LOOKED_AT) for stream in outcome.streams)
        profile = ready.job.profile
        failed = outcome.reason != "exit" or outcome.exit_code != 0
        hints = []
        if failed:
            hints.append(ending.hint(stderr or stdout, profile))
        if failed or "No such file" in stderr:
            hints.append(await self.advice(caller, ready.script, profile))
        most = seconds(self.section.timeout_max)
        if outcome.reason == "timeout" and ready.wanted_s > most == ready.wall_s:
            hints.append(
                f"[{ready.wanted_s:g} s were asked for, {most:g} s are the most: tools: {{exec: "
                "{timeout_max: …}} in edged.yaml]"
            )
        last = ending.line(outcome, profile, ready.wall_s)
        words = (*filter(None, hints), last)
        return Finished(outcome, words, failed, confined=not self._sandboxes().is_off)

    def _check_begun(self, ready: _Ready, outcome: Outcome, session: str = "") -> None:
        """A command that did not even start is no result of its own, and no session."""
        if outcome.reason not in ("sandbox-failed", "failed"):
            return
        self._give_back(ready.grants)
        self._drop(session)
        if outcome.message == "workdir":
            workdir = ready.params["workdir"]
            reason = f"there is no directory {workdir!r} that a command may enter"
            raise InvalidArgumentsError([Fault("workdir", reason)], "exec")
        raise SandboxSetupError(outcome.message or "the command did not begin")

    def _use(self, caller: Caller, grants: list[Grant]) -> None:
        """Use what a command sees by, in the step that notes it as one that runs.

        While it was made ready the owner may have had another word, which ends only what
        runs (`take_back`).
        """
        allowed = {one.id: one.write for one in self._policy.granted(caller, caller.session)}
        for grant in grants:
            if allowed.get(grant.id) != grant.write or self._refused_in(caller, grant, {}):
                raise DeniedError(
                    f"the permission for {grant.path} was used up or taken back meanwhile: ask "
                    "for it again"
                )
        once = [grant for grant in grants if grant.duration == "once"]
        for place, grant in enumerate(once):
            try:
                self._policy.use(grant)
            except EdgedError:
                self._give_back(once[:place])
                raise

    def _give_back(self, grants: list[Grant]) -> None:
        for grant in grants:
            self._policy.give_back(grant)

    # What is run --------------------------------------------------------------------------

    async def _ready(
        self, caller: Caller, order: Order, mode: Literal["run", "pipe", "pty"], default_s: float
    ) -> _Ready:
        script = await self.check(order.command, order.workdir)
        mark, profile, workdir, grants = await self._profile(caller, order, script)
        room = self._workspace.room
        profile = profile.adding(await room.left(caller, profile.limits.disk_max))
        wanted = order.timeout_s or default_s
        wall_s = min(wanted, seconds(self.section.timeout_max), order.limit_s or wanted)
        job = Job(
            key=(caller.user, "exec", mark),
            name="exec",
            language="shell",
            argv=("/bin/sh", "/edged/shell.sh"),
            profile=profile,
            # What was granted is opened for each command.
            warm=not any(bind.identity for bind in profile.binds),
        )
        params = {"mode": mode, "workdir": workdir, "command": order.command}
        return _Ready(job, params, grants, order.timeout_s, wall_s, script)

    async def check(self, command: str, workdir: str = "") -> Script:
        """Refuse what no caller may run; returns the command, taken apart.

        Raises:
            DeniedError: the list of refused commands, or the owner's, has it.
            InvalidArgumentsError: it is no command.
        """
        from edged.shell import commands, rules  # noqa: PLC0415  with the first command

        if len(command.encode("utf-8", "replace")) > COMMAND_MAX:
            reason = f"is over {COMMAND_MAX >> 10} KiB: write a script into a file, and run that"
            raise InvalidArgumentsError([Fault("command", reason)], "exec")
        if "\0" in command + workdir:
            raise InvalidArgumentsError([Fault("command", "has a NUL character")], "exec")

        def look() -> tuple[Script, str]:
            script = commands.parse(command)
            return script, rules.refused(command, script, self._deny, self._allow)

        short = len(command) <= _PARSED_HERE
        script, refusal = look() if short else await asyncio.to_thread(look)
        if refusal:
            raise DeniedError(refusal)
        return script

    async def _profile(
        self, caller: Caller, order: Order, script: Script
    ) -> tuple[str, Profile, str, list[Grant]]:
        """What a command sees, where it starts, and the grants that it sees by."""
        section, sandboxes = self.section, self._sandboxes()
        mark, profile = sandboxes.home(caller.user, tuple(section.devices))
        profile = msgspec.structs.replace(
            profile,
            network=section.network,
            limits=msgspec.structs.replace(
                profile.limits,
                wall_s=seconds(section.timeout_max),
                memory_max=size(section.memory),
            ),
        )
        workdir = _inside(order.workdir)
        if sandboxes.is_off:
            return mark, profile, host_path(workdir, profile), []
        outside = [workdir] if self._unseen([workdir], profile) else []
        grants = self._policy.granted(caller, caller.session)
        if not grants and not outside:
            return mark, profile, workdir, []
        if grants:
            outside += self._outside(script, profile)
        looked, there = await asyncio.to_thread(_look_at_all, outside, grants)
        denied = await asyncio.to_thread(self._denied_in, grants)
        chosen = {
            grant.id: grant
            for grant in there
            if grant.duration == "session" and not self._refused_in(caller, grant, denied)
        }
        links: list[tuple[str, str]] = []
        for seen in looked:
            grant = self._grant_of(caller, seen, denied, is_workdir=seen.path == workdir)
            if grant is not None:
                chosen[grant.id] = grant
                if seen.link is not None:
                    links.append(seen.link)
        shown = _outermost(list(chosen.values()))
        binds = [self._bind(grant) for grant in shown]
        paths = [bind.target for bind in binds]
        links = [one for one in dict.fromkeys(links) if not any(covers(p, one[0]) for p in paths)]
        widened = msgspec.structs.replace(
            profile, binds=(*profile.binds, *binds), links=(*profile.links, *links)
        )
        names = ",".join(f"{g.path}:{g.write}:{g.device}:{g.inode}" for g in shown)
        return f"{mark} {names}", widened, workdir, shown

    def _denied_in(self, grants: tuple[Grant, ...]) -> dict[str, str]:
        """What the configuration denies in what was granted, by the grants' ids."""
        found = ((one.id, self._workspace.denied_in(one.path)) for one in grants)
        return {name: path for name, path in found if path}

    def _grant_of(
        self, caller: Caller, seen: _Seen, denied: Mapping[str, str], *, is_workdir: bool
    ) -> Grant | None:
        """The grant that a named path is reached by, one of writing if there is one.

        Raises:
            DeniedError: it is the command's directory, and there is none; or the owner
                refused something in what was granted.
        """
        grant = None
        for write in (True, False):
            try:
                grant = grant or self._policy.find(caller, caller.session, seen.real, write=write)
            except DeniedError:
                if is_workdir and not write:
                    raise
        if grant is None:
            if is_workdir and seen.is_there:
                raise DeniedError(self._ask(caller, seen))
            return None
        inside = self._refused_in(caller, grant, denied)
        if inside:
            raise DeniedError(
                f"the owner granted {grant.path} and refused {inside}, and a command sees a "
                "directory as a whole: ask for a narrower one"
            )
        return grant

    def _refused_in(self, caller: Caller, grant: Grant, denied: Mapping[str, str]) -> str:
        """A path in what was granted that the owner refused; empty where there is none."""
        if grant.id in denied:
            return f"{denied[grant.id]} (tools.files.deny)"
        for denial in self._policy.denied():
            holds = denial.user == caller.user and (grant.write or not denial.write)
            if holds and denial.path != grant.path and covers(grant.path, denial.path):
                return denial.path
        return ""

    def _bind(self, grant: Grant) -> Bind:
        """A grant as a part of the sandbox.

        Raises:
            DeniedError: it would hide the sandbox's own places, or show the daemon's.
        """
        path = grant.path
        self._policy.check_private(path, path)
        if covers(path, self._data) or covers(self._data, path):
            raise DeniedError(f"{path}: edged keeps its own state there: no grant reaches it")
        if path == "/" or any(covers(path, own) for own in _OWN):
            raise DeniedError(f"{path} has another place in the sandbox: ask for one inside of it")
        if grant.anchor not in ("", path):
            raise DeniedError(
                f"{path} was not there when it was granted: make it, and ask for it again"
            )
        return Bind(path, path, grant.write, anchor="/", identity=(grant.device, grant.inode))

    def _unseen(self, paths: list[str], profile: Profile) -> list[str]:
        """Those of some paths that a command does not see."""
        if self._layout is None:
            self._layout = bwrap.host_layout()
        places = bwrap.places(profile, self._layout)
        unseen = (p for p in paths if p != "/" and not any(covers(one, p) for one in places))
        return list(islice(unseen, NAMED_MAX))

    def _outside(self, script: Script, profile: Profile) -> list[str]:
        """Paths that a command names and does not see."""
        from edged.shell import commands  # noqa: PLC0415  loaded already when this runs

        return self._unseen(commands.paths(script), profile)

    async def advice(self, caller: Caller, script: Script, profile: Profile) -> str:
        """What to do about a path that a failed command named and may not see."""
        if self._sandboxes().is_off or not self.section.ask_permission:
            return ""
        from edged.shell import commands  # noqa: PLC0415  loaded already when this runs

        outside, written = self._outside(script, profile), commands.written(script)
        if not outside:
            return ""
        looked = await asyncio.to_thread(_look_at, outside)
        for seen in looked:
            write = seen.path in written
            found = seen
            if write and not seen.is_there:
                # The file is to be made: its directory is what is asked for.
                found = await asyncio.to_thread(_look, os.path.dirname(seen.path))
            if found.is_there and found.path != "/":
                try:
                    self._policy.find(caller, caller.session, found.real, write=write)
                except DeniedError as error:
                    return str(error)
                return self._ask(caller, found, write=write)
        return ""

    def _ask(self, caller: Caller, seen: _Seen, *, write: bool = False) -> str:
        """What to do about a path that a command may not see and nobody refused."""
        path = seen.path
        if covers(self._data, seen.real):
            return f"{path} is edged's own, and not for commands"
        try:
            self._workspace.route(caller, caller.session, seen.real, write=write)
        except EdgedError:
            text = f"{path} is outside of what a command may see"
            if self.section.ask_permission:
                how = f"path {path!r}" + (" and write: true" if write else "")
                text += f": call request_permission with {how} to ask the owner for it"
            return text
        return f"{path} is for the file tools, not for commands: copy it into the workspace"

    # Sessions -----------------------------------------------------------------------------

    async def start(self, caller: Caller, order: Order) -> Session:
        """Start a command that outlives the call; its `Session`.

        Raises:
            BusyError: the caller has as many as may run.
            as `run`.
        """
        from edged.shell.session import Session  # noqa: PLC0415  with the first session

        self._count(caller.who)
        self._starting[caller.who] = self._starting.get(caller.who, 0) + 1
        try:
            pool = await self._sandboxes().pool()
            mode: Literal["pipe", "pty"] = "pty" if order.pty else "pipe"
            order = msgspec.structs.replace(order, limit_s=0.0)
            ready = await self._ready(caller, order, mode, seconds(self.section.timeout_max))
            self._use(caller, ready.grants)
            try:
                instance = pool.take(ready.job)
            except EdgedError:
                self._give_back(ready.grants)
                raise
            session = Session(
                self._new_id(),
                _owner(caller),
                order.command,
                ready.script,
                mode,
                instance,
                ready.wall_s,
                self._clock.now(),
                Share(self._unread),
            )
            self._sessions[session.id] = session
        finally:
            self._starting[caller.who] -= 1
            if not self._starting[caller.who]:
                del self._starting[caller.who]
        work = self._serve(caller.user, pool, session, instance, ready.params)
        self._tasks[session.id] = self._spawn(work)
        try:
            await asyncio.wait(
                [instance.begun, instance.over],
                timeout=BEGIN_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            session.kill()
            raise
        if instance.over.done() and not instance.begun.done():
            await session.wait(lambda: False, BEGIN_S)
            if session.outcome is not None:
                self._check_begun(ready, session.outcome, session.id)
        return session

    async def _serve(
        self, user: str, pool: Pool, session: Session, instance: Instance, params: dict[str, str]
    ) -> None:
        try:
            await session.serve(params)
        finally:
            pool.give_back(instance)
            self._tasks.pop(session.id, None)
            if session.outcome is None:
                # The task was cancelled: the daemon ends.
                session.end(Outcome(reason="cancelled", result={}))
            session.ended = self._clock.monotonic()
            status = session.status()
            facts = {name: status[name] for name in ("sessionId", "exitCode", "reason")}
            self._events.publish("exec.ended", user, facts)

    def _new_id(self) -> str:
        name = os.urandom(4).hex()
        return name if name not in self._sessions else self._new_id()

    def _count(self, who: str) -> None:
        """Refuse one more session where there are enough."""
        running = [one.who for one in self._sessions.values() if one.is_running]
        mine = running.count(who) + self._starting.get(who, 0)
        if mine >= self.section.sessions:
            ids = [s.id for s in self._sessions.values() if s.is_running and s.who == who]
            if not self.section.sessions:
                raise DeniedError("background commands are switched off (tools.exec.sessions: 0)")
            raise BusyError(f"{mine} sessions run, the most that may: end one of {', '.join(ids)}")
        if len(running) + sum(self._starting.values()) >= SESSIONS_MAX:
            raise BusyError(f"{SESSIONS_MAX} sessions of all callers run: try again later")

    def sessions(self, caller: Caller) -> list[Session]:
        """A caller's sessions, the oldest first."""
        self._expire()
        owner = _owner(caller)
        return [one for one in self._sessions.values() if one.owner == owner]

    def session(self, caller: Caller, session_id: str) -> Session:
        """A caller's session.

        Raises:
            NotFoundError: none, or another's.
        """
        for one in self.sessions(caller):
            if one.id == session_id:
                return one
        raise NotFoundError(
            f"session not found: {session_id[:64]!r}: action list shows yours; one that has "
            f"ended is kept for {KEPT_S / 60:g} minutes"
        )

    def _expire(self) -> None:
        """Forget sessions that ended long ago, and of each caller the oldest of too many."""
        now = self._clock.monotonic()
        done = [(one.ended, one) for one in self._sessions.values() if one.ended is not None]
        done.sort(key=lambda row: row[0], reverse=True)
        kept: dict[str, int] = {}
        for ended, one in done:
            kept[one.who] = kept.get(one.who, 0) + 1
            if now - ended > KEPT_S or kept[one.who] > KEPT_MAX:
                self._drop(one.id)

    def _drop(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.unread.forget()

    def end(self, user: str, session: str) -> None:
        """A caller's session is over, and its commands with it."""
        for one in tuple(self._sessions.values()):
            if session and one.owner[:2] == (user, session):
                one.kill()
                self._drop(one.id)

    def end_of(self, who: str) -> None:
        """Nobody is this caller any more: its sessions are over."""
        for one in tuple(self._sessions.values()):
            if one.who == who:
                one.kill()
                self._drop(one.id)

    def take_back(self, user: str, path: str) -> None:
        """End the commands of a user that see a place which was granted, and is no more."""
        for one in tuple(self._sessions.values()):
            if one.is_running and one.owner[0] == user and _shows(one.profile, path):
                one.kill()
        for task, (whose, profile) in tuple(self._running.items()):
            if whose == user and _shows(profile, path):
                task.cancel()

    async def close(self) -> None:
        """End all of them."""
        tasks = tuple(self._tasks.values())
        for one in self._sessions.values():
            one.kill()
        if tasks:
            await asyncio.wait(tasks)
        self._sessions.clear()


def _shows(profile: Profile, path: str) -> bool:
    """Whether a command sees a place by a grant."""
    granted = (bind.target for bind in profile.binds if bind.identity)
    return any(covers(path, one) or covers(one, path) for one in granted)


def _owner(caller: Caller) -> Owner:
    return caller.user, caller.session, caller.who


def _inside(workdir: str) -> str:
    """A working directory as an absolute path inside."""
    if workdir in ("", "."):
        return _WORKSPACE
    if workdir == "~" or workdir.startswith("~/"):
        return os.path.normpath(_HOME + workdir[1:])
    if workdir.startswith("/"):
        return os.path.normpath("/" + workdir.lstrip("/"))
    path = os.path.normpath(os.path.join(_REAL_WORKSPACE, workdir))
    return path if not covers(_REAL_WORKSPACE, path) else path.removeprefix("/officer/user")


def _outermost(grants: list[Grant]) -> list[Grant]:
    """Grants without those that lie in another that allows as much; of equal ones the first."""
    shown: list[Grant] = []
    for one in sorted(grants, key=lambda grant: (len(grant.path), not grant.write)):
        if not any(covers(o.path, one.path) and (o.write or not one.write) for o in shown):
            shown.append(one)
    return shown


def _look_at(paths: list[str]) -> list[_Seen]:
    return [_look(path) for path in paths]


def _look_at_all(paths: list[str], grants: tuple[Grant, ...]) -> tuple[list[_Seen], list[Grant]]:
    """What is at some paths, and the grants of what is there still; blocks as the disks do.

    What is not there, or no longer, is no part of a sandbox; a command that names it is told.
    """
    there = [one for one in grants if one.anchor in ("", one.path) and is_there(one)]
    return _look_at(paths), there


def _look(path: str) -> _Seen:
    """Follow a path on the host, for what everybody there may know of it.

    Below a directory that others may not search all names are alike: whether a path is
    there is told to nobody who could not find out.
    """
    at, link = "/", None
    there = True
    for name in path.split("/")[1:]:
        try:
            if not os.stat(at).st_mode & stat.S_IXOTH:
                break
            at = os.path.join(at, name)
            if link is None and os.path.islink(at):
                link = (at, os.path.realpath(at))
            os.stat(at)
        except (OSError, ValueError):
            there = False
            break
    return _Seen(path, os.path.realpath(path), link, there)
