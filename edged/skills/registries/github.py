"""GitHub: skills in repositories, by `OWNER/REPO`, `OWNER/REPO/PATH` and an `@REF`.

A whole folder is taken from the tarball of one commit, whatever it has in it.

Source: GitHub REST API 2022-11-28: commits, git trees, tarball, code search.
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

import msgspec

from edged.errors import (
    DeniedError,
    NotFoundError,
    RemoteProtocolError,
)
from edged.sections import SkillRegistry
from edged.skills import archive, names
from edged.skills.client import Client, Reply, Server, decoded, query, unexpected
from edged.skills.registries import (
    DESCRIPTION_MAX,
    Fetched,
    Hit,
    MismatchError,
    Release,
    matches,
    rewind,
)

API = "https://api.github.com"
SITE = "github.com"
_VERSION = {"X-GitHub-Api-Version": "2022-11-28"}
_REFERENCE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})((?:/[^/@]{1,255})*)(?:@(.{1,200}))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LISTED_MAX = 20


class _Node(msgspec.Struct):
    path: str
    type: str


class _Tree(msgspec.Struct):
    tree: list[_Node]
    truncated: bool = False


class _Repository(msgspec.Struct):
    full_name: str
    description: str | None = None


class _Item(msgspec.Struct):
    path: str
    repository: _Repository


class _Items(msgspec.Struct):
    items: list[_Item] = []


class Registry:
    """See `edged.skills.registries.Registry`."""

    def __init__(self, name: str, settings: SkillRegistry, _others: object) -> None:
        self.name = name
        self._settings = settings
        self._base = _base(settings)
        self._server = Server(name, self._base)
        self._headers = _headers(settings)

    def owns(self, reference: str) -> str:
        """`https://github.com/OWNER/REPO`, and a folder or SKILL.md of it."""
        parts = urlsplit(reference)
        if parts.hostname != SITE or parts.scheme != "https":
            return ""
        found = [unquote(one) for one in parts.path.split("/") if one]
        if len(found) < 2:
            return ""
        repository = f"{found[0]}/{found[1].removesuffix('.git')}"
        if len(found) < 4 or found[2] not in ("tree", "blob"):
            return repository if len(found) == 2 else ""
        path = found[4:-1] if found[-1].lower() == "skill.md" else found[4:]
        return "/".join([repository, *path]) + f"@{found[3]}"

    async def search(self, client: Client, query_text: str, limit: int) -> list[Hit]:
        """In the configured repositories; with a token in all of them."""
        found: list[Hit] = []
        for repository in self._settings.repositories:
            found += await self._search_in(client, repository, query_text)
        if self._settings.token:
            found += await self._search_code(client, query_text, limit)
        elif not self._settings.repositories:
            raise DeniedError(
                f"{self.name} searches for those with a token only: set `token` or "
                f"`repositories` in tools.skills.registries.{self.name}; "
                "install_skill takes OWNER/REPO/PATH without"
            )
        return list({hit.name: hit for hit in found}.values())[:limit]

    async def _search_in(self, client: Client, repository: str, words: str) -> list[Hit]:
        tree = await self._tree(client, repository, "HEAD")
        hits = []
        for folder in _folders(tree):
            path = f"{repository}/{folder}" if folder else repository
            title = path.rpartition("/")[2]
            if matches(words, path):
                about = f"in {repository}; its SKILL.md says what it does"
                hits.append(Hit(self.name, names.line(path, 300), names.line(title, 100), about))
        return hits

    async def _search_code(self, client: Client, words: str, limit: int) -> list[Hit]:
        reply = await client.get(
            self._server,
            f"{self._base}/search/code",
            params=query(q=f"{words} filename:SKILL.md", per_page=limit),
            headers=self._headers,
        )
        if reply.status != 200:
            raise unexpected(self.name, reply, "cannot search")
        hits = []
        for one in decoded(self.name, reply, _Items).items:
            folder, _, file = one.path.rpartition("/")
            if file.lower() != "skill.md":
                continue
            path = "/".join(filter(None, (one.repository.full_name, folder)))
            about = names.line(one.repository.description, DESCRIPTION_MAX)
            title = names.line(path.rpartition("/")[2], 100)
            hits.append(Hit(self.name, names.line(path, 300), title, about))
        return hits

    async def resolve(self, client: Client, reference: str, version: str) -> Release:
        """The commit of a branch, tag or commit, and the folder in it."""
        repository, folder, ref = self._parts(reference)
        ref = version or ref or "HEAD"
        reply = await client.get(
            self._server,
            f"{self._base}/repos/{repository}/commits/{quote(ref, safe='')}",
            headers={**self._headers, "Accept": "application/vnd.github.sha"},
            limit=1 << 16,
        )
        if reply.status in (404, 409, 422):
            # 422: the repository is there, and has no such commit.
            kind = MismatchError if reply.status == 422 else NotFoundError
            raise kind(f"{self.name}: no {ref!r} of {repository}: {reply.text}")
        commit = reply.body.decode("ascii", "replace").strip()
        if reply.status != 200 or not _COMMIT.fullmatch(commit):
            raise unexpected(self.name, reply, f"does not give {repository}")
        tree = await self._tree(client, repository, commit)
        inside = self._folder(repository, folder, tree)
        last = (inside or repository).rpartition("/")[2]
        whole = f"{repository}/{inside}" if inside else repository
        if ref not in ("HEAD", commit) and not version:
            whole += f"@{ref}"
        return Release(self.name, whole, last.lower(), commit, inside=inside or ".")

    async def fetch(self, client: Client, release: Release, spool: BinaryIO) -> Fetched:
        """The tarball of the commit."""
        repository, _, _ = self._parts(release.reference)
        await tarball(client, self._settings, self.name, repository, release.version, spool)
        return lambda stage: archive.unpack(spool, "tar", stage, release.inside)

    def _parts(self, reference: str) -> tuple[str, str, str]:
        match = _REFERENCE.fullmatch(reference)
        if match is None or ".." in reference:
            reason = f"{reference[:100]!r} is no skill of {self.name}: write OWNER/REPO/PATH"
            raise NotFoundError(reason)
        return f"{match[1]}/{match[2]}", match[3].strip("/"), match[4] or ""

    async def _tree(self, client: Client, repository: str, ref: str) -> _Tree:
        reply = await client.get(
            self._server,
            f"{self._base}/repos/{repository}/git/trees/{ref}",
            params={"recursive": "1"},
            headers=self._headers,
        )
        if reply.status == 404:
            raise NotFoundError(f"{self.name}: no repository {repository}")
        if reply.status != 200:
            raise unexpected(self.name, reply, f"does not list {repository}")
        return decoded(self.name, reply, _Tree)

    def _folder(self, repository: str, wanted: str, tree: _Tree) -> str:
        """The folder that is meant: by its path, or by its last name where that is one.

        Raises:
            NotFoundError: there is none, or several could be meant.
        """
        folders = _folders(tree)
        if wanted in folders or (tree.truncated and wanted):
            return wanted
        named = [one for one in folders if not wanted or one.rpartition("/")[2] == wanted]
        if len(named) == 1:
            return named[0]
        there = named or folders
        listed = ", ".join(f"{repository}/{one}" for one in there[:_LISTED_MAX])
        choice = f": name one of {listed}" if there else ": it has no SKILL.md"
        what = f"no skill {wanted!r}" if wanted else f"{len(there)} skills"
        raise NotFoundError(f"{self.name}: {what} in {repository}{names.line(choice, 1_500)}")


def _folders(tree: _Tree) -> list[str]:
    """Folders with a SKILL.md, the shallow ones first."""
    found = {
        one.path.rpartition("/")[0]
        for one in tree.tree
        if one.type == "blob" and one.path.rpartition("/")[2] in ("SKILL.md", "skill.md")
    }
    return sorted(found, key=lambda path: (path.count("/"), path))


async def tarball(
    client: Client,
    settings: SkillRegistry | None,
    registry: str,
    repository: str,
    commit: str,
    spool: BinaryIO,
) -> None:
    """Fetch the files of one commit, gzipped, with one directory around all.

    Raises:
        EdgedError: they cannot be fetched.
    """

    def begin() -> Any:
        rewind(spool)
        return spool.write

    url = f"{_base(settings)}/repos/{repository}/tarball/{commit}"
    reply: Reply = await client.download(
        Server(registry, _base(settings)), url, begin, headers=_headers(settings)
    )
    if reply.status == 404:
        raise NotFoundError(f"{registry}: {repository} has no commit {commit[:12]} any more")
    if reply.status != 200:
        raise unexpected(registry, reply, f"does not give {repository}")
    if reply.is_json:
        raise RemoteProtocolError(f"{registry}: gives no archive of {repository}")


def _base(settings: SkillRegistry | None) -> str:
    return ((settings.url if settings else "") or API).rstrip("/")


def _headers(settings: SkillRegistry | None) -> dict[str, str]:
    if settings is None or not settings.token:
        return _VERSION
    return {**_VERSION, "Authorization": f"Bearer {settings.token}"}
