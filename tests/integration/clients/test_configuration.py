"""What the README has one paste into a client is documented there, and starts a server."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edged.cli.mcp import CLIENTS, configuration
from tests import npm

BOUND_S = 60.0
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
ADA = "/home/ada/edged/.venv/bin/edged"
README = (Path(__file__).parents[3] / "README.md").read_text()
SECTION = README[README.index("### Use it from an agent") : README.index("### As a service")]
FENCES = {"claude-code": "sh", "codex": "toml"}
ROOTS = {"codex": "mcp_servers", "vscode": "servers"}
REQUIRED = {"vscode": {"type", "command"}}
"""Beside `command` alone. VS Code, "MCP configuration reference": the table of stdio fields."""

OPTIONAL = {
    # modelcontextprotocol.io, "Connect to local MCP servers"
    "claude-desktop": {"args", "env"},
    # cursor.com/docs/mcp, the table of stdio fields
    "cursor": {"type", "args", "env", "envFile"},
    # VS Code, the same table
    "vscode": {"args", "env", "envFile"},
    # developers.openai.com/codex/mcp, "STDIO servers" and "Other configuration options"
    "codex": {"args", "env", "env_vars", "cwd", "enabled", "required", "enabled_tools"}
    | {"startup_timeout_sec", "tool_timeout_sec", "disabled_tools"},
}


def blocks(client):
    return re.findall(rf"```{FENCES.get(client, 'json')}\n(.*?)\n```", SECTION, re.DOTALL)


def command(client, text):
    """The command that a client starts, read as it reads its documented form."""
    if client == "claude-code":
        # `claude mcp add [options] <name> -- <command> [args...]`
        head, words = text.split(" -- ")
        assert head == "claude mcp add edged"
        return shlex.split(words)
    found = tomllib.loads(text) if client == "codex" else json.loads(text)
    assert set(found) == {ROOTS.get(client, "mcpServers")}
    ((name, server),) = next(iter(found.values())).items()
    required = REQUIRED.get(client, {"command"})
    assert name == "edged"
    assert required <= set(server) <= required | OPTIONAL[client]
    assert server.get("type", "stdio") == "stdio"
    return [server["command"], *server["args"]]


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config="tools: {echo: {enabled: true}}\n") as running:
        yield running


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "pi"])
def test_paste_of_the_readme_connects_the_client(daemon, tmp_path, client):
    """It is what the program prints, has the client's documented keys, and starts a server."""
    printed = configuration(client, [ADA, "mcp"])
    assert printed in blocks(client)
    program, *words = command(client, printed)
    assert (program, words) == (ADA, ["mcp"])
    edged = str(Path(sys.executable).with_name("edged"))
    options = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=connected"]
    # The daemon of this test in the place of the one that is found by default.
    where = ["-e", f"EDGED_SOCKET={daemon.socket}", "--format", "json"]
    done = subprocess.run(
        [npm.NODE, str(npm.modules("mcp") / INSPECTOR), "--cli", edged, *words, *where, *options],
        env=daemon.env | {"HOME": str(tmp_path), "MCP_CATALOG_PATH": str(tmp_path / "catalogue")},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["content"] == [{"type": "text", "text": "connected"}]


def test_readme_and_help_name_the_same_pastes(daemon):
    """Each command line of `edged mcp --help` that the README has too reads the same."""
    told = daemon.edged("mcp", "--help").stdout
    examples = [line.strip() for line in told.split("example:\n")[1].splitlines() if line.strip()]
    assert len(examples) == 3
    said = " ".join(SECTION.replace(ADA, "edged").split())
    for example in examples:
        assert example in said
    for client in CLIENTS:
        assert client in told
