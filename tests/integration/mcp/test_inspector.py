"""The inspector of the MCP project, by its command line, on `edged mcp` and over HTTP."""

import json
import subprocess
import sys

import pytest

from tests import npm

BOUND_S = 60.0
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
CONFIG = "tools: {echo: {enabled: true}, exec: {enabled: true}, spawn: {enabled: true}}\n"
ERAS = pytest.mark.parametrize("era", ["legacy", "auto", "modern"])


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config=CONFIG) as running:
        yield running


@pytest.fixture(params=["stdio", "http"])
def inspect(request, daemon, tmp_path):
    """Runs it on a method: exit code, result, what it said."""
    env = daemon.env | {"HOME": str(tmp_path), "MCP_CATALOG_PATH": str(tmp_path / "catalogue")}

    def run(method, *words, era="legacy"):
        server = [sys.executable, "-m", "edged", "mcp", "--socket", daemon.socket]
        if request.param == "http":
            server = [f"{daemon.url}/mcp", "--header", f"Authorization: Bearer {daemon.token}"]
        options = ["--method", method, "--protocol-era", era, "--format", "json", *words]
        done = subprocess.run(
            [npm.NODE, str(npm.modules("mcp") / INSPECTOR), "--cli", *server, *options],
            env=env,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        return done.returncode, json.loads(done.stdout or "{}").get("result"), done.stderr

    return run


@ERAS
def test_schemas_of_all_tools_are_portable(daemon, inspect, era):
    """Facts, MCP, section 2 and faults 28 to 30: `--strict` exits 6 at an error.

    Its reports are of what some client or provider is known to refuse.
    """
    code, result, told = inspect("tools/list", "--strict", era=era)
    assert (code, told) == (0, "")
    assert {tool["name"] for tool in result["tools"]} == {
        tool["name"] for tool in daemon.ask("tools/list")["tools"]
    }


@ERAS
def test_tool_is_called(inspect, era):
    words = ("--tool-name", "echo", "--tool-arg", "text=hi")
    code, result, told = inspect("tools/call", *words, era=era)
    assert (code, result["content"], told) == (0, [{"type": "text", "text": "hi"}], "")


def test_failure_of_a_tool_is_one(inspect):
    """Its exit code 5: the tool itself failed."""
    code, result, _ = inspect("tools/call", "--tool-name", "echo", "--tool-arg", "volume=11")
    assert code == 5
    assert result["isError"]


def test_load_is_answered_without_an_error(inspect):
    words = ("--tool-name", "echo", "--tool-arg", "text=hi", "--load", "--load-concurrency", "4")
    code, result, told = inspect("tools/call", *words, "--load-requests", "200")
    assert (code, result["ok"], result["errors"]) == (0, 200, 0), told
