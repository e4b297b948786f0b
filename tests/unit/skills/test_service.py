"""Whose skills are whose, what replaces what, and who is trusted."""

import asyncio
import os

import pytest

from edged.errors import (
    DeniedError,
    ExistsError,
    InvalidArgumentsError,
    NotFoundError,
    RemoteProtocolError,
    StoreError,
)
from edged.sections import SkillRegistry
from edged.skills.shelf import read_lock
from tests.unit.skills.conftest import AGENT, OWNER, Site, files_of, skill_md, zipped


def lay(root, name, about="By hand.", body=None):
    (root / name).mkdir(parents=True)
    (root / name / "SKILL.md").write_bytes(body if body is not None else skill_md(name, about))


async def test_only_the_two_roots_are_looked_into(make, tmp_path, monkeypatch):
    """Picoclaw #3075: a folder in the current directory was trusted."""
    for place in (".", ".agents", ".claude", "data/local/workspace", "data/local/home"):
        lay(tmp_path / place / "skills", "evil")
    monkeypatch.chdir(tmp_path)
    lay(tmp_path / "data" / "skills", "for-all")
    lay(tmp_path / "data" / "local" / "skills", "mine")
    lay(tmp_path / "data" / "ada@example.org" / "skills", "hers")
    assert [row.name for row in await make().rows(OWNER)] == ["for-all", "mine"]
    assert [row.name for row in await make().rows(AGENT)] == ["for-all", "hers"]


async def test_own_skill_comes_before_everyones_and_a_broken_one_hides_none(make, tmp_path):
    """Section 5, 15 to 17: a fixed precedence."""
    for name in ("a", "b"):
        lay(tmp_path / "data" / "skills", name, "For all.")
    lay(tmp_path / "data" / "local" / "skills", "a", "Mine.")
    lay(tmp_path / "data" / "local" / "skills", "b", body=b"broken")
    rows = await make().rows(OWNER)
    assert [(r.name, r.description, r.scope) for r in rows] == [
        ("a", "Mine.", "user"),
        ("b", "For all.", "everyone"),
    ]


async def test_body_and_files_are_given_on_demand(hub, site):
    """Agent Skills: name and description first, the body when it is needed, files after that."""
    site.clawhub()
    await hub.install(OWNER, "pdf-tools")
    shown = await hub.show(OWNER, "pdf-tools")
    assert shown.body == "# pdf-tools\n\nRun /officer/user/skills/pdf-tools/scripts/go.sh."
    assert shown.files == ["own-folder/deep/data.bin", "scripts/go.sh", "templates/form.txt"]
    assert await hub.read(OWNER, "pdf-tools", "templates/form.txt") == "form 1.0.0\n"
    for file, says in (
        ("own-folder/deep/data.bin", "is no text"),
        ("none", "has no file none: edged skills show"),
        ("scripts/../../x", "leads out"),
        ("../../../../../etc/passwd", "leads out"),
        ("/etc/passwd", "leads out"),
        ("scripts", "not a regular file"),
    ):
        with pytest.raises(NotFoundError, match=says):
            await hub.read(OWNER, "pdf-tools", file)
    whole = f"{shown.row.path}/scripts/go.sh"
    assert await hub.read(OWNER, "pdf-tools", whole) == "#!/bin/sh\necho go\n"
    with pytest.raises(NotFoundError, match="there is: pdf-tools"):
        await hub.show(OWNER, "none")


async def test_lock_tells_source_version_and_hashes(hub, site, root, clock):
    site.clawhub()
    await hub.install(OWNER, "pdf-tools")
    lock = read_lock(str(root / "pdf-tools"))
    assert (lock.registry, lock.reference, lock.version) == ("clawhub", "alice/pdf-tools", "1.0.0")
    assert set(lock.files) == set(files_of())
    assert len(lock.digest) == 64
    assert lock.installed_at.endswith("Z")


async def test_install_again_changes_nothing_and_fetches_nothing(hub, site):
    site.clawhub()
    await hub.install(OWNER, "pdf-tools")
    assert (await hub.install(OWNER, "pdf-tools")).outcome == "current"
    assert len(site.asked("/api/v1/download")) == 1


