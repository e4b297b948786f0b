"""Hidden tools are found, called and gone again, by every door (contract, section 9)."""

import json
import socket
import threading

import pytest

CONFIG = """
tools:
  hello: {hidden: true}
  gpio: {hidden: true}
  mcp: {discovery: {ttl: 2}}
"""
INIT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
CHANGED = "notifications/tools/list_changed"


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config=CONFIG) as running:
        yield running


class Peer:
    """An MCP client of the older revisions: one request after the other."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")
        self._count, self.told = 0, []

    def close(self):
        self._lines.close()
        self._socket.close()

    def ask(self, method, **params):
        """The result, or the error; notices that came before it are in `told`."""
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        while True:
            answer = json.loads(self._lines.readline())
            if answer.get("id") == self._count:
                return answer["result"] if "result" in answer else answer["error"]
            self.told.append(answer["method"])

    def call(self, tool, meta=None, **arguments):
        more = {"_meta": meta} if meta else {}
        return self.ask("tools/call", name=tool, arguments=arguments, **more)

    def names(self, **params):
        return [tool["name"] for tool in self.ask("tools/list", **params)["tools"]]


@pytest.fixture
def peer(daemon):
    made = Peer(daemon.socket)
    yield made
    made.close()


def test_a_hidden_tool_is_not_listed(daemon):
    """TOOL.md tools and built-in ones alike."""
    rows = {row["name"]: row for row in daemon.ask("edged/tools/state")["tools"]}
    assert rows["hello"]["hidden"]
    assert rows["gpio"]["hidden"]
    assert "\nhello " not in daemon.cli("tools").stdout
    assert "\nhello " in daemon.cli("tools", "--all").stdout
    assert "no tool named" in daemon.cli("call", "hello", "name=Ada").stderr


def test_the_command_line_finds_and_calls(daemon):
    """The session of `edged call` is the identity."""
    found = daemon.cli("call", "tool_search_tool_bm25", "query=greet hello")
    assert '"name":"hello"' in found.stdout
    assert daemon.cli("call", "hello", "name=Ada").stdout == "Hello, Ada!\n"
    for _ in range(3):
        status, body = daemon.http("/api/turn", method="POST")
        assert (status, body) == (200, {"status": "ok"})
    assert "no tool named" in daemon.cli("call", "hello", "name=Ada").stderr


def test_the_command_line_says_that_a_tool_is_hidden(daemon):
    done = daemon.cli("call", "hello", "name=Ada")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert (
        "no tool named 'hello' is unlocked: it is hidden, and is called once tool_search" in told
    )
    assert "is named" not in told


def test_a_tool_reaches_the_hidden_tool_that_its_calls_name(daemon):
    """Contract, section 6: `calls:`; nobody searches for what its author wrote down."""
    manifest = (
        "---\nname: greeter\ndescription: Greets.\nversion: 1\nlanguage: bash\n"
        "calls: [hello]\n---\n"
    )
    source = "edged-call hello name=Ada && edged-call gpio action=list\n"
    daemon.lay("greeter", {"TOOL.md": manifest, "index.sh": source})
    result = daemon.call("greeter")
    assert result.is_error
    assert "Hello, Ada!" in result.for_llm
    assert "may not call 'gpio': add it to `calls:`" in result.for_llm
    # A job of it does so too.
    assert (
        daemon.cli(
            "call", "cron", "schedule=in 1h", "tool=hello", 'arguments={"name": "Ada"}'
        ).returncode
        == 0
    )


def test_http_finds_and_calls_within_a_named_session(daemon):
    """Contract, section 4: the header `Edged-Session`."""

    def ask(path, body, **headers):
        return daemon.http(path, body, **headers)

    mine = {"Edged-Session": "mine"}
    arguments = {"arguments": {"pattern": "^hel"}}
    status, found = ask("/api/tools/tool_search_tool_regex/call", arguments, **mine)
    assert status == 200
    row = found["structured"]["tools"][0]
    assert (row["name"], row["inputSchema"]["required"]) == ("hello", ["name"])
    greeting = {"arguments": {"name": "Ada"}}
    assert ask("/api/tools/hello/call", greeting, **mine)[1]["for_llm"] == "Hello, Ada!"
    assert ask("/api/tools/hello/call", greeting, **{"Edged-Session": "other"})[0] == 404


def test_an_mcp_session_is_told_of_the_new_list(peer):
    """Promotion and expiry send list_changed; the turns are said, and count from the next one."""
    peer.ask("initialize", **INIT)
    peer.ask("edged/turn")
    assert "hello" not in peer.names()
    found = peer.call("tool_search_tool_regex", pattern="^(hello|gpio)$")
    assert found["structuredContent"]["total"] == 2
    assert peer.told == [CHANGED]
    assert {"hello", "gpio"} <= set(peer.names())
    assert peer.names() == sorted(peer.names())
    for _ in range(2):
        peer.ask("edged/turn")
        assert peer.call("hello", name="Ada")["content"][0]["text"] == "Hello, Ada!"
    assert peer.told == [CHANGED]
    peer.ask("edged/turn")
    assert peer.told == [CHANGED, CHANGED]
    assert "hello" not in peer.names()
    assert "hello" in peer.call("hello", name="Ada")["message"]


def test_the_stateless_revision_reaches_it_by_tool_call(peer):
    """Its list never varies; the session is the identity."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    before = peer.names(_meta=meta)
    found = peer.call("tool_search_tool_bm25", meta, query="says hello")
    assert found["structuredContent"]["tools"][0]["name"] == "hello"
    assert peer.names(_meta=meta) == before
    made = peer.call("tool_call", meta, name="hello", arguments={"name": "Ada"})
    assert made["content"][0]["text"] == "Hello, Ada!"
    assert peer.told == []


