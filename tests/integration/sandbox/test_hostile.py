"""Tools that try to get out, to stay, or to take everything; each kind ends HELD.

The bodies under tests/data/hostile judge themselves; those here are judged from the host.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator

import pytest

from edged.sandbox.profile import MIB, Bind, Limits

BODIES = os.path.join(os.path.dirname(__file__), "..", "..", "data", "hostile")
RUN_BODY = """
import contextlib, io, os, runpy
def execute(call, params):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(os.path.join(os.path.dirname(__file__), "body.py"))
    return out.getvalue()
"""


def text(outcome) -> str:
    return "\n".join(block.get("text", "") for block in outcome.result["content"])


@pytest.fixture
def plant(account, monkeypatch) -> Iterator[dict[str, str]]:
    """What a careless host leaves about: a secret, sockets, a process, open descriptors."""
    monkeypatch.setenv("DAEMON_SECRET", "1")
    folder = tempfile.mkdtemp(prefix="edged-plant-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    with open(folder + "/secret", "w") as file:
        file.write("secret")
    leak = os.open(folder, os.O_RDONLY)
    os.set_inheritable(leak, True)
    abstract = uuid.uuid4().hex
    root = (
        {"user": account.uid, "group": account.gid, "extra_groups": []}
        if os.geteuid() == 0
        else {}
    )
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as path,
        socket.socket(socket.AF_UNIX) as name,
        subprocess.Popen(["/bin/sleep", "600"], **root) as victim,
    ):
        path.bind(folder + "/socket")
        name.bind("\0" + abstract)
        for server in (path, name):
            server.listen()
        os.chmod(folder + "/socket", 0o777)
        yield {
            "PLANT": folder,
            "ABSTRACT": abstract,
            "PORT": str(tcp.getsockname()[1]),
            "VICTIM": str(victim.pid),
        }
        victim.kill()
    os.close(leak)
    shutil.rmtree(folder)


def _job(workshop, name: str, env: dict[str, str], **more):
    with open(os.path.join(BODIES, name)) as file:
        body = file.read()
    env = {
        **env,
        "ENTRY": f"/officer/tools/tool_{workshop._count + 1}/index." + name.rpartition(".")[2],
    }
    if name.endswith(".sh"):
        return workshop.job("bash", body, env=env, **more)
    return workshop.job("python", RUN_BODY, files={"body.py": body}, env=env, **more)


@pytest.mark.parametrize("name", sorted(os.listdir(BODIES)))
async def test_a_hostile_body_is_held(workshop, plant, name: str) -> None:
    outcome = await workshop.pool.call(_job(workshop, name, plant), "1", {})
    assert text(outcome).splitlines()[-1:] == ["HELD"], text(outcome)


async def test_with_the_network_no_unix_socket_of_the_host_is_in_reach(workshop, plant) -> None:
    """An own network namespace hides abstract sockets; where it is shared, the filter does."""
    source = """
import os, socket
def execute(call, params):
    reached = []
    for address in (os.environ['PLANT'] + '/socket', '\\0' + os.environ['ABSTRACT']):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(address)
        except OSError:
            continue
        reached.append(address)
    with socket.create_connection(('127.0.0.1', int(os.environ['PORT']))):
        return 'HELD' if not reached else str(reached)
"""
    outcome = await workshop.call("python", source, env=plant, network=True)
    assert text(outcome) == "HELD"


async def test_a_spare_is_held_as_well_and_sees_nothing_of_the_call_before(
    warm_workshop, plant
) -> None:
    pool = warm_workshop.pool
    for name in ("state_write.py", "descriptors.py", "processes.py"):
        job = _job(warm_workshop, name, plant)
        for _ in range(2):
            outcome = await pool.call(job, "1", {})
            assert text(outcome).splitlines() == ["HELD"]
            await warm_workshop.warm(job)
        assert outcome.warm
    assert text(await pool.call(_job(warm_workshop, "state_read.py", plant), "1", {})) == "HELD\n"


# Staying


def _alive(mark: str) -> list[str]:
    """Processes whose variables hold a mark and that may run on; what is dead has none."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read() and not _is_killed(name):
                    found.append(name)
        except OSError:
            continue
    return found


