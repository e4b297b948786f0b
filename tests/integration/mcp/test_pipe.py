"""`edged mcp` under a real client's hands: what others' servers were reported to do wrong."""

import json
import signal
import subprocess
import sys

import pytest

from tests.integration.mcp.sample import SOURCES, files

BOUND_S = 60.0
NOISY = """import subprocess, sys

def execute(tool_call_id, params):
    print('a banner')
    sys.stderr.write('a log\\\\n' * 50_000)
    heard = subprocess.run(['cat'], capture_output=True, timeout=20).stdout
    subprocess.run(['sh', '-c', 'yes noise | head -c 300000; yes noise | head -c 300000 >&2'])
    return f'heard {heard!r}'
"""
# Starts the pipe as a client does, lets it call, and says so; never reads the answer.
CLIENT = """import json, subprocess, sys
pipe = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
call["params"] = {"name": "hangs", "_meta": {"progressToken": 1}}
pipe.stdin.write(json.dumps(call).encode() + b"\\n")
pipe.stdin.flush()
assert b"it hangs" in pipe.stdout.readline()
print(pipe.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def daemon(serving):
    def lay(running):
        running.lay("noisy", files("noisy", NOISY))
        running.lay("hangs", files("hangs", SOURCES["hangs"]))

    with serving(lay) as running:
        yield running


def command(daemon):
    return [sys.executable, "-m", "edged", "mcp", "--socket", daemon.socket]


def test_tool_that_prints_and_starts_children_disturbs_no_line(daemon):
    """Facts, MCP, faults 1 and 2: children hear nothing, and only messages are on the wire."""
    calls = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "noisy"}}
        for number in (1, 2)
    ]
    # Input that is still to come is the protocol's, not a child's of a tool.
    done = subprocess.run(
        command(daemon),
        input="".join(json.dumps(call) + "\n" for call in calls),
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = {
        answer["id"]: answer["result"] for answer in map(json.loads, done.stdout.splitlines())
    }
    assert answers.keys() == {1, 2}
    for result in answers.values():
        assert result["content"][0]["text"].endswith("heard b''")
        assert not result["isError"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_client_leaves_no_pipe_and_no_call(daemon, until, number):
    """Facts, MCP, fault 20: neither the server nor what its call started outlives the client."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, *command(daemon)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with client:
        pipe = int(client.stdout.readline())
        until("the grandchild runs", lambda: "sleep" in daemon.processes())
        client.send_signal(number)
        client.wait(BOUND_S)
    until("the pipe ended", lambda: not alive(pipe))
    until("all is dead", lambda: daemon.processes() == [])


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