async def test_update_brings_the_newest_and_keeps_what_was_changed(hub, site, root):
    site.clawhub(version="1.9.0")
    await hub.install(OWNER, "pdf-tools")
    site.clawhub(version="1.10.0")
    [done] = await hub.update(OWNER)
    assert (done.outcome, done.before, done.version) == ("updated", "1.9.0", "1.10.0")
    assert (root / "pdf-tools/templates/form.txt").read_text() == "form 1.10.0\n"
    (root / "pdf-tools/SKILL.md").write_bytes(skill_md(about="Mine."))
    site.clawhub(version="2.0.0")
    [done] = await hub.update(OWNER)
    assert (done.outcome, done.version) == ("skipped", "1.10.0")
    assert "was changed here (SKILL.md)" in done.note
    with pytest.raises(ExistsError):
        await hub.update(OWNER, "pdf-tools")
    [done] = await hub.update(OWNER, "pdf-tools", force=True)
    assert done.version == "2.0.0"
    kept = root / ".replaced/pdf-tools/SKILL.md"
    assert b"Mine." in kept.read_bytes()


async def test_named_version_stays_until_another_is_named(hub, site):
    site.clawhub(version="1.0.0")
    await hub.install(OWNER, "pdf-tools", version="1.0.0")
    site.clawhub(version="2.0.0")
    [done] = await hub.update(OWNER)
    assert (done.outcome, done.version) == ("pinned", "1.0.0")
    [done] = await hub.update(OWNER, "pdf-tools", version="2.0.0")
    assert done.version == "2.0.0"


async def test_malware_found_later_is_not_updated_to(hub, site):
    site.clawhub(version="1.0.0")
    await hub.install(OWNER, "pdf-tools")
    site.clawhub(version="2.0.0", isMalwareBlocked=True)
    [done] = await hub.update(OWNER)
    assert (done.outcome, "malware" in done.note) == ("skipped", True)


async def test_another_owners_skill_of_the_same_name_needs_force(hub, site):
    site.clawhub(owner="alice")
    await hub.install(OWNER, "pdf-tools")
    site.clawhub(owner="mallory", version="9.0.0")
    with pytest.raises(ExistsError, match=r"from clawhub \(alice/pdf-tools\)"):
        await hub.install(OWNER, "mallory/pdf-tools")
    done = await hub.install(OWNER, "mallory/pdf-tools", force=True)
    assert done.source == "clawhub: mallory/pdf-tools"


async def test_first_registry_in_order_gives_a_skill(site, make, tmp_path):
    lay(tmp_path / "own", "pdf-tools", "Own.")
    skills = make(
        own=SkillRegistry(kind="directory", path=str(tmp_path / "own")),
        clawhub=SkillRegistry(url=site.url),
    )
    site.clawhub()
    assert (await skills.install(OWNER, "pdf-tools")).source == "own: pdf-tools"
    site.clawhub("csv")
    assert (await skills.install(OWNER, "csv")).source == "clawhub: alice/csv"
    with pytest.raises(NotFoundError, match="own: no skill 'none'.*; clawhub: no skill 'none'"):
        await skills.install(OWNER, "none")


async def test_registry_that_is_down_gives_no_way_to_another(site, make):
    """A stranger's skill of the same name would come in its place."""
    async with Site().serve() as public:
        public.clawhub(owner="mallory")
        skills = make(
            inner=SkillRegistry(kind="http", url=f"{site.url}/index.json"),
            clawhub=SkillRegistry(url=public.url),
        )
        site.set("/index.json", b"down", 500)
        with pytest.raises(RemoteProtocolError, match="inner: HTTP 500"):
            await skills.install(OWNER, "pdf-tools")
        assert public.requests == []


@pytest.mark.parametrize("kind", ["directory", "http", "clawhub", "github"])
async def test_registry_without_that_version_gives_no_way_to_another(kind, site, make, tmp_path):
    """A stranger's skill of the same name may have it."""
    lay(tmp_path / "own", "pdf-tools", "Own.")
    site.clawhub()
    row = {"name": "pdf-tools", "type": "archive", "url": "x.zip", "version": "1.0.0"}
    site.set("/index.json", {"skills": [row]})
    # GitHub REST, "Get a commit": 422 where the repository has no such one.
    site.set("/repos/acme/pdf-tools/commits/9.9.9", {"message": "No commit found"}, 422)
    first = {
        "directory": SkillRegistry(kind="directory", path=str(tmp_path / "own")),
        "http": SkillRegistry(kind="http", url=f"{site.url}/index.json"),
        "clawhub": SkillRegistry(kind="clawhub", url=site.url),
        "github": SkillRegistry(kind="github", url=site.url),
    }
    name = "acme/pdf-tools" if kind == "github" else "pdf-tools"
    async with Site().serve() as public:
        public.clawhub(owner="acme", version="9.9.9")
        skills = make(mine=first[kind], public=SkillRegistry(kind="clawhub", url=public.url))
        with pytest.raises(NotFoundError, match=r"^mine: .*9\.9\.9"):
            await skills.install(OWNER, name, version="9.9.9")
        assert public.requests == []


