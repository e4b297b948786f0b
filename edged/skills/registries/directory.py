"""A plain directory of skills: one below another at most, each with a SKILL.md."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from edged.errors import NotFoundError, RemoteProtocolError
from edged.sections import SkillRegistry
from edged.skills import document, names
from edged.skills.registries import DESCRIPTION_MAX, Fetched, Hit, MismatchError, Release, matches
from edged.skills.shelf import files_of, hash_of, read_skill
from edged.skills.stage import FILES_MAX, Stage, digest_of

if TYPE_CHECKING:
    from edged.skills.client import Client

DEPTH_MAX = 3
DIRECTORIES_MAX = 2_000
_CHUNK = 1 << 20


class Registry:
    """See `edged.skills.registries.Registry`."""

    def __init__(self, name: str, settings: SkillRegistry, _others: object) -> None:
        self.name = name
        self._path = os.path.abspath(settings.path)

    def owns(self, _reference: str) -> str:
        """No URL is a directory's."""
        return ""

    async def search(self, _client: Client, query: str, limit: int) -> list[Hit]:
        """By words in names and descriptions."""
        found = await asyncio.to_thread(lambda: list(self._all()))
        scored = [(matches(query, path, facts.description), path, facts) for path, facts in found]
        best = sorted((one for one in scored if one[0]), key=lambda one: (-one[0], one[1]))
        return [
            Hit(
                self.name,
                path,
                path.rpartition("/")[2],
                names.line(facts.description, DESCRIPTION_MAX),
                facts.version,
            )
            for _, path, facts in best[:limit]
        ]

    async def resolve(self, _client: Client, reference: str, version: str) -> Release:
        """By its path in the directory, or by its name."""
        return await asyncio.to_thread(self.find, reference, version)

    def find(self, reference: str, version: str) -> Release:
        """As `resolve`; blocking calls."""
        named = [one for one in self._each() if reference in (one[0], one[0].rpartition("/")[2])]
        found = [one for one in named if one[1] is not None] or named
        exact = [one for one in found if one[0] == reference] or found
        if not exact:
            reason = f"no skill {reference[:100]!r}: see {self._path}"
            raise NotFoundError(f"{self.name}: {reason}")
        if len(exact) > 1:
            paths = ", ".join(path for path, _, _ in exact)
            reason = f"no skill {reference[:100]!r}: {len(exact)} are named so: {paths}"
            raise MismatchError(f"{self.name}: {reason}")
        path, facts, problem = exact[0]
        if facts is None:
            raise RemoteProtocolError(f"{self.name}: {path}: {problem}")
        try:
            files = self._files(os.path.join(self._path, path))
        except OSError as error:
            raise NotFoundError(f"{self.name}: {path} cannot be read: {error.strerror}") from None
        has = facts.version or digest_of(files)[:12]
        if version and version != has:
            raise MismatchError(f"{self.name}: {path} has version {has}, not {version!r}")
        return Release(self.name, path, path.rpartition("/")[2], has, files)

    async def fetch(self, _client: Client, release: Release, _spool: BinaryIO) -> Fetched:
        """Nothing is fetched: it is copied."""
        return self.copier(release)

    def copier(self, release: Release) -> Fetched:
        """What copies a skill into a stage."""
        return lambda stage: self._copy(release, stage)

    def _copy(self, release: Release, stage: Stage) -> None:
        source = os.path.join(self._path, release.reference)
        for inner in sorted(release.files or ()):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with open(os.open(os.path.join(source, inner), flags), "rb") as file:
                run = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
                stage.add(inner, iter(lambda f=file: f.read(_CHUNK), b""), run=run)  # type: ignore[misc]  # a default argument binds the file

    def _files(self, path: str) -> dict[str, str]:
        """Hashes by path.

        Raises:
            RemoteProtocolError: there are links or special files, or too many files.
            OSError: it cannot be read.
        """
        found: dict[str, str] = {}
        for inner, entry in files_of(path):
            if not entry.is_file(follow_symlinks=False):
                raise RemoteProtocolError(f"{self.name}: {entry.path} is a link or no file")
            if len(found) >= FILES_MAX:
                raise RemoteProtocolError(f"{self.name}: {path} has more than {FILES_MAX} files")
            names.member(inner)
            found[inner] = hash_of(entry.path)
        return found

    def _all(self) -> Iterator[tuple[str, document.Facts]]:
        """Every skill that can be loaded, by its path in the directory."""
        for path, facts, _ in self._each():
            if facts is not None:
                yield path, facts

    def _each(self) -> Iterator[tuple[str, document.Facts | None, str]]:
        """As `_all`, with those that cannot be loaded, and why."""
        waiting, looked = [("", 0)], 0
        while waiting:
            below, depth = waiting.pop()
            try:
                with os.scandir(os.path.join(self._path, below)) as entries:
                    folders = sorted(
                        e.name
                        for e in entries
                        if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")
                    )
            except OSError as error:
                if not below:
                    reason = f"{self.name}: {self._path}: {error.strerror}"
                    raise NotFoundError(reason) from None
                continue
            for name in folders:
                looked += 1
                if looked > DIRECTORIES_MAX:
                    return
                path = f"{below}/{name}" if below else name
                facts, problem = read_skill(os.path.join(self._path, path), name)
                if problem != "no SKILL.md":
                    yield path, facts, problem
                elif depth + 1 < DEPTH_MAX and name != "node_modules":
                    waiting.append((path, depth + 1))
