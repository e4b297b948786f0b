"""How a stdio server is started: its sandbox, its variables, its own home.

It sees the system's programs, the paths that the configuration lists, and a directory of
its own that stays, where `npx` and `uvx` keep what they fetched. Loop thread only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Callable
from typing import Protocol

from edged.config import size
from edged.errors import ConfigError, SandboxSetupError, StoreError
from edged.mcp.client import Client
from edged.mcp.upstream.stdio import FLOOD_S, StdioLink
from edged.policy import covers
from edged.sandbox import bwrap
from edged.sandbox.account import tool_account
from edged.sandbox.pool import Pool
from edged.sandbox.profile import MIB, Bind, Limits, Profile
from edged.sandbox.run import Job
from edged.sandbox.service import FOREVER_S, Service
from edged.sections import McpServer
from edged.store import make_directory

HOME = "/edged-home"
"""Where a server sees its own directory."""

HOME_MAX = 4 << 30
"""Bytes in the home of a server that is started: each life may add some."""

ENV_FILE_MAX = 64 << 10
NODE_RESERVE = 2 << 30
"""Bytes that Node and its workers map and do not use (see `Limits.data_reserve`)."""

_IN_HOME = re.compile(rf"(?<![\w/]){HOME}(?![\w-])")
_MISSING = re.compile(
    r"no such file|cannot find|can't open|not found|does not exist", re.IGNORECASE
)
_QUOTED = re.compile(r"""(?<![\w/])(/[^\s'"`:,;]+)""")
_SHOWN = ("/usr/", "/bin/", "/sbin/", "/lib")


class Sandboxes(Protocol):
    """What runs programs: `edged.runner.Runner`."""

    @property
    def is_off(self) -> bool:
        """Whether the operator switched the sandbox off."""

    async def pool(self) -> Pool:
        """What runs sandboxes; raises SandboxSetupError where nothing can."""


def home_of(data: str, name: str) -> str:
    """The directory that stays, of the server of a name."""
    return os.path.join(data, "mcp", name)


class Program:
    """One stdio server."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        sandboxes: Sandboxes,
        *,
        data: str,
        base: str,
        sockets: Callable[[], tuple[str, ...]] = tuple,
        flood_s: float = FLOOD_S,
    ) -> None:
        """A program that was not started.

        Args:
            name: the server's.
            settings: the server's.
            sandboxes: what runs it.
            data: the data directory; its own is below it.
            base: the configuration's directory, to which `env_file` may be relative.
            sockets: of the daemon, which no server is shown.
            flood_s: see `StdioLink`.
        """
        self._name, self._settings, self._sandboxes = name, settings, sandboxes
        self._home = home_of(data, name)
        self._data, self._base, self._flood_s = data, base, flood_s
        self._sockets = sockets

    async def open(self, client: Client) -> StdioLink:
        """Start it, and link a client to it.

        Raises:
            SandboxSetupError: there is no sandbox, or nothing to start in it.
            ConfigError: its env_file cannot be read.
        """
        pool = await self._sandboxes.pool()
        variables = self._variables()
        await asyncio.to_thread(self._prepare)
        service = pool.serve(self._job(variables))
        return _Link(pool, service, client, self, flood_s=self._flood_s)

    def _job(self, env: dict[str, str]) -> Job:
        settings = self._settings
        self._check_sockets()
        binds = [Bind(self._home, HOME, write=True, anchor=self._data)]
        binds += [Bind(path, path) for path in dict.fromkeys(settings.read)]
        binds += [Bind(path, path, write=True) for path in dict.fromkeys(settings.write)]
        profile = Profile(
            binds=tuple(binds),
            env=tuple(sorted(env.items())),
            cwd=HOME,
            network=settings.has_network,
            devices=tuple(f"/dev/{name}" for name in settings.devices),
            limits=Limits(
                cpu_s=FOREVER_S,
                memory_max=size(settings.memory),
                tasks_max=256,
                file_size_max=512 * MIB,
                disk_max=1024 * MIB,
                files_max=200_000,
                nofile=1024,
                data_reserve=NODE_RESERVE,
            ),
            free_env=True,
        )
        argv = (self._command(), *settings.argv[1:])
        key = ("", "mcp", self._name)
        return Job(key, self._name, "shell", argv, profile, warm=False, hosted=False)

    def _check_sockets(self) -> None:
        """Refuse paths by which it would be a caller of the daemon, perhaps an owner.

        Raises:
            SandboxSetupError: names the path, and the socket in it.
        """
        for path in (*self._settings.read, *self._settings.write):
            real = os.path.realpath(path)
            shown = next((one for one in self._sockets() if covers(real, one)), "")
            if shown and not self._sandboxes.is_off:
                raise SandboxSetupError(
                    f"{path} shows it {shown}, by which it could give orders to edged: list "
                    "narrower paths in `read` and `write`"
                )

    def _command(self) -> str:
        """The program, as it is found in the sandbox.

        Raises:
            SandboxSetupError: it is not there, or not shown; says what to do.
        """
        command = self._settings.command
        if command.startswith("~/"):
            command = os.path.expanduser(command)
        if "/" not in command:
            if shutil.which(command, path=bwrap.PATH) is None and not self._sandboxes.is_off:
                raise SandboxSetupError(
                    f"there is no program {command!r} in {bwrap.PATH}: install it there, or "
                    "write its whole path as `command`"
                )
            return command
        if not os.path.exists(command):
            more = "; its arguments go to `args`" if " " in command else ""
            raise SandboxSetupError(f"there is no program {command}: check its `command`{more}")
        for path in dict.fromkeys((command, os.path.realpath(command))):
            if not self._is_shown(path) and not self._sandboxes.is_off:
                folder = os.path.dirname(path)
                raise SandboxSetupError(
                    f"{path} is not shown in its sandbox: add read: [{folder}], or the directory "
                    "that has all of the program"
                )
        return command

    def _is_shown(self, path: str) -> bool:
        listed = (*self._settings.read, *self._settings.write)
        return path.startswith(_SHOWN) or any(
            path == one or path.startswith(f"{one.rstrip('/')}/") for one in listed
        )

    def seen_here(self, text: str) -> str:
        """A text of the program with its home named as it is on the board."""
        return _IN_HOME.sub(lambda _: self._home, text)

    def explained(self, cause: str) -> str:
        """Why it ended, with what to do where it lacks a path that is on the board."""
        if _MISSING.search(cause) is None or self._sandboxes.is_off:
            return cause
        named = [found.group(1) for found in _QUOTED.finditer(cause)]
        for word in (*named, *self._settings.argv[1:]):
            if not word.startswith("/") or word.startswith(self._home) or self._is_shown(word):
                continue
            if (word in named or word in cause) and os.path.exists(word):
                return f"{cause}: {word} exists here, but the server may not see it: --read {word}"
        if self._home in cause and any(_is_lacking(cause, w) for w in self._settings.argv[1:]):
            return f"{cause}: it begins in a home of its own: write the whole path"
        return cause

    def _variables(self) -> dict[str, str]:
        settings = self._settings
        found = {"HOME": HOME, "npm_config_update_notifier": "false", "PYTHONUNBUFFERED": "1"}
        if settings.env_file:
            found |= self._from_file(settings.env_file)
        return found | {name: _text(value) for name, value in settings.env.items()}

    def _from_file(self, file: str) -> dict[str, str]:
        path = os.path.join(self._base, os.path.expanduser(file))
        try:
            with open(path, encoding="utf-8-sig") as opened:
                text = opened.read(ENV_FILE_MAX + 1)
        except OSError as error:
            reason = f"its env_file cannot be read: {error.strerror}"
            raise ConfigError(reason, file=path) from None
        except UnicodeDecodeError:
            raise ConfigError("its env_file is not UTF-8", file=path) from None
        if len(text) > ENV_FILE_MAX:
            raise ConfigError(f"its env_file has over {ENV_FILE_MAX >> 10} KiB", file=path)
        return env_file(text, path)

    def _prepare(self) -> None:
        """Make its own directory, the tools' account's where the daemon is root."""
        try:
            make_directory(self._home, 0o700)
            if os.geteuid() == 0:
                account = tool_account()
                os.chmod(os.path.dirname(self._home), 0o755)  # noqa: S103  to be entered
                os.chown(self._home, account.uid, account.gid, follow_symlinks=False)
        except (OSError, StoreError) as error:
            raise SandboxSetupError(f"{self._home}: {error}") from None
        if stored(self._home, HOME_MAX) >= HOME_MAX:
            limit = HOME_MAX >> 30
            raise SandboxSetupError(f"{self._home} has over {limit} GiB: remove what can go")


class _Link(StdioLink):
    """A link that gives its program back to the pool, and names things as they are here."""

    def __init__(
        self, pool: Pool, service: Service, client: Client, program: Program, *, flood_s: float
    ) -> None:
        self._pool, self._program = pool, program
        super().__init__(service, client, flood_s=flood_s)

    @property
    def errors(self) -> str:
        return self._program.seen_here(super().errors)

    def _explained(self, cause: str) -> str:
        return self._program.explained(cause)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._pool.give_back(self._service)


def _is_lacking(cause: str, word: str) -> bool:
    """Whether a relative path of its arguments is what it did not find."""
    return not word.startswith(("/", "-", "@")) and f"/{word.removeprefix('./')}" in cause


def stored(directory: str, enough: int) -> int:
    """Bytes on disk below a directory; no more is counted than is enough."""
    total, waiting = 0, [directory]
    while waiting and total < enough:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                total += status.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return total


def env_file(text: str, path: str) -> dict[str, str]:
    """Variables of a file: `NAME=value` a line, `#` comments, quotes around a value.

    Raises:
        ConfigError: a line is neither; with its number.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip().removeprefix("export ").strip()  # noqa: PLW2901  as it is read
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not (name.isascii() and name.isidentifier()):
            raise ConfigError("write NAME=value", file=path, line=number)
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found[name] = value
    return found


def _text(value: str | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
