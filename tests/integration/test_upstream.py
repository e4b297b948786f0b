"""Other MCP servers as an owner has them: in their sandbox, well behaved or not."""

import json
import os
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest

from edged.errors import UnknownToolError

HERE = Path(__file__).parent
ECHO = {"command": "python3", "args": ["{script}"], "read": ["{script}"]}
NAMES = ("calm", "dies", "hangs", "floods", "changes")


def lay(daemon):
    script = daemon.folder / "server.py"
    shutil.copy(HERE / "scripted_server.py", script)
    script.chmod(0o644)
    (daemon.folder / "shown").mkdir()
    (daemon.folder / "shown/file").write_text("x")
    (daemon.folder / "written").mkdir(mode=0o777)
    os.chmod(daemon.folder / "written", 0o777)
    (daemon.folder / "server.env").write_text("# a comment\nFROM_FILE='one two'\nBOTH=file\n")
    secrets = daemon.folder / "secrets.yaml"
    secrets.write_text("upstream: a-secret-of-the-owner\n")
    secrets.chmod(0o600)
    base = f"command: python3, args: [{script}], deferred: false, timeout: 20s"
    read = f"read: [{script}, {daemon.folder}/shown], write: [{daemon.folder}/written]"
    rows = [f"{name}: {{{base}, {read}}}" for name in NAMES if name != "hangs"]
    some = "allow: [e*, a*], deny: [echo]"
    variables = "{UPSTREAM_KEY: !secret upstream, BOTH: env, LEVEL: 3}"
    rows += [
        f"hangs: {{{base}, {read}, timeouts: {{hang: 0.5}}}}",
        f"secret: {{{base}, {read}, {some}, env_file: server.env, env: {variables}}}",
        f"hidden: {{command: python3, args: [{script}], {read}}}",
        "broken: {command: sh, args: [-c, 'echo no such thing >&2; exit 3']}",
        "mute: {command: sleep, args: [1000], connect: 1s}",
        "nowhere: {command: /opt/no/such/server}",
        "missing: {command: no-such-server}",
        "off: {command: python3, enabled: false}",
    ]
    text = "tools: {mcp: {servers: {\n" + ",\n".join(rows) + "\n}}}\n"
    daemon.config.write_text(daemon.config.read_text() + text)


@pytest.fixture(scope="module")
def daemon(serving, until):
    with serving(lay) as running:
        until("the tools are there", lambda: "hidden" in ready(running))
        yield running


def health(daemon, name=None):
    found = daemon.ask("edged/status")["mcp"]
    return found if name is None else found[name]


def ready(daemon):
    return {name for name, one in health(daemon).items() if one["state"] == "ready"}


def tools(daemon):
    return {row["name"]: row for row in daemon.ask("edged/tools/state")["tools"]}


def test_each_server_lives_on_its_own(daemon, until):
    """facts/mcp.md, faults 17 and 18: those that fail say why, the rest serves."""
    until("all were tried", lambda: {"calm", *NAMES, "secret"} <= ready(daemon))
    wanted = {
        "broken": "it ended with exit status 3: no such thing",
        "nowhere": "there is no program /opt/no/such/server: check its `command`",
        "missing": "there is no program 'no-such-server' in /usr/local/bin:/usr/bin:/bin: install",
        "mute": "it did not answer within 1 s of its start",
    }
    for name, text in wanted.items():
        until(name, lambda: health(daemon, name)["error"].startswith(text))
        assert health(daemon, name)["state"] == "failed"
    assert "off" not in health(daemon)
    assert daemon.call("mcp_calm_echo", text="hello").for_llm == "hello"


def test_what_is_no_message_is_skipped_and_stderr_is_drained(daemon):
    """Faults 3 and 4: a banner on stdout, 180 KB on stderr before the first answer."""
    found = health(daemon, "calm")
    assert found["skipped"] == 1
    assert found["stderr"].endswith("starting\n")
    assert (found["server"]["name"], found["version"]) == ("scripted", "2025-06-18")


