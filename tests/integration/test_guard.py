"""What outlives a killed daemon, and what it does."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, time
from edged import guard
from edged.guard import Guard

sys.executable = {command!r}
one = Guard(["--config", "x.yaml"])
print(one.pid, flush=True)
if sys.argv[1] == "orderly":
    one.release()
    print("released", flush=True)
else:
    time.sleep(60)
"""


@pytest.fixture
def command(tmp_path):
    """In place of Python: tells through a pipe how it was run."""
    os.mkfifo(tmp_path / "ran")
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/ran\n')
    path.chmod(0o755)
    return path


def start(command, how):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(command=str(command)), how],
        stdout=subprocess.PIPE,
        text=True,
    )


def ran(command):
    """What the guard ran, once it does."""
    return (command.parent / "ran").read_text().strip()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_daemons_outputs_are_made_safe(command, number):
    """Issue 3, part 3: the safe level after SIGKILL, by a watchdog process."""
    process = start(command, "killed")
    process.stdout.readline()
    process.send_signal(number)
    process.wait()
    process.stdout.close()
    assert ran(command) == "-m edged safe --config x.yaml"


def test_signals_that_end_the_daemon_do_not_end_the_guard_first(command):
    """The service manager and a terminal send theirs to all processes of a group."""
    process = start(command, "killed")
    guard = int(process.stdout.readline())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(guard, number)
    process.kill()
    process.wait()
    process.stdout.close()
    assert ran(command) == "-m edged safe --config x.yaml"


def test_after_an_orderly_end_it_does_nothing(command):
    process = start(command, "orderly")
    guard = int(process.stdout.readline())
    assert process.stdout.readline() == "released\n"
    process.wait()
    process.stdout.close()
    assert not os.path.exists(f"/proc/{guard}")


def test_safe_says_what_could_not_be_made_safe(tmp_path):
    """Exit code 1, and why: this machine has no such line."""
    config = tmp_path / "edged.yaml"
    config.write_text("board: {gpio: {pump: {line: GPIO999, direction: output, safe: off}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "edged", "safe", "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("pump  ")
    assert "GPIO999" in done.stdout
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "edged", "safe", "--config", str(empty)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "no outputs are configured\n")
