"""What /proc says, of real processes."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys

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
    before = proc.unnamed([os.getpid()], device, [])
    with open(tmp_path / "x", "wb") as file, open(tmp_path / "x", "rb"):
        file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        assert proc.unnamed([os.getpid()], device, []) == before
        os.unlink(tmp_path / "x")
        after = proc.unnamed([os.getpid()], device, [])
        assert 1 << 20 <= after.bytes - before.bytes < 2 << 20
        assert (after.files - before.files, after.hidden) == (1, False)
        assert proc.unnamed([os.getpid()], set(), []) == (0, 0, False)
    assert proc.unnamed([2**22 + 1], device, []) == (0, 0, False)


def test_a_directory_without_a_name_counts(tmp_path) -> None:
    """Its blocks stay when it was emptied; rmdir(2) frees them at its last close."""
    os.mkdir(tmp_path / "x")
    device = {os.stat(tmp_path).st_dev}
    before = proc.unnamed([os.getpid()], device, [])
    fd = os.open(tmp_path / "x", os.O_PATH)
    os.rmdir(tmp_path / "x")
    assert proc.unnamed([os.getpid()], device, []).files - before.files == 1
    os.close(fd)


def test_a_program_that_runs_without_a_name_is_counted(tmp_path) -> None:
    """proc_pid_exe(5); it may have no mapping of it any more."""
    program = tmp_path / "x"
    shutil.copy("/bin/sleep", program)
    device, size = {os.stat(program).st_dev}, os.stat(program).st_size
    with subprocess.Popen(
        [program, "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        os.unlink(program)
        found = proc.unnamed([child.pid], device, [str(tmp_path)])
        child.kill()
    assert found.bytes >= size
    assert (found.files, found.hidden) == (1, False)


def test_what_is_mapped_and_not_open_is_hidden(tmp_path) -> None:
    """proc_pid_maps(5): a name is followed by (deleted); only those of some places matter."""
    code = "import mmap, os, sys; f = open(sys.argv[1], 'w+b'); f.write(bytes(4096)); f.flush()"
    code += "; os.unlink(sys.argv[1]); m = mmap.mmap(f.fileno(), 4096); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "a name"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        device = {os.stat(tmp_path).st_dev}
        assert proc.unnamed([child.pid], device, [str(tmp_path)]) == (4096, 1, False)
        assert proc.unnamed([child.pid], set(), [str(tmp_path)]) == (0, 0, True)
        assert proc.unnamed([child.pid], set(), [f"{tmp_path}/a"]) == (0, 0, False)
        child.kill()


def test_descriptors_under_way_are_hidden(tmp_path) -> None:
    """unix(7), SCM_RIGHTS: what was sent and is closed here is open until it is received."""
    ours, theirs = socket.socketpair()
    with ours, theirs, open(tmp_path / "x", "wb") as file:
        assert not proc.unnamed([os.getpid()], set(), []).hidden
        socket.send_fds(ours, [b"x"], [file.fileno()])
        assert proc.unnamed([os.getpid()], set(), []).hidden
        assert proc.unnamed([], set(), [], [theirs.fileno()]).hidden
        assert not proc.unnamed([], set(), [], [ours.fileno()]).hidden


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
