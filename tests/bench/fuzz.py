"""100,000 hostile inputs: the daemon, and another connection, go on.

Half of them are lines on the socket, the others HTTP bodies and TOOL.md files. What
Hypothesis draws is fed in bundles; after each bundle a witness, connected since the
beginning, calls a tool and must be answered. `tests/integration/test_fuzz.py` runs a
slice of this.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from edged.errors import ConfigError
from edged.toolmd import manifest
from tests.bench.load import edged
from tests.bench.table import Table

INPUTS = {"lines": 50_000, "bodies": 20_000, "documents": 30_000}
BUNDLE = 25
"""Inputs of one example: drawing is what costs."""

ANSWER_S = 30.0
CONFIG = """\
http: {listen: ["127.0.0.1:0"], rate: 1000000, burst: 1000000}
tools: {echo: {enabled: true}}
"""

# What is drawn ---------------------------------------------------------------------------

METHODS = (
    "initialize", "ping", "server/discover", "tools/list", "tools/call", "edged/status",
    "edged/turn", "edged/describe", "edged/tools/state", "edged/definitions", "edged/log",
    "edged/events", "edged/media", "edged/sync", "edged/token", "edged/config/reset",
    "notifications/initialized", "notifications/cancelled", "resources/list", "",
)  # fmt: skip
TOOLS = (
    "echo", "sensor", "gpio", "tool_describe", "tool_call", "tool_search_tool_regex",
    "tool_search_tool_bm25", "nothing",
)  # fmt: skip
KEYS = (
    "name", "arguments", "text", "pattern", "query", "action", "line", "value", "_meta", "cursor", "limit",
    "follow", "since", "id", "offset", "format", "enabled", "requestId", "protocolVersion",
    "progressToken", "edged/timeout", "edged/channel", "user", "role", "dry_run",
    "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities",
)  # fmt: skip
TEXTS = (
    "",
    "on",
    "add",
    "list",
    "mcp",
    "2025-11-25",
    "2026-07-28",
    "p1",
    "media://",
    "\0",
    "\ud800",
)

_words = st.sampled_from((*TEXTS, *TOOLS, *METHODS, *KEYS))
_free = st.text(st.characters(), max_size=20)
_long = st.integers(1_000, 70_000).map(lambda size: "x" * size)
texts = st.one_of(_words, _words, _words, _free, _free, _free, _long)
numbers = st.one_of(
    st.integers(-3, 3), st.sampled_from((2**31, 2**53, 2**63, 2**64, 10**40)), st.floats()
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), texts), inner, max_size=4),
    ),
    max_leaves=8,
)
arguments = st.one_of(values, st.dictionaries(st.sampled_from(KEYS), values, max_size=4))


def _is_switch(message: dict[str, Any]) -> bool:
    """Whether it takes the witness's own tool away, as an owner may."""
    given = message.get("params")
    return (
        message["method"] == "edged/tools/state"
        and isinstance(given, dict)
        and given.get("name") == "echo"
    )


params = st.one_of(
    arguments,
    st.fixed_dictionaries({"name": st.sampled_from(TOOLS), "arguments": arguments}),
    st.fixed_dictionaries({"name": st.just("echo"), "arguments": st.just({"text": "fine"})}),
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(("2.0",) * 9 + ("1.0",)), "method": st.sampled_from(METHODS)},
    optional={"id": st.one_of(st.integers(0, 9), values), "params": params},
).filter(lambda message: not _is_switch(message))


def _encoded(value: Any) -> bytes:
    """JSON, in which half a character stays half a character, as clients may write it."""
    return json.dumps(value).encode()


