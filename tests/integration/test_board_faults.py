"""Reported faults of other programs, at a whole daemon: what they were is said at each test."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

from edged.client import SocketClient

BOUND_S = 20.0


def test_lines_are_served_from_a_directory_that_nobody_can_write(until):
    """43 (gpiozero#1106, lg#12): a library's pipe had to be made in the working directory."""
    with tempfile.TemporaryDirectory(prefix="edged-") as folder:
        socket = f"{folder}/s.sock"
        words = ["serve", "--sim", "--http", "off", "--data", f"{folder}/data", "--socket", socket]
        process = subprocess.Popen(
            [sys.executable, "-m", "edged", *words],
            cwd="/proc",
            env={**os.environ, "EDGED_CONFIG": os.devnull},
            stderr=subprocess.DEVNULL,
        )
        try:
            until("the daemon listens", lambda: os.path.exists(socket))
            with contextlib.closing(SocketClient(socket, answer_s=BOUND_S)) as client:
                listed = client.call("gpio", {}).structured["lines"]
            assert os.readlink(f"/proc/{process.pid}/cwd") == "/proc"
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(BOUND_S)
    assert code == 0
    assert [line["error"] for line in listed] == [""] * len(listed)
    assert {line["direction"] for line in listed} == {"input", "output"}
