"""The process that ends the others with the daemon is out of reach, and none leaves it.

Its memory is its account's to write (proc_pid_mem(5)): code there could clear its death
signal by prctl(2), or lose it by execve(2) from a second thread, and rename itself.
"""

import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
found = []
ways = ["/proc/1", "/proc/1/task/1", "/proc/self/../1", "/proc/self/root/proc/1"]
for name in ("mem", "cmdline", "environ", "stat", "oom_score_adj", "fd", "root"):
    found += [f"{way}/{name}" for way in ways if os.path.lexists(f"{way}/{name}")]
for flags in (os.O_RDONLY, os.O_RDWR):
    try:
        os.close(os.open("/proc/1/mem", flags))
    except OSError:
        continue
    found.append("memory")
try:
    os.mkdir("/proc/1/made")
except OSError:
    pass
else:
    found.append("written")
if libc.prctl(1, 0) == 0 or libc.prctl(1, signal.SIGTERM) == 0:  # PR_SET_PDEATHSIG
    found.append("death signal")
if libc.prctl(1, signal.SIGKILL) != 0:
    found.append("what programs ask for is refused")
print("ESCAPED:", found) if found else print("HELD")
