"""The seccomp filter of a sandbox, as classic BPF for bubblewrap's `--seccomp`.

Pure, without libseccomp: the same bytes on every machine. It refuses what a user
namespace opens up (mounts, namespaces, io_uring, bpf ...), what passes network
namespaces (vsock, alg, packet), what reaches other processes, and set-user-ID and
set-group-ID files, which would outlive the sandbox. A call that is
newer than this table answers ENOSYS, so that libc falls back.

Source: seccomp(2); include/uapi/linux/{filter,seccomp,audit}.h; the kernel's
syscall tables up to 6.17; CVE-2019-10063 (ioctl: compare 32 bits only),
CVE-2021-41133 (clone3 and the mount API), CVE-2023-28100 (TIOCLINUX).
"""

from __future__ import annotations

import errno
import functools
import os
import struct
import sys
from typing import NamedTuple

from edged.errors import SandboxSetupError

# include/uapi/linux/audit.h: ELF machine, 64-bit and little-endian flags.
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "arm": 0x40000028, "riscv64": 0xC00000F3}

NEWEST = 469
"""The last system call number that was looked at (file_setattr, Linux 6.17)."""

_FROM_424 = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "fchmodat2": 452,
    "statmount": 457,
    "listmount": 458,
    "open_tree_attr": 467,
}
"""Numbers from 424 up are the same on all these machines."""

# asm-generic/unistd.h, which aarch64 and riscv64 follow.
_GENERIC = {
    "acct": 89,
    "add_key": 217,
    "bpf": 280,
    "chroot": 51,
    "clock_settime": 112,
    "clone": 220,
    "delete_module": 106,
    "fanotify_init": 262,
    "fchmod": 52,
    "fchmodat": 53,
    "fcntl": 25,
    "finit_module": 273,
    "init_module": 105,
    "ioctl": 29,
    "kcmp": 272,
    "kexec_file_load": 294,
    "kexec_load": 104,
    "keyctl": 219,
    "memfd_create": 279,
    "migrate_pages": 238,
    "mknodat": 33,
    "mount": 40,
    "move_pages": 239,
    "msgget": 186,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "openat": 56,
    "perf_event_open": 241,
    "personality": 92,
    "pivot_root": 41,
    "prctl": 167,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "ptrace": 117,
    "quotactl": 60,
    "reboot": 142,
    "request_key": 218,
    "setdomainname": 162,
    "sethostname": 161,
    "setns": 268,
    "setsockopt": 208,
    "settimeofday": 170,
    "shmget": 194,
    "socket": 198,
    "swapoff": 225,
    "swapon": 224,
    "syslog": 116,
    "umount2": 39,
    "unshare": 97,
    "userfaultfd": 282,
    "vhangup": 58,
}

# arch/x86/entry/syscalls/syscall_64.tbl
_X86_64 = {
    "acct": 163,
    "add_key": 248,
    "bpf": 321,
    "chmod": 90,
    "chroot": 161,
    "clock_settime": 227,
    "clone": 56,
    "creat": 85,
    "delete_module": 176,
    "fanotify_init": 300,
    "fchmod": 91,
    "fchmodat": 268,
    "fcntl": 72,
    "finit_module": 313,
    "init_module": 175,
    "ioctl": 16,
    "ioperm": 173,
    "iopl": 172,
    "kcmp": 312,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "keyctl": 250,
    "memfd_create": 319,
    "migrate_pages": 256,
    "mknod": 133,
    "mknodat": 259,
    "modify_ldt": 154,
    "mount": 165,
    "move_pages": 279,
    "msgget": 68,
    "name_to_handle_at": 303,
    "open": 2,
    "open_by_handle_at": 304,
    "openat": 257,
    "perf_event_open": 298,
    "personality": 135,
    "pivot_root": 155,
    "prctl": 157,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "ptrace": 101,
    "quotactl": 179,
    "reboot": 169,
    "request_key": 249,
    "setdomainname": 171,
    "sethostname": 170,
    "setns": 308,
    "setsockopt": 54,
    "settimeofday": 164,
    "shmget": 29,
    "socket": 41,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "umount2": 166,
    "unshare": 272,
    "userfaultfd": 323,
    "vhangup": 153,
}

