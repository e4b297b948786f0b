"""Runs a TOOL.md tool for a caller: its profile, its sandbox, its result.

Knows the specification's file layout and variables (contract, section 10); the
sandbox itself is `edged.sandbox`'s. Loop thread only.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from edged import log, results, runtimes
from edged.config import Sandbox, ToolSettings, seconds, size
from edged.dispatch import Dispatcher
from edged.errors import (
    CallTimeoutError,
    DataError,
    SandboxLimitError,
    SandboxSetupError,
)
from edged.identity import LOCAL_USER, Caller, Role
from edged.results import Result, Text
from edged.sandbox import bwrap, limits, proc
from edged.sandbox.account import Account
from edged.sandbox.outcome import Outcome
from edged.sandbox.pool import Pool
from edged.sandbox.probe import INSTALL, Capability, probe
from edged.sandbox.profile import Bind, Limits, Profile
from edged.sandbox.run import Job, Key
from edged.services import Services
from edged.settings import Loaded
from edged.tool import Context, Permissions
from edged.toolmd.discover import Entry, fingerprint, foreign, read_inside
from edged.toolmd.manifest import Manifest

if TYPE_CHECKING:
    from edged.workspace.homes import Homes

Spawn = Callable[[Coroutine[Any, Any, None]], object]

HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "toolmd", "hosts")
OUTPUT_LOGGED = 500
"""Characters of a tool's own output in the log."""

COPIES = "runtimes"
"""Below the data directory, for what the tools' account cannot reach where it lies."""

SOURCE_MAX = 1 << 20
"""Bytes of an entry file that is looked at for the cause of a failure."""

_BLOCKS = "content is a list of {type: text, text: …} and {type: image, data: BASE64, mimeType: …}"
_HOST = {"python": "host.py", "bash": "host.sh", "typescript": "host.mjs"}
_PYTHON_OPTIONS = ("-s", "-u")
NODE_RESERVE = 2 << 30
"""Bytes that Node and its workers map and do not use (see `Limits.data_reserve`)."""


class Runs(msgspec.Struct, frozen=True):
    """Whether and how a tool can run here."""

    permissions: Permissions
    level: str
    reason_code: str = ""
    problem: str = ""