def _is_killed(pid: str) -> bool:
    """Whether it never runs again: SIGKILL is pending, or it is on its way out.

    proc_pid_status(5): SigPnd, ShdPnd; proc_pid_stat(5): flags, of which PF_EXITING is 4.
    """
    with open(f"/proc/{pid}/status") as file:
        rows = dict(line.split(":", 1) for line in file if ":" in line)
    pending = int(rows["SigPnd"], 16) | int(rows["ShdPnd"], 16)
    with open(f"/proc/{pid}/stat") as file:
        state, *fields = file.read().rpartition(")")[2].split()
    return bool(pending & 1 << signal.SIGKILL - 1) or state in "ZX" or bool(int(fields[5]) & 4)


STAY = {
    "daemon": "if not os.fork():\n  os.setsid()\n  if not os.fork(): stay()\n  os._exit(0)",
    "ignoring signals": "if not os.fork():\n  for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n  stay()",
    "holding the pipes": "subprocess.Popen(['sleep', '600'])",
    "stopped": "if not os.fork(): os.kill(os.getpid(), signal.SIGSTOP)",
    "busy": "for n in range(4):\n  if not os.fork():\n    while True: pass",
    "forking": "if not os.fork():\n  while True:\n    if os.fork(): os._exit(0)",
}
ENDS = {
    "a result": ("return 'done'", "ok"),
    "an exception": ("raise ValueError('x')", "failed"),
    "exit": ("os._exit(3)", "exit"),
    "a crash": ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed"),
    "the time limit": ("stay()", "timeout"),
}


@pytest.mark.parametrize("stay", STAY)
@pytest.mark.parametrize("end", ENDS)
async def test_nothing_of_a_call_lives_when_it_has_returned(workshop, stay: str, end: str) -> None:
    """Facts on sandboxes, 3: outliving the call, the held pipe."""
    mark = f"mark-{uuid.uuid4()}"
    body = f"{STAY[stay]}\n{ENDS[end][0]}".replace("\n", "\n    ")
    source = f"import os, signal, subprocess\ndef stay():\n  while True: signal.pause()\ndef execute(c, p):\n    {body}\n"
    async with asyncio.timeout(10):
        outcome = await workshop.call(
            "python", source, env={"MARK": mark}, limits=Limits(wall_s=1)
        )
    assert _alive(mark) == []
    assert outcome.reason == ENDS[end][1]


async def test_nothing_of_a_shells_call_lives_when_it_has_returned(workshop) -> None:
    mark = f"mark-{uuid.uuid4()}"
    source = "(trap '' TERM HUP; sleep 600 & setsid sleep 600 & ) & disown\necho done"
    async with asyncio.timeout(10):
        outcome = await workshop.call("bash", source, env={"MARK": mark})
    assert _alive(mark) == []
    assert text(outcome) == "done"


@pytest.mark.parametrize(
    "body",
    [
        "for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(s, signal.SIG_IGN)\n  stay()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "os.close(0); os.close(1); os.close(2)\n  stay()",
        "os.kill(os.getppid(), signal.SIGSTOP); stay()",
        "import ctypes\n  ctypes.CDLL(None).prctl(1, 0)\n  stay()",
    ],
    ids=["signals ignored", "stopped", "pipes closed", "parent stopped", "death signal off"],
)
async def test_a_call_ends_at_its_time_limit_whatever_it_does(workshop, body: str) -> None:
    source = f"import os, signal\ndef stay():\n  while True: signal.pause()\ndef execute(c, p):\n  print('before')\n  {body}\n"
    async with asyncio.timeout(10):
        outcome = await workshop.call("python", source, limits=Limits(wall_s=1))
    assert outcome.reason == "timeout"
    assert (
        text(outcome)
        == "stopped after 1 s, its time limit; `timeout: 2` in TOOL.md allows more\n\nIt wrote:\nbefore"
    )


