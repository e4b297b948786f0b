"""What /proc says, of real processes."""

from __future__ import annotations

import os
import subprocess

from edged.sandbox import proc


def test_a_tree_is_its_root_and_what_it_started() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & sleep 60 & echo; wait"], stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        members = proc.tree(shell.pid)
        assert members[0] == shell.pid
        assert len(members) == 3
        assert proc.pss(members) > 100_000
        for pid in members:
            os.kill(pid, 9)
    assert proc.tree(shell.pid) == []
    assert proc.pss(members) == 0
    assert proc.cpu_s(members) == 0


def test_cpu_time_grows_with_work() -> None:
    pids = [os.getpid()]
    before = proc.cpu_s(pids)
    while proc.cpu_s(pids) == before:
        pass
    assert proc.cpu_s(pids) > before


def test_files_without_a_name_are_counted_once(tmp_path) -> None:
    device = {os.stat(tmp_path).st_dev}
    before = proc.unnamed_bytes([os.getpid()], device)
    with open(tmp_path / "x", "wb") as file, open(tmp_path / "x", "rb"):
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        assert proc.unnamed_bytes([os.getpid()], device) == before
        os.unlink(tmp_path / "x")
        assert 1 << 20 <= proc.unnamed_bytes([os.getpid()], device) - before < 2 << 20
        assert proc.unnamed_bytes([os.getpid()], set()) == 0
    assert proc.unnamed_bytes([2**22 + 1], device) == 0