def test_a_hostile_pattern_stops_nobody(daemon, peer):
    """Issue 4, part 8: other callers are served while it runs and after it."""
    done = []
    hostile = threading.Thread(
        target=lambda: done.append(daemon.call("tool_search_tool_regex", pattern="(.*)*(.*)*\\1x"))
    )
    hostile.start()
    served = 0
    while hostile.is_alive():
        assert peer.call("tool_describe", name="sensor")["isError"] is False
        served += 1
    hostile.join()
    assert done[0].is_error
    assert "pattern: took longer than 1 s" in done[0].for_llm
    assert served > 20
    assert not daemon.call("tool_search_tool_regex", pattern="hel+o").is_error


def test_a_search_that_is_switched_off_is_not_listed(daemon):
    """P, config keys: `mcp.discovery.use_regex`; families are switched along."""
    off = daemon.cli("tools", "--disable", "mcp.discovery")
    assert off.stdout.splitlines() == [
        "mcp.discovery: disabled",
        "tool_search_tool_bm25: blocked, as it requires mcp.discovery",
        "tool_search_tool_regex: blocked, as it requires mcp.discovery",
    ]
    try:
        _, listed = daemon.http("/api/tools")
        rows = {row["name"]: row for row in listed["tools"]}
        row = rows["tool_search_tool_regex"]
        assert (row["status"], row["reason_code"]) == ("blocked", "requires_mcp_discovery")
        assert row["config_key"] == "mcp.discovery.use_regex"
        status, refused = daemon.http("/api/tools/tool_search_tool_regex/call", {})
        assert (status, refused["reason_code"]) == (409, "requires_mcp_discovery")
        assert "edged tools --enable tool_search_tool_regex" in refused["detail"]
    finally:
        path = "/api/tools/tool_search_tool_regex/state"
        answer = daemon.http(path, {"enabled": True}, method="PUT")
    assert answer == (200, {"status": "ok", "switched": ["mcp.discovery"]})
    assert "tool_search_tool_regex" in daemon.cli("tools").stdout