# Taking everything


@pytest.mark.parametrize("language", ["python", "bash"])
async def test_a_flood_ends_the_call_and_names_the_limit(workshop, language: str) -> None:
    source = {
        "python": "import os\ndef execute(c, p):\n  while True:\n    os.write(1, bytes(65536)); os.write(2, bytes(65536))",
        "bash": "yes flood",
    }[language]
    outcome = await workshop.call(language, source)
    assert outcome.reason == "output"
    assert "stopped after 64 MiB of output" in text(outcome)
    assert len(text(outcome)) < 4 * MIB
    assert outcome.bytes_seen < 66 * MIB


async def test_a_flood_of_updates_ends_the_call_too(workshop) -> None:
    outcome = await workshop.call(
        "python", "def execute(c, p, s, u):\n  while True: u('x' * 100000)"
    )
    assert outcome.reason == "output"


async def test_of_too_many_updates_the_last_one_counts(workshop) -> None:
    """An update replaces the one before it (contract, section 7); each costs its readers time."""
    seen: list[str] = []
    source = """
import time
def execute(c, p, s, u):
    for number in range(1000):
        u(str(number))
    until = time.monotonic() + 20
    while not __import__("os").path.exists("stop") and time.monotonic() < until:
        pass
"""
    job = workshop.job("python", source)

    def on_update(content) -> None:
        seen.append(content[0]["text"])
        if seen[-1] == "999":
            open(os.path.join(workshop.data, "stop"), "w").close()

    await workshop.pool.call(job, "1", {}, on_update)
    assert seen[:100] == [str(number) for number in range(100)]
    assert seen[-1] == "999"
    assert len(seen) < 300


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "def execute(c, p): return {'content': [], 'structured': [[]] * 300000}"),
        ("bash", "echo '{\"content\": [], \"x\": ['; yes '[],' | head -300000; echo '0]}'"),
    ],
)
async def test_a_result_of_too_many_values_is_not_decoded(workshop, language, code) -> None:
    """16 MiB of brackets would take 400 MiB of the daemon, outside the tool's limits."""
    outcome = await workshop.call(language, code)
    if language == "bash":
        assert text(outcome).startswith('{"content"')  # text that begins with a brace
    else:
        assert "more than 200,000 values" in text(outcome)
        assert outcome.result["isError"]


FORGE = """
import os
def send(kind, data, more=b'.'):
    nonce = open('/proc/self/cmdline').read().split(chr(0))[-2].encode()
    for at in range(0, len(data), 4000):
        part = data[at:at + 4000]
        last = more if at + 4000 >= len(data) else b'+'
        os.write(1, b'\\x1e' + nonce + kind + last + b'%04x' % len(part) + part)
"""


async def test_parts_of_messages_that_are_never_whole_count_as_output(workshop) -> None:
    """Frames that are thrown away cost the daemon as much to read."""
    source = """
import os
def execute(c, p):
    nonce = open('/proc/self/cmdline').read().split(chr(0))[-2].encode()
    while True: os.write(1, (b'\\x1e' + nonce + b'u+0000') * 1000)
"""
    outcome = await workshop.call("python", source)
    assert outcome.reason == "output"


@pytest.mark.parametrize("kinds", ["u", "utr", "xyz"])
async def test_messages_that_never_end_end_the_call(workshop, kinds: str) -> None:
    """Every buffer is bounded; a tool can read the nonce in /proc/self/cmdline."""
    source = f"{FORGE}\ndef execute(c, p):\n  while True:\n    for kind in {kinds!r}: send(kind.encode(), b'x' * 400000, b'+')"
    outcome = await workshop.call("python", source)
    assert outcome.reason == "output"


