"""Verbs that list what the daemon has, with a client that says what it is told to say."""

import json

import pytest

from edged.cli import log, run, show, token, tools

RECORD = {
    "time": "2026-11-30T12:00:00Z",
    "tool": "hello",
    "outcome": "invalid_arguments",
    "duration_ms": 1.25,
    "user": "local",
    "door": "unix",
    "detail": "hello: " + "name: is required (a text); " * 5,
}


class FakeClient:
    """Answers by method; remembers what it was asked."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def request(self, method, params=None):
        self.asked.append((method, params))
        return self.answers[method]

    def follow(self, method, params):
        records = self.answers[method]["records"]
        more = [(method, record) for record in records] + [("edged/gap", {"lost": 3})]
        return {"records": []}, iter([*more, ("other", {})])


@pytest.fixture
def daemon(monkeypatch):
    """Lets the verbs connect to a client that is made for the test."""

    def use(**answers):
        client = FakeClient({f"edged/{name}": answer for name, answer in answers.items()})
        for verb in (log, token, tools):
            monkeypatch.setattr(verb, "connect", lambda _: client)
        monkeypatch.setenv("COLUMNS", "80")
        return client

    return use


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("words", [[], ["--follow"]])
def test_detail_of_the_log_has_lines_of_its_own_on_a_terminal(words, daemon, terminal, capsys):
    """A reason that is cut off says nothing of what to do, nor does one of a word a line."""
    daemon(log={"records": [RECORD, {**RECORD, "detail": ""}]})
    assert run(["log", *words]) == 0
    header, first, *detail, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["TIME", "TOOL", "OUTCOME", "MS", "BY"]
    assert first == last
    assert len(detail) == 2
    assert all(len(line) <= 80 and line.startswith("    ") for line in detail)
    assert " ".join(line.strip() for line in detail) == RECORD["detail"].strip()


@pytest.mark.parametrize("words", [[], ["--follow"]])
def test_record_of_the_log_is_one_whole_line_in_a_file(words, daemon, capsys):
    """`edged log | grep` finds every word of it."""
    daemon(log={"records": [RECORD]})
    assert run(["log", *words]) == 0
    out, err = capsys.readouterr()
    (line,) = out.splitlines()[1:]
    assert "  invalid_arguments  " in line
    assert line.endswith("  " + RECORD["detail"].strip())
    assert err == ("edged: 3 records are left out: this end was slow\n" if words else "")


def row(name, status="enabled", reason="", **more):
    return {
        "name": name,
        "status": status,
        "reason_code": reason,
        "description": f"Does {name}.",
        "source": "built-in",
        "problem": "",
        "sandbox": "",
        "hidden": False,
        **more,
    }


STATES = {"tools": [row("a"), row("b", "blocked", "invalid"), row("c", "blocked", "shadowed")]}


def test_blocked_tools_are_counted_after_the_list(daemon, capsys):
    """Who misses a tool in the list learns where to look."""
    daemon(**{"tools/state": STATES})
    assert run(["tools"]) == 0
    out, err = capsys.readouterr()
    assert out == "NAME  DESCRIPTION\na     Does a.\n"
    assert err == "edged: 1 tool is blocked: edged tools --all says why\n"


@pytest.mark.parametrize("reason", ["shadowed", "requires_device", "requires_mcp_discovery"])
def test_what_somebody_wanted_so_is_not_counted(reason, daemon, capsys):
    """A tool that is overridden, a bus that a board has not, a family that is switched off."""
    daemon(**{"tools/state": {"tools": [row("b", "blocked", reason)]}})
    assert run(["tools"]) == 0
    assert capsys.readouterr().err == ""


def test_no_channel_for_messages_is_no_fault(daemon, capsys):
    """Nobody has to want messages; a sandbox that needs a setting is wanted."""
    one = {**row("message", "blocked", "requires_config"), "category": "communication"}
    two = {**row("exec", "blocked", "requires_config"), "category": "filesystem"}
    daemon(**{"tools/state": {"tools": [one, two]}})
    assert run(["tools"]) == 0
    assert "1 tool is blocked" in capsys.readouterr().err


def test_reason_of_a_blocked_tool_is_whole_within_the_terminal(daemon, terminal, capsys):
    reason = "/d/TOOL.md:3: " + "write it so; " * 12
    daemon(**{"tools/state": {"tools": [row("b", "blocked", "invalid", problem=reason)]}})
    assert run(["tools", "--all"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 80 and line.startswith("    ") for line in lines)
    assert " ".join(line.strip() for line in lines) == reason.strip()


@pytest.mark.parametrize(
    ("status", "out", "err"),
    [
        ("enabled", "b: enabled\n", ""),
        ("blocked", "b: blocked\n", "edged: b is switched on, and blocked: no node\n"),
    ],
)
def test_switch_says_what_the_tool_is_afterwards(status, out, err, daemon, capsys):
    daemon(**{"tools/state": {}, "describe": row("b", status, problem="no node")})
    assert run(["tools", "--enable", "b"]) == 0
    assert capsys.readouterr() == (out, err)


def test_what_is_switched_along_is_named(daemon, capsys):
    """P: a tool that is switched on gets the family that it requires."""
    done = {"status": "ok", "switched": ["mcp"]}
    client = daemon(**{"tools/state": done, "describe": row("search", "enabled")})
    assert run(["tools", "--enable", "search"]) == 0
    assert capsys.readouterr().out == "search: enabled\nmcp: enabled, as search requires it\n"
    assert run(["tools", "--enable", "search", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "search", "status": "enabled", "switched": ["mcp"],
    }  # fmt: skip
    assert client.asked[0] == ("edged/tools/state", {"name": "search", "enabled": True})


def test_a_family_that_is_switched_off_names_the_tools_that_lack_it(daemon, capsys):
    """A family is no tool that could be described."""
    daemon(**{"tools/state": {"status": "ok", "blocked": ["find_skills"]}})
    assert run(["tools", "--disable", "skills"]) == 0
    assert capsys.readouterr().out == (
        "skills: disabled\nfind_skills: blocked, as it requires skills\n"
    )


@pytest.mark.parametrize("words", [["--json"], ["--all"], ["--all", "--json"]])
def test_other_forms_of_the_list_say_nothing_beside(words, daemon, capsys):
    daemon(**{"tools/state": STATES})
    assert run(["tools", *words]) == 0
    assert capsys.readouterr().err == ""


def test_file_of_the_first_token_goes_with_it_and_another_can_be_made(daemon, capsys, tmp_path):
    """Contract, section 4: the first token is written to the data directory."""
    file = tmp_path / "token"
    file.touch()
    client = daemon(status={"data": str(tmp_path)}, token={"status": "ok"})
    assert run(["token", "revoke", "first"]) == 0
    assert capsys.readouterr() == (
        "first: revoked\n",
        f"edged: {file} went with it: for another, edged token add NAME --role owner\n",
    )
    assert client.asked[-1] == ("edged/token", {"action": "revoke", "name": "first"})


@pytest.mark.parametrize("name", ["first", "kitchen"])
def test_nothing_is_said_of_a_file_that_was_not_there(name, daemon, capsys, tmp_path):
    """`edged token add first` writes none."""
    daemon(status={"data": str(tmp_path)}, token={"status": "ok"})
    assert run(["token", "revoke", name]) == 0
    assert capsys.readouterr() == (f"{name}: revoked\n", "")


def test_check_tool_knows_the_built_in_names_and_notes_are_no_failure(capsys, tmp_path):
    """Contract, section 10: names of built-in tools are reserved."""
    for name in ("gpio", "soil"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.sh").touch()
        (tmp_path / name / "TOOL.md").write_text(
            f"---\nname: {name}\ndescription: x\nversion: 1\nlanguage: bash\n"
            "calls: [sensor, none]\n---\n"
        )
    assert run(["check-tool", str(tmp_path / "gpio")]) == 1
    assert "TOOL.md:2: error: name: gpio is the name of a built-in" in capsys.readouterr().out
    assert run(["check-tool", str(tmp_path / "soil")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "TOOL.md:6: note: calls: none is neither built in nor" in line


def test_tool_of_another_name_than_its_directory_is_found_by_the_directory(daemon):
    """And a directory of tools that nobody can read is named."""
    rows = [row("other", source="/d/mine"), row("/d/tools", source="/d/tools", problem="/d: shut")]
    client = daemon(**{"tools/state": {"tools": rows}})
    assert tools.lacking(client, "mine") == "the tool in /d/mine is named 'other'"
    assert tools.lacking(client, "none") == "/d: shut"
    client.answers["edged/tools/state"] = {"tools": rows[:1]}
    assert tools.lacking(client, "none") == ""


def test_findings_are_named_by_the_path_that_was_given(capsys, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "tool").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert run(["check-tool", "../tool"]) == 1
    assert capsys.readouterr().out == (
        "../tool/TOOL.md: error: no TOOL.md: add TOOL.md, "
        "or have a whole tool written by edged new-tool NAME\n"
    )
