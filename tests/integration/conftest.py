"""A whole daemon, `edged serve` in a process of its own, and its doors as a user has them."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from edged.client import SocketClient

BOUND_S = 30.0
"""The longest that anything is waited for; nothing here needs a second of it."""

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def until(what, attempt):
    """What `attempt` returns once that is true; it is asked again until the bound."""
    ended = time.monotonic() + BOUND_S
    pause = threading.Event()
    while not (found := attempt()):
        assert time.monotonic() < ended, f"{what}: not within {BOUND_S:g} s"
        pause.wait(0.02)
    return found


def processes():
    """Pid, parent and name of all processes that live."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # PID (NAME) STATE PARENT, proc(5); a zombie is dead.
            head, _, rest = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")
            state, parent = rest.split()[:2]
            if state != "Z":
                yield int(pid), int(parent), head.partition("(")[2]


def children():
    """Children of this process, adopted ones too: pid and name."""
    return {(pid, name) for pid, parent, name in processes() if parent == os.getpid()}


def below(pid):
    """Names of all descendants of a process, by pid."""
    rows = list(processes())
    found = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child, of, name in rows:
            if of == parent:
                found[child] = name
                waiting.append(child)
    return found


def groups(pid):
    """Control groups of the daemon of that pid (`edged.sandbox.limits` names them so)."""
    for folder, names, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{folder}/{name}" for name in names if name.startswith(f"edged-{pid}-"))


class Daemon:
    """One `edged serve`; everything of it lies in one directory."""

    def __init__(self, folder, config, *, python=(sys.executable,), **env):
        # Not in tmp_path: the tools' account and other users must be able to enter it, and
        # the path of a socket has at most 107 bytes.
        self.folder = Path(folder)
        self.data = self.folder / "data"
        self.socket = str(self.folder / "s.sock")
        self.http_socket = str(self.folder / "http.sock")
        self.config = self.folder / "edged.yaml"
        listen = f"http: {{listen: ['127.0.0.1:0', 'unix:{self.http_socket}']}}\n"
        self.config.write_text(listen + config)
        self.env = {"PATH": SYSTEM_PATH, "HOME": str(folder), "LANG": "C.UTF-8", "COLUMNS": "200"}
        self.env |= env
        self._python = python
        self._process = None

    # Life ---------------------------------------------------------------------------------

    def start(self):
        options = ["--config", self.config, "--data", self.data, "--socket", self.socket]
        with (self.folder / "stderr").open("w") as errors:
            self._process = subprocess.Popen(
                [*self._python, "-W", "error", "-m", "edged", "serve", *options],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        until("the daemon listens", self._listens)
        rows = self.ask("edged/status")["listen"]
        self.url = next(row for row in rows if row.startswith("http://127.0.0.1:"))

    def _listens(self):
        assert self._process.poll() is None, f"it ended at its start\n{self.stderr()}"
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    def stop(self):
        """End it as systemd does; nothing of it may be left."""
        started = below(self._process.pid)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        assert code == 0, self.stderr()
        assert started.keys() & {pid for pid, _, _ in processes()} == set()
        assert not os.path.exists(self.socket)
        assert not os.path.exists(self.http_socket)
        assert list(groups(self._process.pid)) == []
        for sign in ("Traceback", "Warning", "edged: error"):
            assert sign not in self.stderr()

    def signal(self, number):
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self):
        """End it as nobody should."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def processes(self):
        """Names of the processes that it started, and those that they started."""
        return sorted(below(self._process.pid).values())

    def stderr(self):
        return (self.folder / "stderr").read_text()

    # Doors --------------------------------------------------------------------------------

    def client(self):
        """A connection to the socket; close it."""
        return contextlib.closing(SocketClient(self.socket, answer_s=BOUND_S))

    def ask(self, method, /, **params):
        with self.client() as client:
            return client.request(method, params)

    def call(self, tool, /, **arguments):
        """Call a tool through the socket; its result."""
        with self.client() as client:
            return client.call(tool, arguments)

    def lines(self, *requests):
        """Answers by id and the notifications, of a connection of its own that sends these."""
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(BOUND_S)
            link.connect(self.socket)
            link.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
            link.shutdown(socket.SHUT_WR)
            with link.makefile("rb") as replies:
                return [json.loads(line) for line in replies]

    def cli(self, verb, *words, stdin=""):
        """Run `edged VERB` against this daemon."""
        return self.edged(verb, *words, "--socket", self.socket, stdin=stdin)

    def edged(self, *words, stdin=""):
        """Run a command line of edged."""
        return subprocess.run(
            [sys.executable, "-m", "edged", *words],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )

    @property
    def token(self):
        return (self.data / "token").read_text().strip()

    def http(self, path, body=None, *, token="", method=None, **headers):
        """A request to the API: status and decoded body."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {token or self.token}",
                "Content-Type": "application/json",
                **headers,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    # Tools --------------------------------------------------------------------------------

    def lay(self, name, files, *, user="local"):
        """Put a tool's directory where a user puts it; an empty user is for everyone."""
        place = self.data / user / "tools" / name
        for file, text in files.items():
            path = place / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return place


@contextlib.contextmanager
def running(lay, config, **options):
    """A daemon that runs; `lay` gets it before it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tempfile.mkdtemp(prefix="edged-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    before = children()
    # What outlives the daemon becomes a child of this process, and shows.
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    daemon = Daemon(folder, config, **options)
    try:
        lay(daemon)
        daemon.start()
        yield daemon
        daemon.stop()
        until("no process is left", lambda: children() <= before)
    finally:
        daemon.kill()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def serving():
    """Runs a daemon: use it in a `with` statement. `lay` is handed it before its start."""
    return lambda lay=lambda _: None, config="", **options: running(lay, config, **options)


@pytest.fixture(scope="session", name="until")
def until_fixture():
    return until


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    for value in getattr(item, "funcargs", {}).values():
        if report.failed and isinstance(value, Daemon) and value.folder.exists():
            report.sections.append(("the daemon's stderr", value.stderr()))
    return report
