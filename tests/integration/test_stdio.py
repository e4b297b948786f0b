"""`edged mcp`: bytes both ways, ends told apart, small and quick to start."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading

import pytest

from edged.transports.stdio import bridge

BIG = bytes(range(256)) * 4096  # 1 MiB: more than any pipe or socket buffers


@pytest.fixture
def listener(tmp_path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "s.sock"))
    sock.listen()
    sock.settimeout(20)
    yield sock
    sock.close()


class Bridge:
    """A bridge in a thread, with pipes as its two ends."""

    def __init__(self, listener):
        source, self.stdin = os.pipe()
        self.stdout, sink = os.pipe()
        self.code = None

        def run():
            self.code = bridge(listener.getsockname(), source, sink)
            os.close(source)
            os.close(sink)

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self.peer, _ = listener.accept()
        self.peer.settimeout(20)
        self._open = {self.stdin, self.stdout}

    def close(self, fd):
        self._open.discard(fd)
        os.close(fd)

    def ended(self):
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.code

    def finish(self):
        for fd in tuple(self._open):
            self.close(fd)
        self.peer.close()
        self.ended()


@pytest.fixture
def link(listener):
    made = Bridge(listener)
    yield made
    made.finish()


def feed(fd, data):
    """Write all from a thread of its own; the descriptor is closed at the end."""

    def run():
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.close(fd)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def read_all(read):
    parts = []
    while part := read(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_bytes_are_copied_both_ways(link):
    os.write(link.stdin, b"request\n")
    assert link.peer.recv(100) == b"request\n"
    link.peer.sendall(b"answer\n")
    assert os.read(link.stdout, 100) == b"answer\n"


def test_end_of_input_is_passed_on_and_late_answers_still_come(link):
    """Contract, section 5: the end of the input only means that no more requests come."""
    os.write(link.stdin, b"request\n")
    link.close(link.stdin)
    assert read_all(link.peer.recv) == b"request\n"
    link.peer.sendall(b"late\n")
    assert os.read(link.stdout, 100) == b"late\n"
    link.peer.close()
    assert link.ended() == 0


def test_big_input_arrives_whole_before_its_end(link):
    link._open.discard(link.stdin)
    feeder = feed(link.stdin, BIG)
    assert read_all(link.peer.recv) == BIG
    feeder.join(20)


def test_big_answer_arrives_whole_though_the_daemon_is_gone_by_then(link):
    def run():
        link.peer.sendall(BIG)
        link.peer.close()

    thread = threading.Thread(target=run)
    thread.start()
    got = b""
    while len(got) < len(BIG):
        got += os.read(link.stdout, 1 << 16)
    thread.join(20)
    assert got == BIG
    assert link.ended() == 0


def test_what_does_not_drain_is_not_read_further(link):
    """Nobody reads the answers: the daemon's writes must come to a stop."""
    link.peer.setblocking(False)
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 64 << 20:
            sent += link.peer.send(BIG)
            # Room comes back only while the bridge reads.
            if not _writable(link.peer):
                raise BlockingIOError
    assert sent < 4 << 20


def _writable(sock):
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(300))


def test_one_stuck_direction_does_not_stop_the_other(link):
    link.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            link.peer.send(BIG)
    link.peer.settimeout(20)
    os.write(link.stdin, b"request\n")
    assert link.peer.recv(100) == b"request\n"


def test_reader_that_went_away_ends_the_bridge(link):
    """Then the daemon sees the connection closed both ways, and cancels its calls."""
    link.close(link.stdout)
    assert link.ended() == 0
    assert link.peer.recv(1) == b""


def test_daemon_that_reads_no_more_may_still_answer(link):
    link.peer.shutdown(socket.SHUT_RD)
    os.write(link.stdin, b"request\n")
    link.peer.sendall(b"last words\n")
    assert os.read(link.stdout, 100) == b"last words\n"
    link.peer.close()
    assert link.ended() == 0


def command(*more):
    return [sys.executable, "-m", "edged", "mcp", *more]


def test_process_ends_when_the_daemon_closes_and_says_so(listener):
    process = subprocess.Popen(
        command("--socket", listener.getsockname()),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    listener.accept()[0].close()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, b"")
    assert err == b"edged: the daemon closed the connection\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_signal_ends_the_process(listener, number, code):
    process = subprocess.Popen(
        command(f"--socket={listener.getsockname()}"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    peer, _ = listener.accept()
    # It serves: the signal does not meet the start.
    process.stdin.write(b"x")
    process.stdin.flush()
    assert peer.recv(1) == b"x"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    peer.close()
    assert (process.returncode, err) == (code, b"")


def test_no_daemon_is_exit_code_3_with_the_remedy(tmp_path):
    env = {**os.environ, "EDGED_SOCKET": str(tmp_path / "none.sock")}
    done = subprocess.run(command(), stdin=subprocess.DEVNULL, capture_output=True, env=env)
    assert (done.returncode, done.stdout) == (3, b"")
    expected = f"edged: no daemon answers at {tmp_path}/none.sock: start it with edged serve\n"
    assert done.stderr.decode() == expected


@pytest.mark.parametrize("words", [["--sockt", "x"], ["--socket"], ["--socket=", "x"], ["extra"]])
def test_wrong_options_are_exit_code_2(words):
    done = subprocess.run(command(*words), stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"edged: ")


def test_bridge_imports_nothing_heavy():
    """Issue 2: at most 8 MiB, first list within 0.2 s; each of these costs a good part of it."""
    program = (
        "import sys; before = set(sys.modules); sys.argv = ['edged', 'mcp', '--socket', '/none'];"
        "from edged.__main__ import main; main(); print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    loaded = set(done.stdout.split())
    assert {"edged.transports.stdio", "select", "_socket"} <= loaded
    of_os = {"os", "os.path", "posixpath", "genericpath", "stat", "_stat", "_collections_abc"}
    assert loaded - of_os <= {
        "__future__",
        "_socket",
        "edged",
        "edged.__main__",
        "edged.paths",
        "edged.transports",
        "edged.transports.stdio",
        "select",
    }
