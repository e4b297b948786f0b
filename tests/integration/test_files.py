"""Files and permissions on a whole daemon: the specification's examples, races, crashes, doors."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edged.errors import DeniedError, EdgedError, NoDaemonError

SPECIFICATION = (Path(__file__).parents[1] / "data" / "tools-api.md").read_text()
ADA = "ada@example.org"
CONFIG = f"users: {{12001: {ADA}}}\ntools: {{files: {{deny: ['*.key']}}}}\n"
"""Nobody's uid need be 12001: tokens are Ada's too."""


@pytest.fixture(scope="module")
def daemon(serving):
    with serving(config=CONFIG) as running:
        yield running


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "file").write_text("outside")
    return tmp_path


@pytest.fixture
def ada(daemon):
    """A token of an agent."""
    name = os.urandom(4).hex()
    done = daemon.cli("token", "add", name, "--user", ADA)
    yield done.stdout.strip()
    daemon.cli("token", "revoke", name)


# The specification's examples -------------------------------------------------------------


def example(name):
    """The JSON example of a tool's arguments, without its comments."""
    found = re.search(rf"\(example for `{name}`\):\n```json\n(.*?)```", SPECIFICATION, re.DOTALL)
    return json.loads(re.sub(r"//.*", "", found.group(1)))


def test_example_of_the_specification_is_answered(daemon, ada):
    """Specification, "Filesystem Tools": path and the injected workspace."""
    arguments = example("read_file")
    assert arguments == {"path": "/path/to/file.txt", "workspace": "/workspace"}
    status, body = daemon.http("/api/tools/read_file/call", {"arguments": arguments}, token=ada)
    assert (status, body["is_error"]) == (200, True), "it is outside of the workspace"
    assert "request_permission" in body["for_llm"]
    arguments["path"] = "/workspace/file.txt"
    write = {"arguments": {**arguments, "content": "text"}}
    daemon.http("/api/tools/write_file/call", write, token=ada)
    status, body = daemon.http("/api/tools/read_file/call", {"arguments": arguments}, token=ada)
    assert (status, body["for_llm"], body["is_error"]) == (200, "text", False)


ROWS = re.findall(r"^\| `(\w+)` \| (.+?) \| (filesystem|permission) \| `([\w.]+)` \|$", SPECIFICATION, re.MULTILINE)  # fmt: skip


def test_tools_are_listed_as_the_specification_has_them(daemon):
    """Specification, "Available Tools" and "List All Tools"."""
    _, body = daemon.http("/api/tools")
    rows = {row["name"]: row for row in body["tools"]}
    names = set()
    for name, _, category, key in ROWS:
        if name != "exec":
            names.add(name)
            row = rows[name]
            facts = row["category"], row["config_key"], row["status"], row["reason_code"]
            assert facts == (category, key, "enabled", ""), name
    assert names == {"read_file", "write_file", "list_dir", "edit_file", "append_file", "request_permission"}  # fmt: skip


def test_tool_of_the_sandbox_and_file_tools_see_the_same_file(serving):
    """Contract, section 8: one tool's output path is the next one's input."""

    def lay(running):
        manifest = "---\nname: maker\ndescription: Makes.\nversion: 1\nlanguage: bash\n---\n"
        source = "mkdir -p out && echo made > out/file && ln -s /workspace/out way && pwd\n"
        running.lay("maker", {"TOOL.md": manifest, "index.sh": source})

    with serving(lay, "") as running:
        folder = running.call("maker").for_llm.strip()
        assert folder == "/officer/user/workspace"
        for path in (f"{folder}/out/file", "/workspace/out/file", "out/file", "way/file"):
            assert running.call("read_file", path=path).for_llm == "made\n", path
        running.call("write_file", path="way/file", content="again\n")
        owner = (running.data / "local" / "workspace" / "out" / "file").stat()
        assert owner.st_uid == (running.data / "local" / "workspace").stat().st_uid


# Doors ------------------------------------------------------------------------------------


