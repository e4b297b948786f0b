"""What /proc says, of real processes."""

from __future__ import annotations

import os
import select
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
        ends = [os.pidfd_open(pid) for pid in members]
        for pid in members:
            os.kill(pid, 9)
        for end in ends:  # readable once it is dead (pidfd_open(2))
            assert select.select([end], [], [], 10)[0]
            os.close(end)
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


def test_processes_of_a_title_are_ended_and_no_others() -> None:
    """Issue 2, Shows: no sandbox process survives a daemon that was killed."""
    titles = ("edged-sandbox-1", "edged-sandbox-1", "edged-sandbox-10")
    shells = [
        subprocess.Popen([title, "-c", "read x"], executable="/bin/sh", stdin=subprocess.PIPE)
        for title in titles
    ]
    try:
        assert proc.end_titled("edged-sandbox-1") == 2
        assert [shell.wait(10) for shell in shells[:2]] == [-9, -9]
        assert shells[2].poll() is None
        assert proc.end_titled("edged-sandbox-1") == 0
    finally:
        shells[2].kill()
        for shell in shells:
            shell.communicate()
