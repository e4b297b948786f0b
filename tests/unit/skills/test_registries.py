"""Each kind of registry against a server that behaves like its documented API."""

import pytest

from edged.errors import (
    DeniedError,
    EdgedError,
    InvalidArgumentsError,
    NotFoundError,
    RateLimitedError,
    RemoteProtocolError,
)
from edged.sections import SkillRegistry
from edged.skills import archive
from tests.unit.skills.conftest import (
    AGENT,
    OWNER,
    SKILL,
    files_of,
    sha,
    skill_md,
    tarred,
    zipped,
)


def there(root, name="pdf-tools"):
    """The files of an installed skill."""
    base = root / name
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in base.rglob("*")
        if path.is_file() and path.name != ".skill-lock.json"
    }


# ClawHub --------------------------------------------------------------------------------------


async def test_clawhub_search_keeps_the_registrys_order(hub, site):
    site.set(
        "/api/v1/search",
        {
            "results": [
                {"slug": "pdf-b", "displayName": "PDF B", "summary": "B\nx", "version": "1.0.0",
                 "score": 0.1, "ownerHandle": "bob", "updatedAt": 1, "downloads": 3},
                {"slug": "pdf-a", "displayName": "PDF A", "summary": None, "version": None,
                 "score": 0.9},
                {"slug": None, "displayName": "No slug", "summary": "x"},
                {"slug": "../evil", "displayName": "Evil", "summary": "x"},
                {"slug": "mirror", "displayName": "M", "summary": "m",
                 "install": {"kind": "skills-sh", "reference": "skills-sh:a/b/c"}},
            ]
        },
    )  # fmt: skip
    found = await hub.find("pdf", 10)
    assert [(h.name, h.version, h.description) for h in found.hits] == [
        ("bob/pdf-b", "1.0.0", "B x"),
        ("pdf-a", "", ""),
        ("mirror", "", "m"),
    ]
    assert "not installed from here" in found.hits[2].note
    [request] = site.requests
    assert dict(request.query) == {"q": "pdf", "limit": "10"}


async def test_clawhub_skill_is_installed_whole(hub, site, root):
    """The flow of the registry's own client; what it injects is left out."""
    site.clawhub()
    done = await hub.install(OWNER, "pdf-tools")
    assert (done.outcome, done.version, done.source) == (
        "installed", "1.0.0", "clawhub: alice/pdf-tools",
    )  # fmt: skip
    assert there(root) == files_of()
    assert done.files == len(files_of())
    download = site.asked("/api/v1/download")[0]
    assert dict(download.query) == {
        "slug": "pdf-tools", "ownerHandle": "alice", "version": "1.0.0",
    }  # fmt: skip


@pytest.mark.parametrize(
    "reference",
    ["alice/pdf-tools", "@alice/pdf-tools", "{}/alice/skills/pdf-tools", "{}/alice/pdf-tools"],
)
async def test_clawhub_takes_every_form_of_a_reference(hub, site, root, reference):
    site.clawhub()
    await hub.install(OWNER, reference.format(site.url))
    assert site.asked("/api/v1/skills/pdf-tools")[0].query["ownerHandle"] == "alice"
    assert there(root) == files_of()


@pytest.mark.parametrize(
    "moderation",
    [
        {"isMalwareBlocked": True},
        {"verdict": "malicious", "reasonCodes": ["exfiltrates.keys"]},
    ],
)
async def test_malware_is_refused_before_a_byte_is_fetched(hub, site, root, moderation):
    """picoclaw, section 12: looked at after it was unpacked; no force helps."""
    site.clawhub(**moderation)
    for force in (False, True):
        with pytest.raises(DeniedError, match="blocked as malware"):
            await hub.install(OWNER, "pdf-tools", force=force)
    assert site.asked("/api/v1/download") == []
    assert not (root / "pdf-tools").exists()


async def test_suspicious_skill_needs_an_owner_with_force(hub, site, root):
    site.clawhub(isSuspicious=True, reasonCodes=["obfuscated"])
    for caller, force in ((AGENT, True), (AGENT, False), (OWNER, False)):
        with pytest.raises(DeniedError, match=r"suspicious \(obfuscated\).*only an owner"):
            await hub.install(caller, "pdf-tools", force=force)
    assert site.asked("/api/v1/download") == []
    done = await hub.install(OWNER, "pdf-tools", force=True)
    assert "suspicious" in done.warnings[0]


