"""Full and read-only disks, and files that a power cut left broken.

A disk that is full for the daemon alone, and has room again on demand, is a limit on the
size of its files (RLIMIT_FSIZE, getrlimit(2)): a write takes a part and fails then.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest

from edged.client import SocketClient
from edged.errors import NoDaemonError, StoreError
from edged.sandbox import proc

BOUND_S = 30.0
CALLS = 1_500
"""More than wait for the disk at once (`edged.audit.SLICE`)."""

SMALL = 16 << 10
"""Bytes of a file on the nearly full disk: enough for what a sandbox is told."""

# Behind bwrap a plain user is in a user namespace, where the group edged has no number.
CONFIG = """\
http: {listen: ["127.0.0.1:0"]}
socket: {group: there-is-none}
tools: {echo: {enabled: true}}
"""
BIG = {
    "TOOL.md": "---\nname: big\ndescription: Says much.\nversion: 1\nlanguage: python\n---\n",
    "index.py": "def execute(call_id, params):\n"
    "    return '\\n'.join(f'{n:060}' for n in range(3_000))\n",
}


class Place:
    """A directory with configuration, data and socket, on which daemons run."""

    def __init__(self, folder):
        self.folder = folder
        self.data = f"{folder}/data"
        self.socket = f"{folder}/s.sock"
        self.process = None
        with open(f"{folder}/edged.yaml", "w") as file:
            file.write(CONFIG)

    def configure(self, line):
        """Replace the last line of the configuration."""
        lines = CONFIG.splitlines()[:-1]
        with open(f"{self.folder}/edged.yaml", "w") as file:
            file.write("\n".join([*lines, line, ""]))

    def spawn(self, *before):
        """Start one, behind the words of another program if need be."""
        options = ["--config", f"{self.folder}/edged.yaml", "--socket", self.socket]
        words = [sys.executable, "-m", "edged", "serve", *options, "--data", self.data]
        with open(f"{self.folder}/stderr", "w") as errors:
            self.process = subprocess.Popen(
                [*before, *words], cwd=self.folder, stdin=subprocess.DEVNULL, stderr=errors
            )

    def start(self, until, *before):
        self.spawn(*before)
        until("it listens", self._listens)

    def _listens(self):
        assert self.process.poll() is None, self.stderr()
        with contextlib.suppress(NoDaemonError), self.client():
            return True

    def stop(self):
        self.process.terminate()
        assert self.process.wait(BOUND_S) == 0, self.stderr()

    def kill(self):
        """With what it started: a daemon in a mount namespace of its own outlives bwrap."""
        for pid in proc.tree(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(BOUND_S)

    def client(self):
        return contextlib.closing(SocketClient(self.socket, answer_s=BOUND_S))

    def ask(self, method, /, **params):
        with self.client() as client:
            return client.request(method, params)

    def call(self, name, /, **arguments):
        with self.client() as client:
            return client.call(name, arguments)

    def stderr(self):
        with open(f"{self.folder}/stderr") as file:
            return file.read()

    def limit(self, size):
        """Bytes that a file of the daemon may have; None is the limit that it began with."""
        hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)[1]
        size = hard if size is None else size
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, hard))

    def tree(self, below=""):
        """Content of all files of a directory below the data, by path."""
        root = f"{self.data}/{below}"
        found = {}
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, root)] = file.read()
        return found

    def lay(self, path, content):
        path = f"{self.data}/{path}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


@pytest.fixture
def place():
    # Not in tmp_path: the tools' account must be able to enter it.
    folder = tempfile.mkdtemp(prefix="edged-power-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    made = Place(folder)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()
        shutil.rmtree(folder)


@pytest.fixture
def running(place, until):
    """One that has answered; its disk has room until the test takes it away."""
    for name, text in BIG.items():
        place.lay(f"tools/big/{name}", text.encode())
    place.start(until)
    place.ask("edged/tools/state")
    yield place
    place.limit(None)
    place.stop()


# A disk that fills up --------------------------------------------------------------------


def test_calls_go_on_while_nothing_can_be_written(running, until):
    """Issue 2, part 7; architecture, laws: the trail is no condition of a call."""
    running.limit(0)
    with running.client() as client:
        for number in range(CALLS):
            text = f"call {number}"
            assert client.call("echo", {"text": text}).for_llm == text
    records = running.ask("edged/log", limit=1_000)["records"]
    assert records[-1]["arguments"] == {"text": f"call {CALLS - 1}"}, "readers still see them"
    assert running.ask("edged/status")["audit_lost"] == CALLS
    running.limit(None)
    running.call("echo", text="there is room")
    running.ask("edged/log", limit=1)
    on_disk = b"".join(running.tree("audit").values()).splitlines()
    assert [json.loads(line)["arguments"]["text"] for line in on_disk] == ["there is room"]


def test_state_that_cannot_be_stored_is_refused_and_unchanged(running, until):
    """Architecture, laws: written atomically; the caller learns that it is not stored."""
    running.ask("edged/token", action="add", name="kept")
    before = running.tree("state")
    names = {row["name"] for row in running.ask("edged/token")["tokens"]}
    running.limit(0)
    for method, params, file in (
        ("edged/token", {"action": "add", "name": "new"}, "tokens.json"),
        ("edged/token", {"action": "revoke", "name": "kept"}, "tokens.json"),
        ("edged/tools/state", {"name": "echo", "enabled": False}, "tool-switches.json"),
    ):
        with pytest.raises(StoreError, match=f"cannot write .*/{file}: File too large"):
            running.ask(method, **params)
    assert running.call("echo", text="still on").for_llm == "still on"
    running.limit(None)

    def holds():
        assert {row["name"] for row in running.ask("edged/token")["tokens"]} == names
        after = running.tree("state")
        assert after["tokens.json"] == before["tokens.json"]
        assert not [name for name in after if name.endswith((".new", ".broken"))]

    holds()
    running.stop()
    running.start(until)
    holds()
    assert running.call("echo", text="on").for_llm == "on"


def test_output_that_cannot_be_kept_is_shown_all_the_same(running):
    """Contract 7: the cut says where the whole output is; here it is nowhere."""
    running.limit(SMALL)
    result = running.call("big")
    assert not result.is_error
    assert result.truncated.media == ""
    assert "first 819 of 3000 lines" in result.for_llm
    assert running.tree("local/media") == {}, "a part of it is left"
    running.limit(None)
    uri = running.call("big").truncated.media
    with running.client() as client:
        assert len(client.medium(uri).data) == 3_000 * 61 - 1


def test_seed_that_does_not_fit_leaves_the_old_tool(running):
    """Issue 2, part 3: a full disk at any point leaves the old or the new tool."""
    manifest = running.tree("tools/hello")["TOOL.md"]
    running.lay("tools/hello/TOOL.md", manifest.replace(b"version: 1\n", b"version: 0\n"))
    old = running.tree("tools")
    running.limit(40)
    report = running.ask("edged/sync")
    assert [failure["name"] for failure in report["failed"]] == ["hello"]
    assert "File too large" in report["failed"][0]["reason"]
    assert running.tree("tools") == old
    running.limit(None)
    assert running.ask("edged/sync")["failed"] == []
    assert running.tree("tools/hello")["TOOL.md"] == manifest
    assert running.call("hello", name="Ada").for_llm == "Hello, Ada!"


def test_it_starts_on_a_full_disk_and_says_what_is_missing(place, until):
    """A full disk must not keep the daemon down: some of what it does needs none."""
    os.mkdir(place.data)
    room = ["--size", "8192", "--perms", "0755", "--tmpfs", place.data]
    caps = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
    place.start(until, "bwrap", "--die-with-parent", *caps, "--dev-bind", "/", "/", *room, "--")
    assert place.call("echo", text="serves").for_llm == "serves"
    # Answered after the seeds were tried.
    place.ask("edged/tools/state")
    with pytest.raises(StoreError, match="No space left on device: free some space"):
        for number in range(100):
            place.ask("edged/token", action="add", name=f"{number}" * 20)
    (problem, *_) = place.ask("edged/status")["problems"]
    assert "No space left on device" in problem
    assert place.call("echo", text="still").for_llm == "still"
    assert "Traceback" not in place.stderr()


def test_files_and_grants_on_a_full_disk_are_whole_or_refused(place, until):
    """Issue 4, Shows: nothing acknowledged is lost, nothing is half written."""
    place.configure("tools: {echo: {enabled: true}, files: {quota: 0}}")
    os.mkdir(place.data)
    room = ["--size", str(1 << 20), "--perms", "0755", "--tmpfs", place.data]
    caps = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
    place.start(until, "bwrap", "--die-with-parent", *caps, "--dev-bind", "/", "/", *room, "--")
    kept, refused = {}, []
    with place.client() as client:

        def attempt(tool, name, after, **arguments):
            result = client.call(tool, {"path": name, **arguments})
            if result.is_error:
                refused.append(result.for_llm)
            else:
                kept[name] = after

        for number in range(30):
            name, text = f"file{number}", f"{number:04}\n" * 8_000
            attempt("write_file", name, text, content=text)
            attempt("write_file", "again", text[:30_000], content=text[:30_000])
            attempt("append_file", "log", kept.get("log", "") + text[:3_000], content=text[:3_000])
        attempt("append_file", "file0", kept["file0"] + "x" * 99_000, content="x" * 99_000)
        old, new = "0000\n0000", "y" * 500
        text = kept["file0"].replace(old, new)
        attempt("edit_file", "file0", text, old_text=old, new_text=new, replace_all=True)
        assert len(refused) > 5
        assert {
            one for one in refused if "No space left on device: free some space" not in one
        } == set()
        for name, text in kept.items():
            parts, offset = [], 0
            while offset is not None:
                part = client.call("read_file", {"path": name, "offset": offset})
                parts.append(part.content[0].text)
                offset = (part.structured or {}).get("next_offset")
            assert "".join(parts) == text, name
        names = {line[6:] for line in client.call("list_dir", {}).content[0].text.split("\n")}
        assert names == set(kept)
    answers = {}
    for number in range(40):
        path = f"{place.folder}/{number}"
        try:
            place.ask("edged/grant", path=path, duration="deny")
        except StoreError as error:
            assert "No space left on device" in str(error)
        else:
            answers[path] = "deny"
    denied = {row["path"] for row in place.ask("edged/grant")["denied"]}
    assert denied == set(answers)
    assert "Traceback" not in place.stderr()


def test_calls_of_one_user_leave_the_disk_to_others(place, until):
    """README, What holds a tool: a quarter of the disk, and room to remove files again."""
    os.mkdir(place.data)
    room = ["--size", str(32 << 20), "--perms", "0755", "--tmpfs", place.data]
    caps = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
    place.start(until, "bwrap", "--die-with-parent", *caps, "--dev-bind", "/", "/", *room, "--")
    text = "x" * (1 << 20)
    written = 0
    while not (result := place.call("write_file", path=f"{written}", content=text)).is_error:
        written += 1
        assert written < 32
    assert written == 8, "MiB, a quarter"
    assert "of the 8 MiB that they may" in result.for_llm
    assert not place.call("write_file", path="0", content=text.upper()).is_error, "none the more"
    more = place.call("append_file", path="0", content=text)
    assert "/workspace/0: your files take 8 MiB" in more.for_llm
    filled = place.call("exec", command="head -c 2M /dev/zero >more; sleep 60")
    assert "it added more than 1 MiB to its directories" in filled.for_llm
    assert not place.call("exec", command="rm more 0 1 2").is_error
    assert not place.call("write_file", path="0", content=text).is_error
    assert place.ask("edged/tools/state")["tools"]


def test_messages_are_accepted_as_long_as_they_fit(place, until):
    """Issue 4, Shows: nothing acknowledged is lost; what waits goes out on a full disk too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        # Its connections are not answered: what is accepted stays.
        hook = f"{{kind: webhook, url: 'http://127.0.0.1:{port}/'}}"
        with open(f"{place.folder}/edged.yaml", "a") as file:
            file.write(f"messages: {{channels: {{hook: {hook}}}}}\n")
        os.mkdir(place.data)
        room = ["--size", str(256 << 10), "--perms", "0755", "--tmpfs", place.data]
        caps = ["--cap-add", "ALL"] if os.geteuid() == 0 else []
        place.start(
            until, "bwrap", "--die-with-parent", *caps, "--dev-bind", "/", "/", *room, "--"
        )
        place.ask("edged/tools/state")
        accepted = []
        while not (result := place.call("message", text="x" * 3_000)).is_error:
            accepted.append(result.structured["id"])
            assert len(accepted) < 256
        assert "No space left on device: free some space" in result.for_llm
        assert len(accepted) > 10
        assert place.ask("edged/status")["messages"]["waiting"] == len(accepted)
        ids = []
        while len(ids) < len(accepted):
            link, _ = server.accept()
            with link, link.makefile("rb") as lines:
                head = iter(lines.readline, b"\r\n")
                fields = dict(line.decode().rstrip().split(": ", 1) for line in list(head)[1:])
                lines.read(int(fields["Content-Length"]))
                link.sendall(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            ids.append(fields["Idempotency-Key"])
        assert ids == accepted
        until("it is empty", lambda: place.ask("edged/status")["messages"]["waiting"] == 0)
        assert not place.call("message", text="there is room").is_error
        assert "Traceback" not in place.stderr()


# A disk that cannot be written -----------------------------------------------------------


def refused(place, *before):
    """The words of a daemon that does not start."""
    place.spawn(*before)
    code = place.process.wait(BOUND_S)
    text = place.stderr()
    assert code == 1, text
    assert "Traceback" not in text
    assert text.count("\n") == 1, text
    return text


def test_read_only_data_directory_is_refused_in_words(place):
    """Contract 2: what went wrong, and what to do."""
    os.mkdir(place.data)
    view = ["--dev-bind", "/", "/", "--ro-bind", place.data, place.data]
    text = refused(place, "bwrap", "--die-with-parent", *view, "--")
    assert f"edged: {place.data} cannot be used: Read-only file system" in text
    assert "--data" in text


def test_data_directory_that_is_a_file_is_refused_in_words(place):
    """Contract 2: what went wrong, and what to do."""
    with open(place.data, "w"):
        text = refused(place)
    assert place.data in text
    assert "--data" in text


def test_second_daemon_on_the_same_data_is_refused_in_words(running):
    """Architecture, laws: state is written by one owner."""
    options = ["--socket", f"{running.folder}/other.sock", "--http", "off"]
    done = subprocess.run(
        [sys.executable, "-m", "edged", "serve", "--data", running.data, *options],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    assert done.returncode == 1
    assert f"another daemon uses {running.data}" in done.stderr
    assert running.call("echo", text="goes on").for_llm == "goes on"


# What a power cut leaves -----------------------------------------------------------------

BROKEN = {
    "empty": b"",
    "zeros": bytes(4_096),
    "cut": b'[{"name": "kep',
    "another shape": b'{"a": [1, 2]}',
    "binary": bytes(range(256)) * 16,
    "deep": b"[" * 50_000,
}


@pytest.fixture(params=BROKEN.values(), ids=BROKEN.keys())
def broken(request):
    return request.param


def test_broken_state_is_set_aside_and_its_last_generation_used(place, until, broken):
    """Architecture, laws: a broken file is set aside with its reason and never erased."""
    place.start(until)
    place.ask("edged/token", action="add", name="one")
    place.ask("edged/token", action="add", name="two")
    place.ask("edged/tools/state", name="echo", enabled=False)
    place.stop()
    place.lay("state/tokens.json", broken)
    place.lay("state/tool-switches.json", broken)
    place.start(until)
    names = {row["name"] for row in place.ask("edged/token")["tokens"]}
    assert names == {"first", "one"}, "the generation before the broken one"
    assert place.call("echo", text="by default on").for_llm == "by default on"
    state = place.tree("state")
    assert state["tokens.json.broken"] == broken
    assert state["tool-switches.json.broken"] == broken
    assert place.stderr().count("was broken") == 2
    place.stop()


MEDIUM = "local/media/0123456789abcdef0123456789abcdef"
OTHERS = (
    "cache/tools.msgpack",
    "audit/00000001.jsonl",
    MEDIUM,
    f"{MEDIUM}.json",
    f"{MEDIUM}.new",
    "local/media/fedcba9876543210fedcba9876543210.json",
    "state/tokens.json.new",
    "tools/hello/TOOL.md",
    "tools/.staging-hello-1/TOOL.md",
    "tools/.swap-hello-1/TOOL.md",
    "tools/.sync.lock",
    "lock",
    "token",
)


def test_no_other_broken_file_is_an_obstacle(place, until, broken):
    """Issue 2, Shows: it starts again without a hand; what can be had anew is."""
    for path in OTHERS:
        place.lay(path, broken)
    place.start(until)
    assert place.call("echo", text="serves").for_llm == "serves"
    assert place.ask("edged/log", limit=10)["records"][-1]["arguments"] == {"text": "serves"}
    with place.client() as client:
        assert client.medium(f"media://{MEDIUM[-32:]}").data == broken
    rows = {row["name"]: row for row in place.ask("edged/tools/state")["tools"]}
    assert rows["hello"]["status"] == "enabled"
    assert place.tree("tools/.replaced/hello-v0") == {"TOOL.md": broken}
    assert place.call("hello", name="Ada").for_llm == "Hello, Ada!"
    assert place.ask("edged/token")["tokens"]
    assert place.tree()["token"].startswith(b"edged_")
    assert "Traceback" not in place.stderr()
    place.stop()
    left = place.tree()
    assert not [name for name in left if ".staging-" in name or ".swap-" in name]
    assert f"{MEDIUM}.new" not in left
