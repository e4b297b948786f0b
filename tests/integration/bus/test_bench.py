"""A bench that a file describes: a pseudo terminal whose TX is wired to its RX."""

import contextlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
BOUND_S = 100.0


@pytest.fixture
def looped():
    """Path of a port that hears itself."""
    master, slave = os.openpty()
    path = os.ttyname(slave)
    os.close(slave)
    ended = threading.Event()

    def echo():
        # While nobody has the port open its other end says so (EIO), at once.
        while not ended.wait(0.001):
            with contextlib.suppress(OSError):
                if select.select([master], [], [], 0.1)[0]:
                    os.write(master, os.read(master, 4096))

    thread = threading.Thread(target=echo)
    thread.start()
    yield path
    ended.set()
    thread.join()
    os.close(master)


def suite(file):
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--confcutdir", "tests/conformance", "tests/conformance"),
        ],
        cwd=PROJECT,
        env={**os.environ, "EDGED_RIGS": "hil.bench", "EDGED_BENCH": str(file)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
    )


def test_the_suite_runs_on_what_the_file_names_and_on_nothing_else(looped, tmp_path):
    file = tmp_path / "bench.yaml"
    file.write_text(f"serial: {{port: {looped}}}\n")
    done = suite(file)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


def test_a_wrong_file_says_where(tmp_path):
    file = tmp_path / "bench.yaml"
    file.write_text("serial: {prot: /dev/serial0}\n")
    done = suite(file)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{file}:1: serial.prot: unknown key; did you mean 'port'?" in done.stdout
