"""/dev has the harmless nodes only, and no other can be made."""

import os
import stat

harmless = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
found = [name for name in os.listdir("/dev") if name not in harmless]
found = [n for n in found if n not in {"fd", "stdin", "stdout", "stderr", "pts", "shm", "core"}]
for folder in ("/officer/data", "/tmp", "/dev/shm", "/dev"):
    try:
        os.mknod(folder + "/node", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        continue
    found.append(folder)
print("ESCAPED:", found) if found else print("HELD")
