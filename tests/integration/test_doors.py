"""What a person types at each door; who sees what; tools that call tools; tools that run wild."""

import contextlib
import grp
import json
import os
import select
import socket
import subprocess
import sys

import pytest

BOUND_S = 30.0
ADA, BOB = "ada@example.org", "bob@example.org"
ENTRY = {"typescript": "index.ts", "python": "index.py", "bash": "index.sh"}
LANGUAGES = pytest.mark.parametrize("language", ENTRY)

if os.geteuid() == 0:
    # Root can be anyone: no account of these numbers need exist.
    UIDS = {ADA: 12001, BOB: 12002}
else:
    # Another user can be only himself, and everyone else by HTTP.
    UIDS = {ADA: os.geteuid()}

USERS = {
    uid: {"user": user, "role": "owner" if uid == os.geteuid() else "agent"}
    for user, uid in UIDS.items()
}
CONFIG = f"""
users: {json.dumps({str(uid): entry for uid, entry in USERS.items()})}
tools:
  echo: {{enabled: true}}
  switched_off: {{enabled: false}}
sandbox: {{warm_memory: 0}}
"""

# Each shows two updates and waits for a file between them, so that nothing can be
# sent in one piece at the end.
STEPS = {
    "python": """import os, time

async def execute(tool_call_id, params, signal, on_update):
    on_update(f"{params['name']}: first")
    while not os.path.exists(f"/officer/data/{params['gate']}"):
        time.sleep(0.01)
    on_update({"content": [{"type": "text", "text": f"{params['name']}: second"}]})
    return f"Hello, {params['name']}!"
""",
    "typescript": """import { existsSync } from 'node:fs';

type Params = { name: string; gate: string };
type Update = (partial: { content: Array<{ type: string; text: string }> }) => void;

export async function execute(_id: string, params: Params, _signal: AbortSignal, onUpdate?: Update) {
  onUpdate?.({ content: [{ type: 'text', text: `${params.name}: first` }] });
  while (!existsSync(`/officer/data/${params.gate}`)) await new Promise((go) => setTimeout(go, 10));
  onUpdate?.({ content: [{ type: 'text', text: `${params.name}: second` }] });
  return { content: [{ type: 'text', text: `Hello, ${params.name}!` }] };
}
""",
    "bash": """edged-update "$INPUT_NAME: first"
until [[ -e /officer/data/$INPUT_GATE ]]; do sleep 0.01; done
edged-update "$INPUT_NAME: second"
echo "Hello, $INPUT_NAME!"
""",
}

# Each calls the tool that it is told to call, and returns its text.
ASKS = {
    "python": """from edged_tool import call

def execute(tool_call_id, params):
    return call(params["tool"])["content"][0]["text"]
""",
    "typescript": """import { call } from 'edged';

export async function execute(_id: string, params: { tool: string }) {
  return { content: (await call(params.tool)).content };
}
""",
    "bash": 'edged-call "$INPUT_TOOL"\n',
}

WHOSE = """def execute(tool_call_id, params):
    with open("/officer/data/owner") as file:
        return file.read()
"""

FILLER = """import itertools, os, time

def execute(tool_call_id, params):
    for number in itertools.count():
        with open(f"/officer/user/files/{number}", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 26)
        time.sleep(0.01)
"""

WILD = {
    # Name: more of the front matter, language, source, and what the error must name.
    "hangs": (
        "timeout: 1\n",
        "python",
        "import time\n\ndef execute(c, p):\n    time.sleep(1000)\n",
        "stopped after 1 s, its time limit; `timeout: 2` in TOOL.md allows more",
    ),
    "hogs_memory": (
        "memory: 64M\n",
        "python",
        "def execute(c, p):\n    kept = []\n    while True:\n        kept.append(b'x' * (1 << 20))\n",
        "its limit is 64 MiB; `memory: 128M` in TOOL.md allows more",
    ),
    "forks": (
        # Where the memory of a tree is only watched, shared pages count for each process.
        "memory: 1G\n",
        "python",
        "import os, signal\n\ndef execute(c, p):\n    while os.fork():\n        pass\n    signal.pause()\n",
        "this tool may have 64 processes and threads at once",
    ),
    "bombs": (
        "timeout: 2\n",
        "bash",
        "bomb() { bomb | bomb & }\nbomb 2>/dev/null\nsleep 1000\n",
        "stopped after 2 s, its time limit; `timeout: 4` in TOOL.md allows more",
    ),
    "floods": (
        "",
        "bash",
        "yes flood | head -c 1G\n",
        "stopped after 64 MiB of output: write large output to a file and return its path",
    ),
    "fills_disk": (
        "",
        "python",
        FILLER,
        "stopped: it added more than 512 MiB to its directories, the limit of one call",
    ),
}


