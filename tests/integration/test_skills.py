"""Skills through a daemon: its doors, its sandbox, its data directory."""

import json
import os
import re
from pathlib import Path

import pytest

SPECIFICATION = (Path(__file__).parents[1] / "data" / "tools-api.md").read_text()
BODY = "---\nname: {0}\ndescription: Knows {0} by heart.\n---\nRun {{baseDir}}/scripts/go.sh.\n"


def example(title):
    """A JSON example of the specification, without its comments."""
    block = SPECIFICATION.split(title)[1].split("```json")[1].split("```")[0]
    return json.loads(re.sub(r"\s//[^\n]*", "", block))


def lay(root, *names):
    for name in names:
        for inner, text in (
            ("SKILL.md", BODY.format(name)),
            ("scripts/go.sh", "#!/bin/sh\necho went\n"),
            ("templates/form.txt", "a form\n"),
        ):
            path = root / name / inner
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if inner.endswith(".sh") else 0o644)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("skills-registry")
    lay(root, "pdf-tools", "csv-tools", "by-cli")
    return root


@pytest.fixture(scope="module")
def daemon(shelf, serving):
    """Its one registry has the name that the specification's example names."""
    registry = f"registry-url: {{kind: directory, path: '{shelf}'}}"
    with serving(config=f"tools: {{skills: {{registries: {{{registry}}}}}}}") as made:
        yield made


def test_the_specifications_examples_work_by_http(daemon):
    """Specification, "Skills Tools"."""
    found = example("**Find Skills Expected Arguments**:")
    status, body = daemon.http("/api/tools/find_skills/call", {"arguments": found})
    assert (status, body["is_error"]) == (200, False)
    assert [hit["name"] for hit in body["structured"]["results"]] == ["pdf-tools"]
    given = example("**Install Skill Expected Arguments**:")
    status, body = daemon.http("/api/tools/install_skill/call", {"arguments": given})
    assert (status, body["is_error"]) == (200, False)
    [done] = body["structured"]["skills"]
    assert done["outcome"] in ("installed", "current")
    assert (daemon.data / "local/skills/pdf-tools/templates/form.txt").read_text() == "a form\n"


@pytest.mark.parametrize(
    "arguments",
    [
        {"slug": "csv-tools"},
        {"name": "csv-tools", "registry": "registry-url"},
        {"slug": "csv-tools", "registry": "registry-url", "force": True, "version": ""},
        {"name": "csv-tools", "source": None},
    ],
)
def test_every_spelling_of_an_input_is_taken(daemon, arguments):
    """Contract, section 8; the names of the best-known implementation."""
    result = daemon.call("install_skill", **arguments)
    assert not result.is_error, result.for_llm
    for limit in ("limit", "max_results", "count"):
        assert not daemon.call("find_skills", query="csv", **{limit: 1}).is_error


def test_wrong_inputs_are_told_all_at_once(daemon):
    result = daemon.call("find_skills", limit=99, nonsense=1)
    assert result.is_error
    for word in ("query: is required", "limit: ", "nonsense"):
        assert word in result.for_llm


def test_skill_is_listed_by_description_and_read_on_demand(daemon):
    daemon.call("install_skill", name="pdf-tools")
    assert "pdf-tools: Knows pdf-tools by heart." in daemon.call("skill").for_llm.split("\n")
    text = daemon.call("skill", name="pdf-tools").for_llm
    assert "Run /officer/user/skills/pdf-tools/scripts/go.sh." in text
    assert "scripts/go.sh, templates/form.txt" in text
    assert daemon.call("skill", name="pdf-tools", file="templates/form.txt").for_llm == "a form\n"
    assert daemon.call("skill", name="pdf-tool").is_error


def test_files_of_a_skill_are_read_and_run_where_its_body_says(daemon):
    """One tool's path is the next one's input (contract, section 8)."""
    daemon.call("install_skill", name="pdf-tools")
    path = "/officer/user/skills/pdf-tools"
    read = daemon.call("read_file", path=f"{path}/templates/form.txt")
    assert "a form" in read.for_llm, read.for_llm
    ran = daemon.call("exec", action="run", command=f"{path}/scripts/go.sh")
    assert "went" in ran.for_llm, ran.for_llm
    written = daemon.call("write_file", path=f"{path}/SKILL.md", content="x")
    assert written.is_error
    spoilt = daemon.call("exec", action="run", command=f"echo x > {path}/SKILL.md")
    assert "Read-only file system" in spoilt.for_llm
    assert (daemon.data / "local/skills/pdf-tools/SKILL.md").read_text() == BODY.format(
        "pdf-tools"
    )


def test_skills_everyone_has_are_seen_in_the_sandbox(daemon):
    result = daemon.call("install_skill", name="csv-tools", scope="everyone")
    assert not result.is_error, result.for_llm
    ran = daemon.call("exec", action="run", command="ls /officer/skills")
    assert "csv-tools" in ran.for_llm
    daemon.call("install_skill", action="remove", name="csv-tools", scope="everyone")


def test_tools_are_listed_as_the_specification_has_them(daemon):
    """Specification, "Skills Tools" and "List All Tools"."""
    _, body = daemon.http("/api/tools")
    rows = {row["name"]: row for row in body["tools"]}
    for name in ("find_skills", "install_skill"):
        row = rows[name]
        assert (row["category"], row["config_key"]) == ("skills", name)
        assert (row["status"], row["reason_code"]) == ("enabled", "")