@st.composite
def _damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with a part cut out, put twice, or replaced."""
    data = draw(whole)
    at, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    part = draw(st.sampled_from((b"", data[at:end] * 2, b"\xff\xfe", b"\0", b'"', b"[{", b"\\u")))
    return data[:at] + part + data[end:]


_deep = st.tuples(st.sampled_from((b"[", b'{"a":')), st.integers(1, 30_000)).map(
    lambda pair: pair[0] * pair[1]
)
json_bytes = st.one_of(values, messages).map(_encoded)
lines = st.one_of(
    messages.map(_encoded),
    json_bytes,
    _damaged(messages.map(_encoded)),
    st.lists(messages, max_size=3).map(_encoded),
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b" ")),
    _deep,
)
bodies = st.one_of(
    params.map(_encoded),
    st.fixed_dictionaries(
        {"arguments": arguments}, optional={"timeout": values, "async": values}
    ).map(_encoded),
    _damaged(st.fixed_dictionaries({"arguments": arguments}).map(_encoded)),
    st.binary(max_size=60),
    _deep,
)
heads = st.sampled_from(
    (
        *("POST /api/tools/echo/call",) * 6,
        "POST /api/tools/sensor/call",
        "POST /api/tools/%00%ff/call",
        "PUT /api/tools/gpio/state",
        "POST /api/turn",
        "GET /api/tools?format=openai",
        "GET /api/log?limit=-1",
        "DELETE /api/calls/x",
        "PATCH /api/media/../../token",
    )
)
requests = st.lists(st.tuples(heads, bodies), min_size=BUNDLE, max_size=BUNDLE)

_yaml_lines = st.one_of(
    st.sampled_from(
        (
            "---", "--- ", " ---", "----", "name: fuzz", "name: [", "description: What it does.",
            "version: 1", "version: 1e999", "version: -1", "language: python", "language: cobol",
            "inputs:", "  text:", "    type: string", "    type: enum", "    values: a,b,a",
            "    default: [1]", "    optional: maybe", "timeout: 0", "memory: 1", "network: [a]",
            "calls: [echo]", "env: {a: b}", "devices: [../mem]", "resources: all", "warm: 12:30",
            "a: &x [*x]", "!secret b: c", "? {}", "- - - -", "<<: *x", "name: fuzz\r", "\t", "'",
            "key: !!python/object:os.system x", "... ", "%YAML 1.1", "x: |", "  more", "{" * 300,
        )  # fmt: skip
    ),
    st.text(st.characters(), max_size=30),
)  # fmt: skip
_texts = st.lists(_yaml_lines, max_size=14).map("\n".join)
_inputs = st.dictionaries(
    st.one_of(st.sampled_from(("text", "class", "execute", "a b", "1")), texts),
    st.dictionaries(st.sampled_from(("type", "description", "values", "default", "optional")), values),
    max_size=4,
)  # fmt: skip
_fields = st.dictionaries(
    st.sampled_from(
        (
            "label", "language", "timeout", "memory", "network", "devices", "calls", "env",
            "resources", "warm", "inputs", "version", "unknown",
        )  # fmt: skip
    ),
    st.one_of(values, _inputs),
    max_size=4,
)  # fmt: skip
# JSON is YAML, so that values of every shape stand where others are due.
_manifests = _fields.map(
    lambda fields: "".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items())
)
_front = st.tuples(st.one_of(_manifests, _texts), _texts).map(
    lambda pair: f"---\nname: fuzz\ndescription: Is read.\n{pair[0]}\n---\n{pair[1]}".encode(
        "utf-8", "surrogatepass"
    )
)
documents = st.one_of(
    _front,
    _front,
    _damaged(_front),
    _texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.binary(max_size=200),
)


# Who is fed ------------------------------------------------------------------------------


class Witness:
    """A connection beside those that are fed; its calls are answered, whatever comes there."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self.asked = 0

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.asked += 1
        request = {"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._answers.readline())
        assert answer["id"] == self.asked, answer
        return answer["result"]

    def testify(self) -> None:
        """Call, and be answered."""
        text = f"witness {self.asked}"
        result = self.ask("tools/call", {"name": "echo", "arguments": {"text": text}})
        assert result["content"] == [{"type": "text", "text": text}], result

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def feed_lines(path: str, bundle: list[bytes]) -> None:
    """Send lines and end the input; whatever is answered is JSON-RPC."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(ANSWER_S)
        link.connect(path)
        link.sendall(b"\n".join(bundle) + b"\n")
        link.shutdown(socket.SHUT_WR)
        with link.makefile("rb") as replies:
            for reply in replies:
                message = json.loads(reply)
                assert message["jsonrpc"] == "2.0", reply
                assert "method" in message or ("result" in message) != ("error" in message), reply
                assert message.get("error", {}).get("code") != -32603, reply


class HttpLink:
    """A connection that is kept alive over all the bodies that leave it so."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._socket: socket.socket | None = None

    def feed(self, head: str, body: bytes) -> int:
        """Send a request; its status, which is that of no fault of edged's own."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), ANSWER_S)
            self._answers = self._socket.makefile("rb")
        self._socket.sendall(
            f"{head} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status = int(self._answers.readline().split()[1])
        headers = {}
        while line := self._answers.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        data = self._answers.read(int(headers.get("content-length", 0)))
        assert status != 500, (head, body, data)
        if status >= 400:
            assert json.loads(data)["status"] == status, (head, body, data)
        if headers.get("connection") == "close":
            self.close()
        return status

    def close(self) -> None:
        if self._socket is not None:
            self._answers.close()
            self._socket.close()
            self._socket = None


def read_document(data: bytes) -> None:
    """A TOOL.md is read, or refused with the file's name."""
    try:
        found = manifest.parse(data, "TOOL.md")
    except ConfigError as error:
        assert "TOOL.md" in str(error), data
        return
    json.dumps(manifest.schema(found))
    manifest.struct(found)


# What is run -----------------------------------------------------------------------------


def feed(strategy: st.SearchStrategy[Any], count: int, taker: Callable[[Any], None]) -> None:
    """Draw `count` examples and hand each on; the first that fails is reported as it came."""

    @hypothesis.seed(count)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: Any) -> None:
        taker(example)

    run()


