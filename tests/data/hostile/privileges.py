"""No capability, no way to one: no_new_privs, not uid 0, no group of the host."""

import os

found = []
with open("/proc/self/status") as file:
    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
found += [name for name in status if name.startswith("Cap") and int(status[name], 16)]
if status["NoNewPrivs"] != "1":
    found.append("new privileges")
if status["Seccomp"] != "2":
    found.append("no filter")
if os.getuid() == 0 or 0 in os.getgroups():
    found.append("root")
for act in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
    try:
        act()
    except OSError:
        continue
    found.append("set")
print("ESCAPED:", found) if found else print("HELD")
