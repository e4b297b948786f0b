"""`edged mcp --client`: what connects a client, printed for one paste."""

import json
import shlex
import tomllib

import pytest

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


def test_pi_is_given_its_extension(tmp_path, capsys):
    """The file that `tests/integration/clients/test_pi.py` has pi load."""
    from pathlib import Path

    from edged.cli import run

    assert run(["mcp", "--client", "pi"]) == 0
    shipped = Path(__file__).parents[3] / "seed/clients/pi/edged.ts"
    assert capsys.readouterr().out == shipped.read_text()
