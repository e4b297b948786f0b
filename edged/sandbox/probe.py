"""Whether this machine can run sandboxes: the whole profile once, on `true`.

Nothing falls back silently: where bubblewrap cannot start, calls are refused with
the remedy found here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from edged.errors import SandboxSetupError
from edged.sandbox import bwrap, proc, seccomp
from edged.sandbox.limits import Backend
from edged.sandbox.profile import Bind, Limits, Profile

PROBE_S = 10.0
"""Time for the probe; it takes some 20 ms on a PC and 100 on a Pi."""

_LINKS_FIXED = (0, 12, 0)
_OUTPUT_MAX = 64 * 1024
_MARK = "/probe"

INSTALL = "apt install bubblewrap"

_APPARMOR = (
    "AppArmor forbids user namespaces: install a profile for /usr/bin/bwrap that has"
    " `userns,` (do not switch the rule off for the whole system)"
)
_NAMESPACES = (
    "set sysctl kernel.unprivileged_userns_clone=1; in a systemd unit, list user mnt pid"
    " net ipc uts cgroup in RestrictNamespaces=; in a chroot, leave it"
)
_PROC = (
    "parts of /proc are hidden: remove ProtectKernelTunables=, ProtectKernelLogs= and"
    " ProtectHostname= from the unit; in a container, podman --security-opt unmask=ALL"
    " or docker --security-opt systempaths=unconfined"
)
_OPENAT2 = "remove RestrictSUIDSGID= and DynamicUser= from the unit (bubblewrap needs openat2)"
_MAX_NAMESPACES = "set sysctl user.max_user_namespaces=15000"
_TOO_OLD = "bubblewrap is too old: install 0.8.0-2+deb12u1, 0.12.0 or newer"

REMEDIES: tuple[tuple[str, str], ...] = (
    ("setuid use of bubblewrap is not supported", "undo the dpkg-statoverride on bwrap"),
    ("setting up uid map: Permission denied", _APPARMOR),
    ("loopback: Failed RTM_NEWADDR", _APPARMOR),
    ("create NETLINK_ROUTE socket", "add AF_NETLINK to RestrictAddressFamilies= of the unit"),
    ("No permissions to create a new namespace", _NAMESPACES),
    ("namespaces exceeded", _MAX_NAMESPACES),
    ("ENOSPC", _MAX_NAMESPACES),
    ("Can't mount proc", _PROC),
    ("overflowuid", "remove ProcSubset=pid from the unit"),
    ("Function not implemented", _OPENAT2),
    ("pivot_root: Invalid argument", "the root is an initramfs: switch_root to a real one first"),
    (
        "Can't find source path /dev/",
        "use DevicePolicy=closed and DeviceAllow=, not PrivateDevices=",
    ),
    ("Unknown option", _TOO_OLD),
    (
        "Resource temporarily unavailable",
        "raise TasksMax= of the unit or the user's process limit",
    ),
)
"""Part of bubblewrap's message to what a person must do; the first that fits.