@pytest.mark.parametrize(
    "body", [{"skill": {}}, b"<html>", {"skill": {}, "moderation": "clean"}, []]
)
async def test_moderation_that_cannot_be_read_is_not_passed_over(hub, site, body):
    """picoclaw, section 12: a failure to read it let everything through."""
    site.clawhub()
    site.set("/api/v1/skills/pdf-tools", body)
    with pytest.raises(RemoteProtocolError):
        await hub.install(OWNER, "pdf-tools")
    assert site.asked("/api/v1/download") == []


async def test_moderation_in_trouble_is_not_passed_over(hub, site):
    site.clawhub()
    site.set("/api/v1/skills/pdf-tools", b"oops", 500)
    with pytest.raises(RemoteProtocolError, match="HTTP 500"):
        await hub.install(OWNER, "pdf-tools")
    assert site.asked("/api/v1/download") == []


async def test_rate_limit_is_waited_for_and_told(hub, site, waits, root):
    """Picoclaw #2135: a 429 on install was an error without a reason."""
    site.clawhub()
    download = site.answers["/api/v1/download"][0]
    site.set("/api/v1/download", b"Rate limit exceeded", 429, Retry_After="3")
    site.answers["/api/v1/download"].append(download)
    await hub.install(OWNER, "pdf-tools")
    assert waits == [3.0]
    assert there(root) == files_of()
    site.set("/api/v1/skills/other", b"Rate limit exceeded", 429, Retry_After="3")
    with pytest.raises(RateLimitedError, match="rate limited: try again in 3 s"):
        await hub.install(OWNER, "other")


async def test_ambiguous_slug_offers_its_owners(hub, site):
    """Section 5, 40: it was told as a network error."""
    site.set(
        "/api/v1/skills/pdf-tools",
        {
            "code": "AMBIGUOUS_SKILL_SLUG", "message": "two", "slug": "pdf-tools",
            "matches": [
                {"ownerHandle": o, "slug": "pdf-tools", "ref": f"@{o}/pdf-tools", "url": ""}
                for o in ("alice", "bob")
            ],
        },
        409,
    )  # fmt: skip
    with pytest.raises(InvalidArgumentsError, match="name one of alice/pdf-tools, bob/pdf-tools"):
        await hub.install(OWNER, "pdf-tools")


@pytest.mark.parametrize(
    ("status", "says"),
    [(403, "is blocked"), (410, "is withdrawn"), (423, "is not scanned yet")],
)
async def test_refused_skill_is_told_in_the_registrys_words(hub, site, status, says):
    site.clawhub()
    site.set("/api/v1/download", b"because of reasons", status)
    with pytest.raises(DeniedError, match=f"{says}: because of reasons"):
        await hub.install(OWNER, "pdf-tools")


async def test_version_is_chosen_and_an_unknown_one_names_the_newest(hub, site, root):
    site.clawhub(version="1.0.0")
    with pytest.raises(NotFoundError, match=r"no version '9.9.9'; the newest is 1.0.0"):
        await hub.install(OWNER, "pdf-tools", version="9.9.9")
    await hub.install(OWNER, "pdf-tools", version="1.0.0")


@pytest.mark.parametrize(
    "change",
    [
        {"SKILL.md": skill_md(about="Another.")},
        {"extra.sh": b"rm -rf /"},
        {"templates/form.txt": None},
    ],
)
async def test_archive_that_is_not_what_was_listed_is_refused(hub, site, root, change):
    """No checksum comes with an archive: each file's is in the version's list."""
    site.clawhub()
    files = {k: v for k, v in {**files_of(), **change}.items() if v is not None}
    site.set("/api/v1/download", zipped(files), Content_Type="application/zip")
    with pytest.raises(RemoteProtocolError, match=f"{next(iter(change))} differs"):
        await hub.install(OWNER, "pdf-tools")
    assert not (root / "pdf-tools").exists()