async def test_json_that_is_nested_too_deeply_harms_nothing(workshop, caplog) -> None:
    """Not the reader's callback either, which would log a line for each."""
    updates: list[object] = []
    source = f"{FORGE}\ndef execute(c, p, s, u):\n  for _ in range(9): send(b'u', b'[' * 100000)\n  u('seen')\n  send(p['kind'].encode(), b'[' * 100000); return 'done'"
    job = workshop.job("python", source)
    outcome = await workshop.pool.call(job, "1", {"kind": "u"}, updates.append)
    assert (text(outcome), updates) == ("done", [[{"type": "text", "text": "seen"}]])
    outcome = await workshop.pool.call(job, "1", {"kind": "r"})
    assert outcome.reason == "failed"
    assert "maximum recursion depth exceeded" in text(outcome)
    assert text(
        await workshop.call("bash", "head -c 100000 /dev/zero | tr '\\0' '[' | sed 's/^/{\"a\":/'")
    ).startswith('{"a":[[[')
    assert caplog.records == []


HOGS = {
    "one process": "keep = [bytearray(b'x' * (16 << 20)) for _ in range(64)]",
    "sixteen processes": "for _ in range(16):\n    if not os.fork():\n      keep = bytearray(b'x' * (64 << 20)); signal.pause()\n  signal.pause()",
    "a shared map": "m = mmap.mmap(-1, 1 << 30)\n  for n in range(0, 1 << 30, 4096): m[n] = 1",
    "a shared map, given back": "m = mmap.mmap(-1, 1 << 30)\n  for n in range(0, 1 << 30, 1 << 24): m[n:n + (1 << 24)] = bytes([7]) * (1 << 24); m.madvise(mmap.MADV_DONTNEED, n, 1 << 24)\n  signal.pause()",
    "a memfd": "f = os.memfd_create('x')\n  for _ in range(64): os.write(f, b'x' * (16 << 20))",
}


@pytest.mark.parametrize("watch", [False, True], ids=["best", "watch"])
@pytest.mark.parametrize("hog", HOGS)
async def test_a_memory_hog_ends_with_the_limit_and_the_line(
    make_workshop, hog: str, watch: bool
) -> None:
    """Facts on sandboxes, 5; the limit of the tree is 200 MiB, the hogs ask for 1 GiB.

    What the watch cannot see is refused: memfd.
    """
    source = f"import mmap, os, signal\ndef execute(c, p):\n  {HOGS[hog]}\n  return 'ESCAPED'"
    bounds = Limits(memory_max=200 * MIB, data_reserve=0, file_size_max=2 << 30)
    async with make_workshop(warm_memory=0, watch=watch) as workshop:
        outcome = await workshop.call("python", source, limits=bounds)
        watched = workshop.pool._machine.backend.level == "watch"
    if hog == "a memfd" and watched:
        assert "Function not implemented" in text(outcome)
    else:
        assert outcome.reason in ("memory", "failed")
        assert "its limit is 200 MiB; `memory: 400M` in TOOL.md allows more" in text(outcome)


async def test_where_memory_is_only_watched_buffers_keep_their_size(make_workshop) -> None:
    """What sockets and pipes hold is of no process: no mappings, no resident pages."""
    source = """
import fcntl, resource, socket
def tried(act, *args):
    try: act(*args); return 'ESCAPED'
    except OSError as e: return e.strerror
def execute(c, p):
    a, b = socket.socketpair()
    said = [tried(a.setsockopt, socket.SOL_SOCKET, option, 8 << 20) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    said.append(tried(fcntl.fcntl, __import__('os').pipe()[1], fcntl.F_SETPIPE_SZ, 1 << 20))
    return f"{set(said)} {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}"
"""
    async with make_workshop(warm_memory=0, watch=True) as workshop:
        outcome = await workshop.call("python", source)
    assert text(outcome) == "{'Operation not permitted'} 128"


async def test_a_node_hog_ends_with_the_limit_and_the_line(workshop) -> None:
    source = "export async function execute() { const keep = []; for (;;) keep.push(Buffer.alloc(16 << 20, 1)); }"
    outcome = await workshop.call("typescript", source)
    assert outcome.result["isError"]
    assert "`memory: 512M` in TOOL.md allows more" in text(outcome)


