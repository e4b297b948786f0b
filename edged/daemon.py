"""The composition root: configuration, services, tools, listeners; start and stop.

One task group holds all of the daemon's tasks. It answers its first call before
seeds are synced, tools are scanned or anything heavy is imported.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import msgspec

from edged import log, parts, paths, plugins, settings, systemd
from edged.acts import Switches
from edged.audit import Trail
from edged.board import Board
from edged.board.sensor import Publish
from edged.bus import Kind
from edged.bus.faults import remedy
from edged.bus.hotplug import Hotplug
from edged.bus.kernel import KernelBuses
from edged.bus.settings import BoardConfig
from edged.catalogue import Catalogue, has_tool
from edged.clock import Clock, SystemClock
from edged.config import Config, MediaSettings, seconds, size
from edged.control import Control, Description
from edged.dispatch import Dispatcher
from edged.errands import Errands
from edged.errors import ConfigError, StoreError
from edged.events import Events
from edged.finder import Finder
from edged.history import History
from edged.identity import Caller
from edged.instance import instance
from edged.loop import Loop
from edged.media import Bounds, Media
from edged.policy import Policy
from edged.registry import FAMILIES, Registry, Session
from edged.sections import Exec, Files, Mcp, Subagent
from edged.services import Services
from edged.settings import Loaded
from edged.shell import Shell
from edged.store import Store, make_directory
from edged.tokens import Tokens, peer_of
from edged.tool import Permissions, Tool
from edged.tools.sensors import calibrations
from edged.tools.serial import SerialSessions
from edged.transports.unix import Listener, bind
from edged.workspace import Workspace
from edged.workspace.homes import Homes

if TYPE_CHECKING:
    import socket

    from edged.agents.service import Service as AgentsService
    from edged.cron.service import Cron
    from edged.guard import Guard
    from edged.mcp.upstream.servers import Servers
    from edged.messages._outbox import Outbox

GC_THRESHOLD = (5_000, 20, 20)
"""Python's own would look for cycles at every few dozen calls."""

SWITCH_S = 0.0005
"""How long a bus's thread waits for a busy loop: a short transfer's time. Python's own is 5 ms."""

SOCKET_UNIT_NAME = "agents"
HTTP_UNIT_NAME = "http"
SUBJECTS = (
    "discovery",
    "sensors",
    "actuators",
    "gpio",
    "i2c",
    "spi",
    "serial",
    "onewire",
    "web",
    "files",
    "permission",
    "exec",
    "cron",
    "messages",
    "skills",
    "agents",
)
"""Modules of `edged.tools` that are always there; `echo` needs its switch."""

NEEDS: dict[str, Kind] = {"i2c": "i2c", "spi": "spi", "serial": "serial", "onewire": "w1"}
"""Tools that are of no use without anything of that kind."""

NO_CHANNEL = (
    "no channel is configured: write into edged.yaml "
    "messages: {channels: {phone: {kind: ntfy, topic: …}}}, and start edged again"
)
NO_PROVIDER = (
    "no model provider is configured: write into edged.yaml tools: {subagent: {providers: "
    "{local: {base_url: http://127.0.0.1:8080/v1, model: …}}}}, and start edged again"
)


