"""Independent MCP clients, the official TypeScript SDKs, over `edged mcp`, the socket and HTTP."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import npm
from tests.integration.mcp.sample import SOURCES, files, lay

BOUND_S = 60.0
CLIENTS = {
    "1.32": ({"sdk": 1}, "2025-11-25"),
    "2.4": ({"sdk": 2}, "2025-11-25"),
    "2.4 auto": ({"sdk": 2, "mode": "auto"}, "2026-07-28"),
    "2.4 pinned": ({"sdk": 2, "mode": {"pin": "2026-07-28"}}, "2026-07-28"),
}
"""How each is made, and the revision that it then speaks; the older SDK tells it over HTTP alone."""


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay) as running:
        yield running


@pytest.fixture
def client(daemon, tmp_path):
    """Lets a client do its task at a door, and tells what it saw."""
    data = daemon.data / "local" / "data"

    def run(door, task):
        doors = {
            "stdio": {
                "command": [sys.executable, "-m", "edged", "mcp", "--socket", daemon.socket]
            },
            "socket": {"socket": daemon.socket},
            "http": {"url": f"{daemon.url}/mcp", "token": daemon.token},
        }
        for name, text in files("newest", SOURCES["says"]).items():
            path = tmp_path / "newest" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        task = task | {
            "modules": str(npm.modules("mcp")),
            "door": doors[door],
            "go": {"name": "go", "path": str(data / "go")},
            "fresh": {"from": str(tmp_path / "newest"), "to": str(daemon.lay("newest", {}))},
        }
        done = subprocess.run(
            [npm.NODE, Path(__file__).with_name("client.mjs"), json.dumps(task)],
            env=daemon.env,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    yield run
    (data / "go").unlink(missing_ok=True)
    shutil.rmtree(daemon.lay("newest", {}), ignore_errors=True)


@pytest.mark.parametrize("door", ["stdio", "socket", "http"])
@pytest.mark.parametrize("name", CLIENTS)
def test_client_lists_calls_follows_cancels_and_is_told(daemon, client, until, name, door):
    """MCP, tools, progress, cancellation, list_changed: in both eras, as the SDKs have them.

    Facts, MCP, faults 1 and 10: a tool with children of its own under stdio; nothing more comes
    for a cancelled id, which this client would report as an error.
    """
    made, version = CLIENTS[name]
    saw = client(door, made)
    assert (saw["server"], saw.get("version", version)) == ("edged", version)
    assert saw["names"] == sorted(saw["names"])
    assert set(SOURCES) < set(saw["names"])
    assert saw["says"]["title"] == "The says tool"
    assert saw["says"]["inputSchema"]["properties"]["text"]["type"] == "string"
    assert saw["called"] == ["it says héllo"]
    assert saw["wrong"]["isError"]
    assert "volume" in saw["wrong"]["text"][0]
    assert saw["unknown"]["code"] == -32602
    assert "did you mean 'says'?" in saw["unknown"]["message"]
    # These SDKs drop a progress that comes in one piece with its result.
    assert saw["updates"][0] == [1, "phase 1: downloading"]
    assert saw["updates"][1:] in ([], [[2, "phase 2: processing"]])
    assert saw["stepped"] == ["done"]
    assert "enough" in saw["cancelled"]
    assert saw["afterwards"] == ["it says on"]
    assert set(saw["told"]) - set(saw["names"]) == {"newest"}
    until("all is dead", lambda: daemon.processes() == [])
    record = next(r for r in daemon.ask("edged/log", limit=9)["records"] if r["tool"] == "hangs")
    assert record["outcome"] == "cancelled"
