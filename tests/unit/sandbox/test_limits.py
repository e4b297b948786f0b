"""Which limits hold is found out by trying; numbers become files and rlimits.

The group file systems here are directories that behave as the kernel documents
(admin-guide/cgroup-v2.rst and cgroup-v1); the real ones are met by the
integration tests.
"""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typing_extensions import override

from edged.errors import SandboxSetupError
from edged.sandbox import limits as module
from edged.sandbox.limits import (
    REST_SAMPLE_S,
    SAMPLE_S,
    Backend,
    Cgroupfs,
    Watch,
    detect,
    hard_limits,
    parse_flat,
    parse_maps,
    parse_proc_cgroup,
    parse_rollup,
    parse_status,
    rlimits,
    ulimit_script,
)
from edged.sandbox.profile import MIB, Limits

ME = str(os.getpid())
FILES = {
    "memory": (
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "memory.events",
        "memory.current",
    ),
    "pids": ("pids.max", "pids.events"),
    "cpu": ("cpu.weight",),
}


class Kernel2(Cgroupfs):
    """A cgroup v2 file system in a directory, with the kernel's refusals."""

    def __init__(self, root: Path, controllers: str = "cpuset cpu io memory pids") -> None:
        self.root = root
        self.refused: set[str] = set()
        self.missing: set[str] = set()
        self._fill(root, controllers.split())
        (root / "cgroup.type").unlink()

    def _fill(self, group: Path, controllers: list[str]) -> None:
        for name in ("cgroup.type", "cgroup.procs", "cgroup.subtree_control", "cgroup.kill"):
            (group / name).touch()
        (group / "cgroup.controllers").write_text(" ".join(controllers))
        (group / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
        for controller in controllers:
            for name in FILES.get(controller, ()):
                if name not in self.missing:
                    (group / name).touch()

    @override
    def make(self, path: str) -> None:
        if any(path.startswith(prefix) for prefix in self.refused):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        super().make(path)
        parent = Path(path).parent
        self._fill(Path(path), (parent / "cgroup.subtree_control").read_text().split())

    @override
    def remove(self, path: str) -> None:
        group = Path(path)
        busy = group.exists() and (
            (group / "cgroup.procs").read_text()
            or any(child.is_dir() for child in group.iterdir())
        )
        if busy:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        shutil.rmtree(path)

    @override
    def write(self, path: str, text: str) -> None:
        file = Path(path)
        if file.name == "cgroup.subtree_control":
            self._delegate(file.parent, text[1:])
        elif file.name == "cgroup.procs":
            self._move(file, text)
        elif file.name == "cgroup.kill" and file.exists():
            (file.parent / "cgroup.procs").write_text("")
        else:
            super().write(path, text)

    def _delegate(self, group: Path, controller: str) -> None:
        if controller not in (group / "cgroup.controllers").read_text().split():
            raise OSError(errno.ENOENT, "No such file or directory")
        if (group / "cgroup.type").exists() and (group / "cgroup.procs").read_text():
            raise OSError(errno.EBUSY, "Device or resource busy")
        given = (group / "cgroup.subtree_control").read_text().split()
        (group / "cgroup.subtree_control").write_text(" ".join({*given, controller}))
        for child in group.iterdir():
            if child.is_dir():
                inside = (child / "cgroup.controllers").read_text().split()
                self._fill(child, sorted({*inside, controller}))

    def _move(self, file: Path, pid: str) -> None:
        for procs in self.root.rglob("cgroup.procs"):
            left = [line for line in procs.read_text().split() if line != pid]
            procs.write_text("\n".join(left))
        file.write_text("\n".join([*file.read_text().split(), pid]))


class Kernel1(Cgroupfs):
    """A cgroup v1 file system in a directory."""

    files: Mapping[str, tuple[str, ...]] = {
        "memory": (
            "memory.limit_in_bytes",
            "memory.oom_control",
            "memory.usage_in_bytes",
            "memory.failcnt",
        ),
        "pids": ("pids.max", "pids.events"),
    }

    def __init__(self, root: Path, *controllers: str) -> None:
        self.root = root
        for controller in controllers:
            (root / controller).mkdir()

    @override
    def make(self, path: str) -> None:
        super().make(path)
        controller = Path(path).relative_to(self.root).parts[0]
        for name in ("cgroup.procs", *self.files[controller]):
            Path(path, name).touch()

    @override
    def remove(self, path: str) -> None:
        shutil.rmtree(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def cgroup_file(root: Path, text: str) -> str:
    path = root.parent / "self"
    path.write_text(text)
    return str(path)


def service(root: Path, files: Kernel2, name: str = "edged.service") -> Path:
    """A delegated unit's group with this process in it; the kernel gave it controllers."""
    (root / "cgroup.subtree_control").write_text("cpu memory pids")
    files.make(f"{root}/{name}")
    (root / name / "cgroup.procs").write_text(ME)
    return root / name


@pytest.fixture
def delegated(root: Path) -> Iterator[tuple[Backend, Path]]:
    files = Kernel2(root)
    unit = service(root, files)
    backend = detect(cgroup_file(root, "0::/edged.service\n"), str(root), files)
    yield backend, unit
    backend.close()


def group_of(unit: Path) -> Path:
    (home,) = unit.glob("edged-*")
    (group,) = (child for child in home.iterdir() if child.is_dir())
    return group


def test_delegated_v2_holds_everything(delegated: tuple[Backend, Path]) -> None:
    """The daemon moves to `main`, else the kernel answers EBUSY (no internal processes)."""
    backend, unit = delegated
    assert backend.level == "cgroup2"
    assert backend.describe() == "memory is held by cgroup v2, tasks by cgroup v2"
    assert (unit / "main/cgroup.procs").read_text() == ME
    assert set((unit / "cgroup.subtree_control").read_text().split()) == {"cpu", "memory", "pids"}


async def test_call_of_v2_gets_its_limits(delegated: tuple[Backend, Path]) -> None:
    backend, unit = delegated
    group = backend.open("ada/x", Limits(memory_max=5 * MIB, tasks_max=7))
    directory = group_of(unit)
    assert directory.name == "1-ada_x"
    values = {name: (directory / name).read_text() for name in FILES["memory"][:3]}
    assert values == {
        "memory.max": str(5 * MIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    assert (directory / "pids.max").read_text() == "7"
    await group.close()
    assert not directory.exists()


async def test_v2_counts_are_read_by_their_meaning(delegated: tuple[Backend, Path]) -> None:
    """cgroup-v2.rst: oom_kill counts killed processes, max of pids.events refused forks."""
    backend, unit = delegated
    group = backend.open("x", Limits())
    directory = group_of(unit)
    (directory / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
    (directory / "pids.events").write_text("max 0\n")
    (directory / "memory.current").write_text("4096\n")
    assert (group.memory_exceeded(), group.tasks_exceeded()) == (False, False)
    (directory / "memory.events").write_text("max 9\noom 1\noom_kill 1\n")
    (directory / "pids.events").write_text("max 3\n")
    assert (group.memory_exceeded(), group.tasks_exceeded()) == (True, True)
    assert group.memory() == 4096
    assert group.cpu_s() == 1.5
    await group.close()


async def test_process_that_ended_before_it_was_added_is_no_fault(
    delegated: tuple[Backend, Path],
) -> None:
    backend, unit = delegated
    group = backend.open("x", Limits())
    gone = subprocess.Popen(["true"])
    gone.wait()
    group.add(gone.pid)
    await group.close()
    assert not list(unit.glob("edged-*/1-x"))


async def test_group_that_stays_busy_is_given_up_and_swept_later(
    delegated: tuple[Backend, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in an uninterruptible wait (D) does not die at once."""
    backend, unit = delegated
    group = backend.open("x", Limits())
    directory = group_of(unit)
    (directory / "cgroup.kill").unlink()
    (directory / "cgroup.procs").write_text("4194305")  # above the kernel's highest
    pauses: list[float] = []

    async def no_time(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", no_time)
    await group.close()
    assert directory.exists()
    assert sum(pauses) == pytest.approx(2.555)
    (directory / "cgroup.procs").write_text("")
    backend.close()
    assert not list(unit.glob("edged-*"))


def test_a_group_that_is_busy_for_a_moment_is_waited_for_at_the_end(
    delegated: tuple[Backend, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves its group some milliseconds later; the daemon ends meanwhile."""
    backend, unit = delegated
    backend.open("x", Limits())
    directory = group_of(unit)
    (directory / "cgroup.kill").unlink()
    (directory / "cgroup.procs").write_text("4194305")  # above the kernel's highest
    pauses: list[float] = []

    def left(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            (directory / "cgroup.procs").write_text("")

    monkeypatch.setattr(time, "sleep", left)
    backend.close()
    assert pauses == [0.005, 0.01]
    assert not list(unit.glob("edged-*"))


def test_pi_without_a_memory_controller_is_watched_and_told(root: Path) -> None:
    """Raspberry Pi OS boots with cgroup_disable=memory; tasks are still held."""
    files = Kernel2(root, "cpuset cpu io pids")
    backend = detect(cgroup_file(root, "0::/\n"), str(root), files)
    assert backend.level == "watch"
    assert backend.describe() == (
        "memory is watched 20 times a second, not held by the kernel, tasks by cgroup v2;"
        " add cgroup_enable=memory to cmdline.txt and reboot"
    )
    backend.close()


def test_top_group_is_used_in_place(root: Path) -> None:
    """Root without systemd: only the top group may have processes and children both."""
    files = Kernel2(root)
    (root / "cgroup.procs").write_text(f"1\n{ME}")
    backend = detect(cgroup_file(root, "0::/\n"), str(root), files)
    assert backend.level == "cgroup2"
    assert not (root / "main").exists()
    backend.close()


def test_restarted_daemon_finds_itself_in_main(root: Path) -> None:
    """By DelegateSubgroup=main systemd 254 puts it there."""
    files = Kernel2(root)
    unit = service(root, files)
    (unit / "cgroup.procs").write_text("")
    files.make(f"{unit}/main")
    (unit / "main/cgroup.procs").write_text(ME)
    backend = detect(cgroup_file(root, "0::/edged.service/main\n"), str(root), files)
    assert backend.level == "cgroup2"
    assert list(unit.glob("edged-*"))
    backend.close()


def test_group_shared_with_strangers_is_left_alone(root: Path) -> None:
    """A login session's scope holds the user's shell, which is not ours to move."""
    files = Kernel2(root)
    scope = service(root, files, "session-1.scope")
    (scope / "cgroup.procs").write_text(f"77\n{ME}")
    files.refused.add(f"{root}/edged-")
    backend = detect(cgroup_file(root, "0::/session-1.scope\n"), str(root), files)
    assert backend.level == "watch"
    assert "Delegate=yes" in backend.describe()
    assert "RLIMIT_NPROC" in backend.describe()
    assert (scope / "cgroup.procs").read_text() == f"77\n{ME}"
    assert not list(scope.glob("edged-*"))
    backend.close()


def test_all_processes_of_a_service_move_along(root: Path) -> None:
    """A wrapper that started the daemon lives in the same unit."""
    files = Kernel2(root)
    unit = service(root, files)
    (unit / "cgroup.procs").write_text(f"77\n{ME}")
    backend = detect(cgroup_file(root, "0::/edged.service\n"), str(root), files)
    assert backend.level == "cgroup2"
    assert (unit / "main/cgroup.procs").read_text().split() == ["77", ME]
    backend.close()


@pytest.mark.parametrize("refused", ["edged.service/main", "edged.service/edged-"])
def test_unit_that_was_not_delegated_is_watched(root: Path, refused: str) -> None:
    files = Kernel2(root)
    service(root, files)
    files.refused |= {f"{root}/{refused}", f"{root}/edged-"}
    backend = detect(cgroup_file(root, "0::/edged.service\n"), str(root), files)
    assert backend.level == "watch"
    backend.close()


def test_controller_whose_file_is_missing_does_not_hold(root: Path) -> None:
    files = Kernel2(root)
    files.missing.add("memory.max")
    backend = detect(cgroup_file(root, "0::/\n"), str(root), files)
    assert backend.level == "watch"
    backend.close()


async def test_kernel_without_swap_or_group_kill_is_fine(root: Path) -> None:
    """memory.swap.max needs CONFIG_SWAP, memory.oom.group Linux 4.19."""
    files = Kernel2(root)
    files.missing |= {"memory.swap.max", "memory.oom.group"}
    backend = detect(cgroup_file(root, "0::/\n"), str(root), files)
    assert backend.level == "cgroup2"
    await backend.open("x", Limits()).close()
    backend.close()


def test_call_without_a_group_is_refused_and_leaves_nothing(
    delegated: tuple[Backend, Path],
) -> None:
    backend, unit = delegated
    (home,) = unit.glob("edged-*")
    (home / "cgroup.subtree_control").write_text("cpu pids")  # another's hand
    with pytest.raises(SandboxSetupError, match="No such file"):
        backend.open("x", Limits())
    assert [child for child in home.iterdir() if child.is_dir()] == []


def test_no_group_file_system_at_all_is_watched(root: Path) -> None:
    backend = detect(str(root / "none"), str(root))
    assert backend.level == "watch"
    assert "mount cgroup2" in backend.remedy
    backend.close()


def test_groups_can_be_left_unused(root: Path) -> None:
    """`sandbox: {limits: rlimits}` of the configuration."""
    files = Kernel2(root)
    backend = detect(cgroup_file(root, "0::/\n"), str(root), files, watch_only=True)
    assert backend.level == "watch"
    assert "limits: auto" in backend.describe()
    assert not list(root.glob("edged-*"))
    backend.close()


async def test_call_without_any_group_has_no_counts(root: Path) -> None:
    backend = detect(str(root / "none"), str(root))
    group = backend.open("x", Limits())
    child = subprocess.Popen(["sleep", "600"])  # in no PID namespace of its own: not watched
    group.add(child.pid)
    assert (group.memory_exceeded(), group.tasks_exceeded()) == (False, False)
    assert (group.memory(), group.cpu_s()) == (None, None)
    await group.close()
    assert child.wait() == -signal.SIGKILL
    backend.close()


async def test_kill_is_harmless_at_any_time(delegated: tuple[Backend, Path]) -> None:
    backend, _ = delegated
    group = backend.open("x", Limits())
    child = subprocess.Popen(["sleep", "600"])
    other = subprocess.Popen(["sleep", "600"])
    group.add(child.pid)
    group.add(other.pid)
    group.kill()
    assert child.wait() == -signal.SIGKILL
    group.kill()
    await group.close()
    group.kill()
    await group.close()
    other.kill()
    other.wait()


async def test_process_that_cannot_be_limited_is_refused(delegated: tuple[Backend, Path]) -> None:
    backend, unit = delegated
    group = backend.open("x", Limits())
    shutil.rmtree(group_of(unit))
    child = subprocess.Popen(["sleep", "600"])
    with pytest.raises(SandboxSetupError, match="cannot be put in"):
        group.add(child.pid)
    assert not group.memory_exceeded()
    await group.close()
    assert child.wait() == -signal.SIGKILL


def test_strangers_of_another_pid_namespace_are_not_signalled(root: Path) -> None:
    """Read from inside a namespace cgroup.procs says 0 for them; kill(2) takes 0 for us."""
    files = Kernel1(root, "memory", "pids")
    files.make(f"{root}/memory/edged-1-aaaaaa")
    files.make(f"{root}/memory/edged-1-aaaaaa/1-x")
    Path(root, "memory/edged-1-aaaaaa/1-x/cgroup.procs").write_text("0\n")
    detect(cgroup_file(root, "4:memory:/\n"), str(root), files).close()
    assert not list(root.glob("memory/edged-1-*"))


async def test_v1_holds_memory_and_tasks_below_the_daemons_own_groups(root: Path) -> None:
    """cgroup-v1/memory.rst; the path is another in each hierarchy."""
    files = Kernel1(root, "memory", "pids")
    files.make(f"{root}/memory/own")
    text = "4:memory:/own\n8:pids:/hidden/by/namespace\n3:cpu,cpuacct:/\n0::/\n"
    backend = detect(cgroup_file(root, text), str(root), files)
    assert backend.level == "cgroup1"
    group = backend.open("x", Limits(memory_max=5 * MIB, tasks_max=7))
    (memory,) = (root / "memory/own").glob("edged-*/1-x")
    (pids,) = (root / "pids").glob("edged-*/1-x")
    assert (memory / "memory.limit_in_bytes").read_text() == str(5 * MIB)
    assert (pids / "pids.max").read_text() == "7"
    (memory / "memory.usage_in_bytes").write_text("8192\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert group.memory_exceeded()
    assert group.memory() == 8192
    assert group.cpu_s() is None
    await group.close()
    backend.close()
    assert not list(root.glob("**/edged-*"))


@pytest.mark.parametrize(
    ("under_oom", "failcnt", "exceeded"), [(0, 0, False), (1, 0, True), (0, 3, True)]
)
async def test_v1_before_the_count_of_kills_is_judged_by_the_limit(
    root: Path, under_oom: int, failcnt: int, exceeded: bool
) -> None:
    """memory.oom_control has oom_kill since Linux 4.13."""
    files = Kernel1(root, "memory", "pids")
    backend = detect(cgroup_file(root, "4:memory:/\n8:pids:/\n"), str(root), files)
    group = backend.open("x", Limits())
    (memory,) = (root / "memory").glob("edged-*/1-x")
    (memory / "memory.oom_control").write_text(f"oom_kill_disable 0\nunder_oom {under_oom}\n")
    (memory / "memory.failcnt").write_text(f"{failcnt}\n")
    assert group.memory_exceeded() is exceeded
    await group.close()
    backend.close()


def test_v1_controller_that_does_not_work_is_left_out(root: Path) -> None:
    files = Kernel1(root, "memory", "pids")
    files.files = {"memory": (), "pids": ("pids.max",)}
    backend = detect(cgroup_file(root, "4:memory:/\n8:pids:/\n"), str(root), files)
    assert backend.level == "watch"
    assert "tasks by cgroup v1" in backend.describe()
    assert not list((root / "memory").iterdir())
    backend.close()


def test_what_a_dead_daemon_left_is_killed_and_removed(root: Path) -> None:
    """`kill -9` of the daemon leaves no sandbox process; its lock is free then."""
    files = Kernel1(root, "memory", "pids")
    orphan = subprocess.Popen(["sleep", "600"])
    for controller in ("memory", "pids"):
        files.make(f"{root}/{controller}/edged-1-aaaaaa")
        files.make(f"{root}/{controller}/edged-1-aaaaaa/1-x")
        Path(root, controller, "edged-1-aaaaaa/1-x/cgroup.procs").write_text(f"{orphan.pid}\n")
        Path(root, controller, "other").mkdir()
    backend = detect(cgroup_file(root, "4:memory:/\n8:pids:/\n"), str(root), files)
    assert orphan.wait() == -signal.SIGKILL
    assert not list(root.glob("*/edged-1-*"))
    assert len(list(root.glob("*/other"))) == 2
    backend.close()


def test_groups_of_a_living_daemon_are_not_swept(root: Path) -> None:
    files = Kernel1(root, "memory", "pids")
    text = cgroup_file(root, "4:memory:/\n8:pids:/\n")
    first = detect(text, str(root), files)
    second = detect(text, str(root), files)
    assert len(list(root.glob("*/edged-*"))) == 4
    first.close()
    second.close()


class Tree:
    """A /proc with processes whose namespaces and memory the test decides."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "version").touch()
        self.process("self", "pid:[1]")

    def process(self, pid: str, namespace: str, kib: int | None = 0) -> None:
        directory = self.root / pid
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/pid").symlink_to(namespace)
        self.status(directory, kib)

    def status(self, directory: Path, kib: int | None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        rows = "" if kib is None else f"RssAnon:\t{kib} kB\nRssFile:\t9999 kB\nRssShmem:\t4 kB\n"
        (directory / "status").write_text("Name:\tx\nState:\tS\n" + rows)


@pytest.fixture
def tree(root: Path) -> Tree:
    return Tree(root)


async def test_watch_sums_the_tree_and_tells_once(tree: Tree) -> None:
    """Anonymous and shared memory count, file pages do not; other trees do not."""
    tree.process("10", "pid:[7]", 500)
    tree.process("11", "pid:[7]", 500)
    tree.process("12", "pid:[1]", 99999)
    told: list[str] = []
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, lambda: told.append("over"))
    assert watched is not None
    watch.sample()
    assert (watched.memory, watched.exceeded, told) == (1008 * 1024, False, [])
    tree.process("13", "pid:[7]", 100)
    watch.sample()
    watch.sample()
    assert (watched.exceeded, told) == (True, ["over"])
    watched.stop()


async def test_pages_that_forks_share_count_once(tree: Tree) -> None:
    """proc_pid_smaps(5): Pss divides a page by its sharers; sixty forks are no hog."""
    for pid in ("10", "11", "12"):
        tree.process(pid, "pid:[7]", 900)
        (tree.root / pid / "smaps_rollup").write_text(
            "55d0-7ffe ---p 0 00:00 0 [rollup]\n"
            "Rss: 900 kB\nPss: 310 kB\nPss_Anon: 300 kB\nPss_File: 6 kB\nPss_Shmem: 4 kB\n"
        )
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, lambda: None)
    assert watched is not None
    watch.sample()
    assert (watched.memory, watched.exceeded) == (3 * 304 * 1024, False)
    (tree.root / "12/smaps_rollup").write_text("rollup\nPss_Anon: 900 kB\nPss_Shmem: 4 kB\n")
    watch.sample()
    assert watched.exceeded
    watched.stop()


MAPS = """\
55d0a0000000-55d0a0001000 r--p 00000000 fe:00 123                        /usr/bin/python3.11
7f0000000000-7f0000080000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7f0000080000-7f0000100000 r--s 00080000 00:01 77                         /dev/zero (deleted)
7f0000100000-7f0000200000 rw-p 00000000 00:01 78                         /dev/zero (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
"""


def test_shared_anonymous_mappings_are_found_by_inode() -> None:
    """proc_pid_maps(5); a private mapping of /dev/zero is anonymous memory like any."""
    assert parse_maps(MAPS) == {"77": MIB}
    assert parse_maps("") == {}


async def test_shared_pages_that_are_not_resident_count_once(tree: Tree) -> None:
    """madvise(2): after MADV_DONTNEED the pages of a shared mapping are kept, and unseen."""
    for pid in ("10", "11"):
        tree.process(pid, "pid:[7]", 100)
        (tree.root / pid / "maps").write_text(MAPS)
        (tree.root / pid / "smaps_rollup").write_text(
            "rollup\nPss_Anon: 100 kB\nPss_Shmem: 4 kB\n"
        )
    watch = Watch(str(tree.root))
    watched = watch.start(10, 2 * MIB, lambda: None)
    assert watched is not None
    watch.sample()
    assert (watched.memory, watched.exceeded) == (MIB + 200 * 1024, False)
    tree.status(tree.root / "10", 1000)
    (tree.root / "10/smaps_rollup").write_text("rollup\nPss_Anon: 1000 kB\nPss_Shmem: 4 kB\n")
    watch.sample()
    assert watched.exceeded
    watched.stop()


async def test_where_parts_are_not_shown_whole_pages_count(tree: Tree) -> None:
    """Before Linux 5.3, or where the file may not be read, the limit holds all the same."""
    tree.process("10", "pid:[7]", 2048)
    (tree.root / "10/smaps_rollup").mkdir()
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, lambda: None)
    assert watched is not None
    watch.sample()
    assert watched.exceeded
    watched.stop()
    assert parse_rollup("rollup\nPss: 3 kB\n") is None


async def test_watch_sees_memory_behind_an_ended_first_thread(tree: Tree) -> None:
    """/proc/PID/status of such a process shows no memory; its other threads' do."""
    tree.process("10", "pid:[7]", None)
    tree.status(tree.root / "10/task/10", None)
    tree.status(tree.root / "10/task/14", 2048)
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, lambda: None)
    assert watched is not None
    watch.sample()
    assert watched.exceeded
    watched.stop()


async def test_watch_passes_over_what_ends_under_its_eyes(tree: Tree) -> None:
    tree.process("10", "pid:[7]", 8)
    (tree.root / "10/status").unlink()
    tree.process("11", "pid:[7]", None)
    (tree.root / "12").mkdir()
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, lambda: None)
    assert watched is not None
    watch.sample()
    assert watched.memory == 0
    watched.stop()


async def test_watch_refuses_what_has_no_namespace_of_its_own(tree: Tree) -> None:
    tree.process("10", "pid:[1]")
    watch = Watch(str(tree.root))
    assert watch.start(10, MIB, lambda: None) is None
    assert watch.start(99, MIB, lambda: None) is None
    assert watch.period_s is None


async def test_idle_watch_has_no_timer(tree: Tree) -> None:
    tree.process("10", "pid:[7]")
    tree.process("11", "pid:[8]")
    watch = Watch(str(tree.root))
    first = watch.start(10, MIB, lambda: None)
    second = watch.start(11, MIB, lambda: None)
    assert first is not None
    assert second is not None
    first.stop()
    assert watch.period_s == SAMPLE_S
    second.stop()
    second.stop()
    assert watch.period_s is None


async def test_waiting_spares_are_looked_at_once_a_second(tree: Tree) -> None:
    """An idle daemon with warm spares must cost no CPU to speak of."""
    tree.process("10", "pid:[7]")
    tree.process("11", "pid:[8]")
    watch = Watch(str(tree.root))
    first = watch.start(10, MIB, lambda: None)
    second = watch.start(11, MIB, lambda: None)
    assert first is not None
    assert second is not None
    first.rest(True)
    assert watch.period_s == SAMPLE_S
    second.rest(True)
    assert watch.period_s == REST_SAMPLE_S
    first.rest(False)
    assert watch.period_s == SAMPLE_S
    first.stop()
    assert watch.period_s == REST_SAMPLE_S
    second.stop()
    assert watch.period_s is None


async def test_number_of_an_ended_stranger_is_looked_at_again(tree: Tree) -> None:
    """Process numbers are given out anew once they are free."""
    tree.process("10", "pid:[7]", 8)
    tree.process("11", "pid:[1]", 8)
    over = asyncio.Event()
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, over.set)
    watch.sample()
    shutil.rmtree(tree.root / "11")
    tree.process("11", "pid:[7]", 4096)
    async with asyncio.timeout(10):
        await over.wait()
    assert watched is not None
    watched.stop()


async def test_one_end_during_a_sample_does_not_harm_the_others(tree: Tree) -> None:
    tree.process("10", "pid:[7]", 4096)
    tree.process("11", "pid:[8]", 4096)
    watch = Watch(str(tree.root))
    ended: list[int] = []

    def stop_all() -> None:
        ended.append(1)
        for watched in both:
            assert watched is not None
            watched.stop()

    both = [watch.start(10, MIB, stop_all), watch.start(11, MIB, stop_all)]
    watch.sample()
    assert ended == [1]
    assert watch.period_s is None


async def test_watch_looks_by_itself_while_something_runs(tree: Tree) -> None:
    tree.process("10", "pid:[7]", 4096)
    over = asyncio.Event()
    watch = Watch(str(tree.root))
    watched = watch.start(10, MIB, over.set)
    async with asyncio.timeout(10):
        await over.wait()
    assert watch.period_s == SAMPLE_S
    assert watched is not None
    watched.stop()


def test_process_groups_are_parsed_by_controller() -> None:
    """cgroups(7); a co-mounted pair, a named hierarchy, a path with a colon."""
    text = "9:name=systemd:/a\n3:cpu,cpuacct:/b\n0::/c:d\n"
    assert parse_proc_cgroup(text) == {
        "name=systemd": "/a",
        "cpu": "/b",
        "cpuacct": "/b",
        "": "/c:d",
    }


def test_flat_files_are_parsed() -> None:
    assert parse_flat("low 0\noom_kill 2\n") == {"low": 0, "oom_kill": 2}
    assert parse_flat("") == {}


def test_status_gives_bytes_and_nothing_for_a_zombie() -> None:
    """proc_pid_status(5): values in kB."""
    assert parse_status("RssAnon:\t  8 kB\nRssFile:\t 5 kB\nRssShmem:\t 2 kB\n") == (8192, 2048)
    assert parse_status("Name:\tx\nState:\tZ (zombie)\n") is None


def test_rlimits_follow_the_call(root: Path) -> None:
    limits = Limits(wall_s=1.5, memory_max=64 * MIB, data_reserve=0, tasks_max=9)
    assert rlimits(limits, 4, "watch", {}) == {
        "core": 0,
        "cpu": 6,
        "data": 64 * MIB,
        "fsize": 256 * MIB,
        "memlock": 65536,
        "nofile": 128,
        "nproc": 9,
    }


@pytest.mark.parametrize("level", ["cgroup1", "cgroup2"])
def test_data_limit_is_looser_where_the_kernel_counts_the_tree(level: module.Level) -> None:
    limits = Limits(memory_max=64 * MIB, data_reserve=10 * MIB)
    values = rlimits(limits, 1, level, {})
    assert (values["data"], values["nofile"]) == (138 * MIB, 512)


def test_limits_never_exceed_what_this_process_may_have() -> None:
    """setrlimit(2): a raised hard limit is EPERM, and the script would end."""
    values = rlimits(Limits(cpu_s=7), 1, "watch", {"nofile": 100, "nproc": -1, "cpu": 9})
    assert (values["nofile"], values["nproc"], values["cpu"]) == (100, 64, 7)
    own = hard_limits()
    for name, value in rlimits(Limits(nofile=10**9), 1, "watch").items():
        assert own[name] < 0 or value <= own[name]


def test_script_sets_every_limit_in_units_of_the_shell() -> None:
    """POSIX ulimit: -f in 512 bytes; dash(1), bash(1) POSIX mode: -c too, -d and -l in 1024."""
    values = rlimits(Limits(memory_max=64 * MIB, data_reserve=0), 1, "watch", {})
    script = (
        "set -e; ulimit -c 0; ulimit -d 65536; ulimit -f 524288; ulimit -l 64;"
        " ulimit -n 128; ulimit -t 61; ulimit -S -t 60;"
        ' ulimit -p 64 2>/dev/null || ulimit -u 64; exec "$@"'
    )
    assert ulimit_script(values, ["python3", "a b"]) == [
        "/bin/sh",
        "-c",
        script,
        "sh",
        "python3",
        "a b",
    ]