def bundles(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=BUNDLE, max_size=BUNDLE)


def fuzz_lines(path: str, count: int) -> None:
    """Feed lines to the socket."""
    with contextlib.closing(Witness(path)) as witness:

        def take(bundle: list[bytes]) -> None:
            feed_lines(path, bundle)
            witness.testify()

        feed(bundles(lines), count // BUNDLE, take)


def fuzz_bodies(path: str, port: int, token: str, count: int) -> dict[int, int]:
    """Feed bodies to the HTTP door; how often each status came."""
    statuses: dict[int, int] = {}
    with (
        contextlib.closing(Witness(path)) as witness,
        contextlib.closing(HttpLink(port, token)) as link,
    ):

        def take(bundle: list[tuple[str, bytes]]) -> None:
            for head, body in bundle:
                status = link.feed(head, body)
                statuses[status] = statuses.get(status, 0) + 1
            witness.testify()

        feed(requests, count // BUNDLE, take)
    return statuses


def fuzz_documents(count: int) -> None:
    """Feed documents to the front matter reader."""

    def take(bundle: list[bytes]) -> None:
        for data in bundle:
            read_document(data)

    feed(bundles(documents), count // BUNDLE, take)


def measure(table: Table, directory: str) -> None:
    errors_path = os.path.join(directory, "stderr")
    argv = edged(directory, CONFIG, "--sim")
    with open(errors_path, "wb") as errors, subprocess.Popen(argv, stderr=errors) as process:
        try:
            port, token = _opened(directory)
            path = f"{directory}/edged.sock"
            taken = {
                "lines": _timed(lambda: fuzz_lines(path, INPUTS["lines"])),
                "bodies": _timed(lambda: fuzz_bodies(path, port, token, INPUTS["bodies"])),
                "documents": _timed(lambda: fuzz_documents(INPUTS["documents"])),
            }
            with contextlib.closing(Witness(path)) as witness:
                witness.testify()
            ended = process.poll() is not None
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(ANSWER_S)
    for name, seconds in taken.items():
        table.note(f"{INPUTS[name]} {name}: {INPUTS[name] / seconds:.0f}/s")
    table.row("hostile inputs", sum(INPUTS.values()), at_least=100_000, unit=" ")
    table.row("daemons that ended by them", ended + process.returncode, at_most=0, unit=" ")
    with open(errors_path, errors="replace") as file:
        faults = [line for line in file if "error" in line or "Traceback" in line]
    table.row("faults in the daemon's log", len(faults), at_most=0, unit=" ")
    for line in faults[:10]:
        table.note(line.rstrip())


def _opened(directory: str) -> tuple[int, str]:
    """The HTTP door's port and token, once both doors are open."""
    end = time.monotonic() + ANSWER_S
    while True:
        try:
            with contextlib.closing(Witness(f"{directory}/edged.sock")) as witness:
                status = witness.ask("edged/status", {})
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.02)
    url = next(address for address in status["listen"] if address.startswith("http:"))
    with open(f"{directory}/data/token") as file:
        return int(url.rpartition(":")[2]), file.read().strip()


def _timed(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started
