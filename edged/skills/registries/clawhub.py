"""ClawHub: its registry of skills and its moderation.

Source: ClawHub's HTTP API, `/api/v1`.
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO
from urllib.parse import quote, urlsplit

import msgspec

from edged.errors import (
    DeniedError,
    Fault,
    InvalidArgumentsError,
    NotFoundError,
    RemoteProtocolError,
)
from edged.sections import SkillRegistry
from edged.skills import archive, names
from edged.skills.client import Client, Reply, Server, decoded, query, unexpected
from edged.skills.registries import DESCRIPTION_MAX, Fetched, Hit, MismatchError, Release, rewind
from edged.skills.registries.github import tarball
from edged.skills.stage import Stage

BASE = "https://clawhub.ai"

_SLUG = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REFERENCE = re.compile(rf"@?(?:([A-Za-z0-9_][\w.-]{{0,99}})/)?({_SLUG})", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BLOCKED_VERDICTS = frozenset({"malicious", "malware", "blocked"})
_INJECTED = "_meta.json"
"""Put into each archive by the registry."""


class _Owner(msgspec.Struct):
    handle: str | None = None


class _Result(msgspec.Struct, rename="camel"):
    slug: str | None = None
    display_name: str | None = None
    summary: str | None = None
    version: str | None = None
    owner_handle: str | None = None
    install: dict[str, Any] | None = None
    trust: Any = None


class _Results(msgspec.Struct):
    results: list[_Result] = []


class _Latest(msgspec.Struct):
    version: str = ""


class _Moderation(msgspec.Struct, rename="camel"):
    is_suspicious: bool | None = None
    is_malware_blocked: bool | None = None
    verdict: str | None = None
    reason_codes: list[str] | None = None


class _Detail(msgspec.Struct, rename="camel"):
    skill: dict[str, Any] | None
    moderation: _Moderation | None
    latest_version: _Latest | None = None
    owner: _Owner | None = None


class _File(msgspec.Struct):
    path: str
    sha256: str


class _Files(msgspec.Struct):
    files: list[_File]


class _Version(msgspec.Struct):
    version: _Files


class _Match(msgspec.Struct):
    ref: str = ""
    slug: str = ""
    owner_handle: str = msgspec.field(name="ownerHandle", default="")


class _Ambiguous(msgspec.Struct):
    matches: list[_Match] = []


class _Source(msgspec.Struct):
    repo: str
    commit: str
    path: str = ""


class Registry:
    """See `edged.skills.registries.Registry`."""

    def __init__(
        self, name: str, settings: SkillRegistry, others: dict[str, SkillRegistry]
    ) -> None:
        self.name = name
        self._base = (settings.url or BASE).rstrip("/")
        self._server = Server(name, self._base)
        self._headers = {"Authorization": f"Bearer {settings.token}"} if settings.token else {}
        self._github = next(
            (one for key, one in others.items() if one.kind_of(key) == "github"), None
        )

    def owns(self, reference: str) -> str:
        """`https://clawhub.ai/OWNER/skills/SLUG` and `https://clawhub.ai/OWNER/SLUG`."""
        parts, own = urlsplit(reference), urlsplit(self._base)
        if not parts.netloc or parts.netloc != own.netloc:
            return ""
        found = [one for one in parts.path.split("/") if one]
        if len(found) == 3 and found[1] == "skills":
            del found[1]
        return "/".join(found) if len(found) in (1, 2) else ""

    async def search(self, client: Client, query_text: str, limit: int) -> list[Hit]:
        """In the registry's own order."""
        reply = await self._get(client, "search", q=query_text, limit=limit)
        if reply.status != 200:
            raise unexpected(self.name, reply, "cannot search")
        hits = []
        for one in decoded(self.name, reply, _Results).results:
            # A display name is no slug: what has none cannot be installed.
            if not one.slug or not re.fullmatch(_SLUG, one.slug):
                continue
            kind = (one.install or {}).get("kind", "")
            elsewhere = kind not in ("", "clawhub", "archive", "github") and isinstance(kind, str)
            owner = f"{one.owner_handle}/" if one.owner_handle else ""
            hits.append(
                Hit(
                    self.name,
                    names.line(f"{owner}{one.slug}", 200),
                    names.line(one.display_name, 100) or one.slug,
                    names.line(one.summary, DESCRIPTION_MAX),
                    names.line(one.version, 64),
                    f"listed from {names.line(kind, 40)}: not installed from here"
                    if elsewhere
                    else "",
                )
            )
        return hits[:limit]

    async def resolve(self, client: Client, reference: str, version: str) -> Release:
        """Look it up; what is held against it is read before anything is fetched."""
        owner, slug = self._parts(reference)
        reply = await self._get(client, f"skills/{quote(slug)}", ownerHandle=owner)
        self._check(reply, slug)
        detail = decoded(self.name, reply, _Detail)
        if detail.skill is None:
            raise NotFoundError(f"{self.name}: no skill {reference!r}")
        owner = owner or (detail.owner.handle if detail.owner and detail.owner.handle else "")
        suspicious = self._moderated(slug, detail.moderation)
        latest = detail.latest_version.version if detail.latest_version else ""
        wanted = version or latest
        if not wanted:
            raise MismatchError(f"{self.name}: {slug} has no version yet")
        path = f"skills/{quote(slug)}/versions/{quote(wanted, safe='')}"
        reply = await self._get(client, path, ownerHandle=owner)
        if reply.status == 404:
            newest = f"; the newest is {latest}" if latest else ""
            raise MismatchError(f"{self.name}: {slug} has no version {wanted!r}{newest}")
        self._check(reply, slug)
        files = {one.path: one.sha256 for one in decoded(self.name, reply, _Version).version.files}
        if not files or not all(_SHA256.fullmatch(one) for one in files.values()):
            raise RemoteProtocolError(f"{self.name}: tells no hashes of {slug} {wanted}")
        return Release(
            self.name,
            f"{owner}/{slug}" if owner else slug,
            slug,
            wanted,
            files,
            suspicious=suspicious,
        )

    async def fetch(self, client: Client, release: Release, spool: BinaryIO) -> Fetched:
        """Download the archive, or what it says that the archive is."""
        owner, slug = self._parts(release.reference)

        def begin() -> Any:
            rewind(spool)
            return spool.write

        reply = await client.download(
            self._server,
            f"{self._base}/api/v1/download",
            begin,
            params=query(slug=slug, ownerHandle=owner, version=release.version),
            headers=self._headers,
        )
        self._check(reply, slug)
        if not reply.is_json:
            return lambda stage: _unpack(spool, stage, release)
        spool.seek(0)
        found = decoded(self.name, Reply(200, reply.headers, spool.read(1 << 20)), _Source)
        if not _REPOSITORY.fullmatch(found.repo) or not _COMMIT.fullmatch(found.commit):
            raise RemoteProtocolError(f"{self.name}: says of {slug} that it is nowhere")
        await tarball(client, self._github, self.name, found.repo, found.commit, spool)
        inside = found.path.strip("/") or "."
        return lambda stage: archive.unpack(spool, "tar", stage, inside)

    async def _get(self, client: Client, path: str, **values: object) -> Reply:
        url = f"{self._base}/api/v1/{path}"
        return await client.get(self._server, url, params=query(**values), headers=self._headers)

    def _parts(self, reference: str) -> tuple[str, str]:
        match = _REFERENCE.fullmatch(reference)
        if match is None or ".." in reference:
            reason = f"{reference[:100]!r} is no skill of {self.name}: write SLUG or OWNER/SLUG"
            raise NotFoundError(reason)
        return match[1] or "", match[2]

    def _check(self, reply: Reply, slug: str) -> None:
        """Turn a refusal into an error, with the registry's own words.

        Raises:
            EdgedError: it is one.
        """
        if reply.status < 400:
            return
        words = f": {reply.text}" if reply.text else ""
        if reply.status == 404:
            raise NotFoundError(f"{self.name}: no skill {slug!r}{words}")
        if reply.status == 409:
            raise self._ambiguous(reply, slug)
        if reply.status in (403, 410, 423):
            what = {403: "is blocked", 410: "is withdrawn", 423: "is not scanned yet"}
            raise DeniedError(f"{self.name}: {slug} {what[reply.status]}{words}")
        raise unexpected(self.name, reply, f"does not give {slug}")

    def _ambiguous(self, reply: Reply, slug: str) -> InvalidArgumentsError:
        """Several owners have a skill of that name: whoever asks chooses."""
        try:
            found = msgspec.json.decode(reply.body, type=_Ambiguous).matches
            ways = [f"{one.owner_handle}/{one.slug}" for one in found if one.owner_handle]
        except msgspec.DecodeError:
            ways = []
        choice = (
            f"one of {', '.join(names.line(w, 100) for w in ways[:10])}" if ways else reply.text
        )
        reason = f"several owners have a skill {slug!r}: name {choice or 'OWNER/SLUG'}"
        return InvalidArgumentsError([Fault("name", reason)])

    def _moderated(self, slug: str, found: _Moderation | None) -> str:
        """What is held against a skill; empty where nothing is.

        Raises:
            DeniedError: it is malware.
        """
        if found is None:
            return ""
        codes = ", ".join(names.line(one, 60) for one in (found.reason_codes or [])[:5])
        why = f" ({codes})" if codes else ""
        verdict = (found.verdict or "").lower()
        if found.is_malware_blocked or verdict in _BLOCKED_VERDICTS:
            raise DeniedError(
                f"{self.name}: {slug} is blocked as malware{why}; it is not installed"
            )
        if found.is_suspicious or verdict == "suspicious":
            return f"{self.name} holds it for suspicious{why}"
        return ""


def _unpack(spool: BinaryIO, stage: Stage, release: Release) -> None:
    archive.unpack(spool, "zip", stage)
    if _INJECTED in stage.files and _INJECTED not in (release.files or {}):
        stage.forget(_INJECTED)