class Runner:
    """The daemon's sandboxes."""

    def __init__(
        self,
        loaded: Loaded,
        data: str,
        dispatcher: Dispatcher,
        services: Services,
        spawn: Spawn,
        rebuild: Callable[[], None],
    ) -> None:
        """A runner.

        Args:
            loaded: the configuration.
            data: the data directory.
            dispatcher: for calls from inside.
            services: the daemon's parts.
            spawn: the daemon's task group.
            rebuild: called when what can run here became known.
        """
        self._loaded = loaded
        self._data = data
        self._dispatcher = dispatcher
        self._services = services
        self._spawn = spawn
        self._rebuild = rebuild
        sandbox = loaded.config.sandbox
        self._off = sandbox == "none"
        self._settings = sandbox if isinstance(sandbox, Sandbox) else Sandbox()
        self._runtimes: dict[str, runtimes.Runtime] = {}
        self._capability: Capability | None = None
        self._ready: asyncio.Future[None] | None = None
        self._pool: Pool | None = None
        self._backend: limits.Backend | None = None
        self._account: Account | None = None
        self._hosts = HOSTS
        self._homes: Homes = services.workspace.homes
        self._jobs: dict[tuple[str, str], tuple[str, Job]] = {}
        self._reached: dict[str, Bind] = {}
        self.on_known: list[Callable[[], None]] = []
        """Called when it is known what can run here."""

    # What can run -------------------------------------------------------------------------

    def runs(self, entry: Entry) -> Runs:
        """Permissions, level and, where it cannot run, the reason with its remedy."""
        found = entry.manifest
        assert found is not None  # noqa: S101  only whole tools are asked for
        permissions = self._permissions(found)
        runs = self.confines(permissions)
        if runs.reason_code:
            return runs
        level = runs.level
        problem = self._left_open(entry)
        if problem:
            return Runs(permissions, level, "invalid", problem)
        runtime = self._runtimes.get(found.language)
        if runtime is not None and not runtime.argv:
            problem = f"no {found.language} here: {runtimes.REMEDIES[found.language]}"
            return Runs(permissions, level, "requires_runtime", problem)
        if runtime is None:
            self._want(found.language)
        return Runs(permissions, level)

    def confines(self, permissions: Permissions) -> Runs:
        """The level of a sandbox with these permissions, and why there is none."""
        capability = self._capability
        level = ""
        if self._off:
            level = "none"
        elif capability is not None:
            level = capability.level
        if permissions.network and level not in ("", "none"):
            level += ", network"
        if capability is not None and not capability.ok and not self._off:
            code = "requires_binary" if capability.remedy == INSTALL else "requires_config"
            problem = f"no sandbox: {capability.error}"
            if capability.remedy:
                problem += f": {capability.remedy}"
            return Runs(permissions, level, code, problem)
        return Runs(permissions, level)

    def _permissions(self, found: Manifest) -> Permissions:
        defaults = self._loaded.defaults

        def value(key: str, own: Any, default: Any) -> Any:
            return own if key in found.set else default

        resources = (
            defaults.resources if defaults.resources == "all" else tuple(defaults.resources)
        )
        return Permissions(
            value("network", found.network, defaults.network),
            found.devices,
            found.calls,
            found.env,
            value("resources", found.resources, resources),
            value("timeout", found.timeout_s, seconds(defaults.timeout)),
            value("memory", found.memory_max, size(defaults.memory)),
        )

    def _left_open(self, entry: Entry) -> str:
        """Why a tool of `local` is not run where `users:` maps people; empty where it is.

        While nobody was mapped, everyone in the group could put tools there.
        """
        shared = os.path.join(self._data, LOCAL_USER, "tools", "")
        if not self._loaded.config.users or not entry.directory.startswith(shared):
            return ""
        path = self._foreign(entry, LOCAL_USER)
        if not path:
            return ""
        return f"`users:` maps people, and {_others_can_change(path, entry)}"

    def _want(self, language: str) -> None:
        """Find out about a runtime; Node is asked from a thread."""
        if language != "typescript":
            self._runtimes[language] = runtimes.find(language)
            return
        self._runtimes[language] = runtimes.Runtime(("",))
        self._spawn(self._find(language))

    async def _find(self, language: str) -> None:
        runtime = await asyncio.to_thread(runtimes.find, language)
        self._runtimes[language] = runtime
        if not runtime.argv:
            self._rebuild()

    def start(self) -> None:
        """Try the sandbox once, in the background; close what is no longer shared."""
        self._close_local()
        self._ready = asyncio.get_running_loop().create_future()
        self._spawn(self._probe(self._ready))

    def _close_local(self) -> None:
        """Where `users:` maps people now, take from the group what it could change before."""
        if not self._loaded.config.users or not os.path.isdir(self._homes.of(LOCAL_USER)):
            return
        try:
            self._homes.prepare(LOCAL_USER)
        except SandboxSetupError as error:
            log.error(str(error))

    async def _probe(self, ready: asyncio.Future[None]) -> None:
        try:
            title = await self._end_orphans()
            self._account = self._homes.account
            self._check_reach(self._account)
            self._backend = backend = limits.detect(watch_only=self._settings.limits == "rlimits")
            if self._off:
                capability = Capability(ok=False, level="none")
            else:
                capability = await probe(
                    backend, self._account.uid, self._account.gid, title=title
                )
            if capability.ok or self._off:
                self._pool = Pool(
                    backend,
                    self._account,
                    bwrap.host_layout(),
                    clock=self._services.clock,
                    warm_memory=self._warm_memory(),
                    parallel=self._settings.parallel,
                    queue_max=self._settings.queue,
                    idle_s=seconds(self._settings.idle),
                    title=title,
                    confined=not self._off,
                )
                await self._pool.__aenter__()
        except SandboxSetupError as error:
            capability = Capability(ok=False, level="none", error=str(error))
        self._capability = capability
        for warning in capability.warnings:
            log.warning(warning)
        if not capability.ok and not self._off:
            remedy = f": {capability.remedy}" if capability.remedy else ""
            log.error(f"no sandbox: {capability.error}{remedy}")
        self._rebuild()
        for callback in self.on_known:
            callback()
        ready.set_result(None)
        self._ready = None

    async def _end_orphans(self) -> str:
        """End what a daemon left that was killed while a sandbox started; the title of ours.

        bubblewrap's first process waits for ever for one that died before it was let go.
        """
        # Nobody else uses this title now: the data directory is locked.
        there = os.stat(self._data)
        title = f"edged-sandbox-{there.st_dev:x}-{there.st_ino:x}"
        left = await asyncio.to_thread(proc.end_titled, title)
        if left:
            log.warning(f"ended {left} sandboxes of a daemon that was killed")
        return title

    def _check_reach(self, account: Account) -> None:
        """Make sure that the tools' account can be shown what a sandbox is made of.

        Raises:
            SandboxSetupError: it cannot; says what to open.
        """
        if not runtimes.reachable(os.path.join(self._data, "tools"), account.uid, account.gid):
            raise SandboxSetupError(
                f"the user {account.name}, who runs the tools, may not enter {self._data}: "
                "chmod o+x it and the directories above it, or choose another with --data"
            )
        copies = os.path.join(self._data, COPIES)
        try:
            self._hosts = runtimes.within_reach(HOSTS, account.uid, account.gid, copies)
        except OSError as error:
            raise SandboxSetupError(f"{copies}: {error}: free some space") from None

    def _shown(self, bind: Bind) -> Bind:
        """The bind of a runtime, from where the tools' account can reach it."""
        account = self._account
        assert account is not None  # noqa: S101  there is one where there is a pool
        copies = os.path.join(self._data, COPIES)
        try:
            source = runtimes.within_reach(bind.source, account.uid, account.gid, copies)
        except OSError as error:
            raise SandboxSetupError(f"{copies}: {error}: free some space") from None
        return msgspec.structs.replace(bind, source=source)

    def _warm_memory(self) -> int | None:
        auto = self._settings.warm_memory == "auto"
        return None if auto else size(self._settings.warm_memory)

    # Commands -----------------------------------------------------------------------------

    @property
    def is_off(self) -> bool:
        """Whether the operator switched the sandbox off."""
        return self._off

    async def pool(self) -> Pool:
        """What runs sandboxes, when it is known whether they can.

        Raises:
            SandboxSetupError: they cannot; the message says what to do.
        """
        if self._ready is not None:
            await asyncio.shield(self._ready)
        if self._pool is None:
            raise SandboxSetupError(self.confines(Permissions()).problem or "no sandbox is ready")
        return self._pool

    def home(self, user: str, devices: tuple[str, ...]) -> tuple[str, Profile]:
        """What a user's commands see, and a mark that changes with the directories behind it.

        Raises:
            SandboxSetupError: something else is in the way of a directory.
        """
        mark = self._homes.inodes(user)
        own = os.path.join(self._data, user)
        # The paths that this user's files have on the host, in commands as people write them.
        links = tuple(
            (os.path.join(own, name), f"/officer/user/{name}")
            for name in ("workspace", "home", "files")
            if not own.startswith("/usr/")  # which is shown, and read-only
        )
        profile = self._home(user, Permissions(devices=devices), ())
        return mark, msgspec.structs.replace(
            profile,
            links=(*profile.links, *links),
            env=self._env(Permissions(), "exec", trusted=False),
            limits=Limits(data_reserve=self._reserve("bash")),
        )

    # Calls --------------------------------------------------------------------------------

    async def run(self, entry: Entry, params: dict[str, Any], ctx: Context) -> Result:
        """Call a tool once.

        Raises:
            SandboxSetupError: it cannot be run here; the message says what to do.
            BusyError: too many calls wait for a sandbox.
            StoreError: its caller's files, or the disk, have no room for more.
        """
        pool = await self.pool()
        runs = self.runs(entry)
        if runs.reason_code:
            raise SandboxSetupError(runs.problem)
        job = await self._job(entry, runs.permissions, ctx)
        room = self._services.workspace.room
        left = await room.left(ctx.caller, job.profile.limits.disk_max)
        job = msgspec.structs.replace(job, profile=job.profile.adding(left))

        def on_update(update: list[dict[str, Any]]) -> None:
            try:
                ctx.update(results.blocks(update))
            except ValueError:
                # An update that is none shows nothing; the result will be judged.
                return

        handler = None
        if runs.permissions.calls:
            handler = self._calls(runs.permissions.calls, ctx, self._role(entry, ctx.caller))
        shorter = ctx.timeout_s if ctx.timeout_s < runs.permissions.timeout_s else None
        deadline = asyncio.timeout(shorter)
        try:
            async with deadline:
                outcome = await pool.call(
                    job,
                    ctx.call_id,
                    params,
                    on_update,
                    calls_handler=handler,
                    depth=ctx.caller.depth,
                    user=ctx.caller.user,
                    owner=ctx.caller.role == "owner",
                    share=ctx.share,
                )
        except TimeoutError:
            if not deadline.expired():
                raise
            reason = f"timed out after {ctx.timeout_s:g} s"
            raise CallTimeoutError(reason) from None
        self._log_output(entry, outcome, ctx.masked)
        result = self._result(outcome)
        if result.is_error:
            _hint_source(entry, result)
            self._hint_env(entry, runs.permissions, ctx.caller.user, result)
        return result

    async def isolate(
        self,
        name: str,
        script: str,
        libraries: tuple[str, ...],
        params: dict[str, Any],
        *,
        limits: Limits,
        caller: Caller,
    ) -> dict[str, Any]:
        """Run a script of edged's own over what strangers wrote; what it returns as `structured`.

        It sees itself and its libraries, nothing of the caller's, and has no network.

        Args:
            name: for people.
            script: a Python file with `execute`, as a tool has it.
            libraries: directories of packages, named to it in `EDGED_LIBRARIES`.
            params: handed to it.
            limits: of the run.
            caller: for whom; who waits for a sandbox waits in turn.

        Raises:
            SandboxSetupError: there is no sandbox here; says what to do.
            SandboxLimitError: it came to its limits.
            DataError: it could make nothing of what it was given.
            BusyError: too many calls wait for a sandbox.
        """
        if self._ready is not None:
            await asyncio.shield(self._ready)
        if self._pool is None:
            error = self._capability.error if self._capability else "the sandbox is not ready"
            raise SandboxSetupError(f"{name}: {error}: edged doctor says what to do")
        job = await asyncio.to_thread(self._own_job, name, script, libraries, limits)
        outcome = await self._pool.call(
            job, "", params, depth=caller.depth, user=caller.user, owner=caller.is_owner
        )
        reason = outcome.reason
        if outcome.message.startswith(MemoryError.__name__):
            # Without a control group the limit is the process's own, and Python tells of it.
            reason = "memory"
        if reason in ("timeout", "memory", "cpu", "output"):
            raise SandboxLimitError(reason, f"{name}: it is too much to read: over the {reason}")
        found = outcome.result.get("structured")
        if outcome.reason != "ok" or not isinstance(found, dict):
            raise DataError(f"{name}: it cannot be read: {outcome.message.partition(chr(10))[0]}")
        return found

    def _own_job(self, name: str, script: str, libraries: tuple[str, ...], limits: Limits) -> Job:
        """The job of a script of edged's own; copies what the tools' account cannot reach."""
        runtime = runtimes.find("python")
        if not runtime.argv:
            raise SandboxSetupError(f"no python here: {runtimes.REMEDIES['python']}")
        folder, file = os.path.split(script)
        binds = [Bind(self._hosts, "/edged"), self._shown(Bind(folder, "/edged-own"))]
        inside = [f"/edged-libraries/{os.path.basename(path)}" for path in libraries]
        for path, target in zip(libraries, inside, strict=True):
            if path not in self._reached:
                self._reached[path] = self._shown(Bind(path, target))
            binds.append(self._reached[path])
        profile = Profile(
            binds=tuple(binds), env=(("EDGED_LIBRARIES", ":".join(inside)),), limits=limits
        )
        argv = (*runtime.argv, *_PYTHON_OPTIONS, "/edged/host.py", f"/edged-own/{file}")
        return Job(("", name, ""), name, "python", argv, profile, warm=False)

    def _hint_env(self, entry: Entry, permissions: Permissions, user: str, result: Result) -> None:
        """A declared variable without a value is the likely cause where its name shows."""
        assert entry.manifest is not None  # noqa: S101  it was run
        name = entry.manifest.name
        trusted = self._trusts(entry, user)
        known = dict(self._env(permissions, name, trusted=trusted))
        text = results.joined(result.content)
        for variable in permissions.env:
            if variable not in known and variable in text:
                line = f"set tools: {{{name}: {{env: {{{variable}: …}}}}}} in edged.yaml"
                if not trusted:
                    line = "the owner's variables go to global tools and to the owner's own"
                    if path := self._foreign(entry, user):
                        line += f", and {_others_can_change(path, entry)}"
                result.content.append(Text(f"{variable} has no value: {line}"))

    def _log_output(self, entry: Entry, outcome: Outcome, masked: tuple[str, ...]) -> None:
        """What a tool printed is for its maker; never where it may hold a secret input."""
        written = (outcome.stdout + outcome.stderr).strip()
        found = entry.manifest
        if written and found is not None and not any(i.sensitive for i in found.inputs):
            text = results.absent(written, masked)[-OUTPUT_LOGGED:]
            log.info(f"tool {found.name} printed: {text}")

    def _result(self, outcome: Outcome) -> Result:
        value = outcome.result
        try:
            content = results.blocks(value.get("content"))
        except ValueError as error:
            return results.failure(f"the tool's result is not one: {error}: {_BLOCKS}")
        result = Result(content, is_error=bool(value.get("isError")))
        result.structured = value.get("structuredContent", value.get("structured"))
        if isinstance(value.get("for_user"), str):
            result.for_user = value["for_user"]
        if self._off:
            result.sandbox = "none"
        return result

    def _role(self, entry: Entry, caller: Caller) -> Role:
        """As whom a tool calls others: as its caller, but where an agent may have made it."""
        if caller.role == "owner" and self._foreign(entry, caller.user):
            return "agent"
        return caller.role

    def _calls(
        self, names: tuple[str, ...], ctx: Context, role: Role
    ) -> Callable[[str, dict[str, Any]], Any]:
        """What a tool reaches from inside: its caller's rights, and never more."""
        allowed = frozenset(names)

        async def call(name: str, params: dict[str, Any]) -> dict[str, Any]:
            caller = msgspec.structs.replace(
                ctx.caller,
                allowed=allowed,
                depth=ctx.caller.depth + 1,
                door="internal",
                role=role,
            )
            session = ctx.session
            raw = msgspec.json.encode(params)
            call = self._dispatcher.start(
                caller, session, name, raw, masked=ctx.masked, is_named=True
            )
            result: dict[str, Any] = msgspec.to_builtins(await call.wait())
            return result

        return call

    async def _job(self, entry: Entry, permissions: Permissions, ctx: Context) -> Job:
        """What the pool runs; made anew when any file of the tool changed.

        So too when one of the user's directories was replaced: a spare has the old one. A
        tool of too many files to look at is made anew for each call, and gets no spare.
        """
        user = ctx.caller.user
        slot = (user, entry.directory)
        files = fingerprint(entry.directory)
        mark = f"{entry.digest} {files} {self._homes.inodes(user)}"
        before = self._jobs.get(slot)
        if before is not None and before[0] == mark and files:
            return before[1]
        if before is not None and self._pool is not None:
            old = before[1].key
            self._pool.drop(lambda key: key == old)
        job = await self._new_job(entry, permissions, user, (*slot, mark))
        if not files:
            job = msgspec.structs.replace(job, warm=False)
        self._jobs[slot] = (mark, job)
        return job

    async def _new_job(self, entry: Entry, permissions: Permissions, user: str, key: Key) -> Job:
        found = entry.manifest
        assert found is not None  # noqa: S101  only whole tools are run
        if found.language == "typescript" and self._runtimes[found.language].argv == ("",):
            await self._find(found.language)
        runtime = self._runtimes[found.language]
        if not runtime.argv:
            remedy = runtimes.REMEDIES[found.language]
            raise SandboxSetupError(f"no {found.language} here: {remedy}")
        inside = f"{_inside(entry)}/{entry.entry}"
        options = _PYTHON_OPTIONS if found.language == "python" else ()
        return Job(
            key=key,
            name=found.name,
            language=found.language,
            argv=(*runtime.argv, *options, f"/edged/{_HOST[found.language]}", inside),
            profile=self._profile(user, permissions, runtime, entry),
            warm=found.warm if "warm" in found.set else self._loaded.defaults.warm,
            calls=bool(permissions.calls),
        )

    def _profile(
        self, user: str, permissions: Permissions, runtime: runtimes.Runtime, entry: Entry
    ) -> Profile:
        found = entry.manifest
        assert found is not None  # noqa: S101  only whole tools are run
        return msgspec.structs.replace(
            self._home(user, permissions, tuple(map(self._shown, runtime.binds))),
            env=self._env(permissions, found.name, trusted=self._trusts(entry, user)),
            own_home=self._has_own_home(permissions, entry),
            limits=Limits(
                wall_s=permissions.timeout_s,
                memory_max=permissions.memory_max,
                data_reserve=self._reserve(found.language),
            ),
        )

    def _home(self, user: str, permissions: Permissions, runtime: tuple[Bind, ...]) -> Profile:
        """A user's directories and the tools, as every sandbox of theirs shows them."""
        data = self._data
        own = os.path.join(data, user)
        binds = [
            Bind(self._hosts, "/edged"),
            *runtime,
            Bind(os.path.join(data, "tools"), "/officer/tools", anchor=data),
            Bind(os.path.join(own, "tools"), "/officer/user/tools", anchor=data),
            # There once the first one is installed.
            Bind(os.path.join(data, "skills"), "/officer/skills", anchor=data, optional=True),
            Bind(os.path.join(own, "skills"), "/officer/user/skills", anchor=data, optional=True),
        ]
        # A directory of /sys is shown read-only, by the name that the tool declares.
        binds += [
            Bind(os.path.realpath(f"/{name}"), f"/{name}", optional=True)
            for name in permissions.devices
            if name.startswith("sys/")
        ]
        binds += [
            Bind(os.path.join(own, name), target, write=True, anchor=data)
            for name, target in (
                ("home", "/officer/user/home"),
                ("workspace", "/officer/user/workspace"),
                ("files", "/officer/user/files"),
                ("data", "/officer/data"),
            )
        ]
        return Profile(
            binds=tuple(binds),
            links=(("/workspace", "/officer/user/workspace"),),
            cwd="/officer/user/workspace",
            network=permissions.network,
            devices=tuple(f"/dev/{n}" for n in permissions.devices if not n.startswith("sys/")),
        )

    def _reserve(self, language: str) -> int:
        """A tool in another language may start Node; where groups hold, that is no matter."""
        grouped = self._backend is not None and self._backend.level != "watch"
        return NODE_RESERVE if grouped or language == "typescript" else 0

    def _trusts(self, entry: Entry, user: str) -> bool:
        """Whether a tool may have what the configuration holds for its name.

        A name is anyone's to take: a tool in the directory of a user who is an agent, or
        that an agent can change, gets none of the owner's variables and resources.
        """
        if entry.origin == "global":
            return True
        owned = user == LOCAL_USER or bool(self._owners(user))
        return owned and not self._foreign(entry, user)

    def _owners(self, user: str) -> frozenset[int]:
        """Uids that are mapped to a user as its owner."""
        return frozenset(
            int(uid)
            for uid, mapped in self._loaded.config.users.items()
            if not isinstance(mapped, str) and (mapped.user, mapped.role) == (user, "owner")
        )

    def _foreign(self, entry: Entry, user: str) -> str:
        """What of a user's own tool others than root and the owner can change, if anything.

        Where the daemon is not root, all of the data directory is its own account's.
        """
        if entry.origin == "global" or os.geteuid() != 0:
            return ""
        return foreign(entry.directory, self._owners(user) | {0})

    def _has_own_home(self, permissions: Permissions, entry: Entry) -> bool:
        """Whether it is a global tool that has what a caller's commands have not.

        A home of its caller's is the caller's to fill: a python3 or curl that the tool
        starts would do what is written there, with the tool's network, and could hand on
        the owner's variables.
        """
        assert entry.manifest is not None  # noqa: S101  only whole tools are run
        name = entry.manifest.name
        own = self._env(permissions, name, trusted=True)
        is_richer = own != self._env(permissions, name, trusted=False)
        has_more = permissions.network or bool(permissions.devices) or is_richer
        return entry.origin == "global" and has_more

    def _env(
        self, permissions: Permissions, tool: str, *, trusted: bool
    ) -> tuple[tuple[str, str], ...]:
        resources = self._loaded.config.resources if trusted else {}
        names = permissions.resources
        declared = resources
        if names != "all":
            declared = {n: resources[n] for n in names if n in resources}
        env = {
            "HOME": "/officer/user/home",
            "OFFICER_USER_HOME": "/officer/user/home",
            "OFFICER_USER_ROOT": "/officer/user",
            "PI_TOOLS_DIRS": "/officer/tools:/officer/user/tools",
            "OFFICER_EMAIL_DB": "/officer/data/emails.db",
            "OFFICER_RESOURCES": msgspec.json.encode(declared).decode(),
        }
        env |= _from_resources(resources, declared, permissions.env)
        settings = self._loaded.tools.get(tool, ToolSettings())
        for name in permissions.env:
            if trusted and name in settings.env:
                env[name] = _text(settings.env[name])
        return tuple(sorted(env.items()))

    def keep_only(self, user: str, directories: dict[str, str]) -> None:
        """Drop spares of tools that changed or went away."""
        pool = self._pool
        if pool is None:
            return

        def stale(key: Key) -> bool:
            owner, directory, mark = key
            mine = directory.startswith(os.path.join(self._data, user, "tools", ""))
            if not mine or (user and owner != user):
                return False
            return mark.split(" ")[0] != directories.get(directory)

        pool.drop(stale)

    def health(self) -> dict[str, Any]:
        """Facts for `edged status`."""
        capability = self._capability
        facts: dict[str, Any] = {"sandbox": {"level": "unknown"}}
        if self._off:
            facts["sandbox"] = {"level": "none", "warning": "sandbox: none: tools run unconfined"}
        elif capability is not None:
            facts["sandbox"] = msgspec.to_builtins(capability)
        if self._pool is not None and self._backend is not None:
            facts["sandbox"]["limits"] = self._backend.describe()
            facts["warm"] = msgspec.to_builtins(self._pool.stats())
        return facts

    async def close(self) -> None:
        """End every sandbox."""
        if self._ready is not None:
            await asyncio.wait([self._ready])
        if self._pool is not None:
            await self._pool.__aexit__(None, None, None)
            self._pool = None
        if self._backend is not None:
            self._backend.close()


