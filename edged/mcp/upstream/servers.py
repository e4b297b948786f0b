"""All other MCP servers: those of the configuration, and those that owners added.

Each lives on its own; none delays the daemon's start or another one. Their tools go into
the registry, also before a server was started, from what it listed the last time. Loop
thread only.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Coroutine
from typing import Any, NamedTuple

import msgspec

from edged import disguise, log
from edged.acts import McpServers
from edged.clock import Clock
from edged.config import ToolSettings, seconds, size
from edged.errors import (
    EdgedError,
    ExistsError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    StoreError,
    UpstreamError,
)
from edged.mcp.client import LIST_MAX, Client, Listing, RemoteTool
from edged.mcp.upstream import names
from edged.mcp.upstream.programs import Program, Sandboxes, home_of
from edged.mcp.upstream.server import Known, Open, Opened, Server, Timing
from edged.mcp.upstream.tool import Given, UpstreamTool
from edged.mcp.upstream.view import Health, Removed, Row
from edged.registry import Registry
from edged.results import Result, mask, mask_result
from edged.sections import Mcp, McpServer, check_server_name
from edged.store import Store, make_directory, unlink, write_atomic
from edged.tool import Context, Permissions, Status, Tool

ADDED = McpServers.FILE
"""Of the store: servers that owners added, secrets and all (mode 0600)."""

KEPT_MAX = 2 * LIST_MAX
"""Bytes of what is kept of one server's list; a larger file is not read."""

DISCOVERY = "mcp.discovery"
"""The family of the searches."""

NAMES_SHOWN = 10
"""Tools that are named where all are left out."""

SERVERS_MAX = 64
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH")


class Surroundings(msgspec.Struct, frozen=True):
    """What servers are handed.

    Attributes:
        data: the data directory.
        base: the configuration's directory.
        tools: settings of single tools, by their published names.
        secrets: values that no status may show.
        instance: of this daemon, whose own tools it takes from nobody.
        sockets: of this daemon, which no server is shown.
    """

    data: str
    base: str
    store: Store
    registry: Registry
    clock: Clock
    sandboxes: Callable[[], Sandboxes]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    publish: Callable[[str, str, dict[str, Any]], None]
    tools: dict[str, ToolSettings] = {}
    secrets: tuple[str, ...] = ()
    instance: str = ""
    sockets: Callable[[], tuple[str, ...]] = tuple


class _Published(NamedTuple):
    """What a server listed the last time, what was made of it, and why the rest was not."""

    tools: list[RemoteTool]
    found: list[Tool]
    refused: tuple[str, ...]


