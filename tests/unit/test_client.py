"""The blocking client against a daemon that says what it is told to say."""

import json
import os
import signal
import socket
import threading

import pytest

from edged.client import SocketClient, raise_remote
from edged.errors import (
    WIRE,
    BusyError,
    CallTimeoutError,
    DeniedError,
    EdgedError,
    NoDaemonError,
    NotFoundError,
    RemoteProtocolError,
    StoreError,
    UnknownToolError,
)


class FakeDaemon:
    """Answers each line by `answer(request)`: a list of messages, or None to close."""

    def __init__(self, path, answer):
        self.path = path
        self.requests = []
        self._answer = answer
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        peer, _ = self._sock.accept()
        with peer, peer.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                self.requests.append(request)
                answers = self._answer(request)
                if answers is None:
                    return
                for one in answers:
                    data = one if isinstance(one, bytes) else json.dumps(one).encode()
                    peer.sendall(data + b"\n")

    def close(self):
        # A connection of ours wakes the thread that still waits for the first one.
        probe = socket.socket(socket.AF_UNIX)
        probe.connect(self.path)
        probe.close()
        self._thread.join(10)
        self._sock.close()


@pytest.fixture
def talk(tmp_path):
    """Start a daemon with its answers and connect to it."""
    made = []

    def start(answer, **options):
        daemon = FakeDaemon(str(tmp_path / f"{len(made)}.sock"), answer)
        client = SocketClient(daemon.path, **options)
        made.append((daemon, client))
        return client, daemon

    yield start
    for daemon, client in made:
        client.close()
        daemon.close()


def result(request, value):
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


def failed(request, message, data=None):
    error = {"code": -32602, "message": message, "data": data}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def update(text):
    content = [{"type": "text", "text": text}]
    meta = {"edged/update": {"content": content}}
    return {"method": "notifications/progress", "params": {"progressToken": 1, "_meta": meta}}


def test_request_returns_the_result_and_ignores_what_is_announced(talk):
    client, daemon = talk(lambda r: [{"method": "x", "params": {}}, result(r, {"a": 1})])
    assert client.request("edged/status") == {"a": 1}
    assert client.request("edged/log", {"limit": 1}) == {"a": 1}
    assert [(r["method"], r["params"]) for r in daemon.requests] == [
        ("edged/status", {}),
        ("edged/log", {"limit": 1}),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unknown_tool", UnknownToolError),
        ("busy", BusyError),
        ("denied", DeniedError),
        ("store", StoreError),
        ("not_found", NotFoundError),
        ("protocol_remote", RemoteProtocolError),
        ("a code of a later daemon", EdgedError),
        (None, EdgedError),
    ],
)
def test_refusal_comes_back_as_the_error_of_its_code(talk, code, kind):
    """Contract, section 6: `code` is stable on every wire."""
    data = {"code": code} if code else None
    client, _ = talk(lambda r: [failed(r, "no: do that", data)])
    with pytest.raises(kind) as raised:
        client.request("x")
    assert str(raised.value) == "no: do that"
    assert type(raised.value) is kind


@pytest.mark.parametrize("code", WIRE)
def test_words_of_every_refusal_arrive(code):
    """Some classes are OSErrors too, or take more than words."""
    with pytest.raises(EdgedError) as raised:
        raise_remote("no: do that", {"code": code})
    assert str(raised.value) == "no: do that"
    assert raised.value.code == code


def test_refusal_of_the_connection_itself_is_told(talk):
    """A daemon at its limit of connections answers with the id null."""
    full = {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -31029, "message": "512 are the limit"},
    }
    client, _ = talk(lambda _: [full])
    with pytest.raises(EdgedError, match="512 are the limit"):
        client.request("x")


def test_call_returns_the_whole_result(talk):
    """Contract, section 7: on MCP the rest is under `_meta`."""
    value = {
        "content": [{"type": "text", "text": "hi"}],
        "isError": True,
        "structuredContent": {"n": 1},
        "_meta": {
            "edged/call_id": "c-1",
            "edged/duration_ms": 2.5,
            "edged/media": ["media://1"],
            "edged/truncated": {"bytes": 9, "lines": 1, "kept": "start", "media": ""},
        },
    }
    client, daemon = talk(lambda r: [result(r, value)])
    got = client.call("t", {"a": "1"}, timeout_s=3)
    assert (got.for_llm, got.is_error, got.structured) == ("hi", True, {"n": 1})
    assert (got.call_id, got.duration_ms, got.media) == ("c-1", 2.5, ["media://1"])
    assert got.truncated is not None
    assert got.truncated.bytes == 9
    assert daemon.requests[0]["params"] == {
        "name": "t",
        "arguments": {"a": "1"},
        "_meta": {"edged/timeout": 3},
    }


