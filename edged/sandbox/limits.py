"""Limits of a whole call: control groups where there are some, else rlimits and a watch.

Three levels. `cgroup2` and `cgroup1`: the kernel holds the memory of the tree.
`watch`: no memory controller may be used; RLIMIT_DATA holds each process and a
watch of the tree, 20 times a second while calls run, ends what exceeds. It is no
wall. What it cannot see: pages of a shared mapping of which all but a part was
unmapped, and what sockets and pipes hold, which is bounded by their number
(`WATCH_NOFILE`) and their default sizes (`seccomp` keeps them from being raised; TCP
raises its own). What it sees late: what is used and given back between two looks.
Tasks are held by a group wherever there is a pids controller, and by RLIMIT_NPROC.

Not pure: it writes to /sys/fs/cgroup and reads /proc. The event loop's thread only.
Source: Linux admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst; cgroups(7),
getrlimit(2); systemd's CGROUP_DELEGATION.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from edged.errors import SandboxSetupError
from edged.sandbox.profile import Limits

Level = Literal["cgroup2", "cgroup1", "watch"]

SAMPLE_S = 0.05
"""Time between two looks of the watch while a call runs."""

REST_SAMPLE_S = 1.0
"""The same while all that it watches are spares that wait for a call."""

MAPS_S = 0.2
"""Time at least between two looks at the mappings of a tree, which cost more."""

WATCH_NOFILE = 128
"""Descriptors of a process where only a watch holds the memory; each may be a full socket."""

_RELEARN_S = 1.0
"""For how long the watch passes over processes that it found to be none of its own."""

_PREFIX = "edged-"
_MAIN = "main"
_CLAIM_TRIES = 3
_REMOVE_TRIES, _REMOVE_FIRST_S = 9, 0.005
"""A group is busy for some milliseconds after its last process: 5 ms, doubling, 2.6 s in all."""
_GIVE_BACK_S = 0.3
"""The longest of such pauses of a daemon that ends, which has nothing else to do."""

_MEMLOCK = 64 * 1024
_CONTROLLERS = ("memory", "pids", "cpu")

_PI_REMEDY = "add cgroup_enable=memory to cmdline.txt and reboot"
_CONFIG_REMEDY = "set `sandbox: {limits: auto}` to use control groups"
_MOUNT_REMEDY = "mount cgroup2 on /sys/fs/cgroup"
_DELEGATE_REMEDY = "run edged as a systemd service with Delegate=yes"


def parse_proc_cgroup(text: str) -> dict[str, str]:
    """`/proc/PID/cgroup` as controller to path; the v2 hierarchy has the name ''.

    Source: cgroups(7), /proc/[pid]/cgroup.
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def parse_flat(text: str) -> dict[str, int]:
    """A flat keyed file (`memory.events`, `cpu.stat`, v1 `memory.oom_control`)."""
    return {key: int(value) for key, value in (line.split() for line in text.splitlines())}


class Used(NamedTuple):
    """Bytes of memory of one process; `shared` is of files without a disk."""

    private: int
    shared: int


def parse_rollup(text: str) -> Used | None:
    """Anonymous and shared memory of a smaps_rollup; None before Linux 5.3."""
    rows = dict(line.split(":", 1) for line in text.splitlines()[1:] if ":" in line)
    try:
        return Used(*(int(rows[key].split()[0]) * 1024 for key in ("Pss_Anon", "Pss_Shmem")))
    except KeyError:
        return None


