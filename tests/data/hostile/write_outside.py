"""Only the declared directories, /tmp and /dev/shm can be written; programs cannot be changed."""

import os

found = []
folders = ["/", "/usr", "/usr/bin", "/etc", "/dev", "/edged", "/edged/lib", "/officer", "/proc"]
folders += ["/officer/tools", os.path.dirname(os.environ["ENTRY"]), "/usr/lib/python3"]
for folder in folders:
    path = os.path.join(folder, ".hostile")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        continue
    found.append(path)
for path in (os.environ["ENTRY"], "/edged/host.py", "/usr/bin/env"):
    for act in (lambda p: os.open(p, os.O_WRONLY), lambda p: os.chmod(p, 0o777), os.unlink):
        try:
            act(path)
        except OSError:
            continue
        found.append(path)
print("ESCAPED:", found) if found else print("HELD")