# arch/arm/tools/syscall.tbl, EABI.
_ARM = {
    "acct": 51,
    "add_key": 309,
    "bpf": 386,
    "chmod": 15,
    "chroot": 61,
    "clock_settime": 262,
    "clock_settime64": 404,
    "clone": 120,
    "creat": 8,
    "delete_module": 129,
    "fanotify_init": 367,
    "fchmod": 94,
    "fchmodat": 333,
    "fcntl": 55,
    "fcntl64": 221,
    "finit_module": 379,
    "init_module": 128,
    "ioctl": 54,
    "kcmp": 378,
    "kexec_file_load": 401,
    "kexec_load": 347,
    "keyctl": 311,
    "memfd_create": 385,
    "migrate_pages": 400,
    "mknod": 14,
    "mknodat": 324,
    "mount": 21,
    "move_pages": 344,
    "msgget": 303,
    "name_to_handle_at": 370,
    "open": 5,
    "open_by_handle_at": 371,
    "openat": 322,
    "perf_event_open": 364,
    "personality": 136,
    "pivot_root": 218,
    "prctl": 172,
    "process_vm_readv": 376,
    "process_vm_writev": 377,
    "ptrace": 26,
    "quotactl": 131,
    "reboot": 88,
    "request_key": 310,
    "setdomainname": 121,
    "sethostname": 74,
    "setns": 375,
    "setsockopt": 294,
    "settimeofday": 79,
    "shmget": 307,
    "socket": 281,
    "swapoff": 115,
    "swapon": 87,
    "syslog": 103,
    "umount2": 52,
    "unshare": 337,
    "userfaultfd": 388,
    "vhangup": 111,
}

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": _X86_64 | _FROM_424,
    "aarch64": _GENERIC | _FROM_424,
    "arm": _ARM | _FROM_424,
    "riscv64": _GENERIC | _FROM_424,
}
"""Every system call that the filter treats specially, by machine."""

_ABSENT = frozenset(
    {
        "clone3",
        "fsconfig",
        "fsmount",
        "fsopen",
        "fspick",
        "io_uring_enter",
        "io_uring_register",
        "io_uring_setup",
        "mount_setattr",
        "move_mount",
        "open_tree",
        "open_tree_attr",
        "openat2",
    }
)
"""Refused as if the kernel did not have them: programs then fall back."""

_UNSEEN_MEMORY = frozenset({"memfd_create", "memfd_secret", "msgget", "shmget"})
"""Memory that a watch of resident pages cannot see; absent in that mode."""

_MODES: dict[str, tuple[int, int | None]] = {
    "chmod": (1, None),
    "creat": (1, None),
    "fchmod": (1, None),
    "fchmodat": (2, None),
    "fchmodat2": (2, None),
    "mknod": (1, None),
    "mknodat": (2, None),
    "open": (2, 1),
    "openat": (3, 2),
}
"""Calls that set the mode of a file: the argument that holds it, and that of the flags
which say whether it counts. The mode of openat2 lies in memory, where no filter sees it."""

_BUFFERS = frozenset({"fcntl", "fcntl64", "setsockopt"})
"""Looked at where only a watch holds the memory."""

_BY_ARGUMENT = frozenset({"clone", "ioctl", "personality", "prctl", "socket", *_MODES, *_BUFFERS})

# include/uapi/linux/stat.h: S_ISUID, S_ISGID; asm-generic/fcntl.h: O_CREAT, __O_TMPFILE.
# A file of the tools' account with these would lend it to whoever starts it.
_SET_UID, _SET_GID = 0o4000, 0o2000
_CREATING = 0o20000100

# include/uapi/linux/fcntl.h: F_SETPIPE_SZ; asm-generic/socket.h: SOL_SOCKET, and
# SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE.
_SETPIPE_SZ, _SOL_SOCKET, _BUFFER_SIZES = 1031, 1, (7, 8, 32, 33)

