"""No link under /proc leads to a file that the call's own root does not have."""

import glob
import os

target = os.environ["PLANT"].lstrip("/") + "/secret"
roads = [f"{process}/{link}/" for process in glob.glob("/proc/[0-9]*") for link in ("root", "cwd")]
roads += [road + "../" * 12 for road in roads]
roads += [
    path + "/" for path in glob.glob("/proc/[0-9]*/fd/*") + glob.glob("/proc/self/map_files/*")
]
roads += ["../" * depth for depth in range(1, 14)]
found = [road for road in roads if os.path.exists(road + target)]
print("ESCAPED:", found) if found else print("HELD")
