"""No file of the host but the declared ones can be opened."""

import glob
import os

candidates = ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/run/secrets", "/etc/machine-id"]
candidates += [os.environ["PLANT"] + "/secret", "/etc/passwd", "/var/log/dpkg.log"]
candidates += glob.glob("/root/.*") + glob.glob("/home/*/.*") + glob.glob("/boot/**")
candidates += glob.glob("/etc/edged/*") + glob.glob("/var/lib/edged/*")
found = [path for path in candidates if os.path.exists(path)]
found += [path for path in os.listdir("/") if path in {"home", "root", "var", "run", "srv", "mnt"}]
print("ESCAPED:", found) if found else print("HELD")
