"""Messages of a whole daemon: its doors, its death, its disk (issue 4, part 6)."""

import base64
import contextlib
import http.server
import json
import random
import resource
import socket
import threading
import time

import pytest

from edged.errors import EdgedError

ROUNDS = 8
"""Lives of the daemon in which it is killed."""


class Receiver:
    """A webhook's other end, which takes a message once by its id, and is down on demand."""

    def __init__(self):
        self.asked, self.taken = [], {}
        self.down = False
        self._lock = threading.Lock()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.down:
                    self.send_response(503)
                else:
                    receiver.take(self.headers["Idempotency-Key"], json.loads(body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def take(self, key, body):
        with self._lock:
            self.asked.append(key)
            assert self.taken.setdefault(key, body)["text"] == body["text"]

    @property
    def texts(self):
        with self._lock:
            return [body["text"] for body in self.taken.values()]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def config(receiver):
    # As many as the fastest machine sends in the test.
    hook = f"{{hook: {{kind: webhook, url: '{receiver.url}'}}}}"
    return f"messages: {{count: 10000, channels: {hook}}}\n"


def test_without_a_channel_the_tools_say_what_to_write(serving):
    """Part 6: blocked, `requires_config`, with the remedy."""
    with serving() as daemon:
        rows = {row["name"]: row for row in daemon.ask("edged/tools/state")["tools"]}
        for name in ("message", "send_file"):
            row = rows[name]
            assert (row["status"], row["reason_code"]) == ("blocked", "requires_config")
            assert (row["category"], row["config_key"]) == ("communication", name)
            assert "messages: {channels:" in row["problem"]
        status, body = daemon.http("/api/tools/message/call", {"arguments": {"text": "x"}})
        assert status == 409
        assert "no channel is configured" in body["detail"]
        assert "messages" not in daemon.ask("edged/status")


def test_a_message_goes_out_by_every_door_and_health_shows_it(serving, receiver, until):
    """Contract, section 4: headers and `_meta` name channel and chat."""
    with serving(config=config(receiver)) as daemon:
        assert daemon.cli("call", "message", "text=by hand").returncode == 0
        headers = {"Edged-Channel": "hook", "Edged-Chat": "kitchen"}
        arguments = {"arguments": {"content": "by http"}}
        status, body = daemon.http("/api/tools/message/call", arguments, **headers)
        assert (status, body["structured"]["chat_id"]) == (200, "kitchen")
        meta = {"edged/channel": "hook", "edged/chat_id": "shed"}
        params = {"name": "message", "arguments": {"text": "by socket"}, "_meta": meta}
        [answer] = daemon.lines(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        )
        assert answer["result"]["structuredContent"]["chat_id"] == "shed"
        until("all are there", lambda: len(receiver.texts) == 3)
        assert receiver.texts == ["by hand", "by http", "by socket"]
        assert [body.get("chat_id") for body in receiver.taken.values()] == [
            None,
            "kitchen",
            "shed",
        ]
        until("it is empty", lambda: daemon.ask("edged/status")["messages"]["waiting"] == 0)
        found = daemon.ask("edged/status")["messages"]
        assert found == {
            "waiting": 0,
            "bytes": 0,
            "sent": 3,
            "given_up": 0,
            "channels": {"hook": "ok"},
            "troubled": [],
        }
        assert "hook ok" in daemon.cli("status").stdout


def test_a_message_outlives_its_caller_and_the_daemon(serving, receiver, until):
    """Fault 1946: delivered after the page is closed; fault 1868: once, not dropped."""
    receiver.down = True
    with serving(config=config(receiver)) as daemon:
        request = {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "message", "arguments": {"text": "the final reply"}},
        }  # fmt: skip
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(daemon.socket)
            link.sendall(json.dumps(request).encode() + b"\n")
            assert b"accepted for hook" in link.recv(65_536)

        def waits():
            return "HTTP 503" in daemon.ask("edged/status")["messages"]["channels"]["hook"]

        until("the channel is known to be down", waits)
        daemon.stop()
        receiver.down = False
        daemon.start()
        until("it is there", lambda: receiver.texts)
        until("it is empty", lambda: daemon.ask("edged/status")["messages"]["waiting"] == 0)
        daemon.stop()
        daemon.start()
        daemon.call("message", text="and the next")
        until("the next is there", lambda: len(receiver.texts) == 2)
    assert receiver.texts == ["the final reply", "and the next"]
    assert len(receiver.asked) == 2


def test_a_granted_file_is_sent_as_it_was(serving, receiver, until):
    """Part 3 and part 6: `once` is used up by the one file that is sent."""
    receiver.down = True
    with serving(config=config(receiver)) as daemon:
        outside = daemon.folder / "outside.txt"
        outside.write_text("as it was")
        assert daemon.call("send_file", path=str(outside)).is_error
        assert daemon.cli("grant", str(outside), "once").returncode == 0
        sent = daemon.call("send_file", path=str(outside), caption="see")
        assert sent.structured["status"] == "queued", sent
        assert daemon.call("send_file", path=str(outside)).is_error
        outside.write_text("as it is now")
        receiver.down = False
        until("it is there", lambda: receiver.texts == ["see"])
        [body] = receiver.taken.values()
        assert base64.b64decode(body["file"]["data"]) == b"as it was"


def test_no_secret_of_a_channel_is_shown(serving, until):
    """`!secret` never shows: not in the log, in status, in events."""
    text = "messages: {channels: {bot: {kind: telegram, token: !secret bot, chat_id: 1, url: 'http://127.0.0.1:9'}}}"

    def lay(daemon):
        path = daemon.folder / "secrets.yaml"
        path.write_text("bot: '123456:very-secret-token'\n")
        path.chmod(0o600)

    with serving(lay, text) as daemon:
        assert not daemon.call("message", text="x").is_error
        until("it was tried", lambda: "takes none" in daemon.stderr())
        shown = json.dumps(daemon.ask("edged/status")) + daemon.stderr()
        shown += daemon.edged("config", "--explain", "--config", str(daemon.config)).stdout
        assert "Connection refused" in shown
        assert "very-secret" not in shown


@pytest.mark.parametrize("seed", [20_261_130])
def test_nothing_acknowledged_is_lost_by_kills_and_full_disks(serving, receiver, until, seed):
    """Shows: kill -9 and a full disk at random moments; delivered once, in order."""
    chance = random.Random(seed)
    accepted, refused = [], 0
    with serving(config=config(receiver)) as daemon:
        for life in range(ROUNDS):
            stop = threading.Event()

            def send(life=life, stop=stop):
                nonlocal refused
                with contextlib.suppress(EdgedError, OSError), daemon.client() as client:
                    for number in range(10_000):
                        if stop.is_set():
                            return
                        text = f"{life}/{number}"
                        if client.call("message", {"text": text}).is_error:
                            refused += 1
                            stop.wait(0.002)
                        else:
                            accepted.append(text)

            sender = threading.Thread(target=send)
            sender.start()
            full = chance.random() < 0.7
            ends = time.monotonic() + chance.uniform(0.1, 1.0)
            pid, before = daemon._process.pid, len(accepted)
            bound = time.monotonic() + 30.0
            while time.monotonic() < ends or len(accepted) < before + 2:
                assert time.monotonic() < bound
                if full:
                    # A disk that takes nothing, or a part, and then everything again.
                    room = chance.choice([0, 100, resource.RLIM_INFINITY])
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
                receiver.down = chance.random() < 0.3
                stop.wait(chance.uniform(0.001, 0.05))
            daemon.kill()
            stop.set()
            sender.join()
            receiver.down = False
            daemon.start()
        until("all that was accepted is there", lambda: set(accepted) <= set(receiver.texts))
        until("it is empty", lambda: daemon.ask("edged/status")["messages"]["waiting"] == 0)
        assert "was broken" not in daemon.stderr()
    assert len(accepted) > ROUNDS
    assert refused > 0
    # By its id each was taken once, and came at most once more for each life that was ended.
    texts = receiver.texts
    assert len(texts) == len(set(texts))
    assert len(receiver.asked) - len(texts) <= ROUNDS
    known = set(accepted)
    assert [text for text in texts if text in known] == accepted


def test_a_job_s_message_goes_once_to_where_it_was_asked_for(serving, receiver, until):
    """Faults 1946 and 1868: whoever asked has gone; its chat gets the reply once."""
    with serving(config=config(receiver)) as daemon:
        arguments = {"action": "add", "schedule": "in 1h", "message": "Daily reminder"}
        headers = {"Edged-Channel": "hook", "Edged-Chat": "kitchen"}
        body = {"arguments": arguments}
        status, added = daemon.http("/api/tools/cron/call", body, **headers)
        assert (status, added["is_error"]) == (200, False), added
        receiver.down = True
        job = daemon.ask("edged/jobs")["jobs"][0]["id"]
        assert not daemon.call("cron", action="run", id=job).is_error

        def waits():
            return "HTTP 503" in daemon.ask("edged/status")["messages"]["channels"]["hook"]

        until("the channel is known to be down", waits)
        daemon.stop()
        receiver.down = False
        daemon.start()
        until("it is there", lambda: receiver.texts)
        until("it is empty", lambda: daemon.ask("edged/status")["messages"]["waiting"] == 0)
    [told] = receiver.taken.values()
    assert (told["text"], told["chat_id"]) == ("Daily reminder", "kitchen")
    assert len(receiver.asked) == 1