def test_skills_that_are_off_block_their_tools_by_name(daemon):
    """Specification: "Requires `skills` config to be enabled"; it holds at once."""
    status, body = daemon.http("/api/tools/skills/state", {"enabled": False}, method="PUT")
    assert (status, body["status"]) == (200, "ok")
    assert body["blocked"] == ["find_skills", "install_skill", "skill"]
    _, listed = daemon.http("/api/tools")
    row = next(row for row in listed["tools"] if row["name"] == "find_skills")
    assert (row["status"], row["reason_code"]) == ("blocked", "requires_skills")
    status, body = daemon.http("/api/tools/find_skills/call", {"arguments": {"query": "x"}})
    assert (status, body["reason_code"]) == (409, "requires_skills")
    status, body = daemon.http("/api/tools/install_skill/state", {"enabled": True}, method="PUT")
    assert (status, body["switched"]) == (200, ["skills"])
    assert not daemon.call("find_skills", query="pdf").is_error


def test_agent_changes_nothing_of_everyones(daemon):
    added = daemon.cli("token", "add", "agent", "--user", "ada@example.org")
    token = added.stdout.strip()
    given = {"arguments": {"name": "pdf-tools", "scope": "everyone"}}
    _, body = daemon.http("/api/tools/install_skill/call", given, token=token)
    assert body["is_error"]
    assert "only an owner may change everyone's skills" in body["for_llm"]
    _, body = daemon.http(
        "/api/tools/install_skill/call", {"arguments": {"name": "pdf-tools"}}, token=token
    )
    assert not body["is_error"]
    assert (daemon.data / "ada@example.org/skills/pdf-tools").is_dir()


def test_command_line_does_it_all(daemon, shelf):
    done = daemon.cli("skills", "find", "by-cli")
    assert (done.returncode, done.stderr) == (0, "")
    assert "by-cli" in done.stdout
    done = daemon.cli("skills", "install", "by-cli", "--source", "registry-url")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Installed by-cli ")
    rows = json.loads(daemon.cli("skills", "--json").stdout)["skills"]
    row = next(row for row in rows if row["name"] == "by-cli")
    assert (row["scope"], row["source"], row["problem"]) == ("user", "registry-url: by-cli", "")
    assert "by-cli" in daemon.cli("skills").stdout
    assert "go.sh" in daemon.cli("skills", "show", "by-cli").stdout
    assert (
        daemon.cli("skills", "show", "by-cli", "--file", "templates/form.txt").stdout == "a form\n"
    )
    given = json.loads(daemon.cli("skills", "show", "by-cli", "--json").stdout)
    assert given["name"] == "by-cli"
    assert given["body"].strip()
    assert daemon.cli("skills", "show", "by-cli").stdout.endswith(
        given["body"].rstrip("\n") + "\n"
    )
    file = ("skills", "show", "by-cli", "--file", "templates/form.txt", "--json")
    assert json.loads(daemon.cli(*file).stdout)["text"] == "a form\n"
    (daemon.data / "local/skills/by-cli/SKILL.md").write_text(BODY.format("mine"))
    lay(shelf, "by-cli")
    (shelf / "by-cli/new.txt").write_text("new")
    done = daemon.cli("skills", "update", "by-cli")
    assert (done.returncode, done.stdout) == (1, "")
    assert "by-cli was changed here (SKILL.md): --force replaces it" in done.stderr
    done = daemon.cli("skills", "remove", "by-cli")
    assert "(SKILL.md): --force removes it" in done.stderr
    assert daemon.cli("skills", "update", "by-cli", "--force").stdout.startswith("Updated by-cli ")
    assert daemon.cli("skills", "remove", "by-cli").stdout.startswith("Removed by-cli.")
    assert daemon.cli("skills", "remove", "by-cli").returncode == 1


def test_check_finds_what_is_wrong_without_a_daemon(daemon, tmp_path):
    """Section 5, 9: 62 of 211 files of one collection could not be read."""
    for name, text in (
        ("good", BODY.format("good")),
        ("Odd", BODY.format("odd_name")),
        ("bad", "---\nname: bad\nKeywords: a\n  - b: [\n---\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(text)
    done = daemon.edged("skills", "check", *(str(tmp_path / n) for n in ("good", "Odd", "bad")))
    assert done.returncode == 1
    good, odd, bad = done.stdout.splitlines()[:3]
    assert good.endswith("good: nothing to mend")
    assert "Odd: warning: name: 'odd_name' is not the directory's, 'Odd'" in odd
    assert "bad: error: SKILL.md:" in bad


def test_files_belong_to_whom_the_users_other_files_do(daemon):
    daemon.call("install_skill", name="pdf-tools")
    daemon.call("exec", action="run", command="true")
    base = daemon.data / "local"
    owner = os.stat(base / "workspace").st_uid
    for path in (base / "skills", base / "skills/pdf-tools", base / "skills/pdf-tools/SKILL.md"):
        assert path.stat().st_uid == owner


def test_list_tells_each_fault_once_below_its_skill(daemon):
    for name in ("no-words", "other-name"):
        (daemon.data / f"local/skills/{name}").mkdir(parents=True)
    (daemon.data / "local/skills/no-words/SKILL.md").write_text("---\nname: no-words\n---\nX\n")
    (daemon.data / "local/skills/other-name/SKILL.md").write_text(
        "---\nname: another\ndescription: Does a thing.\n---\nX\n"
    )
    done = daemon.cli("skills")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("no-words "))
    assert lines[at].endswith("(cannot be used)")
    assert lines[at + 1].startswith("    SKILL.md:2: description: is missing")
    assert done.stdout.count("is missing") == 1
    assert "    name: 'another' is not the directory's, 'other-name'" in lines