FILLERS = {
    "one file": "open(D + 'big', 'wb').write(bytes(100 << 20))",
    "many files": "for n in range(300): open(D + str(n), 'wb').write(bytes(1 << 20))\n  signal.pause()",
    "a deep tree": "for n in range(140):\n    os.mkdir(D + 'd'); os.chdir(D + 'd'); D = ''\n  open('big', 'wb').write(bytes(50 << 20))\n  signal.pause()",
    "files with old dates": "for n in range(9): open(D + str(n), 'wb').write(bytes(20 << 20)); os.utime(D + str(n), (0, 0))\n  signal.pause()",
}
HIDERS = {
    "files without a name": "for n in range(9): keep.append(unnamed())\n  signal.pause()",
    "files that are only mapped": "for n in range(9):\n    f = unnamed(); assert libc.mmap(None, 4096, 1, 1, f.fileno(), 0) != MAP_FAILED; f.close()\n  signal.pause()",
    "files under way in a socket": "ends = socket.socketpair()\n  for n in range(9):\n    f = unnamed(); socket.send_fds(ends[0], [b'x'], [f.fileno()]); f.close()\n  signal.pause()",
    "files under way to the daemon": "end = socket.socket(fileno=int(os.environ['EDGED_CALLS_FD']))\n  for n in range(16):\n    f = unnamed(); socket.send_fds(end, [LINE], [f.fileno()]); f.close()\n  signal.pause()",
    "files of a second thread": "if not os.fork():\n    def hold():\n      for n in range(9): keep.append(unnamed())\n      signal.pause()\n    threading.Thread(target=hold).start(); libc.syscall(EXIT, 0)\n  signal.pause()",
    "a running program": "for n in range(9):\n    f = unnamed(True); f.close(); keep.append(subprocess.Popen([f.name, '600'])); os.unlink(f.name)\n  signal.pause()",
    "files of one that may not be looked at": "libc.prctl(4, 0)  # PR_SET_DUMPABLE\n  for n in range(9): keep.append(unnamed())\n  signal.pause()",
}
HIDE = """
import ctypes, os, shutil, signal, socket, struct, subprocess, threading
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
MAP_FAILED = ctypes.c_void_p(-1).value
EXIT = {'x86_64': 60}.get(os.uname().machine, 93) if struct.calcsize('P') == 8 else 1
LINE = b'{"id": 1, "name": "x"}\\n'
keep = []
def unnamed(program=False):
    path = f'/officer/data/x{len(os.listdir("/officer/data"))}'
    if program: shutil.copy('/bin/sleep', path)
    f = open(path, 'a+b')
    f.write(bytes(20 << 20)); f.flush()
    if not program: os.unlink(path)
    return f
"""


@pytest.mark.parametrize("filler", FILLERS)
async def test_a_disk_filler_is_stopped(workshop, filler: str) -> None:
    """Facts on sandboxes, 3: one file by RLIMIT_FSIZE, the sum by a watch."""
    source = f"import os, signal\ndef execute(c, p):\n  D = '/officer/data/'\n  {FILLERS[filler]}\n  return 'ESCAPED'"
    disk_max = (400 if filler == "one file" else 40) * MIB
    outcome = await workshop.call(
        "python", source, limits=Limits(wall_s=20, file_size_max=64 * MIB, disk_max=disk_max)
    )
    assert outcome.result["isError"]
    if filler == "one file":
        assert "one file of this tool may have 64 MiB" in text(outcome)
    else:
        assert "stopped: it added more than 40 MiB to its directories" in text(outcome)


@pytest.mark.parametrize("hider", HIDERS)
async def test_a_disk_filler_that_hides_its_files_is_stopped(workshop, hider: str) -> None:
    """What holds a file without a name is seen, if not how large the file is."""
    job = workshop.job(
        "python",
        f"{HIDE}\ndef execute(c, p):\n  {HIDERS[hider]}\n  return 'ESCAPED'",
        limits=Limits(wall_s=20, disk_max=100 * MIB),
        calls=True,
    )
    never = asyncio.get_running_loop().create_future()

    async def handler(_name, _arguments):
        return await never  # so that further calls wait, unread

    outcome = await workshop.pool.call(job, "1", {}, calls_handler=handler)
    assert "stopped: it added more than 100 MiB to its directories" in text(outcome)


