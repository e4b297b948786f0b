"""What systemd is told, and what it hands over."""

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from edged import systemd


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """The service manager's end of the notification socket."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield sock


def test_systemd_is_told(manager):
    """sd_notify(3)."""
    systemd.notify("READY=1")
    systemd.notify("STATUS=ä")
    assert manager.recv(100) == b"READY=1"
    assert manager.recv(100) == "STATUS=ä".encode()


def test_an_abstract_socket_is_written_with_an_at(monkeypatch):
    """sd_notify(3), NOTIFY_SOCKET: `@` stands for the null byte."""
    name = f"edged-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name)
        sock.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        systemd.notify("READY=1")
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_happens_outside_of_a_unit(monkeypatch, capsys, value):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if value is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", value)
    systemd.notify("READY=1")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/nowhere/notify", "No such file"), ("/" + "x" * 200, "AF_UNIX path too long")],
)
def test_a_manager_that_is_gone_is_no_reason_to_stop(monkeypatch, capsys, path, reason):
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    systemd.notify("STATUS=with a long text")
    err = capsys.readouterr().err
    assert "could not be told STATUS: " in err
    assert reason in err


@pytest.mark.parametrize(
    ("interval", "owner", "due"),
    [
        ("4000000", "self", 2.0),
        ("4000000", None, 2.0),
        ("4000000", "1", 0.0),
        (None, "self", 0.0),
        ("0", "self", 0.0),
        ("soon", "self", 0.0),
        ("²", "self", 0.0),
    ],
)
def test_the_watchdog_is_fed_twice_an_interval(monkeypatch, interval, owner, due):
    """sd_watchdog_enabled(3): every half of WATCHDOG_USEC; WATCHDOG_PID may be another's."""
    for name, value in (("WATCHDOG_USEC", interval), ("WATCHDOG_PID", owner)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, str(os.getpid()) if value == "self" else value)
    assert systemd.watchdog_s() == due


LISTENING = """
import os
os.environ["LISTEN_PID"] = str(os.getpid())
from edged.systemd import listening
for name, sockets in sorted(listening().items()):
    for sock in sockets:
        print(name, sock.getsockname(), sock.getblocking(), sock.get_inheritable())
        sock.close()
"""


def activated(names, count=2):
    """Starts a process as systemd does: sockets from descriptor 3 on (sd_listen_fds(3))."""
    code = (
        "import os, socket, sys\n"
        "socks = [socket.socket(socket.AF_UNIX) for _ in range(2)]\n"
        f"for n, s in enumerate(socks): s.bind('\\0edged-{os.getpid()}-%d' % n); s.listen()\n"
        "fds = [os.dup(s.fileno()) for s in socks]\n"
        "for s in socks: s.close()\n"
        "for n, fd in enumerate(fds): os.dup2(fd, 10 + n)\n"
        "for n in range(2): os.dup2(10 + n, 3 + n)\n"
        "os.closerange(5, 50)\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])\n"
    )
    environment = {**os.environ, "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names}
    done = subprocess.run(
        [sys.executable, "-c", code, LISTENING],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_sockets_are_found_by_name_in_either_order():
    """Facts on socket activation: 252 gave "http:agents", 257 "agents:http"."""
    own = f"edged-{os.getpid()}"
    assert activated("http:agents") == [
        f"agents b'\\x00{own}-1' False False",
        f"http b'\\x00{own}-0' False False",
    ]
    assert [line.split()[0] for line in activated("agents:http")] == ["agents", "http"]


def test_sockets_of_one_name_and_without_a_name_are_kept_too():
    """sd_listen_fds_with_names(3): several units may share one; `unknown` is systemd's word."""
    assert [line.split()[0] for line in activated("http:http")] == ["http", "http"]
    assert [line.split()[0] for line in activated("")] == ["unknown", "unknown"]
    assert activated("http:agents", "²") == []


@pytest.mark.parametrize("owner", [None, "1"])
def test_sockets_for_another_process_are_not_taken(monkeypatch, owner):
    """sd_listen_fds(3): LISTEN_PID."""
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.delenv("LISTEN_PID", raising=False)
    if owner:
        monkeypatch.setenv("LISTEN_PID", owner)
    assert systemd.listening() == {}


@contextmanager
def at_three_and_four(sockets):
    """Puts sockets where systemd does, in this very process, and what was there back."""
    kept = []
    for fd, sock in enumerate(sockets, 3):
        try:
            kept.append(os.dup(fd))
        except OSError:
            kept.append(None)
        os.dup2(sock.fileno(), fd)
    try:
        yield
    finally:
        for fd, old in enumerate(kept, 3):
            if old is None:
                os.close(fd)
            else:
                os.dup2(old, fd)
                os.close(old)


@pytest.mark.parametrize(
    ("count", "names", "found"),
    [
        ("2", "http:agents", ["http", "agents"]),
        ("2", "http:http", ["http", "http"]),
        ("2", ":", ["unknown", "unknown"]),
        ("1", "http:agents", ["http"]),
        ("none", "http", []),
    ],
)
def test_sockets_for_this_process_are_taken(monkeypatch, count, names, found):
    """The same without a start: as many as LISTEN_FDS says, not blocking, not inherited."""
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", count)
    monkeypatch.setenv("LISTEN_FDNAMES", names)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        # Far from 3 and 4, which are about to be replaced.
        high = [
            socket.socket(fileno=fcntl.fcntl(s, fcntl.F_DUPFD_CLOEXEC, 60)) for s in (one, two)
        ]
        with at_three_and_four(high):
            given = systemd.listening()
            seen = [(s.fileno(), name) for name, socks in given.items() for s in socks]
            states = {(s.getblocking(), s.get_inheritable()) for v in given.values() for s in v}
            for socks in given.values():
                for sock in socks:
                    sock.detach()
        for sock in high:
            sock.close()
    assert [name for _, name in sorted(seen)] == found
    assert states <= {(False, False)}
