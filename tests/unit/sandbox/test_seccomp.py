"""The seccomp filter answers every system call of every machine as it should.

The oracle is a small interpreter of classic BPF (seccomp(2), Linux
Documentation/networking/filter.rst) and numbers taken from the kernel's headers.
"""

import errno
import struct

import pytest

from edged.errors import SandboxSetupError
from edged.sandbox.seccomp import ARCH, NEWEST, build, machines_for, machines_here

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, EAFNOSUPPORT = (
    0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
)

# Linux 6.1 headers: x86 asm/unistd_64.h, asm-generic/unistd.h, arm asm/unistd-eabi.h.
HEADERS = """
acct 163 89 51
chmod 90 - 15
creat 85 - 8
fchmod 91 52 94
fchmodat 268 53 333
fcntl 72 25 55
fcntl64 - - 221
mknod 133 - 14
mknodat 259 33 324
open 2 - 5
openat 257 56 322
setsockopt 54 208 294
add_key 248 217 309
bpf 321 280 386
chroot 161 51 61
clock_settime 227 112 262
clock_settime64 - - 404
clone 56 220 120
delete_module 176 106 129
fanotify_init 300 262 367
finit_module 313 273 379
init_module 175 105 128
ioctl 16 29 54
ioperm 173 - -
iopl 172 - -
kcmp 312 272 378
kexec_file_load 320 294 401
kexec_load 246 104 347
keyctl 250 219 311
memfd_create 319 279 385
migrate_pages 256 238 400
modify_ldt 154 - -
mount 165 40 21
move_pages 279 239 344
msgget 68 186 303
name_to_handle_at 303 264 370
open_by_handle_at 304 265 371
perf_event_open 298 241 364
personality 135 92 136
pivot_root 155 41 218
prctl 157 167 172
process_vm_readv 310 270 376
process_vm_writev 311 271 377
ptrace 101 117 26
quotactl 179 60 131
reboot 169 142 88
request_key 249 218 310
setdomainname 171 162 121
sethostname 170 161 74
setns 308 268 375
settimeofday 164 170 79
shmget 29 194 307
socket 41 198 281
swapoff 168 225 115
swapon 167 224 87
syslog 103 116 103
umount2 166 39 52
unshare 272 97 337
userfaultfd 323 282 388
vhangup 153 58 111
"""
# The same headers; the last two of include/uapi/asm-generic/unistd.h of Linux 6.17.
NEWER = {
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
COLUMNS = {"x86_64": 1, "aarch64": 2, "riscv64": 2, "arm": 3}
MODES = {
    "chmod": 1,
    "creat": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "mknod": 1,
    "mknodat": 2,
}
"""The argument that holds the mode, of chmod(2), creat(2), mknod(2)."""
BY_ARGUMENT = {"clone", "ioctl", "personality", "prctl", "socket", "open", "openat", *MODES}
BUFFERS = {"fcntl", "fcntl64", "setsockopt"}
UNSEEN = {"memfd_create", "memfd_secret", "msgget", "shmget"}
ABSENT = {
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "open_tree"),
    *("open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    "mount_setattr",
    "openat2",
}


def numbers(machine: str) -> dict[str, int]:
    rows = [line.split() for line in HEADERS.split("\n") if line]
    column = COLUMNS[machine]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"} | NEWER


def run(program: bytes, arch: int, number: int, args: tuple[int, ...] = ()) -> int:
    """What the kernel would do: the filter's return value."""
    words = [value & (2**64 - 1) for value in (*args, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *words)
    ops = list(struct.iter_unpack("<HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = ops[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x05:
            at += value
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        elif code == 0x35:
            at += if_true if accumulator >= value else if_false
        elif code == 0x45:
            at += if_true if accumulator & value else if_false
        else:
            assert code == 0x06
            assert isinstance(value, int)
            return value


def answer(machine: str, name: str, *args: int, unix: bool = True, memfd: bool = True) -> int:
    program = build((machine,), unix=unix, memfd=memfd)
    return run(program, ARCH[machine], numbers(machine)[name], args)


@pytest.fixture(params=sorted(ARCH))
def machine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.parametrize("memfd", [True, False])
def test_every_number_is_answered_as_its_name_asks(machine: str, memfd: bool) -> None:
    """Whole table: named calls refused, others allowed, newer ones ENOSYS."""
    program = build((machine,), unix=True, memfd=memfd)
    named = {number: name for name, number in numbers(machine).items()}
    for number in range(NEWEST + 50):
        name = named.get(number, "")
        if name in BY_ARGUMENT:
            continue
        expected = ALLOW
        if number > NEWEST or name in ABSENT or (name in UNSEEN and not memfd):
            expected = ENOSYS
        elif name and name not in UNSEEN | BUFFERS:
            expected = EPERM
        assert run(program, ARCH[machine], number) == expected, (number, name)


def test_programs_of_another_instruction_set_are_killed(machine: str) -> None:
    """i386 on an x86-64 kernel and the like: AUDIT_ARCH_I386 is 0x40000003."""
    program = build((machine,), unix=True)
    assert run(program, 0x40000003, 1) == KILL


def test_aarch64_kernels_filter_32_bit_programs_by_their_own_numbers() -> None:
    """A 64-bit program may start an arm one, whose unshare is 337 and not 97."""
    program = build(("aarch64", "arm"), unix=True)
    assert run(program, ARCH["arm"], 337) == EPERM
    assert run(program, ARCH["arm"], 97) == ALLOW
    assert run(program, ARCH["aarch64"], 97) == EPERM


@pytest.mark.parametrize("request_number", [0x5412, 0x541C])
def test_terminal_injection_is_refused_whatever_the_high_bits(
    machine: str, request_number: int
) -> None:
    """TIOCSTI and TIOCLINUX, CVE-2019-10063 and CVE-2023-28100."""
    assert answer(machine, "ioctl", 0, request_number) == EPERM
    assert answer(machine, "ioctl", 0, request_number | 1 << 32) == EPERM


def test_other_ioctls_pass(machine: str) -> None:
    """TCGETS, and I2C_RDWR of linux/i2c-dev.h."""
    assert answer(machine, "ioctl", 0, 0x5401) == ALLOW
    assert answer(machine, "ioctl", 3, 0x0707) == ALLOW


@pytest.mark.parametrize("bit", [17, 25, 26, 27, 28, 29, 30])
def test_clone_into_a_new_namespace_is_refused(machine: str, bit: int) -> None:
    """linux/sched.h: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
    assert answer(machine, "clone", 1 << bit | 17) == EPERM


def test_fork_and_threads_pass(machine: str) -> None:
    """The flags of glibc's fork and pthread_create."""
    assert answer(machine, "clone", 0x01200011) == ALLOW
    assert answer(machine, "clone", 0x003D0F00) == ALLOW


def test_personality_may_be_asked_and_32_bit_but_not_weaken_layout(machine: str) -> None:
    """linux/personality.h: ADDR_NO_RANDOMIZE is 0x0040000."""
    for harmless in (0, 8, 0xFFFFFFFF):
        assert answer(machine, "personality", harmless) == ALLOW
    assert answer(machine, "personality", 0x0040000) == EPERM


@pytest.mark.parametrize("high", [0, 1 << 32])
def test_no_process_gives_up_its_death_signal(machine: str, high: int) -> None:
    """linux/prctl.h: PR_SET_PDEATHSIG is 1; programs that ask for SIGKILL anew may."""
    for number in (0, 15, 17):
        assert answer(machine, "prctl", 1 | high, number) == EPERM
    assert answer(machine, "prctl", 1 | high, 9) == ALLOW


def test_other_settings_of_a_process_pass(machine: str) -> None:
    """linux/prctl.h: PR_SET_NAME 15, PR_SET_NO_NEW_PRIVS 38, PR_SET_VMA 0x53564d41."""
    for option in (2, 15, 36, 38, 0x53564D41):
        assert answer(machine, "prctl", option, 0) == ALLOW


@pytest.mark.parametrize("family", [2, 10, 16])
def test_internet_and_netlink_sockets_pass(machine: str, family: int) -> None:
    assert answer(machine, "socket", family, unix=False) == ALLOW


@pytest.mark.parametrize("family", [17, 21, 29, 31, 38, 40, 43, 44])
def test_families_that_leave_the_network_namespace_are_refused(machine: str, family: int) -> None:
    """packet, rds, can, bluetooth, alg, vsock, smc, xdp of linux/socket.h."""
    assert answer(machine, "socket", family) == EAFNOSUPPORT


def test_unix_sockets_pass_only_where_asked(machine: str) -> None:
    """Abstract ones reach the host when the network is the host's."""
    assert answer(machine, "socket", 1, unix=True) == ALLOW
    assert answer(machine, "socket", 1, unix=False) == EAFNOSUPPORT


@pytest.mark.parametrize("name", MODES)
def test_no_file_gets_a_set_id_bit(machine: str, name: str) -> None:
    """linux/stat.h: S_ISUID, S_ISGID; it would lend the tools' account to whoever starts it."""
    if name not in numbers(machine):
        assert machine in ("aarch64", "riscv64")
        return
    before = [7] * MODES[name]
    for mode in (0o644, 0o1777, 0o100755):
        assert answer(machine, name, *before, mode) == ALLOW
    for mode in (0o4755, 0o2755, 0o106755, 0o4000 | 1 << 32):
        assert answer(machine, name, *before, mode) == EPERM


def test_modes_may_keep_set_gid_where_directories_inherit_it(machine: str) -> None:
    """inode(7): a directory made below one with S_ISGID has it too; copies set its mode."""
    program = build((machine,), unix=True, set_gid=True)
    for name in MODES.keys() & numbers(machine).keys():
        number, before = numbers(machine)[name], [7] * MODES[name]
        kept = run(program, ARCH[machine], number, (*before, 0o2755))
        assert kept == (ALLOW if "chmod" in name else EPERM)
        assert run(program, ARCH[machine], number, (*before, 0o4755)) == EPERM


@pytest.mark.parametrize(("name", "before"), [("open", [7]), ("openat", [7, 7])])
def test_no_file_is_made_with_a_set_id_bit(machine: str, name: str, before: list[int]) -> None:
    """asm-generic/fcntl.h: O_CREAT 0o100, __O_TMPFILE 0o20000000; else the mode is not read."""
    if name not in numbers(machine):
        assert machine in ("aarch64", "riscv64")
        return
    for flags in (0o101, 0o20000002):
        assert answer(machine, name, *before, flags, 0o666) == ALLOW
        assert answer(machine, name, *before, flags, 0o4777) == EPERM
        assert answer(machine, name, *before, flags, 0o2777) == EPERM
    assert answer(machine, name, *before, 0o2, 0o6777) == ALLOW


@pytest.mark.parametrize("option", [7, 8, 32, 33])
def test_buffers_of_sockets_keep_their_size_where_memory_is_only_watched(
    machine: str, option: int
) -> None:
    """asm-generic/socket.h: SOL_SOCKET, SO_SNDBUF, SO_RCVBUF and the FORCE ones."""
    assert answer(machine, "setsockopt", 3, 1, option, memfd=False) == EPERM
    assert answer(machine, "setsockopt", 3, 1, option) == ALLOW
    assert answer(machine, "setsockopt", 3, 6, option, memfd=False) == ALLOW
    assert answer(machine, "setsockopt", 3, 1, 2, memfd=False) == ALLOW


def test_buffers_of_pipes_keep_their_size_where_memory_is_only_watched(machine: str) -> None:
    """linux/fcntl.h: F_SETPIPE_SZ is 1031."""
    for name in {"fcntl", "fcntl64"} & numbers(machine).keys():
        assert answer(machine, name, 3, 1031, 1 << 20, memfd=False) == EPERM
        assert answer(machine, name, 3, 1031, 1 << 20) == ALLOW
        assert answer(machine, name, 3, 4, 0, memfd=False) == ALLOW


def test_x32_calls_are_refused() -> None:
    """asm/unistd.h: __X32_SYSCALL_BIT; the same calls by other numbers."""
    program = build(("x86_64",), unix=True)
    assert run(program, ARCH["x86_64"], 0x40000000 | 165) == ENOSYS


def test_arm_private_calls_pass() -> None:
    """asm/unistd.h of arm: __ARM_NR_set_tls is 0x0f0005; no thread starts without."""
    assert run(build(("arm",), unix=True), ARCH["arm"], 0x0F0005) == ALLOW


@pytest.mark.parametrize(
    ("machine_name", "bits", "expected"),
    [
        ("x86_64", 64, ("x86_64",)),
        ("riscv64", 64, ("riscv64",)),
        ("aarch64", 64, ("aarch64", "arm")),
        ("aarch64", 32, ("arm", "aarch64")),
        ("armv7l", 32, ("arm", "aarch64")),
        ("armv6l", 32, ("arm", "aarch64")),
    ],
)
def test_machines_cover_what_the_kernel_can_run(
    machine_name: str, bits: int, expected: tuple[str, ...]
) -> None:
    """32-bit Raspberry Pi OS runs on an aarch64 kernel, whose uname says so."""
    assert machines_for(machine_name, bits) == expected


@pytest.mark.parametrize(("machine_name", "bits"), [("x86_64", 32), ("i686", 32), ("mips", 32)])
def test_machine_without_a_table_is_refused_not_left_open(machine_name: str, bits: int) -> None:
    with pytest.raises(SandboxSetupError, match="no system call table"):
        machines_for(machine_name, bits)


def test_program_for_here_is_built_once_and_fits_the_kernel() -> None:
    """linux/bpf_common.h: BPF_MAXINSNS is 4096."""
    program = build(machines_here(), unix=False, memfd=False)
    assert program is build(machines_here(), unix=False, memfd=False)
    assert len(program) // 8 <= 4096
