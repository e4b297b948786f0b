"""Only descriptors 0, 1 and 2 are open; none is a terminal, a directory or a socket."""

import os
import stat

found = []
for fd in range(4096):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    plain = stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)
    if fd > 2 or not plain or os.isatty(fd):
        found.append((fd, oct(mode), os.readlink(f"/proc/self/fd/{fd}")))
print("ESCAPED:", found) if found else print("HELD")