# include/uapi/asm-generic/ioctls.h: type into, or paste to, a terminal.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# include/uapi/linux/sched.h: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
# NEWTIME lies among the signal bits of clone and cannot be asked for there.
_NEW_NAMESPACE = 0x7E020000

# include/uapi/linux/personality.h: PER_LINUX, PER_LINUX32, and the query.
_PERSONALITIES = (0x0, 0x8, 0xFFFFFFFF)

# include/uapi/linux/prctl.h and asm-generic/signal.h. bubblewrap has set SIGKILL before.
_SET_PDEATHSIG, _SIGKILL = 1, 9

# include/linux/socket.h
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16

# arch/x86/include/uapi/asm/unistd.h and arch/arm/include/uapi/asm/unistd.h
_X32_BIT = 0x40000000
_ARM_PRIVATE = 0x0F0000

# include/uapi/linux/bpf_common.h and seccomp.h
_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

# struct seccomp_data: nr, arch, instruction pointer, six 64-bit arguments. The low
# half of an argument comes first, all these machines being little-endian.
_NR, _ARCH = 0, 4
_ARG0, _ARG1, _ARG2, _ = _ARGS = (16, 24, 32, 40)


class _Op(NamedTuple):
    """struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    value: int


def machines_for(machine: str, bits: int) -> tuple[str, ...]:
    """The instruction sets whose programs a kernel may run, the native one first.

    An arm kernel and an aarch64 one look alike to a 32-bit userland, and an aarch64
    one runs both, so the filter always covers both.

    Args:
        machine: as `uname -m` says.
        bits: of a pointer of this process.

    Raises:
        SandboxSetupError: there is no table for it.
    """
    if machine in ("x86_64", "riscv64") and bits == 64:
        return (machine,)
    if machine == "aarch64" and bits == 64:
        return ("aarch64", "arm")
    if machine.startswith(("arm", "aarch64")):
        return ("arm", "aarch64")
    raise SandboxSetupError(
        f"no system call table for {machine} ({bits} bits): edged's sandbox runs on"
        " x86-64, aarch64, arm and riscv64"
    )


def machines_here() -> tuple[str, ...]:
    """`machines_for` this one."""
    return machines_for(os.uname().machine, 64 if sys.maxsize > 2**32 else 32)


@functools.cache
def build(
    machines: tuple[str, ...], *, unix: bool, memfd: bool = True, set_gid: bool = False
) -> bytes:
    """The filter program.

    Args:
        machines: keys of `NUMBERS`; programs of others are killed.
        unix: whether new AF_UNIX sockets may be made; socketpair always may.
        memfd: whether memory may be made that only a memory group can count: without
            a name, or in larger buffers of sockets and pipes.
        set_gid: whether modes may keep S_ISGID: where a writable directory has it, those
            made below inherit it, and no copy of their mode could be set.

    Shape:
        `struct sock_filter` records of 8 bytes in host order: u16 code, u8 jump if
        true, u8 jump if false, u32 value.
    """
    families = (_INET, _INET6, _NETLINK, *((_UNIX,) if unix else ()))
    program = [_Op(_LOAD, 0, 0, _ARCH)]
    for machine in machines:
        block = _block(machine, families, memfd=memfd, set_gid=set_gid)
        program += [
            _Op(_EQUAL, 1, 0, ARCH[machine]),
            _Op(_JUMP, 0, 0, len(block)),  # a condition reaches only 255 records
            *block,
        ]
    program.append(_Op(_RETURN, 0, 0, _KILL))
    return b"".join(struct.pack("=HBBI", *op) for op in program)


def _block(machine: str, families: tuple[int, ...], *, memfd: bool, set_gid: bool) -> list[_Op]:
    """The rules of one machine; every path through them returns."""
    numbers = NUMBERS[machine]
    block = [_Op(_LOAD, 0, 0, _NR)]
    if machine == "x86_64":
        block += _when(_AT_LEAST, _X32_BIT, [_refuse(errno.ENOSYS)])
    if machine == "arm":  # set_tls, cacheflush and the like
        block += _when(_AT_LEAST, _ARM_PRIVATE, [_Op(_RETURN, 0, 0, _ALLOW)])
    block += _when(_AT_LEAST, NEWEST + 1, [_refuse(errno.ENOSYS)])
    for name, number in numbers.items():
        if name in _BY_ARGUMENT or (memfd and name in _UNSEEN_MEMORY):
            continue
        absent = name in _ABSENT or name in _UNSEEN_MEMORY
        block += _when(_EQUAL, number, [_refuse(errno.ENOSYS if absent else errno.EPERM)])
    block += _when(_EQUAL, numbers["ioctl"], _deny(_ARG1, (_TIOCSTI, _TIOCLINUX)))
    block += _when(_EQUAL, numbers["clone"], _deny_bits(_ARG0, _NEW_NAMESPACE))
    block += _when(_EQUAL, numbers["personality"], _only(_ARG0, _PERSONALITIES, errno.EPERM))
    block += _when(_EQUAL, numbers["prctl"], _keep_death_signal())
    block += _when(_EQUAL, numbers["socket"], _only(_ARG0, families, errno.EAFNOSUPPORT))
    for name in sorted(numbers.keys() & _MODES.keys()):
        bits = _SET_UID if set_gid and "chmod" in name else _SET_UID | _SET_GID
        block += _when(_EQUAL, numbers[name], _no_mode(bits, *_MODES[name]))
    if not memfd:
        sizes = _deny(_ARG2, _BUFFER_SIZES)
        sizes = [_Op(_LOAD, 0, 0, _ARG1), *_when(_EQUAL, _SOL_SOCKET, sizes)]
        block += _when(_EQUAL, numbers["setsockopt"], [*sizes, _Op(_RETURN, 0, 0, _ALLOW)])
        for name in sorted(numbers.keys() & {"fcntl", "fcntl64"}):
            block += _when(_EQUAL, numbers[name], _deny(_ARG1, (_SETPIPE_SZ,)))
    return [*block, _Op(_RETURN, 0, 0, _ALLOW)]


def _when(test: int, value: int, body: list[_Op]) -> list[_Op]:
    return [_Op(test, 0, len(body), value), *body]


def _refuse(number: int) -> _Op:
    return _Op(_RETURN, 0, 0, _ERRNO | number)


def _deny(argument: int, values: tuple[int, ...]) -> list[_Op]:
    body = [_Op(_LOAD, 0, 0, argument)]
    for value in values:
        body += _when(_EQUAL, value, [_refuse(errno.EPERM)])
    return [*body, _Op(_RETURN, 0, 0, _ALLOW)]


def _deny_bits(argument: int, bits: int) -> list[_Op]:
    refused = _when(_ANY_BIT, bits, [_refuse(errno.EPERM)])
    return [_Op(_LOAD, 0, 0, argument), *refused, _Op(_RETURN, 0, 0, _ALLOW)]


def _keep_death_signal() -> list[_Op]:
    """Refuse any death signal but that which a process of a sandbox has."""
    kept = _when(_EQUAL, _SET_PDEATHSIG, _only(_ARG1, (_SIGKILL,), errno.EPERM))
    return [_Op(_LOAD, 0, 0, _ARG0), *kept, _Op(_RETURN, 0, 0, _ALLOW)]


def _no_mode(bits: int, mode: int, flags: int | None) -> list[_Op]:
    """Refuse any of `bits` in the argument `mode`, where `flags` make a file."""
    body = _deny_bits(_ARGS[mode], bits)
    if flags is not None:
        made = _when(_ANY_BIT, _CREATING, body)
        body = [_Op(_LOAD, 0, 0, _ARGS[flags]), *made, _Op(_RETURN, 0, 0, _ALLOW)]
    return body


def _only(argument: int, values: tuple[int, ...], number: int) -> list[_Op]:
    body = [_Op(_LOAD, 0, 0, argument)]
    for value in values:
        body += _when(_EQUAL, value, [_Op(_RETURN, 0, 0, _ALLOW)])
    return [*body, _refuse(number)]