async def test_skill_that_lies_on_github_is_fetched_from_there(site, make, root):
    """`/download` answers 200 with JSON for a public source."""
    commit = "b" * 40
    skills = make(
        clawhub=SkillRegistry(url=site.url), github=SkillRegistry(url=site.url, token="gh")
    )
    site.clawhub()
    site.github("acme/kit", commit)
    source = {
        "sourceRef": "public-github", "repo": "acme/kit", "commit": commit,
        "path": "skills/pdf-tools", "contentHash": "c" * 64, "archiveUrl": "http://127.0.0.1:1/",
    }  # fmt: skip
    site.set("/api/v1/download", source)
    await skills.install(OWNER, "pdf-tools")
    assert there(root) == files_of()
    for bad in ({"repo": "../x"}, {"commit": "main"}, {"path": "../.."}):
        site.set("/api/v1/download", source | bad)
        with pytest.raises(RemoteProtocolError):
            await skills.install(OWNER, "pdf-tools", force=True)


@pytest.mark.parametrize("slug", ["../x", "a/../b", "x" * 200, "", "a b", "@/x", "a/b/c/d"])
async def test_reference_that_is_none_asks_nobody(hub, site, slug):
    with pytest.raises(EdgedError):
        await hub.install(OWNER, slug)
    assert site.requests == []


async def test_token_is_sent_and_never_shown(site, make):
    skills = make(clawhub=SkillRegistry(url=site.url, token="clh_secret"))
    site.set("/api/v1/search", b"bad token", 401)
    with pytest.raises(RemoteProtocolError) as caught:
        await skills.find("x", 5)
    assert site.requests[0].headers["Authorization"] == "Bearer clh_secret"
    assert "clh_secret" not in str(caught.value)


# GitHub ---------------------------------------------------------------------------------------


@pytest.fixture
def github(site, make):
    return make(github=SkillRegistry(url=site.url))


@pytest.mark.parametrize(
    "reference",
    [
        "acme/kit/skills/pdf-tools",
        "acme/kit/pdf-tools",
        "acme/kit",
        "acme/kit/skills/pdf-tools@v1",
        "https://github.com/acme/kit",
        "https://github.com/acme/kit/tree/main/skills/pdf-tools",
        "https://github.com/acme/kit/blob/main/skills/pdf-tools/SKILL.md",
    ],
)
async def test_folder_of_a_repository_is_installed_whole(github, site, root, reference):
    """Picoclaw #1245: only some folders were, without their templates."""
    site.github()
    done = await github.install(OWNER, reference)
    assert there(root) == files_of()
    assert done.version == "a" * 40
    assert done.source.startswith("github: acme/kit/skills/pdf-tools")


async def test_repository_with_several_skills_names_them(github, site):
    folders = {f"skills/{name}": files_of(name) for name in ("pdf-tools", "csv-tools")}
    site.github(folders=folders)
    with pytest.raises(NotFoundError, match="acme/kit/skills/csv-tools, acme/kit/skills/pdf-tool"):
        await github.install(OWNER, "acme/kit")


async def test_unknown_repository_or_ref_is_told(github, site):
    with pytest.raises(NotFoundError, match="no 'HEAD' of acme/none"):
        await github.install(OWNER, "acme/none")


async def test_search_without_a_token_says_what_it_needs(github):
    """picoclaw: refusals were shown as empty results."""
    with pytest.raises(DeniedError, match="`token` or `repositories`"):
        await github.find("pdf", 5)


async def test_configured_repositories_are_searched(site, make):
    skills = make(github=SkillRegistry(url=site.url, repositories=["acme/kit"]))
    site.github(folders={f"skills/{n}": files_of(n) for n in ("pdf-tools", "csv")})
    found = await skills.find("PDF", 5)
    assert [hit.name for hit in found.hits] == ["acme/kit/skills/pdf-tools"]


