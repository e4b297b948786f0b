"""Skills as the tools use them: found, installed, kept up to date, listed and read.

Laws: only two directories are looked into, a caller's own and the one for everyone; the
registries of the configuration are the only ones; what a registry holds against a skill
is known before a byte of it is fetched. Loop thread only; files are touched in threads.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import random
import tempfile
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

import msgspec

from edged import log, plugins
from edged.clock import Clock, iso
from edged.errors import (
    DeniedError,
    EdgedError,
    ExistsError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    RemoteProtocolError,
    StoreError,
)
from edged.identity import Caller
from edged.sandbox.account import Account
from edged.sections import SkillRegistry
from edged.sections import Skills as Section
from edged.sections import Web as WebSection
from edged.skills import names
from edged.skills.registries import Fetched, Hit, MismatchError, Registry, Release
from edged.skills.registries.directory import Registry as Directory
from edged.skills.shelf import Entry, Shelf, files_of, read_lock, read_skill
from edged.skills.stage import Lock, digest_of
from edged.store import failed
from edged.toolmd.discover import Problem, read_inside

if TYPE_CHECKING:
    from edged.skills.client import Client

T = TypeVar("T")

SEARCHES = 2
"""Registries that are asked at once."""

KEPT_S = 300.0
KEPT = 50
"""Searches whose answers are kept, and for how long."""

FILES_SHOWN = 200
FILE_SHOWN = 1 << 20
SEED = "seed"
"""The registry that came with the daemon, in locks."""


class Found(msgspec.Struct, frozen=True):
    """What a search found, and which registries it could not ask."""

    hits: list[Hit]
    notes: list[str]


class Row(msgspec.Struct, frozen=True):
    """One skill of a list.

    Attributes:
        name: to read it by.
        description: one line; empty where it cannot be loaded.
        scope: whose it is.
        version: installed; empty where it is not known.
        source: where it came from; empty where a person put it there.
        path: as a caller's tools know it.
        problem: why it cannot be used; empty where it can.
        warnings: faults that it is used with.
    """

    name: str
    description: str
    scope: Literal["user", "everyone"]
    version: str
    source: str
    path: str
    problem: str = ""
    warnings: tuple[str, ...] = ()


class Shown(msgspec.Struct, frozen=True):
    """One skill, whole."""

    row: Row
    body: str
    license: str
    compatibility: str
    allowed_tools: tuple[str, ...]
    files: list[str]
    more_files: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What came of installing or updating one skill."""

    name: str
    outcome: Literal["installed", "updated", "current", "pinned", "skipped"]
    version: str
    before: str = ""
    source: str = ""
    path: str = ""
    files: int = 0
    warnings: tuple[str, ...] = ()
    note: str = ""