def test_permission_is_asked_listed_and_answered_over_http(daemon, ada, outside):
    """Contract, section 6; facts of PicoClaw, 7: both forms."""
    path = str(outside / "file")
    call = {"arguments": {"path": path, "command": "cat", "reason": "to see"}}
    _, body = daemon.http("/api/tools/request_permission/call", call, token=ada)
    name = body["structured"]["request_id"]
    status, listed = daemon.http("/api/permission")
    assert status == 200
    [asked] = [row for row in listed["requests"] if row["request_id"] == name]
    assert (asked["user"], asked["path"], asked["reason"]) == (ADA, path, "to see")
    answer = {"request_id": name, "duration": "once"}
    for body in (answer, {"path": path, "user": ADA, "duration": "session"}):
        status, problem = daemon.http("/api/permission/grant", body, token=ada)
        assert (status, problem["code"]) == (403, "denied")
    assert daemon.http("/api/permission", token=ada)[0] == 403
    assert daemon.http("/api/permission/grant", answer) == (200, {"status": "ok"})

    def read():
        return daemon.http("/api/tools/read_file/call", {"arguments": {"path": path}}, token=ada)[
            1
        ]

    assert read()["for_llm"] == "outside"
    assert read()["is_error"]
    by_path = {"path": path, "user": ADA, "duration": "session"}
    assert daemon.http("/api/permission/grant", by_path) == (200, {"status": "ok"})
    assert read()["for_llm"] == read()["for_llm"] == "outside"
    [grant] = [row for row in daemon.http("/api/permission")[1]["grants"] if row["user"] == ADA]
    assert daemon.http(f"/api/permission/{grant['id']}", method="DELETE")[0] == 200
    assert daemon.http(f"/api/permission/{grant['id']}", method="DELETE")[0] == 404
    assert read()["is_error"]
    for bad in ({}, {"duration": "always"}, {"duration": "once"}, {**answer, "path": path}):
        assert daemon.http("/api/permission/grant", bad)[0] == 400, bad


def test_permission_is_answered_by_the_command_line(daemon, ada, outside):
    """Contract, section 2: `edged grant`."""
    path = str(outside / "file")
    call = {"arguments": {"path": path, "reason": "to see"}}
    _, body = daemon.http("/api/tools/request_permission/call", call, token=ada)
    name = body["structured"]["request_id"]
    shown = daemon.cli("grant").stdout
    assert all(word in shown for word in (name, "waits", ADA, path, "to see", "once|session|deny"))
    assert daemon.cli("grant", name).returncode == 2
    done = daemon.cli("grant", name, "deny")
    assert done.returncode == 0
    assert f"may not read or write {path}, until you" in " ".join(done.stdout.split())
    assert [row["request_id"] for row in json.loads(daemon.cli("grant", "--json").stdout)["denied"]] == [name]  # fmt: skip
    assert daemon.cli("grant", "--forget", name).returncode == 0
    done = daemon.cli("grant", path, "session", "--user", ADA, "--write")
    assert done.returncode == 0
    told = f"{ADA} may read and write {path}, until its session ends"
    assert " ".join(done.stdout.split()).startswith(told)
    folder = str(outside)
    done = daemon.cli("grant", folder, "deny", "--user", "nobody@example.org")
    assert (done.returncode, done.stdout) == (1, "")
    assert "user: nobody here is nobody@example.org: there are " in done.stderr
    done = daemon.cli("grant", f"{folder}/none", "once", "--user", ADA)
    assert done.returncode == 1
    assert "is not there: make it first" in done.stderr
    done = daemon.cli("grant", path.lstrip("/"), "once")
    assert done.returncode == 2
    assert "name the whole path, from /" in done.stderr
    _, body = daemon.http("/api/tools/read_file/call", {"arguments": {"path": path}}, token=ada)
    assert body["for_llm"] == "outside"
    done = daemon.cli("grant", "nothing", "once")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no permission request 'nothing'" in done.stderr
    by_url = ("--url", daemon.url, "--token-file", str(daemon.data / "token"))
    [row] = json.loads(daemon.edged("grant", "--json", *by_url).stdout)["grants"]
    assert daemon.edged("grant", "--forget", row["id"], *by_url).returncode == 0
    assert daemon.cli("grant").stdout == "nobody asks for anything, and nothing is granted\n"