class Options(msgspec.Struct, frozen=True):
    """What the command line says; None is unsaid."""

    config: str | None = None
    data: str | None = None
    socket: str | None = None
    http: str | None = None
    sim: bool = False


ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop the daemon; a second one leaves running calls no more time."""


def serve(options: Options) -> int:
    """Run the daemon in the foreground until SIGTERM or SIGINT; returns the exit code.

    Raises:
        ConfigError: it cannot start; the message says what to mend.
    """
    path = options.config or paths.config_file()
    explicit = options.config is not None or "EDGED_CONFIG" in os.environ
    loaded = settings.load(path, explicit=explicit)
    if options.http is not None:
        listen = [] if options.http == "off" else [options.http]
        http = msgspec.structs.replace(loaded.config.http, listen=listen)
        config = msgspec.structs.replace(loaded.config, http=http)
        loaded = msgspec.structs.replace(loaded, config=config)
    guard = _guard(loaded, path, options)
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(_main(loaded, options))
    finally:
        # Also where the start fails: whatever acts is safe, or another daemon's.
        if guard is not None:
            guard.release()
    return 0


def _guard(loaded: Loaded, path: str | None, options: Options) -> Guard | None:
    """What brings outputs to safety when this process is killed; None where there are none."""
    board = loaded.config.board
    outputs = any(line.direction == "output" for line in board.gpio.values())
    if options.sim or not (outputs or board.actuators):
        return None
    from edged.guard import Guard  # noqa: PLC0415  only where something acts

    return Guard(["--config", os.path.abspath(path)] if path else [])


async def _main(loaded: Loaded, options: Options) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ENDS:
        loop.add_signal_handler(number, stop.set)
    data = os.path.abspath(options.data or paths.data_directory())
    async with Daemon(loaded, data, sim=options.sim) as daemon:
        await daemon.listen(os.path.abspath(options.socket or paths.socket_path()))
        systemd.notify("READY=1")
        for line in daemon.greeting():
            log.info(line)
        daemon.watch()
        # What is there now stays: the collector need not look at it at every turn.
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        sys.setswitchinterval(SWITCH_S)
        await stop.wait()
        for number in ENDS:
            # Said twice: at once.
            loop.add_signal_handler(number, daemon.dispatcher.hurry)
        systemd.notify("STOPPING=1")
        running = daemon.dispatcher.running
        grace = daemon.config.stop_grace
        wait = f": running calls ({running}) may end within {grace}" if running else ""
        hint = "; Ctrl-C again ends them now" if running and sys.stderr.isatty() else ""
        log.info(f"stopping{wait}{hint}")


class Daemon:
    """All parts, wired; `async with` starts and stops them. Loop thread only."""

    def __init__(
        self,
        loaded: Loaded,
        data: str,
        *,
        sim: bool = False,
        clock: Clock | None = None,
        board: Callable[[Publish], Board] | None = None,
        authenticate: Callable[[Mapping[str, str]], Caller | None] | None = None,
    ) -> None:
        """A daemon, not started.

        Args:
            loaded: its configuration.
            data: its directory.
            sim: the simulated board in place of the real one.
            clock: its time.
            board: see `edged.testing`.
            authenticate: likewise.
        """
        self.config: Config = loaded.config
        self.data = data
        self._loaded = loaded
        self._sim = sim
        self._given_board = board
        self._authenticate = authenticate
        self._clock: Clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()
        self._spawned: set[asyncio.Task[None]] = set()
        self._unix: Listener | None = None
        self._sockets: list[str] = []
        self._http: Any = None
        self.control: Control
        self._lock = -1
        self._flush_timer: asyncio.TimerHandle | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._tools: dict[str, Tool] = {}
        self._lacking: set[str] = set()
        self._cron: Cron | None = None
        self._outbox: Outbox | None = None
        self._servers: Servers | None = None
        self._agents: AgentsService | None = None

    async def __aenter__(self) -> Self:
        self._take_data()
        try:
            await self._build()
        except BaseException:
            await self._stack.aclose()
            os.close(self._lock)
            raise
        return self

    async def _build(self) -> None:
        config, clock = self.config, self._clock
        state = Store(os.path.join(self.data, "state"))
        trail = Trail(os.path.join(self.data, "audit"), clock, size(config.audit.size))
        trail.on_first = self._flush_soon
        self._trail = trail
        events = Events(clock)
        board = self._make_board(lambda kind, facts: events.publish(kind, "", facts))
        history = self._open_history(board)
        if history is not None:
            # After the board, whose sensors add to it until they stop.
            self._stack.push_async_callback(history.close)
        await self._stack.enter_async_context(board)
        serial = SerialSessions(clock)
        self._stack.push_async_callback(serial.close)
        await self._stack.enter_async_context(self._tasks)
        self.registry = Registry(
            state.load(Switches.FILE, dict[str, bool], {}),
            {family: self._loaded.is_on(family) for family in FAMILIES},
        )
        finder = Finder(self.registry, self._loaded.section(Mcp).discovery)
        self._stack.callback(finder.close)
        media = Media(self.data, clock, _bounds(config.media))
        policy = Policy(state, clock, events, private=self._private())
        self._stack.callback(policy.close)
        workspace = Workspace(
            self.data,
            Homes(self.data, config.users),
            policy,
            self._loaded.section(Files),
            media=media.file,
            private=self._private(),
        )
        self._stack.push_async_callback(workspace.close)
        self.services = Services(
            config,
            clock,
            self.data,
            state,
            events,
            media,
            trail,
            board,
            self._describe,
            history,
            serial,
            finder=finder,
            web=cache(
                lambda: parts.web(self._loaded, self.services, self.catalogue.runner.isolate)
            ),
            policy=policy,
            workspace=workspace,
            shell=Shell(
                self._loaded.section(Exec),
                self.data,
                clock,
                events,
                workspace,
                lambda: self.catalogue.runner,
                self.spawn,
            ),
            cron=self._open_cron,
            messages=lambda: self._outbox,
            skills=cache(lambda: parts.skills(self._loaded, self.services)),
            mcp_servers=self._open_servers,
            agents=self._open_agents,
            instance=instance(self.data),
        )
        self._outbox = parts.outbox(self._loaded, self.services, self.spawn)
        board.offsets(
            state.load(calibrations(sim=board.simulated), dict[str, dict[str, float]], {})
        )
        self._register()
        loaded = self._loaded
        dispatcher = Dispatcher(
            self.registry, self.services, self.spawn, loaded.secrets, loaded.channels
        )
        self.dispatcher = dispatcher
        self.catalogue = Catalogue(
            self._loaded, self.data, self.registry, dispatcher, self.services, self.spawn
        )
        self.catalogue.runner.on_known.append(self._show_shell)
        tokens = Tokens(state, self.data, clock)
        tokens.on_revoke.append(self._token_ended)
        self.control = Control(
            dispatcher,
            self.catalogue.doors(),
            tokens,
            spawn=self.spawn,
            listeners=self.addresses,
            authenticate=self._authenticate,
            health=self._health,
        )
        self.registry.on_change.append(self._stir_jobs)
        self.registry.on_change.append(
            lambda: self.services.events.publish(
                "tools.changed", "", {"version": self.registry.version}
            )
        )

    def _token_ended(self, name: str) -> None:
        """What a token began and was given is over: a later one of its name may be another's."""
        for part in (self.services.shell, self._agents, self.services.policy):
            try:
                if part is not None:
                    part.end_of(peer_of(name))
            except StoreError as error:
                # The token is none any more: what else goes on by it ends all the same.
                log.error(f"what was granted to token {name} is not stored as gone: {error}")

    def _private(self) -> tuple[str, ...]:
        """The daemon's own files, which no caller is ever granted."""
        credentials = os.environ.get("CREDENTIALS_DIRECTORY", "")
        file = os.path.abspath(self._loaded.file) if self._loaded.file else ""
        beside = os.path.join(os.path.dirname(file), "secrets.yaml") if file else ""
        return tuple(filter(None, (self.data, file, beside, credentials)))

    def _open_cron(self) -> Cron:
        """The jobs; nothing of them is imported before the first one is there or asked for."""
        if self._cron is None:
            tool = self._tools["cron"]
            self._cron = parts.cron(
                self._loaded,
                self.services,
                Errands(self.dispatcher, self.catalogue.doors().fresh),
                spawn=self.spawn,
                is_on=lambda: self.registry.status(tool)[0] == "enabled",
            )
        return self._cron

    def _open_agents(self) -> AgentsService:
        """Agents and subagents, made when first asked for."""
        if self._agents is None:
            errands = Errands(self.dispatcher, self.catalogue.doors().fresh)
            self._agents = parts.agents(self._loaded, self.services, errands, spawn=self.spawn)
        return self._agents

    def _stir_jobs(self) -> None:
        """Their tool may have been switched."""
        if self._cron is not None:
            self._cron.scheduler.stir()

    async def _resume_jobs(self) -> None:
        """Go on with the jobs of an earlier life."""
        try:
            await self._open_cron().open()
        except StoreError as error:
            log.error(f"{error}: jobs do not run until it is mended; `edged jobs` tries again")

    def _open_servers(self) -> Servers:
        if self._servers is None:
            self._servers = parts.mcp_servers(
                self._loaded,
                self.services,
                self.registry,
                sandboxes=lambda: self.catalogue.runner,
                spawn=self.spawn,
            )
        return self._servers

    async def _begin_servers(self) -> None:
        try:
            await self._open_servers().begin()
        except StoreError as error:
            log.error(f"{error}: MCP servers are not there until it is mended")

    async def _resume_messages(self, outbox: Outbox) -> None:
        """Go on with what an earlier life left."""
        try:
            await outbox.open()
        except StoreError as error:
            log.error(f"{error}: messages wait until it is mended")

    def _health(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._cron is not None:
            found["jobs"] = self._cron.health()
        if self._outbox is not None:
            found["messages"] = self._outbox.health()
        if self._servers is not None:
            found["mcp"] = self._servers.health()
        if self._agents is not None:
            found["subagents"] = self._agents.health()
        return found

    def _open_history(self, board: Board) -> History | None:
        config = board.config.history
        sampled = any(s.history and s.every_s > 0 for s in board.config.sensors.values())
        if not config.enabled or not sampled:
            return None
        # What was simulated must never be taken for measured.
        name = "simulated.db" if board.simulated else "samples.db"
        return History(os.path.join(self.data, "history", name), config, self._clock)

    def _make_board(self, publish: Publish) -> Board:
        if self._given_board is not None:
            return self._given_board(publish)
        if self._sim:
            from edged.board.sim import sim_board  # noqa: PLC0415  only where it is asked for

            return sim_board(self._clock, publish=publish)
        try:
            return Board(self.config.board, KernelBuses(self._clock), self._clock, publish=publish)
        except ConfigError as error:
            raise self._loaded.located(error) from None

    async def __aexit__(self, *_: object) -> None:
        if self._unix is not None:
            self._unix.close()
        if self._http is not None:
            self._http.close()
        await self._drain()
        await self._close_parts()
        if self._unix is not None:
            self._unix.close_peers()
        if self._http is not None:
            await self._http.close_connections()
        for task in tuple(self._spawned):
            task.cancel()
        await self._stack.aclose()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._trail.flush()
        for path in self._sockets:
            if os.path.exists(path):
                os.unlink(path)
        os.close(self._lock)

    async def _close_parts(self) -> None:
        """End what tools use."""
        await self.services.shell.close()
        if self._outbox is not None:
            await self._outbox.close(seconds(self.config.stop_grace))
        if self._servers is not None:
            await self._servers.close()
        await self.catalogue.close()

    async def _drain(self) -> None:
        """Begin nothing more, and let what runs end; the jobs' runs are calls as others."""
        if self._cron is not None:
            await self._cron.stop()
        if self._agents is not None:
            self._agents.wind_down()
        await self.dispatcher.drain(seconds(self.config.stop_grace))
        for part in (self._cron, self._agents):
            if part is not None:
                await part.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of the daemon's group; a fault in one ends that one alone."""
        task = self._tasks.create_task(_supervised(work))
        # One that is cancelled before its first step never gets to its work.
        task.add_done_callback(lambda _: work.close())
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    async def listen(self, socket_path: str) -> None:
        """Open the doors.

        Raises:
            ConfigError: an address is taken or cannot be used.
        """
        given = systemd.listening()
        unix = given.get(SOCKET_UNIT_NAME, [])
        listener = Listener(self.control, self.config)
        if unix:
            sock = unix[0]
            self._socket_path = str(sock.getsockname())
        else:
            sock = bind(socket_path, self.config.socket.group)
            self._socket_path = socket_path
            self._sockets.append(socket_path)
        self._unix = listener
        self._sign(self._socket_path)
        # By it a sandbox would be another caller, an owner where it runs as the daemon does.
        self.services.policy.keep_private(self._socket_path)
        await listener.start(sock)
        if self.config.http.listen or HTTP_UNIT_NAME in given:
            await self._listen_http(given.get(HTTP_UNIT_NAME, []))
        self.catalogue.start()
        if not self._sim:
            hotplug = Hotplug(self._plugged)
            hotplug.start()
            self._stack.callback(hotplug.close)
        if os.path.exists(parts.jobs_file(self.data)):
            _ = self.spawn(self._resume_jobs())
        if parts.has_subagents(self.data):
            _ = self.spawn(self._open_agents().resume())
        if self._outbox is not None:
            _ = self.spawn(self._resume_messages(self._outbox))
        if parts.has_mcp_servers(self._loaded, self.services):
            _ = self.spawn(self._begin_servers())
        history = self.services.history
        self.services.board.sample(history.add if history is not None else None)

    async def _listen_http(self, given: list[socket.socket]) -> None:
        from edged.transports.http import HttpListener  # noqa: PLC0415  only where configured

        try:
            self.control.tokens.ensure_first()
        except StoreError as error:
            # A full disk must not keep the daemon down; there are other doors.
            log.error(f"no first HTTP token: {error}: free space and start again")
        self._http = HttpListener(self.control, self.config)
        try:
            await self._http.start(given)
        except ConfigError as error:
            # What another program has, the next start may get: the file is not wrong.
            raise (self._loaded.located(error) if error.key else error) from None
        for address in self._http.addresses():
            if address.startswith("unix:"):
                self.services.policy.keep_private(address.removeprefix("unix:"))

    def addresses(self) -> list[str]:
        """Where the daemon listens."""
        http = self._http.addresses() if self._http is not None else []
        return [f"unix:{self._socket_path}", *http]

    def greeting(self) -> list[str]:
        """What `edged serve` prints."""
        lines = [f"listening on {', '.join(self.addresses())}"]
        if self._loaded.file:
            lines.append(f"configuration: {self._loaded.file}")
        if self._http is not None and os.path.exists(self.control.tokens.first):
            lines.append(f"HTTP token: {self.control.tokens.first}")
        if self._sim:
            lines.append("the board is simulated (--sim)")
            if self.config.board != BoardConfig():
                lines.append("warning: board: of the configuration is not used with --sim")
        lines += [f"warning: {doubt}" for doubt in self._doubts()]
        if self.config.sandbox == "none":
            lines.append("warning: sandbox: none: tools run without a sandbox")
        return lines

    def _doubts(self) -> Iterator[str]:
        """What the configuration says of tools that changes nothing, most probably."""
        for name, one in self._loaded.tools.items():
            if name in self._tools and one.env:
                yield f"tools.{name}.env is not used: {name} is built in, and has no variables"
            elif name not in self._tools and not has_tool(self.data, name):
                from edged.yamlio import nearest  # noqa: PLC0415  loaded already: there is a file

                if guess := nearest(name, [*self._tools, *settings.FAMILIES]):
                    yield f"tools.{name}: no tool has this name; did you mean {guess!r}?"

    def watch(self) -> None:
        """Feed systemd's watchdog from the loop that serves calls."""
        interval = systemd.watchdog_s()
        if interval:
            self._watchdog = self.spawn(_feed_watchdog(interval))

    def _describe(self, caller: Caller, name: str, session: Session | None) -> Description:
        # The control comes after the services that it needs.
        return self.control.describe(caller, name, session)

    def _register(self) -> None:
        names = [*SUBJECTS]
        echo = self._loaded.tools.get("echo")
        if echo is not None and echo.enabled is True:
            names.append("echo")
        for name in names:
            for tool in plugins.load("edged.tools", name).TOOLS:
                one = self._loaded.tools.get(tool.name)
                named = one is not None and one.enabled is False
                off = named or not self._loaded.is_on(tool.config_key)
                shown = tool.out_of_sight() if one is not None and one.hidden else tool
                self._tools[tool.name] = shown.switched_off() if off else shown
        if self._outbox is None:
            for name in ("message", "send_file"):
                self._tools[name] = self._tools[name].blocked("requires_config", NO_CHANNEL)
        if not self._loaded.section(Subagent).providers:
            for name in ("spawn", "spawn_status"):
                self._tools[name] = self._tools[name].blocked("requires_subagent", NO_PROVIDER)
        for tool in self._tools.values():
            self.registry.register(tool)
        self._look_at_hardware()

    def _show_shell(self) -> None:
        """Say in which sandbox commands run, or why they cannot."""
        section = self._loaded.section(Exec)
        runs = self.catalogue.runner.confines(
            Permissions(
                section.network,
                tuple(section.devices),
                timeout_s=seconds(section.timeout_max),
                memory_max=size(section.memory),
            )
        )
        tool = self._tools["exec"].sandboxed(runs.level, runs.permissions)
        if runs.reason_code:
            tool = tool.blocked(runs.reason_code, runs.problem)
        self.registry.register(tool)

    def _look_at_hardware(self) -> None:
        """Tools of buses that the board lacks are blocked until one is plugged in."""
        present = self.services.board.buses.present()
        lacking = {tool for tool, kind in NEEDS.items() if kind not in present}
        for name in self._lacking ^ lacking:
            tool = self._tools[name]
            if name in lacking:
                kind = NEEDS[name]
                tool = tool.blocked("requires_device", f"no {kind} here: {remedy(kind)}")
            self.registry.register(tool)
        self._lacking = lacking

    def _plugged(self) -> None:
        """Hardware came or went."""
        self._look_at_hardware()
        self.services.board.wake()
        self.services.events.publish("hardware.changed", "", {})

    def _take_data(self) -> None:
        """Own the data directory: one daemon at a time."""
        try:
            make_directory(self.data, 0o755)
            path = os.path.join(self.data, "lock")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = os.pread(self._lock, 4096, 0).decode("utf-8", "replace").strip()
            listens = f" and listens on {where}" if where else ""
            reason = f"another daemon uses {self.data}{listens}: stop it, or use --data"
            raise ConfigError(reason) from None
        except StoreError as error:
            raise ConfigError(f"{error}: choose another with --data or DATA_PATH") from None
        except OSError as error:
            reason = f"{self.data} cannot be used: {error.strerror}: choose another with --data"
            raise ConfigError(reason) from None

    def _sign(self, socket_path: str) -> None:
        """Whoever finds the directory finds the daemon."""
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{socket_path}\n".encode(), 0)
        except OSError as error:
            # A courtesy: on a full disk the daemon serves all the same.
            log.warning(f"{self.data}/lock: {error.strerror}")

    def _flush_soon(self) -> None:
        """Write the audit trail in batches; no timer runs when there is nothing to write."""
        if self._flush_timer is None:
            interval = seconds(self.config.audit.interval)
            self._flush_timer = asyncio.get_running_loop().call_later(interval, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._trail.write()
        # A card may take a second over it, which no call should wait for.
        loop = asyncio.get_running_loop()
        self._syncing = loop.run_in_executor(None, self._trail.sync)


async def _supervised(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001  the supervisor: a fault of ours must not end the daemon
        import traceback  # noqa: PLC0415  only for a fault

        log.error(f"a task failed: {traceback.format_exc()}")


async def _feed_watchdog(interval: float) -> None:
    while True:
        systemd.notify("WATCHDOG=1")
        await asyncio.sleep(interval)


def _bounds(media: MediaSettings) -> Bounds:
    return Bounds(
        item_max=size(media.item), total_max=size(media.total), age_max_s=seconds(media.age)
    )