class Servers:
    """All of them."""

    def __init__(self, section: Mcp, around: Surroundings, timing: Timing = Timing()) -> None:  # noqa: B008
        """Nothing is started yet.

        Args:
            section: the configuration's.
            around: see there.
            timing: see there.
        """
        self._section, self._around, self._timing = section, around, timing
        self._added = around.store.load(ADDED, dict[str, McpServer], {})
        self._servers: dict[str, Server] = {}
        self._published: dict[str, _Published] = {}
        self._is_hiding = around.registry.is_on(DISCOVERY)
        around.registry.on_change.append(self._on_switch)

    def _settings(self) -> dict[str, McpServer]:
        """All by name; what an owner added wins."""
        return {**self._section.servers, **self._added}

    async def begin(self) -> None:
        """Publish what is known, and start those that are to be there."""
        if not self._section.enabled:
            return
        for name, settings in self._settings().items():
            if settings.enabled:
                await self._begin(name, settings)

    async def _begin(self, name: str, settings: McpServer) -> None:
        known = await asyncio.to_thread(self._known, name, settings)
        server = Server(
            name,
            settings,
            self._opener(name, settings),
            spawn=self._around.spawn,
            learnt=self._learnt,
            changed=self._told,
            known=known,
            plain=lambda text: self._plain(text, settings),
            timing=self._timing,
            instance=self._around.instance,
        )
        self._servers[name] = server
        if known is not None:
            server.left_out = await self._publish(server, known.tools)
        if self._servers.get(name) is server:
            # Nobody removed it meanwhile.
            server.begin()

    def _opener(self, name: str, settings: McpServer) -> Open:
        around = self._around
        if settings.link == "stdio":

            async def start(client: Client) -> Opened:
                program = Program(
                    name,
                    settings,
                    around.sandboxes(),
                    data=around.data,
                    base=around.base,
                    sockets=around.sockets,
                    flood_s=self._timing.flood,
                )
                return await program.open(client)

            return start

        async def dial(client: Client) -> Opened:
            from edged.mcp.upstream.web import HttpLink, SseLink  # noqa: PLC0415  with the first

            if settings.link == "http":
                return HttpLink(settings.url, settings.headers, client)
            link = SseLink(settings.url, settings.headers, client)
            try:
                await link.open()
            except BaseException:
                await link.close()
                raise
            return link

        return dial

    def _told(self, server: Server) -> None:
        facts = {"server": server.name, "state": server.state, "error": server.error}
        self._around.publish("mcp.server", "", facts)

    # Tools ----------------------------------------------------------------------------------

    async def _learnt(self, server: Server, listing: Listing) -> tuple[str, ...]:
        """Publish a list, and keep it for the next start; what could not be published."""
        before = self._published.get(server.name)
        tools = await asyncio.to_thread(self._plain_tools, listing.tools, server.settings)
        unnamed = len(listing.tools) - len(tools)
        told = (f"{unnamed} tools with a secret for a name",) if unnamed else ()
        if before is not None and before.tools == tools:
            # As it was: whoever has the list need not be told.
            return (*told, *before.refused)
        refused = await self._publish(server, tools)
        known = Known(_mark(server.settings), server.era, tools)
        _ = self._around.spawn(self._keep(server.name, known))
        return (*told, *refused)

    async def _publish(self, server: Server, tools: list[RemoteTool]) -> tuple[str, ...]:
        """Put a list into the registry; what of it could not be published."""
        found, refused = await asyncio.to_thread(self._made, server, tools, self._settings())
        if self._servers.get(server.name) is server:
            self._published[server.name] = _Published(tools, found, refused)
            self._show(server)
        return refused

    def _on_switch(self) -> None:
        """Hide the tools, or list them, where an owner switched the search for them."""
        is_hiding = self._around.registry.is_on(DISCOVERY)
        if is_hiding == self._is_hiding:
            return
        self._is_hiding = is_hiding
        for name in [*self._published]:
            if name in self._servers:
                self._show(self._servers[name])

    def _show(self, server: Server) -> None:
        """Have the registry hold what was made of a server's list."""
        found = self._published[server.name].found
        hidden = server.settings.deferred
        if hidden is msgspec.UNSET:
            # What nothing could find is not hidden.
            hidden = self._is_hiding
        for tool in found:
            one = self._around.tools.get(tool.name)
            tool.hidden = bool(hidden) or (one is not None and one.hidden)
        server.count = len(found)
        self._around.registry.replace_group(f"mcp {server.name}", found)

    def _made(
        self, server: Server, tools: list[RemoteTool], everyone: Collection[str]
    ) -> tuple[list[Tool], tuple[str, ...]]:
        """Tools to publish, and why others are not; in a thread: schemas may be large."""
        settings, refused = server.settings, []
        found: dict[str, UpstreamTool] = {}
        for remote in tools:
            if not _is_wanted(remote.name, settings):
                continue
            name = names.published(server.name, remote.name, everyone)
            if name in found:
                other = found[name].remote[:60]
                refused.append(f"tool {remote.name[:60]!r}: it would have the name of {other!r}")
                continue
            try:
                found[name] = self._tool(server, name, remote)
            except (ValueError, RecursionError) as error:
                refused.append(f"tool {remote.name[:60]!r}: {error}")
        refused += _idle_patterns([remote.name for remote in tools], settings)
        return [*found.values()], tuple(refused)

    def _tool(self, server: Server, name: str, remote: RemoteTool) -> UpstreamTool:
        settings = server.settings
        one = self._around.tools.get(name)
        status: Status = "disabled" if one is not None and one.enabled is False else "enabled"
        secrets, is_program = _secrets(settings), settings.link == "stdio"

        async def run(params: Given, ctx: Context) -> Result:
            result = await server.call(remote.name, params, ctx)
            if is_program and self._around.sandboxes().is_off:
                result.sandbox = "none"
            return mask_result(result, secrets) if secrets else result

        return UpstreamTool(
            name,
            remote,
            run,
            source=f"mcp server {server.name}",
            timeout_s=seconds(settings.timeouts.get(remote.name, settings.timeout)),
            permissions=_permissions(settings),
            status=status,
            via=remote.via,
        )

    # What is kept ---------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return os.path.join(self._around.data, "cache", "mcp", f"{name}.json")

    def _known(self, name: str, settings: McpServer) -> Known | None:
        """What the server listed the last time; any thread."""
        try:
            with open(self._path(name), "rb") as file:
                if os.fstat(file.fileno()).st_size > KEPT_MAX:
                    return None
                known = msgspec.json.decode(file.read(), type=Known)
        except (OSError, msgspec.DecodeError, RecursionError):
            return None
        if known.mark != _mark(settings):
            return None
        return msgspec.structs.replace(known, tools=self._plain_tools(known.tools, settings))

    async def _keep(self, name: str, known: Known) -> None:
        def write() -> None:
            path = self._path(name)
            make_directory(os.path.dirname(path))
            write_atomic(path, msgspec.json.encode(known))

        try:
            await asyncio.to_thread(write)
        except EdgedError as error:
            log.warning(f"MCP server {name}: its tools are not kept for the next start: {error}")

    # Owners' acts ---------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """All of them, by name."""
        return [self._row(name) for name in sorted(self._settings())]

    def row(self, name: str) -> Row:
        """One of them.

        Raises:
            NotFoundError: none of that name.
        """
        if name not in self._settings():
            raise NotFoundError(f"no MCP server named {name[:60]!r}")
        return self._row(name)

    def _row(self, name: str) -> Row:
        settings = self._settings()[name]
        server = self._servers.get(name)
        health = server.health() if server is not None else Health("stopped", settings.link, 0)
        health = msgspec.structs.replace(
            health,
            left_out=tuple(self._plain(one, settings) for one in health.left_out),
            stderr=self._plain(health.stderr, settings),
            server=mask(health.server, self._secrets(settings)),
        )
        return Row(
            name,
            "added" if name in self._added else "configuration",
            settings.enabled and self._section.enabled,
            settings.link,
            self._plain(_target(settings), settings),
            health,
            tuple(settings.env),
            tuple(settings.headers),
        )

    def _plain(self, text: str, settings: McpServer | None = None) -> str:
        """A text for people, without secrets."""
        shown: str = mask(text, self._secrets(settings))
        return shown

    def _secrets(self, settings: McpServer | None) -> tuple[str, ...]:
        own = _secrets(settings) if settings is not None else ()
        return (*self._around.secrets, *own)

    def _plain_tools(self, tools: list[RemoteTool], settings: McpServer) -> list[RemoteTool]:
        """Tools without secrets; any thread. One whose name has one could not be called."""
        secrets = self._secrets(settings)
        if not secrets:
            return tools
        clean = [mask(msgspec.to_builtins(tool), secrets) for tool in tools]
        return [
            msgspec.convert(one, RemoteTool)
            for one, tool in zip(clean, tools, strict=True)
            if one["name"] == tool.name
        ]

    async def add(self, name: str, settings: McpServer, *, replace: bool = False) -> Row:
        """Add one; stored before it is started.

        Raises:
            InvalidArgumentsError: no such name, or what it is to reach is not on the board.
            ExistsError: there is one.
            StoreError: it is not stored.
        """
        try:
            check_server_name(name)
        except ValueError as error:
            raise InvalidArgumentsError([Fault("name", str(error))]) from None
        lacking = await asyncio.to_thread(_lacking, settings)
        if lacking:
            raise InvalidArgumentsError(lacking)
        if name in self._settings() and not replace:
            raise ExistsError(f"there is an MCP server {name}: give --replace to change it")
        if len(self._settings()) >= SERVERS_MAX and name not in self._settings():
            raise InvalidArgumentsError(
                [Fault("name", f"there are {SERVERS_MAX} servers already")]
            )
        added = {**self._added, name: settings}
        self._around.store.save(ADDED, added)
        self._added = added
        await self._again(name)
        return self._row(name)

    async def remove(self, name: str, *, purge: bool = False) -> Removed:
        """Remove one that was added; where the configuration has one too, that holds again.

        Args:
            name: the server's.
            purge: erase its home too, also that of one that was removed before.

        Raises:
            NotFoundError: none was added under that name.
            StoreError: it is not stored, or its home is not erased.
        """
        home = home_of(self._around.data, name)
        if purge and self._is_gone(name) and await asyncio.to_thread(os.path.isdir, home):
            await asyncio.to_thread(_erase, home)
            return Removed()
        if name not in self._added:
            if name in self._section.servers:
                raise NotFoundError(
                    f"MCP server {name} is in edged.yaml: remove it there and start edged again, "
                    "or write enabled: false"
                )
            raise NotFoundError(f"no MCP server named {name[:60]!r} was added")
        added = {key: value for key, value in self._added.items() if key != name}
        self._around.store.save(ADDED, added)
        self._added = added
        await self._again(name)
        if name in self._section.servers:
            # It is that one's.
            return Removed()
        if purge:
            await asyncio.to_thread(_erase, home)
        is_left = await asyncio.to_thread(_is_left, home)
        return Removed(home=home if is_left else msgspec.UNSET)

    def _is_gone(self, name: str) -> bool:
        """Whether a name could be that of a server, and is that of none."""
        try:
            check_server_name(name)
        except ValueError:
            return False
        return name not in self._settings()

    def forget(self, names: list[str]) -> None:
        """Some are no longer in the store."""
        self._added = {key: value for key, value in self._added.items() if key not in names}
        for name in names:
            _ = self._around.spawn(self._again(name))

    async def _again(self, name: str) -> None:
        """End a server and start what the settings say now."""
        server = self._servers.pop(name, None)
        if server is not None:
            await server.close()
            self._around.registry.replace_group(f"mcp {name}", [])
            self._published.pop(name, None)
        settings = self._settings().get(name)
        if settings is None:
            await asyncio.to_thread(unlink, self._path(name))
        elif settings.enabled and self._section.enabled:
            await self._begin(name, settings)

    async def test(self, name: str) -> Row:
        """Start a server if it is not there, and ask it for its tools.

        Raises:
            NotFoundError: none of that name.
            UpstreamError: it does not start or answer; says why.
        """
        row = self.row(name)
        server = self._servers.get(name)
        if server is None:
            where = "tools.mcp is" if not self._section.enabled else "it is"
            raise UpstreamError(f"MCP server {name}: {where} switched off (enabled: false)")
        limit = seconds(server.settings.connect)
        try:
            async with asyncio.timeout(2 * limit):
                client = await server.tried()
                await client.tools()
        except TimeoutError:
            raise UpstreamError(f"MCP server {name}: no answer within {2 * limit:g} s") from None
        return self.row(row.name)

    def health(self) -> dict[str, Any]:
        """For `edged status`: each server's state, error and the end of its stderr."""
        return {row.name: msgspec.to_builtins(row.health) for row in self.rows() if row.enabled}

    async def close(self) -> None:
        """End all of them, together."""
        self._around.registry.on_change.remove(self._on_switch)
        await asyncio.gather(*(server.close() for server in self._servers.values()))