async def test_broken_skill_is_told_and_gives_no_way_to_another(site, make, tmp_path):
    lay(tmp_path / "own", "pdf-tools", body=b"broken")
    skills = make(
        mine=SkillRegistry(kind="directory", path=str(tmp_path / "own")),
        clawhub=SkillRegistry(url=site.url),
    )
    site.clawhub()
    with pytest.raises(RemoteProtocolError, match="^mine: pdf-tools: SKILL.md:1: "):
        await skills.install(OWNER, "pdf-tools")
    assert site.requests == []


async def test_only_configured_registries_are_asked(hub, site):
    for source in ("nobody", "http://evil.example", "https://clawhub.ai"):
        with pytest.raises(InvalidArgumentsError, match="is no registry of the configuration"):
            await hub.install(OWNER, "pdf-tools", source=source)
    for reference in ("https://evil.example/alice/pdf-tools", "http://[bad/x"):
        with pytest.raises(InvalidArgumentsError, match="is at no registry"):
            await hub.install(OWNER, reference)
    assert site.requests == []


async def test_disabled_registry_is_not_asked(site, make):
    skills = make(clawhub=SkillRegistry(url=site.url, enabled=False))
    with pytest.raises(NotFoundError, match="no registry is configured"):
        await skills.find("x", 1)
    with pytest.raises(NotFoundError, match="no registry is configured"):
        await skills.install(OWNER, "x")


async def test_everyones_skills_are_changed_by_owners_alone(hub, site, tmp_path):
    site.clawhub()
    with pytest.raises(DeniedError, match="only an owner"):
        await hub.install(AGENT, "pdf-tools", everyone=True)
    await hub.install(OWNER, "pdf-tools", everyone=True)
    assert (tmp_path / "data/skills/pdf-tools/SKILL.md").exists()
    assert [row.scope for row in await hub.rows(AGENT)] == ["everyone"]
    for act in (hub.remove(AGENT, "pdf-tools", everyone=True), hub.update(AGENT, everyone=True)):
        with pytest.raises(DeniedError):
            await act
    assert "/.replaced/" in await hub.remove(OWNER, "pdf-tools", everyone=True)
    assert await hub.rows(AGENT) == []


async def test_everyones_skill_is_not_said_to_be_missing(hub, site):
    site.clawhub()
    await hub.install(OWNER, "pdf-tools", everyone=True)
    for act in (hub.remove, hub.update):
        with pytest.raises(NotFoundError, match="^pdf-tools is everyone's: add --everyone"):
            await act(OWNER, "pdf-tools")
        with pytest.raises(NotFoundError, match="^pdf-tools is everyone's: only an owner"):
            await act(AGENT, "pdf-tools")
        for everyone in (False, True):
            with pytest.raises(NotFoundError, match="^no skill named 'none'"):
                await act(OWNER, "none", everyone=everyone)


async def test_front_matter_chooses_no_directory(hub, site, root):
    """Section 5, 45 and 42: the name comes from what was asked for."""
    files = files_of("../../evil")
    site.clawhub(files=files)
    done = await hub.install(OWNER, "pdf-tools")
    assert sorted(os.listdir(root)) == ["pdf-tools"]
    assert any("is not the directory's" in one for one in done.warnings)


@pytest.mark.parametrize("slug", ["Pdf-Tools", "pdf_tools", "pdf.tools", "a--b"])
async def test_slug_that_is_no_name_is_refused(hub, site, root, slug):
    """It would collide on some file system, or with the rules of the format."""
    site.clawhub(slug)
    with pytest.raises(InvalidArgumentsError, match="name: "):
        await hub.install(OWNER, slug)
    assert site.asked("/api/v1/download") == []


async def test_what_has_no_description_is_not_installed(hub, site, root):
    site.clawhub(files={"SKILL.md": b"---\nname: pdf-tools\n---\n"})
    with pytest.raises(RemoteProtocolError, match="is no skill: .*description: is missing"):
        await hub.install(OWNER, "pdf-tools")
    assert os.listdir(root) == []


async def test_two_installs_at_once_are_one_after_the_other(hub, site, root):
    """Section 5, 21: concurrent changes."""
    site.clawhub()
    site.clawhub("csv")
    site.clawhub()
    done = await asyncio.gather(*(hub.install(OWNER, "pdf-tools") for _ in range(4)))
    assert sorted(one.outcome for one in done) == ["current", "current", "current", "installed"]
    assert os.listdir(root) == ["pdf-tools"]


