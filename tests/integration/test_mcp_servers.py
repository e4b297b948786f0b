"""Servers that owners add, test and remove, on every door; they outlive the daemon."""

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SECRET = "Bearer a-secret-token"


@pytest.fixture(scope="module")
def script(daemon):
    return str(daemon.folder / "server.py")


def lay(daemon):
    path = daemon.folder / "server.py"
    shutil.copy(HERE / "scripted_server.py", path)
    path.chmod(0o644)
    config = f"tools: {{mcp: {{servers: {{fixed: {{command: python3, args: [{path}], read: [{path}]}}}}}}}}"
    daemon.config.write_text(daemon.config.read_text() + config + "\n")


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay) as running:
        yield running


def run(daemon, *words):
    """`edged mcp-server`; all that follows `--` is the server's."""
    return daemon.edged("mcp-server", "--socket", daemon.socket, *words)


def rows(daemon):
    return {row["name"]: row for row in json.loads(run(daemon, "--json").stdout)}


def test_a_server_is_added_tested_called_and_removed(daemon, script, until):
    """Contract, section 2: `edged mcp-server add|list|test|remove`."""
    words = ("add", "mine", "--read", script, "--core", "--timeout", "2m")
    added = run(daemon, *words, "--", "python3", script)
    assert added.stdout == "mine: added: edged mcp-server test mine tries it\n", added.stderr
    tested = run(daemon, "test", "mine")
    assert tested.stdout.splitlines()[:2] == [
        "mine: ready, 14 tools",
        "scripted 1, MCP 2025-06-18",
    ]
    assert daemon.call("mcp_mine_echo", text="hi").for_llm == "hi"
    listed = run(daemon).stdout
    assert "mine   ready" in listed
    assert "edged.yaml" in listed
    row = rows(daemon)["mine"]
    assert (row["origin"], row["target"]) == ("added", f"python3 {script}")
    assert run(daemon, "remove", "mine").stdout == "mine: removed\n"
    assert "mine" not in rows(daemon)
    states = {row["name"] for row in daemon.ask("edged/tools/state")["tools"]}
    assert not any(name.startswith("mcp_mine_") for name in states)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["add", "x"], 2, "needs a URL or a command"),
        (["add"], 2, "needs the name of a server"),
        (["list", "x"], 2, "takes no name"),
        (["add", "x", "https://a.example", "more"], 2, "what is 'more' behind a URL?"),
        (["add", "x", "--env", "A", "--", "y"], 2, "write NAME=VALUE or NAME=@FILE"),
        (["add", "x", "--env", "A=@/no/such", "--", "y"], 2, "No such file"),
        (["add", "x", "--header", "A=B", "--", "y"], 2, "--header is of a server over HTTP"),
        (["add", "x", "--write", "/a", "https://a.example"], 2, "--write is of a stdio server"),
        (["add", "x", "ftp://a.example/mcp"], 2, "a URL is of http:// or https://"),
        (["add", "x", "--timeout", "soon", "--", "y"], 2, "--timeout"),
        (["add", "x", "--timeout", "2h", "--", "y"], 2, "must be from 0.1s to 1h"),
        (["add", "x", "--timeout", "4000", "--", "y"], 2, "must be from 0.1s to 1h"),
        (["add", "x", "--device", "nosuch", "--", "y"], 1, "there is no /dev/nosuch"),
        (["add", "x", "--device", "/dev/null", "--", "y"], 1, "is no name below /dev"),
        (["add", "x", "--read", "/nosuch", "--", "y"], 1, "there is no /nosuch"),
        (["add", "x", "--", "npx -y foo"], 1, "is 'npx' alone: write `args: [-y, foo]`"),
        (["add", "a b", "--", "y"], 1, "letters, digits, - and _"),
        (["add", "x", "--read", "here", "--", "y"], 1, "must be absolute"),
        (["add", "x", "--header", "A B=1", "https://a.example"], 1, "is no name of a header"),
        (["add", "fixed", "--", "y"], 1, "there is an MCP server fixed: give --replace"),
        (["remove", "nobody"], 1, "no MCP server named 'nobody'"),
        (["remove", "fixed"], 1, "is in edged.yaml: remove it there"),
        (["test", "nobody"], 1, "no MCP server named 'nobody'"),
    ],
)
def test_mistakes_say_what_to_do(daemon, words, code, text):
    done = run(daemon, *words)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert set(rows(daemon)) == {"fixed"}


