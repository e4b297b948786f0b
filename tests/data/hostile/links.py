"""Links out of the data reach nothing, and hard links to what is outside cannot be made."""

import os

found = []
plant = os.environ["PLANT"]
os.symlink(plant + "/secret", "/officer/data/link")
os.symlink(plant, "/officer/data/folder")
found += [path for path in ("link", "folder/secret") if os.path.exists("/officer/data/" + path)]
for source in (os.environ["ENTRY"], "/usr/bin/env", "/edged/host.py"):
    try:
        os.link(source, "/officer/data/hard")
    except OSError:
        continue
    found.append(source)
print("ESCAPED:", found) if found else print("HELD")