async def test_cancelled_install_leaves_nothing_behind(hub, site, root):
    site.clawhub()
    site.held = "/api/v1/download"
    task = asyncio.create_task(hub.install(OWNER, "pdf-tools"))
    await asyncio.wait_for(site.reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.listdir(root) == []
    site.go.set()
    assert (await hub.install(OWNER, "pdf-tools")).outcome == "installed"


async def test_search_is_kept_for_a_while_by_its_words_and_limit(hub, site, clock):
    """picoclaw, section 12: a kept answer ignored the limit."""
    site.set("/api/v1/search", {"results": [{"slug": f"s{i}"} for i in range(5)]})
    assert len((await hub.find("Pdf", 5)).hits) == 5
    assert len((await hub.find(" pdf ", 5)).hits) == 5
    assert len(site.requests) == 1
    assert len((await hub.find("pdf", 2)).hits) == 2
    clock.advance(301)
    await hub.find("pdf", 5)
    assert len(site.requests) == 3


async def test_one_registry_that_fails_is_noted_and_all_failing_is_an_error(site, make, tmp_path):
    lay(tmp_path / "own", "pdf-tools", "Own.")
    skills = make(
        clawhub=SkillRegistry(url=site.url),
        own=SkillRegistry(kind="directory", path=str(tmp_path / "own")),
    )
    site.set("/api/v1/search", b"down", 503)
    found = await skills.find("pdf", 5)
    assert [hit.registry for hit in found.hits] == ["own"]
    assert found.notes == ["clawhub: HTTP 503: down"]
    with pytest.raises(RemoteProtocolError, match="HTTP 503"):
        await skills.find("pdf", 5, "clawhub")


async def test_results_of_registries_are_interleaved(site, make, tmp_path):
    for name in ("pdf-x", "pdf-y"):
        lay(tmp_path / "own", name)
    skills = make(
        clawhub=SkillRegistry(url=site.url),
        own=SkillRegistry(kind="directory", path=str(tmp_path / "own")),
    )
    site.set("/api/v1/search", {"results": [{"slug": f"s{i}"} for i in range(3)]})
    found = await skills.find("pdf", 4)
    assert [hit.name for hit in found.hits] == ["s0", "pdf-x", "s1", "pdf-y"]


async def test_seeds_are_put_in_kept_up_and_left_out_once_removed(make, tmp_path):
    seed, skills_dir = tmp_path / "seed", tmp_path / "data" / "skills"
    lay(seed, "hello", "One.")
    assert [row.description for row in await make(seed).rows(AGENT)] == ["One."]
    (seed / "hello/SKILL.md").write_bytes(skill_md("hello", "Two."))
    again = make(seed)
    assert [row.description for row in await again.rows(AGENT)] == ["Two."]
    await again.remove(OWNER, "hello", everyone=True)
    assert await make(seed).rows(AGENT) == []
    lay(skills_dir, "hello", "By hand.")
    assert [row.description for row in await make(seed).rows(AGENT)] == ["By hand."]


async def test_installed_skill_is_told_of(site, make):
    told = []
    skills = make(changed=lambda *facts: told.append(facts), clawhub=SkillRegistry(url=site.url))
    site.clawhub()
    await skills.install(OWNER, "pdf-tools")
    await skills.remove(OWNER, "pdf-tools")
    assert [(user, facts["version"]) for user, facts in told] == [
        ("local", "1.0.0"),
        ("local", ""),
    ]


async def test_listing_makes_no_directories(make, tmp_path):
    assert await make().rows(OWNER) == []
    assert not (tmp_path / "data").exists()


async def test_directory_that_cannot_be_used_is_told(hub, site, tmp_path):
    (tmp_path / "data" / "local").mkdir(parents=True)
    (tmp_path / "data" / "local" / "skills").write_text("a file")
    site.clawhub()
    with pytest.raises(StoreError):
        await hub.install(OWNER, "pdf-tools")


async def test_wrapped_archive_of_a_listing_without_hashes_is_refused(hub, site):
    """A version whose files are not told cannot be checked."""
    site.clawhub()
    site.set("/api/v1/skills/pdf-tools/versions/1.0.0", {"version": {"files": []}})
    site.set("/api/v1/download", zipped(files_of()))
    with pytest.raises(RemoteProtocolError, match="tells no hashes"):
        await hub.install(OWNER, "pdf-tools")