MAKERS = {
    "files": "open(D + str(n), 'w').close()",
    "directories": "os.mkdir(D + str(n))",
    "links": "os.symlink('x', D + str(n))",
    "pipes": "os.mkfifo(D + str(n))",
}


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_flood_of_files_is_stopped(workshop, maker: str) -> None:
    """Inodes run out before the space does, and stay taken after the call."""
    source = f"import os, signal\ndef execute(c, p):\n  D = '/officer/data/'\n  for n in range(8000): {MAKERS[maker]}\n  signal.pause()"
    outcome = await workshop.call("python", source, limits=Limits(wall_s=60, files_max=2000))
    assert outcome.reason == "files"
    assert "stopped: it added more than 2,000 files to its directories" in text(outcome)


async def test_a_tool_is_not_blamed_for_the_files_of_others(workshop) -> None:
    """The free inodes fall for all."""
    source = "import signal\ndef execute(c, p, s, u):\n  u('there')\n  signal.sigtimedwait([signal.SIGUSR1], 1)\n  return 'fine'"
    job = workshop.job("python", source, limits=Limits(wall_s=20, files_max=1000))

    def fill(_) -> None:
        for number in range(2000):
            open(f"{workshop.folder}/{number}", "w").close()

    assert text(await workshop.pool.call(job, "1", {}, fill)) == "fine"


async def test_a_tool_is_not_blamed_for_what_others_write(workshop) -> None:
    """The free space falls for all; only what changed in the tool's directories counts."""
    source = "import signal\ndef execute(c, p, s, u):\n  u('there')\n  signal.sigtimedwait([signal.SIGUSR1], 1)\n  return 'fine'"
    job = workshop.job("python", source, limits=Limits(wall_s=20, disk_max=4 * MIB))

    def fill(_) -> None:
        with open(workshop.folder + "/other", "wb") as file:
            file.write(bytes(32 * MIB))

    assert text(await workshop.pool.call(job, "1", {}, fill)) == "fine"


async def test_cpu_time_is_limited_for_each_process(workshop) -> None:
    source = "def execute(c, p):\n  while True: pass"
    outcome = await workshop.call("python", source, limits=Limits(wall_s=20, cpu_s=1))
    assert outcome.reason == "cpu"
    assert "stopped at its limit of CPU time" in text(outcome)


async def test_a_crash_is_told_with_its_signal(workshop) -> None:
    outcome = await workshop.call(
        "python", "import os, signal\ndef execute(c, p): os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert (outcome.reason, outcome.signal) == ("crashed", 11)
    assert text(outcome) == "crashed with signal 11 (SIGSEGV)"
    assert os.listdir(workshop.data) == []


async def test_others_are_served_while_hogs_run(workshop) -> None:
    """Issue 2: while another caller's calls go on answering."""
    limits = Limits(wall_s=3, memory_max=100 * MIB, disk_max=20 * MIB)
    hogs = [
        "import os\ndef execute(c, p):\n  while True:\n    try: os.fork()\n    except OSError: pass",
        "def execute(c, p):\n  while True: open('/officer/data/x', 'ab').write(bytes(1 << 20))",
        "def execute(c, p):\n  while True: pass",
    ]
    hello = workshop.job("python", "def execute(c, p): return 'hello'")
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(workshop.call("python", hog, limits=limits)) for hog in hogs]
        for _ in range(5):
            assert text(await workshop.pool.call(hello, "1", {})) == "hello"
    assert all(task.result().result["isError"] for task in running)


# What lies in the way