def test_a_tool_that_cannot_be_published_is_left_out_alone(daemon):
    """Fault 28."""
    found = health(daemon, "calm")
    assert found["left_out"] == ["tool 'wrong': its inputs are of type 'string', not an object"]
    assert found["tools"] == 14
    assert "mcp_calm_wrong" not in tools(daemon)


def test_arguments_go_through_to_the_letter(daemon):
    """facts/picoclaw.md #2600: null is {}; fault 26."""
    assert daemon.call("mcp_calm_arguments").for_llm == "{}"
    raw = daemon.lines(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
         "params": {"name": "mcp_calm_arguments", "arguments": None}},
    )  # fmt: skip
    assert raw[0]["result"]["content"][0]["text"] == "{}"
    given = {"count": "12", "text": "12", "more": {"deep": [1, None]}}
    sent = {"count": 12, "text": "12", "more": {"deep": [1, None]}}
    assert json.loads(daemon.call("mcp_calm_arguments", **given).for_llm) == sent


def test_big_results_become_media(daemon):
    """facts/mcp.md, fault 32, and fault 6: over 64 KiB on one line."""
    result = daemon.call("mcp_calm_big", number=100_000)
    assert result.truncated.bytes == 13 * 100_000
    with daemon.client() as client:
        assert client.medium(result.truncated.media).data == b"line of text\n" * 100_000
    image = daemon.call("mcp_calm_image")
    assert image.content[0].uri.startswith("media://")
    assert image.content[0].mime_type == "image/png"


def test_an_answer_too_long_costs_its_own_call(daemon):
    """Fault 6: 20 MB on one line; the stream stays in step."""
    result = daemon.call("mcp_calm_big", number=1_500_000)
    assert result.is_error
    assert result.for_llm.startswith("MCP server calm: its answer has ")
    assert daemon.call("mcp_calm_echo", text="still").for_llm == "still"


def test_content_of_any_kind_is_shown(daemon):
    result = daemon.call("mcp_calm_odd")
    assert result.content[0].text == '{"type":"hologram","x":1}'
    assert result.content[1].uri == "x:1"
    assert result.structured == {"a": 1}
    refused = daemon.call("mcp_calm_refuse")
    assert (refused.is_error, refused.for_llm) == (True, "no key: set API_KEY")


def test_progress_comes_through(daemon):
    seen = []
    with daemon.client() as client:
        result = client.call(
            "mcp_calm_steps",
            {"number": 3},
            on_update=lambda content: seen.append(content[0].text),
        )
    assert result.for_llm == "done"
    assert seen[0] == "step 0"
    assert seen == sorted(seen)
    through = []
    with daemon.client() as client:
        call = {"name": "mcp_calm_steps", "arguments": {"number": 2}}
        client.call("tool_call", call, on_update=lambda content: through.append(content[0].text))
    assert through[0] == "step 0"