def test_a_server_that_does_not_start_is_told_by_its_test(daemon):
    """The cause and the last words, on both doors."""
    run(daemon, "add", "bad", "--", "sh", "-c", "echo no key: set API_KEY >&2; exit 4")
    done = run(daemon, "test", "bad")
    assert done.returncode == 1
    assert "MCP server bad: it ended with exit status 4: no key: set API_KEY" in done.stderr
    status, problem = daemon.http("/api/mcp-servers/bad/test", method="POST")
    assert (status, problem["code"]) == (502, "upstream")
    assert "no key: set API_KEY" in problem["detail"]
    run(daemon, "remove", "bad")


def test_a_script_that_the_server_may_not_see_is_told_with_the_option(daemon, script):
    """It exists for its owner: that the file is not there would be no answer."""
    run(daemon, "add", "blind", "--", "python3", script)
    done = run(daemon, "test", "blind")
    told = f"{script} exists here, but the server may not see it: --read {script}"
    assert told in " ".join(done.stderr.split())
    run(daemon, "add", "blind", "--replace", "--", "python3", "server.py")
    done = run(daemon, "test", "blind")
    assert f"{daemon.data}/mcp/blind/server.py" in done.stderr
    assert "write the whole path" in done.stderr
    run(daemon, "remove", "blind")


def test_the_api_does_the_same(daemon, script):
    """OpenAPI has it; owners only."""
    body = {"name": "api", "server": {"command": "python3", "args": [script], "read": [script]}}
    status, row = daemon.http("/api/mcp-servers", body)
    assert (status, row["name"]) == (201, "api")
    assert daemon.http("/api/mcp-servers", body)[0] == 409
    assert daemon.http("/api/mcp-servers", {**body, "replace": True})[0] == 201
    status, row = daemon.http("/api/mcp-servers/api/test", method="POST")
    assert (status, row["health"]["state"], row["health"]["tools"]) == (200, "ready", 14)
    _, listed = daemon.http("/api/mcp-servers")
    assert [one["name"] for one in listed["servers"]] == ["api", "fixed"]
    wrong = {"name": "w", "server": {"command": "x", "url": "https://a.example"}}
    assert daemon.http("/api/mcp-servers", wrong)[0] == 400
    agent = daemon.ask("edged/token", action="add", name="agent", role="agent")["token"]
    for path, given in (("/api/mcp-servers", None), ("/api/mcp-servers", body)):
        assert daemon.http(path, given, token=agent)[0] == 403
    status, told = daemon.http("/api/status", token=agent)
    assert (status, told["mcp"]["api"]["stderr"]) == (200, "")
    assert daemon.http("/api/mcp-servers/api", method="DELETE") == (200, {"status": "ok"})
    assert daemon.http("/api/mcp-servers/api")[0] == 404
    url = ("--url", daemon.url, "--token-file", str(daemon.data / "token"))
    assert "fixed" in daemon.edged("mcp-server", *url).stdout


def test_secrets_of_an_added_server_are_kept_0600_and_never_told(daemon):
    """A file's value does not show in `ps`; nothing shows it afterwards."""
    (daemon.folder / "token.txt").write_text(SECRET + "\n")
    header = ("--header", "Authorization=@token.txt")
    added = run(daemon, "add", "wiki", *header, "http://127.0.0.1:9/mcp", "--json")
    assert json.loads(added.stdout)["headers"] == ["Authorization"]
    state = daemon.data / "state/mcp-servers.json"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert SECRET in state.read_text()
    failed = run(daemon, "test", "wiki")
    assert "MCP server wiki: no connection: Connection refused" in failed.stderr
    where = ("--config", str(daemon.config), "--data", str(daemon.data))
    shown = [
        daemon.edged("config", "--explain", *where).stdout,
        run(daemon, "--json").stdout,
        daemon.cli("status", "--json").stdout,
        daemon.stderr(),
    ]
    assert "wiki" in shown[0]
    assert not any("a-secret-token" in text for text in shown)
    reset = daemon.edged("config", "--reset", "tools.mcp.servers.wiki", *where)
    assert reset.stdout == 'tools.mcp.servers.wiki: "http://127.0.0.1:9/mcp" dropped\n'
    assert "a-secret-token" not in reset.stdout
    assert "wiki" not in rows(daemon)
    assert json.loads(state.read_text()) == {}