def test_text_for_the_model_of_its_own_is_kept(talk):
    value = {"content": [], "_meta": {"edged/for_llm": "other"}}
    client, _ = talk(lambda r: [result(r, value)])
    assert client.call("t", {}).for_llm == "other"


def test_updates_arrive_before_the_result_in_order(talk):
    other = {"method": "notifications/message", "params": {}}
    bare = {"method": "notifications/progress", "params": {"progress": 3}}
    client, daemon = talk(
        lambda r: [update("1"), other, bare, update("2"), result(r, {"content": []})]
    )
    seen = []
    client.call("t", {}, on_update=lambda content: seen.append(content[0].text))
    assert seen == ["1", "2"]
    assert daemon.requests[0]["params"]["_meta"] == {"progressToken": 1}


def test_unasked_updates_are_dropped(talk):
    client, _ = talk(lambda r: [update("1"), result(r, {"content": []})])
    assert client.call("t", {}).content == []


def test_interrupt_cancels_the_call_at_the_daemon(talk):
    """MCP, cancellation: the notification names the request."""

    def interrupt(request):
        if request["method"] == "tools/call":
            os.kill(os.getpid(), signal.SIGINT)
        else:
            cancelled.set()
        return []

    cancelled = threading.Event()
    client, daemon = talk(interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.call("t", {})
    assert cancelled.wait(10)
    assert daemon.requests[1]["method"] == "notifications/cancelled"
    assert daemon.requests[1]["params"] == {"requestId": daemon.requests[0]["id"]}


def test_what_is_announced_follows_the_answer(talk):
    record = {"method": "edged/log", "params": {"tool": "a"}}
    late = {"jsonrpc": "2.0", "id": 77, "result": {}}
    client, _ = talk(lambda r: [result(r, {"records": []}), late, record, record])
    first, more = client.follow("edged/log", {"follow": True})
    assert first == {"records": []}
    assert [next(more), next(more)] == [("edged/log", {"tool": "a"})] * 2


def test_medium_is_fetched_piece_by_piece(talk):
    pieces = {0: ("aGVs", 3), 3: ("bG8=", None)}

    def answer(request):
        data, more = pieces[request["params"]["offset"]]
        value = {"data": data, "mime_type": "text/plain", "name": "n", "size": 5, "next": more}
        return [result(request, value)]

    client, daemon = talk(answer)
    found = client.medium("media://abc")
    assert (found.data, found.mime_type, found.name) == (b"hello", "text/plain", "n")
    assert {r["params"]["id"] for r in daemon.requests} == {"abc"}


def test_closed_connection_is_no_daemon(talk):
    client, _ = talk(lambda _: None)
    with pytest.raises(NoDaemonError, match="closed the connection"):
        client.request("x")
    with pytest.raises(NoDaemonError, match="closed the connection"):
        client.request("x")


def test_silence_has_an_end(talk):
    client, _ = talk(lambda _: [], answer_s=0.05)
    with pytest.raises(CallTimeoutError, match=r"no answer within 0\.05 s"):
        client.request("x")


@pytest.mark.parametrize("line", [b"no json", b'"text"', b'{"id":1,"result":{"content":5}}'])
def test_nonsense_is_the_other_sides_fault(talk, line):
    client, _ = talk(lambda _: [line])
    with pytest.raises(RemoteProtocolError, match="not understood"):
        client.call("t", {})


def test_missing_socket_names_the_remedy(tmp_path):
    with pytest.raises(NoDaemonError, match="start it with edged serve"):
        SocketClient(str(tmp_path / "none.sock"))


def test_path_that_no_socket_can_have_is_no_daemon(tmp_path):
    """unix(7): a path has at most 107 bytes."""
    with pytest.raises(NoDaemonError):
        SocketClient(str(tmp_path / ("x" * 200)))