@pytest.mark.parametrize("swapped", ["data", "inner"])
async def test_a_link_in_the_way_of_a_bind_is_refused(workshop, swapped: str) -> None:
    """Facts on sandboxes, 7: a swapped link cannot redirect a bind."""
    job = workshop.job("python", "def execute(c, p): return 'ESCAPED'")
    os.makedirs(workshop.data + "/inner/leaf")
    place = workshop.data if swapped == "data" else workshop.data + "/inner"
    os.rename(place, workshop.folder + "/moved")
    os.symlink(workshop.folder + "/moved", place)
    leaf = "/inner/leaf"
    bind = Bind(
        source=workshop.data + leaf, target="/officer/leaf", write=True, anchor=workshop.folder
    )
    import msgspec

    profile = msgspec.structs.replace(job.profile, binds=(*job.profile.binds[:2], bind), cwd="/")
    outcome = await workshop.pool.call(msgspec.structs.replace(job, profile=profile), "1", {})
    assert outcome.reason == "sandbox-failed"
    assert f"'{os.path.basename(place)}' is a symbolic link" in text(outcome)


async def test_a_node_that_is_no_peripheral_is_not_given(workshop) -> None:
    """The controlling terminal stands for memory and disks, which not every machine shows."""
    import msgspec

    job = workshop.job("python", "def execute(c, p): return 'ESCAPED'")
    profile = msgspec.structs.replace(job.profile, devices=("/dev/i2c-4711", "/dev/tty"))
    outcome = await workshop.pool.call(msgspec.structs.replace(job, profile=profile), "1", {})
    assert outcome.reason == "sandbox-failed"
    assert "device /dev/tty is not given to tools: it reaches memory" in text(outcome)


SET_ID = """
cd /officer/data; touch file; mkdir folder
for mode in 4755 2755 6755 u+s; do chmod $mode file 2>/dev/null && echo "$mode ESCAPED"; done
python3 -c "
import os
for act in (lambda: os.open('made', os.O_CREAT | os.O_RDWR, 0o4755), lambda: os.open('.', os.O_TMPFILE | os.O_RDWR, 0o2755), lambda: os.mknod('node', 0o104755)):
    try: act(); print('ESCAPED')
    except OSError as e: print(e.strerror)
"
"""


async def test_no_file_that_a_tool_leaves_lends_its_account(workshop) -> None:
    """inode(7): S_ISUID and S_ISGID; the tools' account is in the daemon's group."""
    outcome = await workshop.call("bash", SET_ID)
    assert text(outcome).splitlines() == ["Operation not permitted"] * 3


COPIES = """
cd /officer/data; mkdir -p a/b; echo x > a/b/c; chmod 755 a/b/c
cp -rp a copied; tar cf a.tar a; mkdir out; tar xpf a.tar -C out; install -m 755 a/b/c installed
git init -q repository && cd repository && git config user.email a@b && git config user.name a
echo 1 > file; git add file; git commit -qm first; git clone -q . ../clone; cd ..
python3 -c "import shutil; shutil.copytree('a', 'tree')"
ls -d copied/b/c out/a/b/c installed clone/file tree/b/c
"""


@pytest.mark.parametrize("mode", [0o755, 0o2770])
async def test_copies_of_files_and_directories_keep_their_modes(workshop, mode: int) -> None:
    """A directory that people and tools share has S_ISGID, and those below inherit it."""
    os.chmod(workshop.data, mode)
    outcome = await workshop.call("bash", "exec 2>&1\n" + COPIES)
    assert text(outcome).split() == [
        "clone/file",
        "copied/b/c",
        "installed",
        "out/a/b/c",
        "tree/b/c",
    ]


async def test_a_failure_of_the_sandbox_itself_is_told_with_its_words(workshop, capsys) -> None:
    """Facts on sandboxes, 8: report as the sandbox's, with the line that shows it."""
    import msgspec

    job = workshop.job("python", "def execute(c, p): return 'x'")
    profile = msgspec.structs.replace(job.profile, cwd="/nowhere")
    outcome = await workshop.pool.call(msgspec.structs.replace(job, profile=profile), "1", {})
    assert outcome.reason == "sandbox-failed"
    assert text(outcome).startswith(
        "the sandbox could not be started: bwrap: Can't chdir to /nowhere"
    )
    assert "env -i bwrap --unshare-user" in capsys.readouterr().err