def test_an_added_server_wins_and_outlives_the_daemon(serving, until):
    """Contract, section 3: a later act of the owner wins over YAML, until it is dropped."""
    with serving(lay) as first:
        path = str(first.folder / "server.py")
        words = ("add", "fixed", "--replace", "--core", "--read", path, "--", "python3", path)
        assert run(first, *words).returncode == 0
        kept = (first.data / "state/mcp-servers.json").read_bytes()

    def laid(daemon):
        lay(daemon)
        state = daemon.data / "state/mcp-servers.json"
        state.parent.mkdir(parents=True)
        state.write_bytes(kept.replace(os.fsencode(first.folder), os.fsencode(daemon.folder)))

    with serving(laid) as second:
        assert rows(second)["fixed"]["origin"] == "added"
        until(
            "its tools are listed",
            lambda: "mcp_fixed_echo" in second.cli("tools").stdout,
        )
        run(second, "remove", "fixed")
        assert rows(second)["fixed"]["origin"] == "configuration"
        until("they are hidden", lambda: "mcp_fixed_echo" not in second.cli("tools").stdout)


def reach(daemon, other, name):
    """Add `other` to a daemon's servers, its tools listed; the row after its test."""
    (daemon.folder / "bearer").write_text(f"Bearer {(other.data / 'token').read_text().strip()}")
    header = ("--header", f"Authorization=@{daemon.folder}/bearer")
    run(daemon, "add", name, "--core", "--replace", *header, f"{other.url}/mcp")
    return run(daemon, "test", name)


def test_a_board_that_reaches_itself_does_not_grow(serving):
    """Directly it refuses itself; over another board its own tools do not come back."""
    with serving() as one, serving() as two:
        refused = reach(one, one, "self")
        assert "MCP server self: it is this board itself" in refused.stderr
        assert rows(one)["self"]["health"]["tools"] == 0
        run(one, "remove", "self")
        assert reach(one, two, "two").returncode == 0
        own = rows(one)["two"]["health"]["tools"]
        for _ in range(3):
            assert reach(two, one, "one").returncode == 0
            assert reach(one, two, "two").returncode == 0
            assert {rows(two)["one"]["health"]["tools"], rows(one)["two"]["health"]["tools"]} == {
                own
            }
        left_out = [f"{own} of this board's own tools, which come back over it"]
        assert rows(one)["two"]["health"]["left_out"] == left_out


def test_tools_are_listed_while_the_search_for_them_is_switched_off(daemon, script, until):
    """As where the configuration switches it off: else nothing would reach them."""
    until("fixed is ready", lambda: rows(daemon)["fixed"]["health"]["tools"])
    words = ("tools", "--socket", daemon.socket)
    listed = lambda: daemon.edged(*words).stdout  # noqa: E731  asked again and again
    assert "mcp_fixed_echo" not in listed()
    assert daemon.edged(*words, "--disable", "mcp.discovery").returncode == 0
    assert "mcp_fixed_echo" in listed()
    assert daemon.call("mcp_fixed_echo", text="hi").for_llm == "hi"
    assert daemon.edged(*words, "--enable", "mcp.discovery").returncode == 0
    assert "mcp_fixed_echo" not in listed()


