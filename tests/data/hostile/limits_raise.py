"""No limit can be raised, and no core is written."""

import os
import resource

found = []
for name in ("CORE", "DATA", "NPROC", "NOFILE", "FSIZE", "CPU", "MEMLOCK"):
    limit = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(limit)[1]
    if hard == resource.RLIM_INFINITY:
        found.append(name)
        continue
    try:
        resource.setrlimit(limit, (hard + 1, hard + 1))
    except (OSError, ValueError):
        continue
    found.append(name)
for act in (
    lambda: os.nice(-5),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
):
    try:
        act()
    except OSError:
        continue
    found.append("priority")
print("ESCAPED:", found) if found else print("HELD")