def parse_status(text: str) -> Used | None:
    """Anonymous and shared memory of `/proc/PID/status`; None for a zombie."""
    rows = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Rss"))
    try:
        return Used(*(int(rows[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem")))
    except KeyError:
        return None


def parse_maps(text: str) -> dict[str, int]:
    """Bytes of the shared anonymous mappings of a `/proc/PID/maps`, by inode.

    Their pages stay when they are no longer resident (MADV_DONTNEED), and are nowhere
    else to be seen.

    Source: proc_pid_maps(5); mm/shmem.c, shmem_zero_setup.
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        if line.endswith("/dev/zero (deleted)"):
            extent, mode, _, _, inode, _ = line.split(maxsplit=5)
            start, _, end = extent.partition("-")
            if mode.endswith("s"):
                found[inode] = found.get(inode, 0) + int(end, 16) - int(start, 16)
    return found


_NOTHING = Used(0, 0)


class Cgroupfs:
    """The few acts on a control group file system; the kernel fills what is made."""

    def make(self, path: str) -> None:
        """Make a group."""
        os.mkdir(path, 0o755)

    def remove(self, path: str) -> None:
        """Remove an empty group."""
        os.rmdir(path)

    def read(self, path: str) -> str:
        """Text of one file."""
        with open(path, encoding="ascii") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        """Write one value; never makes a file."""
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)


class _Setting(NamedTuple):
    """One file of a new group; those of older or smaller kernels may lack it."""

    file: str
    value: str
    optional: bool = False


def _settings(version: int, controller: str, limits: Limits) -> tuple[_Setting, ...]:
    memory, tasks = str(limits.memory_max), str(limits.tasks_max)
    if controller == "pids":
        return (_Setting("pids.max", tasks),)
    if controller != "memory":
        return ()  # equal shares are the kernel's default
    if version == 2:
        return (
            _Setting("memory.max", memory),
            _Setting("memory.swap.max", "0", optional=True),
            _Setting("memory.oom.group", "1", optional=True),
        )
    return (
        _Setting("memory.limit_in_bytes", memory),
        _Setting("memory.memsw.limit_in_bytes", memory, optional=True),
    )


class Watch:
    """Sums the memory of process trees by their PID namespace; for all calls at once.

    No timer runs while nothing is watched.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._watched: dict[str, Watched] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._period_s = SAMPLE_S
        self._maps_in_s = 0.0
        # A process never changes its PID namespace, so strangers need no second
        # look; for a bounded time only, as their numbers are given to others.
        self._strangers: set[str] = set()
        self._relearn_in_s = 0.0

    def start(self, pid: int, memory_max: int, on_exceeded: Callable[[], None]) -> Watched | None:
        """Watch the PID namespace of `pid`.

        Args:
            pid: the first process of the tree.
            memory_max: bytes of the whole tree.
            on_exceeded: called once, from the loop, when they are exceeded.

        Returns:
            None where `pid` is gone or has no namespace of its own.
        """
        namespace = _pid_namespace(self._proc, str(pid))
        if namespace is None or namespace == _pid_namespace(self._proc, "self"):
            return None
        watched = Watched(self, namespace, memory_max, on_exceeded)
        self._watched[namespace] = watched
        self._strangers.clear()
        self.adjust()
        return watched

    @property
    def period_s(self) -> float | None:
        """Time between two looks; None while nothing is watched."""
        return None if self._timer is None else self._period_s

    def adjust(self) -> None:
        """Look as often as the busiest watched tree needs."""
        period_s = REST_SAMPLE_S if all(w.resting for w in self._watched.values()) else SAMPLE_S
        if self._timer is not None and (period_s != self._period_s or not self._watched):
            self._timer.cancel()
            self._timer = None
        if self._watched and self._timer is None:
            self._period_s = period_s
            self._timer = asyncio.get_running_loop().call_later(period_s, self._tick)

    def forget(self, namespace: str) -> None:
        """Stop watching one namespace, and the timer with the last."""
        self._watched.pop(namespace, None)
        self.adjust()

    def sample(self) -> None:
        """Look once at every process."""
        look_at_maps = self._maps_in_s <= 0
        if look_at_maps:
            self._maps_in_s = MAPS_S
        members: dict[str, list[str]] = {namespace: [] for namespace in self._watched}
        for name in os.listdir(self._proc):
            if not name.isdecimal() or name in self._strangers:
                continue
            namespace = _pid_namespace(self._proc, name)
            if namespace in members:
                members[namespace].append(name)
            elif namespace is not None:
                self._strangers.add(name)
        for namespace, pids in members.items():
            watched = self._watched.get(namespace)
            if watched is not None:  # else an earlier one's `on_exceeded` ended it
                if look_at_maps:
                    watched.hidden = _hidden(self._proc, pids)
                watched.saw(self._memory(watched, pids))

    def _memory(self, watched: Watched, pids: Sequence[str]) -> int:
        """Bytes of one tree."""
        total = _sum([_resident(self._proc, pid) for pid in pids], watched.hidden)
        if not watched.over(total):
            return total
        # Pages that forks share counted for each; now as parts, which costs more.
        parts = [_proportional(self._proc, pid) for pid in pids]
        known = [part for part in parts if part is not None]
        watched.hidden = _hidden(self._proc, pids)
        return _sum(known, watched.hidden) if len(known) == len(parts) else total

    def _tick(self) -> None:
        self._timer = None
        self._relearn_in_s -= self._period_s
        self._maps_in_s -= self._period_s
        if self._relearn_in_s <= 0:
            self._relearn_in_s = _RELEARN_S
            self._strangers.clear()
        self.sample()
        self.adjust()


class Watched:
    """One tree under watch."""

    def __init__(
        self, watch: Watch, namespace: str, memory_max: int, on_exceeded: Callable[[], None]
    ) -> None:
        self._watch, self._namespace = watch, namespace
        self._memory_max, self._on_exceeded = memory_max, on_exceeded
        self.memory = 0
        self.hidden = 0
        self.exceeded = False
        self.resting = False

    def over(self, total: int) -> bool:
        """Whether so many bytes are too much, and nobody was told yet."""
        return total > self._memory_max and not self.exceeded

    def saw(self, total: int) -> None:
        """Take one sample, in bytes."""
        self.memory = total
        if self.over(total):
            self.exceeded = True
            self._on_exceeded()

    def rest(self, resting: bool) -> None:
        """Say whether the tree only waits for a call."""
        self.resting = resting
        self._watch.adjust()

    def stop(self) -> None:
        """End the watch; `memory` and `exceeded` stay."""
        self._watch.forget(self._namespace)


def _pid_namespace(proc: str, name: str) -> str | None:
    try:
        return os.readlink(f"{proc}/{name}/ns/pid")
    except OSError:
        return None  # ended meanwhile, or not ours


def _sum(parts: Sequence[Used], hidden: int) -> int:
    """Bytes of a tree; of what it shares, the larger of what is resident and what may be."""
    shared = sum(part.shared for part in parts)
    return sum(part.private for part in parts) + max(shared, hidden)


def _resident(proc: str, name: str) -> Used:
    try:
        memory = _status(f"{proc}/{name}")
        if memory is not None:
            return memory
        # The first thread has ended and shows nothing; others may run on.
        tasks = os.listdir(f"{proc}/{name}/task")
        return max(_status(f"{proc}/{name}/task/{task}") or _NOTHING for task in tasks)
    except (OSError, ValueError):
        return _NOTHING  # ended meanwhile


def _proportional(proc: str, name: str) -> Used | None:
    """Memory with shared pages in parts (proc_pid_smaps(5)); None where that is not shown."""
    try:
        with open(f"{proc}/{name}/smaps_rollup", encoding="ascii") as file:
            return parse_rollup(file.read())
    except FileNotFoundError:
        return _NOTHING if not os.path.exists(f"{proc}/{name}") else None
    except ProcessLookupError:
        return _NOTHING  # ended meanwhile
    except OSError:
        return None


def _hidden(proc: str, names: Sequence[str]) -> int:
    """Bytes that shared anonymous mappings of these processes may hold, resident or not."""
    sizes: dict[str, int] = {}
    for name in names:
        with contextlib.suppress(OSError), open(f"{proc}/{name}/maps", "rb") as file:
            for inode, size in parse_maps(file.read().decode("ascii", "replace")).items():
                sizes[inode] = max(size, sizes.get(inode, 0))
    return sum(sizes.values())


def _status(directory: str) -> Used | None:
    with open(f"{directory}/status", encoding="ascii", errors="replace") as file:
        return parse_status(file.read())


class Group:
    """The limits of one call. Nothing in it survives `kill`, no directory `close`."""

    def __init__(
        self,
        files: Cgroupfs,
        version: int,
        directories: Mapping[str, str],
        limits: Limits,
        watch: Watch | None,
    ) -> None:
        self._files, self._version = files, version
        self._directories = directories
        self._limits = limits
        self._watch = watch
        self._watched: Watched | None = None
        self._init_fd = -1
        self.on_exceeded: Callable[[], None] = self.kill
        """Called when the watch sees too much memory; groups of the kernel kill by themselves."""

    def add(self, pid: int) -> None:
        """Put a process, and all it will start, under the limits.

        Args:
            pid: the first process of the tree, blocked until it is in.

        Raises:
            SandboxSetupError: the kernel refuses.
        """
        if self._init_fd < 0:
            with contextlib.suppress(ProcessLookupError):
                self._init_fd = os.pidfd_open(pid)
        for directory in self._own():
            try:
                self._files.write(f"{directory}/cgroup.procs", str(pid))
            except ProcessLookupError:
                return  # ended already: there is nothing to limit
            except OSError as error:
                raise SandboxSetupError(
                    f"a process cannot be put in {directory}: {error.strerror}"
                ) from error
        if self._watch is not None and self._watched is None:
            self._watched = self._watch.start(pid, self._limits.memory_max, self._exceeded)

    def rest(self) -> None:
        """The tree waits for its call: look at it once a second only."""
        if self._watched is not None:
            self._watched.rest(True)

    def wake(self) -> None:
        """The call begins: look at it 20 times a second, as from `add` on."""
        if self._watched is not None:
            self._watched.rest(False)

    def memory_exceeded(self) -> bool:
        """Whether the call met its memory limit and lost a process to it."""
        if self._watched is not None:
            return self._watched.exceeded
        if self._version == 2:
            return self._flat("memory", "memory.events").get("oom_kill", 0) > 0
        control = self._flat("memory", "memory.oom_control")
        if "oom_kill" in control:
            return control["oom_kill"] > 0
        # Before Linux 4.13 there is no count: the limit was met, or is met now.
        return control.get("under_oom", 0) > 0 or self._number("memory", "memory.failcnt") > 0

    def tasks_exceeded(self) -> bool:
        """Whether a fork or a thread was refused by the group."""
        return self._flat("pids", "pids.events").get("max", 0) > 0

    def cpu_s(self) -> float | None:
        """CPU seconds of the whole call; None without cgroup v2."""
        for directory in self._own() if self._version == 2 else ():
            return self._flat_in(directory, "cpu.stat").get("usage_usec", 0) / 1e6
        return None

    def memory(self) -> int | None:
        """Bytes in use now; None where nobody counts."""
        if self._watched is not None:
            return self._watched.memory
        if "memory" not in self._directories:
            return None
        return self._number(
            "memory", "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        )

    def kill(self) -> None:
        """SIGKILL everything in the group, and the sandbox by its first process."""
        if self._init_fd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        if self._version == 1 and "pids" in self._directories:
            # All are in each directory: the one that keeps new ones out will do.
            _kill_all(self._files, self._directories["pids"])
            return
        for directory in self._own():
            _kill_all(self._files, directory)

    @property
    def is_kernels(self) -> bool:
        """Whether a control group holds the tree, so that `kill` reaches each of it at once."""
        return bool(self._directories)

    async def close(self) -> None:
        """Kill what is left and remove the group.

        Bounded in time: a directory that stays busy is left for the next sweep.
        """
        if self._watched is not None:
            self._watched.stop()
        self.kill()
        if self._init_fd >= 0:
            os.close(self._init_fd)
            self._init_fd = -1
        pause = _REMOVE_FIRST_S
        left = [d for d in self._own() if not _removed(self._files, d)]
        for _ in range(_REMOVE_TRIES):
            if not left:
                break
            await asyncio.sleep(pause)
            pause *= 2
            left = [d for d in left if not _removed(self._files, d)]

    def _own(self) -> Iterator[str]:
        """Each directory once: v2 has one for all controllers."""
        return iter(dict.fromkeys(self._directories.values()))

    def _exceeded(self) -> None:
        self.on_exceeded()

    def _flat(self, controller: str, file: str) -> dict[str, int]:
        directory = self._directories.get(controller)
        return {} if directory is None else self._flat_in(directory, file)

    def _flat_in(self, directory: str, file: str) -> dict[str, int]:
        try:
            return parse_flat(self._files.read(f"{directory}/{file}"))
        except OSError:
            return {}  # an older kernel has no such count

    def _number(self, controller: str, file: str) -> int:
        directory = self._directories.get(controller)
        return 0 if directory is None else int(self._files.read(f"{directory}/{file}"))


class Backend:
    """What holds the limits on this machine; one for the life of the daemon.

    Attributes:
        level: `watch` whenever the memory of a tree is not held by the kernel.
        remedy: what to do for more, or empty.
    """

    def __init__(
        self, files: Cgroupfs, version: int, homes: Mapping[str, _Home], remedy: str
    ) -> None:
        self._files, self._version = files, version
        self._homes = {home.path: home for home in homes.values()}
        self._parents = {controller: home.path for controller, home in homes.items()}
        self._watch = None if "memory" in homes else Watch()
        self._opened = 0
        self.level: Level = "watch"
        if "memory" in homes:
            self.level = "cgroup2" if version == 2 else "cgroup1"
        self.remedy = remedy

    def describe(self) -> str:
        """One line for people: what holds, and what to do for more."""
        kernel = f"cgroup v{self._version}"
        memory = f"memory is held by {kernel}"
        if self._watch is not None:
            memory = "memory is watched 20 times a second, not held by the kernel"
        tasks = f"tasks by {kernel}" if "pids" in self._parents else "tasks by RLIMIT_NPROC"
        return f"{memory}, {tasks}" + (f"; {self.remedy}" if self.remedy else "")

    def open(self, name: str, limits: Limits) -> Group:
        """Make the group of one call.

        Args:
            name: shown in the file system; any text.
            limits: of the whole tree.

        Raises:
            SandboxSetupError: the kernel refuses.
        """
        self._opened += 1
        label = "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:40])
        directories = {
            controller: f"{parent}/{self._opened}-{label}"
            for controller, parent in self._parents.items()
        }
        made = list(dict.fromkeys(directories.values()))
        try:
            for directory in made:
                self._files.make(directory)
            for controller, directory in directories.items():
                _limit(self._files, directory, _settings(self._version, controller, limits))
        except OSError as error:
            for directory in made:
                _removed(self._files, directory)
            raise SandboxSetupError(
                f"no control group for the call: {error.strerror}: {error.filename}"
            ) from error
        return Group(self._files, self._version, directories, limits, self._watch)

    def close(self) -> None:
        """Give the groups back; what is still in them is killed."""
        for home in self._homes.values():
            home.give_back(self._files)
        self._homes = {}


def detect(
    proc_cgroup: str = "/proc/self/cgroup",
    root: str = "/sys/fs/cgroup",
    files: Cgroupfs | None = None,
    *,
    watch_only: bool = False,
) -> Backend:
    """Find out, by trying, what holds on this machine; once, at start.

    Groups of daemons that died are emptied and removed on the way. Under cgroup v2
    this process moves to a subgroup `main`, as a group with processes of its own
    may not give controllers on.

    Args:
        proc_cgroup: where this process's groups are told.
        root: where the group file systems are mounted.
        files: acts on them.
        watch_only: use no group at all, as the configuration may ask.
    """
    files = files or Cgroupfs()
    if watch_only:
        return Backend(files, 2, {}, _CONFIG_REMEDY)
    try:
        paths = parse_proc_cgroup(files.read(proc_cgroup))
    except OSError:
        paths = {}
    if os.path.exists(f"{root}/cgroup.controllers"):
        version, homes = 2, _claim_v2(files, root, paths.get("", "/"))
        known = files.read(f"{root}/cgroup.controllers").split()
    else:
        version, homes = 1, _claim_v1(files, root, paths)
        known = [name for name in _CONTROLLERS if os.path.isdir(f"{root}/{name}")]
    return Backend(files, version, homes, "" if "memory" in homes else _remedy(known))


def _remedy(known: Sequence[str]) -> str:
    """What to do for a memory group, by the controllers that the kernel shows."""
    if "memory" in known:
        return _DELEGATE_REMEDY
    return _PI_REMEDY if known else _MOUNT_REMEDY


class _Home(NamedTuple):
    """A group that holds the groups of this daemon's calls, and its lock.

    The kernel lets go of the lock when the daemon dies, however it dies.
    """

    path: str
    lock: int

    def give_back(self, files: Cgroupfs) -> None:
        """Kill what is left in it and remove it; what stays busy is for the next sweep."""
        pause = _REMOVE_FIRST_S
        while not _clear(files, self.path) and pause < _GIVE_BACK_S:
            time.sleep(pause)
            pause *= 2
        os.close(self.lock)


def _claim_v1(files: Cgroupfs, root: str, paths: Mapping[str, str]) -> dict[str, _Home]:
    """Homes in the memory and pids hierarchies, where they may be written."""
    homes: dict[str, _Home] = {}
    for controller in ("memory", "pids"):
        home = _claim(files, _visible(f"{root}/{controller}", paths.get(controller, "/")))
        if home is None:
            continue
        if _works(files, home.path, 1, controller):
            homes[controller] = home
        else:
            home.give_back(files)
    return homes


def _claim_v2(files: Cgroupfs, root: str, path: str) -> dict[str, _Home]:
    """One home below the daemon's own group, else (root) below the top one."""
    own = _visible(root, path)
    if os.path.basename(own) == _MAIN:
        own = os.path.dirname(own)
    for base in dict.fromkeys((own, root)):
        home = _claim(files, base)
        if home is None:
            continue
        held = _delegated(files, base, home.path)
        if held:
            return dict.fromkeys(held, home)
        home.give_back(files)
    return {}


def _delegated(files: Cgroupfs, base: str, home: str) -> list[str]:
    """Give controllers down to `home`; those that then work for a call."""
    if not _vacated(files, base):
        return []
    for group in (base, home):
        _enable(files, group)
    given = files.read(f"{home}/cgroup.subtree_control").split()
    return [name for name in _CONTROLLERS if name in given and _works(files, home, 2, name)]


def _visible(root: str, path: str) -> str:
    """The directory of `path` below `root`; `root` where a namespace hides it."""
    directory = root + path.rstrip("/")
    return directory if ".." not in path and os.path.isdir(directory) else root


def _claim(files: Cgroupfs, base: str) -> _Home | None:
    """Sweep what dead daemons left in `base` and make this one's home there."""
    try:
        _sweep(files, base)
    except OSError:
        return None
    for _ in range(_CLAIM_TRIES):
        # Another daemon's sweep may come in before the lock.
        with contextlib.suppress(OSError):
            path = f"{base}/{_PREFIX}{os.getpid()}-{os.urandom(3).hex()}"
            files.make(path)
            return _Home(path, _lock(path))
    return None


def _sweep(files: Cgroupfs, base: str) -> None:
    """Kill and remove the groups whose daemon's lock is free."""
    for name in os.listdir(base):
        group = f"{base}/{name}"
        if not name.startswith(_PREFIX):
            continue
        try:
            lock = _lock(group)
        except OSError:
            continue  # its daemon lives
        _clear(files, group)
        os.close(lock)


def _lock(group: str) -> int:
    fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _clear(files: Cgroupfs, home: str) -> bool:
    """Kill all below a group and remove it, as far as it goes at once; whether it is gone."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(home):
            group = f"{home}/{name}"
            if os.path.isdir(group):
                _kill_all(files, group)
                _removed(files, group)
    return _removed(files, home)


def _vacated(files: Cgroupfs, base: str) -> bool:
    """Move out of `base` to its subgroup `main`, if no stranger lives in it.

    Only the top group, which alone has no `cgroup.type`, may have both processes
    and subgroups with controllers. All processes of a service are its own.
    """
    if not os.path.exists(f"{base}/cgroup.type"):
        return True
    inside = files.read(f"{base}/cgroup.procs").split()
    if not base.endswith(".service") and inside not in ([], [str(os.getpid())]):
        return False
    main = f"{base}/{_MAIN}"
    try:
        if inside and not os.path.isdir(main):
            files.make(main)
        for pid in inside:
            files.write(f"{main}/cgroup.procs", pid)
    except OSError:
        return False
    return True


def _enable(files: Cgroupfs, group: str) -> None:
    for controller in _CONTROLLERS:
        # One by one: the Pi's kernel has no memory controller, others no cpu.
        with contextlib.suppress(OSError):
            files.write(f"{group}/cgroup.subtree_control", f"+{controller}")


def _works(files: Cgroupfs, home: str, version: int, controller: str) -> bool:
    group = f"{home}/try"
    try:
        files.make(group)
        _limit(files, group, _settings(version, controller, Limits()))
    except OSError:
        return False
    finally:
        _removed(files, group)
    return True


def _limit(files: Cgroupfs, group: str, settings: Sequence[_Setting]) -> None:
    for setting in settings:
        try:
            files.write(f"{group}/{setting.file}", setting.value)
        except FileNotFoundError:
            if not setting.optional:
                raise


def _removed(files: Cgroupfs, group: str) -> bool:
    try:
        files.remove(group)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_all(files: Cgroupfs, group: str) -> None:
    """SIGKILL every process of a group; none may be added meanwhile."""
    with contextlib.suppress(OSError):
        files.write(f"{group}/cgroup.kill", "1")
        return
    with contextlib.suppress(OSError):
        files.write(f"{group}/pids.max", "0")
    try:
        pids = files.read(f"{group}/cgroup.procs").split()
    except OSError:
        return  # removed already
    for pid in map(int, pids):
        if pid:  # 0 stands for one of another PID namespace, and would mean our own group
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def hard_limits() -> dict[str, int]:
    """This process's own hard limits; -1 is none."""
    return {name: resource.getrlimit(number)[1] for name, number in _RESOURCES.items()}


_RESOURCES = {
    "core": resource.RLIMIT_CORE,
    "cpu": resource.RLIMIT_CPU,
    "data": resource.RLIMIT_DATA,
    "fsize": resource.RLIMIT_FSIZE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
}


def rlimits(
    limits: Limits, cores: int, level: Level, hard: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Limits of each process of a call, by the kernel's names in lower case.

    RLIMIT_DATA is a courtesy, a clean MemoryError instead of a kill: never
    RLIMIT_AS, under which Node does not start.

    Args:
        limits: of the call.
        cores: on which it may run.
        level: under groups RLIMIT_DATA is twice `memory_max`, as much of it may
            stay untouched; under the watch it is the first line, and there are at most
            `WATCH_NOFILE` descriptors.
        hard: limits that cannot be exceeded, -1 for none; this process's by default.

    Units:
        `cpu` in seconds, `nofile` and `nproc` counts, the others bytes.
    """
    values = {
        "core": 0,
        "cpu": limits.cpu_s or math.ceil(limits.wall_s * cores),
        "data": limits.memory_max * (1 if level == "watch" else 2) + limits.data_reserve,
        "fsize": limits.file_size_max,
        "memlock": _MEMLOCK,
        "nofile": min(limits.nofile, WATCH_NOFILE) if level == "watch" else limits.nofile,
        "nproc": limits.tasks_max,
    }
    hard = hard_limits() if hard is None else hard
    return {
        name: value if hard.get(name, -1) < 0 else min(value, hard[name])
        for name, value in values.items()
    }


_ULIMIT = {
    "core": ("c", 512),
    "data": ("d", 1024),
    "fsize": ("f", 512),
    "memlock": ("l", 1024),
    "nofile": ("n", 1),
}
"""Option and unit of `ulimit` in dash, busybox and, called as `sh`, bash (POSIX mode)."""


def ulimit_script(values: Mapping[str, int], argv: Sequence[str], gate: str = "") -> list[str]:
    """A command that takes limits upon itself and becomes `argv`.

    It runs inside the sandbox, so it needs no right over another process, and the
    count of tasks is the sandbox's own (Linux 5.14). Any refusal ends it.

    Args:
        values: as `rlimits` gives them.
        argv: the command.
        gate: shell command that must succeed before the command is run.
    """
    steps = ["set -e"]
    steps += [f"ulimit -{o} {values[name] // unit}" for name, (o, unit) in _ULIMIT.items()]
    # A hard limit of its own, so that the end is SIGXCPU and not SIGKILL (setrlimit(2)).
    steps += ["ulimit -t {}; ulimit -S -t {}".format(values["cpu"] + 1, values["cpu"])]
    # dash calls it -p; bash, whose -p is another limit, and busybox call it -u.
    steps.append("ulimit -p {0} 2>/dev/null || ulimit -u {0}".format(values["nproc"]))
    steps += [gate] if gate else []
    steps.append('exec "$@"')
    return ["/bin/sh", "-c", "; ".join(steps), "sh", *argv]
