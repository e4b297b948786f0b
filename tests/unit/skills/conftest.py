"""A registry of each kind on a local server, and archives made on the spot."""

import asyncio
import hashlib
import io
import json
import tarfile
import zipfile
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from edged.identity import Caller
from edged.sections import SkillRegistry
from edged.sections import Skills as Section
from edged.skills.service import Skills
from edged.testing.clock import FakeClock

SKILL = (
    "---\nname: {name}\ndescription: {about}\n---\n# {name}\n\nRun {{baseDir}}/scripts/go.sh.\n"
)
OWNER = Caller("local", "owner", "", "unix", "uid 0")
AGENT = Caller("ada@example.org", "agent", "", "unix", "uid 1000")


def skill_md(name="pdf-tools", about="Reads and fills PDF forms."):
    return SKILL.format(name=name, about=about).encode()


def files_of(name="pdf-tools", about="Reads and fills PDF forms.", version="1.0.0"):
    """A skill with everything that picoclaw #1245 lost."""
    return {
        "SKILL.md": skill_md(name, about),
        "scripts/go.sh": b"#!/bin/sh\necho go\n",
        "templates/form.txt": f"form {version}\n".encode(),
        "own-folder/deep/data.bin": bytes(range(256)),
    }


def zipped(files, **attributes):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if name.endswith(".sh") else 0o100644) << 16
            for key, value in attributes.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return made.getvalue()


def tarred(files, top="", extra=()):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{top}/{name}" if top else name)
            info.size, info.mode = len(data), 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(info, io.BytesIO(data))
        for info, data in extra:
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Site:
    """A server whose answers a test sets: path to a list of (status, headers, body), or one."""

    def __init__(self):
        self.answers, self.requests = {}, []
        self.url = ""
        self.held, self.reached, self.go = "", asyncio.Event(), asyncio.Event()
        """A path that is not answered before `go`."""

    def set(self, path, body, status=200, **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        headers = {key.replace("_", "-"): value for key, value in headers.items()}
        self.answers[path] = [(status, headers, body)]

    def then(self, path, body, status=200, **headers):
        """Another answer, for the next request; the last one stays."""
        before = self.answers.get(path, [])
        self.set(path, body, status, **headers)
        self.answers[path] = [*before, *self.answers[path]]

    async def handle(self, request):
        self.requests.append(request)
        if request.path == self.held:
            self.reached.set()
            await self.go.wait()
        found = self.answers.get(request.path)
        if found is None:
            return web.Response(status=404, text="no such thing here")
        status, headers, body = found.pop(0) if len(found) > 1 else found[0]
        return web.Response(status=status, headers=headers, body=body)

    def asked(self, path):
        return [one for one in self.requests if one.path == path]

    @asynccontextmanager
    async def serve(self):
        runner = web.ServerRunner(web.Server(self.handle), shutdown_timeout=1.0)
        await runner.setup()
        door = web.TCPSite(runner, "127.0.0.1", 0)
        await door.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    # As the registries do ------------------------------------------------------------------

    def clawhub(self, slug="pdf-tools", version="1.0.0", files=None, owner="alice", **moderation):
        """ClawHub's endpoints for one skill."""
        files = files or files_of(slug, version=version)
        verdict = {"isSuspicious": False, "isMalwareBlocked": False, "verdict": "clean"}
        self.set(
            f"/api/v1/skills/{slug}",
            {
                "skill": {"slug": slug, "displayName": slug.title(), "stats": {}},
                "latestVersion": {"version": version, "createdAt": 1},
                "metadata": None,
                "owner": {"handle": owner},
                "moderation": verdict | moderation,
            },
        )
        listed = [{"path": p, "size": len(d), "sha256": sha(d)} for p, d in files.items()]
        self.set(
            f"/api/v1/skills/{slug}/versions/{version}",
            {"version": {"version": version, "files": listed}, "skill": {"slug": slug}},
        )
        meta = json.dumps({"ownerId": "u1", "slug": slug, "version": version}).encode()
        self.set(
            "/api/v1/download",
            zipped({**files, "_meta.json": meta}),
            Content_Type="application/zip",
        )

    def github(self, repository="acme/kit", commit="a" * 40, folders=None, extra=()):
        """GitHub's endpoints for one repository; the tarball comes by a redirect."""
        folders = folders or {"skills/pdf-tools": files_of()}
        base = f"/repos/{repository}"
        every = {f"{folder}/{p}": d for folder, files in folders.items() for p, d in files.items()}
        every["README.md"] = b"A kit.\n"
        for ref in ("HEAD", "main", "v1", commit):
            self.set(f"{base}/commits/{ref}", commit.encode())
            tree = [{"path": p, "type": "blob", "mode": "100644"} for p in every]
            self.set(f"{base}/git/trees/{ref}", {"sha": commit, "tree": tree, "truncated": False})
        self.set(f"{base}/tarball/{commit}", b"", 302, Location=f"/codeload/{commit}")
        top = f"{repository.replace('/', '-')}-{commit[:7]}"
        self.set(
            f"/codeload/{commit}", tarred(every, top, extra), Content_Type="application/x-gzip"
        )


@pytest.fixture
async def site():
    async with Site().serve() as made:
        yield made


@pytest.fixture
def clock():
    return FakeClock()


class Waits(list):
    """How long was waited; time moves along."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    async def __call__(self, seconds):
        self.append(seconds)
        self.clock.advance(seconds)


@pytest.fixture
def waits(clock):
    return Waits(clock)


@pytest.fixture
def make(tmp_path, clock, waits):
    """`make(name=SkillRegistry(...))`: skills with these registries."""

    def made(seed="", changed=None, **registries):
        from edged.sandbox.account import Account

        return Skills(
            str(tmp_path / "data"),
            Section(registries=registries),
            clock=clock,
            account=lambda: Account(65534, 65534, "nobody"),
            seed=str(seed),
            changed=changed or (lambda user, facts: None),
            sleep=waits,
            jitter=lambda: 0.0,
        )

    return made


@pytest.fixture
def hub(site, make):
    """Skills with one ClawHub."""
    return make(clawhub=SkillRegistry(url=site.url))


@pytest.fixture
def root(tmp_path):
    """The directory of the owner's skills."""
    return tmp_path / "data" / "local" / "skills"