def files(name, language, source, more="", inputs=()):
    declared = "".join(f"  {i}:\n    type: string\n    description: Text.\n" for i in inputs)
    text = f"---\nname: {name}\ndescription: A tool.\nversion: 1\nlanguage: {language}\n{more}"
    return {
        "TOOL.md": f"{text}inputs:\n{declared}---\n" if inputs else f"{text}---\n",
        ENTRY[language]: source,
    }


def lay(daemon):
    for language, source in STEPS.items():
        name = f"steps_{language}"
        daemon.lay(name, files(name, language, source, inputs=("name", "gate")), user="")
    for language, source in ASKS.items():
        name = f"asks_{language}"
        more = "calls: [whose, switched_off]\n"
        daemon.lay(name, files(name, language, source, more, ("tool",)), user="")
    daemon.lay("whose", files("whose", "python", WHOSE), user="")
    daemon.lay("switched_off", files("switched_off", "python", WHOSE), user="")
    for name, (more, language, source, _) in WILD.items():
        daemon.lay(name, files(name, language, source, f"warm: false\n{more}"), user="")
    for user in (ADA, BOB):
        name = user.partition("@")[0]
        daemon.lay(f"only_{name}", files(f"only_{name}", "python", WHOSE), user=user)


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(lay, CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def tokens(daemon):
    """A token of an agent for each user; both have their directories by now."""
    found = {}
    for user in (ADA, BOB):
        done = daemon.cli("token", "add", user, "--user", user)
        found[user] = done.stdout.strip()
        daemon.http("/api/tools/whose/call", {}, token=found[user])
        (daemon.data / user / "data" / "owner").write_text(user)
    return found


@pytest.fixture(scope="module")
def places(daemon):
    """What a caller's tools see as /officer/data, by the door that he comes by."""
    daemon.call("whose")
    daemon.http("/api/tools/whose/call", {})
    user = daemon.ask("edged/status")["user"]
    return {"socket": daemon.data / user / "data", "http": daemon.data / "local" / "data"}


@contextlib.contextmanager
def typed(daemon, line, **options):
    """A command line as a person types it, with the daemon's own paths and port in it."""
    process = subprocess.Popen(
        ["bash", "-c", line],
        cwd=daemon.folder,
        env={
            **daemon.env,
            "PATH": f"{os.path.dirname(sys.executable)}:{daemon.env['PATH']}",
            "EDGED_SOCKET": daemon.socket,
            "HTTP": daemon.url,
            "HTTP_SOCKET": daemon.http_socket,
            "TOKEN": options.pop("token", daemon.token),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def said(daemon, line, **options):
    """What a command line prints; it must succeed and say nothing else."""
    with typed(daemon, line, **options) as process:
        out, errors = process.communicate(timeout=BOUND_S)
    assert (process.returncode, errors) == (0, ""), out
    return out


def as_user(user):
    """Options that start a program as the local user of that identity."""
    uid = UIDS[user]
    if uid == os.geteuid():
        return {}
    return {"user": uid, "group": uid, "extra_groups": [grp.getgrnam("edged").gr_gid]}


def line_of(tool, /, **arguments):
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


# The exact command lines


def test_echo_into_socat_calls_a_tool(daemon):
    """Contract, section 5: the end of the input is not the end of the call."""
    line = line_of("hello", name="Ada")
    out = said(daemon, f"echo '{line}' | socat -t 30 - UNIX:$EDGED_SOCKET")
    answer = json.loads(out)
    assert answer["id"] == 1
    assert answer["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert answer["result"]["isError"] is False


@LANGUAGES
def test_socat_shows_updates_while_the_tool_runs(daemon, places, language):
    """MCP, progress; contract, section 7."""
    gate = places["socket"] / f"socat-{language}"
    request = json.loads(line_of(f"steps_{language}", name="Ada", gate=gate.name))
    request["params"]["_meta"] = {"progressToken": "p"}
    line = f"echo '{json.dumps(request)}' | socat -t 30 - UNIX:$EDGED_SOCKET"
    with typed(daemon, line) as process:
        first = json.loads(process.stdout.readline())
        assert first["method"] == "notifications/progress"
        assert first["params"]["progressToken"] == "p"
        assert first["params"]["message"] == "Ada: first"
        gate.touch()
        *others, answer = [
            json.loads(line) for line in process.communicate(timeout=BOUND_S)[0].splitlines()
        ]
    assert others[0]["params"]["message"] == "Ada: second"
    counts = [one["params"]["progress"] for one in (first, *others)]
    assert counts == sorted(set(counts))
    assert answer["result"]["content"][0]["text"] == "Hello, Ada!"


CURL = 'curl -sS -H "Authorization: Bearer $TOKEN"'
JSON_BODY = '-H "Content-Type: application/json" -d'


def test_curl_lists_and_describes(daemon):
    """Specification, "List All Tools"; contract, section 6."""
    rows = json.loads(said(daemon, f"{CURL} $HTTP/api/tools"))["tools"]
    row = next(r for r in rows if r["name"] == "whose")
    assert {
        "description": "A tool.",
        "category": "user",
        "config_key": "whose",
    }.items() <= row.items()
    assert (row["status"], row["reason_code"]) == ("enabled", "")
    off = next(r for r in rows if r["name"] == "switched_off")
    assert off["status"] == "disabled"
    found = json.loads(said(daemon, f"{CURL} $HTTP/api/tools/asks_bash"))
    assert found["schema"]["required"] == ["tool"]
    assert found["permissions"]["calls"] == ["whose", "switched_off"]


def test_curl_calls_a_tool(daemon):
    """Contract, sections 6 and 7."""
    body = '\'{"arguments": {"name": "Ada"}}\''
    result = json.loads(said(daemon, f"{CURL} {JSON_BODY} {body} $HTTP/api/tools/hello/call"))
    assert result["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert result["for_llm"] == "Hello, Ada!"
    assert (result["is_error"], result["async"]) == (False, False)


def events_of(process, last):
    """Kind and data of each server-sent event, up to one of the kind `last`."""
    kind = ""
    for line in process.stdout:
        key, _, value = line.rstrip("\n").partition(": ")
        if key == "event":
            kind = value
        elif key == "data":
            yield kind, json.loads(value)
            if kind == last:
                return
    raise AssertionError(f"the stream ended before {last!r}")


@LANGUAGES
def test_curl_streams_a_call(daemon, places, language):
    """Contract, section 6: the updates, then the result."""
    gate = places["http"] / f"curl-{language}"
    body = json.dumps({"arguments": {"name": "Ada", "gate": gate.name}})
    line = (
        f"{CURL} -N -H 'Accept: text/event-stream' {JSON_BODY} '{body}'"
        f" $HTTP/api/tools/steps_{language}/call"
    )
    with typed(daemon, line) as process:
        events = events_of(process, "result")
        kind, start = next(events)
        assert (kind, start["tool"]) == ("start", f"steps_{language}")
        kind, update = next(events)
        assert (kind, update["content"][0]["text"]) == ("update", "Ada: first")
        gate.touch()
        *updates, (_, result) = events
        assert updates[0][1]["content"][0]["text"] == "Ada: second"
        assert result["content"][0]["text"] == "Hello, Ada!"
        assert result["call_id"] == start["call_id"]
        assert process.stdout.read().strip() == ""


def test_curl_calls_asynchronously(daemon, places, until):
    """Contract, section 6: 202 and a call_id, the result later and as an event."""
    with typed(daemon, f"{CURL} -N $HTTP/api/events") as listener:
        assert listener.stdout.readline().startswith(":")
        body = json.dumps({"arguments": {"name": "Ada", "gate": "async"}, "async": True})
        url = "$HTTP/api/tools/steps_python/call"
        accepted = json.loads(said(daemon, f"{CURL} {JSON_BODY} '{body}' {url}"))
        status, running = daemon.http(f"/api/calls/{accepted['call_id']}")
        assert (status, running["status"]) == (202, "running")
        (places["http"] / "async").touch()
        told = dict(events_of(listener, "call.result"))["call.result"]
        listener.kill()
    assert told["data"]["call_id"] == accepted["call_id"]
    result = json.loads(said(daemon, f"{CURL} $HTTP/api/calls/{accepted['call_id']}"))
    assert result["for_llm"] == "Hello, Ada!"


def test_curl_over_a_unix_path_needs_no_token(daemon):
    """Contract, section 4: an additional listener with peers as on the socket."""
    rows = said(daemon, "curl -sS --unix-socket $HTTP_SOCKET http://localhost/api/tools")
    assert "whose" in {row["name"] for row in json.loads(rows)["tools"]}


def test_curl_without_a_token_is_told_what_to_do(daemon):
    """Contract, section 4: everything but /healthz needs the token."""
    assert json.loads(said(daemon, "curl -sS $HTTP/healthz"))["status"] == "ok"
    problem = json.loads(said(daemon, "curl -sS $HTTP/api/tools"))
    assert (problem["status"], problem["code"]) == (401, "unauthenticated")


@LANGUAGES
def test_edged_call_streams(daemon, places, language):
    """Contract, section 2: updates on standard error, the text on standard output."""
    gate = places["socket"] / f"call-{language}"
    with typed(
        daemon, f"edged call --stream steps_{language} name=Ada gate={gate.name}"
    ) as process:
        assert process.stderr.readline() == "Ada: first\n"
        gate.touch()
        out, errors = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0
    assert out == "Hello, Ada!\n"
    assert errors.startswith("Ada: second\n")


def test_edged_mcp_in_a_pipe_answers_all(daemon):
    """Contract, section 2: it copies lines; the end of its input lets running calls end."""
    client = {"capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    lines = [
        {"id": "i", "method": "initialize", "params": {"protocolVersion": "2025-11-25", **client}},
        {"method": "notifications/initialized"},
        json.loads(line_of("hello_typescript", name="Ada")),
        {"id": "l", "method": "tools/list"},
    ]
    words = " ".join(f"'{json.dumps({'jsonrpc': '2.0', **one})}'" for one in lines)
    out = said(daemon, f"printf '%s\\n' {words} | edged mcp")
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, out.splitlines())}
    assert answers["i"]["protocolVersion"] == "2025-11-25"
    assert "hello" in {tool["name"] for tool in answers["l"]["tools"]}
    assert answers[1]["content"][0]["text"] == "Hello, Ada!"


# Who sees what


def seen(rows):
    return {row["name"] for row in rows["tools"] if row["name"].startswith("only_")}


@pytest.mark.parametrize("user", UIDS)
def test_local_user_sees_only_his_own_tools(daemon, tokens, user):
    """Contract, section 4: the peer's uid, mapped to an identity and a role."""
    own = {f"only_{user.partition('@')[0]}"}
    other = ({"only_ada", "only_bob"} - own).pop()
    listing = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    out = said(daemon, f"echo '{listing}' | socat -t 30 - UNIX:$EDGED_SOCKET", **as_user(user))
    assert seen(json.loads(out)["result"]) == own
    line = "curl -sS --unix-socket $HTTP_SOCKET http://localhost/api/tools"
    assert seen(json.loads(said(daemon, line, **as_user(user)))) == own
    for name in (*own, other):
        call = f"echo '{line_of(name)}' | socat -t 30 - UNIX:$EDGED_SOCKET"
        answer = json.loads(said(daemon, call, **as_user(user)))
        if name == other:
            assert answer["error"]["code"] == -32602
        else:
            assert answer["result"]["content"][0]["text"] == user
    switch = {"method": "edged/tools/state", "params": {"name": "whose", "enabled": True}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, **switch})
    out = said(daemon, f"echo '{line}' | socat -t 30 - UNIX:$EDGED_SOCKET", **as_user(user))
    is_owner = USERS[UIDS[user]]["role"] == "owner"
    assert ("error" in json.loads(out)) != is_owner


@pytest.mark.parametrize("user", [ADA, BOB])
def test_token_sees_only_its_users_tools(daemon, tokens, user):
    """Contract, section 4: a token belongs to a user."""
    own = f"only_{user.partition('@')[0]}"
    assert seen(json.loads(said(daemon, f"{CURL} $HTTP/api/tools", token=tokens[user]))) == {own}
    status, result = daemon.http(f"/api/tools/{own}/call", {}, token=tokens[user])
    assert (status, result["for_llm"]) == (200, user)
    other = ({"only_ada", "only_bob"} - {own}).pop()
    status, problem = daemon.http(f"/api/tools/{other}/call", {}, token=tokens[user])
    assert (status, problem["code"]) == (404, "unknown_tool")


def test_agent_switches_nothing_and_reads_only_its_own_log(daemon, tokens):
    """Contract, section 4: agents cannot switch tools; section 6, `GET /api/log`."""
    status, problem = daemon.http(
        "/api/tools/whose/state", {"enabled": False}, token=tokens[BOB], method="PUT"
    )
    assert (status, problem["code"]) == (403, "denied")
    daemon.http("/api/tools/only_bob/call", {}, token=tokens[BOB])
    _, log = daemon.http("/api/log?limit=1000", token=tokens[BOB])
    assert {record["user"] for record in log["records"]} == {BOB}


# Calls from inside


@LANGUAGES
@pytest.mark.parametrize("user", [ADA, BOB])
def test_inner_call_has_its_callers_identity(daemon, tokens, language, user):
    """Contract, section 10, `calls:`: with its caller's rights."""
    body = {"arguments": {"tool": "whose"}}
    _, result = daemon.http(f"/api/tools/asks_{language}/call", body, token=tokens[user])
    assert (result["is_error"], result["for_llm"]) == (False, user)
    _, log = daemon.http("/api/log?limit=2", token=tokens[user])
    inner = next(record for record in log["records"] if record["tool"] == "whose")
    assert (inner["user"], inner["door"], inner["outcome"]) == (user, "internal", "ok")


@LANGUAGES
def test_inner_call_reaches_nothing_beyond(daemon, tokens, language):
    """Contract, section 10: what is not declared, switched off or another's is refused."""

    def ask(tool):
        body = {"arguments": {"tool": tool}}
        _, result = daemon.http(f"/api/tools/asks_{language}/call", body, token=tokens[ADA])
        assert result["is_error"]
        return result["for_llm"]

    undeclared = "add it to `calls:` in its TOOL.md"
    assert undeclared in ask("echo")
    assert undeclared in ask("only_bob")
    assert "tool 'switched_off' is disabled" in ask("switched_off")


# Tools that run wild


def during(daemon, name, other):
    """The result of a call; `other` is called again and again until it is there."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(daemon.socket)
        link.sendall(line_of(name).encode() + b"\n")
        while not select.select([link], [], [], 0)[0]:
            other()
        link.settimeout(BOUND_S)
        with link.makefile("rb") as answers:
            return json.loads(answers.readline())["result"]


@pytest.mark.parametrize("name", WILD)
def test_wild_tool_ends_by_its_limit_while_others_are_served(daemon, tokens, until, name):
    """Contract, section 10: limits of the whole tree, and an error that names the line to add."""
    answered = []

    def other():
        status, result = daemon.http("/api/tools/only_bob/call", {}, token=tokens[BOB])
        assert (status, result.get("for_llm")) == (200, BOB)
        answered.append(result["call_id"])

    result = during(daemon, name, other)
    assert result["isError"]
    assert WILD[name][3] in "\n".join(block["text"] for block in result["content"])
    assert answered
    until("its processes are gone", lambda: daemon.processes() == [])


def test_caller_may_shorten_the_time(daemon):
    """Contract, section 6, `timeout`: 200 with is_error."""
    status, result = daemon.http("/api/tools/hangs/call", {"timeout": 0.2})
    assert (status, result["is_error"]) == (200, True)
    assert result["for_llm"].startswith("timed out after 0.2 s")


def test_cancelled_call_gets_no_answer(daemon):
    """MCP, cancellation: the sender of a cancellation gets no response to the request."""
    cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answers = daemon.lines(json.loads(line_of("hangs")), {"jsonrpc": "2.0", **cancel}, ping)
    assert [answer["id"] for answer in answers] == [2]


def test_asynchronous_call_is_cancelled_by_delete(daemon, until):
    """Contract, section 6: `GET /api/calls/{id}`."""
    _, accepted = daemon.http(
        "/api/tools/steps_python/call",
        {"async": True, "arguments": {"name": "a", "gate": "never"}},
    )
    place = f"/api/calls/{accepted['call_id']}"
    assert daemon.http(place, method="DELETE")[0] == 200
    _, result = until("it ended", lambda: (answer := daemon.http(place))[0] == 200 and answer)
    assert (result["is_error"], result["for_llm"]) == (True, "the call was cancelled")


def test_killed_curl_cancels_its_call(daemon, until):
    """Contract, section 5: a connection closed both ways cancels its calls."""
    body = json.dumps({"arguments": {"name": "Ada", "gate": "never"}})
    line = f"exec {CURL} -N -H 'Accept: text/event-stream' {JSON_BODY} '{body}' $HTTP/api/tools/steps_bash/call"
    with typed(daemon, line) as process:
        next(events_of(process, "result"))
        process.kill()

    def outcome():
        records = daemon.ask("edged/log", limit=20)["records"]
        return next((r["outcome"] for r in records if r["tool"] == "steps_bash"), "")

    until("the call ends", lambda: daemon.ask("edged/status")["calls_running"] == 0)
    assert outcome() == "cancelled"


# The end of the daemon


def test_daemon_that_stops_ends_every_call_and_tells_its_caller(serving, until):
    """Architecture, "Stop": drain to a limit, then cancel; inner calls and their trees too."""
    sleeper = (
        "import subprocess, time\n\ndef execute(c, p, s, update):\n"
        "    subprocess.Popen(['setsid', 'sleep', '1000'])\n    update('asleep')\n    time.sleep(1000)\n"
    )
    outer = "from edged_tool import call\n\ndef execute(c, p):\n    return call('sleeps')\n"

    def prepare(daemon):
        daemon.lay("sleeps", files("sleeps", "python", sleeper))
        daemon.lay("waits", files("waits", "python", outer, "calls: [sleeps]\n"))

    with serving(prepare, "stop_grace: 0.2s\n") as daemon, contextlib.ExitStack() as stack:
        streamed = f"{CURL} -N -X POST -H 'Accept: text/event-stream' $HTTP/api/tools/sleeps/call"
        lines = {
            "call": "exec edged call --stream sleeps",
            "outer": "exec edged call waits",
            "stream": f"exec {streamed}",
            "events": f"exec {CURL} -N $HTTP/api/events",
            "log": "exec edged log -f",
        }
        open_ = {name: stack.enter_context(typed(daemon, line)) for name, line in lines.items()}
        until("three trees run", lambda: daemon.processes().count("sleep") == 3)
        daemon.stop()
        said = {name: process.communicate(timeout=BOUND_S) for name, process in open_.items()}
    assert said["call"][1] == "asleep\nedged: the call was cancelled\n"
    assert said["outer"][1] == "edged: the call was cancelled\n"
    assert "event: result" in said["stream"][0]
    assert "the call was cancelled" in said["stream"][0]
    assert open_["stream"].returncode == open_["events"].returncode == 0
    assert said["log"][0].count("cancel") == 4


def test_inner_call_ends_with_its_outer_one(serving, until):
    """Contract, section 10: cancel, timeout and disconnect end the whole process tree."""
    sleeper = "import time\n\ndef execute(c, p):\n    time.sleep(1000)\n"
    outer = "from edged_tool import call\n\ndef execute(c, p):\n    return call('sleeps')\n"

    def prepare(daemon):
        daemon.lay("sleeps", files("sleeps", "python", sleeper))
        more = "calls: [sleeps]\ntimeout: 1\n"
        daemon.lay("waits", files("waits", "python", outer, more))

    with serving(prepare, "sandbox: {warm_memory: 0}\n") as daemon:
        result = daemon.call("waits")
        assert "stopped after 1 s, its time limit" in result.for_llm
        until("all is dead", lambda: daemon.processes() == [])
        records = {r["tool"]: r["outcome"] for r in daemon.ask("edged/log")["records"]}
        assert records["sleeps"] == "cancelled"


TELLS = {
    "python": "import os\n\ndef execute(c, p):\n    return f'{os.getuid()} {os.environ[\"HOME\"]}'\n",
    "typescript": "export const execute = () => `${process.getuid()} ${process.env.HOME}`;\n",
    "bash": 'echo "$UID $HOME"\n',
}


def test_call_without_a_sandbox_is_marked_and_is_never_roots(serving):
    """Contract, section 10: `sandbox: none` is explicit, and marked on every result."""

    def prepare(daemon):
        for language, source in TELLS.items():
            daemon.lay(f"tells_{language}", files(f"tells_{language}", language, source))
        daemon.lay("breaks", files("breaks", "bash", "exit 3\n"))

    config = "sandbox: none\ntools: {echo: {enabled: true}}\n"
    with serving(prepare, config) as daemon:
        assert "warning: sandbox: none: tools run without a sandbox" in daemon.stderr()
        home = daemon.data / "local" / "home"
        for name in (*(f"tells_{language}" for language in TELLS), "breaks"):
            [answer] = daemon.lines(json.loads(line_of(name)))
            _, result = daemon.http(f"/api/tools/{name}/call", {})
            assert answer["result"]["_meta"]["edged/sandbox"] == result["sandbox"] == "none"
            assert result["is_error"] == (name == "breaks")
            if name != "breaks":
                assert result["for_llm"] == f"{home.stat().st_uid} {home}"
        assert home.stat().st_uid != 0
        _, built_in = daemon.http("/api/tools/echo/call", {"arguments": {"text": "a"}})
        assert "sandbox" not in built_in