def test_a_cancelled_call_is_cancelled_there(daemon, until):
    """Whoever hangs up, the server is told."""
    marker = daemon.folder / "written/marker"
    params = {"name": "mcp_calm_wait", "arguments": {"text": str(marker)}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(daemon.socket)
        link.sendall(json.dumps(request).encode() + b"\n")
        until("it waits", lambda: health(daemon, "calm")["calls"] == 1)
    until("it was told", marker.exists)
    assert health(daemon, "calm")["calls"] == 0


def test_a_server_sees_its_home_and_what_is_listed(daemon):
    """Declared permissions: its own directory stays, the rest of the host is not there."""
    look = "mcp_calm_look"
    assert daemon.call(look, text=str(daemon.folder)).for_llm == "server.py shown written"
    assert daemon.call(look, text=str(daemon.folder / "shown")).for_llm == "file"
    assert daemon.call(look, text="/edged-home").for_llm == "(no output)"
    assert daemon.call(look, text=str(daemon.data)).is_error
    assert daemon.call(look, text="/root").is_error
    assert daemon.call(look, text="/sys/class/net").is_error


def test_a_server_gets_its_own_variables_alone_and_secrets_stay_secret(daemon):
    """Faults 23 and 24."""
    daemon.call("mcp_secret_environment")
    found = json.loads(daemon.call("mcp_secret_environment").for_llm)
    own = {"UPSTREAM_KEY": "[***]", "BOTH": "env", "LEVEL": "3", "FROM_FILE": "one two"}
    assert own.items() <= found.items()
    system = {"HOME", "PATH", "LANG", "TMPDIR", "PWD", "PYTHONUNBUFFERED"}
    assert found.keys() <= own.keys() | system | {"npm_config_update_notifier", "LC_CTYPE"}
    assert "a-secret-of-the-owner" not in daemon.cli("status", "--json").stdout


def test_only_listed_tools_are_taken(daemon):
    """allow: [e*, a*], deny: [echo]."""
    names = {name for name in tools(daemon) if name.startswith("mcp_secret_")}
    assert names == {"mcp_secret_environment", "mcp_secret_arguments"}


def test_hidden_tools_are_found_promoted_and_expire(daemon):
    """Contract, section 9; the names are matched as they are published."""
    assert tools(daemon)["mcp_hidden_echo"]["hidden"]
    with daemon.client() as client:
        client.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
        with pytest.raises(UnknownToolError):
            client.call("mcp_hidden_echo", {"text": "x"})
        found = client.call("tool_search_tool_regex", {"pattern": "^mcp_hidden_echo$"})
        row = found.structured["tools"][0]
        assert row["inputSchema"]["properties"]["text"] == {"type": "string"}
        assert client.call("mcp_hidden_echo", {"text": "found"}).for_llm == "found"
        for _ in range(6):
            client.request("edged/turn")
        with pytest.raises(UnknownToolError):
            client.call("mcp_hidden_echo", {"text": "x"})
        found = client.call("tool_search_tool_bm25", {"query": "mcp hidden steps"})
        assert "mcp_hidden_steps" in [one["name"] for one in found.structured["tools"]]


def test_a_changed_list_is_published_and_told(daemon, until):
    """Fault 31; what is new can be called at once."""
    assert "mcp_changes_fresh" not in tools(daemon)
    assert daemon.call("mcp_changes_more", text="fresh").for_llm == "listed"
    until("it is listed", lambda: "mcp_changes_fresh" in tools(daemon))
    assert daemon.call("mcp_changes_fresh", text="new").for_llm == "new"


def test_nothing_of_one_server_delays_another(daemon, until):
    """The acceptance: one killed, one hung, one flooding, one changing; a hundred calls go on."""
    before = {name: health(daemon, name) for name in NAMES}
    failed = {}

    def misuse(name, tool, **given):
        failed[name] = daemon.call(f"mcp_{name}_{tool}", **given)

    bad = [
        threading.Thread(target=misuse, args=("dies", "wait"), kwargs={"text": "/tmp/x"}),
        threading.Thread(target=misuse, args=("hangs", "hang")),
        threading.Thread(target=misuse, args=("floods", "flood")),
    ]
    for one in bad:
        one.start()
    until("it waits", lambda: health(daemon, "dies")["calls"] == 1)
    until("it floods", lambda: health(daemon, "floods")["skipped"] > 2_000)
    slowest = 0.0
    with daemon.client() as client:
        for number in range(100):
            result = client.call("mcp_calm_echo", {"text": f"{number}"})
            assert result.for_llm == f"{number}"
            slowest = max(slowest, result.duration_ms)
            if number == 50:
                os.kill(before["dies"]["pid"], signal.SIGKILL)
                daemon.call("mcp_changes_more", text="meanwhile")
    for one in bad:
        one.join()
    assert failed["dies"].for_llm.startswith("MCP server dies: it was ended by SIGKILL: starting")
    assert failed["hangs"].for_llm == "MCP server hangs: no answer within 0.5 s"
    assert failed["floods"].for_llm.startswith("MCP server floods: it wrote without end")
    until("it is listed", lambda: "mcp_changes_meanwhile" in tools(daemon))
    for name in ("dies", "hangs", "floods"):
        until(name, lambda: daemon.call(f"mcp_{name}_echo", text="again").for_llm == "again")
        assert health(daemon, name)["starts"] > before[name]["starts"]
    assert health(daemon, "calm")["starts"] == before["calm"]["starts"]
    # A second would be a stall; the flood alone goes on for ten.
    assert slowest < 1_000


def test_a_server_that_ends_in_a_call_tells_its_status_and_its_last_words(daemon, until):
    """Fault 7."""
    result = daemon.call("mcp_dies_die", number=7)
    text = "MCP server dies: it ended with exit status 7: the valve is stuck"
    assert (result.is_error, result.for_llm) == (True, text)
    until("it is back", lambda: not daemon.call("mcp_dies_echo", text="x").is_error)


def test_status_and_doctor_show_each_server(daemon):
    status = daemon.cli("status").stdout
    assert "MCP server broken: failed: it ended with exit status 3: no such thing" in status
    assert "no such thing" in status
    doctor = daemon.edged("doctor", "--config", str(daemon.config), "--socket", daemon.socket)
    assert "it ended with exit status 3: no such thing" in doctor.stdout


def test_hidden_tools_are_known_before_a_server_was_started(serving, until):
    """A lazy server is asked once in its life; its list outlives the daemon."""
    with serving(lay) as first:
        until("it was asked", lambda: "hidden" in ready(first))
        cache = first.data / "cache/mcp/hidden.json"
        until("its list is kept", cache.exists)
        known = cache.read_bytes()

    def laid(daemon):
        lay(daemon)
        place = daemon.data / "cache/mcp/hidden.json"
        place.parent.mkdir(parents=True)
        script = str(daemon.folder / "server.py")
        place.write_bytes(known.replace(mark(first).encode(), mark(daemon).encode()))
        assert script in daemon.config.read_text()

    with serving(laid) as second:
        until("it is listed", lambda: "mcp_hidden_echo" in tools(second))
        assert health(second, "hidden")["state"] == "asleep"
        assert health(second, "hidden")["starts"] == 0
        second.call("tool_search_tool_regex", pattern="^mcp_hidden_echo$")
        assert second.call("mcp_hidden_echo", text="first").for_llm == "first"
        assert health(second, "hidden")["starts"] == 1


def mark(daemon):
    from edged.mcp.upstream.servers import _mark
    from edged.sections import McpServer

    script = str(daemon.folder / "server.py")
    return _mark(McpServer(command="python3", args=[script]))


def test_nothing_of_a_server_outlives_a_daemon_that_is_killed(serving, until):
    """facts/mcp.md, fault 20: grandchildren in sessions of their own, too."""

    def laid(daemon):
        lay(daemon)
        script = daemon.folder / "server.py"
        shell = f"setsid sleep 4711.5 & exec python3 {script}"
        line = f'family: {{command: sh, args: [-c, "{shell}"], read: [{script}], lazy: false}}'
        text = f"tools: {{mcp: {{servers: {{{line}}}}}}}\n"
        daemon.config.write_text(daemon.config.read_text().partition("tools:")[0] + text)

    with serving(laid) as running:
        until("it is there", lambda: "family" in ready(running))
        until("its child too", grandchildren)
        running.kill()
        until("all of it is gone", lambda: not grandchildren())
        running.start()


def grandchildren():
    return [
        pid
        for pid in filter(str.isdecimal, os.listdir("/proc"))
        if "4711.5" in _read(f"/proc/{pid}/cmdline")
    ]


def _read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