def test_session_grant_ends_with_its_connection(daemon, outside):
    """Contract, section 4: the session is the stream that sent `initialize`."""
    path = str(outside / "file")
    with daemon.client() as client:
        client.request("initialize", {"protocolVersion": "2025-11-25"})
        asked = client.call("request_permission", {"path": path})
        # The same uid is the owner's: another connection of it answers, not this one.
        answer = {"request_id": asked.structured["request_id"], "duration": "session"}
        with pytest.raises(DeniedError, match="may not answer"):
            client.request("edged/grant", answer)
        daemon.ask("edged/grant", **answer)
        assert client.call("read_file", {"path": path}).for_llm == "outside"
    daemon_grants = lambda: daemon.ask("edged/grant")["grants"]  # noqa: E731
    for _ in range(100):
        if not daemon_grants():
            break
    assert daemon_grants() == []
    assert daemon.call("read_file", path=path).is_error


def test_requests_are_events(daemon, outside):
    with daemon.client() as watcher:
        _, events = watcher.follow("edged/events", {})
        daemon.call("request_permission", path=str(outside))
        found = next(e for _, e in events if e["kind"].startswith("permission."))
        assert (found["kind"], found["data"]["path"]) == ("permission.request", str(outside))
        daemon.ask("edged/grant", request_id=found["data"]["request_id"], duration="deny")
        found = next(e for _, e in events if e["kind"].startswith("permission."))
        assert (found["kind"], found["data"]["answer"]) == ("permission.answered", "deny")
    daemon.ask("edged/grant", forget=found["data"]["request_id"])


def test_asking_can_be_switched_off(serving):
    """Specification: `exec.ask_permission`."""
    with serving(config="tools: {exec: {ask_permission: false}}\n") as running:
        rows = {row["name"]: row for row in running.ask("edged/tools/state")["tools"]}
        assert rows["request_permission"]["status"] == "disabled"


# Races ------------------------------------------------------------------------------------

SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
folder = os.fsencode(sys.argv[1])
os.chdir(folder)
RENAME_EXCHANGE = 2  # renameat2(2)
pairs = [(b"dir", b"dirlink"), (b"file", b"filelink")]
swaps = 0
while True:
    for one, other in pairs:
        if libc.renameat2(-100, one, -100, other, RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), one)
    swaps += 1
    if swaps % 50 == 0:
        os.write(1, b".")