Measured on Debian 12 and 13 unit options; bubblewrap issues 632 and 774.
"""


class Capability(msgspec.Struct, frozen=True, gc=False):
    """What sandboxes are worth on this machine.

    Attributes:
        ok: whether calls can be sandboxed.
        level: `full`; `watched` without a memory group; `none` when not ok.
        version: of bubblewrap, `(0, 8, 0)`; empty when unknown.
        error: bubblewrap's own words, or empty.
        remedy: what to do about it, or empty.
        warnings: what a person should know though it works.
        notes: what is known of this machine's bubblewrap, and concerns no sandbox of edged's.
    """

    ok: bool
    level: Literal["full", "watched", "none"]
    version: tuple[int, ...] = ()
    error: str = ""
    remedy: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Ended(NamedTuple):
    """A finished child; `status` is negative for a signal."""

    status: int
    output: str
    error: str


async def probe(
    backend: Backend,
    uid: int,
    gid: int,
    *,
    program: str = bwrap.PROGRAM,
    title: str = bwrap.PROGRAM,
    timeout_s: float = PROBE_S,
) -> Capability:
    """Try a sandbox as tools will get it; once at start and on SIGHUP.

    Args:
        backend: its groups are tried too.
        uid: that tools run as, never 0.
        gid: likewise.
        program: bubblewrap, by name or path.
        title: what `ps` calls the sandbox.
        timeout_s: of the whole.
    """
    if uid == 0:
        return _failed((), "tools would run as the host's root", "create the user edged-tool")
    version: tuple[int, ...] = ()
    try:
        async with asyncio.timeout(timeout_s):
            version = parse_version((await _run([program, "--version"], uid, gid)).output)
            ended = await _sandboxed(program, title, backend, uid, gid)
    except FileNotFoundError:
        return _failed(version, "bwrap is not installed", INSTALL)
    except TimeoutError:
        return _failed(version, f"bwrap gives no answer within {timeout_s:g} s", "")
    except (OSError, SandboxSetupError) as error:
        return _failed(version, str(error), remedy(str(error)))
    if ended.status != 0:
        text = ended.error.strip() or f"bwrap ended with {ended.status} and said nothing"
        return _failed(version, text, remedy(text) or _silent(ended))
    return Capability(
        ok=True,
        level="watched" if backend.level == "watch" else "full",
        version=version,
        warnings=(backend.describe(),) if backend.remedy else (),
        notes=_notes(version),
    )


def remedy(stderr: str) -> str:
    """What to do about a message of bubblewrap; empty when it is a new one."""
    for part, text in REMEDIES:
        if part in stderr:
            return text
    return ""


def parse_version(output: str) -> tuple[int, ...]:
    """`bubblewrap 0.8.0` as numbers; empty when there are none."""
    parts = output.strip().rpartition(" ")[2].split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def _failed(version: tuple[int, ...], error: str, cure: str) -> Capability:
    return Capability(ok=False, level="none", version=version, error=error, remedy=cure)


def _silent(ended: _Ended) -> str:
    if ended.status in (-signal.SIGSYS, 128 + signal.SIGSYS):
        return "a system call filter killed it: add @mount @pkey to SystemCallFilter= of the unit"
    return ""


def _notes(version: tuple[int, ...]) -> tuple[str, ...]:
    if version >= _LINKS_FIXED:
        return ()
    return (f"bubblewrap {'.'.join(map(str, version))} is older than 0.12.0 (CVE-2026-87766)",)


async def _sandboxed(program: str, title: str, backend: Backend, uid: int, gid: int) -> _Ended:
    """`true` in the profile, with the filter, in a group, a descriptor bound."""
    group = backend.open("probe", Limits())
    try:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            info_fd, info_write = os.pipe2(os.O_CLOEXEC)
            block_read, block_fd = os.pipe2(os.O_CLOEXEC)
            _close_later(ours, info_fd, block_fd)
            _close_later(theirs, info_write, block_read)
            argv, handed = _command(theirs, info_write, block_read, backend)
            with _spawn(program, [title, *argv[1:]], uid, gid, handed) as process:
                theirs.close()
                info = await _read(info_fd)
                if info:
                    group.add(json.loads(info)["child-pid"])
                with contextlib.suppress(BrokenPipeError):  # it failed: its words follow
                    os.write(block_fd, b"1")
                return await _ended(process)
    finally:
        await group.close()


def _command(
    closing: contextlib.ExitStack, info_fd: int, block_fd: int, backend: Backend
) -> tuple[list[str], list[int]]:
    """The command line and the descriptors that it names."""
    usr = os.open("/usr", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _close_later(closing, usr)
    options = bwrap.arguments(
        Profile(binds=(Bind("/usr", _MARK),)), bwrap.host_layout(), {"/usr": usr}
    )
    program = seccomp.build(seccomp.machines_here(), unix=False, memfd=backend.level != "watch")
    args_fd = _memory(closing, "".join(option + "\0" for option in options).encode())
    seccomp_fd = _memory(closing, program)
    argv = bwrap.command(args_fd, seccomp_fd, info_fd, block_fd, ["true"])
    return argv, [usr, args_fd, seccomp_fd, info_fd, block_fd]


def _close_later(stack: contextlib.ExitStack, *fds: int) -> None:
    for fd in fds:
        stack.callback(os.close, fd)


def _memory(stack: contextlib.ExitStack, content: bytes) -> int:
    """A descriptor to read `content` from."""
    fd = proc.readable("edged", content)
    _close_later(stack, fd)
    return fd


async def _run(argv: Sequence[str], uid: int, gid: int) -> _Ended:
    with _spawn(argv[0], argv, uid, gid, []) as process:
        return await _ended(process)


@contextlib.contextmanager
def _spawn(
    program: str, argv: Sequence[str], uid: int, gid: int, fds: Sequence[int]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child with nothing of ours, ended on leaving; its death signal follows this thread."""
    root = os.geteuid() == 0
    with subprocess.Popen(
        argv,
        executable=program,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={},
        pass_fds=fds,
        start_new_session=True,
        user=uid if root else None,
        group=gid if root else None,
        extra_groups=[] if root else None,
    ) as process:
        try:
            yield process
        finally:
            process.kill()  # nothing, once it was waited for


async def _ended(process: subprocess.Popen[bytes]) -> _Ended:
    assert process.stdout is not None  # noqa: S101 - for the type checker: _spawn made pipes
    assert process.stderr is not None  # noqa: S101
    output, error = await asyncio.gather(
        _read(process.stdout.fileno()), _read(process.stderr.fileno())
    )
    pidfd = os.pidfd_open(process.pid)
    try:
        await _readable(pidfd)
    finally:
        os.close(pidfd)
    return _Ended(process.wait(), output.decode(errors="replace"), error.decode(errors="replace"))


async def _read(fd: int) -> bytes:
    """All up to the end of file; what exceeds the maximum is dropped."""
    kept = b""
    while True:
        await _readable(fd)
        chunk = os.read(fd, _OUTPUT_MAX)
        if not chunk:
            return kept
        kept = (kept + chunk)[:_OUTPUT_MAX]


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, wake)
    try:
        await ready
    finally:
        loop.remove_reader(fd)