def _inside(entry: Entry) -> str:
    """Where a tool's directory is in its sandbox."""
    base = "/officer/user/tools" if entry.origin == "user" else "/officer/tools"
    return f"{base}/{os.path.basename(entry.directory)}"


def _hint_source(entry: Entry, result: Result) -> None:
    """Say which file is to be mended, where a failure names one by its path inside."""
    inside = _inside(entry)
    if f"{inside}/" in results.joined(result.content):
        result.content.append(Text(f"{inside} is {entry.directory}"))
    if entry.entry == "index.sh":
        source = read_inside(entry.directory, entry.entry, SOURCE_MAX)
        if isinstance(source, bytes) and b"\r\n" in source:
            path = shlex.quote(f"{entry.directory}/{entry.entry}")
            result.content.append(Text(f"index.sh has CRLF line ends: sed -i 's/\\r$//' {path}"))


def _others_can_change(path: str, entry: Entry) -> str:
    """A fault with its remedy, where `foreign` found `path`.

    A tool is copied, not given to root: who has a file of it open to write may write on,
    whoever owns it then.
    """
    fault = f"others than root can change {path}"
    if not path.startswith(entry.directory):
        place = shlex.quote(path)
        return f"{fault}: look it over, then chown root {place} && chmod go-w {place}"
    place, copy = shlex.quote(entry.directory), shlex.quote(f"{entry.directory}.new")
    return (
        f"{fault}: copy it with cp -r {place} {copy} && chmod -R go-w {copy}, "
        f"look the copy over, then rm -r {place} && mv {copy} {place}"
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_RESOURCE_ENV = {
    "PI_SEARXNG_URL": ("searxng", "url"),
    "OFFICER_APIFY_TOKEN": ("apify", "token"),
    "OFFICER_BROWSER_RELAY_PORT": ("browser-relay", "port"),
    "OFFICER_BROWSER_RELAY_TOKEN": ("browser-relay", "token"),
}
"""Variable: the resource and the field that it comes from."""


def _from_resources(
    resources: dict[str, Any], declared: dict[str, Any], names: tuple[str, ...]
) -> dict[str, str]:
    env = {}
    for variable, (resource, field) in _RESOURCE_ENV.items():
        if resource in declared or variable in names:
            entry = resources.get(resource)
            if isinstance(entry, dict) and field in entry:
                env[variable] = _text(entry[field])
    return env
