"""What /proc says about the processes of a sandbox. Any thread.

Processes come and go while it is read: what is gone counts as nothing.
Source: proc_pid_stat(5), proc_pid_smaps(5), proc_pid_fd(5).
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterable, Iterator

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
"""Unit of `st_blocks` (stat(2))."""


def tree(root: int) -> list[int]:
    """A process and its descendants, parents first; empty when it is gone."""
    children: dict[int, list[int]] = {}
    found = False
    for name in os.listdir("/proc"):
        if name.isdecimal():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
                found |= int(name) == root
    members = [root] if found else []
    for pid in members:  # grows while it is read
        members += children.get(pid, ())
    return members


def readable(name: str, data: bytes) -> int:
    """A descriptor to read `data` from, to the end.

    A pipe, which no limit of files counts against; a file in memory where it is too small.

    Raises:
        OSError: there is no room for it.
    """
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.write(write, data) == len(data):
            os.set_blocking(read, True)
            return read
    except BlockingIOError:
        pass
    finally:
        os.close(write)
    os.close(read)
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:
        os.close(fd)
        raise
    return fd


def end_titled(title: str) -> int:
    """SIGKILL every process whose first argument is `title`; how many there were."""
    ended = 0
    for name in filter(str.isdecimal, os.listdir("/proc")):
        if _title(name) != title:
            continue
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(int(name))
            try:
                # Still the same one: a number is given again.
                if _title(name) == title:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                    ended += 1
            finally:
                os.close(fd)
    return ended


def _title(pid: str) -> str:
    return _read(f"/proc/{pid}/cmdline").partition("\0")[0]


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that the processes and their ended children have used."""
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / _TICKS_PER_S


def pss(pids: Iterable[int]) -> int:
    """Bytes of memory, shared pages by share; 0 where the kernel does not tell."""
    kib = 0
    for pid in pids:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                kib += int(line.split()[1])
    return kib * 1024


def unnamed_bytes(pids: Iterable[int], devices: set[int]) -> int:
    """Bytes on disk of files that the processes hold open and that have no name any more.

    Args:
        pids: the processes.
        devices: of the file systems that count, as `st_dev`.
    """
    files = {
        (status.st_dev, status.st_ino): status.st_blocks * _BLOCK
        for pid in pids
        for status in _open_files(pid)
        if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev in devices
    }
    return sum(files.values())


def _stat(pid: int) -> list[str]:
    """Fields of `/proc/PID/stat` after the name, which may hold anything; [1] is the parent."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _open_files(pid: int) -> Iterator[os.stat_result]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.stat(f"/proc/{pid}/fd/{name}")
