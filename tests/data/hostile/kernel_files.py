"""The kernel's switches cannot be opened for writing, its memory and log not at all."""

import glob
import os

written = ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe"]
written += ["/proc/sys/vm/drop_caches", "/proc/sys/kernel/hostname", "/sys/power/state"]
written += ["/proc/irq/default_smp_affinity", "/sys/class/gpio/export", "/proc/acpi/wakeup"]
written += glob.glob("/sys/fs/cgroup/**/cgroup.procs", recursive=True)
found = []
for path, flags in [(p, os.O_WRONLY) for p in written] + [("/proc/kcore", 0), ("/proc/kmsg", 0)]:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK))
    except OSError:
        continue
    found.append(path)
found += [path for path in ("/sys/kernel", "/sys/class") if os.path.exists(path)]
print("ESCAPED:", found) if found else print("HELD")
