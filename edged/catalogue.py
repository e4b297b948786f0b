"""The TOOL.md tools of every user: found, kept up to date, and run in sandboxes.

Directories are looked at again by modification time on a list and on a miss, at
most once a second; a big directory is looked at in slices and in the background.
Loop thread only; the first sync and Node's version are had from a thread.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import msgspec

from edged import control, log
from edged.dispatch import Dispatcher
from edged.errors import EdgedError, SandboxSetupError
from edged.registry import Registry
from edged.results import Result
from edged.runner import Runner
from edged.services import Services
from edged.settings import FAMILIES, Loaded
from edged.store import make_directory
from edged.tool import Context, Hints, Status, Tool
from edged.toolmd import discover, manifest
from edged.toolmd.discover import Entry
from edged.toolmd.sync import Report, apply, plan

Spawn = Callable[[Coroutine[Any, Any, None]], object]

CHECK_S = 1.0
"""A directory is looked at again at most this often."""

SLICE = 100
"""Entries looked at before the loop serves others."""

LOOKS_MAX = 3
"""At a directory that changes while it is looked at, before who waits is served."""

SLOW_S = 0.02
"""A directory that takes longer is looked at in the background."""

FIRST_PARAGRAPH_MAX = 600


class _Root(msgspec.Struct):
    """One tools directory and what was found there.

    Attributes:
        changed: modification time of the directory when it was looked at, ns.
        looked: when that was, by the monotonic clock.
        scan: done when the look that goes on is over; None when none does.
        awaited: whether lists and calls wait for that look, or use what is known.
    """

    path: str
    user: str
    entries: list[Entry] = []
    changed: int = 0
    looked: float = float("-inf")
    took_s: float = 0.0
    scanned: bool = False
    scan: asyncio.Future[None] | None = None
    awaited: bool = True


class Catalogue:
    """All tools directories of one data directory."""

    def __init__(
        self,
        loaded: Loaded,
        data: str,
        registry: Registry,
        dispatcher: Dispatcher,
        services: Services,
        spawn: Spawn,
    ) -> None:
        self._loaded = loaded
        self._data = data
        self._registry = registry
        self._clock = services.clock
        self._spawn = spawn
        self._cache_path = os.path.join(data, "cache", "tools.msgpack")
        self._cache = discover.Cache.load(self._cache_path)
        self._roots: dict[str, _Root] = {"": _Root(os.path.join(data, "tools"), "")}
        self._ready: asyncio.Future[None] | None = None
        self._problems: list[str] = []
        self.runner = Runner(loaded, data, dispatcher, services, spawn, self._rebuild_all)

    def doors(self) -> control.Catalogue:
        """What the doors use of it."""
        return control.Catalogue(self.fresh, self.sync, self.health, self.look)

    def start(self) -> None:
        """Begin: seeds, then the global tools; calls of built-in tools do not wait."""
        self._ready = asyncio.get_running_loop().create_future()
        self._spawn(self._begin(self._ready))
        self.runner.start()

    async def _begin(self, ready: asyncio.Future[None]) -> None:
        try:
            self._note(await self._sync_seeds(dry_run=False))
        except EdgedError as error:
            self._problems = [f"seed tools: {error}"]
        for problem in self._problems:
            log.error(problem)
        try:
            await self._look_again(self._roots[""])
        finally:
            ready.set_result(None)
            self._ready = None
        self._save_cache()

    async def close(self) -> None:
        """End every sandbox, and wait for what a thread still writes."""
        if self._ready is not None:
            await asyncio.wait([self._ready])
        await self.runner.close()
        self._save_cache()

    # Looking ------------------------------------------------------------------------------

    def fresh(self, user: str) -> asyncio.Future[None] | None:
        """Look for changes that a user would see; None when nothing needs waiting for."""
        if self._ready is not None:
            done = asyncio.get_running_loop().create_future()
            self._spawn(self._after_ready(user, done))
            return done
        waits = [w for root in self._of(user) if (w := self._look(root)) is not None]
        if not waits:
            return None
        return waits[0] if len(waits) == 1 else asyncio.ensure_future(_all(waits))

    async def _after_ready(self, user: str, done: asyncio.Future[None]) -> None:
        if self._ready is not None:
            await asyncio.shield(self._ready)
        waits = self.fresh(user)
        if waits is not None:
            await waits
        if not done.done():
            done.set_result(None)

    def look(self, user: str) -> None:
        """Look for tools that were added, mended or taken away since; nobody waits for it."""
        if self._ready is None:
            for root in self._of(user):
                broken = any(entry.problem is not None for entry in root.entries)
                if broken or _changed_at(root.path) != root.changed:
                    self._look(root)

    def _of(self, user: str) -> tuple[_Root, _Root]:
        root = self._roots.get(user)
        if root is None:
            path = os.path.join(self._data, user, "tools")
            root = self._roots[user] = _Root(path, user)
        return self._roots[""], root

    def _look(self, root: _Root) -> asyncio.Future[None] | None:
        """Look at one directory if it is time to; what to wait for, if anything."""
        # A directory added or taken away shows at once.
        changed = _changed_at(root.path) != root.changed
        if root.scan is None:
            # Looking costs at most a fiftieth of the time, however big the directory is.
            rested = self._clock.monotonic() - root.looked
            if not changed and rested < max(CHECK_S, 50 * root.took_s):
                return None
            if root.scanned and root.took_s < SLOW_S:
                self._look_now(root)
                return None
            root.awaited = changed or not root.scanned
            root.scan = asyncio.get_running_loop().create_future()
            self._spawn(self._scan(root, root.scan))
        return root.scan if root.awaited or changed else None

    def _look_now(self, root: _Root) -> None:
        """Look at a small directory in one go."""
        started = self._clock.monotonic()
        entries = list(self._entries(root))
        self._take(root, entries, self._clock.monotonic() - started)

    def _entries(self, root: _Root) -> Iterator[Entry]:
        # Taken first: what changes while looking is looked at again.
        root.changed = _changed_at(root.path)
        origin: discover.Origin = "user" if root.user else "global"
        return discover.scan_iter(root.path, origin, self._cache, self._clock.now())

    async def _look_again(self, root: _Root) -> None:
        """Look at a directory from now on, however small or lately seen it is."""
        while root.scan is not None:
            await asyncio.wait([root.scan])
        root.awaited = True
        root.scan = asyncio.get_running_loop().create_future()
        await self._scan(root, root.scan)

    async def _scan(self, root: _Root, over: asyncio.Future[None]) -> None:
        """Look at a directory in slices, and again if one was added or taken away meanwhile."""
        try:
            for _ in range(LOOKS_MAX):
                await self._look_in_slices(root)
                if _changed_at(root.path) == root.changed:
                    break
        finally:
            root.scan = None
            if not over.done():
                over.set_result(None)

    async def _look_in_slices(self, root: _Root) -> None:
        spent = 0.0
        entries: list[Entry] = []
        started = self._clock.monotonic()
        for entry in self._entries(root):
            entries.append(entry)
            if len(entries) % SLICE == 0:
                spent += self._clock.monotonic() - started
                await asyncio.sleep(0)
                started = self._clock.monotonic()
        spent += self._clock.monotonic() - started
        self._take(root, entries, spent)

    def _take(self, root: _Root, entries: list[Entry], took_s: float) -> None:
        root.took_s = took_s
        root.looked = self._clock.monotonic()
        first = not root.scanned
        root.scanned = True
        if first or entries != root.entries:
            root.entries = entries
            self._rebuild(root)

    def _renew(self, root: _Root, entry: Entry, user: str) -> bool:
        """Whether another tool is there now: its files changed, or the user's own overrides it."""
        if not root.user:
            before = self._registry.version
            self.look(user)
            if self._registry.version != before:
                return True
        new = discover.again(entry, self._cache, self._clock.now())
        if new is entry or (new.digest == entry.digest and new.problem == entry.problem):
            return False
        if os.path.isdir(entry.directory):
            root.entries = [new if e.directory == entry.directory else e for e in root.entries]
            self._rebuild(root)
        elif root.took_s < SLOW_S:
            # It may only have been moved.
            self._look_now(root)
        else:
            root.entries = [e for e in root.entries if e.directory != entry.directory]
            self._rebuild(root)
        return True

    def _save_cache(self) -> None:
        if self._cache.changed:
            try:
                make_directory(os.path.dirname(self._cache_path))
                self._cache.save(self._cache_path)
            except EdgedError as error:
                log.warning(str(error))

    # Tools --------------------------------------------------------------------------------

    def _rebuild_all(self) -> None:
        for root in self._roots.values():
            if root.scanned:
                self._rebuild(root)

    def _rebuild(self, root: _Root) -> None:
        # A family's settings and switches stand where a tool's would.
        reserved = self._registry.reserved() | FAMILIES
        tools = [self._tool(root, entry, reserved) for entry in root.entries]
        self._registry.replace_set(root.user, tools)
        self.runner.keep_only(root.user, {e.directory: e.digest for e in root.entries})

    def _tool(self, root: _Root, entry: Entry, reserved: Iterable[str]) -> Tool:
        source = f"{entry.directory}"
        found = entry.manifest
        problem = entry.problem
        if found is None or problem is not None:
            reason = _problem_text(problem) if problem is not None else "cannot be read"
            return _broken(
                entry, source, reason, renew=lambda user: self._renew(root, entry, user)
            )
        if found.name in reserved:
            reason = f"{found.name} is the name of a built-in tool: choose another in TOOL.md"
            return _broken(entry, source, reason, "reserved_name")
        one = self._loaded.tools.get(found.name)
        runs = self.runner.runs(entry)
        status: Status = "blocked" if runs.reason_code else "enabled"
        if one is not None and one.enabled is False:
            status = "disabled"

        async def run(params: msgspec.Struct, ctx: Context) -> Result:
            return await self.runner.run(entry, manifest.arguments(found, params), ctx)

        return Tool(
            found.name,
            run,
            description=_description(found),
            make_type=lambda: manifest.struct(found),
            make_schema=lambda: manifest.schema(found),
            renew=lambda user: self._renew(root, entry, user),
            label=found.label,
            category="user",
            source=source,
            hints=Hints(open_world=runs.permissions.network),
            sensitive=frozenset(i.name for i in found.inputs if i.sensitive),
            timeout_s=runs.permissions.timeout_s,
            body=found.body,
            permissions=runs.permissions,
            status=status,
            reason_code=runs.reason_code,
            problem=runs.problem,
            warnings=found.warnings,
            version=found.version,
            keep_end=found.language == "bash",
            own_deadline=True,
            hidden=one is not None and one.hidden,
            sandbox=runs.level,
        )

    # Seeds --------------------------------------------------------------------------------

    async def sync(self, dry_run: bool) -> dict[str, Any]:
        """Copy seed tools whose version is above the data directory's.

        Raises:
            BusyError, StoreError: it was not done; nothing is lost.
        """
        report = await self._sync_seeds(dry_run=dry_run)
        if not dry_run:
            self._note(report)
            await self._look_again(self._roots[""])
        return msgspec.to_builtins(report)  # type: ignore[no-any-return]  # a Struct becomes a dict

    def _note(self, report: Report) -> None:
        """Keep what a sync could not do for those who look at the status."""
        refused = [(a.name, a.reason) for a in report.actions if a.kind == "refused"]
        failed = [(f.name, f.reason) for f in report.failed]
        self._problems = [f"seed tool {name}: {reason}" for name, reason in refused + failed]

    async def _sync_seeds(self, *, dry_run: bool) -> Report:
        seed, target = seed_directory(), self._roots[""].path
        # A cache of its own: the thread and the loop must not share one.
        cache = discover.Cache.load(self._cache_path)
        now = self._clock.now()
        if dry_run:
            return Report(tuple(await asyncio.to_thread(plan, seed, target, cache, now)))
        return await asyncio.to_thread(apply, seed, target, cache, now)

    def health(self) -> dict[str, Any]:
        """Facts for `edged status`."""
        return {"problems": list(self._problems), **self.runner.health()}