async def test_code_search_is_used_with_a_token(site, make):
    skills = make(github=SkillRegistry(url=site.url, token="gh"))
    repository = {"full_name": "acme/kit", "description": "Skills"}
    site.set(
        "/search/code",
        {"items": [
            {"path": "skills/pdf/SKILL.md", "repository": repository},
            {"path": "docs/SKILL.md.txt", "repository": repository},
        ]},
    )  # fmt: skip
    found = await skills.find("pdf", 5)
    assert [hit.name for hit in found.hits] == ["acme/kit/skills/pdf"]
    assert site.requests[0].query["q"] == "pdf filename:SKILL.md"
    assert site.requests[0].headers["Authorization"] == "Bearer gh"


# A directory, and an index over HTTP -----------------------------------------------------------


@pytest.fixture
def mine(tmp_path):
    """A directory with two skills, one of them below a folder."""
    for path in ("pdf-tools", "office/csv-tools"):
        name = path.rpartition("/")[2]
        for inner, data in files_of(name, f"Works with {name}.").items():
            file = tmp_path / "mine" / path / inner
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o755 if inner.endswith(".sh") else 0o644)
    return tmp_path / "mine"


async def test_directory_is_searched_and_copied(mine, make, root):
    skills = make(mine=SkillRegistry(kind="directory", path=str(mine)))
    found = await skills.find("csv", 5)
    assert [(h.name, h.description) for h in found.hits] == [
        ("office/csv-tools", "Works with csv-tools.")
    ]
    await skills.install(OWNER, "office/csv-tools")
    assert there(root, "csv-tools") == files_of("csv-tools", "Works with csv-tools.")
    assert (root / "csv-tools/scripts/go.sh").stat().st_mode & 0o777 == 0o755
    await skills.install(OWNER, "pdf-tools", source=str(mine))
    with pytest.raises(NotFoundError, match="no skill '../mine/pdf-tools'"):
        await skills.install(OWNER, "../mine/pdf-tools")


async def test_directory_with_a_link_is_refused(mine, make):
    (mine / "pdf-tools" / "leak").symlink_to("/etc/passwd")
    skills = make(mine=SkillRegistry(kind="directory", path=str(mine)))
    with pytest.raises(RemoteProtocolError, match="is a link or no file"):
        await skills.install(OWNER, "pdf-tools")


@pytest.mark.parametrize("kind", ["zip", "tar"])
async def test_index_over_http_is_searched_and_installed(site, make, root, kind):
    """Agent Skills Discovery 0.2.0."""
    data = zipped(files_of()) if kind == "zip" else tarred(files_of(), "pdf-tools")
    single = SKILL.format(name="one", about="One file.").encode()
    site.set(
        "/.well-known/agent-skills/index.json",
        {
            "$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json",
            "skills": [
                {"name": "pdf-tools", "type": "archive", "description": "PDF.",
                 "url": "pdf-tools.zip", "digest": f"sha256:{sha(data)}"},
                {"name": "one", "type": "skill-md", "description": "One file.",
                 "url": "/one/SKILL.md", "digest": f"sha256:{sha(single)}"},
                {"name": "wrong", "type": "archive", "description": "",
                 "url": "pdf-tools.zip", "digest": f"sha256:{'0' * 64}"},
                {"name": "away", "type": "archive", "description": "", "url": "file:///x"},
                {"name": "none", "type": "archive", "description": "", "url": "http://[bad/x"},
            ],
        },
    )  # fmt: skip
    site.set("/.well-known/agent-skills/pdf-tools.zip", data)
    site.set("/one/SKILL.md", single)
    skills = make(shelf=SkillRegistry(kind="http", url=site.url))
    assert [hit.name for hit in (await skills.find("file", 5)).hits] == ["one"]
    await skills.install(OWNER, "pdf-tools")
    assert there(root) == files_of()
    await skills.install(OWNER, "one", source=site.url)
    assert there(root, "one") == {"SKILL.md": single}
    with pytest.raises(RemoteProtocolError, match="its digest differs"):
        await skills.install(OWNER, "wrong")
    for name in ("away", "none"):
        with pytest.raises(RemoteProtocolError, match="is not followed"):
            await skills.install(OWNER, name)


def test_archives_bounds_are_those_of_clawhub():
    """Bundle 50 MB, file 10 MB."""
    assert (archive.TOTAL_MAX, archive.FILE_MAX) == (50 << 20, 10 << 20)
