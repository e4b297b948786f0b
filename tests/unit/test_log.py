"""One log on standard error, that never grows and never fails."""

import os
import subprocess
import sys
import termios

import pytest

from edged import log


@pytest.fixture(autouse=True)
def loud():
    yield
    log.quiet(on=False)


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], check=True, **options)


def test_a_line_says_who_and_how_bad(capsys):
    """Contract, section 2: errors on stderr in the form `edged: …`."""
    log.info("ready")
    log.warning("odd")
    log.error("broken")
    captured = capsys.readouterr()
    assert captured.err == "edged: ready\nedged: warning: odd\nedged: error: broken\n"
    assert captured.out == ""


def test_a_quiet_command_shows_what_is_wrong_alone(capsys):
    log.quiet(on=True)
    log.info("ready")
    log.warning("odd")
    assert capsys.readouterr().err == "edged: warning: odd\n"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a\nforged: line", r"a\nforged: line"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\ud800", r"\ud800"),
        ("\u202e", r"\u202e"),
        ("grüße €", "grüße €"),
    ],
)
def test_control_characters_are_shown_and_not_sent(capsys, message, shown):
    """A tool's name or message must not forge a line or steer a terminal."""
    log.info(message)
    assert capsys.readouterr().err == f"edged: {shown}\n"


@pytest.mark.parametrize("message", ["x" * 10_000_000, "ä" * 5_000])
def test_a_line_is_cut(capsys, message):
    """4 KB, never inside a character."""
    log.info(message)
    line = capsys.readouterr().err
    assert len(line.encode()) < 4096 + 20
    assert line.endswith(" …\n")


def test_a_closed_standard_error_ends_nothing():
    """Facts: the daemon goes on when nobody reads its log."""
    code = "import os; os.close(2); from edged import log; log.error('x'); print('on')"
    assert run(code, stdout=subprocess.PIPE).stdout == b"on\n"


def test_a_broken_pipe_ends_nothing(monkeypatch):
    """write(2): EPIPE."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as file:
        monkeypatch.setattr(sys, "stderr", file)
        log.error("x")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            file.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def test_the_journal_gets_priorities(tmp_path):
    """sd-daemon(3): `<3>` is an error. systemd.exec(5): the variable names the very stream."""
    code = "from edged import log; log.error('broken'); log.warning('odd'); log.info('ready')"
    path = tmp_path / "stream"
    with path.open("wb") as stream:
        there = os.fstat(stream.fileno())
        for name in (f"{there.st_dev}:{there.st_ino}", f"{there.st_dev}:{there.st_ino + 1}"):
            run(code, stderr=stream, env={**os.environ, "JOURNAL_STREAM": name})
    assert path.read_text().splitlines() == [
        "<3>broken",
        "<4>odd",
        "<6>ready",
        "edged: error: broken",
        "edged: warning: odd",
        "edged: ready",
    ]


def test_no_standard_error_is_no_journal():
    """fstat(2): EBADF."""
    kept = os.dup(2)
    os.close(2)
    try:
        found = log._is_journal()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert not found


def test_a_line_is_broken_at_spaces_on_a_terminal_only(monkeypatch):
    """The terminal alone would break it inside of words."""
    parent, child = os.openpty()
    with open(child, "w") as screen, open(parent, "rb", buffering=0) as seen:
        termios.tcsetwinsize(child, (24, 50))
        monkeypatch.setattr(sys, "stderr", screen)
        log.warning("word " * 20 + "/a/path/of-its-own")
        shown = seen.read(1 << 16).decode().replace("\r\n", "\n")
    first, *rest = shown.splitlines()
    assert first.startswith("edged: warning: word ")
    assert all(len(line) <= 50 for line in (first, *rest))
    assert all(line.startswith("  ") for line in rest)
    assert rest[-1].endswith("/a/path/of-its-own")
