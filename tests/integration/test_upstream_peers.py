"""Servers on the official SDKs as upstreams: each tool found, called and gone again."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from edged.errors import UnknownToolError
from tests.npm import NODE, modules

HERE = Path(__file__).parent
SERVERS = "@modelcontextprotocol/server-{}/dist/index.js"
INIT = {"protocolVersion": "2025-11-25", "capabilities": {}}


def linked(source, target):
    """Put a file where the tools' account can read it, without a copy where that can be."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Remote:
    """A server over HTTP, in a process of its own; it can be ended and started again."""

    def __init__(self, argv, port, env=None):
        self._argv, self.port, self._env = argv, port, env or {}
        self._process = None

    def start(self, until):
        self._process = subprocess.Popen(
            self._argv,
            env=os.environ | self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until("it listens", self._listens)

    def _listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def stop(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def remotes(until):
    """Over HTTP: the Python SDK in both of its transports, the TypeScript SDK likewise."""
    sdk, index = str(HERE / "sdk_server.py"), str(modules("mcp") / SERVERS.format("everything"))
    made = {}
    for name, kind in (("py", "streamable-http"), ("pysse", "sse")):
        port = free_port()
        made[name] = Remote([sys.executable, sdk, kind, str(port)], port)
    for name, kind in (("ts", "streamableHttp"), ("tssse", "sse")):
        port = free_port()
        made[name] = Remote([NODE, index, kind], port, {"PORT": str(port)})
    try:
        for one in made.values():
            one.start(until)
        yield made
    finally:
        for one in made.values():
            one.stop()


@pytest.fixture(scope="module")
def daemon(serving, remotes, until):
    def lay(daemon):
        packages, node, share = (daemon.folder / n for n in ("node_modules", "node", "share"))
        shutil.copytree(modules("mcp"), packages, symlinks=True, copy_function=linked)
        linked(NODE, node)
        share.mkdir()
        share.chmod(0o777)
        (share / "note.txt").write_text("from the share\n")
        seen = f"read: [{node}, {packages}]"

        def stdio(name, package, more="", *words):
            argv = ", ".join([str(packages / SERVERS.format(package)), *words])
            return f"{name}: {{command: {node}, args: [{argv}], {seen}{more}}}"

        def http(name, path):
            kind = ", type: sse" if path == "sse" else ""
            return f'{name}: {{url: "http://127.0.0.1:{remotes[name].port}/{path}"{kind}}}'

        rows = [
            stdio("every", "everything"),
            stdio("files", "filesystem", f", write: [{share}]", str(share)),
            stdio("memory", "memory", ", env: {MEMORY_FILE_PATH: /edged-home/memory.json}"),
            http("py", "mcp"),
            http("pysse", "sse"),
            http("ts", "mcp"),
            http("tssse", "sse"),
        ]
        text = "tools: {mcp: {discovery: {max_search_results: 50}, servers: {\n"
        text += ",\n".join(rows) + "\n}}}\n"
        daemon.config.write_text(daemon.config.read_text() + text)

    with serving(lay) as running:
        until("all are there", lambda: set(states(running).values()) == {"ready"})
        yield running
        # Those that were started again are children that were not there before.
        for one in remotes.values():
            one.stop()


def health(daemon):
    return daemon.ask("edged/status")["mcp"]


def states(daemon):
    return {name: one["state"] for name, one in health(daemon).items()}


CALLS = {
    "every": {
        "echo": ({"message": "hi"}, "Echo: hi"),
        "get-annotated-message": ({"messageType": "success"}, "Operation completed"),
        "get-env": ({}, "HOME"),
        "get-resource-links": ({"count": 2}, "resource"),
        "get-resource-reference": ({"resourceType": "Text", "resourceId": 1}, "resource"),
        "get-structured-content": ({"location": "New York"}, "temperature"),
        "get-sum": ({"a": 2, "b": 3}, "5"),
        "get-tiny-image": ({}, "image"),
        "gzip-file-as-resource": (
            {"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"},
            "resource",
        ),
        "simulate-research-query": ({"topic": "moss"}, "moss"),
        "toggle-simulated-logging": ({}, "logging"),
        "toggle-subscriber-updates": ({}, "updates"),
        "trigger-long-running-operation": ({"duration": 0.2, "steps": 2}, "completed"),
    },
    "files": {
        "create_directory": ({"path": "{share}/new"}, "created directory"),
        "directory_tree": ({"path": "{share}"}, "note.txt"),
        "edit_file": (
            {"path": "{share}/edit.txt", "edits": [{"oldText": "one", "newText": "two"}]},
            "two",
        ),
        "get_file_info": ({"path": "{share}/note.txt"}, "size: 15"),
        "list_allowed_directories": ({}, "share"),
        "list_directory": ({"path": "{share}"}, "[FILE] note.txt"),
        "list_directory_with_sizes": ({"path": "{share}"}, "note.txt"),
        "move_file": ({"source": "{share}/edit.txt", "destination": "{share}/e"}, "moved"),
        "read_file": ({"path": "{share}/note.txt"}, "from the share"),
        "read_media_file": ({"path": "{share}/note.txt"}, ""),
        "read_multiple_files": ({"paths": ["{share}/note.txt"]}, "from the share"),
        "read_text_file": ({"path": "{share}/note.txt", "head": "1", "tail": None}, "from the"),
        "search_files": ({"path": "{share}", "pattern": "*.txt"}, "note.txt"),
        "write_file": ({"path": "{share}/edit.txt", "content": "one"}, "wrote"),
    },
    "memory": {
        "create_entities": (
            {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]},
            "Ada",
        ),
        "create_relations": (
            {"relations": '[{"from": "Ada", "to": "Ada", "relationType": "is"}]'},
            "is",
        ),
        "add_observations": (
            {"observations": [{"entityName": "Ada", "contents": ["writes"]}]},
            "writes",
        ),
        "read_graph": ({}, "counts"),
        "search_nodes": ({"query": "Ada"}, "Ada"),
        "open_nodes": ({"names": ["Ada"]}, "Ada"),
        "delete_observations": (
            {"deletions": [{"entityName": "Ada", "observations": ["counts"]}]},
            "deleted",
        ),
        "delete_relations": (
            {"relations": [{"from": "Ada", "to": "Ada", "relationType": "is"}]},
            "deleted",
        ),
        "delete_entities": ({"entityNames": ["Ada"]}, "deleted"),
    },
    "py": {
        "add": ({"a": 2, "b": "3"}, "5"),
        "count": ({"upto": 2}, "counted"),
        "grow": ({"name": "sprout"}, "grown"),
        "fail": ({}, "Error executing tool fail"),
    },
}
FIRST = {"files": "write_file"}
"""Called before the others, which use what it makes."""


@pytest.mark.parametrize("server", CALLS)
@pytest.mark.parametrize("search", ["tool_search_tool_regex", "tool_search_tool_bm25"])
def test_every_tool_is_found_called_and_gone_again(daemon, server, search):
    """The acceptance: by regex and by BM25 discovery, promoted, expired."""
    share = str(daemon.folder / "share")
    (daemon.folder / "share/e").unlink(missing_ok=True)
    with daemon.client() as client:
        client.request("initialize", INIT)
        client.request("edged/turn")
        key = "pattern" if search.endswith("regex") else "query"
        wanted = f"^mcp_{server}_" if key == "pattern" else f"mcp {server}"
        rows = client.call(search, {key: wanted}).structured["tools"]
        names = {row["name"] for row in rows if row["name"].startswith(f"mcp_{server}_")}
        assert {f"mcp_{server}_{tool}" for tool in CALLS[server]} <= names
        assert len([n for n in names if "sprout" not in n]) == len(CALLS[server])
        listed = {tool["name"] for tool in client.request("tools/list")["tools"]}
        assert names <= listed
        order = sorted(CALLS[server], key=lambda tool: tool != FIRST.get(server))
        if server == "memory":
            order = list(CALLS[server])
        for tool in order:
            given, shown = CALLS[server][tool]
            raw = json.loads(json.dumps(given).replace("{share}", share))
            result = client.call(f"mcp_{server}_{tool}", raw)
            assert shown in result.for_llm, (tool, result)
            assert result.is_error == (tool == "fail"), (tool, result)
        for _ in range(6):
            client.request("edged/turn")
        for tool in CALLS[server]:
            with pytest.raises(UnknownToolError):
                client.call(f"mcp_{server}_{tool}", {})


def call(daemon, name, /, **arguments):
    """By its name, found before."""
    with daemon.client() as client:
        client.request("initialize", INIT)
        client.call("tool_search_tool_regex", {"pattern": f"^{name}$"})
        return client.call(name, arguments)


def test_both_eras_are_spoken_each_where_it_is_known(daemon):
    """The Python SDK speaks the stateless revision, over HTTP+SSE and in TypeScript the older."""
    versions = {name: one["version"] for name, one in health(daemon).items()}
    assert versions["py"] == "2026-07-28"
    assert {versions[name] for name in ("ts", "tssse", "every", "files")} == {"2025-11-25"}
    assert health(daemon)["py"]["server"]["name"] == "sdk"


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("mcp_py_add", {"a": 1, "b": 2}, "3"),
        ("mcp_pysse_add", {"a": 1, "b": 2}, "3"),
        ("mcp_ts_get-sum", {"a": 1, "b": 2}, "3"),
        ("mcp_tssse_get-sum", {"a": 1, "b": 2}, "3"),
    ],
)
def test_a_server_that_was_restarted_is_reached_again(
    daemon, remotes, until, name, arguments, shown
):
    """facts/mcp.md, faults 15 and 16: an expired session is opened once more, no call is lost."""
    assert shown in call(daemon, name, **arguments).for_llm
    remote = remotes[name.split("_")[1]]
    remote.stop()
    down = call(daemon, name, **arguments)
    assert down.is_error
    assert down.for_llm.startswith(f"MCP server {name.split('_')[1]}: ")
    remote.start(until)
    until("it answers again", lambda: not (found := call(daemon, name, **arguments)).is_error
          and shown in found.for_llm)  # fmt: skip