async def _all(waits: list[asyncio.Future[None]]) -> None:
    for wait in waits:
        await wait


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def has_tool(data: str, name: str) -> bool:
    """Whether a directory of that name is among the tools: everyone's, someone's or a seed's.

    Args:
        data: the data directory.
        name: of one part.
    """
    with os.scandir(data) as entries:
        roots = [data, *(entry.path for entry in entries if entry.is_dir())]
    places = [*(os.path.join(root, "tools") for root in roots), seed_directory()]
    return any(os.path.isdir(os.path.join(place, name)) for place in places)


def seed_directory() -> str:
    """Where the tools that came with the daemon lie: in the package, or beside it."""
    here = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(here, "seed", "tools")
    beside = os.path.join(os.path.dirname(here), "seed", "tools")
    return inside if os.path.isdir(inside) else beside


def _problem_text(problem: discover.Problem) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    return f"{place}: {problem.reason}" + (f": {problem.remedy}" if problem.remedy else "")


def _broken(
    entry: Entry,
    source: str,
    reason: str,
    code: str = "invalid",
    renew: Callable[[str], bool] | None = None,
) -> Tool:
    def run(_params: msgspec.Struct, _ctx: Context) -> Result:
        raise SandboxSetupError(reason)

    return Tool(
        entry.name,
        run,
        description=entry.manifest.description if entry.manifest else "",
        make_type=lambda: msgspec.defstruct("Inputs", []),
        renew=renew,
        category="user",
        source=source,
        status="blocked",
        reason_code=code,
        problem=reason,
    )


def _description(found: manifest.Manifest) -> str:
    """The description, and the first paragraph of the body (contract, section 13)."""
    for paragraph in found.body.split("\n\n"):
        text = " ".join(paragraph.split())
        if text and not text.startswith(("#", "```", "|", "- ", "* ", ">")):
            if text in found.description:
                break
            return f"{found.description}\n\n{text[:FIRST_PARAGRAPH_MAX]}"
    return found.description