def _lacking(settings: McpServer) -> list[Fault]:
    """What a stdio server is to reach and is not there; any thread."""
    paths = [(key, path) for key in ("read", "write") for path in getattr(settings, key)]
    found = [
        Fault(f"server.{key}", f"there is no {path}")
        for key, path in paths
        if not os.path.lexists(path)
    ]
    return found + [
        Fault("server.devices", f"there is no /dev/{name}: plug it in, or see edged scan")
        for name in settings.devices
        if not os.path.lexists(f"/dev/{name}")
    ]


def _is_left(home: str) -> bool:
    """Whether a home has anything; an empty one goes."""
    try:
        os.rmdir(home)
    except OSError:
        return os.path.isdir(home)
    return False


def _erase(home: str) -> None:
    try:
        # What it made read-only is to go as well.
        for folder, _, _ in os.walk(home):
            os.chmod(folder, 0o700)
        if os.path.lexists(home):
            shutil.rmtree(home)
    except OSError as error:
        raise StoreError(f"{home} is not erased whole: {error.strerror}") from None


def _permissions(settings: McpServer) -> Permissions | None:
    """What a stdio server may use; of one elsewhere nobody knows."""
    if settings.link != "stdio":
        return None
    return Permissions(
        settings.has_network,
        tuple(settings.devices),
        env=tuple(settings.env),
        timeout_s=seconds(settings.timeout),
        memory_max=size(settings.memory),
    )


