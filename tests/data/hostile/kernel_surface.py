"""Rings, keys, probes and programs of the kernel answer ENOSYS or EPERM."""

import ctypes
import os
import struct

libc = ctypes.CDLL(None, use_errno=True)
machine = os.uname().machine if struct.calcsize("P") == 8 else "arm"
calls = {
    "x86_64": {"keyctl": 250, "add_key": 248, "bpf": 321, "perf": 298, "userfaultfd": 323},
    "aarch64": {"keyctl": 219, "add_key": 217, "bpf": 280, "perf": 241, "userfaultfd": 282},
    "arm": {"keyctl": 311, "add_key": 309, "bpf": 386, "perf": 364, "userfaultfd": 388},
}[machine] | {"io_uring": 425, "pidfd_getfd": 438, "memfd_secret": 447}
found = []
for name, number in calls.items():
    libc.syscall(number, 0, 0, 0, 0, 0)
    if ctypes.get_errno() not in {1, 38}:  # EPERM, ENOSYS
        found.append((name, ctypes.get_errno()))
print("ESCAPED:", found) if found else print("HELD")