@pytest.mark.parametrize("name", ["mcp_py_count", "mcp_pysse_count"])
def test_progress_comes_over_http(daemon, name):
    seen = []
    with daemon.client() as client:
        client.request("initialize", INIT)
        client.call("tool_search_tool_regex", {"pattern": f"^{name}$"})
        result = client.call(
            name, {"upto": 3}, on_update=lambda content: seen.append(content[0].text)
        )
    assert result.for_llm == "counted"
    assert seen[0] == "step 1"


def test_structured_results_come_through(daemon):
    """facts/mcp.md, fault 27."""
    result = call(daemon, "mcp_every_get-structured-content", location="New York")
    assert result.structured.keys() >= {"temperature", "conditions"}
    assert call(daemon, "mcp_py_add", a=1, b=2).structured == {"result": 3}


def test_a_list_that_changes_over_http_is_published(daemon, until):
    """subscriptions/listen of the stateless revision, and the stream of the older one."""
    assert not call(daemon, "mcp_py_grow", name="leaf").is_error
    names = lambda: {row["name"] for row in daemon.ask("edged/tools/state")["tools"]}  # noqa: E731
    until("it is listed", lambda: "mcp_py_leaf" in names())
    assert call(daemon, "mcp_py_leaf").for_llm == "I am leaf"


def test_a_home_stays_and_is_the_servers_own(daemon):
    """server-memory keeps its graph there."""
    entity = {"name": "Eva", "entityType": "person", "observations": []}
    call(daemon, "mcp_memory_create_entities", entities=[entity])
    kept = daemon.data / "mcp/memory/memory.json"
    assert "Eva" in kept.read_text()