def _target(settings: McpServer) -> str:
    """What it runs or where it is, for people: what looks like a secret is not for them."""
    if not settings.url:
        return " ".join(disguise.words(settings.argv))
    scheme, mark, rest = settings.url.partition("://")
    host, slash, path = rest.partition("/")
    return disguise.url(f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}")


def _is_wanted(tool: str, settings: McpServer) -> bool:
    def is_in(patterns: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(tool, pattern) for pattern in patterns)

    return (not settings.allow or is_in(settings.allow)) and not is_in(settings.deny)


def _idle_patterns(tools: list[str], settings: McpServer) -> list[str]:
    """What is likely to be a mistake in `allow` and `deny`: patterns that match nothing."""
    found = [
        f"{key}: {pattern[:60]!r} is none of its tools"
        for key, patterns in (("allow", settings.allow), ("deny", settings.deny))
        for pattern in patterns
        if tools and not fnmatch.filter(tools, pattern)
    ]
    if tools and not any(_is_wanted(tool, settings) for tool in tools):
        few = ", ".join(tool[:60] for tool in tools[:NAMES_SHOWN])
        more = ", …" if len(tools) > NAMES_SHOWN else ""
        found.append(f"all of its tools, by allow and deny: {few}{more}")
    return found


def _mark(settings: McpServer) -> str:
    """Of what decides which server it is; its secrets are no part that could be read."""
    parts = [settings.argv, settings.url, settings.type, sorted(settings.env)]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def _secrets(settings: McpServer) -> tuple[str, ...]:
    """Values that no result may show: of headers, and of variables that are called secret."""
    named = [
        str(value)
        for name, value in settings.env.items()
        if any(word in name.upper() for word in _SECRET_WORDS)
    ]
    bare = [value.partition(" ")[2] for value in settings.headers.values() if " " in value]
    return tuple(filter(None, (*settings.headers.values(), *bare, *named)))
