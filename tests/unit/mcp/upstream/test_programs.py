"""How a stdio server is started."""

import os

import pytest

from edged.errors import ConfigError, SandboxSetupError
from edged.mcp.upstream import programs
from edged.mcp.upstream.programs import Program, env_file, stored
from edged.sections import McpServer

TEXT = """
# keys
export A=1
B = two words
C="quoted # kept"
D='x'
E=
F=a=b
"""


def test_a_file_of_variables_is_read_as_shells_write_it():
    """facts/picoclaw.md, section 11: comments, matching quotes stripped."""
    found = env_file(TEXT, "x.env")
    assert found == {
        "A": "1", "B": "two words", "C": "quoted # kept", "D": "x", "E": "", "F": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize("line", ["no equals", "1A=x", "A B=x", "=x"])
def test_a_wrong_line_is_told_with_its_number(line):
    with pytest.raises(ConfigError, match=r"x\.env:2: write NAME=value"):
        env_file(f"A=1\n{line}\n", "x.env")


class Sandboxes:
    is_off = False


def program(tmp_path, **settings):
    one = McpServer(**settings)
    return Program("demo", one, Sandboxes(), data=str(tmp_path), base=str(tmp_path))


def test_what_is_not_shown_in_the_sandbox_is_told_with_the_line_to_add(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "server").write_text("")
    (tmp_path / "link").symlink_to(real / "server")
    link = str(tmp_path / "link")
    with pytest.raises(SandboxSetupError, match=rf"add read: \[{tmp_path}\]"):
        program(tmp_path, command=link)._command()
    with pytest.raises(SandboxSetupError, match=rf"add read: \[{real}\]"):
        program(tmp_path, command=link, read=[link])._command()
    assert program(tmp_path, command=link, read=[str(tmp_path)])._command() == link
    assert program(tmp_path, command="sh")._command() == "sh"


def test_a_server_gets_what_is_declared_and_no_more(tmp_path):
    """Declared permissions: the network of fetchers alone, devices, paths, limits."""
    job = program(
        tmp_path, command="sh", args=["-p", 8080, 1.5], read=["/srv/a"], write=["/srv/b"],
        devices=["i2c-1"], memory="64M", env={"PYTHONPATH": "/srv/a", "ON": True},
    )._job({"A": "1"})  # fmt: skip
    assert job.argv == ("sh", "-p", "8080", "1.5")
    profile = job.profile
    assert [(b.target, b.write) for b in profile.binds] == [
        ("/edged-home", True), ("/srv/a", False), ("/srv/b", True),
    ]  # fmt: skip
    assert (profile.network, profile.devices, profile.cwd) == (
        False,
        ("/dev/i2c-1",),
        "/edged-home",
    )
    assert profile.limits.memory_max == 64 << 20
    assert McpServer(command="/usr/bin/npx").has_network
    assert not McpServer(command="npx", network=False).has_network
    assert McpServer(command="python3", network=True).has_network


def test_a_home_that_is_full_keeps_its_server_from_starting(tmp_path, monkeypatch):
    """A server that writes without end fills no card, however often it is started."""
    made = program(tmp_path, command="sh")
    home = tmp_path / "mcp/demo"
    made._prepare()
    (home / "deep").mkdir()
    (home / "deep/file").write_bytes(os.urandom(1 << 20))
    (home / "loop").symlink_to(home)
    assert 1 << 20 <= stored(str(home), 1 << 30) < 2 << 20
    monkeypatch.setattr(programs, "HOME_MAX", 1 << 20)
    with pytest.raises(SandboxSetupError, match="remove what can go"):
        made._prepare()


def test_a_path_that_is_here_but_not_shown_is_told_with_the_option_to_add(tmp_path):
    """What Python and Node say of a script that they do not find."""
    script = tmp_path / "dice.py"
    script.write_text("")
    ended = "it ended with exit status 2"
    python = f"{ended}: python3: can't open file '{script}': [Errno 2] No such file or directory"
    node = f"{ended}: Error: Cannot find module '{script}'"
    one = program(tmp_path, command="python3", args=[str(script)])
    hint = f"{script} exists here, but the server may not see it: --read {script}"
    for cause in (python, node):
        assert one.explained(cause) == f"{cause}: {hint}"
    script.unlink()
    assert one.explained(python) == python
    script.write_text("")
    shown = program(tmp_path, command="python3", args=[str(script)], read=[str(tmp_path)])
    assert shown.explained(python) == python


def test_a_home_is_named_as_it_is_on_the_board(tmp_path):
    """The owner looks for the log there, or for what the server lacks."""
    one = program(tmp_path, command="python3", args=["dice.py"])
    told = one.seen_here("log: /edged-home/.npm/_logs/x.log, /edged-homes, /edged-home")
    home = f"{tmp_path}/mcp/demo"
    assert told == f"log: {home}/.npm/_logs/x.log, /edged-homes, {home}"
    lost = one.seen_here("python3: can't open file '/edged-home/dice.py': No such file")
    assert one.explained(lost).endswith("it begins in a home of its own: write the whole path")


@pytest.mark.parametrize("name", ["read", "write"])
def test_a_server_is_not_shown_the_daemons_sockets(tmp_path, name):
    """By a directory that has one it was a caller: an owner where it runs as the daemon does."""
    (tmp_path / "run").mkdir()
    socket = str(tmp_path / "run" / "edged.sock")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for path in (tmp_path / "run", tmp_path / "link", tmp_path, socket):
        one = McpServer(command="sh", **{name: [str(path)]})
        made = Program(
            "demo", one, Sandboxes(), data="/srv/d", base="/srv", sockets=lambda: (socket,)
        )
        with pytest.raises(SandboxSetupError, match=f"^{path} shows it {socket}, by which"):
            made._job({})
    one = McpServer(command="sh", **{name: [str(tmp_path / "else")]})
    assert Program(
        "demo", one, Sandboxes(), data="/srv/d", base="/srv", sockets=lambda: (socket,)
    )._job({})
