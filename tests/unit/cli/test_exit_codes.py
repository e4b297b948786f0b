"""Exit codes of every verb without a daemon (contract, section 2): 2 wrong usage, 3 none answers.

What a daemon answers is in tests/integration/test_cli.py.
"""

import shlex

import pytest

from edged.cli import VERBS, run

BARE = {"agents", "jobs", "sensors", "skills", "status", "tools", "token", "web-search"}

NO_DAEMON = (
    "tools --enable x", "describe x", "call x", "skills show x", "skills find x",
    "skills install x", "skills update", "skills remove x", "agents show x", "agents run a b",
    "agents tasks", "agents task x", "agents stop x", "agents enable x", "jobs show x",
    "jobs run x", "jobs remove x", "log", "log --follow", "web-search brave --enable", "grant",
    "grant x once", "grant --forget x", "mcp-server", "mcp-server add a -- b",
    "mcp-server test a", "mcp-server remove a", "token add x", "token revoke x", "mcp",
    *sorted(BARE),
)  # fmt: skip

USAGE = (
    "describe", "call", "call read_file path", "call x --timeout 0", "call x --args [1]",
    "call x --url http://127.0.0.1:1", "tools --enable", "tools --enable a --disable b",
    "new-tool", "new-tool 'A B'", "check-tool", "skills show", "skills show a b",
    "skills install", "skills remove", "skills find", "skills check", "agents show",
    "agents run", "agents run a", "agents task", "agents import", "jobs show", "jobs run",
    "log --limit x", "grant x", "grant x perhaps", "grant a b c", "grant --forget",
    "mcp-server add", "mcp-server add a", "mcp-server remove", "token add", "token revoke",
    "token add a --role king", "web-search brave --max-results 0", "config --reset",
    "completion", "completion csh", "sensors --watch x", "status --timeout x", "nope", "--nope",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    """No daemon, and no configuration."""
    for name in ("EDGED_URL", "EDGED_TOKEN", "EDGED_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDGED_SOCKET", str(tmp_path / "none.sock"))
    monkeypatch.setenv("DATA_PATH", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def said(capsys):
    """The one line of a fault."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("edged: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


@pytest.mark.parametrize("words", NO_DAEMON)
def test_verb_that_needs_a_daemon_fails_with_3_where_none_answers(words, capsys):
    assert run(shlex.split(words)) == 3
    assert "no daemon answers at" in said(capsys)


@pytest.mark.parametrize("words", [*USAGE, *(f"{verb} --nope" for verb in VERBS)])
def test_wrong_usage_fails_with_2_and_names_the_help_or_the_mend(words, capsys):
    assert run(shlex.split(words)) == 2
    said(capsys)
