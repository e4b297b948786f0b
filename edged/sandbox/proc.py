"""What /proc says about the processes of a sandbox. Any thread.

Processes come and go while it is read: what is gone counts as nothing.
Source: proc_pid_stat(5), proc_pid_smaps(5), proc_pid_fd(5), proc_pid_fdinfo(5),
proc_pid_maps(5); net/unix/af_unix.c, unix_show_fdinfo.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


class Unnamed(NamedTuple):
    """What is on disk without a name; `hidden` when there may be more, of any size."""

    bytes: int
    files: int
    hidden: bool


def unnamed(
    pids: Iterable[int], devices: set[int], places: Sequence[str], ends: Sequence[int] = ()
) -> Unnamed:
    """Files and directories that processes hold and that have no name any more.

    What is mapped and not open, and what is under way in a socket, is there to be seen,
    but not its size.

    Args:
        pids: the processes.
        devices: of the file systems that count, as `st_dev`.
        places: directories on these, as the processes see them.
        ends: sockets of this process, the other ends of which are theirs.
    """
    files: dict[tuple[int, int], int] = {}
    mapped: set[int] = set()
    hidden = any(_under_way(f"/proc/self/fdinfo/{end}") for end in ends)
    for pid in pids:
        # A thread may have descriptors of its own, and outlive the first one.
        for task in _names(f"/proc/{pid}/task") or ():
            mapped |= _mapped(f"/proc/{pid}/task/{task}/maps", places)
            hidden |= _collect(f"/proc/{pid}/task/{task}", devices, files)
    hidden |= not mapped <= {inode for _, inode in files}
    return Unnamed(sum(files.values()), len(files), hidden)


def _collect(task: str, devices: set[int], files: dict[tuple[int, int], int]) -> bool:
    """Add what a task holds without a name to `files`; whether it may hide some."""
    descriptors = _names(f"{task}/fd")
    if descriptors is None:
        return True  # it had itself kept from being looked at (prctl(2), PR_SET_DUMPABLE)
    hidden = False
    for name in (*(f"fd/{n}" for n in descriptors), "cwd", "exe"):
        try:
            status = os.stat(f"{task}/{name}")
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            hidden |= _under_way(f"{task}/fdinfo/{name[3:]}")
        elif _is_stored(status.st_mode) and not status.st_nlink and status.st_dev in devices:
            files[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return hidden


def _is_stored(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _under_way(fdinfo: str) -> bool:
    """Whether descriptors wait in a socket to be received."""
    return any(
        line.startswith("scm_fds:") and int(line[8:]) > 0 for line in _read(fdinfo).splitlines()
    )


def _mapped(maps: str, places: Sequence[str]) -> set[int]:
    """Inodes of mapped files that had a name below one of `places`."""
    found = set()
    for line in _read(maps).splitlines():
        if line.endswith(" (deleted)"):
            _, _, _, _, inode, path = line.split(maxsplit=5)
            if any(path.startswith(f"{place}/") for place in places):
                found.add(int(inode))
    return found


def _names(directory: str) -> list[str] | None:
    """Names in a directory of /proc; None where it may not be looked at."""
    try:
        return os.listdir(directory)
    except PermissionError:
        return None
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """Fields of `/proc/PID/stat` after the name, which may hold anything; [1] is the parent."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
