"""Whatever comes through a door ends neither the daemon nor another connection.

A slice of `make bench`'s 100,000 inputs (`tests/bench/fuzz.py`), and what no drawing finds:
lines without an end, clients that do not read, connections that break.
"""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from edged.jsonrpc import MAX_LINE
from tests.bench import fuzz

ECHO = {"name": "echo", "arguments": {"text": "x" * 1_000}}
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
GROWTH_MIB = 40.0
"""A line of 16 MiB may be there whole, and once more while it is cut off."""

WAITING_MIB = 8.0
"""Answers that wait for one client: 1 MiB, and the one that goes over it."""

MANY = """\
---
name: many_{number}
description: One of many, which make the list of all tools long enough to count in memory.
version: 1
language: python
inputs:
  text: {{type: string, description: Is not used by anything that this tool does not do.}}
---
"""


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config="tools: {echo: {enabled: true}}\n") as running:
        yield running


@pytest.fixture
def witness(daemon):
    """A connection that must be served whatever happens on others."""
    with contextlib.closing(fuzz.Witness(daemon.socket)) as one:
        one.testify()
        yield one
        one.testify()


def memory_mib(daemon):
    """Source: proc_pid_status(5), RssAnon."""
    with open(f"/proc/{daemon._process.pid}/status") as file:
        line = next(line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) / 1024


def connected(path):
    link = socket.socket(socket.AF_UNIX)
    # With a time-out it would not wait for room in a full backlog (connect(2), EAGAIN).
    link.connect(path)
    link.settimeout(fuzz.ANSWER_S)
    return link


def test_no_line_ends_the_daemon_or_another_connection(daemon, witness):
    """Issue 2: fuzzing the socket."""
    fuzz.fuzz_lines(daemon.socket, 1_500)


def test_no_http_body_ends_the_daemon_or_another_connection(daemon, witness):
    """Issue 2: fuzzing the HTTP body; fewer than the burst of one token."""
    port = int(daemon.url.rpartition(":")[2])
    statuses = fuzz.fuzz_bodies(daemon.socket, port, daemon.token, 400)
    assert statuses[200] > 10, "nothing got as far as a tool"
    assert statuses[400] > 100


def test_no_document_breaks_the_front_matter_reader(daemon, witness):
    """Issue 2: fuzzing the front matter reader, in this process."""
    fuzz.fuzz_documents(500)


def test_directories_of_broken_documents_hide_no_other_tool(daemon, witness, until):
    """Issue 2, part 3: one broken directory never hides its siblings."""
    laid = 0

    def lay(bundle):
        nonlocal laid
        for data in bundle:
            place = daemon.lay(f"fuzz_{laid}", {"index.py": ""})
            (place / "TOOL.md").write_bytes(data)
            laid += 1

    fuzz.feed(fuzz.bundles(fuzz.documents), 4, lay)

    def listed():
        rows = daemon.ask("edged/tools/state")["tools"]
        return sum("/fuzz_" in row["source"] for row in rows) == laid and rows

    rows = until("all directories are listed", listed)
    assert next(row["status"] for row in rows if row["name"] == "hello") == "enabled"
    assert daemon.call("hello", name="Ada").for_llm == "Hello, Ada!"


def test_a_line_without_end_costs_no_more_than_the_limit(daemon, witness):
    """Contract 5: at most 16 MiB a line; one error reply, and the stream stays in step."""
    before = memory_mib(daemon)
    with connected(daemon.socket) as link, link.makefile("rb") as replies:
        for _ in range(3 * MAX_LINE >> 20):
            link.sendall(b"x" * (1 << 20))
        witness.testify()
        assert memory_mib(daemon) < before + GROWTH_MIB
        link.sendall(b"\n" + LIST)
        assert "16 MiB" in json.loads(replies.readline())["error"]["message"]
        assert json.loads(replies.readline())["result"]["tools"]


def test_a_client_that_does_not_read_is_not_read_either(daemon, witness):
    """Architecture, laws: every buffer is bounded and says what happens when it is full."""
    before = memory_mib(daemon)
    with connected(daemon.socket) as link:
        link.setblocking(False)
        refused = sent = 0
        while refused < 50:
            try:
                sent += link.send(LIST * 100)
                refused = 0
            except BlockingIOError:
                refused += 1
                witness.testify()
            assert sent < 64 << 20, "it takes all that comes"
        assert memory_mib(daemon) < before + WAITING_MIB


def test_all_of_one_read_is_not_answered_at_once(daemon, witness):
    """A few bytes may ask for megabytes, and one read brings thousands of requests."""
    for number in range(300):
        daemon.lay(f"many_{number}", {"TOOL.md": MANY.format(number=number), "index.py": ""})
    size = len(json.dumps(daemon.ask("edged/definitions", format="mcp")))
    assert size > 50_000
    before = memory_mib(daemon)
    ask = '{{"jsonrpc":"2.0","id":{},"method":"edged/definitions"}}\n'
    requests = "".join(map(ask.format, range(2_000))).encode()
    with connected(daemon.socket) as link, link.makefile("rb") as replies:
        link.sendall(requests)
        link.shutdown(socket.SHUT_WR)
        answered = b'"result"' in replies.readline()
        witness.testify()
        assert memory_mib(daemon) < before + WAITING_MIB
        assert answered + sum(b'"result"' in reply for reply in replies) == 2_000


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","par',
        LIST * 50,
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ECHO}).encode(),
        b'{"jsonrpc":"2.0","id":1,"method":"edged/events"}\n' + LIST,
    ],
    ids=["nothing", "half a line", "unread answers", "no newline", "followed"],
)
def test_a_connection_that_breaks_breaks_alone(daemon, witness, sent):
    """Issue 2, Shows: another connection goes on."""
    for _ in range(20):
        with connected(daemon.socket) as link:
            link.sendall(sent)
        witness.testify()


def test_more_connections_than_the_limit_are_refused_in_words(daemon, witness, until):
    """Contract 5: limits on connections (issue 2, part 6)."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(connected(daemon.socket)) for _ in range(600)]
        answers = []
        for link in links[-20:]:
            with link.makefile("rb") as replies:
                answers.append(json.loads(replies.readline()))
        assert {answer["error"]["code"] for answer in answers} == {-31029}
        witness.testify()
    until("there is room again", lambda: _answered(daemon.socket))


def _answered(path):
    with connected(path) as link, link.makefile("rb") as replies:
        link.sendall(LIST)
        return "result" in json.loads(replies.readline())
