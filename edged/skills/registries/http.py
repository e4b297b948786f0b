"""An index of skills over HTTP, as any web server can have one.

Source: Agent Skills Discovery 0.2.0, `/.well-known/agent-skills/index.json`.
"""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

import msgspec

from edged.errors import NotFoundError, RemoteProtocolError
from edged.sections import SkillRegistry
from edged.skills import archive, names
from edged.skills.client import Client, Reply, Server, decoded, unexpected
from edged.skills.registries import (
    DESCRIPTION_MAX,
    Fetched,
    Hit,
    MismatchError,
    Release,
    matches,
    rewind,
)
from edged.skills.stage import Stage

WELL_KNOWN = "/.well-known/agent-skills/index.json"
_DIGEST = "sha256:"
_CHUNK = 1 << 20


class _Row(msgspec.Struct):
    name: str
    url: str
    description: str = ""
    type: str = "archive"
    digest: str = ""
    version: str = ""


class _Index(msgspec.Struct):
    skills: list[_Row]


class Registry:
    """See `edged.skills.registries.Registry`."""

    def __init__(self, name: str, settings: SkillRegistry, _others: object) -> None:
        self.name = name
        url = settings.url
        self._index = url if url.endswith(".json") else url.rstrip("/") + WELL_KNOWN
        self._server = Server(name, self._index)
        self._headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}

    def owns(self, _reference: str) -> str:
        """Skills are named, not addressed."""
        return ""

    async def search(self, client: Client, query: str, limit: int) -> list[Hit]:
        """By words in names and descriptions."""
        rows = await self._rows(client)
        scored = [(matches(query, row.name, row.description), row) for row in rows]
        best = sorted((one for one in scored if one[0]), key=lambda one: (-one[0], one[1].name))
        return [
            Hit(
                self.name,
                names.line(row.name, 100),
                names.line(row.name, 100),
                names.line(row.description, DESCRIPTION_MAX),
                names.line(row.version, 64),
            )
            for _, row in best[:limit]
        ]

    async def resolve(self, client: Client, reference: str, version: str) -> Release:
        """By its name in the index."""
        rows = [row for row in await self._rows(client) if row.name == reference]
        fit = [row for row in rows if not version or version == _version(row)]
        if not rows:
            raise NotFoundError(f"{self.name}: no skill {reference[:100]!r} in {self._index}")
        if not fit:
            has = ", ".join(names.line(_version(row), 64) for row in rows[:10])
            raise MismatchError(f"{self.name}: {reference} has version {has}, not {version!r}")
        row = fit[0]
        digest = row.digest.removeprefix(_DIGEST)
        if row.digest and (not row.digest.startswith(_DIGEST) or len(digest) != 64):
            raise RemoteProtocolError(f"{self.name}: the digest of {reference} is no sha256")
        url = _joined(self.name, self._index, row.url)
        inside = "file" if row.type in ("skill-md", "file") else ""
        return Release(
            self.name, row.name, row.name, _version(row), digest=digest, url=url, inside=inside
        )

    async def fetch(self, client: Client, release: Release, spool: BinaryIO) -> Fetched:
        """Download the archive, or the one file that there is."""
        digest = hashlib.sha256()

        def begin() -> Any:
            nonlocal digest
            rewind(spool)
            digest = hashlib.sha256()
            return take

        def take(piece: bytes) -> None:
            digest.update(piece)
            spool.write(piece)

        same = urlsplit(release.url).netloc == urlsplit(self._index).netloc
        headers = self._headers if same else {}
        reply: Reply = await client.download(self._server, release.url, begin, headers=headers)
        if reply.status != 200:
            raise unexpected(self.name, reply, f"does not give {release.name}")
        if release.digest and digest.hexdigest() != release.digest:
            raise RemoteProtocolError(
                f"{self.name}: {release.name} is not what the index says: its digest differs"
            )
        if release.inside == "file":
            return lambda stage: _single(spool, stage)
        return lambda stage: archive.unpack(spool, _kind(spool), stage)

    async def _rows(self, client: Client) -> list[_Row]:
        reply = await client.get(self._server, self._index, headers=self._headers)
        if reply.status != 200:
            raise unexpected(self.name, reply, f"has no index at {self._index}")
        return decoded(self.name, reply, _Index).skills


def _version(row: _Row) -> str:
    return row.version or row.digest.removeprefix(_DIGEST)[:12] or "unversioned"


def _joined(name: str, index: str, given: str) -> str:
    """Where an archive is.

    Raises:
        RemoteProtocolError: nowhere that one goes.
    """
    try:
        url = urljoin(index, given)
        parts = urlsplit(url)
        fits = bool(parts.hostname) and parts.scheme in ("https", urlsplit(index).scheme)
    except ValueError:
        url, fits = given, False
    if not fits:
        where = names.line(url, 200)
        raise RemoteProtocolError(f"{name}: leads to {where!r}, which is not followed")
    return url


def _kind(spool: BinaryIO) -> str:
    """What an archive is by its first bytes (RFC 1952; APPNOTE 4.3.7)."""
    spool.seek(0)
    return "tar" if spool.read(2) == b"\x1f\x8b" else "zip"


def _single(spool: BinaryIO, stage: Stage) -> None:
    spool.seek(0)
    stage.add("SKILL.md", iter(lambda: spool.read(_CHUNK), b""))
