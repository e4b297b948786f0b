"""Neither the daemon's variables nor its command line show in any process that is seen."""

import glob

found = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    with open(path, "rb") as file:
        text = file.read()
    found += [mark for mark in (b"DAEMON_SECRET", b"pytest", b"/officer/data\0--") if mark in text]
print("ESCAPED:", found) if found else print("HELD")
