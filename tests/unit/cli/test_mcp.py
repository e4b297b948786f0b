"""`edged mcp --client`: what connects a client, printed for one paste."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from edged.cli import run
from edged.cli.mcp import CLIENTS, configuration

WORDS = ["/opt/a b/edged", "mcp", "--socket", "/run/é.sock"]


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "pi"])
def test_each_client_is_given_the_same_command(client):
    """The documented form of each: see README, "Use it from an agent"."""
    text = configuration(client, WORDS)
    if client == "claude-code":
        assert shlex.split(text) == ["claude", "mcp", "add", "edged", "--", *WORDS]
        return
    if client == "codex":
        server = tomllib.loads(text)["mcp_servers"]["edged"]
    else:
        server = json.loads(text)["servers" if client == "vscode" else "mcpServers"]["edged"]
    assert [server["command"], *server["args"]] == WORDS
    assert set(server) <= {"command", "args", "type"}


SHIPPED = Path(__file__).parents[3] / "seed/clients/pi/edged.ts"


def test_pi_is_given_its_extension_with_the_command_of_this_machine():
    """The file that `tests/integration/clients/test_pi.py` has pi load."""
    lines = zip(
        configuration("pi", WORDS).split("\n"), SHIPPED.read_text().split("\n"), strict=False
    )
    other = [(mine, theirs) for mine, theirs in lines if mine != theirs]
    [(mine, theirs)] = other
    assert theirs == 'const OWN = ["edged", "mcp"];'
    assert json.loads(mine.removeprefix("const OWN = ").removesuffix(";")) == WORDS


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("by_option", [True, False])
def test_each_client_is_told_which_socket_the_shell_here_would_use(
    client, by_option, tmp_path, monkeypatch, capsys
):
    """A client has its own variables and directory: what is printed holds without them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGED_SOCKET", "other.sock" if by_option else "x.sock")
    assert run(["mcp", "--client", client, *(["--socket", "x.sock"] if by_option else [])]) == 0
    printed = capsys.readouterr().out
    assert f"{tmp_path}/x.sock" in printed
    assert "--socket" in printed
    assert "other.sock" not in printed


def test_without_a_socket_named_a_client_finds_the_usual_one_itself(monkeypatch, capsys):
    monkeypatch.delenv("EDGED_SOCKET", raising=False)
    assert run(["mcp", "--client", "claude-code"]) == 0
    assert shlex.split(capsys.readouterr().out)[-1] == "mcp"