def test_patterns_that_are_none_of_its_tools_are_told(daemon, script):
    """A misspelt one would leave out everything, or nothing, without a word."""
    words = ("--read", script, "--allow", "nosuch_*", "--allow", "echo", "--deny", "ech")
    run(daemon, "add", "typo", *words, "--", "python3", script)
    told = run(daemon, "test", "typo").stdout
    assert "typo: ready, 1 tool\n" in told
    assert "left out: allow: 'nosuch_*' is none of its tools" in told
    assert "left out: deny: 'ech' is none of its tools" in told
    run(daemon, "add", "typo", "--replace", *words[:4], "--", "python3", script)
    told = run(daemon, "test", "typo").stdout
    assert "typo: ready, 0 tools\n" in told
    assert "left out: all of its tools, by allow and deny: echo, arguments, big" in told
    run(daemon, "remove", "typo")


def test_what_a_removed_server_kept_is_named_and_erased_when_that_is_asked_for(daemon):
    """Its home may have gigabytes; nobody else would find them."""
    home = daemon.data / "mcp/keeper"
    command = ("--", "sh", "-c", "mkdir -p deep; echo x > deep/file; chmod 500 deep; exit 1")
    run(daemon, "add", "keeper", *command)
    assert run(daemon, "test", "keeper").returncode == 1
    assert run(daemon, "add", "fresh", "--purge", "--", "y").returncode == 2
    told = run(daemon, "remove", "keeper").stdout
    assert told.splitlines() == [
        "keeper: removed",
        f"what it kept stays in {home}:",
        "edged mcp-server remove keeper --purge erases that",
    ]
    assert (home / "deep/file").exists()
    assert run(daemon, "remove", "keeper", "--purge").stdout == "keeper: removed\n"
    assert not home.exists()
    assert run(daemon, "remove", "keeper", "--purge").returncode == 1
    assert run(daemon, "remove", "..", "--purge").returncode == 1
    assert run(daemon, "remove", "fixed", "--purge").returncode == 1
    run(daemon, "add", "keeper", "--", "sh", "-c", "touch file; exit 1")
    run(daemon, "test", "keeper")
    assert daemon.http("/api/mcp-servers/keeper?purge=yes", method="DELETE")[0] == 400
    gone = daemon.http("/api/mcp-servers/keeper?purge=true", method="DELETE")
    assert (gone, home.exists()) == ((200, {"status": "ok"}), False)


def test_a_server_that_is_to_be_fetched_without_a_network_says_so(daemon):
    """Silence for a minute says nothing of why."""
    fake = daemon.folder / "npx"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    run(daemon, "add", "far", "--no-network", "--read", str(fake), "--", str(fake), "-y", "x")
    done = run(daemon, "test", "far")
    assert "its network is off" in done.stderr
    run(daemon, "remove", "far")


def test_keys_in_a_command_or_a_url_are_not_shown(daemon):
    """They belong in --env and --header; where they are not, nobody repeats them."""
    run(daemon, "add", "keyed", "--", "false", "--api-key", "hush-hush", "-e", "A_TOKEN=hush-hush")
    run(daemon, "add", "asked", "http://127.0.0.1:9/mcp?api_key=hush-hush")
    where = ("--config", str(daemon.config), "--data", str(daemon.data))
    texts = [
        run(daemon).stdout,
        run(daemon, "--json").stdout,
        daemon.edged("config", "--explain", *where).stdout,
        daemon.edged("config", "--reset", "tools.mcp.servers.asked", *where).stdout,
    ]
    assert all("[***]" in text and "hush-hush" not in text for text in texts), texts
    run(daemon, "remove", "keyed")


def test_faults_are_broken_between_words_on_a_terminal(daemon):
    """80 columns: what a terminal breaks itself it breaks inside of words."""
    words = ["that", "key", "is", "too", "old", "here"] * 6
    run(daemon, "add", "wordy", "--", "sh", "-c", f"echo failed {' '.join(words)} >&2; exit 4")
    run(daemon, "test", "wordy")
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-m", "edged", "mcp-server", "--socket", daemon.socket]
        env = {**daemon.env, "COLUMNS": "80"}
        subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=theirs, check=True)
        lines = os.read(ours, 65_536).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)
        run(daemon, "remove", "wordy")
    at = next(i for i, line in enumerate(lines) if line.startswith("edged: wordy: "))
    assert lines[at].split()[-1] in words
    assert len(lines) > at + 1
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(words) in " ".join(lines)
