"""No process of the host is seen, signalled, traced or read."""

import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine if struct.calcsize("P") == 8 else "arm"
ptrace, vm_readv = {"x86_64": (101, 310), "aarch64": (117, 270), "arm": (26, 376)}[machine]
found = []
seen = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
if len(seen) > 6:
    found.append(f"{len(seen)} processes seen")
victim = int(os.environ["VICTIM"])
for act in (lambda: os.kill(victim, 0), lambda: os.pidfd_open(victim)):
    try:
        act()
    except OSError:
        continue
    found.append("victim reached")
if libc.syscall(ptrace, 0, 0, 0, 0) == 0:  # PTRACE_TRACEME
    found.append("ptrace")
if libc.syscall(vm_readv, 1, 0, 0, 0, 0, 0) == 0:
    found.append("process_vm_readv")
try:
    os.kill(-1, 0)
except OSError:
    pass
else:
    found += [pid for pid in range(2, 70000) if pid not in seen and os.path.exists(f"/proc/{pid}")]
print("ESCAPED:", found) if found else print("HELD")