"""
RACES = 200


@pytest.fixture
def swapping(daemon):
    """A process that puts links out in the place of a file and of a directory, and back."""
    daemon.call("write_file", path="race/dir/file", content="inside")
    daemon.call("write_file", path="race/file", content="inside")
    own = daemon.data / "local" / "workspace" / "race"
    target = Path(daemon.folder) / "race-target"
    (target / "dir").mkdir(parents=True, exist_ok=True)
    (target / "dir" / "file").write_text("SECRET")
    (target / "file").write_text("SECRET")
    for name in ("dir", "file"):
        if not (own / f"{name}link").is_symlink():
            (own / f"{name}link").symlink_to(target / name)
    os.chmod(target, 0o777)
    os.chmod(target / "dir", 0o777)
    for path in (target / "file", target / "dir" / "file"):
        os.chmod(path, 0o666)
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, str(own)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.read(1) == b"."
        yield target, process
        assert process.poll() is None, "it swapped to the end"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_no_race_with_links_escapes(daemon, swapping):
    """Issue 4, Shows: 200 symlink-swap races against files; the target is open to everyone."""
    target, process = swapping
    before = sorted((str(path), path.stat().st_ino) for path in target.rglob("*"))
    outcomes = {"read": 0, "refused": 0}
    with daemon.client() as client:
        for number in range(RACES):
            for path in ("race/file", "race/dir/file"):
                read = client.call("read_file", {"path": path})
                outcomes["refused" if read.is_error else "read"] += 1
                assert "SECRET" not in read.for_llm
                client.call("write_file", {"path": path, "content": f"inside {number}"})
                client.call("append_file", {"path": path, "content": "."})
                client.call("edit_file", {"path": path, "old_text": "e", "new_text": "E"})
            client.call("write_file", {"path": f"race/dir/new{number % 7}", "content": "x"})
            listed = client.call("list_dir", {"path": "race/dir"})
            assert listed.is_error or "race-target" not in listed.for_llm
    assert process.stdout.read(1) == b".", "it swapped all the while"
    assert sorted((str(path), path.stat().st_ino) for path in target.rglob("*")) == before
    for path in (target / "file", target / "dir" / "file"):
        assert path.read_text() == "SECRET"
    assert min(outcomes.values()) > 0, f"both sides of the race were met: {outcomes}"


def test_pipe_is_refused_and_not_waited_for(daemon):
    """fifo(7): who opens one waits for its other end."""
    daemon.call("write_file", path="pipes/x", content="")
    folder = daemon.data / "local" / "workspace" / "pipes"
    os.mkfifo(folder / "pipe")
    os.chmod(folder / "pipe", 0o666)
    for tool, more in (
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("append_file", {"content": "x"}),
        ("edit_file", {"old_text": "a", "new_text": "b"}),
        ("list_dir", {}),
    ):
        result = daemon.call(tool, path="pipes/pipe", **more)
        assert result.is_error, tool
        assert "files and directories only" in result.for_llm, tool


def test_large_file_costs_no_memory(daemon):
    """A board has 512 MB: no part of a call grows with the file."""
    daemon.call("write_file", path="huge", content="first line\n")
    path = daemon.data / "local" / "workspace" / "huge"
    os.truncate(path, 4 << 30)
    for arguments in ({"offset": (4 << 30) - 10, "encoding": "base64"}, {"start_line": 2}):
        daemon.call("read_file", path="huge", length=None, **arguments)
    assert daemon.call("append_file", path="huge", content="end").is_error is False
    assert path.stat().st_size == (4 << 30) + 3
    assert daemon.call("edit_file", path="huge", old_text="a", new_text="b").is_error
    status = Path("/proc", str(daemon._process.pid), "status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1))
    assert peak < 120 << 10, f"{peak} kB"
    path.unlink()


# Crashes and full disks -------------------------------------------------------------------

ROUNDS = 6


class Writer(threading.Thread):
    """Writes until the daemon is gone; knows what was acknowledged."""

    def __init__(self, daemon, outside, first):
        super().__init__(daemon=True)
        self.target, self.outside = daemon, outside
        self.number = first
        self.written = {}
        self.lines = []
        self.denied = set()
        self.last = None

    def run(self):
        with (
            contextlib.suppress(NoDaemonError, OSError, EdgedError),
            self.target.client() as client,
        ):
            while True:
                self.number += 1
                self._step(client)

    def _step(self, client):
        number, name = self.number, f"file{self.number % 3}"
        content = f"{number}\n" * 20_000
        self.last = ("write", name, content)
        assert not client.call("write_file", {"path": name, "content": content}).is_error
        self.written[name] = content
        self.last = ("append", f"line {number}\n")
        assert not client.call("append_file", {"path": "log", "content": self.last[1]}).is_error
        self.lines.append(self.last[1])
        path = f"{self.outside}/{number}"
        self.last = ("deny", path)
        client.request("edged/grant", {"path": path, "duration": "deny"})
        self.denied.add(path)


def test_kill_at_any_moment_loses_nothing_and_halves_nothing(serving, outside, until):
    """Issue 4, Shows: nothing acknowledged is lost, nothing is half written."""
    dice = random.Random(4)
    written, lines, denied, number = {}, [], set(), 0
    with serving() as running:
        own = running.data / "local" / "workspace"
        for _ in range(ROUNDS):
            writer = Writer(running, outside, number)
            writer.start()
            until("it writes", lambda w=writer: w.written)
            threading.Event().wait(dice.uniform(0.0, 0.15))
            running.kill()
            writer.join()
            number = writer.number
            written |= writer.written
            lines += writer.lines
            denied |= writer.denied
            running.start()
            kind, *last = writer.last
            for name, content in written.items():
                found = (own / name).read_text()
                flying = last[1] if kind == "write" and last[0] == name else content
                assert found in (content, flying)
                written[name] = found
            found = (own / "log").read_text() if lines else ""
            flying = "".join(lines) + (last[0] if kind == "append" else "")
            assert found in ("".join(lines), flying)
            lines = [found]
            now = {row["path"] for row in running.ask("edged/grant")["denied"]}
            assert denied <= now <= denied | ({last[0]} if kind == "deny" else set())
            denied = now
            strays = {name for name in os.listdir(own) if not re.fullmatch(r"file\d|log", name)}
            assert all(re.fullmatch(r"\.edged-[0-9a-f]{8}\.new", name) for name in strays)


def test_what_is_said_of_a_path_is_what_is_granted(daemon, ada, outside):
    """Reading unless `--write` is said, also where a request to write waits."""
    path = str(outside)

    def asks(**more):
        call = {"arguments": {"path": path, **more}}
        return daemon.http("/api/tools/request_permission/call", call, token=ada)[1]["structured"]

    def says(*words):
        done = daemon.cli("grant", *words, "--user", ADA)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    def stands():
        found = daemon.http("/api/permission")[1]
        states = {"requests": "waits", "denied": "denied", "grants": "granted"}
        rows = [
            (states[kind], row["write"], row["user"]) for kind in states for row in found[kind]
        ]
        return sorted((state, write) for state, write, user in rows if user == ADA)

    name = asks(write=True)["request_id"]
    told = says(path, "session")
    assert told.startswith(f"{ADA} may read {path} and what is below it")
    assert told.endswith(
        f"a request to write there still waits: edged grant {name} once|session|deny"
    )
    assert stands() == [("granted", False), ("waits", True)]
    assert says("--forget", path) == f"{path}: forgotten"
    assert stands() == []
    asks(write=True)
    assert says(path, "once", "--write").startswith(f"{ADA} may read and write {path}")
    assert stands() == [("granted", True)]
    says("--forget", path)
    asks()
    assert says(path, "once", "--write").startswith(f"{ADA} may read and write {path}")
    assert stands() == [("granted", True)]
    says(path, "deny", "--write")
    assert stands() == [("denied", True), ("granted", False)]
    says(path, "deny")
    assert stands() == [("denied", False)]
    assert says(path, "once", "--write").startswith(f"{ADA} may read and write {path}")
    assert stands() == [("granted", True)]
    says("--forget", path)
    asks()
    assert says(path, "deny", "--write").endswith(
        "still waits: edged grant " + asks()["request_id"] + " once|session|deny"
    )
    says("--forget", path)
    done = daemon.cli("grant", "--forget", path, "--user", ADA)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no permission of {ADA} for {path}" in " ".join(done.stderr.split())
    assert daemon.cli("grant", "--forget", path, "--write").returncode == 2
    asks(write=True)
    answer = {"path": path, "user": ADA, "duration": "session"}
    assert daemon.http("/api/permission/grant", answer | {"write": False})[0] == 200
    assert stands() == [("granted", False), ("waits", True)]
    assert daemon.http("/api/permission/grant", answer)[0] == 200
    assert stands() == [("granted", False), ("granted", True)]
    says("--forget", path)


def test_a_path_that_was_made_a_link_is_not_granted_by_its_name(daemon, ada, outside):
    """README: a grant is of what was there when the agent asked, not of what is put in its place."""
    path, target = outside / "report", outside / "rootonly"
    target.mkdir()
    (target / "secret").write_text("never shown")
    path.write_text("harmless")
    call = {"arguments": {"path": str(path)}}
    daemon.http("/api/tools/request_permission/call", call, token=ada)
    path.unlink()
    path.symlink_to(target)
    done = daemon.cli("grant", str(path), "session", "--user", ADA)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path} leads to {target}: name that" in " ".join(done.stderr.split())
    answer = {"path": str(path), "user": ADA, "duration": "session"}
    assert daemon.http("/api/permission/grant", answer)[0] == 400
    read = {"arguments": {"path": str(target / "secret")}}
    assert daemon.http("/api/tools/read_file/call", read, token=ada)[1]["is_error"]
    assert daemon.cli("grant", "--forget", str(outside / "report"), "--user", ADA).returncode == 0


def test_no_grant_shows_a_socket_of_the_daemon(daemon, ada):
    """Who sees it may connect to it, read-only or not, and is the daemon's own uid in a sandbox."""
    for path in (daemon.socket, daemon.http_socket, str(daemon.folder)):
        call = {"arguments": {"path": path}}
        answer = daemon.http("/api/tools/request_permission/call", call, token=ada)[1]
        assert answer["is_error"], path
        assert "edged keeps its own state there" in answer["for_llm"]
        done = daemon.cli("grant", path, "session", "--user", ADA)
        assert done.returncode == 1
        assert "edged keeps its own state there" in " ".join(done.stderr.split())