class Skills:
    """All skills of a data directory.

    Args:
        data: the data directory.
        section: of the configuration.
        web: that of the web tools: its proxy, and what may be dialled.
        clock: for what is kept, and for locks.
        account: whom users' files belong to, where the daemon is root.
        seed: directory of skills that came with the daemon; need not be there.
        changed: told of each change: `changed(user, facts)`.
        sleep: how to wait.
        jitter: see `edged.skills.client.Client`.
    """

    def __init__(
        self,
        data: str,
        section: Section,
        *,
        web: WebSection | None = None,
        clock: Clock,
        account: Callable[[], Account],
        seed: str = "",
        changed: Callable[[str, dict[str, Any]], None] = lambda _user, _facts: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._data = data
        self._section = section
        self._web = web or WebSection()
        self._clock = clock
        self._account = account
        self._seed = seed
        self._changed = changed
        self._sleep = sleep
        self._jitter = jitter
        self._registries: dict[str, Registry] | None = None
        self._shelves: dict[str, Shelf] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._prepared: set[str] = set()
        self._kept: dict[tuple[str, str, int], tuple[float, list[Hit]]] = {}

    # Finding ------------------------------------------------------------------------------

    async def find(self, query: str, limit: int, source: str = "") -> Found:
        """Skills by words, from every registry that can be asked.

        Raises:
            EdgedError: none could be; the first one's words.
        """
        all_ = self._all()
        asked = [self._named(source)] if source else list(all_.values())
        if not asked:
            raise NotFoundError("no registry is configured: see tools.skills.registries")
        gate = asyncio.Semaphore(SEARCHES)
        async with self._client() as client:

            async def ask(registry: Registry) -> list[Hit] | EdgedError:
                async with gate:
                    try:
                        return await self._search(client, registry, query, limit)
                    except EdgedError as error:
                        return error

            answers = await asyncio.gather(*(ask(registry) for registry in asked))
        faults = [one for one in answers if isinstance(one, EdgedError)]
        if len(faults) == len(answers):
            raise faults[0]
        lists = [one for one in answers if not isinstance(one, EdgedError)]
        # The first of each, then the second: no two registries count alike.
        deepest = max(map(len, lists))
        hits = [one[i] for i in range(deepest) for one in lists if i < len(one)]
        return Found(hits[:limit], [str(fault) for fault in faults])

    async def _search(
        self, client: Client, registry: Registry, query: str, limit: int
    ) -> list[Hit]:
        key = (registry.name, " ".join(query.casefold().split()), limit)
        now = self._clock.monotonic()
        until, hits = self._kept.get(key, (0.0, []))
        if now < until:
            return hits
        hits = await registry.search(client, query, limit)
        while len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (now + KEPT_S, hits)
        return hits

    def _client(self) -> Client:
        from edged.skills.client import Client  # noqa: PLC0415  aiohttp, only to ask a registry
        from edged.web.guard import Guard, parse_allowed  # noqa: PLC0415  likewise

        return Client(
            self._clock,
            guard=Guard(parse_allowed(self._web.private_host_whitelist)),
            proxy=self._web.proxy,
            sleep=self._sleep,
            jitter=self._jitter,
        )

    def _all(self) -> dict[str, Registry]:
        if self._registries is None:
            on = {k: one for k, one in self._section.registries.items() if one.enabled}
            self._registries = {
                name: plugins.load("edged.skills.registries", one.kind_of(name)).Registry(
                    name, one, on
                )
                for name, one in on.items()
            }
        return self._registries

    def _named(self, source: str) -> Registry:
        """A registry by its name, or by its address in the configuration.

        Raises:
            InvalidArgumentsError: it is none of the configured.
        """
        found = self._all().get(source)
        if found is not None:
            return found
        for name, registry in self._all().items():
            one = self._section.registries[name]
            if source.rstrip("/") in (one.url.rstrip("/"), one.path.rstrip("/")):
                return registry
        known = ", ".join(self._all()) or "none"
        reason = f"{names.line(source, 100)!r} is no registry of the configuration: {known}"
        raise InvalidArgumentsError([Fault("source", reason)])

    # Installing ---------------------------------------------------------------------------

    async def install(
        self,
        caller: Caller,
        reference: str,
        *,
        source: str = "",
        version: str = "",
        force: bool = False,
        everyone: bool = False,
    ) -> Outcome:
        """Install a skill, or another version of it.

        Args:
            caller: for whom.
            reference: as its registry names it, or its address.
            source: the registry; empty: the first that has it, in the configuration's order.
            version: empty: the newest; else the skill stays at it.
            force: in place of what a person changed, or of another's of that name.
            everyone: for all users; owners only.

        Raises:
            EdgedError: it was not installed, and what was there is there.
        """
        shelf = self._shelf(caller, everyone=everyone)
        async with self._client() as client:
            registry, release = await self._resolve(client, reference.strip(), source, version)
            return await self._install(
                caller, shelf, client, registry, release, pinned=bool(version), force=force
            )

    async def _resolve(
        self, client: Client, reference: str, source: str, version: str
    ) -> tuple[Registry, Release]:
        """The registry that has it, and what it has.

        One that cannot be asked, or has it in another version or broken, ends the search:
        another's skill of the same name must not come in its place.
        """
        if "://" in reference:
            for registry in self._all().values():
                try:
                    own = registry.owns(reference)
                except ValueError:  # no URL, whatever it looks like
                    continue
                if own:
                    return registry, await registry.resolve(client, own, version)
            reason = f"{names.line(reference, 200)!r} is at no registry of the configuration"
            raise InvalidArgumentsError([Fault("name", reason)])
        asked = [self._named(source)] if source else list(self._all().values())
        missing = []
        for registry in asked:
            try:
                return registry, await registry.resolve(client, reference, version)
            except MismatchError:
                raise
            except NotFoundError as error:
                missing.append(str(error))
        told = "; ".join(missing) or "no registry is configured: see tools.skills.registries"
        raise NotFoundError(told)

    async def _install(
        self,
        caller: Caller,
        shelf: Shelf,
        client: Client,
        registry: Registry,
        release: Release,
        *,
        pinned: bool,
        force: bool,
    ) -> Outcome:
        name = names.directory_name(release.name)
        if release.suspicious and not (force and caller.is_owner):
            raise DeniedError(
                f"{release.reference}: {release.suspicious}; "
                "only an owner may install it, with force"
            )
        async with self._locks.setdefault(shelf.path, asyncio.Lock()):
            await self._ready(shelf)
            before = await _to_end(read_lock, os.path.join(shelf.path, name))
            if before is not None and not force:
                if (before.registry, before.reference) != (release.registry, release.reference):
                    origin = f"{before.registry} ({before.reference})"
                    raise ExistsError(f"{name} is there, from {origin}: force replaces it")
                if before.version == release.version and _same(before, release):
                    await _to_end(_check, shelf, name)
                    return self._outcome("current", shelf, name, before, before)
            await _to_end(shelf.check, name, force=force)
            spool = await _to_end(_spool, shelf.path)
            try:
                fetched = await registry.fetch(client, release, spool)
                lock, warnings = await _to_end(
                    self._put, shelf, name, fetched, release, pinned=pinned, force=force
                )
            finally:
                await _to_end(spool.close)
        self._changed(
            caller.user, {"name": name, "version": lock.version, "source": _origin(lock)}
        )
        if release.suspicious:
            warnings = (release.suspicious, *warnings)
        what: Literal["installed", "updated"] = "installed" if before is None else "updated"
        return self._outcome(what, shelf, name, lock, before, warnings)

    def _put(
        self,
        shelf: Shelf,
        name: str,
        fetched: Fetched,
        release: Release,
        *,
        pinned: bool,
        force: bool,
    ) -> tuple[Lock, tuple[str, ...]]:
        """Unpack, look at and place a skill; in a thread."""
        stage = shelf.stage(name)
        try:
            try:
                fetched(stage)
            except EdgedError:
                raise
            except OSError as error:
                raise failed("unpack into", stage.path, error) from error
            _compare(release, stage.files)
            facts, problem = read_skill(stage.path, name)
            if facts is None:
                raise RemoteProtocolError(f"{release.reference} is no skill: {problem}")
            lock = Lock(
                release.registry,
                release.reference,
                release.version,
                iso(self._clock.now()),
                digest_of(stage.files),
                stage.files,
                pinned,
            )
            shelf.place(name, stage, lock, force=force)
            return lock, facts.warnings
        finally:
            shelf.drop(stage)

    def _outcome(
        self,
        what: Literal["installed", "updated", "current", "pinned", "skipped"],
        shelf: Shelf,
        name: str,
        lock: Lock,
        before: Lock | None,
        warnings: tuple[str, ...] = (),
        note: str = "",
    ) -> Outcome:
        return Outcome(
            name,
            what,
            lock.version,
            before.version if before is not None else "",
            _origin(lock),
            f"{self._shown(shelf)}/{name}",
            len(lock.files),
            warnings,
            note,
        )

    async def update(
        self,
        caller: Caller,
        name: str = "",
        *,
        version: str = "",
        force: bool = False,
        everyone: bool = False,
    ) -> list[Outcome]:
        """Bring one skill, or all, to the newest version.

        Raises:
            EdgedError: the one that is named was not updated; of all, each says why.
        """
        shelf = self._shelf(caller, everyone=everyone)
        entries = await self._entries(shelf)
        chosen = [one for one in entries if (one.name == name if name else one.lock)]
        if name and not chosen:
            await self._not_everyones(caller, shelf, name)
            raise NotFoundError(f"no skill named {name[:100]!r}")
        found = []
        async with self._client() as client:
            for entry in chosen:
                try:
                    found.append(
                        await self._update(caller, shelf, client, entry, version, force=force)
                    )
                except EdgedError as error:
                    if name:
                        raise
                    has = entry.lock.version if entry.lock else ""
                    found.append(Outcome(entry.name, "skipped", has, note=str(error)))
        return found

    async def _update(
        self,
        caller: Caller,
        shelf: Shelf,
        client: Client,
        entry: Entry,
        version: str,
        *,
        force: bool,
    ) -> Outcome:
        lock = entry.lock
        if lock is None:
            raise NotFoundError(f"{entry.name} is from no registry: nothing to update it from")
        if lock.registry == SEED:
            note = "came with edged, and is updated with it"
            return self._outcome("current", shelf, entry.name, lock, lock, note=note)
        if lock.pinned and not version:
            note = "stays at its version: name another to change it"
            return self._outcome("pinned", shelf, entry.name, lock, lock, note=note)
        registry = self._named(lock.registry)
        release = await registry.resolve(client, lock.reference, version)
        if release.name != entry.name:
            release = msgspec.structs.replace(release, name=entry.name)
        return await self._install(
            caller, shelf, client, registry, release, pinned=bool(version), force=force
        )

    async def remove(
        self, caller: Caller, name: str, *, force: bool = False, everyone: bool = False
    ) -> str:
        """Take a skill out; returns where it is kept.

        Raises:
            EdgedError: it was not done.
        """
        shelf = self._shelf(caller, everyone=everyone)
        async with self._locks.setdefault(shelf.path, asyncio.Lock()):
            await self._ready(shelf)
            try:
                await _to_end(shelf.remove, name, force=force)
            except NotFoundError:
                await self._not_everyones(caller, shelf, name)
                raise
        self._changed(caller.user, {"name": name, "version": "", "source": ""})
        return os.path.join(shelf.path, ".replaced", name)

    async def _not_everyones(self, caller: Caller, shelf: Shelf, name: str) -> None:
        """Say so where a skill that a user does not have is everyone's.

        Raises:
            NotFoundError: it is.
        """
        everyones = self._everyones()
        if shelf is everyones or all(one.name != name for one in await self._entries(everyones)):
            return
        remedy = (
            "add --everyone (scope=everyone)" if caller.is_owner else "only an owner changes it"
        )
        raise NotFoundError(f"{name} is everyone's: {remedy}")

    # Reading ------------------------------------------------------------------------------

    async def rows(self, caller: Caller) -> list[Row]:
        """All skills that a caller sees, by name; its own come before everyone's."""
        return [self._row(shelf, entry) for shelf, entry in await self._seen(caller)]

    async def show(self, caller: Caller, name: str) -> Shown:
        """One skill with its body and the names of its files.

        Raises:
            NotFoundError: there is none.
            ConfigError, StoreError: it cannot be read.
        """
        shelf, entry = await self._one(caller, name)
        row, facts = self._row(shelf, entry), entry.facts
        if facts is None:
            raise NotFoundError(f"the skill {name} cannot be used: {entry.problem}")
        try:
            files = await asyncio.to_thread(
                lambda: sorted(
                    inner for inner, _ in files_of(entry.path) if inner.lower() != "skill.md"
                )
            )
        except OSError as error:
            raise failed("read", entry.path, error) from error
        return Shown(
            row,
            facts.body.replace("{baseDir}", row.path),
            facts.license,
            facts.compatibility,
            facts.allowed_tools,
            files[:FILES_SHOWN],
            max(0, len(files) - FILES_SHOWN),
        )

    async def read(self, caller: Caller, name: str, file: str) -> str:
        """A text of a skill.

        Raises:
            NotFoundError: no such skill, or no such text in it.
        """
        shelf, entry = await self._one(caller, name)
        inner = posixpath.normpath(file.removeprefix(f"{self._row(shelf, entry).path}/"))
        if inner.startswith(("/", "..")):
            raise NotFoundError(f"{name}: {names.line(file, 200)} leads out of the skill")
        found = await asyncio.to_thread(read_inside, entry.path, inner, FILE_SHOWN)
        if isinstance(found, Problem):
            shown = names.line(file, 200)
            if found.reason == f"no {inner}":
                raise NotFoundError(
                    f"{name} has no file {shown}: edged skills show {name} lists those there are"
                )
            raise NotFoundError(f"{name}: {shown}: {found.reason}")
        try:
            return found.decode("utf-8-sig")
        except UnicodeDecodeError:
            where = self._row(shelf, entry).path
            reason = f"{names.line(file, 200)} is no text; it is in {where}"
            raise NotFoundError(f"{name}: {reason}") from None

    async def _one(self, caller: Caller, name: str) -> tuple[Shelf, Entry]:
        seen = await self._seen(caller)
        for shelf, entry in seen:
            if entry.name == name:
                return shelf, entry
        known = ", ".join(entry.name for _, entry in seen[:20]) or "none"
        raise NotFoundError(f"no skill named {name[:100]!r}; there is: {known}")

    async def _seen(self, caller: Caller) -> list[tuple[Shelf, Entry]]:
        found: dict[str, tuple[Shelf, Entry]] = {}
        for shelf in (self._everyones(), self._users(caller.user)):
            for entry in await self._entries(shelf):
                hides = found.get(entry.name)
                # A broken directory hides nothing.
                if hides is None or entry.facts is not None or hides[1].facts is None:
                    found[entry.name] = (shelf, entry)
        return [found[name] for name in sorted(found)]

    async def _entries(self, shelf: Shelf) -> list[Entry]:
        async with self._locks.setdefault(shelf.path, asyncio.Lock()):
            seeds = shelf is self._everyones() and os.path.isdir(self._seed)
            if shelf.path not in self._prepared and (seeds or os.path.isdir(shelf.path)):
                try:
                    await self._ready(shelf)
                except StoreError as error:
                    # What is there can be read all the same.
                    log.warning(str(error))
            return await _to_end(shelf.entries)

    def _row(self, shelf: Shelf, entry: Entry) -> Row:
        facts, lock = entry.facts, entry.lock
        version = lock.version if lock is not None else facts.version if facts is not None else ""
        return Row(
            entry.name,
            facts.description if facts is not None else "",
            "everyone" if shelf is self._everyones() else "user",
            version,
            _origin(lock) if lock is not None else "",
            f"{self._shown(shelf)}/{entry.name}",
            entry.problem,
            facts.warnings if facts is not None else (),
        )

    # Places -------------------------------------------------------------------------------

    def _shelf(self, caller: Caller, *, everyone: bool) -> Shelf:
        if not everyone:
            return self._users(caller.user)
        if not caller.is_owner:
            who = caller.peer or caller.user
            raise DeniedError(f"only an owner may change everyone's skills; {who} is an agent")
        return self._everyones()

    def _everyones(self) -> Shelf:
        path = os.path.join(self._data, "skills")
        return self._shelves.setdefault(path, Shelf(path))

    def _users(self, user: str) -> Shelf:
        path = os.path.join(self._data, user, "skills")
        found = self._shelves.get(path)
        if found is None:
            account = self._account() if os.geteuid() == 0 else None
            found = self._shelves[path] = Shelf(path, account)
        return found

    def _shown(self, shelf: Shelf) -> str:
        return "/officer/skills" if shelf is self._everyones() else "/officer/user/skills"

    async def _ready(self, shelf: Shelf) -> None:
        """Make a shelf usable; once, by whoever holds its lock."""
        if shelf.path not in self._prepared:
            await _to_end(shelf.prepare)
            if shelf is self._everyones() and os.path.isdir(self._seed):
                await self._sow(shelf)
            self._prepared.add(shelf.path)

    async def _sow(self, shelf: Shelf) -> None:
        """Put in the skills that came with the daemon, unless a person changed or removed them."""
        seeds = Directory(SEED, SkillRegistry(kind="directory", path=self._seed), {})
        for name in sorted(await _to_end(os.listdir, self._seed)):
            try:
                await _to_end(self._sow_one, shelf, seeds, name)
            except NotFoundError:
                continue
            except EdgedError as error:
                log.warning(f"the skill {name} that came with edged is not installed: {error}")

    def _sow_one(self, shelf: Shelf, seeds: Directory, found: str) -> None:
        release = seeds.find(found, "")
        name, digest = names.directory_name(release.name), digest_of(release.files or {})
        path = os.path.join(shelf.path, name)
        lock = read_lock(path) if os.path.lexists(path) else shelf.kept(name)
        if lock is not None and lock.registry == SEED and lock.digest == digest:
            return
        if os.path.lexists(path) and (lock is None or lock.registry != SEED):
            return
        self._put(shelf, name, seeds.copier(release), release, pinned=False, force=False)


def _origin(lock: Lock) -> str:
    return f"{lock.registry}: {lock.reference}"


def _same(lock: Lock, release: Release) -> bool:
    """Whether what is installed is what the registry has, as far as it tells."""
    return release.files is None or _listed(release.files) == lock.files


def _listed(files: dict[str, str]) -> dict[str, str]:
    return {path.removeprefix("./"): digest.lower() for path, digest in files.items()}


def _compare(release: Release, files: dict[str, str]) -> None:
    """Refuse what is not what the registry told.

    Raises:
        RemoteProtocolError: a file is another, is missing, or is one too many.
    """
    if release.files is None:
        return
    told = _listed(release.files)
    wrong = sorted(
        path for path in told.keys() | files.keys() if told.get(path) != files.get(path)
    )
    if wrong:
        shown = ", ".join(names.line(one, 80) for one in wrong[:3])
        raise RemoteProtocolError(
            f"{release.reference} is not what {release.registry} lists: {shown} "
            "differs; it is not installed"
        )


def _check(shelf: Shelf, name: str) -> None:
    shelf.check(name, force=False)


def _spool(directory: str) -> BinaryIO:
    """A file without a name, in the same file system."""
    try:
        return tempfile.TemporaryFile(dir=directory, buffering=0)
    except OSError as error:
        raise failed("make a file in", directory, error) from error


async def _to_end(work: Callable[..., T], *args: Any, **named: Any) -> T:
    """Run blocking work in a thread; a cancelled caller waits until it has ended.

    Else a lock would be free while the work goes on.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise
